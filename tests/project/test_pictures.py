"""Pictures of the documentation: what is drawn is what was measured or planned."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("matplotlib", reason="needs the extra dev")

import make_pictures
from make_pictures import GREY, GRID, PAPER, REMARK, SERIES, TEXT

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    """The root of a picture that has what every picture has."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg" and root.findtext(f"{SVG}title")
    assert "prefers-color-scheme:dark" in (root.findtext(f"{SVG}defs/{SVG}style") or "")
    used = {word for node in root.iter() for word in re.findall(r"#[0-9a-f]{6}\b", node.get("style") or "")}
    # every colour has another on dark pages
    assert used <= {light for light, _ in (PAPER, TEXT, REMARK, GRID, GREY, *SERIES)}
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}text")]


def marks(root: ElementTree.Element) -> list[float]:
    """Where bars, lines and points are, as shares of their axes: whatever room the names next to these take."""

    def corners(node: ElementTree.Element) -> list[tuple[float, float]]:
        if node.tag == f"{SVG}use":
            return [(float(node.get("x") or 0), float(node.get("y") or 0))]
        return [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", node.get("d") or "")]

    found = []
    for axes in root.iter(f"{SVG}g"):
        if (axes.get("id") or "").startswith("axes_"):
            (left, bottom), _, (right, top), _ = corners(next(axes.iter(f"{SVG}path")))  # the paper behind them
            clipped = [node for node in axes.iter() if node.get("clip-path")]
            for x, y in (at for group in clipped for node in group.iter() for at in corners(node)):
                found += [(x - left) / (right - left), (bottom - y) / (bottom - top)]
    assert found
    return found


@pytest.mark.parametrize("name", make_pictures.DRAWN)
def test_pictures_of_the_documentation_are_what_their_data_gives(name: str) -> None:
    path = make_pictures.PICTURES / f"{name}.svg"
    committed, now = parsed(path.read_text(encoding="utf-8")), parsed(make_pictures.svg(make_pictures.DRAWN[name]()))
    assert texts(committed) == texts(now), "run make docs"
    assert marks(committed) == pytest.approx(marks(now), abs=0.005), "run make docs"
    assert path.stat().st_size < 40_000
