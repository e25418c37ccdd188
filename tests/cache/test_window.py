"""Windows, sinks and positions through whole models: against transformers, and against StreamingLLM written out."""

from __future__ import annotations

import array
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from edge.formats import open_checkpoint
from edge.model.weights import build
from pyx.kv.cache import KVCache
from pyx.layers.attention import attention
from pyx.layers.rotary import Rotary
from pyx.step.transformer import Segment
from tests.configs import uniform
from tests.oracles.softmax import softmax
from tests.vectors.make_window import EVERY, IDS, MODELS, MODES, ORACLE, positions

ROOT = Path(__file__).resolve().parents[2]


def read(path: Path, ids: list[int], chunk: int = 128, threads: int = 1, **plan) -> np.ndarray:
    """Logits [n][n_vocab] of every token."""
    checkpoint = open_checkpoint(path)
    c, model = checkpoint.config, build(checkpoint, n_threads=threads, head="native")
    cache = KVCache(*c.kv_shape, len(ids), plan.pop("kv_type", "f32"), **plan)
    out = np.zeros((len(ids), c.n_vocab), np.float32)
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        model.step([Segment(cache, array.array("i", part), out[start : start + len(part)].reshape(-1), True)])
    return out


# ---- transformers (P2, S3) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("window", "sinks"), MODES)
def test_transformers_with_the_same_mask(name, window, sinks):
    """Every layer under the mask; at the edges of pages, chunks, windows and beyond the trained context.

    To 1e-5 of the range, but where the last bit of a sum turns the rounding of an activation to int8 (one token in four
    at most, and then to 1e-2).
    """
    expected = np.load(ORACLE / name / "window.npz")[f"w{window}s{sinks}"]
    at = positions(window, sinks)
    got = read(ORACLE / name, IDS, chunk=1, window=window, sinks=sinks)[at][:, ::EVERY]
    error = np.abs(got - expected).max(1) / np.ptp(expected)
    assert len(at) > 10 and error.max() <= 1e-2
    assert (error <= 1e-5).mean() >= 0.75
    assert (got.argmax(1) == expected.argmax(1)).all()


def test_the_masks_differ():
    """A window that were not obeyed would show."""
    found = np.load(ORACLE / MODELS[0] / "window.npz")
    assert np.abs(found["w33s4"][-1] - found["w0s0"][-1]).max() > 0.05 * np.ptp(found["w0s0"])


# ---- StreamingLLM's positions (P3) -----------------------------------------------------------------------------------


def turn(x: np.ndarray, position: np.ndarray, theta: float = 10000.0) -> np.ndarray:
    """Rotary embedding of x [n][head][D] at positions [n], pairs (j, j + D/2), in float64."""
    dim = x.shape[-1]
    angle = np.asarray(position, np.float64)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., : dim // 2].astype(np.float64), x[..., dim // 2 :].astype(np.float64)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def streaming(q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int, sinks: int) -> np.ndarray:
    """StreamingLLM as published: keys are kept unrotated and rotated, at every step, to their place in the cache."""
    outs = []
    for t in range(len(q)):
        seen = [at for at in range(t + 1) if at < sinks or at > t - window]
        place = np.arange(len(seen))
        keys, query = turn(k[seen], place), turn(q[t : t + 1], place[-1:])[0]
        group = q.shape[1] // k.shape[1]
        out = np.empty(q.shape[1:])
        for head in range(q.shape[1]):
            out[head] = softmax(keys[:, head // group] @ query[head]) @ v[seen, head // group]
        outs.append(out)
    return np.array(outs)


@pytest.mark.parametrize(("window", "sinks"), [(1, 1), (31, 4), (32, 4), (33, 4), (60, 33), (64, 0)])
def test_positions_in_the_cache_are_those_of_streaming_llm(window, sinks):
    """Keys stay where they are; a second query, turned to min(t, sinks + window - 1), looks at the sinks."""
    n, dim = 3 * window + 130, 32
    rng = np.random.default_rng(window)
    q, k, v = (rng.normal(size=(n, heads, dim)) for heads in (4, 2, 2))
    q /= np.sqrt(dim) / 2
    t = np.arange(n)
    at_sinks = turn(q, np.minimum(t, sinks + window - 1)).astype(np.float32)
    rotated, keys, values = turn(q, t).astype(np.float32), turn(k, t).astype(np.float32), v.astype(np.float32)
    outs = []
    for batches in ([1] * n, [17, 64, n - 81]):
        cache, got, start = KVCache(1, 2, dim, n, "f32", window, sinks, positions="cache"), [], 0
        for size in batches:
            part = slice(start, start + size)
            got += attention(
                cache, 0, rotated[part].ravel(), keys[part].ravel(), values[part].ravel(), 2,
                q_sink=at_sinks[part].ravel(),
            )
            start += size
        outs.append(np.array(got, np.float32).reshape(q.shape))
    assert outs[0].tobytes() == outs[1].tobytes()
    assert np.abs(outs[0] - streaming(q, k, v, window, sinks)).max() <= 2e-5
    if sinks > 1:  # absolute positions are another thing
        cache = KVCache(1, 2, dim, n, "f32", window, sinks)
        other = attention(cache, 0, rotated.ravel(), keys.ravel(), values.ravel())
        assert np.abs(np.array(other).reshape(q.shape) - outs[0]).max() > 1e-3


@pytest.mark.parametrize("name", [MODELS[0], "llama_untied_hd/packed_bitlinear_f32"])
@pytest.mark.parametrize("kv_type", ["f32", "int8"])
def test_positions_in_the_cache_through_a_model(name, kv_type):
    """As absolute ones until the window slides, another thing after; the same bits in any chunks on any threads."""
    window, sinks = 40, 4
    plan = {"kv_type": kv_type, "window": window, "sinks": sinks}
    one = read(ORACLE / name, IDS, 1, positions="cache", **plan)
    absolute = read(ORACLE / name, IDS, 1, **plan)
    assert one[: window + sinks].tobytes() == absolute[: window + sinks].tobytes()
    assert np.abs(one[-1] - absolute[-1]).max() > 1e-5 * np.ptp(one)
    for chunk, threads in ((128, 1), (33, 3)):
        assert read(ORACLE / name, IDS, chunk, threads, positions="cache", **plan).tobytes() == one.tobytes()


def test_a_shift_of_the_text_changes_nothing_with_positions_in_the_cache():
    """Sinks, then filler, then the same window: one layer sees the same cache whatever the filler was long."""
    dim, window, sinks = 32, 33, 4
    rng = np.random.default_rng(5)
    outs = []
    head_q, head_k, head_v = (rng.normal(size=(sinks, 1, dim)) for _ in range(3))
    tail_q, tail_k, tail_v = (rng.normal(size=(window + 8, 1, dim)) for _ in range(3))
    for filler in (40, 333):
        q, k, v = (
            np.concatenate([head, np.full((filler, 1, dim), 0.25), tail])
            for head, tail in ((head_q, tail_q), (head_k, tail_k), (head_v, tail_v))
        )
        t = np.arange(len(q))
        cache = KVCache(1, 1, dim, len(q), "f32", window, sinks, positions="cache")
        out = attention(
            cache, 0, turn(q, t).astype(np.float32).ravel(), turn(k, t).astype(np.float32).ravel(),
            v.astype(np.float32).ravel(),
            q_sink=turn(q, np.minimum(t, sinks + window - 1)).astype(np.float32).ravel(),
        )
        outs.append(np.array(out).reshape(q.shape)[-8:])
    assert np.abs(outs[0] - outs[1]).max() < 1e-4


# ---- angles far out (S2) ---------------------------------------------------------------------------------------------

PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def exact_angle(position: int, theta: int, j: int, dim: int) -> float:
    """position * theta^(-2j/dim) modulo a turn, with far more digits than float64: rational arithmetic."""
    with localcontext() as context:
        context.prec = 60
        frequency = Decimal(theta) ** (Decimal(-2 * j) / Decimal(dim))
        return float(Fraction(Decimal(position) * frequency) % (2 * PI))


@pytest.mark.parametrize("position", [0, 1, 4096, 100_000, 10**6, 10**7])
def test_angles_far_out(position):
    """The angle is right to 1e-6 at ten million tokens; in float32 it would be wrong by 0.3 there."""
    config = uniform(
        arch="bitnet", name="m", n_layer=1, hidden=128, ffn=128, n_head=1, n_kv_head=1, head_dim=128, n_vocab=9,
        n_ctx_train=4096, rope_theta=500000.0, rope_dim=128, rope_style="half", eps=1e-5, activation="relu2",
        sub_norm=True, tied=True,
    )
    cos, sin = Rotary(config.attention[0].rotation).angles(position)
    for j in range(64):
        angle = exact_angle(position, 500_000, j, 128)
        assert abs(cos[j] - math.cos(angle)) < 1e-6 and abs(sin[j] - math.sin(angle)) < 1e-6


def test_scores_depend_on_distance_alone():
    """q(t) . k(t - d) is the same at t and at t + 10^7, to 1e-5."""
    config = uniform(
        arch="bitnet", name="m", n_layer=1, hidden=64, ffn=64, n_head=1, n_kv_head=1, head_dim=64, n_vocab=9,
        n_ctx_train=4096, rope_theta=10000.0, rope_dim=64, rope_style="half", eps=1e-5, activation="relu2",
        sub_norm=True, tied=True,
    )
    rotary = Rotary(config.attention[0].rotation)
    rng = np.random.default_rng(2)
    q, k = rng.normal(size=(2, 64)) / 8

    def at(x: np.ndarray, position: int) -> np.ndarray:
        cos, sin = map(np.array, rotary.angles(position))
        a, b = x[:32], x[32:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin])

    for t, d in ((500, 0), (500, 1), (500, 37), (500, 400)):
        near, far = at(q, t) @ at(k, t - d), at(q, t + 10**7) @ at(k, t + 10**7 - d)
        assert abs(near - far) < 1e-5
