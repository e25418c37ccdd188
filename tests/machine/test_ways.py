"""How weights are read is compared in the first tokens (edge.machine.ways).  Clock and machine are made up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import edge
from edge.machine import ways
from edge.machine.ways import WAYS, Ways
from pyx import machine
from tests.streams import run


class Machine:
    """Takes ``seconds`` for a step, in each way; of ``busy`` steps another program takes the core."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, own: float, others: list[float], busy: float = 0.0) -> None:
        machine.choose()
        self.own = machine.chosen_now()
        self.seconds = {**dict(zip(WAYS, others, strict=True)), self.own: own}
        self.busy, self.random, self.now, self.core = busy, random.Random(1), 0, 0
        monkeypatch.setattr(ways.time, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(ways.time, "thread_time_ns", lambda: self.core)

    def step(self, _: Any) -> None:
        ns = int(1e9 * self.seconds[machine.chosen_now()] * (1 + self.random.uniform(0, 0.01)))
        self.core += ns
        self.now += ns * (2 if self.random.random() < self.busy else 1)

    def settle(self) -> tuple[tuple[int, str, int], int]:
        """(the way that is used at the end, steps until then)."""
        compared, n = Ways(), 1
        while not compared.step(self.step, []):
            n += 1
        return machine.chosen_now(), n


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    yield
    machine.choose()


def test_the_fastest_way_is_used_after_some_twenty_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    way, n = Machine(monkeypatch, 0.020, [0.022, 0.021, 0.030, 0.017, 0.026, 0.040]).settle()
    assert way == WAYS[3] and n <= 22


def test_the_own_way_stays_unless_another_is_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 0.0200, [0.0198] * 6)
    assert machine.settle()[0] == machine.own


def test_steps_that_other_programs_disturb_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine(monkeypatch, 0.020, [0.022, 0.021, 0.030, 0.017, 0.026, 0.040], busy=0.5).settle()[0] == WAYS[3]
    machine = Machine(monkeypatch, 0.020, [0.010] * 6, busy=1.0)
    assert machine.settle() == (machine.own, ways.MOST)


def answer(engine: edge.Engine, n: int = 40) -> list[int]:
    with engine.session() as session:
        return [token for piece in session.complete([1, 2, 3], max_tokens=n, ignore_eos=True,
                                                    sampling=edge.Sampling(seed=4)) for token in piece.ids]


def test_answers_are_the_same_meanwhile(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that counts as a large one; and what a second model finds is the way of the first."""
    with edge.load(tiny_model, threads=1, tune=False) as engine:
        expected = answer(engine)
    used: set[Any] = set()
    choose = machine.choose
    monkeypatch.setattr(ways, "LEAST", 0)
    monkeypatch.setattr(ways, "disturbed", lambda *_: False)
    monkeypatch.setattr(machine, "choose", lambda *way: (used.update(way), choose(*way)))
    with edge.load(tiny_model, threads=1) as engine:
        assert answer(engine) == expected
        assert used >= set(WAYS)
        used.clear()
        with edge.load(tiny_model, threads=1) as second:
            assert answer(second) == answer(engine) == expected
    assert not used


def test_small_models_and_tune_off_compare_nothing(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ways, "step", lambda *_: pytest.fail("compared"))
    with edge.load(tiny_model) as engine:
        answer(engine)
    monkeypatch.setattr(ways, "LEAST", 0)
    with edge.load(tiny_model, tune=False) as engine:
        answer(engine)


@pytest.mark.parametrize("isa", machine.supported())
def test_prompts_are_read_to_the_same_bits(tiny_model: str, isa: str) -> None:
    """However weights are read."""

    def logits(engine: edge.Engine) -> bytes:
        ids = [(7 * i * i + 3 * i) % 500 for i in range(60)]
        return run(engine.model.transformer, engine.space.new_cache(), ids).tobytes()

    with edge.load(tiny_model, isa=isa, threads=1) as engine:
        expected = logits(engine)
        for way in (*WAYS, (1, "once", 1024), (2, "L2", 1 << 20)):
            machine.choose(way)
            assert machine.chosen_now() == way and logits(engine) == expected
        for wrong in ((4, "L1", 1 << 30), (3, "L1", 0), (4, "L3", 0)):
            with pytest.raises(ValueError, match="out of range"):
                machine.choose(wrong)
