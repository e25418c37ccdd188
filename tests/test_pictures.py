"""Pictures: what is drawn is what was measured or planned.  Those of README and docs: tests/test_docs.py."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyx.kv", reason="needs the compiled floor (python setup.py build_ext --inplace)")

from benchmarks import make_model
from docs import make_pictures, terminal
from edge.cli.group import cli
from edge.kv import table as kv_table
from edge.model import shapes
from edge.tools import pictures, plot

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    """The root of a picture that has what every picture has."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    assert root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")
    assert "prefers-color-scheme:dark" in (root.findtext(f"{SVG}style") or "")
    width, height = (float(root.get(name) or 0) for name in ("width", "height"))
    assert root.get("viewBox") == f"0 0 {width:.0f} {height:.0f}"
    for node in root.iter(f"{SVG}text"):
        assert 0 <= float(node.get("x") or -1) <= width and 0 <= float(node.get("y") or -1) <= height, node.text
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}text")]


def drawn(root: ElementTree.Element) -> list[float]:
    """Values of the circles, read off the marks of the vertical axis, in order."""
    marks = sorted(
        (float(node.get("y") or 0) - 4, float((node.text or "").replace(",", "")))
        for node in root.iter(f"{SVG}text")
        if node.get("class") == "remark end"
    )
    (top, most), (bottom, least) = marks[0], marks[-1]
    heights = (float(node.get("cy") or 0) for node in root.iter(f"{SVG}circle"))
    return [least + (bottom - y) / (bottom - top) * (most - least) for y in heights]


# ---- forms -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(1e-9, 1e9), st.floats(1e-9, 1e3)), min_size=1, max_size=25))
def test_points_have_their_names_beside_them(values: list[tuple[float, float]]) -> None:
    root = parsed(plot.scatter([plot.Point(f"<{i}>&", x, y) for i, (x, y) in enumerate(values)], "t", "d", "x", "y"))
    assert len(list(root.iter(f"{SVG}circle"))) == len(values)
    boxes = []
    for node in root.iter(f"{SVG}text"):
        if (node.text or "").startswith("<"):
            x, y = float(node.get("x") or 0), float(node.get("y") or 0)
            boxes.append((x, y - 9, x + plot.CHARACTER * len(node.text or ""), y + 2))
    assert len(boxes) == len(values)
    for i, a in enumerate(boxes):
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in boxes[:i])


@given(st.lists(st.floats(0.0, 1e9), min_size=1, max_size=20).filter(lambda values: max(values) > 1e-6))
def test_names_of_lines_stand_apart(values: list[float]) -> None:
    series = [plot.Series(f"line {i}", [(1.0, 0.0), (2.0, value)], i) for i, value in enumerate(values)]
    root = parsed(plot.lines(series, "t", "d", "x", "y"))
    at = sorted(float(n.get("y") or 0) for n in root.iter(f"{SVG}text") if (n.text or "").startswith("line "))
    assert len(at) == len(values) and all(b - a > plot.LINE - 0.3 for a, b in zip(at, at[1:]))
    assert sorted(drawn(root)[1::2]) == pytest.approx(sorted(values), abs=max(values) / 300)


def test_bars_are_as_long_as_their_values() -> None:
    cells = [[plot.Bar(10.0, "10", 0, (9.0, 12.0))], [plot.Bar(20.0, "20"), plot.Bar(5.0, "5", 1)], []]
    root = parsed(plot.bars(["a", "b & c", "none"], [plot.Column("tokens/s", cells)], "t", "d", ["one", "two"]))
    wide = [float(n.get("width") or 0) for n in root.iter(f"{SVG}rect") if n.get("height") == str(plot.THICK)]
    assert [each / wide[0] for each in wide] == pytest.approx([1.0, 2.0, 0.5], abs=0.01)
    assert {"a", "b & c", "10", "20", "5", "tokens/s", "one", "two"} <= set(texts(root))


def test_pictures_of_nothing() -> None:
    for points in ([], [plot.Point("zero", 0.0, 1.0)]):
        with pytest.raises(ValueError):
            plot.scatter(points, "t", "d", "x", "y")
    for series in ([], [plot.Series("flat", [(0.0, 0.0)])]):
        with pytest.raises(ValueError):
            plot.lines(series, "t", "d", "x", "y")
    for rows, columns in (([], []), (["a"], []), (["a"], [plot.Column("c", [])])):
        with pytest.raises(ValueError):
            plot.bars(rows, columns, "t", "d")


@given(st.floats(1e-6, 1e12), st.integers(2, 8))
def test_round_ticks(most: float, n: int) -> None:
    ticks = plot.round_ticks(most, n)
    assert ticks[0] == 0 and ticks[-1] >= most * 0.999 and ticks[-2] < most and 2 <= len(ticks) <= n + 2


# ---- what is drawn ---------------------------------------------------------------------------------------------------


def test_a_plan_is_drawn_as_it_is_printed() -> None:
    config = shapes.find("2b-4t")
    assert config is not None
    table = kv_table.table(config, types=("f16", "int8", "fp8", "int4"), windows=(508,))
    root = parsed(pictures.of_plan(table))
    names = texts(root)
    # int8 and fp8 take the same: one line; a cache that slides is not drawn
    assert {"f16", "int8 and fp8", "int4", "int4, window 508", "512", "4,096"} <= set(names)
    assert not any("slide" in name for name in names)
    sizes = [[n for n in row.bytes.values() if n is not None] for row in table.rows if not row.full.startswith("slide")]
    sizes = [row for i, row in enumerate(sizes) if row not in sizes[:i]]
    expected = sorted(n / 1e6 for row in sizes for n in row)
    assert sorted(drawn(root)) == pytest.approx(expected, abs=max(expected) / 300)


def of_bench(**changes: Any) -> tuple[dict[str, Any], ElementTree.Element]:
    facts = make_pictures.facts("bench-amd-epyc-zen4-2-vcpu.json") | changes
    return facts, parsed(pictures.of_bench(facts))


def test_speeds_are_drawn_as_they_are_printed() -> None:
    facts, root = of_bench()
    names = texts(root)
    for row in facts["rows"]:
        milliseconds = (1e3 / row["tg"], 1e3 * row["token_bytes"] / row["read_rate"], 1e3 / row["pp"])
        shown = {f"{row['tg']:.1f}", f"{row['pp']:.1f}", *(f"{each:.3g}" for each in milliseconds)}
        assert shown <= set(names)
    assert {"1 thread", "2 threads"} <= set(names)  # what differs; what does not stands above
    one = facts["rows"][:1]
    assert "int8 KV" in " ".join(texts(of_bench(rows=one)[1]))


def test_quality_is_drawn_as_it_is_printed() -> None:
    facts = make_pictures.facts("kv_quality.json")["types"]
    root = parsed(pictures.of_quality(facts))
    modes = {row["mode"] for row in facts["rows"]}
    assert modes - set(texts(root)) == {"f32"}  # the reference
    assert len(list(root.iter(f"{SVG}circle"))) == len(modes) - 1


# ---- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("pictures") / "tiny.gguf"
    make_model.make(path, "tiny")
    return str(path)


def commands(model: str) -> list[list[str]]:
    return [
        ["kv", "plan", "2b-4t"],
        ["bench", "-m", model, "-d", "8", "-n", "2", "-r", "1"],
        ["eval", "kv", "-m", model, "-c", "16", "--mode", "int8"],
    ]


def test_plot_options(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 3)
    Path("taken.svg").mkdir()
    for i, command in enumerate(commands(tiny)):
        more = ["-f", "text.txt"] if command[0] == "eval" else []
        done = CliRunner().invoke(cli, [*command, *more, "--plot", f"{i}.svg"])
        assert done.exit_code == 0, done.output
        parsed(Path(f"{i}.svg").read_text())
        for place, code, words in (
            ("wrong.png", 2, "does not end in .svg"),
            ("none/a.svg", 1, "folder none does not exist"),
            ("taken.svg", 2, "taken.svg"),
        ):
            done = CliRunner().invoke(cli, [*command, *more, "--plot", place])
            assert done.exit_code == code and words in done.output and len(done.output.splitlines()) == 1, done.output
            assert not Path("wrong.png").exists()


# ---- terminals -------------------------------------------------------------------------------------------------------


def test_a_screen() -> None:
    screen = terminal.Screen(10, 4)
    screen.feed("\x1b[32mab\x1b[0m c\r\nprogress\r\x1b[Kdone", 1.0)
    screen.feed("\x1b[1A\x1b[2C\x1b[1mX\x1b[5DY", 2.0)

    def row(n: int) -> str:
        return "".join(screen.cells[n, i].text if (n, i) in screen.cells else "." for i in range(10))

    assert (row(0), row(1)) == ("abYc..X...", "done......")
    assert screen.cells[0, 1] == terminal.Cell("b", "c2", False, 1.0)
    assert screen.cells[0, 6] == terminal.Cell("X", "text", True, 2.0)
    screen.feed("\x1b[H\x1b[J\x1b[0;31ma\x1b[32mb", 3.0)  # b was there before; a in another colour is new
    assert [screen.cells[0, i].seconds for i in range(2)] == [3.0, 1.0] and len(screen.cells) == 2
    screen.feed("0123456789ab" * 9)  # long lines go on below, and nothing scrolls
    assert {at[0] for at in screen.cells} == {0, 1, 2, 3}


def test_a_recording_becomes_a_picture(tmp_path: Path) -> None:
    env = {"PATH": os.defpath, "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    events = terminal.record([(r"\$ $", "echo 'a  <b>'"), (r"a  <b>.*\$ $", "")], env, 40, 10, timeout=120)
    path = tmp_path / "echo.cast"
    terminal.save(path, events, "a test", 40, 10)
    assert json.loads(path.read_text().splitlines()[0])["version"] == 2
    root = parsed(terminal.picture(path, "echo", "A test."))
    assert {"a", "<b>", "$"} <= set(texts(root)) and "prefers-reduced-motion" in (root.findtext(f"{SVG}style") or "")


def test_a_recording_of_what_does_not_come(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="never"):
        terminal.record([("never", "")], {"PATH": os.defpath}, 40, 10, timeout=0.5)
