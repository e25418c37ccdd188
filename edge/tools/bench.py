"""bench: the speed of reading prompts and writing answers, at several context depths, compared with that of the memory.

For every number of threads and KV type, the model is loaded once and warmed up.  Then, for every depth, a new session
reads a prompt of that many tokens (pp, tokens per second over the whole prompt) and writes ``n_gen`` tokens after it
(tg, tokens per second at that depth).  Each figure is the median of the repeats; ``spread`` is (fastest - slowest) /
median of tg.  Prompts are fixed pseudo-random tokens, as the work does not depend on the words.

For each number of ``parallel`` above 1, that many conversations write at the same time, one token of each in every
step: tg is the speed of all together.  They have the same prompt, each in its own pages; the measurements of the
numbers alternate.

To write a token, all weights, the output head (of a two-stage head what was really needed) and the keys and values in
the window are read once: ``token_bytes``.  If several conversations read the weights together, a token counts its share
of them.  Before each repeat and after the last one, the memory's own speed is measured with as many threads
(:func:`memory_speed`): of pages like those of the weights, and of 2 MiB pages.  ``read_rate`` is the best of the run,
and ``of_memory`` the share of it that writing reached.

``joules_per_token`` is what the machine used while it wrote, all repeats together, where it has a meter
(:mod:`edge.machine.energy`): of everything that ran, over LEAST_SECONDS at least.
"""

from __future__ import annotations

import datetime
import io
import mmap
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

from edge.amounts import count, median
from edge.errors import UsageError
from edge.machine import energy
from edge.machine.board import Board
from edge.machine.linux import disk_read, huge_bytes, peak, rss
from edge.sampling import Sampling

if TYPE_CHECKING:
    from edge.engine import Engine

#: most bytes of memory that are read to measure its speed: more than the caches of a board, little of its memory
MOST = 256 << 20
#: the same where there is a limit, of whose plan they are a part
LIMITED_YARDSTICK = 32 << 20
#: passes of each way to read, of which the best counts
PASSES = 3
#: tokens of an answer before the first that is measured: the ways to read weights are compared meanwhile
WARM_UP = 25
#: above this ``of_memory`` is not noise: the weights are in the processor's caches
CACHED = 1.25
#: over less writing no joules are told: what a meter shows is an average over some time, too
LEAST_SECONDS = 1.0
#: most conversations at the same time, the same as for ``serve``
MOST_PARALLEL = 64
GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Row:
    """The result for one depth of one configuration; speeds in tokens per second, sizes in bytes."""

    isa: str
    threads: int
    weights: str  # "map", "huge" or "memory", see placement
    head: str
    kv: str
    depth: int  # tokens before the answer
    parallel: int  # conversations that write at the same time
    pp: float
    tg: float
    spread: float  # (fastest - slowest) / median of tg
    token_bytes: int  # read to write one token
    of_disk: float  # share of them that came from the disk
    read_rate: float  # bytes per second that memory was read with as many threads, the best of the run
    of_memory: float  # token_bytes * tg / read_rate
    joules_per_token: float | None
    kv_bytes: int
    rss_bytes: int
    pp_samples: list[float]
    tg_samples: list[float]

    def cells(self) -> tuple[str, ...]:
        """The line of the table for people."""
        setting = f"{count(self.threads, 'thread')}, {self.kv} KV"
        setting += f", {self.parallel} at once" if self.parallel > 1 else ""
        share = "in caches" if self.of_memory > CACHED else f"{min(self.of_memory, 1.0):.0%}"
        return setting, str(self.depth), f"{self.pp:.1f}", f"{self.tg:.2f}", f"{self.spread:.0%}", share


COLUMNS = ("setting", "depth", "prompt t/s", "answer t/s", "spread", "of memory")
EXPLAINED = """\
depth: tokens before the answer; t/s: tokens per second, the median; spread: (fastest - slowest) / median of the answers
of memory: the share of the memory's speed that writing reached; in caches: the weights stay in the processor's caches
"""


@dataclass(frozen=True)
class Report:
    """A finished measurement: ``header`` is what was measured and on which machine."""

    header: dict[str, Any]
    rows: list[Row]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**self.header, "rows": [asdict(row) for row in self.rows]}

    def to_markdown(self) -> str:
        """A table for people, with what holds for all rows above it."""
        head, first = self.header, self.rows[0]
        table = [COLUMNS, *(row.cells() for row in self.rows)]
        wide = [max(map(len, column)) for column in zip(*table)]
        lines = ["| " + " | ".join([cells[0].ljust(wide[0]), *map(str.rjust, cells[1:], wide[1:])]) + " |"
                 for cells in table]
        lines.insert(1, f"|:{'-' * wide[0]}-|" + "|".join(f"-{'-' * n}:" for n in wide[1:]) + "|")
        least, most = (pick(row.token_bytes for row in self.rows) / 1e6 for pick in (min, max))
        disk = max(row.of_disk for row in self.rows)
        joules = sorted(row.joules_per_token for row in self.rows if row.joules_per_token is not None)
        used = f"{joules[0]:.3g} to {joules[-1]:.3g} J a token, by " if joules else "not measured: "
        notes = [
            f"a token reads {least:.1f} to {most:.1f} MB; the memory was read at "
            f"{max(row.read_rate for row in self.rows) / 1e9:.1f} GB/s",
            f"energy {used}{head['energy']}",
            *[f"up to {disk:.0%} of what a token read came from the disk"] * (disk >= 0.005),
            *(f"this board was slowed down ({when}): {', '.join(what)}"
              for when, what in (head["throttling"] or {}).items() if what),
        ]
        return "\n".join([
            f"{head['model']} on {head['board'] or 'unknown board'} ({head['cpu']}), bitnet-edge {head['version']}",
            f"instructions {first.isa}, weights {first.weights}, {first.head} head, {head['repeats']} repeats",
            "", *lines, "", EXPLAINED + "\n".join(notes), "",
        ])


def run(
    model: str | None = None,
    *,
    depths: Sequence[int] = (128, 512),
    n_gen: int = 32,
    repeats: int = 3,
    threads: Sequence[int | None] = (None,),
    kv: Sequence[str] = ("int8",),
    parallel: Sequence[int] = (1,),
    progress: Callable[[float, float], object] | None = None,
    **options: Any,
) -> Report:
    """Measure every combination; ``options`` go to :func:`edge.load` (isa, head, weights, memory, ...).

    ``parallel``: numbers of conversations that write at the same time.  ``progress``: called with (answers done,
    total).

    A depth that leaves less than ``n_gen`` tokens of the context the model was trained for is reduced; one beyond that
    context is left out (see the header).  Raises UsageError for invalid values, and whatever loading raises.
    """
    if n_gen < 2 or repeats < 1 or not depths or min(depths) < 1:
        raise UsageError("bench needs depths of at least 1 token, 2 tokens to write and 1 repeat")
    if not parallel or not all(1 <= n <= MOST_PARALLEL for n in parallel):
        raise UsageError(f"bench measures 1 to {MOST_PARALLEL} conversations at the same time")
    if max(depths) + n_gen > 1 << 24:  # the longest context of all
        raise UsageError(f"-d {max(depths)}: no model reads so many tokens")
    import edge

    combinations = list(product(threads, kv))
    done = total = 0  # answers

    def answered() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    meter = energy.find()
    header: dict[str, Any] = {}
    rows: list[Row] = []
    rates: dict[int, list[float]] = {}  # of reading memory, for each number of threads
    for n_threads, kv_type in combinations:
        chosen = {**options, "kv": kv_type, "threads": n_threads}
        if max(parallel) > 1:
            chosen["parallel"] = max(parallel)
        if options.get("memory") is not None:
            chosen["reserve"] = LIMITED_YARDSTICK
        with edge.load(model, ctx=max(depths) + n_gen, **chosen) as engine:
            usable, left_out = _choose_depths(depths, n_gen, engine.config.n_ctx_train)
            engine.wait_for_weights()
            _answer(engine, min(usable), min(n_gen, WARM_UP))  # pages in, clocks up
            header = header or _describe(engine, repeats, left_out)
            total = len(combinations) * len(usable) * repeats * len(parallel)
            if progress is not None:
                progress(done, total)
            for depth in usable:
                rows += _measure(engine, depth, n_gen, repeats, parallel, rates, answered, meter)
    header["throttling"] = Board().throttling()
    header["energy"] = meter if isinstance(meter, str) else meter.name
    if not isinstance(meter, str) and not any(row.joules_per_token for row in rows):
        header["energy"] += f" needs answers of {LEAST_SECONDS:g} s in all; give a larger -n"
    for i, row in enumerate(rows):
        rate = max(rates[row.threads])
        rows[i] = replace(row, read_rate=round(rate), of_memory=round(row.token_bytes * row.tg / rate, 3))
    return Report(header, rows)


def _choose_depths(depths: Sequence[int], n_gen: int, n_ctx: int) -> tuple[list[int], list[int]]:
    """Depths to measure in a context of n_ctx, and those left out."""
    usable = sorted({min(depth, n_ctx - n_gen) for depth in depths if depth <= n_ctx})
    if not usable or usable[0] < 1:
        raise UsageError(
            f"this model was trained for {n_ctx} tokens: no depth of {', '.join(map(str, depths))} leaves room for "
            f"{n_gen} more"
        )
    return usable, sorted({depth for depth in depths if depth > n_ctx})


@dataclass(frozen=True)
class _Sample:
    pp: float
    tg: float
    disk: float  # bytes read from the disk for each token
    more: float  # bytes of the output head that a token has read in addition to those that every step reads
    joules: float


def prompt_of(n_vocab: int, special: Iterable[int], n: int) -> list[int]:
    """n fixed pseudo-random tokens that are not special."""
    return Random(1).choices(sorted(set(range(n_vocab)).difference(special)), k=n)


def _answer(engine: Engine, depth: int, n_gen: int, joules: Callable[[], float] = float) -> _Sample:
    """Measure one prompt of ``depth`` tokens and an answer of ``n_gen`` tokens, in a new session.

    ``joules``: what the machine has used so far.
    """
    tokenizer = engine.tokenizer
    ids = prompt_of(min(engine.config.n_vocab, tokenizer.n_vocab), tokenizer.special.values(), depth)
    transformer = engine.model.transformer
    disk = more = 0
    used = 0.0
    with engine.session() as session:
        for i, _ in enumerate(session.complete(ids, max_tokens=n_gen, sampling=GREEDY, ignore_eos=True)):
            now = joules()
            if i == 0:  # the prompt was read
                disk, more, used = disk_read(), transformer.head.more_bytes, now
        timings, usage = session.outcome.timings, session.outcome.usage
    # the first token comes out of the prompt's own evaluation: n tokens take n - 1 steps
    steps = usage.completion - 1
    return _Sample(
        pp=usage.prompt / timings.prompt_seconds,
        tg=steps / timings.decode_seconds,
        disk=(disk_read() - disk) / steps,
        more=(transformer.head.more_bytes - more) / steps,
        joules=(joules() - used) / steps,
    )


def _answer_together(engine: Engine, depth: int, n_gen: int, n: int, joules: Callable[[], float]) -> _Sample:
    """The same for ``n`` conversations at the same time, one token of each in every step; pp is that of one prompt."""
    from pyx.step import Segment

    model, n_vocab = engine.model, engine.config.n_vocab
    tokenizer = engine.tokenizer
    ids = array("i", prompt_of(min(n_vocab, tokenizer.n_vocab), tokenizer.special.values(), depth))
    caches = [engine.space.new_cache() for _ in range(n)]
    sampler = engine.space.new_sampler(0)
    rows = [memoryview(array("f", bytes(4 * n_vocab))) for _ in range(n)]
    begun = time.perf_counter()
    for at in range(0, depth, model.chunk):
        last = at + model.chunk >= depth
        model.step([Segment(caches[0], ids[at : at + model.chunk], rows[0] if last else None)])
    read = time.perf_counter() - begun
    whole = b"".join(caches[0].dump())
    for cache, row in zip(caches[1:], rows[1:], strict=True):
        cache.restore(*caches[0].counters, io.BytesIO(whole).readinto, caches[0].states)
        row[:] = rows[0]
    chosen = [array("i", [0]) for _ in range(n)]
    batch = [
        Segment(cache, one, row, False, GREEDY.winners) for cache, one, row in zip(caches, chosen, rows, strict=True)
    ]

    def choose() -> None:
        for one, row in zip(chosen, rows, strict=True):
            one[0] = sampler.sample(row, GREEDY.temperature, GREEDY.top_k, GREEDY.top_p, GREEDY.min_p)

    choose()
    disk, more, used, begun = disk_read(), model.transformer.head.more_bytes, joules(), time.perf_counter()
    for _ in range(n_gen - 1):
        model.step(batch)
        choose()
        joules()
    seconds, tokens = time.perf_counter() - begun, n * (n_gen - 1)
    return _Sample(pp=depth / read, tg=tokens / seconds, disk=(disk_read() - disk) / tokens,
                   more=(model.transformer.head.more_bytes - more) / tokens, joules=(joules() - used) / tokens)


def weights_read(engine: Engine, n: int) -> int:
    """Bytes of weights and output head that every step for ``n`` conversations reads; of experts those that as many
    tokens use if each chooses by itself.
    """
    t, unread = engine.model.transformer, 1 - engine.config.expert_share
    return round(t.weight_bytes + t.expert_bytes * (unread - unread**n)) + t.head.least_bytes


def _measure(
    engine: Engine,
    depth: int,
    n_gen: int,
    repeats: int,
    parallel: Sequence[int],
    rates: dict[int, list[float]],
    answered: Callable[[], None],
    meter: energy.Counters | energy.Power | str,
) -> list[Row]:
    """One row for each number of conversations; their measurements alternate.  ``rates``: threads -> how fast memory
    was read.  ``answered``: called after each measurement.
    """
    from edge.machine.memory import available_memory
    from pyx import machine

    weights = placement(engine)
    kv_read = engine.plan.read_at(depth + n_gen / 2)
    samples: dict[int, list[_Sample]] = {n: [] for n in parallel}
    joules = float if isinstance(meter, str) else meter.joules

    def read_memory() -> None:
        limited = engine.plan.limit is not None
        size = min(weights_read(engine, 1), LIMITED_YARDSTICK if limited else MOST)
        roomy = not limited and (available_memory() or 0) >= 4 * size
        kinds = dict.fromkeys((weights, "huge") if roomy else (weights,))
        rates.setdefault(engine.n_threads, []).extend(
            memory_speed(kind, engine.path, size, engine.n_threads) for kind in kinds)

    for _ in range(repeats):
        read_memory()
        for n, taken in samples.items():
            taken.append(_answer(engine, depth, n_gen, joules) if n == 1 else
                         _answer_together(engine, depth, n_gen, n, joules))
            answered()
    read_memory()
    rows: list[Row] = []
    for n, taken in samples.items():
        tg = median(sample.tg for sample in taken)
        more = median(sample.more for sample in taken)
        token_bytes = round(weights_read(engine, n) / n + more + kv_read)
        seconds = sum(n * (n_gen - 1) / sample.tg for sample in taken)
        rows.append(Row(
            isa=machine.isa(),
            threads=engine.n_threads,
            weights=weights,
            head=engine.model.transformer.head.kind,
            kv=engine.plan.kv_type,
            depth=depth,
            parallel=n,
            pp=round(median(sample.pp for sample in taken), 2),
            tg=round(tg, 3),
            spread=round((max(sample.tg for sample in taken) - min(sample.tg for sample in taken)) / tg, 3),
            token_bytes=token_bytes,
            of_disk=round(min(1.0, median(sample.disk for sample in taken) / token_bytes), 3),
            read_rate=0.0,  # known at the end of the run
            of_memory=0.0,
            joules_per_token=None if isinstance(meter, str) or seconds < LEAST_SECONDS else
            round(sum(sample.joules for sample in taken) / repeats, 4),
            kv_bytes=engine.plan.kv_bytes,
            rss_bytes=rss()["rss"],
            pp_samples=[round(sample.pp, 3) for sample in taken],
            tg_samples=[round(sample.tg, 3) for sample in taken],
        ))
    return rows


def memory_speed(pages: str, path: str, n: int, n_threads: int) -> float:
    """Bytes per second of the fastest way in which ``n_threads`` threads read ``n`` bytes of memory with one kind of
    pages: "huge" (2 MiB), "memory" (ordinary ones) or "map": the first bytes of the file at ``path``.

    No one way to read is the fastest on every processor, in every kind of page, for every number of threads.
    """
    from edge.formats.mapped import map_file
    from pyx.machine import WAYS, Arena, sum_of

    if pages == "map":
        data: Any = map_file(path)[:n]
    else:
        data = Arena(n, huge=pages == "huge").view
        data[:: mmap.PAGESIZE] = bytes(len(range(0, n, mmap.PAGESIZE)))  # a page is there once it is written
    sum_of(data, n_threads)  # brings the pages into memory
    fastest = float("inf")
    for _ in range(PASSES):
        for way in WAYS:
            begun = time.perf_counter()
            sum_of(data, n_threads, way)
            fastest = min(fastest, time.perf_counter() - begun)
    return len(data) / max(fastest, 1e-9)


def placement(engine: Engine) -> str:
    """Where the weights are read from: "map" of the file, "huge" pages, or "memory" (copied into ordinary pages).

    It asks the system whether it really gave 2 MiB pages.
    """
    copied = engine.model.transformer.weight_bytes_allocated
    if copied < engine.model.transformer.weight_bytes / 2:  # scales are always copied
        return "map"
    return "huge" if huge_bytes() >= copied / 2 else "memory"


def _describe(engine: Engine, repeats: int, left_out: list[int]) -> dict[str, Any]:
    import edge

    return {
        "date": datetime.date.today().isoformat(),
        "version": edge.__version__,
        "model": engine.config.name,
        "path": engine.path,
        **Board().summary(),
        "repeats": repeats,
        "left_out": left_out,
        "load_seconds": round(engine.load_seconds, 3),
        "weight_bytes": engine.model.transformer.weight_bytes,
        "head_bytes": engine.model.transformer.head.nbytes,
        "peak_bytes": peak(),  # resident, of loading and warm-up
    }
