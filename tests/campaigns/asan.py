"""The compiled layer under AddressSanitizer and UBSan.  By hand, after a change under pyx/:

    python -m tests.campaigns.asan [--minutes N]      Linux, gcc with libasan and libubsan

It builds an instrumented copy in a temporary folder and runs the sessions of instrumented.py, the random ones for N
minutes, 1 by default; then it reads FILES mutated files per minute (fuzz_files.py).

Exit 0 if nothing is found; otherwise the sanitizer's report, or what differs, and another exit code.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.campaigns import instrumented

ROOT = Path(__file__).resolve().parents[2]
#: mutated files for each minute of random sessions: they take about as long
FILES = 2000
READERS = """
import os, runpy, sys
import pyx  # before fuzz_files.py names the folder of another one

assert os.path.dirname(pyx.__file__) == os.path.abspath("pyx"), pyx.__file__  # the instrumented copy
sys.argv = sys.argv[1:]
sys.path.append(os.path.join(os.path.dirname(sys.argv[0]), "..", ".."))  # behind the copy
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1, help="of random sessions, and about as long of files")
    parser.add_argument("--sessions", type=int, default=100, help="at once")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the mutated files")
    arguments = parser.parse_args()
    count, seed = max(100, int(FILES * arguments.minutes)), arguments.seed
    record = ROOT / "build" / "fuzz-asan.json"  # the file that was being read when a sanitizer ends the program
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        instrumented.build(copy, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
        python = {
            "PYTHONPATH": folder,
            "PYTHONMALLOC": "malloc",  # else small buffers lie inside larger blocks, and the sanitizer cannot see ends
            "ASAN_OPTIONS": "detect_leaks=0",  # an interpreter keeps what it has until its end
            # libraries in C++ throw exceptions, which the sanitizer looks for when the program starts
            "LD_PRELOAD": f"{instrumented.library('libasan.so')}:{instrumented.library('libstdc++.so.6')}",
        }
        commands = (
            *([sys.executable, "-c", text] for text in (instrumented.SESSIONS, instrumented.MODEL)),
            instrumented.many(arguments.minutes, arguments.sessions),
            [sys.executable, "-c", READERS, str(ROOT / "tests" / "campaigns" / "fuzz_files.py"), str(count), str(seed),
             "--record", str(record)],
        )
        return next(filter(None, (instrumented.run(copy, command, **python) for command in commands)), 0)


if __name__ == "__main__":
    sys.exit(main())
