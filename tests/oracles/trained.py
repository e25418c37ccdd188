"""Tiny models that were trained, from tests/vectors/trained.npz (made by make_trained.py there): a byte is a token, and
weights are ternary in groups of 128 along K.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.vectors.stored import read

GROUP = 128
PIECES, LENGTH = 8, 128  # of the text that they have not seen; as long as those they have learned from
_POWERS = 3 ** np.arange(5)


@dataclass(frozen=True)
class Trained:
    """A model: its class in transformers, and its Hugging Face configuration."""

    architecture: str
    config: dict[str, Any]


_BASE: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 64, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "max_position_embeddings": 1024, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}
MODELS = {
    "qwen35": Trained("Qwen3_5ForCausalLM", {
        **_BASE, "model_type": "qwen3_5_text", "linear_conv_kernel_dim": 4, "linear_num_key_heads": 1,
        "linear_num_value_heads": 2, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
        "layer_types": ["linear_attention", "full_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25,
                            "mrope_section": [3, 3, 2], "mrope_interleaved": True}}),
    "qwen3moe": Trained("Qwen3MoeForCausalLM", {
        **_BASE, "model_type": "qwen3_moe", "rope_theta": 1e4, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 128, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}),
}


def is_ternary(name: str, shape: Sequence[int]) -> bool:
    """True of a parameter, by its last name and shape, that is a ternary matrix; all others are stored as floats."""
    return len(shape) > 1 and shape[-1] % GROUP == 0 and min(shape[-2:]) > 8 and "conv" not in name


def apart(name: str, stacked: Any) -> Iterator[tuple[str, Any]]:
    """The matrices of a parameter with their names in files, where experts are one by one."""
    prefix, _, kind = name.rpartition(".")
    if len(stacked.shape) == 2:
        yield name, stacked
        return
    for number, matrix in enumerate(stacked):
        if kind == "gate_up_proj":
            for part, rows in zip(("gate", "up"), matrix.chunk(2), strict=True):
                yield f"{prefix}.{number}.{part}_proj.weight", rows
        else:
            yield f"{prefix}.{number}.{kind}.weight", matrix


def pack(codes: np.ndarray) -> np.ndarray:
    """-1, 0, 1 [rows][k] -> uint8 [rows][k / 5, rounded up]."""
    wide = np.pad(codes + 1, ((0, 0), (0, -codes.shape[1] % 5))).reshape(len(codes), -1, 5)
    return (wide * _POWERS).sum(-1).astype(np.uint8)


def weights(name: str) -> dict[str, np.ndarray]:
    """Hugging Face name -> float32 values."""
    found, stored = {}, read("trained", name)
    for key, values in stored.items():
        if key in ("ids", "choice", "logits") or key.endswith("|scales"):
            continue
        if key.endswith("|codes"):
            scales = stored[key.replace("|codes", "|scales")].astype(np.float32)
            k = scales.shape[1] * GROUP
            codes = (values[..., None] // _POWERS % 3).reshape(len(values), -1)[:, :k].astype(np.float32) - 1
            values = codes * np.repeat(scales, GROUP, 1)
        found[key.removesuffix("|codes")] = values.astype(np.float32)
    return found
