"""Softmax and its logarithm over the last axis, in float64 or wider."""

from __future__ import annotations

import numpy as np


def softmax(x: np.ndarray) -> np.ndarray:
    """Shares that sum to 1; scores of minus infinity have none."""
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def log_softmax(x: np.ndarray) -> np.ndarray:
    """The logarithm of :func:`softmax`; of float32 in float64."""
    x = x.astype(np.promote_types(x.dtype, np.float64)) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))
