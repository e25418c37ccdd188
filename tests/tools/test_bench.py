"""edge/tools/bench.py: the rows are complete, the arithmetic is right, the forms parse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import make_model
from edge.errors import UsageError
from edge.model.model import Model
from edge.tools import bench
from pyx import machine
from pyx.step import Segment


@pytest.fixture(scope="module")
def report(tiny_model: str) -> bench.Report:
    return bench.run(tiny_model, depths=(64, 16), n_gen=4, repeats=2, threads=(1, 2), kv=("f16", "int8"))


def test_a_row_for_every_combination(report: bench.Report) -> None:
    wanted = [(t, kv, depth) for t in (1, 2) for kv in ("f16", "int8") for depth in (16, 64)]
    assert [(row.threads, row.kv, row.depth) for row in report.rows] == wanted
    for row in report.rows:
        assert row.pp > 0 and row.tg > 0 and row.spread >= 0
        assert row.rss_bytes > 1 << 20
    f16, int8 = report.rows[0].kv_bytes, report.rows[2].kv_bytes
    assert int8 < f16


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
    assert three.token_bytes < two.token_bytes < first.token_bytes
    at = {n: [tokens for begun, tokens in steps if begun >= 16 and len(tokens) == n][-4:] for n in (1, 2, 3)}
    for n in (2, 3):
        assert [tokens[0] for tokens in at[n]] == [tokens[0] for tokens in at[1]]
        assert all(len(set(tokens)) == 1 for tokens in at[n])
    assert "3 at once" in report.to_markdown()
    for wrong in ((), (0,), (65,)):
        with pytest.raises(UsageError, match="1 to 64 conversations"):
            bench.run(tiny_model, parallel=wrong)


def test_token_bytes_grow_with_the_depth(report: bench.Report) -> None:
    """Weights and head once, and the part of the KV cache in sight."""
    shallow, deep = report.rows[0], report.rows[1]
    still = report.header["weight_bytes"] + report.header["head_bytes"]
    assert still < shallow.token_bytes < deep.token_bytes <= still + deep.kv_bytes


@pytest.mark.parametrize("pages", ["map", "memory", "huge"])
def test_the_speed_of_memory_is_a_speed(tiny_model: str, pages: str) -> None:
    """Less than 2 TB/s: a loop that was optimised away would pass it."""
    assert 0 < bench.memory_speed(pages, tiny_model, min(1 << 22, Path(tiny_model).stat().st_size), 1) < 2e12


@pytest.mark.parametrize("way", machine.WAYS)
def test_sum_reads_every_byte(way: str) -> None:
    for n in (0, 7, 64, 4095, 4097, 3 * 4096 * 5 + 24):
        data = np.random.default_rng(n).integers(0, 256, n, np.uint8)
        words = data[: n // 8 * 8].view(np.uint64)
        for n_threads in (1, 2, 5):
            assert machine.sum_of(data, n_threads, way) == sum(map(int, words)) % 2**64


def test_sum_refuses() -> None:
    with pytest.raises(ValueError, match="threads"):
        machine.sum_of(bytes(16), 0)
    with pytest.raises(ValueError):
        machine.sum_of(bytes(16), 1, "backwards")
    data = bytearray(24)
    start = 1 + -np.frombuffer(data, np.uint8).ctypes.data % 8
    with pytest.raises(ValueError, match="multiple of 8"):
        machine.sum_of(memoryview(data)[start : start + 8], 1)


def test_depths_beyond_the_model_are_left_out(tiny_model: str) -> None:
    n_ctx = make_model.SHAPES["tiny"].n_ctx
    report = bench.run(tiny_model, depths=(16, n_ctx, n_ctx + 1), n_gen=2, repeats=1)
    assert report.header["left_out"] == [n_ctx + 1]
    assert [row.depth for row in report.rows] == [16, n_ctx - 2]  # the answer ends where the context ends
    with pytest.raises(UsageError, match="trained for 512"):
        bench.run(tiny_model, depths=(n_ctx + 1,), n_gen=2, repeats=1)


def test_the_table(report: bench.Report) -> None:
    """Six columns; what holds for all rows is said once."""
    shown = bench.Report({**report.header, "throttling": {"now": [], "since boot": ["under-voltage"]}}, [
        *report.rows, replace(report.rows[0], of_memory=60.0, of_disk=0.25)]).to_markdown()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if line[:1] == "|"]
    assert table[0] == list(bench.COLUMNS) and {len(cells) for cells in table} == {6}
    assert table[2][0] == "1 thread, f16 KV" and table[2][3] == f"{report.rows[0].tg:.2f}"
    assert table[-1][5] == "in caches" and table[3][5].endswith("%")
    assert "(since boot): under-voltage" in shown and "(now)" not in shown and "25% of what a token read" in shown
    assert json.loads(json.dumps(report.to_dict()))["rows"][1]["depth"] == 64


def test_joules_of_a_token(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of a meter while tokens are written, over all of them; without a meter the reason."""
    def counted(seconds: float) -> bench.Report:
        monkeypatch.setattr(bench, "LEAST_SECONDS", seconds)
        return bench.run(tiny_model, depths=(16,), n_gen=5, repeats=2, parallel=(1, 2), threads=(1,))

    asked = [0]

    def joules() -> float:
        asked[0] += 1
        return 3.0 * asked[0]

    monkeypatch.setattr(bench.energy, "find", lambda: SimpleNamespace(name="a meter", joules=joules))
    report = counted(0)
    one, two = (row.joules_per_token for row in report.rows)
    assert one == 5 * 3 / 4, "asked at each of 5 tokens and at the end; 4 are written"
    assert two == 5 * 3 / 8 and "energy 1.88 to 3.75 J a token, by a meter" in report.to_markdown()
    report = counted(1e9)
    assert report.rows[0].joules_per_token is None and "give a larger -n" in report.to_markdown()
    monkeypatch.setattr(bench.energy, "find", lambda: "nothing here")
    report = counted(0)
    assert report.to_dict()["rows"][0]["joules_per_token"] is None and report.header["energy"] == "nothing here"
    assert "energy not measured: nothing here" in report.to_markdown()


@pytest.mark.parametrize("wrong", [{"n_gen": 1}, {"repeats": 0}, {"depths": ()}, {"depths": (0,)}])
def test_senseless_values(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        bench.run("nowhere.gguf", **wrong)  # type: ignore[arg-type]
