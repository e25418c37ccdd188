"""Differences between architectures, each against NumPy in float64: norms, biases, multipliers, rotary scaling.

Weights are ternary x scale, the activations as the model rounds them; F32 pages and heads, so only arithmetic differs.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from edge.config import ModelConfig
from edge.errors import InvalidFile
from edge.formats import names
from edge.formats.checkpoint import Checkpoint, Tensor, TokenizerSpec
from edge.layers import RopeScaling
from edge.model.weights import build
from tests.configs import uniform
from tests.kernels.test_transformer import logits
from tests.oracles import family

IDS = [1, 5, 77, 200, 3, 9, 150, 42, 99, 17, 60, 8, 33, 12, 250, 7, 7, 111, 30, 2]
BASE = uniform()
YARN = RopeScaling("yarn", 4.0, 16, mscale=0.1 * math.log(4) + 1)
#: one thing after the other that some architecture has and llama has not
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "norm of each head before the rotation": {"qk_norm": "before"},
    "norm of each head behind the rotation": {"qk_norm": "after"},
    "biases": {"qkv_bias": True},
    "a norm for each projection": {"inner_norm": True, "inner_eps": 1e-3},
    "a norm for each projection and sub-norms": {"inner_norm": True, "sub_norm": True, "activation": "relu2"},
    "multipliers": {"embedding_scale": 12.0, "residual_scale": 1.4 / 2**0.5, "logit_scale": 0.25},
    "yarn": {"rope_scaling": YARN, "rope_theta": 100.0},
    "yarn, interleaved": {"rope_scaling": YARN, "rope_style": "interleaved"},
    "llama3": {"rope_scaling": RopeScaling("llama3", 8.0, 64, low_freq=1.0, high_freq=4.0)},
    "longrope": {"rope_scaling": RopeScaling("factors", factors=tuple(1 + j / 4 for j in range(16)), mscale=1.2)},
    "GELU": {"activation": "gelu"},
    "norms behind blocks": {"post_norm": True, "residual_scale": 0.5},
    "a scale of queries": {"qk_norm": "before", "query_scale": 0.6},
    "sliding windows": {"sliding": (6, (0,), 300.0)},
    "sliding windows, scaled positions": {"sliding": (3, (1,), 300.0), "rope_scale": 4.0},
    "all at once": {"qk_norm": "before", "qkv_bias": True, "inner_norm": True, "rope_scaling": YARN,
                    "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0, "tied": False},
}


def made_up(config: ModelConfig, seed: int = 0) -> tuple[Checkpoint, dict[str, np.ndarray]]:
    """A checkpoint with random F32 tensors, matrices ternary x scale, and the same as arrays."""
    rng = np.random.default_rng(seed)
    arrays, tensors = {}, {}
    for name, role, shape in (part[:3] for part in names.parts(config) if part.needed):
        if role == "matrix":
            values = rng.integers(-1, 2, shape) * np.float32(0.2)
        elif role == "vector":
            values = rng.standard_normal(shape) * 0.3 + ("bias" not in name)
        else:
            values = rng.standard_normal(shape)
        arrays[name] = values.astype(np.float32)
        tensors[name] = Tensor(name, "F32", shape, memoryview(arrays[name].tobytes()))
    return Checkpoint("made up", "gguf", config, tensors, TokenizerSpec("none"), None, {}), arrays


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_difference_is_what_numpy_says(variant: str, threads: int) -> None:
    plain, _ = made_up(BASE)
    config = uniform(**VARIANTS[variant])
    checkpoint, arrays = made_up(config)
    expected = family.Model(config, arrays, "int8").logits(IDS)
    for chunk in (1, 128):
        got = logits(build(checkpoint, n_threads=threads, head="f32"), config, IDS, chunk=chunk)
        # a rounding of int8 activations may fall to the other side of a half
        assert np.abs(got - expected).max() <= 1e-2 * np.ptp(expected)
        assert np.mean(np.abs(got - expected)) <= 1e-3 * np.ptp(expected)
    if variant != "llama":  # the feature matters to the result
        other = family.Model(BASE, {**made_up(BASE)[1], **{n: a for n, a in arrays.items() if n in plain.tensors}})
        assert np.abs(other.logits(IDS) - expected).max() > 0.05 * np.ptp(expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_float_activations_are_exact(variant: str) -> None:
    config = uniform(activation_quant="none", **VARIANTS[variant])
    checkpoint, arrays = made_up(config)
    expected = family.Model(config, arrays).logits(IDS)
    runs = [
        logits(build(checkpoint, n_threads=threads, head="f32"), config, IDS, chunk=chunk)
        for threads, chunk in ((1, 1), (2, 128), (3, 7))
    ]
    assert np.abs(runs[0] - expected).max() <= 1e-5 * np.ptp(expected)
    assert all(run.tobytes() == runs[0].tobytes() for run in runs)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (lambda: RopeScaling("yarn", 4.0, 0), "original context of 0"),
        (lambda: RopeScaling("yarn", float("nan"), 16), "factor is nan"),
        (lambda: RopeScaling("yarn", 4.0, 16, beta_fast=0.0), r"beta_fast is 0\.0"),
        (lambda: RopeScaling("llama3", 8.0, 16, low_freq=4.0, high_freq=4.0), "high_freq_factor 4.0"),
        (lambda: uniform(rope_scaling=RopeScaling("factors", factors=(1.0,) * 3)), "3 rope factors"),
        (lambda: uniform(rope_scaling=YARN, rope_theta=1.0), "theta 1.0 cannot"),
        (lambda: uniform(qk_norm="beside"), "'beside'"),
        (lambda: uniform(embedding_scale=0.0), "embedding_scale 0.0"),
        (lambda: uniform(logit_scale=float("inf")), "logit_scale inf"),
        (lambda: BASE.layers[0].mixer.sliding(8, float("nan")), "theta is nan"),
        (lambda: uniform(rope_dim=34), "rope dimension 34 does not fit"),
        (lambda: uniform(rope_dim=7), "rope dimension 7"),
        (lambda: uniform(n_layer=0), "n_layer is 0"),
        (lambda: dataclasses.replace(BASE, layers=BASE.layers + uniform(n_head=8).layers), "different numbers"),
        (lambda: dataclasses.replace(BASE, layers=BASE.layers + uniform(head_dim=16).layers), "different numbers"),
        (lambda: uniform(query_scale=2.0), "scale of queries"),
    ],
)
def test_conventions_that_cannot_be_are_refused(scaling: Any, message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        scaling()
