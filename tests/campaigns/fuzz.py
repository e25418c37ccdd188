"""Property tests with examples that no run has tried: `make fuzz FUZZ_SECONDS=600`.

    python -m tests.campaigns.fuzz SECONDS [SEED]

Rounds over every test file that uses Hypothesis, each with a seed of its own that is printed; --hypothesis-seed=SEED
with HYPOTHESIS_PROFILE=fuzz repeats a round.  Ends after the round in which a test fails (exit 1) or the time is over.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def main() -> int:
    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    files = [str(path) for path in sorted(TESTS.glob("*/test_*.py")) if "import given" in path.read_text()]
    end, rounds = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        name, seeded = files[rounds % len(files)], f"--hypothesis-seed={seed + rounds}"
        print(name, seeded, flush=True)
        try:
            code = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-x", seeded, name], cwd=TESTS.parent, timeout=left,
                env={**os.environ, "HYPOTHESIS_PROFILE": "fuzz"}, stdout=subprocess.PIPE, text=True,
            )
        except subprocess.TimeoutExpired:
            break
        if code.returncode not in (0, 5):
            print(code.stdout)
            return 1
        rounds += 1
    print(f"{rounds} rounds over {len(files)} files, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
