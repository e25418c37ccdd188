"""Where the lines of a conversation come from: a terminal with line editing (``terminal.py``), a terminal that cannot
move its cursor, or a pipe (no prompts, no colours).
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from edge.cli.output import Output, is_tty, moves_cursor
from edge.cli.signals import SIGNALS, CtrlC
from edge.errors import UsageError
from edge.files import LINE_LIMIT, home


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


class PipeReader(Reader):
    """Lines of standard input when it is not a terminal.  Raises UsageError for a line longer than LINE_LIMIT bytes.

    It waits in intervals: a signal that arrives just before a system call begins does not end the call, and its handler
    would run only after the next line.
    """

    interactive = False
    encoding = "utf-8-sig"
    INTERVAL = 0.5  #: seconds between two looks at what has arrived

    def __init__(self) -> None:
        self._held = bytearray()  # read and not yet returned

    def read(self, prompt: str) -> str:
        with SIGNALS.calling(None):
            line = self._line()
        if not line:
            raise EOFError
        return line.decode(self.encoding, "surrogateescape").rstrip("\r\n")

    def _line(self) -> bytes:
        """The next line with its newline; b"" at the end of the input."""
        if sys.stdin is None:
            return b""
        try:
            fd, searched = sys.stdin.fileno(), 0
        except OSError:  # not a file of the system: a program put something of its own there
            return sys.stdin.buffer.readline()
        while (at := self._held.find(b"\n", searched)) < 0:
            searched = len(self._held)
            if searched > LINE_LIMIT:
                raise too_long()
            if select.select([fd], [], [], self.INTERVAL)[0]:
                data = os.read(fd, 1 << 16)
                if not data:
                    break
                self._held += data
        end = at + 1 or len(self._held)
        line = bytes(self._held[:end])
        del self._held[:end]
        return line


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
