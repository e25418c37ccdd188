"""compare: two rows of logits for the same next token (see compare.pyx)."""

from array import array
from typing import Any

def log_likelihoods(logits: Any, targets: Any, n_vocab: int) -> array[float]:
    """log p(target) of each row of float32 logits [n][n_vocab], in nats; targets: int32 [n]."""

def divergences(
    reference: Any, other: Any, targets: Any, n_vocab: int
) -> tuple[array[float], array[float], array[int]]:
    """Row by row: KL of other from reference, log p(target) by other, same first choice (0 or 1)."""
