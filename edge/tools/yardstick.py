"""yardstick: how fast this machine reads memory, with which ``bench`` compares what a token reads.

No one way to read is the fastest on every processor, in every kind of page, for every number of threads.  So the
yardstick is the best of several ways (:data:`pyx.machine.WAYS`).
"""

from __future__ import annotations

import mmap
import time
from typing import Any

#: most bytes that are read: more than the caches of a board, little of its memory
MOST = 256 << 20
#: passes of each way, of which the best counts
PASSES = 3


def measure(pages: str, path: str, n: int, n_threads: int) -> float:
    """Bytes per second of the fastest way in which ``n_threads`` threads read ``n`` bytes of memory with one kind of
    pages: "huge" (2 MiB), "memory" (ordinary ones) or "map": the first bytes of the file at ``path``.
    """
    from edge.formats.mapped import map_file
    from pyx.machine import WAYS, Arena, sum_of

    if pages == "map":
        data: Any = map_file(path)[:n]
    else:
        data = Arena(n, huge=pages == "huge").view
        data[:: mmap.PAGESIZE] = bytes(len(range(0, n, mmap.PAGESIZE)))  # a page is there once it is written
    sum_of(data, n_threads)  # brings the pages into memory
    fastest = float("inf")
    for _ in range(PASSES):
        for way in WAYS:
            begun = time.perf_counter()
            sum_of(data, n_threads, way)
            fastest = min(fastest, time.perf_counter() - begun)
    return len(data) / max(fastest, 1e-9)
