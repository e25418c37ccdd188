"""How many threads a step takes (pyx.step), on a made-up machine with a clock of its own.

Real load plays no part.
"""

from __future__ import annotations

import random

import pytest

from edge.formats import open_checkpoint
from edge.model.weights import build
from pyx.step import Pace
from tests.kernels.test_transformer import layout_of, logits
from tests.vectors.stored import TINY

SLICE = 4_000_000  # nanoseconds for which a busy machine takes a core away


class Machine:
    """Cores, some of them busy; a step of one row takes ``work`` nanoseconds on one thread."""

    def __init__(self, cores: int, work: int, seed: int = 1) -> None:
        self.cores, self.work, self.busy, self.now = cores, work, 0, 0
        self.random = random.Random(seed)

    def step(self, pace: Pace, n_row: int = 1) -> int:
        """One step; returns the threads it had."""
        n = pace.threads()
        ns = self.work * n_row / n * self.random.uniform(0.95, 1.1)
        shared = max(0, n + self.busy - self.cores)  # threads that share their core with something busy
        away = 0.0
        if shared and n > 1:  # in each millisecond of work, and at least once a step, all wait for one of them
            away = sum(
                max(self.random.uniform(0, SLICE) for _ in range(shared)) for _ in range(max(1, int(ns / 1e6))))
        elif shared:
            away = ns  # half of the core
        begun, self.now = self.now, self.now + int(ns + away)
        pace.took(n_row, begun, self.now, int(ns))
        return n

    def run(self, pace: Pace, seconds: float, n_row: int = 1) -> tuple[float, list[int]]:
        """Steps for so long; steps a second, and the threads of each."""
        begun, threads = self.now, []
        while self.now - begun < seconds * 1e9:
            threads.append(self.step(pace, n_row))
        return len(threads) / (self.now - begun) * 1e9, threads

    def fixed(self, n: int, seconds: float) -> float:
        """Steps a second of n threads."""
        other = Machine(self.cores, self.work)
        other.busy = self.busy
        return other.run(Fixed(n), seconds)[0]


class Fixed:
    def __init__(self, n: int) -> None:
        self.n = n

    def threads(self) -> int:
        return self.n

    def took(self, *_: int) -> None:
        pass


@pytest.mark.parametrize("work", [150_000, 2_000_000, 80_000_000])
@pytest.mark.parametrize(("cores", "busy"), [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 3)])
def test_while_other_programs_run_the_choice_reaches_the_best_fixed_number(cores, busy, work):
    machine, pace = Machine(cores, work), Pace(cores)
    seconds = 4.0 if work < 10_000_000 else 40.0
    machine.run(pace, 1.0)
    machine.busy = busy
    machine.run(pace, 1.0)
    speed, _ = machine.run(pace, seconds)
    assert speed >= 0.9 * max(machine.fixed(n, seconds / 2) for n in range(1, cores + 1))


@pytest.mark.parametrize("work", [150_000, 2_000_000])
@pytest.mark.parametrize("cores", [2, 4, 8])
def test_all_threads_are_back_within_a_second(cores, work):
    machine, pace = Machine(cores, work), Pace(cores)
    machine.busy = cores
    machine.run(pace, 3.0)
    machine.busy = 0
    machine.run(pace, 1.0)
    assert pace.settled == cores and not pace.trial


class Turns(Pace):
    """Another number of threads for every step."""

    steps = 0

    def threads(self) -> int:
        self.steps += 1
        return (1, 4, 2, 3)[self.steps % 4]


@pytest.mark.parametrize("chunk", [1, 3, 32])
def test_the_number_of_threads_changes_between_steps_and_no_bit_does(chunk):
    checkpoint = open_checkpoint(TINY[0], i2s_layout=layout_of(TINY[0]))
    ids = [(7 * i * i + 3 * i) % 500 for i in range(60)]
    expected = logits(build(checkpoint, n_threads=1), checkpoint.config, ids, chunk=chunk)
    model = build(checkpoint, n_threads=4, adapt=True)
    pace = model.pace = Turns(4)
    assert logits(model, checkpoint.config, ids, chunk=chunk).tobytes() == expected.tobytes()
    assert pace.steps == -(-len(ids) // chunk)
