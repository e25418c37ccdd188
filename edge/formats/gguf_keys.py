"""The keys of a model, as GGUF has them: read into its configuration, and written again.

Keys that change the arithmetic in a way that is not implemented refuse the file.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edge.config import ModelConfig
from edge.formats import basis
from edge.formats.checkpoint import WEIGHT_ONLY, Checkpoint, Tensor
from edge.formats.container import NEEDED, Metadata
from edge.formats.gguf_tokenizer import LLAMA3_TOKENS, tokenizer_keys
from edge.formats.mapped import located, shown
from edge.formats.names import has_scales
from edge.layers import (
    Attention,
    Delta,
    Dense,
    Experts,
    LayerConfig,
    RopeScaling,
    Rotation,
    check_dimension,
)
from edge.registry.encodings import PANELS
from edge.registry.families import FAMILIES, MINICPM4_VOCAB, Family, minicpm4_factors, refusal
from edge.settings import SETTINGS

#: other names of activations
_ACTIVATION_NAMES = {"relu_squared": "relu2", "relu_sqr": "relu2", "swish": "silu", "gelu_pytorch_tanh": "gelu"}

#: keys after ``<arch>.`` that change the arithmetic and are not implemented -> the values with which they do not
_NEUTRAL = {key: values for values, keys in {
    (0,): ("attention.scale", "attention.temperature_scale", "attention.clamp_kqv", "attention.max_alibi_bias",
           "attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "router_logit_softcapping",
           "use_parallel_residual", "swin_norm", "expert_count", "expert_used_count", "expert_shared_count",
           "expert_shared_feed_forward_length", "expert_latent_length", "leading_dense_block_count",
           "nextn_predict_layers", "rope.scaling.yarn_log_multiplier"),
    (1,): ("attention.causal", "expert_gating_func"),  # softmax
    (0, 1): ("logit_scale", "embedding_scale", "residual_scale", "attention.output_scale", "attention.value_scale",
             "expert_weights_scale", "expert_group_count", "expert_group_used_count", "interleave_moe_layer_step",
             "moe_every_n_layers"),
    (1, -1): ("rope.scaling.yarn_ext_factor",),
}.items() for key in keys}
#: field of Family -> the keys of these that are used then
_USED = {
    "multipliers": ("logit_scale", "embedding_scale", "residual_scale"),
    "window_period": ("attention.sliding_window", "attention.scale"),
    "experts": ("expert_count", "expert_used_count"),
    "delta_period": ("nextn_predict_layers",),  # they only draft
}
MOST_FACTORS = 4096  # more pairs than any head has: a hostile list is not kept
#: values that config.json states exactly, and a GGUF file as a float32 or a tensor: only translated keys have these
MULTIPLIER = "rope.scaling.multiplier"  # of cosines and sines
FACTORS = "rope.scaling.short_factors"
LLAMA3 = tuple(f"rope.scaling.llama3_{name}" for name in ("factor", "low_freq", "high_freq"))
QUERY_SCALAR = "attention.query_pre_attn_scalar"  # 1 / attention.scale ** 2
#: keys of the architecture that a conversion does not copy: these, and that of layers which it leaves out
_DROPPED = (MULTIPLIER, FACTORS, QUERY_SCALAR, *LLAMA3, "nextn_predict_layers")
#: general.file_type, a label only: the first is microsoft/BitNet's number, the others llama.cpp's of the nearest type
_FILE_TYPES = {"I2_S": 40, "TQ2_0": 37, "PQ2_0": 41, PANELS: 41, "TP64_R64": 41, "TP32_R64": 41}

#: our own keys, for what GGUF has none; in files that we write, I2_S has the layout 128
KEY_LAYOUT = "bitnet_edge.i2s_layout"
KEY_INNER_EPS = "bitnet_edge.projection_norm_epsilon"
#: the weights that share a scale in matrices that are sums of planes
KEY_PLANES = "bitnet-edge.planes.group"
#: sampling that the makers recommend (llama.cpp's names): field of Sampling -> key
KEYS_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repeat_penalty": "general.sampling.penalty_repeat",
    "repeat_last_n": "general.sampling.penalty_last_n",
}


def family_of(source: Metadata) -> Family:
    """Refuse known models that are not supported, by name; returns the row of the architecture."""
    arch = source.text("general.architecture")
    if arch is None:
        source.fail("general.architecture is missing, so this is not a model file")
    if arch not in FAMILIES:
        why = refusal(arch)
        source.fail(f"architecture {shown(arch)} is not supported: it is {why}" if why else
                    f"architecture {shown(arch)} is not supported ({', '.join(FAMILIES)} are); "
                    "bitnet-edge runs ternary models")
    _check_keys(source, FAMILIES[arch])
    return FAMILIES[arch]


def _check_keys(source: Metadata, family: Family) -> None:
    """Refuse keys that change the arithmetic in a way that is not implemented."""
    used = [name for field, keys in _USED.items() if getattr(family, field) for name in keys]
    for key, value in source.metadata.items():
        name = key.removeprefix(f"{family.arch}.")
        if name == key or name not in _NEUTRAL:
            continue
        number = source.real(key) if not isinstance(value, bool) else float(value)
        if number in _NEUTRAL[name] or name in used:
            continue
        if name == "attention.scale":
            width = source.integer(".attention.key_length") or (
                source.integer(".embedding_length", 0) // (source.integer(".attention.head_count") or 1))
            if abs(number * number * width - 1) < 1e-3:
                continue
        if name == "attention.sliding_window" and number >= source.integer(".context_length", 1 << 62):
            continue
        source.fail(f"{shown(key)} is {number:g}, which changes the arithmetic in a way that is not implemented; "
                    "answers would be wrong")


def read_config(
    source: Metadata, family: Family, tensors: Mapping[str, Tensor], override: str | None, notes: list[str], *,
    tiled: bool = True, grouped: bool = False,
) -> ModelConfig:
    """ModelConfig from the family, the keys and the shapes of a few tensors.

    ``override``: the activation, whatever the keys say.  ``tiled``, ``grouped``: see :class:`edge.layers.Delta`.
    """
    with located(source.path):
        hidden, n_layer, n_head, _ = dimensions(source)
        far, n_ctx = _attention(source, family, tensors, notes)
        mixers = _mixers(source, family, far, n_layer, tiled, grouped)
        activation = _activation(source, family, n_head == far.n_kv_head, far.rotation.theta, override, notes)
        inner_norm = "blk.0.attn_q_norm_in.weight" in tensors
        layers = tuple(
            LayerConfig(mixer, part, inner_norm, family.post_norm)
            for mixer, part in zip(mixers, _feed_forward(source, family, tensors, activation, n_layer), strict=True)
        )
        planes = source.integer(KEY_PLANES, 0)
        query = tensors.get("blk.0.attn_q.weight")
        weight_only = family.weight_only or query is not None and has_scales(query)
        usual = f"int8-{planes}" if planes else WEIGHT_ONLY if weight_only and not inner_norm else "int8"
        eps = source.real(".attention.layer_norm_rms_epsilon", NEEDED)
        multipliers = {"embedding_scale": math.sqrt(hidden)} if family.root_embedding else {}
        if family.multipliers:
            multipliers = {key: source.real(f".{key}", NEEDED) for key in _USED["multipliers"]}
            # Logits are divided by it.  Older conversions store its reciprocal: no model's multiplier is more than 1.
            if (divisor := multipliers["logit_scale"]) > 0:
                multipliers["logit_scale"] = min(divisor, 1.0 / divisor)
        n_vocab = tensors["token_embd.weight"].shape[0]
        said = source.integer(".vocab_size", n_vocab)
        if said != n_vocab:
            notes.append(f"{source.name('.vocab_size')} says {said}, the embedding has {n_vocab} rows; taken as "
                         f"{n_vocab}")
        name = source.text("general.name", "")
        if not 0 < len(name) < 200 or not name.isprintable():  # it will be printed: no escape sequences
            name = os.path.splitext(os.path.basename(source.path))[0]
        return ModelConfig(
            arch=family.arch,
            name=name,
            hidden=hidden,
            n_vocab=n_vocab,
            n_ctx_train=n_ctx,
            eps=eps,
            tied="output.weight" not in tensors,
            layers=layers,
            activation_quant=source.text(".activation_quantization") or usual,
            planes=planes,
            inner_eps=source.real(KEY_INNER_EPS, eps),
            rotated=any(tensor.basis for tensor in tensors.values()),
            **multipliers,
        )


def dimensions(source: Metadata) -> tuple[int, int, int, int]:
    """Width, layers, heads and their width: checked, since others are derived from these."""
    hidden, n_layer, n_head = (
        source.integer(key, NEEDED) for key in (".embedding_length", ".block_count", ".attention.head_count"))
    n_layer -= source.integer(".nextn_predict_layers", 0)
    for name, value in (("hidden", hidden), ("n_layer", n_layer), ("n_head", n_head)):
        check_dimension(name, value)
    head_dim = source.integer(".attention.key_length", hidden // n_head)
    check_dimension("head_dim", head_dim)
    return hidden, n_layer, n_head, head_dim


def _attention(
    source: Metadata, family: Family, tensors: Mapping[str, Tensor], notes: list[str]
) -> tuple[Attention, int]:
    """Attention that sees everything, and the context length that its rotation is good for."""
    hidden, n_layer, n_head, head_dim = dimensions(source)
    if source.integer(".attention.value_length", head_dim) != head_dim:
        source.fail(f"{source.name('.attention.value_length')} differs from key_length, which is not supported")
    rope_dim = source.integer(".rope.dimension_count", head_dim)
    if rope_dim == 0 and not family.unrotated:
        source.fail(f"{source.name('.rope.dimension_count')} is 0; the file is damaged")
    linear, scaling, n_ctx = _rope_scaling(source, tensors, rope_dim, notes)
    scale = 1.0
    if family.window_period:
        # 27B has 62 layers: as if heads filled the hidden size
        usual = math.sqrt(n_head / hidden) if n_layer == 62 else head_dim**-0.5
        scale = source.real(".attention.scale", usual) * math.sqrt(head_dim)
        scalar = source.real(f".{QUERY_SCALAR}")
        scale = scale if scalar is None else math.sqrt(head_dim / max(1, scalar))
    return Attention(
        n_head,
        source.integer(".attention.head_count_kv", n_head),
        head_dim,
        Rotation(source.real(".rope.freq_base", 10000.0), rope_dim, family.rope_style, linear, scaling),
        sub_norm="blk.0.attn_sub_norm.weight" in tensors,
        qk_norm=family.qk_norm,
        qkv_bias="blk.0.attn_q.bias" in tensors,
        gated=family.delta_period > 0,
        query_scale=1.0 if abs(scale - 1) < 1e-6 else scale,
    ), n_ctx


def _rope_scaling(
    source: Metadata, tensors: Mapping[str, Tensor], rope_dim: int, notes: list[str]
) -> tuple[float, RopeScaling | None, int]:
    """(linear factor, other scaling, context length) from the keys ``<arch>.rope.scaling.*``."""

    def real(key: str, default: Any = None) -> Any:
        return source.real(f".rope.scaling.{key}", default)

    n_ctx = source.integer(".context_length", NEEDED)
    kind = source.text(".rope.scaling.type", "none")
    factor = real("factor", source.real(".rope.scale_linear") or 1.0)
    original = source.integer(".rope.scaling.original_context_length", n_ctx)
    exact = source.real(f".{MULTIPLIER}")
    if kind == "yarn" and (factor != 1.0 or exact is not None):
        usual = real("yarn_attn_factor", real("attn_factor", 1.0)) * (0.1 * math.log(max(factor, 1.0)) + 1)
        return 1.0, RopeScaling("yarn", factor, original, real("yarn_beta_fast", 32.0), real("yarn_beta_slow", 1.0),
                                mscale=usual if exact is None else exact), n_ctx
    llama3 = [source.real(f".{key}") for key in LLAMA3]
    if llama3[0] is not None:
        return 1.0, RopeScaling("llama3", llama3[0], original, low_freq=llama3[1], high_freq=llama3[2]), n_ctx
    if kind == "longrope" or "rope_factors_short.weight" in tensors:
        factors = source.numbers(f".{FACTORS}")
        if not factors:
            short = tensors.get("rope_factors_short.weight")
            if short is None and (tensors["token_embd.weight"].shape[0], rope_dim) == (MINICPM4_VOCAB, 128):
                factors = minicpm4_factors()
                notes.append("the file lacks the divisors of its rotation (longrope); those of MiniCPM4 are used")
            elif short is None or short.type != "F32" or len(short.shape) != 1 or short.shape[0] > MOST_FACTORS:
                source.fail("rope_factors_short.weight is missing or damaged; get the file again")
            else:
                factors = struct.unpack(f"<{short.shape[0]}f", short.data)
        if original < n_ctx:
            notes.append(f"runs with the rotation of its original context of {original} tokens (longrope): longer "
                         "texts are not supported")
        scaling = RopeScaling("factors", factors=tuple(factors[:MOST_FACTORS]), mscale=real("attn_factor", 1.0))
        return 1.0, scaling, min(n_ctx, original)
    if kind not in ("none", "linear") and factor != 1.0:
        source.fail(f"{source.name('.rope.scaling.type')} {shown(kind)} is not supported (linear, yarn and longrope "
                    "are)")
    return factor or 1.0, None, n_ctx


def _mixers(
    source: Metadata, family: Family, far: Attention, n_layer: int, tiled: bool, grouped: bool
) -> tuple[Attention | Delta, ...]:
    """The mixer of each layer; ``far``: attention that sees everything, which the others of a hybrid model, or of one
    with sliding windows, are not.
    """
    other: Attention | Delta
    if family.delta_period:
        key, period = ".full_attention_interval", family.delta_period
        other = _delta(source, tiled, grouped)
    elif family.window_period:
        key, period = ".attention.sliding_window_pattern", family.window_period
        other = _sliding(source, family, far)
    else:
        return (far,) * n_layer
    stated = source.metadata.get(source.key(key), period)
    if isinstance(stated, int):
        others: Sequence[Any] = [stated > 0 and (i + 1) % stated > 0 for i in range(n_layer)]
    else:
        others = source.layers(key, n_layer)
    return tuple(other if each else far for each in others)


def _sliding(source: Metadata, family: Family, far: Attention) -> Attention:
    """Attention with a sliding window; without one, that which sees everything."""
    window = source.integer(".attention.sliding_window", NEEDED)
    if not window:
        return far
    # files of maple have one base: that of the layers which are rotated
    theta = source.real(".rope.freq_base_swa", far.rotation.theta if family.unrotated else 10000.0)
    return far.sliding(window, theta, source.integer(".rope.dimension_count_swa", far.rotation.dim or far.head_dim))


def _delta(source: Metadata, tiled: bool, grouped: bool) -> Delta:
    """The gated delta mixer of a hybrid model."""
    kernel, n_k, n_v, width, inner = (source.integer(f".ssm.{key}", NEEDED) for key in (
        "conv_kernel", "group_count", "time_step_rank", "state_size", "inner_size"))
    if kernel != 4:
        source.fail(f"{source.name('.ssm.conv_kernel')} is {kernel}; convolutions of 4 are supported")
    if n_v < 1 or inner % n_v:
        source.fail(f"{source.name('.ssm.inner_size')} {inner} is not divisible into {n_v} heads; the file is damaged")
    return Delta(n_k, n_v, width, inner // n_v, tiled, grouped)


def _feed_forward(
    source: Metadata, family: Family, tensors: Mapping[str, Tensor], activation: str, n_layer: int
) -> Iterator[Dense | Experts]:
    """The feed-forward part of each layer: experts where they have a width and the file a router, else a dense one."""
    sub_norm = "blk.0.attn_sub_norm.weight" in tensors
    widths: Sequence[float] = [0] * n_layer
    if family.experts:
        widths = source.layers(".expert_feed_forward_length", n_layer)
        bounds = source.layers(".swiglu_clamp_exp", n_layer, family.clamp)
    for i, width in enumerate(widths):
        router, gate = f"blk.{i}.ffn_gate_inp.weight" in tensors, f"blk.{i}.ffn_gate.weight" in tensors
        if width and (router or not gate):
            if activation != "silu":
                source.fail(f"{source.name('.hidden_activation')} {activation} is not supported for experts (silu is)")
            yield Experts(source.integer(".expert_count", NEEDED), source.integer(".expert_used_count", NEEDED),
                          int(width) if float(width).is_integer() else width,  # type: ignore[arg-type]
                          source.flag(".expert_weights_norm", True), bounds[i])
        else:
            yield Dense(source.integer(".feed_forward_length", NEEDED), activation, sub_norm)


def _activation(
    source: Metadata, family: Family, mha: bool, theta: float, override: str | None, notes: list[str]
) -> str:
    """Which activation gates the feed-forward part.

    In this order: ``override``, the key ``<arch>.hidden_activation``, the architecture.  For BitNet the architecture's
    name does not decide it: Microsoft's converter labels the SiLU models of 1bitLLM bitnet-b1.58, and another converter
    labels 2B-4T, a model with squared ReLU, bitnet. 1bitLLM's models are recognised by full multi-head attention, rope
    base 10000 and a SentencePiece vocabulary; no other model has all three.
    """
    said = source.text(".hidden_activation")
    if said is not None:
        said = _ACTIVATION_NAMES.get(said, said)
    if override is not None:
        if said not in (None, override):
            notes.append(f"activation {override} as asked, although the file says {said}")
        return override
    if said is not None:
        return said
    sentencepiece = source.text("tokenizer.ggml.model") == "llama"
    llama3 = len(source.strings("tokenizer.ggml.tokens")) == LLAMA3_TOKENS
    if family.arch == "bitnet":
        why = ("a Llama-3 vocabulary" if llama3 else "grouped-query attention" if not mha
               else "" if theta == 10000.0 else f"rope base {theta:g}")
        if why:
            notes.append(f"activation taken as relu2: labelled bitnet but has {why}, which no SiLU model of that label "
                         "has; if answers are garbage, use activation=\"silu\"")
            return "relu2"
    elif family.activation == "relu2" and (sentencepiece or (mha and theta == 10000.0)):
        why = "a SentencePiece vocabulary" if sentencepiece else "full attention and rope base 10000"
        notes.append(f"activation taken as SiLU: labelled {family.arch} but has {why}, as the 1bitLLM models do; "
                     "if answers are garbage, use activation=\"relu2\"")
        return "silu"
    return family.activation


def architecture(config: ModelConfig) -> str:
    """The GGUF architecture of a model: its own if it has one, else the one with the same sub-norms and activation, or
    llama.
    """
    if config.arch not in ("bitnet", "bitnet-b1.58", "bitnet-25", "llama"):
        return config.arch
    feed_forward = config.layers[0].feed_forward
    if feed_forward.sub_norm:
        return "bitnet-b1.58" if feed_forward.activation == "relu2" else "bitnet"
    return "llama"


def metadata(checkpoint: Checkpoint, type: str, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All keys of a file: those of the architecture as they were read, but for what is stated here.

    ``type``: how the ternary matrices are stored; ``extra``: further keys.
    """
    c, arch = checkpoint.config, architecture(checkpoint.config)
    family, layer = FAMILIES[arch], c.layers[0]
    keys: dict[str, Any] = {
        "general.architecture": arch,
        "general.name": c.name,
        "general.file_type": _FILE_TYPES[type],
        "general.quantization_version": 2,
        ".vocab_size": c.n_vocab,
        ".context_length": c.n_ctx_train,
        ".block_count": c.n_layer,
        ".attention.key_length": c.head_dim,
        ".attention.value_length": c.head_dim,
        # explicit what the architecture's name leaves to convention
        ".hidden_activation": layer.feed_forward.activation,
        ".activation_quantization": c.activation_quant,
    }
    if c.planes:
        keys[KEY_PLANES] = c.planes
    source = f"{checkpoint.metadata.get('general.architecture')}."
    copied = {key.removeprefix(source[:-1]): value for key, value in checkpoint.metadata.items()
              if key.startswith(source) and key.removeprefix(source) not in _DROPPED}
    keys |= {".feed_forward_length": layer.feed_forward.ffn} | copied | keys
    if layer.inner_norm and c.inner_eps != c.eps:
        keys[KEY_INNER_EPS] = float(c.inner_eps)
    if family.multipliers:
        keys |= {".embedding_scale": float(c.embedding_scale), ".residual_scale": float(c.residual_scale),
                 ".logit_scale": 1.0 / c.logit_scale}
    kept = ("general.license", "general.author", "general.description", "general.url")
    keys |= {key: value for key, value in checkpoint.metadata.items() if key.startswith(basis.PREFIX)}
    keys |= {key: checkpoint.metadata[key] for key in kept if isinstance(checkpoint.metadata.get(key), str)}
    for name, value in checkpoint.sampling.items():
        keys[KEYS_SAMPLING[name]] = value if SETTINGS[name].kind == "whole" else float(value)
    keys = {f"{arch}{key}" if key.startswith(".") else key: value for key, value in keys.items()}
    keys |= {**(extra or {}), **tokenizer_keys(checkpoint)}
    # the reader takes a file with any key of ours at its word
    if type == "I2_S" and not any(key.startswith("bitnet_edge.") for key in keys):
        keys[KEY_LAYOUT] = "128"
    return keys


def rope_tensor(c: ModelConfig) -> tuple[str, Sequence[float]] | None:
    """Name and numbers of the tensor that holds the divisors of the rotation; None if keys can hold them."""
    rotation = next((mixer for mixer in c.attention if not mixer.window), c.attention[0]).rotation
    s = rotation.scaling
    if s is None or s.kind == "yarn":
        return None
    name = "rope_freqs.weight" if s.kind == "llama3" else "rope_factors_short.weight"
    return name, s.divisors(rotation.theta, rotation.dim)
