"""Placement: whether the weights of a model are read from the file's map or from a copy in 2 MiB pages.

A step reads every weight once.  With pages of 4 KiB, much of its time is spent on translating addresses
(benchmarks/log#large-pages: 1.15 to 1.3 times as many tokens with 2 MiB pages).  But the map is there at once, takes
no memory of this process and is shared.  So ``auto`` begins with the map and, where it pays, copies the weights in the
background, one matrix at a time between two steps.  The results are the same.

Linux can hold the file itself in 2 MiB pages: by itself (large folios, if the file came into the cache in order, as
after ``convert``) or on request (MADV_COLLAPSE).  That has the advantages of both, so it is tried first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edge.errors import MemoryRefused
from edge.formats.mapped import Map
from edge.machine import linux
from edge.machine.board import Board
from edge.model.footprint import in_place

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint
    from pyx.weights import TernaryMatrix

#: with fewer bytes of codes 2 MiB pages gain nothing: their 4 KiB pages stay in the translation buffers
LEAST = 32 << 20
#: a map with this share of its pages in 2 MiB pages is as good as a copy
ENOUGH = 0.8
#: the share of the available memory that a copy leaves free
LEAVE = 2
#: seconds between two matrices that are copied in the background, so that a step can begin
PAUSE = 1e-3


def advise(checkpoint: Checkpoint) -> list[memoryview]:
    """The mapped bytes of all codes that are used in place; the system is asked to hold them in 2 MiB pages."""
    from pyx import machine

    codes = [
        tensor.data
        for name, tensor in checkpoint.tensors.items()
        if name.startswith("blk.") and len(tensor.shape) == 2 and isinstance(tensor.data.obj, Map) and in_place(tensor)
    ]
    if codes and sum(map(len, codes)) >= LEAST:
        machine.advise(codes[0], "huge", codes[-1])
    return codes


def choose(
    codes: Sequence[memoryview], plan: Callable[[str, int], Any], available: int | None, panels: bool = False,
    root: str = "/",
) -> str:
    """The placement for ``auto``: "map", "huge" (a copy) or "collapse" (the system makes 2 MiB pages of the map).

    ``plan``: gives the plan for "map" or "huge" within a number of available bytes, or raises MemoryRefused.  A copy
    must leave half of the available memory free, and must not cost a shorter context or a smaller KV type.  ``panels``:
    the copy has another layout, which is read faster than any map.
    """
    from pyx import machine

    if available is None or sum(map(len, codes)) < LEAST:
        return "map"
    sample = max(codes, key=len)
    machine.advise(sample, "read")
    if not panels and machine.huge_share(sample) >= ENOUGH:
        return "map"
    if not panels and machine.advise(sample, "collapse"):
        return "collapse"
    try:
        if not panels and Board(root).huge_pages() in (None, "never"):
            return "map"
        mapped, copied = plan("map", available), plan("huge", available // LEAVE)
    except MemoryRefused:
        return "map"
    return "huge" if (copied.n_ctx, copied.kv_type) == (mapped.n_ctx, mapped.kv_type) else "map"


def copy(
    matrices: Sequence[TernaryMatrix], lock: Any = None, stopped: Callable[[], bool] = lambda: False, pause: float = 0.0
) -> None:
    """Copy all codes into one arena of 2 MiB pages, in the order in which a step reads them.

    Each matrix is switched to its copy as a whole, under ``lock``, and its pages of the file's map are released, so
    that at most one matrix exists twice.  Raises MemoryError.
    """
    from pyx import machine

    offsets, end = [], 0
    for matrix in matrices:
        offsets.append(end)
        end += (matrix.room + 63) // 64 * 64
    arena = machine.Arena(end, huge=True)
    maps = set()
    for matrix, offset in zip(matrices, offsets, strict=True):
        with lock or contextlib.nullcontext():
            if stopped():
                return
            stored = matrix.stored
            matrix.move_to(arena, offset)
        if stored is not None and isinstance(stored.obj, Map):
            machine.advise(stored, "release")
            maps.add(stored.obj)
        time.sleep(pause)
    for each in maps:
        linux.release(each)  # the pages that two tensors share


def release_pages(checkpoint: Checkpoint) -> None:
    """Release the pages of all maps of a checkpoint, such as those that were read once to make an int8 head."""
    for each in checkpoint.maps:
        linux.release(each)


def start(kind: str, transformer: Any, lock: Any, stopped: Callable[[], bool]) -> threading.Thread | None:
    """Start what :func:`choose` returned ("huge" or "collapse") in the background; None if nothing is to be done."""
    from pyx import machine

    matrices = transformer.movable

    def work() -> None:
        if kind == "huge":
            with contextlib.suppress(MemoryError):  # then the map goes on serving
                copy(matrices, lock, stopped, PAUSE)
            return
        for stored in (matrix.stored for matrix in matrices if matrix.stored is not None):
            if stopped():
                return
            machine.advise(stored, "collapse")

    thread = threading.Thread(target=work, name="placement")
    try:
        thread.start()
    except RuntimeError:  # no thread can be started: the map goes on serving
        return None
    return thread
