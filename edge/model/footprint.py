"""Footprint: memory of a model without its KV cache, and available memory."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

#: memory of boards in bytes, as they are sold; a GB counts as 10^9 bytes, as everywhere here, though boards have 2^30
BOARDS = (512_000_000, *(gb * 10**9 for gb in (1, 2, 4, 8, 16)))
#: what Linux without a desktop and the firmware take of it: an assumption (of a Pi Zero 2 W with 512 MiB, Linux has
#: 436 MB, of which 240 to 340 MB are free)
SYSTEM = 256_000_000


def left_on(memory: int) -> int:
    """Bytes that the system of a board leaves for a program; ``memory``: of the board in bytes, as it is sold."""
    return memory - SYSTEM


class Footprint(NamedTuple):
    """Bytes that a model takes without its KV cache."""

    mapped: int = 0  # weights used straight from the file: shared with other processes, reclaimable
    allocated: int = 0  # weights copied into memory of this process
    head_mapped: int = 0
    head_allocated: int = 0
    scratch: int = 0  # activations, logits, sampler; with those of one session
    session: int = 0  # logits and sampler of each further session
    vocabulary: int = 0  # for answers that follow a grammar, see edge.constrain.vocabulary
    program: int = 0  # resident before the weights were touched: interpreter, libraries, tokenizer
    experts: int = 0  # experts in memory, used straight from the file
    on_disk: int = 0  # experts that stay there until a token needs them; not part of the total
    least_experts: int = 0  # of experts: those that a token uses

    @property
    def total(self) -> int:
        """Bytes in all, including the program."""
        return self.program + self.coming

    @property
    def coming(self) -> int:
        """Bytes that loading will add to the process."""
        return (self.mapped + self.allocated + self.experts + self.head_mapped + self.head_allocated + self.scratch
                + self.vocabulary)

    def leaving(self, nbytes: int) -> Footprint:
        """With ``nbytes`` more of the experts on disk, or as many as can be left there."""
        n = max(0, min(nbytes, self.experts - self.least_experts))
        return self._replace(experts=self.experts - n, on_disk=self.on_disk + n)


def code_bytes(rows: int, k: int, grouped: bool) -> int:
    """Bytes of a ternary matrix [rows][k] in memory: 2 bits for each weight, rows in whole blocks of 128; ``grouped``:
    with a float16 scale in each block.
    """
    return rows * ((k + 127) // 128) * (34 if grouped else 32)


def _read(*path: str) -> str:
    with open(os.path.join(*path), encoding="utf-8", errors="surrogateescape") as file:  # names of groups are any bytes
        return file.read()


def installed_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_memory(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> int | None:
    """Bytes that can be allocated without swapping: MemAvailable, or less under a cgroup limit; None if unknown."""
    found = []
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", _read(proc, "meminfo"), re.MULTILINE)
        if match:
            found.append(int(match[1]) * 1024)
        match = re.search(r"^0::(/.*)$", _read(proc, "self/cgroup"), re.MULTILINE)
    except OSError:
        match = None
    names = [name for name in match[1].split("/") if name] if match else []
    for depth in range(len(names), -1, -1):  # a group's own limit, and those of the groups it is in
        folder = os.path.join(cgroups, *names[:depth])
        try:
            limit = int(_read(folder, "memory.max"))
            used = int(_read(folder, "memory.current"))
            cache = re.search(r"^inactive_file (\d+)$", _read(folder, "memory.stat"), re.MULTILINE)
            found.append(max(0, limit - used + (int(cache[1]) if cache else 0)))
        except (OSError, ValueError):  # no such file, or "max": no limit here
            pass
    return min(found, default=None)
