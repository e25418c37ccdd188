"""SentencePiece by its own library, also for GGUF files that have only the arrays of the model."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from edge.errors import InvalidFile, one_line
from edge.formats.text_steps import writes_blanks
from edge.prompt.interrupt import check_interrupted
from edge.prompt.tokenizer.steps import cutter
from edge.prompt.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    MAX_CHARS,
    MAX_TOKEN_CHARS,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER,
    Encode,
    byte_value,
    is_format,
)

if TYPE_CHECKING:
    from edge.formats.checkpoint import TokenizerSpec
    from edge.formats.sentencepiece_model import SentencePieceModel


def build(
    spec: TokenizerSpec, texts: list[str], scores: Sequence[float], types: Sequence[int], kinds: bytearray,
    parsed: SentencePieceModel | None,
) -> tuple[array[int], bytes, Encode]:
    """(end of each token in the joined bytes, the joined bytes, function text -> ids).  ``scores``, ``types``: as the
    file states them; ``parsed``: its tokenizer.model.  Raises InvalidFile if the library refuses the model.
    """
    if max(map(len, texts)) > MAX_TOKEN_CHARS or sum(map(len, texts)) > MAX_CHARS:
        raise InvalidFile("the vocabulary has tokens too long to be tokens; it is damaged")
    # A token that is found before the library sees a text is a piece like others to it, which can be joined.
    joins = parsed is None or (parsed.bpe and parsed.plain)
    found = bytearray(
        kind if kind != USER else CONTROL if is_format(text)
        else NORMAL if joins and (parsed is None or text in spec.added) else USER
        for text, kind in zip(texts, kinds))
    model = spec.model
    if parsed is not None and any(k != t and (k in (CONTROL, USER) or t == USER) for k, t in zip(found, types)):
        # The library finds its user-defined markers in users' text too, and no control piece that is white space.
        if not parsed.bpe:
            raise InvalidFile("a SentencePiece unigram model with user-defined markers is not supported")
        model = None
    if model is None:
        model = model_proto(spec, texts[: len(scores)], scores, found)
    if writes_blanks(*spec.normalizer, *spec.pre_tokenizer):
        model += b"\x1a\x02\x18\0"  # normaliser: add_dummy_prefix, see model_proto; the last one counts

    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InvalidFile(f"the SentencePiece model cannot be used ({one_line(error)}); get the file again") from None
    parts = list(map(_bytes_of, texts, kinds))
    pieces_of = cutter(spec.pre_tokenizer)

    def encode(text: str, first: bool) -> list[int]:
        ids: list[int] = []
        for piece in pieces_of(text, first):
            ids += processor.EncodeAsIds(piece)
            check_interrupted()
        return ids

    return array("I", accumulate(map(len, parts))), b"".join(parts), encode


def _bytes_of(text: str, kind: int) -> bytes:
    """The bytes that a piece adds to the text of an answer."""
    if kind == BYTE:
        return bytes((byte_value(text),))
    return b"" if kind in (CONTROL, UNKNOWN) else text.replace("\u2581", " ").encode("utf-8", "replace")


def model_proto(spec: TokenizerSpec, texts: list[str], scores: Sequence[float], kinds: bytearray) -> bytes:
    """A serialised ModelProto from GGUF's arrays (google/sentencepiece, sentencepiece_model.proto).

    It is written by hand because the library can load nothing else, and its own Python bindings need the protobuf
    package.  Key = field << 3 | wire type: 0 varint, 2 length and bytes, 5 32-bit.  The library requires exactly one
    UNKNOWN piece, no empty or repeated piece, and all 256 byte pieces or none.

    Raises InvalidFile for a damaged vocabulary.
    """

    def varint(value: int) -> bytes:
        out = bytearray()
        value &= (1 << 64) - 1
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
        return bytes(out)

    def number(field: int, value: int) -> bytes:
        return varint(field << 3) + varint(value)

    def data(field: int, value: bytes) -> bytes:
        return varint(field << 3 | 2) + varint(len(value)) + value

    unk = kinds.find(UNKNOWN)
    if unk >= len(texts):
        raise InvalidFile(f"the unknown token's id {unk} is outside the vocabulary of {len(texts)} tokens")
    every_byte = {byte_value(t) for t, k in zip(texts, kinds) if k == BYTE} == set(range(256))
    seen: set[bytes] = set()
    names: list[bytes] = []
    out = []
    for i, (text, score, kind) in enumerate(zip(texts, scores, kinds)):
        name = text.encode("utf-8", "replace")
        if kind == BYTE and not every_byte:
            kind = UNUSED
        if not name or name in seen or b"\0" in name:
            name = b"%s\xee\x80\x80%d" % (name[:64].replace(b"\0", b""), i)
            kind = kind if i == unk else UNUSED
        seen.add(name)
        names.append(name)
        if not math.isfinite(score):
            raise InvalidFile(f"the score of token {i} is {score}; the vocabulary is damaged")
        piece = data(1, name) + b"\x15" + struct.pack("<f", score) + number(3, kind)
        out.append(data(1, piece))
    bos = spec.bos_id if spec.bos_id is not None else -1
    eos = spec.eos_ids[0] if spec.eos_ids else -1
    trainer = number(3, 2) + number(4, len(texts)) + number(35, every_byte)  # BPE, vocabulary size, byte fallback
    for field, name_field, value in ((40, 45, unk), (41, 46, bos), (42, 47, eos), (43, 48, -1)):
        inside = value if value < len(names) else -1  # an added token is none of the library's pieces
        trainer += number(field, inside)
        if inside >= 0:
            trainer += data(name_field, names[inside])
    # normaliser: add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
    normalizer = data(1, b"identity") + number(3, spec.add_space_prefix) + number(4, 0) + number(5, 1)
    return b"".join(out) + data(2, trainer) + data(3, normalizer)
