"""packaging/chat.sh, which `make chat` runs: what it gets the first time, and which model then answers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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
