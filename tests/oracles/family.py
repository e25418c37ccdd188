"""Forward passes of every family of models that is run, the slow and obvious way: NumPy in float64, no cache.

Written from the reference implementations in transformers (models/llama, qwen3, hunyuan_v1_dense, bitnet, gemma3,
minicpm's own code and integrations/bitnet.py), read as formulas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


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


def angles(config: Any, n: int) -> np.ndarray:
    """Turns in radians [n][rope_dim / 2] before multipliers."""
    c, half = config, config.rope_dim // 2
    inv_freq = c.rope_theta ** (-np.arange(0, c.rope_dim, 2) / c.rope_dim)
    s = c.rope_scaling
    if s is not None and s.kind == "factors":
        inv_freq = inv_freq / np.array(s.factors)
    elif s is not None and s.kind == "llama3":
        wavelength = 2 * np.pi / inv_freq
        smooth = (s.n_ctx_orig / wavelength - s.low_freq) / (s.high_freq - s.low_freq)
        medium = (1 - smooth) * inv_freq / s.factor + smooth * inv_freq
        slow, fast = wavelength > s.n_ctx_orig / s.low_freq, wavelength < s.n_ctx_orig / s.high_freq
        inv_freq = np.where(slow, inv_freq / s.factor, np.where(fast, inv_freq, medium))
    elif s is not None:
        bounds = [c.rope_dim * np.log(s.n_ctx_orig / (turns * 2 * np.pi)) / (2 * np.log(c.rope_theta))
                  for turns in (s.beta_fast, s.beta_slow)]
        low, high = max(np.floor(bounds[0]), 0), min(np.ceil(bounds[1]), c.rope_dim - 1)
        ramp = np.clip((np.arange(half) - low) / max(high - low, 0.001), 0, 1)
        inv_freq = inv_freq / s.factor * ramp + inv_freq * (1 - ramp)
    return np.arange(n)[:, None] * inv_freq / c.rope_scale


def rotate(x: np.ndarray, config: Any) -> np.ndarray:
    """Rotary embedding of [token, head, D] over pairs (j, j + r/2) or (2j, 2j + 1) of the first r dimensions."""
    turn = angles(config, len(x))
    mscale = config.rope_scaling.mscale if config.rope_scaling else 1.0
    cos, sin = np.cos(turn)[:, None] * mscale, np.sin(turn)[:, None] * mscale
    r, out = config.rope_dim, x.copy()
    if config.rope_style == "interleaved":
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
        """float64 [token, hidden], behind the last norm."""
        c, w, n = self.config, self.w, len(ids)
        group = c.n_head // c.n_kv_head
        back = np.arange(n)[:, None] - np.arange(n)  # how far behind a token another is
        h = w["token_embd.weight"][ids] * c.embedding_scale
        for i in range(c.n_layer):
            window = c.windows[i] if c.windows else 0
            turned = c
            if window:
                turned = dataclasses.replace(c, rope_theta=c.sliding.theta, rope_scale=1.0, rope_scaling=None)
            mask = np.where((back >= 0) & (back < (window or n)), 0, -np.inf)

            def of(name: str, index: int = i) -> np.ndarray | None:
                return w.get(f"blk.{index}.{name}")

            def project(x: np.ndarray, name: str) -> np.ndarray:
                if of(f"{name}_norm_in.weight") is not None:
                    x = rmsnorm(x, of(f"{name}_norm_in.weight"), c.inner_eps)
                y = self.rounded(x) @ of(f"{name}.weight").T
                return y if of(f"{name}.bias") is None else y + of(f"{name}.bias")

            def heads(x: np.ndarray, name: str, n_head: int, turned: Any = turned) -> np.ndarray:
                y, norm = project(x, name).reshape(n, n_head, c.head_dim), of(f"{name}_norm.weight")
                y = rmsnorm(y, norm, c.eps) if c.qk_norm == "before" else y
                y = rotate(y, turned)
                return rmsnorm(y, norm, c.eps) if c.qk_norm == "after" else y

            x = rmsnorm(h, of("attn_norm.weight"), c.eps)
            q, k = heads(x, "attn_q", c.n_head), heads(x, "attn_k", c.n_kv_head)
            v = project(x, "attn_v").reshape(n, c.n_kv_head, c.head_dim)
            k, v = k.repeat(group, 1), v.repeat(group, 1)
            score = np.einsum("thd,shd->hts", q, k) * c.query_scale / c.head_dim**0.5 + mask
            p = np.exp(score - score.max(-1, keepdims=True))
            mixed = np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), v).reshape(n, -1)
            mixed = rmsnorm(mixed, of("attn_sub_norm.weight"), c.eps) if c.sub_norm else mixed
            y = project(mixed, "attn_output")
            h = h + (rmsnorm(y, of("post_attention_norm.weight"), c.eps) if c.post_norm else y) * c.residual_scale
            x = rmsnorm(h, of("ffn_norm.weight"), c.eps)
            y = acted(c.activation, project(x, "ffn_gate")) * project(x, "ffn_up")
            y = rmsnorm(y, of("ffn_sub_norm.weight"), c.eps) if c.sub_norm else y
            y = project(y, "ffn_down")
            h = h + (rmsnorm(y, of("post_ffw_norm.weight"), c.eps) if c.post_norm else y) * c.residual_scale
        return rmsnorm(h, w["output_norm.weight"], c.eps)

    def logits(self, ids: list[int]) -> np.ndarray:
        """float64 [token, vocabulary]."""
        table = self.w.get("output.weight", self.w["token_embd.weight"])
        return self.hidden(ids) @ table.T * self.config.logit_scale
