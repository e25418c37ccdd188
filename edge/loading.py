"""load(): a file or folder -> an Engine: check the options, plan the memory, then refuse or load.

(The module is not called load: importing it would replace the function ``edge.load``.)
"""

from __future__ import annotations

import dataclasses
import gc
import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edge import packed
from edge.cache.config import DEFAULT_CTX, KVConfig
from edge.cache.plan import KVPlan
from edge.cache.policy import read_budget
from edge.cache.remembered import Remembered
from edge.cache.remembered import place as prompts_at
from edge.cache.space import KVSpace
from edge.engine import Engine
from edge.errors import (
    EdgeError,
    InvalidFile,
    MemoryRefused,
    UnsupportedCPU,
    UsageError,
    check_text,
    check_whole,
    needs_build,
)
from edge.machine.cores import choose
from edge.machine.memory import available_memory
from edge.model.model import MAP, Model
from edge.model.plan import expect, measure
from edge.settings import check
from edge.threads import claim, refuse_after_fork

if TYPE_CHECKING:

    from edge.formats.checkpoint import Checkpoint
    from edge.prompt.tokenizer import Tokenizer
    from pyx.step import Head, Transformer

#: codes of an output head from which reading fewer of them is faster: smaller heads stay in caches, or take little time
LARGE_HEAD = 64 << 20
#: bytes of the program that become resident with answers: code of the kernels, Python's objects, and the package regex,
#: which splits text that is not all ASCII (measured)
STILL_TO_COME = 2_000_000
#: bytes that trying the readings of a file leaves behind, the first time it is opened (measured)
LEFT_BY_SCORING = 900_000

#: open engines: they share the instruction set
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
#: the instruction set that was in use before an engine chose another; None if none did
_isa_before: str | None = None


@needs_build
def load(
    model: str | os.PathLike[str] | None = None,
    *,
    kv: str | KVConfig = KVConfig.kv,
    threads: int | None = None,
    head: str = "auto",
    weights: str = "auto",
    isa: str | None = None,
    template: str | None = None,
    think: bool | None = None,
    tune: bool = True,
    i2s_layout: str = "auto",
    activation: str | None = None,
    system: str | None = None,
    constrained: bool = False,
    reserve: int = 0,
    cache: bool | None = None,
    progress: Callable[[float, float], None] | None = None,
    on_plan: Callable[[KVPlan], object] | None = None,
    **kv_options: Any,
) -> Engine:
    """Load a model.

    model: a file, a folder, the name of a pulled model, or "demo"; None: as :func:`edge.registry.library.choose` says
        (the default model, else the only pulled one, else the demo model, which is logged as a warning).

    Context and memory:

    ctx, window, sinks, memory, parallel, ... (kv_options): the fields of :class:`edge.cache.config.KVConfig`, such as
        ``ctx=4096, memory="1500M"``; where sinks is None, ``system`` is never dropped.
    kv: a KV type, such as "int4" or KEYS:VALUES; or a KVConfig with all settings.
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
    begun = time.perf_counter()
    refuse_after_fork()
    if not isinstance(constrained, bool):
        raise UsageError(f"is {constrained!r}", argument="constrained", hint="it must be True or False")
    if constrained:
        import llguidance  # noqa: F401  before the program's size is measured

        from edge.constrain.vocabulary import bytes_for
    if unknown := kv_options.keys() - {each.name for each in dataclasses.fields(KVConfig)}:
        raise TypeError(f"load() got an unexpected keyword argument {min(unknown)!r}")
    if isinstance(kv, KVConfig) and KVConfig(**kv_options) != KVConfig():
        raise UsageError("kv is a KVConfig, which has all settings of the cache; set them there")
    kv_config = kv if isinstance(kv, KVConfig) else KVConfig(kv=kv, **kv_options)
    for name, value in (("head", head), ("weights", weights), ("think", think), ("tune", tune),
                        ("cache", cache), ("template", template), ("i2s_layout", i2s_layout),
                        ("activation", activation)):
        check(name, value)
    threads, reserve = check("threads", threads), check_whole(reserve, "reserve", 0)
    if system is not None:
        check_text(system, "system")
    choose_isa(isa)
    report = progress or (lambda done, total: None)

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

        logging.getLogger("edge").warning(f"{DEMO_ANSWERS}; for a real one: bitnet-edge pull bonsai-1.7b")
    checkpoint = open_checkpoint(chosen.path, i2s_layout=i2s_layout, activation=activation)
    report(1, 10)
    n_threads, cores = choose(threads)
    n_threads, thread_warnings = claim(n_threads)
    head = head_for(head, checkpoint, kv_config, constrained)
    tokenizer = Tokenizer.of(checkpoint)
    chat = Template.for_model(checkpoint, name=template, think=think)
    report(3, 10)
    if system:
        room = kv_config.window or kv_config.ctx or min(DEFAULT_CTX, checkpoint.config.n_ctx_train)
        beginning = chat.beginning(tokenizer, system[: 16 * room])  # a longer one is not pinned, but refused when used
        kv_config = kv_config.pinning(beginning, checkpoint.config.n_ctx_train)

    remembers = not os.environ.get("BITNET_EDGE_NO_CACHE") if cache is None else cache
    fingerprints = prompts_at() if remembers else None
    reading, scoring = scored_at(checkpoint, fingerprints)
    program = resident(checkpoint) + scoring + reserve
    # refuse before anything large is touched
    grammars = 0
    if constrained:
        grammars = bytes_for(checkpoint.config.n_vocab, kv_config.parallel or 1)
    place, plan = arrange(checkpoint, kv_config, head, weights, program, n_threads, grammars)
    if on_plan:
        on_plan(plan)
    checkpoint, transformer = built(
        checkpoint, head, n_threads, reading, tokenizer, copy=weights == "huge", cores=cores,
        adapt=threads is None or threads < 0, progress=lambda done, total: report(3 + 6 * done / total, 10))
    measured = measure(transformer, checkpoint, program, place == "huge")
    measured = measured._replace(vocabulary=grammars).leaving(plan.footprint.on_disk)
    plan = kv_config.plan(checkpoint.config, measured)._replace(waiting_bytes=plan.waiting_bytes)
    if plan.footprint.on_disk:
        f = plan.footprint
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
        placement=MAP if weights == "huge" else place,
        fingerprints=fingerprints,
        ways=Ways() if tune and alone and transformer.weight_bytes >= LEAST else None,
    )
    engine = Engine(
        loaded,
        KVSpace(loaded, plan),
        system=system,
        notes=[*checkpoint.notes, *plan.notes],
        warnings=thread_warnings,
        load_seconds=time.perf_counter() - begun,
    )
    _engines.add(engine)
    if remembers:
        inside = packed.read(checkpoint.path)
        prompts = [(inside.path, span) for span in inside.prompts] if inside else ()
        engine.store.remember(Remembered(engine.space, prompts))
    if isinstance(path := kv_config.kv_budget, str):
        made_for = read_budget(path, loaded.config).fingerprint
        if made_for not in (None, loaded.fingerprint):
            raise InvalidFile(f"KV budget {path}: it was made for another model, not this {loaded.config.name}")
    return engine


def built(
    checkpoint: Checkpoint,
    head: str | Head,
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

    if checkpoint.open:
        from edge.model.interpretation import interpreted

        def made() -> Head:
            nonlocal head  # the same in all interpretations: scored with and kept
            head = building.output_head(checkpoint, head, n_threads) if isinstance(head, str) else head
            return head

        scored = None if head == "none" else made
        checkpoint = interpreted(checkpoint, n_threads, reading, scored, tokenizer, progress)
    try:
        transformer = building.build(checkpoint, n_threads=n_threads, head=head, adapt=adapt, cores=cores)
        if copy:
            placement.copy(transformer.movable)
    except MemoryError as error:
        raise MemoryRefused(f"no memory for the weights of {checkpoint.config.name}: {error}") from None
    placement.release_pages(checkpoint)
    trim()
    return checkpoint, transformer


def scored_at(checkpoint: Checkpoint, fingerprints: str | None = None) -> tuple[str | None, int]:
    """The file that remembers how a checkpoint is read, and the bytes that trying its readings will leave behind;
    (None, 0) for a checkpoint whose file states everything.  ``fingerprints``: the folder that remembers them.

    Called before the program's size is measured: what it takes stays.
    """
    if not checkpoint.open:
        return None, 0
    from edge.model.interpretation import remembered, remembered_at

    place = remembered_at(checkpoint, fingerprints)
    return place, LEFT_BY_SCORING if remembered(place, checkpoint) is None else 0


def resident(checkpoint: Checkpoint) -> int:
    """Bytes of this process with its first answer, less what :func:`expect` counts; called when the vocabulary was
    read.
    """
    from edge.machine import placement
    from edge.machine.linux import rss
    from pyx.machine import trim

    placement.release_pages(checkpoint)
    trim()  # what reading the vocabulary left free would count as the program's, and go later
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


def head_for(head: str, checkpoint: Checkpoint, kv_config: KVConfig, constrained: bool = False) -> str:
    """The output head for "auto"; other types are returned unchanged.

    A head that the file has as Q8_0 or ternary is used as it is ("auto" to :func:`pyx.step.placement`);
    others become int8, or two-stage where that is faster with the same answers (benchmarks/log#head-auto): the head is
    large, its rows fill the planes, and steps mostly ask for the likeliest tokens of one answer.  It is not faster for
    several answers at once, which read int8 rows together, nor for grammars, which need all logits.  Two stages of a
    Q8_0 head take additional memory, so they are used only if there is plenty.
    """
    from edge.registry.encodings import GROUP_TYPES
    from pyx.step import CODE_BLOCK

    table = checkpoint.tensors.get(checkpoint.head)
    k = checkpoint.config.hidden
    if head != "auto" or table is None or table.type in GROUP_TYPES:
        return head
    alone = kv_config.parallel in (None, 1) and not constrained
    wins = alone and k % CODE_BLOCK == 0 and checkpoint.config.n_vocab * k >= LARGE_HEAD
    whole = "q8_0" if table.type == "Q8_0" else "int8"
    if not wins or whole == "q8_0" and not _plenty(checkpoint, kv_config):
        return whole
    return "two-stage"


def _plenty(checkpoint: Checkpoint, kv_config: KVConfig) -> bool:
    """Whether there is no memory limit and everything, with a two-stage head, fits into half of the available memory.
    """
    available = available_memory()
    if available is None or kv_config.memory is not None:
        return False
    try:
        kv_config.plan(checkpoint.config, expect(checkpoint, "two-stage", "auto", 0, 1), available // 2)
    except EdgeError:
        return False
    return True


def arrange(
    checkpoint: Checkpoint,
    kv_config: KVConfig,
    head: str,
    weights: str,
    program: int,
    n_threads: int,
    vocabulary: int = 0,
) -> tuple[str, KVPlan]:
    """The place of the weights ("map", "huge", "collapse": see :mod:`edge.machine.placement`), and the plan for it.

    ``vocabulary``: bytes for answers that follow a grammar.  Raises MemoryRefused.
    """
    from edge.machine import placement
    from edge.registry.encodings import GROUP_ROWS

    def plan(kind: str, available: int | None) -> KVPlan:
        expected = expect(checkpoint, head, kind, program, n_threads)
        return kv_config.plan(checkpoint.config, expected._replace(vocabulary=vocabulary), available)

    available = available_memory()
    codes = placement.advise(checkpoint)
    if weights == "auto":
        plan("map", available)
        matrices = (tensor for name, tensor in checkpoint.tensors.items() if name.startswith("blk."))
        panels = any(tensor.type in GROUP_ROWS for tensor in matrices)
        weights = placement.choose(codes, plan, available, panels)
    return weights, plan(weights, available)



def _any_open() -> bool:
    """Whether an engine exists that was not closed; unreferenced ones are collected first."""
    if all(engine.closed for engine in list(_engines)):
        return False
    gc.collect()
    return not all(engine.closed for engine in list(_engines))


def choose_isa(isa: str | None) -> None:
    """Use an instruction set for the engines that are open from now on; None: the one that would be used without any
    engine.  Raises UsageError or UnsupportedCPU.
    """
    global _isa_before
    if isa is not None:
        check_text(isa, "isa")
    from pyx import machine

    alone = not _any_open()
    try:
        if alone and _isa_before is not None:
            machine.use(_isa_before)
            _isa_before = None
        before = machine.isa()
        if isa is not None:
            machine.use(isa)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except RuntimeError as error:
        raise UnsupportedCPU(str(error)) from None
    if machine.isa() == before:
        return
    if alone:
        _isa_before = before
        return
    machine.use(before)
    raise UsageError(
        f"is {isa!r}, but an open engine uses {before!r}, and all engines that are open use the same",
        argument="isa",
        hint="close that engine first, or leave isa out")
