"""plot: diagrams of points, lines and bars as SVG, for light and dark pages, with text for screen readers.

It is written by hand because it must also work on a board and in the frozen program, where the usual library would take
30 MB for what takes a few hundred lines here.  :mod:`edge.tools.pictures` decides what is drawn.

A picture is a pure function of its data: the same values give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
EDGE = 20  # pixels around everything
LINE = 15  # pixels between names
CHARACTER = 6.6  # pixels of a character of 12 pixels, at most on average
BOLD = 7.4  # the same of a bold one
#: colour of a class on light and on dark pages: paper, text, remarks, grid lines; then series
COLOURS = {
    "paper": ("#ffffff", "#0d1117"),
    "text": ("#1f2328", "#e6edf3"),
    "remark": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#2b3138"),
    "c0": ("#0b63ce", "#58a6ff"),
    "c1": ("#c2570c", "#f0883e"),
    "c2": ("#1a7f4b", "#3fb950"),
    "c3": ("#7c3aed", "#bc8cff"),
    "c4": ("#be185d", "#ff7eb6"),
    "c5": ("#0e7490", "#39c5cf"),
    "c6": ("#8a6d00", "#d3b53a"),
    "c7": ("#8c959f", "#7d8590"),
}
SERIES = 8  # colours, then they begin again
GREY = 7  # the colour of what is only compared with


@dataclass(frozen=True)
class Point:
    """A named point; both values are above 0."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class Series:
    """A named line through (x, y), ascending in x, without negative values.  ``dashed``: for a different kind of
    line.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True)
class Bar:
    """A bar from 0 to a value, its text, and optionally the smallest and largest measurement."""

    value: float
    text: str
    colour: int = 0
    spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Column:
    """The bars of all rows on one scale; a cell has several bars if several things are compared."""

    title: str  # with the unit
    cells: Sequence[Sequence[Bar]]


class Canvas:
    """Collects text, lines and shapes into one SVG. Colours are names of :data:`COLOURS`."""

    def __init__(self, title: str, description: str, width: int = WIDTH) -> None:
        self.title, self.description, self.width = title, description, width
        self._parts: list[str] = []

    def add(self, part: str) -> None:
        """Add a piece of SVG."""
        self._parts.append(part)

    def text(self, x: float, y: float, text: str, look: str = "text", more: str = "") -> None:
        """Add text.  ``y``: of the baseline; ``look``: classes, such as "remark end"."""
        self.add(f'<text class="{look}" x="{x:.1f}" y="{y:.1f}"{" " if more else ""}{more}>{escape(text)}</text>')

    def heading(self) -> float:
        """Add title and description.  Returns the y where the next element may begin."""
        y = EDGE + 14.0
        for line in wrap(self.title, (self.width - 2 * EDGE) / CHARACTER / 1.5):
            self.text(EDGE, y, line, "text title")
            y += 20
        for line in wrap(self.description, (self.width - 2 * EDGE) / CHARACTER):
            self.text(EDGE, y, line, "remark")
            y += LINE
        return y

    def svg(self, height: float, style: str = "") -> str:
        """The complete SVG."""
        rules = [
            'svg{font:12px system-ui,-apple-system,"Segoe UI","Liberation Sans",Arial,sans-serif}',
            ".title{font-size:16px;font-weight:600}.bold{font-weight:600}",
            ".middle{text-anchor:middle}.end{text-anchor:end}",
            ".line{fill:none;stroke-width:2;stroke-linejoin:round}.thin{stroke-width:1}.faint{opacity:.4}",
            _colours(0),
            f"@media(prefers-color-scheme:dark){{{_colours(1)}}}",
            style,
        ]
        size = f"{self.width} {height:.0f}"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{self.width}" '
                f'height="{height:.0f}" role="img" aria-labelledby="title description">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="description">{escape(self.description)}</desc>',
                f"<style>{''.join(rules)}</style>",
                f'<rect class="paper s-grid" x=".5" y=".5" width="{self.width - 1}" height="{height - 1:.0f}" rx="8"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )


def _colours(which: int) -> str:
    """Fill and stroke of every class for a light (0) or dark (1) page."""
    out = []
    for name, pair in COLOURS.items():
        out.append(f".{name}{{fill:{pair[which]}}}")
        if name != "paper":
            out.append(f".s-{name}{{stroke:{pair[which]}}}")
    return "".join(out)


# ---- points ----------------------------------------------------------------------------------------------------------


def scatter(points: Sequence[Point], title: str, description: str, x_label: str, y_label: str) -> str:
    """Points with their names on two logarithmic axes.  Raises ValueError without points or for values that have no
    logarithm."""
    if not points or min(min(p.x, p.y) for p in points) <= 0:
        raise ValueError("a logarithmic plot needs points above 0")
    canvas = Canvas(title, description)
    frame = _Frame(canvas, canvas.heading() + 14, 360, 84, EDGE + 10)
    x_ticks, y_ticks = powers([p.x for p in points], 2), powers([p.y for p in points], 10)
    for value in x_ticks:
        frame.x_tick(share(value, x_ticks), f"{value:,.6g}")
    for value in y_ticks:
        frame.y_tick(share(value, y_ticks), f"{value:.6f}".rstrip("0").rstrip(".") if value < 1000 else f"{value:g}")
    frame.labels(x_label, y_label)
    at = [(frame.x(share(p.x, x_ticks)), frame.y(share(p.y, y_ticks))) for p in points]
    for (x, y), name, place in zip(at, points, frame.beside(at, [p.name for p in points]), strict=True):
        left, baseline, far = place
        if far:
            end = left - 2 if left > x else left + CHARACTER * len(name.name) + 2
            canvas.add(f'<path class="s-remark thin faint" d="M{x:.1f} {y:.1f}L{end:.1f} {baseline - 4:.1f}"/>')
        canvas.add(f'<circle class="c0" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')
        canvas.text(left, baseline, name.name)
    return canvas.svg(frame.bottom + 54)


# ---- lines -----------------------------------------------------------------------------------------------------------


def lines(series: Sequence[Series], title: str, description: str, x_label: str, y_label: str) -> str:
    """Lines with their names at their ends; both axes begin at 0.  Raises ValueError without a point above 0."""
    points = [point for each in series for point in each.points]
    if not points or max(x for x, _ in points) <= 0 or max(y for _, y in points) <= 0:
        raise ValueError("a plot of lines needs points above 0")
    canvas = Canvas(title, description)
    names = BOLD * max(len(each.name) for each in series) + 14
    frame = _Frame(canvas, canvas.heading() + 14, 360, 74, names + EDGE)
    last, top = max(x for x, _ in points), round_ticks(max(y for _, y in points))
    free = frame.right + 30
    for value in sorted({x for x, _ in points}, reverse=True):  # where there are points, as far as there is room
        if frame.x(value / last) + CHARACTER * len(f"{value:,.6g}") / 2 + 6 < free:
            frame.x_tick(value / last, f"{value:,.6g}")
            free = frame.x(value / last) - CHARACTER * len(f"{value:,.6g}") / 2
    for value in top:
        frame.y_tick(value / top[-1], f"{value:,.6g}")
    frame.labels(x_label, y_label)
    drawn = sorted(series, key=lambda each: -each.points[-1][1])
    heights = [frame.y(each.points[-1][1] / top[-1]) for each in drawn]
    for each, y, at in zip(drawn, heights, spread(heights, frame.bottom), strict=True):
        colour = f"c{each.colour % SERIES}"
        path = "L".join(f"{frame.x(x / last):.1f} {frame.y(y / top[-1]):.1f}" for x, y in each.points)
        dash = ' stroke-dasharray="5 4"' if each.dashed else ""
        canvas.add(f'<path class="line s-{colour}" d="M{path}"{dash}/>')
        for x, value in each.points:
            cx, cy = frame.x(x / last), frame.y(value / top[-1])
            canvas.add(f'<circle class="{colour}" cx="{cx:.1f}" cy="{cy:.1f}" r="3"/>')
        if abs(at - y) > 3 or cx < frame.right - 1:
            canvas.add(
                f'<path class="s-{colour} thin faint" d="M{cx + 4:.1f} {y:.1f}L{frame.right + 10:.1f} {at:.1f}"/>'
            )
        canvas.text(frame.right + 13, at + 4, each.name, f"{colour} bold")
    return canvas.svg(frame.bottom + 54)


# ---- rows of bars ----------------------------------------------------------------------------------------------------

THICK, BETWEEN = 13, 3  # pixels of a bar, and between those of a cell


def bars(
    rows: Sequence[str], columns: Sequence[Column], title: str, description: str, legend: Sequence[str] = ()
) -> str:
    """A name for each row, and one or more bars beside it in each column.  ``legend``: names of the colours, from 0.

    Raises ValueError if there is nothing to draw or a cell is missing.
    """
    if not rows or not columns or any(len(column.cells) != len(rows) for column in columns):
        raise ValueError("a picture of bars needs a cell for every row and column")
    canvas = Canvas(title, description)
    top = canvas.heading() + 8
    if legend:
        x = float(EDGE)
        for i, name in enumerate(legend):
            wide = 18 + CHARACTER * len(name) + 16
            if x + wide > WIDTH - EDGE and x > EDGE:
                x, top = float(EDGE), top + LINE + 3
            canvas.add(f'<rect class="c{i % SERIES}" x="{x:.1f}" y="{top:.1f}" width="11" height="11" rx="2"/>')
            canvas.text(x + 17, top + 10, name)
            x += wide
        top += 26
    names = min(CHARACTER * max(map(len, rows)), 260.0) + 16
    wide = (WIDTH - 2 * EDGE - names) / len(columns)
    top += 22
    y, tops = top, []
    for i in range(len(rows)):
        n = max(1, *(len(column.cells[i]) for column in columns))
        tops.append((y, n))
        y += n * (THICK + BETWEEN) + 12
    bottom = y - 4
    for (at, n), name in zip(tops, rows, strict=True):
        canvas.text(EDGE, at + n * (THICK + BETWEEN) / 2 + 3, name)
    for number, column in enumerate(columns):
        left = EDGE + names + number * wide
        _column(canvas, column, tops, left, left + wide - 14, top, bottom)
    return canvas.svg(bottom + 34)


def _column(
    canvas: Canvas,
    column: Column,
    tops: Sequence[tuple[float, int]],
    left: float,
    right: float,
    top: float,
    bottom: float,
) -> None:
    """The bars of one column with their scale."""
    every = [bar for cell in column.cells for bar in cell]
    most = max((max((bar.value, *(bar.spread or ()))) for bar in every), default=1.0)
    texts = CHARACTER * max((len(bar.text) for bar in every), default=0) + 8
    marks = round_ticks(most or 1.0, 3)
    scale = (right - left - texts) / (most or 1.0)
    canvas.text(left, top - 12, column.title, "text bold")
    written = -math.inf  # right end of the last number below the bars
    for value in marks:
        x, text = left + value * scale, f"{value:,.6g}"
        half = CHARACTER * len(text) / 2
        if x <= right:
            canvas.add(f'<path class="s-grid" d="M{x:.1f} {top - 4:.1f}V{bottom:.1f}"/>')
        if x <= right and x - half > written + 6:
            canvas.text(x, bottom + 16, text, "remark middle")
            written = x + half
    for (y, n), cell in zip(tops, column.cells, strict=True):
        y += (n - len(cell)) * (THICK + BETWEEN) / 2
        for bar in cell:
            end = max(bar.value * scale, 1.0)
            colour = f"c{bar.colour % SERIES}"
            canvas.add(f'<rect class="{colour}" x="{left:.1f}" y="{y:.1f}" width="{end:.1f}" height="{THICK}"/>')
            if bar.spread is not None and bar.spread[1] > bar.spread[0]:
                low, high = (left + value * scale for value in bar.spread)
                middle = y + THICK / 2
                canvas.add(
                    f'<path class="s-text thin" d="M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 3:.1f}v6'
                    f'M{high:.1f} {middle - 3:.1f}v6"/>'
                )
                end = max(end, high - left)
            canvas.text(left + end + 5, y + THICK - 2.5, bar.text)
            y += THICK + BETWEEN


# ---- axes and places -------------------------------------------------------------------------------------------------


class _Frame:
    """The area between two axes; positions are shares of it, 0 to 1."""

    def __init__(self, canvas: Canvas, top: float, height: float, left: float, right: float) -> None:
        self._canvas = canvas
        self.top, self.bottom, self.left, self.right = top, top + height, left, canvas.width - right

    def x(self, part: float) -> float:
        return self.left + (self.right - self.left) * part

    def y(self, part: float) -> float:
        return self.bottom - (self.bottom - self.top) * part

    def x_tick(self, part: float, text: str) -> None:
        x = self.x(part)
        self._canvas.add(f'<path class="s-grid" d="M{x:.1f} {self.top:.1f}V{self.bottom:.1f}"/>')
        self._canvas.text(x, self.bottom + 18, text, "remark middle")

    def y_tick(self, part: float, text: str) -> None:
        y = self.y(part)
        self._canvas.add(f'<path class="s-grid" d="M{self.left:.1f} {y:.1f}H{self.right:.1f}"/>')
        self._canvas.text(self.left - 8, y + 4, text, "remark end")

    def labels(self, x_label: str, y_label: str) -> None:
        """Draw the names of the axes."""
        self._canvas.text((self.left + self.right) / 2, self.bottom + 40, x_label, "text middle")
        middle = (self.top + self.bottom) / 2
        self._canvas.text(0, 0, y_label, "text middle", f'transform="translate({EDGE + 4} {middle:.1f}) rotate(-90)"')

    def beside(self, at: Sequence[tuple[float, float]], names: Sequence[str]) -> Iterator[tuple[float, float, bool]]:
        """For each point the left end and baseline of its name, clear of all points and other names, and whether it is
        so far away that it needs a line.
        """
        taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in at]
        for (x, y), name in zip(at, names, strict=True):
            wide = CHARACTER * len(name)
            for place in _places(x, y, wide):
                left, baseline, _ = place
                box = (left - 1, baseline - 11, left + wide + 1, baseline + 3)
                inside = self.left <= box[0] and box[2] <= self._canvas.width - 4
                inside = inside and self.top <= box[1] and box[3] <= self.bottom
                if inside and not any(_meet(box, each) for each in taken):
                    break
            taken.append(box)
            yield place


def _places(x: float, y: float, wide: float) -> Iterator[tuple[float, float, bool]]:
    """Possible places for the name of a point, the best first."""
    yield x + 9, y + 4, False
    yield x - 9 - wide, y + 4, False
    yield x - wide / 2, y - 10, False
    yield x - wide / 2, y + 18, False
    for distance in range(18, 700, 9):
        for i in range(24):
            angle = math.tau * (i * 7 % 24) / 24
            across, down = distance * math.cos(angle), distance * math.sin(angle)
            yield x + across - (wide if across < 0 else 0), y + down + 4, True


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def powers(values: Sequence[float], base: int) -> list[float]:
    """Powers of ``base`` that include all values; at least two."""
    low, high = (math.log(value, base) for value in (min(values), max(values)))
    first, last = math.floor(low + 1e-9), math.ceil(high - 1e-9)
    return [float(base) ** i for i in range(first, max(last, first + 1) + 1)]


def share(value: float, marks: Sequence[float]) -> float:
    """Position of a value between the first and last tick of a logarithmic axis, 0 to 1."""
    return math.log(value / marks[0]) / math.log(marks[-1] / marks[0])


def round_ticks(most: float, n: int = 5) -> list[float]:
    """0, and about n multiples of 1, 2 or 5 times a power of ten, the last not below ``most``."""
    power = 10.0 ** math.floor(math.log10(most / n))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * n >= most * 0.999)
    return [step * i for i in range(math.ceil(most / step - 1e-9) + 1)]


def spread(heights: Sequence[float], bottom: float) -> list[float]:
    """Ascending heights moved apart, so that no two names overlap and none is below the bottom."""
    out: list[float] = []
    for height in heights:
        out.append(max(height, out[-1] + LINE) if out else height)
    limit = bottom
    for i in range(len(out) - 1, -1, -1):
        out[i] = min(out[i], limit)
        limit = out[i] - LINE
    return out


def wrap(text: str, width: float) -> list[str]:
    """The text in lines of at most ``width`` characters."""
    import textwrap

    return textwrap.wrap(text, max(1, int(width)))
