"""Threads that share pages, under ThreadSanitizer.  By hand, after a change to pool or policy:

    python tests/tsan.py        a minute or two; Linux, gcc with libtsan

It builds an instrumented copy of attention and all below it in a temporary folder and lets four sessions go on from one
beginning, each on a thread of its own, forking as they go.  One thread per session: libgomp's barriers are not
instrumented.  Exit 0 when no race was found, 66 and the sanitizer's report otherwise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: attention and all it needs
MODULES = ("attention", "budget", "cpu", "kv", "memory", "page", "policy", "pool", "spill")

SESSIONS = """
import array, random, threading
from pyx.attention import attention
from pyx.kv import KVCache

rng = random.Random(1)

def step(cache, n):
    q, k, v = (array.array("f", [rng.random() - 0.5 for _ in range(n * width)]) for width in (64, 32, 32))
    attention(cache, 0, q, k, v, 1)

def go(cache):
    for i, n in enumerate([1] * 60 + [40] * 6):
        step(cache, n)
        if i % 20 == 10:
            cache = cache.fork()

for kv_type, policy in (("int8", "recent"), ("f16", "recent"), ("int8", "heavy")):
    first = KVCache(1, 2, 16, 400, kv_type, 100, 4, policy=policy)
    for _ in range(150):
        step(first, 1)
    caches = [first, *(first.fork() for _ in range(3))]
    threads = [threading.Thread(target=go, args=(cache,)) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(kv_type, policy, first.pool.pages, flush=True)
"""


def main() -> int:
    library = subprocess.run(["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "pyx", copy / "pyx", ignore=shutil.ignore_patterns("*.so", "*.pyx"))
        for name in MODULES:
            shutil.copy(ROOT / "pyx" / f"{name}.pyx", copy / "pyx")
        setup = (ROOT / "setup.py").read_text()
        instrumented = setup.replace('"-g0"', '"-g", "-fsanitize=thread"').replace('"-Wl,-s"', '"-fsanitize=thread"')
        assert instrumented.count("-fsanitize=thread") == 2
        (copy / "setup.py").write_text(instrumented)
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=copy, check=True)
        # without address randomisation, which old sanitizers do not survive
        return subprocess.run(
            ["setarch", "-R", sys.executable, "-c", SESSIONS],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": folder, "LD_PRELOAD": library.stdout.strip()},
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
