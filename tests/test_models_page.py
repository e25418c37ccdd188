"""docs/models.md is what the tables of the program say, and what it says of refusals is what happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs import make_boards, make_models
from edge.errors import InvalidFile
from edge.formats import open_checkpoint
from edge.model.families import FAMILIES, REFUSED
from edge.model.library import KNOWN
from tests import handmade

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_is_current() -> None:
    assert make_models.PAGE.read_text(encoding="utf-8") == make_models.page(), "run python docs/make_models.py"


def test_every_family_is_on_it() -> None:
    page = make_models.PAGE.read_text(encoding="utf-8")
    for name in (*FAMILIES, *REFUSED, *(name for family in FAMILIES.values() for name in family.huggingface)):
        assert f"`{name}`" in page, name


@pytest.mark.parametrize(
    ("arch", "said"),
    [("qwen35", "Qwen3.5 hybrid.*Ternary-Bonsai 1.7B"), ("qwen35moe", "hybrid"), ("qwen3moe", "mixture of experts"),
     ("maple", "mixture of experts"), ("mamba2", "state-space"), ("bitmamba", "BitMamba"), ("hgrn_bit", "MMfreeLM"),
     ("gemma2", "soft caps.*Gemma 3"), ("gemma-embedding", "both directions"), ("gemma3n", "Gemma 3n"),
     ("bitvla", "BitVLA")],
)  # fmt: skip
def test_what_is_known_and_not_run_is_named(tmp_path: Path, arch: str, said: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(handmade.model(arch, sub_norm=False))
    with pytest.raises(InvalidFile, match=f"architecture '{arch}' is not supported: it is .*{said}") as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "said"),
    [("Qwen3_5ForCausalLM", "hybrid"), ("HGRNBitForCausalLM", "MMfreeLM"), ("BitMambaForCausalLM", "BitMamba"),
     ("MapleForCausalLM", "mixture"), ("OLMoForCausalLM", "pickled"), ("BitVLAForActionPrediction", "BitVLA")],
)  # fmt: skip
def test_folders_too(tmp_path: Path, architecture: str, said: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(handmade.hf_config(architectures=[architecture], model_type="x")))
    with pytest.raises(InvalidFile, match=f"'{architecture}' is not supported: it is .*{said}"):
        open_checkpoint(tmp_path)


def test_the_list_of_known_models_agrees_with_the_pages() -> None:
    """Every known model is on both pages, with its download; the smallest board is the one of the table."""
    page = make_models.PAGE.read_text(encoding="utf-8")
    assert {make_boards.pulled(model) for model in make_models.MODELS} == set(KNOWN)
    for model in make_models.MODELS:
        known = KNOWN[make_boards.pulled(model) or ""]
        assert f"`bitnet-edge pull {known.name}` | {known.nbytes / 1e6:.0f} MB |" in page
        fits = [board for board in make_boards.BOARDS
                if make_boards.bytes_at(model, make_models.CTX, "int8") <= make_boards.FREE * board]  # fmt: skip
        assert known.about.endswith(f"for boards with {min(fits) >> 30} GB of memory"), known
