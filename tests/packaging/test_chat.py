"""packaging/chat.sh, which `make chat` runs: what it gets the first time, and which model then answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.terminal import CTRL_C, Terminal

SCRIPT = Path(__file__).resolve().parents[2] / "packaging" / "chat.sh"


@pytest.fixture
def chat(tmp_path: Path):
    """chat("-c", "99", why="demo", pull=0) -> (exit code, the commands that were run)."""

    def run(*options: str, why: str = "demo", pull: int = 0) -> tuple[int, list[str]]:
        python, log = tmp_path / "python", tmp_path / "log"
        python.write_text(f"#!/bin/sh\nshift 2\necho \"$*\" >> '{log}'\ncase $1 in\n"
                          f"default) echo '{{\"name\": \"x\", \"path\": \"x\", \"why\": \"{why}\"}}';;\n"
                          f"pull) exit {pull};;\nesac\n")
        python.chmod(0o755)
        log.write_text("")
        done = subprocess.run([SCRIPT, python, tmp_path / "stamp", *options], timeout=60)
        return done.returncode, log.read_text().splitlines()

    return run


ASKED, PULLED = "default --json --quiet", "pull smollm2-135m"


def test_the_first_time_it_gets_a_model(chat) -> None:
    assert chat("-c", "99") == (0, [ASKED, PULLED, "chat -c 99"])
    assert chat() == (0, ["chat"]), "the second time it starts at once"


def test_a_model_that_was_chosen_is_used(chat) -> None:
    assert chat(why="default") == (0, [ASKED, "chat"])
    assert chat(why="default") == (0, ["chat"])


@pytest.mark.parametrize("named", [["-m", "FILE"], ["-mFILE"], ["-q", "--model=FILE"]])
def test_a_model_that_is_named_is_used(chat, named: list[str]) -> None:
    assert chat(*named) == (0, [f"chat {' '.join(named)}"])
    assert chat("--memory", "1G")[1][:2] == [ASKED, PULLED]


def test_without_a_network_the_demo_model_answers(chat) -> None:
    for _ in range(2):  # and it is tried again
        assert chat("-v", pull=1) == (0, [ASKED, PULLED, "chat -m demo -v"])
    assert chat(pull=130) == (130, [ASKED, PULLED])


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@pytest.mark.parametrize("code", [0, 130])
def test_ctrl_c_in_a_chat_is_no_failure_of_make(tmp_path: Path, code: int) -> None:
    """It stops an answer, and pressed twice ends the chat: make must not print that it was interrupted."""
    python, recipe = tmp_path / "python", f"\t@{SCRIPT} {tmp_path}/python {tmp_path}/stamp -m x || [ $$? -eq 130 ]\n"
    python.write_text(f"#!/bin/bash\ntrap 'echo stopped' INT\necho begun\nread -r line\nread -r line\nexit {code}\n")
    python.chmod(0o755)
    (tmp_path / "Makefile").write_text(f"chat:\n{recipe}")
    with Terminal(["make", "-C", str(tmp_path), "--no-print-directory", "chat"], {**os.environ, "TERM": "xterm"}) as t:
        t.expect("begun")
        t.type(CTRL_C)
        t.expect("stopped")
        t.line("one")
        t.line("two")
        assert t.wait() == 0 and "make:" not in t.screen, t.screen
