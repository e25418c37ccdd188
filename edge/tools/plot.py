"""plot: points with names on two logarithmic axes, as an SVG that every browser shows.

Written by hand because it must work on the board itself, in the frozen program too: the usual library takes 30 MB there
for what are sixty lines here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 80, 190, 50, 60  # margins; names need room on the right
LINE = 13  # pixels between names
MIDDLE = 'text-anchor="middle"'


@dataclass(frozen=True)
class Point:
    """One named point; both values are above 0."""

    name: str
    x: float
    y: float


def scatter(points: Sequence[Point], title: str, x_label: str, y_label: str) -> str:
    """The picture as SVG text.  Raises ValueError without points or for values that have no logarithm."""
    if not points or min(min(p.x, p.y) for p in points) <= 0:
        raise ValueError("a logarithmic plot needs points above 0")
    x_ticks, y_ticks = ticks([p.x for p in points], 2), ticks([p.y for p in points], 10)

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _part(value, x_ticks)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _part(value, y_ticks)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 24, title, 'font-size="15"'),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, x_label, MIDDLE),
        _text(0, 0, y_label, f'{MIDDLE} transform="translate(20 {(HEIGHT + TOP - BOTTOM) / 2}) rotate(-90)"'),
    ]
    for value in x_ticks:
        x = across(value)
        out.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        out.append(_text(x, HEIGHT - BOTTOM + 18, f"{value:g}", MIDDLE))
    for value in y_ticks:
        y = up(value)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(_text(LEFT - 8, y + 4, f"{value:.0e}", 'text-anchor="end"'))
    points = sorted(points, key=lambda p: -p.y)
    for point, at in zip(points, spread([up(p.y) for p in points], HEIGHT - BOTTOM)):
        x, y = across(point.x), up(point.y)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#2563a8"/>')
        out.append(f'<path d="M{x + 5:.1f} {y:.1f}L{WIDTH - RIGHT + 6} {at:.1f}" stroke="#2563a8" opacity="0.25"/>')
        out.append(_text(WIDTH - RIGHT + 10, at + 4, point.name))
    return "\n".join([*out, "</svg>", ""])


def ticks(values: Sequence[float], base: int) -> list[float]:
    """Powers of ``base`` that enclose all values; at least two."""
    low, high = (math.log(value, base) for value in (min(values), max(values)))
    first, last = math.floor(low + 1e-9), math.ceil(high - 1e-9)
    return [float(base) ** i for i in range(first, max(last, first + 1) + 1)]


def spread(heights: Sequence[float], bottom: float) -> list[float]:
    """Ascending heights moved apart, so that no two names lie on each other and none below the bottom."""
    out: list[float] = []
    for height in heights:
        out.append(max(height, out[-1] + LINE) if out else height)
    limit = bottom
    for i in range(len(out) - 1, -1, -1):
        out[i] = min(out[i], limit)
        limit = out[i] - LINE
    return out


def _part(value: float, marks: Sequence[float]) -> float:
    """Where a value lies between the first tick and the last, 0 to 1."""
    return math.log(value / marks[0]) / math.log(marks[-1] / marks[0])


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{" " if attributes else ""}{attributes}>{escape(text)}</text>'
