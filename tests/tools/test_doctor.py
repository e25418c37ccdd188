"""edge/tools/doctor.py and edge/machine/board.py: facts where there are some, no failure where there are none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.formats import open_checkpoint
from edge.machine.board import Board
from edge.prompt.template import Template
from edge.prompt.tokenizer import Tokenizer
from edge.tools import doctor
from pyx import machine, weights
from tests.oracles.forward import Model
from tests.services import ROOT, bitnet_edge, environment, tree


def board(tmp_path: Path, files: dict[str, str]) -> Board:
    """A made-up machine."""
    return Board(tree(tmp_path, files))


PI5 = {
    "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
    "proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\n"
    "processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n",
    "proc/meminfo": "MemTotal:        8000000 kB\nMemAvailable:    200000 kB\nSwapTotal:  0 kB\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1500000\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2400000\n",
    "sys/class/thermal/thermal_zone0/temp": "84500\n",
    "sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n",
    "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
}


def test_a_raspberry_pi(tmp_path: Path) -> None:
    pi = board(tmp_path, PI5)
    assert pi.model() == "Raspberry Pi 5 Model B Rev 1.0"
    assert pi.cpu() == "Cortex-A76"
    assert pi.memory() == {"total": 8_192_000_000, "available": 204_800_000, "swap": 0}
    assert (pi.huge_pages(), pi.governor(), pi.mhz(), pi.celsius()) == ("never", "powersave", 2400.0, 84.5)
    assert pi.throttling() == {
        "now": ["under-voltage", "throttled"],
        "since boot": ["under-voltage", "throttled"],
    }
    assert pi.system().startswith("Debian GNU/Linux 12 (bookworm), ")


def test_advice(tmp_path: Path) -> None:
    facts = doctor.report(selftest=False, board=board(tmp_path, PI5))
    text = "\n".join(facts["warnings"])
    for word in ("governor", "under-voltage", "84.5 C", "huge pages", "205 MB"):
        assert word in text
    assert facts["selftest"] is None and facts["ok"]


def test_nothing_readable(tmp_path: Path) -> None:
    """An empty /proc and /sys: every fact is None or a stand-in, nothing fails."""
    facts = doctor.report(selftest=False, board=Board(str(tmp_path / "nothing")))
    assert facts["board"] is None and facts["celsius"] is None and facts["throttling"] is None
    assert facts["memory"] == {"total": None, "available": None, "swap": None}
    assert any(line.startswith("memory") and "unknown" in line for line in doctor.lines(facts))


@pytest.mark.parametrize("text", ["", "garbage", "-", "\0\0"])
def test_garbage_in_system_files(tmp_path: Path, text: str) -> None:
    odd = board(tmp_path, dict.fromkeys(PI5, text))
    doctor.lines(doctor.report(selftest=False, board=odd))


def test_this_machine() -> None:
    facts = doctor.report()
    json.dumps(facts)
    assert facts["ok"], facts["selftest"]
    assert facts["cores"]["used"] >= 1 and facts["models"] in "\n".join(doctor.lines(facts))
    assert facts["isa"]["in_use"] in facts["isa"]["supported"]
    lines = doctor.lines(facts)
    assert all(line == line.rstrip() and "\n" not in line for line in lines)
    assert sum(line.startswith("test ") for line in lines) == len(machine.supported()) + 1
    assert machine.isa() == facts["isa"]["in_use"]
    assert lines[-1].split(maxsplit=1) == ["result", "all tests passed"]
    assert "do not trust" in doctor.lines({**facts, "ok": False})[-1]


def test_memory_control(tmp_path: Path) -> None:
    """systemd can limit memory, or cannot; on a Raspberry Pi that must be switched on."""
    pi = board(tmp_path, PI5 | {"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io pids\n"})
    assert pi.memory_control() is False
    assert any("cgroup_enable=memory" in text for text in doctor.report(selftest=False, board=pi)["warnings"])
    pi = board(tmp_path, {"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n"})
    assert pi.memory_control() is True
    assert Board(str(tmp_path / "nothing")).memory_control() is None


@pytest.mark.parametrize("theirs", [None, "", "/opt/theirs"])
def test_other_programs_get_the_users_libraries(tmp_path: Path, theirs: str | None) -> None:
    """As PyInstaller's bootloader starts the frozen program, with its own libraries first."""
    if Board().number("/sys/devices/platform/soc/soc:firmware/get_throttled", 16) is not None:
        pytest.skip("the kernel of this Raspberry Pi tells")
    tool, seen = tmp_path / "vcgencmd", tmp_path / "seen"
    tool.write_text(f'#!/bin/sh\necho "${{LD_LIBRARY_PATH-unset}},${{LD_LIBRARY_PATH_ORIG-unset}}" >{seen}\n')
    tool.chmod(0o755)
    original = {} if theirs is None else {"LD_LIBRARY_PATH_ORIG": theirs}
    variables = environment(PATH=f"{tmp_path}:/usr/bin:/bin", LD_LIBRARY_PATH="/tmp/_MEIours", **original)
    done = subprocess.run([sys.executable, ROOT / "packaging" / "entry.py", "doctor", "--json"], env=variables,
                          capture_output=True, text=True, timeout=300)
    assert seen.read_text().split() == [f"{'unset' if theirs is None else theirs},unset"], done.stderr


@pytest.mark.parametrize("name", ["junk", "neon", "avx2"])
def test_a_forced_instruction_set_that_is_not_here(name: str) -> None:
    """BITNET_EDGE_ISA is wrong: doctor says so in its report, as a failed test, and does not break."""
    if name in machine.supported():
        pytest.skip(f"this processor has {name}")
    for arguments in ([], ["--json"]):
        done = bitnet_edge("doctor", *arguments, BITNET_EDGE_ISA=name)
        assert done.returncode == 1 and done.stderr == "" and f"'{name}'" in done.stdout


@pytest.mark.parametrize("wrong", ["accumulate", "matvec"])
def test_a_wrong_sum_is_reported(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """The self-test notices kernels that add one: to a ternary matrix, or to a sum of planes."""
    import pyx.step  # noqa: F401  while the real class is in its place

    class Broken:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self.matrix = real.pack(*arguments, **options)

        pack = classmethod(lambda cls, *arguments, **options: cls(*arguments, **options))

        def accumulate(self, x: Any) -> list[int]:
            return [each + (wrong == "accumulate") for each in self.matrix.accumulate(x)]

        def matvec(self, x: Any, groups: bool) -> list[float]:
            return [each + (wrong == "matvec") for each in self.matrix.matvec(x, groups)]

    real = weights.TernaryMatrix
    monkeypatch.setattr(weights, "TernaryMatrix", Broken)
    monkeypatch.setattr(doctor, "model_test", lambda: "skipped: not of interest here")
    facts = doctor.report()
    assert not facts["ok"]
    said = "wrong: sums of planes" if wrong == "matvec" else "wrong: sums are"
    assert all(result.startswith(said) for result in facts["selftest"]["kernels"].values())


def test_golden_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bundled_model: Path) -> None:
    """The right answer passes, another one is shown next to it, a model without golden file is skipped."""
    golden = json.loads(bundled_model.with_suffix(".golden.json").read_text())
    monkeypatch.setattr(doctor, "MODELS", tmp_path)
    assert doctor.model_test() == "skipped: no demo model"
    (tmp_path / "m.gguf").symlink_to(bundled_model)
    assert doctor.model_test() == "skipped: m.golden.json is missing"
    stored = tmp_path / "m.golden.json"
    stored.write_text(json.dumps(golden))
    assert doctor.model_test() == "ok, 2 answers as expected"
    golden["turns"][1]["ids"][3] ^= 1
    stored.write_text(json.dumps(golden))
    assert doctor.model_test().startswith("wrong: the answer to ")


def test_golden_answers_come_from_the_oracle(bundled_model: Path) -> None:
    """The NumPy model, which shares no code with ours, gives the stored tokens, with no near tie on the way."""
    checkpoint = open_checkpoint(str(bundled_model))
    tokenizer = Tokenizer.build(checkpoint.tokenizer)
    template = Template.for_model(checkpoint)
    model = Model(checkpoint)
    for turn in json.loads(bundled_model.with_suffix(".golden.json").read_text())["turns"]:
        ids = list(template.encode(tokenizer, [{"role": "user", "content": turn["question"]}]))
        said, stop = turn["ids"], set(template.stop_ids(tokenizer)) | set(tokenizer.eos_ids)
        assert tokenizer.decode(said) == turn["answer"]
        # one pass over question and answer: if each token is the likeliest after those before it, greedy gives them
        logits = model.logits(ids + said)[len(ids) - 1 :]
        *likeliest, last = logits.argmax(-1).tolist()
        assert likeliest == said and not stop & set(said) and (last in stop or len(said) == 64)
        best = np.sort(logits, -1)
        assert (best[:, -1] - best[:, -2]).min() > 0.2
