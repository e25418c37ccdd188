"""What changes in the course of a run: learning rate, weight decay, row length, mixture, loss weights.

Everything is a function of ``progress`` in [0, 1], the share of the run that is behind.  Learning rate and decay follow
the two stages of "The Era of 1-bit LLMs: Training Tips, Code and FAQ" (microsoft/unilm, bitnet): a high rate with
decay, then from half-way a lower one towards 0 without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WARM_UP = 0.03
HALF_WAY = 0.5
SECOND_STAGE = 0.4  # the learning rate of the second stage begins at this share of the first's
WEIGHT_DECAY = 0.1

PEOPLE = ("task", "free", "small")  # sources in which people wrote to one another
EVERYTHING = {"assistant": 1.0, "user": 1.0, "system": 0.0}


def learning_rate(progress: float, peak: float) -> float:
    """Linear to ``peak`` over the warm-up, constant to half-way, then from 0.4 of it linearly to 0."""
    if progress < HALF_WAY:
        return peak * min(1.0, progress / WARM_UP)
    return peak * SECOND_STAGE * (1 - progress) / (1 - HALF_WAY)


def weight_decay(progress: float) -> float:
    return WEIGHT_DECAY if progress < HALF_WAY else 0.0


@dataclass(frozen=True)
class Phase:
    """A stretch of the run."""

    until: float  # progress at which it ends
    tokens: int  # length of a row
    mixture: Mapping[str, float]  # source -> share of the tokens
    weights: Mapping[str, float]  # role -> weight of its tokens in the loss, in what training.turns prints

    def weights_of(self, source: str) -> Mapping[str, float]:
        """Role -> weight for one source: of what people wrote to one another both sides are learned in full."""
        return EVERYTHING if source in PEOPLE else self.weights


_SPOKEN = {"assistant": 1.0, "user": 0.3, "system": 0.1}
_ANSWERS = {"assistant": 1.0, "user": 0.05, "system": 0.0}  # a little, so that people are not forgotten
#: share of the tokens by source (training.corpus)
_BROAD = {"kiosk": 0.45, "faq": 0.2, "task": 0.15, "small": 0.02, "free": 0.18}
_KIOSK = {"kiosk": 0.6, "faq": 0.3, "task": 0.05, "small": 0.01, "free": 0.04}

PHASES = (
    Phase(0.50, 384, _BROAD, _SPOKEN),
    Phase(0.76, 512, _BROAD, _SPOKEN),
    Phase(0.86, 512, _KIOSK, _ANSWERS),
    Phase(1.00, 2048, _KIOSK, _ANSWERS),
)


def phase(progress: float) -> Phase:
    return next((phase for phase in PHASES if progress < phase.until), PHASES[-1])
