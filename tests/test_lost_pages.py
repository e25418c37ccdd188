"""A model file that is cut while it is in use: one line and exit 4, not SIGBUS."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUNDLED = ROOT / "edge" / "bundled" / "kiosk-5m.gguf"


def test_a_model_file_that_is_cut_is_told_in_one_line(tmp_path):
    path = tmp_path / "m.gguf"
    shutil.copy(BUNDLED, path)
    run = subprocess.Popen(
        [sys.executable, "-m", "edge", "run", "-m", str(path), "-t", "2", "-n", "1000000", "--ignore-eos", "--raw",
         "The"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    try:
        assert run.stdout and run.stdout.read(10), run.stderr and run.stderr.read()
        os.truncate(path, 4096)
        _, errors = run.communicate(timeout=300)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 4, errors
    lines = errors.decode().strip().splitlines()
    assert len(lines) == 1 and str(path) in lines[0] and "was cut" in lines[0]


def test_other_bus_errors_end_the_process_as_before(tmp_path):
    code = (
        "import mmap, sys; from pyx.memory import guard; guard(); f = open(sys.argv[1], 'w+b'); f.write(bytes(8192));"
        "f.flush(); m = mmap.mmap(f.fileno(), 8192); f.truncate(0); m[5000]")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "f")], cwd=ROOT, timeout=300)
    assert done.returncode == -signal.SIGBUS


def test_an_embedding_program_gets_an_error_and_every_later_call_too(tmp_path):
    path = tmp_path / "m.gguf"
    shutil.copy(BUNDLED, path)
    code = """
import os, sys, edge
from edge.errors import InvalidFile
from pyx.memory import guard
guard()
engine, other = edge.load(sys.argv[1], threads=2), edge.load(sys.argv[1], threads=1)
other.close()
engine.session().ask("Hello", max_tokens=3).text
os.truncate(sys.argv[1], 4096)
for _ in range(2):
    try:
        print(engine.session().ask("Hello", max_tokens=3).text)
    except InvalidFile as error:
        print("InvalidFile", error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["InvalidFile"] * 2
