"""Reads Hugging Face directories: safetensors (one or sharded), config.json and tokenizer files.

Tensors get the names of GGUF, and config.json its keys (:mod:`edge.formats.huggingface_config`); then the reader of
GGUF reads both.

Ternary weights are stored in three ways: packed bytes (four codes per byte, with ``weight_scale``), float weights that
already are scale x {-1, 0, 1}, and master weights that the model rounds to ternary ones by absmean at each forward
pass.

Packed weights get the type "HF_U8" with the scale as a *multiplier*.  Float weights keep their type and are rounded
when they are packed.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from collections.abc import Mapping
from typing import Any

from edge.errors import InvalidFile
from edge.formats import huggingface_tokenizer, names, safetensors
from edge.formats.checkpoint import SEPARATE_EXPERTS, Checkpoint, Reading, Tensor
from edge.formats.gguf_keys import read_config
from edge.formats.huggingface_config import N_EXPERT, translated
from edge.formats.mapped import MAX_TOKENIZER, fail, located, read_json, refuse_pickled, shown
from edge.registry.encodings import VECTOR_TYPES
from edge.registry.families import BY_HUGGINGFACE, Family, refusal
from edge.sampling import recommended

#: name without "model." (a checkpoint without a head has none), layer and ending -> the name of GGUF
_NAMES = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
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
    "mlp.gate": "ffn_gate_inp",  # the router of experts
    # of gated delta layers
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
}
_NAMES |= {f"{name}.rms_norm": f"{ours}_norm_in" for name, ours in _NAMES.items() if ours in names.PROJECTIONS}
_NAME = re.compile(
    r"(?:model\.(?:language_model\.)?)?(?:layers\.(0|[1-9]\d{0,3})\.)?(.+?)(?:\.(weight|bias|weight_scale))?",
    re.DOTALL,
)
_EXPERT = re.compile(r"mlp\.experts\.(0|[1-9]\d{0,3})\.(gate|up|down)_proj")
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
#: keys of generation_config.json that count with do_sample only
_SAMPLED = {field: field for field in ("temperature", "top_k", "top_p", "min_p")}
#: those that change answers and are not used here, the last of them with do_sample only; and values that change nothing
_UNUSED = ("num_beams", "penalty_alpha", "no_repeat_ngram_size", "encoder_repetition_penalty",
           "encoder_no_repeat_ngram_size", "bad_words_ids", "sequence_bias", "suppress_tokens",
           "begin_suppress_tokens", "exponential_decay_length_penalty", "min_length", "min_new_tokens",
           "guidance_scale", "watermarking_config", "stop_strings", "dola_layers", "token_healing")
_UNUSED_SAMPLED = ("typical_p", "top_h", "epsilon_cutoff", "eta_cutoff")
_NEUTRAL: tuple[Any, ...] = (None, False, 0, 1, "", [], {})
#: bytes of two tensors that are compared at once
_BLOCK = 1 << 20


def read(path: str | os.PathLike[str], reading: Reading) -> Checkpoint:
    """Describe the ternary model in a directory (or of the directory that a .safetensors file is in).

    Raises InvalidFile (one line naming the file, key or tensor).
    """
    path = os.fspath(path)
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    raw = read_json(folder, "config.json") or {}
    quantization = raw.get("quantization_config") or {}
    if not isinstance(quantization, dict):
        fail(folder, "config.json: quantization_config is not an object")
    family = _check_kind(folder, raw, quantization)
    notes: list[str] = []
    if family.delta_period:  # perhaps a part of a model that also sees
        text = raw.get("text_config", {})
        if not isinstance(text, dict):
            fail(folder, "config.json: text_config is not an object")
        raw = {**raw, **text, "architectures": raw["architectures"]}
    stored = _shards(folder)
    packed = any(entry.type == "U8" for entry in stored.values())
    if packed and quantization.get("quant_method") != "bitnet":
        fail(folder, "packed weights, but config.json has no quantization_config of method bitnet, so nothing says "
                     "whether weight_scale multiplies or divides; add it")
    with located(folder):
        tensors = _tensors(stored, family, quantization, reading, _is_marked(raw, quantization), notes)
        _check_tables(raw, tensors, notes)
        if bool(quantization.get("use_rms_norm")) is not ("blk.0.attn_q_norm_in.weight" in tensors):
            fail(folder, "config.json: use_rms_norm and the norms in front of projections do not agree; get the files "
                         "again")
    source, family = translated(folder, raw, family, tensors, reading.activation)
    config = read_config(source, family, tensors, reading.activation, notes, tiled=False)
    with located(folder):
        notes += names.check(config, tensors)
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
        metadata=source.metadata,
        notes=notes,
        reading=reading,
        open={"inverted": either} if packed and "linear_class" not in quantization else {},
        sampling=_sampling(generation, notes),
    )


def _check_tables(raw: Mapping[str, Any], tensors: dict[str, Tensor], notes: list[str]) -> None:
    """Leave one of the embedding and the output head if config.json says that they are the same and they are, as
    transformers 5 does.
    """
    tied = raw.get("tie_word_embeddings")
    table, head = (tensors.get(f"{name}.weight") for name in ("token_embd", "output"))
    if table is None and tied and head is not None:
        table = tensors["token_embd.weight"] = head._replace(name="token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise InvalidFile("tensor model.embed_tokens.weight is missing; get the files again")
    headless = any(name.endswith("Model") for name in raw["architectures"])
    if head is None and not headless and tied not in (None, True):
        raise InvalidFile("tensor lm_head.weight is missing although config.json says tie_word_embeddings false")
    if not tied or head is None:
        return
    if (table.type, table.shape) == (head.type, head.shape) and all(
        bytes(table.data[at : at + _BLOCK]) == bytes(head.data[at : at + _BLOCK])
        for at in range(0, len(head.data), _BLOCK)
    ):
        del tensors["output.weight"]
    else:
        notes.append("config.json says tie_word_embeddings, but lm_head.weight differs from the embedding: it is used")


def _sampling(generation: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The sampling of generation_config.json, as transformers takes it: penalties are of all tokens, and without
    do_sample the likeliest token is taken, whatever the keys of :data:`_SAMPLED` say.
    """
    asks = generation.get("do_sample") is True
    unused = [key for key in (*_UNUSED, *(_UNUSED_SAMPLED if asks else ())) if generation.get(key) not in _NEUTRAL]
    if unused:
        notes.append(f"generation_config.json: {', '.join(unused)} cannot be used: answers are made without")
    found = recommended({**(_SAMPLED if asks else {}), "repeat_penalty": "repetition_penalty"}, generation, notes)
    return {**found, "repeat_last_n": -1} if found.get("repeat_penalty", 1) != 1 else found


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
    for key in ("mlp_bias", "use_sliding_window", "use_cla", *N_EXPERT, "attn_logit_softcapping",
                "final_logit_softcapping", "use_bidirectional_attention"):
        if raw.get(key) and not (key in N_EXPERT and family.experts):
            fail(folder, f"config.json: {key} is set, which changes the arithmetic in a way that is not implemented; "
                         "answers would be wrong")
    return family


def _shards(folder: str) -> dict[str, Tensor]:
    """All tensors of model.safetensors, or of the shards that its index names."""
    index_path = os.path.join(folder, "model.safetensors.index.json")
    single = os.path.join(folder, "model.safetensors")
    if os.path.isfile(single):
        return safetensors.read(single)
    index = read_json(folder, "model.safetensors.index.json", MAX_TOKENIZER)
    if index is None:
        refuse_pickled(folder)
        fail(folder, "no model.safetensors; get the weights as well")
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        fail(index_path, "weight_map is missing; get the file again")
    tensors: dict[str, Tensor] = {}
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
    return tensors


def _tensors(stored: Mapping[str, Tensor], family: Family, quantization: Mapping[str, Any], reading: Reading,
             latent: bool, notes: list[str]) -> dict[str, Tensor]:
    """Tensors under GGUF names.  ``latent``: float weights are to be rounded to ternary ones."""
    skipped = set()
    kept = _not_converted(quantization)
    floats = "latent" if latent or reading.ternarise else "dense" if reading.dense else "ternary"
    found: dict[str, Tensor] = {}
    for name, entry in stored.items():
        if name.endswith("rotary_emb.inv_freq"):
            continue  # recomputed from rope_theta
        part = next((what for begin, what in _SKIPPED.items() if family.delta_period and name.startswith(begin)), None)
        if part is not None:
            skipped.add(part)
            continue
        ours = _gguf_name(name, family)
        if ours is None:
            raise InvalidFile(f"tensor {shown(name)} is not part of this kind of model, so its answers would be wrong")
        if ours in found:
            raise InvalidFile(f"tensor {ours} appears twice (last as {shown(name)})")
        module = name.rpartition(".")[0]
        dense = ours.count(".") == 3 and any(  # no expert
            f"{module}.".startswith(f"{each}.") or module.endswith(f".{each}") for each in kept)
        found[ours] = entry._replace(name=ours, floats="dense" if dense else floats)
    notes += [f"{part} not used" for part in sorted(skipped)]
    # AutoBitLinear multiplies by weight_scale (= mean|w|); BitLinear, the default, divides (1/mean|w|).
    divides = (quantization.get("linear_class", "bitlinear") != "autobitlinear") is not reading.inverted
    tensors = {}
    for name, entry in found.items():
        scale = found.get(f"{name.removesuffix('weight')}scale")
        if entry.type == "I8":
            raise InvalidFile(f"tensor {name} is stored as I8, which is not supported; get the packed (U8) version")
        if entry.type == "U8":
            tensors[name] = _packed(entry, scale, divides)
        elif scale is not None:
            raise InvalidFile(f"tensor {name} has a weight_scale but is not packed; the file is damaged")
        elif not name.endswith(".scale"):
            tensors[name] = _changed(entry, family)
    return _stacked(tensors)


def _gguf_name(name: str, family: Family) -> str | None:
    """The name of a tensor in GGUF; of an expert's matrix "blk.3.ffn_up_exps.17.weight".  None for an unknown one."""
    match = _NAME.fullmatch(name)
    layer, module, ending = match.groups() if match else (None, name, None)
    ours = (_POST_NORMS if family.post_norm else {}).get(module) or _NAMES.get(module)
    if expert := _EXPERT.fullmatch(module):
        ours = f"ffn_{expert[2]}_exps.{expert[1]}"
    if ours is None:
        return None
    return (f"blk.{layer}." if layer else "") + ours + (f".{ending.removeprefix('weight_')}" if ending else "")


def _packed(entry: Tensor, scale: Tensor | None, divides: bool) -> Tensor:
    """A packed matrix; ``divides``: by its scale."""
    if len(entry.shape) != 2 or scale is None:
        raise InvalidFile(f"tensor {entry.name} is packed but has no weight_scale; get the file again")
    if math.prod(scale.shape) != 1 or scale.type not in VECTOR_TYPES:
        raise InvalidFile(f"tensor {entry.name}: its weight_scale is not one float; the file is damaged")
    factor = names.floats(scale.type, scale.data)[0]
    if not math.isfinite(factor) or factor <= 0.0:
        raise InvalidFile(f"tensor {entry.name} has weight_scale {factor}; the file is damaged, get it again")
    rows, k = entry.shape
    factor = 1.0 / factor if divides else factor
    return entry._replace(type="HF_U8", shape=(rows * 4, k), scale=factor, floats="ternary")


def _changed(entry: Tensor, family: Family) -> Tensor:
    """A tensor as GGUF has it: decays instead of their logarithms, norms around 1 instead of 0, a convolution without
    the axis of its groups.
    """
    if entry.name.endswith(".ssm_conv1d.weight") and len(entry.shape) == 3 and entry.shape[1] == 1:
        return entry._replace(shape=entry.shape[::2])
    decays = entry.name.endswith(".ssm_a")
    what = entry.name.removesuffix(".weight").rpartition(".")[2]
    if not decays and not (family.norms_from_one and what in _FROM_ONE and len(entry.shape) == 1):
        return entry
    if entry.type not in VECTOR_TYPES or len(entry.shape) != 1:
        raise InvalidFile(f"tensor {entry.name} is stored as {entry.type}, which is not supported")
    values = names.floats(entry.type, entry.data)
    if decays and not all(abs(value) < 80 for value in values):
        raise InvalidFile(f"tensor {entry.name} holds a number that is not sensible; the file is damaged")
    numbers = array("f", [-math.exp(value) if decays else value + 1.0 for value in values])
    return entry._replace(type="F32", data=memoryview(numbers).cast("B"))


def _stacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with those of the experts of a layer (``blk.3.ffn_up_exps.17.weight``) as one."""
    found: dict[str, Tensor] = {}
    experts: dict[str, dict[int, Tensor]] = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if len(parts) == 5:
            experts.setdefault(".".join([*parts[:3], parts[4]]), {})[int(parts[3])] = tensor
        else:
            found[name] = tensor
    for name, each in experts.items():
        if set(each) != set(range(len(each))):
            missing = min(set(range(len(each))) - set(each))
            raise InvalidFile(f"number {missing} of the experts of {name} is missing; get the files again")
        shape = (len(each), *each[0].shape)
        stacked = tuple(each[i] for i in range(len(each)))
        found[name] = Tensor(name, SEPARATE_EXPERTS, shape, memoryview(b""), experts=stacked)
    return found


def _not_converted(quantization: Mapping[str, Any]) -> list[str]:
    """The modules that stay floats (``modules_to_not_convert``), as transformers reads the key: each entry is the
    beginning or the end of a module's name.
    """
    listed = quantization.get("modules_to_not_convert") or []
    if not isinstance(listed, list) or len(listed) > 4096 or not all(isinstance(entry, str) for entry in listed):
        raise InvalidFile("config.json: modules_to_not_convert is not a list of names; the file is damaged")
    return [entry for entry in listed if entry]


def _is_marked(raw: Mapping[str, Any], quantization: Mapping[str, Any]) -> bool:
    """True if float weights are master weights, to be rounded to ternary ones by absmean."""
    bitnet = any(name in ("BitnetForCausalLM", "BitNetForCausalLM") for name in raw.get("architectures") or [])
    return quantization.get("quant_method") == "bitnet" or bitnet or raw.get("weight_bits") == 1
