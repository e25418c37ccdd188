"""Ways: how weights are read, compared in the first steps of a model.

How many rows are read side by side, how far ahead they are fetched and into which cache: no rule holds on all
processors, and no bit of an answer depends on it.  So the first steps that write one token take the ways in turns, and
the fastest is kept; the target's own (pyx/kernels) unless another is clearly faster.  Nothing is remembered: it takes
some twenty tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Any

from pyx import machine
from pyx.step import disturbed

#: (rows read side by side, cache into which what follows is fetched, bytes ahead), see pyx.machine.choose; compared
#: with the target's own (benchmarks/log#zen5)
WAYS = ((4, "L1", 2 << 10), (4, "L1", 4 << 10), (2, "once", 3 << 10), (1, "once", 8 << 10), (4, "L2", 16 << 10),
        (4, "rows", 24 << 10))
ROUNDS = 3  # steps of each way; after the first only those that were at most SLOWER than the best
SLOWER = 1.15
GAIN = 0.97  # share of the time of the target's own way that another one may take at most
MOST = 200  # steps of one token after which it ends; steps during which another program took a core do not count
LEAST = 32 << 20  # bytes of weights; with fewer there is little to choose


class Ways:
    """Compares the ways for one model.  All models of a process read in one way, so it is for one that is alone."""

    def __init__(self) -> None:
        self._own: tuple[int, str, int] = machine.chosen_now()
        self._least = dict.fromkeys((self._own, *WAYS), inf)  # way -> nanoseconds of its fastest step
        self._turns = list(self._least)  # of this round
        self._rounds, self._left = ROUNDS, MOST

    def step(self, evaluate: Callable[[Any], None], batch: Any) -> bool:
        """Evaluate a step that writes one token, in the way whose turn it is.  Returns whether the comparison is over.
        """
        way = self._turns[0]
        machine.choose(way)
        begun, core = time.perf_counter_ns(), time.thread_time_ns()
        evaluate(batch)
        core, ns = time.thread_time_ns() - core, time.perf_counter_ns() - begun
        self._left -= 1
        if not disturbed(ns, core):
            self._least[way] = min(self._least[way], ns)
            del self._turns[0]
            if not self._turns:
                self._rounds -= 1
                best = min(self._least.values())
                self._turns = [each for each in self._least if self._least[each] <= SLOWER * best]
        if self._rounds and self._left:
            return False
        best_way = min(self._least, key=self._least.__getitem__)
        clear = not self._rounds and self._least[best_way] < GAIN * self._least[self._own]
        machine.choose(best_way if clear else self._own)
        return True
