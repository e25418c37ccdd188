"""cores: how many threads a model gets, and the cores on which they stay.

The threads of a step wait for each other, so the slowest core sets the pace: on a board with fast and slow cores
(big.LITTLE, hybrid laptops) only the fast ones are used, and the threads stay on them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from edge.machine import linux

#: cores at least this fast, as a share of the fastest, count as fast.  Three more cores of 0.7 make the threads of one
#: fast core 2.8 times as fast together (a phone with 1 + 3 + 4 cores); little cores have 0.2 to 0.6.
FAST = 0.7
#: sources of the speed of a core, the best first; /sys/devices/cpu_core/cpus lists the fast cores of Intel's hybrids
SPEEDS = ("cpu_capacity", "cpufreq/cpuinfo_max_freq")


class Cores(NamedTuple):
    """The cores of this process."""

    allowed: tuple[int, ...]  # by its affinity mask (taskset, cpusets)
    fast: tuple[int, ...]  # those of them that are used
    source: str | None  # the system file that lists the fast ones; None: all are the same, or unknown
    quota: float | None  # cores' worth of time that control groups allow; None: no limit

    @property
    def threads(self) -> int:
        """The best number of threads; at least 1."""
        return len(self.fast) if self.quota is None else max(1, min(len(self.fast), round(self.quota)))

    def held(self, threads: int) -> tuple[int, ...] | None:
        """The cores on which ``threads`` threads stay; None: the system chooses, as all allowed cores are equally fast,
        or there are more threads than fast cores.
        """
        if self.fast == self.allowed or threads > len(self.fast):
            return None
        return self.fast


def find(root: str = "/", allowed: set[int] | None = None) -> Cores:
    """The cores of this process; ``root`` and ``allowed`` are for tests with other machines."""
    mine = tuple(sorted(linux.allowed_cores() if allowed is None else allowed))
    fast, source = _fast(root, mine)
    return Cores(mine, fast, source, quota(root))


def choose(threads: int | None) -> tuple[int, tuple[int, ...] | None]:
    """(number of threads, the cores on which they stay; None: any) for the ``threads`` option.

    ``threads`` None: one for each fast core, up to the quota; -N: N fewer than that, but at least 1.
    """
    found = find()
    n = threads if threads is not None and threads > 0 else max(1, found.threads + (threads or 0))
    return n, found.held(n)


def parse(text: str) -> set[int]:
    """A list of cores in the notation of Linux, such as 0-3,8.  Raises ValueError."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not 0 <= int(first) <= int(last or first) < 1 << 16:
            raise ValueError(f"{text!r} is not a list of cores")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def spell(cores: tuple[int, ...]) -> str:
    """Cores in ascending order in the notation of Linux."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1][1:] = [core]
        else:
            runs.append([core])
    return ",".join("-".join(map(str, run)) for run in runs)


def _fast(root: str, allowed: tuple[int, ...]) -> tuple[tuple[int, ...], str | None]:
    """The fast ones of ``allowed``, and the path of the file that says so; None if no file does."""
    hybrid = "/sys/devices/cpu_core/cpus"
    try:
        listed = parse(linux.text(hybrid, root) or "")
    except ValueError:
        listed = set()
    fast = tuple(core for core in allowed if core in listed)
    if fast:
        return (fast, hybrid) if fast != allowed else (allowed, None)
    for name in SPEEDS:
        path = "/sys/devices/system/cpu/cpu{}/" + name
        speeds = {core: linux.number(path.format(core), root) for core in allowed}
        if all(speeds.values()):
            least = FAST * max(speed or 0 for speed in speeds.values())
            fast = tuple(core for core in allowed if (speeds[core] or 0) >= least)
            if fast != allowed:
                return fast, path.format("*")
    return allowed, None


def quota(root: str = "/") -> float | None:
    """Processor time that control groups allow this process, in cores, such as 1.5; None: no limit."""
    found = []
    for _, limits in linux.control_groups("cpu.max", root):
        limit, _, period = limits.partition(" ")
        with suppress(ValueError, ZeroDivisionError):  # "max"
            found.append(int(limit) / int(period))
    return min(found, default=None)
