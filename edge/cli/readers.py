"""Where the lines of a conversation come from: a pipe (no prompts, no colours), or a terminal that cannot move its
cursor; ``terminal.py`` has that with line editing.
"""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Callable
from typing import Any

from edge.cli.signals import SIGNALS, CtrlC
from edge.errors import UsageError
from edge.files import LINE_LIMIT


class Reader:
    """Where the lines of a conversation come from."""

    interactive = True  #: for a person: show prompts and hints, and continue after errors
    typed: Callable[[str], None] | None = None  #: called with the line so far, when it changes
    reserve = 0  #: bytes in the memory plan for what reading takes

    def read(self, prompt: str) -> str:
        """The next line, without its newline; bytes that are not text become surrogates.

        Raises EOFError at the end and CtrlC on Ctrl-C; that of a pipe raises KeyboardInterrupt.
        """
        raise NotImplementedError


class Waiting(io.FileIO):
    """A file that is read when it has something, and waits in intervals: a signal that comes just before a system call,
    or to another thread, does not end the call, and its handler would run only after the next line.
    """

    INTERVAL = 0.5  #: seconds between two looks at signals

    def readinto(self, buffer: Any) -> int | None:
        while not select.select([self], [], [], self.INTERVAL)[0]:
            pass
        return super().readinto(buffer)


class PipeReader(Reader):
    """Lines of standard input when it is not a terminal.  Raises UsageError for a line longer than LINE_LIMIT bytes."""

    interactive = False
    encoding = "utf-8-sig"

    def __init__(self) -> None:
        self._file: Any = getattr(sys.stdin, "buffer", io.BytesIO())
        try:
            self._file = io.BufferedReader(Waiting(self._file.fileno(), closefd=False))
        except OSError:  # not a file of the system
            pass

    def read(self, prompt: str) -> str:
        with SIGNALS.calling(None):
            line = self._file.readline(LINE_LIMIT + 2)
        if not line:
            raise EOFError
        if len(line.rstrip(b"\r\n")) > LINE_LIMIT:
            raise too_long()
        return line.decode(self.encoding, "surrogateescape").rstrip("\r\n")


def too_long() -> UsageError:
    """The error for a message that is longer than LINE_LIMIT bytes."""
    return UsageError(f"a message on standard input is longer than {LINE_LIMIT >> 20} MiB")


class PlainReader(PipeReader):
    """Lines of a terminal without cursor movement (TERM=dumb, serial consoles), edited by the system."""

    interactive = True

    def __init__(self) -> None:
        super().__init__()
        self.encoding = sys.stdin.encoding

    def read(self, prompt: str) -> str:
        sys.stdout.write(prompt)
        sys.stdout.flush()
        try:
            return super().read(prompt)
        except KeyboardInterrupt:
            print()
            raise CtrlC from None
