"""Memory of the machine: what is there, and what can be allocated."""

from __future__ import annotations

import re

from edge.machine import linux

#: memory of boards in bytes, as they are sold; a GB counts as 10^9 bytes, as everywhere here, though boards have 2^30
BOARDS = (512_000_000, *(gb * 10**9 for gb in (1, 2, 4, 8, 16)))
#: memory that Linux without a desktop and the firmware take: an assumption (of a Pi Zero 2 W with 512 MiB, Linux has
#: 436 MB, of which 240 to 340 MB are free)
SYSTEM = 256_000_000


def left_on(memory: int) -> int:
    """Bytes that the system of a board leaves for a program; ``memory``: of the board in bytes, as it is sold."""
    return memory - SYSTEM


def available_memory(root: str = "/") -> int | None:
    """Bytes that can be allocated without swapping: MemAvailable, or less under a cgroup limit; None if unknown."""
    available = linux.sizes("/proc/meminfo", root).get("MemAvailable")
    found = [] if available is None else [available]
    for folder, limit in linux.control_groups("memory.max", root):
        used = linux.number(f"{folder}/memory.current", root)
        if limit.strip().isdecimal() and used is not None:
            cache = re.search(r"^inactive_file (\d+)$", linux.text(f"{folder}/memory.stat", root) or "", re.MULTILINE)
            found.append(max(0, int(limit) - used + (int(cache[1]) if cache else 0)))
    return min(found, default=None)
