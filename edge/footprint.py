"""Footprint: what a model takes beside its KV cache; and what memory there is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Footprint:
    """Bytes a model takes beside its KV cache."""

    mapped: int = 0  # weights used straight from the file: shared with other processes, reclaimable
    allocated: int = 0  # weights copied into memory of our own
    head_mapped: int = 0
    head_allocated: int = 0
    scratch: int = 0  # activations, logits, sampler
    program: int = 0  # resident before the weights were touched: interpreter, libraries, tokenizer

    @property
    def total(self) -> int:
        """Everything, the program included."""
        return self.program + self.coming

    @property
    def coming(self) -> int:
        """What loading will add to the process as it is."""
        return self.mapped + self.allocated + self.head_mapped + self.head_allocated + self.scratch


def available_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that can be taken without swapping: MemAvailable, or less under a cgroup limit; None if unknown."""
    found = []
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", (proc / "meminfo").read_text(), re.MULTILINE)
        if match:
            found.append(int(match[1]) * 1024)
        match = re.search(r"^0::(/.*)$", (proc / "self/cgroup").read_text(), re.MULTILINE)
    except OSError:
        match = None
    group = cgroups / match[1].lstrip("/") if match else cgroups
    for folder in (group, *group.parents):
        try:
            limit = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            cache = re.search(r"^inactive_file (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
            found.append(max(0, limit - used + (int(cache[1]) if cache else 0)))
        except (OSError, ValueError):  # no such file, or "max": no limit here
            pass
        if folder == cgroups:
            break
    return min(found, default=None)
