"""compare: how likely rows of logits make given tokens (see compare.pyx)."""

from array import array
from typing import Any

def log_likelihoods(logits: Any, tokens: Any, n_vocab: int) -> array[float]:
    """log p(token) of each row, in nats: float64 [n]. logits: float32 [n][n_vocab]; tokens: int32 [n]."""
