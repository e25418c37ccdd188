"""What people type by mistake or out of habit: one line that names what is wrong and what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edge.cli.group import COMMANDS, NEIGHBOURS
from tests.services import REAL, ROOT, environment


def bitnet_edge(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REAL, *arguments], cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["run", "-ngl", "99", "hi"], 2, "uses no GPU"),
    (["run", "--n-gpu-layers=99", "hi"], 2, "uses no GPU"),
    (["download", "x"], 2, "use bitnet-edge pull"),
    (["quantize", "x"], 2, "use bitnet-edge convert"),
    (["kv", "plan", "falcon-3"], 3, "did you mean falcon3-"),
    (["kv", "plan", "zzzz"], 3, "published models are 2b-4t"),
    (["chat", "--socket", "/nowhere/at/all/x"], 2, "folder /nowhere/at/all does not exist"),
    (["-p", "hi"], 2, "bitnet-edge run -p"),
    (["runn"], 2, "did you mean 'run'?"),
])
def test_what_is_wrong_and_what_to_do(arguments: list[str], code: int, said: str) -> None:
    done = bitnet_edge(*arguments)
    assert (done.returncode, done.stdout) == (code, "") and said in done.stderr, done
    assert done.stderr.count("\n") == 1


def test_weights_alone(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    done = bitnet_edge("run", "-m", str(tmp_path / "model.safetensors"), "hi")
    assert done.returncode == 4 and "name the folder that holds it" in done.stderr


def test_the_commands_of_others_lead_to_ours() -> None:
    assert {target.split()[0] for target in NEIGHBOURS.values()} <= set(COMMANDS) | {"serve"}
    assert not set(NEIGHBOURS) & set(COMMANDS)
