"""bench: the speed of reading prompts and writing answers, at several context depths, compared with that of the memory.

For every number of threads, placement of the weights, type of the output head and KV type, the model is loaded once and
warmed up.  Then, for every depth, a new session reads a prompt of that many tokens (pp, tokens per second over the
whole prompt) and writes ``n_gen`` tokens after it (tg, tokens per second at that depth).  Each figure is the median of
the repeats; ``spread`` is (fastest - slowest) / median of tg.  The time per token is measured by a reader of the
stream: the pause between pieces, divided by the tokens in the piece.  Prompts are fixed pseudo-random tokens, as the
work does not depend on the words.

For each number of ``parallel`` above 1, that many conversations write at the same time, one token of each in every
step: tg is the speed of all together, the time per token is that of a step, and ``gain`` is tg divided by that of the
first number.  They have the same prompt, each in its own pages; the measurements of the numbers alternate.

To write a token, all weights, the output head (of a two-stage head what was really needed) and the keys and values in
the window are read once: ``token_bytes``.  If several conversations read the weights together, a token counts its share
of them.  Before each repeat and after the last one, the memory's own speed is measured with as many threads
(:mod:`edge.tools.yardstick`): of pages like those of the weights, and of 2 MiB pages.  ``read_rate`` is the best of the
run, and ``of_memory`` the share of it that writing reached.
"""

from __future__ import annotations

import csv
import datetime
import io
import mmap
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from edge.amounts import median
from edge.errors import UsageError
from edge.machine.board import Board
from edge.machine.linux import disk_read, huge_bytes, peak, rss
from edge.tools.yardstick import MOST, Yardstick, measure

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.sampling import Sampling

#: bytes of memory that are read to measure its speed where there is a limit, of whose plan they are a part
LIMITED_YARDSTICK = 32 << 20
#: above this share there is no room for what a token does besides reading: the yardstick may be too short
TOO_GOOD = 0.98
#: rates of one run that lie further apart say little
DRIFT = 0.15
#: how often what is fastest is measured before the speeds are, until it is clear
TUNES = 3
#: above this ``of_memory`` is not noise: the weights are in the processor's caches
CACHED = 1.25
#: of the files that :meth:`Report.to_share` makes
SHARED = 1
#: most conversations at the same time, the same as for ``serve``
MOST_PARALLEL = 64


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
    gain: float  # tg over that of the first number of conversations
    spread: float  # (fastest - slowest) / median of tg
    ms_p50: float  # milliseconds per token
    ms_p95: float
    token_bytes: int  # read to write one token
    of_disk: float  # share of them that came from the disk
    read_rate: float  # bytes per second that memory was read with as many threads, the best of the run
    read_way: str  # how: Rate.words
    stream_way: str  # how the weights were read: Stream.words
    read_apart: float  # (most - least) / most of the rates of the run
    of_memory: float  # token_bytes * tg / read_rate
    kv_bytes: int
    rss_bytes: int
    celsius: float | None
    mhz: float | None
    pp_samples: list[float]
    tg_samples: list[float]


#: columns before those of Row in a line of CSV
CSV_HEADER = ("date", "version", "board", "cpu", "model", "repeats", "top_k")


@dataclass(frozen=True)
class Report:
    """A finished measurement: ``header`` is what was measured and on which machine."""

    header: dict[str, Any]
    rows: list[Row]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        header = {name: value for name, value in self.header.items() if name != "shared"}
        return {**header, "rows": [asdict(row) for row in self.rows]}

    def to_share(self) -> dict[str, Any]:
        """What an owner of a board can give to others: the machine, the shape of the model and the speeds, as JSON
        values; no names that a person has given, no paths (docs/boards.md).
        """
        left_out = ("_samples", "_bytes", "_way", "_apart")
        names = [field.name for field in fields(Row) if not field.name.endswith(left_out)]
        rows = [{name: getattr(row, name) for name in (*names, "token_bytes")} for row in self.rows]
        return {"format": SHARED, **self.header["shared"], "rows": rows}

    def to_csv(self) -> str:
        """One line of values per row, below a line of names.  Each line includes the header, so that files can be
        joined.
        """
        out = io.StringIO()
        names = [field.name for field in fields(Row) if not field.name.endswith("_samples")]
        writer = csv.DictWriter(out, [*CSV_HEADER, *names], lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**self.header, **asdict(row)} for row in self.rows)
        return out.getvalue()

    def to_markdown(self) -> str:
        """A table for people.  Values that are the same in all rows are above it, explanations of the columns below."""
        head, rows = self.header, self.rows
        several = any(row.parallel > 1 for row in rows)
        columns = {
            "isa": [row.isa for row in rows],
            "threads": [str(row.threads) for row in rows],
            "weights": [row.weights for row in rows],
            "head": [row.head for row in rows],
            "kv": [row.kv for row in rows],
            "depth": [str(row.depth) for row in rows],
            "at once": [str(row.parallel) if several else "" for row in rows],
            "pp t/s": [f"{row.pp:.1f}" for row in rows],
            "tg t/s": [f"{row.tg:.2f}" for row in rows],
            "gain": [f"{row.gain:.2f}x" if several else "" for row in rows],
            "spread": [f"{row.spread:.0%}" for row in rows],
            "ms p50": [f"{row.ms_p50:.3g}" for row in rows],
            "ms p95": [f"{row.ms_p95:.3g}" for row in rows],
            "MB/token": [f"{row.token_bytes / 1e6:.1f}" for row in rows],
            "from disk": [f"{row.of_disk:.0%}" if row.of_disk >= 0.005 else "" for row in rows],
            "GB/s": ["-" if row.of_memory > CACHED else f"{row.read_rate / 1e9:.1f}" for row in rows],
            "reached": [_share(row.of_memory) for row in rows],
            "KV MB": [f"{row.kv_bytes / 1e6:.1f}" for row in rows],
            "RSS MB": [f"{row.rss_bytes / 1e6:.0f}" for row in rows],
            "C": ["" if row.celsius is None else f"{row.celsius:.0f}" for row in rows],
            "MHz": ["" if row.mhz is None else f"{row.mhz:.0f}" for row in rows],
        }
        what = ("isa", "threads", "weights", "head", "kv", "depth")
        same = [name for name in what if len(set(columns[name])) == 1]
        above = ", ".join(f"{name} {columns[name][0]}" for name in same)
        shown = [name for name, cells in columns.items() if name not in same and any(cells)]
        lines = [
            f"{head['model']} on {head['board'] or 'unknown board'} ({head['cpu']}), bitnet-edge {head['version']}",
            f"{above}{'; ' if above else ''}{_drawn(head['top_k'])}median of {head['repeats']}",
            f"{head['weight_bytes'] / 1e6:.1f} MB of weights and {head['head_bytes'] / 1e6:.1f} MB of output head"
            f"{', of which a token reads a part' * any(row.head == 'two-stage' for row in rows)}",
            "",
        ]
        several_threads = len({row.threads for row in rows}) > 1
        ways = dict.fromkeys(
            f"{f'{row.threads} threads: ' * several_threads}{row.read_way}" for row in rows if row.of_memory <= CACHED)
        streams = dict.fromkeys(f"{f'{row.threads} threads: ' * several_threads}{row.stream_way}" for row in rows)
        apart = max(row.read_apart for row in rows)
        wide = [max(map(len, (name, *columns[name]))) for name in shown]
        left = [name in ("isa", "weights", "head", "kv") for name in shown]
        for cells in (shown, None, *zip(*(columns[name] for name in shown))):
            if cells is None:
                cells = [":" + "-" * (n - 1) if first else "-" * (n - 1) + ":" for n, first in zip(wide, left)]
            padded = (c.ljust(n) if first else c.rjust(n) for c, n, first in zip(cells, wide, left))
            lines.append(f"| {' | '.join(padded)} |")
        lines += [
            "",
            "depth: tokens before the answer; pp: prompt processing, tg: text generation, in tokens per second",
            *["at once: answers generated at the same time; gain: tg of all together over that of the first row"]
            * several,
            "ms: time per generated token; MB/token: what it reads: weights, output head and KV cache",
            *["from disk: the share of MB/token that was not in memory"] * any(row.of_disk >= 0.005 for row in rows),
            "GB/s: the fastest that the memory was read meanwhile; reached: the share of it that generation reached",
            f"how it was read: {'; '.join(ways)}",
            f"how the weights were read: {'; '.join(streams)}",
            *["more than 98%: the memory may be faster than was measured"]
            * any(TOO_GOOD < row.of_memory < 1.005 for row in rows),
            *[f"the memory's speed changed by {apart:.0%} during the run, so the shares say little"] * (apart > DRIFT),
            *[">100%: part of it stays in the processor's caches, or others used the memory when it was measured"]
            * any(1.005 <= row.of_memory <= CACHED for row in rows),
            *["-: the weights stay in the processor's caches, so the speed of the memory does not matter"]
            * any(row.of_memory > CACHED for row in rows),
        ]
        for when, what in (head["throttling"] or {}).items():
            if what:
                lines += ["", f"This board was slowed down ({when}): {', '.join(what)}."]
        return "\n".join(lines) + "\n"


def _share(of_memory: float) -> str:
    """The share of the memory's speed that was reached, as the table shows it."""
    return "-" if of_memory > CACHED else ">100%" if of_memory >= 1.005 else f"{of_memory:.0%}"


def _drawn(top_k: int) -> str:
    """How tokens are chosen, unless always the likeliest."""
    return "" if top_k == 1 else f"tokens drawn from {f'the {top_k} likeliest' if top_k else 'all'}; "


def run(
    model: str | None = None,
    *,
    depths: Sequence[int] = (128, 512),
    n_gen: int = 32,
    repeats: int = 3,
    threads: Sequence[int | None] = (None,),
    kv: Sequence[str] = ("int8",),
    head: Sequence[str] = ("auto",),
    weights: Sequence[str] = ("auto",),
    top_k: int = 1,
    parallel: Sequence[int] = (1,),
    progress: Callable[[float, float], object] | None = None,
    **options: Any,
) -> Report:
    """Measure every combination; ``options`` go to :func:`edge.load` (isa, memory, ...).

    ``top_k``: choose from so many of the likeliest tokens, 0: all; 1 is greedy.  What a two-stage head reads depends on
    it.  ``parallel``: numbers of conversations that write at the same time.  ``progress``: called with (answers done,
    total).

    A depth that leaves less than ``n_gen`` tokens of the context the model was trained for is reduced; one beyond that
    context is left out (see the header).  Raises UsageError for invalid values, and whatever loading raises.
    """
    if n_gen < 2 or repeats < 1 or not depths or min(depths) < 1:
        raise UsageError("bench needs depths of at least 1 token, 2 tokens to write and 1 repeat")
    if not parallel or not all(1 <= n <= MOST_PARALLEL for n in parallel):
        raise UsageError(f"bench measures 1 to {MOST_PARALLEL} conversations at the same time")
    import edge
    from edge.sampling import Sampling

    sampling = Sampling(temperature=0.0) if top_k == 1 else Sampling(top_k=top_k, seed=1)
    report = progress or (lambda done, total: None)
    combinations = list(product(threads, weights, head, kv))
    done = total = 0  # answers

    def answered() -> None:
        nonlocal done
        done += 1
        report(done, total)

    if max(depths) + n_gen > 1 << 24:  # the longest context of all
        raise UsageError(f"-d {max(depths)}: no model reads so many tokens")
    header: dict[str, Any] = {}
    rows: list[Row] = []
    yardsticks: dict[int, Yardstick] = {}  # of each number of threads
    for n_threads, place, head_type, kv_type in combinations:
        chosen = {"kv": kv_type, "threads": n_threads, "head": head_type, "weights": place, **options}
        if max(parallel) > 1:
            chosen["parallel"] = max(parallel)
        if options.get("memory") is not None:
            chosen["reserve"] = LIMITED_YARDSTICK
        for again in (False, True):
            # without drafts: a token is a step, whatever the text
            with edge.load(model, ctx=max(depths) + n_gen, draft="off", **chosen) as engine:
                usable, left_out = _usable(depths, n_gen, engine.config.n_ctx_train)
                engine.wait_for_weights()
                _answer(engine, min(usable), 2, sampling)  # warm-up: pages in, clocks up
                if engine.tune(TUNES) and not again:
                    continue  # what an owner has after the first answers: the next load uses all of it
                header = header or _header(engine, repeats, left_out, top_k)
                total = len(combinations) * len(usable) * repeats * len(parallel)
                report(done, total)
                for depth in usable:
                    rows += _rows(engine, kv_type, depth, n_gen, repeats, sampling, parallel, yardsticks, answered)
            break
    header["throttling"] = Board().throttling()
    return Report(header, [_compared(row, yardsticks[row.threads]) for row in rows])


def _compared(row: Row, yardstick: Yardstick) -> Row:
    """The row, compared with the speed of the memory."""
    best = yardstick.best
    return replace(
        row, read_rate=round(best.rate), read_way=best.words(), read_apart=round(yardstick.apart, 3),
        of_memory=round(row.token_bytes * row.tg / best.rate, 3))


def _usable(depths: Sequence[int], n_gen: int, n_ctx: int) -> tuple[list[int], list[int]]:
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
    pauses: list[float]  # seconds per token
    disk: float  # bytes read from the disk for each token
    more: float  # bytes of the output head that a token has read in addition to those that every step reads


def prompt_of(n_vocab: int, special: Iterable[int], n: int) -> list[int]:
    """n fixed pseudo-random tokens that are not special."""
    barred = set(special)
    ids: list[int] = []
    state = 1
    while len(ids) < n:
        state = (state * 1103515245 + 12345) % (1 << 31)
        if (token := (state >> 8) % n_vocab) not in barred:
            ids.append(token)
    return ids


def _answer(engine: Engine, depth: int, n_gen: int, sampling: Sampling) -> _Sample:
    """Measure one prompt of ``depth`` tokens and an answer of ``n_gen`` tokens, in a new session."""
    tokenizer = engine.tokenizer
    ids = prompt_of(min(engine.config.n_vocab, tokenizer.n_vocab), tokenizer.special.values(), depth)
    pauses = []
    last, disk, transformer = 0.0, disk_read(), engine.model.transformer
    more = transformer.head_bytes_more
    with engine.session() as session:
        for piece in session.complete(ids, max_tokens=n_gen, sampling=sampling, ignore_eos=True):
            now = time.perf_counter()
            if not last:  # the prompt was read
                disk, more = disk_read(), transformer.head_bytes_more
            if last and piece.ids:
                pauses += [(now - last) / len(piece.ids)] * len(piece.ids)
            last = now
        timings, usage = session.outcome.timings, session.outcome.usage
    # the first token comes out of the prompt's own evaluation: n tokens take n - 1 steps
    steps = usage.completion - 1
    return _Sample(
        pp=usage.prompt / timings.prompt_seconds,
        tg=steps / timings.decode_seconds,
        pauses=pauses or [timings.decode_seconds / steps],
        disk=(disk_read() - disk) / steps,
        more=(transformer.head_bytes_more - more) / steps,
    )


def _together(engine: Engine, depth: int, n_gen: int, n: int, sampling: Sampling) -> _Sample:
    """The same for ``n`` conversations at the same time, one token of each in every step; pp is that of one prompt."""
    from pyx.step.transformer import Segment

    model, n_vocab = engine.model, engine.config.n_vocab
    tokenizer = engine.tokenizer
    ids = array("i", prompt_of(min(n_vocab, tokenizer.n_vocab), tokenizer.special.values(), depth))
    caches = [engine.space.new_cache() for _ in range(n)]
    samplers = [engine.space.new_sampler(seed) for seed in range(n)]
    rows = [memoryview(array("f", bytes(4 * n_vocab))) for _ in range(n)]
    begun = time.perf_counter()
    for at in range(0, depth, model.chunk):
        last = at + model.chunk >= depth
        model.step([Segment(caches[0], ids[at : at + model.chunk], rows[0] if last else None)])
    read = time.perf_counter() - begun
    for cache, row in zip(caches[1:], rows[1:], strict=True):
        cache.restore(*caches[0].counters, _filler(caches[0].dump()))
        row[:] = rows[0]
    chosen = [array("i", [0]) for _ in range(n)]
    batch = [
        Segment(cache, one, row, False, sampling.winners) for cache, one, row in zip(caches, chosen, rows, strict=True)
    ]

    def choose() -> None:
        for sampler, one, row in zip(samplers, chosen, rows, strict=True):
            one[0] = sampler.sample(row, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)

    choose()
    pauses, disk, more = [], disk_read(), model.transformer.head_bytes_more
    for _ in range(n_gen - 1):
        begun = time.perf_counter()
        model.step(batch)
        choose()
        pauses.append(time.perf_counter() - begun)
    return _Sample(pp=depth / read, tg=n * len(pauses) / sum(pauses), pauses=pauses,
                   disk=(disk_read() - disk) / (n * len(pauses)),
                   more=(model.transformer.head_bytes_more - more) / (n * len(pauses)))


def weights_read(engine: Engine, n: int) -> int:
    """Bytes of weights and output head that every step for ``n`` conversations reads; of experts those that as many
    tokens use if each chooses by itself.
    """
    t, unread = engine.model.transformer, 1 - engine.config.expert_share
    return round(t.weight_bytes + t.expert_bytes * (unread - unread**n)) + t.head_bytes_least


def _filler(pieces: Iterable[memoryview]) -> Callable[[memoryview], None]:
    """A function that fills buffers with consecutive parts of ``pieces``."""
    rest, held = iter(pieces), memoryview(b"")

    def fill(view: memoryview) -> None:
        nonlocal held
        while len(view):
            held = held if len(held) else next(rest)
            n = min(len(held), len(view))
            view[:n] = held[:n]
            held, view = held[n:], view[n:]

    return fill


def _rows(
    engine: Engine,
    kv_type: str,
    depth: int,
    n_gen: int,
    repeats: int,
    sampling: Sampling,
    parallel: Sequence[int],
    yardsticks: dict[int, Yardstick],
    answered: Callable[[], None],
) -> list[Row]:
    """One row for each number of conversations; their measurements alternate.  ``yardsticks``: threads -> how fast
    memory was read.  ``answered``: called after each measurement.
    """
    from edge.machine.choices import Stream
    from edge.machine.memory import available_memory
    from pyx.machine import cpu

    board = Board()
    weights = placement(engine)
    kv_read = engine.plan.read_at(depth + n_gen / 2)
    samples: dict[int, list[_Sample]] = {n: [] for n in parallel}
    yardstick = yardsticks.setdefault(engine.n_threads, Yardstick())

    def read_memory() -> None:
        limited = engine.plan.limit is not None
        size = min(weights_read(engine, 1), LIMITED_YARDSTICK if limited else MOST)
        roomy = not limited and (available_memory() or 0) >= 4 * size
        kinds = dict.fromkeys((weights, "huge") if roomy else (weights,))
        yardstick.add([measure(kind, engine.path, size, engine.n_threads) for kind in kinds])

    for _ in range(repeats):
        read_memory()
        for n, taken in samples.items():
            one = n == 1
            taken.append(
                _answer(engine, depth, n_gen, sampling) if one else _together(engine, depth, n_gen, n, sampling))
            answered()
    read_memory()
    rows: list[Row] = []
    for n, taken in samples.items():
        tg = median(sample.tg for sample in taken)
        more = median(sample.more for sample in taken)
        token_bytes = round(weights_read(engine, n) / n + more + kv_read)
        pauses = sorted(pause for sample in taken for pause in sample.pauses)
        rows.append(Row(
            isa=cpu.isa(),
            threads=engine.n_threads,
            weights=weights,
            head=engine.model.transformer.head_kind,
            kv=kv_type,
            depth=depth,
            parallel=n,
            pp=round(median(sample.pp for sample in taken), 2),
            tg=round(tg, 3),
            gain=round(tg / rows[0].tg, 3) if rows else 1.0,
            spread=round((max(sample.tg for sample in taken) - min(sample.tg for sample in taken)) / tg, 3),
            ms_p50=round(1e3 * median(pauses), 2),
            ms_p95=round(1e3 * pauses[min(len(pauses) - 1, len(pauses) * 95 // 100)], 2),
            token_bytes=token_bytes,
            of_disk=round(min(1.0, median(sample.disk for sample in taken) / token_bytes), 3),
            read_rate=0.0,  # known at the end of the run
            read_way="",
            stream_way=Stream(*cpu.chosen_now()[0]).words(),
            read_apart=0.0,
            of_memory=0.0,
            kv_bytes=engine.plan.kv_bytes,
            rss_bytes=rss()["rss"],
            celsius=board.celsius(),
            mhz=board.mhz(),
            pp_samples=[round(sample.pp, 3) for sample in taken],
            tg_samples=[round(sample.tg, 3) for sample in taken],
        ))
    return rows


def placement(engine: Engine) -> str:
    """Where the weights are read from: "map" of the file, "huge" pages, or "memory" (copied into ordinary pages).

    It asks the system whether it really gave 2 MiB pages.
    """
    copied = engine.model.transformer.weight_bytes_allocated
    if copied < engine.model.transformer.weight_bytes / 2:  # scales are always copied
        return "map"
    return "huge" if huge_bytes() >= copied / 2 else "memory"


def _header(engine: Engine, repeats: int, left_out: list[int], top_k: int) -> dict[str, Any]:
    import edge

    return {
        "date": datetime.date.today().isoformat(),
        "version": edge.__version__,
        "model": engine.config.name,
        "path": engine.path,
        **Board().summary(),
        "repeats": repeats,
        "top_k": top_k,
        "left_out": left_out,
        "load_seconds": round(engine.load_seconds, 3),
        "weight_bytes": engine.model.transformer.weight_bytes,
        "head_bytes": engine.model.transformer.head_bytes,
        "peak_bytes": peak(),  # resident, of loading and warm-up
        "shared": _shared(engine, repeats, top_k),
    }


def _shared(engine: Engine, repeats: int, top_k: int) -> dict[str, Any]:
    """The header of :meth:`Report.to_share`."""
    import edge
    from edge.layers import Dense
    from edge.registry.shapes import SHAPES
    from pyx.machine import cpu

    board, c, t = Board(), engine.config, engine.model.transformer
    widths = sorted({layer.feed_forward.ffn for layer in c.layers if isinstance(layer.feed_forward, Dense)})
    dimensions = (c.arch, c.n_layer, c.hidden, c.n_head, c.n_kv_head, c.head_dim, c.n_vocab)
    published = [name for name, s in SHAPES.items() if dimensions == (
        s.arch, s.n_layer, s.hidden, s.n_head, s.n_kv_head, s.head_dim, s.n_vocab)]
    return {
        "version": edge.__version__,
        "date": datetime.date.today().isoformat(),
        "machine": {
            **board.shared(), "features": cpu.supported(), "page_size": mmap.PAGESIZE,
            "huge_pages": board.huge_pages(),
        },
        "model": {
            "shape": published[0] if published else None, "arch": c.arch, "n_layer": c.n_layer, "hidden": c.hidden,
            "ffn": widths, "n_head": c.n_head, "n_kv_head": c.n_kv_head, "head_dim": c.head_dim, "n_vocab": c.n_vocab,
            "weight_bytes": t.weight_bytes, "head_bytes": t.head_bytes,
        },
        "repeats": repeats,
        "top_k": top_k,
    }
