"""Parking: moves the KV pages of an idle session to a file (edge/cache/codec.py) until the session is used again."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Parked:
    """Time and size of parking, or of coming back.  ``in_memory``: the file system is itself in memory (tmpfs, ramfs),
    so that parking frees memory of this process only, not of the system.
    """

    path: str
    nbytes: int  # of the file
    seconds: float
    in_memory: bool

    @classmethod
    def since(cls, path: str, begun: float) -> Parked:
        """For a file that was written or read since ``begun`` (time.perf_counter)."""
        return cls(path, os.path.getsize(path), time.perf_counter() - begun, lies_in_memory(path))

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.nbytes / self.seconds if self.seconds > 0 else 0.0

    def line(self) -> str:
        """The result as one line of text."""
        where = "; it lies in a file system made of memory, so the system gains nothing" if self.in_memory else ""
        return f"{self.path}: {self.nbytes / 1e6:.1f} MB in {self.seconds:.2f} s, {self.rate / 1e6:.0f} MB/s{where}"


def lies_in_memory(path: str, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether a file's file system is in memory; False if unknown."""
    try:
        device = os.stat(path).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        with open(mounts) as lines:
            for line in lines:
                before, _, after = line.partition(" - ")
                if before.split()[2] == wanted:
                    return after.split()[0] in ("tmpfs", "ramfs", "devtmpfs")
    except (OSError, IndexError):
        pass
    return False
