"""Breaks the lines of an answer between words while it is streamed to a terminal, which would break them anywhere.

What has come of a word is shown at once; when the word reaches the edge, it moves to the next row.  The row before is
filled to its last column, so that the terminal itself goes on to the next row: to it this is one line, which it copies
without a line break.  At least the last column stays blank there, so that no two words are copied as one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

#: the line that begins or ends a block of code in Markdown
_FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)$")
#: lines whose blanks mean something: indented code (not an item of a list) and rows of tables
_VERBATIM = re.compile(r"(?: {4}|\t)(?!\s*(?:[-*+•]|\d+[.)])\s)| {0,3}\|")


class Wrap:
    """Call it with each piece of a text; the result is what to write.  ``columns``: those of the terminal now; None: it
    has no known width, and nothing is changed.
    """

    def __init__(self, columns: Callable[[], int | None]) -> None:
        self._columns = columns
        self._width: int | None = None
        self._fence = ""  # that of the block of code that is being written
        self._new_line()

    def __call__(self, text: str) -> str:
        width = self._columns()
        if self._width != width and self._line:
            self._resized = True
        self._width = width
        return "".join(self._placed(char, width) for char in text) if width else text

    def restart(self) -> None:
        """The text goes on in the first column: a shell has continued the program, and written a line before."""
        self._column, self._word, self._begin = 0, "", 0

    def _new_line(self) -> None:
        self._line = ""  # all of it, in rows of the terminal
        self._lost = False  # in which column the text goes on: the terminal breaks the rest of the line
        self._resized = False  # so it is not known either, until a line break in place of the next blank
        self._column = 0  # columns of the row that are taken
        self._word = ""  # behind the last blank of the row
        self._begin = 0  # column in which it begins; one that fills a row is broken by the terminal

    def _placed(self, char: str, width: int) -> str:
        if char == "\n":
            self._end_line()
            return char
        self._line += char
        cells, blank = cells_of(char), char in " \t"
        self._lost = self._lost or cells is None
        verbatim = bool(self._fence or _VERBATIM.match(self._line))
        if self._resized and blank and not verbatim:
            self._resized, self._column, self._word, self._begin = False, 0, "", 0
            return "\n"
        if cells is None or self._lost or self._resized:
            return char
        moved = ""
        if cells == 1 and not (blank or verbatim) and self._column >= width - 1 and self._begin:
            taken = self._column - self._begin
            # back to where the word begins, to the last column, and over the edge
            moved = "\b" * taken + f"\x1b[K\x1b[{width}G {self._word}"
            self._column, self._begin = taken, 0
        elif self._column + cells > width:
            self._column, self._word, self._begin = 0, "", 0
        self._column = min(self._column // 8 * 8 + 8, width - 1) if char == "\t" else self._column + cells
        if blank or cells == 2:  # a row may end behind these
            self._word, self._begin = "", self._column % width
        else:
            self._word += char
        return moved + char

    def _end_line(self) -> None:
        if found := _FENCE.match(self._line):
            fence, rest = found.groups()
            if not self._fence:
                self._fence = fence
            elif fence.startswith(self._fence) and not rest.strip():
                self._fence = ""
        self._new_line()


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
