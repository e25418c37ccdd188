"""What tsan.py and asan.py share: an instrumented copy of the compiled layer, and what is run on it.

* SESSIONS: four sessions that go on from one beginning, each on a thread of its own, forking and leaving the pool as
  they go;
* MODEL: the bundled model on teams of three threads: two sessions at a time that fork one prefix, which an earlier
  engine has stored in a file, over both kinds of head and two instruction sets.  Their answers must be those of a
  session alone;
* MANY: the sessions of campaigns/many.py (joins, leaves, cancels, crops, forks and saves at random) for some minutes:
  of the bundled model, of models with scales per group whose weights are copied into panels meanwhile, with prompts in
  steps as wide as those of batches, over a Q8_0 head in two stages, and of models with gated delta layers in a rotated
  basis and with experts.  Every answer must be the one that the session gives alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SESSIONS = """
import array, random, threading
from pyx.layers.attention import attention
from pyx.kv.cache import KVCache

rng = random.Random(1)

def step(cache, n):
    q, k, v = (array.array("f", [rng.random() - 0.5 for _ in range(n * width)]) for width in (64, 32, 32))
    attention(cache, 0, q, k, v, 1)

def go(cache):
    for i, n in enumerate([1] * 60 + [40] * 6):
        step(cache, n)
        if i % 20 == 10:
            cache = cache.fork()

for kv_type, policy in (("int8", "recent"), ("f16", "recent"), ("int8", "quarter")):
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
            engine.store.share(64 << 20, folder)
            engine.session(SYSTEM).warm()
        with edge.load(**options) as engine:
            engine.store.share(64 << 20, folder)
            for turn in range(2):  # from the file, then from memory
                answers = {}
                threads = [threading.Thread(target=go, args=(engine, question, answers)) for question in QUESTIONS]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert answers == alone, (answers, alone)
            assert engine.store.hits == 4, engine.store.hits
    print(isa, head, kv, "two sessions, one prefix", flush=True)
"""

MANY = """
import os, sys, time
from collections import Counter
from pathlib import Path
import pyx

assert os.path.dirname(pyx.__file__) == os.path.abspath("pyx"), pyx.__file__  # the instrumented copy
root, minutes, sessions = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, root)  # behind the copy: this code runs in a folder of its own
from tests.campaigns import many
from benchmarks import make_model
from edge.machine import placement

placement.LEAST, placement.PAUSE = 1, 0.05  # small models are copied, too, and answer meanwhile
grouped, paired, eight = Path("grouped.gguf"), Path("paired.gguf"), Path("eight.gguf")
make_model.make(grouped, "tiny-qwen3", "PQ2_0", "PQ2_0")
make_model.make(paired, "tiny-qwen3", "Q2_0", "Q2_0")
make_model.make(eight, "tiny", "I2_S", "Q8_0")
hybrid, experts = Path("hybrid.gguf"), Path("experts.gguf")
make_model.make(hybrid, "tiny-bonsai2", "PQ2_0", "PQ2_0")
make_model.make(experts, "tiny-maple", "PQ2_0", "PQ2_0")

# name, share of the time, model, sessions, options.  Random weights write texts that the tokenizer would cut into
# other tokens, so none of their sessions may lose its cache to another one, as those of the bundled model do.
RUNS = (
    ("demo", 0.2, None, sessions, {}),
    ("gated delta layers, a rotated basis", 0.15, hybrid, sessions // 8, {}),
    ("experts, sliding windows", 0.15, experts, sessions // 8, {}),
    ("scales per group, copied meanwhile", 0.15, grouped, sessions // 4, {"weights": "auto"}),
    ("scales per group, prompts in wide steps", 0.1, grouped, sessions // 4, {"weights": "auto", "patient": True}),
    ("bundled, prompts in wide steps", 0.1, None, sessions // 2, {"patient": True}),
    ("Q8_0 head in two stages", 0.05, eight, sessions // 2, {"head": "two-stage"}),
    ("blocks of Q2_0, copied meanwhile, scalar", 0.1, paired, sessions // 12, {"weights": "auto", "isa": "scalar"}),
)
failed = False
for name, share, model, n, options in RUNS:
    until, turn, counts = time.monotonic() + 60 * minutes * share, 0, Counter()
    while not failed and (not turn or time.monotonic() < until):
        # a model that is copied is loaded again for every round; another has one engine for all the time
        seconds = 0 if options.get("weights") else 60 * minutes * share
        turn += 1
        found, wrong = many.campaign(
            None if model is None else str(model), n, seconds, seed=turn, threads=2, draft="off",
            **({} if model is None else {"ctx": 1800, "parallel": n}), **options)
        largest = {key: max(counts[key], found[key]) for key in found if " of the " in key}
        counts.update(found)
        counts.update({"loads": 1})
        for key, most in largest.items():
            counts[key] = most
        for line in wrong:
            print(line, file=sys.stderr)
        failed = bool(wrong)
    print(f"{name}:", ", ".join(f"{n} {key}" for key, n in sorted(counts.items())), flush=True)
sys.exit(1 if failed else 0)
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


def run(copy: Path, command: Sequence[str], **environment: str) -> int:
    """Run a command in the folder of :func:`build` and return its exit code."""
    # without address randomisation, which old sanitizers do not survive
    done = subprocess.run(["setarch", "-R", *command], cwd=copy, env={**os.environ, **environment})
    return done.returncode


def many(minutes: float, sessions: int) -> list[str]:
    """The command of MANY; ``sessions``: at once."""
    return [sys.executable, "-c", MANY, str(ROOT), str(minutes), str(sessions)]
