"""Options: all that loading a model needs to know besides its path, checked once.

:func:`edge.load` explains them; commands, ``fit`` and ``embed`` make the same object, and :mod:`edge.cache.planning`
reads what decides about memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from edge.amounts import count, parse_size
from edge.errors import UsageError
from edge.settings import SETTINGS, check

DEFAULT_SINKS = 4
#: the window of policy quarter, as published: max_keep = min(128, seq_len // 4)
QUARTER = 128
#: a limit below this number of bytes is a slip: a unit is missing or wrong
A_SLIP = 1_000_000


def parse_kv_type(value: str) -> str:
    """A KV type as users write it (``int8``, ``q8_0``, ``KEYS:VALUES``) in the form of :class:`pyx.kv.KVCache`.

    Raises UsageError for an unknown type.
    """
    from pyx.kv import page_types

    try:
        return page_types(value)
    except ValueError as error:
        raise UsageError(str(error)) from None


def parse_layers(value: str | int | Sequence[int], name: str = "layers") -> tuple[int, ...]:
    """Layer numbers from 0: ``"0,3"``, one number or several.  Raises UsageError."""
    if isinstance(value, str):
        words: list[str | int] = [word.strip() for word in value.split(",") if word.strip()]
    else:
        words = [value] if isinstance(value, int) else list(value)
    if not all((isinstance(word, str) and word.isdecimal()) or (type(word) is int and word >= 0) for word in words):
        raise UsageError(f"is {value!r}", argument=name, hint="it must be a list of layers such as 0,3")
    return tuple(sorted({int(word) for word in words}))


@dataclass(frozen=True)
class Options:
    """Options of :func:`edge.load`, which explains them.

    ``kv_budget``: also a :class:`edge.cache.policy.Budget` itself.  Raises UsageError for values that are not valid or
    cannot be combined.
    """

    ctx: int | None = None
    kv: str = SETTINGS["kv"].default
    window: int = SETTINGS["window"].default
    sinks: int | None = None
    memory: str | int | None = None
    overflow: str = SETTINGS["overflow"].default
    force_memory: bool = SETTINGS["force_memory"].default
    kv_policy: str = SETTINGS["kv_policy"].default
    kv_budget: Any = None
    kv_drop_layers: str | int | Sequence[int] = ()
    kv_offload: str | None = None
    kv_offload_size: str | int = SETTINGS["kv_offload_size"].default
    parallel: int | None = None
    spare_contexts: int = SETTINGS["spare_contexts"].default
    exact: bool = SETTINGS["exact"].default
    threads: int | None = None
    head: str = SETTINGS["head"].default
    weights: str = SETTINGS["weights"].default
    isa: str | None = None
    template: str | None = None
    think: bool | None = None
    tune: bool = SETTINGS["tune"].default
    cache: bool | None = None
    i2s_layout: str = SETTINGS["i2s_layout"].default
    activation: str | None = None
    system: str | None = None
    constrained: bool = SETTINGS["constrained"].default
    reserve: int = SETTINGS["reserve"].default

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_drop_layers", parse_layers(self.kv_drop_layers, "kv_drop_layers"))
        for name in (each.name for each in fields(self) if each.name != "kv_drop_layers"):
            if name != "kv_budget" or not isinstance(self.kv_budget, tuple):
                object.__setattr__(self, name, check(name, getattr(self, name)))
        parse_kv_type(self.kv)
        if (parse_size(self.memory) or A_SLIP) < A_SLIP:
            hint = "write it like 1500M, 1.5G or 800MiB"
            raise UsageError(f"is {self.memory}, less than 1 MB", argument="memory", hint=hint)
        folder = self.kv_offload
        if folder is not None and not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
            raise UsageError(f"is {folder!r}", argument="kv_offload", hint="it must be a writable folder")
        if self.spare_contexts and self.parallel is None:
            raise UsageError("limits conversations only with parallel", argument="spare_contexts", hint="give both")
        if self.ctx is not None and self.kv_budget is None:
            self.window_in(self.ctx)

    def window_in(self, n_ctx: int, usual: int = DEFAULT_SINKS) -> tuple[int, int]:
        """(window, sinks) in a context of so many tokens; window 0: nothing is dropped.  ``usual``: the number of sinks
        unless one is set.
        """
        quarter = self.kv_policy == "quarter"
        sinks = self.sinks if self.sinks is not None else 0 if quarter else usual
        window = min(QUARTER, n_ctx) if quarter and not self.window else self.window
        if window:
            if window + sinks > n_ctx:
                both = f"{window} and {count(sinks, 'sink')} do not fit in a context of {count(n_ctx, 'token')}"
                raise UsageError(both, argument="window")
            return window, sinks
        if self.overflow == "stop":
            return 0, sinks if self.kv_budget is not None else 0
        sinks = min(sinks, n_ctx - 1) if self.sinks is None else sinks
        if sinks >= n_ctx:
            raise UsageError(f"{count(sinks, 'sink')} leave no window in a context of {count(n_ctx, 'token')}")
        return n_ctx - sinks, sinks
