"""Writes GGUF files: version 3, alignment 32 (64 for panels).  The same input gives the same bytes."""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from edge.files import replacing
from edge.formats.gguf_header import (
    ALIGNMENT,
    ARRAY,
    BOOL,
    MAGIC,
    PANEL_ALIGNMENT,
    SCALARS,
    STRING,
    VERSION,
    StringArray,
)
from edge.registry.encodings import ENCODINGS

Buffer = bytes | bytearray | memoryview


class Entry(NamedTuple):
    """One tensor to write.  ``data``: its bytes, or a function that yields them in pieces."""

    name: str
    type: str
    shape: tuple[int, ...]  # NumPy order, (out, in)
    data: Buffer | Callable[[], Iterable[Buffer]]

    @property
    def type_id(self) -> int:
        """The number of the tensor's type in the file."""
        return ENCODINGS[self.type].number

    @property
    def nbytes(self) -> int:
        """Size of the tensor's data in bytes."""
        return ENCODINGS[self.type].size(self.shape[::-1])


def layout(metadata: Mapping[str, Any], tensors: Sequence[Entry]) -> tuple[bytes, list[int]]:
    """The header of a file up to its first tensor; then the offset of each tensor, in the given order, and of the end.

    Metadata values: bool, int (stored as u32 where it fits), float (f32), str, lists of these, array.array, or values
    from :func:`read_header`.
    """
    alignment = ALIGNMENT
    if any(ENCODINGS[entry.type].layout == "panels" for entry in tensors):
        alignment = PANEL_ALIGNMENT
        metadata = {**metadata, "general.alignment": alignment}
    head = bytearray(MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(metadata)))
    for key, value in metadata.items():
        head += _string(key)
        head += encode_value(key, value)
    offset = 0
    offsets = []
    for entry in tensors:
        dims = entry.shape[::-1]
        head += _string(entry.name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, entry.type_id, offset)
        offsets.append(offset)
        offset += -(-entry.nbytes // alignment) * alignment
    offsets.append(offset)
    head += bytes(-len(head) % alignment)
    return bytes(head), [len(head) + offset for offset in offsets]


def put(file: BinaryIO, entry: Entry) -> int:
    """Write the bytes of a tensor where the file stands, which is where :func:`layout` puts it; returns their CRC.

    Raises ValueError for data that do not have the size of their type and shape.
    """
    done, crc, size = 0, 0, entry.nbytes
    for piece in entry.data() if callable(entry.data) else (entry.data,):
        file.write(piece)
        done += memoryview(piece).nbytes
        crc = zlib.crc32(piece, crc)
    if done != size:
        raise ValueError(f"tensor {entry.name} brought {done} bytes, {entry.type} needs {size}")
    return crc


def write(path: str | os.PathLike[str], metadata: Mapping[str, Any], tensors: Sequence[Entry]) -> None:
    """Write a GGUF file: version 3, tensors in the order given, same input same bytes.

    The file appears under its name only when it is complete.  Raises ValueError as :func:`put` does.
    """
    head, offsets = layout(metadata, tensors)
    with replacing(os.fspath(path)) as file:
        file.write(head)
        for entry, offset in zip(tensors, offsets[:-1], strict=True):
            file.seek(offset)
            put(file, entry)
        file.truncate(offsets[-1])  # what lies between tensors is zeros


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


_FORMAT_TYPES = {"B": 0, "b": 1, "H": 2, "h": 3, "I": 4, "i": 5, "f": 6, "?": 7, "Q": 10, "q": 11, "d": 12}


def encode_value(key: str, value: Any) -> bytes:
    """The type id and the bytes of a metadata value.  Raises ValueError for a type that GGUF does not have."""
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        for kind, least, most in ((4, 0, 1 << 32), (5, -1 << 31, 0), (10, 0, 1 << 64), (11, -1 << 63, 0)):
            if least <= value < most:
                return struct.pack("<I" + SCALARS[kind], kind, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, StringArray):
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + value.raw()
    if isinstance(value, array):
        value = memoryview(value)
    if isinstance(value, memoryview):
        return struct.pack("<IIQ", ARRAY, _FORMAT_TYPES[value.format], len(value)) + value.tobytes()
    if isinstance(value, (list, tuple)) and value:
        if all(isinstance(element, str) for element in value):
            return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(_string, value))
        if all(isinstance(element, bool) for element in value):
            return struct.pack("<IIQ", ARRAY, BOOL, len(value)) + bytes(value)
        if all(isinstance(element, int) for element in value):
            fits = all(-1 << 31 <= element < 1 << 31 for element in value)
            return encode_value(key, array("i" if fits else "q", value))
        if all(isinstance(element, (int, float)) for element in value):
            return encode_value(key, array("f", value))
    raise ValueError(f"metadata {key}: {type(value).__name__} cannot be written to GGUF")
