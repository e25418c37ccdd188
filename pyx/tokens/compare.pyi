"""compare: two rows of logits for the same next token (see compare.pyx)."""

from array import array
from typing import Any

def log_likelihoods(logits: Any, tokens: Any, n_vocab: int) -> array[float]:
    """log p(token) of each row, in nats: float64 [n]. logits: float32 [n][n_vocab]; tokens: int32 [n]."""

def divergences(
    reference: Any, other: Any, tokens: Any, n_vocab: int
) -> tuple[array[float], array[float], array[int]]:
    """For each row: KL of other from reference in nats, log p(token) by other, same first choice (0 or 1).

    reference, other: float32 [n][n_vocab]; tokens: int32 [n].  Returns float64 [n] twice, and int8 [n].
    """
