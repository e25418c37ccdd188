"""examples/home: with the clock behind the question nothing is read again."""

from __future__ import annotations

from pathlib import Path

import pytest

import edge
from examples.home import home


@pytest.fixture(scope="module")
def both(bundled_model: Path) -> tuple[list[home.Turn], list[home.Turn]]:
    with edge.load(bundled_model, ctx=2048, overflow="stop", threads=1) as engine:
        return list(home.turns(engine, True)), list(home.turns(engine, False))


def test_a_clock_first_has_all_of_it_read_again(both: tuple[list[home.Turn], list[home.Turn]]) -> None:
    first, _ = both
    assert len(first) == 20
    for turn in first[1:]:
        assert turn.again > 150 and turn.again > 0.8 * turn.prompt - 64


def test_a_clock_last_has_only_what_is_new_read(both: tuple[list[home.Turn], list[home.Turn]]) -> None:
    _, last = both
    assert last[0].read > 150
    for turn in last[1:]:
        assert turn.again == 0 and turn.read < 64


def test_the_script_prints_both(bundled_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.main(str(bundled_model))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 22 and lines[0].startswith("turn") and lines[-1].lstrip().startswith("all")
    read = [int(word) for word in lines[-1].replace("|", " ").split()[1:]]
    assert read[0] > 5 * read[2] and read[3] == 0
