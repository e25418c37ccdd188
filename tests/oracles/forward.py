"""The forward pass of family.py from the bytes of a BitNet b1.58 file, the slow and obvious way: NumPy, no cache.

Only what the bundled model needs: I2_S matrices with one scale, F16 or F32 tables; activations in int8, or as BitNet
a4.8 has them (arXiv 2411.04965).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles import family


def ternary(tensor: Any) -> np.ndarray:
    """float64 [out, in] of an I2_S tensor: 128 codes in 32 bytes, element 32*l + p in bits 6-2l of byte p."""
    rows, k = tensor.shape
    raw = np.frombuffer(tensor.data, np.uint8)
    codes = raw[: rows * k // 4].reshape(-1, 1, 32) >> np.array([6, 4, 2, 0], np.uint8)[:, None] & 3
    scale = raw[rows * k // 4 :][:4].view(np.float32)[0]
    return (codes.reshape(rows, k).astype(np.float64) - 1) * scale


def floats(tensor: Any) -> np.ndarray:
    """float64 values of an F16 or F32 tensor."""
    stored = np.frombuffer(tensor.data, {"F16": np.float16, "F32": np.float32}[tensor.type])
    return stored.reshape(tensor.shape).astype(np.float64)


def four_bits(x: np.ndarray) -> np.ndarray:
    """Activations of BitNet a4.8 into attention and feed-forward: RoundClip(sqrt(7) / mean|x| * x, -8, 7)."""
    scale = np.sqrt(7) / (np.abs(x).mean(-1, keepdims=True) + 1e-5)
    return np.clip(np.round(x * scale), -8, 7) / scale


def larger_half(x: np.ndarray) -> np.ndarray:
    """As int8, of the half of the values with the largest magnitude (a4.8 into the attention output)."""
    rounded = family.int8(x)
    median = np.sort(np.abs(rounded), -1)[..., -((x.shape[-1] + 1) // 2), None]
    return np.where(np.abs(rounded) >= median, rounded, 0)


class Model(family.Model):
    """A checkpoint (edge.formats.open_checkpoint) as NumPy arrays."""

    def __init__(self, checkpoint: Any) -> None:
        super().__init__(checkpoint.config, {
            name: ternary(tensor) if tensor.type == "I2_S" else floats(tensor)
            for name, tensor in checkpoint.tensors.items()
        }, "int8")

    def project(self, index: int, x: np.ndarray, name: str) -> np.ndarray:
        if self.config.activation_quant == "a4.8" and name != "ffn_down":
            rounded = larger_half(x) if name == "attn_output" else four_bits(x)
            return rounded @ self.w[f"blk.{index}.{name}.weight"].T
        return super().project(index, x, name)

    def greedy(self, ids: list[int], stop: set[int], most: int) -> list[int]:
        """The likeliest continuation up to a stop token, which is not part of it."""
        said: list[int] = []
        while len(said) < most:
            token = int(self.logits([*ids, *said])[-1].argmax())
            if token in stop:
                break
            said.append(token)
        return said
