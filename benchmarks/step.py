"""The cost of a step for several conversations at once, and for one: tokens/s of all, and where the time goes.

    python benchmarks/step.py 2b-4t.gguf --parallel 1,2,4,8 --depth 64,1024 --threads 2 --kv int8 --rounds 3

Every conversation has a cache of its own, of which no page is shared.  One row per number of conversations; the numbers
take turns within a round, and a figure is the median of all steps of all rounds.  --prompt N: meanwhile a prompt of N
tokens is read, --chunk of them in each step.
"""

from __future__ import annotations

import argparse
import array
import datetime
import json
import math
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge
from edge.machine.board import Board
from pyx import machine
from pyx.step import STAGES, Segment

CLOCK = 16  # int64 per thread, see Transformer.keep_times


def filled(engine: edge.Engine, depth: int, n: int) -> list[Any]:
    """n caches that hold depth tokens each, the same ones in pages of their own."""
    transformer = engine.model.transformer
    first = engine.space.new_cache()
    ids = array.array("i", [(7 * i * i + 3 * i) % engine.config.n_vocab for i in range(depth)])
    for at in range(0, depth, transformer.chunk):
        transformer.step([Segment(first, ids[at : at + transformer.chunk])])
    dump = b"".join(first.dump())
    caches = [first]
    while len(caches) < n:
        cache, at = engine.space.new_cache(), 0

        def fill(view: memoryview) -> None:
            nonlocal at
            view[:] = dump[at : at + len(view)]
            at += len(view)

        cache.restore(*first.counters, fill)
        caches.append(cache)
    return caches


class Batch:
    """n conversations that write, greedily."""

    def __init__(self, engine: edge.Engine, caches: list[Any], winners: int) -> None:
        n_vocab = engine.config.n_vocab
        self.transformer = engine.model.transformer
        self.caches = caches
        self.depth = caches[0].n_tokens
        self.ids = [array.array("i", [11 + i]) for i in range(len(caches))]
        self.logits = [array.array("f", bytes(4 * n_vocab)) for _ in caches]
        self.segments = [Segment(*each, winners=winners) for each in zip(caches, self.ids, self.logits, strict=True)]
        self.next = 0

    def step(self, *others: Segment) -> float:
        """Seconds of one step; which token comes next does not matter."""
        for i, one in enumerate(self.ids):
            one[0] = 100 + (31 * self.next + 7 * i) % 1000
        self.next += 1
        begun = time.perf_counter()
        self.transformer.step([*self.segments, *others])
        return time.perf_counter() - begun

    def back(self) -> None:
        for cache in self.caches:
            cache.crop(self.depth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--parallel", default="1,2,4,8")
    parser.add_argument("--depth", default="64")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="steps of each number in a round, the first not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kv", default="int8")
    parser.add_argument("--head", default="auto")
    parser.add_argument("--weights", default="huge")
    parser.add_argument("--stream", help="how weights are read: rows,cache,bytes ahead, such as 4,L1,4096")
    parser.add_argument("--winners", type=int, default=1, help="logits wanted of each; 0: all")
    parser.add_argument("--prompt", type=int, default=0)
    parser.add_argument("--chunk", type=int, default=16)
    parser.add_argument("--json", metavar="FILE", help="also write the figures of each depth and number to FILE")
    parser.add_argument(
        "--stages", action="store_true",
        help="milliseconds of each stage, of the first thread: the least of all steps, so they add up to less than one")
    a = parser.parse_args()
    numbers, depths = ([int(n) for n in of.split(",")] for of in (a.parallel, a.depth))
    n_ctx = max(*depths, a.prompt, 1) + 64
    rows = []
    with edge.load(a.model, ctx=n_ctx, threads=a.threads, kv=a.kv, head=a.head, weights=a.weights) as engine:
        engine.model.wait_for_weights()
        if a.stream:
            rows_at_once, cache, ahead = a.stream.split(",")
            machine.choose((int(rows_at_once), cache, int(ahead)))
        transformer = engine.model.transformer
        clocks: Any = memoryview(transformer.keep_times()).cast("B").cast("q") if a.stages else ()
        for depth in depths:
            caches = filled(engine, depth, max(numbers))
            batches = {n: Batch(engine, caches[:n], a.winners) for n in numbers}
            seconds: dict[int, list[float]] = {n: [] for n in numbers}
            least = {n: [math.inf] * len(STAGES) for n in numbers}  # milliseconds of each stage
            for _ in range(a.rounds):
                for n, batch in batches.items():
                    batch.step()
                    for _ in range(a.steps - 1):
                        before = [*clocks]
                        seconds[n].append(batch.step())
                        if a.stages:
                            spent = [(clocks[i] - before[i]) / 1e6 for i in range(len(STAGES))]
                            least[n] = [min(each) for each in zip(least[n], spent, strict=True)]
                    batch.back()
            one = statistics.median(seconds[numbers[0]])
            print(f"{engine.config.name}, {a.threads} threads, head {transformer.head.kind}, depth {depth}, KV {a.kv}")
            for n in numbers:
                median = statistics.median(seconds[n])
                high, _, low = (round(n / each, 2) for each in statistics.quantiles(seconds[n], n=4))
                rows.append({"depth": depth, "parallel": n, "tokens_per_second": round(n / median, 2),
                             "low": low, "high": high})
                gain = n / min(seconds[n]) * min(seconds[numbers[0]]) / numbers[0]
                line = (
                    f"{n:3} {1e3 * median:8.1f} ms [least {1e3 * min(seconds[n]):.1f}] {n / median:8.1f} tokens/s "
                    f"{n / median * one / numbers[0]:.2f}x [of the least {gain:.2f}x]")
                parts = zip(STAGES, least[n], strict=True)
                print(line, *(f"{stage} {ms:.1f}" for stage, ms in parts if 0.05 <= ms < math.inf))
            if a.prompt:
                mixed(engine, batches, caches, a)
        if a.json:
            about = {"date": datetime.date.today().isoformat(), **Board().summary(), "isa": machine.isa()}
            about |= {"model": engine.config.name, "threads": a.threads, "head": transformer.head.kind, "kv": a.kv}
            words = [Path(word).name if Path(word).exists() else word for word in sys.argv[1:]]
            command = f"python benchmarks/step.py {shlex.join(words)}"
            Path(a.json).write_text(json.dumps({"command": command, **about, "rows": rows}, indent=1) + "\n")


def mixed(engine: edge.Engine, batches: dict[int, Batch], caches: list[Any], a: argparse.Namespace) -> None:
    """The same while a prompt is read in the same steps."""
    ids = array.array("i", [(5 * i * i + i) % engine.config.n_vocab for i in range(a.prompt)])
    for n, batch in batches.items():
        cache, seconds = engine.space.new_cache(), []
        alone = statistics.median(batch.step() for _ in range(a.steps))
        for at in range(0, a.prompt, a.chunk):
            if batch.caches[0].n_tokens >= batch.depth + 32:
                batch.back()
            seconds.append(batch.step(Segment(cache, ids[at : at + a.chunk])))
        print(
            f"{n:3} during a prompt of {a.prompt} in steps of {a.chunk}: {alone / statistics.mean(seconds):.2f} "
            f"of their speed alone; the prompt takes {sum(seconds):.2f} s, {a.prompt / sum(seconds):.1f} tokens/s")
        batch.back()


if __name__ == "__main__":
    main()
