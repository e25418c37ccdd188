"""bench: how fast this board reads and writes, at several depths of the context.

For every number of threads and KV type the model is loaded once and warmed up; then, for every depth, a fresh session
reads a prompt of that many tokens (pp, tokens per second over the whole prompt) and writes ``n_gen`` tokens behind it
(tg, tokens per second at that depth).  Each figure is the median of the repeats, ``spread`` is (fastest - slowest) /
median of tg.  The time per token is what a reader of the stream sees: the pause between pieces, divided by the tokens
in the piece.  Prompts are fixed pseudo-random tokens: the work does not depend on the words.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import TYPE_CHECKING, Any

from edge.board import Board
from edge.errors import UsageError

if TYPE_CHECKING:
    from edge.engine import Engine


@dataclass(frozen=True)
class Row:
    """One depth of one configuration; speeds in tokens per second, sizes in bytes."""

    isa: str
    threads: int
    kv: str
    depth: int  # tokens in front of the answer
    pp: float
    tg: float
    spread: float  # (fastest - slowest) / median of tg
    ms_p50: float  # milliseconds per token
    ms_p95: float
    kv_bytes: int
    rss_bytes: int
    celsius: float | None
    mhz: float | None


@dataclass(frozen=True)
class Report:
    """A finished measurement: what was measured, and the rows."""

    header: dict[str, Any]
    rows: list[Row]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.header, "rows": [asdict(row) for row in self.rows]}

    def to_csv(self) -> str:
        """One line per row below a line of names."""
        out = io.StringIO()
        names = [field.name for field in fields(Row)]
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in self.rows)
        return out.getvalue()

    def to_markdown(self) -> str:
        """A table for people, below one line that says what was measured."""
        head = self.header
        lines = [
            f"{head['model']} on {head['board'] or 'unknown board'} ({head['cpu']}); a token reads "
            f"{head['weight_bytes'] / 1e6:.1f} MB of weights and {head['head_bytes'] / 1e6:.1f} MB of output head; "
            f"median of {head['repeats']}; bitnet-edge {head['version']}",
            "",
            "| isa | threads | kv | depth | pp t/s | tg t/s | spread | ms/token p50 | p95 | KV MB | RSS MB | C | MHz |",
            "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for row in self.rows:
            cells = [row.isa, row.threads, row.kv, row.depth, f"{row.pp:.1f}", f"{row.tg:.2f}", f"{row.spread:.0%}"]
            cells += [f"{row.ms_p50:.1f}", f"{row.ms_p95:.1f}"]
            cells += [f"{row.kv_bytes / 1e6:.1f}", f"{row.rss_bytes / 1e6:.0f}"]
            cells += ["" if value is None else f"{value:.0f}" for value in (row.celsius, row.mhz)]
            lines.append(f"| {' | '.join(map(str, cells))} |")
        return "\n".join(lines) + "\n"


def run(
    model: str | None = None,
    *,
    depths: Sequence[int] = (128, 512),
    n_gen: int = 32,
    repeats: int = 3,
    threads: Sequence[int | None] = (None,),
    kv: Sequence[str] = ("int8",),
    progress: Callable[[str], object] | None = None,
    **options: Any,
) -> Report:
    """Measure; ``options`` go to :func:`edge.load` (head, weights, isa, memory, ...).

    Depths beyond the context the model was trained for are left out (the header says so).  Raises UsageError for
    values that make no sense, and whatever loading raises.
    """
    if n_gen < 2 or repeats < 1 or not depths or min(depths) < 1:
        raise UsageError("bench needs depths of at least 1 token, 2 tokens to write and 1 repeat")
    say = progress or (lambda what: None)
    header: dict[str, Any] = {}
    rows: list[Row] = []
    for n_threads in threads:
        for kv_type in kv:
            import edge

            say(f"loading, threads {n_threads or 'auto'}, kv {kv_type}")
            with edge.load(model, ctx=max(depths) + n_gen, kv=kv_type, threads=n_threads, **options) as engine:
                usable = [depth for depth in sorted(set(depths)) if depth + n_gen <= engine.config.n_ctx_train]
                if not usable:
                    raise UsageError(
                        f"this model was trained for {engine.config.n_ctx_train} tokens: "
                        f"no depth of {', '.join(map(str, depths))} leaves room for {n_gen} more"
                    )
                header = header or _header(engine, repeats, sorted(set(depths) - set(usable)))
                _answer(engine, min(usable), 2)  # warm-up: pages in, clocks up
                for depth in usable:
                    say(f"threads {engine.n_threads}, kv {kv_type}, depth {depth}")
                    rows.append(_row(engine, kv_type, depth, [_answer(engine, depth, n_gen) for _ in range(repeats)]))
    return Report(header, rows)


@dataclass(frozen=True)
class _Sample:
    pp: float
    tg: float
    pauses: list[float]  # seconds per token


def _prompt(n_vocab: int, special: Iterable[int], n: int) -> list[int]:
    """n fixed pseudo-random tokens that are not special."""
    barred = set(special)
    ids: list[int] = []
    state = 1
    while len(ids) < n:
        state = (state * 1103515245 + 12345) % (1 << 31)
        if (token := (state >> 8) % n_vocab) not in barred:
            ids.append(token)
    return ids


def _answer(engine: Engine, depth: int, n_gen: int) -> _Sample:
    """One prompt of ``depth`` tokens and ``n_gen`` tokens behind it, in a session that knows nothing."""
    from edge.sampling import Sampling

    tokenizer = engine.tokenizer
    ids = _prompt(min(engine.config.n_vocab, tokenizer.n_vocab), tokenizer.special.values(), depth)
    pauses = []
    last = 0.0
    with engine.session() as session:
        for piece in session.complete(ids, max_tokens=n_gen, sampling=Sampling(temp=0.0), ignore_eos=True):
            now = time.perf_counter()
            if last and piece.ids:
                pauses += [(now - last) / len(piece.ids)] * len(piece.ids)
            last = now
        timings, usage = session.timings, session.usage
    # the first token comes out of the prompt's own evaluation: n tokens take n - 1 steps
    steps = usage.completion - 1
    return _Sample(
        pp=usage.prompt / timings.prompt_seconds,
        tg=steps / timings.decode_seconds,
        pauses=pauses or [timings.decode_seconds / steps],
    )


def _row(engine: Engine, kv_type: str, depth: int, samples: list[_Sample]) -> Row:
    from pyx import cpu, memory

    board = Board()
    tg = median(sample.tg for sample in samples)
    pauses = sorted(pause for sample in samples for pause in sample.pauses)
    return Row(
        isa=cpu.isa(),
        threads=engine.n_threads,
        kv=kv_type,
        depth=depth,
        pp=round(median(sample.pp for sample in samples), 2),
        tg=round(tg, 3),
        spread=round((max(sample.tg for sample in samples) - min(sample.tg for sample in samples)) / tg, 3),
        ms_p50=round(1e3 * median(pauses), 2),
        ms_p95=round(1e3 * pauses[min(len(pauses) - 1, len(pauses) * 95 // 100)], 2),
        kv_bytes=engine.plan.kv_bytes,
        rss_bytes=memory.rss()["rss"],
        celsius=board.celsius(),
        mhz=board.mhz(),
    )


def _header(engine: Engine, repeats: int, left_out: list[int]) -> dict[str, Any]:
    import edge

    return {
        "version": edge.__version__,
        "model": engine.config.name,
        "path": engine.path,
        **Board().summary(),
        "repeats": repeats,
        "left_out": left_out,
        "load_seconds": round(engine.load_seconds, 3),
        "weight_bytes": engine.transformer.weight_bytes,
        "head_bytes": engine.transformer.head_bytes,
    }
