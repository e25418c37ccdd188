"""instructor, which needs an older openai than the other clients, in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from clients import serve

HERE = Path(__file__).resolve().parent
PYTHON = Path(sys.prefix) / "instructor" / "bin" / "python"


def test_instructor() -> None:
    if not PYTHON.exists():
        pytest.skip("make test-clients installs instructor")
    with serve() as url:
        done = subprocess.run([str(PYTHON), str(HERE / "instructor_client.py"), url], capture_output=True, text=True,
                              timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["JSON_SCHEMA", "TOOLS", "JSON"]
