"""Output heads of one model in turns: milliseconds of a step that asks for the likeliest tokens, and of its head.

    python benchmarks/heads.py 2b-4t-q8.gguf --head q8_0,two-stage --threads 1,2 --winners 1,40 --rounds 6

Each head is used 120 times before anything is measured, so that everything it makes is made; how long that took is
printed, too.  A figure is the median of all steps of all rounds [the least].
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge
from benchmarks.step import Batch, filled
from pyx.step.transformer import STAGES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--head", default="q8_0,two-stage")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--winners", default="1,40")
    parser.add_argument("--parallel", default="1", help="conversations in a step")
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--weights", default="map")
    a = parser.parse_args()
    heads = a.head.split(",")
    numbers = [int(n) for n in a.parallel.split(",")]
    for threads in map(int, a.threads.split(",")):
        loaded = {
            head: edge.load(a.model, ctx=a.depth + 64, threads=threads, head=head, weights=a.weights) for head in heads}
        caches = {head: filled(engine, a.depth, max(numbers)) for head, engine in loaded.items()}
        clocks = {
            head: memoryview(engine.model.transformer.keep_times()).cast("B").cast("q")
            for head, engine in loaded.items()}
        for head in heads:
            warm, seconds = Batch(loaded[head], caches[head][:1], 1), []
            for _ in range(15):
                seconds += [warm.step() for _ in range(8)]
                warm.back()
            more = sum(seconds) - len(seconds) * statistics.median(seconds[-16:])
            print(f"{threads} threads, {head}: the first 120 steps take {1e3 * more:.0f} ms more than later ones")
        for winners in map(int, a.winners.split(",")):
            for n in numbers:
                batches = {head: Batch(loaded[head], caches[head][:n], winners) for head in heads}
                steps: dict[str, list[float]] = {head: [] for head in heads}
                inside: dict[str, list[float]] = {head: [] for head in heads}
                for _ in range(a.rounds):
                    for head, batch in batches.items():
                        batch.step()
                        for _ in range(a.steps):
                            clocks[head][STAGES.index("head")] = 0
                            steps[head].append(batch.step())
                            inside[head].append(clocks[head][STAGES.index("head")] / 1e9)
                        batch.back()
                first = statistics.median(steps[heads[0]]), min(steps[heads[0]])
                for head in heads:
                    median, least = statistics.median(steps[head]), min(steps[head])
                    print(
                        f"{threads} threads, {n} at once, {winners} winners, {head:10} {1e3 * median:7.2f} "
                        f"[{1e3 * least:.2f}] ms, of which head {1e3 * statistics.median(inside[head]):.2f} "
                        f"[{1e3 * min(inside[head]):.2f}]; {first[0] / median:.2f}x [{first[1] / least:.2f}x]")
        for engine in loaded.values():
            engine.close()


if __name__ == "__main__":
    main()
