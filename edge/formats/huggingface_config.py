"""config.json of a Hugging Face directory, translated to the keys of GGUF; :mod:`edge.formats.gguf_keys` reads them.

Numbers stay as exact as they are stated, and errors name the key of config.json.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from edge.formats.checkpoint import WEIGHT_ONLY, Tensor
from edge.formats.container import Metadata
from edge.formats.gguf_keys import (
    FACTORS,
    KEY_INNER_EPS,
    LLAMA3,
    MULTIPLIER,
    QUERY_SCALAR,
    dimensions,
)
from edge.formats.mapped import located, shown
from edge.formats.names import has_scales
from edge.registry.families import FAMILIES, Family

#: key after the architecture -> that of config.json, and what is meant if it is missing (None: see gguf_keys)
_KEYS: dict[str, tuple[str, float | None]] = {
    "embedding_length": ("hidden_size", None),
    "block_count": ("num_hidden_layers", None),
    "context_length": ("max_position_embeddings", 2048),
    "feed_forward_length": ("intermediate_size", None),
    "vocab_size": ("vocab_size", None),
    "attention.head_count": ("num_attention_heads", None),
    "attention.head_count_kv": ("num_key_value_heads", None),
    "attention.key_length": ("head_dim", None),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", 1e-5),
}
#: and of gated delta layers
_DELTA_KEYS: dict[str, tuple[str, float | None]] = {
    "ssm.conv_kernel": ("linear_conv_kernel_dim", 4),
    "ssm.group_count": ("linear_num_key_heads", 16),
    "ssm.time_step_rank": ("linear_num_value_heads", 32),
    "ssm.state_size": ("linear_key_head_dim", 128),
}
#: those that are no plain numbers
_OTHERS = {
    "attention.sliding_window_pattern": "layer_types", "full_attention_interval": "layer_types",
    "attention.sliding_window": "sliding_window", "ssm.inner_size": "linear_value_head_dim",
    "rope.freq_base": "rope_theta", "rope.dimension_count": "partial_rotary_factor", "hidden_activation": "hidden_act",
    "embedding_scale": "scale_emb", "residual_scale": "scale_depth", "logit_scale": "dim_model_base",
}
#: hidden_act -> our name
_ACTIVATIONS = {"relu2": "relu2", "silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu"}
#: up to transformers 4, and since 5
N_EXPERT = ("num_experts", "num_local_experts")


@dataclass(frozen=True)
class Config(Metadata):
    """The keys, and the object that they are translated from."""

    stated: Mapping[str, Any]

    def name(self, key: str) -> str:
        """The key of config.json."""
        key = key.removeprefix(".")
        return (_KEYS | _DELTA_KEYS).get(key, (_OTHERS.get(key, key),))[0]

    def _value(self, key: str, kinds: Any, what: str, default: Any) -> Any:
        # the limits of each dimension refuse fractions
        return super()._value(key, (int, float) if kinds is int else kinds, what, default)

    def put(self, keys: Mapping[str, Any]) -> None:
        """Set keys of the architecture."""
        self.metadata.update((self.key(f".{key}"), value) for key, value in keys.items())

    def number(self, key: str, default: float | None = None, part: Mapping[str, Any] | None = None) -> Any:
        """A number of config.json, or of a part of it, checked.  Raises InvalidFile."""
        value = (self.stated if part is None else part).get(key)
        value = default if value is None else value
        if value is None:
            self.fail(f"{key} is missing; get the file again")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
            self.fail(f"{key} is {shown(value)}, not a sensible number")
        return value


def translated(
    folder: str, stated: Mapping[str, Any], family: Family, tensors: Mapping[str, Tensor], override: str | None
) -> tuple[Config, Family]:
    """The keys, and the family as the folder has it.  ``override``: the activation, whatever config.json says."""
    config = Config(os.path.join(folder, "config.json"), {}, stated)
    said = stated.get("hidden_activation") or stated.get("hidden_act") or (
        "relu2" if family.arch.startswith("bitnet") else family.activation)
    if str(said) not in _ACTIVATIONS:
        config.fail(f"hidden_act {shown(said)} is not supported ({', '.join(_ACTIVATIONS)} are)")
    arch = family.arch
    if arch in ("bitnet", "bitnet-b1.58", "llama"):
        relu2 = (override or _ACTIVATIONS[said]) == "relu2"
        arch = "llama" if "blk.0.attn_sub_norm.weight" not in tensors else "bitnet-b1.58" if relu2 else "bitnet"
    quantization = stated.get("quantization_config") or {}
    query = tensors.get("blk.0.attn_q.weight")
    weight_only = quantization.get("quant_method") is None and (
        family.weight_only or query is not None and has_scales(query))
    name = stated.get("_name_or_path")
    usable = isinstance(name, str) and name.isprintable() and 0 < len(name) < 200
    config.metadata["general.architecture"] = arch
    config.metadata["general.name"] = name if usable else os.path.basename(os.path.abspath(folder))
    config.metadata[KEY_INNER_EPS] = config.number("rms_norm_eps", 1e-6, quantization)
    config.put({ours: config.number(theirs, default)
                for ours, (theirs, default) in (_KEYS | _DELTA_KEYS if family.delta_period else _KEYS).items()
                if default is not None or stated.get(theirs) is not None})
    config.put({
        "hidden_activation": _ACTIVATIONS[said],
        "activation_quantization":
            quantization.get("activation_quantization") or (WEIGHT_ONLY if weight_only else "int8"),
    })
    with located(config.path):
        hidden, n_layer, _, head_dim = dimensions(config)
    config.put(_rope_keys(config, family, head_dim))
    if family.window_period:
        config.put(_window_keys(config, family, head_dim, n_layer))
    if family.delta_period:
        config.put({
            "full_attention_interval":
                _layer_types(config, "linear_attention", "full_attention_interval", family.delta_period, n_layer),
            "ssm.inner_size":
                config.number("linear_num_value_heads", 32) * config.number("linear_value_head_dim", 128),
        })
    if family.experts:
        config.put(_expert_keys(config, n_layer))
    if family.multipliers:
        config.put(_multiplier_keys(config, hidden, n_layer))
    qk_norm = family.qk_norm if stated.get("use_qk_norm", True) else ""
    return config, replace(FAMILIES[arch], rope_style="half", qk_norm=qk_norm)


def _multiplier_keys(config: Config, hidden: int, n_layer: int) -> dict[str, Any]:
    """The keys about what multiplies embeddings, what layers add, and logits."""
    base = config.number("dim_model_base", hidden)
    if base > hidden:
        config.fail(f"dim_model_base is {base}, more than hidden_size; the file is damaged")
    return {"embedding_scale": config.number("scale_emb", 1.0), "logit_scale": base / hidden,
            "residual_scale": config.number("scale_depth", 1.0) / n_layer**0.5}


def _layer_types(config: Config, other: str, key: str, period: int, n_layer: int) -> int | memoryview[bool]:
    """N if all layers but each N-th are of the kind ``other``, and these "full_attention"; else for each layer whether
    it is.
    """
    kinds = config.stated.get("layer_types")
    if kinds is None:
        return int(config.number(key, config.number(f"_{key}", period)))
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= {"full_attention", other}:
        config.fail(f"layer_types holds other than full_attention and {other}, which is not supported")
    found = [kind == other for kind in kinds]
    period = 1 + found.index(False) if False in found else n_layer + 1
    regular = found == [(i + 1) % period > 0 for i in range(n_layer)]
    return period if regular else memoryview(bytes(found)).cast("?")


def _expert_keys(config: Config, n_layer: int) -> dict[str, Any]:
    """The keys about experts; in layers without experts these have no width."""
    only, step = config.stated.get("mlp_only_layers") or [], config.number("decoder_sparse_step", 1)
    if not isinstance(only, list):
        config.fail("mlp_only_layers is not a list; the file is damaged")
    if not isinstance(step, int) or step < 1:
        config.fail(f"decoder_sparse_step is {shown(step)}, which is not valid")
    named = [key for key in N_EXPERT if config.stated.get(key) is not None] or N_EXPERT
    if any(config.stated.get(key) != config.stated.get(named[0]) for key in named):
        config.fail(f"{' and '.join(named)} differ; get the file again")
    width = config.number("moe_intermediate_size")
    widths = [0 if i in only or (i + 1) % step else width for i in range(n_layer)]
    return {
        "expert_count": config.number(named[0]),
        "expert_used_count": config.number("num_experts_per_tok"),
        "expert_feed_forward_length": width if all(widths) else memoryview(array("d", widths)),
        "expert_weights_norm": bool(config.stated.get("norm_topk_prob", False)),
    }


def _window_keys(config: Config, family: Family, head_dim: int, n_layer: int) -> dict[str, Any]:
    """The keys of a model some of whose layers have a sliding window."""
    rope = config.stated.get("rope_parameters")
    rope = rope.get("sliding_attention") if isinstance(rope, dict) else None
    rope = rope if isinstance(rope, dict) else {}
    if rope.get("rope_type", "default") != "default":
        config.fail(f"rope type {shown(rope['rope_type'])} of sliding_attention is not supported (default is)")
    kinds = _layer_types(config, "sliding_attention", "sliding_window_pattern", family.window_period, n_layer)
    window = 1 if kinds == 1 else int(config.number("sliding_window"))
    if window < 1:
        config.fail(f"sliding_window: a window of {window} tokens is not valid")
    scalar = config.number("query_pre_attn_scalar", head_dim)
    return {
        QUERY_SCALAR: scalar,
        "attention.scale": max(1, scalar) ** -0.5,
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": kinds,
        "rope.freq_base_swa": float(config.number("rope_theta", config.number("rope_local_base_freq", 10000.0), rope)),
    }


def _rope_keys(config: Config, family: Family, head_dim: int) -> dict[str, Any]:
    """The keys of the rotary embedding."""
    # old files: rope_theta at the top and rope_scaling; new files: rope_parameters
    rope = config.stated.get("rope_parameters") or config.stated.get("rope_scaling") or {}
    if isinstance(rope, dict) and isinstance(rope.get("full_attention"), dict):  # by the kind of layer
        rope = rope["full_attention"]
    if not isinstance(rope, dict):
        config.fail("rope_parameters is not an object")

    def number(key: str, default: float) -> float:
        """A number that may stand in the object or next to it."""
        return float(config.number(key, config.number(key, default), rope))

    theta, kind = number("rope_theta", family.rope_theta), rope.get("rope_type", rope.get("type", "default"))
    original = int(number("original_max_position_embeddings", config.number("max_position_embeddings", 2048)))
    if kind == "dynamic" and rope.get("alpha"):  # Hunyuan: a fixed stretch of the base
        theta *= config.number("alpha", None, rope) ** (head_dim / (head_dim - 2))
        kind = "default"
    keys = {"rope.freq_base": theta,
            "rope.dimension_count": int(head_dim * number("partial_rotary_factor", family.partial_rotary))}
    if kind == "default":
        return keys
    return keys | {"rope.scaling.original_context_length": original, **_scaling_keys(config, rope, kind, original)}


def _scaling_keys(config: Config, rope: Mapping[str, Any], kind: Any, original: int) -> dict[str, Any]:
    """The keys of a rotation that is stretched for a longer context; ``rope``: what config.json says of it."""

    def number(key: str, default: float | None = None) -> float:
        return float(config.number(key, default, rope))

    if kind in ("longrope", "su"):
        factors = rope.get("short_factor")
        if not isinstance(factors, list) or not all(
            type(value) in (int, float) and abs(value) < 1e15 for value in factors
        ):
            config.fail("short_factor of longrope is not a list of numbers; the file is damaged")
        n_ctx = config.number("max_position_embeddings", 2048)
        stretch = max(1.0, number("factor", n_ctx / original)) if original > 0 else 1.0
        usual = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 and original > 1 else 1.0
        return {"rope.scaling.type": "longrope", FACTORS: memoryview(array("d", factors)),
                "rope.scaling.attn_factor": number("attention_factor", usual)}
    if kind not in ("linear", "yarn", "llama3"):
        config.fail(f"rope type {shown(kind)} is not supported (default, linear, yarn, llama3 and longrope are)")
    factor = number("factor")
    if not factor:
        config.fail("factor is 0, which is not valid")
    if kind == "llama3":
        return dict(zip(LLAMA3, (factor, number("low_freq_factor", 1), number("high_freq_factor", 4)), strict=True))
    keys = {"rope.scaling.type": kind, "rope.scaling.factor": factor}
    if kind == "yarn":
        if rope.get("truncate") is False or rope.get("mscale") or rope.get("mscale_all_dim"):
            config.fail("a variant of yarn (truncate, mscale) that is not supported")
        usual = 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
        multiplier = number("attention_factor", usual)
        return keys | {
            "rope.scaling.yarn_beta_fast": number("beta_fast", 32),
            "rope.scaling.yarn_beta_slow": number("beta_slow", 1),
            "rope.scaling.yarn_attn_factor": multiplier / usual,
            MULTIPLIER: multiplier,
        }
    return keys
