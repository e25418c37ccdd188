"""Pictures: what is drawn is what was measured or planned."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

pytest.importorskip("matplotlib", reason="needs the extra plot")

from matplotlib.figure import Figure

from docs import make_pictures
from edge.cli.group import cli
from edge.registry import shapes
from edge.tools import kv_table, pictures
from edge.tools.pictures import GREY, GRID, PAPER, REMARK, SERIES, TEXT, Bar, Column
from lab.commands import lab
from lab.pictures import of_quality

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


def lines(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    """Points of each named line."""
    (ax,) = figure.axes
    return {str(line.get_label()): [(float(x), float(y)) for x, y in line.get_xydata()] for line in ax.lines}


# ---- what is drawn ---------------------------------------------------------------------------------------------------


def test_bars_are_as_long_as_their_values() -> None:
    cells = [[Bar(10.0, "10", spread=(9.0, 12.0))], [Bar(20.0, "20"), Bar(5.0, "5", SERIES[1])], []]
    figure = pictures.bars(["a", "b & <c>", "none"], [Column("tokens/s", cells)], "title", "words", ["one", "two"])
    (ax,) = figure.axes
    assert [bar.get_width() for bar in ax.patches] == [10.0, 20.0, 5.0]
    assert [list(line.get_xdata()) for line in ax.lines] == [[9.0, 12.0]]
    root = parsed(pictures.svg(figure))
    assert {"a", "b & <c>", "none", "10", "20", "5", "tokens/s", "one", "two", "title", "words"} <= set(texts(root))


def test_a_plan_is_drawn_as_it_is_printed() -> None:
    config = shapes.find("2b-4t")
    assert config is not None
    table = kv_table.table(config, types=("f16", "int8", "fp8", "int4"), windows=(508,))
    drawn = lines(pictures.of_plan(table))
    for row in table.rows:
        way = row.full.partition(",")[0]
        if way == "slide":  # a page more per head than the one that stops
            continue
        # int8 and fp8 take the same: one line
        name = "int8 and fp8" if row.type in ("int8", "fp8") else row.type
        points = drawn[name if way == "stop" else f"{name}, {way}"]
        assert points == [(n, size / 1e6) for n, size in row.bytes.items() if size is not None]
    assert len(drawn) == 6


def test_speeds_are_drawn_as_they_are_printed() -> None:
    facts = make_pictures.facts("bench-amd-epyc-zen4-2-vcpu.json")
    figure = pictures.of_bench(facts)
    tg, pp, milliseconds = ([bar.get_width() for bar in ax.patches] for ax in figure.axes)
    assert tg == [row["tg"] for row in facts["rows"]] and pp == [row["pp"] for row in facts["rows"]]
    assert milliseconds == [
        each
        for row in facts["rows"]
        for each in (1e3 / row["tg"], 1e3 * row["token_bytes"] / row["read_rate"], 1e3 / row["pp"])
    ]
    names = texts(parsed(pictures.svg(figure)))
    assert {"1 thread", "2 threads"} <= set(names)  # what differs; what does not is below
    one = {**facts, "rows": facts["rows"][:1]}
    assert "int8 KV" in " ".join(texts(parsed(pictures.svg(pictures.of_bench(one)))))


def test_quality_is_drawn_as_it_is_printed() -> None:
    facts = make_pictures.facts("kv_quality.json")["types"]
    drawn = lines(of_quality(facts))
    assert drawn == {row["mode"]: [(row["bytes_per_token"], row["kl_mean"])] for row in facts["rows"][1:]}
    same = [{**row, "kl_mean": 0.0} for row in facts["rows"]]  # has no logarithm
    parsed(pictures.svg(of_quality({**facts, "rows": same})))


@pytest.mark.parametrize("name", make_pictures.DRAWN)
def test_pictures_of_the_documentation_are_what_their_data_gives(name: str) -> None:
    path = make_pictures.PICTURES / f"{name}.svg"
    committed, now = parsed(path.read_text(encoding="utf-8")), parsed(pictures.svg(make_pictures.DRAWN[name]()))
    assert texts(committed) == texts(now), "run make docs"
    assert marks(committed) == pytest.approx(marks(now), abs=0.005), "run make docs"
    assert path.stat().st_size < 40_000


def test_the_same_data_gives_the_same_bytes() -> None:
    assert pictures.svg(make_pictures.together()) == pictures.svg(make_pictures.together())


# ---- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture
def commands(tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[click.Command, list[str]]]:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 3)
    return [
        (cli, ["kv", "plan", "2b-4t"]),
        (cli, ["bench", "-m", tiny_model, "-d", "8", "-n", "2", "-r", "1"]),
        (lab, ["kv", "-m", tiny_model, "-c", "16", "--mode", "int8", "-f", "text.txt"]),
    ]


def refused(root: click.Command, words: list[str], place: str, code: int, message: str) -> None:
    done = CliRunner().invoke(root, [*words, "--plot", place])
    assert done.exit_code == code and message in done.output and len(done.output.splitlines()) == 1, done.output
    assert not Path(place).is_file()


def test_plot_options(commands: list[tuple[click.Command, list[str]]]) -> None:
    Path("taken.svg").mkdir()
    for i, command in enumerate(commands):
        root, words = command
        done = CliRunner().invoke(root, [*words, "--plot", f"{i}.svg"])
        assert done.exit_code == 0, done.output
        parsed(Path(f"{i}.svg").read_text())
        refused(*command, "wrong.png", 2, "does not end in .svg")
        refused(*command, "none/a.svg", 1, "folder none does not exist")
        refused(*command, "taken.svg", 2, "taken.svg")


def test_without_matplotlib_one_line_says_what_to_install(
    commands: list[tuple[click.Command, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    works: list[Any] = [("edge.tools.bench", "run"), ("lab.evaluate", "kv_quality")]
    for module, name in works:  # it is judged before the work
        monkeypatch.setattr(f"{module}.{name}", lambda *_, **__: pytest.fail("it began to work"))
    for command in commands:
        refused(*command, "a.svg", 2, "pip install 'bitnet-edge[plot]'")
