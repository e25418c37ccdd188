"""Draws every picture of README and docs from its data: python packaging/docs/make_pictures.py (or make docs)

The data lies in benchmarks/results, each file with the command that made it.  tests/project/test_docs.py fails when a
picture does not show its data.
"""

from __future__ import annotations

import io
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from edge.amounts import count, median  # noqa: E402
from edge.cache.planning import cache_plan  # noqa: E402
from edge.formats.names import parts  # noqa: E402
from edge.model.footprint import code_bytes  # noqa: E402
from edge.options import Options  # noqa: E402
from edge.registry import shapes  # noqa: E402
from make_speed import PEERS, engines  # noqa: E402
from pyx.step import placement  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
RESULTS = ROOT / "benchmarks" / "results"

#: colours on a light and on a dark page
PAPER, TEXT, REMARK, GRID = (
    ("#ffffff", "#0d1117"),
    ("#1f2328", "#e6edf3"),
    ("#59636e", "#9198a1"),
    ("#d8dee4", "#2b3138"),
)
#: the same of series, and of what is only compared with
SERIES = (
    ("#0b63ce", "#58a6ff"),
    ("#c2570c", "#f0883e"),
    ("#1a7f4b", "#3fb950"),
    ("#7c3aed", "#bc8cff"),
    ("#be185d", "#ff7eb6"),
    ("#0e7490", "#39c5cf"),
    ("#8a6d00", "#d3b53a"),
)
GREY = ("#8c959f", "#7d8590")
MARKERS = "osD^vPX*<>"

WIDTH = 7.9  # inches
INSET = 0.006  # of titles, as a share of the width

#: matplotlib's settings: the same data gives the same bytes, and text stays text
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID[0],
    "axes.grid": True,
    "axes.labelcolor": TEXT[0],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": TEXT[0],
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "figure.facecolor": PAPER[0],
    "axes.facecolor": PAPER[0],
    "savefig.facecolor": PAPER[0],
    # the first is matplotlib's own, so that the layout depends on no machine's fonts; the others are the reader's
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "system-ui", "Segoe UI", "Liberation Sans", "Arial"],
    "font.size": 9,
    "grid.color": GRID[0],
    "legend.frameon": False,
    "legend.handlelength": 3,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "bitnet-edge",
    "text.color": TEXT[0],
    "xtick.color": GRID[0],
    "xtick.labelcolor": REMARK[0],
    "ytick.color": GRID[0],
    "ytick.labelcolor": REMARK[0],
}


def svg(figure: Figure) -> str:
    """The picture as SVG, for light and dark pages, with its title and description as texts."""
    title, description = figure.get_suptitle(), figure.get_supxlabel().replace("\n", " ")
    text = io.StringIO()
    with matplotlib.rc_context(STYLE):
        metadata = {"Title": title, "Description": description, "Creator": None, "Date": None}
        figure.savefig(text, format="svg", metadata=metadata, bbox_inches="tight", pad_inches=0.2)
    dark = "".join(
        f'[style*="{what}: {light}"]{{{what}:{other}!important}}'
        for light, other in (PAPER, TEXT, REMARK, GRID, GREY, *SERIES)
        for what in ("fill", "stroke")
    )
    return re.sub("</style>", f"@media(prefers-color-scheme:dark){{{dark}}}</style>", text.getvalue(), count=1)


# ---- forms -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A bar from 0 to a value, its text, and optionally the smallest and largest measurement."""

    value: float
    text: str
    colour: tuple[str, str] = SERIES[0]
    spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Column:
    """The bars of all rows on one scale; a cell has several bars if several things are compared."""

    title: str  # with the unit
    cells: Sequence[Sequence[Bar]]


def axes_of(title: str, description: str, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with a title above and its description below ``columns`` axes."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.suptitle(textwrap.fill(title, 78), x=INSET, ha="left", size=12, weight="bold")
    figure.supxlabel(textwrap.fill(description, 104), x=INSET, ha="left", size=9, color=REMARK[0], linespacing=1.4)
    return figure, list(figure.subplots(1, columns, sharey=True, squeeze=False)[0])


def bars(
    rows: Sequence[str],
    columns: Sequence[Column],
    title: str,
    description: str,
    legend: Sequence[str] = (),
) -> Figure:
    """A name for each row, and one or more bars in each column.  ``legend``: names of the first colours."""
    thick = 0.24  # inches of a bar, with the space around it
    heights = [max(1, *(len(column.cells[i]) for column in columns)) for i in range(len(rows))]
    with matplotlib.rc_context({**STYLE, "axes.grid.axis": "x"}):
        figure, axes = axes_of(title, description, thick * (sum(heights) + 0.5 * len(rows)) + 1.6, len(columns))
        for ax, column in zip(axes, columns):
            middle, most = 0.0, max(_end(bar) for cell in column.cells for bar in cell)
            for height, cell in zip(heights, column.cells):
                for i, bar in enumerate(cell):
                    y = middle + i - (len(cell) - 1) / 2
                    ax.barh(y, bar.value, 0.8, color=bar.colour[0])
                    if bar.spread is not None:
                        ax.plot(bar.spread, (y, y), "|-", color=TEXT[0], linewidth=1)
                    ax.annotate(bar.text, (_end(bar), y), (4, 0), textcoords="offset points", va="center")
                middle += height + 0.5
            ax.set(title=column.title, xlim=(0, (most or 1.0) * 1.35))
            ax.locator_params(axis="x", nbins=4)
            ax.tick_params(axis="y", length=0, labelcolor=TEXT[0])
        places = [sum(heights[:i]) + 0.5 * i for i in range(len(rows))]
        axes[0].set_yticks(places, rows)
        axes[0].invert_yaxis()
        if legend:
            keys = [Patch(color=colour[0], label=name) for name, colour in zip(legend, SERIES)]
            figure.legend(handles=keys, loc="outside right center", handlelength=1)
    return figure


def _end(bar: Bar) -> float:
    """The right end of a bar and its spread."""
    return max(bar.value, *(bar.spread or (0.0,)))


# ---- what is drawn ---------------------------------------------------------------------------------------------------


def of_bench(facts: Mapping[str, Any]) -> Figure:
    """The speed with each number of threads, and the limits of the time per token: reading its bytes, and multiplying.

    ``facts``: what ``bitnet-edge bench --json`` prints.
    """
    rows = facts["rows"]
    first = rows[0]

    def speed(value: float, samples: Sequence[float]) -> list[Bar]:
        return [Bar(value, f"{value:.1f}", spread=(min(samples), max(samples)))]

    def limits(row: Mapping[str, Any]) -> list[Bar]:
        seconds = 1 / row["tg"], row["token_bytes"] / row["read_rate"], 1 / row["pp"]
        return [Bar(1e3 * each, f"{1e3 * each:.3g}", colour) for colour, each in zip(SERIES, seconds)]

    return bars(
        [count(row["threads"], "thread") for row in rows],
        [
            Column("generation, tokens/s", [speed(row["tg"], row["tg_samples"]) for row in rows]),
            Column("prompt, tokens/s", [speed(row["pp"], row["pp_samples"]) for row in rows]),
            Column("time of a token, ms", [limits(row) for row in rows]),
        ],
        f"Speed of {facts['model']} on {facts['board'] or facts['cpu']}",
        f"{first['isa']}, weights {first['weights']}, {first['head']} head, {first['kv']} KV, depth {first['depth']}; "
        f"medians of {facts['repeats']}, with the least and the most. A generated token reads "
        f"{min(row['token_bytes'] for row in rows) / 1e6:.1f} MB or more, so it takes about as long as reading them "
        "or, if that is longer, as a token of a prompt, which is bound by arithmetic.",
        ("generated", "reading its bytes", "of a prompt"),
    )


def facts(name: str) -> Any:
    """A file of benchmarks/results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def kv_memory() -> Figure:
    """Memory by context and KV type, of a published shape; caches with a window are dashed."""
    c = shapes.find("2b-4t")
    assert c is not None
    types, contexts = ("f16", "int8", "int4"), (512, 1024, 2048, 4096)
    ways: dict[int, dict[str, Any]] = {0: {"overflow": "stop"}, 1020: {"window": 1020}}
    lines = [(each, window, [cache_plan(c, Options(n, each, **way)).kv_bytes / 1e6 for n in contexts if n > window])
             for each in types for window, way in ways.items()]
    shapes_of = [part.shape for part in parts(c) if part.role == "matrix"]
    weights = sum(code_bytes(rows, k, c.activation_group > 0) for rows, k in shapes_of)
    weights += placement("auto", "", c.n_vocab, c.hidden, 1).nbytes
    with matplotlib.rc_context(STYLE):
        figure, (ax,) = axes_of(
            f"Memory of the KV cache of {c.name}",
            f"{count(c.n_layer, 'layer')}, {count(c.n_kv_head, 'key/value head')} of {c.head_dim}; allocated once, "
            f"when the model is loaded. Besides, a token reads {weights / 1e6:.1f} MB of weights.",
            4.8,
        )
        for each, window, sizes in sorted(lines, key=lambda line: -line[2][-1]):
            ax.plot(
                contexts[-len(sizes) :],
                sizes,
                color=SERIES[types.index(each)][0],
                linestyle="--" if window else "-",
                marker=MARKERS[types.index(each)],
                label=f"{each}, window {window}" if window else each,
            )
        ax.set(xlabel="context length, tokens", ylabel="KV cache, MB (1e6 bytes)", xlim=(0, None), ylim=(0, None))
        ax.set_xticks([1024 * i for i in range(5)])
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.yaxis.set_major_formatter("{x:,g}")
        figure.legend(loc="outside right center")
    return figure


def step() -> Figure:
    """The bounds of the time of a token."""
    about = facts("bench-amd-epyc-zen4-2-vcpu.json")
    return of_bench({**about, "model": "BitNet b1.58 2B-4T (its shape, random weights)"})


def together() -> Figure:
    """Speed of several answers at once."""
    about = facts("step-amd-epyc-zen4-2-vcpu.json")
    rows = about["rows"]
    numbers = [row["parallel"] for row in rows]

    def share_of(row: dict[str, Any], share: int) -> list[Bar]:
        value, *spread = (row[key] / share for key in ("tokens_per_second", "low", "high"))
        return [Bar(value, f"{value:.1f}", spread=(spread[0], spread[1]))]

    return bars(
        [f"{n} at once" if n > 1 else "1 answer" for n in numbers],
        [
            Column("all answers together, tokens/s", [share_of(row, 1) for row in rows]),
            Column("each of them, tokens/s", [share_of(row, row["parallel"]) for row in rows]),
        ],
        "Several answers at once: the weights are read once for all",
        f"Shape of BitNet b1.58 2B-4T with random weights, {about['cpu']}, {about['threads']} threads, {about['head']} "
        f"head, {about['kv']} KV, depth {rows[0]['depth']}; medians, with half of all steps between the marks.",
    )


def peers() -> Figure:
    """Speed on two threads, compared with other engines."""
    found = {title: engines(model) for model, title in PEERS.items()}
    names = list(dict.fromkeys(engine for _, rows in found.values() for engine in rows))
    content, _ = next(iter(found.values()))

    def cell(engine: str, speeds: Sequence[float]) -> list[Bar]:
        colour = SERIES[0] if engine in content["ours"] else GREY
        return [Bar(median(speeds), f"{median(speeds):.1f}", colour, (speeds[0], speeds[-1]))] if speeds else []

    return bars(
        names,
        [Column(f"{title}:\n{test}", [cell(name, rows.get(name, {}).get(f"{test}, 2 threads", [])) for name in names])
         for title, (_, rows) in found.items() for test in ("generation", "prompt of 512")],
        "Speed of several engines, in tokens per second",
        f"Shapes of the models with random weights, {content['processor']}, 2 threads, F16 KV, every engine in turn, "
        f"{content['date']}; medians with the least and the most (benchmarks/SPEED.md). Bonsai has a scale for 128 "
        "weights: the types of ik_llama.cpp and bitnet.cpp do not, TQ2_0 has one for 256, Q2_0 is what is published.",
    )


DRAWN: dict[str, Callable[[], Figure]] = {
    "kv_memory": kv_memory,
    "peers": peers,
    "step": step,
    "together": together,
}


def main() -> None:
    """Draw all."""
    for name, draw in DRAWN.items():
        (PICTURES / f"{name}.svg").write_text(svg(draw()), encoding="utf-8")


if __name__ == "__main__":
    main()
