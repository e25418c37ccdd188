"""Fit: the memory that a model takes, whether a machine has it, and the longest context that fits there, before
anything is downloaded or loaded.

A published model that is not on this machine is planned by its outline: the tensors that its file has after a pull,
with their types and shapes but without bytes.  Outlines and files have the plan of loading
(edge/cache/planning.py); only the size of the program is an estimate for an outline.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from edge.amounts import human, parse_size
from edge.cache.plan import PAGE, Plan
from edge.cache.planning import LEAST_CTX, PROGRAM_VARIES, cache_plan, largest, plan
from edge.errors import MemoryRefused, ModelNotFound
from edge.formats.checkpoint import Checkpoint, Tensor, TokenizerSpec
from edge.formats.container import Entry
from edge.formats.names import parts
from edge.loading import program_bytes
from edge.machine.memory import BOARDS, SYSTEM, available_memory, left_on
from edge.options import DEFAULT_SINKS, Options
from edge.registry import library
from edge.registry.encodings import PLANE_TYPES
from edge.registry.known import KNOWN, Source
from edge.registry.shapes import SHAPES, shape_of
from edge.tools.embed import KV
from pyx.kv import KV_TYPES

#: resident bytes of the program before the weights are touched: without its vocabulary, for each text of that, and for
#: the library of SentencePiece (measured with `bitnet-edge run -v` on x86-64, CPython 3.11: 25.5 to 38.9 MB in all)
PROGRAM, PER_TEXT, SENTENCEPIECE = 25_400_000, 50, 12_000_000
#: bytes that a server takes besides: its libraries (measured), and what it plans for connections and requests
SERVER = 47_000_000
#: all KV types, and the usual combination of two
TYPES = (*KV_TYPES, "int8:int4")
#: the format of a checkpoint without a file
OUTLINE = "outline"
#: threads for which the tables of boards count the working memory: those boards have four cores
THREADS = 4


@dataclass(frozen=True)
class PlannedModel:
    """A model to plan for."""

    name: str
    checkpoint: Checkpoint
    program: int  # resident bytes of the program with its tokenizer
    known: Source | None = None  # if it is not on this machine, but can be pulled by name

    @property
    def file_bytes(self) -> int:
        """The size of its file on this machine, without what is before the tensors."""
        tensors = self.checkpoint.tensors.values()
        return sum(Entry(tensor.name, tensor.type, tensor.shape, b"").nbytes for tensor in tensors)

    @property
    def embeds(self) -> bool:
        """True if it makes vectors of texts: `embed` loads it without an output head."""
        return self.checkpoint.config.layers[0].inner_norm

    @property
    def is_outline(self) -> bool:
        """True if there is no file of it on this machine."""
        return self.checkpoint.format == OUTLINE


@dataclass(frozen=True)
class Board:
    """How a model fits a board."""

    memory: int  # bytes, as the board is sold
    room: int  # bytes that its system leaves for the program
    fits: bool  # as asked
    on_disk: int  # bytes of experts that must stay there for that
    serves: bool  # as a server, too
    longest: int  # tokens of the longest context that fits; 0: none


def sold(memory: int) -> str:
    """The memory of a board as it is sold: ``512 MB``, ``1 GB``."""
    return f"{memory / 1e9:.0f} GB" if memory >= 1e9 else f"{memory / 1e6:.0f} MB"


def planned_model(model: str | None, **options: Any) -> PlannedModel:
    """A model to plan for, by path or name: a file, a folder, a pulled model, else the outline of a published one;
    None: the one that answers where none is named.  ``options``: of :func:`edge.formats.open_checkpoint`.

    Raises ModelNotFound for other names, InvalidFile.
    """
    from edge.formats import open_checkpoint

    try:
        choice = library.choose(model)
    except ModelNotFound as error:
        if shape_of(model or "") is None:
            raise ModelNotFound(f"{error}; bitnet-edge fit --help lists the published models") from None
        return published(str(model))
    checkpoint = open_checkpoint(choice.path, **options)
    name = checkpoint.config.name if os.path.exists(choice.name) else choice.name
    return PlannedModel(name, checkpoint, program_bytes(checkpoint))


def published(name: str) -> PlannedModel:
    """A published model by one of its names, as a pull leaves it on this machine.  Raises KeyError for another name."""
    short = shape_of(name)
    if short is None:
        raise KeyError(name)
    known = next((known for known in KNOWN.values() if shape_of(known.name) == short), None)
    shape = SHAPES[short]
    program = PROGRAM + PER_TEXT * shape.n_vocab + (SENTENCEPIECE if shape.vocabulary == "sentencepiece" else 0)
    return PlannedModel(known.name if known else short, outline(short), program, known)


def outline(short: str) -> Checkpoint:
    """The checkpoint, without bytes, of a published model as a pull leaves it.  ``short``: a key of SHAPES."""
    from edge.tools.new_file import NewFile

    shape = SHAPES[short]
    config = shape.config(short)
    matrix = "PQ2_0" if config.activation_quant == "int8-128" else "I2_S"

    def described(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> Checkpoint:
        table = {name: Tensor(name, type, dims, memoryview(b"")) for name, type, dims in tensors}
        return Checkpoint(short, OUTLINE, config, table, TokenizerSpec("none"), None, {})

    if shape.planes:
        types = {"matrix": PLANE_TYPES[config.planes], "table": shape.table, "vector": "F32"}
        return described(
            (part.name, types[part.role],
             (part.shape[0], part.shape[1] * shape.planes) if part.role == "matrix" else part.shape)
            for part in parts(config) if part.needed
        )
    stored = described(
        (part.name, {"matrix": matrix, "experts": matrix, "table": shape.table}.get(part.role, "F32"), part.shape)
        for part in parts(config) if part.needed
    )
    return described((entry.name, entry.type, entry.shape) for entry in NewFile(stored, "I2_S", "Q8_0").entries())


def fit(planned: PlannedModel, options: Options) -> tuple[dict[str, Any], list[str], str | None]:
    """How a model fits this machine, or a limit, and boards: as JSON values with sizes in bytes, as lines of text, and
    why loading would refuse it.  Raises UsageError for options that cannot be used.
    """
    from edge.constrain.vocabulary import bytes_for

    checkpoint, known, refusal = planned.checkpoint, planned.known, None
    config, available, limit = checkpoint.config, available_memory(), parse_size(options.memory)
    asked = needed(planned, options)
    try:
        found = loading(planned, options)
    except MemoryRefused as error:
        refusal, found = str(error), asked
    server = None
    with suppress(MemoryRefused):
        server = loading(as_server(planned), options)
    rooms = [limit - PROGRAM_VARIES] if limit is not None else []
    rooms += [available + planned.program] if available is not None else []
    chosen = replace(options, kv=found.kv_type)  # a limit may have chosen a smaller type
    most = longest_on(planned, chosen, min(rooms, default=1 << 62))
    f = found.footprint
    facts = {
        "model": planned.name,
        "path": None if planned.is_outline else checkpoint.path,
        "download_bytes": known.nbytes if known else None,
        "plan": {
            "ctx": found.n_ctx, "kv": found.kv_type, "window": found.window, "sinks": found.sinks,
            "weights_bytes": f.mapped + f.allocated + f.experts, "on_disk_bytes": f.on_disk,
            "head_bytes": f.head_mapped + f.head_allocated,
            "kv_bytes": found.kv_bytes, "scratch_bytes": f.scratch, "program_bytes": f.program,
            "total_bytes": found.total_bytes,
        },
        "server_bytes": server and server.total_bytes,
        "form_bytes": 0 if planned.embeds else bytes_for(config.n_vocab),  # of a server, from the first form on
        "kv_bytes": {each: cache_plan(config, replace(options, ctx=found.n_ctx, kv=each, memory=None)).kv_bytes
                     for each in TYPES},
        "available_bytes": available, "limit_bytes": limit, "fits": refusal is None,
        "longest_ctx": most if refusal else max(most, found.n_ctx), "n_ctx_train": config.n_ctx_train,
        "boards": [asdict(on_board(planned, options, memory)) for memory in BOARDS],
    }
    shown = [
        *(f"  {line}" for line in found.lines()), *(f"note: {note}" for note in found.notes), "", _verdict(facts),
        _as_server(facts, server), *_table(facts, asked)]
    return facts, [_heading(planned), *shown], refusal


def _heading(planned: PlannedModel) -> str:
    where = planned.checkpoint.path
    if planned.is_outline:
        where = "not on this machine" + (f", a download of {human(planned.known.nbytes)}" if planned.known else "")
    return f"{planned.name}: trained context {planned.checkpoint.config.n_ctx_train} tokens; {where}"


def _verdict(facts: dict[str, Any]) -> str:
    """One sentence: it fits or not, and with which context."""
    where, limit, available = "this machine", facts["limit_bytes"], facts["available_bytes"]
    if limit is not None:
        where = f"the limit of {human(limit)}"
    elif available is not None:
        where = f"this machine, which has {human(available)} free"
    left, most = facts["plan"]["on_disk_bytes"], facts["longest_ctx"]
    disk = f" with {human(left)} of its experts on the disk, so more slowly" if left and facts["fits"] else ""
    longest = f"; the longest context that fits has {most} tokens" if most else ""
    return f"{'Fits' if facts['fits'] else 'Does not fit'} {where}{disk}{longest}."


def _as_server(facts: dict[str, Any], server: Plan | None) -> str:
    if server is None:
        return "As a server (serve) it does not fit."
    forms = facts["form_bytes"]
    form = f"; answers with a form take {human(forms)} more, from the first one on" if forms else ""
    return f"As a server (serve) it takes {human(server.total_bytes)} with {server.n_ctx} tokens{form}."


def _table(facts: dict[str, Any], asked: Plan) -> Iterator[str]:
    """The sizes of KV types and the boards."""
    sizes = ", ".join(f"{each} {nbytes / 1e6:.1f}" for each, nbytes in facts["kv_bytes"].items())
    yield f"KV cache of {facts['plan']['ctx']} tokens in each type, in MB: {sizes}"
    yield ""
    rows = [("board", "for the program", f"{asked.n_ctx} tokens, {asked.kv_type}", "longest context", "as a server")]
    for board in facts["boards"]:
        disk = f", {human(board['on_disk'])} on disk" if board["on_disk"] else ""
        fits, serves = (("fits" if board[name] else "does not fit") for name in ("fits", "serves"))
        rows.append((sold(board["memory"]), human(board["room"]), fits + disk, str(board["longest"] or "none"), serves))
    wide = max(len(row[2]) for row in rows)
    for memory, room, fits, longest, serves in rows:
        yield f"{memory:<8}{room:>17}   {fits:<{wide}}   {longest:>15}   {serves}"
    yield (f"for the program: the memory of the board, less {human(SYSTEM)} for the firmware and Linux without a "
           "desktop (assumed)")


def loading(planned: PlannedModel, options: Options, here: bool = True) -> Plan:
    """The plan of loading, ``here``: on this machine, now.  Raises MemoryRefused."""
    if options.weights == "auto":  # it begins with the file's map, and takes more only where it is free
        options = replace(options, weights="map")
    return plan(planned.checkpoint, options, planned.program, available_memory() if here else None,
                options.threads or THREADS, "none" if planned.embeds else None)


def needed(planned: PlannedModel, options: Options) -> Plan:
    """The plan for the context and the KV type as asked, where memory is limited: without what only makes it faster."""
    return loading(planned, replace(options, memory=None), here=False)


def as_server(planned: PlannedModel) -> PlannedModel:
    """The model with what a server takes besides."""
    return replace(planned, program=planned.program + SERVER)


def on_board(planned: PlannedModel, options: Options, memory: int) -> Board:
    """How a model fits a board with ``memory`` bytes, as it is sold."""
    room = left_on(memory)
    options = replace(options, threads=THREADS)
    plans = [needed(each, options) for each in (planned, as_server(planned))]
    fits, serves = (plan.least_bytes <= room for plan in plans)
    on_disk = plans[0].footprint.leaving(plans[0].total_bytes - room).on_disk if fits else 0
    return Board(memory, room, fits, on_disk, serves, longest_on(planned, options, room))


class KnownModel(NamedTuple):
    """A published model that `pull` knows by name."""

    known: Source
    memory: int  # bytes of the whole process with the usual context
    board: int | None  # bytes of the smallest board on which it fits with that; None: it fits none


def known_models() -> list[KnownModel]:
    """All models that `pull` knows by name."""
    found = []
    for name, known in KNOWN.items():
        planned = published(name)
        memory = needed(planned, usual(planned)).total_bytes  # in memory: experts on the disk are slower
        found.append(KnownModel(known, memory, next((each for each in BOARDS if memory <= left_on(each)), None)))
    return found


def offered() -> list[KnownModel]:
    """The chat models to pull that fit this machine, by their score and then their memory."""
    room, here = available_memory(), {model.name for model in library.pulled()}
    found = [each for each in known_models() if each.known.offered and each.known.name not in here
             and (room is None or each.memory <= room)]
    return sorted(found, key=lambda each: (-each.known.score, each.memory))


def usual(planned: PlannedModel) -> Options:
    """The options with which the model is loaded where none are given."""
    return Options(**KV) if planned.embeds else Options()


def longest_on(planned: PlannedModel, options: Options, room: int) -> int:
    """The longest context in tokens with which the process takes at most ``room`` bytes, up to the length the model was
    trained on, or the window or context asked for if that is longer; 0 if it would be shorter than a limit ever makes
    it.
    """
    config, window = planned.checkpoint.config, options.window
    sinks = options.sinks if options.sinks is not None else DEFAULT_SINKS if window else 0
    least = max(min(LEAST_CTX, config.n_ctx_train), window + sinks, sinks + 1)
    most = max(least, config.n_ctx_train, options.ctx or 0)
    options, taken = replace(options, memory=None), needed(planned, options).footprint
    return largest([*range(least, most, PAGE), most],
                   lambda n: cache_plan(config, replace(options, ctx=n), taken).least_bytes <= room)
