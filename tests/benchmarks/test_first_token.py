"""benchmarks/first_token.py: it starts the real command, and its ratio is that of its own medians."""

from __future__ import annotations

import sys
from statistics import median

import pytest

import edge
from benchmarks import first_token
from edge.registry.library import demo

MODEL = demo()


def test_a_round_on_the_bundled_model():
    (row,) = first_token.measure(MODEL, threads=[1], n=8, rounds=1)
    assert row["tokens"] == 8
    assert 0 < row["start"][0] < row["first_token"][0]
    assert 0 < row["prompt"][0] < row["first_token"][0]
    assert row["ratio"] == median(row["first_token"]) / median(row["prompt"])


def test_the_prompt_has_as_many_tokens_as_asked_for():
    with edge.load(MODEL, ctx=64) as engine:
        for n in (2, 8, 33):
            assert len(engine.model.encode_raw(first_token.prompt_of(engine, n))) == n


def test_a_command_that_writes_nothing_is_no_measurement():
    with pytest.raises(SystemExit, match="gave no token, exit 0"):
        first_token.seconds_to_first_byte([sys.executable, "-c", "pass"])
    with pytest.raises(SystemExit, match="exit 3"):
        first_token.seconds_to_first_byte([sys.executable, "-c", "print(1, flush=True); raise SystemExit(3)"])
