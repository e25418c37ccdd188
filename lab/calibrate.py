"""calibrate: measures how far each KV head looks, and divides a budget of KV pages among the heads.

On a given text, a cache of F32 pages that keeps everything shows where each head looks: the entropy of its attention,
the share of the first tokens, and the *support*: how many tokens have 95 % of it.  A plan divides a number of pages in
proportion to one of these:

    uniform   every head the same
    entropy   heads that look at many tokens keep more: clamp(H / mean H, 0.3, 2.5), H the largest of the query heads
              that share a KV head; the rule in the code of microsoft/BitNet PR #497
    inverse   the inverse of that rule, with which the figures of that PR were measured
    support   in proportion to the measured support

Entropies depend on the length of the text, so all are measured in its last three quarters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edge.cache.plan import PAGE
from edge.cache.policy import VERSION, Budget
from edge.errors import UsageError
from lab.evaluate import Mode, kv_quality
from lab.heads import HeadFacts, measure

if TYPE_CHECKING:
    from edge.engine import Engine

METHODS = ("uniform", "entropy", "inverse", "support")


def weights(method: str, facts: Sequence[HeadFacts]) -> list[float]:
    """The weight of each head in a budget."""
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


def budget(engine: Engine, facts: Sequence[HeadFacts], keep: float, method: str, sinks: int) -> Budget:
    """The budget in which the heads together keep the share ``keep`` of the context, besides the sinks.

    Raises UsageError unless ``keep`` is above 0 and at most 1.
    """
    if not 0 < keep <= 1:
        raise UsageError(f"the share to keep must be above 0 and at most 1, not {keep:g}")
    most, columns = -(-engine.plan.n_ctx // PAGE), engine.config.n_kv_head
    pages = share(weights(method, facts), max(len(facts), round(keep * most * len(facts))), most)
    kept = [sinks + n * PAGE + 1 for n in pages]  # the largest window that so many pages serve
    rows = tuple(tuple(kept[i : i + columns]) for i in range(0, len(kept), columns))
    return Budget(rows, sinks, engine.fingerprint)


def plan(engine: Engine, tokens: Sequence[int], keep: float, method: str = "support", sinks: int = 4) -> dict[str, Any]:
    """A plan as it stands in the file for kv_budget (edge.cache.policy), and what was measured of each head."""
    facts = measure(engine, tokens, sinks)
    made = budget(engine, facts, keep, method, sinks)
    return {
        "version": VERSION,
        "fingerprint": made.fingerprint,
        "model": engine.config.name,
        "n_layer": len(made.keep),
        "n_kv_head": len(made.keep[0]),
        "context": engine.plan.n_ctx,
        "sinks": sinks,
        "method": method,
        "keep": made.keep,
        "heads": [{**asdict(each), "keep": made.keep[each.layer][each.head]} for each in facts],
    }


def compare(engine: Engine, tokens: Sequence[int], keep: float, sinks: int = 4) -> dict[str, Any]:
    """Plans of the same size by every method, made from the first half of the text and compared on the second."""
    middle = len(tokens) // 2
    facts = measure(engine, tokens[:middle], sinks)
    budgets = {method: budget(engine, facts, keep, method, sinks) for method in METHODS}
    modes = [Mode(f"int8 {method}", {"kv": "int8", "kv_budget": each}) for method, each in budgets.items()]
    return kv_quality(engine, tokens[middle:], [Mode("int8 all", {"kv": "int8"}), *modes])
