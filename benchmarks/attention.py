"""Decode attention alone: what a full KV cache adds to a step, every type in turn.

    python benchmarks/attention.py [--shape 2b-4t] [--kv f16,int8,...] [--depth 2048,8192] [--threads 1,2]
                                   [--isa avx2,avx512vnni] [--json]

All layers with attention of a model of that shape, one after the other, each over pages of its own, so that nothing but
memory holds them; types and numbers of threads take turns, round by round.  Printed are ms a token over all layers,
less what the same calls take over 16 tokens: the median of the rounds, and the sum of each layer's least, which other
work on the machine disturbs little, because a layer takes less than a time slice.  From the least: GB/s of pages read,
the share of the first type's milliseconds, and how many times as long one thread (the first number) takes.  A target
(--isa) is chosen once in a process, so each has a process of its own.  Page contents are random: real sealed pages of
random keys and values.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from edge.config import ModelConfig
from edge.registry import shapes
from pyx import machine
from pyx.kv import KVCache, page_types
from pyx.step import Workspace, attention

TYPES = "f16,fp8,int8,int4,int4c"
PAGE, SPARE = 32, 16  # tokens after the depth, so that the open page stays open
TEMPLATES = 7


def floats(random: Random, n: int) -> array.array[float]:
    return array.array("f", (random.gauss(0, 1) for _ in range(n)))


def pages(kv_type: str, head_dim: int) -> tuple[list[bytes], bytes]:
    """A few sealed pages, and one that is open."""
    random = Random(1)
    cache = KVCache(1, 1, head_dim, (TEMPLATES + 1) * PAGE, kv_type)
    q, k, v = (floats(random, (TEMPLATES * PAGE + SPARE) * head_dim) for _ in range(3))
    attention(cache, 0, q, k, v)
    sealed = [cache.page(0, 0, number)[0] for number in range(TEMPLATES)]
    return sealed, cache.page(0, 0, TEMPLATES)[0]


def filled(config: ModelConfig, kv_type: str, depth: int) -> KVCache:
    """A cache that holds depth + SPARE tokens, in memory of its own."""
    cache = KVCache(*config.kv_shape, depth + PAGE, kv_type)
    sealed, unsealed = pages(kv_type, config.head_dim)

    def fill(view: memoryview) -> None:
        size = len(sealed[0])
        if len(view) % size or len(view) == len(unsealed) != size:
            view[:] = unsealed
            return
        for i, at in enumerate(range(0, len(view), size)):
            view[at : at + size] = sealed[i % TEMPLATES]

    cache.restore(depth + SPARE, depth + SPARE, fill)
    return cache


@dataclass(frozen=True)
class Row:
    """One type with one number of threads."""

    kv: str
    threads: int
    ms: float  # a token, all layers, median, less that of 16 tokens
    least: float  # the sum of each layer's least, less that of 16 tokens
    gbs: float
    share: float  # of the first type's least with as many threads
    gain: float  # the least of the first number of threads over this one


def measure(
    config: ModelConfig, types: Sequence[str], depth: int, threads: Sequence[int], rounds: int
) -> tuple[list[Row], dict[int, float]]:
    """The rows, and for each number of threads the least ms a token of the same calls over 16 tokens."""
    caches = {kv_type: filled(config, kv_type, depth) for kv_type in dict.fromkeys(map(page_types, types))}
    caches[""] = KVCache(*config.kv_shape, PAGE, "f16")
    random, workspace = Random(2), Workspace()
    q = array.array("f", (x / config.head_dim**0.5 for x in floats(random, config.n_head * config.head_dim)))
    k, v = (floats(random, config.n_kv_head * config.head_dim) for _ in range(2))

    def token(cache: KVCache, n: int) -> list[float]:
        """Milliseconds of each layer."""
        times = [time.perf_counter()]
        for layer in range(config.kv_shape[0]):
            attention(cache, layer, q, k, v, n, False, workspace)
            times.append(time.perf_counter())
        return [(end - begin) * 1e3 for begin, end in pairwise(times)]

    samples: dict[tuple[str, int], list[list[float]]] = {(kv_type, n): [] for kv_type in caches for n in threads}
    for turn in range(rounds + 1):
        for (kv_type, n), found in samples.items():
            layers = token(caches[kv_type], n)
            if turn:  # the first touches everything once
                found.append(layers)
    medians = {key: median(map(sum, found)) for key, found in samples.items()}
    leasts = {key: sum(map(min, zip(*found, strict=True))) for key, found in samples.items()}
    calls = {n: leasts["", n] for n in threads}
    base, rows = next(iter(caches)), []
    for kv_type, n in samples:
        if kv_type:
            one, two = (KVCache.bytes_for(*config.kv_shape, tokens, kv_type) for tokens in (depth, 2 * depth))
            least = leasts[kv_type, n] - calls[n]
            rows.append(Row(kv_type, n, medians[kv_type, n] - medians["", n], least, (two - one) / least / 1e6,
                            least / (leasts[base, n] - calls[n]),
                            (leasts[kv_type, threads[0]] - calls[threads[0]]) / least))
    return rows, calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="2b-4t", help="published model whose heads and layers are taken")
    parser.add_argument("--kv", default=TYPES, metavar="TYPE,TYPE", help=f"types, the baseline first ({TYPES})")
    parser.add_argument("--depth", default="2048,8192", help="tokens attended (2048,8192)")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (1,2)")
    parser.add_argument("--isa", help="targets, such as avx2,avx512vnni; without it the best one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    config = shapes.find(options.shape)
    if config is None:
        parser.error(f"no published model {options.shape}: {', '.join(shapes.SHAPES)}")
    if options.isa:
        rest = ["--shape", options.shape, "--kv", options.kv, "--depth", options.depth, "--threads", options.threads,
                "--rounds", str(options.rounds), *(["--json"] if options.json else [])]
        for isa in options.isa.split(","):
            command = [sys.executable, __file__, *rest]
            subprocess.run(command, env=os.environ | {"BITNET_EDGE_ISA": isa}, check=True)
        return
    threads = [int(n) for n in options.threads.split(",")]
    for depth in map(int, options.depth.split(",")):
        rows, calls = measure(config, options.kv.split(","), depth, threads, options.rounds)
        if options.json:
            facts: dict[str, Any] = {
                "shape": options.shape, "depth": depth, "isa": machine.isa(), "rounds": options.rounds,
                "calls_ms": calls, "rows": [asdict(row) for row in rows],
            }
            print(json.dumps(facts), flush=True)
            continue
        took = ", ".join(f"{ms:.2f} ms with {n} threads" for n, ms in calls.items())
        print(f"\n{config.name}, {depth} tokens, {machine.isa()}, {options.rounds} rounds; 16 tokens take {took}")
        print(f"| KV | threads | ms added | least | GB/s | of {rows[0].kv} | gain |\n|---|---|---|---|---|---|---|")
        for row in rows:
            print(f"| {row.kv} | {row.threads} | {row.ms:.2f} | {row.least:.2f} | {row.gbs:.1f} | {row.share:.2f} "
                  f"| {row.gain:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
