"""Answers on standard output, piece by piece.  On a terminal their lines are broken between words, and control
characters are left out; a pipe receives the text as it is.
"""

from __future__ import annotations

import re
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from edge.cli.output import Output, columns, is_tty, moves_cursor
from edge.cli.signals import SIGNALS

if TYPE_CHECKING:
    from edge.session.session import Session
    from edge.session.stream import Piece

    Ask = Callable[..., Iterator[Piece]]  # ask, complete or regen of a session, all but on_prefill given

#: characters that a terminal must not receive from a model: all control characters except newline and tab
_UNSAFE = {c: None for c in (*range(0x00, 0x20), 0x7F, *range(0x80, 0xA0)) if c not in (0x09, 0x0A)}
#: the line that begins or ends a block of code in Markdown
_FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)$")
#: lines whose blanks mean something: indented code (not an item of a list) and rows of tables
_VERBATIM = re.compile(r"(?: {4}|\t)(?!\s*(?:[-*+•]|\d+[.)])\s)| {0,3}\|")


class AnswerOutput:
    """Writes an answer, and ends it with exactly one newline: those at its end are held back until more text follows.

    ``thoughts``: whether to show the text of thinking; None shows it on a terminal if ``by`` is "token".
    """

    def __init__(self, out: Output, thoughts: bool | None = None, by: str = "token") -> None:
        self._out = out
        self._clean = is_tty(sys.stdout)
        self._thinks = thoughts if thoughts is not None else self._clean and by == "token"
        self._wrap = Wrap(lambda: columns(sys.stdout) if moves_cursor() else None)
        if self._clean:
            signal.signal(signal.SIGCONT, lambda *_: self._wrap.restart())  # the editor of the next question removes it
        self._thinking = False
        self._held = ""
        self._ended = False
        self.begun = False  # some of it was printed

    def feed(self, text: str, thought: bool = False) -> None:
        """Print one more piece.  Pieces of thinking are printed only if they are shown, dimmed where colour is on."""
        if not text or (thought and not self._thinks):
            return
        if thought:
            self._thinking = True
            self._write(text, "dim")
            return
        if self._thinking:
            self._thinking = False
            self._write("\n\n")
        self.begun = True
        text = self._held + text
        body = text.rstrip("\n")
        self._write(body)
        self._held = text[len(body) :]

    def _write(self, text: str, *styles: str) -> None:
        if self._clean:
            text = self._wrap(text.translate(_UNSAFE))
        self._out.write(self._out.style(text, *styles, stream=sys.stdout) if styles else text)

    def end(self, remark: str = "") -> None:
        """End the answer with its newline, and a remark before it; later calls have no effect."""
        if not self._ended:
            self._ended = True
            shown = self._out.style(f" {remark}", "dim", stream=sys.stdout) if remark and not self._out.quiet else ""
            self._out.write(shown + "\n")


def stream(out: Output, session: Session, ask: Ask, answer: AnswerOutput) -> None:
    """Ask, and print the answer while it is made; the first signal stops it.  The caller ends its line."""
    with out.progress("reading the prompt", "tokens") as progress:
        pieces = ask(on_prefill=lambda done, total, _cached: progress(done, total))
        try:
            with SIGNALS.calling(session.cancel):
                for piece in pieces:
                    progress.close()
                    answer.feed(piece.text, piece.thought)
        except OSError:  # the terminal is gone, or nobody reads any more: the answer so far stays in the session
            session.cancel()
            for _ in pieces:
                pass
            raise


def report(out: Output, session: Session) -> None:
    """Say after an answer, once, that pages can no longer be stored; and with -v how fast it was."""
    out.once(session.state.offload_error)
    if out.verbose:
        out.info(session.stats_line(), "dim")


class Wrap:
    """Breaks lines between words; call it with each piece of a text, the result is what to write.  ``columns``: of the
    terminal now; None: it has no known width, and nothing is changed.

    The beginning of a word is shown at once; when the word reaches the edge, it moves to the next row.  The row before
    is filled to its last column, so that the terminal itself goes on to the next row: to it this is one line, which it
    copies without a line break.  At least the last column stays blank there, so that no two words are copied as one.
    """

    def __init__(self, columns: Callable[[], int | None]) -> None:
        self._columns = columns
        self._width: int | None = None
        self._fence = ""  # of the block of code that is being written
        self._new_line()

    def __call__(self, text: str) -> str:
        width = self._columns()
        self._lost |= bool(self._line) and width != self._width
        self._width = width
        return "".join(self._placed(char, width) for char in text) if width else text

    def restart(self) -> None:
        """The text goes on in the first column: a shell has continued the program, and written a line before."""
        self._column, self._word, self._begin = 0, "", 0

    def _new_line(self) -> None:
        self._line = ""  # all of it, in rows of the terminal
        self._lost: bool = False  # the column is not known: the terminal breaks the rest of the line
        self._column = 0  # columns of the row that are taken
        self._word = ""  # after the last blank of the row
        self._begin = 0  # column in which it begins; one that fills a row is broken by the terminal

    def _placed(self, char: str, width: int) -> str:
        if char == "\n":
            if found := _FENCE.match(self._line):
                fence, rest = found.groups()
                if not self._fence:
                    self._fence = fence
                elif fence.startswith(self._fence) and not rest.strip():
                    self._fence = ""
            self._new_line()
            return char
        self._line += char
        cells = cells_of(char)
        if cells is None or self._lost:
            self._lost = True
            return char
        blank, moved = char in " \t", ""
        verbatim = self._fence or _VERBATIM.match(self._line)
        if cells == 1 and not (blank or verbatim) and self._column >= width - 1 and self._begin:
            taken = self._column - self._begin
            # back to where the word begins, to the last column, and over the edge
            moved = "\b" * taken + f"\x1b[K\x1b[{width}G {self._word}"
            self._column, self._begin = taken, 0
        elif self._column + cells > width:
            self._column, self._word, self._begin = 0, "", 0
        self._column = min(self._column // 8 * 8 + 8, width - 1) if char == "\t" else self._column + cells
        if blank or cells == 2:  # a row may end after these
            self._word, self._begin = "", self._column % width
        else:
            self._word += char
        return moved + char


def cells_of(char: str) -> int | None:
    """Cells of a terminal that a character takes; None: terminals do not agree about that."""
    if char < "\u0300":
        return 1
    if char in "\u200d\ufe0f" or "\U0001f1e6" <= char <= "\U0001f1ff" or "\U0001f3fb" <= char <= "\U0001f3ff":
        return None  # parts of emoji
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    category = unicodedata.category(char)
    return None if category == "Mc" else 0 if category in ("Mn", "Me", "Cf") else 1
