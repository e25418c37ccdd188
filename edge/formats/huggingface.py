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
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from edge.config import ModelConfig
from edge.errors import InvalidFile, ModelNotFound, UsageError
from edge.formats import names, safetensors, sentencepiece_model
from edge.formats.checkpoint import Checkpoint, Tensor, TokenizerSpec
from edge.formats.mapped import located, read_small, shown
from edge.formats.safetensors import Stored, parse_json

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

#: split patterns of well-known tokenizers -> the name GGUF has for them
_LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+")
_PATTERNS = {_LLAMA3_PATTERN: "llama-bpe", _LLAMA3_PATTERN.replace("{1,3}", ""): "qwen2"}

_MAX_CONFIG = 4 << 20
_MAX_TOKENIZER = 128 << 20


def read(path: str | os.PathLike[str], *, activation: str | None = None) -> Checkpoint:
    """Describe the ternary model in a directory (or of the directory that a .safetensors file is in).

    Raises ModelNotFound, InvalidFile (one line naming the file, key or tensor) or UsageError.
    """
    if activation not in (None, "relu2", "silu"):
        raise UsageError(f"activation {activation!r} is not known; use relu2 or silu")
    path = os.fspath(path)
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    raw = _json(folder, "config.json", _MAX_CONFIG)
    if raw is None:
        raise (InvalidFile if _pickles(folder) else ModelNotFound)(
            f"{folder}: no config.json, so this is no Hugging Face model directory")
    quantization = raw.get("quantization_config") or {}
    if not isinstance(quantization, dict):
        _fail(folder, "config.json: quantization_config is no object")
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
    generation = _json(folder, "generation_config.json", _MAX_CONFIG) or {}
    settings = _json(folder, "tokenizer_config.json", _MAX_TOKENIZER) or {}
    template = _chat_template(folder, settings)
    return Checkpoint(
        path=path,
        format="huggingface",
        config=config,
        tensors=tensors,
        tokenizer=_tokenizer(folder, raw, generation, settings, template, config.n_vocab, notes),
        chat_template=template,
        metadata={**raw, "ternary_marker": marker},
        notes=notes,
    )


def _fail(where: str, what: str) -> NoReturn:
    raise InvalidFile(f"{where}: {what}")


def _json(folder: str, name: str, limit: int) -> dict[str, Any] | None:
    """A JSON object beside the weights; None if there is no such file."""
    path = os.path.join(folder, name)
    return parse_json(read_small(path, limit), path) if os.path.isfile(path) else None


def _pickles(folder: str) -> list[str]:
    return [name for name in sorted(os.listdir(folder)) if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]


def _check_kind(folder: str, raw: Mapping[str, Any], quantization: Mapping[str, Any]) -> None:
    """Refuse, by name, what we know and do not run."""
    stated = raw.get("architectures")
    stated = stated if isinstance(stated, list) else []
    if not any(name in ARCHITECTURES for name in stated):
        _fail(folder, f"architecture {shown(stated[0] if stated else raw.get('model_type'))} is not supported "
                      f"({', '.join(ARCHITECTURES)} are)")
    method = quantization.get("quant_method")
    if method not in (None, "bitnet"):
        _fail(folder, f"quantised with {shown(method)}, not BitNet; use the ternary version of the model")
    if quantization.get("use_rms_norm"):
        _fail(folder, "its projections have a norm of their own (use_rms_norm), which is not supported")
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key):
            _fail(folder, f"config.json: {key} is set; models with biases are not supported")


def _shards(folder: str) -> dict[str, Stored]:
    """All tensors of model.safetensors, or of the shards that its index names."""
    index_path = os.path.join(folder, "model.safetensors.index.json")
    single = os.path.join(folder, "model.safetensors")
    if os.path.isfile(single):
        return safetensors.read(single)
    index = _json(folder, "model.safetensors.index.json", _MAX_TOKENIZER)
    if index is None:
        pickles = _pickles(folder)
        if pickles:
            _fail(folder, f"only pickled weights ({shown(pickles[0])}), which can run code when opened; convert them "
                          "to safetensors where they came from")
        _fail(folder, "no model.safetensors; get the weights as well")
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        _fail(index_path, "weight_map is missing; get the file again")
    tensors: dict[str, Stored] = {}
    for name in sorted({str(value) for value in places.values()}):
        # A shard lies beside its index: a path would let a hostile index open any file.
        if os.path.basename(name) != name or not name.endswith(".safetensors"):
            _fail(index_path, f"names shard {shown(name)}, which is no plain .safetensors file name")
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            _fail(index_path, f"shard {shown(name)} is missing; get it as well")
        for key, value in safetensors.read(path).items():
            if key in tensors:
                _fail(path, f"tensor {shown(key)} is in two shards")
            tensors[key] = value
    for key in places:
        if key not in tensors:
            _fail(index_path, f"tensor {shown(key)} is in none of the shards; get them again")
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
            _fail(folder, f"tensor {shown(name)}: projections with a norm of their own are not supported")
        else:
            _fail(folder, f"tensor {shown(name)} is no part of this kind of model, so its answers would be wrong")
        if match and match[3] == "weight_scale":
            if math.prod(entry.shape) != 1 or entry.dtype in ("U8", "I8"):
                _fail(folder, f"tensor {shown(name)} is not one float; the file is damaged")
            scales[target] = floats(entry.dtype, entry.data)[0]
        elif target in found:
            _fail(folder, f"tensor {target} stands twice (last as {shown(name)})")
        else:
            found[target] = entry

    packed = any(entry.dtype == "U8" for entry in found.values())
    if packed and quantization.get("quant_method") != "bitnet":
        _fail(folder, "packed weights, but config.json has no quantization_config of method bitnet, so nothing says "
                      "whether weight_scale multiplies or divides; add it")
    # AutoBitLinear multiplies by weight_scale (= mean|w|); BitLinear, the default, divides (1/mean|w|).
    divides = quantization.get("linear_class", "bitlinear") != "autobitlinear"
    tensors = {}
    for target, entry in found.items():
        scale = scales.get(target, 1.0)
        if target in scales:
            if not math.isfinite(scale) or scale <= 0.0:
                _fail(folder, f"tensor {target} has weight_scale {scale}; the file is damaged, get it again")
            scale = 1.0 / scale if divides else scale
        if entry.dtype == "I8":
            _fail(folder, f"tensor {target} is stored as I8, which is not supported; get the packed (U8) version")
        if entry.dtype != "U8":
            if target in scales:
                _fail(folder, f"tensor {target} has a weight_scale but is not packed; the file is damaged")
            tensors[target] = Tensor(target, entry.dtype, entry.shape, entry.data)
            continue
        if len(entry.shape) != 2 or target not in scales:
            _fail(folder, f"tensor {target} is packed but has no weight_scale; get the file again")
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
        _fail(folder, "a dense model: its weights are not ternary and config.json has no BitNet quantization_config; "
                      "get the ternary (packed or GGUF) version")


def _config(folder: str, raw: Mapping[str, Any], tensors: Mapping[str, Tensor], override: str | None,
            notes: list[str]) -> ModelConfig:
    """ModelConfig from config.json and a few shapes."""

    def number(key: str, default: float | None, source: Mapping[str, Any] = raw) -> Any:
        value = source.get(key)
        value = default if value is None else value
        if value is None:
            _fail(folder, f"config.json: {key} is missing; get the file again")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
            _fail(folder, f"config.json: {key} is {shown(value)}, not a sensible number")
        return value

    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        _fail(folder, "tensor model.embed_tokens.weight is missing; get the files again")
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
        _fail(folder, "config.json: rope_parameters is no object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear"):
        _fail(folder, f"config.json: rope type {shown(kind)} is not supported (default and linear are)")
    theta = number("rope_theta", number("rope_theta", 10000.0), rope)
    partial = number("partial_rotary_factor", number("partial_rotary_factor", 1.0), rope)

    bitnet = any(name in ("BitNetForCausalLM", "BitnetForCausalLM") for name in raw["architectures"])
    said = raw.get("hidden_act") or ("relu2" if bitnet else "silu")
    said = "silu" if said == "swish" else said
    if said not in ("relu2", "silu"):
        _fail(folder, f"config.json: hidden_act {shown(said)} is not supported (relu2 and silu are)")
    if override not in (None, said):
        notes.append(f"activation {override} as asked, although config.json says {said}")
    sub_norm = "blk.0.attn_sub_norm.weight" in tensors
    activation = override or said
    untied = "output.weight" in tensors
    tied = raw.get("tie_word_embeddings")
    if tied is None:
        tied = not untied
    elif not tied and not untied:
        _fail(folder, "tensor lm_head.weight is missing although config.json says tie_word_embeddings false")
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
        )


# ---- tokenizer -------------------------------------------------------------------------------------------------------


def _chat_template(folder: str, settings: Mapping[str, Any]) -> str | None:
    """The chat template: chat_template.jinja beside the model wins over tokenizer_config.json (as in transformers)."""
    path = os.path.join(folder, "chat_template.jinja")
    if os.path.isfile(path):
        try:
            return read_small(path, _MAX_CONFIG).decode()
        except UnicodeDecodeError:
            _fail(path, "not UTF-8; get the file again")
    value = settings.get("chat_template")
    if isinstance(value, list):  # several, by name
        named = [entry for entry in value if isinstance(entry, dict)]
        named.sort(key=lambda entry: entry.get("name") != "default")
        value = named[0].get("template") if named else None
    return _clean(value, path) if isinstance(value, str) else None


def _clean(text: str, where: str) -> str:
    """The text, unless it holds half a surrogate pair (JSON can), which is no character and breaks every encoder."""
    try:
        text.encode()
    except UnicodeEncodeError:
        _fail(where, "holds text that is not Unicode; the file is damaged")
    return text


def _ids(*values: Any, n_vocab: int) -> list[int]:
    """Token ids out of numbers and lists of numbers, in order, each once."""
    flat: list[Any] = []
    for value in values:
        flat += value[:64] if isinstance(value, list) else [value]
    return list(dict.fromkeys(i for i in flat if type(i) is int and 0 <= i < n_vocab))


def _tokenizer(folder: str, raw: Mapping[str, Any], generation: Mapping[str, Any], settings: Mapping[str, Any],
               template: str | None, n_vocab: int, notes: list[str]) -> TokenizerSpec:
    """TokenizerSpec from tokenizer.json (byte-level BPE) or tokenizer.model (SentencePiece)."""
    fast = _json(folder, "tokenizer.json", _MAX_TOKENIZER)
    model_path = os.path.join(folder, "tokenizer.model")
    model = fast.get("model") if fast else None
    byte_level = isinstance(model, dict) and model.get("type") == "BPE" and not model.get("byte_fallback")

    added = _added(fast, _json(folder, "added_tokens.json", _MAX_TOKENIZER), settings)

    def named(key: str) -> int | None:
        """Id of a special token that tokenizer_config.json gives by its text."""
        value = settings.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        return added[text][0] if isinstance(text, str) and text in added else None

    def single(key: str) -> int | None:
        ids = _ids(generation.get(f"{key}_token_id"), raw.get(f"{key}_token_id"), named(f"{key}_token"),
                   n_vocab=n_vocab)
        return ids[0] if ids else None

    common: dict[str, Any] = {
        "bos_id": single("bos"),
        "eos_ids": tuple(_ids(generation.get("eos_token_id"), raw.get("eos_token_id"), named("eos_token"),
                              n_vocab=n_vocab)),
        "pad_id": single("pad"),
        "unk_id": single("unk"),
    }
    add_bos = settings.get("add_bos_token")
    if fast is not None and byte_level:
        if not isinstance(add_bos, bool):
            add_bos = _starts_with_bos(fast, common["bos_id"], template)
        spec = _byte_level(folder, fast, added, n_vocab, notes)
        return TokenizerSpec(kind="bpe", **spec, **common, add_bos=add_bos and common["bos_id"] is not None,
                             add_space_prefix=False)
    if os.path.isfile(model_path):
        data = read_small(model_path, _MAX_TOKENIZER)
        parsed = sentencepiece_model.parse(data, model_path)
        n = len(parsed.pieces)
        if n > n_vocab:
            _fail(model_path, f"{n} pieces for {n_vocab} embedding rows; it belongs to another model")
        for key in ("bos_id", "unk_id"):
            if common[key] is None:
                common[key] = getattr(parsed, key)
        if not common["eos_ids"] and parsed.eos_id is not None:
            common["eos_ids"] = (parsed.eos_id,)
        return TokenizerSpec(
            kind="sentencepiece",
            model=data,
            added={text: number for text, (number, _) in added.items() if n <= number < n_vocab},
            **common,
            add_bos=(add_bos if isinstance(add_bos, bool) else True) and common["bos_id"] is not None,
            add_space_prefix=parsed.add_dummy_prefix,
        )
    if fast is not None:
        _fail(os.path.join(folder, "tokenizer.json"), "not a byte-level BPE vocabulary; put the model's "
                                                      "tokenizer.model (SentencePiece) beside it")
    notes.append("the directory brings no tokenizer (tokenizer.json or tokenizer.model): "
                 "it can be run on token ids only")
    return TokenizerSpec(kind="none", **common, add_bos=False)


def _added(fast: Mapping[str, Any] | None, extra: Mapping[str, Any] | None,
           settings: Mapping[str, Any]) -> dict[str, tuple[int, bool]]:
    """Added tokens from the three places that may list them: text -> (id, special)."""
    added: dict[str, tuple[int, bool]] = {}

    def put(text: Any, number: Any, special: Any) -> None:
        if isinstance(text, str) and text and type(number) is int and number >= 0:
            added[_clean(text, "added tokens")] = (number, bool(special))

    for text, number in (extra or {}).items():
        put(text, number, True)
    decoder = settings.get("added_tokens_decoder")
    for number, entry in (decoder if isinstance(decoder, dict) else {}).items():
        if isinstance(entry, dict) and number.isascii() and number.isdigit() and len(number) < 10:
            put(entry.get("content"), int(number), entry.get("special"))
    listed = (fast or {}).get("added_tokens")
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict):
            put(entry.get("content"), entry.get("id"), entry.get("special"))
    return added


def _byte_level(folder: str, fast: Mapping[str, Any], added: Mapping[str, tuple[int, bool]], n_vocab: int,
                notes: list[str]) -> dict[str, Any]:
    """tokens, types, merges, pre, pattern and ignore_merges of a byte-level BPE tokenizer.json.

    The token list is complete, as in GGUF: added tokens stand at their ids (type 3 special, 4 otherwise).
    """
    where = os.path.join(folder, "tokenizer.json")
    vocab, merges = fast["model"].get("vocab"), fast["model"].get("merges")
    if not isinstance(vocab, dict) or not isinstance(merges, list):
        _fail(where, "vocab or merges are missing; get the file again")
    tokens: list[str | None] = [None] * n_vocab
    types = array("i", [1]) * n_vocab
    top = 0
    for text, number, kind in [(text, number, 1) for text, number in vocab.items()] + [
        (text, number, 3 if special else 4) for text, (number, special) in added.items()
    ]:
        if type(number) is not int or not 0 <= number < n_vocab:
            _fail(where, f"token {shown(text)} has id {shown(number)}, the embedding has {n_vocab} rows")
        if tokens[number] not in (None, text):
            _fail(where, f"id {number} stands for both {shown(tokens[number])} and {shown(text)}")
        tokens[number] = text
        types[number] = kind
        top = max(top, number + 1)
    for number in range(top):
        if tokens[number] is None:
            tokens[number] = f"[PAD{number}]"
            types[number] = 5
    joined = []
    for pair in merges:  # "left right", or [left, right] in newer files
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair):
            pair = " ".join(pair)
        if not isinstance(pair, str):
            _fail(where, f"merge {shown(pair)} is no pair; get the file again")
        joined.append(pair)
    _clean("".join(text or "" for text in tokens), where)
    _clean("".join(joined), where)
    pre, pattern = _pre_tokenizer(fast.get("pre_tokenizer"), notes)
    return {
        "tokens": tokens[:top],
        "types": types[:top],
        "merges": joined,
        "pre": pre,
        "pattern": pattern,
        "ignore_merges": bool(fast["model"].get("ignore_merges", False)),
    }


def _pre_tokenizer(stated: Any, notes: list[str]) -> tuple[str, str | None]:
    """(GGUF name or "", split pattern or None) of a tokenizer.json pre_tokenizer."""
    steps = stated.get("pretokenizers") if isinstance(stated, dict) and stated.get("type") == "Sequence" else [stated]
    steps = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
        return "gpt-2", None
    if kinds[:3] == ["Punctuation", "ByteLevel", "Digits"]:
        return "falcon", None
    if kinds == ["Split", "ByteLevel"]:
        pattern = steps[0].get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        if isinstance(regex, str) and len(regex) < 4096 and regex.isascii():
            return _PATTERNS.get(regex, ""), regex
    notes.append("tokenizer.json splits text in a way that is not known; split like GPT-2, so tokens may differ")
    return "gpt-2", None


def _starts_with_bos(fast: Mapping[str, Any], bos_id: int | None, template: str | None) -> bool:
    """Whether texts begin with BOS: by the post-processor, else (it is the model's habit) by the chat template."""
    post = fast.get("post_processor")
    steps = post.get("processors") if isinstance(post, dict) and post.get("type") == "Sequence" else [post]
    for step in steps if isinstance(steps, list) else []:
        if not isinstance(step, dict) or step.get("type") != "TemplateProcessing":
            continue
        single, special = step.get("single"), step.get("special_tokens")
        if isinstance(single, list) and single and isinstance(single[0], dict) and isinstance(special, dict):
            token = single[0].get("SpecialToken")
            entry = special.get(str(token.get("id"))) if isinstance(token, dict) else None
            return isinstance(entry, dict) and entry.get("ids") == [bos_id]
        return False
    return template is not None and re.match(r"\s*\{\{-?\s*bos_token\b", template) is not None
