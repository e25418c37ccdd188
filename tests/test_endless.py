"""S1: twenty thousand tokens through a window of 512: memory and time per token stay flat, numbers stay finite."""

from __future__ import annotations

import array
import random
import time
from statistics import median

import pytest

from benchmarks import make_model
from edge.formats import open_checkpoint
from edge.weights import build
from pyx.kv import KVCache
from pyx.memory import rss

WINDOW, SINKS, CHUNK = 508, 4, 100


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model of random weights, and what it is built from."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    make_model.make(path, "tiny")
    checkpoint = open_checkpoint(path)
    return checkpoint.config, build(checkpoint)


@pytest.mark.parametrize("positions", ["absolute", "cache"])
def test_twenty_thousand_tokens(tiny, positions):
    config, model = tiny
    plan = {"window": WINDOW, "sinks": SINKS, "positions": positions, "spare": 1}
    cache = KVCache(config.n_layer, config.n_kv_head, config.head_dim, 512, "int8", **plan)
    logits = array.array("f", bytes(4 * config.n_vocab))
    rng = random.Random(1)
    text = [rng.randrange(config.n_vocab) for _ in range(20_000)]
    seconds, memory = [], []
    for start in range(0, len(text), CHUNK):
        single = start % 1000 == 0  # mostly in chunks, to be quick; some one by one
        begun = time.process_time()
        for at in range(start, start + CHUNK, 1 if single else CHUNK):
            model.step(cache, array.array("i", text[at : at + (1 if single else CHUNK)]), logits)
        if not single:
            seconds.append(time.process_time() - begun)
        memory.append(rss()["anon"])
    assert all(abs(x) < 1e6 for x in logits)  # neither NaN nor infinite
    assert cache.n_tokens == 20_000 and cache.evicted == 20_000 + 1 - WINDOW - SINKS
    assert cache.pool.used <= cache.nbytes == cache.pool.nbytes
    assert memory[-1] - memory[20] <= 256 * 1024  # warm after 2000 tokens
    # time per token does not depend on how many there were: medians of the 2nd and the last fifth, with room for noise
    fifth = len(seconds) // 5
    assert median(seconds[-fifth:]) < 1.5 * median(seconds[fifth : 2 * fifth])
