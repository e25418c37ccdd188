"""The program: run to its end, or as a service on a Unix socket; what it sends to systemd."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REAL = [sys.executable, "-m", "edge"]
FAKE = [sys.executable, "-m", "tests.fake_engine"]


def environment(**extra: str) -> dict[str, str]:
    """Variables for a program under test: the caller's, without those that would change what it does; the demo model
    answers where a test names none.
    """
    foreign = ("BITNET_EDGE", "NOTIFY_SOCKET", "WATCHDOG_", "SPEAK", "TOKENS", "PATIENCE", "GREETING", "DISPLAY",
               "NO_COLOR", "CLICOLOR_FORCE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "BITNET_EDGE_MODEL": "demo", "BITNET_EDGE_NO_CACHE": "1", "PYTHONPATH": str(ROOT),
            "LC_ALL": "C.UTF-8", **extra}


def bitnet_edge(
    *arguments: str | Path, given: str = "", cwd: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The program with these arguments, until it ends; ``given`` is its standard input."""
    return subprocess.run([*REAL, *arguments], cwd=cwd, env=environment(**variables), input=given, capture_output=True,
                          text=True, timeout=600)


def in_python(code: str, *arguments: str | Path, given: str = "", **variables: str) -> str:
    """What a program in Python prints that is run here, in a process of its own; it must not fail.  ``given`` is its
    standard input."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, env={**os.environ, **variables},
                          input=given, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tree(root: Path, files: dict[str, str]) -> str:
    """Write these files, and their folders, below a folder; returns its path."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def on_a_terminal(state: Path, **extra: str) -> dict[str, str]:
    """:func:`environment` for a program in a terminal, which keeps its files below ``state``."""
    return environment(**{"XDG_STATE_HOME": str(state), "TERM": "xterm", **extra})


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


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket; waits until somebody listens there."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=300)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(300)
        deadline = time.monotonic() + 300
        while (failed := self.sock.connect_ex(str(self.path))) != 0:
            assert time.monotonic() < deadline, os.strerror(failed)
            time.sleep(0.01)


def asked(path: Path, question: str, **more: Any) -> str:
    """The answer of the service at ``path``."""
    with contextlib.closing(UnixConnection(path)) as connection:
        body = {"messages": [{"role": "user", "content": question}], **more}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = json.load(connection.getresponse())
        return answer["choices"][0]["message"]["content"]


# ---- a limit on the threads of one process, which the system ignores for root and counts for all of a user -----------

#: Linux: prctl(PR_CAPBSET_DROP), CAP_SYS_ADMIN and CAP_SYS_RESOURCE, with which the limit is ignored
DROP, RIGHTS = 24, (21, 24)


def few_threads(n: int) -> Callable[[], None]:
    """For ``preexec_fn``: the program may have ``n`` threads, its first included.

    It counts as a user of its own, and reads and writes files as root.  The hard limit stays as it is.
    """
    drop = ctypes.CDLL(None).prctl

    def prepare() -> None:
        for right in RIGHTS:
            if drop(DROP, right, 0, 0, 0) != 0:
                raise PermissionError("no right to give up rights")
        os.setresuid(20_000 + os.getpid() % 40_000, 0, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, (n, resource.getrlimit(resource.RLIMIT_NPROC)[1]))

    return prepare


@functools.cache
def can_limit_threads() -> bool:
    """True where :func:`few_threads` limits anything."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    try:
        code = "import threading; threading.Thread(target=int).start()"
        return subprocess.run(
            [sys.executable, "-c", code], preexec_fn=few_threads(1), capture_output=True).returncode != 0
    except (OSError, subprocess.SubprocessError):
        return False
