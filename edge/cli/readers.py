"""Where the lines of a conversation come from: a terminal with line editing (``terminal.py``), a terminal that cannot
move its cursor, or a pipe (no prompts, no colours).
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from edge.cli.output import Output, is_tty, moves_cursor
from edge.cli.signals import SIGNALS, CtrlC
from edge.errors import UsageError
from edge.files import LINE_LIMIT, home


class Reader(Protocol):
    """Where the lines of a conversation come from."""

    interactive: bool  # for a person: show prompts and hints, and continue after errors
    typed: Callable[[str], None] | None  # called with the line so far, when it changes
    reserve: int  # bytes in the memory plan for what reading takes

    def read(self, prompt: str) -> str:
        """The next line, without its newline; bytes that are not UTF-8 become surrogates.

        Raises EOFError at the end and CtrlC on Ctrl-C; that of a pipe raises KeyboardInterrupt.
        """
        ...


class PipeReader:
    """Lines of standard input when it is not a terminal.  Raises UsageError for a line longer than LINE_LIMIT bytes.

    It waits in intervals: a signal that arrives just before a system call begins does not end the call, and its handler
    would run only after the next line.
    """

    interactive = False
    typed: Callable[[str], None] | None = None
    reserve = 0
    INTERVAL = 0.5  #: seconds between two looks at what has arrived

    def __init__(self) -> None:
        self._held = bytearray()  # read and not yet returned
        self._searched = 0  # bytes of it that hold no newline
        self._ended = False

    def read(self, prompt: str) -> str:
        with SIGNALS.calling(None):
            line = self._line()
        if not line:
            raise EOFError
        return line.decode("utf-8-sig", "surrogateescape").rstrip("\r\n")

    def _line(self) -> bytes:
        """The next line with its newline; b"" at the end of the input."""
        if sys.stdin is None:
            return b""
        try:
            fd = sys.stdin.fileno()
        except OSError:  # not a file of the system: a program put something of its own there
            line = sys.stdin.buffer.readline(LINE_LIMIT + 2)
            if len(line) > LINE_LIMIT + 1:
                raise too_long() from None
            return line
        while (at := self._held.find(b"\n", self._searched)) < 0 and not self._ended:
            self._searched = len(self._held)
            ready, _, _ = select.select([fd], [], [], self.INTERVAL)
            if len(self._held) > LINE_LIMIT:
                raise too_long()
            if ready:
                data = os.read(fd, 1 << 16)
                self._held += data
                self._ended = not data
        end = at + 1 if at >= 0 else len(self._held)
        line = bytes(self._held[:end])
        del self._held[:end]
        self._searched = 0
        return line


def too_long() -> UsageError:
    """The error for a message that is longer than LINE_LIMIT bytes."""
    return UsageError(f"a message on standard input is longer than {LINE_LIMIT >> 20} MiB")


class PlainReader:
    """Lines of a terminal without cursor movement (TERM=dumb, serial consoles), edited by the system.

    Not ``input()``: after one Ctrl-C it looks for signals again with the exception already set (CPython 3.11), and a
    copy of the Ctrl-C that arrives in between ends the program with a SystemError.  It waits in intervals, as the
    reader of a pipe does.
    """

    interactive = True
    typed: Callable[[str], None] | None = None  # but the system edits the line, and does not show it
    reserve = 0

    def __init__(self) -> None:
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="surrogateescape")

    def read(self, prompt: str) -> str:
        try:
            with SIGNALS.calling(None):
                sys.stdout.write(prompt)
                sys.stdout.flush()
                while not select.select([sys.stdin], [], [], PipeReader.INTERVAL)[0]:
                    pass
                line = sys.stdin.readline()  # the system has a whole one
        except KeyboardInterrupt:
            print()
            raise CtrlC from None
        if not line:
            raise EOFError
        return line.removesuffix("\n")


def choose_reader(out: Output, commands: Mapping[str, str], history: Path | None = None) -> Reader:
    """A reader with line editing if both ends are a terminal that supports it, else a plain one.

    ``commands``: /commands that Tab completes, name -> help; ``history``: the history file, None for none.
    """
    if not (is_tty(sys.stdin) and is_tty(sys.stdout)):
        return PipeReader()
    if not moves_cursor():
        return PlainReader()
    try:
        from edge.cli.terminal import TerminalReader
    except ImportError:  # a minimal installation without prompt_toolkit still chats
        return PlainReader()
    return TerminalReader(commands, history, out.colored(sys.stdout))


def history_path() -> Path:
    """``$BITNET_EDGE_HOME/history``, else under the XDG state folder."""
    return Path(home("BITNET_EDGE_HOME", "XDG_STATE_HOME", "~/.local/state"), "history")
