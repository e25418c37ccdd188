"""The metadata of a GGUF file that we write: the inverse of what :mod:`edge.formats.gguf` reads."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from edge.config import ModelConfig
from edge.formats.checkpoint import Checkpoint, TokenizerSpec

#: general.file_type, a label only: the first is microsoft/BitNet's number, the second llama.cpp's
_FILE_TYPES = {"I2_S": 40, "TQ2_0": 37}

#: our own keys: what GGUF has no word for
KEY_PATTERN = "bitnet_edge.tokenizer.pattern"
KEY_IGNORE_MERGES = "bitnet_edge.tokenizer.ignore_merges"
KEY_EOS_IDS = "bitnet_edge.tokenizer.eos_token_ids"


def architecture(config: ModelConfig) -> str:
    """The GGUF architecture of a model: sub-norms and squared ReLU, sub-norms and SiLU, or plain llama."""
    if config.sub_norm:
        return "bitnet-b1.58" if config.activation == "relu2" else "bitnet"
    return "llama"


def model_keys(checkpoint: Checkpoint, type: str) -> dict[str, Any]:
    """``general.*`` and ``<arch>.*``: the dimensions; ``type`` is what the ternary matrices are stored as."""
    arch = architecture(checkpoint.config)
    c = checkpoint.config
    metadata: dict[str, Any] = {
        "general.architecture": arch,
        "general.name": c.name,
        "general.file_type": _FILE_TYPES[type],
        "general.quantization_version": 2,
        f"{arch}.vocab_size": c.n_vocab,
        f"{arch}.context_length": c.n_ctx_train,
        f"{arch}.embedding_length": c.hidden,
        f"{arch}.block_count": c.n_layer,
        f"{arch}.feed_forward_length": c.ffn,
        f"{arch}.rope.dimension_count": c.rope_dim,
        f"{arch}.rope.freq_base": float(c.rope_theta),
        f"{arch}.attention.head_count": c.n_head,
        f"{arch}.attention.head_count_kv": c.n_kv_head,
        f"{arch}.attention.key_length": c.head_dim,
        f"{arch}.attention.value_length": c.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": float(c.eps),
        # says outright what the architecture's name leaves to convention
        f"{arch}.hidden_activation": c.activation,
    }
    if c.activation_quant != "int8":
        metadata[f"{arch}.activation_quantization"] = c.activation_quant
    if c.rope_scale != 1.0:
        metadata[f"{arch}.rope.scaling.type"] = "linear"
        metadata[f"{arch}.rope.scaling.factor"] = float(c.rope_scale)
    for key in ("general.license", "general.author", "general.description", "general.url"):
        value = checkpoint.metadata.get(key)
        if checkpoint.format == "gguf" and isinstance(value, str):
            metadata[key] = value
    return metadata


def tokenizer_keys(checkpoint: Checkpoint) -> dict[str, Any]:
    """``tokenizer.ggml.*`` of a TokenizerSpec, with one token per embedding row."""
    spec, n_vocab = checkpoint.tokenizer, checkpoint.config.n_vocab
    metadata: dict[str, Any] = {}
    if spec.kind == "none":
        metadata["tokenizer.ggml.model"] = "no_vocab"
    else:
        metadata["tokenizer.ggml.model"] = "gpt2" if spec.kind == "bpe" else "llama"
        if spec.pre:
            metadata["tokenizer.ggml.pre"] = spec.pre
        tokens, scores, types = _vocabulary(spec, n_vocab, checkpoint.path)
        metadata["tokenizer.ggml.tokens"] = tokens
        if scores:
            metadata["tokenizer.ggml.scores"] = scores
        metadata["tokenizer.ggml.token_type"] = types
        if spec.merges:
            metadata["tokenizer.ggml.merges"] = spec.merges
    for key, value in (("bos", spec.bos_id), ("eos", spec.eos_ids[0] if spec.eos_ids else None),
                       ("padding", spec.pad_id), ("unknown", spec.unk_id)):
        if value is not None:
            metadata[f"tokenizer.ggml.{key}_token_id"] = value
    metadata["tokenizer.ggml.add_bos_token"] = spec.add_bos
    metadata["tokenizer.ggml.add_space_prefix"] = spec.add_space_prefix
    if len(spec.eos_ids) > 1:
        metadata[KEY_EOS_IDS] = list(spec.eos_ids)
    if spec.pattern:
        metadata[KEY_PATTERN] = spec.pattern
    if spec.ignore_merges is not None:
        metadata[KEY_IGNORE_MERGES] = spec.ignore_merges
    if checkpoint.chat_template:
        metadata["tokenizer.chat_template"] = checkpoint.chat_template
    return metadata


def _vocabulary(spec: TokenizerSpec, n_vocab: int, path: str) -> tuple[Sequence[str], Sequence[float], Sequence[int]]:
    """tokens, scores and types as GGUF wants them: all n_vocab of them, added tokens in their places."""
    tokens, scores, types = spec.tokens, spec.scores, spec.types
    if spec.model is not None:
        from edge.formats import sentencepiece_model

        parsed = sentencepiece_model.parse(spec.model, path)
        tokens, scores, types = parsed.pieces, parsed.scores, parsed.types
    if not types:
        types = array("i", [1]) * len(tokens)
    if len(tokens) == n_vocab and not spec.added:
        return tokens, scores, types
    # Rows beyond the vocabulary get a name nobody types and the type "unused".
    filled = list(tokens) + [f"[PAD{i}]" for i in range(len(tokens), n_vocab)]
    kinds = array("i", types) + array("i", [5]) * (n_vocab - len(types))
    for text, number in spec.added.items():
        if len(tokens) <= number < n_vocab:
            filled[number] = text
            kinds[number] = 3
    values = array("f", scores) + array("f", [0.0]) * (n_vocab - len(scores)) if scores else ()
    return filled, values, kinds
