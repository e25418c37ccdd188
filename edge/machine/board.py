"""Facts about this machine, read from /proc and /sys.  A file that is missing gives None, never an error."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from edge.machine import linux

#: "CPU part" of /proc/cpuinfo for implementer 0x41 (ARM) of usual boards, from the MIDR_EL1 part numbers in the Linux
#: kernel
ARM_PARTS = {
    0xD03: "Cortex-A53",
    0xD05: "Cortex-A55",
    0xD08: "Cortex-A72",
    0xD09: "Cortex-A73",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse-N1",
    0xD41: "Cortex-A78",
    0xD49: "Neoverse-N2",
}

#: bits of the Raspberry Pi firmware's get_throttled: now, and 16 higher since boot
THROTTLE_BITS = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")


class Board:
    """Reads the machine below ``root`` (tests use a made-up one)."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def read(self, path: str) -> str | None:
        """Text of a small system file, without NULs and surrounding blanks; None if it cannot be read."""
        found = (linux.text(path, self.root) or "").replace("\0", "").strip()
        return found.encode(errors="replace").decode() or None

    def number(self, path: str, base: int = 10) -> int | None:
        """A system file that holds one integer."""
        return linux.number(path, self.root, base)

    def model(self) -> str | None:
        """Name of the board, such as "Raspberry Pi 5 Model B Rev 1.0"."""
        return self.read("/proc/device-tree/model") or self.read("/sys/class/dmi/id/product_name")

    def cpu(self) -> str:
        """Name of the processor; several for big.LITTLE."""
        names: list[str] = []
        implementer = ""
        for line in (self.read("/proc/cpuinfo") or "").splitlines():
            key, _, value = (part.strip() for part in line.partition(":"))
            if key == "CPU implementer":
                implementer = value
            if key == "model name":
                name = value
            elif key == "CPU part":
                known = ARM_PARTS.get(int(value, 16)) if implementer in ("", "0x41") else None
                name = known or f"ARM implementer {implementer} part {value}"
            else:
                continue
            if name not in names:
                names.append(name)
        if not names:
            import platform

            names = [platform.processor() or platform.machine()]
        return " + ".join(names)

    def memory(self) -> dict[str, int | None]:
        """Total and available memory, and swap, in bytes."""
        table = linux.sizes("/proc/meminfo", self.root)
        return {"total": table.get("MemTotal"), "available": table.get("MemAvailable"), "swap": table.get("SwapTotal")}

    def memory_control(self) -> bool | None:
        """True if control groups can limit memory, as systemd's MemoryMax= does; off by default on a Raspberry Pi."""
        controllers = self.read("/sys/fs/cgroup/cgroup.controllers")
        return None if controllers is None else "memory" in controllers.split()

    def huge_pages(self) -> str | None:
        """Mode of transparent huge pages: "always", "madvise" or "never"."""
        text = self.read("/sys/kernel/mm/transparent_hugepage/enabled") or ""
        return text.partition("[")[2].partition("]")[0] or None

    def governor(self) -> str | None:
        """Frequency governor of the first core."""
        return self.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")

    def mhz(self) -> float | None:
        """Fastest current clock of all cores in MHz."""
        from glob import glob

        pattern = os.path.join(self.root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")
        clocks = [self.number(os.path.relpath(path, self.root)) for path in glob(pattern)]
        known = [clock / 1000 for clock in clocks if clock]
        if not known:  # x86 under a hypervisor
            lines = (self.read("/proc/cpuinfo") or "").splitlines()
            known = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
        return round(max(known), 1) if known else None

    def celsius(self) -> float | None:
        """Hottest thermal zone in degrees Celsius."""
        from glob import glob

        zones = glob(os.path.join(self.root, "sys/class/thermal/thermal_zone*/temp"))
        values = [self.number(os.path.relpath(path, self.root)) for path in zones]
        known = [value / 1000 for value in values if value]
        return round(max(known), 1) if known else None

    def throttling(self) -> dict[str, list[str]] | None:
        """Why the Raspberry Pi firmware slows down the processor now and has since boot; None on other machines."""
        bits = self.number("/sys/devices/platform/soc/soc:firmware/get_throttled", 16)
        if bits is None and self.root == "/":
            with suppress(ValueError):
                bits = int(linux.vcgencmd("get_throttled").partition("=")[2], 16)
        if bits is None:
            return None
        return {
            "now": [what for i, what in enumerate(THROTTLE_BITS) if bits >> i & 1],
            "since boot": [what for i, what in enumerate(THROTTLE_BITS) if bits >> (16 + i) & 1],
        }

    def system(self) -> str:
        """Name of the distribution and word size."""
        import platform

        lines = (self.read("/etc/os-release") or "").splitlines()
        names = [line.partition("=")[2].strip('"') for line in lines if line.startswith("PRETTY_NAME=")]
        return f"{names[0] if names else platform.system()}, {platform.machine()}"

    def summary(self) -> dict[str, Any]:
        """The facts for the header of a measurement."""
        return {"board": self.model(), "cpu": self.cpu(), "system": self.system(), "memory": self.memory()["total"]}
