"""Lines of a streamed answer are broken between words.  Judged by a small terminal with the widths of the library
wcwidth, and by tmux.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from wcwidth import wcwidth

from edge.cli.wrap import Wrap
from tests.services import on_a_terminal
from tests.terminal import Screen

NARROW = "a I of the river, it's don't well-known 3.14 \"quoted\" (so) naïve Zoë über e\u0301te\u0301 été — end."
WORDS = [*NARROW.split(), "internationalisation", "https://example.org/a/very/long/path?with=parts", "Ελλάδα", "Привет"]
WIDE = ["漢字", "日本語の文章です。", "한국어", "😀", "🚀"]
UNSURE = ["👨\u200d👩\u200d👧", "❤\ufe0f", "🇩🇪", "👍🏽", "नमस्ते"]


def pieces(text: str, draw: random.Random) -> list[str]:
    cuts = sorted({0, len(text), *(draw.randrange(len(text) + 1) for _ in range(len(text) // 3))})
    return [text[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


def written(text: str, width: int, draw: random.Random) -> Screen:
    screen, wrap, said = Screen(width), Wrap(lambda: width), ""
    for piece in pieces(text, draw):
        screen.write(wrap(piece))
        said += piece
        assert "".join(screen.copied.split()) == "".join(said.split()), "a piece is shown at once"
    return screen


@pytest.mark.parametrize("seed", range(60))
def test_words_are_whole_and_copied_as_one_line(seed: int) -> None:
    draw = random.Random(seed)
    width = draw.randrange(8, 60)
    words = [draw.choice(WORDS) for _ in range(200)]
    text = "".join(word + draw.choice([" ", " ", " ", "  ", "\n", "\n\n"]) for word in words)
    screen = written(text, width, draw)
    assert [line.split() for line in screen.copied.rstrip("\n").split("\n")] == [
        line.split() for line in text.rstrip("\n").split("\n")
    ]
    rows = [row.split() for row in screen.shown]
    whole = [word for word in words if sum(map(wcwidth, word)) < width]
    assert sorted(word for row in rows for word in row if word in whole) == sorted(whole)
    assert sum(screen.goes_on) > 3


@pytest.mark.parametrize("seed", range(40))
def test_wide_characters(seed: int) -> None:
    """A break between two of them adds no blank; those whose width terminals disagree about do not spoil the rest."""
    draw = random.Random(seed)
    width = draw.randrange(12, 60)
    words = [draw.choice(WIDE if draw.random() < 0.5 else WORDS) for _ in range(200)]
    screen = written(" ".join(words), width, draw)
    assert "".join(screen.copied.split()) == "".join(words)
    short = [word for word in words if word.isascii() and len(word) < width]
    assert sorted(word for row in screen.shown for word in re.findall(r"\S+", row) if word in short) == sorted(short)
    only = "".join(draw.choice(WIDE[:3]) for _ in range(50))
    assert written(only, width, draw).copied == only + "\n"
    words = [draw.choice(UNSURE if draw.random() < 0.3 else WORDS) for _ in range(200)]
    screen, wrap = Screen(width), Wrap(lambda: width)
    for piece in pieces(" ".join(words), draw):
        screen.write(wrap(piece))
    assert "".join(screen.copied.split()) == "".join(words)
    short = [word for word in words if word.isascii() and len(word) < width]
    assert sorted(word for row in screen.shown for word in row.split() if word in short) == sorted(short)


CODE = """Text that is longer than a row of the terminal, so that it is broken:
```python
def f(first, second):  # a comment that is longer than a row of this terminal
    return   first  +  second
```
and text again that is longer than a row of the terminal, so that it is broken.

    indented   code    that is longer   than a row of this    terminal, too

- an item that is longer than a row of the terminal, so that it is broken
    - an item inside of it that is longer than a row, so that it is broken
| a table |   with columns   | that are  longer   | than a row |
~~~~
```
x   =   1  # still in the block of code, since its fence is another one
~~~~
"""


@pytest.mark.parametrize("seed", range(10))
def test_code_and_tables_are_left_alone(seed: int) -> None:
    draw = random.Random(seed)
    screen = written(CODE, 40, draw)
    lines = screen.copied.split("\n")
    for line, copied in zip(CODE.split("\n"), lines, strict=False):
        if re.match(r"Text|and text|- |    - ", line):
            assert copied != line and copied.split() == line.split()
        else:
            assert copied == line


@pytest.mark.parametrize("seed", range(20))
def test_resized_while_it_is_written(seed: int) -> None:
    """Where the text stands then depends on the terminal; from the next word on it is known again."""
    draw = random.Random(seed)
    words = [draw.choice([word for word in WORDS if len(word) < 18]) for _ in range(60)]
    width = 40
    screen, wrap, said = Screen(width), Wrap(lambda: width), ""
    parts = pieces(" ".join(words), draw)
    for at, piece in enumerate(parts):
        if at == len(parts) // 2:
            width = draw.choice([25, 39, 41, 80])
            while screen.rows[-1] and len(screen.rows[-1]) > width:  # terminals break such rows, some cut them
                screen.rows[-1:] = [screen.rows[-1][:width], screen.rows[-1][width:]]
                screen.goes_on.append(True)
            screen.width, screen.column, here = width, len(screen.rows[-1]), len(screen.rows)
        screen.write(wrap(piece))
        said += piece
        assert "".join(screen.copied.split()) == "".join(said.split())
    assert screen.copied.split() == words
    behind = [word for row in screen.shown[here:] for word in row.split()]
    assert behind == words[len(words) - len(behind) :], "every word behind the row of the resize is whole"
    assert screen.goes_on.count(False) == 1, "one line break is added"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux")
def test_in_tmux(tmp_path: Path) -> None:
    """What a terminal of others shows and copies, while its window is resized."""
    socket = f"test-{tmp_path.name}"

    def tmux(*args: str) -> str:
        return subprocess.run(["tmux", "-L", socket, "-f", "/dev/null", *args], env=on_a_terminal(tmp_path),
                              capture_output=True, text=True, check=True).stdout

    said = [f"word{n:03}" for n in range(120)]
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time\n"
        "from edge.cli.output import AnswerOutput, Output\n"
        "answer = AnswerOutput(Output())\n"
        f"for word in {said!r}:\n"
        "    for part in (word[:3], word[3:] + ' '):\n"
        "        answer.feed(part)\n"
        "        time.sleep(0.005)\n"
        "answer.end()\nprint('END')\ntime.sleep(60)\n"
    )
    try:
        tmux("new-session", "-d", "-x", "50", "-y", "60", f"{sys.executable} {program}")
        time.sleep(0.7)
        tmux("resize-window", "-x", "33")
        deadline = time.monotonic() + 60
        while "END" not in (shown := tmux("capture-pane", "-p", "-S", "-")):
            assert time.monotonic() < deadline, shown
            time.sleep(0.1)
        copied = tmux("capture-pane", "-p", "-J", "-S", "-")
    finally:
        tmux("kill-server")
    assert copied.split() == [*said, "END"]
    assert len(copied.split("END")[0].strip().splitlines()) <= 2  # one more by the resize
    tail = shown.split()[-40:]  # the window had its new width long before
    assert all(word in said or word == "END" for word in tail), shown
