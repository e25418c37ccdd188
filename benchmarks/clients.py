"""The HTTP service with 1, 8 and 50 clients: seconds to the first token, and tokens/s of all clients together.

    python benchmarks/clients.py [MODEL] [-t THREADS] [--clients 1,8,50] [--parallel 8] [-n 64] [--rounds 5]
        [--python INTERPRETER]

Starts `serve` on the demo model, or MODEL, and sends streamed chats from as many threads as there are clients, each
with a conversation of its own.  The median of the rounds counts; the first round is not one of them.  Printed with the
peak of the service's memory.  --python: the interpreter whose `edge` serves, to compare with another copy of the
source, in whose folder the command is run then.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path


def ask(port: int, client: int, turn: int, n: int, found: list[tuple[float, float, int]]) -> None:
    """One streamed chat: (seconds to the first token, when it ended, tokens)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    question = f"I am guest {client}, this is question {turn}. Tell me a story."
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": n, "ignore_eos": True,
            "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    begun, first, tokens = time.perf_counter(), 0.0, 0
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(response.read())
    for line in response:
        if not first and b'"content":"' in line and b'"content":""' not in line:
            first = time.perf_counter() - begun
        if b'"completion_tokens"' in line:
            tokens = json.loads(line[6:])["usage"]["completion_tokens"]
    connection.close()
    found.append((first, time.perf_counter(), tokens))


def round_of(port: int, clients: int, turn: int, n: int) -> tuple[float, float]:
    """(median seconds to the first token, tokens per second) of all clients at once."""
    found: list[tuple[float, float, int]] = []
    threads = [threading.Thread(target=ask, args=(port, i, turn, n, found)) for i in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == clients, "a client failed"
    seconds = max(end for _, end, _ in found) - begun
    return statistics.median(first for first, _, _ in found), sum(tokens for _, _, tokens in found) / seconds


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--clients", default="1,8,50")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    a = parser.parse_args()
    line = [a.python, "-m", "edge", "serve", "--port", "0", "--ctx", "512", "--parallel", str(a.parallel),
            "--queue", "64", *(["-m", a.model] if a.model else []), *(["-t", str(a.threads)] if a.threads else [])]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for text in process.stderr:
            if found := re.search(r"answers at http://[^:]+:(\d+)", text):
                break
        else:
            raise SystemExit("the service did not start")
        port, turn = int(found[1]), 0
        threading.Thread(target=process.stderr.read, daemon=True).start()
        print(f"{'clients':>7} {'first token ms':>15} {'tokens/s':>10} {'peak RSS MB':>12}")
        for clients in map(int, a.clients.split(",")):
            rounds = []
            for _ in range(a.rounds + 1):
                rounds.append(round_of(port, clients, turn, a.n))
                turn += 1
            firsts, rates = zip(*rounds[1:])
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = re.search(r"VmHWM:\s+(\d+)", status)
            print(f"{clients:>7} {1e3 * statistics.median(firsts):>15.1f} {statistics.median(rates):>10.1f} "
                  f"{int(peak[1]) / 1e3 if peak else 0:>12.1f}", flush=True)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
