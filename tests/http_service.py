"""For tests of `bitnet-edge serve`: start it, ask it, take its answers apart."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.services import REAL, ROOT, environment

BOUND = 120.0  # seconds that anything here may take on a busy machine


class Server:
    """A running service.  ``log``: what it wrote to standard error until it was ready."""

    def __init__(self, process: subprocess.Popen[str], address: str, log: str) -> None:
        self.process = process
        self.url = address
        self.log = log
        self.host, _, port = address.removeprefix("http://").rpartition(":")
        self.port = int(port) if port.isdigit() else 0

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=BOUND)

    def socket(self) -> socket.socket:
        """A connection without words yet; the caller closes it."""
        return socket.create_connection((self.host, self.port), timeout=BOUND)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        """(status, headers in small letters, body; JSON is parsed)."""
        connection = self.connect()
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            raw = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            kind = found.get("content-type", "")
            return answer.status, found, json.loads(raw) if kind.startswith("application/json") else raw.decode()
        finally:
            connection.close()

    def chat(self, messages: Any, **more: Any) -> Any:
        """The body of a chat completion that succeeds; a text is one message of the user."""
        messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        status, _, body = self.ask("POST", "/v1/chat/completions", {"messages": messages, **GREEDY, **more})
        assert status == 200, body
        return body

    def events(self, path: str, body: Any) -> list[Any]:
        """The events of a stream; the last one is "[DONE]"."""
        status, headers, text = self.ask("POST", path, {**body, "stream": True})
        assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
        lines = [line[6:] for line in text.split("\n\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    def until(self, **wanted: int) -> dict[str, Any]:
        """Wait until /health shows these counts."""
        deadline = time.monotonic() + BOUND
        while True:
            state = self.ask("GET", "/health")[2]
            if all(state.get(name) == value for name, value in wanted.items()):
                return state
            assert time.monotonic() < deadline, state
            time.sleep(0.05)


GREEDY = {"temperature": 0, "max_tokens": 16}


@contextlib.contextmanager
def serving(
    *arguments: str, command: Sequence[str] = REAL, cwd: Path = ROOT, **variables: str
) -> Iterator[Server]:
    """`bitnet-edge serve` with these arguments, ended by SIGTERM."""
    line = [*command, "serve", *(() if "--socket" in arguments else ("--port", "0")), *arguments]
    process = subprocess.Popen(line, cwd=cwd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env=environment(**variables))
    assert process.stderr is not None
    try:
        log, deadline = "", time.monotonic() + BOUND
        while not (found := re.search(r"answers at ([^,\s]+).*\n", log)):
            ready, _, _ = select.select([process.stderr], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(process.stderr.fileno(), 1 << 16) if ready else b""  # past buffers, which select cannot see
            assert data, f"the service did not start: {log}"
            log += data.decode()
        yield Server(process, found[1], log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(BOUND)
        finally:
            process.kill()
            process.stderr.close()


@contextlib.contextmanager
def service(path: Path, *arguments: str, **how: Any) -> Iterator[subprocess.Popen[str]]:
    """The same on a Unix socket, with the likeliest answers."""
    with serving("--temp", "0", "--socket", str(path), *arguments, **how) as server:
        yield server.process
