"""The KV cache: who holds which page, copy on write, policies against simulators, memory as planned."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pyx.kv import KVCache, PagePool
from tests.at_once import at_once
from tests.oracles.attention import PAGE, attend
from tests.streams import Stream

TYPES = ("f32", "f16", "int8")


# ---- forks and the pool ----------------------------------------------------------------------------------------------


def test_a_hundred_sessions_hold_one_beginning():
    """X1: a common beginning of ten pages and one page of each."""
    n, common = 400, 320
    s = Stream(n, 2, 1, 32)
    pool = PagePool()
    first = KVCache(1, 1, 32, n, "int8", pool=pool)
    s.run(first, [common])
    one = pool.used
    sessions = [first.fork() for _ in range(100)]
    for session in sessions:
        s.run(session, [5])
    open_page = 2 * PAGE * 32 * 2
    assert pool.used == one + 100 * open_page
    del sessions, session
    assert pool.used == one


def test_a_pool_is_for_one_plan_and_keeps_its_limit():
    s = Stream(100, 2, 1, 32)
    pool = PagePool(limit=3 * 2 * PAGE * 32 * 2)  # three pages of half floats
    first = KVCache(1, 1, 32, 100, "f16", pool=pool)
    with pytest.raises(ValueError, match="one plan"):
        KVCache(1, 1, 32, 200, "f16", pool=pool)
    s.run(first, [60])
    second = first.fork()
    s.run(second, [4])  # copies the open page
    with pytest.raises(MemoryError, match="allowed"):
        s.run(second, [1])
    assert second.n_tokens == 64
    s.run(first, [4])
    del first
    alone = s.run(KVCache(1, 1, 32, 100, "f16"), [100])
    assert s.run(second, [1]).tobytes() == alone[:, 64:65].tobytes()


def test_free_pages_are_given_back_before_the_limit_is_exceeded():
    """Two caches in turn: one drops what it has, the other takes pages of its own slab.  The pages in use were within
    the limit, but not the memory that they and the free ones took.
    """
    s = Stream(512, 2, 1, 128)
    need = KVCache.bytes_for(1, 1, 128, 512, "f16")
    pool = PagePool(limit=need + need // 4)
    caches = [KVCache(1, 1, 128, 512, "f16", pool=pool) for _ in range(2)]
    alone = s.run(KVCache(1, 1, 128, 512, "f16"), [512])
    for turn in range(4):
        cache, other = caches[turn % 2], caches[1 - turn % 2]
        assert s.run(cache, [64] * 8).tobytes() == alone.tobytes()
        assert pool.used <= pool.touched <= pool.limit
        cache.crop(100)
        s.run(other, [32])
        assert pool.touched <= pool.limit
        for each in caches:
            each.reset()
        assert pool.used == 0


def test_ring_with_limit_goes_on_for_ever():
    """Pages that are dropped are counted as free before new ones are taken."""
    s = Stream(600, 2, 1, 32)
    for kv_type in TYPES:
        need = KVCache.bytes_for(1, 1, 32, 100, kv_type, 64, 4)
        cache = KVCache(1, 1, 32, 100, kv_type, 64, 4, pool=PagePool(limit=need))
        s.run(cache, [1] * 300 + [30] * 10)
        assert cache.pool.used <= need


def test_two_threads_two_sessions_one_beginning():
    """C1: interleaved as the threads like, each as if it were alone."""
    n = 330
    streams = [Stream(n, 4, 2, 32, seed=seed) for seed in (1, 2)]
    for s in streams[1:]:
        for name in "qkv":
            getattr(s, name)[:, :150] = getattr(streams[0], name)[:, :150]
    alone = [s.run(KVCache(1, 2, 32, n, "int8", 100, 4), [n]) for s in streams]
    for _ in range(4):
        first = KVCache(1, 2, 32, n, "int8", 100, 4)
        streams[0].run(first, [150])
        caches = [first, first.fork()]
        found = at_once(lambda each: each[0].run(each[1], [1] * (n - 150), n_threads=2).tobytes(),
                        zip(streams, caches, strict=True))
        assert found == [out[:, 150:].tobytes() for out in alone]


@pytest.mark.parametrize("cut", [150, 160])
@pytest.mark.parametrize("kv_type", TYPES)
def test_a_page_that_another_thread_has_for_a_moment_is_waited_for(kv_type, cut):
    """A cache that did not wait would write nothing and answer from old tokens."""
    n = 200
    s = Stream(n, 4, 2, 32)
    alone = s.run(KVCache(1, 2, 32, n, kv_type, 100, 4), [n])[:, cut:]
    first = KVCache(1, 2, 32, n, kv_type, 100, 4)
    s.run(first, [cut])
    second = first.fork()
    ends = threading.Event()

    def trim() -> None:
        while not ends.is_set():
            first.pool.trim()  # takes every free page, and returns it

    thread = threading.Thread(target=trim)
    thread.start()
    try:
        assert s.run(second, [1] * (n - cut), n_threads=2).tobytes() == alone.tobytes()
    finally:
        ends.set()
        thread.join()


# ---- policies --------------------------------------------------------------------------------------------------------


def budgets_kept(t: int, keep: int, sinks: int) -> list[int]:
    """Tokens that a head with a budget attends at position t."""
    pinned = sinks if keep > sinks else 0
    return sorted({*range(min(pinned, t + 1)), *range(max(0, t - (keep - pinned) + 1), t + 1)})


@pytest.mark.parametrize("kv_type", TYPES)
def test_budgets_of_heads(kv_type):
    """P8: each head attends exactly its own tokens, and takes memory for these alone."""
    n, sinks = 330, 4
    budgets = [[1, 4, 5], [36, 37, 70], [330, 1000, 200]]
    s = Stream(n, 6, 3, 32, n_layer=3)
    cache = KVCache(3, 3, 32, n, kv_type, 0, sinks, budgets=budgets)
    out = s.run(cache, [1, 70, 9, 250], n_threads=2)
    for layer in range(3):
        for head in range(3):
            group = slice(2 * head, 2 * head + 2)
            exact = [
                attend(s.q[layer, t, group], s.k[layer, seen, head : head + 1], s.v[layer, seen, head : head + 1])
                for t in range(n)
                for seen in [budgets_kept(t, budgets[layer][head], sinks)]
            ]
            error = np.linalg.norm(out[layer, :, group] - exact) / np.linalg.norm(exact)
            assert error < {"f32": 1e-6, "f16": 1e-3, "int8": 2e-2}[kv_type], (layer, head)
            held = cache.held(layer, head)
            first_seen = {at // PAGE for at in budgets_kept(n, budgets[layer][head], sinks) if at < n}
            assert first_seen <= set(held) and len(held) <= len(first_seen) + 1
    assert cache.nbytes == KVCache.bytes_for(3, 3, 32, n, kv_type, 0, sinks, budgets=budgets) == cache.pool.nbytes
    assert cache.nbytes < 0.6 * KVCache.bytes_for(3, 3, 32, n, kv_type, 0, sinks)
    assert cache.pool.used <= cache.nbytes


def test_quarter_is_the_published_formula():
    """A window of min(128, length // 4) tokens, the length with the query's own token; at least that token."""
    n = 700
    s = Stream(n, 2, 1, 32)
    out = s.run(KVCache(1, 1, 32, n, "f32", 128, policy="quarter"), [1, 200, 499])
    for t in [*range(20), 127, 128, 300, 511, 512, 513, 699]:
        seen = list(range(t + 1 - max(1, min(128, (t + 1) // 4)), t + 1))
        assert np.abs(out[0, t] - attend(s.q[0, t], s.k[0, seen], s.v[0, seen])).max() < 2e-5, t


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize(
    ("policy", "window", "sinks", "spare"),
    [
        ("recent", 0, 0, 0),
        ("recent", 0, 5, 0),
        *(
            (policy, *shape)
            for policy in ("recent", "quarter")
            for shape in ((1, 0, 0), (1, 4, 1), (100, 4, 0), (128, 40, 2))
        ),
    ],
)
def test_memory_is_as_planned(kv_type, policy, window, sinks, spare):
    """M1: the slab is what the plan says, and a long stream fills it exactly and takes no page more."""
    plan = (2, 2, 32, 224, kv_type, window, sinks)
    cache = KVCache(*plan, policy=policy, spare=spare)
    s = Stream(600 if window else 224, 2, 2, 32, n_layer=2)
    s.run(cache, [s.q.shape[1]])
    need = KVCache.bytes_for(*plan, policy=policy, spare=spare)
    assert cache.nbytes == cache.pool.nbytes == need
    open_pages = 4 * 2 * PAGE * 32 * 2 if kv_type == "int8" else 0
    full = 600 % PAGE == 0 or not window
    assert cache.pool.used == need - (open_pages if full else 0)
    assert cache.stats["bytes"] == cache.pool.used
