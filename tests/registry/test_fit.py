"""Whether a model fits, before it is downloaded: the plan by name is the plan of the file, and of loading it."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import edge
from benchmarks import make_model
from edge.cache.planning import cache_plan
from edge.cli.group import cli
from edge.formats import names, open_checkpoint
from edge.machine.memory import BOARDS, left_on
from edge.options import Options
from edge.registry import library, shapes
from edge.registry.known import KNOWN
from edge.tools import fit, pull
from edge.tools.convert import convert
from tests import handmade
from tests.services import ROOT

#: shape -> types of its published file
TINY = {
    "tiny": ("I2_S", "F16"), "tiny-silu": ("I2_S", "F16"), "tiny-llama": ("I2_S", "F16"),
    "tiny-qwen3": ("Q2_0", "Q2_0"),
}


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["fit", *arguments])


def facts_of(*arguments: str) -> dict[str, Any]:
    return dict(json.loads(invoke(*arguments, "--json").stdout))


def facts(*arguments: str) -> dict[str, Any]:
    found = facts_of(*arguments)
    assert found["fits"], found
    return found


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny shapes, as if they were published; one has rows that fill no block of 128."""
    more = {name: make_model.SHAPES[name] for name in TINY}
    more["tiny-qwen3"] = replace(more["tiny-qwen3"], table="PQ2_0")
    monkeypatch.setattr(fit, "SHAPES", {**shapes.SHAPES, **more})
    monkeypatch.setattr(fit, "shape_of", lambda name: name if name in more else shapes.shape_of(name))


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("weights", ["map", "huge"])
@pytest.mark.parametrize("head", ["auto", "int8", "native"])
def test_the_plan_by_name_is_that_of_the_pulled_file(
    published: None, tmp_path: Path, name: str, weights: str, head: str
) -> None:
    """The file is made as published, and converted as a pull does it; loading then takes what was planned."""
    make_model.make(tmp_path / "a.gguf", name, *TINY[name])
    convert(tmp_path / "a.gguf", tmp_path / "b.gguf", "I2_S", "Q8_0")
    options = Options(128, "int4", memory="1G", head=head, weights=weights)
    outline = fit.published(name)
    file = fit.PlannedModel("b", open_checkpoint(tmp_path / "b.gguf"), outline.program)
    assert {each: (t.type, t.shape) for each, t in outline.checkpoint.tensors.items()} == {
        each: (t.type, t.shape) for each, t in file.checkpoint.tensors.items()}
    by_name, by_file = fit.loading(outline, options), fit.loading(file, options)
    assert by_name == by_file
    with edge.load(
        tmp_path / "b.gguf", ctx=128, kv="int4", memory="1G", head=head, weights=weights, threads=fit.THREADS
    ) as engine:
        loaded = engine.plan
    assert loaded.kv_bytes == by_name.kv_bytes
    for part in ("mapped", "allocated", "head_mapped", "head_allocated", "scratch"):
        assert getattr(loaded.footprint, part) == getattr(by_name.footprint, part), part


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the estimate was measured on x86-64")
@pytest.mark.parametrize("name", ["bonsai-1.7b", "bitnet-2b-4t", "falcon-e-1b", "bitnet-large"])
def test_the_estimate_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With a vocabulary of the published size the program takes what was estimated, to 1 % of the whole."""
    short = shapes.shape_of(name)
    assert short is not None
    shape = shapes.SHAPES[short]
    small = replace(shape, n_layer=1, hidden=256, ffn=256, n_head=4, n_kv_head=2, head_dim=64)
    monkeypatch.setitem(make_model.SHAPES, "small", small)
    grouped = shape.table == "PQ2_0"
    make_model.make(tmp_path / "a.gguf", "small", "Q2_0" if grouped else "I2_S", "Q2_0" if grouped else "Q8_0")
    convert(tmp_path / "a.gguf", tmp_path / "b.gguf", "I2_S", "Q8_0")
    command = [sys.executable, "-m", "edge", "run", "-v", "-n", "1", "-m", str(tmp_path / "b.gguf"), "hello"]
    said = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True).stderr
    program = re.search(r"^plan: program +([\d.]+) MB", said, re.MULTILINE)
    assert program, said
    total = fit.needed(fit.published(name), Options()).total_bytes
    assert abs(float(program[1]) * 1e6 - fit.published(name).program) <= 0.01 * total, (program[1], total)


@pytest.mark.parametrize("name", ["bonsai-1.7b", "bitnet-3b", "falcon3-1b", "gemma3-270m"])
@pytest.mark.parametrize("options", [Options(), Options(kv="int4"), Options(window=300, sinks=8), Options(512, "f16")])
def test_the_longest_context_is_the_longest(name: str, options: Options) -> None:
    """A page more would not fit; on larger boards it is no shorter."""
    subject = fit.published(name)
    found = [fit.on_board(subject, options, memory) for memory in BOARDS]
    assert [board.longest for board in found] == sorted(board.longest for board in found)
    trained = subject.checkpoint.config.n_ctx_train
    for board in found:
        assert board.room == left_on(board.memory) < board.memory

        def total(n_ctx: int) -> int:
            return fit.needed(subject, replace(options, ctx=n_ctx)).total_bytes

        if board.longest:
            assert total(board.longest) <= board.room
        if board.longest < trained:
            assert total(min(trained, (board.longest or 512) + 64)) > board.room
        assert board.fits == (fit.needed(subject, options).total_bytes <= board.room)


def test_a_context_beyond_training_fits_with_a_remark() -> None:
    subject = fit.published("bitnet-large")  # trained on 2048 tokens
    for ctx, window in ((2048, 0), (2049, 0), (9999, 512)):
        found, lines, refusal = fit.fit(subject, Options(ctx, window=window, force_memory=True))
        assert refusal is None and found["boards"][-1]["fits"] and found["boards"][-1]["longest"] == ctx
        assert any(line.startswith("Fits ") for line in lines)
        remark = f"note: context {ctx} is longer than the 2048 tokens the model was trained on"
        assert (remark in lines) is (ctx > 2048)


def test_names_files_folders_and_pulled_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundled_model: Path
) -> None:
    monkeypatch.setenv("BITNET_EDGE_MODELS", str(tmp_path / "models"))
    for name in ("bonsai-1.7b", "Ternary-Bonsai-1.7B", "prism-ml/Ternary-Bonsai-1.7B"):
        found = facts(name)
        assert (found["model"], found["path"], found["download_bytes"]) == ("bonsai-1.7b", None, 463_000_000)
    assert facts("gemma3-270m")["download_bytes"] is None
    assert facts()["path"] == facts("demo")["path"] == facts(str(bundled_model))["path"] == str(bundled_model)
    handmade.hf_directory(tmp_path / "folder")
    assert facts(str(tmp_path / "folder"))["path"] == str(tmp_path / "folder")
    place = tmp_path / "models" / "bonsai-1.7b"  # pulled: the file counts
    place.mkdir(parents=True)
    (place / "m.gguf").write_bytes(bundled_model.read_bytes())
    library.write_record(library.Pulled("bonsai-1.7b", str(place / "m.gguf"), "hf:o/n/m.gguf", "1", 3, None, "MIT"))
    assert facts("bonsai-1.7b")["path"] == facts("hf:o/n/m.gguf")["path"] == str(place / "m.gguf")
    library.set_default("ternary-bonsai-1.7b")  # each name, wherever one is taken
    assert library.default() == "bonsai-1.7b"
    assert facts("Ternary-Bonsai-1.7B")["path"] == library.resolve("ternary-bonsai-1.7b") == str(place / "m.gguf")
    assert pull.parse("SmolLM2-135M-Instruct") == pull.parse("smollm2-135m")
    assert pull.parse("Qwen2.5-Coder-0.5B-Instruct") == pull.parse("qwen2.5-coder:0.5b")


def test_what_is_refused(tmp_path: Path) -> None:
    done = invoke("falcon-3")
    assert done.exit_code == 3 and "did you mean falcon3-" in done.stderr
    for words, code in ((("-m", "demo", "demo"), 2), (("demo", "--memory", "1"), 2), (("demo", "-c", "0"), 2),
                        (("3b", "-c", "9", "--window", "9"), 2), (("demo", "--kv", "int9"), 2), (("",), 2)):
        assert invoke(*words).exit_code == code, words
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert invoke(str(tmp_path / "m.gguf")).exit_code == 4


def test_a_model_that_does_not_fit() -> None:
    """The plan is printed, then the one line and the exit code of loading."""
    done = invoke("bonsai-8b", "--memory", "2G", "--json")
    assert done.exit_code == 5 and done.stderr.startswith("bitnet-edge: program and model take ")
    assert "2.3 GB in all" in done.stderr and done.stderr.count("\n") == 1
    found = json.loads(done.stdout)
    assert not found["fits"] and found["longest_ctx"] == 0 and found["plan"]["total_bytes"] > found["limit_bytes"]
    assert [board["fits"] for board in found["boards"]] == [False, False, False, True, True, True]
    text = invoke("bonsai-8b", "--memory", "2G")
    assert text.exit_code == 5 and "Does not fit the limit of 2.0 GB." in text.stdout
    run = CliRunner().invoke(cli, ["run", "-m", "demo", "--memory", "20M", "-n", "1", "hello"])
    ours = invoke("demo", "--memory", "20M")
    assert run.exit_code == ours.exit_code == 5
    assert [re.sub(r"[\d.]+ MB", "", each.stderr) for each in (run, ours)][0] == re.sub(r"[\d.]+ MB", "", ours.stderr)


def test_a_limit_shortens_the_context_as_loading_does() -> None:
    found = facts("bonsai-1.7b", "--memory", "600M")
    assert found["fits"] and found["plan"]["ctx"] < 2048 and found["plan"]["total_bytes"] <= 600e6
    assert found["longest_ctx"] == found["plan"]["ctx"]
    text = invoke("bonsai-1.7b", "--memory", "600M").stdout
    assert "note: context shortened from 2048" in text and "2048 tokens, int8   longest context" in text
    assert facts("bonsai-1.7b", "--memory", "600M", "-c", "512")["plan"]["ctx"] == 512


def test_a_limit_that_fits_has_a_longest_context() -> None:
    """In the KV type that the limit chooses, and a context that is shorter than one that a limit chooses."""
    def at(limit: int) -> dict[str, Any]:
        return json.loads(invoke("bonsai-1.7b", "--memory", f"{limit}M", "--json").stdout)

    least = re.search(r"works from --memory (\d+)M", invoke("bonsai-1.7b", "--memory", "100M").stderr)[1]  # type: ignore
    tight = next(found for n in (int(least) - 1, int(least)) if (found := at(n))["fits"])
    assert tight["plan"]["kv"] == "int4" and tight["longest_ctx"] >= tight["plan"]["ctx"] >= 256
    limit = f"{tight['limit_bytes'] // 10**6 - 1}M"
    short = facts("bonsai-1.7b", "--memory", limit, "-c", "64", "--kv", "int4")
    assert short["fits"] and short["longest_ctx"] == 64
    refused = invoke("bonsai-1.7b", "--memory", limit)
    assert "would fit" in refused.stderr and f"Does not fit the limit of {limit[:-1]} MB.\n" in refused.stdout


@pytest.mark.parametrize("memory", BOARDS)
def test_a_board_and_a_limit_of_its_room_are_one_answer(memory: int) -> None:
    """Also for a mixture of experts, of which a part may stay on the disk."""
    for name in ("maple", "bonsai-1.7b", "bonsai-8b", "bitnet-embedding-0.6b"):
        board = next(each for each in facts_of(name)["boards"] if each["memory"] == memory)
        limited = facts_of(name, "--memory", str(board["room"]), "-c", "2048", "-t", str(fit.THREADS))
        assert board["fits"] is limited["fits"], name
        assert board["on_disk"] == (limited["fits"] and limited["plan"]["on_disk_bytes"])
        assert board["serves"] is (limited["server_bytes"] is not None)
        assert (board["longest"] >= 2048) is board["fits"]


@pytest.mark.parametrize(("name", "memory", "run", "serve"), [
    ("smollm2-135m", 512, True, True), ("bonsai-1.7b", 512, False, False), ("bonsai-1.7b", 1000, True, True),
    ("bonsai-4b", 1000, False, False), ("maple", 2000, True, True),
])
def test_what_boards_hold(name: str, memory: int, run: bool, serve: bool) -> None:
    board = next(each for each in facts_of(name)["boards"] if each["memory"] == memory * 10**6)
    assert (board["fits"], board["serves"]) == (run, serve)
    shown = invoke(name).stdout.splitlines()
    row = next(line for line in shown if line.startswith(fit.sold(memory * 10**6)))
    assert row.endswith(" fits" if serve else " does not fit") and ("on disk" in row) is bool(board["on_disk"])
    assert shown[0].startswith(name) and any(line.startswith("As a server (serve) it takes ") for line in shown)


def test_a_window_longer_than_the_training() -> None:
    """As loading: the context holds it."""
    found = facts("2b-4t", "--window", "5000")
    assert found["plan"]["window"] == 5000 and found["longest_ctx"] == found["plan"]["ctx"] == 5004


# ---- the KV cache ----------------------------------------------------------------------------------------------------

#: model, type -> bytes per token: published figures, with their scales
PER_TOKEN = {
    ("large", "f16"): 147_456, ("large", "int8"): 75_264, ("large", "int4"): 43_776,
    ("2b-4t", "f16"): 76_800, ("2b-4t", "int8"): 39_000, ("2b-4t", "int4"): 22_800,
}


@pytest.mark.parametrize(("model", "kv_type"), PER_TOKEN)
def test_bytes_per_token_are_the_published_ones(model: str, kv_type: str) -> None:
    config = shapes.find(model)
    assert config is not None
    one, two = (cache_plan(config, Options(n, kv_type, overflow="stop")).kv_bytes for n in (512, 1024))
    assert (two - one) // 512 == PER_TOKEN[model, kv_type]


def test_names_of_published_models() -> None:
    assert shapes.find("1bitLLM/bitnet_b1_58-large") == shapes.find("large")
    assert shapes.find("microsoft/BitNet-b1.58-2B-4T") == shapes.find("2B-4T")
    assert shapes.find("gpt-5") is None
    assert set(shapes.ALIASES.values()) <= set(shapes.SHAPES)
    assert all(shapes.find(name) is not None for name in KNOWN)
    assert [names.n_parameters(shapes.SHAPES[name].config(name)) for name in ("large", "2b-4t")] == [
        728_842_752, 2_412_820_480]
    assert len(fit.outline("qwen2.5-coder-0.5b").tensors) == 291  # with biases, as in the published file


def test_a_published_shape_is_that_of_a_file_made_from_it(tmp_path: Path) -> None:
    """The same dimensions and conventions by name and out of a header."""
    for name in TINY:
        make_model.make(tmp_path / name, name, "Q2_0" if name == "tiny-qwen3" else "I2_S")
        read = open_checkpoint(str(tmp_path / name)).config
        eps = pytest.approx(read.eps, rel=1e-6)  # a file holds it as float32
        assert replace(make_model.SHAPES[name].config(read.name), eps=read.eps, inner_eps=read.eps) == read
        assert make_model.SHAPES[name].eps == eps
