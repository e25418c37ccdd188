"""A step over a batch of caches: each segment gives the bits it gives alone, whoever is in the step with it."""

from __future__ import annotations

import array
import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from edge.formats import open_checkpoint
from edge.model.weights import build
from pyx import machine
from pyx.kv import KVCache, PagePool
from pyx.step import Segment
from tests.streams import dumped
from tests.vectors.stored import tiny

N_CTX = 640

#: caches of every kind that one step may bring together
PLANS = (
    {"kv_type": "f16"},
    {"kv_type": "f32"},
    {"kv_type": "int8"},
    {"kv_type": "int8:int4"},
    {"kv_type": "f16", "window": 64, "sinks": 4},
    {"kv_type": "int8", "window": 96, "sinks": 4},
    {"kv_type": "f16", "window": 96, "sinks": 0},
    {"kv_type": "f16", "window": 128, "policy": "quarter"},
    {"kv_type": "int4"},
)


def cache_of(config, plan: dict) -> KVCache:
    return KVCache(*config.kv_shape, N_CTX, **plan)


def pieces_of(rng: random.Random, n: int) -> list[int]:
    """Lengths of steps that make n tokens: prompts in chunks, then token by token."""
    lengths = []
    while sum(lengths) < n:
        lengths.append(rng.choice((1, 1, 1, 2, 3, 5, 17, 33)))
    lengths[-1] -= sum(lengths) - n
    return lengths


class Text:
    """One conversation: what it reads in each of its steps, and all logits it was given."""

    def __init__(self, config, plan: dict, rng: random.Random, n: int) -> None:
        self.kv = cache_of(config, plan)
        self.n_vocab = config.n_vocab
        self.steps = []
        for length in pieces_of(rng, n):
            ids = array.array("i", [rng.randrange(config.n_vocab) for _ in range(length)])
            self.steps.append((ids, rng.choice((None, False, True)), rng.choice((0, 0, 1, 40))))
        self.at, self.seen = 0, []

    @property
    def over(self) -> bool:
        return self.at == len(self.steps)

    def segment(self) -> Segment:
        ids, every, winners = self.steps[self.at]
        self.at += 1
        out = None
        if every is not None:
            out = array.array("f", bytes(4 * self.n_vocab * (len(ids) if every else 1)))
            self.seen.append(out)
        return Segment(self.kv, ids, out, bool(every), winners)

    def result(self) -> tuple[list[bytes], bytes, tuple[int, int]]:
        return [out.tobytes() for out in self.seen], dumped(self.kv), self.kv.counters


def texts_of(config, seed: int) -> list[Text]:
    rng = random.Random(seed)
    # one text passes eight pages, where attention of a single token is cut into pieces
    lengths = [rng.choice((20, 40, 70)) for _ in range(6)] + [280]
    return [Text(config, rng.choice(PLANS), rng, n) for n in lengths]


def together(model, texts: list[Text], seed: int) -> None:
    """All texts to their ends, some of those that are left in each step."""
    rng = random.Random(seed)
    while left := [text for text in texts if not text.over]:
        batch, room = [], model.chunk
        for text in rng.sample(left, rng.randint(1, len(left))):
            if (n := len(text.steps[text.at][0])) <= room:
                batch.append(text.segment())
                room -= n
        model.step(batch)


def alone(model, texts: list[Text]) -> None:
    for text in texts:
        while not text.over:
            model.step([text.segment()])


def check(checkpoint, head: str, runs: list[tuple[int, str | None]]) -> None:
    """runs: (threads, target); the reference is one thread of the best target, each text alone."""
    texts = texts_of(checkpoint.config, 1)
    alone(build(checkpoint, head=head), texts)
    expected = [text.result() for text in texts]
    for seed, (n_threads, target) in enumerate(runs):
        if target:
            machine.use(target)
        texts = texts_of(checkpoint.config, 1)
        together(build(checkpoint, n_threads=n_threads, head=head), texts, seed)
        assert [text.result() for text in texts] == expected, (n_threads, target)


THREADS = [(1, None), (2, None), (3, None), (4, None)]


@pytest.mark.parametrize(("index", "head"), [(0, "int8"), (3, "two-stage"), (2, "auto"), (6, "f16")])
def test_a_batch_does_not_change_a_bit(index: int, head: str) -> None:
    check(tiny(index), head, THREADS)


def test_nor_on_any_instruction_set(own_isa) -> None:
    check(tiny(3), "two-stage", [(1 + i % 2, name) for i, name in enumerate(machine.supported())])


def test_nor_with_four_bit_activations(bundled_model: Path) -> None:
    checkpoint = open_checkpoint(bundled_model)
    checkpoint.config = dataclasses.replace(checkpoint.config, activation_quant="a4.8")
    check(checkpoint, "int8", [(2, None)])


def test_forks_in_one_step_share_pages_until_they_write(own_isa) -> None:
    """Their open page is copied by several threads at once; a limit counts what all of them will take."""
    checkpoint = tiny(0)
    config, model = checkpoint.config, build(checkpoint, n_threads=3)
    rng = random.Random(3)
    ids = array.array("i", [rng.randrange(config.n_vocab) for _ in range(50)])
    pool = PagePool()
    first = cache_of(config, {"kv_type": "int8", "pool": pool})
    model.step([Segment(first, ids)])
    forks = [first, *(first.fork() for _ in range(4))]
    outs = [array.array("f", bytes(4 * config.n_vocab)) for _ in forks]
    for turn in range(20):
        model.step([
            Segment(kv, array.array("i", [7 * turn + i]), out)
            for i, (kv, out) in enumerate(zip(forks, outs, strict=True))
        ])
    for i, (kv, out) in enumerate(zip(forks, outs, strict=True)):
        one, expected = cache_of(config, {"kv_type": "int8"}), array.array("f", bytes(4 * config.n_vocab))
        model.step([Segment(one, ids)])
        for turn in range(20):
            model.step([Segment(one, array.array("i", [7 * turn + i]), expected)])
        assert out == expected and kv.counters == one.counters  # the ends of open pages hold what was there before


def test_a_step_beyond_the_limit_of_a_pool_changes_nothing() -> None:
    checkpoint = tiny(0)
    config, model = checkpoint.config, build(checkpoint)
    one = cache_of(config, {"kv_type": "f16"})
    model.step([Segment(one, array.array("i", [1]))])
    pool = PagePool(limit=3 * one.pool.used)  # three caches of one page a head
    caches = [cache_of(config, {"kv_type": "f16", "pool": pool}) for _ in range(4)]
    batch = [Segment(kv, array.array("i", [1])) for kv in caches]
    with pytest.raises(MemoryError, match="allowed"):
        model.step(batch)
    assert [kv.n_tokens for kv in caches] == [0] * 4 and pool.used == 0
    model.step(batch[:3])
    assert [kv.n_tokens for kv in caches] == [1, 1, 1, 0] and pool.used == pool.limit


def test_bad_batches_are_refused_and_leave_every_cache_alone() -> None:
    checkpoint = tiny(0)
    config = checkpoint.config
    model = build(checkpoint, chunk=16)
    a, b = (cache_of(config, {"kv_type": "f16"}) for _ in range(2))
    small = KVCache(*config.kv_shape, 4)
    row = array.array("f", bytes(4 * config.n_vocab))

    def ids(*tokens: int) -> array.array:
        return array.array("i", tokens)

    good = Segment(a, ids(1, 2, 3), row)
    model.step([good, Segment(b, ids(4))])
    before = dumped(a), dumped(b), bytes(row)
    together = (Segment(a, ids(1)), "the same KV cache"), (Segment(b, ids(*range(14))), "1 to 16")
    wrong = (
        (Segment(b, ids(*range(17))), "1 to 16"),
        (Segment(b, ids()), "1 to 16"),
        (Segment(b, ids(config.n_vocab)), "vocabulary"),
        (Segment(b, ids(-1)), "vocabulary"),
        (Segment(b, ids(1), row[:-1]), "logits"),
        (Segment(b, ids(1, 2), row, all_logits=True), "logits"),
        (Segment(b, ids(1), array.array("f")), "logits"),
        (Segment(small, ids(*range(5))), "full"),
        (Segment(KVCache(1, 1, 64, 20), ids(1)), "another shape"),
    )
    for other, error in together + wrong:
        for batch in ([good, other], [other, good], [other])[: 2 if (other, error) in together else 3]:
            with pytest.raises(ValueError, match=error):
                model.step(batch)
    with pytest.raises(ValueError, match="segment"):
        model.step([])
    with pytest.raises(TypeError):
        model.step([good, None])
    with pytest.raises(TypeError):
        model.step([Segment(object(), ids(1))])
    with pytest.raises(ValueError):
        Segment(a, array.array("d", [1.0]))
    assert before == (dumped(a), dumped(b), bytes(row)) and (a.n_tokens, b.n_tokens, small.n_tokens) == (3, 1, 0)


def test_a_segment_may_be_used_again() -> None:
    checkpoint = tiny(0)
    config, model = checkpoint.config, build(checkpoint)
    one, row = array.array("i", [0]), array.array("f", bytes(4 * config.n_vocab))
    segment = Segment(cache_of(config, {}), one, row)
    seen = []
    for one[0] in (5, 9, 200):
        model.step([segment])
        seen.append(bytes(row))
    whole = np.zeros((3, config.n_vocab), np.float32)
    model.step([Segment(cache_of(config, {}), array.array("i", [5, 9, 200]), whole.reshape(-1), all_logits=True)])
    assert b"".join(seen) == whole.tobytes()
