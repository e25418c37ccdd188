"""Random queries, keys and values, and what a KV cache makes of them: shared by the tests of the cache."""

from __future__ import annotations

import array
import io
import itertools
from collections.abc import Sequence

import numpy as np

from pyx.kv import KVCache
from pyx.step import Segment, Transformer, attention
from tests.oracles.attention import attend, kept


class Stream:
    """n tokens of one or more layers.  q [layer][n][n_head][D] carries 1/sqrt(D); k, v [layer][n][n_kv_head][D]."""

    def __init__(self, n: int, n_head: int, n_kv_head: int, head_dim: int, seed: int = 0, n_layer: int = 1) -> None:
        rng = np.random.default_rng(seed)
        shape = (n_layer, n)
        self.q = (rng.normal(size=(*shape, n_head, head_dim)) / np.sqrt(head_dim) * 2).astype(np.float32)
        self.k = rng.normal(size=(*shape, n_kv_head, head_dim)).astype(np.float32)
        self.v = rng.normal(size=(*shape, n_kv_head, head_dim)).astype(np.float32)

    def run(self, cache: KVCache, batches: list[int], n_threads: int = 1) -> np.ndarray:
        """Feed tokens in batches after those that the cache has; returns [layer][n][n_head][D]."""
        outs = []
        for n in batches:
            part = slice(cache.n_tokens, cache.n_tokens + n)
            out = np.empty((len(self.q), *self.q[0, part].shape), np.float32)
            for layer, (q, k, v) in enumerate(zip(self.q, self.k, self.v, strict=True)):
                args = (q[part].ravel(), k[part].ravel(), v[part].ravel())
                last = layer == len(self.q) - 1
                out[layer] = np.array(attention(cache, layer, *args, n_threads, last)).reshape(out[layer].shape)
            outs.append(out)
        return np.concatenate(outs, axis=1)

    def expected(self, window: int, sinks: int, layer: int = 0, stored: type = np.float32) -> np.ndarray:
        """float64 attention over exactly the kept tokens, [n][n_head][D], with keys and values as they are stored."""
        q, k, v = self.q[layer], self.k[layer].astype(stored), self.v[layer].astype(stored)
        return np.array([attend(q[t], k[kept(t, window, sinks)], v[kept(t, window, sinks)]) for t in range(len(q))])


def run(model: Transformer, kv: KVCache, ids: Sequence[int], *steps: int) -> np.ndarray:
    """Logits [token][vocabulary] of ids, in steps of so many tokens, the last one repeated."""
    out, at = np.zeros((len(ids), model.n_vocab), np.float32), 0
    for n in itertools.chain(steps, itertools.repeat(steps[-1] if steps else 64)):
        if at >= len(ids):
            return out
        part = array.array("i", ids[at : at + n])
        model.step([Segment(kv, part, out[at : at + n].reshape(-1), True)])
        at += n
    raise AssertionError


def dumped(cache: KVCache) -> bytes:
    """The bytes that a file of a cache has."""
    return b"".join(map(bytes, cache.dump()))


def restored(copy: KVCache, cache: KVCache) -> KVCache:
    """``copy``, which has become what a file of ``cache`` gives."""
    data = io.BytesIO(dumped(cache))
    copy.restore(*cache.counters, data.readinto)
    assert data.tell() == len(data.getvalue()) == cache.dump_bytes(*cache.counters)
    assert copy.counters == cache.counters and dumped(copy) == data.getvalue()
    return copy
