"""A program at work in a terminal: recorded from a real one, drawn as SVG.

A recording is an asciinema file (version 2): one JSON object that says what it is, then lines of [seconds, "o", text].
The picture is the last screen; each character appears at the time it was written, once, and readers who ask for less
motion see the last screen at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from edge.tools.plot import EDGE, Canvas  # noqa: E402

KEY = 0.045  # seconds between keys
PAUSE = 1.6  # seconds without anything new, at most, in a picture
WIDE, HIGH, SIZE = 8.4, 19, 14  # pixels of a character, and of its letters
TOP = 46  # pixels above the first line
#: numbers that choose a colour -> colours of pictures; 2 is dim
INK = {2: "remark", 31: "c4", 32: "c2", 33: "c6", 34: "c0", 35: "c3", 36: "c5", 39: "text"}
STYLE = (
    "#screen{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    "#screen text{animation:k 1ms backwards}@keyframes k{from,to{visibility:hidden}}"
    "@media(prefers-reduced-motion:reduce){#screen text{animation:none}}"
)


# ---- recording -------------------------------------------------------------------------------------------------------


def record(
    typed: Sequence[tuple[str, str]], env: Mapping[str, str], columns: int, rows: int, timeout: float = 300.0
) -> list[list[Any]]:
    """What a shell with a terminal of its own writes while somebody types lines at it: [seconds, "o", text].

    ``typed``: pairs of what to wait for, a regular expression over what is new on the screen, and the line to type
    then.  The recording ends with the last pair's text on the screen, of which nothing is typed where it is "".

    Raises TimeoutError where that does not come.
    """
    screen = Screen(columns, rows)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile"], stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal,
        env={**env, "PS1": r"\[\e[32m\]$\[\e[0m\] ", "TERM": "xterm-256color", "PROMPT_COMMAND": ""},
    )  # fmt: skip
    os.close(slave)
    events: list[list[Any]] = []
    begun, new = time.monotonic(), ""

    def read(seconds: float) -> bool:
        nonlocal new
        if not select.select([master], [], [], seconds)[0]:
            return False
        text = os.read(master, 1 << 16).decode("utf-8", "replace")
        events.append([round(time.monotonic() - begun, 3), "o", text])
        screen.feed(text)
        if "\x1b[6n" in text:  # a line editor asks where the cursor is
            os.write(master, f"\x1b[{screen.row + 1};{screen.column + 1}R".encode())
        new += text
        return True

    try:
        for pattern, line in typed:
            deadline = time.monotonic() + timeout
            while not re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", new), re.DOTALL):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{pattern!r} did not appear in {new!r}")
                read(0.2)
            while read(0.7):  # all that is written at once; then a person reads it
                pass
            new = ""
            for key in line:
                os.write(master, key.encode())
                end = time.monotonic() + KEY
                while (left := end - time.monotonic()) > 0:
                    read(left)
            if line:
                os.write(master, b"\r")
    finally:
        shell.send_signal(signal.SIGHUP)
        os.close(master)
        try:
            shell.wait(5)
        except subprocess.TimeoutExpired:
            shell.kill()
            shell.wait()
    return events


def save(path: Path, events: Sequence[Sequence[Any]], command: str, columns: int, rows: int) -> None:
    """As an asciinema file."""
    head = {"version": 2, "width": columns, "height": rows, "command": command}
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in (head, *events)), encoding="utf-8")


# ---- a terminal ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A character, its colour (a name of edge.tools.plot.COLOURS), its weight, and when it was written."""

    text: str
    look: str
    bold: bool
    seconds: float

    def alike(self, other: Cell | None) -> bool:
        """May both stand in one piece?  A blank has no colour."""
        same = other is not None and (other.text == " " or (other.look, other.bold) == (self.look, self.bold))
        return same and other is not None and other.seconds == self.seconds


class Screen:
    """As much of a terminal as line editors and our own output use.  It does not scroll: what is below is lost."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.row = self.column = 0
        self.cells: dict[tuple[int, int], Cell] = {}
        self._erased: dict[tuple[int, int], Cell] = {}  # by what is being written
        self._look, self._bold = "text", False

    def feed(self, text: str, seconds: float = 0.0) -> None:
        """What a program wrote, at this time.  Escape sequences are whole."""
        self._erased.clear()
        for found in re.finditer(r"\x1b\[([?>]?)([0-9;]*)([A-Za-z])|\x1b.|([\x00-\x1f])|([^\x00-\x1f])", text):
            private, numbers, command, control, character = found.groups()
            if command and not private:
                self._obey(command, [int(n or 0) for n in numbers.split(";")])
            elif control == "\n":
                self.row = min(self.row + 1, self.rows - 1)
            elif control == "\r":
                self.column = 0
            elif control == "\b":
                self.column = max(0, self.column - 1)
            elif character:
                self._write(character, seconds)

    def _write(self, character: str, seconds: float) -> None:
        if self.column == self.columns:  # a full line goes on below when more comes
            self.row, self.column = min(self.row + 1, self.rows - 1), 0
        cell, at = Cell(character, self._look, self._bold, seconds), (self.row, self.column)
        was = self.cells.get(at) or self._erased.get(at)
        # line editors erase and draw again what has been there all the time
        self.cells[at] = was if was is not None and replace(was, seconds=seconds) == cell else cell
        self.column += 1

    def _obey(self, command: str, numbers: list[int]) -> None:
        n = max(1, numbers[0])
        if command == "m":
            for each in numbers:
                self._style(each)
        elif command in "AB":
            self.row = min(max(0, self.row + (n if command == "B" else -n)), self.rows - 1)
        elif command in "CD":
            self.column = min(max(0, self.column + (n if command == "C" else -n)), self.columns - 1)
        elif command == "H":
            self.row, self.column = n - 1, max(1, numbers[-1] if len(numbers) > 1 else 1) - 1
        elif command in "JK":  # to the end of the line, or of the screen; all of either
            here = (self.row, self.column) if numbers[0] == 0 else (self.row if command == "K" else 0, 0)
            for at in [at for at in self.cells if at >= here and (command == "J" or at[0] == self.row)]:
                self._erased[at] = self.cells.pop(at)

    def _style(self, n: int) -> None:
        if n == 0:
            self._look, self._bold = "text", False
        elif n in (1, 22):
            self._bold = n == 1
        elif n in INK:
            self._look = INK[n]


# ---- drawing ---------------------------------------------------------------------------------------------------------


def picture(path: Path, title: str, description: str) -> str:
    """The recording as SVG."""
    head, *events = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    screen = Screen(head["width"], head["height"])
    now = last = 0.0
    for at, _, text in events:
        now, last = now + min(at - last, PAUSE), at
        screen.feed(text, round(now, 1))
    used = 1 + max(row for (row, _), cell in screen.cells.items() if cell.text != " ")
    canvas = Canvas(title, description, round(head["width"] * WIDE) + 2 * EDGE)
    canvas.add('<g fill="none" class="s-grid"><circle cx="24" cy="20" r="5.5"/><circle cx="42" cy="20" r="5.5"/>'
               f'<circle cx="60" cy="20" r="5.5"/><path d="M0 {TOP - 8}.5H{canvas.width}"/></g>')  # fmt: skip
    canvas.text(canvas.width / 2, 24, title, "remark middle")
    canvas.add('<g id="screen">')
    for row in range(used):
        for column, text, cell in _runs([screen.cells.get((row, column)) for column in range(screen.columns)]):
            look = cell.look + (" bold" if cell.bold else "")
            more = f' style="animation-delay:{cell.seconds:g}s"' if cell.seconds else ""
            if len(text) > 8:
                more += f' textLength="{len(text) * WIDE:.1f}"'
            x, y = EDGE + column * WIDE, TOP + 12 + row * HIGH
            canvas.add(f'<text class="{look}" x="{x:g}" y="{y}"{more}>{escape(text, quote=False)}</text>')
    canvas.add("</g>")
    return canvas.svg(TOP + used * HIGH + 14, STYLE)


def _runs(cells: Sequence[Cell | None]) -> Iterator[tuple[int, str, Cell]]:
    """Pieces of a row that appear at one time in one look: (column, text, its first cell).  None begins or ends with a
    blank or holds two of them, which SVG does not keep."""
    begin = 0
    while begin < len(cells):
        first = cells[begin]
        if first is None or first.text == " ":
            begin += 1
            continue
        end = begin + 1
        while end < len(cells) and first.alike(cells[end]) and not _blank(cells[end - 1 : end + 1]):
            end += 1
        yield begin, "".join(each.text for each in cells[begin:end] if each).rstrip(), first
        begin = end


def _blank(cells: Sequence[Cell | None]) -> bool:
    return all(each is None or each.text == " " for each in cells)
