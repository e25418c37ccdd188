"""Reads ternary models from GGUF files.

The container is read by :mod:`edge.formats.gguf_header` and written by :mod:`edge.formats.gguf_writer`.  This module
has what is known about ternary models in GGUF files: architectures and their conventions, type ids that mean different
things in different forks, and which files are refused with which message.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any

from edge.config import ModelConfig
from edge.errors import UsageError
from edge.formats import basis, names
from edge.formats.checkpoint import (
    MOST_TEMPLATES,
    PLANE_TYPES,
    TEMPLATE_NAME,
    TERNARY_TYPES,
    WEIGHT_ONLY,
    Checkpoint,
    Tensor,
    TokenizerSpec,
)
from edge.formats.gguf_header import (
    ALIGNMENT,
    TYPE_IDS,
    TYPES,
    Header,
    StringArray,
    TensorInfo,
    read_header,
    tensor_bytes,
)
from edge.formats.gguf_keys import (
    KEY_IGNORE_MERGES,
    KEY_INNER_EPS,
    KEY_PATTERN,
    KEY_PLANES,
    KEY_TEMPLATE,
    KEYS_EOS,
    KEYS_SAMPLING,
)
from edge.formats.gguf_writer import Entry, write
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
from edge.registry.families import FAMILIES, Family, refusal, supported
from edge.sampling import recommended

__all__ = [
    "TYPES",
    "TYPE_IDS",
    "Entry",
    "Header",
    "StringArray",
    "TensorInfo",
    "read",
    "read_header",
    "read_tokenizer",
    "tensor_bytes",
    "write",
]

LAYOUTS = ("128", "64", "1x4")
#: other names of activations
_ACTIVATION_NAMES = {"relu_squared": "relu2", "relu_sqr": "relu2", "swish": "silu", "gelu_pytorch_tanh": "gelu"}
#: file names of a model in several parts, and their largest number
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
MOST_PARTS = 256
#: a scale is the mean size of latent weights and far below this; its reciprocal, stored by some converters, is above
LARGE_SCALE = 4.0
#: tokens of the Llama-3 vocabulary
LLAMA3_TOKENS = 128256

#: pre-tokenisers that split like Llama 3 and whose tokenizers put BOS first
_LLAMA3_PRE = ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "falcon_e")

_AGAIN = "download or convert the model again as I2_S or TQ2_0"
#: ids whose meaning depends on the program that wrote the file, or that are only named in messages
_FOREIGN: dict[int, str] = {
    37: f"I8_S; {_AGAIN}",
    38: f"TL1, a table layout that can only be decoded with the tile sizes of the machine that wrote it; {_AGAIN}",
}
#: possible meanings of an id: (type, weights per block, bytes per block, bytes before a row); the size of the largest
#: tensor decides
_FORKS: dict[int, tuple[tuple[str, int, int, int], ...]] = {
    40: (("Q1_0_G32", 32, 6, 0),),
    41: (("Q1_0", 128, 18, 0),),
    42: (("Q2_0", 64, 18, 0), ("PQ2_0", 128, 34, 0), ("STQ1_0", 256, 42, 0)),
    43: (("STQ1_0", 256, 42, 0),),
    134: (("IQ1_BN", 64, 13, 2),),
    135: (("IQ2_BN", 64, 16, 4),),
    143: (("PTQ1_0", 128, 28, 0),),
    335: (("IQ2_BN_R4", 64, 16, 4),),
}

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
))  # fmt: skip


def read(
    path: str | os.PathLike[str],
    *,
    i2s_layout: str = "auto",
    activation: str | None = None,
    inverted: bool = False,
    ternarise: bool = False,
    dense: bool = False,
) -> Checkpoint:
    """Describe a ternary model in a GGUF file.

    ``i2s_layout``: how I2_S codes are arranged.  Files do not state it; "auto" means "128" until
    :mod:`edge.model.reading` tests it.  ``activation``: "relu2" or "silu", instead of the file's.  ``inverted``: the
    scales of I2_S matrices divide.  ``ternarise``: round float matrices to ternary ones.  ``dense``: take an ordinary
    model, whose matrices are floats.

    Raises ModelNotFound, InvalidFile (one line naming the key or tensor) or UsageError.
    """
    if i2s_layout not in ("auto", *LAYOUTS):
        raise UsageError(f"i2s layout {i2s_layout!r} is not known; use auto or one of {', '.join(LAYOUTS)}")
    if activation not in (None, "relu2", "silu"):
        raise UsageError(f"activation {activation!r} is not known; use relu2 or silu")
    header = _joined(read_header(path))
    notes: list[str] = []
    templates = _templates(header)
    family = _check_kind(header)
    types = _types(header, family.arch)
    tensors = _tensors(header, types, "128" if i2s_layout == "auto" else i2s_layout, inverted, ternarise, dense)
    bases = basis.read(header)
    for name, of in bases.of.items():
        tensors[name] = tensors[name]._replace(basis=of)
    if family.delta_period:
        tensors = _text_part(header, family.arch, tensors, notes)
    config = _config(header, family, tensors, bases, activation, notes)
    if not dense:
        _check_projections(header, tensors)
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        tensors.pop(name, None)  # in the configuration by now
    with located(header.path):
        notes += names.check(config, tensors)
    spec = _tokenizer(header, config.n_vocab, notes)
    return Checkpoint(
        path=header.path,
        format="gguf",
        config=config,
        tensors=tensors,
        tokenizer=spec,
        chat_template=header.text(KEY_TEMPLATE) or next(iter(templates.values()), None),
        templates=templates,
        metadata=header.metadata,
        notes=notes,
        open=_open(header, family, tensors, config, i2s_layout, activation, inverted),
        sampling=recommended(KEYS_SAMPLING, header.metadata, notes),
    )


def _open(
    header: Header,
    family: Family,
    tensors: dict[str, Tensor],
    config: ModelConfig,
    i2s_layout: str,
    activation: str | None,
    inverted: bool,
) -> dict[str, tuple[Any, ...]]:
    """What the file does not state: option -> possible values, the one in use first.

    Empty if the caller names the activation.
    """
    found: dict[str, tuple[Any, ...]] = {}
    if activation is not None or any(key.startswith("bitnet_edge.") for key in header.metadata):  # the latter: ours
        return found
    scales = sorted(_stored_scale(tensor) for tensor in tensors.values() if tensor.type == "I2_S")
    if i2s_layout == "auto" and scales:
        found["i2s_layout"] = ("128", "64")
        if scales[len(scales) // 2] > LARGE_SCALE:
            found["inverted"] = (inverted, not inverted)
    feed_forward = config.layers[0].feed_forward
    if header.text(f"{family.arch}.hidden_activation") is None and feed_forward.sub_norm:
        found["activation"] = ("silu", "relu2") if feed_forward.activation == "silu" else ("relu2", "silu")
    return found


def _templates(header: Header) -> dict[str, str]:
    """The chat templates that have a name: ``tokenizer.chat_template.NAME``."""
    found: dict[str, str] = {}
    for key in header.metadata:
        name = key.removeprefix(f"{KEY_TEMPLATE}.")
        if name != key and TEMPLATE_NAME.fullmatch(name) and len(found) < MOST_TEMPLATES:
            found[name] = header.text(key) or ""
    return found


def read_tokenizer(path: str | os.PathLike[str]) -> TokenizerSpec:
    """The tokenizer of a GGUF file, which may hold only a vocabulary."""
    header = read_header(path)
    return _tokenizer(header, len(header.strings("tokenizer.ggml.tokens")), [])


def _joined(header: Header) -> Header:
    """The header of a model in several files (``-00001-of-00003.gguf``) with the tensors of all of them."""
    count, number = header.integer("split.count", 1) or 1, header.integer("split.no", 0) or 0
    if count == 1:
        return header
    match = _PART.fullmatch(os.path.basename(header.path))
    if match is None or number != 0 or not 1 < count <= MOST_PARTS or int(match[3]) != count or int(match[2]) != 1:
        header.fail(f"part {number + 1} of a model in {count} files; open the first, whose name ends in "
                    "-00001-of-0000N.gguf, with the others beside it")
    tensors = dict(header.tensors)
    for part in range(2, count + 1):
        name = f"{match[1]}-{part:05}-of-{match[3]}.gguf"
        path = os.path.join(os.path.dirname(header.path), name)
        if not os.path.isfile(path):
            header.fail(f"the model is in {count} files, and {shown(name)} is not beside it; get it as well")
        other = read_header(path)
        if other.integer("split.count") != count or other.integer("split.no") != part - 1:
            other.fail(f"is not part {part} of {count} of the model; get the files again")
        for key, info in other.tensors.items():
            if key in tensors:
                other.fail(f"tensor {shown(key)} is in two files of the model; get them again")
            tensors[key] = info
    meant = header.integer("split.tensors.count", len(tensors))
    if meant != len(tensors):
        header.fail(f"its {count} files hold {len(tensors)} tensors, not {meant}; get them again")
    return replace(header, tensors=tensors)


def _check_kind(header: Header) -> Family:
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


def _types(header: Header, arch: str) -> dict[str, tuple[str, int]]:
    """Tensor name -> (type, bytes).  An id that differs between forks is resolved by the bytes that the tensor
    spans.
    """
    _check_types(header, arch)
    meant: dict[int, tuple[str, int, int, int]] = {}
    for type_id, candidates in _FORKS.items():
        mine = [info for info in header.tensors.values() if info.type_id == type_id]
        if not mine:
            continue
        largest = max(mine, key=lambda info: info.span)
        fitting = [form for form in candidates if 0 <= largest.span - (_size(largest, form) or -1) < header.alignment]
        if not fitting:
            header.fail(f"tensor {shown(largest.name)} has type {type_id} and {largest.span} bytes for "
                        f"{math.prod(largest.dims)} weights, which is not a known layout; {_AGAIN}")
        meant[type_id] = fitting[0]
    types = {}
    for info in header.tensors.values():
        if info.type_id not in meant:
            assert info.nbytes is not None  # foreign types were refused
            types[info.name] = (info.type, info.nbytes)
            continue
        form = meant[info.type_id]
        nbytes = _size(info, form)
        if nbytes is None or nbytes > info.span:
            header.fail(f"tensor {shown(info.name)} of {info.dims} does not fit the blocks of {form[0]}; the file is "
                        "damaged")
        types[info.name] = (form[0], nbytes)
    return types


def _size(info: TensorInfo, form: tuple[str, int, int, int]) -> int | None:
    """Bytes of a tensor whose type has blocks of ``form``; None if its rows are not whole blocks."""
    _, elements, size, prefix = form
    n, k = math.prod(info.dims), info.dims[0]
    return None if k % elements else n // elements * size + n // k * prefix


def _check_types(header: Header, arch: str) -> None:
    for info in header.tensors.values():
        reason = _foreign(info, arch)
        if reason:
            header.fail(f"tensor {shown(info.name)} has type {reason}")
    if "token_embd.weight" not in header.tensors:
        header.fail("it holds no weights (token_embd.weight is missing): a vocabulary-only or incomplete file")


def _check_projections(header: Header, tensors: dict[str, Tensor]) -> None:
    """Refuse models that are not ternary: float matrices must be scale x {-1, 0, 1}, unless ``ternarise`` rounds
    them.
    """
    projections = [tensor for name, tensor in tensors.items() if names.is_projection(name)]
    if not projections or any(tensor.type in TERNARY_TYPES for tensor in projections):
        return
    first = projections[0]
    if first.floats == "latent" or names.looks_ternary(first):
        return
    kinds = ", ".join(sorted({tensor.type for tensor in projections}))
    header.fail(f"a dense model (its matrices are {kinds}), not a ternary one; convert it with --planes auto, run it "
                "with llama.cpp, or, if these are the latent weights of a ternary model, convert it with --ternarise")


def _foreign(info: TensorInfo, arch: str) -> str | None:
    """The reason why a tensor's type cannot be read, from id, architecture and byte span (ids differ between forks);
    None if it can be read.
    """
    n, k = math.prod(info.dims), info.dims[0]
    if info.type_id == TYPE_IDS["I2_S"]:
        # 36 was IQ4_NL_4_4 in llama.cpp once: 18 bytes per 32 weights, more than twice as long
        nl = n // 32 * 18
        if n >= 1024 and nl <= info.span < nl + ALIGNMENT:
            return f"36 with the size of IQ4_NL_4_4, not of I2_S; {_AGAIN}"
        return None
    if info.type_id in TYPES:
        return None
    if info.type_id in (39, 42):
        if arch.startswith(("bitnet", "llama")) and len(info.dims) == 2 and k > 256:
            rows = n // k
            tl2 = -(-((k - 256) * rows // 3 * 5 // 8 + 256 * rows // 2 * 4 // 8) // 32) * 32 + 32
            if tl2 <= info.span < tl2 + 64:
                return f"{info.type_id} with the size of TL2, which cannot be decoded without the sizes it was " \
                       f"written for; {_AGAIN}"
        if info.type_id == 39:
            return f"MXFP4 (or TL2); {_AGAIN}"
    if info.type_id == 40 and n // 64 * 36 <= info.span < n // 64 * 36 + ALIGNMENT:
        return f"40 with the size of NVFP4; {_AGAIN}"
    if info.type_id in _FORKS:
        return None
    if info.type_id in _FOREIGN:
        return f"{info.type_id}, {_FOREIGN[info.type_id]}"
    return f"id {info.type_id}, which is not known; {_AGAIN}"


def _text_part(header: Header, arch: str, tensors: dict[str, Tensor], notes: list[str]) -> dict[str, Tensor]:
    """The tensors that read and write text, with our names; without those of pictures and of layers that draft."""
    drafting = header.integer(f"{arch}.nextn_predict_layers", 0) or 0
    first = (header.integer(f"{arch}.block_count") or 0) - drafting
    found, skipped = {}, {"its vision part": 0, "the layers that predict further tokens": 0}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[0] in ("v", "mm"):
            skipped["its vision part"] += 1
        elif parts[0] == "mtp" or (drafting and parts[0] == "blk" and parts[1].isdigit() and int(parts[1]) >= first):
            skipped["the layers that predict further tokens"] += 1
        else:
            name = name.replace(".post_attention_norm.", ".ffn_norm.")
            if name in found:
                header.fail(f"tensor {shown(name)} appears twice; the file is damaged")
            found[name] = tensor._replace(name=name)
    notes += [f"{what} {'are' if what.endswith('s') else 'is'} not used" for what, n in skipped.items() if n]
    return found


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


def _hybrid(
    header: Header, family: Family, attention: Attention, n_layer: int, grouped: bool
) -> tuple[Attention | Delta, ...]:
    """The mixers of a hybrid model, of which ``attention`` is one."""
    period = header.integer(f"{family.arch}.full_attention_interval", family.delta_period) or 0
    if not 1 <= period <= n_layer:
        header.fail(f"{family.arch}.full_attention_interval is {period} for {n_layer} layers; the file is damaged")
    delta = _delta(header, family.arch, grouped)
    return tuple(delta if (i + 1) % period else attention for i in range(n_layer))


def _config(
    header: Header, family: Family, tensors: dict[str, Tensor], bases: basis.Bases, override: str | None,
    notes: list[str],
) -> ModelConfig:  # fmt: skip
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


def _query_scale(header: Header, arch: str, n_layer: int, n_head: int, hidden: int, head_dim: int) -> float:
    """What multiplies queries beside 1 / sqrt(head_dim), in a model with sliding windows."""
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
                         "has; if answers are garbage, use --activation silu")
            return "relu2"
    elif family.activation == "relu2" and (sentencepiece or (mha and theta == 10000.0)):
        why = "a SentencePiece vocabulary" if sentencepiece else "full attention and rope base 10000"
        notes.append(f"activation taken as SiLU: labelled {arch} but has {why}, as the 1bitLLM models do; "
                     "if answers are garbage, use --activation relu2")
        return "silu"
    return family.activation


def _tensors(
    header: Header, types: dict[str, tuple[str, int]], i2s_layout: str, inverted: bool, ternarise: bool, dense: bool
) -> dict[str, Tensor]:
    """Tensors by name; scales in ``.scale`` tensors are merged into the tensors they belong to."""
    scales: dict[str, float] = {}
    for name, info in header.tensors.items():
        if name.endswith(".scale") and name[:-6] + ".weight" in header.tensors:
            if info.type not in names.VECTOR_TYPES or math.prod(info.dims) != 1:
                header.fail(f"tensor {shown(name)} is not one float; the file is damaged")
            data = info.view[info.offset : info.offset + (info.nbytes or 0)]
            scales[name[:-6] + ".weight"] = names.floats(info.type, data)[0]
    tensors = {}
    for name, info in header.tensors.items():
        if name.endswith(".scale") and name[:-6] + ".weight" in scales:
            continue
        type_name, nbytes = types[name]
        shape = info.shape
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]  # ggml's trailing dimensions of 1 mean nothing
        tensor = Tensor(
            name=name,
            type=type_name,
            shape=shape,
            data=info.view[info.offset : info.offset + nbytes],
            scale=scales.get(name, 1.0),
            layout=i2s_layout if type_name == "I2_S" else "128",
            # floats of a GGUF are what they are: dense unless their values are ternary already
            floats="latent" if ternarise else "dense" if dense else "either",
        )
        if tensor.type == "I2_S" and inverted:
            tensor = tensor._replace(scale=tensor.scale * _inverse_square(tensor))
        if tensor.type == "I2_S":
            # n/4 bytes cannot hold a last block that is not full: its columns lie in bytes that were cut off
            whole = shape[0] % 4 == 0 if i2s_layout == "1x4" else math.prod(shape) % int(i2s_layout) == 0
            if not whole:
                header.fail(f"tensor {shown(name)} of shape {shape} cannot be I2_S in layout {i2s_layout}")
        tensors[name] = tensor
    return tensors


def _stored_scale(tensor: Tensor) -> float:
    """The scale that an I2_S tensor stores after its codes."""
    return float(struct.unpack_from("<f", tensor.data, len(tensor.data) - 32)[0])


def _inverse_square(tensor: Tensor) -> float:
    """The factor that turns the stored scale of an I2_S tensor into its reciprocal; 1 if there is no such scale."""
    stored = _stored_scale(tensor)
    return 1.0 / stored**2 if 1e-12 < abs(stored) < 1e12 else 1.0


def _tokenizer(header: Header, n_vocab: int, notes: list[str]) -> TokenizerSpec:
    """TokenizerSpec from ``tokenizer.ggml.*``; kind "none" if the file has no tokenizer."""
    model = header.text("tokenizer.ggml.model", "none")
    tokens = header.strings("tokenizer.ggml.tokens")
    if model in ("none", "no_vocab") or not tokens:
        notes.append("the file has no tokenizer: it accepts token ids only")
        return TokenizerSpec(kind="none", add_bos=False)
    if model not in ("gpt2", "llama"):
        header.fail(f"tokenizer type {shown(model)} is not supported (gpt2 and llama are)")
    if len(tokens) > n_vocab:
        header.fail(f"tokenizer.ggml.tokens has {len(tokens)} entries for {n_vocab} embedding rows; it is damaged")
    scores = header.numbers("tokenizer.ggml.scores")
    types = header.numbers("tokenizer.ggml.token_type")
    for key, values in (("scores", scores), ("token_type", types)):
        if values and len(values) != len(tokens):
            header.fail(f"tokenizer.ggml.{key} has {len(values)} entries for {len(tokens)} tokens; it is damaged")
    bpe = model == "gpt2"
    pre = header.text("tokenizer.ggml.pre", "") or ""
    if bpe and pre in ("", "default", "gpt-2") and len(tokens) == LLAMA3_TOKENS:
        # The official 2B-4T file has no pre, and some conversions have the wrong one.
        what = f"is {pre}" if pre else "is missing"
        notes.append(f"tokenizer.ggml.pre {what}; taken as llama-bpe because there are {LLAMA3_TOKENS} tokens")
        pre = "llama-bpe"

    def token_ids(key: str) -> list[int]:
        """The tokens of a key that holds one, or, with some converters, a list of them."""
        value = header.metadata.get(key)
        if not isinstance(value, memoryview):
            value = header.integer(key)
        found = []
        for number in () if value is None else [value] if isinstance(value, int) else value[:64]:
            if isinstance(number, int) and 0 <= number < n_vocab:
                found.append(number)
            else:
                notes.append(f"{key} {number} is not a token; ignored")
        return found

    def token_id(name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        found = token_ids(key)
        if len(set(found)) > 1:
            notes.append(f"{key} names {len(found)} tokens; taken as {found[0]}")
        return found[0] if found else None

    eos = [number for key in KEYS_EOS for number in token_ids(key)]
    bos = token_id("bos")
    add_bos = header.flag("tokenizer.ggml.add_bos_token", not bpe or pre in _LLAMA3_PRE)
    return TokenizerSpec(
        kind="bpe" if bpe else "sentencepiece",
        tokens=tokens,
        scores=scores,
        types=types,
        merges=header.strings("tokenizer.ggml.merges"),
        pre=pre,
        pattern=header.text(KEY_PATTERN),
        ignore_merges=header.flag(KEY_IGNORE_MERGES),
        bos_id=bos,
        eos_ids=tuple(dict.fromkeys(eos)),
        pad_id=token_id("padding"),
        unk_id=token_id("unknown"),
        add_bos=bool(add_bos) and bos is not None,
        add_space_prefix=bool(header.flag("tokenizer.ggml.add_space_prefix", not bpe)),
    )
