"""A program on a pseudo-terminal, for tests: type, wait for what appears, press Ctrl-C, resize."""

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

from wcwidth import wcwidth

EDITOR = r"\x1b\[\?2004h"  # what the line editor prints once it has taken the terminal
CTRL_C, CTRL_D, CTRL_Z, ENTER = "\x03", "\x04", "\x1a", "\r"
PASTE = "\x1b[200~{}\x1b[201~"


class Terminal:
    """``command`` with a terminal of its own as standard input, output and error; a context manager."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], columns: int = 100) -> None:
        self.screen = ""
        self._fd, slave = pty.openpty()
        self.resize(40, columns)

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches this program

        self._name = os.ttyname(slave)
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
        """Wait until ``pattern`` appears after what was matched before; returns all up to its end."""
        deadline = time.monotonic() + timeout
        while True:
            found = re.search(pattern, self.screen, re.DOTALL)
            if found:
                seen, self.screen = self.screen[: found.end()], self.screen[found.end() :]
                return seen
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{pattern!r} did not appear; the screen has {self.screen!r}")

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window; the program is told."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def settle(self, seconds: float = 0.15) -> str:
        """Wait until nothing has appeared for so long; returns all that has since the last match."""
        while self._read(seconds):
            pass
        return self.screen

    def taken(self, timeout: float = 300.0) -> None:
        """Wait until the program has read all keys: what is pressed next comes in another read."""
        deadline, slave = time.monotonic() + timeout, os.open(self._name, os.O_RDWR | os.O_NOCTTY)
        try:
            while struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, b"\0" * 4))[0]:
                assert time.monotonic() < deadline, "the program does not read"
                time.sleep(0.005)
        finally:
            os.close(slave)

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._fd)
        self._fd = os.open(os.devnull, os.O_RDWR)

    def taken_over(self) -> None:
        """Wait until the line editor has the terminal: what is typed earlier the terminal itself shows and may drop."""
        self._wait_for_mode(0)

    def handed_over(self) -> None:
        """Wait until the line editor has given the terminal back: only then is Ctrl-C a signal.  For answers that last:
        when the next prompt comes at once, nobody sees that.
        """
        self._wait_for_mode(termios.ICANON)

    def reads(self, timeout: float = 300.0) -> None:
        """Wait until the program, or one that it started, sleeps in read() of its standard input, or in select()."""
        deadline = time.monotonic() + timeout
        while not any(self._sleeps_in_read(pid) for pid in self.family(self.process.pid)):
            assert time.monotonic() < deadline, "the program does not read"
            time.sleep(0.005)

    def family(self, pid: int) -> list[int]:
        """A process and those it started."""
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:  # it has ended
            return []
        return [pid, *(one for child in children for one in self.family(int(child)))]

    @staticmethod
    def _sleeps_in_read(pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/syscall").read_text().split()
        except OSError:
            return False
        read, selects = {"x86_64": ("0", ("23", "270")), "aarch64": ("63", ("72",))}[platform.machine()]
        return words[:2] == [read, "0x0"] or words[0] in selects

    def _wait_for_mode(self, mode: int, timeout: float = 300.0) -> None:
        deadline = time.monotonic() + timeout
        while termios.tcgetattr(self._fd)[3] & termios.ICANON != mode:
            self._read(0.001)  # a program whose output nobody takes waits
            if time.monotonic() > deadline or self.process.poll() is not None:
                verb = "keeps" if mode else "does not take"
                raise AssertionError(f"the line editor {verb} the terminal; the screen has {self.screen[-2000:]!r}")

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


class Screen:
    """A terminal: rows of cells, and whether each goes on in the next one.  Each cell has the text that it shows."""

    def __init__(self, width: int) -> None:
        self.width, self.column = width, 0
        self.rows: list[list[str]] = [[]]
        self.goes_on: list[bool] = []

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d*[KG]|.", text, re.DOTALL):
            row = self.rows[-1]
            if part == "\n":
                self._next(False)
            elif part == "\b":
                self.column -= 1
            elif part == "\x1b[K":
                del row[self.column :]
            elif part.startswith("\x1b"):
                self.column = int(part[2:-1]) - 1
            elif part == "\t":
                self.column = min(self.column // 8 * 8 + 8, self.width - 1)
            elif (cells := wcwidth(part)) == 0:
                row[self.column - 1] += part
            else:
                if self.column + cells > self.width:
                    self._next(True)
                row = self.rows[-1]
                row += [" "] * (self.column - len(row))
                row[self.column : self.column + cells] = [part, *[""] * (cells - 1)]
                self.column += cells

    def _next(self, goes_on: bool) -> None:
        self.goes_on.append(goes_on)
        self.rows.append([])
        self.column = 0

    @property
    def shown(self) -> list[str]:
        return ["".join(row) for row in self.rows]

    @property
    def copied(self) -> str:
        return "".join(row + ("" if on else "\n") for row, on in zip(self.shown, [*self.goes_on, False], strict=True))
