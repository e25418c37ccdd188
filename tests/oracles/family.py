"""Forward passes of every family of models that is run, the slow and obvious way: NumPy in float64, no cache.

Written from the reference implementations in transformers (models/llama, qwen3, hunyuan_v1_dense, bitnet, gemma3,
minicpm's own code and integrations/bitnet.py), read as formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracles.attention import softmax


def rmsnorm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def as_they_are(x: np.ndarray) -> np.ndarray:
    """Activations that are not rounded."""
    return x


def int8(x: np.ndarray) -> np.ndarray:
    """Activations rounded to int8 with one scale per token (BitNet b1.58)."""
    scale = 127 / np.maximum(np.abs(x).max(-1, keepdims=True), 1e-5)
    return np.clip(np.round(x * scale), -127, 127) / scale


def int8_by(group: int) -> Callable[[np.ndarray], np.ndarray]:
    """Activations rounded to int8 with one scale per token and ``group`` values."""
    return lambda x: int8(x.reshape(*x.shape[:-1], -1, group)).reshape(x.shape)


ROUNDING = {
    "none": as_they_are, "int8": int8, "int8-128": int8_by(128), "int8-64": int8_by(64), "int8-32": int8_by(32)}


def angles(rotation: Any, n: int) -> np.ndarray:
    """Turns in radians [n][dim / 2] before multipliers, of an edge.layers.Rotation."""
    r, half = rotation, rotation.dim // 2
    inv_freq = r.theta ** (-np.arange(0, r.dim, 2) / r.dim)
    s = r.scaling
    if s is not None and s.kind == "factors":
        inv_freq = inv_freq / np.array(s.factors)
    elif s is not None and s.kind == "llama3":
        wavelength = 2 * np.pi / inv_freq
        smooth = (s.n_ctx_orig / wavelength - s.low_freq) / (s.high_freq - s.low_freq)
        medium = (1 - smooth) * inv_freq / s.factor + smooth * inv_freq
        slow, fast = wavelength > s.n_ctx_orig / s.low_freq, wavelength < s.n_ctx_orig / s.high_freq
        inv_freq = np.where(slow, inv_freq / s.factor, np.where(fast, inv_freq, medium))
    elif s is not None:
        bounds = [r.dim * np.log(s.n_ctx_orig / (turns * 2 * np.pi)) / (2 * np.log(r.theta))
                  for turns in (s.beta_fast, s.beta_slow)]
        low, high = max(np.floor(bounds[0]), 0), min(np.ceil(bounds[1]), r.dim - 1)
        ramp = np.clip((np.arange(half) - low) / max(high - low, 0.001), 0, 1)
        inv_freq = inv_freq / s.factor * ramp + inv_freq * (1 - ramp)
    return np.arange(n)[:, None] * inv_freq / r.scale


def rotate(x: np.ndarray, rotation: Any) -> np.ndarray:
    """Rotary embedding of [token, head, D] over pairs (j, j + r/2) or (2j, 2j + 1) of the first r dimensions."""
    turn = angles(rotation, len(x))
    mscale = rotation.scaling.mscale if rotation.scaling else 1.0
    cos, sin = np.cos(turn)[:, None] * mscale, np.sin(turn)[:, None] * mscale
    r, out = rotation.dim, x.copy()
    if rotation.style == "interleaved":
        a, b = x[..., 0:r:2], x[..., 1:r:2]
        out[..., 0:r:2], out[..., 1:r:2] = a * cos - b * sin, b * cos + a * sin
    else:
        a, b = x[..., : r // 2], x[..., r // 2 : r]
        out[..., : r // 2], out[..., r // 2 : r] = a * cos - b * sin, b * cos + a * sin
    return out


def acted(kind: str, x: np.ndarray) -> np.ndarray:
    """The activation of the gate."""
    if kind == "gelu":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return np.maximum(x, 0) ** 2 if kind == "relu2" else x / (1 + np.exp(-x))


class Model:
    """A configuration (edge.config.ModelConfig) and its weights by GGUF name, float arrays [out, in]."""

    def __init__(self, config: Any, weights: dict[str, np.ndarray], activations: str = "none") -> None:
        self.config = config
        self.w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
        self.rounded = ROUNDING[activations]

    def hidden(self, ids: list[int]) -> np.ndarray:
        """float64 [token, hidden], after the last norm."""
        c, w = self.config, self.w
        h = w["token_embd.weight"][ids] * c.embedding_scale
        for i, layer in enumerate(c.layers):
            feed = self.experts if layer.feed_forward.kind == "experts" else self.dense
            for mix, norm in ((self.attention, "post_attention_norm"), (feed, "post_ffw_norm")):
                y = mix(i, layer, h)
                y = rmsnorm(y, w[f"blk.{i}.{norm}.weight"], c.eps) if layer.post_norm else y
                h = h + y * c.residual_scale
        return rmsnorm(h, w["output_norm.weight"], c.eps)

    def project(self, index: int, x: np.ndarray, name: str) -> np.ndarray:
        """A matrix of a layer times x [token, in], with the norm before it and the bias after it that it has."""
        of = {kind: self.w.get(f"blk.{index}.{name}{kind}") for kind in (".weight", ".bias", "_norm_in.weight")}
        if of["_norm_in.weight"] is not None:
            x = rmsnorm(x, of["_norm_in.weight"], self.config.inner_eps)
        y = self.rounded(x) @ of[".weight"].T
        return y if of[".bias"] is None else y + of[".bias"]

    def attention(self, index: int, layer: Any, h: np.ndarray) -> np.ndarray:
        """The output of the attention of a layer, to be added to h [token, hidden]."""
        c, m, n = self.config, layer.mixer, len(h)
        back = np.arange(n)[:, None] - np.arange(n)  # how far behind a token another is
        mask = np.where((back >= 0) & (back < (m.window or n)), 0, -np.inf)

        def heads(x: np.ndarray, name: str, n_head: int) -> np.ndarray:
            y, norm = self.project(index, x, name).reshape(n, n_head, m.head_dim), f"blk.{index}.{name}_norm.weight"
            y = rmsnorm(y, self.w[norm], c.eps) if m.qk_norm == "before" else y
            y = rotate(y, m.rotation)
            return rmsnorm(y, self.w[norm], c.eps) if m.qk_norm == "after" else y

        x = rmsnorm(h, self.w[f"blk.{index}.attn_norm.weight"], c.eps)
        q, k = heads(x, "attn_q", m.n_head), heads(x, "attn_k", m.n_kv_head)
        v = self.project(index, x, "attn_v").reshape(n, m.n_kv_head, m.head_dim)
        k, v = (y.repeat(m.n_head // m.n_kv_head, 1) for y in (k, v))
        score = np.einsum("thd,shd->hts", q, k) * m.query_scale / m.head_dim**0.5 + mask
        mixed = np.einsum("hts,shd->thd", softmax(score), v).reshape(n, -1)
        mixed = rmsnorm(mixed, self.w[f"blk.{index}.attn_sub_norm.weight"], c.eps) if m.sub_norm else mixed
        return self.project(index, mixed, "attn_output")

    def dense(self, index: int, layer: Any, h: np.ndarray) -> np.ndarray:
        """The output of the dense feed-forward part of a layer, to be added to h [token, hidden]."""
        c, part = self.config, layer.feed_forward
        x = rmsnorm(h, self.w[f"blk.{index}.ffn_norm.weight"], c.eps)
        y = acted(part.activation, self.project(index, x, "ffn_gate")) * self.project(index, x, "ffn_up")
        y = rmsnorm(y, self.w[f"blk.{index}.ffn_sub_norm.weight"], c.eps) if part.sub_norm else y
        return self.project(index, y, "ffn_down")

    def experts(self, index: int, layer: Any, h: np.ndarray) -> np.ndarray:
        """The output of the mixture of experts of a layer, to be added to h [token, hidden]."""
        part, w = layer.feed_forward, {kind: self.w[f"blk.{index}.ffn_{kind}.weight"]
                                       for kind in ("norm", "gate_inp", "gate_exps", "up_exps", "down_exps")}
        x = rmsnorm(h, w["norm"], self.config.eps)
        p = softmax(x @ w["gate_inp"].T)
        out, x, bound = np.zeros_like(h), self.rounded(x), part.clamp or np.inf
        for t in range(len(h)):
            chosen = np.argsort(-p[t], kind="stable")[: part.n_used]  # of equals the first
            total = p[t, chosen].sum() if part.renormalise else 1.0
            for e in sorted(chosen):
                gate, up = np.minimum(w["gate_exps"][e] @ x[t], bound), np.clip(w["up_exps"][e] @ x[t], -bound, bound)
                out[t] += p[t, e] / total * (w["down_exps"][e] @ self.rounded(acted("silu", gate) * up))
        return out

    def logits(self, ids: list[int]) -> np.ndarray:
        """float64 [token, vocabulary]."""
        table = self.w.get("output.weight", self.w["token_embd.weight"])
        return self.hidden(ids) @ table.T * self.config.logit_scale
