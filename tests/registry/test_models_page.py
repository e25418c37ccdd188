"""docs/models.md is what the tables of the program say, and what it says of refusals is what happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import make_models
from benchmarks import make_model
from edge.cli.group import cli
from edge.errors import InvalidFile
from edge.formats import container, open_checkpoint
from edge.machine.memory import BOARDS
from edge.registry.families import FAMILIES, REFUSED
from edge.registry.known import KNOWN
from edge.registry.shapes import SHAPES
from edge.tools import fit
from tests import handmade


def test_the_page_is_current() -> None:
    text = make_models.PAGE.read_text(encoding="utf-8")
    assert make_models.page(text) == text, "run make docs"


def test_every_family_is_on_it() -> None:
    page = make_models.PAGE.read_text(encoding="utf-8")
    for name in (*FAMILIES, *REFUSED, *(name for family in FAMILIES.values() for name in family.huggingface)):
        assert f"`{name}`" in page, name


@pytest.mark.parametrize(
    ("arch", "said"),
    [("qwen3next", "Qwen3-Next.*mixture"), ("qwen35moe", "mixture of experts"), ("qwen2moe", "mixture of experts"),
     ("deepseek2moe", "mixture of experts"), ("mamba2", "state-space"), ("bitmamba", "BitMamba"),
     ("hgrn_bit", "MMfreeLM"),
     ("gemma2", "soft caps.*Gemma 3"), ("gemma-embedding", "both directions"), ("gemma3n", "Gemma 3n"),
     ("bitvla", "BitVLA")],
)
def test_what_is_known_and_not_run_is_named(tmp_path: Path, arch: str, said: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(handmade.model(arch, sub_norm=False))
    with pytest.raises(InvalidFile, match=f"architecture '{arch}' is not supported: it is .*{said}") as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "said"),
    [("Qwen3_5MoeForCausalLM", "mixture"), ("HGRNBitForCausalLM", "MMfreeLM"), ("BitMambaForCausalLM", "BitMamba"),
     ("MapleForCausalLM", "GGUF file of it"), ("MixtralMoeForCausalLM", "mixture"), ("OLMoForCausalLM", "pickled"),
     ("BitVLAForActionPrediction", "BitVLA")],
)
def test_folders_too(tmp_path: Path, architecture: str, said: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(handmade.hf_config(architectures=[architecture], model_type="x")))
    with pytest.raises(InvalidFile, match=f"'{architecture}' is not supported: it is .*{said}"):
        open_checkpoint(tmp_path)


def test_the_list_of_known_models_agrees_with_the_page() -> None:
    """Every known model is on the page, with its download, and the memory that `fit` then shows; `list` names the
    smallest board on which the page has the default context, with all of the model in memory.
    """
    page = make_models.PAGE.read_text(encoding="utf-8")
    listed = json.loads(CliRunner().invoke(cli, ["list", "--all", "--json"]).stdout)
    assert [entry["name"] for entry in listed] == list(KNOWN)
    for entry in listed:
        name = entry["name"]
        shown = CliRunner().invoke(cli, ["fit", name, "--memory", "64G", "-t", str(fit.THREADS), "--json"])
        memory = json.loads(shown.stdout)["plan"]["total_bytes"]
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        download, _, default, _, *longest = row.strip("| ").split(" | ")[1:]
        assert (download, default) == (f"{entry['nbytes'] / 1e6:.0f} MB", f"{memory / 1e6:.0f} MB")
        assert entry["memory_bytes"] <= memory
        contexts = [0 if cell[-1] in "-*" else int(cell) for cell in longest]
        least = next(board for board, context in zip(BOARDS, contexts, strict=True) if context >= 2048)
        assert entry["board_bytes"] == least, name


def test_embedding_models_have_the_published_tensors() -> None:
    """Of the files at huggingface.co/microsoft/bitnet-embedding-270m and -0.6b: all tensors, the ternary ones, and MB,
    of which some are the vocabulary.
    """
    published = (("bitnet-embedding-270m", 362, 126, 367), ("bitnet-embedding-0.6b", 506, 196, 428))
    for name, count, ternary, size in published:
        tensors = make_model.plan(SHAPES[name], "I2_S", "F16")
        nbytes = sum(container.Entry(*tensor, b"").nbytes for tensor in tensors)
        assert (len(tensors), sum(tensor[1] == "I2_S" for tensor in tensors)) == (count, ternary)
        assert KNOWN[name].nbytes == size * 1_000_000 and 5e6 < KNOWN[name].nbytes - nbytes < 7e6
