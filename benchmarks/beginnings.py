"""beginnings: time to the first token of a conversation that a server knows, in pairs of two source trees.

    python benchmarks/beginnings.py [--rounds 10] TREE [TREE]

Each tree is a checkout with its compiled layer.  In each round every tree answers the same requests, one tree after the
other: a conversation that continues in its place, one that was set aside for another, and one from ``--state`` after a
restart.  The demo model, one context, streamed answers of eight tokens.  Medians in milliseconds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from typing import Any

LONG = "Please tell me of the teas, the cakes and the scones that you have today, and what each of them costs. "


class Server:
    """A server of one tree."""

    def __init__(self, tree: str, state: str) -> None:
        options = ("-m", "demo", "--port", "0", "--parallel", "1", "--ctx", "2048", "--state", state)
        command = [sys.executable, "-m", "edge", "serve", *options]
        environment = {**os.environ, "PYTHONPATH": tree}
        self.process = subprocess.Popen(command, cwd=tree, env=environment, stderr=subprocess.PIPE, text=True)
        while "http://" not in (line := self.process.stderr.readline()):  # type: ignore[union-attr]
            if not line:
                sys.exit(f"the server of {tree} has ended")
        self.port = int(line.split("http://")[1].split()[0].rstrip("/").rsplit(":", 1)[1])

    def ask(self, messages: list[dict[str, str]]) -> tuple[float, int]:
        """(seconds to the first token, cached tokens); the answer is appended to ``messages``."""
        body = {"messages": messages, "max_tokens": 8, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        begun, first, text = time.perf_counter(), 0.0, ""
        usage: dict[str, Any] = {}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        for line in connection.getresponse():
            if not line.startswith(b"data: {"):
                continue
            event: dict[str, Any] = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                if said := choice["delta"].get("content"):
                    first = first or time.perf_counter() - begun
                    text += said
        connection.close()
        messages.append({"role": "assistant", "content": text})
        return first, usage["prompt_tokens_details"]["cached_tokens"]

    def end(self) -> None:
        """Ends it, so that conversations are saved."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.process.stderr.close()  # type: ignore[union-attr]


def talk(who: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"I am {who}. " + LONG * 50}]


def measure(tree: str) -> dict[str, tuple[float, int]]:
    """Case -> (seconds to the first token, cached tokens)."""
    found = {}
    more = {"role": "user", "content": "And a tea, please."}
    with tempfile.TemporaryDirectory() as state:
        server = Server(tree, state)
        one, other = talk("Anna"), talk("Bert")
        server.ask(one)
        one.append(more)
        found["in its place"] = server.ask(one)
        server.ask(other)
        one.append(more)
        found["set aside"] = server.ask(one)
        server.end()
        server = Server(tree, state)
        one.append(more)
        found["after a restart"] = server.ask(one)
        found["never read"] = server.ask(talk("Carl"))
        server.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("trees", nargs="+", metavar="TREE")
    flags = parser.parse_args()
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for i in range(flags.rounds):
        for tree in flags.trees if i % 2 else flags.trees[::-1]:
            for case, (first, cached) in measure(tree).items():
                seconds[case, tree].append(first)
                print(f"{i + 1} {tree} {case}: {1e3 * first:.1f} ms, {cached} tokens cached", file=sys.stderr)
    for case, tree in sorted(seconds, key=lambda key: key[0]):
        print(f"{case:16} {1e3 * statistics.median(seconds[case, tree]):8.1f} ms  {tree}")


if __name__ == "__main__":
    main()
