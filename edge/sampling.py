"""Sampling: how the next token is chosen, validated; :class:`pyx.tokens.Sampler` does the work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from reprlib import repr as short
from typing import Any

from edge.errors import UsageError
from edge.settings import SETTINGS, check


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.  The filters are applied in the order of llama.cpp:

    repeat_penalty, presence_penalty, frequency_penalty: of tokens among the last ``repeat_last_n``, including the
        prompt (0: none, -1: all); 1, 0 and 0 turn them off.
    top_k: keep the likeliest k tokens; 0 or -1: all.
    top_p: keep the likeliest tokens until their probabilities add up to this; 1: all.
    min_p: keep tokens with at least this share of the probability of the likeliest; 0: all.
    temperature: below 1 prefers likely tokens, above 1 unlikely ones; 0: always the likeliest.

    ``seed``: of the random numbers; None or -1: random.  Raises UsageError for values out of range.
    """

    temperature: float = SETTINGS["temperature"].default
    top_k: int = SETTINGS["top_k"].default
    top_p: float = SETTINGS["top_p"].default
    min_p: float = SETTINGS["min_p"].default
    repeat_penalty: float = SETTINGS["repeat_penalty"].default
    repeat_last_n: int = SETTINGS["repeat_last_n"].default
    presence_penalty: float = SETTINGS["presence_penalty"].default
    frequency_penalty: float = SETTINGS["frequency_penalty"].default
    seed: int | None = None

    def __post_init__(self) -> None:
        for field in FIELDS:
            object.__setattr__(self, field, check(field, getattr(self, field)))
        for field, value in (("top_k", 0), ("seed", None)):  # as llama.cpp and Ollama write them
            if getattr(self, field) == -1:
                object.__setattr__(self, field, value)

    def reseeded(self, n: int) -> Sampling:
        """The same with another seed, for the ``n``-th of several answers; with the same one for 0, or if it is
        random.
        """
        seed = self.seed
        return self if not n or seed is None else replace(self, seed=seed + n if seed >= 0 else seed - n)

    @property
    def penalises(self) -> bool:
        """True if the choice depends on recent tokens."""
        neutral = math.isclose(self.repeat_penalty, 1.0, abs_tol=0.0, rel_tol=1e-12)
        return self.repeat_last_n != 0 and not (neutral and not self.presence_penalty and not self.frequency_penalty)

    @property
    def winners(self) -> int:
        """Number of largest logits that decide the next token, before penalties; 0 if all may.

        These are the first ``top_k`` (greedy: the first) after the penalties.  Penalties that only subtract move at
        most the ``repeat_last_n`` recent tokens after others, so that many more logits are enough.
        """
        first = self.top_k if self.temperature > 0 else 1
        if not first or not self.penalises:
            return first
        lowers = self.repeat_penalty >= 1 and self.presence_penalty >= 0 and self.frequency_penalty >= 0
        return first + self.repeat_last_n if lowers and self.repeat_last_n > 0 else 0


#: the names of the settings
FIELDS = tuple(field.name for field in fields(Sampling))


def recommended(keys: Mapping[str, str], values: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The settings that a model file recommends, as field -> value.

    ``keys``: field of Sampling -> its key among ``values``, which are not trusted.  A value that is not valid is
    ignored, and ``notes`` gets a line about it: the model runs as well without.
    """
    found: dict[str, Any] = {}
    for field, key in keys.items():
        value: Any = values.get(key)
        if isinstance(value, float):
            whole = SETTINGS[field].kind == "whole" and value.is_integer()
            value = int(value) if whole else float(f"{value:.7g}")  # the digits that float32, as in GGUF, has
        if value is None:
            continue
        try:
            replace(Sampling(), **{field: value})
        except UsageError:
            notes.append(f"{key} is {short(value)}, which is not a valid recommendation, and is ignored")
        else:
            found[field] = value
    return found

