"""Continuous integration: workflows are well formed, their steps are scripts of ours, and these do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge import __version__

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML  # check-jsonschema needs it, too

    content: dict[str, Any] = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    return content


def steps() -> list[dict[str, Any]]:
    return [step for path in WORKFLOWS for job in read(path)["jobs"].values() for step in job["steps"]]


def run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})


def test_workflows_follow_the_published_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = run(*command, *map(str, WORKFLOWS))
    assert len(WORKFLOWS) == 2 and done.returncode == 0, done.stdout + done.stderr


def test_workflows_are_modest() -> None:
    """They may read the sources and nothing else, end in time, and use releases of actions."""
    for path in WORKFLOWS:
        content = read(path)
        assert content["permissions"] == {"contents": "read"} and "group" in content["concurrency"], path.name
        for name, job in content["jobs"].items():
            assert job["timeout-minutes"] <= 90, name
            assert job.get("permissions", {"contents": "write"}) == {"contents": "write"}
            assert ("permissions" in job) == (name == "draft"), name
    for step in steps():
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
            assert "checkout" not in step["uses"] or step["with"]["persist-credentials"] is False


def test_steps_are_scripts_that_run_here_too() -> None:
    """Targets of make and scripts, which .ci/run calls as well; what only a runner has is apt-get and gh."""
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    commands = {step["run"] for step in steps() if "run" in step}
    assert len(commands) > 8
    for command in commands:
        program, first = command.split()[:2] if " " in command else (command, "")
        if program == "make":
            assert re.search(rf"^{first}:", makefile, re.MULTILINE) and f"make {first}" in ci, command
        elif program not in ("apt-get", "gh"):
            assert os.access(ROOT / program, os.X_OK), command
            assert program == ".ci/release" or command in ci, command


def test_every_supported_python_is_tried_on_both_architectures() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["suite"]["strategy"]["matrix"]
    assert [version.split(".")[1] for version in matrix["python"]] == ["10", "11", "12", "13", "14"]
    assert [system.endswith("-arm") for system in matrix["system"]] == [False, True]


# ---- the scripts -----------------------------------------------------------------------------------------------------


def test_release_is_that_of_the_tag(tmp_path: Path) -> None:
    done = run(".ci/release", "version", "v0.0.0")
    assert done.returncode == 1 and f"the package is {__version__}" in done.stderr
    (tmp_path / "edge").mkdir()
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release", tmp_path / ".ci")
    shutil.copy(ROOT / "edge" / "__init__.py", tmp_path / "edge")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {__version__} (unreleased)\n")
    done = run(".ci/release", "version", f"v{__version__}", cwd=tmp_path)
    assert done.returncode == 1 and "no section" in done.stderr
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {__version__}\n")
    assert run(".ci/release", "version", f"v{__version__}", cwd=tmp_path).returncode == 0


def test_release_has_programs_and_checksums(tmp_path: Path) -> None:
    machine = os.uname().machine
    for name in ("bitnet-edge", f"bitnet-edge-{machine}.tar.gz", "bitnet-edge_0.1.0_amd64.deb", "notes.txt"):
        (tmp_path / name).write_text(name)
    for step in ("collect", "checksums", "checksums"):
        done = run(".ci/release", step, DIST=str(tmp_path))
        assert done.returncode == 0, done.stderr
    names = {f"bitnet-edge-{machine}", f"bitnet-edge-{machine}.tar.gz", "bitnet-edge_0.1.0_amd64.deb"}
    assert {path.name for path in (tmp_path / "release").iterdir()} == names | {"SHA256SUMS"}
    done = run("sha256sum", "--check", "SHA256SUMS", cwd=tmp_path / "release")
    assert done.returncode == 0 and done.stdout.count(": OK") == 3


def test_long_subjects_are_found(tmp_path: Path) -> None:
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "init.defaultBranch=main")
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "subjects", tmp_path / ".ci")
    assert run(*git, "init", "--quiet", cwd=tmp_path).returncode == 0

    def commit(subject: str) -> subprocess.CompletedProcess[str]:
        for command in (["add", "."], ["commit", "--quiet", "--allow-empty", "--message", subject]):
            assert run(*git, *command, cwd=tmp_path).returncode == 0
        return run(".ci/subjects", cwd=tmp_path)

    assert commit("x" * 90).returncode == 0  # as the check itself came
    assert commit("é" * 72).returncode == 0
    done = commit("y" * 73)
    assert done.returncode == 1 and "73 characters" in done.stderr
    run(*git, "tag", "v1", cwd=tmp_path)
    assert commit("short").returncode == 0
    shallow = tmp_path / "shallow"
    run("git", "clone", "--quiet", "--depth", "1", f"file://{tmp_path}", str(shallow))
    assert run(".ci/subjects", cwd=shallow).returncode == 0


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A tree with .ci/run in which every other command says its name, and fails where FAIL is a part of it."""
    stub = '#!/bin/sh\necho "ran ${0##*/}${1:+ $*}"\ncase "${0##*/} $*" in *"${FAIL:-nothing}"*) exit 3;; esac\n'
    names = [".ci/subjects", "bin/make", *(f"packaging/{path.name}" for path in (ROOT / "packaging").glob("*.sh"))]
    for name in (*names, ".venv/bin/python"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stub)
        path.chmod(0o755)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    return tmp_path


def results(text: str) -> list[tuple[str, str]]:
    """Rows of the table at the end: (stage, result)."""
    table = text.partition("seconds  result\n")[2]
    return [(line[:28].strip(), line[38:]) for line in table.splitlines()]


def test_all_stages_run(stubs: Path) -> None:
    path = f"{stubs / 'bin'}:{os.environ['PATH']}"
    done = run(".ci/run", cwd=stubs, PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = results(done.stdout)
    assert len(rows) == 15 and {result for _, result in rows} == {"passed"}, rows
    stages = r"^(?:stage|in_background).*? ((?:make|packaging/|\.ci/).*)$"
    for command in re.findall(stages, (ROOT / ".ci/run").read_text(), re.MULTILINE):
        assert f"ran {command.split('/')[-1]}\n" in done.stdout, command


@pytest.mark.parametrize(("fail", "stage"), [("make lint", "style and types"), ("make wheels", "wheel"),
                                             ("debian13.sh aarch64", "Debian 13, aarch64")])
def test_the_first_failure_ends_it(stubs: Path, fail: str, stage: str) -> None:
    done = run(".ci/run", cwd=stubs, PATH=f"{stubs / 'bin'}:{os.environ['PATH']}", FAIL=fail)
    assert done.returncode == 1 and f"ran {fail}\n" in done.stdout
    assert results(done.stdout)[-1] == (stage, "FAILED (status 3)")
    assert "ran make test-clients" not in done.stdout


def test_a_system_that_cannot_be_made_is_not_tested(stubs: Path) -> None:
    done = run(".ci/run", cwd=stubs, PATH=f"{stubs / 'bin'}:{os.environ['PATH']}", FAIL="debian-root.sh trixie")
    assert done.returncode == 0
    rows = dict(results(done.stdout))
    assert rows["aarch64 programs"] == "passed" and rows["Debian 13, x86-64"].startswith("NOT TESTED: ran")
