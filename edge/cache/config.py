"""KVConfig: the options of the context and the KV cache, and how a plan follows from them (edge/cache/plan.py), or a
refusal: what is needed, what would fit, what was probably meant.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edge.amounts import count, human, meant_size, parse_size
from edge.cache.plan import DEFAULT_SINKS, LEAST_CTX, PAGE, PROGRAM_VARIES, KVPlan
from edge.cache.policy import POLICIES, QUARTER, UNLIMITED, Budget, parse_layers, read_budget, without_layers
from edge.config import ModelConfig
from edge.errors import MemoryRefused, UsageError, check_path, check_whole
from edge.machine.memory import installed_memory
from edge.model.footprint import Footprint
from edge.settings import SETTINGS, check

#: KV types that ``memory`` may choose, the most exact first
PREFERRED = ("f32", "f16", "int8", "int8:int4", "int4")

DEFAULT_CTX = 2048
#: of the memory that is free with everything planned, one in so many bytes may be taken for conversations that wait
FREE_SHARE = 4
SENSIBLE = 64  # tokens that a short question takes, with its template and its answer
#: pages kept after they leave a window, so that an undo in a long conversation need not read all of it again; for long
#: windows only
SPARE_PAGES, SPARE_FROM = 2, 512
#: earlier states of gated delta layers that a session keeps besides the latest two: behind the system prompt, and where
#: the latest turns began and ended; going back elsewhere reads again from the one before
SNAPSHOTS = 4
#: a limit below this number of bytes is a slip: a unit is missing or wrong
A_SLIP = 1_000_000
#: bytes that every model needs more than, for suggestions: ``--memory 2`` is not 2 MB
LEAST_MEMORY = 20_000_000


def parse_kv_type(value: str) -> str:
    """A KV type as users write it (``int8``, ``q8_0``, ``KEYS:VALUES``) in the form of :class:`pyx.kv.KVCache`.

    Raises UsageError for an unknown type.
    """
    from pyx.kv import page_types

    try:
        return page_types(value)
    except ValueError as error:
        raise UsageError(str(error)) from None


def meant_limit(memory: str | int | None) -> str:
    """The question whether another unit was meant by ``memory``; "" if none would give a sensible limit."""
    size = meant_size(memory or "", LEAST_MEMORY, installed_memory())
    return f"did you mean {size}?" if size else ""


def smaller(kv_type: str, config: ModelConfig) -> tuple[str, ...]:
    """The type itself, then those of PREFERRED that need less memory for this model."""
    from pyx.kv import KV_TYPES, KVCache

    def size(each: str) -> int:
        one, two = (KVCache.bytes_for(1, 1, config.head_dim, pages * PAGE, each) for pages in (1, 2))
        return int(two - one)

    known = [each for each in PREFERRED if all(part in KV_TYPES for part in each.split(":"))]
    return (kv_type, *(each for each in known if size(each) < size(kv_type)))


@dataclass(frozen=True, repr=False)
class KVConfig:
    """Options of the context and the KV cache; values are checked at once, sizes in :meth:`plan`.

    ``ctx`` None: min(2048, training length of the model).  ``window`` > 0: a token attends to the first ``sinks`` and
    the last ``window`` tokens.  Without a window, when the context is full, ``overflow`` "slide" makes the whole
    context a window (window = ctx - sinks), and "stop" ends the answer.  ``sinks`` None: 4 if there is a window.
    ``memory`` limits the whole process: if ``ctx`` is not set, it is shortened first, then a smaller KV type is used.
    ``force_memory`` skips the comparison with the available memory.

    ``kv_policy``: of :data:`edge.cache.policy.POLICIES`.  ``kv_budget``: path of a file with the tokens that each head
    keeps (:mod:`edge.cache.policy`).  ``kv_drop_layers``: layers that see only the current token, such as "0,3"; for
    measurements.  ``kv_offload``: a folder in which each session stores the pages that leave its window, in a file of
    at most ``kv_offload_size``, so that undo need not read the text again.  ``parallel``: the number of answers at the
    same time, each with its own context; memory is planned for that many, and no more run.  None: memory is planned for
    one, and as many run as the memory allows.  ``spare_contexts``: without a limit, conversations that wait may take
    the memory of so many contexts more, but no more than a quarter of what is free.  ``exact``: a limit never chooses a
    smaller KV type.

    Raises UsageError for values that are not valid or cannot be combined.
    """

    ctx: int | None = None
    kv: str = "int8"
    window: int = 0
    sinks: int | None = None
    memory: str | int | None = None
    overflow: str = "slide"
    force_memory: bool = False
    kv_policy: str = "recent"
    kv_budget: str | Budget | None = None
    kv_drop_layers: str | int | Sequence[int] = ()
    kv_offload: str | None = None
    kv_offload_size: str | int = SETTINGS["kv_offload_size"].default
    parallel: int | None = None
    spare_contexts: int = 0
    exact: bool = False

    def __repr__(self) -> str:
        changed = (each for each in dataclasses.fields(self) if getattr(self, each.name) != each.default)
        return f"KVConfig({', '.join(f'{each.name}={getattr(self, each.name)!r}' for each in changed)})"

    def __post_init__(self) -> None:
        for name in ("kv_budget", "kv_offload"):
            if (given := getattr(self, name)) is not None and not isinstance(given, Budget):
                object.__setattr__(self, name, os.path.expanduser(check_path(given, name)))
        if not isinstance(self.exact, bool):
            raise UsageError(f"is {self.exact!r}", argument="exact", hint="it must be True or False")
        parse_kv_type(self.kv)
        limit = parse_size(self.memory)
        number = str(self.memory).upper().rstrip(" B")
        if limit is not None and limit < A_SLIP and number[-1:].isdigit():
            hint = meant_limit(self.memory) or "write it like 1500M, 1.5G or 800MiB"
            raise UsageError(f"is {number.strip()}, in bytes", argument="memory", hint=hint)
        parse_size(self.kv_offload_size, "kv_offload_size")
        if self.kv_offload is not None:
            if not os.access(self.kv_offload, os.W_OK | os.X_OK) or not os.path.isdir(self.kv_offload):
                raise UsageError(f"is {self.kv_offload!r}", argument="kv_offload", hint="it must be a writable folder")
        for name in ("ctx", "window", "sinks", "overflow", "force_memory", "kv_policy"):
            object.__setattr__(self, name, check(name, getattr(self, name)))
        parse_layers(self.kv_drop_layers, "kv_drop_layers")
        for name, value, least, most in (
            ("parallel", self.parallel, 1, 1 << 10),
            ("spare_contexts", self.spare_contexts, 0, 1 << 10),
        ):
            if value is not None:
                object.__setattr__(self, name, check_whole(value, name, least, most))
        if self.spare_contexts and self.parallel is None:
            raise UsageError("limits conversations only with parallel", argument="spare_contexts", hint="give both")
        if self.ctx is not None and self.kv_budget is None:
            self._shape(self.ctx)

    def pinning(self, n: int, n_ctx_train: int) -> KVConfig:
        """The same options with the ``n`` tokens of a system prompt as sinks, so that it is never dropped.

        Unchanged if old tokens do not slide out of the context, if a number of sinks is set, or if less than ``n``
        tokens would be left for the conversation.
        """
        room = self.window or self.ctx or min(DEFAULT_CTX, n_ctx_train)
        room = min(room, self.ctx - self.window) if self.ctx and self.window else room if self.window else room // 2
        if (
            n > room or self.sinks is not None or self.kv_budget is not None or self.kv_policy == "quarter"
            or (not self.window and self.overflow == "stop")
        ):
            return self
        return dataclasses.replace(self, sinks=max(n, DEFAULT_SINKS))

    def _shape(self, n_ctx: int, budget: Budget | None = None) -> tuple[int, int]:
        """(window, sinks) for a context length."""
        usual = 0 if self.kv_policy == "quarter" else budget.sinks if budget else DEFAULT_SINKS
        sinks = usual if self.sinks is None else self.sinks
        window = min(QUARTER, n_ctx) if self.kv_policy == "quarter" and not self.window else self.window
        if window:
            if window + sinks > n_ctx:
                both = f"{window} and {count(sinks, 'sink')} do not fit in a context of {count(n_ctx, 'token')}"
                raise UsageError(both, argument="window")
            return window, sinks
        if self.overflow == "stop":
            return 0, sinks if budget else 0
        sinks = min(sinks, n_ctx - 1) if self.sinks is None else sinks
        if sinks >= n_ctx:
            raise UsageError(f"{count(sinks, 'sink')} leave no window in a context of {count(n_ctx, 'token')}")
        return n_ctx - sinks, sinks

    def plan(self, config: ModelConfig, footprint: Footprint | None = None, available: int | None = None) -> KVPlan:
        """The plan for a model.  ``available``: bytes of memory that are free; None: do not compare.

        Raises MemoryRefused that names what would fit.
        """
        footprint = footprint or Footprint()
        limit, wanted = parse_size(self.memory), parse_kv_type(self.kv)
        varies = PROGRAM_VARIES if self.ctx is None else 0  # what is chosen now must fit at the next start, too
        default = max(min(DEFAULT_CTX, config.n_ctx_train), self.window + (self.sinks or 0))
        if self.window and self.sinks is None:
            default = max(default, self.window + DEFAULT_SINKS)
        n_ctx = self.ctx or default

        def beyond(plan: KVPlan) -> int:
            """Bytes that are too many, if that is positive."""
            over = 0 if limit is None else plan.total_bytes + varies - limit
            if available is not None and not self.force_memory:
                over = max(over, plan.footprint.coming + plan.sessions - available)
            return over

        def make(length: int, kv_type: str) -> KVPlan:
            notes = []
            if length != n_ctx:
                notes.append(f"context shortened from {n_ctx} to {length} tokens to stay within the memory limit")
            if kv_type != wanted:
                notes.append(f"KV type {kv_type} instead of {wanted} to stay within the memory limit")
            plan = self._plan_for(config, footprint, length, kv_type, notes)
            if footprint.experts and (over := beyond(plan)) > 0:  # answers stay as they are
                plan = plan._replace(footprint=footprint.leaving(over))
            return plan

        def fits(plan: KVPlan) -> bool:
            return beyond(plan) <= 0

        def will_fit(plan: KVPlan) -> bool:
            """Whether it fits in a limit at the next start, too."""
            return beyond(plan) + (0 if varies or limit is None else PROGRAM_VARIES // 2) <= 0

        types = (wanted,) if self.exact else smaller(wanted, config)
        first = make(n_ctx, wanted)
        if fits(first):
            if limit is None and available is not None:
                free = max(0, available - first.footprint.coming - first.sessions)
                return first._replace(
                    waiting_bytes=min(self.spare_contexts * first.kv_bytes, free // FREE_SHARE))
            return first
        if limit is not None:
            least = max(min(LEAST_CTX, n_ctx), self._least)
            shorter = range(n_ctx // PAGE * PAGE, least - 1, -PAGE) if self.ctx is None and not self.window else ()
            lengths = dict.fromkeys((n_ctx, *shorter))
            for plan in (make(length, kv_type) for kv_type in types for length in lengths):
                if fits(plan):
                    return plan
        raise MemoryRefused(self._refusal(first, make, will_fit, types, config.n_ctx_train, limit, available))

    def _plan_for(
        self, config: ModelConfig, footprint: Footprint, n_ctx: int, kv_type: str, notes: Sequence[str]
    ) -> KVPlan:
        from pyx.kv import KV_MARKS, KVCache

        budget = read_budget(self.kv_budget, config) if isinstance(self.kv_budget, str) else self.kv_budget
        layers = parse_layers(self.kv_drop_layers, "kv_drop_layers")
        window, sinks = self._shape(n_ctx, budget)
        keep = budget.keep if budget else None
        if layers:
            keep = without_layers(keep or ((UNLIMITED,) * config.n_kv_head,) * config.n_layer, layers)
        near = min((n for n in config.windows or () if n), default=0)
        shortest = min((n for n in (window, near) if n), default=0)
        spare = min(SPARE_PAGES, shortest // SPARE_FROM) if self.kv_policy == "recent" and keep is None else 0
        plan = KVPlan(
            n_ctx, kv_type, window, sinks, 0, self.overflow, footprint,
            policy=self.kv_policy, budgets=keep, spare=spare, limit=parse_size(self.memory), parallel=self.parallel,
            windows=config.windows, recurrent=config.recurrent_shape,
            snapshots=SNAPSHOTS if config.recurrent else 0,
        )
        kv_bytes = KVCache.bytes_for(*config.kv_shape, **plan.cache)
        remarks = list(notes)
        types = dict.fromkeys(kv_type.split(":"))
        remarks += [f"KV type {each} is {KV_MARKS[each]}" for each in types if each in KV_MARKS]
        if layers:
            remarks.append(
                f"layers {', '.join(map(str, layers))} see only the current token and nothing before it; "
                "for comparisons only, see docs/kv.md"
            )
        if self.kv_policy == "quarter":
            remarks.append(
                f"policy quarter: {POLICIES['quarter']}; it drops parts of a prompt while reading it; "
                "for comparisons only, see docs/kv.md"
            )
        warnings = []
        if n_ctx > config.n_ctx_train:
            warnings.append(f"context {n_ctx} is longer than the {config.n_ctx_train} tokens the model was trained on")
        for what, n in (("context", n_ctx), ("window", self.window or SENSIBLE)):
            if n < SENSIBLE:
                warnings.append(
                    f"a {what} of {count(n, 'token')} hardly holds a question and its answer, so answers may be cut "
                    f"short or forget; use at least {SENSIBLE}"
                )
        offload = self._offload(plan, config)
        if offload and not window:
            remarks.append("kv_offload has no effect without a window")
        if self.sinks and not window:
            remarks.append(f"{count(self.sinks, 'sink')} have no effect without a window")
        return plan._replace(
            kv_bytes=kv_bytes, offload=offload, notes=(*remarks, *warnings), warnings=tuple(warnings)
        )

    def _offload(self, plan: KVPlan, config: ModelConfig) -> tuple[str, int] | None:
        """Folder and size in bytes of the file for pages that leave the window.  Raises UsageError if it cannot hold
        one page of each head.
        """
        from pyx.kv import KVCache

        if self.kv_offload is None:
            return None
        size = parse_size(self.kv_offload_size, "kv_offload_size") or 0
        one, two = (KVCache.bytes_for(*config.kv_shape, pages * PAGE, plan.kv_type) for pages in (1, 2))
        sealed = two - one
        if size < sealed:
            hint = f"{PAGE} tokens of this model need {sealed} bytes"
            raise UsageError(f"is {size}", argument="kv_offload_size", hint=hint)
        return self.kv_offload, size

    @property
    def _least(self) -> int:
        """Tokens of the shortest context that holds the window and the sinks."""
        sinks = self.sinks or 0
        return sinks + max(self.window, 1)

    def _refusal(
        self, plan: KVPlan, make: Callable[..., KVPlan], fits: Callable[[KVPlan], bool], types: Sequence[str],
        n_ctx_train: int, limit: int | None, available: int | None,
    ) -> str:
        """The message: what is needed, what is available, what would fit, how to override.  No context is proposed that
        is longer than the model was trained on.
        """
        smallest, least = types[-1], max(PAGE, self._least)
        longest = min(plan.n_ctx, max(n_ctx_train, least))
        lengths = range((longest - 1) // PAGE * PAGE, least - 1, -PAGE)
        smaller_ones = (*((longest, each) for each in types), *((n_ctx, smallest) for n_ctx in lengths))
        text = ""
        if found := next((each for each in smaller_ones if fits(make(*each))), None):
            shorter = f"ctx={found[0]} " if found[0] < plan.n_ctx else ""
            text = f"; {shorter}" + (f'kv="{found[1]}" ' if found[1] != types[0] else "") + "would fit"
        several = f"{plan.parallel} x " if plan.parallel and plan.parallel > 1 else ""
        context = f"{several}{count(plan.n_ctx, 'token')} of context ({plan.kv_type}) take {human(plan.kv_total)}"
        if limit is not None and plan.total_bytes > limit:
            fixed, total = human(plan.footprint.total), human(plan.total_bytes)
            slip = limit < A_SLIP
            given = self.memory if slip else human(limit)
            why = f"program and model take {fixed}, {context}: {total} in all; the limit is {given}"
            if slip and (meant := meant_limit(self.memory)):
                return f"{why}; {meant}"
            shortest = plan.n_ctx if self.ctx else max(min(LEAST_CTX, plan.n_ctx), least)  # as plan() chooses
            leaves = 0 if self.ctx else PROGRAM_VARIES  # as plan()
            need = -(-(make(shortest, smallest).total_bytes + leaves + PROGRAM_VARIES // 2) // 10**6)
            return why + (text or f'; it works from memory="{need}M" on: raise the limit, or use a smaller model')
        coming, free = plan.footprint.coming, human(available or 0)
        why = f"the model takes {human(coming)} more, {context}: {human(coming + plan.sessions)} in all; {free} is free"
        return f"{why}{text}; force_memory=True tries anyway"
