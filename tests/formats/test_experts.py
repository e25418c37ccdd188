"""Files of models with experts that cannot be run: one line for each impossible count, index or shape."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.errors import InvalidFile
from edge.formats import open_checkpoint
from edge.layers import Experts, LayerConfig
from edge.model.footprint import footprint
from edge.model.weights import build
from edge.tools.convert import convert
from edge.tools.pull import starts_at_once
from tests.configs import uniform
from tests.formats.test_family_oracles import folder, gguf_file
from tests.handmade import ARR, BOOL, F32, I32, STR, U32, U64, value
from tests.kernels.test_transformer import logits
from tests.oracles import tiny


@pytest.mark.parametrize(
    ("key", "content", "words"),
    [
        ("expert_count", value(U32, 0), "expert_count or expert_used_count|n_expert is 0"),
        ("expert_count", value(U32, 9), r"ffn_gate_inp.weight has shape \(8, 256\), the model needs \(9, 256\)"),
        ("expert_count", value(U64, 1 << 40), "n_expert is 1099511627776; a model has 1 to 4096"),
        ("expert_count", value(STR, "8"), "expert_count. is not a number"),
        ("expert_used_count", value(U32, 0), "n_used is 0"),
        ("expert_used_count", value(U32, 9), "a token takes 9 of 8 experts"),
        ("expert_used_count", value(I32, -1), "n_used is -1"),
        ("expert_feed_forward_length", value(U32, 127), r"ffn_gate_exps.weight has shape \(8, 128, 256\)"),
        ("expert_feed_forward_length", value(F32, 127.5), "ffn is 127.5"),
        ("expert_feed_forward_length", value(ARR, (U32, [128, 128])), "2 entries for 3 layers"),
        ("expert_feed_forward_length", value(ARR, (U32, [128, 1 << 31, 128])), "ffn is 2147483648"),
        ("swiglu_clamp_exp", value(ARR, (F32, [1.0, float("nan"), 1.0])), "clamp is nan"),
        ("swiglu_clamp_exp", value(F32, -1.0), "clamp is -1.0"),
        ("expert_gating_func", value(U32, 2), "expert_gating_func. is 2, which changes the arithmetic"),
        ("expert_shared_count", value(U32, 1), "expert_shared_count. is 1, which changes"),
        ("expert_weights_scale", value(F32, 2.5), "expert_weights_scale. is 2.5, which changes"),
        ("expert_weights_norm", value(STR, "yes"), "expert_weights_norm. is not true or false"),
        ("leading_dense_block_count", value(U32, 1), "leading_dense_block_count. is 1, which changes"),
        ("rope.dimension_count", value(U32, 0), "rope.dimension_count is 0"),
    ],
)
def test_impossible_keys(tmp_path: Path, key: str, content: bytes, words: str) -> None:
    path = gguf_file(tmp_path, "qwen3moe", "PQ2_0", keys={f"qwen3moe.{key}": content})
    with pytest.raises(InvalidFile, match=words) as refused:
        open_checkpoint(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "content", "words"),
    [
        ("attention.sliding_window_pattern", value(ARR, (BOOL, [True] * 4)), "has 4 entries for 5 layers"),
        ("attention.sliding_window", value(U32, 1 << 30), "window is 1073741824"),
        ("rope.dimension_count_swa", value(U32, 63), "rope dimension 63 is odd"),
        ("rope.dimension_count_swa", value(U32, 256), "rope dimension 256 does not fit"),
    ],
)
def test_impossible_windows_and_rotations_of_maple(tmp_path: Path, key: str, content: bytes, words: str) -> None:
    with pytest.raises(InvalidFile, match=words):
        open_checkpoint(gguf_file(tmp_path, "maple", "PQ2_0", keys={f"maple.{key}": content}))


def test_what_maple_means_where_its_file_does_not_say(tmp_path: Path) -> None:
    c = open_checkpoint(gguf_file(tmp_path, "maple", "PQ2_0")).config
    assert [(mixer.window, mixer.rotation.dim) for mixer in c.attention] == [(7, 64)] * 3 + [(0, 0), (7, 64)]
    parts = {layer.feed_forward for layer in c.layers}
    assert [(part.n_expert, part.n_used, part.clamp) for part in parts] == [(12, 4, 1.0)]
    data = bytearray(Path(gguf_file(tmp_path, "maple", "PQ2_0")).read_bytes())
    at = data.index(b"maple.swiglu_clamp_exp")
    data[at : at + 22] = b"maple.swiglu_clamp_old"  # not known
    (tmp_path / "m.gguf").write_bytes(data)
    assert open_checkpoint(tmp_path / "m.gguf").config.layers[0].feed_forward.clamp == 7.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_experts": 0}, "n_expert is 0"),
        ({"num_experts": 7}, r"shape \(8, 256\), the model needs \(7, 256\)"),
        ({"num_experts_per_tok": 9}, "takes 9 of 8"),
        ({"num_experts_per_tok": None}, "num_experts_per_tok is missing"),
        ({"moe_intermediate_size": 64}, "ffn_gate_exps.weight has shape"),
        ({"mlp_only_layers": [0]}, "ffn_gate_inp.weight. is not part|ffn_gate.weight is missing"),
        ({"mlp_only_layers": 3}, "mlp_only_layers is not a list"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        ({"hidden_act": "relu2"}, "hidden_act relu2 is not supported for experts"),
    ],
)
def test_folders_that_cannot_be(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidFile, match=words):
        open_checkpoint(folder(tmp_path / "m", "qwen3moe", **changes))


@pytest.mark.parametrize("form", ["TQ2_0", "TQ1_0"])
def test_a_converted_maple_runs_from_its_map(tmp_path: Path, form: str) -> None:
    """As `pull` stores it: experts in panels, the router in F32; as it is published, all of it is copied."""
    path = gguf_file(tmp_path, "maple", form)
    convert(path, tmp_path / "c.gguf", embedding="Q8_0")
    here, back = open_checkpoint(path), open_checkpoint(tmp_path / "c.gguf")
    assert back.tensors["blk.3.ffn_down_exps.weight"].type == "PQ2_0_R64"
    assert back.tensors["blk.3.ffn_gate_inp.weight"].type == "F32" and starts_at_once(back)
    assert back.config.layers == here.config.layers
    plans = [footprint(each) for each in (here, back)]
    assert plans[0].experts == 0 and plans[1].experts == 5 * 12 * 3 * 256 * 256 // 128 * 34
    models = [build(each, head="f32") for each in (here, back)]
    for planned, model in zip(plans, models, strict=True):
        assert planned.experts == model.expert_bytes
        assert planned.mapped == model.weight_bytes_stored - model.weight_bytes_allocated - model.expert_bytes
        assert planned.allocated == model.weight_bytes_allocated + model.vector_bytes
    runs = [logits(model, here.config, tiny.IDS) for model in models]
    assert np.abs(runs[0] - runs[1]).max() <= 3e-2 * np.ptp(runs[0])  # embedding and head are Q8_0 by now


def renamed(path: str, old: str, new: str) -> str:
    """A folder with a tensor under another name of the same length."""
    file = Path(path, "model.safetensors")
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header = {new if name == old else name: entry for name, entry in header.items()}
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    return path


def test_experts_that_are_missing_or_too_many(tmp_path: Path) -> None:
    prefix = "model.layers.2.mlp.experts"
    path = folder(tmp_path / "m", "qwen3moe")
    with pytest.raises(InvalidFile, match="number 3 of the experts of blk.2.ffn_up_exps.weight is missing"):
        open_checkpoint(renamed(path, f"{prefix}.3.up_proj.weight", f"{prefix}.9.up_proj.weight"))
    path = folder(tmp_path / "m", "qwen3moe")
    with pytest.raises(InvalidFile, match="experts of blk.2.ffn_up_exps.bias is missing"):
        open_checkpoint(renamed(path, f"{prefix}.7.up_proj.weight", f"{prefix}.7.up_proj.bias"))


def test_experts_have_no_norms_around_them() -> None:
    with pytest.raises(InvalidFile, match="experts with norms"):
        dataclasses.replace(layer(), post_norm=True)


def layer() -> LayerConfig:
    return dataclasses.replace(uniform().layers[0], feed_forward=Experts(8, 2, 64))
