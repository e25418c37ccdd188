"""Tiny models of every family, made from a seed: the same numbers here and in tests/vectors/make_models.py.

Weights of projections are ternary x scale, one scale per ``group`` weights along K (0: one per matrix), scales are half
floats.  The generator is NumPy's RandomState, whose numbers never change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

IDS = [1, 5, 77, 200, 3, 9, 150, 42, 299, 17, 260, 8, 310, 31, 64, 2, 119, 7, 7, 250]


@dataclass(frozen=True)
class Tiny:
    """A model: its Hugging Face configuration, and how its weights are made."""

    architecture: str  # class in transformers
    config: dict[str, Any]
    group: int = 128
    ternary_table: bool = False  # embedding and head, too
    names: dict[str, tuple[int, ...]] = field(default_factory=dict)  # further tensors of a layer -> shape
    quantization: dict[str, Any] | None = None  # of config.json
    binary: bool = False  # no weight is 0
    norms_from_one: bool = False  # norms are stored less 1, but those of gated delta layers
    basis: int = 0  # block of the Walsh-Hadamard transform in whose basis the ternary matrices are stored, 0: none


_BASE: dict[str, Any] = {
    "vocab_size": 320, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    "max_position_embeddings": 512, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
}
_QK = {"self_attn.q_norm": (128,), "self_attn.k_norm": (128,)}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
_LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 64}

_GEMMA: dict[str, Any] = {
    **_BASE, "model_type": "gemma3_text", "num_hidden_layers": 7, "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": False, "query_pre_attn_scalar": 96, "sliding_window": 7, "sliding_window_pattern": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
    "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
}
del _GEMMA["hidden_act"], _GEMMA["rope_theta"]
_EXPERTS: dict[str, Any] = {
    **_BASE, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
}
_FOUR_NORMS = {**_QK, "pre_feedforward_layernorm": (256,), "post_feedforward_layernorm": (256,)}

MODELS = {
    "qwen3": Tiny("Qwen3ForCausalLM", {**_BASE, "model_type": "qwen3"}, 128, True, _QK),
    "qwen3_1bit": Tiny("Qwen3ForCausalLM", {**_BASE, "model_type": "qwen3"}, 128, True, _QK, binary=True),
    "qwen3_yarn": Tiny(
        "Qwen3ForCausalLM", {**_BASE, "model_type": "qwen3", "rope_parameters": _YARN, "tie_word_embeddings": False},
        256, False, _QK),
    "llama3_rope": Tiny("LlamaForCausalLM", {**_BASE, "model_type": "llama", "rope_parameters": _LLAMA3}, 0),
    "llama_yarn": Tiny("LlamaForCausalLM", {**_BASE, "model_type": "llama", "rope_parameters": _YARN}, 0),
    "qwen2": Tiny(
        "Qwen2ForCausalLM", {**_BASE, "model_type": "qwen2"}, 128, False,
        {"self_attn.q_proj.bias": (512,), "self_attn.k_proj.bias": (256,), "self_attn.v_proj.bias": (256,)}),
    "hunyuan": Tiny(
        "HunYuanDenseV1ForCausalLM",
        {**_BASE, "model_type": "hunyuan_v1_dense",
         "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}},
        256, False, {"self_attn.query_layernorm": (128,), "self_attn.key_layernorm": (128,)}),
    "gemma3": Tiny("Gemma3ForCausalLM", _GEMMA, 128, True, _FOUR_NORMS, norms_from_one=True),
    "qwen3moe": Tiny("Qwen3MoeForCausalLM", {**_EXPERTS, "num_hidden_layers": 3}, 128, True, _QK),
    "qwen3moe_mixed": Tiny(
        "Qwen3MoeForCausalLM",
        {**_EXPERTS, "num_hidden_layers": 3, "num_experts_per_tok": 3, "norm_topk_prob": False, "mlp_only_layers": [1],
         "tie_word_embeddings": False}, 128, False, _QK),
}

#: families without a class in transformers, which tests/oracles has in NumPy
WITHOUT = {
    "maple": Tiny(
        "MapleForCausalLM",
        {**_EXPERTS, "model_type": "maple", "num_hidden_layers": 5, "num_experts": 12, "num_experts_per_tok": 4,
         "moe_intermediate_size": 256, "rope_theta": 1e4, "partial_rotary_factor": 0.5, "sliding_window": 7,
         "swiglu_limit": 1.0,
         "layer_types": ["sliding_attention"] * 3 + ["full_attention", "sliding_attention"],
         "tie_word_embeddings": False}, 256, False, _QK),
}
ALL = {**MODELS, **WITHOUT}

_DELTA: dict[str, Any] = {
    **_BASE, "model_type": "qwen3_5_text", "num_hidden_layers": 4, "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 64, "linear_value_head_dim": 128,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                        "mrope_section": [6, 5, 5], "mrope_interleaved": True},
}
del _DELTA["rope_theta"]

#: models with gated delta layers: Qwen3.5, and Bonsai 2, whose file has a rotated basis
HYBRIDS = {
    "qwen35": Tiny("Qwen3_5ForCausalLM", {**_DELTA, "tie_word_embeddings": False}, 128, True, norms_from_one=True),
    "bonsai2": Tiny("Qwen3_5ForCausalLM", _DELTA, 128, True, norms_from_one=True, basis=128),
}
#: for them, several chunks of the delta rule
LONG = [1, *np.random.RandomState(35).randint(3, 320, 69).tolist()]


def mixer_shapes(tiny: Tiny, index: int) -> dict[str, tuple[int, ...]]:
    """Name in a layer -> shape, of what lets a token see those before it."""
    c = tiny.config
    hidden, q = c["hidden_size"], c["num_attention_heads"] * c["head_dim"]
    kv = c["num_key_value_heads"] * c["head_dim"]
    kinds = c.get("layer_types", ())
    if "linear_attention" not in kinds:
        return {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
                "self_attn.o_proj": (hidden, q)}
    if kinds[index] == "full_attention":  # each head's rows of q are followed by those of its gate
        return {"self_attn.q_proj": (2 * q, hidden), "self_attn.k_proj": (kv, hidden),
                "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q), **_QK}
    heads, inner = c["linear_num_value_heads"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    channels = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + inner
    return {
        "linear_attn.in_proj_qkv": (channels, hidden), "linear_attn.in_proj_z": (inner, hidden),
        "linear_attn.in_proj_b": (heads, hidden), "linear_attn.in_proj_a": (heads, hidden),
        "linear_attn.conv1d": (channels, 1, 4), "linear_attn.dt_bias": (heads,), "linear_attn.A_log": (heads,),
        "linear_attn.norm": (c["linear_value_head_dim"],), "linear_attn.out_proj": (hidden, inner),
    }


def shapes(tiny: Tiny) -> dict[str, tuple[int, ...]]:
    """Hugging Face name -> shape, of all tensors."""
    c = tiny.config
    hidden, ffn, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    table: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not c["tie_word_embeddings"]:
        table["lm_head.weight"] = (vocab, hidden)
    for i in range(c["num_hidden_layers"]):
        layer: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), **mixer_shapes(tiny, i), **tiny.names,
        }
        if "num_experts" in c and i not in c["mlp_only_layers"]:
            layer["mlp.gate"] = (c["num_experts"], hidden)
            each, inner = [f"mlp.experts.{e}" for e in range(c["num_experts"])], c["moe_intermediate_size"]
        else:
            each, inner = ["mlp"], ffn
        for prefix in each:
            layer |= {f"{prefix}.gate_proj": (inner, hidden), f"{prefix}.up_proj": (inner, hidden),
                      f"{prefix}.down_proj": (hidden, inner)}
        for name, shape in layer.items():
            whole = name.endswith((".bias", ".dt_bias", ".A_log"))
            table[f"model.layers.{i}.{name}" + ("" if whole else ".weight")] = shape
    return table


def codes_and_scales(tiny: Tiny, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(int8 codes [out, in] of -1, 0, +1 (binary: -1, +1); float16 scales [out, in / group], or [1, 1]) of a tensor."""
    return _drawn(name, shapes(tiny)[name], tiny.binary, tiny.group)


@lru_cache(maxsize=256)  # the matrices of a few models: tests one after the other ask for the same
def _drawn(name: str, shape: tuple[int, ...], binary: bool, group: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(sum(map(ord, name)) * 7919 % (1 << 31))
    codes = (2 * random.randint(0, 2, shape) - 1 if binary else random.randint(-1, 2, shape)).astype(np.int8)
    n = (shape[0], shape[1] // group) if group else (1, 1)
    scales = (0.02 + 0.08 * random.rand(*n)).astype(np.float16)
    codes.flags.writeable = scales.flags.writeable = False
    return codes, scales


def is_ternary(tiny: Tiny, name: str) -> bool:
    if name.endswith(("_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight")):
        return True
    return tiny.ternary_table and name in ("model.embed_tokens.weight", "lm_head.weight")


def signs(width: int) -> np.ndarray:
    """+-1 [width], of a rotated basis."""
    return np.random.RandomState(width).choice([-1.0, 1.0], width)


def transform(block: int) -> np.ndarray:
    """Sylvester's orthonormal Walsh-Hadamard matrix [block, block]."""
    h = np.ones((1, 1))
    while len(h) < block:
        h = np.block([[h, h], [h, -h]])
    return h / np.sqrt(block)


def from_basis(tiny: Tiny, stored: np.ndarray) -> np.ndarray:
    """Rows [.., k] of a matrix as they work on activations that are not rotated."""
    blocks = stored.astype(np.float64).reshape(*stored.shape[:-1], -1, tiny.basis) @ transform(tiny.basis)
    return blocks.reshape(stored.shape) * signs(stored.shape[-1])


def weights(tiny: Tiny) -> dict[str, np.ndarray]:
    """Hugging Face name -> float32 values."""
    found = {}
    for name, shape in shapes(tiny).items():
        random = np.random.RandomState(sum(map(ord, name)) * 104729 % (1 << 31))
        if is_ternary(tiny, name):
            codes, scales = _drawn(name, shape, tiny.binary, tiny.group)
            found[name] = codes * np.repeat(scales.astype(np.float32), shape[1] // scales.shape[1], 1)
            if tiny.basis:
                found[name] = from_basis(tiny, found[name]).astype(np.float32)
        elif name.endswith("A_log"):
            found[name] = np.log(0.02 + 2.0 * random.rand(*shape) ** 3).astype(np.float32)
        elif len(shape) == 1:
            one = "bias" not in name and not (tiny.norms_from_one and "linear_attn" not in name)
            found[name] = (0.3 * random.randn(*shape) + one).astype(np.float32)
        else:  # exact in half precision
            found[name] = (0.2 * random.randn(*shape)).astype(np.float16).astype(np.float32)
    return found
