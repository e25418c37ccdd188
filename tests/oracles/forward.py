"""The whole forward pass of a BitNet b1.58 model, the slow and obvious way: NumPy, no cache, no shared code.

Only what the bundled model needs: I2_S matrices with one scale, F16 or F32 tables, squared ReLU, sub-norms, rotation of
half-split pairs, tied output head (transformers, models/bitnet and integrations/bitnet.py, read as formulas).
"""

from __future__ import annotations

from typing import Any

import numpy as np


def ternary(tensor: Any) -> np.ndarray:
    """float64 [out, in] of an I2_S tensor: 128 codes in 32 bytes, element 32*l + p in bits 6-2l of byte p."""
    rows, k = tensor.shape
    raw = np.frombuffer(tensor.data, np.uint8)
    codes = raw[: rows * k // 4].reshape(-1, 1, 32) >> np.array([6, 4, 2, 0], np.uint8)[:, None] & 3
    scale = raw[rows * k // 4 :][:4].view(np.float32)[0]
    return (codes.reshape(rows, k).astype(np.float64) - 1) * scale


def floats(tensor: Any) -> np.ndarray:
    """float64 values of an F16 or F32 tensor."""
    return np.frombuffer(tensor.data, {"F16": np.float16, "F32": np.float32}[tensor.type]).reshape(tensor.shape) * 1.0


def rmsnorm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def bitlinear(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Activations rounded to int8 with one scale per token, then the matrix."""
    scale = 127 / np.maximum(np.abs(x).max(-1, keepdims=True), 1e-5)
    return np.clip(np.round(x * scale), -128, 127) / scale @ weight.T


def four_bits(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Activations of BitNet a4.8 into attention and feed-forward: RoundClip(sqrt(7) / mean|x| * x, -8, 7)."""
    scale = np.sqrt(7) / (np.abs(x).mean(-1, keepdims=True) + 1e-5)
    return np.clip(np.round(x * scale), -8, 7) / scale @ weight.T


def larger_half(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """As bitlinear, of the half of the codes with the largest magnitude (a4.8 into the attention output)."""
    scale = 127 / np.maximum(np.abs(x).max(-1, keepdims=True), 1e-5)
    codes = np.clip(np.round(x * scale), -128, 127)
    median = np.sort(np.abs(codes), -1)[..., -((x.shape[-1] + 1) // 2), None]
    return np.where(np.abs(codes) >= median, codes, 0) / scale @ weight.T


def rotate(x: np.ndarray, theta: float) -> np.ndarray:
    """Rotary embedding of [token, head, D] over pairs (j, j + D/2)."""
    n, _, dim = x.shape
    angle = np.arange(n)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., : dim // 2], x[..., dim // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


class Model:
    """A checkpoint (edge.formats.open_checkpoint) as NumPy arrays."""

    def __init__(self, checkpoint: Any) -> None:
        self.config = checkpoint.config
        layer = self.config.layers[0]
        assert layer.feed_forward.activation == "relu2" and layer.mixer.sub_norm and self.config.tied
        assert set(self.config.layers) == {layer} and layer.mixer.rotation.style == "half"
        self.weight = {
            name.removesuffix(".weight"): ternary(tensor) if tensor.type == "I2_S" else floats(tensor)
            for name, tensor in checkpoint.tensors.items()
        }

    def logits(self, ids: list[int]) -> np.ndarray:
        """float64 [token, vocabulary]."""
        c, w = self.config, self.weight
        n, group, theta = len(ids), c.n_head // c.n_kv_head, c.attention[0].rotation.theta
        mask = np.where(np.tri(n), 0, -np.inf)
        a48 = c.activation_quant == "a4.8"
        inner, mixing = (four_bits, larger_half) if a48 else (bitlinear, bitlinear)
        h = w["token_embd"][ids]
        for i in range(c.n_layer):
            layer = {name.removeprefix(f"blk.{i}."): value for name, value in w.items() if name.startswith(f"blk.{i}.")}
            x = rmsnorm(h, layer["attn_norm"], c.eps)
            q = rotate(inner(x, layer["attn_q"]).reshape(n, c.n_head, c.head_dim), theta)
            k = rotate(inner(x, layer["attn_k"]).reshape(n, c.n_kv_head, c.head_dim), theta)
            v = inner(x, layer["attn_v"]).reshape(n, c.n_kv_head, c.head_dim)
            k, v = k.repeat(group, 1), v.repeat(group, 1)
            score = np.einsum("thd,shd->hts", q, k) / c.head_dim**0.5 + mask
            p = np.exp(score - score.max(-1, keepdims=True))
            mixed = np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), v).reshape(n, -1)
            h = h + mixing(rmsnorm(mixed, layer["attn_sub_norm"], c.eps), layer["attn_output"])
            x = rmsnorm(h, layer["ffn_norm"], c.eps)
            gate = np.maximum(inner(x, layer["ffn_gate"]), 0) ** 2 * inner(x, layer["ffn_up"])
            h = h + bitlinear(rmsnorm(gate, layer["ffn_sub_norm"], c.eps), layer["ffn_down"])
        return rmsnorm(h, w["output_norm"], c.eps) @ w["token_embd"].T

    def greedy(self, ids: list[int], stop: set[int], most: int) -> list[int]:
        """The likeliest continuation up to a stop token, which is not part of it."""
        said: list[int] = []
        while len(said) < most:
            token = int(self.logits([*ids, *said])[-1].argmax())
            if token in stop:
                break
            said.append(token)
        return said
