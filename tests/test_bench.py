"""edge/bench.py: the rows are complete, the arithmetic is right, the forms parse."""

from __future__ import annotations

import csv
import io
import json

import pytest

from benchmarks import make_model
from edge import bench
from edge.errors import UsageError


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "tiny.gguf"
    make_model.make(path, "tiny")
    return str(path)


@pytest.fixture(scope="module")
def report(tiny: str) -> bench.Report:
    return bench.run(tiny, depths=(64, 16), n_gen=4, repeats=2, threads=(1, 2), kv=("f16", "int8"))


def test_a_row_for_every_combination(report: bench.Report) -> None:
    wanted = [(t, kv, depth) for t in (1, 2) for kv in ("f16", "int8") for depth in (16, 64)]
    assert [(row.threads, row.kv, row.depth) for row in report.rows] == wanted
    for row in report.rows:
        assert row.pp > 0 and row.tg > 0 and row.spread >= 0
        assert 0 < row.ms_p50 <= row.ms_p95
        assert row.rss_bytes > 1 << 20
    f16, int8 = report.rows[0].kv_bytes, report.rows[2].kv_bytes
    assert int8 < f16


def test_header_names_what_was_measured(report: bench.Report, tiny: str) -> None:
    head = report.header
    assert head["path"] == tiny and head["repeats"] == 2 and head["left_out"] == []
    shape = make_model.SHAPES["tiny"]
    assert head["head_bytes"] == shape.n_vocab * (shape.hidden + 4)  # int8 rows and a float scale each
    ternary = sum(rows[0] * rows[1] for _, kind, rows in make_model.plan(shape, "I2_S", "F16") if kind == "I2_S")
    assert ternary // 4 <= head["weight_bytes"] < ternary // 4 + 1024  # and a scale per matrix


def test_forms(report: bench.Report) -> None:
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert len(rows) == len(report.rows) and rows[0]["isa"] == report.rows[0].isa
    assert json.loads(json.dumps(report.to_dict()))["rows"][1]["depth"] == 64
    table = [line for line in report.to_markdown().splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(report.rows)
    assert len({line.count("|") for line in table}) == 1


def test_depths_beyond_the_model_are_left_out(tiny: str) -> None:
    n_ctx = make_model.SHAPES["tiny"].n_ctx
    report = bench.run(tiny, depths=(16, n_ctx), n_gen=2, repeats=1)
    assert report.header["left_out"] == [n_ctx]
    assert [row.depth for row in report.rows] == [16]
    with pytest.raises(UsageError, match="trained for 512"):
        bench.run(tiny, depths=(n_ctx,), n_gen=2, repeats=1)


@pytest.mark.parametrize("wrong", [{"n_gen": 1}, {"repeats": 0}, {"depths": ()}, {"depths": (0,)}])
def test_senseless_values(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        bench.run("nowhere.gguf", **wrong)  # type: ignore[arg-type]


def test_prompt_is_fixed_and_plain() -> None:
    ids = bench._prompt(100, [3, 99], 500)
    assert ids == bench._prompt(100, [3, 99], 500)
    assert not {3, 99} & set(ids) and min(ids) >= 0 and max(ids) < 100
    assert len(set(ids)) > 90
