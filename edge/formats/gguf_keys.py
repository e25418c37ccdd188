"""The metadata of GGUF files that we write; :mod:`edge.formats.gguf` reads it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from edge.config import ModelConfig
from edge.errors import InvalidFile
from edge.formats import basis, text_steps
from edge.formats.checkpoint import Added, Checkpoint, TokenizerSpec
from edge.layers import Attention, Dense, Experts, Rotation
from edge.registry.encodings import PANELS
from edge.registry.families import FAMILIES, Family
from edge.settings import SETTINGS

#: general.file_type, a label only: the first is microsoft/BitNet's number, the others llama.cpp's of the nearest type
_FILE_TYPES = {"I2_S": 40, "TQ2_0": 37, "PQ2_0": 41, PANELS: 41, "TP64_R64": 41, "TP32_R64": 41}

#: the usual chat template; others have a name after it
KEY_TEMPLATE = "tokenizer.chat_template"

#: pre-tokenizers of vocabularies whose tokenizer.json says NFC: Qwen's and its kin's, GPT-NeoX's (OLMo, MPT)
_NFC_PRE = frozenset(("qwen2", "qwen35", "deepseek-r1-qwen", "megrez", "stablelm2", "olmo", "mpt"))

#: our own keys, for what GGUF has none; `added` has two numbers for each token: its id, and its flags as bits
KEY_PATTERN = "bitnet_edge.tokenizer.pattern"
KEY_NORMALIZER = "bitnet_edge.tokenizer.normalizer"
KEY_PRE_TOKENIZER = "bitnet_edge.tokenizer.pre_tokenizer"
KEY_ADDED = "bitnet_edge.tokenizer.added"
KEY_IGNORE_MERGES = "bitnet_edge.tokenizer.ignore_merges"
KEY_LAYOUT = "bitnet_edge.i2s_layout"
KEY_INNER_EPS = "bitnet_edge.projection_norm_epsilon"
#: the weights that share a scale in matrices that are sums of planes
KEY_PLANES = "bitnet-edge.planes.group"
#: all keys of the tokens that end an answer, the first token first; the last is that of our earlier files
KEYS_EOS = (*(f"tokenizer.ggml.{name}" for name in ("eos_token_id", "eos_token_ids", "eot_token_id", "eom_token_id")),
            "bitnet_edge.tokenizer.eos_token_ids")

#: what the makers recommend (llama.cpp's names): field of Sampling -> key
KEYS_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repeat_penalty": "general.sampling.penalty_repeat",
    "repeat_last_n": "general.sampling.penalty_last_n",
}


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
    """All keys of a file.  ``type``: how the ternary matrices are stored; ``extra``: further keys."""
    keys = {**model_keys(checkpoint, type), **(extra or {}), **tokenizer_keys(checkpoint)}
    # the reader takes a file with any key of ours at its word; only one without gets this, so that what was converted
    # before the key was known becomes the same bytes
    if type == "I2_S" and not any(key.startswith("bitnet_edge.") for key in keys):
        keys[KEY_LAYOUT] = "128"
    return keys


def model_keys(checkpoint: Checkpoint, type: str) -> dict[str, Any]:
    """The keys ``general.*`` and ``<arch>.*``: the dimensions.  ``type``: how the ternary matrices are stored."""
    c, arch = checkpoint.config, architecture(checkpoint.config)
    family, layer, mixer = FAMILIES[arch], c.layers[0], far_mixer(c)
    dense = [each.feed_forward for each in c.layers if isinstance(each.feed_forward, Dense)]
    keys: dict[str, Any] = {
        "general.architecture": arch,
        "general.name": c.name,
        "general.file_type": _FILE_TYPES[type],
        "general.quantization_version": 2,
        ".vocab_size": c.n_vocab,
        ".context_length": c.n_ctx_train,
        ".embedding_length": c.hidden,
        ".block_count": c.n_layer,
        ".feed_forward_length": max((each.ffn for each in dense), default=layer.feed_forward.ffn),
        ".rope.dimension_count": mixer.rotation.dim,
        ".rope.freq_base": float(mixer.rotation.theta),
        ".attention.head_count": c.n_head,
        ".attention.head_count_kv": c.n_kv_head,
        ".attention.key_length": c.head_dim,
        ".attention.value_length": c.head_dim,
        ".attention.layer_norm_rms_epsilon": float(c.eps),
        # explicit what the architecture's name leaves to convention
        ".hidden_activation": layer.feed_forward.activation,
    }
    if c.activation_quant != "int8" or family.weight_only:
        keys[".activation_quantization"] = c.activation_quant
    if c.planes:
        keys[KEY_PLANES] = c.planes
    keys |= _window_keys(c, mixer, family) | _expert_keys(c) | _delta_keys(c)
    if family.window_period and mixer.query_scale != 1.0:
        keys[".attention.scale"] = mixer.query_scale / math.sqrt(c.head_dim)
    if layer.inner_norm and c.inner_eps != c.eps:
        keys[KEY_INNER_EPS] = float(c.inner_eps)
    if family.multipliers:
        keys |= {".embedding_scale": float(c.embedding_scale), ".residual_scale": float(c.residual_scale),
                 ".logit_scale": 1.0 / c.logit_scale}
    kept = ("general.license", "general.author", "general.description", "general.url")
    keys |= {key: value for key, value in checkpoint.metadata.items() if key.startswith(basis.PREFIX)}
    keys |= _rope_keys(c, mixer.rotation)
    keys |= {key: checkpoint.metadata[key] for key in kept if isinstance(checkpoint.metadata.get(key), str)}
    for name, value in checkpoint.sampling.items():
        keys[KEYS_SAMPLING[name]] = value if SETTINGS[name].kind == "whole" else float(value)
    return {f"{arch}{key}" if key.startswith(".") else key: value for key, value in keys.items()}


def _window_keys(c: ModelConfig, far: Attention, family: Family) -> dict[str, Any]:
    """The keys about sliding windows."""
    near = next((mixer for mixer in c.attention if mixer.window), None)
    if near is None:
        return {".attention.sliding_window": 0} if family.window_period else {}
    other_dim = {".rope.dimension_count_swa": near.rotation.dim} if near.rotation.dim != far.rotation.dim else {}
    return {
        ".attention.sliding_window": near.window,
        ".attention.sliding_window_pattern": [mixer.window > 0 for mixer in c.attention],
        ".rope.freq_base_swa": float(near.rotation.theta),
        **other_dim,
    }


def _expert_keys(c: ModelConfig) -> dict[str, Any]:
    """The keys about experts; those that may differ between layers have a value for each."""
    parts = [layer.feed_forward for layer in c.layers]
    first = next((part for part in parts if isinstance(part, Experts)), None)
    if first is None:
        return {}
    widths = [part.ffn if isinstance(part, Experts) else first.ffn for part in parts]
    bounds = [part.clamp if isinstance(part, Experts) else first.clamp for part in parts]
    found: dict[str, Any] = {
        ".expert_count": first.n_expert,
        ".expert_used_count": first.n_used,
        ".expert_feed_forward_length": first.ffn if set(widths) == {first.ffn} else widths,
        ".expert_gating_func": 1,  # softmax
        ".expert_weights_norm": first.renormalise,
    }
    if any(bounds):
        found[".swiglu_clamp_exp"] = [float(bound) for bound in bounds]
    return found


def far_mixer(c: ModelConfig) -> Attention:
    """Attention that sees everything: what the keys without ``_swa`` describe.  The first, if there is none."""
    return next((mixer for mixer in c.attention if not mixer.window), c.attention[0])


def _delta_keys(c: ModelConfig) -> dict[str, Any]:
    """The keys of gated delta layers."""
    if not c.recurrent:
        return {}
    mixer = c.recurrent[0]
    return {
        ".full_attention_interval": 1 + next(i for i, layer in enumerate(c.layers) if layer.mixer.kind == "attention"),
        ".ssm.conv_kernel": 4, ".ssm.state_size": mixer.head_dim_k, ".ssm.group_count": mixer.n_k_head,
        ".ssm.time_step_rank": mixer.n_v_head, ".ssm.inner_size": mixer.inner,
    }


def _rope_keys(c: ModelConfig, rotation: Rotation) -> dict[str, Any]:
    """The keys about scaling of the rotation.  Those of llama3 are a tensor instead, rope_freqs.weight."""
    s = rotation.scaling
    if rotation.scale != 1.0:
        keys: dict[str, Any] = {"type": "linear", "factor": float(rotation.scale)}
    elif s is None or s.kind == "llama3":
        keys = {}
    elif s.kind == "factors":
        keys = {"type": "longrope", "attn_factor": float(s.mscale), "original_context_length": c.n_ctx_train}
    else:
        # readers multiply the attention factor by what YaRN makes of the factor
        usual = 0.1 * math.log(max(s.factor, 1.0)) + 1
        keys = {"type": "yarn", "factor": float(s.factor), "original_context_length": s.n_ctx_orig,
                "yarn_beta_fast": float(s.beta_fast), "yarn_beta_slow": float(s.beta_slow),
                "yarn_attn_factor": float(s.mscale / usual)}
    return {f".rope.scaling.{key}": value for key, value in keys.items()}


def rope_tensor(c: ModelConfig) -> tuple[str, Sequence[float]] | None:
    """Name and numbers of the tensor that holds the divisors of the rotation; None if keys can hold them."""
    rotation = far_mixer(c).rotation
    s = rotation.scaling
    if s is None or s.kind == "yarn":
        return None
    name = "rope_freqs.weight" if s.kind == "llama3" else "rope_factors_short.weight"
    return name, s.divisors(rotation.theta, rotation.dim)


def tokenizer_keys(checkpoint: Checkpoint) -> dict[str, Any]:
    """The keys ``tokenizer.*`` of a TokenizerSpec, with one token per embedding row."""
    spec = checkpoint.tokenizer
    keys: dict[str, Any] = {"model": "no_vocab"}
    if spec.kind != "none":
        tokens, scores, types = _vocabulary(spec, checkpoint.config.n_vocab, checkpoint.path)
        keys = {"model": "gpt2" if spec.kind == "bpe" else "llama", "pre": spec.pre or None, "tokens": tokens,
                "scores": scores or None, "token_type": types, "merges": spec.merges or None}
    keys |= {
        "bos_token_id": spec.bos_id,
        "eos_token_id": spec.eos_ids[0] if spec.eos_ids else None,
        "padding_token_id": spec.pad_id,
        "unknown_token_id": spec.unk_id,
        "add_bos_token": spec.add_bos,
        "add_space_prefix": spec.add_space_prefix,
        "eos_token_ids": list(spec.eos_ids) if len(spec.eos_ids) > 1 else None,
    }
    keys = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    for key in ("tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"):
        if checkpoint.metadata.get(key) in spec.eos_ids:
            keys[key] = checkpoint.metadata[key]
    usual = implied_normalizer(spec.kind, spec.pre)
    keys |= {
        KEY_PATTERN: spec.pattern or None,
        KEY_PRE_TOKENIZER: text_steps.stored(spec.pre_tokenizer) if spec.pre_tokenizer else None,
        KEY_NORMALIZER: text_steps.stored(spec.normalizer) if spec.normalizer != usual else None,
        KEY_IGNORE_MERGES: spec.ignore_merges,
        KEY_ADDED: _added_flags(spec),
        KEY_TEMPLATE: checkpoint.chat_template or None,
        "tokenizer.chat_templates": list(checkpoint.templates) or None,
        **{f"{KEY_TEMPLATE}.{name}": text for name, text in checkpoint.templates.items()},
    }
    return {key: value for key, value in keys.items() if value is not None}


def _added_flags(spec: TokenizerSpec) -> array[int] | None:
    """What :func:`added_tokens` reads; None where the types of the tokens say it all."""
    by_types = spec.kind == "bpe" and not any(each.choosy or each.normalized for each in spec.added.values())
    if by_types or not spec.added:
        return None
    return array("i", [number for each in spec.added.values()
                       for number in (each.id, sum(flag << bit for bit, flag in enumerate(each[1:])))])


def implied_normalizer(kind: str, pre: str) -> tuple[text_steps.Step, ...]:
    """What a file that does not say a normalizer means: the vocabularies that these pre-tokenizers are for."""
    return ({"type": "NFC"},) if kind == "bpe" and pre in _NFC_PRE else ()


def added_tokens(flags: Sequence[int], tokens: Sequence[str]) -> dict[str, Added]:
    """The added tokens that the keys say.  Raises InvalidFile if the numbers are not valid."""
    added: dict[str, Added] = {}
    if len(flags) % 2:
        raise InvalidFile(f"{KEY_ADDED} has {len(flags)} numbers, not pairs; the file is damaged")
    for number, bits in zip(flags[::2], flags[1::2]):
        if not 0 <= number < len(tokens) or not 0 <= bits < 1 << len(Added._fields) - 1:
            raise InvalidFile(f"{KEY_ADDED} says {bits} of token {number}; the file is damaged")
        added[tokens[number]] = Added(number, *(bool(bits >> bit & 1) for bit in range(len(Added._fields) - 1)))
    return added


def _vocabulary(spec: TokenizerSpec, n_vocab: int, path: str) -> tuple[Sequence[str], Sequence[float], Sequence[int]]:
    """(tokens, scores, types) as GGUF stores them, [n_vocab] each, with added tokens at their ids."""
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
    for text, added in spec.added.items():
        if len(tokens) <= added.id < n_vocab:
            filled[added.id] = text
        if added.id < n_vocab and kinds[added.id] not in (2, 6):
            kinds[added.id] = 3 if added.special else 4
    values = array("f", scores) + array("f", [0.0]) * (n_vocab - len(scores)) if scores else ()
    return filled, values, kinds
