"""edge/machine/energy.py: meters of made-up machines, what each counts, and one line where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge.machine import energy
from tests.services import tree

PACKAGE = "sys/class/powercap/intel-rapl:0"
#: Intel: two sockets, their parts, the whole platform, and the first socket once more by another way
RAPL = {
    **{f"sys/class/powercap/{zone}/name": f"{name}\n" for zone, name in {
        "intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram", "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys", "intel-rapl-mmio:0": "package-0"}.items()},
    **{f"sys/class/powercap/{zone}/energy_uj": "5000000\n" for zone in (
        "intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:1", "intel-rapl:2", "intel-rapl-mmio:0")},
    f"{PACKAGE}/max_energy_range_uj": "9000000\n",
    "sys/class/powercap/intel-rapl:1/max_energy_range_uj": "9000000\n",
}
#: a board with a meter in its supply, beside a battery, a graphics card and a chip that only knows degrees
BOARD = {
    "sys/class/hwmon/hwmon0/name": "cpu_thermal\n", "sys/class/hwmon/hwmon0/temp1_input": "51000\n",
    "sys/class/hwmon/hwmon1/name": "ina226\n", "sys/class/hwmon/hwmon1/power1_input": "4000000\n",
    "sys/class/hwmon/hwmon2/name": "BAT0\n", "sys/class/hwmon/hwmon2/power1_input": "7000000\n",
    "sys/class/hwmon/hwmon2/device/type": "Battery\n",
    "sys/class/hwmon/hwmon3/name": "amdgpu\n", "sys/class/hwmon/hwmon3/power1_average": "30000000\n",
    "sys/class/hwmon/hwmon3/device/drm/card0/dev": "226:0\n",
}
PMIC = """\
 3V3_SYS_A current(1)=0.10000000A
VDD_CORE_A current(7)=2.00000000A
  ALONE_A current(9)=9.00000000A
 3V3_SYS_V volt(9)=3.30000000V
VDD_CORE_V volt(15)=0.85000000V
  EXT5V_V volt(24)=5.09000000V
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is, in its only value."""
    now = [100.0]
    monkeypatch.setattr(energy.time, "monotonic", lambda: now[0])
    return now


def test_packages_of_powercap_count_once_and_begin_again(tmp_path: Path) -> None:
    meter = energy.find(tree(tmp_path, RAPL))
    assert isinstance(meter, energy.Counters) and meter.name == "powercap, package-0, package-1"
    assert meter.joules() == 0
    tree(tmp_path, {f"{PACKAGE}/energy_uj": "6500000\n"})
    assert meter.joules() == 1.5
    tree(tmp_path, {f"{PACKAGE}/energy_uj": "500000\n", "sys/class/powercap/intel-rapl:1/energy_uj": "5250000\n"})
    assert meter.joules() == 1.5 + 3 + 0.25, "one went over its range"
    (tmp_path / PACKAGE / "energy_uj").unlink()
    assert meter.joules() == 4.75, "whatever becomes of a file, nothing fails"


def test_a_board_s_meter_shows_watts(tmp_path: Path, clock: list[float]) -> None:
    meter = energy.find(tree(tmp_path, BOARD))
    assert isinstance(meter, energy.Power) and meter.name == "hwmon, ina226 (/sys/class/hwmon/hwmon1)"
    clock[0] += 0.25
    tree(tmp_path, {"sys/class/hwmon/hwmon1/power1_input": "6000000\n"})
    assert meter.joules() == 1, "too early to ask again: 4 W"
    clock[0] += 1.75
    assert meter.joules() == 10, "from 4 to 6 W in 2 s"
    clock[0] += 1
    (tmp_path / "sys/class/hwmon/hwmon1/power1_input").unlink()
    assert meter.joules() == 16


def test_the_rails_of_a_raspberry_pi(tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose volts and amperes are known; a Pi 4 knows none, and its tool says so."""
    tool = tmp_path / "vcgencmd"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tool.write_text(f"#!/bin/sh\n[ $1 = pmic_read_adc ] && cat <<'.'\n{PMIC}.\n")
    tool.chmod(0o755)
    meter = energy.find()
    assert isinstance(meter, energy.Power) and "PMIC" in meter.name
    clock[0] += 10
    assert meter.joules() == pytest.approx(10 * (0.33 + 1.7))
    tool.write_text("#!/bin/sh\necho 'error=1 error_msg=\"Command not registered\"'\nexit 255\n")
    assert energy.rails() is None


def test_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and the remedy where it may not be read; what was looked for, or what is there, elsewhere."""
    assert energy.find(tree(tmp_path / "virtual", {})) == (
        "no processor in /sys/class/powercap, no power in /sys/class/hwmon: this machine shows no meter")
    two = tree(tmp_path / "two", {**BOARD, "sys/class/hwmon/hwmon5/name": "ina219\n",
                                     "sys/class/hwmon/hwmon5/power1_input": "1\n"})
    said = energy.find(two)
    assert isinstance(said, str) and "ina226 (/sys/class/hwmon/hwmon1), ina219 (/sys/class/hwmon/hwmon5)" in said
    barred = tree(tmp_path / "barred", RAPL)
    number = energy.linux.number  # root may read everything, so the refusal is made up
    monkeypatch.setattr(energy.linux, "number", lambda path, root: None if path.endswith("_uj") else number(path, root))
    said = energy.find(barred)
    assert said == ("/sys/class/powercap/intel-rapl:0/energy_uj may not be read: as root, or after: "
                    "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj")
    assert isinstance(energy.find(tree(tmp_path / "barred", BOARD)), energy.Power), "another meter may"
