"""SentencePiece by its own library, also for GGUF files that have only the arrays of the model.

The library encodes a text in one call that cannot be interrupted: 4 MB take seconds.  So a long text is encoded in
blocks that overlap, and two blocks are joined after a token that both have at the same place.  The ids are those of one
call.  The reason, for pieces that are merged in the order of their scores:

- Tokens are the encoding of the text they stand for if and only if each two neighbours are the encoding of theirs.
  Merges go by (score, place), so what happens inside of one token does not change the order of merges inside another,
  and the first merge across the border of two tokens would happen in the two alone just as well.
- So any stretch of an encoding is the encoding of its stretch of text, and two encodings that share a token can be
  joined at it: the neighbours of every border are neighbours in one of the two.

This requires that the bytes of the text are not changed (no normaliser) and that merges are not undone (no unused
pieces).
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from edge.errors import InvalidFile, one_line
from edge.prompt.interrupt import check_interrupted
from edge.prompt.tokenizer.steps import cutter
from edge.prompt.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    UNKNOWN,
    UNUSED,
    USER,
    Encode,
    byte_value,
)

if TYPE_CHECKING:
    from edge.formats.checkpoint import TokenizerSpec
    from edge.formats.text_steps import Step

#: bytes of text in one call of the library, and those at its end that the next call reads again
BLOCK = 8192
OVERLAP = 512


def build(
    steps: Sequence[Step], texts: Sequence[str], kinds: bytearray, model: bytes, blank: int | None
) -> tuple[array[int], bytes, Encode]:
    """(end of each token in the joined bytes, the joined bytes, function text -> ids) of a serialised ModelProto.

    ``steps``: by which texts are cut before.  ``blank``: number of blanks that the model puts before a text.  None: a
    long text cannot be encoded in blocks, since the model does not merge by score or changes the text otherwise.

    Raises InvalidFile if the library refuses the model.
    """
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InvalidFile(f"the SentencePiece model cannot be used ({one_line(error)}); get the file again") from None
    parts = []
    for text, kind in zip(texts, kinds):
        if kind == BYTE:
            parts.append(bytes((byte_value(text),)))
        elif kind in (CONTROL, UNKNOWN):
            parts.append(b"")
        else:
            parts.append(text.replace("\u2581", " ").encode("utf-8", "replace"))
    of_piece: Callable[[str], list[int]] = processor.EncodeAsIds
    if blank is not None and UNUSED not in kinds:
        cut = max((len(part) for part, kind in zip(parts, kinds) if kind == USER), default=0)
        of_piece = _in_blocks(processor.EncodeAsIds, array("I", map(len, parts)), blank, cut)
    pieces_of = cutter(steps)

    def encode(text: str, first: bool) -> list[int]:
        ids: list[int] = []
        for piece in pieces_of(text, first):
            ids += of_piece(piece)
            check_interrupted()
        return ids

    return array("I", accumulate(map(len, parts))), b"".join(parts), encode


def _in_blocks(
    encode: Callable[[str | bytes], list[int]], size: array[int], blank: int, margin: int
) -> Callable[[str], list[int]]:
    """``encode`` for texts of any length; interrupts are checked between blocks.

    ``size``: bytes of text that each token stands for, 0 if unknown.  ``margin``: bytes at the end of a block in which
    a user-defined piece may have been split.
    """
    # What the library puts in front of a text shall not join its first token; most vocabularies write a line end as a
    # byte, which joins nothing.
    before = b"\n" if all(size[id] for id in encode("\n")) else b""
    added = blank + len(before)
    if sum(size[id] for id in encode(before + b" ")) not in (added + 1, 0):
        return encode  # it writes blanks as bytes, too, three for each: the sizes mislead

    def joint(ids: list[int], end: int, data: bytes, overlap: int) -> tuple[int, list[int], int] | None:
        """(how many of ``ids``, the encoding of data[:end], stay; what follows them; where that ends)."""
        at, i = end, len(ids)
        ends: dict[int, int] = {}
        while i and at > end - overlap and size[ids[i - 1]]:
            if at <= end - margin:
                ends[at] = i
            i -= 1
            at -= size[ids[i]]
        at = _start(data, max(at, 0))
        stop = _start(data, end + BLOCK)
        more = encode(before + data[at:stop])
        at -= added
        for j, id in enumerate(more):
            at += size[id]
            if not size[id] or at > end:
                break
            if (i := ends.get(at, 0)) and ids[i - 1] == id:
                return i, more[j + 1 :], stop
        return None

    def in_blocks(text: str) -> list[int]:
        if len(text) <= BLOCK // 4:
            return encode(text)
        data = text.replace("\u2581", " ").encode()
        end = _start(data, BLOCK)
        ids = encode(data[:end])
        while end < len(data):
            check_interrupted()
            found = joint(ids, end, data, OVERLAP) or joint(ids, end, data, BLOCK // 2)
            if found is None:  # an unknown token in the way (a vocabulary without bytes), or a text made for this
                return encode(text)
            keep, more, end = found
            ids[keep:] = more
        return ids

    return in_blocks


def _start(data: bytes, at: int) -> int:
    """The start of the character at ``at``, or the end of the data."""
    if at >= len(data):
        return len(data)
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return at


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
