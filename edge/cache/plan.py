"""Plan: the exact memory that the KV cache and the process need, computed before anything is allocated
(edge/cache/planning.py).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from edge.amounts import count, human
from edge.model.footprint import Footprint
from edge.options import DEFAULT_SINKS

PAGE = 32


@dataclass(frozen=True)
class CacheShape:
    """Arguments of :class:`pyx.kv.KVCache` after the model's shape: what a cache can hold, and what it drops."""

    n_ctx: int
    kv_type: str
    window: int = 0  # 0: everything up to n_ctx is kept
    sinks: int = 0
    budgets: tuple[tuple[int, ...], ...] | None = None  # tokens kept, for each layer and KV head
    policy: str = "recent"  # which tokens go when room is needed
    spare: int = 0  # additional pages, so that an undo can go back
    windows: tuple[int, ...] | None = None  # of the model itself: tokens that each layer sees at most, 0: all
    recurrent: tuple[int, int, int, int, int] | None = None  # of its gated delta layers, see ModelConfig
    snapshots: int = 0  # earlier states of these that a session keeps

    @property
    def cache(self) -> dict[str, Any]:
        """These arguments by name."""
        return {each.name: getattr(self, each.name) for each in fields(CacheShape)}


@dataclass(frozen=True)
class Plan(CacheShape):
    """The memory plan: the KV cache of a session, and the memory of the process with all planned sessions."""

    kv_bytes: int = 0  # of one context
    overflow: str = "slide"
    footprint: Footprint = Footprint()
    head: str = "auto"  # type of the output head
    place: str = "map"  # of the weights, see edge.machine.placement
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # those of the notes that concern the answers: to be seen unasked
    limit: int | None = None  # bytes that the whole process may take
    offload: tuple[str, int] | None = None  # folder and bytes of a file for each session: pages that left the window
    parallel: int | None = None  # contexts held at the same time; None: one is planned, and more may be
    waiting_bytes: int = 0  # for conversations that wait to be continued; with a limit, they take what it leaves

    @property
    def room(self) -> int | None:
        """Most bytes for the KV pages of all sessions together; None: limited only by each session's own cache."""
        if self.limit is not None:
            return max(0, self.limit - self.footprint.total - (self.sessions - self.kv_total))
        return None if self.parallel is None else self.kv_total + self.waiting_bytes

    @property
    def kept_whole(self) -> int:
        """Number of tokens up to which no layer and no head drops any."""
        budgets = [n for row in self.budgets or () for n in row]
        return min([self.n_ctx, self.window or self.n_ctx, *filter(None, self.windows or ()), *budgets])

    @property
    def total_bytes(self) -> int:
        """Resident bytes of the process once all planned sessions have been used."""
        return self.footprint.total + self.sessions + self.waiting_bytes

    @property
    def least_bytes(self) -> int:
        """The same with as few experts in memory as possible."""
        return self.total_bytes - self.footprint.experts + self.footprint.least_experts

    @property
    def sessions(self) -> int:
        """Bytes of all planned sessions: KV caches, and logits and samplers of those beyond the first."""
        return self.kv_total + ((self.parallel or 1) - 1) * self.footprint.session

    @property
    def kv_total(self) -> int:
        """Bytes of the KV caches of all planned sessions."""
        return self.kv_bytes * (self.parallel or 1)

    def read_at(self, depth: float) -> float:
        """Bytes of keys, values and states that a token after ``depth`` others reads."""
        from pyx.kv import recurrent_bytes

        held, state = self.kv_bytes, 0
        if self.recurrent:
            held -= recurrent_bytes(self.recurrent, self.snapshots)
            state = recurrent_bytes(self.recurrent, -1)  # of the latest two, the one it continues
        return state + held * min(1.0, depth / self.n_ctx)

    def lines(self) -> list[str]:
        """The plan as a table, one text per row."""
        f = self.footprint
        ring = ""
        if self.window + self.sinks < self.n_ctx and self.window:
            ring = f", window {self.window}, sinks {self.sinks}"
        elif self.window and self.sinks > DEFAULT_SINKS:
            ring = f", the first {self.sinks} are never dropped"
        ring += f", policy {self.policy}" if self.policy != "recent" else ""
        ring += f", budgets of {min(map(min, self.budgets))} to {max(map(max, self.budgets))}" if self.budgets else ""
        if self.windows:
            near = [n for n in self.windows if n]
            ring += f"; {len(near)} of {len(self.windows)} layers keep {near[0]}"
        if self.recurrent:
            ring += f"; states of {count(self.recurrent[0], 'layer')} with {self.snapshots} snapshots"
        several = f"{self.parallel} contexts of " if self.parallel and self.parallel > 1 else ""
        rows = [
            ("weights", f.mapped, "mapped from the file"),
            ("weights", f.allocated, "copied"),
            ("experts", f.experts, "mapped from the file" + (
                f"; {human(f.on_disk)} more stay on disk and are read when a token needs them" if f.on_disk else "")),
            ("head", f.head_mapped, "mapped from the file"),
            ("head", f.head_allocated, "converted"),
            ("kv", self.kv_total, f"{several}{self.n_ctx} tokens, {self.kv_type}{ring}"),
            ("waiting", self.waiting_bytes, "conversations that may be continued"),
            ("scratch", f.scratch + self.sessions - self.kv_total, "activations, logits"),
            ("grammar", f.vocabulary, "vocabulary, and forms that answers must have"),
            ("program", f.program, "interpreter, libraries, tokenizer"),
            ("total", self.total_bytes, ""),
        ]
        return [
            f"{name:<8}{n / 1e6:>9.1f} MB  {what}".rstrip()
            for name, n, what in rows
            if n >= 50_000 or name in ("kv", "total")  # less is 0.0 MB
        ]
