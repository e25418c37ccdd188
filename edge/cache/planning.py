"""plan(): what a model takes with these options, computed before anything is allocated, or a refusal that says what
would fit.  Loading, ``fit`` and ``embed`` have no other way to know.

Bytes come from :meth:`pyx.kv.KVCache.bytes_for` and :func:`edge.model.footprint.footprint`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edge.amounts import count, human, parse_size
from edge.cache.plan import PAGE, Plan
from edge.cache.policy import UNLIMITED, read_budget
from edge.config import ModelConfig
from edge.errors import EdgeError, MemoryRefused, UsageError
from edge.model.footprint import Footprint, footprint
from edge.options import DEFAULT_SINKS, Options, parse_kv_type, parse_layers

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint

#: KV types that ``memory`` may choose, the most exact first
PREFERRED = ("f32", "f16", "int8", "int8:int4", "int4")
DEFAULT_CTX = 2048
LEAST_CTX = 256  # `memory` never picks a context shorter than this by itself
#: bytes by which the size of the program may differ from one start to the next
PROGRAM_VARIES = 1_000_000
#: of the memory that is free with everything planned, one in so many bytes may be taken for conversations that wait
FREE_SHARE = 4
SENSIBLE = 64  # tokens that a short question takes, with its template and its answer
#: pages kept after they leave a window, so that an undo in a long conversation need not read all of it again; for long
#: windows only
SPARE_PAGES, SPARE_FROM = 2, 512
#: earlier states of gated delta layers that a session keeps besides the latest two: after the system prompt, and where
#: the latest turns began and ended; going back elsewhere reads again from the one before
SNAPSHOTS = 4
#: codes of an output head from which reading fewer of them is faster: smaller heads stay in caches, or take little time
LARGE_HEAD = 64 << 20


def plan(
    checkpoint: Checkpoint, options: Options, program: int = 0, available: int | None = None, n_threads: int = 1,
    head: str | None = None,
) -> Plan:
    """The plan for a model with its output head, the place of its weights, its context and its KV type.

    ``program``: bytes of the process before the weights are touched.  ``available``: bytes of memory that are free;
    None: nothing is compared with them or chosen by them.  ``head``: in place of the one of the options.

    Raises MemoryRefused that names what would fit, and UsageError for options that do not suit the model.
    """
    from edge.machine import placement
    from edge.registry.encodings import GROUP_ROWS

    config, forms = checkpoint.config, 0
    if options.constrained:
        from edge.constrain.vocabulary import bytes_for

        forms = bytes_for(config.n_vocab, options.parallel or 1)
    kind = head or head_for(checkpoint, options, available)

    def at(place: str, available: int | None) -> Plan:
        taken = footprint(checkpoint, kind, place, program, n_threads)._replace(vocabulary=forms)
        return replace(cache_plan(config, options, taken, available), head=kind, place=place)

    codes, place = placement.advise(checkpoint), options.weights
    if place == "auto":
        at("map", available)
        matrices = (tensor for name, tensor in checkpoint.tensors.items() if name.startswith("blk."))
        panels = any(tensor.type in GROUP_ROWS for tensor in matrices)
        place = placement.choose(codes, at, available, panels)
    return at(place, available)


def head_for(checkpoint: Checkpoint, options: Options, available: int | None) -> str:
    """The output head for "auto"; other types are returned unchanged.

    A head that the file has as Q8_0 or ternary is used as it is ("auto" to :func:`pyx.step.placement`);
    others become int8, or two-stage where that is faster with the same answers (benchmarks/log#head-auto): the head is
    large, its rows fill the planes, and steps mostly ask for the likeliest tokens of one answer.  It is not faster for
    several answers at once, which read int8 rows together, nor for grammars, which need all logits.  Two stages of a
    Q8_0 head take additional memory, so they are used only where there is no limit and everything fits into half of the
    available memory.
    """
    from edge.registry.encodings import GROUP_TYPES
    from pyx.step import CODE_BLOCK

    table, config = checkpoint.tensors.get(checkpoint.head), checkpoint.config
    if options.head != "auto" or table is None or table.type in GROUP_TYPES:
        return options.head
    wins = (options.parallel in (None, 1) and not options.constrained
            and config.hidden % CODE_BLOCK == 0 and config.n_vocab * config.hidden >= LARGE_HEAD)
    if table.type != "Q8_0":
        return "two-stage" if wins else "int8"
    if not wins or available is None or options.memory is not None:
        return "q8_0"
    try:
        cache_plan(config, options, footprint(checkpoint, "two-stage"), available // 2)
    except EdgeError:
        return "q8_0"
    return "two-stage"


def cache_plan(
    config: ModelConfig, options: Options, taken: Footprint | None = None, available: int | None = None
) -> Plan:
    """The plan for a model that takes so much without its KV cache.  See :func:`plan`."""
    taken, limit, wanted = taken or Footprint(), parse_size(options.memory), parse_kv_type(options.kv)
    varies = PROGRAM_VARIES if options.ctx is None else 0  # a context chosen now must fit at the next start, too
    n_ctx = options.ctx or max(
        min(DEFAULT_CTX, config.n_ctx_train),
        options.window + (DEFAULT_SINKS if options.window and options.sinks is None else options.sinks or 0))

    def beyond(plan: Plan) -> int:
        """Bytes that are too many, if that is positive."""
        over = 0 if limit is None else plan.total_bytes + varies - limit
        if available is not None and not options.force_memory:
            over = max(over, plan.footprint.coming + plan.sessions - available)
        return over

    def make(length: int, kv_type: str) -> Plan:
        notes = []
        if length != n_ctx:
            notes.append(f"context shortened from {n_ctx} to {length} tokens to stay within the memory limit")
        if kv_type != wanted:
            notes.append(f"KV type {kv_type} instead of {wanted} to stay within the memory limit")
        made = _with_cache(config, options, taken, length, kv_type, notes)
        if taken.experts and (over := beyond(made)) > 0:  # answers stay as they are
            made = replace(made, footprint=taken.leaving(over))
        return made

    types = smaller(wanted, config) if limit is not None and not options.exact else (wanted,)
    lengths = [n_ctx]
    if limit is not None and options.ctx is None and not options.window:
        least = max(min(LEAST_CTX, n_ctx), _attended(options))
        lengths = [*range(-(-least // PAGE) * PAGE, n_ctx, PAGE), n_ctx]
    for kv_type in types:
        if length := largest(lengths, lambda n: beyond(make(n, kv_type)) <= 0):  # noqa: B023
            made = make(length, kv_type)
            if limit is None and available is not None:
                free = max(0, available - made.footprint.coming - made.sessions)
                made = replace(made, waiting_bytes=min(options.spare_contexts * made.kv_bytes, free // FREE_SHARE))
            return made
    raise MemoryRefused(_refusal(config, options, make(n_ctx, wanted), make, beyond, available))


def _refusal(
    config: ModelConfig, options: Options, first: Plan, make: Callable[[int, str], Plan], beyond: Callable[[Plan], int],
    available: int | None,
) -> str:
    """The message: what the plan as asked needs, what is available, what would fit, how to override.  No context is
    proposed that is longer than the model was trained on.
    """
    n_ctx, limit, least = first.n_ctx, first.limit, max(PAGE, _attended(options))
    types = (first.kv_type,) if options.exact else smaller(first.kv_type, config)
    leaves = PROGRAM_VARIES if options.ctx is None else 0  # as cache_plan()
    varies = 0 if leaves or limit is None else PROGRAM_VARIES // 2

    def fits(length: int, kv_type: str) -> bool:
        """True if it does in a limit at the next start, too."""
        return beyond(make(length, kv_type)) + varies <= 0

    most = min(n_ctx, max(config.n_ctx_train, least))
    length, kv_type = most, next((each for each in types if fits(most, each)), types[-1])
    if not fits(length, kv_type):
        length = largest(range(-(-least // PAGE) * PAGE, most, PAGE), lambda n: fits(n, kv_type))
    text = f"; ctx={length} " if length < n_ctx else "; "
    text = text + (f'kv="{kv_type}" ' if kv_type != types[0] else "") + "would fit" if length else ""
    several = f"{first.parallel} x " if first.parallel and first.parallel > 1 else ""
    context = f"{several}{count(n_ctx, 'token')} of context ({first.kv_type}) take {human(first.kv_total)}"
    if limit is None or first.total_bytes + leaves <= limit:
        coming, free = first.footprint.coming, human(available or 0)
        return (f"the model takes {human(coming)} more, {context}: {human(coming + first.sessions)} in all; {free} is "
                f"free{text}; force_memory=True tries anyway")
    why = (f"program and model take {human(first.footprint.total)}, {context}: {human(first.total_bytes)} in all; "
           f"the limit is {human(limit)}")
    shortest = n_ctx if options.ctx else max(min(LEAST_CTX, n_ctx), least)
    need = -(-(make(shortest, types[-1]).total_bytes + leaves + PROGRAM_VARIES // 2) // 10**6)
    return why + (text or f'; it works from memory="{need}M" on: raise the limit, or use a smaller model')


def _attended(options: Options) -> int:
    """Tokens of the shortest context that holds the window and the sinks."""
    return max(options.window, 1) + (options.sinks or 0)


def largest(lengths: Sequence[int], fits: Callable[[int], bool]) -> int:
    """The longest of ascending contexts that fits; 0: none does."""
    n = bisect_left(lengths, True, key=lambda length: not fits(length))
    return lengths[n - 1] if n else 0


def smaller(kv_type: str, config: ModelConfig) -> tuple[str, ...]:
    """The type itself, then those of PREFERRED that need less memory for this model."""
    from pyx.kv import KVCache

    def size(each: str) -> int:
        one, two = (KVCache.bytes_for(1, 1, config.head_dim, pages * PAGE, each) for pages in (1, 2))
        return int(two - one)

    return (kv_type, *(each for each in PREFERRED if size(each) < size(kv_type)))


def pinning(options: Options, n: int, n_ctx_train: int) -> Options:
    """The options with the ``n`` tokens of a system prompt as sinks, so that it is never dropped.

    Unchanged if old tokens do not slide out of the context, if a number of sinks is set, or if less than ``n``
    tokens would be left for the conversation.
    """
    ctx, window = options.ctx, options.window
    if not window:
        room = (ctx or min(DEFAULT_CTX, n_ctx_train)) // 2
    else:
        room = min(window, ctx - window) if ctx else window
    if (
        n > room or options.sinks is not None or options.kv_budget is not None or options.kv_policy == "quarter"
        or (not window and options.overflow == "stop")
    ):
        return options
    return replace(options, sinks=max(n, DEFAULT_SINKS))


def _with_cache(
    config: ModelConfig, options: Options, taken: Footprint, n_ctx: int, kv_type: str, notes: Sequence[str]
) -> Plan:
    """The plan with a cache of this length and type."""
    from pyx.kv import KVCache

    given, layers, quarter = options.kv_budget, parse_layers(options.kv_drop_layers), options.kv_policy == "quarter"
    budget = read_budget(given, config) if isinstance(given, str) else given
    window, sinks = options.window_in(n_ctx, budget.sinks if budget else DEFAULT_SINKS)
    keep = budget.keep if budget else None
    if layers:
        n_layer, n_kv_head, _ = config.kv_shape  # only those with attention
        if layers[-1] >= n_layer:
            raise UsageError(f"the model has no layer {layers[-1]}; its layers are 0 to {n_layer - 1}")
        keep = keep or ((UNLIMITED,) * n_kv_head,) * n_layer
        keep = tuple(tuple(1 if i in layers else n for n in row) for i, row in enumerate(keep))
    windows = [n for n in (window, *(config.windows or ())) if n]
    plan = Plan(
        n_ctx, kv_type, window, sinks, policy=options.kv_policy, budgets=keep, windows=config.windows,
        spare=min(SPARE_PAGES, min(windows, default=0) // SPARE_FROM) if not quarter and keep is None else 0,
        recurrent=config.recurrent_shape, snapshots=SNAPSHOTS if config.recurrent else 0,
        overflow=options.overflow, footprint=taken, limit=parse_size(options.memory), parallel=options.parallel,
    )
    remarks, warnings = _remarks(plan, options), _warnings(config, plan, options)
    return replace(
        plan, kv_bytes=KVCache.bytes_for(*config.kv_shape, **plan.cache), offload=_offload(config, plan, options),
        notes=(*notes, *remarks, *warnings), warnings=tuple(warnings))


def _remarks(plan: Plan, options: Options) -> list[str]:
    """Remarks on settings of a cache that cost quality, or have no effect."""
    from pyx.kv import KV_MARKS

    only, layers = "for comparisons only, see docs/kv.md", parse_layers(options.kv_drop_layers)
    types = dict.fromkeys(plan.kv_type.split(":"))
    remarks = [f"KV type {each} is {KV_MARKS[each]}" for each in types if each in KV_MARKS]
    if layers:
        remarks.append(f"layers {', '.join(map(str, layers))} see only the current token and nothing before it; {only}")
    if plan.policy == "quarter":
        remarks.append("policy quarter: a token sees a quarter of what came before it, 128 at most; it drops parts of "
                       f"a prompt while reading it; {only}")
    if options.kv_offload is not None and not plan.window:
        remarks.append("kv_offload has no effect without a window")
    if options.sinks and not plan.window:
        remarks.append(f"{count(options.sinks, 'sink')} have no effect without a window")
    return remarks


def _warnings(config: ModelConfig, plan: Plan, options: Options) -> list[str]:
    """Warnings about a context or a window whose answers will be bad."""
    found = []
    if plan.n_ctx > config.n_ctx_train:
        found.append(f"context {plan.n_ctx} is longer than the {config.n_ctx_train} tokens the model was trained on")
    for name, n in (("context", plan.n_ctx), ("window", options.window or SENSIBLE)):
        if n < SENSIBLE:
            found.append(
                f"a {name} of {count(n, 'token')} hardly holds a question and its answer, so answers may be cut "
                f"short or forget; use at least {SENSIBLE}"
            )
    return found


def _offload(config: ModelConfig, plan: Plan, options: Options) -> tuple[str, int] | None:
    """The folder of the file for pages that left the window, and the largest size of it, at least of one page."""
    from pyx.kv import KVCache

    if options.kv_offload is None:
        return None
    size = parse_size(options.kv_offload_size, "kv_offload_size") or 0
    one, two = (KVCache.bytes_for(*config.kv_shape, pages * PAGE, plan.kv_type) for pages in (1, 2))
    if size < (sealed := two - one):
        hint = f"{PAGE} tokens of this model need {sealed} bytes"
        raise UsageError(f"is {size}", argument="kv_offload_size", hint=hint)
    return options.kv_offload, size
