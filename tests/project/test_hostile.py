"""The campaigns of docs/architecture.md for some seconds: they run, and find nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns import faults, routes


@pytest.mark.parametrize("name", routes.SERVICES)
def test_random_requests(name: str) -> None:
    counts, wrong = routes.campaign(name, seconds=600, clients=4, seed=7, most=150)
    assert not wrong and counts["connections"] == 150


def test_faults_of_the_system() -> None:
    counts, wrong = faults.campaign(seconds=300, seed=7, most=len(faults.FAULTS))
    assert not wrong and sum(counts.values()) == len(faults.FAULTS)


def test_mutated_files(root: Path, tmp_path: Path) -> None:
    record = str(tmp_path / "record.json")
    command = [sys.executable, "-m", "tests.campaigns.fuzz_files", "400", "7", "--record", record]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "400 files, 0 wrong" in done.stdout, done.stdout + done.stderr
