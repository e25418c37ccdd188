"""The memory table: published figures, cell by cell, and what a cache really allocates."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import edge
from benchmarks import make_model
from edge.cache.config import KVConfig
from edge.cli.group import cli
from edge.errors import UsageError
from edge.formats import open_checkpoint
from edge.model.sizes import Weights
from edge.registry import shapes
from edge.registry.known import KNOWN
from edge.tools import kv_table
from pyx.kv.cache import KVCache

CONTEXTS = (512, 1024, 2048, 4096)
#: model, type -> bytes per token, then MB at CONTEXTS: per-token bytes with their scales, times tokens
PUBLISHED = {
    ("large", "f16"): (147_456, "75.5 151.0 302.0 604.0"),
    ("large", "int8"): (75_264, "38.5 77.1 154.1 308.3"),
    ("large", "int4"): (43_776, "22.4 44.8 89.7 179.3"),
    ("2b-4t", "f16"): (76_800, "39.3 78.6 157.3 314.6"),
    ("2b-4t", "int8"): (39_000, "20.0 39.9 79.9 159.7"),
    ("2b-4t", "int4"): (22_800, "11.7 23.3 46.7 93.4"),
}


def config(name: str):
    found = shapes.find(name)
    assert found is not None
    return found


@pytest.mark.parametrize(("model", "kv_type"), PUBLISHED)
def test_the_published_table_cell_by_cell(model: str, kv_type: str) -> None:
    per_token, cells = PUBLISHED[model, kv_type]
    assert kv_table.bytes_per_token(config(model), kv_type) == per_token
    assert [f"{per_token * n / 1e6:.1f}" for n in CONTEXTS] == cells.split()


@pytest.mark.parametrize("model", ["large", "2b-4t", "3b", "falcon3-1b"])
def test_cells_are_what_a_cache_allocates(model: str) -> None:
    """On top of bytes per token: nothing for floats, one open page for every head for the others."""
    c = config(model)
    table = kv_table.table(c, CONTEXTS, windows=[500], sinks=7)
    assert [row.type for row in table.rows] == [each for each in kv_table.TYPES for _ in range(3)]
    for row in table.rows:
        for n, cell in row.bytes.items():
            window = {"stop": 0, "slide, 7 sinks": n - 7, "window 500, 7 sinks": 500}[row.full]
            sinks = 7 if window else 0
            shape = c.kv_shape
            if window + sinks > n:
                assert cell is None
                continue
            assert cell == KVCache.bytes_for(
                *shape, n, row.type, window=window, sinks=sinks, spare=2 if window >= 1024 else window // 512
            )
            if not window:
                open_page = c.n_layer * c.n_kv_head * 32 * c.head_dim * 4
                assert cell == row.bytes_per_token * n + (0 if row.type in ("f32", "f16") else open_page)
    one = KVCache(2, 2, 8, 64, "int8")
    assert one.nbytes == KVCache.bytes_for(2, 2, 8, 64, "int8")


def test_keys_and_values_of_different_types() -> None:
    """Half of the one, half of the other; the open page stays F16."""
    c = config("2b-4t")
    one, two = (kv_table.table(c, [4096], [each]).rows[0] for each in ("f16:int8", "int8:f16"))
    assert one.bytes_per_token == two.bytes_per_token == (76_800 + 39_000) // 2 and one.bytes == two.bytes
    plan = KVConfig(4096, "f16:int8", overflow="stop").plan(c)
    assert plan.kv_type == "f16:int8" and plan.kv_bytes == one.bytes[4096]


def test_share_and_gain_are_the_published_ones() -> None:
    """2B-4T at 4096 tokens: reference figures count 521 MB of weights and the tied head as the file has it (F16)."""
    c = config("2b-4t")
    weights = Weights.of(c)
    assert f"{weights.projections / 1e6:.0f} {weights.read / 1e6:.0f}" == "521 850"
    assert f"{weights.paper / 1e6:.1f}" == "476.5" and f"{weights.parameters / 1e6:.1f}" == "2412.8"
    assert f"{Weights.of(config('large')).parameters / 1e6:.1f}" == "728.8"
    rows = {(row.type, row.full): row for row in kv_table.table(c).rows}
    assert f"{rows['f16', 'stop'].share:.3f} {rows['f16', 'stop'].gain:.2f}" == "0.270 1.00"
    assert f"{rows['int8', 'stop'].gain:.2f}" == f"{(849.8 + 314.6) / (849.8 + 159.7):.2f}" == "1.15"


def test_names_of_published_models() -> None:
    assert shapes.find("1bitLLM/bitnet_b1_58-large") == config("large")
    assert shapes.find("microsoft/BitNet-b1.58-2B-4T") == config("2B-4T")
    assert shapes.find("gpt-5") is None
    assert set(shapes.ALIASES.values()) <= set(shapes.SHAPES)
    for name in KNOWN:
        assert shapes.find(name) is not None, name
        assert invoke(name, "-c", "512").exit_code == 0, name


def test_a_ternary_head_is_planned_as_one() -> None:
    """Bonsai's embedding is ternary, also as the output head: 34 bytes for 128 weights, in whole panels of 64 rows, as
    a pull stores it; as are all other matrices.
    """
    weights = json.loads(invoke("bonsai-1.7b", "--json").stdout)["weights"]
    assert weights["head"] == 151680 * 2048 // 128 * 34
    assert weights["projections"] == 28 * (2 * 2048 * (2048 + 1024) + 3 * 2048 * 6144) // 128 * 34


def test_a_published_shape_is_that_of_a_file_made_from_it(tmp_path) -> None:
    """The same dimensions and conventions by name and out of a header."""
    for name in ("tiny", "tiny-silu", "tiny-llama", "tiny-qwen3"):
        make_model.make(tmp_path / name, name, "Q2_0" if name == "tiny-qwen3" else "I2_S")
        read = open_checkpoint(str(tmp_path / name)).config
        eps = pytest.approx(read.eps, rel=1e-6)  # a file holds it as float32
        assert replace(make_model.SHAPES[name].config(read.name), eps=read.eps, inner_eps=read.eps) == read
        assert make_model.SHAPES[name].eps == eps


@pytest.mark.parametrize("embedding", make_model.EMBEDDING)
def test_the_head_of_a_file_is_the_one_that_loading_it_makes(tmp_path, embedding: str) -> None:
    """Q8_0 rows are used as stored, of the others int8 rows are made."""
    make_model.make(tmp_path / "m", "tiny", embedding=embedding)
    planned = json.loads(invoke(str(tmp_path / "m"), "--json").stdout)["weights"]["head"]
    with edge.load(str(tmp_path / "m")) as engine:
        assert planned == engine.plan.footprint.head_mapped + engine.plan.footprint.head_allocated


def test_contexts() -> None:
    assert kv_table.default_contexts(4096) == (512, 1024, 2048, 4096)
    assert kv_table.default_contexts(3000) == (512, 1024, 2048, 3000)
    assert kv_table.default_contexts(100) == (100,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"types": ["int9"]}, "int9"),
        ({"types": []}, "at least one"),
        ({"windows": [4093]}, "do not fit"),
        ({"contexts": [4], "sinks": 4}, "leave no window"),
    ],
)
def test_unknown_plans_are_refused(arguments, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kv_table.table(config("2b-4t"), **arguments)


# ---- the command -----------------------------------------------------------------------------------------------------


def invoke(*arguments: str):
    return CliRunner().invoke(cli, ["kv", "plan", *arguments])


def test_the_command_prints_the_table() -> None:
    done = invoke("bitnet-2b-4t", "--kv", "f16,int8", "--window", "512")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith("2b-4t: 30 layers, 5 key/value heads of 128")
    assert "f16 stop 76,800 39.3 78.6 157.3 314.6 26.6% 1.00x".split() in [line.split() for line in lines]
    words = [line.partition(":")[0] for line in lines[-5:]]
    assert len(lines) == 6 + 6 + 6 and words == ["stop", "slide", "window", "share", "gain"]
    assert all(len(line) <= 130 for line in lines)


def test_the_command_as_json() -> None:
    facts = json.loads(invoke("large", "--json", "-c", "2048", "--kv", "f16").output)
    assert facts["config"]["n_kv_head"] == 16 and facts["weights"]["parameters"] == 728_842_752
    assert facts["rows"][0]["bytes"] == {"2048": 301_989_888}


def test_the_command_reads_a_file(bundled_model) -> None:
    assert invoke(str(bundled_model)).output == invoke().output


def test_the_command_names_what_it_does_not_know() -> None:
    done = CliRunner().invoke(cli, ["kv", "plan", "no-such-model"])
    assert done.exit_code == 3
    said = "is neither a file nor the name of a pulled or a published model"
    assert done.output.startswith(f"bitnet-edge: 'no-such-model' {said}")
