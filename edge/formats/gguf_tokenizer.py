"""The tokenizer of a GGUF file, which may hold nothing else."""

from __future__ import annotations

import os

from edge.formats import text_steps
from edge.formats.checkpoint import TokenizerSpec
from edge.formats.gguf_header import Header, read_header
from edge.formats.gguf_keys import (
    KEY_ADDED,
    KEY_IGNORE_MERGES,
    KEY_NORMALIZER,
    KEY_PATTERN,
    KEY_PRE_TOKENIZER,
    KEYS_EOS,
    added_tokens,
    implied_normalizer,
)
from edge.formats.mapped import located, shown

#: tokens of the Llama-3 vocabulary
LLAMA3_TOKENS = 128256
#: pre-tokenisers that split like Llama 3 and whose tokenizers put BOS first
_LLAMA3_PRE = ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "falcon_e")


def read_tokenizer(path: str | os.PathLike[str]) -> TokenizerSpec:
    """The tokenizer of a GGUF file, which may hold only a vocabulary."""
    header = read_header(path)
    return describe(header, len(header.strings("tokenizer.ggml.tokens")), [])


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
