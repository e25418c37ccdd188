"""calibrate: which KV heads look far, and so how to share out a budget of KV pages among them.

On given text, a cache of F32 pages that forgets nothing shows where each head looks: the entropy of its attention, how
much falls on the first tokens, and the *support*: how many tokens hold 95 % of it.  A plan shares a number of pages out
in proportion to one of these, or by what forgetting really costs:

    uniform   every head the same
    entropy   heads that look at many tokens keep more: clamp(H / mean H, 0.3, 2.5), H the largest of the query heads
              that share a KV head; the rule of microsoft/BitNet PR #497 as its code has it
    inverse   the same turned round: the direction in which that PR's figures were measured
    support   in proportion to the measured support
    greedy    page by page to the head where the next pages lower the measured KL most

Entropies depend on the length of the text, so all are taken far behind its beginning, in the last three quarters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from edge.errors import UsageError
from edge.evaluate import Mode, Progress, Report, kv_quality
from edge.heads import HeadFacts, measure
from edge.kv_config import PAGE
from edge.kv_policy import VERSION, Budget

if TYPE_CHECKING:
    from edge.engine import Engine

METHODS = ("uniform", "entropy", "inverse", "support", "greedy")
BATCH = 8  # caches that are filled side by side


# ---- plans -----------------------------------------------------------------------------------------------------------


def pages_to_share(engine: Engine, keep: float) -> tuple[int, int]:
    """(pages of all heads together that a share of the context comes to, most that one head can use)."""
    most = -(-engine.plan.n_ctx // PAGE)
    heads = engine.config.n_layer * engine.config.n_kv_head
    if not 0 < keep <= 1:
        raise UsageError(f"the share to keep is {keep:g}; it is a number above 0, up to 1")
    return max(heads, round(keep * most * heads)), most


def weights(method: str, facts: Sequence[HeadFacts]) -> list[float]:
    """How much of a budget each head gets, by a rule that needs no further measurement."""
    if method == "uniform":
        return [1.0] * len(facts)
    if method == "support":
        return [each.support for each in facts]
    mean = sum(each.entropy_max for each in facts) / len(facts)
    relative = [max(0.3, min(2.5, each.entropy_max / mean if mean > 0 else 1.0)) for each in facts]
    return relative if method == "entropy" else [1 / each for each in relative]


def share(weights: Sequence[float], total: int, most: int) -> list[int]:
    """``total`` pages over heads in proportion to their weights, each from 1 to ``most``; the sum is exact.

    Raises UsageError when that many do not fit.
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
        # the side that asks for more is settled first, as in any water filling
        excess = sum(pages[i] - most for i in high) - sum(1 - pages[i] for i in low)
        settled, bound = (high, most) if high and (excess >= 0 or not low) else (low, 1)
        if not settled:
            break
        for i in settled:
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
    """The budget in which each head has so many pages behind the sinks."""
    columns = engine.config.n_kv_head
    keep = [sinks + n * PAGE + 1 for n in pages]  # the largest window that so many pages serve
    rows = tuple(tuple(keep[i : i + columns]) for i in range(0, len(keep), columns))
    return Budget(rows, sinks, engine.fingerprint)


@dataclass(frozen=True)
class Plan:
    """A budget, and how it came about; :meth:`to_json` is the file that ``--kv-budget`` reads (edge.kv_policy)."""

    budget: Budget
    method: str
    model: str
    context: int  # tokens of the segments it was measured on
    heads: tuple[HeadFacts, ...]

    def to_json(self) -> str:
        """The file's text."""
        facts = {
            "version": VERSION,
            "fingerprint": self.budget.fingerprint,
            "model": self.model,
            "n_layer": len(self.budget.keep),
            "n_kv_head": len(self.budget.keep[0]),
            "context": self.context,
            "sinks": self.budget.sinks,
            "method": self.method,
            "keep": self.budget.keep,
            "heads": [asdict(each) for each in self.heads],
        }
        return json.dumps(facts, indent=1) + "\n"

    def lines(self) -> list[str]:
        """A table for people."""
        out = [f"{'layer':>5}{'head':>5}{'entropy':>9}{'sinks':>8}{'support':>9}{'recency':>9}{'keep':>7}"]
        for each in self.heads:
            out.append(
                f"{each.layer:>5}{each.head:>5}{each.entropy:>9.2f}{each.sink_mass:>8.1%}{each.support:>9.0f}"
                f"{each.recency:>9.0f}{self.budget.keep[each.layer][each.head]:>7}"
            )
        return out


def calibrate(
    engine: Engine,
    tokens: Sequence[int],
    keep: float = 0.25,
    method: str = "support",
    kv: str = "int8",
    sinks: int = 4,
    facts: Sequence[HeadFacts] | None = None,
    progress: Progress | None = None,
) -> Plan:
    """A plan under which the heads together keep the share ``keep`` of the context."""
    total, most = pages_to_share(engine, keep)
    if method not in METHODS:
        raise UsageError(f"method {method!r} is not known; it is one of {', '.join(METHODS)}")
    facts = facts or measure(engine, tokens, sinks, progress)
    if method == "greedy":
        pages = _greedy(engine, tokens, total, most, kv, sinks, progress)
    else:
        pages = share(weights(method, facts), total, most)
    return Plan(budget(engine, pages, sinks), method, engine.config.name, engine.plan.n_ctx, tuple(facts))


def _greedy(
    engine: Engine, tokens: Sequence[int], total: int, most: int, kv: str, sinks: int, progress: Progress | None
) -> list[int]:
    """Pages for every head, each next step taken where it lowers the KL most per page.

    The cost of a short head is measured with all others whole, at 1, 2, 4, ... pages; costs of several heads are taken
    to add up.
    """
    n = engine.config.n_layer * engine.config.n_kv_head
    sizes = [1 << i for i in range(most.bit_length()) if 1 << i < most]
    choices = [(head, size) for head in range(n) for size in sizes]
    cost: dict[tuple[int, int], float] = {(head, most): 0.0 for head in range(n)}
    for at in range(0, len(choices), BATCH):
        part = choices[at : at + BATCH]
        modes = []
        for head, size in part:
            pages = [most] * n
            pages[head] = size
            modes.append(Mode(f"{head} {size}", {"kv": kv, "kv_budget": budget(engine, pages, sinks)}))
        report = kv_quality(engine, tokens, modes)
        cost.update((choice, row.kl_mean) for choice, row in zip(part, report.rows[1:]))
        if progress:
            progress(at + len(part), len(choices))
    sizes.append(most)
    pages = [1] * n
    while True:
        best, gain = None, -1.0
        left = total - sum(pages)
        for head in range(n):
            for size in sizes:
                more = size - pages[head]
                if 0 < more <= left:
                    saved = max(0.0, cost[head, pages[head]] - cost[head, size]) / more
                    if saved > gain:
                        best, gain = (head, size), saved
        if best is None:
            break
        pages[best[0]] = best[1]
    return _fill(pages, cost, sizes, total)


def _fill(pages: list[int], cost: dict[tuple[int, int], float], sizes: list[int], total: int) -> list[int]:
    """What is left goes to heads between two sizes, the steepest first, so that every plan has the same bytes."""
    most = sizes[-1]

    def slope(head: int) -> float:
        below = max(size for size in sizes if size <= pages[head])
        above = next((size for size in sizes if size > below), below)
        return (cost[head, below] - cost[head, above]) / (above - below) if above > below else -1.0

    while sum(pages) < total:
        head = max((i for i in range(len(pages)) if pages[i] < most), key=slope)
        pages[head] += 1
    return pages


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
    """Plans of the same size by every method, made on the first half of the text and compared on the second."""
    middle = len(tokens) // 2
    first, second = tokens[:middle], tokens[middle:]
    facts = measure(engine, first, sinks)
    plans = [calibrate(engine, first, keep, method, kv, sinks, facts, progress) for method in methods]
    modes = [Mode(f"{kv} {plan.method}", {"kv": kv, "kv_budget": plan.budget}) for plan in plans]
    everything: list[Mode] = [Mode(f"{kv} all", {"kv": kv})]
    return kv_quality(engine, second, [*everything, *modes], text, progress), plans
