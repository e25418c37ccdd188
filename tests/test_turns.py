"""Turns that a model learns from: they apply to the order they are said to, and kinds of houses are held out."""

from __future__ import annotations

from itertools import islice

import pytest

from edge.kiosk.operations import Answer, read, write
from edge.kiosk.prompt import situation
from edge.kiosk.state import State
from training import turns


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_operations_are_written_as_the_kiosk_reads_them(split: str) -> None:
    menus = {situation(house, State()).split("\n\n")[0] for house in turns.houses(split)}
    for (_, told), (_, said), (_, written) in islice(turns.dialogues(3, split), 300):
        assert said and told.split("\n\n")[0] in menus
        for line in written.split("\n"):
            assert write(read(line)) == line
            for text in line.split('"')[1::2]:  # every name and value is there to be copied
                assert text.lower() in said.lower() or f'"{text}"' in told or text in told


def test_the_same_seed_prints_the_same_and_splits_are_apart() -> None:
    assert list(islice(turns.dialogues(1), 20)) == list(islice(turns.dialogues(1), 20))
    names = [{house.name for house in turns.houses(split)} for split in ("train", "valid", "test")]
    assert all(names) and not (names[0] & names[1] or names[0] & names[2] or names[1] & names[2])


def test_questions_have_the_number_of_their_fact() -> None:
    pairs = [(f"question {n}?", f"Answer number {n}.") for n in range(40)]
    none = 0
    for (_, told), (_, said), (_, written) in turns.questions(pairs, 0):
        operation = read(written)
        assert isinstance(operation, Answer)
        wanted = said.replace("question", "Answer number").replace("?", ".")
        if operation.number:
            assert f"{operation.number} {wanted}" in told.split("\n")
        else:
            none += 1
            assert wanted not in told
    assert 0 < none < 40
