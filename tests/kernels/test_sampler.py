"""The sampler against an independent float64 oracle, at every boundary."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyx.tokens import Sampler
from tests.oracles import sampling as oracle

LLAMA3_VOCAB = 128256


def row(values) -> array:
    return array("f", values)


def random_row(n, seed=0, spread=3.0) -> array:
    return row(np.random.default_rng(seed).normal(0, spread, n).astype(np.float32))


def test_unused_rows_are_never_chosen():
    """Whatever the filters, penalties and masks; and the others are chosen as if those were not there."""
    n, unused = 64, array("i", [3, 60, 61, 62, 63])
    for seed, (temp, top_k, top_p, min_p) in enumerate([(0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (100.0, 0, 1.0, 0.0),
                                                       (100.0, 7, 1.0, 0.0), (5.0, 0, 0.9, 0.0), (5.0, 0, 1.0, 0.5)]):
        plain, s = Sampler(n, seed), Sampler(n, seed, unused)
        for i in range(50):
            values = random_row(n, 100 * seed + i)
            for each in unused:
                values[each] = 50.0 + each
            without = values[:]
            for each in unused:
                without[each] = float("-inf")
            args = (temp, top_k, top_p, min_p, 1.3, -2.0, 0.1, array("i", [3, 5, 62]))
            ids, shares = s.candidates(values[:], *args)
            assert not set(ids) & set(unused)
            assert (ids, shares) == plain.candidates(without[:], *args)
            mask = bytes([255] * (n // 8)) if i % 2 else None
            assert s.sample(values, *args, mask) == plain.sample(without, *args, mask)
    with pytest.raises(ValueError, match="unused token 64"):
        Sampler(n, 0, array("i", [64]))
    with pytest.raises(ValueError, match="no usable logit"):
        Sampler(2, 0, array("i", [0, 1])).sample(row([1.0, 2.0]))


# ---- random numbers -------------------------------------------------------------------------------------------------


def test_splitmix64_and_xoshiro_match_published_values():
    # splitmix64 of seed 1234567: the values everybody prints (Rosetta Code, "Pseudo-random numbers/Splitmix64").
    assert Sampler(2, 1234567).state == (
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
    )
    # xoshiro256** from state 1, 2, 3, 4: first outputs 11520, 0, 1509978240, 1215971899390074240 (Rust rand_xoshiro).
    s = Sampler(2)
    s.state = (1, 2, 3, 4)
    for word in (11520, 0, 1509978240, 1215971899390074240):
        assert s.uniform() == (word >> 11) * 2.0**-53


@pytest.mark.parametrize("seed", [0, 1, 42, 2**63, 2**64 - 1, 2**64 + 5, -1])
def test_uniforms_match_the_oracle(seed):
    s, o = Sampler(2, seed), oracle.Xoshiro(seed)
    assert [s.uniform() for _ in range(200)] == [o.uniform() for _ in range(200)]


def test_state_is_saved_and_restored():
    s = Sampler(100, 7)
    logits = random_row(100)
    state = s.state
    first = [s.sample(row(logits), 1.0) for _ in range(50)]
    s.state = state
    assert [s.sample(row(logits), 1.0) for _ in range(50)] == first
    other = Sampler(100, 99)
    other.state = state
    assert [other.sample(row(logits), 1.0) for _ in range(50)] == first
    s.reseed(7)
    assert s.state == state


@pytest.mark.parametrize("state", [(0, 0, 0, 0), (1, 2, 3), (1, 2, 3, 2**64), (1, 2, 3, -1)])
def test_a_state_that_cannot_be_is_refused(state):
    with pytest.raises(ValueError, match="random state"):
        Sampler(2).state = state


# ---- greedy ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.sampled_from([0.0, -1.0]))
def test_greedy_is_the_first_argmax_and_uses_no_random_number(values, temp):
    s = Sampler(len(values), 5)
    state = s.state
    assert s.sample(row(values), temp, 3, 0.5, 0.5) == values.index(max(values))
    assert s.state == state


def test_nan_and_infinities():
    nan, inf = float("nan"), float("inf")
    for temp in (0.0, 1.0):
        for top_k in (0, 2):
            for top_p in (1.0, 0.9):
                s = Sampler(4, 1)
                for _ in range(20):
                    assert s.sample(row([nan, 1.0, -inf, nan]), temp, top_k, top_p) == 1
                    assert s.sample(row([1.0, inf, 2.0, nan]), temp, top_k, top_p) == 1
                    assert s.sample(row([1.0, inf, inf, 3.4e38]), temp, top_k, top_p) in (1, 2, 3)
                for bad in ([nan] * 4, [-inf] * 4, [nan, -inf, nan, -inf]):
                    with pytest.raises(ValueError, match="no usable logit"):
                        s.sample(row(bad), temp, top_k, top_p)


def test_wrong_shapes_and_types_are_refused():
    s = Sampler(8)
    for length in (0, 7, 9):
        with pytest.raises(ValueError, match="vocabulary of 8"):
            s.sample(row([0.0] * length), 1.0)
    with pytest.raises(ValueError):
        s.sample(array("d", [0.0] * 8))
    with pytest.raises(ValueError):
        s.sample(row([0.0] * 8), recent=array("q", [1]))
    with pytest.raises(TypeError):
        s.sample(None)
    for n in (0, -1, 2**31):
        with pytest.raises((ValueError, MemoryError)):
            Sampler(n)


# ---- candidate sets and probabilities -------------------------------------------------------------------------------

finite = st.one_of(
    st.integers(-4, 4).map(float),  # many ties
    st.floats(-80, 80, width=32),
    st.sampled_from([float("-inf"), float("nan"), float("inf"), 3.0e38, -3.0e38]),
)


@given(
    values=st.lists(finite, min_size=2, max_size=60),
    temp=st.sampled_from([1e-6, 0.1, 0.7, 1.0, 2.0, 1e6]),
    top_k=st.one_of(st.sampled_from([0, 1, 2, 59, 60, 1000, -1]), st.integers(1, 60)),
    top_p=st.one_of(st.sampled_from([0.0, 1.0, 0.5, 0.999999, 1.5]), st.floats(0, 1)),
    min_p=st.one_of(st.sampled_from([0.0, 1.0, 0.05]), st.floats(0, 1)),
)
def test_candidates_match_the_oracle(values, temp, top_k, top_p, min_p):
    expected = oracle.candidates(row(values), temp, top_k, top_p, min_p)
    s = Sampler(len(values), 3)
    if expected is None:
        with pytest.raises(ValueError, match="no usable logit"):
            s.candidates(row(values), temp, top_k, top_p, min_p)
        return
    ids, probabilities, nearness = expected
    got, p = s.candidates(row(values), temp, top_k, top_p, min_p)
    if nearness < 1e-12 and list(got) != ids:
        assert abs(len(got) - len(ids)) <= 1  # one rounding decides: either cut is right
        return
    assert list(got) == ids
    assert p.tolist() == pytest.approx(probabilities, rel=1e-12, abs=1e-300)


@given(
    seed=st.integers(0, 2**32),
    temp=st.sampled_from([0.2, 0.8, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 5, 40]),
    top_p=st.sampled_from([1.0, 0.95, 0.3]),
    min_p=st.sampled_from([0.0, 0.05]),
)
def test_draws_match_the_oracle_one_uniform_each(seed, temp, top_k, top_p, min_p):
    n = 64
    logits = random_row(n, seed)
    ids, probabilities, _ = oracle.candidates(logits, temp, top_k, top_p, min_p)
    s, o = Sampler(n, seed), oracle.Xoshiro(seed)
    for _ in range(20):
        assert s.sample(row(logits), temp, top_k, top_p, min_p) == oracle.pick(ids, probabilities, o.uniform())
    assert s.state == tuple(o.s)


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"),
    [(40, 0.95, 0.05), (40, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.1), (0, 1.0, 0.0), (5000, 0.8, 0.0), (0, 0.9999, 0.0)],
)
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_large_vocabulary_matches_the_oracle(top_k, top_p, min_p, spread):
    logits = random_row(LLAMA3_VOCAB, 11, spread)
    ids, probabilities, nearness = oracle.candidates(logits, 0.8, top_k, top_p, min_p)
    got, p = Sampler(LLAMA3_VOCAB).candidates(row(logits), 0.8, top_k, top_p, min_p)
    slack = 0 if nearness > 1e-11 else 1
    assert abs(len(got) - len(ids)) <= slack
    m = min(len(got), len(ids))
    assert list(got[:m]) == ids[:m]
    np.testing.assert_allclose(p[:m], probabilities[:m], rtol=1e-4 if slack else 1e-10, atol=1e-12)


# ---- penalties ------------------------------------------------------------------------------------------------------


@given(
    values=st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=30),
    recent=st.lists(st.integers(-2, 32), max_size=50),
    repeat=st.sampled_from([1.0, 1.1, 1.3, 0.5]),
    presence=st.sampled_from([0.0, 0.4, -0.4]),
    frequency=st.sampled_from([0.0, 0.25, -0.1]),
)
def test_penalties_match_the_oracle(values, recent, repeat, presence, frequency):
    expected = oracle.penalise(values, recent, repeat, presence, frequency)
    logits = row(values)
    s = Sampler(len(values))
    got = s.sample(logits, 0.0, 0, 1.0, 0.0, repeat, presence, frequency, array("i", recent))
    assert np.array_equal(np.frombuffer(logits, np.float32), expected)
    assert got == int(np.argmax(expected))
    again = row(values)  # the counters are clean again
    s.sample(again, 0.0, 0, 1.0, 0.0, repeat, presence, frequency, array("i", recent))
    assert again == logits
