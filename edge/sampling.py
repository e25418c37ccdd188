"""Sampling: how the next token is chosen, validated; :mod:`pyx.tokens.sampler` does the work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from reprlib import repr as short
from typing import Any

from edge.errors import UsageError

#: field -> (least, most); NaN and infinities are always refused
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 5.0),
    "top_k": (-1, 1 << 31),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repeat_penalty": (0.01, 100.0),
    "repeat_last_n": (-1, 1 << 20),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
}
_WHOLE = ("top_k", "repeat_last_n")
RANDOM = -1  # a seed that stands for none


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

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for field, other, value in (("top_k", -1, 0), ("seed", RANDOM, None)):  # as llama.cpp and Ollama write them
            if type(getattr(self, field)) is int and getattr(self, field) == other:
                object.__setattr__(self, field, value)
        for field, (least, most) in _RANGES.items():
            value = getattr(self, field)
            kind = int if field in _WHOLE else (int, float)
            if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
                what = "a whole number" if field in _WHOLE else "a number"
                hint = f"it must be {what} from {least:.10g} to {most:.10g}"
                raise UsageError(f"is {short(value)}", argument=field, hint=hint)
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise UsageError(f"is {short(self.seed)}", argument="seed", hint="it must be a whole number")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Sampling:
        """The preset ``precise`` (greedy), ``balanced`` or ``creative``, with ``changes`` to single values.

        Raises UsageError for another name.
        """
        if name not in PRESETS:
            raise UsageError(f"preset {name!r} is not known; there are {', '.join(PRESETS)}")
        return replace(PRESETS[name], **changes)

    def reseeded(self, n: int) -> Sampling:
        """The same with another seed, for the ``n``-th of several answers; with the same one for 0, or if it is
        random.
        """
        seed = self.seed
        return self if not n or seed is None else replace(self, seed=seed + n if seed >= 0 else seed - n)

    @property
    def penalises(self) -> bool:
        """Whether the choice depends on recent tokens."""
        neutral = math.isclose(self.repeat_penalty, 1.0, abs_tol=0.0, rel_tol=1e-12)
        return self.repeat_last_n != 0 and not (neutral and not self.presence_penalty and not self.frequency_penalty)

    @property
    def winners(self) -> int:
        """Number of largest logits that decide the next token, before penalties; 0 if all may.

        These are the first ``top_k`` (greedy: the first) after the penalties.  Penalties that only subtract move at
        most the ``repeat_last_n`` recent tokens behind others, so that many more logits are enough.
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
            whole = field in _WHOLE and value.is_integer()
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


#: small models repeat themselves: the more varied presets counteract that
PRESETS = {
    "precise": Sampling(temperature=0.0),
    "balanced": Sampling(temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, repeat_penalty=1.1),
    "creative": Sampling(temperature=1.0, top_k=0, top_p=0.95, min_p=0.05, repeat_penalty=1.1),
}
