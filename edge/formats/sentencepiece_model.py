"""Reads a SentencePiece ``tokenizer.model`` (a serialised ModelProto) without the protobuf package.

It reads the pieces and the special ids only.  Wire format: key = field << 3 | wire type, varint = 0, 64 bit = 1,
length-delimited = 2, 32 bit = 5.  Field numbers: google/sentencepiece, sentencepiece_model.proto.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

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
    #: whether its normaliser leaves texts unchanged, except that blanks become "\u2581" before words
    plain: bool = False


def parse(data: bytes | memoryview, what: str) -> SentencePieceModel:
    """The pieces and special ids of a serialised ModelProto.  Raises InvalidFile that names ``what`` if it is not
    one.
    """
    model = SentencePieceModel()
    try:
        view = memoryview(data)
        #: settings that change a text, with the defaults of the format
        remove_blanks, escape, suffix, rules = True, True, False, False
        for number, value in _fields(view):
            if number == 1:
                piece, score, kind = "", 0.0, 1
                for inner, v in _fields(_bytes(value)):
                    if inner == 1:
                        piece = str(_bytes(v), "utf-8")
                    elif inner == 2:
                        (score,) = struct.unpack("<f", _bytes(v))
                    elif inner == 3:
                        kind = _int(v)
                model.pieces.append(piece)
                model.scores.append(score)
                model.types.append(kind)
            elif number == 2:
                for inner, v in _fields(_bytes(value)):
                    if inner == 3:
                        model.bpe = v == 2
                    elif inner == 24:
                        suffix = bool(_int(v))
                    elif inner in (40, 41, 42, 43):
                        # ids are int32; -1 (none) comes as a 64-bit two's complement varint
                        setattr(model, {40: "unk_id", 41: "bos_id", 42: "eos_id", 43: "pad_id"}[inner],
                                _int(v) if _int(v) < 1 << 31 else None)
            elif number == 3:
                for inner, v in _fields(_bytes(value)):
                    if inner == 2:
                        rules = bool(len(_bytes(v)))
                    elif inner == 3:
                        model.add_dummy_prefix = bool(_int(v))
                    elif inner == 4:
                        remove_blanks = bool(_int(v))
                    elif inner == 5:
                        escape = bool(_int(v))
        model.plain = escape and not (remove_blanks or suffix or rules)
    except (ValueError, OverflowError, struct.error) as error:
        raise InvalidFile(f"{what}: not a SentencePiece model ({error}); get the file again") from None
    if not model.pieces:
        raise InvalidFile(f"{what}: not a SentencePiece model (it has no pieces); get the file again")
    return model


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where bytes belong")
    return value


def _int(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes where a number belongs")
    return value


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(field number, value) of one message; fixed 32- and 64-bit values are returned as bytes."""
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
