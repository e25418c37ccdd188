"""What changes during a run: learning rate, weight decay, length of the rows.

Each is a function of ``progress``, the share of the run's tokens that have been trained on, in [0, 1].  Rate and decay
follow the two stages of "The Era of 1-bit LLMs: Training Tips, Code and FAQ" (microsoft/unilm, bitnet): a high rate
with decay; from half-way a lower one, falling to 0, without decay.
"""

from __future__ import annotations

WARM_UP = 0.03
SECOND_STAGE = 0.5
SECOND_RATE = 0.4  # of the first stage's
DECAY = 0.1
LONG_ROWS = 0.85  # rows have the length of the context from here on
SHORT_ROW = 512


def learning_rate(progress: float, peak: float) -> float:
    """Linear to ``peak`` during the warm-up, constant to half-way, then from 0.4 of it linearly to 0."""
    if progress < SECOND_STAGE:
        return peak * min(1.0, progress / WARM_UP)
    return peak * SECOND_RATE * (1 - progress) / (1 - SECOND_STAGE)


def weight_decay(progress: float) -> float:
    return DECAY if progress < SECOND_STAGE else 0.0


def row_length(progress: float, n_ctx: int) -> int:
    """Tokens of a row: short ones cost less, and the last share of the run teaches the whole context."""
    return min(SHORT_ROW, n_ctx) if progress < LONG_ROWS else n_ctx
