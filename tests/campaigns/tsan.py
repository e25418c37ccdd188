"""Threads under ThreadSanitizer.  By hand, after a change to anything that threads share:

    python -m tests.campaigns.tsan [--minutes N] [--only many]      Linux, gcc with libtsan

It builds an instrumented copy of the compiled layer in a temporary folder, with tsan_gomp.c in place of libgomp, whose
forks, joins and barriers the sanitizer does not see.  Then it runs the barrier of a step, alone (tsan_barrier.c), with
threads that come late; then the sessions of instrumented.py, the random ones for N minutes, 1 by default.

Exit 0 if there is no race, 66 and the sanitizer's report if there is one, 1 if an answer differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.campaigns import instrumented

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1, help="of random sessions")
    parser.add_argument("--sessions", type=int, default=100, help="at once")
    parser.add_argument("--only", choices=["many"], help="the random sessions alone")
    arguments = parser.parse_args()
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
        instrumented.build(copy, "-fsanitize=thread")
        preload = f"{instrumented.library('libtsan.so')}:{copy / 'gomp.so'}"
        python = {"PYTHONPATH": folder, "LD_PRELOAD": preload}
        runs: list[tuple[list[str], dict[str, str]]] = [
            *(([str(copy / "barrier"), threads, "2000"], {}) for threads in ("2", "3", "5")),
            *(([sys.executable, "-c", text], python) for text in (instrumented.SESSIONS, instrumented.MODEL)),
            (instrumented.many(arguments.minutes, arguments.sessions), python),
        ]
        if arguments.only:
            runs = runs[-1:]
        return next(filter(None, (instrumented.run(copy, command, **more) for command, more in runs)), 0)


if __name__ == "__main__":
    sys.exit(main())
