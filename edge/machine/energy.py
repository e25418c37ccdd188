"""Energy: the joules that this machine uses, where something in it measures them.

PMIC       the rails of a Raspberry Pi 5, volts times amperes: without USB and what the regulators lose
powercap   counters of whole processors (RAPL: Intel, AMD); since Linux 5.10 only root may read them
hwmon      a meter on the board or in its supply

All count whatever runs meanwhile.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from glob import glob

from edge.machine import linux

PERIOD = 0.5  # seconds between two readings of watts: asking costs time, and sensors average over some of it
ZONES = "/sys/class/powercap/intel-rapl:*"
#: names beside a chip of hwmon that measures a battery, a graphics card, a network card or a disk
OTHERS = ("device/type", "device/drm", "device/net", "device/nvme")


class Counters:
    """A meter that counts microjoules in files; each begins again at 0 after its span."""

    def __init__(self, name: str, paths: Sequence[str], spans: Sequence[int], root: str) -> None:
        self.name, self.root, self.spans = name, root, dict(zip(paths, spans, strict=True))
        self.total, self.last = 0, {path: linux.number(path, root) or 0 for path in paths}

    def joules(self) -> float:
        """Used since the meter was made."""
        for path, old in self.last.items():
            if (new := linux.number(path, self.root)) is not None:
                self.total += (new - old) % self.spans[path]
                self.last[path] = new
        return self.total / 1e6


class Power:
    """A meter that shows watts, which are summed over time: ask it often."""

    def __init__(self, name: str, read: Callable[[], float | None]) -> None:
        self.name, self.read = name, read
        self.total, self.watts, self.at = 0.0, read() or 0.0, time.monotonic()

    def joules(self) -> float:
        """Used since the meter was made."""
        seconds = time.monotonic() - self.at
        if seconds < PERIOD:
            return self.total + self.watts * seconds
        before, new = self.watts, self.read()
        self.watts = before if new is None else new
        self.total, self.at = self.total + (before + self.watts) / 2 * seconds, self.at + seconds
        return self.total


def find(root: str = "/") -> Counters | Power | str:
    """The meter of this machine, or why there is none.  ``root``: of a made-up machine, for tests."""
    if root == "/" and rails() is not None:
        return Power("PMIC of the Raspberry Pi", rails)
    zones = {zone: name for zone in _below(ZONES, root) if (name := _word(f"{zone}/name", root)).startswith("package")}
    counters = [f"{zone}/energy_uj" for zone in zones]  # cores, graphics and psys are parts of it, or it of them
    if counters and all(linux.number(path, root) is not None for path in counters):
        spans = [linux.number(f"{zone}/max_energy_range_uj", root) or 1 << 62 for zone in zones]
        return Counters(f"powercap, {', '.join(zones.values())}", counters, spans, root)
    chips = {f"{_word(f'{chip}/name', root)} ({chip})": path for chip in _below("/sys/class/hwmon/hwmon*", root)
             if (path := _sensor(chip, root))}
    if len(chips) == 1:
        (name, path), = chips.items()
        return Power(f"hwmon, {name}", lambda: None if (n := linux.number(path, root)) is None else n / 1e6)
    if counters:
        return f"{counters[0]} may not be read: as root, or after: sudo chmod a+r {ZONES}/energy_uj"
    if chips:
        return "several meters, and nothing says which one has the whole: " + ", ".join(chips)
    return f"no processor in {os.path.dirname(ZONES)}, no power in /sys/class/hwmon: this machine shows no meter"


def rails() -> float | None:
    """Watts of the rails that the PMIC of a Raspberry Pi 5 measures; None elsewhere."""
    told = linux.vcgencmd("pmic_read_adc")
    amperes = dict(re.findall(r"(\w+)_A current\(\d+\)=([\d.]+)A", told))
    volts = dict(re.findall(r"(\w+)_V volt\(\d+\)=([\d.]+)V", told))
    both = amperes.keys() & volts.keys()
    return sum(float(amperes[rail]) * float(volts[rail]) for rail in both) if both else None


def _sensor(chip: str, root: str) -> str | None:
    """The file with the watts of a chip; None if it shows none, or those of something else."""
    if any(_below(f"{chip}/{other}", root) for other in OTHERS):
        return None
    power = _below(f"{chip}/power*_input", root) + _below(f"{chip}/power*_average", root)
    return next((path for path in power[:1] if linux.number(path, root) is not None), None)


def _below(pattern: str, root: str) -> list[str]:
    """Files that match, as paths of the machine."""
    return ["/" + os.path.relpath(path, root) for path in sorted(glob(os.path.join(root, pattern.lstrip("/"))))]


def _word(path: str, root: str) -> str:
    return (linux.text(path, root) or "").strip()
