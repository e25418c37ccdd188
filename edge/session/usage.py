"""Usage and Timings of a call, the line that prints both (docs/contract.md, stats_line), and the use of the context."""

from __future__ import annotations

from dataclasses import dataclass

from edge.amounts import human
from edge.cache.plan import Plan


@dataclass(frozen=True)
class Usage:
    """Token counts of the last call: prompt, of these found in the KV cache; generated."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0


@dataclass(frozen=True)
class Timings:
    """Seconds of the last call, without the time that the caller spends between pieces."""

    prompt_seconds: float = 0.0  # evaluating what was not cached
    first_token_seconds: float = 0.0  # from the start of the call to the first token
    decode_seconds: float = 0.0  # from the first token to the last


@dataclass(frozen=True)
class ContextUse:
    """The use of the context, in tokens."""

    used: int  # attended now
    free: int
    sinks: int  # of the used ones, pinned at the beginning
    evicted: int  # seen, but slid out of the window
    left_out: int  # oldest messages that are not part of the prompt any more


def stats_line(usage: Usage, timings: Timings, plan: Plan, rss: int, evicted: int = 0) -> str:
    """One call in one line of fixed format.  ``rss``: bytes of this process in memory now; ``evicted`` tokens are shown
    if there are any.
    """
    read = _rate(usage.prompt - usage.cached, timings.prompt_seconds)
    wrote = _rate(usage.completion - 1, timings.decode_seconds)  # the first token comes out of the prompt
    return (
        f"prompt {usage.prompt} tok ({usage.cached} cached) {read:.1f} t/s"
        f" | answer {usage.completion} tok {wrote:.1f} t/s"
        f" | first {timings.first_token_seconds:.1f} s"
        f" | kv {plan.n_ctx}/{plan.kv_type} {human(plan.kv_bytes)}"
        + (f", {evicted} dropped" if evicted else "")
        + f" | rss {human(rss)} of {human(plan.total_bytes)} planned"
    )


def _rate(n: int, seconds: float) -> float:
    return n / seconds if n > 0 and seconds > 0 else 0.0
