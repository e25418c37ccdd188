"""heads: measures where each attention head looks, and how widely: entropy, sinks, support; classes of heads.

The attention over a cache of F32 pages that keeps everything is measured at some queries
(pyx.step.attention_rows) and averaged.
Entropy grows with the length of the text, so a class is valid only for the length at which it was measured.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edge.errors import UsageError
from lab.evaluate import Mode, segments

if TYPE_CHECKING:
    from edge.engine import Engine

MASS = 0.95
STRIDE = 32  # tokens between the queries that are looked at
#: class of a query head -> its entropy is below this many bits (limits of microsoft/BitNet PR #497, verify script)
CLASSES = {"sink": 0.5, "focused": 1.5, "moderate": 2.5, "mixed": 3.5, "diffuse": float("inf")}
#: the budgets of that pull request, shares of the context, and how far a head's differs from their mean
BUDGETS, LEAST, MOST = (0.5, 0.2, 0.1), 0.3, 2.5
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


def entropy(rows: np.ndarray) -> np.ndarray:
    """Bits of each row of attention."""
    return np.asarray(-(rows * np.log2(np.where(rows > 0, rows, 1))).sum(-1))


def support(row: np.ndarray) -> int:
    """The smallest number of tokens that hold MASS."""
    return int(np.searchsorted(np.sort(row)[::-1].cumsum(), MASS - 1e-12)) + 1


class Looking:
    """A cache of F32 pages that keeps everything, and the attention of the last token in it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.kv = engine.space.new_cache(Mode("f32", {"kv": "f32"}).plan(engine, engine.plan.n_ctx))
        self.queries = engine.model.transformer.keep_queries()

    def read(self, ids: array[int]) -> None:
        """Read tokens."""
        from pyx.step import Segment

        with self.engine.model.alone() as transformer:
            transformer.step([Segment(self.kv, ids)])

    def rows(self) -> list[np.ndarray]:
        """Of each layer float64 [n_head][n_tokens]."""
        from pyx.step import attention_rows

        return [np.array(attention_rows(self.kv, layer, self.queries)).reshape(-1, self.kv.n_tokens)
                for layer in range(len(self.engine.config.attention))]


def measure(engine: Engine, tokens: Sequence[int], sinks: int = 4) -> list[HeadFacts]:
    """Read the text in segments as long as the engine's context and measure every STRIDE-th query of the last three
    quarters.

    Raises UsageError if the text is too short.
    """
    looking, n_kv_head = Looking(engine), engine.config.n_kv_head
    seen: dict[tuple[int, int], list[tuple[float, ...]]] = {}
    pieces = segments(engine, tokens, engine.plan.n_ctx)
    longest = max(map(len, pieces))
    for piece in pieces:
        looking.kv.reset()
        for at in range(0, len(piece) - STRIDE + 1, STRIDE):
            looking.read(piece[at : at + STRIDE])
            for layer, rows in enumerate(looking.rows() if at + STRIDE > longest // 4 else ()):
                for head, own in enumerate(rows.reshape(n_kv_head, -1, rows.shape[1])):
                    bits, mean = entropy(own), own.mean(0)
                    seen.setdefault((layer, head), []).append(
                        (bits.mean(), bits.max(), mean[:sinks].sum(), support(mean)))
    if not seen:
        raise UsageError(f"the text is too short: it needs at least {2 * STRIDE} tokens")
    return [HeadFacts(layer, head, *map(float, np.mean(values, 0))) for (layer, head), values in sorted(seen.items())]


def classes(engine: Engine, tokens: Sequence[int], lengths: Sequence[int] = (32, 512, 2048)) -> dict[str, Any]:
    """Entropy of every query head at the end of texts of these lengths: PIECES of them, the last LOOKS queries of each;
    the share of the heads in each class; and what budgets by entropy save, see :func:`saved`.

    A piece begins with BOS, as prompts do.  Raises UsageError for a length that the context or the text does not reach.
    """
    looking, shares, found = Looking(engine), [], []
    for length in sorted(set(lengths)):
        if not LOOKS < length <= engine.plan.n_ctx:
            raise UsageError(f"length {length} is not from {LOOKS + 1} to the context of {engine.plan.n_ctx} tokens")
        pieces = [piece for piece in segments(engine, tokens, length) if len(piece) == length][:PIECES]
        if not pieces:
            raise UsageError(f"the text has {len(tokens)} tokens; {length} are needed")
        seen = []
        for piece in pieces:
            looking.kv.reset()
            cuts = [*range(0, length - LOOKS, engine.model.chunk), *range(length - LOOKS, length + 1)]
            for begin, end in zip(cuts, cuts[1:]):
                looking.read(piece[begin:end])
                if begin >= length - LOOKS:
                    seen.append([entropy(rows) for rows in looking.rows()])
        bits = np.mean(seen, 0)  # [n_layer][n_head]
        kinds = {place: next(kind for kind, limit in CLASSES.items() if each < limit)
                 for place, each in np.ndenumerate(bits)}
        count = [*kinds.values()].count
        shares.append({"tokens": length, **{kind: count(kind) / bits.size for kind in CLASSES},
                       "mean_bits": float(bits.mean()), "std_bits": float(bits.std()), "least": float(bits.min()),
                       "most": float(bits.max()), "variation": float(bits.std() / bits.mean())})
        found += [{"tokens": length, "layer": layer, "head": head, "bits": float(bits[layer, head]), "class": kind}
                  for (layer, head), kind in kinds.items()]
    return {"classes": shares, "saved": saved(engine, bits), "heads": found}


def saved(engine: Engine, bits: np.ndarray) -> list[dict[str, float]]:
    """Of budgets by entropy [n_layer][n_head]: the shares of an F16 cache, and of all memory with it, that become free.

    A head keeps in proportion to its entropy, a KV head as much as the largest of its query heads: ``own``.  As
    published (``flat``), every layer keeps as much as the layers' largest heads in the mean.
    """
    n = engine.plan.n_ctx
    cache = Mode("f16", {"kv": "f16"}).plan(engine, n).kv_bytes
    of_all, found = cache / (engine.plan.footprint.total + cache), []
    heads = bits.reshape(len(bits), engine.config.n_kv_head, -1).max(2) / bits.mean()
    for budget in BUDGETS:
        kept = np.minimum(np.clip(heads, LEAST, MOST) * budget, 1)
        free = {"own": float(1 - kept.mean()), "flat": float(1 - kept.max(1).mean())}
        found.append({"budget": budget, **{f"{way}_of_cache": share for way, share in free.items()},
                      **{f"{way}_of_memory": share * of_all for way, share in free.items()}})
    return found
