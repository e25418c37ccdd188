"""Attention the slow and obvious way: NumPy float64 over exactly the tokens a cache should attend.

Page bytes are decoded from the layouts written in pyx/kernels/kernels.h, not with the project's code.
"""

from __future__ import annotations

import numpy as np

PAGE = 32


def kept(pos: int, window: int, sinks: int) -> np.ndarray:
    """Positions attended by the query at pos: sinks and the last `window` tokens, everything when window is 0."""
    t = np.arange(pos + 1)
    return t if not window else t[(t < sinks) | (t > pos - window)]


def attend(q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """q [n_head][D], keys and values [n][n_kv_head][D] -> [n_head][D]; q carries 1/sqrt(D) already."""
    group = q.shape[0] // keys.shape[1]
    out = np.empty(q.shape)
    for head in range(q.shape[0]):
        scores = keys[:, head // group].astype(np.float64) @ q[head].astype(np.float64)
        p = np.exp(scores - scores.max())
        out[head] = (p / p.sum()) @ values[:, head // group].astype(np.float64)
    return out


def decode_page(data: bytes, kind: str, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values [32][D] of one page as float64."""
    if kind in ("f16", "f32"):
        flat = np.frombuffer(data, np.float16 if kind == "f16" else np.float32).astype(np.float64)
        half = PAGE * head_dim
        return flat[:half].reshape(head_dim, PAGE).T, flat[half : 2 * half].reshape(PAGE, head_dim)
    n = PAGE * head_dim
    codes = [np.frombuffer(data, np.int8, n, at).astype(np.float64) for at in (0, n + 2 * PAGE)]
    scales = [np.frombuffer(data, np.float16, PAGE, at + n).astype(np.float64) for at in (0, n + 2 * PAGE)]
    k = codes[0].reshape(head_dim // 4, PAGE, 4).transpose(1, 0, 2).reshape(PAGE, head_dim)
    v = codes[1].reshape(PAGE // 4, head_dim, 4).transpose(0, 2, 1).reshape(PAGE, head_dim)
    return k * scales[0][:, None], v * scales[1][:, None]
