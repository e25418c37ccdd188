"""The npm clients (clients.test.mjs), by Node's own test runner."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from clients import serve

HERE = Path(__file__).resolve().parent


def test_npm_clients() -> None:
    if shutil.which("node") is None or not (HERE / "node_modules").is_dir():
        pytest.skip("needs Node.js and `npm ci` in tests/clients; make test-clients does both")
    with serve() as url:
        done = subprocess.run(["node", "--test", "clients.test.mjs"], cwd=HERE, env={**os.environ, "URL": url},
                              capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
