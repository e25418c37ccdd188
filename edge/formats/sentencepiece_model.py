"""Reads a SentencePiece ``tokenizer.model`` (a serialised ModelProto) without the protobuf package.

It reads the pieces and the special ids only.  Wire format: key = field << 3 | wire type, varint = 0, 64 bit = 1,
length-delimited = 2, 32 bit = 5.  Field numbers: google/sentencepiece, sentencepiece_model.proto.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from edge.errors import InvalidFile


@dataclass
class SentencePieceModel:
    """Pieces in id order and the special ids (None where the model has none)."""

    pieces: list[str] = field(default_factory=list)
    scores: array[float] = field(default_factory=lambda: array("f"))
    types: array[int] = field(default_factory=lambda: array("i"))
    bpe: bool = False
    unk_id: int | None = 0
    bos_id: int | None = 1
    eos_id: int | None = 2
    pad_id: int | None = None
    add_dummy_prefix: bool = True
    #: True if its normaliser leaves texts unchanged, except that blanks become "\u2581" before words
    plain: bool = False


def parse(data: bytes | memoryview, what: str) -> SentencePieceModel:
    """The pieces and special ids of a serialised ModelProto.  Raises InvalidFile that names ``what`` if it is not
    one.
    """
    model = SentencePieceModel()
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    try:
        for number, value in _fields(data):
            if number == 1:
                piece = dict(_fields(value))
                model.pieces.append(str(piece.get(1, b""), "utf-8"))
                model.scores.append(struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0)
                model.types.append(piece.get(3, 1))
            elif number == 2:
                trainer |= _fields(value)
            elif number == 3:
                normalizer |= _fields(value)
        model.bpe = trainer.get(3) == 2
        for number, name in ((40, "unk_id"), (41, "bos_id"), (42, "eos_id"), (43, "pad_id")):
            if number in trainer:  # ids are int32; -1 (none) comes as a 64-bit two's complement varint
                setattr(model, name, trainer[number] if trainer[number] < 1 << 31 else None)
        model.add_dummy_prefix = normalizer.get(3, 1) > 0
        changes = len(normalizer.get(2, b"")) or normalizer.get(4, 1) > 0 or trainer.get(24, 0) > 0
        model.plain = normalizer.get(5, 1) > 0 and not changes
    except (ValueError, OverflowError, TypeError, struct.error) as error:  # TypeError: a number where bytes belong
        raise InvalidFile(f"{what}: not a SentencePiece model ({error}); get the file again") from None
    if not model.pieces:
        raise InvalidFile(f"{what}: not a SentencePiece model (it has no pieces); get the file again")
    return model


def _fields(data: bytes | memoryview) -> Iterator[tuple[int, Any]]:
    """(field number, integer or bytes) of one message; fixed 32- and 64-bit values are returned as bytes."""
    view = memoryview(data)
    pos, end = 0, len(view)

    def varint() -> int:
        nonlocal pos
        value = shift = 0
        while True:
            if pos >= end or shift > 63:
                raise ValueError("a number runs off the end")
            byte = view[pos]
            pos += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    while pos < end:
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        if kind == 2:
            n = varint()
        elif kind in (1, 5):
            n = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if n > end - pos:
            raise ValueError("a field runs off the end")
        yield key >> 3, view[pos : pos + n]
        pos += n
