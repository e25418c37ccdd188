"""What ``--weights`` gives and takes: tokens per second while the weights move and when they lie, and resident bytes.

    python benchmarks/placement.py MODEL [--threads 1,2] [--weights map,auto] [--rounds 3]

Each round runs a fresh process for every number of threads and every place: a greedy answer of 70 tokens behind 32,
then it waits until the weights lie where they will stay, then one of 40 tokens.  Rates are of the median token.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import edge
from edge.tools.bench import peak

COLUMNS = ("moving", "settled", "peak", "rss", "plan")


def rate(engine: edge.Engine, first: int, n: int) -> float:
    """Tokens per second of n greedy tokens behind 32 that begin with token ``first``."""
    pauses: list[float] = []
    last = None
    with engine.session() as session:
        prompt = range(first, first + 32)
        for piece in session.complete(prompt, max_tokens=n, sampling=edge.Sampling(temperature=0.0), ignore_eos=True):
            now = time.perf_counter()
            if last is not None and piece.ids:
                pauses += [(now - last) / len(piece.ids)] * len(piece.ids)
            last = now
    return 1 / median(pauses[2:])  # the second token may wait for the head


def one(model: str, weights: str, threads: int) -> dict[str, float]:
    """In a process of its own: tokens per second, bytes."""
    with edge.load(model, threads=threads, weights=weights, draft="off", ctx=512) as engine:
        moving = rate(engine, 1000, 70)
        engine.wait_for_weights()
        rss = engine.rss()["rss"]
        settled = rate(engine, 2000, 40)
        return dict(zip(COLUMNS, (moving, settled, peak(), rss, engine.plan.total_bytes), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--weights", default="map,auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cases = list(product(map(int, arguments.threads.split(",")), arguments.weights.split(",")))
    if arguments.one:
        print(json.dumps(one(arguments.model, cases[0][1], cases[0][0])))
        return
    found: dict[tuple[int, str], list[dict[str, float]]] = {case: [] for case in cases}
    for _, (threads, weights) in product(range(arguments.rounds), cases):
        command = [sys.executable, __file__, arguments.model, "--one", "--threads", str(threads), "--weights", weights]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[threads, weights].append(json.loads(done.stdout))
    print("| threads | weights | tokens/s, moving | tokens/s, settled | peak RSS, MB | RSS, MB | plan, MB |")
    print("|---|---|---|---|---|---|---|")
    for (threads, weights), rows in found.items():
        rates = [[row[name] for row in rows] for name in COLUMNS[:2]]
        cells = [f"{median(each):.1f} [{min(each):.1f}-{max(each):.1f}]" for each in rates]
        cells += [f"{median(row[name] for row in rows) / 1e6:.0f}" for name in COLUMNS[2:]]
        print(f"| {threads} | {weights} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
