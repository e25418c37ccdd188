"""The units of the package and of the kiosk, and the program under conditions at their worst."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from edge.cli.group import cli
from edge.errors import EXIT_CODES
from tests.http_service import service
from tests.services import REAL, ROOT, environment

UNIT = ROOT / "packaging" / "systemd" / "bitnet-edge.service"
QUESTION = "Hello!"


# ---- units -----------------------------------------------------------------------------------------------------------


def settings() -> dict[str, str]:
    """Assignments of the unit; the last one of a name counts."""
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))


def test_unit_says_what_it_promises() -> None:
    unit = settings()
    assert unit["Type"] == "notify" and unit["NotifyAccess"] == "all" and unit["KillMode"] == "control-group"
    assert int(unit["WatchdogSec"]) >= 30 and unit["Restart"] == "on-failure"
    assert unit["MemoryMax"] and unit["MemorySwapMax"] == "0"
    assert unit["ProtectSystem"] == "strict" and unit["NoNewPrivileges"] == "yes"
    final = {int(code) for code in unit["RestartPreventExitStatus"].split()}
    assert final <= set(EXIT_CODES) and not final & {1, 5, 75}  # those may pass


def units() -> list[str]:
    """That of the package, without its page, which comes with the package; the kiosk's; and that with the lines of the
    page for the HTTP server.
    """
    own = re.sub(r"^Documentation=.*\n", "", UNIT.read_text(), flags=re.MULTILINE)
    kiosk = (ROOT / "examples/kiosk/etc/systemd/system/kiosk.service").read_text()
    (lines,) = re.findall(r"```ini\n(ExecStart=.* serve .*?)```", (ROOT / "docs" / "kiosk.md").read_text(), re.DOTALL)
    return [own, kiosk, re.sub(r"ExecStart=.*\n", lines, kiosk)]


@pytest.mark.parametrize("text", units(), ids=["package", "kiosk", "page"])
def test_units_are_verified_by_systemd(folder: Path, text: str) -> None:
    """systemd-analyze finds nothing to say, and commands and options exist."""
    program, *words = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)[-1].split()
    command = cli.get_command(click.Context(cli), words[0])
    assert command and program == "/usr/bin/bitnet-edge"
    known = {name for param in command.params for name in param.opts}
    assert {word for word in words if word.startswith("-")} <= known
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    path = folder / UNIT.name
    path.write_text(text.replace(program, sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_unit_forbids_nothing_that_is_needed() -> None:
    """MemoryDenyWriteExecute=yes, as the kernel enforces it: an answer, under PR_SET_MDWE (Linux 6.3)."""
    words = ["-m", "edge", "run", "-m", "demo", "-n", "4", QUESTION]
    probe = "import ctypes, os, sys\nif ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): sys.exit(99)\n" \
            f"os.execv(sys.executable, [sys.executable, *{words}])"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, env=environment(), input=b"")
    if done.returncode == 99:
        pytest.skip("the kernel has no PR_SET_MDWE")
    assert (done.returncode, done.stderr) == (0, b"") and len(done.stdout) > 5


# ---- conditions ------------------------------------------------------------------------------------------------------


def limited(limit: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """bitnet-edge after a shell command such as "ulimit -v 524288"."""
    return subprocess.run(
        ["sh", "-c", f'{limit} && exec "$@"', "sh", *REAL, *arguments], capture_output=True, text=True, timeout=300,
        env=environment(BITNET_EDGE_MODEL="demo"), stdin=subprocess.DEVNULL, cwd=ROOT,
    )


HALF_A_GIGABYTE = "ulimit -v 524288"


def test_512_mb(bundled_model: Path, folder: Path) -> None:
    """The demo model answers in it, doctor works, the service starts, and a model of a gigabyte is refused with 5."""
    done = limited(HALF_A_GIGABYTE, "run", "-q", "--temp", "0", QUESTION)
    assert (done.returncode, done.stderr) == (0, "") and len(done.stdout) > 5
    assert limited(HALF_A_GIGABYTE, "doctor").returncode == 0
    large = folder / "large.gguf"
    shutil.copy(bundled_model, large)
    os.truncate(large, 1 << 30)  # a hole: takes no space
    done = limited(HALF_A_GIGABYTE, "run", "-m", str(large), QUESTION)
    assert (done.returncode, done.stdout) == (5, "")
    said = f"{large}: not enough address space to map 1074 MB; is there a limit (ulimit -v)?"
    assert done.stderr == f"bitnet-edge: {said}\n"
    with service(folder / "socket", command=["sh", "-c", f'{HALF_A_GIGABYTE} && exec "$@"', "sh", *REAL]):
        pass
