"""load(): a file or folder -> an Engine: check the options, plan the memory, then refuse or load.

(The module is not called load: importing it would replace the function ``edge.load``.)
"""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from edge import packed
from edge.cache.plan import Plan
from edge.cache.planning import DEFAULT_CTX, pinning, plan
from edge.cache.policy import Budget, read_budget
from edge.cache.remembered import Remembered
from edge.cache.remembered import place as prompts_at
from edge.cache.space import KVSpace
from edge.engine import Engine
from edge.errors import InvalidFile, MemoryRefused, UnsupportedCPU, UsageError, needs_build
from edge.machine.cores import choose
from edge.machine.memory import available_memory
from edge.model.model import MAP, Model
from edge.options import Options
from edge.threads import claim, refuse_after_fork

if TYPE_CHECKING:

    from edge.formats.checkpoint import Checkpoint
    from edge.prompt.tokenizer import Tokenizer
    from pyx.step import Head, Transformer

#: bytes of the program that become resident with answers: code of the kernels, Python's objects, and the package regex,
#: which splits text that is not all ASCII (measured)
STILL_TO_COME = 2_000_000
#: bytes that are not freed after the readings of a file were tried, the first time it is opened (measured)
LEFT_BY_SCORING = 900_000

#: open engines: they share the instruction set
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


@needs_build
def load(
    model: str | os.PathLike[str] | None = None,
    *,
    ctx: int | None = Options.ctx,
    kv: str = Options.kv,
    window: int = Options.window,
    sinks: int | None = Options.sinks,
    memory: str | int | None = Options.memory,
    overflow: str = Options.overflow,
    force_memory: bool = Options.force_memory,
    kv_policy: str = Options.kv_policy,
    kv_budget: str | Budget | None = Options.kv_budget,
    kv_drop_layers: str | int | Sequence[int] = Options.kv_drop_layers,
    kv_offload: str | None = Options.kv_offload,
    kv_offload_size: str | int = Options.kv_offload_size,
    parallel: int | None = Options.parallel,
    spare_contexts: int = Options.spare_contexts,
    exact: bool = Options.exact,
    threads: int | None = Options.threads,
    head: str = Options.head,
    weights: str = Options.weights,
    isa: str | None = Options.isa,
    template: str | None = Options.template,
    think: bool | None = Options.think,
    tune: bool = Options.tune,
    cache: bool | None = Options.cache,
    i2s_layout: str = Options.i2s_layout,
    activation: str | None = Options.activation,
    system: str | None = Options.system,
    constrained: bool = Options.constrained,
    reserve: int = Options.reserve,
    progress: Callable[[float, float], None] | None = None,
    on_plan: Callable[[Plan], object] | None = None,
) -> Engine:
    """Load a model.

    model: a file, a folder, the name of a pulled model, or "demo"; None: as :func:`edge.registry.library.choose` says
        (the default model, else the only pulled one, else the demo model, which is logged as a warning).

    Context and memory:

    ctx: the context in tokens; None: min(2048, training length of the model).
    kv: a KV type, such as "int4" or KEYS:VALUES.
    window, sinks: with a window, a token attends to the first ``sinks`` and the last ``window`` tokens.  sinks None: 4,
        or the tokens of ``system``, which is then never dropped.
    overflow: without a window, when the context is full: "slide" makes the whole context a window
        (window = ctx - sinks), "stop" ends the answer.
    memory: limit of the whole process, such as "1500M": if ctx is not set, it is shortened first, then a smaller KV
        type is used.  exact: never a smaller KV type.  force_memory: do not compare with the available memory.
    parallel: the number of answers at the same time, each with its own context; memory is planned for that many, and no
        more run.  None: memory is planned for one, and as many run as the memory allows.
    spare_contexts: without a limit, conversations that wait may take the memory of so many contexts more, but no more
        than a quarter of what is free.
    kv_offload: a folder in which each session stores the pages that leave its window, in a file of at most
        kv_offload_size, so that undo need not read the text again.
    kv_policy, kv_budget, kv_drop_layers: what a cache drops otherwise, for measurements (docs/kv.md).
    reserve: bytes that the calling program itself needs; part of the plan.
    cache: keep the KV cache of system prompts on the disk, in a private folder of this user, so that the next
        process does not read them again (edge/cache/remembered.py); None: unless BITNET_EDGE_NO_CACHE is set.
    constrained: include the memory for answers that follow a grammar in the plan.

    Model:

    threads: their number; None: at most one for each fast core, fewer while other programs need the cores; -N: N
        fewer than the fast cores.
    head: type of the output head, see :mod:`edge.settings`, which also checks the other values.
    weights: "map" (use the mapped file), "huge" (copy into 2 MiB pages first) or "auto" (start with the map, and copy
        between steps if there is enough memory).
    isa: instruction set, such as "avx2"; all engines that are open at a time use the same. None: that of the open
        engines, else the best that the processor has.
    template: a chat template by name; None: the model's own.
    think: whether models that can think before they answer do so; None: the model decides.
    tune: compare, in the first tokens, the ways to read weights, and use the fastest; answers are the same.
    i2s_layout: byte order of I2_S files: "auto", "128", "64" or "1x4".
    activation: "relu2" or "silu", if the file does not state it.
    system: system prompt of sessions that have none of their own.

    Called meanwhile:

    progress: with (done, total).
    on_plan: with the memory plan, before memory is allocated.

    Raises an :class:`edge.EdgeError`: UsageError, ModelNotFound, InvalidFile, MemoryRefused or UnsupportedCPU.
    """
    given = locals()
    refuse_after_fork()
    options = Options(**{each.name: given[each.name] for each in fields(Options)})
    report = progress or (lambda done, total: None)
    begun = time.perf_counter()
    if options.constrained:
        import llguidance  # noqa: F401  before the program's size is measured
    choose_isa(options.isa)

    import pyx.step  # noqa: F401  all imported here so that the program's size is measured with them
    from edge.formats import open_checkpoint
    from edge.machine.linux import rss
    from edge.machine.ways import LEAST, Ways
    from edge.prompt.template import Template
    from edge.prompt.tokenizer import Tokenizer
    from edge.registry.library import DEMO_ANSWERS
    from edge.registry.library import choose as choose_model
    from pyx import machine

    chosen = choose_model(model)
    if chosen.why == "demo":
        import logging

        logging.getLogger("edge").warning(DEMO_ANSWERS)
    checkpoint = open_checkpoint(chosen.path, i2s_layout=options.i2s_layout, activation=options.activation)
    report(1, 10)
    n_threads, cores = choose(options.threads)
    n_threads, thread_warnings = claim(n_threads)
    tokenizer = Tokenizer.of(checkpoint)
    chat = Template.for_model(checkpoint, name=options.template, think=options.think)
    report(3, 10)
    if options.system:
        trained = checkpoint.config.n_ctx_train
        room = options.window or options.ctx or min(DEFAULT_CTX, trained)
        # a longer one is not pinned, but refused when used
        beginning = chat.beginning(tokenizer, options.system[: 16 * room])
        options = pinning(options, beginning, trained)

    remembers = not os.environ.get("BITNET_EDGE_NO_CACHE") if options.cache is None else options.cache
    fingerprints = prompts_at() if remembers else None
    reading, scoring = scored_at(checkpoint, fingerprints)
    program = resident(checkpoint) + scoring + options.reserve
    # refuse before anything large is touched
    planned = plan(checkpoint, options, program, available_memory(), n_threads)
    if on_plan:
        on_plan(planned)
    read, transformer = built(
        checkpoint, planned.head, n_threads, reading, tokenizer, copy=options.weights == "huge", cores=cores,
        adapt=options.threads is None or options.threads < 0,
        progress=lambda done, total: report(3 + 6 * done / total, 10))
    if read is not checkpoint:  # in another reading other weights may be copies
        again = plan(read, replace(options, weights="map" if planned.place == "map" else "huge"), program, None,
                     n_threads, planned.head)
        planned = replace(again, place=planned.place, waiting_bytes=planned.waiting_bytes)
        checkpoint = read
    if (f := planned.footprint).on_disk:
        transformer.bound_experts(rss()["file"] + f.mapped + f.head_mapped + f.experts)
    report(10, 10)
    alone = not _any_open()
    if alone:  # all share the instruction set, and how weights are read
        machine.choose()
    loaded = Model(
        checkpoint.config,
        transformer,
        tokenizer,
        chat,
        path=checkpoint.path,
        checkpoint=checkpoint,
        placement=MAP if options.weights == "huge" else planned.place,
        fingerprints=fingerprints,
        ways=Ways() if options.tune and alone and transformer.weight_bytes >= LEAST else None,
    )
    engine = Engine(
        loaded,
        KVSpace(loaded, planned),
        system=options.system,
        notes=[*checkpoint.notes, *planned.notes],
        warnings=thread_warnings,
        load_seconds=time.perf_counter() - begun,
    )
    _engines.add(engine)
    if remembers:
        inside = packed.read(checkpoint.path)
        prompts = [(inside.path, span) for span in inside.prompts] if inside else ()
        engine.store.remember(Remembered(engine.space, prompts))
    if isinstance(path := options.kv_budget, str):
        made_for = read_budget(path, loaded.config).fingerprint
        if made_for not in (None, loaded.fingerprint):
            raise InvalidFile(f"KV budget {path}: it was made for another model, not this {loaded.config.name}")
    return engine


def built(
    checkpoint: Checkpoint,
    head: str,
    n_threads: int,
    reading: str | None,
    tokenizer: Tokenizer,
    *,
    copy: bool = False,
    adapt: bool = False,
    cores: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Checkpoint, Transformer]:
    """(the checkpoint as it is to be read, its transformer), when the plan has been found to fit.

    ``reading``: of :func:`scored_at`.  ``copy``: all weights into pages of 2 MiB.  ``progress``: with (done, total), as
    a file is scored.  The rest: see :func:`edge.model.weights.build`.  Raises InvalidFile and MemoryRefused.
    """
    from edge.machine import placement
    from edge.model import weights as building
    from pyx.machine import trim

    output: str | Head = head
    try:
        if checkpoint.open:
            from edge.model.interpretation import interpreted

            if head != "none":  # the same in all readings: scored with and kept
                output = building.output_head(checkpoint, head, n_threads)
            scored = None if isinstance(output, str) else output
            checkpoint = interpreted(checkpoint, n_threads, reading, scored, tokenizer, progress)
        transformer = building.build(checkpoint, n_threads=n_threads, head=output, adapt=adapt, cores=cores)
        if copy:
            placement.copy(transformer.movable)
    except MemoryError as error:
        raise MemoryRefused(f"no memory for the weights of {checkpoint.config.name}: {error}") from None
    placement.release_pages(checkpoint)
    trim()
    return checkpoint, transformer


def scored_at(checkpoint: Checkpoint, fingerprints: str | None = None) -> tuple[str | None, int]:
    """The file that remembers how a checkpoint is read, and the bytes that trying its readings does not free;
    (None, 0) for a checkpoint whose file states everything.  ``fingerprints``: the folder that remembers them.

    Called before the program's size is measured: what it takes stays.
    """
    if not checkpoint.open:
        return None, 0
    from edge.model.interpretation import remembered, remembered_at

    place = remembered_at(checkpoint, fingerprints)
    return place, LEFT_BY_SCORING if remembered(place, checkpoint) is None else 0


def resident(checkpoint: Checkpoint) -> int:
    """Bytes of this process with its first answer, less what a plan counts; called when the vocabulary was
    read.
    """
    from edge.machine import placement
    from edge.machine.linux import rss
    from pyx.machine import trim

    placement.release_pages(checkpoint)
    trim()  # memory that reading the vocabulary left free would count as the program's, and go later
    return int(rss()["rss"]) + STILL_TO_COME


def program_bytes(checkpoint: Checkpoint) -> int:
    """Bytes that the program itself takes with this model, as :func:`load` measures them before it plans."""
    import pyx.step  # noqa: F401
    from edge.prompt.template import Template
    from edge.prompt.tokenizer import Tokenizer

    kept = Tokenizer.of(checkpoint), Template.for_model(checkpoint)
    _, scoring = scored_at(checkpoint)
    program = resident(checkpoint) + scoring
    del kept
    return program


def _any_open() -> bool:
    """True if an engine exists that was not closed; unreferenced ones are collected first."""
    if all(engine.closed for engine in list(_engines)):
        return False
    gc.collect()
    return not all(engine.closed for engine in list(_engines))


def choose_isa(isa: str | None) -> None:
    """Use an instruction set for the engines that are open from now on; None: that of the open engines, else that of
    BITNET_EDGE_ISA, else the best.  Raises UsageError or UnsupportedCPU.
    """
    from pyx import machine

    others = _any_open()
    try:
        before = machine.isa()
        if isa is not None or not others:
            machine.use(isa or os.environ.get("BITNET_EDGE_ISA") or "auto")
    except ValueError as error:
        raise UsageError(str(error)) from None
    except RuntimeError as error:
        raise UnsupportedCPU(str(error)) from None
    if others and machine.isa() != before:
        machine.use(before)
        raise UsageError(
            f"is {isa!r}, but an open engine uses {before!r}, and all engines that are open use the same",
            argument="isa",
            hint="close that engine first, or leave isa out")
