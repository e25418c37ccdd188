"""Random lives of KV caches in one pool, against a dict of lists: tokens held, pages shared, bits of every answer."""

from __future__ import annotations

import tempfile

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyx.kv import KVCache, PagePool
from tests.oracles.attention import attend
from tests.streams import Stream, restored

PAGE, SHAPE, LENGTH = 32, (1, 2, 8), 400
STREAM = Stream(LENGTH, 4, 2, 8, seed=11)
OTHER = Stream(LENGTH, 4, 2, 8, seed=12)
PLANS = (
    {"window": 0, "sinks": 0},
    {"window": 40, "sinks": 4},
    {"window": 64, "sinks": 33, "spare": 2},
    {"window": 0, "sinks": 4, "budgets": [[20, 130]]},
    {"window": 128, "sinks": 0, "policy": "quarter"},
)


def seen(plan: dict, head: int, t: int) -> list[int]:
    """Positions that a head attends at position t, from the plan alone."""
    window, sinks = plan["window"], plan["sinks"]
    if plan.get("policy") == "quarter":
        window = min(window, max(1, (t + 1) // 4))
    elif "budgets" in plan:
        window = plan["budgets"][0][head] - sinks
    return [at for at in range(t + 1) if not window or at < sinks or at > t - window]


class Lives(RuleBasedStateMachine):
    """Caches in one pool, and what each was told: a list of 0 and 1, token i being token i of STREAM or of OTHER.

    An answer has the bits of a cache that is alone in its pool; with F32 pages it is also what float64 attention over
    the listed tokens gives.
    """

    def __init__(self) -> None:
        super().__init__()
        self.caches: dict[int, KVCache] = {}
        self.texts: dict[int, list[int]] = {}
        self.born = 0

    @initialize(plan=st.sampled_from(PLANS), kv_type=st.sampled_from(["f32", "f16", "int8"]),
                spill=st.sampled_from([0, 10_000, 1 << 20]))
    def start(self, plan: dict, kv_type: str, spill: int) -> None:
        self.plan = {"n_ctx": LENGTH, "kv_type": kv_type, **plan}
        self.spill = (tempfile.gettempdir(), spill) if spill else None
        self.pool = PagePool()

    def _pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.caches)))

    def _name(self, cache: KVCache, text: list[int]) -> None:
        self.caches[self.born], self.texts[self.born] = cache, list(text)
        self.born += 1

    @staticmethod
    def _stream(text: list[int]) -> Stream:
        """The queries, keys and values of a text."""
        mixed = Stream.__new__(Stream)
        which = np.array(text)[None, :, None, None]
        for name in "qkv":
            first, second = (getattr(s, name)[:, : len(text)] for s in (STREAM, OTHER))
            setattr(mixed, name, np.where(which, second, first))
        return mixed

    @precondition(lambda self: len(self.caches) < 2)
    @rule()
    def make(self) -> None:
        self._name(KVCache(*SHAPE, **self.plan, pool=self.pool, spill=self.spill), [])

    def _append(self, name: int, n: int, other: int, threads: int = 1) -> None:
        cache, text = self.caches[name], self.texts[name]
        start = len(text)
        text += [other] * min(n, LENGTH - start)
        if len(text) == start:
            return
        s = self._stream(text)
        got = s.run(cache, [len(text) - start], threads)
        alone = s.run(KVCache(*SHAPE, **self.plan), [len(text)])
        assert got.tobytes() == alone[:, start:].tobytes()
        if self.plan["kv_type"] == "f32":
            t = len(text) - 1
            for head in range(2):
                group, at = slice(2 * head, 2 * head + 2), seen(self.plan, head, t)
                exact = attend(s.q[0, t, group], s.k[0, at, head : head + 1], s.v[0, at, head : head + 1])
                assert np.abs(got[0, -1, group] - exact).max() < 1e-5

    @precondition(lambda self: self.caches)
    @rule(data=st.data(), n=st.sampled_from([1, 2, 5, 17, 31, 32, 33, 64, 97]), other=st.integers(0, 1),
          threads=st.integers(1, 3))
    def append(self, data: st.DataObject, n: int, other: int, threads: int) -> None:
        self._append(self._pick(data), n, other, threads)

    @precondition(lambda self: self.caches and len(self.caches) < 5)
    @rule(data=st.data(), swap=st.booleans())
    def fork_and_part(self, data: st.DataObject, swap: bool) -> None:
        """Two caches go on from the same tokens with different ones, in turns: a page not copied shows."""
        name = self._pick(data)
        self._name(self.caches[name].fork(), self.texts[name])
        twins = (self.born - 1, name) if swap else (name, self.born - 1)
        for _ in range(3):
            for other, each in enumerate(twins):
                self._append(each, 3, other)

    @precondition(lambda self: self.caches)
    @rule(data=st.data(), back=st.integers(0, 150))
    def crop(self, data: st.DataObject, back: int) -> None:
        name = self._pick(data)
        cache, text = self.caches[name], self.texts[name]
        wanted = max(0, len(text) - back)
        kept = cache.crop(wanted)
        assert 0 <= kept <= wanted and (kept == wanted or kept % PAGE == 0)
        if not self.plan["window"] and not self.plan.get("budgets"):
            assert kept >= wanted // PAGE * PAGE
        del text[kept:]

    @precondition(lambda self: self.caches and len(self.caches) < 5)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        name = self._pick(data)
        self._name(self.caches[name].fork(), self.texts[name])

    @precondition(lambda self: len(self.caches) > 2)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = self._pick(data)
        del self.caches[name], self.texts[name]

    @precondition(lambda self: len(self.caches) > 2)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        name = self._pick(data)
        self.caches[name].reset()
        self.texts[name].clear()

    @precondition(lambda self: self.caches and len(self.caches) < 5)
    @rule(data=st.data())
    def write_and_read(self, data: st.DataObject) -> None:
        name = self._pick(data)
        copy = KVCache(*SHAPE, **self.plan, pool=self.pool, spill=self.spill)
        self._name(restored(copy, self.caches[name]), self.texts[name])

    @invariant()
    def tokens_are_counted(self) -> None:
        for name, cache in self.caches.items():
            assert cache.n_tokens == len(self.texts[name])

    @invariant()
    def references_are_tables(self) -> None:
        """I6: as many tables name a page as it has references, and no more memory is planned."""
        if not self.caches:
            return
        references = [n for slab in self.pool.references for n in slab]
        stats = [cache.stats for cache in self.caches.values()]
        assert sum(references) == sum(each["pages"] for each in stats)
        assert self.pool.nbytes <= 5 * next(iter(self.caches.values())).nbytes
        for cache in self.caches.values():
            assert cache.stats["bytes"] <= cache.nbytes
            for head in range(2):
                held = cache.held(0, head)
                assert held == sorted(set(held)) and all(0 <= page * PAGE < cache.n_tokens for page in held)

    def teardown(self) -> None:
        self.caches.clear()
        if hasattr(self, "pool"):
            assert self.pool.used == self.pool.nbytes == 0


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
