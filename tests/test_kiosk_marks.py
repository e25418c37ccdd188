"""The marks of the kiosk on strangers' visits: marks.json and docs/kiosk.md tell what the program does today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training import kiosk_exam

SETS: dict[str, dict[str, Any]] = json.loads(kiosk_exam.MARKS.read_text())
DOCS = Path(__file__).resolve().parent.parent / "docs" / "kiosk.md"


@pytest.mark.parametrize("name", [name for name, each in SETS.items() if each["visits"]])
def test_marks_are_what_is_counted(name: str) -> None:
    if SETS[name].get("stale"):
        pytest.skip("the rules have changed since it was scored: python -m training.kiosk_exam scores it again")
    counted = kiosk_exam.counted(SETS[name]["files"])
    assert counted == SETS[name], "run python -m training.kiosk_exam, and bring its table into docs/kiosk.md"


def test_the_table_of_the_docs() -> None:
    assert kiosk_exam.table(SETS) in DOCS.read_text(), "run python -m training.kiosk_exam and copy its table"


def test_development_and_held_out_share_no_file() -> None:
    files = [file for each in SETS.values() for file in each["files"]]
    assert len(files) == len(set(files))
