"""The configuration of a model in a GGUF file: what its keys and the shapes of a few tensors say about its layers.

Keys that change the arithmetic in a way that is not implemented refuse the file.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from itertools import repeat

from edge.config import ModelConfig
from edge.formats import basis
from edge.formats.checkpoint import WEIGHT_ONLY, Tensor
from edge.formats.gguf_header import Header
from edge.formats.gguf_keys import KEY_INNER_EPS, KEY_PLANES
from edge.formats.gguf_tokenizer import LLAMA3_TOKENS
from edge.formats.mapped import located, shown
from edge.layers import (
    ACTIVATIONS,
    Attention,
    Delta,
    Dense,
    Experts,
    LayerConfig,
    RopeScaling,
    Rotation,
    check_dimension,
)
from edge.registry.encodings import PLANE_TYPES
from edge.registry.families import FAMILIES, Family, refusal, supported

#: other names of activations
_ACTIVATION_NAMES = {"relu_squared": "relu2", "relu_sqr": "relu2", "swish": "silu", "gelu_pytorch_tanh": "gelu"}

#: keys after ``<arch>.`` that change the arithmetic and are not implemented -> the values with which they do not
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "logit_scale": (0, 1),
    "embedding_scale": (0, 1),
    "residual_scale": (0, 1),
    "attention.scale": (0,),
    "attention.output_scale": (0, 1),
    "attention.value_scale": (0, 1),
    "attention.temperature_scale": (0,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.sliding_window": (0,),
    "attention.causal": (1,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "router_logit_softcapping": (0,),
    "use_parallel_residual": (0,),
    "swin_norm": (0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "expert_shared_feed_forward_length": (0,),
    "expert_gating_func": (1,),  # softmax
    "expert_weights_scale": (0, 1),
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_latent_length": (0,),
    "leading_dense_block_count": (0,),
    "interleave_moe_layer_step": (0, 1),
    "moe_every_n_layers": (0, 1),
    "nextn_predict_layers": (0,),
    "rope.scaling.yarn_ext_factor": (1, -1),
    "rope.scaling.yarn_log_multiplier": (0,),
}
#: and those that are supported, or have no effect
_KNOWN = frozenset((
    "context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size", "hidden_activation",
    "activation_quantization", "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon",
    "rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.finetuned", "tensor_data_layout",
    "pooling_type", "attention.sliding_window_pattern", "rope.freq_base_swa", "rope.dimension_count_swa",
    "expert_feed_forward_length", "expert_weights_norm", "swiglu_clamp_exp",
    "full_attention_interval", "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
    "ssm.inner_size", "rope.dimension_sections",
))


def family_of(header: Header) -> Family:
    """Refuse known models that are not supported, by name; returns the row of the architecture."""
    arch = header.text("general.architecture")
    if arch is None:
        header.fail("general.architecture is missing, so this is not a model file")
    if arch not in FAMILIES:
        why = refusal(arch)
        header.fail(f"architecture {shown(arch)} is not supported: it is {why}" if why else
                    f"architecture {shown(arch)} is not supported ({supported()} are); "
                    "bitnet-edge runs ternary models")
    _check_keys(header, FAMILIES[arch])
    return FAMILIES[arch]


def _check_keys(header: Header, family: Family) -> None:
    """Refuse keys that change the arithmetic in a way that is not implemented."""
    for key, value in header.metadata.items():
        name = key.removeprefix(f"{family.arch}.")
        if name == key or name not in _NEUTRAL:
            continue
        if family.delta_period and name == "nextn_predict_layers":  # they only draft
            continue
        if family.multipliers and name in ("logit_scale", "embedding_scale", "residual_scale"):
            continue
        number = header.real(key) if not isinstance(value, bool) else float(value)
        if family.window_period and name in ("attention.sliding_window", "attention.scale"):
            continue
        if family.experts and name in ("expert_count", "expert_used_count"):
            continue
        if name == "attention.scale" and number is not None:
            width = header.integer(f"{family.arch}.attention.key_length") or (
                (header.integer(f"{family.arch}.embedding_length") or 0)
                // (header.integer(f"{family.arch}.attention.head_count") or 1)
            )
            if abs(number * number * width - 1) < 1e-3:
                continue
        if name == "attention.sliding_window" and number is not None:
            if number >= (header.integer(f"{family.arch}.context_length") or 1 << 62):
                continue
        if number not in _NEUTRAL[name]:
            header.fail(f"{shown(key)} is {number:g}, which changes the arithmetic in a way that is not implemented; "
                        "answers would be wrong")


def read_config(
    header: Header, family: Family, tensors: dict[str, Tensor], bases: basis.Bases, override: str | None,
    notes: list[str],
) -> ModelConfig:
    """ModelConfig from the family, ``<arch>.*`` and the shapes of a few tensors."""
    arch = family.arch

    def need(key: str) -> int:
        return header.needed(f"{arch}.{key}")

    hidden, n_head, n_layer = need("embedding_length"), need("attention.head_count"), need("block_count")
    if family.delta_period:
        n_layer -= header.integer(f"{arch}.nextn_predict_layers", 0) or 0
    with located(header.path):
        for name, value in (("hidden", hidden), ("n_head", n_head), ("n_layer", n_layer)):
            check_dimension(name, value)  # others are derived from these
    n_kv_head = header.integer(f"{arch}.attention.head_count_kv", n_head) or 0
    head_dim = header.integer(f"{arch}.attention.key_length", hidden // n_head) or 0
    if header.integer(f"{arch}.attention.value_length", head_dim) != head_dim:
        header.fail(f"{arch}.attention.value_length differs from key_length, which is not supported")
    n_vocab = tensors["token_embd.weight"].shape[0]
    said = header.integer(f"{arch}.vocab_size")
    if said is not None and said != n_vocab:
        notes.append(f"{arch}.vocab_size says {said}, the embedding has {n_vocab} rows; taken as {n_vocab}")
    eps = header.real(f"{arch}.attention.layer_norm_rms_epsilon")
    if eps is None:
        header.fail(f"{arch}.attention.layer_norm_rms_epsilon is missing; the file is incomplete, get it again")
    theta = header.real(f"{arch}.rope.freq_base", 10000.0) or 0.0
    rope_dim = header.integer(f"{arch}.rope.dimension_count", head_dim) or 0
    if rope_dim == 0 and not family.unrotated:
        header.fail(f"{arch}.rope.dimension_count is 0; the file is damaged")
    linear, scaling, n_ctx = _rope_scaling(header, family, tensors, need("context_length"), notes)
    name = header.text("general.name") or ""
    if not 0 < len(name) < 200 or not name.isprintable():  # it will be printed: no escape sequences
        name = os.path.splitext(os.path.basename(header.path))[0]
    unknown = [key for key in header.metadata if key.startswith(f"{arch}.")
               and key[len(arch) + 1 :] not in _KNOWN and key[len(arch) + 1 :] not in _NEUTRAL]
    if unknown:
        notes.append(f"{shown(unknown[0])}{f' and {len(unknown) - 1} more keys are' if unknown[1:] else ' is'} not "
                     "known and ignored")
    inner_norm = "blk.0.attn_q_norm_in.weight" in tensors
    sub_norm = "blk.0.attn_sub_norm.weight" in tensors
    multipliers = _multipliers(header, arch) if family.multipliers else {}
    if family.root_embedding:
        multipliers["embedding_scale"] = math.sqrt(hidden)
    activation = _activation(header, family, n_head == n_kv_head, theta, override, notes)
    planes = header.integer(KEY_PLANES) or 0
    if KEY_PLANES in header.metadata and planes not in PLANE_TYPES:
        header.fail(f"{KEY_PLANES} is {planes}; planes have a scale per {', '.join(map(str, sorted(PLANE_TYPES)))} "
                    "weights")
    usual = f"int8-{planes}" if planes else WEIGHT_ONLY if family.weight_only and not inner_norm else "int8"
    with located(header.path):
        check_dimension("head_dim", head_dim)
        attention = Attention(
            n_head,
            n_kv_head,
            head_dim,
            Rotation(theta, rope_dim, family.rope_style, linear, scaling),
            sub_norm=sub_norm,
            qk_norm=family.qk_norm,
            qkv_bias="blk.0.attn_q.bias" in tensors,
            gated=family.delta_period > 0,
            query_scale=_query_scale(header, arch, n_layer, n_head, hidden, head_dim) if family.window_period else 1.0,
        )
        mixers: tuple[Attention | Delta, ...] = (attention,) * n_layer
        if family.window_period:
            mixers = _sliding(header, family, attention, n_layer)
        elif family.delta_period:
            mixers = _hybrid(header, family, attention, n_layer, bases.grouped)
        parts: Iterator[Dense | Experts]
        if family.experts:
            parts = _experts(header, family, tensors, n_layer)
        else:
            parts = repeat(Dense(need("feed_forward_length"), activation, sub_norm), n_layer)
        layers = tuple(
            LayerConfig(mixer, part, inner_norm, family.post_norm) for mixer, part in zip(mixers, parts, strict=True)
        )
        return ModelConfig(
            arch=arch,
            name=name,
            hidden=hidden,
            n_vocab=n_vocab,
            n_ctx_train=n_ctx,
            eps=eps,
            tied="output.weight" not in tensors,
            layers=layers,
            activation_quant=header.text(f"{arch}.activation_quantization") or usual,
            planes=planes,
            inner_eps=header.real(KEY_INNER_EPS, eps) or 0.0,
            rotated=bool(bases.of),
            **multipliers,
        )


def _rope_scaling(
    header: Header, family: Family, tensors: dict[str, Tensor], n_ctx: int, notes: list[str]
) -> tuple[float, RopeScaling | None, int]:
    """(linear factor, other scaling, context length) from the keys ``<arch>.rope.scaling.*``."""
    arch = family.arch

    def real(key: str, default: float) -> float:
        value = header.real(f"{arch}.rope.scaling.{key}", default)
        return default if value is None else value

    kind = header.text(f"{arch}.rope.scaling.type", "none")
    factor = real("factor", header.real(f"{arch}.rope.scale_linear", 1.0) or 1.0)
    original = header.integer(f"{arch}.rope.scaling.original_context_length", n_ctx) or 0
    with located(header.path):
        if kind == "yarn" and factor != 1.0:
            mscale = real("yarn_attn_factor", real("attn_factor", 1.0)) * (0.1 * math.log(max(factor, 1.0)) + 1)
            return 1.0, RopeScaling("yarn", factor, original, real("yarn_beta_fast", 32.0),
                                    real("yarn_beta_slow", 1.0), mscale=mscale), n_ctx
        if kind == "longrope" or "rope_factors_short.weight" in tensors:
            short = tensors.get("rope_factors_short.weight")
            if short is None or short.type != "F32" or len(short.shape) != 1 or short.shape[0] > 4096:
                header.fail("rope_factors_short.weight is missing or damaged; get the file again")
            if original < n_ctx:
                notes.append(f"runs with the rotation of its original context of {original} tokens (longrope): longer "
                             "texts are not supported")
            factors = struct.unpack(f"<{short.shape[0]}f", short.data)
            return 1.0, RopeScaling("factors", factors=factors, mscale=real("attn_factor", 1.0)), min(n_ctx, original)
    if kind not in ("none", "linear") and factor != 1.0:
        header.fail(f"{arch}.rope.scaling.type {shown(kind)} is not supported (linear, yarn and longrope are)")
    return (factor if kind == "linear" or not kind or factor != 1.0 else 1.0) or 1.0, None, n_ctx


def _activation(
    header: Header, family: Family, mha: bool, theta: float, override: str | None, notes: list[str]
) -> str:
    """Which activation gates the feed-forward part.

    In this order: ``override``, the key ``<arch>.hidden_activation``, the architecture.  For BitNet the architecture's
    name does not decide it: Microsoft's converter labels the SiLU models of 1bitLLM bitnet-b1.58, and another converter
    labels 2B-4T, a model with squared ReLU, bitnet. 1bitLLM's models are recognised by full multi-head attention, rope
    base 10000 and a SentencePiece vocabulary; no other model has all three.
    """
    arch = family.arch
    said = header.text(f"{arch}.hidden_activation")
    if said is not None:
        said = _ACTIVATION_NAMES.get(said, said)
        if said not in ACTIVATIONS:
            header.fail(f"{arch}.hidden_activation {shown(said)} is not supported ({', '.join(ACTIVATIONS)} are)")
    if override is not None:
        if said not in (None, override):
            notes.append(f"activation {override} as asked, although the file says {said}")
        return override
    if said is not None:
        return said
    sentencepiece = header.text("tokenizer.ggml.model") == "llama"
    llama3 = len(header.strings("tokenizer.ggml.tokens")) == LLAMA3_TOKENS
    if arch == "bitnet":
        why = ("a Llama-3 vocabulary" if llama3 else "grouped-query attention" if not mha
               else "" if theta == 10000.0 else f"rope base {theta:g}")
        if why:
            notes.append(f"activation taken as relu2: labelled bitnet but has {why}, which no SiLU model of that label "
                         "has; if answers are garbage, use activation=\"silu\"")
            return "relu2"
    elif family.activation == "relu2" and (sentencepiece or (mha and theta == 10000.0)):
        why = "a SentencePiece vocabulary" if sentencepiece else "full attention and rope base 10000"
        notes.append(f"activation taken as SiLU: labelled {arch} but has {why}, as the 1bitLLM models do; "
                     "if answers are garbage, use activation=\"relu2\"")
        return "silu"
    return family.activation


def _query_scale(header: Header, arch: str, n_layer: int, n_head: int, hidden: int, head_dim: int) -> float:
    """What multiplies queries in addition to 1 / sqrt(head_dim), in a model with sliding windows."""
    scale = header.real(f"{arch}.attention.scale")
    if scale is None and n_layer == 62:  # 27B: as if heads filled the hidden size
        scale = math.sqrt(n_head / hidden)
    if scale is None:
        return 1.0
    factor = scale * math.sqrt(head_dim)
    return 1.0 if abs(factor - 1) < 1e-6 else factor


def _multipliers(header: Header, arch: str) -> dict[str, float]:
    """Embedding, residual and logit multipliers.

    Logits are divided by the value of the key.  Older conversions store its reciprocal; it is recognised because no
    model multiplies its logits by more than 1.
    """
    found = {}
    for field, key in (("embedding_scale", "embedding_scale"), ("residual_scale", "residual_scale"),
                       ("logit_scale", "logit_scale")):
        value = header.real(f"{arch}.{key}")
        if value is None:
            header.fail(f"{arch}.{key} is missing: an old conversion; convert the model again")
        if not 1e-6 < value < 1e6:
            header.fail(f"{arch}.{key} is {value}, which is not a multiplier; the file is damaged")
        found[field] = min(value, 1.0 / value) if field == "logit_scale" else value
    return found


def _sliding(header: Header, family: Family, far: Attention, n_layer: int) -> tuple[Attention, ...]:
    """The mixers of a model some of whose layers have a sliding window; ``far``: one that sees everything."""
    arch = family.arch
    window = header.integer(f"{arch}.attention.sliding_window")
    if window is None:
        header.fail(f"{arch}.attention.sliding_window is missing: an old conversion; convert the model again")
    key = f"{arch}.attention.sliding_window_pattern"
    if isinstance(header.metadata.get(key), int):
        period = header.integer(key) or 0
        near = [period > 0 and i % period < period - 1 for i in range(n_layer)]
    elif key in header.metadata:
        near = [bool(each) for each in header.numbers(key)]
        if len(near) != n_layer:
            header.fail(f"{key} has {len(near)} entries for {n_layer} layers; the file is damaged")
    else:
        near = [i % family.window_period < family.window_period - 1 for i in range(n_layer)]
    if not any(near) or not window:
        return (far,) * n_layer
    # files of maple have one base: that of the layers which are rotated
    theta = header.real(f"{arch}.rope.freq_base_swa", far.rotation.theta if family.unrotated else 10000.0) or 0.0
    dim = header.integer(f"{arch}.rope.dimension_count_swa", None if far.rotation.dim else far.head_dim)
    sliding = far.sliding(window, theta, dim)
    return tuple(sliding if each else far for each in near)


def _hybrid(
    header: Header, family: Family, attention: Attention, n_layer: int, grouped: bool
) -> tuple[Attention | Delta, ...]:
    """The mixers of a hybrid model, of which ``attention`` is one."""
    period = header.integer(f"{family.arch}.full_attention_interval", family.delta_period) or 0
    if not 1 <= period <= n_layer:
        header.fail(f"{family.arch}.full_attention_interval is {period} for {n_layer} layers; the file is damaged")
    delta = _delta(header, family.arch, grouped)
    return tuple(delta if (i + 1) % period else attention for i in range(n_layer))


def _delta(header: Header, arch: str, grouped: bool) -> Delta:
    """The gated delta mixer of a hybrid model."""

    def need(key: str) -> int:
        return header.needed(f"{arch}.ssm.{key}")

    if need("conv_kernel") != 4:
        header.fail(f"{arch}.ssm.conv_kernel is {need('conv_kernel')}; convolutions of 4 are supported")
    n_v, inner = need("time_step_rank"), need("inner_size")
    if n_v < 1 or inner % n_v:
        header.fail(f"{arch}.ssm.inner_size {inner} is not divisible into {n_v} heads; the file is damaged")
    return Delta(need("group_count"), n_v, need("state_size"), inner // n_v, grouped_out=grouped)


def _experts(
    header: Header, family: Family, tensors: dict[str, Tensor], n_layer: int
) -> Iterator[Dense | Experts]:
    """The feed-forward part of each layer: experts, or where the file has no router, a dense one."""
    arch = family.arch

    def each(key: str, default: float | None = None) -> list[float]:
        """A number for each layer; the file may have one for all."""
        name = f"{arch}.{key}"
        if isinstance(header.metadata.get(name), memoryview):
            values = list(header.numbers(name))
            if len(values) != n_layer:
                header.fail(f"{name} has {len(values)} entries for {n_layer} layers; the file is damaged")
            return values
        value = header.real(name, default)
        if value is None:
            header.fail(f"{name} is missing; the file is incomplete, get it again")
        return [value] * n_layer

    n_expert, n_used = header.needed(f"{arch}.expert_count"), header.needed(f"{arch}.expert_used_count")
    renormalise = header.flag(f"{arch}.expert_weights_norm", True)
    widths, bounds = each("expert_feed_forward_length"), each("swiglu_clamp_exp", family.clamp)
    for i in range(n_layer):
        if f"blk.{i}.ffn_gate_inp.weight" not in tensors and f"blk.{i}.ffn_gate.weight" in tensors:
            yield Dense(header.integer(f"{arch}.feed_forward_length") or 0, family.activation)
        else:
            width = int(widths[i]) if float(widths[i]).is_integer() else widths[i]
            yield Experts(n_expert, n_used, width, bool(renormalise), bounds[i])  # type: ignore[arg-type]
