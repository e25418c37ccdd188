"""Placement: whether the codes of a model are read where the file's map holds them or from 2 MiB pages.

A step reads every code once.  Through pages of 4 KiB a good part of its time goes into translating addresses
(benchmarks/SPEED.md: 1.15 to 1.3 times the tokens in 2 MiB pages), but the map is there at once, costs no memory of our
own and is shared.  So ``auto`` begins with the map, and where it pays moves the codes in the background, a matrix at a
time between two steps.  The numbers are the same wherever they lie.

A kernel may hold the file itself in 2 MiB pages: on its own (large folios), or when asked to (MADV_COLLAPSE).  That is
the best of both, so it is tried first.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edge.errors import MemoryRefused
from edge.formats.checkpoint import GROUP_TYPES
from edge.formats.mapped import Map

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint, Tensor
    from edge.kv.config import KVPlan
    from pyx.ternary import TernaryMatrix

#: fewer bytes of codes than this gain nothing: their 4 KiB pages stay in the translation buffers
LEAST = 32 << 20
#: a map with this share of its pages in 2 MiB is as good as a copy
ENOUGH = 0.8
#: of the memory that is available, what a copy leaves to others
LEAVE = 2
#: seconds between two matrices moved in the background, in which a step may begin
PAUSE = 1e-3

THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def in_place(tensor: Tensor) -> bool:
    """Whether the codes of a projection can be used as the file has them."""
    rows, k = tensor.shape
    ours = tensor.type in GROUP_TYPES or (tensor.type == "I2_S" and tensor.layout == "128")
    return ours and k % 128 == 0


def code_bytes(tensor: Tensor, grouped: bool, copied: bool = False) -> int:
    """Bytes of a projection's codes in memory, or of their copy; ``grouped``: with a scale for each 128 weights."""
    rows, k = tensor.shape
    if not grouped and tensor.type not in GROUP_TYPES:
        return rows * ((k + 127) // 128) * 32
    if in_place(tensor) and not copied:
        return len(tensor.data)
    if copied or (tensor.type == "MLX" and k % 128 == 0):
        rows = (rows + 63) // 64 * 64  # whole panels
    return rows * ((k + 127) // 128) * 34


def advise(checkpoint: Checkpoint) -> list[memoryview]:
    """The mapped bytes of all codes that can be used in place, which the system is asked to hold in 2 MiB pages."""
    from pyx import memory

    codes = [
        tensor.data
        for name, tensor in checkpoint.tensors.items()
        if name.startswith("blk.") and len(tensor.shape) == 2 and isinstance(tensor.data.obj, Map) and in_place(tensor)
    ]
    if codes and sum(map(len, codes)) >= LEAST:
        memory.advise(codes[0], "huge", codes[-1])
    return codes


def choose(
    codes: Sequence[memoryview], plan: Callable[[str, int], KVPlan], available: int | None, thp: str = THP,
    panels: bool = False,
) -> str:
    """What ``auto`` means: "map", "huge" (copy) or "collapse" (the map, made of 2 MiB pages by the system).

    ``plan`` gives the plan for "map" or "huge" within a number of available bytes, or raises MemoryRefused.  A copy
    must leave half of what is available, and must not cost a shorter context or a smaller KV type.  ``panels``: a copy
    is laid out so that it is read faster than any map.
    """
    from pyx import memory

    if available is None or sum(map(len, codes)) < LEAST:
        return "map"
    sample = max(codes, key=len)
    memory.advise(sample, "read")
    if not panels and memory.huge_share(sample) >= ENOUGH:
        return "map"
    if not panels and memory.advise(sample, "collapse"):
        return "collapse"
    try:
        if not panels:
            with open(thp, encoding="utf-8") as file:
                if "[never]" in file.read():
                    return "map"
        mapped, copied = plan("map", available), plan("huge", available // LEAVE)
    except (MemoryRefused, OSError):
        return "map"
    return "huge" if (copied.n_ctx, copied.kv_type) == (mapped.n_ctx, mapped.kv_type) else "map"


def copy(
    matrices: Sequence[TernaryMatrix], lock: Any = None, stopped: Callable[[], bool] = lambda: False, pause: float = 0.0
) -> None:
    """Copy all codes into one arena of 2 MiB pages, in the order in which a step reads them.

    Each matrix is switched to its copy as a whole, under ``lock``, and what it has left in the file's map no longer
    counts as ours; so there are never two copies of more than one of them.  Raises MemoryError.
    """
    from pyx import memory

    offsets, end = [], 0
    for matrix in matrices:
        offsets.append(end)
        end += (matrix.room + 63) // 64 * 64
    arena = memory.Arena(end, huge=True)
    maps = set()
    for matrix, offset in zip(matrices, offsets, strict=True):
        with lock or contextlib.nullcontext():
            if stopped():
                return
            stored = matrix.stored
            matrix.move_to(arena, offset)
        if stored is not None and isinstance(stored.obj, Map):
            memory.advise(stored, "release")
            maps.add(stored.obj)
        time.sleep(pause)
    for each in maps:
        release(each)  # the pages that two tensors share


def release(map: mmap.mmap) -> None:
    """Pages of a file's map no longer count as ours: they stay in the system's cache and come back one by one when they
    are read."""
    if hasattr(mmap, "MADV_DONTNEED"):
        map.madvise(mmap.MADV_DONTNEED)


def release_pages(checkpoint: Checkpoint) -> None:
    """The same for all maps of a checkpoint: what was read only once (the embedding behind an int8 head, for one)
    shall not count."""
    for owner in {id(tensor.data.obj): tensor.data.obj for tensor in checkpoint.tensors.values()}.values():
        if isinstance(owner, mmap.mmap):
            release(owner)


def collapse(codes: Sequence[memoryview], stopped: Callable[[], bool]) -> None:
    """Have the system make 2 MiB pages of the map; nobody needs to wait for that."""
    from pyx import memory

    for stored in codes:
        if stopped():
            return
        memory.advise(stored, "collapse")


def start(kind: str, transformer: Any, lock: Any, stopped: Callable[[], bool]) -> threading.Thread | None:
    """Begin to do in the background what :func:`choose` said ("huge" or "collapse"); None if no thread starts."""
    matrices = transformer.movable

    def work() -> None:
        if kind == "collapse":
            return collapse([matrix.stored for matrix in matrices if matrix.stored is not None], stopped)
        with contextlib.suppress(MemoryError):  # then the map goes on serving
            copy(matrices, lock, stopped, PAUSE)

    thread = threading.Thread(target=work, name="placement")
    try:
        thread.start()
    except RuntimeError:  # no thread can be started: the map goes on serving
        return None
    return thread
