"""Engine: one model in memory: weights, tokenizer, template, and the plan for the KV cache of its sessions.

    load(path) -> Engine -> .session() -> Session.ask(text) -> pieces

Nothing here prints, installs signal handlers or imports NumPy.  One engine serves many sessions from many threads: the
lock is taken for one step at a time, so sessions advance in turns.  Not to be used after fork().
"""

from __future__ import annotations

import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edge.amounts import parse_size
from edge.drafting import OFF, Drafting
from edge.errors import EdgeError, InvalidFile, MemoryRefused, ModelNotFound, UnsupportedCPU, UsageError
from edge.footprint import Footprint, available_memory
from edge.kv_config import DEFAULT_OFFLOAD, KVConfig, KVPlan
from edge.session import Session
from edge.stream import Piece
from edge.usage import Timings, Usage

if TYPE_CHECKING:
    from edge.config import ModelConfig
    from edge.formats.checkpoint import Checkpoint
    from edge.prefix_store import PrefixStore

__all__ = ["Engine", "Piece", "Session", "Timings", "Usage", "load"]

#: the model that ships inside the package
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
#: how the output head may lie in memory; native: exactly the values of the file; auto: int8, or Q8_0 as stored
HEADS = ("auto", "int8", "two-stage", "int6", "int4", "f16", "f32", "native")
#: bytes per vocabulary entry and session, of float32 logits and of the sampler's tables
LOGIT_BYTES, SAMPLER_BYTES = 4, 12


class Engine:
    """A loaded model.  Made by :func:`load`; tests may put the parts together themselves.

    ``transformer`` has ``step``, ``chunk`` and ``n_threads`` (pyx.transformer), ``tokenizer`` and ``template`` are
    those of edge.tokenizer and edge.template, ``new_kv`` makes the KV cache of a session.
    """

    def __init__(
        self,
        config: ModelConfig,
        transformer: Any,
        tokenizer: Any,
        template: Any,
        plan: KVPlan,
        *,
        path: str = "",
        notes: Sequence[str] = (),
        load_seconds: float = 0.0,
        new_kv: Callable[[], Any] | None = None,
        keep: Any = None,
        placement: str = "map",
        drafting: Drafting = OFF,
    ) -> None:
        self.config = config
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.template = template
        self.plan = plan
        self.path = path
        self.notes = list(notes)
        self.load_seconds = load_seconds
        self.n_threads: int = transformer.n_threads
        self.stop_ids = frozenset(template.stop_ids(tokenizer)) | frozenset(tokenizer.eos_ids)
        self.answer_lead: str = template.answer_lead()
        self.lock = threading.Lock()
        self.closed = False
        self.drafting = drafting
        self._make_kv = new_kv
        self.prefixes: PrefixStore | None = None
        self._pool: Any = None  # of KV pages that sessions may share
        self._fingerprint: str | None = None
        self._keep = keep  # the checkpoint: it owns the file's map
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._moving: threading.Thread | None = None
        if placement != "map":
            from edge.placement import start

            self._moving = start(placement, transformer, self.lock, lambda: self.closed)

    def settle(self) -> None:
        """Wait until the weights lie where they will stay: they may be on their way into 2 MiB pages between steps."""
        if self._moving is not None:
            self._moving.join()

    def session(self, system: str | None = None) -> Session:
        """A new conversation; its KV cache is allocated when it is first used."""
        if self.closed:
            raise UsageError("the engine is closed")
        session = Session(self, system)
        self._sessions.add(session)
        return session

    def load_session(self, path: str | os.PathLike[str]) -> Session:
        """A session that :meth:`edge.session.Session.save` wrote; it goes on as if it had never been saved.

        Raises InvalidFile for a file that is damaged, or of another model or KV plan, and UsageError where there is
        none that can be read.
        """
        from edge import session_file

        return session_file.load(self, path)

    def share_prefixes(
        self, max_bytes: str | int, folder: str | os.PathLike[str] | None = None, folder_bytes: str | int = "1G"
    ) -> PrefixStore:
        """Let sessions share what they begin with (system prompts, what :meth:`Session.warm` read); from now on.

        See :class:`edge.prefix_store.PrefixStore`.  Sizes as "64M" or in bytes.  Sessions that have begun already keep
        what they hold to themselves.
        """
        from edge.prefix_store import PrefixStore

        most, on_disk = parse_size(max_bytes, "max_bytes"), parse_size(folder_bytes, "folder_bytes")
        self.prefixes = PrefixStore(self, most or 0, folder, on_disk or 0)
        return self.prefixes

    @property
    def fingerprint(self) -> str:
        """What tells this model from others, see :mod:`edge.fingerprint`."""
        if self._fingerprint is None:
            from edge.fingerprint import fingerprint

            if self.closed:
                raise UsageError("the engine is closed")
            self._fingerprint = fingerprint(self.config, self._keep)
        return self._fingerprint

    def memory(self) -> dict[str, int]:
        """Bytes: the parts of the plan, ``kv`` of all open sessions, and what the process really holds."""
        f = self.plan.footprint
        return {
            "weights_mapped": f.mapped,
            "weights": f.allocated,
            "head_mapped": f.head_mapped,
            "head": f.head_allocated,
            "scratch": f.scratch,
            "program": f.program,
            "kv_planned": self.plan.kv_bytes,
            "kv": sum(session.kv_bytes for session in list(self._sessions)),
            "prefixes": self.prefixes.nbytes if self.prefixes is not None else 0,
            "planned": self.plan.total_bytes,
            **self.rss(),
        }

    def rss(self) -> dict[str, int]:
        """Resident bytes of the process: ``rss``, ``anon``, ``file``."""
        from pyx.memory import rss

        return rss()

    def close(self) -> None:
        """Give everything back.  Running answers end with an error at their next token."""
        if self.closed:
            return
        self.closed = True
        with self.lock:  # no step is running from here on
            for session in list(self._sessions):
                session.close()
            self.prefixes = self._pool = None
            self.transformer = self._keep = self._make_kv = None
        self.settle()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- for sessions -----------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raises UsageError once the engine is closed; called under the lock before each step."""
        if self.closed:
            raise UsageError("the engine was closed during an answer")

    def new_kv(self, plan: KVPlan | None = None) -> Any:
        """The KV cache of one session, as planned; or by another plan, for comparisons."""
        if self._make_kv is not None:
            return self._make_kv()
        from pyx.kv import KVCache
        from pyx.pool import PagePool

        pool = None
        if plan is None and (self.prefixes is not None or self.plan.room is not None):
            if self._pool is None:
                self._pool = PagePool(self.plan.room, huge=True)
            pool = self._pool
        c, plan = self.config, plan or self.plan
        return KVCache(c.n_layer, c.n_kv_head, c.head_dim, **plan.cache, pool=pool, spill=plan.offload)

    def new_sampler(self, seed: int) -> Any:
        """The sampler of one session."""
        from pyx.sampler import Sampler

        return Sampler(self.config.n_vocab, seed)


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    ctx: int | None = None,
    kv: str = "int8",
    window: int = 0,
    sinks: int | None = None,
    threads: int | None = None,
    memory: str | int | None = None,
    force_memory: bool = False,
    head: str = "auto",
    weights: str = "auto",
    draft: str | int = "auto",
    isa: str | None = None,
    template: str | None = None,
    i2s_layout: str = "128",
    activation: str | None = None,
    overflow: str = "slide",
    positions: str = "absolute",
    kv_policy: str = "recent",
    kv_budget: str | os.PathLike[str] | None = None,
    kv_drop_layers: str | Sequence[int] = (),
    kv_offload: str | os.PathLike[str] | None = None,
    kv_offload_size: str | int = DEFAULT_OFFLOAD,
    kv_hadamard: str = "auto",
    system: str | None = None,
    progress: Callable[[float, float], None] | None = None,
    on_plan: Callable[[KVPlan], object] | None = None,
) -> Engine:
    """Load a model file or folder; None is the model that ships inside.

    ctx, kv, window, sinks, memory, overflow, force_memory, positions and all that begin with kv: see
    :class:`edge.kv_config.KVConfig`.  threads: default one for each performance core.  head: one of HEADS.
    weights: "map" (run from the file's map), "huge" (copied into 2 MiB pages first) or "auto" (begins with the map,
    the copy is made between steps if memory is plenty, see :mod:`edge.placement`).  isa: force an instruction set.
    template: a chat template by name.  i2s_layout and activation: for files that do not say.  system: the system prompt
    that sessions will have; it is pinned where the context slides and ``sinks`` is None.  progress: called with (done,
    total).  draft: "auto", "off" or a number of tokens, see :mod:`edge.drafting`.
    on_plan: called with the memory plan before anything of it is taken, but for a large output head where memory is
    plenty.

    Raises an :class:`edge.EdgeError`: UsageError, ModelNotFound, InvalidFile, MemoryRefused or UnsupportedCPU.
    """
    begun = time.perf_counter()
    budget = None if kv_budget is None else os.fspath(kv_budget)
    folder = None if kv_offload is None else os.fspath(kv_offload)
    wishes = KVConfig(
        ctx, kv, window, sinks, memory, overflow, force_memory, positions, kv_policy, budget, kv_drop_layers,
        folder, kv_offload_size, kv_hadamard,
    )  # fmt: skip
    if head not in HEADS:
        raise UsageError(f"head is {head!r}; it is {', '.join(HEADS[:-1])} or {HEADS[-1]}")
    if weights not in ("auto", "map", "huge"):
        raise UsageError(f"weights is {weights!r}; it is auto, map or huge")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 256):
        raise UsageError(f"threads is {threads!r}; it is a whole number from 1 to 256")
    drafting = Drafting.parse(draft).under(kv_policy)
    _choose_isa(isa)
    report = progress or (lambda done, total: None)

    import pyx.sampler
    import pyx.transformer  # noqa: F401  both imported here so that the program's size is measured with them
    from edge import placement
    from edge import weights as building
    from edge.formats import open_checkpoint
    from edge.template import Template
    from edge.tokenizer import Tokenizer
    from pyx import cpu
    from pyx.memory import rss

    path = _bundled() if model is None else str(model)
    checkpoint = open_checkpoint(path, i2s_layout=i2s_layout, activation=activation)
    report(1, 10)
    n_threads = threads or cpu.cores()
    ahead = _head_ahead(checkpoint, wishes, head, weights, n_threads)
    tokenizer = Tokenizer.build(checkpoint.tokenizer)
    chat = Template.for_model(checkpoint, name=template)
    report(3, 10)
    if system:
        wishes = wishes.pinning(chat.beginning(tokenizer, system), checkpoint.config.n_ctx_train)

    output = ahead.result() if ahead else None
    _release_pages(checkpoint)
    program = rss()["rss"] - (output.allocated if output else 0)
    # refuse before anything large is touched
    place, plan = arrange(checkpoint, wishes, head, weights, program, n_threads, drafting)
    if on_plan:
        on_plan(plan)
    try:
        transformer = building.build(checkpoint, n_threads=n_threads, head=output or head)
        if weights == "huge":
            placement.copy(transformer.matrices)
    except MemoryError as error:
        raise MemoryRefused(f"no memory for the weights of {checkpoint.config.name}: {error}") from None
    _release_pages(checkpoint)
    plan = wishes.plan(checkpoint.config, _measure(transformer, checkpoint, program, place == "huge", drafting))
    report(10, 10)
    engine = Engine(
        checkpoint.config,
        transformer,
        tokenizer,
        chat,
        plan,
        path=path,
        notes=[*checkpoint.notes, *plan.notes],
        load_seconds=time.perf_counter() - begun,
        keep=checkpoint,
        placement="map" if weights == "huge" else place,
        drafting=drafting,
    )
    if budget is not None:
        check_budget(engine, budget)
    return engine


def check_budget(engine: Engine, path: str) -> None:
    """Raises InvalidFile where the budgets were calibrated on another model."""
    from edge.kv_policy import read_budget

    made_for = read_budget(path, engine.config).fingerprint
    if made_for is not None and made_for != engine.fingerprint:
        raise InvalidFile(f"KV budget {path}: it was made for another model, not this {engine.config.name}")


def arrange(
    checkpoint: Checkpoint,
    wishes: KVConfig,
    head: str,
    weights: str,
    program: int,
    n_threads: int,
    drafting: Drafting,
) -> tuple[str, KVPlan]:
    """Where the weights will lie ("map", "huge", "collapse": see :mod:`edge.placement`), and the plan for that.

    Raises MemoryRefused.
    """
    from edge import placement

    def plan(kind: str, available: int | None) -> KVPlan:
        expected = expect(checkpoint, head, kind, program, n_threads, drafting)
        return wishes.plan(checkpoint.config, expected, available)

    available = available_memory()
    codes = placement.advise(checkpoint)
    if weights == "auto":
        plan("map", available)
        weights = placement.choose(codes, plan, available)
    return weights, plan(weights, available)


class _Ahead(threading.Thread):
    """Something that is made while other things load."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__(name="ahead")
        self._make = make
        self._made: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._made = self._make()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        """What was made; raises what went wrong with it."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._made


def _head_ahead(
    checkpoint: Checkpoint, wishes: KVConfig, head: str, weights: str, n_threads: int
) -> _Ahead | None:
    """Begin to make a large output head while the rest is loaded, unless it makes itself (int8) or is used as stored.

    Only where the plan, which needs the program's size, cannot refuse it any more: without a limit, and with half of
    the memory that is available left.
    """
    from edge import weights as building
    from edge.placement import LEAST

    available = available_memory()
    if head in ("auto", "int8") or available is None or wishes.memory is not None:
        return None
    expected = expect(checkpoint, head, weights, 0, n_threads)
    try:
        wishes.plan(checkpoint.config, expected, available // 2)
    except EdgeError:
        return None
    if expected.head_allocated < LEAST:
        return None
    return _Ahead(lambda: building.output_head(checkpoint, head, n_threads))


def expect(
    checkpoint: Checkpoint,
    head: str = "auto",
    weights: str = "auto",
    program: int = 0,
    n_threads: int = 1,
    drafting: Drafting = OFF,
) -> Footprint:
    """What loading a checkpoint will take, from shapes alone: that of a ternary GGUF exactly."""
    from edge.placement import in_place
    from pyx import scratch
    from pyx.head import placement

    config = checkpoint.config
    mapped = allocated = 0
    for name, tensor in checkpoint.tensors.items():
        if len(tensor.shape) != 2 or not name.startswith("blk."):
            allocated += 4 * tensor.shape[0] if len(tensor.shape) == 1 else 0  # a norm
            continue
        rows, k = tensor.shape
        allocated += 4  # its scale
        if in_place(tensor) and weights != "huge":
            mapped += rows * k // 4
        else:
            allocated += rows * ((k + 127) // 128 * 32)
    table = checkpoint.tensors.get(checkpoint.head)
    stored = table.type if table else ""
    place = placement(head, stored, config.n_vocab, config.hidden, n_threads)
    return Footprint(
        mapped=mapped,
        allocated=allocated,
        head_mapped=place.nbytes if place.mapped else 0,
        head_allocated=0 if place.mapped else place.nbytes,
        scratch=scratch.bytes_for(config, n_threads) + place.scratch + _session_bytes(config, drafting),
        program=program,
    )


def _session_bytes(config: ModelConfig, drafting: Drafting) -> int:
    """Of logits and of the sampler."""
    return config.n_vocab * (SAMPLER_BYTES + LOGIT_BYTES * (1 + drafting.most))


def _measure(transformer: Any, checkpoint: Checkpoint, program: int, copied: bool, drafting: Drafting) -> Footprint:
    """The same from the loaded transformer, exactly; with all its weights ``copied``, if that is what will be done."""
    allocated = transformer.weight_bytes if copied else transformer.weight_bytes_allocated
    head_allocated = transformer.head_bytes_allocated
    return Footprint(
        mapped=transformer.weight_bytes - allocated,
        allocated=allocated + transformer.vector_bytes,
        head_mapped=transformer.head_bytes - head_allocated,
        head_allocated=head_allocated,
        scratch=transformer.scratch_bytes + _session_bytes(checkpoint.config, drafting),
        program=program,
    )


def _release_pages(checkpoint: Checkpoint) -> None:
    """Let go of what was read only once through the file's map (the embedding behind an int8 head, for one)."""
    from edge.placement import release

    maps = {id(tensor.data.obj): tensor.data.obj for tensor in checkpoint.tensors.values()}
    for owner in maps.values():
        if isinstance(owner, mmap.mmap):
            release(owner)


def _choose_isa(isa: str | None) -> None:
    """Force an instruction set, or see that the one in BITNET_EDGE_ISA can be used."""
    try:
        from pyx import cpu
    except ImportError as error:
        raise EdgeError(f"the compiled part is missing or does not fit this Python ({error}): "
                        "python setup.py build_ext --inplace builds it") from error
    try:
        if isa is None:
            cpu.isa()
        else:
            cpu.use(isa)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except RuntimeError as error:
        raise UnsupportedCPU(str(error)) from None


def _bundled() -> str:
    models = sorted(name for name in os.listdir(MODELS) if name.endswith(".gguf")) if os.path.isdir(MODELS) else ()
    if not models:
        raise ModelNotFound("no model ships inside this copy; give the path of a .gguf file or a Hugging Face folder")
    return os.path.join(MODELS, models[0])
