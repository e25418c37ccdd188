"""heads: measures where each attention head looks, and how widely: entropy, sinks, support; classes of heads.

The attention over a cache of F32 pages that keeps everything is measured at some queries (pyx.step.probe) and averaged.
Entropy grows with the length of the text, so a class is valid only for the length at which it was measured.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from edge.errors import UsageError
from lab.evaluate import Mode, Progress, segments

if TYPE_CHECKING:
    from edge.engine import Engine

MASS = 0.95
STRIDE = 32  # tokens between the queries that are looked at
#: class of a query head -> its entropy is below this many bits (limits of microsoft/BitNet PR #497, verify script)
CLASSES = {"sink": 0.5, "focused": 1.5, "moderate": 2.5, "mixed": 3.5, "diffuse": float("inf")}
PIECES, LOOKS = 8, 8  # pieces of text for a length, and queries at the end of each


@dataclass(frozen=True)
class HeadFacts:
    """The measurements of one KV head, averaged over positions and, unless stated otherwise, over its query heads."""

    layer: int
    head: int
    entropy: float  # bits
    entropy_max: float  # of the query head with the largest
    sink_mass: float  # on the first tokens
    support: float  # tokens that hold MASS of what the query heads look at together
    recency: float  # newest tokens that do so, without the sinks


def measure(engine: Engine, tokens: Sequence[int], sinks: int = 4, progress: Progress | None = None) -> list[HeadFacts]:
    """Read the text in segments as long as the engine's context and measure every STRIDE-th query.

    Raises UsageError if the text is too short.
    """
    from pyx.step import probe
    from pyx.step.transformer import Segment

    config = engine.config
    kv = engine.space.new_cache(Mode("f32", {"kv": "f32"}).plan(engine, engine.plan.n_ctx))
    queries = engine.model.transformer.keep_queries()
    group = config.n_head // config.n_kv_head
    seen: dict[tuple[int, int], list[tuple[float, ...]]] = {}
    pieces = segments(engine, tokens, engine.plan.n_ctx)
    longest = max(map(len, pieces))
    for number, piece in enumerate(pieces):
        kv.reset()
        for at in range(0, len(piece) - STRIDE + 1, STRIDE):
            with engine.model.alone() as transformer:
                transformer.step([Segment(kv, piece[at : at + STRIDE])])
                for layer in range(len(config.attention) if at + STRIDE > longest // 4 else 0):
                    rows = memoryview(probe.rows(kv, layer, queries))
                    n = kv.n_tokens
                    for head in range(config.n_kv_head):
                        own = [rows[i * n : (i + 1) * n] for i in range(head * group, (head + 1) * group)]
                        together = array("d", map(sum, zip(*own)))
                        facts = [probe.describe(row, sinks, MASS) for row in own]
                        mean = array("d", (mass / group for mass in together))
                        _, sunk, support, recency = probe.describe(mean, sinks, MASS)
                        entropies = [each[0] for each in facts]
                        seen.setdefault((layer, head), []).append(
                            (sum(entropies) / group, max(entropies), sunk, support, recency)
                        )
            if progress:
                progress(number + at / len(piece), len(pieces))
    if not seen:
        raise UsageError(f"the text is too short: it needs at least {2 * STRIDE} tokens")
    return [
        HeadFacts(layer, head, *(sum(column) / len(values) for column in zip(*values)))
        for (layer, head), values in sorted(seen.items())
    ]


# ---- classes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """How widely one query head attends at the end of texts of one length."""

    layer: int
    head: int
    length: int  # tokens
    entropy: float  # bits
    sink_mass: float  # on the first tokens
    support: float  # tokens that hold MASS

    @property
    def kind(self) -> str:
        """The class: sink, focused, moderate, mixed or diffuse."""
        return next(name for name, limit in CLASSES.items() if self.entropy < limit)


@dataclass(frozen=True)
class Looks:
    """The measurements of all query heads at all lengths."""

    model: str
    rows: tuple[Look, ...]
    text: str = "a text"

    @property
    def lengths(self) -> list[int]:
        """The lengths in ascending order."""
        return sorted({row.length for row in self.rows})

    def share(self, kind: str, length: int) -> float:
        """The share of query heads that are in a class at a length."""
        here = [row for row in self.rows if row.length == length]
        return sum(row.kind == kind for row in here) / len(here)

    def to_dict(self) -> dict[str, Any]:
        """The measurements as JSON values."""
        shares = {n: {kind: self.share(kind, n) for kind in CLASSES} for n in self.lengths}
        rows = [{**asdict(row), "kind": row.kind} for row in self.rows]
        return {"model": self.model, "text": self.text, "classes": shares, "heads": rows}

    def lines(self) -> Iterator[str]:
        """As text: the classes, then every head."""
        lengths = self.lengths
        yield f"{self.model}: how widely each query head attends, at the end of pieces of {self.text}"
        yield ""
        yield f"{'tokens':>8}" + "".join(f"{kind:>10}" for kind in CLASSES) + f"{'mean bits':>11}{'on sinks':>10}"
        for n in lengths:
            here = [row for row in self.rows if row.length == n]
            bits, sunk = (sum(values) / len(here) for values in zip(*((row.entropy, row.sink_mass) for row in here)))
            shares = "".join(f"{self.share(kind, n):>10.0%}" for kind in CLASSES)
            yield f"{n:>8}{shares}{bits:>11.2f}{sunk:>10.1%}"
        yield ""
        yield (f"{'layer':>5}{'head':>5}" + "".join(f"{n:>9}{'':10}" for n in lengths)).rstrip()
        heads = sorted({(row.layer, row.head) for row in self.rows})
        by_place = {(row.layer, row.head, row.length): row for row in self.rows}
        for layer, head in heads:
            here = [by_place[layer, head, n] for n in lengths]
            yield f"{layer:>5}{head:>5}" + "".join(f"{row.entropy:>9.2f} {row.kind:<9}" for row in here).rstrip()
        yield ""
        yield "first table: tokens: length of the pieces; share of the heads in each class; mean bits: entropy of their"
        yield "attention; on sinks: share of their attention on the first tokens"
        yield "second table: entropy of each head's attention in bits, and its class, for each length"
        limits = ", ".join(f"{kind} below {limit:g}" for kind, limit in CLASSES.items() if limit < float("inf"))
        yield f"classes by entropy in bits: {limits}, else {list(CLASSES)[-1]}"


def classes(
    engine: Engine,
    tokens: Sequence[int],
    lengths: Sequence[int] = (32, 512, 2048),
    sinks: int = 4,
    progress: Progress | None = None,
    text: str = "a text",
) -> Looks:
    """Entropy of every query head at the end of texts of these lengths: PIECES of them, the last LOOKS queries of each.

    A piece begins with BOS, as prompts do.  Raises UsageError for a length that the context or the text does not reach.
    """
    from pyx.step import probe
    from pyx.step.transformer import Segment

    config = engine.config
    pieces = {}
    for length in sorted(set(lengths)):
        if not LOOKS < length <= engine.plan.n_ctx:
            raise UsageError(f"length {length} is not from {LOOKS + 1} to the context of {engine.plan.n_ctx} tokens")
        pieces[length] = [piece for piece in segments(engine, tokens, length) if len(piece) == length][:PIECES]
        if not pieces[length]:
            raise UsageError(f"the text has {len(tokens)} tokens; {length} are needed")
    kv = engine.space.new_cache(Mode("f32", {"kv": "f32"}).plan(engine, engine.plan.n_ctx))
    queries = engine.model.transformer.keep_queries()
    rows, done, todo = [], 0, sum(map(len, pieces.values()))
    for length, texts in pieces.items():
        seen: dict[tuple[int, int], list[tuple[float, float, int]]] = {}
        for piece in texts:
            kv.reset()
            cuts = [*range(0, length - LOOKS, engine.model.chunk), *range(length - LOOKS, length + 1)]
            for begin, end in zip(cuts, cuts[1:]):
                with engine.model.alone() as transformer:
                    transformer.step([Segment(kv, piece[begin:end])])
                    for layer in range(len(config.attention) if begin >= length - LOOKS else 0):
                        looks = memoryview(probe.rows(kv, layer, queries))
                        for head in range(config.n_head):
                            bits, sunk, support, _ = probe.describe(looks[head * end : (head + 1) * end], sinks, MASS)
                            seen.setdefault((layer, head), []).append((bits, sunk, support))
            done += 1
            if progress:
                progress(done, todo)
        rows += [
            Look(layer, head, length, *(sum(column) / len(values) for column in zip(*values)))
            for (layer, head), values in sorted(seen.items())
        ]
    return Looks(config.name, tuple(rows), text)
