"""Hugging Face directories: config.json, safetensors (one or sharded), tokenizer files.

Ternary weights come in three forms: packed bytes (four codes a byte, ``weight_scale`` beside them), float weights
that already are scale x {-1, 0, 1}, and master weights that the model ternarises by absmean at each forward pass.
Packed weights are described as type "HF_U8" with the scale as a *multiplier*; float weights keep their type and the
packer decides (``metadata["ternary_marker"]`` says whether absmean may be used).
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from edge.config import ModelConfig
from edge.errors import InvalidFile, ModelNotFound, UsageError
from edge.formats import huggingface_tokenizer, names, safetensors
from edge.formats.checkpoint import Checkpoint, Tensor
from edge.formats.mapped import located, shown
from edge.formats.safetensors import Stored
from edge.formats.side_files import MAX_TOKENIZER, fail, read_json

#: config.json "architectures" we run; BitnetForCausalLM (small n) is 1bitLLM's own code
ARCHITECTURES = ("BitNetForCausalLM", "BitnetForCausalLM", "LlamaForCausalLM")

_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "self_attn.inner_attn_ln": "attn_sub_norm",  # 1bitLLM
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
    "mlp.ffn_layernorm": "ffn_sub_norm",  # 1bitLLM
}
_LAYER_NAME = re.compile(r"model\.layers\.(0|[1-9]\d{0,3})\.(.+)\.(weight|weight_scale)")



def read(path: str | os.PathLike[str], *, activation: str | None = None) -> Checkpoint:
    """Describe the ternary model in a directory (or of the directory that a .safetensors file is in).

    Raises ModelNotFound, InvalidFile (one line naming the file, key or tensor) or UsageError.
    """
    if activation not in (None, "relu2", "silu"):
        raise UsageError(f"activation {activation!r} is not known; use relu2 or silu")
    path = os.fspath(path)
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    raw = read_json(folder, "config.json")
    if raw is None:
        raise (InvalidFile if _pickles(folder) else ModelNotFound)(
            f"{folder}: no config.json, so this is no Hugging Face model directory")
    quantization = raw.get("quantization_config") or {}
    if not isinstance(quantization, dict):
        fail(folder, "config.json: quantization_config is no object")
    _check_kind(folder, raw, quantization)
    stored = _shards(folder)

    tensors, packed = _tensors(folder, stored, quantization)
    notes: list[str] = []
    config = _config(folder, raw, tensors, activation, notes)
    if config.tied:
        tensors.pop("output.weight", None)  # a saved copy of the embedding
    with located(folder):
        notes += names.check(config, tensors)
    marker = not packed and _is_marked(raw, quantization)
    if not packed and not marker:
        _check_scaled(folder, tensors["blk.0.attn_q.weight"])
    generation = read_json(folder, "generation_config.json") or {}
    settings = read_json(folder, "tokenizer_config.json", MAX_TOKENIZER) or {}
    template = huggingface_tokenizer.chat_template(folder, settings)
    return Checkpoint(
        path=path,
        format="huggingface",
        config=config,
        tensors=tensors,
        tokenizer=huggingface_tokenizer.read(folder, raw, generation, settings, template, config.n_vocab, notes),
        chat_template=template,
        metadata={**raw, "ternary_marker": marker},
        notes=notes,
    )


def _pickles(folder: str) -> list[str]:
    return [name for name in sorted(os.listdir(folder)) if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]


def _check_kind(folder: str, raw: Mapping[str, Any], quantization: Mapping[str, Any]) -> None:
    """Refuse, by name, what we know and do not run."""
    stated = raw.get("architectures")
    stated = stated if isinstance(stated, list) else []
    if not any(name in ARCHITECTURES for name in stated):
        fail(folder, f"architecture {shown(stated[0] if stated else raw.get('model_type'))} is not supported "
                      f"({', '.join(ARCHITECTURES)} are)")
    method = quantization.get("quant_method")
    if method not in (None, "bitnet"):
        fail(folder, f"quantised with {shown(method)}, not BitNet; use the ternary version of the model")
    if quantization.get("use_rms_norm"):
        fail(folder, "its projections have a norm of their own (use_rms_norm), which is not supported")
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key):
            fail(folder, f"config.json: {key} is set; models with biases are not supported")


def _shards(folder: str) -> dict[str, Stored]:
    """All tensors of model.safetensors, or of the shards that its index names."""
    index_path = os.path.join(folder, "model.safetensors.index.json")
    single = os.path.join(folder, "model.safetensors")
    if os.path.isfile(single):
        return safetensors.read(single)
    index = read_json(folder, "model.safetensors.index.json", MAX_TOKENIZER)
    if index is None:
        pickles = _pickles(folder)
        if pickles:
            fail(folder, f"only pickled weights ({shown(pickles[0])}), which can run code when opened; convert them "
                          "to safetensors where they came from")
        fail(folder, "no model.safetensors; get the weights as well")
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        fail(index_path, "weight_map is missing; get the file again")
    tensors: dict[str, Stored] = {}
    for name in sorted({str(value) for value in places.values()}):
        # A shard lies beside its index: a path would let a hostile index open any file.
        if os.path.basename(name) != name or not name.endswith(".safetensors"):
            fail(index_path, f"names shard {shown(name)}, which is no plain .safetensors file name")
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            fail(index_path, f"shard {shown(name)} is missing; get it as well")
        for key, value in safetensors.read(path).items():
            if key in tensors:
                fail(path, f"tensor {shown(key)} is in two shards")
            tensors[key] = value
    for key in places:
        if key not in tensors:
            fail(index_path, f"tensor {shown(key)} is in none of the shards; get them again")
    return tensors


def _tensors(folder: str, stored: Mapping[str, Stored],
             quantization: Mapping[str, Any]) -> tuple[dict[str, Tensor], bool]:
    """Tensors under GGUF names; and whether any is packed."""
    found: dict[str, Stored] = {}
    scales: dict[str, float] = {}
    for name, entry in stored.items():
        if name.endswith("rotary_emb.inv_freq"):
            continue  # recomputed from rope_theta
        match = _LAYER_NAME.fullmatch(name)
        if match and match[2] in _LAYER:
            target = f"blk.{match[1]}.{_LAYER[match[2]]}.weight"
        elif name.endswith(".weight") and name[:-7] in _TOP:
            target = _TOP[name[:-7]] + ".weight"
        elif name.endswith(".rms_norm.weight"):
            fail(folder, f"tensor {shown(name)}: projections with a norm of their own are not supported")
        else:
            fail(folder, f"tensor {shown(name)} is no part of this kind of model, so its answers would be wrong")
        if match and match[3] == "weight_scale":
            if math.prod(entry.shape) != 1 or entry.dtype in ("U8", "I8"):
                fail(folder, f"tensor {shown(name)} is not one float; the file is damaged")
            scales[target] = floats(entry.dtype, entry.data)[0]
        elif target in found:
            fail(folder, f"tensor {target} stands twice (last as {shown(name)})")
        else:
            found[target] = entry

    packed = any(entry.dtype == "U8" for entry in found.values())
    if packed and quantization.get("quant_method") != "bitnet":
        fail(folder, "packed weights, but config.json has no quantization_config of method bitnet, so nothing says "
                      "whether weight_scale multiplies or divides; add it")
    # AutoBitLinear multiplies by weight_scale (= mean|w|); BitLinear, the default, divides (1/mean|w|).
    divides = quantization.get("linear_class", "bitlinear") != "autobitlinear"
    tensors = {}
    for target, entry in found.items():
        scale = scales.get(target, 1.0)
        if target in scales:
            if not math.isfinite(scale) or scale <= 0.0:
                fail(folder, f"tensor {target} has weight_scale {scale}; the file is damaged, get it again")
            scale = 1.0 / scale if divides else scale
        if entry.dtype == "I8":
            fail(folder, f"tensor {target} is stored as I8, which is not supported; get the packed (U8) version")
        if entry.dtype != "U8":
            if target in scales:
                fail(folder, f"tensor {target} has a weight_scale but is not packed; the file is damaged")
            tensors[target] = Tensor(target, entry.dtype, entry.shape, entry.data)
            continue
        if len(entry.shape) != 2 or target not in scales:
            fail(folder, f"tensor {target} is packed but has no weight_scale; get the file again")
        rows, k = entry.shape
        tensors[target] = Tensor(target, "HF_U8", (rows * 4, k), entry.data, scale)
    return tensors, packed


def floats(dtype: str, data: memoryview) -> Sequence[float]:
    """A few stored floats as Python floats (F32, F16, BF16)."""
    if dtype == "F32":
        return struct.unpack(f"<{len(data) // 4}f", data)
    if dtype == "F16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    wide = bytearray(2 * len(data))  # BF16 is the upper half of a float32
    wide[2::4], wide[3::4] = data[::2], data[1::2]
    return struct.unpack(f"<{len(data) // 2}f", wide)


def _is_marked(raw: Mapping[str, Any], quantization: Mapping[str, Any]) -> bool:
    """Whether float weights are master weights, to be ternarised by absmean."""
    small_n = "BitnetForCausalLM" in (raw.get("architectures") or [])
    return quantization.get("quant_method") == "bitnet" or small_n or raw.get("weight_bits") == 1


def _check_scaled(folder: str, tensor: Tensor) -> None:
    """Refuse a dense model early: without a marker, float weights must already be scale x {-1, 0, 1}.

    Looks at 256 neighbours of the first matrix: scales in groups of 32 or more would give at most 8 magnitudes.
    """
    width = 4 if tensor.type == "F32" else 2
    sample = floats(tensor.type, tensor.data[: min(256, tensor.shape[1]) * width])
    if len({abs(value) for value in sample if value}) > 16:
        fail(folder, "a dense model: its weights are not ternary and config.json has no BitNet quantization_config; "
                      "get the ternary (packed or GGUF) version")


def _config(folder: str, raw: Mapping[str, Any], tensors: Mapping[str, Tensor], override: str | None,
            notes: list[str]) -> ModelConfig:
    """ModelConfig from config.json and a few shapes."""

    def number(key: str, default: float | None, source: Mapping[str, Any] = raw) -> Any:
        value = source.get(key)
        value = default if value is None else value
        if value is None:
            fail(folder, f"config.json: {key} is missing; get the file again")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
            fail(folder, f"config.json: {key} is {shown(value)}, not a sensible number")
        return value

    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        fail(folder, "tensor model.embed_tokens.weight is missing; get the files again")
    n_vocab = embedding.shape[0]
    if raw.get("vocab_size") not in (None, n_vocab):
        notes.append(f"config.json says vocab_size {shown(raw['vocab_size'])}, the embedding has {n_vocab} rows; "
                     f"taken as {n_vocab}")
    hidden = number("hidden_size", None)
    n_head = number("num_attention_heads", None)
    head_dim = number("head_dim", hidden // n_head if n_head else 0)

    # old files: rope_theta at the top and rope_scaling; new files: rope_parameters
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        fail(folder, "config.json: rope_parameters is no object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear"):
        fail(folder, f"config.json: rope type {shown(kind)} is not supported (default and linear are)")
    theta = number("rope_theta", number("rope_theta", 10000.0), rope)
    partial = number("partial_rotary_factor", number("partial_rotary_factor", 1.0), rope)

    bitnet = any(name in ("BitNetForCausalLM", "BitnetForCausalLM") for name in raw["architectures"])
    said = raw.get("hidden_act") or ("relu2" if bitnet else "silu")
    said = "silu" if said == "swish" else said
    if said not in ("relu2", "silu"):
        fail(folder, f"config.json: hidden_act {shown(said)} is not supported (relu2 and silu are)")
    if override not in (None, said):
        notes.append(f"activation {override} as asked, although config.json says {said}")
    sub_norm = "blk.0.attn_sub_norm.weight" in tensors
    activation = override or said
    untied = "output.weight" in tensors
    tied = raw.get("tie_word_embeddings")
    if tied is None:
        tied = not untied
    elif not tied and not untied:
        fail(folder, "tensor lm_head.weight is missing although config.json says tie_word_embeddings false")
    arch = ("bitnet-b1.58" if activation == "relu2" else "bitnet") if sub_norm else "llama"
    name = raw.get("_name_or_path")
    name = name if isinstance(name, str) and name.isprintable() and len(name) < 200 else None
    with located(f"{folder}/config.json"):
        return ModelConfig(
            arch=arch,
            name=name or os.path.basename(os.path.abspath(folder)),
            n_layer=number("num_hidden_layers", None),
            hidden=hidden,
            ffn=number("intermediate_size", None),
            n_head=n_head,
            n_kv_head=number("num_key_value_heads", n_head),
            head_dim=head_dim,
            n_vocab=n_vocab,
            n_ctx_train=number("max_position_embeddings", 2048),
            rope_theta=float(theta),
            rope_dim=int(head_dim * partial),
            rope_style="half",
            eps=float(number("rms_norm_eps", 1e-5)),
            activation=activation,
            sub_norm=sub_norm,
            tied=bool(tied),
            rope_scale=float(number("factor", None, rope)) if kind == "linear" else 1.0,
            activation_quant=(raw.get("quantization_config") or {}).get("activation_quantization", "int8"),
        )
