"""calibrate: measures how far each KV head looks, and divides a budget of KV pages among the heads.

On a given text, a cache of F32 pages that keeps everything shows where each head looks: the entropy of its attention,
the share of the first tokens, and the *support*: how many tokens have 95 % of it.  A plan divides a number of pages in
proportion to one of these, or by the measured cost of dropping tokens:

    uniform   every head the same
    entropy   heads that look at many tokens keep more: clamp(H / mean H, 0.3, 2.5), H the largest of the query heads
              that share a KV head; the rule in the code of microsoft/BitNet PR #497
    inverse   the inverse of that rule, with which the figures of that PR were measured
    support   in proportion to the measured support
    greedy    page by page to the head where the next pages lower the measured KL divergence most
    joint     greedy, and also chooses the element type: fewer bits and more tokens in the same bytes, if that is closer
              to the unbounded cache; one type for all heads, since all pages of a cache have one size

Entropies depend on the length of the text, so all are measured in its last three quarters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from edge.amounts import count
from edge.cache.plan import PAGE
from edge.cache.policy import VERSION, Budget
from edge.errors import UsageError
from edge.tools.fit import bytes_per_token
from lab.evaluate import Mode, Progress, Report, kv_quality
from lab.heads import MASS, HeadFacts, measure

if TYPE_CHECKING:
    from edge.engine import Engine

METHODS = ("uniform", "entropy", "inverse", "support", "greedy", "joint")
#: the types that joint chooses from
JOINT = ("int8", "int8:int4", "int4", "int4c")
BATCH = 8  # caches that are filled side by side


# ---- plans -----------------------------------------------------------------------------------------------------------


def pages_to_share(engine: Engine, keep: float) -> tuple[int, int]:
    """(pages of all heads together for the share ``keep`` of the context, the most that one head can use).

    Raises UsageError unless ``keep`` is above 0 and at most 1.
    """
    most = -(-engine.plan.n_ctx // PAGE)
    heads = len(engine.config.attention) * engine.config.n_kv_head
    if not 0 < keep <= 1:
        raise UsageError(f"the share to keep must be above 0 and at most 1, not {keep:g}")
    return max(heads, round(keep * most * heads)), most


def weights(method: str, facts: Sequence[HeadFacts]) -> list[float]:
    """The weight of each head in a budget, by a rule that needs no further measurement."""
    if method == "uniform":
        return [1.0] * len(facts)
    if method == "support":
        return [each.support for each in facts]
    mean = sum(each.entropy_max for each in facts) / len(facts)
    relative = [max(0.3, min(2.5, each.entropy_max / mean if mean > 0 else 1.0)) for each in facts]
    return relative if method == "entropy" else [1 / each for each in relative]


def share(weights: Sequence[float], total: int, most: int) -> list[int]:
    """Divide ``total`` pages among heads in proportion to their weights, each from 1 to ``most``; the sum is exact.

    Raises UsageError if that is impossible.
    """
    n = len(weights)
    if not n <= total <= n * most:
        raise UsageError(f"{total} pages cannot be shared by {n} heads of 1 to {most}")
    free = set(range(n))
    pages = [0.0] * n
    left = float(total)
    while free:  # heads that hit a bound leave with it; the others share what is left
        whole = sum(weights[i] for i in free)
        for i in free:
            pages[i] = left * weights[i] / whole if whole > 0 else left / len(free)
        low = [i for i in free if pages[i] <= 1]
        high = [i for i in free if pages[i] >= most]
        # the side with the larger need is fixed first, as in any water filling
        excess = sum(pages[i] - most for i in high) - sum(1 - pages[i] for i in low)
        fixed, bound = (high, most) if high and (excess >= 0 or not low) else (low, 1)
        if not fixed:
            break
        for i in fixed:
            pages[i] = bound
            free.discard(i)
            left -= bound
    whole_pages = [max(1, min(most, int(x))) for x in pages]
    by_rest = sorted(range(n), key=lambda i: (whole_pages[i] - pages[i], i))
    while (missing := total - sum(whole_pages)) != 0:
        step = 1 if missing > 0 else -1
        for i in by_rest if step > 0 else reversed(by_rest):
            if missing and 1 <= whole_pages[i] + step <= most:
                whole_pages[i] += step
                missing -= step
    return whole_pages


def budget(engine: Engine, pages: Sequence[int], sinks: int) -> Budget:
    """The budget in which each head keeps so many pages besides the sinks."""
    columns = engine.config.n_kv_head
    keep = [sinks + n * PAGE + 1 for n in pages]  # the largest window that so many pages serve
    rows = tuple(tuple(keep[i : i + columns]) for i in range(0, len(keep), columns))
    return Budget(rows, sinks, engine.fingerprint)


@dataclass(frozen=True)
class Plan:
    """A budget and how it was made; :meth:`to_json` is the file for ``--kv-budget`` (edge.cache.policy)."""

    budget: Budget
    method: str
    kv: str  # the KV type it was made for
    model: str
    context: int  # tokens of the segments it was measured on
    heads: tuple[HeadFacts, ...]
    text: str = "a text"

    def to_json(self) -> str:
        """The text of the file."""
        facts = {
            "version": VERSION,
            "fingerprint": self.budget.fingerprint,
            "model": self.model,
            "n_layer": len(self.budget.keep),
            "n_kv_head": len(self.budget.keep[0]),
            "context": self.context,
            "sinks": self.budget.sinks,
            "method": self.method,
            "kv": self.kv,
            "keep": self.budget.keep,
            "heads": [asdict(each) for each in self.heads],
        }
        return json.dumps(facts, indent=1) + "\n"

    def lines(self) -> list[str]:
        """The plan as a table for people."""
        out = [
            f"{self.model}: where each KV head looks, in {self.text} in segments of {self.context} tokens",
            "",
            f"{'layer':>5}{'head':>5}{'entropy':>9}{'sinks':>8}{'support':>9}{'recency':>9}{'keep':>7}",
        ]
        for each in self.heads:
            out.append(
                f"{each.layer:>5}{each.head:>5}{each.entropy:>9.2f}{each.sink_mass:>8.1%}{each.support:>9.0f}"
                f"{each.recency:>9.0f}{self.budget.keep[each.layer][each.head]:>7}"
            )
        return [
            *out,
            "",
            f"entropy: of the attention, in bits; sinks: share of it on the first {count(self.budget.sinks, 'token')}",
            f"support: number of tokens that receive {MASS:.0%} of it; recency: number of newest tokens that do so "
            "together with the first ones",
            f"keep: tokens of the KV cache that the head keeps with --kv-budget, by method {self.method} for KV type "
            f"{self.kv}",
        ]


def calibrate(
    engine: Engine,
    tokens: Sequence[int],
    keep: float = 0.25,
    method: str = "support",
    kv: str = "int8",
    sinks: int = 4,
    facts: Sequence[HeadFacts] | None = None,
    costs: Costs | None = None,
    progress: Progress | None = None,
    text: str = "a text",
) -> Plan:
    """A plan in which the heads together keep the share ``keep`` of the context, or as many bytes in another type.

    ``facts``, ``costs``: results of ``measure`` and ``forgetting`` for this text, if they exist already.

    Raises UsageError for an unknown method or a budget that cannot be shared.
    """
    total, most = pages_to_share(engine, keep)
    if method not in METHODS:
        raise UsageError(f"{method!r} is not known", argument="method", hint=f"it must be one of {', '.join(METHODS)}")
    facts = facts or measure(engine, tokens, sinks, progress)
    if method in ("greedy", "joint"):
        costs = costs or forgetting(engine, tokens, kv, sinks, progress)
        pages = greedy(costs, total)
        if method == "joint":
            pages, kv = _joint(engine, tokens, total, costs, kv, sinks)
    else:
        pages = share(weights(method, facts), total, most)
    return Plan(budget(engine, pages, sinks), method, kv, engine.config.name, engine.plan.n_ctx, tuple(facts), text)


# ---- by measured cost ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Costs:
    """The KL divergence when one head keeps few pages and all others keep everything; the costs of several heads are
    assumed to add up.
    """

    sizes: tuple[int, ...]  # pages, ascending; the last is the whole context
    kl: tuple[tuple[float, ...], ...]  # [heads of all layers][sizes]; 0 for the whole

    def at(self, head: int, pages: int) -> float:
        """The cost of a head that keeps so many pages, interpolated linearly between measurements."""
        above = next(i for i, size in enumerate(self.sizes) if size >= pages)
        high, kl = self.sizes[above], self.kl[head]
        if high == pages or above == 0:
            return kl[above]
        low = self.sizes[above - 1]
        return kl[above - 1] + (kl[above] - kl[above - 1]) * (pages - low) / (high - low)


def forgetting(
    engine: Engine, tokens: Sequence[int], kv: str = "int8", sinks: int = 4, progress: Progress | None = None
) -> Costs:
    """Measure the cost of each head alone at 1, 4, 16, ... pages."""
    most = -(-engine.plan.n_ctx // PAGE)
    n = len(engine.config.attention) * engine.config.n_kv_head
    sizes = [4**i for i in range(most.bit_length()) if 4**i < most]
    choices = [(head, size) for head in range(n) for size in sizes]
    found: dict[tuple[int, int], float] = {(head, most): 0.0 for head in range(n)}
    for at in range(0, len(choices), BATCH):
        part = choices[at : at + BATCH]
        modes = []
        for head, size in part:
            pages = [most] * n
            pages[head] = size
            modes.append(Mode(f"{head} {size}", {"kv": kv, "kv_budget": budget(engine, pages, sinks)}))
        report = kv_quality(engine, tokens, modes, against=Mode(kv, {"kv": kv}))
        found.update((choice, row.kl_mean) for choice, row in zip(part, report.rows[1:]))
        if progress:
            progress(at + len(part), len(choices))
    sizes.append(most)
    return Costs(tuple(sizes), tuple(tuple(found[head, size] for size in sizes) for head in range(n)))


def greedy(costs: Costs, total: int) -> list[int]:
    """Pages for each head, ``total`` in all; each step goes where it lowers the KL divergence most per page.

    Raises UsageError if there are too few or too many pages.
    """
    n, most = len(costs.kl), costs.sizes[-1]
    if not n <= total <= n * most:
        raise UsageError(f"{total} pages cannot be shared by {n} heads of 1 to {most}")
    pages = [1] * n
    while (left := total - sum(pages)) > 0:
        best, step, gain = -1, 0, -1.0
        for head in range(n):
            for size in costs.sizes:  # the largest step that pays most: cost curves need not be convex
                more = min(size - pages[head], left)
                if more > 0:
                    saved = max(0.0, costs.at(head, pages[head]) - costs.at(head, pages[head] + more)) / more
                    if saved > gain:
                        best, step, gain = head, more, saved
        pages[best] += step
    return pages


def _joint(
    engine: Engine, tokens: Sequence[int], total: int, costs: Costs, kv: str, sinks: int
) -> tuple[list[int], str]:
    """(pages, type) closest to F32 pages that keep everything, in the bytes of ``total`` pages of type ``kv``."""
    from pyx.kv.page import NAMES

    config, n, most = engine.config, len(costs.kl), costs.sizes[-1]
    known = [each for each in (kv, *JOINT) if set(each.split(":")) <= set(NAMES)]
    found: dict[str, list[int]] = {}
    for each in dict.fromkeys(known):
        pages = min(n * most, total * bytes_per_token(config, kv) // bytes_per_token(config, each))
        if pages >= n:
            found[each] = greedy(costs, pages)
    modes = [Mode(each, {"kv": each, "kv_budget": budget(engine, pages, sinks)}) for each, pages in found.items()]
    best = min(kv_quality(engine, tokens, modes).rows[1:], key=lambda row: row.kl_mean)
    return found[best.mode], best.mode


# ---- comparison ------------------------------------------------------------------------------------------------------


def compare(
    engine: Engine,
    tokens: Sequence[int],
    keep: float = 0.25,
    methods: Sequence[str] = METHODS,
    kv: str = "int8",
    sinks: int = 4,
    text: str = "a text",
    progress: Callable[[float, float], None] | None = None,
) -> tuple[Report, list[Plan]]:
    """Plans of the same size by every method, made from the first half of the text and compared on the second."""
    middle = len(tokens) // 2
    first, second = tokens[:middle], tokens[middle:]
    facts = measure(engine, first, sinks)
    costs = forgetting(engine, first, kv, sinks, progress) if {"greedy", "joint"} & set(methods) else None
    plans = [calibrate(engine, first, keep, method, kv, sinks, facts, costs) for method in methods]
    modes = [Mode(f"{plan.kv} {plan.method}", {"kv": plan.kv, "kv_budget": plan.budget}) for plan in plans]
    everything: list[Mode] = [Mode(f"{kv} all", {"kv": kv})]
    return kv_quality(engine, second, [*everything, *modes], text, progress), plans
