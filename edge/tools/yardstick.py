"""yardstick: how fast this machine reads memory, with which ``bench`` compares what a token reads.

No one way to read is the fastest on every processor, in every kind of page, for every number of threads, and the memory
of a machine is not as fast in one minute as in the next.  So the yardstick is the best of several ways
(:data:`pyx.machine.bandwidth.WAYS`), measured again and again during a run; how far these rates lie apart is part of
the result.
"""

from __future__ import annotations

import mmap
import time
from typing import Any, NamedTuple

#: most bytes that are read: more than the caches of a board, little of its memory
MOST = 256 << 20
#: passes of each way, of which the best counts
PASSES = 3


class Rate(NamedTuple):
    """How fast memory was read, and how."""

    rate: float  # bytes per second
    way: str  # one of pyx.machine.bandwidth.WAYS
    pages: str  # "huge", "memory" or "map", see measure

    def words(self) -> str:
        """How, as text: "L1, 2 MiB pages"."""
        return f"{self.way}, {'2 MiB pages' if self.pages == 'huge' else f'pages of the {self.pages}'}"


class Yardstick:
    """The rates of one run, all with the same number of threads."""

    def __init__(self) -> None:
        self._rates: list[Rate] = []  # the best of each time that was measured

    def add(self, rates: list[Rate]) -> None:
        """Add what was measured at one time."""
        self._rates.append(max(rates))

    @property
    def best(self) -> Rate:
        """The best of all."""
        return max(self._rates)

    @property
    def apart(self) -> float:
        """How far the rates of different times lie apart: (most - least) / most."""
        rates = [each.rate for each in self._rates]
        return (max(rates) - min(rates)) / max(rates)


def measure(pages: str, path: str, n: int, n_threads: int) -> Rate:
    """The fastest way in which ``n_threads`` threads read ``n`` bytes of memory with one kind of pages: "huge" (2 MiB),
    "memory" (ordinary ones) or "map": the first bytes of the file at ``path``.
    """
    from edge.formats.mapped import map_file
    from pyx.machine.bandwidth import WAYS, sum_of
    from pyx.machine.memory import Arena

    if pages == "map":
        data: Any = map_file(path)[:n]
    else:
        data = Arena(n, huge=pages == "huge").view
        data[:: mmap.PAGESIZE] = bytes(len(range(0, n, mmap.PAGESIZE)))  # a page is there once it is written
    sum_of(data, n_threads)  # brings the pages into memory
    seconds = dict.fromkeys(WAYS, float("inf"))
    for _ in range(PASSES):
        for way in WAYS:
            begun = time.perf_counter()
            sum_of(data, n_threads, way)
            seconds[way] = min(seconds[way], time.perf_counter() - begun)
    if pages == "map":
        data.obj.check()
    way = min(WAYS, key=seconds.__getitem__)
    return Rate(len(data) / max(seconds[way], 1e-9), way, pages)
