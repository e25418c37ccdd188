"""The keys of a tokenizer, as GGUF has them: read from a file, and written again."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from edge.errors import InvalidFile
from edge.formats import text_steps
from edge.formats.checkpoint import Added, Checkpoint, TokenizerSpec
from edge.formats.container import Header
from edge.formats.mapped import located, shown

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
#: all keys of the tokens that end an answer, the first token first
KEYS_EOS = [f"tokenizer.ggml.{name}" for name in ("eos_token_id", "eos_token_ids", "eot_token_id", "eom_token_id")]
#: tokens of the Llama-3 vocabulary
LLAMA3_TOKENS = 128256
#: pre-tokenisers that split like Llama 3 and whose tokenizers put BOS first
_LLAMA3_PRE = ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "falcon_e")


def describe(header: Header, n_vocab: int, notes: list[str]) -> TokenizerSpec:
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

    with located(header.path):
        said = text_steps.parse(header.text(KEY_NORMALIZER))
        normalizer = implied_normalizer("bpe" if bpe else "", pre) if said is None else text_steps.normalizer(said)
        cuts = text_steps.parse(header.text(KEY_PRE_TOKENIZER))
        pre_tokenizer = () if cuts is None else text_steps.pre_tokenizer(cuts, pieces=not bpe)
        added = added_tokens(header.numbers(KEY_ADDED), tokens)
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
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizer,
        added=added,
        bos_id=bos,
        eos_ids=tuple(dict.fromkeys(eos)),
        pad_id=token_id("padding"),
        unk_id=token_id("unknown"),
        add_bos=bool(add_bos) and bos is not None,
        add_space_prefix=bool(header.flag("tokenizer.ggml.add_space_prefix", not bpe)),
    )


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
    """The numbers for :func:`added_tokens`; None where the types of the tokens say it all."""
    by_types = spec.kind == "bpe" and not any(each.choosy or each.normalized for each in spec.added.values())
    if by_types or not spec.added:
        return None
    return array("i", [number for each in spec.added.values()
                       for number in (each.id, sum(flag << bit for bit, flag in enumerate(each[1:])))])


def implied_normalizer(kind: str, pre: str) -> tuple[text_steps.Step, ...]:
    """The normalizer of a file that states none: that of the vocabularies which its pre-tokenizer is for."""
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
