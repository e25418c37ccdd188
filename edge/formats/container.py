"""The GGUF container, read and written.

The header is walked once over the memory map and validated.  Versions 2 and 3, little-endian.  Token and merge strings
stay bytes in the file until they are needed (a 128 k vocabulary has 408 thousand strings).  Every count, length,
dimension and offset is checked against the file before it is used, and nothing is allocated from an unchecked count.

Files are written in version 3, with an alignment of 32 (64 for panels); the same input gives the same bytes.

Why not the ``gguf`` package: it refuses any file that holds a tensor of type I2_S (id 36), which is what the official
BitNet files are made of.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, NoReturn

from edge.errors import InvalidFile
from edge.files import replacing
from edge.formats.mapped import map_file, read, shown
from edge.registry.encodings import BY_ID, ENCODINGS
from pyx.tokens import text_ends, texts_starting

MAGIC = b"GGUF"
VERSION = 3
ALIGNMENT = 32
PANEL_ALIGNMENT = 64  # of files with panels: each step of a kernel is one cache line

# Beyond these a header is hostile or damaged, not a model.
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_NAME = 255
MAX_STRING = 16 << 20

#: value type id -> (struct code, bytes); 8 is string, 9 is array
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SCALAR_STRUCTS = {number: struct.Struct("<" + code) for number, code in SCALARS.items()}
STRING, ARRAY, BOOL = 8, 9, 7
_PICKLED = ("a pickled PyTorch file, which can run code when opened; convert it to safetensors where it came from, or "
            "get the .safetensors or .gguf file")
#: beginning of a file of another format -> the message
_OTHERS = {
    MAGIC[::-1]: "a big-endian GGUF; only little-endian files are supported, get that one",
    b"PK": _PICKLED, b"\x80": _PICKLED,
    **dict.fromkeys((b"ggml", b"lmgg", b"ggjt", b"tjgg", b"ggla"),
                    "an old GGML file from before GGUF; convert the model again"),
    b"\x7fELF": "a program without a model; bitnet-edge pack puts one inside",
    b"version": "a Git LFS pointer, not the model; fetch the real file with 'git lfs pull'",
}
#: in place of the default of a key that must be there
NEEDED: Any = object()
_PIECE = 1 << 18  # bytes of texts that are read at a time
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


Buffer = bytes | bytearray | memoryview


class StringArray(Sequence[str]):
    """Strings, each stored as its length (uint64) and its bytes; decoded only when accessed.

    Accessing an element that is not UTF-8 raises InvalidFile.
    """

    __slots__ = ("_where", "ends", "first", "view")

    def __init__(self, view: memoryview, first: int, ends: array[int], where: str) -> None:
        self.view = view  # of the whole file
        self.first = first  # where the first string's length stands
        self.ends = ends  # end of each string
        self._where = where  # file and key, for messages

    @classmethod
    def of(cls, texts: Sequence[str], where: str) -> StringArray:
        """A StringArray of ``texts``, in its own memory."""
        if isinstance(texts, cls):
            return texts
        stored = bytearray()
        ends = array("q")
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")  # half a pair is found to be none when it is read
            stored += len(data).to_bytes(8, "little") + data
            ends.append(len(stored))
        return cls(memoryview(stored), 0, ends, where)

    def starting(self, prefix: str) -> list[int]:
        """Indices of the strings that start with ``prefix``."""
        return texts_starting(self.view, self.first, self.ends, prefix.encode())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """All elements as they are stored, in pieces, without the file's pages."""
        end = self.ends[-1] if self.ends else self.first
        for at in range(self.first, end, _PIECE):
            yield read(self.view[at : min(at + _PIECE, end)])

    def __len__(self) -> int:
        return len(self.ends)

    def _decode(self, index: int, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise InvalidFile(f"{self._where}, element {index}: not UTF-8; the file is damaged") from None

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = (self.ends[index - 1] if index else self.first) + 8
        return self._decode(index, bytes(self.view[start : self.ends[index]]))

    def __iter__(self) -> Iterator[str]:
        raw, start = self.raw(), 8
        for index, end in enumerate(self.ends):
            end -= self.first
            yield self._decode(index, raw[start:end])
            start = end + 8

    def raw(self) -> bytes:
        """All elements as they are stored: length, bytes, length, bytes, ..."""
        return bytes(self.view[self.first : self.ends[-1] if self.ends else self.first])


class TensorInfo(NamedTuple):
    """One tensor as the header describes it."""

    name: str
    type_id: int
    dims: tuple[int, ...]  # ggml order: dims[0] is contiguous
    offset: int  # from the start of the file
    nbytes: int | None  # None where the size cannot be known (a foreign type)
    span: int  # bytes up to the next tensor or the end of the file
    view: memoryview  # of the file that it is in

    @property
    def type(self) -> str:
        """The name of the type, such as "I2_S"; "type 99" for a foreign one."""
        return BY_ID[self.type_id].name if self.type_id in BY_ID else f"type {self.type_id}"

    @property
    def shape(self) -> tuple[int, ...]:
        """NumPy order: (out, in) for a matrix."""
        return self.dims[::-1]


@dataclass(frozen=True)
class Metadata:
    """The keys of a model and their values, as GGUF has them: of a file, or translated from another format.

    A key that begins with a dot belongs to the architecture of the model: ".block_count".
    """

    path: str
    metadata: dict[str, Any]  # numbers, bools, str, StringArray, or memoryview for arrays of numbers

    def fail(self, what: str) -> NoReturn:
        """Raise InvalidFile that names the file."""
        raise InvalidFile(f"{self.path}: {what}")

    def key(self, key: str) -> str:
        """The whole key."""
        return f"{self.metadata.get('general.architecture')}{key}" if key.startswith(".") else key

    def name(self, key: str) -> str:
        """The key as the file has it, for messages."""
        return self.key(key)

    # Accessors are tolerant on width and strict on kind: writers disagree on u32/u64/i32, never on what a value is.
    # They return the default for a key that is missing (NEEDED: InvalidFile), and raise InvalidFile for a value of
    # another kind.

    def _value(self, key: str, kinds: type | tuple[type, ...], what: str, default: Any) -> Any:
        value = self.metadata.get(self.key(key), default)
        if value is NEEDED:
            self.fail(f"{self.name(key)} is missing; the file is incomplete, get it again")
        if value is not default and (not isinstance(value, kinds) or isinstance(value, bool) is not (kinds is bool)):
            self.fail(f"{shown(self.name(key))} is not {what}; the file is damaged")
        return value

    def integer(self, key: str, default: Any = None) -> Any:
        """An integer; of a per-layer array, its value if all elements are equal."""
        value = self.metadata.get(self.key(key))
        if isinstance(value, memoryview) and len(value) and value.format not in ("f", "d"):
            first = value[0]
            if len(value) > 1024 or any(element != first for element in value):
                self.fail(f"{shown(self.name(key))} differs from layer to layer, which is not supported")
            return int(first)
        return self._value(key, int, "an integer", default)

    def real(self, key: str, default: Any = None) -> Any:
        """A number."""
        value = self._value(key, (int, float), "a number", default)
        return None if value is None else float(value)

    def text(self, key: str, default: Any = None) -> Any:
        """A text."""
        return self._value(key, str, "a text", default)

    def flag(self, key: str, default: Any = None) -> Any:
        """True or false; some writers have numbers."""
        value = self.metadata.get(self.key(key))
        return bool(value) if type(value) is int else self._value(key, bool, "true or false", default)

    def strings(self, key: str) -> Sequence[str]:
        """A list of texts, perhaps empty."""
        return self._value(key, StringArray, "a list of texts", ())

    def numbers(self, key: str) -> Sequence[Any]:
        """A list of numbers, perhaps empty."""
        return self._value(key, memoryview, "a list of numbers", ())

    def layers(self, key: str, n_layer: int, default: Any = NEEDED) -> Sequence[Any]:
        """A number for each layer; the file may have one for all."""
        if not isinstance(self.metadata.get(self.key(key)), memoryview):
            return [self.real(key, default)] * n_layer
        values = self.numbers(key)
        if len(values) != n_layer:
            self.fail(f"{self.name(key)} has {len(values)} entries for {n_layer} layers; the file is damaged")
        return values


@dataclass(frozen=True)
class Header(Metadata):
    """A validated GGUF header over the mapped file."""

    version: int
    alignment: int
    tensors: dict[str, TensorInfo]
    view: memoryview


class _Cursor:
    """Reads the header front to back.  Raises InvalidFile that names what was being read if the file ends too early."""

    def __init__(self, path: str, view: memoryview) -> None:
        self.path = path
        self.view = view
        self.size = len(view)
        self.pos = 0

    def fail(self, what: str) -> NoReturn:
        raise InvalidFile(f"{self.path}: {what}")

    def take(self, n: int, what: str) -> int:
        """Advance by ``n`` bytes; returns the offset where they start."""
        start = self.pos
        if n > self.size - start:
            self.fail(f"the file ends inside {what}; it is incomplete, get it again")
        self.pos = start + n
        return start

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.view, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.view, self.take(8, what))[0])

    def string(self, what: str, limit: int) -> str:
        n = self.u64(what)
        if n > limit:
            self.fail(f"{what} claims {n} bytes of text (limit {limit}); the file is damaged")
        start = self.take(n, what)
        try:
            return str(self.view[start : start + n], "utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8; the file is damaged")

    def value(self, kind: int, key: str) -> Any:
        what = f"key {shown(key)}"
        if kind in _SCALAR_STRUCTS:
            form = _SCALAR_STRUCTS[kind]
            return form.unpack_from(self.view, self.take(form.size, what))[0]
        if kind == STRING:
            return self.string(what, MAX_STRING)
        if kind != ARRAY:
            self.fail(f"{what} has unknown value type {kind}; the file is damaged")
        kind = self.u32(what)
        count = self.u64(what)
        if kind == STRING:
            return self.strings(count, key)
        if kind not in _SCALAR_STRUCTS:
            self.fail(f"{what} is an array of type {kind}, which GGUF does not allow; the file is damaged")
        n = count * _SCALAR_STRUCTS[kind].size
        start = self.take(n, what)
        return self.view[start : start + n].cast(SCALARS[kind])  # type: ignore[call-overload]

    def strings(self, count: int, key: str) -> StringArray:
        """Skip ``count`` strings and record where each one ends."""
        first = self.pos
        if count > (self.size - first) // 8:
            self.fail(f"key {shown(key)} claims {count} texts, more than the file can hold; it is damaged")
        ends = text_ends(self.view, first, count)
        if len(ends) != count:
            self.fail(f"the file ends inside key {shown(key)}; it is incomplete, get it again")
        self.pos = ends[-1] if count else first
        return StringArray(self.view, first, ends, f"{self.path}: {shown(key)}")

    def tensor(self, number: int, alignment: int) -> TensorInfo:
        """One tensor of the header, with its offset from the first one and no span."""
        name = self.string(f"the name of tensor {number}", MAX_NAME)
        what = f"tensor {shown(name)}"
        n_dims = self.u32(what)
        if not 1 <= n_dims <= 4:
            self.fail(f"{what} has {n_dims} dimensions; the file is damaged")
        dims = tuple(self.u64(what) for _ in range(n_dims))
        # No element takes less than 1/8 byte, so a larger product cannot be in this file.
        if 0 in dims or math.prod(dims) > self.size * 8:
            self.fail(f"{what} has dimensions {dims}, which cannot be in this file; it is damaged")
        type_id = self.u32(what)
        offset = self.u64(what)
        if offset % alignment:
            self.fail(f"{what} starts at {offset}, not a multiple of the alignment {alignment}; the file is damaged")
        encoding = BY_ID.get(type_id)
        if encoding and encoding.layout == "panels" and alignment % PANEL_ALIGNMENT:
            self.fail(f"{what} is {encoding.name}, which needs an alignment of {PANEL_ALIGNMENT}, not {alignment}; "
                      "convert the model again")
        try:
            nbytes = encoding.size(dims) if encoding else None
        except ValueError as error:
            self.fail(f"{what} ({encoding.name if encoding else ''}): {error}; the file is damaged")
        return TensorInfo(name, type_id, dims, offset, nbytes, 0, self.view)


def read_header(path: str | os.PathLike[str]) -> Header:
    """Map a GGUF file and validate its header: the whole container, but nothing about the model.

    Also reads files that hold only a vocabulary.  Raises ModelNotFound or InvalidFile.
    """
    path = os.fspath(path)
    view = map_file(path)
    cursor = _Cursor(path, view)
    if view[:4] != MAGIC:
        begins = bytes(view[:8])
        cursor.fail(next((what for magic, what in _OTHERS.items() if begins.startswith(magic)),
                         "not a GGUF file (it does not begin with 'GGUF'); is the download complete?"))
    cursor.take(4, "the magic")
    version = cursor.u32("the version")
    if version & 0xFFFF == 0:
        cursor.fail(_OTHERS[MAGIC[::-1]])
    if version == 1:
        cursor.fail("GGUF version 1, which is obsolete; convert the model again")
    if version not in (2, 3):
        cursor.fail(f"GGUF version {version} is not known (2 and 3 are); update bitnet-edge or convert the model again")
    n_tensors = cursor.u64("the tensor count")
    n_keys = cursor.u64("the key count")
    if n_tensors > MAX_TENSORS or n_keys > MAX_KEYS:
        cursor.fail(f"the header claims {n_tensors} tensors and {n_keys} keys; the file is damaged")

    metadata: dict[str, Any] = {}
    for i in range(n_keys):
        key = cursor.string(f"key {i}", MAX_NAME)
        kind = cursor.u32(f"key {shown(key)}")
        if key in metadata:
            cursor.fail(f"key {shown(key)} appears twice; the file is damaged")
        metadata[key] = cursor.value(kind, key)

    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 16 or alignment & (alignment - 1):
        cursor.fail(f"general.alignment is {shown(alignment)}, not a power of two up to 65536; the file is damaged")

    found: dict[str, TensorInfo] = {}
    for i in range(n_tensors):
        info = cursor.tensor(i, alignment)
        if info.name in found:
            cursor.fail(f"tensor {shown(info.name)} appears twice; the file is damaged")
        found[info.name] = info
    start = -(-cursor.pos // alignment) * alignment
    ordered = sorted(found.values(), key=lambda info: info.offset)
    tensors = {}
    for info, following in zip(ordered, [*ordered[1:], None]):
        begin = start + info.offset
        end = start + following.offset if following else cursor.size
        if begin + (info.nbytes or 1) > cursor.size:
            cursor.fail(f"tensor {shown(info.name)} ends beyond the file; it is incomplete, get it again")
        if following and begin + (info.nbytes or 1) > end:
            cursor.fail(f"tensor {shown(info.name)} overlaps {shown(following.name)}; the file is damaged")
        tensors[info.name] = info._replace(offset=begin, span=end - begin)
    return Header(path, metadata, version, alignment, tensors, view)


# ---- writing ---------------------------------------------------------------------------------------------------------


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

    Metadata values: bool, int (stored as u32 where it fits), float (f32 where it fits), str, lists of these,
    array.array, or values from :func:`read_header`.
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
    import zlib  # not needed to read

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
        file.truncate(offsets[-1])  # between tensors are zeros


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


_FORMAT_TYPES = {code: number for number, code in SCALARS.items()}


def encode_value(key: str, value: Any) -> bytes:
    """The type id and the bytes of a metadata value.  Raises ValueError for a type that GGUF does not have."""
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        for kind, least, most in ((4, 0, 1 << 32), (5, -1 << 31, 0), (10, 0, 1 << 64), (11, -1 << 63, 0)):
            if least <= value < most:
                return struct.pack("<I" + SCALARS[kind], kind, value)
    if isinstance(value, float):
        too_large = 3.4e38 < abs(value) < math.inf  # for a float32
        return struct.pack("<Id", 12, value) if too_large else struct.pack("<If", 6, value)
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
