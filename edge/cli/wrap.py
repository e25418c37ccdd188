"""Breaks the lines of an answer between words while it is streamed to a terminal, which would break them anywhere.

What has come of a word is shown at once; when the word reaches the edge, it moves to the next row.  The row before is
filled to its last column, so that the terminal itself goes on to the next row: to it this is one line, which it copies
without a line break.  At least the last column stays blank there, so that no two words are copied as one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

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
            self._lost = True
        self._width = width
        return "".join(self._placed(text, width)) if width else text

    def _new_line(self) -> None:
        self._line = ""  # all of it, in rows of the terminal
        self._lost = False  # nobody knows in which column the text goes on: the terminal was resized
        self._new_row()

    def _new_row(self) -> None:
        self._column = 0  # cells of the row that are taken
        self._sure = True  # all terminals agree about that
        self._word = ""  # narrow characters behind the last blank of the row, if they can be moved
        self._begin: int | None = 0  # column in which it begins; None: it can not

    def _placed(self, text: str, width: int) -> Iterator[str]:
        for char in text:
            if char == "\n":
                self._end_line()
            elif char in " \t":
                unknown = self._lost or (self._column >= width and not self._sure)
                if unknown and not self._verbatim:
                    self._lost, char = False, "\n"  # from here on the column is known again
                    self._line += char
                    self._new_row()
                else:
                    self._blank(char, width)
            else:
                cells, sure, joined = size(char, self._line[-1:])
                alone = cells == 2 or not sure
                if self._column + cells > width - 1 and not joined and self._breaks(alone):
                    word = "" if alone else self._word
                    # back to where the word begins, to the last column, and over the edge
                    yield "\b" * cells_of(word) + f"\x1b[K\x1b[{width}G {word}"
                    self._new_row()
                    self._word, self._column = word, cells_of(word)
                self._put(char, cells, sure, alone, width)
            yield char

    @property
    def _verbatim(self) -> bool:
        return bool(self._fence or _VERBATIM.match(self._line))

    def _breaks(self, alone: bool) -> bool:
        """Whether the row ends before the word, or before a character that stands alone (the terminal does it, but in a
        column that is not known for sure).
        """
        if self._lost or self._verbatim:
            return False
        return not self._sure if alone else bool(self._begin)

    def _put(self, char: str, cells: int, sure: bool, alone: bool, width: int) -> None:
        self._line += char
        if self._column + cells > width:  # the terminal has begun a new row, if it counts as we do
            self._lost |= not (self._sure and sure)
            self._new_row()
            self._begin = None
        self._column += cells
        self._sure &= sure
        if alone:
            self._word, self._begin = "", self._column
        else:
            self._word += char

    def _blank(self, char: str, width: int) -> None:
        self._line += char
        if self._column >= width:
            self._new_row()
        self._column = min(self._column // 8 * 8 + 8, width - 1) if char == "\t" else self._column + 1
        self._word, self._begin = "", self._column % width if self._sure else self._column

    def _end_line(self) -> None:
        if found := _FENCE.match(self._line):
            fence, rest = found.groups()
            if not self._fence:
                self._fence = fence
            elif fence.startswith(self._fence) and not rest.strip():
                self._fence = ""
        self._new_line()


def size(char: str, before: str) -> tuple[int, bool, bool]:
    """Cells of a terminal that ``char`` takes behind the character ``before``, rather too many than too few; whether
    all terminals agree; whether it belongs to the character before it.
    """
    if char < "\u0300":
        return 1, True, False
    joined = before == "\u200d"  # joins emoji, in some terminals
    if char == "\ufe0f":  # shown as an emoji: in some terminals two cells instead of one
        return int(bool(before) and unicodedata.east_asian_width(before) not in "WF"), False, True
    if "\U0001f1e6" <= char <= "\U0001f1ff":  # half of a flag
        return 2, False, before >= "\U0001f1e6"
    if unicodedata.east_asian_width(char) in "WF":
        skin = "\U0001f3fb" <= char <= "\U0001f3ff"
        return 2, not (skin or joined), skin or joined
    category = unicodedata.category(char)
    if category in ("Mn", "Me", "Cf"):
        return 0, char != "\u200d", True
    return 1, category != "Mc", category == "Mc" or joined


def cells_of(text: str) -> int:
    """Cells of characters that can be moved."""
    return sum(size(char, "")[0] for char in text)
