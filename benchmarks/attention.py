"""Decode attention alone: one token against a full KV cache, every type in turn.

    python benchmarks/attention.py [--shape 2b-4t] [--kv f16,int8,...] [--depth 4096] [--threads N] [--json]

All layers of a model of that shape, one after the other, each over pages of its own, so that nothing but memory holds
them; types take turns, round by round.  Printed are medians in ms a token over all layers, GB/s of pages read, and the
speed relative to the first type, with the least and the most of the rounds.  What calling from Python costs is in every
figure, and measured apart ("16 tokens").  Page contents are random: real sealed pages of random keys and values.
"""

from __future__ import annotations

import argparse
import array
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from edge.config import ModelConfig
from edge.registry import shapes
from pyx import cpu
from pyx.attention import Workspace, attention
from pyx.kv import KVCache
from pyx.page import page_types

TYPES = "f16,int8,int8:int4,int4,int4c,fp8"
PAGE, SPARE = 32, 16  # tokens behind the depth, so that the open page stays open
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
    """One type."""

    kv: str
    ms: float  # a token, all layers, median
    least: float
    most: float
    read: int  # bytes of sealed pages
    gbs: float
    ratio: float  # of the first type's median to this one's


def measure(
    config: ModelConfig, types: Sequence[str], depth: int, threads: int, rounds: int
) -> tuple[list[Row], float]:
    """The rows, and ms a token of the same calls over 16 tokens."""
    caches = {kv_type: filled(config, kv_type, depth) for kv_type in dict.fromkeys(map(page_types, types))}
    little = KVCache(*config.kv_shape, PAGE, "f16")
    random, workspace = Random(2), Workspace()
    q = array.array("f", (x / config.head_dim**0.5 for x in floats(random, config.n_head * config.head_dim)))
    k, v = (floats(random, config.n_kv_head * config.head_dim) for _ in range(2))

    def token(cache: KVCache) -> float:
        begun = time.perf_counter()
        for layer in range(config.n_layer):
            attention(cache, layer, q, k, v, threads, False, None, workspace)
        return (time.perf_counter() - begun) * 1e3

    samples: dict[str, list[float]] = {kv_type: [] for kv_type in caches}
    calls = []
    for turn in range(rounds + 1):
        for kv_type, cache in caches.items():
            ms = token(cache)
            if turn:  # the first touches everything once
                samples[kv_type].append(ms)
        calls.append(token(little))
    rows = []
    for kv_type, found in samples.items():
        one, two = (
            KVCache.bytes_for(*config.kv_shape, n, kv_type) for n in (depth, 2 * depth)
        )
        ms = median(found)
        ratio = median(samples[next(iter(samples))]) / ms
        rows.append(Row(kv_type, ms, min(found), max(found), two - one, (two - one) / ms / 1e6, ratio))
    return rows, median(calls)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="2b-4t", help="published model whose heads and layers are taken")
    parser.add_argument("--kv", default=TYPES, metavar="TYPE,TYPE", help=f"types, the baseline first ({TYPES})")
    parser.add_argument("--depth", type=int, default=4096, help="tokens attended")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    config = shapes.find(options.shape)
    if config is None:
        parser.error(f"no published model {options.shape}: {', '.join(shapes.SHAPES)}")
    rows, calls = measure(config, options.kv.split(","), options.depth, options.threads, options.rounds)
    facts: dict[str, Any] = {
        "shape": options.shape, "depth": options.depth, "threads": options.threads, "isa": cpu.isa(),
        "rounds": options.rounds, "calls_ms": calls, "rows": [asdict(row) for row in rows],
    }  # fmt: skip
    if options.json:
        print(json.dumps(facts, indent=1))
        return
    print(f"{config.name}, {options.depth} tokens, {options.threads} threads, {cpu.isa()}, {options.rounds} rounds")
    print("| KV | ms/token [least-most] | MB read | GB/s | speed |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.kv} | {row.ms:.2f} [{row.least:.2f}-{row.most:.2f}] | {row.read / 1e6:.1f} | {row.gbs:.1f} "
              f"| {row.ratio:.2f}x |")  # fmt: skip
    print(f"| 16 tokens | {calls:.2f} | | | |")


if __name__ == "__main__":
    main()
