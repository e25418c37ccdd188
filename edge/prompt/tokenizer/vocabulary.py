"""The types of a vocabulary's tokens, corrected where files are known to be wrong, and the tokens that end an
answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from edge.errors import InvalidFile
from edge.formats.mapped import shown

if TYPE_CHECKING:
    from edge.formats.checkpoint import Added, TokenizerSpec
    from edge.formats.container import StringArray

# Beyond these a vocabulary is hostile or damaged.
MAX_TOKENS = 4_000_000
MAX_TOKEN_CHARS = 1 << 16
MAX_CHARS = 256 << 20

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

Encode = Callable[[str, bool], "list[int]"]  # text, whether nothing is before it -> ids

#: tokens that end an answer in every vocabulary that has them as control tokens (besides its EOS)
END_OF_TURN = frozenset((
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "</s>",
    "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>", "<｜end▁of▁sentence｜>",
))

#: tokens that are control tokens although files call them user-defined, as Gemma's do
_TURNS = END_OF_TURN | {"<start_of_turn>"}
#: tokens with which formats of prompts and answers are built, also where a file says that they are not special
_FORMAT = frozenset((
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>",
    "[INST]", "[/INST]",
))


def is_format(text: str) -> bool:
    """Tell if a token belongs to the format of conversations, so that users must not be able to write it into one: a
    control token, whether or not a file calls it special.
    """
    return text in _FORMAT or (len(text) > 4 and text[:2] + text[-2:] in ("<||>", "<\uff5c\uff5c>"))


def is_blank(text: str) -> bool:
    """Tell if a token is white space or one control character: text, whatever type a file gives it."""
    return text.isspace() or (len(text) == 1 and not text.isprintable())


def byte_value(text: str) -> int:
    """65 for "<0x41>", -1 for anything else."""
    return int(text[3:5], 16) if re.fullmatch("<0x[0-9A-F]{2}>", text) else -1


def with_added(texts: Sequence[str], added: Mapping[str, Added]) -> Sequence[str]:
    """The texts with the added tokens at their ids; gaps are filled with empty tokens.

    Raises InvalidFile for an id outside the vocabulary.
    """
    own = len(texts)
    for text, (number, *_) in added.items():
        if not 0 <= number < own + 65536:
            raise InvalidFile(f"added token {shown(text)} has id {number}, the vocabulary has {own} tokens")
    more = {each.id: text for text, each in added.items() if each.id >= own}
    return [*texts, *(more.get(i, "") for i in range(own, max(more) + 1))] if more else texts


def kinds_of(spec: TokenizerSpec, texts: StringArray, types: Sequence[int]) -> bytearray:
    """The type of each token, corrected where files are known to be wrong.

    Control tokens are those of the file, BOS and EOS, special added tokens, and tokens that end a turn.  "<|...|>" is
    one unless the file calls it user-defined: converters of 2024 wrote "<|eot_id|>" as an ordinary token.  White space
    is none: it belongs to text.  The bytes of SentencePiece are bytes, if there are all of them: converters of 2023
    wrote "<0x0A>" as an ordinary token.  Converters of 2024 wrote the rows after a vocabulary as user-defined.

    Raises InvalidFile for a type or special id that is not valid.
    """
    n = len(texts)
    try:
        kinds = bytearray(list(types)) if len(types) else bytearray((NORMAL,)) * n
    except (ValueError, TypeError):
        raise InvalidFile("a token has an invalid type; the vocabulary is damaged") from None
    kinds.extend(bytes((UNUSED,)) * (n - len(kinds)))
    for i in texts.starting("<|"):
        if texts[i].endswith("|>") and len(texts[i]) > 4 and kinds[i] != USER:
            kinds[i] = CONTROL
    for added in spec.added.values():
        if kinds[added.id] not in (UNKNOWN, BYTE):
            kinds[added.id] = CONTROL if added.special else USER
    for i in of_kind(kinds, b"[^%c]" % NORMAL):
        kinds[i] = _corrected(kinds[i], texts[i], i, spec.kind == "bpe")
    for number in [i for i in (spec.bos_id, *spec.eos_ids) if i is not None]:
        if not 0 <= number < n:
            raise InvalidFile(f"the BOS or EOS token's id {number} is outside the vocabulary of {n} tokens")
        kinds[number] = CONTROL
    if spec.kind == "sentencepiece":
        _complete(spec, texts, kinds)
    return kinds


def _corrected(kind: int, text: str, i: int, bpe: bool) -> int:
    """The type of token ``i`` in place of the one that a file states."""
    if (kind == USER and text in _TURNS) or (kind == UNKNOWN and bpe):
        return CONTROL
    if kind == USER and text == f"[PAD{i}]":
        return UNUSED
    if kind == BYTE and (bpe or byte_value(text) < 0):
        return NORMAL if bpe else UNUSED
    if kind == CONTROL and is_blank(text):
        return USER
    return kind if NORMAL <= kind <= BYTE else NORMAL


def of_kind(kinds: bytes | bytearray, wanted: bytes) -> list[int]:
    """The tokens whose type matches a one-byte pattern."""
    return [match.start() for match in re.finditer(wanted, kinds, re.DOTALL)]


def _complete(spec: TokenizerSpec, texts: StringArray, kinds: bytearray) -> None:
    """Give SentencePiece all bytes, if they are there, and exactly one unknown token.  This may occur in any text, so
    it must not begin or end an answer.
    """
    named = {byte_value(texts[i]): i for i in texts.starting("<0x")} if spec.model is None else {}
    if all(byte in named for byte in range(256)):
        for byte in range(256):
            kinds[named[byte]] = BYTE
    stated = of_kind(kinds, b"%c" % UNKNOWN)
    unk = spec.unk_id if spec.unk_id is not None and spec.model is None else (*stated, 0)[0]
    if not 0 <= unk < len(kinds) or unk == spec.bos_id or unk in spec.eos_ids:
        raise InvalidFile(f"the unknown token's id {unk} cannot stand for unknown text")
    for i in stated:
        kinds[i] = UNUSED
    kinds[unk] = UNKNOWN
