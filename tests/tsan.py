"""Threads under ThreadSanitizer.  By hand, after a change to anything that threads share:

    python tests/tsan.py [--minutes N] [--only many]      Linux, gcc with libtsan

It builds an instrumented copy of the compiled layer in a temporary folder, with tsan_gomp.c in place of libgomp, whose
forks, joins and barriers the sanitizer does not see.  Then it runs

* the barrier of a step, alone (tsan_barrier.c), with threads that come late;
* four sessions that go on from one beginning, each on a thread of its own, forking and leaving the pool as they go;
* the bundled model on teams of three threads: two sessions at a time that fork one prefix, which an earlier engine has
  stored in a file, over both kinds of head and two instruction sets.  Their answers must be those of a session alone;
* the sessions of campaigns/many.py (joins, leaves, cancels, crops, forks and saves at random) for N minutes, 1 by
  default.  Every answer must be the one that the session gives alone.

Exit 0 if there is no race, 66 and the sanitizer's report if there is one, 1 if an answer differs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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

MODEL = """
import os, sys, tempfile, threading
import edge, pyx

assert os.path.dirname(pyx.__file__) == os.path.abspath("pyx"), pyx.__file__  # the instrumented copy
SYSTEM = "You sell tickets, coffee and umbrellas at the harbour, and you answer politely and briefly. " * 3
QUESTIONS = ("What does a coffee cost?", "Where is the lift?")

def ask(session, question):
    return session.ask(question, temperature=0, max_tokens=8, ignore_eos=True).text

def go(engine, question, answers):
    session = engine.session(SYSTEM)
    answers[question] = ask(session, question)

for isa, head, kv in (("scalar", "auto", "int8"), (None, "two-stage", "f16"), (None, "auto", "int4")):
    options = dict(threads=3, parallel=2, ctx=512, head=head, isa=isa, kv=kv)
    with tempfile.TemporaryDirectory() as folder:
        with edge.load(**options) as engine:
            alone = {question: ask(engine.session(SYSTEM), question) for question in QUESTIONS}
            engine.prefixes.share(64 << 20, folder)
            engine.session(SYSTEM).warm()
        with edge.load(**options) as engine:
            engine.prefixes.share(64 << 20, folder)
            for turn in range(2):  # from the file, then from memory
                answers = {}
                threads = [threading.Thread(target=go, args=(engine, question, answers)) for question in QUESTIONS]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert answers == alone, (answers, alone)
            assert engine.prefixes.hits == 4, engine.prefixes.hits
    print(isa, head, kv, "two sessions, one prefix", flush=True)
"""

MANY = """
import os, sys
import pyx

assert os.path.dirname(pyx.__file__) == os.path.abspath("pyx"), pyx.__file__  # the instrumented copy
root, minutes, sessions = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
sys.path.append(os.path.join(root, "tests", "campaigns"))
import many

counts, wrong = many.campaign(sessions=sessions, seconds=60 * minutes, threads=2, seed=1)
for name, n in sorted(counts.items()):
    print(f"{n:>9} {name}", flush=True)
for line in wrong:
    print(line, file=sys.stderr)
sys.exit(1 if wrong else 0)
"""


def build(copy: Path) -> None:
    """Build the compiled layer, instrumented, in this folder."""
    shutil.copytree(ROOT / "pyx", copy / "pyx", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    if (ROOT / "build" / "cython").is_dir():  # C that is newer than its .pyx is used again
        shutil.copytree(ROOT / "build" / "cython", copy / "build" / "cython")
    setup = (ROOT / "setup.py").read_text()
    for plain, instrumented in (
        ('"-g0"', '"-g1", "-fsanitize=thread"'),
        ('"-O3"', '"-O1", "-Wno-maybe-uninitialized"'),  # less optimised, the compiler sees less
        ('"-Wl,-s"', '"-fsanitize=thread"'),
    ):
        assert setup.count(plain) == 1, plain
        setup = setup.replace(plain, instrumented)
    (copy / "setup.py").write_text(setup)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=copy, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1, help="of random sessions")
    parser.add_argument("--sessions", type=int, default=100, help="at once")
    parser.add_argument("--only", choices=["many"], help="the random sessions alone")
    arguments = parser.parse_args()
    many = [sys.executable, "-c", MANY, str(ROOT), str(arguments.minutes), str(arguments.sessions)]
    library = subprocess.run(["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        gcc = ["gcc", "-g", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
        for source, *rest in (
            ("tsan_gomp.c", "-shared", "-fPIC", "-o", "gomp.so"),
            ("tsan_barrier.c", "-fsanitize=thread", "-I", str(ROOT / "pyx" / "kernels"), "-o", "barrier"),
        ):
            subprocess.run([*gcc, str(ROOT / "tests" / source), *rest], cwd=copy, check=True)
        build(copy)
        preload = f"{library.stdout.strip()}:{copy / 'gomp.so'}"
        python = {"PYTHONPATH": folder, "LD_PRELOAD": preload}
        runs: list[tuple[list[str], dict[str, str]]] = [
            *(([str(copy / "barrier"), threads, "2000"], {}) for threads in ("2", "3", "5")),
            *(([sys.executable, "-c", text], python) for text in (SESSIONS, MODEL)),
            (many, python),
        ]
        if arguments.only:
            runs = runs[-1:]
        for command, environment in runs:
            # without address randomisation, which old sanitizers do not survive
            done = subprocess.run(["setarch", "-R", *command], cwd=copy, env={**os.environ, **environment})
            if done.returncode:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
