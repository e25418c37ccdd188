"""For tests of the service: start it, listen to what it tells systemd, talk to it as a client."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REAL = [sys.executable, "-m", "edge"]
FAKE = [sys.executable, "-m", "tests.fake_engine"]


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A temporary folder with a short path: a socket's has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="be-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def environment(**extra: str) -> dict[str, str]:
    """Variables for a program under test: the caller's, without those that would change what it does; the demo model
    answers where a test names none.
    """
    foreign = ("BITNET_EDGE", "NOTIFY_SOCKET", "WATCHDOG_", "SPEAK", "TOKENS", "PATIENCE", "GREETING", "DISPLAY",
               "NO_COLOR", "CLICOLOR_FORCE")  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "BITNET_EDGE_MODEL": "demo", "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", **extra}


def on_a_terminal(state: Path, **extra: str) -> dict[str, str]:
    """:func:`environment` for a program in a terminal, which keeps its files below ``state``."""
    return environment(**{"XDG_STATE_HOME": str(state), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **extra})


class Manager:
    """Stands in for systemd: the socket that $NOTIFY_SOCKET names."""

    def __init__(self, folder: Path, abstract: bool = False) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.address = f"@{folder}/notify" if abstract else f"{folder}/notify"
        self._socket.bind(self.address.replace("@", "\0"))

    def environment(self, watchdog: float | None = None) -> dict[str, str]:
        """Variables that systemd would set."""
        limit = {} if watchdog is None else {"WATCHDOG_USEC": str(int(watchdog * 1e6))}
        return {"NOTIFY_SOCKET": self.address, **limit}

    def hear(self, seconds: float) -> list[str]:
        """Lines that arrive within so many seconds."""
        lines = []
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            with contextlib.suppress(TimeoutError):
                lines += self._socket.recv(4096).decode().splitlines()
        return lines

    def expect(self, line: str, seconds: float = 300) -> None:
        """Wait for one line."""
        deadline = time.monotonic() + seconds
        while True:
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            if line in self._socket.recv(4096).decode().splitlines():
                return

    def close(self) -> None:
        self._socket.close()


class Talk:
    """One client of the service."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(300)
        deadline = time.monotonic() + 300
        while True:  # the service may be starting: no path yet, or one that does not listen yet
            try:
                self.socket.connect(str(path))
                break
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):  # the last: its queue is full
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._lines = self.socket.makefile("rb")

    def send(self, request: dict[str, Any] | bytes) -> None:
        self.socket.sendall(request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n")

    def ask(self, question: str, ident: Any = 1, **more: Any) -> None:
        self.send({"op": "chat", "id": ident, "messages": [{"role": "user", "content": question}], **more})

    def next(self) -> dict[str, Any]:
        """The next event; {} at the end."""
        line = self._lines.readline()
        return json.loads(line) if line else {}

    def until(self, *kinds: str) -> list[dict[str, Any]]:
        """Events up to the first of these kinds."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["ev"] not in kinds:
            event = self.next()
            assert event, f"the connection ended; until then: {events}"
            events.append(event)
        return events

    def answer(self, question: str, ident: Any = 1, **more: Any) -> str:
        """Ask, and wait for the whole text."""
        self.ask(question, ident, **more)
        events = self.until("done", "error")
        assert events[-1]["ev"] == "done", events[-1]
        return "".join(event["text"] for event in events if event["ev"] == "text")

    def close(self) -> None:
        self._lines.close()
        self.socket.close()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def service(
    path: Path, *options: str, command: Sequence[str] = REAL, start: Sequence[str] = ("chat", "--greedy"),
    **environ: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """``chat --socket PATH``, or what ``start`` says, running and ready."""
    process = subprocess.Popen(
        [*command, *start, "--socket", str(path), *options],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(**{"BITNET_EDGE_MODEL": "demo", **environ}),
    )  # fmt: skip
    assert process.stderr and process.stdout
    try:
        line = process.stderr.readline()
        assert line.endswith(f" answers at {path}\n".encode()), line
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()
        process.stdout.close()
