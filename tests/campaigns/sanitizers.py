"""The compiled layer under sanitizers: an instrumented copy of it, and what is run on that.

* the sessions of many.py, of models of every kind: every answer must be the one that the session gives alone;
* with AddressSanitizer and UBSan, mutated files (files.py);
* with ThreadSanitizer the barrier of a step, alone (tsan_barrier.c).  tsan_gomp.c is there in place of libgomp, whose
  forks, joins and barriers the sanitizer does not see.

The sanitizer's report is what is printed.  Linux, gcc with libasan, libubsan and libtsan.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CAMPAIGN = """
import os, runpy
import pyx

assert os.path.dirname(pyx.__file__) == os.path.abspath("pyx"), pyx.__file__  # the instrumented copy
runpy.run_module("tests.campaigns", run_name="__main__")
"""


def build(copy: Path, *sanitizers: str) -> None:
    """Build the compiled layer in this folder, with these flags for the compiler and the linker."""
    shutil.copytree(ROOT / "pyx", copy / "pyx", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    if (ROOT / "build" / "cython").is_dir():  # C that is newer than its .pyx is used again
        shutil.copytree(ROOT / "build" / "cython", copy / "build" / "cython")
    setup = (ROOT / "setup.py").read_text()
    flags = ", ".join(f'"{flag}"' for flag in sanitizers)
    for plain, instrumented in (
        ('"-g0"', f'"-g1", {flags}'),
        ('"-O3"', '"-O1", "-Wno-maybe-uninitialized"'),  # less optimised, the compiler sees less
        ('"-Wl,-s"', flags),
    ):
        assert setup.count(plain) == 1, plain
        setup = setup.replace(plain, instrumented)
    (copy / "setup.py").write_text(setup)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=copy, check=True)


def library(name: str) -> str:
    """The path of one of the compiler's libraries, for LD_PRELOAD."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def runs(copy: Path, commands: Iterable[Sequence[str | Path]], **environment: str) -> tuple[Counter[str], list[str]]:
    """Run commands in the folder of :func:`build`: (counts, what was wrong)."""
    counts: Counter[str] = Counter()
    for command in commands:
        # without address randomisation, which old sanitizers do not survive; the copy comes before this tree
        done = subprocess.run(["setarch", "-R", *command], cwd=copy,
                              env={**os.environ, "PYTHONPATH": f"{copy}:{ROOT}", **environment})
        counts["commands"] += 1
        if done.returncode:
            return counts, [f"exit code {done.returncode}"]
    return counts, []


def campaign(name: str, seconds: float, seed: int, only: int | None) -> list[str]:
    """The command of a campaign."""
    chosen = [] if only is None else ["--only", str(only)]
    return [sys.executable, "-c", CAMPAIGN, name, "--minutes", str(seconds / 60), "--seed", str(seed), *chosen]


def asan(seconds: float, seed: int, only: int | None = None) -> tuple[Counter[str], list[str]]:
    """Half of the time sessions, half of it files."""
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
        return runs(
            Path(folder), [campaign("kinds", seconds / 2, seed, only), campaign("files", seconds / 2, seed, None)],
            PYTHONMALLOC="malloc",  # else small buffers lie inside larger blocks, and the sanitizer cannot see ends
            ASAN_OPTIONS="detect_leaks=0",  # an interpreter keeps what it has until its end
            # libraries in C++ throw exceptions, which the sanitizer looks for when the program starts
            LD_PRELOAD=f"{library('libasan.so')}:{library('libstdc++.so.6')}")


def tsan(seconds: float, seed: int, only: int | None = None) -> tuple[Counter[str], list[str]]:
    """The barrier with threads that come late, then sessions."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        gcc = ["gcc", "-g", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
        for source, *rest in (
            # so its thread-local data need no malloc(): glibc frees such blocks in another thread after theirs has
            # ended, which the sanitizer does not see and reports as a race
            ("tsan_gomp.c", "-shared", "-fPIC", "-ftls-model=initial-exec", "-o", "gomp.so"),
            ("tsan_barrier.c", "-fsanitize=thread", "-I", str(ROOT / "pyx" / "kernels"), "-o", "barrier"),
        ):
            subprocess.run([*gcc, str(ROOT / "tests" / "campaigns" / source), *rest], cwd=copy, check=True)
        build(copy, "-fsanitize=thread")
        counts, wrong = runs(copy, [[copy / "barrier", threads, "2000"] for threads in ("2", "3", "5")])
        more, others = runs(copy, [campaign("kinds", seconds, seed, only)],
                            LD_PRELOAD=f"{library('libtsan.so')}:{copy / 'gomp.so'}")
        return counts + more, wrong + others
