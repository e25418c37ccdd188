"""Greedy continuations of the bundled model: on every instruction set and KV mode the tokens that were written down."""

from __future__ import annotations

import json

import pytest

import edge
from pyx import machine
from tests.vectors import make_golden

GOLDEN = json.loads(make_golden.FILE.read_text())


def test_of_this_model() -> None:
    assert GOLDEN["model"] == make_golden.sha256(make_golden.bundled()), "run python -m tests.vectors.make_golden"
    assert list(GOLDEN["answers"]) == list(make_golden.MODES)
    assert len(make_golden.CONVERSATIONS) == 10 and any(len(said) > 2 for _, said in make_golden.CONVERSATIONS)


@pytest.mark.parametrize("mode", make_golden.MODES)
@pytest.mark.parametrize("isa", machine.supported())
def test_tokens(no_open_engine: None, isa: str, mode: str) -> None:
    """All ten on the fastest instruction set; on every other one two of them in each mode, each in some mode."""
    fastest = isa == machine.supported()[-1]
    chosen = range(10) if fastest else range(list(make_golden.MODES).index(mode) % 5, 10, 5)
    with edge.load(threads=1, isa=isa, **make_golden.MODES[mode]) as engine:
        conversations = [make_golden.CONVERSATIONS[i] for i in chosen]
        for i, given in zip(chosen, make_golden.answers(engine, conversations), strict=True):
            said = make_golden.CONVERSATIONS[i][1][-1]
            assert given == GOLDEN["answers"][mode][i], f"{said!r}: {engine.tokenizer.decode(given[-1])!r}"
