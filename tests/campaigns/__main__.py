"""Campaigns: hostile and random input for as long as one likes, each run repeated by its seed.

    python -m tests.campaigns files|faults|routes|many|kinds|properties|asan|tsan [--minutes 3] [--seed 1] [--only N]

A campaign prints what it did, and the number of whatever went wrong (exit code 1), which ``--only NUMBER`` repeats.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.campaigns import faults, files, many, routes, sanitizers


def properties(seconds: float, seed: int, only: int | None = None) -> tuple[Counter[str], list[str]]:
    """Each round is one file that uses Hypothesis, with another seed; ends with the round that fails."""
    tests = sorted(str(path) for path in Path("tests").glob("*/test_*.py") if "import given" in path.read_text())
    until, counts = time.monotonic() + seconds, Counter[str]()
    for number in itertools.count(seed if only is None else only):
        if counts and (time.monotonic() > until or only is not None):
            break
        command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={number}", tests[number % len(tests)]]
        if subprocess.run(command, env={**os.environ, "HYPOTHESIS_PROFILE": "fuzz"}).returncode:
            return counts, [f"number {number}"]
        counts["rounds"] += 1
    return counts, []


CAMPAIGNS = {"files": files.campaign, "faults": faults.campaign, "routes": routes.campaign, "many": many.campaign,
             "kinds": many.of_every_kind, "properties": properties, "asan": sanitizers.asan, "tsan": sanitizers.tsan}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", choices=CAMPAIGNS)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    counts, wrong = CAMPAIGNS[given.campaign](60 * given.minutes, given.seed, given.only)
    print(*(f"{n:>9} {name}" for name, n in sorted(counts.items())), sep="\n")
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
