"""Windows and sinks through whole models, against transformers; angles far out."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from edge.formats import open_checkpoint
from edge.model.weights import build
from pyx.kv import KVCache
from pyx.step import Rotary
from tests.configs import uniform
from tests.streams import run
from tests.vectors import stored
from tests.vectors.make_models import EVERY, IDS, WINDOWED, WINDOWS, positions


def read(path: Path, ids: list[int], chunk: int = 128, threads: int = 1, **plan) -> np.ndarray:
    """Logits [n][n_vocab] of every token."""
    checkpoint = open_checkpoint(path)
    c, model = checkpoint.config, build(checkpoint, n_threads=threads, head="native")
    cache = KVCache(*c.kv_shape, len(ids), plan.pop("kv_type", "f32"), **plan)
    return run(model, cache, ids, chunk)


# ---- transformers (P2, S3) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize(("window", "sinks"), WINDOWS)
def test_transformers_with_the_same_mask(name, window, sinks):
    """Every layer under the mask; at the edges of pages, chunks, windows and beyond the trained context.

    To 1e-5 of the range, but where the last bit of a sum turns the rounding of an activation to int8 (one token in four
    at most, and then to 1e-2).
    """
    expected = stored.read("oracle", name)[f"w{window}s{sinks}"]
    at = positions(window, sinks)
    got = read(stored.oracle() / name, IDS, chunk=1, window=window, sinks=sinks)[at][:, ::EVERY]
    error = np.abs(got - expected).max(1) / np.ptp(expected)
    assert len(at) > 10 and error.max() <= 1e-2
    assert (error <= 1e-5).mean() >= 0.75
    assert (got.argmax(1) == expected.argmax(1)).all()


def test_the_masks_differ():
    """A window that were not obeyed would show."""
    found = stored.read("oracle", WINDOWED[0])
    assert np.abs(found["w33s4"][-1] - found["w0s0"][-1]).max() > 0.05 * np.ptp(found["w0s0"])


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
