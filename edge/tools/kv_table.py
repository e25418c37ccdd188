"""The KV memory table of a model: the exact size for every type, context and way to drop tokens.

Each cell is computed by :class:`edge.cache.config.KVConfig` and :class:`pyx.kv.cache.KVCache`, as for loading; there is
no second formula.  Published tables multiply bytes per token by tokens; ``bytes_per_token`` is that figure (the size of
one more token once its page is sealed).  The cells also include the open page, sinks, and pages rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edge.amounts import count
from edge.cache.config import SNAPSHOTS, KVConfig, parse_kv_type
from edge.cache.plan import PAGE
from edge.cache.policy import Budget
from edge.config import ModelConfig
from edge.errors import UsageError
from edge.formats.checkpoint import Tensor
from edge.model.sizes import Weights
from pyx.kv.page import MARKS, NAMES

#: all KV types, and the usual combination of two
TYPES = (*NAMES, "int8:int4")


#: what happens when the context is full, by the first word of Row.full
WAYS = {
    "stop": "the answer ends when the context is full",
    "slide": "the oldest tokens are dropped, the first ones (sinks) stay",
    "window": "only the last tokens are kept, and the sinks",
    "budget": "each head keeps as many tokens as the file gives it",
}


@dataclass(frozen=True)
class Row:
    """One KV type and one way to drop tokens."""

    type: str
    full: str  # what happens when the context is full
    bytes_per_token: int
    bytes: dict[int, int | None]  # context -> exactly what is allocated; None where it does not fit
    share: float  # of weights, head and KV together, at the longest context
    gain: float  # decode cannot get faster than this over F16 pages at the longest context, were memory the only bound


@dataclass(frozen=True)
class Table:
    """The whole table; ``rows`` in the order of types."""

    config: ModelConfig
    weights: Weights
    contexts: tuple[int, ...]
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON values."""
        return {
            "model": self.config.name,
            "config": self.config.facts(),
            "weights": {**asdict(self.weights), "read": self.weights.read},
            "contexts": list(self.contexts),
            "rows": [asdict(row) for row in self.rows],
        }

    def lines(self) -> Iterator[str]:
        """The table as text; sizes in MB (1e6 bytes)."""
        c, w = self.config, self.weights
        layers, heads = count(c.n_layer, "layer"), count(c.n_kv_head, "key/value head")
        yield f"{c.name}: {layers}, {heads} of {c.head_dim}, trained on {c.n_ctx_train} tokens"
        yield (
            f"weights read for each token: {w.projections / 1e6:.1f} MB ternary, {w.head / 1e6:.1f} MB output head "
            f"({w.parameters / 1e6:.1f} million parameters)"
        )
        if near := [n for n in c.windows or () if n]:
            yield f"{len(near)} of {layers} see the latest {near[0]} tokens only, and keep no more of them"
        if c.recurrent_shape:
            from pyx.kv.recurrent import bytes_for

            states = bytes_for(c.recurrent_shape, SNAPSHOTS)
            yield (f"{count(len(c.recurrent), 'layer')} have a state of fixed size instead of keys and values: with "
                   f"{SNAPSHOTS} snapshots to go back to, {states / 1e6:.1f} MB of each size below")
        yield ""
        yield "Size of the KV cache in MB (1e6 bytes), by type and context length in tokens:"
        yield ""
        wide = max(len("when full"), *(len(row.full) for row in self.rows))
        contexts = "".join(f"{n:>9}" for n in self.contexts)
        yield f"{'type':<10}{'when full':<{wide}}{'B/token':>10}{contexts}{'share':>9}{'gain':>8}"
        for row in self.rows:
            cells = "".join(f"{'-' if n is None else f'{n / 1e6:.1f}':>9}" for n in row.bytes.values())
            yield (
                f"{row.type:<10}{row.full:<{wide}}{row.bytes_per_token:>10,}{cells}{row.share:>8.1%}"
                f"{row.gain:>7.2f}x"
            )
        yield ""
        for way, meaning in WAYS.items():
            if any(row.full.startswith(way) for row in self.rows):
                yield f"{way}: {meaning}"
        yield "share: how much of the memory read for each token is the KV cache, at the longest context"
        yield "gain: speed of generation at that context relative to f16, if reading memory takes all of the time"
        shown = {part for row in self.rows for part in row.type.split(":")}
        marked = [f"{name} is {mark}" for name, mark in MARKS.items() if name in shown]
        if marked:
            yield ""
            yield from marked


def bytes_per_token(config: ModelConfig, kv_type: str) -> int:
    """Bytes of one more token in all layers and heads, including scales, once its page is sealed."""
    from pyx.kv.cache import KVCache

    one, two = (
        KVCache.bytes_for(*config.kv_shape, pages * PAGE, kv_type) for pages in (1, 2)
    )
    return int(two - one) // PAGE


def default_contexts(n_ctx_train: int) -> tuple[int, ...]:
    """512, 1024, ... up to the context length of the model's training."""
    doubled = [512 << i for i in range(20) if 512 << i < n_ctx_train]
    return (*doubled, n_ctx_train)


def table(
    config: ModelConfig,
    contexts: Sequence[int] = (),
    types: Sequence[str] = TYPES,
    windows: Sequence[int] = (),
    sinks: int | None = None,
    budget: Budget | str | None = None,
    stored: str = "",
    planes: Iterable[Tensor] = (),
) -> Table:
    """Plan every combination.  ``contexts``: empty for the usual ones; ``stored``, ``planes``: see :meth:`Weights.of`.

    Raises UsageError for values that cannot be used.
    """
    contexts = tuple(sorted(set(contexts))) or default_contexts(config.n_ctx_train)
    if not types:
        raise UsageError("give at least one KV type")
    modes: list[tuple[str, dict[str, Any]]] = [("stop", {"overflow": "stop"}), ("slide", {"sinks": sinks})]
    modes += [(f"window {window}", {"window": window, "sinks": sinks}) for window in windows]
    if budget is not None:
        modes.append(("budget", {"overflow": "stop", "sinks": sinks, "kv_budget": budget}))
    weights = Weights.of(config, stored, planes)
    longest = contexts[-1]
    whole = sum(min(longest, n or longest) for n in config.windows or (0,)) // len(config.windows or (0,))
    f16 = weights.read + whole * bytes_per_token(config, "f16")
    rows = []
    for kv_type in dict.fromkeys(parse_kv_type(each) for each in types):
        for name, mode in modes:
            sizes: dict[int, int | None] = {}
            full = name
            for n_ctx in contexts:
                try:
                    plan = KVConfig(n_ctx, kv_type, **mode).plan(config)
                except UsageError:
                    if n_ctx == longest:
                        raise
                    sizes[n_ctx] = None
                    continue
                sizes[n_ctx] = plan.kv_bytes
                if plan.window:
                    full = f"{name}, {count(plan.sinks, 'sink')}"
            per_token = bytes_per_token(config, kv_type)
            attended = min(longest, plan.window + plan.sinks) if plan.window else longest
            if config.windows is not None:
                attended = sum(min(attended, n or attended) for n in config.windows) // len(config.windows)
            if plan.budgets is not None:
                kept = [min(n, longest) for row in plan.budgets for n in row]
                attended = sum(kept) // len(kept)
            read = weights.read + attended * per_token
            kv = sizes[longest] or 0
            rows.append(Row(kv_type, full, per_token, sizes, kv / (weights.read + kv), f16 / read))
    return Table(config, weights, contexts, tuple(rows))
