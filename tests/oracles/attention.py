"""Attention the slow and obvious way: NumPy float64 over exactly the tokens a cache should attend."""

from __future__ import annotations

import numpy as np

PAGE = 32


def softmax(x: np.ndarray) -> np.ndarray:
    """Shares that sum to 1; scores of minus infinity have none."""
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def log_softmax(x: np.ndarray) -> np.ndarray:
    """The logarithm of :func:`softmax`; of float32 in float64."""
    x = x.astype(np.promote_types(x.dtype, np.float64)) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def kept(pos: int, window: int, sinks: int) -> np.ndarray:
    """Positions attended by the query at pos: sinks and the last `window` tokens, everything when window is 0."""
    t = np.arange(pos + 1)
    return t if not window else t[(t < sinks) | (t > pos - window)]


def turned(x: np.ndarray, theta: float, r: int) -> np.ndarray:
    """x [token][head][D] with its rotation: pairs (j, j + r/2) of the first r dimensions."""
    turn = np.arange(len(x))[:, None, None] * theta ** (-np.arange(0, r, 2) / r)
    a, b = x[..., : r // 2], x[..., r // 2 : r]
    return np.concatenate([a * np.cos(turn) - b * np.sin(turn), b * np.cos(turn) + a * np.sin(turn), x[..., r:]], -1)


def attend(q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """q [n_head][D], keys and values [n][n_kv_head][D] -> [n_head][D]; q carries 1/sqrt(D) already."""
    group = q.shape[0] // keys.shape[1]
    out = np.empty(q.shape)
    for head in range(q.shape[0]):
        scores = keys[:, head // group].astype(np.float64) @ q[head].astype(np.float64)
        out[head] = softmax(scores) @ values[:, head // group].astype(np.float64)
    return out
