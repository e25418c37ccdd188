"""The layers of a dense model in NumPy, stage by stage, so that matrices can be replaced between two stages.

Written from the formulas of the models, for float32 and several texts of the same length at once; the compiled engine
is not involved, so what it makes of the result can be compared with this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

import numpy as np

from edge.config import ModelConfig
from edge.layers import Attention, Rotation

Floats = np.ndarray

#: matrices that read the same input, in the order in which a layer uses them
STAGES = (("attn_q", "attn_k", "attn_v"), ("attn_output",), ("ffn_gate", "ffn_up"), ("ffn_down",))

#: gives a vector of a layer by its name without "blk.N."
Vectors = Callable[[str], Floats]


def rms(x: Floats, weight: Floats, eps: float) -> Floats:
    """RMSNorm over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps)) * weight


def rounded(x: Floats, group: int) -> Floats:
    """Activations as the engine multiplies them: int8 with a scale per ``group`` values."""
    parts = x.reshape(*x.shape[:-1], -1, group)
    scale = np.maximum(np.abs(parts).max(-1, keepdims=True), np.float32(1e-30)) / np.float32(127)
    return (np.rint(parts / scale) * scale).reshape(x.shape)


def turns(rotation: Rotation, n: int, divisors: Floats | None) -> tuple[Floats, Floats]:
    """Cosines and sines [n][1][dim / 2] of a rotation.  ``divisors``: those of the file [dim / 2], if it has some."""
    r, scaling = rotation, rotation.scaling
    speed = r.theta ** (-np.arange(0, r.dim, 2) / r.dim)
    if scaling is not None:
        speed = speed / np.array(scaling.divisors(r.theta, r.dim))
    elif divisors is not None and r.divided:
        speed = speed / divisors
    angle = np.arange(n)[:, None, None] * speed / r.scale
    size = scaling.mscale if scaling is not None else 1.0
    return (np.cos(angle) * size).astype(np.float32), (np.sin(angle) * size).astype(np.float32)


def rotate(x: Floats, turn: tuple[Floats, Floats], rotation: Rotation) -> Floats:
    """Rotary embedding of [text][n][head][D]."""
    cos, sin = turn
    r, out = rotation.dim, x.copy()
    even, odd = (slice(0, r, 2), slice(1, r, 2)) if rotation.style == "interleaved" else (
        slice(0, r // 2), slice(r // 2, r))
    a, b = x[..., even], x[..., odd]
    out[..., even], out[..., odd] = a * cos - b * sin, b * cos + a * sin
    return out


def attend(q: Floats, k: Floats, v: Floats, scale: float, window: int) -> Floats:
    """Causal attention: q [text][n][head][D], k and v [text][n][kv head][D] -> [text][n][head * D]."""
    texts, n, n_head, dim = q.shape
    share = n_head // k.shape[2]
    back = np.arange(n)[:, None] - np.arange(n)
    unseen = (back < 0) | (back >= window) if window else back < 0
    out = np.empty_like(q)
    for text in range(texts):
        for head in range(n_head):
            score = q[text, :, head] @ k[text, :, head // share].T * np.float32(scale)
            score[unseen] = -np.inf
            score = np.exp(score - score.max(-1, keepdims=True))
            out[text, :, head] = score / score.sum(-1, keepdims=True) @ v[text, :, head // share]
    return out.reshape(texts, n, n_head * dim)


def act(kind: str, x: Floats) -> Floats:
    """The activation of the gate."""
    if kind == "gelu":
        with np.errstate(over="ignore"):
            return x / (1 + np.exp(-2 * np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)))
    return x / (1 + np.exp(-np.maximum(x, -80)))


def layer(
    c: ModelConfig, index: int, h: Floats, vector: Vectors, divisors: Floats | None
) -> Generator[Floats, list[Floats], Floats]:
    """One layer: yields the input of each of STAGES and is sent the products with its matrices, without biases; returns
    the hidden states.  h [text][n][hidden].
    """
    texts, n, _ = h.shape
    this = c.layers[index]
    mixer, dense = this.mixer, this.feed_forward
    assert isinstance(mixer, Attention)  # hybrids are refused before
    turn = turns(mixer.rotation, n, divisors)

    def heads(y: Floats, name: str, n_head: int) -> Floats:
        y = (y + vector(f"{name}.bias") if mixer.qkv_bias else y).reshape(texts, n, n_head, mixer.head_dim)
        if name == "attn_v":
            return y
        y = rms(y, vector(f"{name}_norm.weight"), c.eps) if mixer.qk_norm == "before" else y
        y = rotate(y, turn, mixer.rotation)
        return rms(y, vector(f"{name}_norm.weight"), c.eps) if mixer.qk_norm == "after" else y

    q, k, v = yield rms(h, vector("attn_norm.weight"), c.eps)
    mixed = attend(
        heads(q, "attn_q", mixer.n_head), heads(k, "attn_k", mixer.n_kv_head), heads(v, "attn_v", mixer.n_kv_head),
        mixer.query_scale / math.sqrt(mixer.head_dim), mixer.window)
    (y,) = yield mixed
    h = h + (rms(y, vector("post_attention_norm.weight"), c.eps) if this.post_norm else y)
    gate, up = yield rms(h, vector("ffn_norm.weight"), c.eps)
    (y,) = yield act(dense.activation, gate) * up
    return h + (rms(y, vector("post_ffw_norm.weight"), c.eps) if this.post_norm else y)
