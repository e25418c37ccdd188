"""sampler: one row of logits -> one token id (see sampler.pyx)."""

from array import array
from typing import Any

class Sampler:
    """Turns rows of n_vocab logits into ids; xoshiro256** seeded through splitmix64.  One thread at a time."""

    n_vocab: int
    state: tuple[int, int, int, int]  # the random state; assignable
    def __init__(self, n_vocab: int, seed: int = 0, unused: Any = None) -> None: ...
    def reseed(self, seed: int) -> None: ...
    def uniform(self) -> float: ...
    def sample(
        self,
        logits: Any,  # writable float32 buffer [n_vocab]; mask and penalties change it in place
        temp: float = 0.0,  # <= 0: the first arg-max
        top_k: int = 0,  # 0: all
        top_p: float = 1.0,  # >= 1: all
        min_p: float = 0.0,  # 0: all
        repeat_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        recent: Any = None,  # int32 buffer [n] of the ids that the penalties count
        mask: Any = None,  # bytes [(n_vocab + 7) // 8], one bit per token: the tokens that may be chosen
    ) -> int:
        """One id.  Raises ValueError for a wrong length, or if no logit is usable."""
    def candidates(
        self,
        logits: Any,
        temp: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repeat_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        recent: Any = None,
    ) -> tuple[array[int], array[float]]:
        """The candidates that ``sample`` would choose from, in its order: ids int32 [m], probabilities float64 [m]."""
