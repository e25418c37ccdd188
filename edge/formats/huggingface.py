"""Reads Hugging Face directories: config.json, safetensors (one or sharded), tokenizer files.

Ternary weights are stored in three ways: packed bytes (four codes per byte, with ``weight_scale``), float weights that
already are scale x {-1, 0, 1}, and master weights that the model rounds to ternary ones by absmean at each forward
pass.

Packed weights get the type "HF_U8" with the scale as a *multiplier*. Float weights keep their type and are rounded when
they are packed; ``metadata["ternary_marker"]`` is whether absmean may be used for that.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Any

from edge.config import ModelConfig
from edge.errors import InvalidFile, ModelNotFound
from edge.formats import huggingface_tokenizer, names, safetensors
from edge.formats.checkpoint import SEPARATE_EXPERTS, WEIGHT_ONLY, Checkpoint, Reading, Tensor
from edge.formats.mapped import located, shown
from edge.formats.safetensors import Stored
from edge.formats.side_files import MAX_TOKENIZER, fail, read_json
from edge.layers import Attention, Delta, Dense, Experts, LayerConfig, RopeScaling, Rotation, check_dimension
from edge.registry.encodings import VECTOR_TYPES
from edge.registry.families import BY_HUGGINGFACE, Family, refusal
from edge.sampling import recommended

Numbers = Callable[..., Any]  # key, default, and perhaps where else to look -> a number of config.json

#: "model." is missing if the checkpoint is of the model without its head
_TOP = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
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
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.query_layernorm": "attn_q_norm",  # Hunyuan
    "self_attn.key_layernorm": "attn_k_norm",
}
#: of gated delta layers
_LAYER |= {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
#: and those without .weight
_WHOLE = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"}
#: beginnings of names of tensors that are not needed for texts -> what they are
_SKIPPED = {"model.visual.": "its vision part is", "visual.": "its vision part is",
            "mtp.": "the layers that predict further tokens are"}
#: for models with a norm after each block, where the usual names have another meaning
_POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
#: norms that a family may store minus 1
_FROM_ONE = ("attn_norm", "ffn_norm", "output_norm", "attn_q_norm", "attn_k_norm", *_POST_NORMS.values())
_LAYER |= {
    f"{name}.rms_norm": f"{ours}_norm_in" for name, ours in _LAYER.items() if ours in names.PROJECTIONS
}
#: hidden_act -> our name
_ACTIVATIONS = {"relu2": "relu2", "silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu"}
#: up to transformers 4, and since 5
_N_EXPERT = ("num_experts", "num_local_experts")
#: of generation_config.json: what counts with do_sample only, and what changes answers but is not used here
_SAMPLED = {field: field for field in ("temperature", "top_k", "top_p", "min_p")}
_UNUSED = ("num_beams", "penalty_alpha", "no_repeat_ngram_size", "encoder_repetition_penalty",
           "encoder_no_repeat_ngram_size", "bad_words_ids", "sequence_bias", "suppress_tokens",
           "begin_suppress_tokens", "exponential_decay_length_penalty", "min_length", "min_new_tokens",
           "guidance_scale", "watermarking_config", "stop_strings", "dola_layers", "token_healing")
_UNUSED_SAMPLED = ("typical_p", "top_h", "epsilon_cutoff", "eta_cutoff")
_NEUTRAL: tuple[Any, ...] = (None, False, 0, 1, "", [], {})
#: bytes of two tensors that are compared at once
_BLOCK = 1 << 20
#: an expert's matrix, after the layer
_EXPERT = re.compile(r"mlp\.experts\.(0|[1-9]\d{0,3})\.(gate|up|down)_proj")
_WHOLE_NAME = re.compile(r"layers\.(0|[1-9]\d{0,3})\.(linear_attn\.A_log|linear_attn\.dt_bias)")
_LAYER_NAME = re.compile(r"layers\.(0|[1-9]\d{0,3})\.(.+)\.(weight|weight_scale|bias)")


def read(path: str | os.PathLike[str], reading: Reading) -> Checkpoint:
    """Describe the ternary model in a directory (or of the directory that a .safetensors file is in).

    Raises ModelNotFound, or InvalidFile (one line naming the file, key or tensor).
    """
    path = os.fspath(path)
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    raw = read_json(folder, "config.json")
    if raw is None:
        raise (InvalidFile if _pickles(folder) else ModelNotFound)(
            f"{folder}: no config.json, so this is not a Hugging Face model directory")
    quantization = raw.get("quantization_config") or {}
    if not isinstance(quantization, dict):
        fail(folder, "config.json: quantization_config is not an object")
    family = _check_kind(folder, raw, quantization)
    notes: list[str] = []
    stored = _shards(folder)
    if family.delta_period:
        text, stored = _text_part(folder, raw, stored, notes)
        raw = {**raw, **text}

    tensors, packed = _tensors(folder, family, stored, quantization, reading, _is_marked(raw, quantization))
    if raw.get("tie_word_embeddings"):
        _tie(tensors, notes)
    config = _config(folder, raw, family, tensors, reading.activation, notes)
    with located(folder):
        notes += names.check(config, tensors)
    first = next(tensor for name, tensor in tensors.items() if names.is_projection(name))
    if not packed and first.floats == "ternary" and not names.looks_ternary(first):
        fail(folder, "a dense model: its weights are not ternary and config.json has no BitNet quantization_config; "
                      "get the ternary (packed or GGUF) version, convert it with --planes 3, or, if these are the "
                      "latent weights of a ternary model, convert it with --ternarise")
    generation = read_json(folder, "generation_config.json") or {}
    settings = read_json(folder, "tokenizer_config.json", MAX_TOKENIZER) or {}
    templates = huggingface_tokenizer.chat_templates(folder, settings)
    template = templates.pop("default", None)
    either = (reading.inverted, not reading.inverted)
    return Checkpoint(
        path=path,
        format="huggingface",
        config=config,
        tensors=tensors,
        tokenizer=huggingface_tokenizer.read(folder, raw, generation, settings, template, config.n_vocab, notes),
        chat_template=template,
        templates=templates,
        metadata=raw,
        notes=notes,
        reading=reading,
        open={"inverted": either} if packed and "linear_class" not in quantization else {},
        sampling=_sampling(generation, notes),
    )


def _tie(tensors: dict[str, Tensor], notes: list[str]) -> None:
    """Leave one of the embedding and the output head if they are the same, as transformers 5 does."""
    table, head = (tensors.get(f"{name}.weight") for name in ("token_embd", "output"))
    if head is None:
        return
    if table is None:
        tensors["token_embd.weight"] = head._replace(name="token_embd.weight")
    elif (table.type, table.shape) != (head.type, head.shape) or any(
        bytes(table.data[at : at + _BLOCK]) != bytes(head.data[at : at + _BLOCK])
        for at in range(0, len(head.data), _BLOCK)
    ):
        notes.append("config.json says tie_word_embeddings, but lm_head.weight differs from the embedding: it is used")
        return
    del tensors["output.weight"]


def _sampling(generation: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """What generation_config.json recommends, as transformers takes it: penalties are of all tokens, and without
    do_sample the likeliest token is taken, whatever the keys of :data:`_SAMPLED` say.
    """
    asks = generation.get("do_sample") is True
    unused = [key for key in (*_UNUSED, *(_UNUSED_SAMPLED if asks else ())) if generation.get(key) not in _NEUTRAL]
    if unused:
        notes.append(f"generation_config.json: {', '.join(unused)} cannot be used: answers are made without")
    found = recommended({**(_SAMPLED if asks else {}), "repeat_penalty": "repetition_penalty"}, generation, notes)
    return {**found, "repeat_last_n": -1} if found.get("repeat_penalty", 1) != 1 else found


def _pickles(folder: str) -> list[str]:
    return [name for name in sorted(os.listdir(folder)) if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]


def _check_kind(folder: str, raw: Mapping[str, Any], quantization: Mapping[str, Any]) -> Family:
    """Refuse known models that are not supported, by name; returns the row of the architecture."""
    stated = raw.get("architectures")
    stated = [name for name in stated if isinstance(name, str)] if isinstance(stated, list) else []
    family = next((BY_HUGGINGFACE[name] for name in stated if name in BY_HUGGINGFACE), None)
    if family is None:
        name = stated[0] if stated else raw.get("model_type")
        why = refusal(f"{name} {raw.get('model_type')}")
        fail(folder, f"architecture {shown(name)} is not supported: it is {why}" if why else
                     f"architecture {shown(name)} is not supported ({', '.join(BY_HUGGINGFACE)} are)")
    if raw.get("quantization") is not None:
        fail(folder, "quantised by MLX, whose folders are not read; use a GGUF file of the model, or its original "
                     "Hugging Face folder")
    method = quantization.get("quant_method")
    if method not in (None, "bitnet"):
        fail(folder, f"quantised with {shown(method)}, not BitNet; use the ternary version of the model")
    for key in ("mlp_bias", "use_sliding_window", "use_cla", *_N_EXPERT, "attn_logit_softcapping",
                "final_logit_softcapping", "use_bidirectional_attention"):
        if raw.get(key) and not (key in _N_EXPERT and family.experts):
            fail(folder, f"config.json: {key} is set, which changes the arithmetic in a way that is not implemented; "
                         "answers would be wrong")
    return family


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
        # A shard lies in the folder of its index: a path would let a hostile index open any file.
        if os.path.basename(name) != name or not name.endswith(".safetensors"):
            fail(index_path, f"names shard {shown(name)}, which is not a plain .safetensors file name")
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


def _tensors(folder: str, family: Family, stored: Mapping[str, Stored], quantization: Mapping[str, Any],
             reading: Reading, latent: bool) -> tuple[dict[str, Tensor], bool]:
    """Tensors under GGUF names, and whether any of them is packed.  ``latent``: float weights are to be rounded to
    ternary ones.
    """
    layer = _LAYER | _POST_NORMS if family.post_norm else _LAYER
    if family.experts:
        layer = layer | {"mlp.gate": "ffn_gate_inp"}
    excluded = _not_converted(folder, quantization)
    dense: set[str] = set()
    found: dict[str, Stored] = {}
    scales: dict[str, float] = {}
    for name, entry in stored.items():
        if name.endswith("rotary_emb.inv_freq"):
            continue  # recomputed from rope_theta
        plain = name.removeprefix("model.")
        whole = _WHOLE_NAME.fullmatch(plain) if family.delta_period else None
        if whole:
            entry = _changed(folder, name, entry, _decay) if name.endswith("A_log") else entry
            found[f"blk.{whole[1]}.{_WHOLE[whole[2]]}"] = entry
            continue
        match = _LAYER_NAME.fullmatch(plain)
        expert = _EXPERT.fullmatch(match[2]) if match and family.experts else None
        if match and expert and match[3] != "bias":
            ours = f"blk.{match[1]}.ffn_{expert[2]}_exps.{int(expert[1])}.weight"
        elif match and match[2] in layer and (match[3] != "bias" or layer[match[2]] in names.PROJECTIONS):
            ours = f"blk.{match[1]}.{layer[match[2]]}.{'bias' if match[3] == 'bias' else 'weight'}"
            if any(excludes(name.rpartition(".")[0]) for excludes in excluded):
                dense.add(ours)
        elif plain.endswith(".weight") and plain[:-7] in _TOP:
            ours = _TOP[plain[:-7]] + ".weight"
        else:
            fail(folder, f"tensor {shown(name)} is not part of this kind of model, so its answers would be wrong")
        if match and match[3] == "weight_scale":
            if math.prod(entry.shape) != 1 or entry.dtype in ("U8", "I8"):
                fail(folder, f"tensor {shown(name)} is not one float; the file is damaged")
            scales[ours] = names.floats(entry.dtype, entry.data)[0]
        elif ours in found:
            fail(folder, f"tensor {ours} appears twice (last as {shown(name)})")
        else:
            found[ours] = entry

    packed = any(entry.dtype == "U8" for entry in found.values())
    if packed and quantization.get("quant_method") != "bitnet":
        fail(folder, "packed weights, but config.json has no quantization_config of method bitnet, so nothing says "
                      "whether weight_scale multiplies or divides; add it")
    # AutoBitLinear multiplies by weight_scale (= mean|w|); BitLinear, the default, divides (1/mean|w|).
    divides = (quantization.get("linear_class", "bitlinear") != "autobitlinear") is not reading.inverted
    tensors = {}
    for ours, entry in found.items():
        scale = scales.get(ours, 1.0)
        if ours in scales:
            if not math.isfinite(scale) or scale <= 0.0:
                fail(folder, f"tensor {ours} has weight_scale {scale}; the file is damaged, get it again")
            scale = 1.0 / scale if divides else scale
        if entry.dtype == "I8":
            fail(folder, f"tensor {ours} is stored as I8, which is not supported; get the packed (U8) version")
        if entry.dtype != "U8":
            if ours in scales:
                fail(folder, f"tensor {ours} has a weight_scale but is not packed; the file is damaged")
            if ours.endswith(".ssm_conv1d.weight") and len(entry.shape) == 3 and entry.shape[1] == 1:
                entry = entry._replace(shape=(entry.shape[0], entry.shape[2]))
            floats = "latent" if latent or reading.ternarise else "dense" if reading.dense else "ternary"
            floats = "dense" if ours in dense else floats
            if family.norms_from_one and ours.split(".")[-2] in _FROM_ONE and len(entry.shape) == 1:
                entry = _changed(folder, ours, entry, lambda value: value + 1.0)
            tensors[ours] = Tensor(ours, entry.dtype, entry.shape, entry.data, floats=floats)
            continue
        if len(entry.shape) != 2 or ours not in scales:
            fail(folder, f"tensor {ours} is packed but has no weight_scale; get the file again")
        rows, k = entry.shape
        tensors[ours] = Tensor(ours, "HF_U8", (rows * 4, k), entry.data, scale)
    return _stacked(folder, tensors), packed


def _stacked(folder: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with those of the experts of a layer (``blk.3.ffn_up_exps.17.weight``) as one."""
    found: dict[str, Tensor] = {}
    experts: dict[str, dict[int, Tensor]] = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if len(parts) == 5:
            experts.setdefault(".".join([*parts[:3], "weight"]), {})[int(parts[3])] = tensor
        else:
            found[name] = tensor
    for name, each in experts.items():
        if set(each) != set(range(len(each))):
            missing = min(set(range(len(each))) - set(each))
            fail(folder, f"number {missing} of the experts of {name} is missing; get the files again")
        shape = (len(each), *each[0].shape)
        stacked = tuple(each[i] for i in range(len(each)))
        found[name] = Tensor(name, SEPARATE_EXPERTS, shape, memoryview(b""), experts=stacked)
    return found


def _text_part(
    folder: str, raw: Mapping[str, Any], stored: Mapping[str, Stored], notes: list[str]
) -> tuple[dict[str, Any], dict[str, Stored]]:
    """What config.json says of the part that reads and writes text, and its tensors."""
    text = raw.get("text_config", {})
    if not isinstance(text, dict):
        fail(folder, "config.json: text_config is not an object")
    found, skipped = {}, set()
    for name, entry in stored.items():
        part = next((what for begin, what in _SKIPPED.items() if name.startswith(begin)), None)
        if part is not None:
            skipped.add(part)
            continue
        name = name.replace("model.language_model.", "model.", 1)
        if name in found:
            fail(folder, f"tensor {shown(name)} appears twice")
        found[name] = entry
    notes += [f"{part} not used" for part in sorted(skipped)]
    return {key: value for key, value in text.items() if key != "architectures"}, found


def _hybrid(
    folder: str, raw: Mapping[str, Any], family: Family, number: Numbers, attention: Attention, n_layer: int
) -> tuple[Attention | Delta, ...]:
    """The mixers of a hybrid model, of which ``attention`` is one."""
    kinds = _layer_types(
        folder, raw, "linear_attention", lambda: number("full_attention_interval", family.delta_period), n_layer)
    if number("linear_conv_kernel_dim", 4) != 4:
        fail(folder, "config.json: linear_conv_kernel_dim is not 4, which is not supported")
    delta = Delta(
        number("linear_num_key_heads", 16), number("linear_num_value_heads", 32), number("linear_key_head_dim", 128),
        number("linear_value_head_dim", 128), tiled=False)
    return tuple(attention if kind == "full_attention" else delta for kind in kinds)


def _decay(log: float) -> float:
    """The factor of the logarithm of g, of which the logarithm of the negative is stored."""
    if not abs(log) < 80:
        raise OverflowError
    return -math.exp(log)


def _changed(folder: str, name: str, entry: Stored, change: Callable[[float], float]) -> Stored:
    """A stored vector with other numbers."""
    if entry.dtype not in VECTOR_TYPES or len(entry.shape) != 1:
        fail(folder, f"tensor {shown(name)} is stored as {entry.dtype}, which is not supported")
    try:
        numbers = array("f", map(change, names.floats(entry.dtype, entry.data)))
    except OverflowError:
        fail(folder, f"tensor {shown(name)} holds a number that is not sensible; the file is damaged")
    return entry._replace(dtype="F32", data=memoryview(numbers).cast("B"))


def _layer_types(
    folder: str, raw: Mapping[str, Any], other: str, period: Callable[[], float], n_layer: int
) -> list[str]:
    """The kind of each layer: "full_attention" or ``other``.  Without the key ``layer_types`` each ``period()``-th is
    the former.
    """
    kinds = raw.get("layer_types")
    if kinds is None:
        each = int(period())
        kinds = [other if each > 0 and (i + 1) % each else "full_attention" for i in range(n_layer)]
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= {"full_attention", other}:
        fail(folder, f"config.json: layer_types holds other than full_attention and {other}, which is not supported")
    if len(kinds) != n_layer:
        fail(folder, f"config.json: layer_types has {len(kinds)} entries for {n_layer} layers; the file is damaged")
    return kinds


def _not_converted(folder: str, quantization: Mapping[str, Any]) -> list[Callable[[str], bool]]:
    """The modules that stay floats (``modules_to_not_convert``), as transformers reads the key: each entry is the
    beginning or the end of a module's name.
    """
    listed = quantization.get("modules_to_not_convert") or []
    if not isinstance(listed, list) or len(listed) > 4096 or not all(isinstance(entry, str) for entry in listed):
        fail(folder, "config.json: modules_to_not_convert is not a list of names; the file is damaged")

    def of(entry: str) -> Callable[[str], bool]:
        return lambda name: name == entry or name.startswith(f"{entry}.") or name.endswith(f".{entry}")

    return [of(entry) for entry in listed if entry]


def _is_marked(raw: Mapping[str, Any], quantization: Mapping[str, Any]) -> bool:
    """Whether float weights are master weights, to be rounded to ternary ones by absmean."""
    bitnet = any(name in ("BitnetForCausalLM", "BitNetForCausalLM") for name in raw.get("architectures") or [])
    return quantization.get("quant_method") == "bitnet" or bitnet or raw.get("weight_bits") == 1


def _number(
    folder: str, raw: Mapping[str, Any], key: str, default: float | None, source: Mapping[str, Any] | None = None
) -> Any:
    """A number of config.json, or of a part of it, checked."""
    value = (raw if source is None else source).get(key)
    value = default if value is None else value
    if value is None:
        fail(folder, f"config.json: {key} is missing; get the file again")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
        fail(folder, f"config.json: {key} is {shown(value)}, not a sensible number")
    return value


def _experts(
    folder: str, raw: Mapping[str, Any], number: Numbers, dense: Dense, n_layer: int
) -> Iterator[Dense | Experts]:
    """The feed-forward part of each layer of a model with experts; ``dense``: of layers without."""
    only, step = raw.get("mlp_only_layers") or [], number("decoder_sparse_step", 1)
    if not isinstance(only, list):
        fail(folder, "config.json: mlp_only_layers is not a list; the file is damaged")
    if not isinstance(step, int) or step < 1:
        fail(folder, f"config.json: decoder_sparse_step is {shown(step)}, which is not valid")
    named = [key for key in _N_EXPERT if raw.get(key) is not None] or _N_EXPERT
    if any(raw.get(key) != raw.get(named[0]) for key in named):
        fail(folder, f"config.json: {' and '.join(named)} differ; get the file again")
    experts = Experts(number(named[0], None), number("num_experts_per_tok", None),
                      number("moe_intermediate_size", None), bool(raw.get("norm_topk_prob", False)))
    for i in range(n_layer):
        yield dense if i in only or (i + 1) % step else experts


def _sliding(
    folder: str, raw: Mapping[str, Any], family: Family, number: Numbers, far: Attention, n_layer: int
) -> tuple[Attention, ...]:
    """The mixers of a model some of whose layers have a sliding window; ``far``: one that sees everything."""
    kinds = _layer_types(
        folder, raw, "sliding_attention",
        lambda: number("sliding_window_pattern", number("_sliding_window_pattern", family.window_period)), n_layer)
    rope = raw.get("rope_parameters")
    rope = rope.get("sliding_attention") if isinstance(rope, dict) else None
    rope = rope if isinstance(rope, dict) else {}
    if rope.get("rope_type", "default") != "default":
        fail(folder, f"config.json: rope type {shown(rope['rope_type'])} of sliding_attention is not supported "
                     "(default is)")
    if "sliding_attention" not in kinds:
        return (far,) * n_layer
    theta = float(number("rope_theta", number("rope_local_base_freq", 10000.0), rope))
    sliding = far.sliding(int(number("sliding_window", None)), theta)
    return tuple(sliding if kind == "sliding_attention" else far for kind in kinds)


def _rotation(
    folder: str, raw: Mapping[str, Any], family: Family, number: Numbers, head_dim: int, n_ctx: int, notes: list[str]
) -> tuple[Rotation, int]:
    """The rotary embedding, and the context length that it is good for."""
    # old files: rope_theta at the top and rope_scaling; new files: rope_parameters
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if isinstance(rope, dict) and isinstance(rope.get("full_attention"), dict):  # by the kind of layer
        rope = rope["full_attention"]
    if not isinstance(rope, dict):
        fail(folder, "config.json: rope_parameters is not an object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = float(number("rope_theta", number("rope_theta", family.rope_theta), rope))
    partial = number("partial_rotary_factor", number("partial_rotary_factor", family.partial_rotary), rope)
    scale, scaling = 1.0, None
    original = int(number("original_max_position_embeddings",
                          number("original_max_position_embeddings", n_ctx), rope))

    def attention_factor(default: float) -> float:
        return float(number("attention_factor", default, rope))

    if kind in ("default", "linear"):
        scale = float(number("factor", None, rope)) if kind == "linear" else 1.0
    elif kind == "dynamic" and rope.get("alpha"):  # Hunyuan: a fixed stretch of the base
        if head_dim > 2:
            theta *= float(number("alpha", None, rope)) ** (head_dim / (head_dim - 2))
    elif kind == "llama3":
        scaling = RopeScaling(
            "llama3", float(number("factor", None, rope)), original, low_freq=float(number("low_freq_factor", 1, rope)),
            high_freq=float(number("high_freq_factor", 4, rope)))
    elif kind == "yarn":
        factor = float(number("factor", None, rope))
        if rope.get("truncate") is False or rope.get("mscale") or rope.get("mscale_all_dim"):
            fail(folder, "config.json: a variant of yarn (truncate, mscale) that is not supported")
        scaling = RopeScaling(
            "yarn", factor, original, float(number("beta_fast", 32, rope)), float(number("beta_slow", 1, rope)),
            mscale=attention_factor(0.1 * math.log(factor) + 1 if factor > 1 else 1.0))
    elif kind in ("longrope", "su"):
        factors = rope.get("short_factor")
        if not isinstance(factors, list) or not all(type(value) in (int, float) for value in factors):
            fail(folder, "config.json: short_factor of longrope is not a list of numbers; the file is damaged")
        stretch = max(1.0, float(number("factor", n_ctx / original, rope)) if original > 0 else 1.0)
        mscale = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 and original > 1 else 1.0
        scaling = RopeScaling("factors", factors=tuple(map(float, factors)), mscale=attention_factor(mscale))
        if original < n_ctx:
            notes.append(f"runs with the rotation of its original context of {original} tokens (longrope): longer "
                         "texts are not supported")
            n_ctx = original
    else:
        fail(folder, f"config.json: rope type {shown(kind)} is not supported (default, linear, yarn, llama3 and "
                     "longrope are)")
    return Rotation(theta, int(head_dim * partial), "half", scale, scaling), n_ctx


def _config(folder: str, raw: Mapping[str, Any], family: Family, tensors: Mapping[str, Tensor], override: str | None,
            notes: list[str]) -> ModelConfig:
    """ModelConfig from the architecture, config.json and the shapes of a few tensors."""
    number = partial(_number, folder, raw)
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        fail(folder, "tensor model.embed_tokens.weight is missing; get the files again")
    n_vocab = embedding.shape[0]
    if raw.get("vocab_size") not in (None, n_vocab):
        notes.append(f"config.json says vocab_size {shown(raw['vocab_size'])}, the embedding has {n_vocab} rows; "
                     f"taken as {n_vocab}")
    hidden = number("hidden_size", None)
    n_head = number("num_attention_heads", None)
    n_layer = number("num_hidden_layers", None)
    with located(f"{folder}/config.json"):
        for dimension, value in (("hidden", hidden), ("n_head", n_head), ("n_layer", n_layer)):
            check_dimension(dimension, value)  # others are derived from these
        head_dim = number("head_dim", hidden // n_head)
        check_dimension("head_dim", head_dim)
    quantization = raw.get("quantization_config") or {}

    bitnet = family.arch.startswith("bitnet")
    said = raw.get("hidden_activation") or raw.get("hidden_act") or ("relu2" if bitnet else family.activation)
    if str(said) not in _ACTIVATIONS:
        fail(folder, f"config.json: hidden_act {shown(said)} is not supported ({', '.join(_ACTIVATIONS)} are)")
    said = _ACTIVATIONS[said]
    if override not in (None, said):
        notes.append(f"activation {override} as asked, although config.json says {said}")
    sub_norm = "blk.0.attn_sub_norm.weight" in tensors
    activation = override or said
    tied = "output.weight" not in tensors
    headless = any(name.endswith("Model") for name in raw["architectures"])
    if tied and not headless and raw.get("tie_word_embeddings") not in (None, True):
        fail(folder, "tensor lm_head.weight is missing although config.json says tie_word_embeddings false")
    arch = family.arch
    if bitnet or arch == "llama":
        arch = ("bitnet-b1.58" if activation == "relu2" else "bitnet") if sub_norm else "llama"
    inner_norm = "blk.0.attn_q_norm_in.weight" in tensors
    if bool(quantization.get("use_rms_norm")) is not inner_norm:
        fail(folder, "config.json: use_rms_norm and the norms in front of projections do not agree; get the files "
                     "again")
    multipliers = {}
    if family.multipliers:
        multipliers = {
            "embedding_scale": float(number("scale_emb", 1.0)),
            "residual_scale": float(number("scale_depth", 1.0)) / n_layer**0.5,
            "logit_scale": float(number("dim_model_base", hidden)) / hidden,
        }
    if family.root_embedding:
        multipliers["embedding_scale"] = math.sqrt(hidden)
    name = raw.get("_name_or_path")
    name = name if isinstance(name, str) and name.isprintable() and len(name) < 200 else None
    quant = quantization.get("activation_quantization")
    weight_only = family.weight_only and quantization.get("quant_method") is None
    query_scale = 1.0
    if family.window_period:
        query_scale = math.sqrt(head_dim / max(1, number("query_pre_attn_scalar", head_dim)))
    with located(f"{folder}/config.json"):
        rotation, n_ctx = _rotation(
            folder, raw, family, number, head_dim, number("max_position_embeddings", 2048), notes)
        attention = Attention(
            n_head,
            number("num_key_value_heads", n_head),
            head_dim,
            rotation,
            sub_norm=sub_norm,
            qk_norm=family.qk_norm if raw.get("use_qk_norm", True) else "",
            qkv_bias="blk.0.attn_q.bias" in tensors,
            gated=family.delta_period > 0,
            query_scale=query_scale,
        )
        dense = Dense(number("intermediate_size", None), activation, sub_norm)
        mixers: Iterable[Attention | Delta] = repeat(attention)
        if family.window_period:
            mixers = _sliding(folder, raw, family, number, attention, n_layer)
        elif family.delta_period:
            mixers = _hybrid(folder, raw, family, number, attention, n_layer)
        parts = _experts(folder, raw, number, dense, n_layer) if family.experts else repeat(dense)
        layers = tuple(
            LayerConfig(mixer, part, inner_norm, family.post_norm)
            for _, mixer, part in zip(range(n_layer), mixers, parts)  # noqa: B905  repeats have no end
        )
        return ModelConfig(
            arch=arch,
            name=name or os.path.basename(os.path.abspath(folder)),
            hidden=hidden,
            n_vocab=n_vocab,
            n_ctx_train=n_ctx,
            eps=float(number("rms_norm_eps", 1e-5)),
            tied=tied,
            layers=layers,
            activation_quant=quant or (WEIGHT_ONLY if weight_only else "int8"),
            inner_eps=float(number("rms_norm_eps", 1e-6, quantization)),
            **multipliers,
        )
