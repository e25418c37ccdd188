"""pictures: the diagrams of measurements and plans (``--plot FILE.svg``), drawn by matplotlib.

Every value in a picture is also printed by the command.  matplotlib is the extra ``plot`` and is imported where it
draws; the frozen programs do not contain it.
"""

from __future__ import annotations

import io
import logging
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge.amounts import count
from edge.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from edge.tools.kv_table import Table

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
#: the columns by which rows of bench differ
_NAMED = ("isa", "threads", "weights", "head", "kv", "depth", "parallel")

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


def check() -> None:
    """Raise UsageError where matplotlib is missing.  Keeps its remarks about fonts and folders off the terminal."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UsageError(
            "--plot draws with matplotlib, which is not here; "
            "install the Python package with it: pip install 'bitnet-edge[plot]'"
        ) from None


def svg(figure: Figure) -> str:
    """The picture as SVG, for light and dark pages, with its title and description as texts."""
    import matplotlib

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
    from matplotlib.figure import Figure

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
    import matplotlib
    from matplotlib.patches import Patch

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
    """The speed of each measurement, and the limits of the time per token: reading its bytes, and multiplying.

    ``facts``: :meth:`edge.tools.bench.Report.to_dict`.
    """
    rows = facts["rows"]
    same = {key for key in _NAMED if len({row.get(key) for row in rows}) == 1}
    first = rows[0]
    cells = [
        [
            Bar(milliseconds, f"{milliseconds:.3g}", colour)
            for colour, milliseconds in zip(
                SERIES, (1e3 / row["tg"], 1e3 * row["token_bytes"] / row["read_rate"], 1e3 / row["pp"])
            )
        ]
        for row in rows
    ]
    return bars(
        [_measurement(row, same) for row in rows],
        [
            Column("generation, tokens/s", [[_speed(row["tg"], row["tg_samples"])] for row in rows]),
            Column("prompt, tokens/s", [[_speed(row["pp"], row["pp_samples"])] for row in rows]),
            Column("time of a token, ms", cells),
        ],
        f"Speed of {facts['model']} on {facts['board'] or facts['cpu']}",
        f"{_measurement(first, set(_NAMED) - same)}{'; ' if same else ''}medians of {facts['repeats']}, with the least "
        f"and the most. A generated token reads {min(row['token_bytes'] for row in rows) / 1e6:.1f} MB or more, so it "
        "takes about as long as reading them or, if that is longer, as a token of a prompt, which is bound by "
        "arithmetic.",
        ("generated", "reading its bytes", "of a prompt"),
    )


def _speed(value: float, samples: Sequence[float]) -> Bar:
    return Bar(value, f"{value:.1f}", spread=(min(samples), max(samples)))


def _measurement(row: Mapping[str, Any], without: set[str]) -> str:
    """The settings of a measurement, without those that are the same in all: "2 threads, int8 KV, depth 128"."""
    words = {
        "isa": str(row["isa"]),
        "threads": count(row["threads"], "thread"),
        "weights": f"weights {row['weights']}",
        "head": f"{row['head']} head",
        "kv": f"{row['kv']} KV",
        "depth": f"depth {row['depth']}",
    }
    if row.get("parallel", 1) > 1:
        words["parallel"] = f"{row['parallel']} at once"
    return ", ".join(text for key, text in words.items() if key not in without)


def of_first_word(facts: Mapping[str, Any]) -> Figure:
    """Tokens that are read and seconds to the first token, for each case.

    ``facts``: :meth:`edge.tools.first_word.Report.to_dict`.
    """
    rows = facts["rows"]
    return bars(
        [row["case"] for row in rows],
        [
            Column("tokens read", [[Bar(row["read"], str(row["read"]))] for row in rows]),
            Column("first token, s", [[Bar(row["seconds"], f"{row['seconds']:.2f}")] for row in rows]),
        ],
        f"The first word of {facts['model']} on {facts['board'] or facts['cpu']}",
        f"{count(facts['threads'], 'thread')}, {facts['kv']} KV; a system prompt of {facts['system_tokens']} tokens "
        f"and a question of {facts['question_words']} words: at first, in the next process, as the next question, and "
        "with the question read while it was typed.",
    )


def of_plan(table: Table) -> Figure:
    """Size of the KV cache over the context length, one line per KV type; types of equal size share a line.

    It shows the cache that stops when it is full, and each window and budget (dashed); one that slides has one page
    more per head.
    """
    import matplotlib

    types = list(dict.fromkeys(row.type for row in table.rows))
    found: dict[tuple[str, tuple[tuple[int, float], ...]], list[str]] = {}
    for row in table.rows:
        way = row.full.partition(",")[0]
        if way != "slide":
            points = tuple((n, size / 1e6) for n, size in row.bytes.items() if size is not None)
            found.setdefault((way, points), []).append(row.type)
    c = table.config
    with matplotlib.rc_context(STYLE):
        figure, (ax,) = axes_of(
            f"Memory of the KV cache of {c.name}",
            f"{count(c.n_layer, 'layer')}, {count(c.n_kv_head, 'key/value head')} of {c.head_dim}; allocated once, "
            f"when the model is loaded. Besides, a token reads {table.weights.read / 1e6:.1f} MB of weights.",
            4.8,
        )
        for (way, points), same in sorted(found.items(), key=lambda line: -max(size for _, size in line[0][1])):
            ax.plot(
                *zip(*points),
                color=SERIES[types.index(same[0]) % len(SERIES)][0],
                linestyle="-" if way == "stop" else "--",
                marker=MARKERS[types.index(same[0]) % len(MARKERS)],
                label=" and ".join(same) + ("" if way == "stop" else f", {way}"),
            )
        longest = max(n for _, points in found for n, _ in points)
        ax.set(xlabel="context length, tokens", ylabel="KV cache, MB (1e6 bytes)", xlim=(0, None), ylim=(0, None))
        ax.set_xticks([longest * i / 4 for i in range(5)])
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.yaxis.set_major_formatter("{x:,g}")
        figure.legend(loc="outside right center")
    return figure
