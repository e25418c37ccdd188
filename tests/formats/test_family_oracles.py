"""Models of every family against transformers: tiny ones, as Hugging Face folders and as the GGUF files people publish.

The vectors are made by tests/vectors/make_models.py from the models of tests/oracles/tiny.py.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.errors import InvalidFile
from edge.formats import open_checkpoint
from edge.model.footprint import footprint
from edge.model.weights import build
from edge.registry.families import minicpm4_factors
from edge.tools.convert import convert
from tests.handmade import ARR, BOOL, F32, STR, U32, gguf, hf_directory, hf_floats, safetensors, value
from tests.kernels.test_transformer import greedy, logits
from tests.oracles import family, tiny
from tests.oracles.packings import panels, q1_0, q2_0, tq1_0, tq2_0
from tests.vectors.stored import VECTORS, oracle, read


def vectors(name: str) -> tuple[np.ndarray, list[int]]:
    stored = read("families", name)
    return stored["logits"], stored["greedy"].tolist()


def folder(path: Path, name: str, type: str = "F16", **config: Any) -> str:
    """The tiny model as a Hugging Face folder without a tokenizer."""
    model = tiny.MODELS[name]
    full = {"architectures": [model.architecture], **model.config, "quantization_config": model.quantization, **config}
    return hf_directory(path, {k: v for k, v in full.items() if v is not None}, hf_floats(tiny.weights(model), type))


def with_floats(checkpoint: Any) -> Any:
    """The same model with activations that are not rounded."""
    checkpoint.config = dataclasses.replace(checkpoint.config, activation_quant="none")
    return checkpoint


@pytest.mark.parametrize("name", tiny.MODELS)
def test_float_activations_give_what_transformers_gives(tmp_path: Path, name: str) -> None:
    expected, ids = vectors(name)
    checkpoint = with_floats(open_checkpoint(folder(tmp_path / "m", name)))
    model = build(checkpoint, head="f32")
    got = logits(model, checkpoint.config, tiny.IDS)
    assert np.abs(got - expected).max() <= 1e-4 * np.ptp(expected)
    assert greedy(model, checkpoint.config, tiny.IDS, len(ids) - len(tiny.IDS)) == ids


@pytest.mark.parametrize("name", tiny.MODELS)
def test_rounded_activations_stay_near(tmp_path: Path, name: str) -> None:
    """The cost of int8 activations on random weights, whose choices are close (test_trained.py: on trained ones)."""
    expected, _ = vectors(name)
    checkpoint = open_checkpoint(folder(tmp_path / "m", name))
    got = logits(build(checkpoint, head="f32"), checkpoint.config, tiny.IDS)
    assert np.abs(got - expected).max() <= (1.5e-2 if "moe" in name else 3e-2) * np.ptp(expected)
    assert np.mean(got.argmax(1) == expected.argmax(1)) >= (0.85 if name == "qwen3moe_mixed" else 0.9)
    two = np.sort(expected, 1)[:, -2:]
    clear = two[:, 1] - two[:, 0] >= 2e-2 * np.ptp(expected)  # where floats are not nearly undecided: always
    assert (got.argmax(1) == expected.argmax(1))[clear].all() and clear.sum() >= 5


# ---- as GGUF ---------------------------------------------------------------------------------------------------------


#: type -> (id, bytes of a ternary tensor)
ENCODERS: dict[str, tuple[int, Any]] = {
    "Q2_0 of 64": (42, lambda c, s: q2_0(64, c, s)),
    "Q2_0 of 128": (42, lambda c, s: q2_0(128, c, s)),
    "PQ2_0": (142, lambda c, s: q2_0(128, c, s)),
    "PQ2_0_R64": (342, panels),
    "Q1_0": (41, q1_0),
    "Q1_0_G32": (40, lambda c, s: q1_0(c, s, 32)),
    "TQ2_0": (35, tq2_0),
    "TQ1_0": (34, tq1_0),
    "F16": (1, lambda c, s: (c * np.repeat(s, c.shape[1] // s.shape[1], 1)).astype("<f2").tobytes()),
}
ARCH = {"Qwen3ForCausalLM": "qwen3", "Qwen2ForCausalLM": "qwen2", "LlamaForCausalLM": "llama",
        "HunYuanDenseV1ForCausalLM": "hunyuan-dense", "Gemma3ForCausalLM": "gemma3", "Qwen3MoeForCausalLM": "qwen3moe",
        "MapleForCausalLM": "maple"}
GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
}


POST_NORMS = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
              "post_feedforward_layernorm": "post_ffw_norm"}


def gguf_tensors(model: tiny.Tiny) -> dict[str, np.ndarray]:
    """GGUF name -> values as GGUF has them."""
    found: dict[str, list[np.ndarray]] = {}
    for key, values in tiny.weights(model).items():
        more = 1 if model.norms_from_one and values.ndim == 1 else 0
        found.setdefault(gguf_name(key, model), []).append(values + more)
    return {name: np.stack(each) if "_exps." in name else each[0] for name, each in found.items()}


def gguf_name(name: str, model: tiny.Tiny) -> str:
    if name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"):
        return {"model.e": "token_embd", "model.n": "output_norm", "lm_head": "output"}[name[:7]] + ".weight"
    _, _, index, rest = name.split(".", 3)
    middle, _, kind = rest.rpartition(".")
    if ".experts." in middle:
        return f"blk.{index}.ffn_{middle.rpartition('.')[2].removesuffix('_proj')}_exps.{kind}"
    gemma = POST_NORMS if model.norms_from_one else {}
    return f"blk.{index}.{(GGUF_NAMES | gemma)[middle]}.{kind}"


#: key after the architecture -> that of config.json, of whole numbers
WHOLE = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
    "attention.value_length": "head_dim", "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size", "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim", "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
}


def whole_keys(arch: str, config: dict[str, Any]) -> dict[str, bytes]:
    return {f"{arch}.{key}": value(U32, config[theirs]) for key, theirs in WHOLE.items() if theirs in config}


def gguf_file(path: Path, name: str, form: str, keys: dict[str, bytes] | None = None) -> str:
    """The tiny model as a GGUF file; ``form``: one of ENCODERS."""
    model, c = tiny.ALL[name], tiny.ALL[name].config
    arch, rope = ARCH[model.architecture], c.get("rope_parameters", {})
    local, rope = rope.get("sliding_attention"), rope.get("full_attention", rope)
    theta = rope["rope_theta"] if "rope_theta" in rope else c["rope_theta"]
    if "alpha" in rope:
        theta *= rope["alpha"] ** (c["head_dim"] / (c["head_dim"] - 2))
    metadata = {
        "general.architecture": value(STR, arch),
        **whole_keys(arch, c),
        f"{arch}.attention.layer_norm_rms_epsilon": value(F32, c["rms_norm_eps"]),
        f"{arch}.rope.freq_base": value(F32, theta),
        "tokenizer.ggml.model": value(STR, "no_vocab"),
    }
    if local:
        metadata[f"{arch}.attention.sliding_window"] = value(U32, c["sliding_window"])
        metadata[f"{arch}.attention.sliding_window_pattern"] = value(U32, c["sliding_window_pattern"])
        metadata[f"{arch}.attention.scale"] = value(F32, c["query_pre_attn_scalar"] ** -0.5)
        metadata[f"{arch}.rope.scaling.type"] = value(STR, rope["rope_type"])
        metadata[f"{arch}.rope.scaling.factor"] = value(F32, rope["factor"])
    if rope.get("rope_type") == "yarn":
        metadata[f"{arch}.rope.scaling.type"] = value(STR, "yarn")
        metadata[f"{arch}.rope.scaling.factor"] = value(F32, rope["factor"])
        metadata[f"{arch}.rope.scaling.original_context_length"] = value(U32, rope["original_max_position_embeddings"])
    if "num_experts" in c and not c["norm_topk_prob"]:
        metadata[f"{arch}.expert_weights_norm"] = value(BOOL, False)
    if arch == "maple":
        near = [kind == "sliding_attention" for kind in c["layer_types"]]
        metadata |= {
            f"{arch}.attention.sliding_window": value(U32, c["sliding_window"]),
            f"{arch}.attention.sliding_window_pattern": value(ARR, (BOOL, near)),
            f"{arch}.rope.dimension_count": value(U32, 0),
            f"{arch}.rope.dimension_count_swa": value(U32, int(c["head_dim"] * c["partial_rotary_factor"])),
            f"{arch}.expert_gating_func": value(U32, 1),
            f"{arch}.expert_weights_norm": value(BOOL, True),
            f"{arch}.swiglu_clamp_exp": value(ARR, (F32, [c["swiglu_limit"]] * len(near))),
        }
        del metadata[f"{arch}.feed_forward_length"]
    tensors: dict[str, tuple[Any, int, bytes]] = {}
    for key, values in tiny.weights(model).items():
        values = values + 1 if model.norms_from_one and values.ndim == 1 else values
        number, encode = ENCODERS[form]
        if tiny.is_ternary(model, key):
            codes, scales = tiny.codes_and_scales(model, key)
            if arch == "llama" and ("q_proj" in key or "k_proj" in key):  # rows as llama.cpp orders them
                codes, scales = (
                    each.reshape(-1, 2, c["head_dim"] // 2, each.shape[1]).swapaxes(1, 2).reshape(each.shape)
                    for each in (codes, np.broadcast_to(scales, (len(codes), scales.shape[1]))))
            data = encode(codes, scales)
        elif values.ndim == 2:
            number, data = 1, values.astype("<f2").tobytes()
        else:
            number, data = 0, values.tobytes()
        target = gguf_name(key, model)
        dims, before = values.shape[::-1], b""
        if "_exps." in target:  # stacked: one more expert
            (*_, n), _, before = tensors.get(target, ((0,), 0, b""))
            dims = (*dims, n + 1)
        tensors[target] = (dims, number, before + data)
    file = path / "m.gguf"
    aligned = 64 if form == "PQ2_0_R64" else 32
    if aligned != 32:
        metadata["general.alignment"] = value(U32, aligned)
    stored = [(name, *each) for name, each in tensors.items()]
    file.write_bytes(gguf([*(metadata | (keys or {})).items()], stored, alignment=aligned))
    return str(file)


CASES = [
    *(("qwen3", form) for form in ("Q2_0 of 64", "Q2_0 of 128", "PQ2_0", "PQ2_0_R64", "F16")),
    *(("qwen3_1bit", form) for form in ("Q1_0", "Q1_0_G32", "PQ2_0", "F16")),
    *(("qwen3_yarn", form) for form in ENCODERS if not form.startswith("Q1_0")),
    *(("hunyuan", form) for form in ("TQ2_0", "F16")),
    *(("gemma3", form) for form in ("Q2_0 of 64", "PQ2_0", "PQ2_0_R64", "F16")),
    *(("qwen3moe", form) for form in ("Q2_0 of 64", "PQ2_0", "PQ2_0_R64", "F16")),
    *(("qwen3moe_mixed", form) for form in ("PQ2_0", "F16")),
    *(("maple", form) for form in ("TQ2_0", "TQ1_0", "PQ2_0", "PQ2_0_R64")),
    ("qwen2", "Q2_0 of 64"), ("llama_yarn", "TQ1_0"), ("llama_yarn", "F16"),
]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_every_form_of_file_is_the_same_model(tmp_path: Path, name: str, form: str) -> None:
    expected, ids = vectors(name)
    path = gguf_file(tmp_path, name, form)
    types = {tensor.type for key, tensor in open_checkpoint(path).tensors.items() if "attn_q.weight" in key}
    assert types == {{"Q2_0 of 64": "Q2_0", "Q2_0 of 128": "PQ2_0"}.get(form, form)}
    checkpoint = with_floats(open_checkpoint(path))
    model = build(checkpoint, head="f32")
    got = logits(model, checkpoint.config, tiny.IDS)
    assert np.abs(got - expected).max() <= 1e-4 * np.ptp(expected)
    assert greedy(model, checkpoint.config, tiny.IDS, len(ids) - len(tiny.IDS)) == ids
    # and with rounded activations from the packed weights: the same bits from every file of the same numbers
    if name.startswith("qwen"):  # the others' rope base is rounded in a GGUF, or their activations are per token
        plain = open_checkpoint(folder(tmp_path / "m", name))
        here, there = open_checkpoint(path), plain
        assert here.config.activation_quant == there.config.activation_quant == "int8-128"
        runs = [logits(build(each, head="f32"), each.config, tiny.IDS) for each in (here, there)]
        assert np.abs(runs[0] - runs[1]).max() <= 1e-6 * np.ptp(expected)


def test_rounding_by_128_against_numpy(tmp_path: Path) -> None:
    """The kernels round activations per 128 values as NumPy does: only a value on the edge of a half may differ."""
    for name in (*(name for name in tiny.MODELS if not name.startswith("llama")), "maple"):
        (tmp_path / name).mkdir()
        checkpoint = open_checkpoint(
            gguf_file(tmp_path / name, name, "TQ2_0") if name == "maple" else folder(tmp_path / name, name))
        arrays = gguf_tensors(tiny.ALL[name])
        expected = family.Model(checkpoint.config, arrays, "int8-128").logits(tiny.IDS)
        got = logits(build(checkpoint, head="f32"), checkpoint.config, tiny.IDS)
        difference = np.abs(got - expected).max(1) / np.ptp(expected)
        # tokens behind one that differs see it; models with experts round more often
        alike = np.quantile(difference, 0.2 if name in ("maple", "qwen3moe", "qwen3moe_mixed") else 0.5)
        assert difference.max() <= 1e-2 and alike <= 1e-6, name


def test_a_ternary_embedding_and_head(tmp_path: Path) -> None:
    """The tied table of Ternary-Bonsai in Q2_0: rows come out exactly, and the head answers like float rows."""
    for form in ("Q2_0 of 64", "Q2_0 of 128", "PQ2_0_R64", "Q1_0"):
        checkpoint = open_checkpoint(gguf_file(tmp_path, "qwen3_1bit" if form == "Q1_0" else "qwen3", form))
        exact = logits(build(checkpoint, head="f32"), checkpoint.config, tiny.IDS)
        got = logits(build(checkpoint, head="auto"), checkpoint.config, tiny.IDS)
        assert np.abs(got - exact).max() <= 1e-2 * np.ptp(exact) and (got.argmax(1) == exact.argmax(1)).all()


@pytest.mark.parametrize("name", [name for name in tiny.MODELS if name != "qwen2"])
@pytest.mark.parametrize("source", ["folder", "file"])
def test_converted_models_are_the_same(tmp_path: Path, name: str, source: str) -> None:
    """One GGUF file that starts from the map; grouped scales and ternary tables in panels."""
    forms = {"qwen3": "Q2_0 of 64", "qwen3_1bit": "Q1_0", "gemma3": "PQ2_0", "hunyuan": "PQ2_0_R64",
             "llama3_rope": "F16", "qwen3moe": "PQ2_0", "qwen3moe_mixed": "Q2_0 of 64"}
    if source == "file" and name == "llama3_rope":
        pytest.skip("its divisors are a tensor there, see tests/kernels/test_transformer.py")
    path = (folder(tmp_path / "m", name) if source == "folder"
            else gguf_file(tmp_path, name, forms.get(name, "TQ2_0")))
    target = tmp_path / "converted.gguf"
    convert(path, target, embedding="F16")
    back = open_checkpoint(target)
    grouped = not name.startswith("llama")
    assert {t.type for n, t in back.tensors.items() if "_q.weight" in n} == {"PQ2_0_R64" if grouped else "I2_S"}
    if name in ("qwen3", "qwen3_1bit") and source == "file":
        assert back.tensors[back.head].type == "PQ2_0_R64"
    here = open_checkpoint(path)
    runs = [logits(build(each, head="f32"), each.config, tiny.IDS) for each in (here, back)]
    assert np.abs(runs[0] - runs[1]).max() <= (1e-2 if name == "hunyuan" else 1e-6) * np.ptp(runs[0])


# ---- binary models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["Q1_0", "Q1_0_G32"])
def test_a_binary_model(tmp_path: Path, form: str) -> None:
    """Projections and head are two-bit groups in memory as planned; rows of the embedding are read as stored."""
    checkpoint = open_checkpoint(gguf_file(tmp_path, "qwen3_1bit", form))
    assert {tensor.type for tensor in checkpoint.tensors.values()} == {form, "F32"}
    planned = footprint(checkpoint)
    model = build(checkpoint)
    assert planned.head_mapped + planned.head_allocated == model.head.nbytes and planned.mapped == 0
    assert planned.allocated == model.weight_bytes + model.vector_bytes
    assert checkpoint.tensors["token_embd.weight"].type == form
    got = logits(model, checkpoint.config, tiny.IDS)
    same = open_checkpoint(gguf_file(tmp_path, "qwen3_1bit", "PQ2_0"))
    assert (logits(build(same), same.config, tiny.IDS) == got).all()


def test_an_early_binary_file_whose_weights_share_no_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that was not trained in groups of 128: one line that names the tensor."""
    def encode(codes: np.ndarray, scales: np.ndarray) -> bytes:
        data = np.frombuffer(q1_0(codes, scales, 32), np.uint8).copy()
        data[6] ^= 1  # the second scale
        return data.tobytes()

    monkeypatch.setitem(ENCODERS, "Q1_0_G32", (40, encode))
    with pytest.raises(InvalidFile, match=r"blk\.0\.attn_q\.weight: its blocks of 32 weights have scales of their own"):
        build(open_checkpoint(gguf_file(tmp_path, "qwen3_1bit", "Q1_0_G32")), head="f32")


# ---- ternary inside blocks of other types ----------------------------------------------------------------------------


def q4_0_of_ternary(codes: np.ndarray, scales: np.ndarray) -> bytes:
    """As llama-quantize makes Q4_0: d = the value of largest magnitude / -8, the first of equals; so -8 is one sign and
    7 the other."""
    values = (codes * np.repeat(scales, codes.shape[1] // scales.shape[1], 1)).astype(np.float32).reshape(-1, 32)
    first = values[np.arange(len(values)), np.abs(values).argmax(1)][:, None]
    d = (first / -8).astype("<f2")
    inverse = np.where(d == 0, 0, 1 / np.where(d == 0, 1, d.astype(np.float32)))
    q = np.clip((values * inverse + 8.5).astype(np.int32), 0, 15).astype(np.uint8)
    return np.concatenate([d.view(np.uint8), q[:, :16] | q[:, 16:] << 4], 1).tobytes()


def q8_0_of_ternary(codes: np.ndarray, scales: np.ndarray) -> bytes:
    values = (codes * np.repeat(scales, codes.shape[1] // scales.shape[1], 1)).astype(np.float32).reshape(-1, 32)
    d = np.abs(values).max(1, keepdims=True) / 127
    q = np.round(values / np.where(d == 0, 1, d)).astype(np.int8)
    return np.concatenate([d.astype("<f2").view(np.uint8), q.view(np.uint8)], 1).tobytes()


@pytest.mark.parametrize(("name", "type", "number", "encode", "near"), [
    ("qwen3_yarn", "Q4_0", 2, q4_0_of_ternary, 1e-4),
    ("qwen3_yarn", "Q8_0", 8, q8_0_of_ternary, 2e-2),  # its half d rounds the scales
    ("llama_yarn", "Q4_0", 2, q4_0_of_ternary, 1e-4),
])
def test_ternary_inside_blocks_of_other_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, type: str, number: int, encode: Any, near: float
) -> None:
    """BitCPM4 in Q4_0 is a ternary model, and runs as one: blocks of -8, 0 and 7 stand for -1, 0 and 1."""
    monkeypatch.setitem(ENCODERS, type, (number, encode))
    expected, _ = vectors(name)
    path = gguf_file(tmp_path, name, type)
    checkpoint = open_checkpoint(path)
    assert checkpoint.tensors["blk.0.attn_q.weight"].type == type
    model = build(checkpoint, head="f32")
    assert not any(matrix.is_dense for matrix in model.matrices)
    convert(path, tmp_path / "c.gguf")
    back = open_checkpoint(tmp_path / "c.gguf")
    assert back.tensors["blk.0.attn_q.weight"].type in ("PQ2_0_R64", "I2_S")
    exact = with_floats(back)
    got = logits(build(exact, head="f32"), exact.config, tiny.IDS)
    assert np.abs(got - expected).max() <= near * np.ptp(expected)


# ---- MiniCPM: its own code (modeling_minicpm.py of OpenBMB), read as formulas into tests/oracles/family.py -----------


def minicpm() -> tiny.Tiny:
    """BitCPM made small: embedding, residual and logit multipliers; longrope."""
    base = tiny.MODELS["llama_yarn"]
    factors = [1.0 + j / 32 for j in range(64)]
    rope = {"rope_type": "longrope", "short_factor": factors, "long_factor": [2 * f for f in factors],
            "original_max_position_embeddings": 512}
    config = {key: entry for key, entry in base.config.items() if key != "rope_parameters"}
    config |= {"model_type": "minicpm", "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 64, "rope_theta": 1e4}
    config["rope_scaling"] = rope
    return dataclasses.replace(base, architecture="MiniCPMForCausalLM", group=256, config=config)


def test_minicpm_as_a_folder_and_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = minicpm()
    monkeypatch.setitem(tiny.MODELS, "minicpm", model)
    monkeypatch.setitem(ARCH, "MiniCPMForCausalLM", "minicpm")
    checkpoint = with_floats(open_checkpoint(folder(tmp_path / "m", "minicpm")))
    c = checkpoint.config
    assert (c.embedding_scale, c.residual_scale, c.logit_scale) == (12, 1.4 / 2**0.5, 0.25)
    arrays = gguf_tensors(model)
    expected = family.Model(c, arrays).logits(tiny.IDS)
    got = logits(build(checkpoint, head="f32"), c, tiny.IDS)
    assert np.abs(got - expected).max() <= 1e-4 * np.ptp(expected)

    target = tmp_path / "converted.gguf"
    convert(folder(tmp_path / "m", "minicpm"), target)  # writes keys, factors and rows as llama.cpp has them
    back = with_floats(open_checkpoint(target))
    assert back.config.arch == "minicpm" and back.config.layers[0].mixer.rotation.style == "interleaved"
    again = logits(build(back, head="f32"), back.config, tiny.IDS)
    assert np.abs(again - expected).max() <= 1e-4 * np.ptp(expected)


def test_bitcpm_as_a_llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BitCPM of 1B and 3B: a Llama with scales of groups, whose GGUF file says longrope and lacks the divisors."""
    divisors = minicpm4_factors()
    # of config.json of openbmb/VoxCPM2, whose rotation is the same: 0, 1, 31, 32, 63
    published = {0: 0.9977997200264581, 1: 1.014658295992452, 31: 15.303885189125953, 32: 16.717837610115794,
                 63: 31.02392307921529}
    assert all(abs(divisors[i] - factor) < 1e-12 for i, factor in published.items()) and len(divisors) == 64
    model = minicpm()
    rope = {"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors,
            "original_max_position_embeddings": 512}
    config = {key: entry for key, entry in model.config.items() if not key.startswith(("scale_", "dim_model"))}
    config |= {"rope_scaling": rope, "model_type": "llama"}
    model = dataclasses.replace(model, architecture="LlamaForCausalLM", config=config)
    monkeypatch.setitem(tiny.MODELS, "bitcpm", model)
    monkeypatch.setitem(tiny.ALL, "bitcpm", model)
    monkeypatch.setattr("edge.formats.gguf_keys.MINICPM4_VOCAB", config["vocab_size"])
    path = gguf_file(tmp_path, "bitcpm", "TQ2_0", {"llama.rope.scaling.type": value(STR, "longrope")})
    expected = None
    for source in (folder(tmp_path / "m", "bitcpm"), path):
        checkpoint = open_checkpoint(source)
        assert checkpoint.config.arch == "llama" and checkpoint.config.activation_quant == "int8-128"
        c = with_floats(checkpoint).config
        if expected is None:
            expected = family.Model(c, gguf_tensors(model)).logits(tiny.IDS)
        got = logits(build(checkpoint, head="f32"), c, tiny.IDS)
        assert np.abs(got - expected).max() <= 1e-4 * np.ptp(expected)
    assert "lacks the divisors" in checkpoint.notes[0]
    convert(path, tmp_path / "c.gguf")
    back = open_checkpoint(tmp_path / "c.gguf")
    assert back.config.activation_quant == "int8-128" and back.tensors["blk.0.attn_q.weight"].type == "PQ2_0_R64"
    monkeypatch.setattr("edge.formats.gguf_keys.MINICPM4_VOCAB", 1)
    with pytest.raises(InvalidFile, match="rope_factors_short.weight is missing"):
        open_checkpoint(path)


@pytest.mark.parametrize("form", ["TQ2_0", "TQ1_0", "F16"])
def test_scales_tell_how_a_llama_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """One scale for a matrix: BitNet, with activations of int8 per token.  Several: of floats, int8 per 128 values."""
    for group, kind in ((0, "int8"), (256, "int8-128")):
        model = dataclasses.replace(tiny.MODELS["llama_yarn"], group=group)
        monkeypatch.setitem(tiny.MODELS, "of_groups", model)
        monkeypatch.setitem(tiny.ALL, "of_groups", model)
        assert open_checkpoint(gguf_file(tmp_path, "of_groups", form)).config.activation_quant == kind
        assert open_checkpoint(folder(tmp_path / str(group), "of_groups")).config.activation_quant == kind


# ---- a norm in front of each projection ------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-6, 1e-3])
def test_projections_with_norms_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eps: float) -> None:
    """``use_rms_norm`` of quantization_config (BitNet embeddings, BitDistill): transformers' BitLinear, as formulas."""
    names = {f"{part}.{name}_proj.rms_norm": (256,) for part, name in
             (("self_attn", "q"), ("self_attn", "k"), ("self_attn", "v"), ("mlp", "gate"), ("mlp", "up"))}
    names |= {"self_attn.o_proj.rms_norm": (512,), "mlp.down_proj.rms_norm": (512,)}
    quantization = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online",
                    "use_rms_norm": True, "rms_norm_eps": eps}
    model = dataclasses.replace(tiny.MODELS["qwen3"], group=0, ternary_table=False, quantization=quantization,
                                names=tiny.MODELS["qwen3"].names | names)
    monkeypatch.setitem(tiny.MODELS, "rms", model)
    checkpoint = open_checkpoint(folder(tmp_path / "m", "rms", "F32"))
    c = checkpoint.config
    assert c.inner_eps == eps and c.activation_quant == "int8"
    assert all(layer.inner_norm and layer.mixer.qk_norm == "before" for layer in c.layers)
    targets = {f"{k}.rms_norm": f"{v}_norm_in" for k, v in GGUF_NAMES.items()}
    monkeypatch.setattr(f"{__name__}.GGUF_NAMES", GGUF_NAMES | targets)
    arrays = gguf_tensors(model)
    expected = family.Model(c, arrays, "int8").logits(tiny.IDS)
    got = logits(build(checkpoint, head="f32"), c, tiny.IDS)
    difference = np.abs(got - expected).max(1) / np.ptp(expected)
    assert difference[:4].max() <= 1e-6 and difference.max() <= 2e-2  # one rounded value tips over, later ones see it
    convert(tmp_path / "m", tmp_path / "c.gguf", embedding="F32")
    back = open_checkpoint(tmp_path / "c.gguf")
    assert back.config.inner_eps == pytest.approx(eps) and back.config.arch == "qwen3"
    assert np.abs(logits(build(back, head="f32"), back.config, tiny.IDS) - got).max() <= 1e-6 * np.ptp(expected)


CONFIGS = json.loads((VECTORS / "configs.json").read_text())


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_means_the_same_in_both_versions_of_transformers(tmp_path: Path, name: str) -> None:
    """Version 5 renames keys (num_local_experts, rope_parameters, dtype); the judge wrote both files."""
    model = {**tiny.MODELS, **tiny.HYBRIDS}.get(name)
    weights = oracle() / "relu2_gqa_tied" / "online_bf16" / "model.safetensors"
    data = weights.read_bytes() if model is None else safetensors(hf_floats(tiny.weights(model)))
    (tmp_path / "model.safetensors").write_bytes(data)
    read = []
    for config in CONFIGS[name].values():
        (tmp_path / "config.json").write_text(json.dumps(config))
        read.append(open_checkpoint(str(tmp_path), dense=name == "bonsai2").config)
    assert read[0] == read[1]
    if name.startswith("qwen3moe"):
        both = {**CONFIGS[name]["transformers 4"], "num_local_experts": 7}
        (tmp_path / "config.json").write_text(json.dumps(both))
        with pytest.raises(InvalidFile, match="num_experts and num_local_experts differ"):
            open_checkpoint(str(tmp_path))
