"""edge/tools/bench.py: the rows are complete, the arithmetic is right, the forms parse."""

from __future__ import annotations

import csv
import getpass
import io
import json
import re
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import make_model
from docs import make_boards
from edge.cli.group import cli
from edge.errors import UsageError
from edge.model.model import Model
from edge.tools import bench, yardstick
from pyx.head.bit_planes import BLOCK
from pyx.machine import bandwidth
from pyx.step.transformer import Segment


@pytest.fixture(scope="module")
def report(tiny_model: str) -> bench.Report:
    return bench.run(tiny_model, depths=(64, 16), n_gen=4, repeats=2, threads=(1, 2), kv=("f16", "int8"))


def test_a_row_for_every_combination(report: bench.Report) -> None:
    wanted = [(t, kv, depth) for t in (1, 2) for kv in ("f16", "int8") for depth in (16, 64)]
    assert [(row.threads, row.kv, row.depth) for row in report.rows] == wanted
    for row in report.rows:
        assert row.pp > 0 and row.tg > 0 and row.spread >= 0
        assert 0 < row.ms_p50 <= row.ms_p95
        assert row.rss_bytes > 1 << 20
    f16, int8 = report.rows[0].kv_bytes, report.rows[2].kv_bytes
    assert int8 < f16


def test_every_placement_and_head_in_turn(tiny_model: str) -> None:
    steps: list[tuple[float, float]] = []
    report = bench.run(tiny_model, depths=(16,), n_gen=2, repeats=2, head=("f16", "int8"), weights=("map", "huge"),
                       progress=lambda *amounts: steps.append(amounts))
    assert sorted(set(steps)) == list(dict.fromkeys(steps)) == [(n, 8) for n in range(9)]
    assert [(row.weights, row.head) for row in report.rows][:2] == [("map", "f16"), ("map", "int8")]
    assert {row.weights for row in report.rows[2:]} <= {"huge", "memory"}  # as the system has pages to give
    f16, int8 = report.rows[0].token_bytes, report.rows[1].token_bytes
    shape = make_model.SHAPES["tiny"]
    assert f16 - int8 == shape.n_vocab * (2 * shape.hidden - (shape.hidden + 4))


def test_conversations_at_the_same_time(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number in turn, each conversation in each step; the same tokens as alone, in caches that share nothing."""
    steps: list[tuple[int, list[int]]] = []
    step = Model.step

    def noted(self: Model, batch: list[Segment]) -> None:
        if all(len(segment.ids) == 1 for segment in batch):
            assert len({id(segment.kv) for segment in batch}) == len(batch)
            steps.append((batch[0].kv.n_tokens, [segment.ids[0] for segment in batch]))
        step(self, batch)

    monkeypatch.setattr(Model, "step", noted)
    report = bench.run(tiny_model, depths=(16,), n_gen=5, repeats=2, parallel=(1, 3, 2), threads=(1,))
    assert [(row.parallel, row.depth) for row in report.rows] == [(1, 16), (3, 16), (2, 16)]
    first, three, two = report.rows
    assert first.gain == 1.0 and all(row.gain == pytest.approx(row.tg / first.tg, abs=1e-3) for row in (three, two))
    assert three.token_bytes < two.token_bytes < first.token_bytes
    at = {n: [tokens for begun, tokens in steps if begun >= 16 and len(tokens) == n][-4:] for n in (1, 2, 3)}
    for n in (2, 3):
        assert [tokens[0] for tokens in at[n]] == [tokens[0] for tokens in at[1]]
        assert all(len(set(tokens)) == 1 for tokens in at[n])
    assert "at once | " in report.to_markdown() and f"{three.gain:.2f}x" in report.to_markdown()
    assert json.loads(json.dumps(report.to_dict()))["rows"][1]["parallel"] == 3
    for wrong in ((), (0,), (65,)):
        with pytest.raises(UsageError, match="1 to 64 conversations"):
            bench.run(tiny_model, parallel=wrong)


def test_tokens_of_the_likeliest(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--top-k reaches the head, which reads less for few, and the table says so."""
    asked, step = set(), Model.step

    def noted(self: Model, batch: list[Segment]) -> None:
        asked.update(segment.winners for segment in batch)
        step(self, batch)

    monkeypatch.setattr(Model, "step", noted)
    for top_k, words in ((1, ""), (40, "drawn from the 40 likeliest"), (0, "drawn from all")):
        report = bench.run(tiny_model, depths=(16,), n_gen=2, repeats=1, head=("two-stage",), top_k=top_k)
        assert asked == {top_k} and report.header["top_k"] == top_k
        assert words in report.to_markdown() and ("drawn" in report.to_markdown()) == (top_k != 1)
        asked.clear()


def test_token_bytes_grow_with_the_depth(report: bench.Report) -> None:
    """Weights and head once, and the part of the KV cache in sight."""
    shallow, deep = report.rows[0], report.rows[1]
    still = report.header["weight_bytes"] + report.header["head_bytes"]
    assert still < shallow.token_bytes < deep.token_bytes <= still + deep.kv_bytes


def test_fraction_of_memory_speed(report: bench.Report) -> None:
    for row in report.rows:
        assert row.read_rate > 0
        assert row.of_memory >= 0  # rounds to 0 where other work interrupts the loop
        assert len(row.tg_samples) == len(row.pp_samples) == 2
        assert row.tg == pytest.approx(sum(row.tg_samples) / 2, abs=2e-3)


def test_weights_in_the_caches_reach_no_share_of_the_memory(report: bench.Report) -> None:
    row = replace(report.rows[0], read_rate=34_500_000_000)
    for share, cells, told in (
        (0.5, ("34.5", "50%"), False), (1.0, ("34.5", "100%"), False), (1.06, ("34.5", ">100%"), True),
        (60.0, ("-", "-"), True),
    ):
        shown = bench.Report(report.header, [replace(row, of_memory=share)]).to_markdown()
        assert re.search(r"\| +".join(("", *(rf"{cell} " for cell in cells), "")), shown)
        assert ("processor's caches" in shown) == told


def test_the_bundled_model_by_name() -> None:
    """Its weights are read from the file, which is found by its name."""
    assert [row.depth for row in bench.run("demo", depths=(8,), n_gen=2, repeats=1).rows] == [8]


@pytest.mark.parametrize("pages", ["map", "memory", "huge"])
def test_the_speed_of_memory_is_a_speed(tiny_model: str, pages: str) -> None:
    """Less than 2 TB/s: a loop that was optimised away would pass it."""
    rate = yardstick.measure(pages, tiny_model, min(1 << 22, Path(tiny_model).stat().st_size), 1)
    assert 0 < rate.rate < 2e12 and rate.way in bandwidth.WAYS and rate.pages == pages


def test_the_fastest_way_counts(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way is tried several times, and the one with the best pass is named."""
    now, seconds = [0.0], {"plain": 5, "L1": 3, "once": 2, "L2": 4, "streams": 6}

    def sum_of(data: Any, n_threads: int, way: str = "plain") -> None:
        now[0] += seconds[way]
        seconds[way] += 1  # later passes are slower

    monkeypatch.setattr(bandwidth, "sum_of", sum_of)
    monkeypatch.setattr(yardstick.time, "perf_counter", lambda: now[0])
    assert yardstick.measure("memory", tiny_model, 1 << 20, 1) == ((1 << 20) / 2, "once", "memory")


def test_placement_asks_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def engine(copied: int) -> Any:
        transformer = SimpleNamespace(weight_bytes=copied or 9, weight_bytes_allocated=copied)
        return SimpleNamespace(model=SimpleNamespace(transformer=transformer))

    monkeypatch.setattr(bench, "huge_bytes", lambda: 6 << 20)
    assert bench.placement(engine(0)) == "map"
    assert bench.placement(engine(8 << 20)) == "huge"
    assert bench.placement(engine(80 << 20)) == "memory"
    monkeypatch.setattr(bench, "huge_bytes", lambda: 0)
    assert bench.placement(engine(1)) == "memory"


@pytest.mark.parametrize("way", bandwidth.WAYS)
@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 7, 8, 63, 64, 4095, 4096, 4097, 3 * 4096 * 5 + 24])
def test_sum_reads_every_byte(n: int, n_threads: int, way: str) -> None:
    data = np.random.default_rng(n).integers(0, 256, n, np.uint8)
    words = data[: n // 8 * 8].view(np.uint64)
    assert bandwidth.sum_of(data, n_threads, way) == sum(map(int, words)) % 2**64


def test_sum_refuses() -> None:
    with pytest.raises(ValueError, match="threads"):
        bandwidth.sum_of(bytes(16), 0)
    with pytest.raises(ValueError):
        bandwidth.sum_of(bytes(16), 1, "backwards")
    data = bytearray(24)
    start = 1 + -np.frombuffer(data, np.uint8).ctypes.data % 8
    with pytest.raises(ValueError, match="multiple of 8"):
        bandwidth.sum_of(memoryview(data)[start : start + 8], 1)


def test_header_names_what_was_measured(report: bench.Report, tiny_model: str) -> None:
    head = report.header
    assert report.rows[0].rss_bytes / 2 < head["peak_bytes"] < 1 << 40
    assert head["path"] == tiny_model and head["repeats"] == 2 and head["left_out"] == []
    shape = make_model.SHAPES["tiny"]
    assert head["head_bytes"] == shape.n_vocab * (shape.hidden + 4)  # int8 rows and a float scale each
    ternary = sum(rows[0] * rows[1] for _, kind, rows in make_model.plan(shape, "I2_S", "F16") if kind == "I2_S")
    assert ternary // 4 <= head["weight_bytes"] < ternary // 4 + 1024  # and a scale per matrix


def test_forms(report: bench.Report) -> None:
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert rows[0]["model"] == report.header["model"] and rows[0]["date"] and "tg_samples" not in rows[0]
    assert len(rows) == len(report.rows) and rows[0]["isa"] == report.rows[0].isa
    assert rows[0]["top_k"] == str(report.header["top_k"])
    assert json.loads(json.dumps(report.to_dict()))["rows"][1]["depth"] == 64
    table = [line for line in report.to_markdown().splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(report.rows)
    assert len({line.count("|") for line in table}) == 1 and len({len(line) for line in table}) == 1
    names = [name.strip() for name in table[0].strip("|").split("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    assert {"threads", "kv", "depth"} < set(names) and not {"isa", "weights", "head"} & set(names)
    assert f"isa {report.rows[0].isa}, weights map, head " in report.to_markdown()
    assert [row[names.index("tg t/s")] for row in cells] == [f"{row.tg:.2f}" for row in report.rows]


def test_depths_beyond_the_model_are_left_out(tiny_model: str) -> None:
    n_ctx = make_model.SHAPES["tiny"].n_ctx
    report = bench.run(tiny_model, depths=(16, n_ctx, n_ctx + 1), n_gen=2, repeats=1)
    assert report.header["left_out"] == [n_ctx + 1]
    assert [row.depth for row in report.rows] == [16, n_ctx - 2]  # the answer ends where the context ends
    with pytest.raises(UsageError, match="trained for 512"):
        bench.run(tiny_model, depths=(n_ctx + 1,), n_gen=2, repeats=1)


@pytest.mark.parametrize("wrong", [{"n_gen": 1}, {"repeats": 0}, {"depths": ()}, {"depths": (0,)}])
def test_senseless_values(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        bench.run("nowhere.gguf", **wrong)  # type: ignore[arg-type]


def test_a_throttled_board_is_reported(report: bench.Report) -> None:
    slowed = bench.Report({**report.header, "throttling": {"now": [], "since boot": ["under-voltage"]}}, report.rows)
    assert slowed.to_markdown().endswith("This board was slowed down (since boot): under-voltage.\n")


def test_prompt_is_fixed_and_plain() -> None:
    ids = bench.prompt_of(100, [3, 99], 500)
    assert ids == bench.prompt_of(100, [3, 99], 500)
    assert not {3, 99} & set(ids) and min(ids) >= 0 and max(ids) < 100
    assert len(set(ids)) > 90


def test_the_yardstick_is_the_best_rate_of_the_run(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all passes with as many threads, over the memory that the weights are in and over 2 MiB pages."""
    asked: list[tuple[str, int]] = []
    slow, fast = [8e9, 7e9] * 6, [2e9, 3e9, 9e9, 4e9, 5e9, 2e9, 3e9, 1e9, 9e9, 1e9, 9e9, 8e9]
    rates = {1: iter(fast), 2: iter(slow)}

    def measure(pages: str, path: str, n: int, n_threads: int) -> yardstick.Rate:
        asked.append((pages, n_threads))
        return yardstick.Rate(next(rates[n_threads]), "once", pages)

    monkeypatch.setattr(bench, "measure", measure)
    report = bench.run(tiny_model, depths=(16, 32), n_gen=2, repeats=2, threads=(1, 2), weights=("map",))
    assert {pages for pages, _ in asked} == {"map", "huge"}
    assert len(asked) == 2 * 2 * 2 * 3  # threads, depths, kinds of pages; before each repeat and after the last
    assert [row.read_rate for row in report.rows] == [9e9, 9e9, 8e9, 8e9]
    assert report.rows[0].read_apart == pytest.approx(6 / 9, abs=1e-3) and report.rows[2].read_apart == 0
    assert report.rows[2].read_way == "once, pages of the map"
    for row in report.rows:
        assert row.of_memory == pytest.approx(row.token_bytes * row.tg / row.read_rate, abs=1e-3)


def test_a_doubtful_yardstick_is_named(report: bench.Report) -> None:
    row = replace(report.rows[0], of_memory=0.9, read_apart=0.1, read_way="once, 2 MiB pages")
    for changes, words in (
        ({}, None), ({"of_memory": 0.985}, "more than 98%"), ({"read_apart": 0.16}, "changed by 16% during the run"),
    ):
        shown = bench.Report(report.header, [replace(row, **changes)]).to_markdown()
        assert "how it was read: once, 2 MiB pages" in shown
        assert (words or "") in shown and ("more than 98%" in shown or "changed by" in shown) == bool(words)


def test_what_is_shared_names_no_person_and_no_place(tiny_model: str, tmp_path: Path) -> None:
    place = tmp_path / "board.json"
    command = ["bench", "-m", tiny_model, "-d", "16", "-n", "2", "-r", "1", "-t", "1"]
    done = CliRunner().invoke(cli, [*command, "--share", str(place)])
    assert done.exit_code == 0 and "| " in done.stdout
    content = json.loads(place.read_text())
    assert list(make_boards.wrong(content)) == []
    only = CliRunner().invoke(cli, [*command, "--share", "-"])
    assert only.exit_code == 0 and json.loads(only.stdout).keys() == content.keys()
    for text in (place.read_text(), only.stdout):
        assert str(tmp_path) not in text and tiny_model not in text and Path(tiny_model).stem not in text
        assert f'"{socket.gethostname()}"' not in text and f'"{getpass.getuser()}"' not in text
    assert content["rows"][0]["tg"] > 0 and content["machine"]["memory"] > 0
    assert "shared" not in bench.run(tiny_model, depths=(16,), n_gen=2, repeats=1).to_dict()
    for more, words in ((["--share", "-", "--json"], "--share -"), (["--share", str(tmp_path / "a" / "b")], "cannot")):
        refused = CliRunner().invoke(cli, [*command, *more])
        assert refused.exit_code != 0 and words in refused.output


def test_of_a_two_stage_head_counts_what_was_read(tiny_model: str) -> None:
    """The upper four bits of every row, and more only of rows that could still win."""
    two, whole = bench.run(tiny_model, depths=(16,), n_gen=8, repeats=1, threads=(1,), head=("two-stage", "int8")).rows
    shape = make_model.SHAPES["tiny"]
    padded = -(-shape.hidden // BLOCK) * BLOCK
    rest = whole.token_bytes - shape.n_vocab * (shape.hidden + 4)
    read = two.token_bytes - rest
    assert shape.n_vocab * padded // 2 <= read <= shape.n_vocab * padded
