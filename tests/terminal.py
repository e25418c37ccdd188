"""A program on a pseudo-terminal, for tests: type, wait for what appears, press Ctrl-C, resize nothing."""

from __future__ import annotations

import fcntl
import os
import platform
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"
PASTE = "\x1b[200~{}\x1b[201~"


class Terminal:
    """``command`` with a terminal of its own as standard input, output and error; a context manager."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], columns: int = 100) -> None:
        self.screen = ""
        self._fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches this program

        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=dict(env), preexec_fn=own_terminal
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._fd)

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._fd, text.encode())

    def line(self, text: str) -> None:
        """Type a line and press Enter."""
        self.type(text + ENTER)

    def expect(self, pattern: str, timeout: float = 300.0) -> str:
        """Wait until ``pattern`` appears behind what was matched before; returns all up to its end."""
        deadline = time.monotonic() + timeout
        while True:
            found = re.search(pattern, self.screen, re.DOTALL)
            if found:
                seen, self.screen = self.screen[: found.end()], self.screen[found.end() :]
                return seen
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{pattern!r} did not appear; the screen has {self.screen!r}")

    def taken_over(self) -> None:
        """Wait until the line editor has the terminal: what is typed earlier the terminal itself shows and may drop."""
        self._wait_for_mode(0)

    def handed_over(self) -> None:
        """Wait until the line editor has given the terminal back: only then is Ctrl-C a signal."""
        self._wait_for_mode(termios.ICANON)

    def reads(self, timeout: float = 300.0) -> None:
        """Wait until the program, or one that it started, sleeps in read() of its standard input."""
        deadline = time.monotonic() + timeout
        while not any(self._sleeps_in_read(pid) for pid in self._family(self.process.pid)):
            assert time.monotonic() < deadline, "the program does not read"
            time.sleep(0.005)

    def _family(self, pid: int) -> list[int]:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:  # it has ended
            return []
        return [pid, *(one for child in children for one in self._family(int(child)))]

    @staticmethod
    def _sleeps_in_read(pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/syscall").read_text().split()
        except OSError:
            return False
        read = {"x86_64": "0", "aarch64": "63"}[platform.machine()]
        return words[:2] == [read, "0x0"]

    def _wait_for_mode(self, mode: int, timeout: float = 300.0) -> None:
        deadline = time.monotonic() + timeout
        while termios.tcgetattr(self._fd)[3] & termios.ICANON != mode:
            assert time.monotonic() < deadline, f"the line editor {'keeps' if mode else 'does not take'} the terminal"
            time.sleep(0.001)

    def wait(self, timeout: float = 300.0) -> int:
        """The exit code, once the program has ended."""
        deadline = time.monotonic() + timeout
        while self._read(max(0.0, min(0.2, deadline - time.monotonic()))) or self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running; the screen has {self.screen!r}"
        return self.process.wait()

    def _read(self, timeout: float) -> bool:
        if not select.select([self._fd], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # the program has closed its side
            return False
        self.screen += data.decode("utf-8", "replace")
        return bool(data)
