"""GGUF: read and write the container, and describe the ternary models in it.

Versions 2 and 3, little-endian.  The header is walked once over the memory map; token and merge strings stay bytes in
the file until somebody asks for them (a 128 k vocabulary has 408 thousand strings).  Every count, length, dimension
and offset is checked against the file before it is used, and nothing is allocated from an unchecked count.

Why not the ``gguf`` package: it refuses any file that holds a tensor of type I2_S (id 36), which is what the official
BitNet files are made of.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; the ternary types and the per-architecture rules are
explained where they are used.
"""

from __future__ import annotations

import math
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, overload

from edge.config import ModelConfig
from edge.errors import InvalidFile, UsageError
from edge.formats import names
from edge.formats.checkpoint import TERNARY_TYPES, Checkpoint, Tensor, TokenizerSpec
from edge.formats.mapped import located, map_file, shown

MAGIC = b"GGUF"
VERSION = 3
ALIGNMENT = 32
LAYOUTS = ("128", "64", "1x4")

# Beyond these a header is hostile or damaged, not a model.
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_NAME = 255
MAX_STRING = 16 << 20

#: id -> (name, elements per block, bytes per block); I2_S has no blocks, see tensor_bytes()
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    36: ("I2_S", 4, 1),
}
TYPE_IDS = {name: number for number, (name, _, _) in TYPES.items()}

_AGAIN = "download or convert the model again as I2_S or TQ2_0"
#: ids whose meaning depends on who wrote the file, or that we name only to refuse them well
_FOREIGN: dict[int, str] = {
    37: f"I8_S; {_AGAIN}",
    38: f"TL1, a table layout that can only be decoded with the tile sizes of the machine that wrote it; {_AGAIN}",
    40: f"NVFP4 (or an early Q1_0); {_AGAIN}",
    41: "Q1_0, which is binary rather than ternary; use a ternary model",
    134: f"IQ1_BN of ik_llama.cpp; {_AGAIN}",
    135: f"IQ2_BN of ik_llama.cpp; {_AGAIN}",
    142: f"PQ2_0, group-scaled weights of the Prism fork; {_AGAIN}",
    143: f"PTQ1_0, group-scaled weights of the Prism fork; {_AGAIN}",
    335: f"IQ2_BN_R4 of ik_llama.cpp; {_AGAIN}",
}

#: value type id -> (struct code, bytes); 8 is string, 9 is array
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_SCALAR_STRUCTS = {number: struct.Struct("<" + code) for number, code in _SCALARS.items()}
_STRING, _ARRAY, _BOOL = 8, 9, 7
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

ARCHITECTURES = ("bitnet", "bitnet-b1.58", "bitnet-25", "llama")

#: our own keys: what GGUF has no word for
KEY_PATTERN = "bitnet_edge.tokenizer.pattern"
KEY_IGNORE_MERGES = "bitnet_edge.tokenizer.ignore_merges"
KEY_EOS_IDS = "bitnet_edge.tokenizer.eos_token_ids"

#: names of pre-tokenisers that split like Llama 3, whose tokenizers put BOS first
_LLAMA3_PRE = ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "falcon_e")


# ---- the container ---------------------------------------------------------------------------------------------------


class StringArray(Sequence[str]):
    """The strings of a metadata array, decoded from the file only when accessed.

    An element that is not UTF-8 raises InvalidFile at that moment.
    """

    __slots__ = ("_ends", "_first", "_view", "_where")

    def __init__(self, view: memoryview, first: int, ends: array[int], where: str) -> None:
        self._view = view  # the whole file
        self._first = first  # where the first string's length stands
        self._ends = ends  # end of each string
        self._where = where  # file and key, for messages

    def __len__(self) -> int:
        return len(self._ends)

    def _decode(self, index: int, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise InvalidFile(f"{self._where}, element {index}: not UTF-8; the file is damaged") from None

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = (self._ends[index - 1] if index else self._first) + 8
        return self._decode(index, bytes(self._view[start : self._ends[index]]))

    def __iter__(self) -> Iterator[str]:
        raw, start = self.raw(), 8
        for index, end in enumerate(self._ends):
            end -= self._first
            yield self._decode(index, raw[start:end])
            start = end + 8

    def raw(self) -> bytes:
        """All elements as stored: length, bytes, length, bytes, ..."""
        return bytes(self._view[self._first : self._ends[-1] if self._ends else self._first])


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as the header describes it."""

    name: str
    type_id: int
    dims: tuple[int, ...]  # ggml order: dims[0] is contiguous
    offset: int  # from the start of the file
    nbytes: int | None  # None where the size cannot be known (a foreign type)
    span: int  # bytes up to the next tensor or the end of the file

    @property
    def type(self) -> str:
        return TYPES[self.type_id][0] if self.type_id in TYPES else f"type {self.type_id}"

    @property
    def shape(self) -> tuple[int, ...]:
        """NumPy order: (out, in) for a matrix."""
        return self.dims[::-1]


@dataclass(frozen=True)
class Header:
    """A validated GGUF header over the mapped file."""

    path: str
    version: int
    alignment: int
    metadata: dict[str, Any]  # numbers, bools, str, StringArray, or memoryview for arrays of numbers
    tensors: dict[str, TensorInfo]
    view: memoryview

    def fail(self, what: str) -> NoReturn:
        raise InvalidFile(f"{self.path}: {what}")

    # Accessors are tolerant on width and strict on kind: writers disagree on u32/u64/i32, never on what a value is.

    def integer(self, key: str, default: int | None = None) -> int | None:
        """An integer; a per-layer array counts when all its elements agree."""
        value = self.metadata.get(key)
        if isinstance(value, memoryview) and len(value) and value.format not in ("f", "d"):
            first = value[0]
            if len(value) > 1024 or any(element != first for element in value):
                self.fail(f"{shown(key)} differs from layer to layer, which is not supported")
            value = first
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{shown(key)} is no integer; the file is damaged")
        return value

    def real(self, key: str, default: float | None = None) -> float | None:
        value = self.metadata.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(f"{shown(key)} is no number; the file is damaged")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str | None:
        value = self.metadata.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.fail(f"{shown(key)} is no text; the file is damaged")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool | None:
        value = self.metadata.get(key)
        if value is None:
            return default
        if not isinstance(value, int):
            self.fail(f"{shown(key)} is no yes or no; the file is damaged")
        return bool(value)

    def strings(self, key: str) -> Sequence[str]:
        value = self.metadata.get(key)
        if value is None:
            return ()
        if not isinstance(value, StringArray):
            self.fail(f"{shown(key)} is no list of texts; the file is damaged")
        return value

    def numbers(self, key: str) -> Sequence[Any]:
        value = self.metadata.get(key)
        if value is None:
            return ()
        if not isinstance(value, memoryview):
            self.fail(f"{shown(key)} is no list of numbers; the file is damaged")
        return value


def tensor_bytes(type_id: int, dims: Sequence[int]) -> int | None:
    """Stored bytes of a tensor; None for a type whose size is not known here.  Raises ValueError if dims cannot be.

    I2_S is one stream of n/4 code bytes, one float32 scale and 28 bytes of tail (microsoft/BitNet, ggml_nbytes).
    """
    if type_id not in TYPES:
        return None
    _, elements, size = TYPES[type_id]
    count = math.prod(dims)
    if type_id == TYPE_IDS["I2_S"]:
        if count % 4:
            raise ValueError(f"{count} weights do not fill whole bytes")
        return count // 4 + 32
    if dims[0] % elements:
        raise ValueError(f"rows of {dims[0]} are no multiple of the block of {elements}")
    return count // elements * size


class _Cursor:
    """Reads the header front to back; running off the end is an InvalidFile naming what was being read."""

    def __init__(self, path: str, view: memoryview) -> None:
        self.path = path
        self.view = view
        self.size = len(view)
        self.pos = 0

    def fail(self, what: str) -> NoReturn:
        raise InvalidFile(f"{self.path}: {what}")

    def take(self, n: int, what: str) -> int:
        """Move n bytes on; returns where they start."""
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
            value = form.unpack_from(self.view, self.take(form.size, what))[0]
            return bool(value) if kind == _BOOL else value
        if kind == _STRING:
            return self.string(what, MAX_STRING)
        if kind != _ARRAY:
            self.fail(f"{what} has unknown value type {kind}; the file is damaged")
        kind = self.u32(what)
        count = self.u64(what)
        if kind == _STRING:
            return self.strings(count, key)
        if kind not in _SCALAR_STRUCTS:
            self.fail(f"{what} is an array of type {kind}, which GGUF does not allow; the file is damaged")
        n = count * _SCALAR_STRUCTS[kind].size
        start = self.take(n, what)
        return self.view[start : start + n].cast(_SCALARS[kind])  # type: ignore[call-overload]

    def strings(self, count: int, key: str) -> StringArray:
        """Walk ``count`` strings and note where each one ends."""
        first = pos = self.pos
        size = self.size
        if count > (size - pos) // 8:
            self.fail(f"key {shown(key)} claims {count} texts, more than the file can hold; it is damaged")
        ends = array("q")
        append, length, view = ends.append, _U64.unpack_from, self.view
        try:
            for _ in range(count):
                pos += length(view, pos)[0] + 8
                if pos > size:
                    break
                append(pos)
        except struct.error:
            pass
        if len(ends) != count:
            self.fail(f"the file ends inside key {shown(key)}; it is incomplete, get it again")
        self.pos = pos
        return StringArray(view, first, ends, f"{self.path}: {shown(key)}")


def read_header(path: str | os.PathLike[str]) -> Header:
    """Map a GGUF file and validate its header: all of the container, nothing about the model.

    Works for vocabulary-only files too.  Raises ModelNotFound or InvalidFile.
    """
    path = os.fspath(path)
    view = map_file(path)
    cursor = _Cursor(path, view)
    if view[:4] != MAGIC:
        cursor.fail(_what_it_is(bytes(view[:8])))
    cursor.take(4, "the magic")
    version = cursor.u32("the version")
    if version & 0xFFFF == 0:
        cursor.fail("a big-endian GGUF; only little-endian files are supported, get that one")
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
            cursor.fail(f"key {shown(key)} stands twice; the file is damaged")
        metadata[key] = cursor.value(kind, key)

    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 16 or alignment & (alignment - 1):
        cursor.fail(f"general.alignment is {shown(alignment)}, not a power of two up to 65536; the file is damaged")

    found: list[tuple[str, int, tuple[int, ...], int, int | None]] = []
    seen: set[str] = set()
    for i in range(n_tensors):
        name = cursor.string(f"the name of tensor {i}", MAX_NAME)
        what = f"tensor {shown(name)}"
        if name in seen:
            cursor.fail(f"{what} stands twice; the file is damaged")
        seen.add(name)
        n_dims = cursor.u32(what)
        if not 1 <= n_dims <= 4:
            cursor.fail(f"{what} has {n_dims} dimensions; the file is damaged")
        dims = tuple(cursor.u64(what) for _ in range(n_dims))
        # No element takes less than 1/8 byte, so a larger product cannot be in this file.
        if 0 in dims or math.prod(dims) > cursor.size * 8:
            cursor.fail(f"{what} has dimensions {dims}, which cannot be in this file; it is damaged")
        type_id = cursor.u32(what)
        offset = cursor.u64(what)
        if offset % alignment:
            cursor.fail(f"{what} starts at {offset}, no multiple of the alignment {alignment}; the file is damaged")
        try:
            nbytes = tensor_bytes(type_id, dims)
        except ValueError as error:
            cursor.fail(f"{what} ({TYPES[type_id][0]}): {error}; the file is damaged")
        found.append((name, type_id, dims, offset, nbytes))

    start = -(-cursor.pos // alignment) * alignment
    found.sort(key=lambda row: row[3])
    tensors = {}
    for i, (name, type_id, dims, offset, nbytes) in enumerate(found):
        begin = start + offset
        end = start + found[i + 1][3] if i + 1 < len(found) else cursor.size
        if begin + (nbytes or 1) > cursor.size:
            cursor.fail(f"tensor {shown(name)} ends beyond the file; it is incomplete, get it again")
        if begin + (nbytes or 1) > end:
            cursor.fail(f"tensor {shown(name)} overlaps {shown(found[i + 1][0])}; the file is damaged")
        tensors[name] = TensorInfo(name, type_id, dims, begin, nbytes, end - begin)
    return Header(path, version, alignment, metadata, tensors, view)


def _what_it_is(head: bytes) -> str:
    """Name the file that is not GGUF."""
    if head[:4] == MAGIC[::-1]:
        return "a big-endian GGUF; only little-endian files are supported, get that one"
    if head[:2] == b"PK" or head[:1] == b"\x80":
        return ("a pickled PyTorch file, which can run code when opened; convert it to safetensors "
                "where it came from, or get the .safetensors or .gguf file")
    if head[:4] in (b"ggml", b"lmgg", b"ggjt", b"tjgg", b"ggla"):
        return "an old GGML file from before GGUF; convert the model again"
    if head[:7] == b"version":
        return "a Git LFS pointer, not the model; fetch the real file with 'git lfs pull'"
    return "not a GGUF file (it does not begin with 'GGUF'); is the download complete?"


# ---- the model -------------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], *, i2s_layout: str = "128", activation: str | None = None) -> Checkpoint:
    """Describe a ternary model in a GGUF file.

    ``i2s_layout``: how I2_S codes are arranged; nothing in the file tells (all published files use "128").
    ``activation``: "relu2" or "silu", over what the file or its architecture says.
    Raises ModelNotFound, InvalidFile (one line naming the key or tensor) or UsageError.
    """
    if i2s_layout not in LAYOUTS:
        raise UsageError(f"i2s layout {i2s_layout!r} is not known; use one of {', '.join(LAYOUTS)}")
    if activation not in (None, "relu2", "silu"):
        raise UsageError(f"activation {activation!r} is not known; use relu2 or silu")
    header = read_header(path)
    notes: list[str] = []
    arch = _check_kind(header)
    config = _config(header, arch, activation, notes)
    tensors = _tensors(header, i2s_layout)
    with located(header.path):
        notes += names.check(config, tensors)
    spec = _tokenizer(header, config.n_vocab, notes)
    return Checkpoint(
        path=header.path,
        format="gguf",
        config=config,
        tensors=tensors,
        tokenizer=spec,
        chat_template=header.text("tokenizer.chat_template"),
        # float projections of a GGUF are what they are: dense unless their values are ternary already
        metadata={**header.metadata, "ternary_marker": False},
        notes=notes,
        keep=(header.view,),
    )


def read_tokenizer(path: str | os.PathLike[str]) -> TokenizerSpec:
    """Only the tokenizer of a GGUF file, which may be vocabulary-only."""
    header = read_header(path)
    return _tokenizer(header, len(header.strings("tokenizer.ggml.tokens")), [])


def _check_kind(header: Header) -> str:
    """Refuse, by name, what we know and do not run; returns the architecture."""
    count = header.integer("split.count", 1) or 1
    if count > 1:
        part = (header.integer("split.no", 0) or 0) + 1
        header.fail(f"part {part} of a model split in {count}; join the parts with 'llama-gguf-split --merge' first")
    if any(key.startswith("prism.hadamard.") for key in header.metadata):
        header.fail("its weights are stored in a rotated basis (prism.hadamard.*), which would give garbage here; "
                    "use a model without it")
    arch = header.text("general.architecture")
    if arch is None:
        header.fail("general.architecture is missing; this is no model file")
    if arch not in ARCHITECTURES:
        header.fail(f"architecture {shown(arch)} is not supported ({', '.join(ARCHITECTURES)} are); "
                    "bitnet-edge runs BitNet-type ternary models")
    for info in header.tensors.values():
        reason = _foreign(info, arch)
        if reason:
            header.fail(f"tensor {shown(info.name)} has type {reason}")
    if "token_embd.weight" not in header.tensors:
        header.fail("it holds no weights (token_embd.weight is missing): a vocabulary-only or incomplete file")
    kinds = {info.type for name, info in header.tensors.items() if names.is_projection(name)}
    if kinds and not kinds & set(TERNARY_TYPES):
        header.fail(f"a dense model (its matrices are {', '.join(sorted(kinds))}), not a ternary one; run it with "
                    "llama.cpp, or, if its weights are ternary, convert it to I2_S or TQ2_0 first")
    return arch


def _foreign(info: TensorInfo, arch: str) -> str | None:
    """Why a tensor's type cannot be read, told by id, architecture and byte span (ids differ between forks)."""
    n, k = math.prod(info.dims), info.dims[0]
    if info.type_id == TYPE_IDS["I2_S"]:
        # 36 was IQ4_NL_4_4 in llama.cpp once: 18 bytes per 32 weights, more than twice as long
        nl = n // 32 * 18
        if n >= 1024 and nl <= info.span < nl + ALIGNMENT:
            return f"36 with the size of IQ4_NL_4_4, not of I2_S; {_AGAIN}"
        return None
    if info.type_id in TYPES:
        return None
    if info.type_id in (39, 42):
        if arch.startswith(("bitnet", "llama")) and len(info.dims) == 2 and k > 256:
            rows = n // k
            tl2 = -(-((k - 256) * rows // 3 * 5 // 8 + 256 * rows // 2 * 4 // 8) // 32) * 32 + 32
            if tl2 <= info.span < tl2 + 64:
                return f"{info.type_id} with the size of TL2, which cannot be decoded without the sizes it was " \
                       f"written for; {_AGAIN}"
        if info.type_id == 39:
            return f"MXFP4 (or TL2); {_AGAIN}"
        groups = 128 if n // 128 * 34 <= info.span < n // 64 * 18 else 64
        return f"Q2_0 in groups of {groups}, which is not supported; {_AGAIN}"
    if info.type_id in _FOREIGN:
        return f"{info.type_id}, {_FOREIGN[info.type_id]}"
    return f"id {info.type_id}, which is not known; {_AGAIN}"


def _config(header: Header, arch: str, override: str | None, notes: list[str]) -> ModelConfig:
    """ModelConfig from ``<arch>.*`` and the shapes of a few tensors."""

    def need(key: str) -> int:
        value = header.integer(f"{arch}.{key}")
        if value is None:
            header.fail(f"{arch}.{key} is missing; the file is incomplete, get it again")
        return value

    hidden = need("embedding_length")
    n_head = need("attention.head_count")
    n_kv_head = header.integer(f"{arch}.attention.head_count_kv", n_head) or 0
    head_dim = header.integer(f"{arch}.attention.key_length", hidden // n_head if n_head else 0) or 0
    if header.integer(f"{arch}.attention.value_length", head_dim) != head_dim:
        header.fail(f"{arch}.attention.value_length differs from key_length, which is not supported")
    embedding = header.tensors["token_embd.weight"].shape
    n_vocab = embedding[0]
    said = header.integer(f"{arch}.vocab_size")
    if said is not None and said != n_vocab:
        notes.append(f"{arch}.vocab_size says {said}, the embedding has {n_vocab} rows; taken as {n_vocab}")
    eps = header.real(f"{arch}.attention.layer_norm_rms_epsilon")
    if eps is None:
        header.fail(f"{arch}.attention.layer_norm_rms_epsilon is missing; the file is incomplete, get it again")
    theta = header.real(f"{arch}.rope.freq_base", 10000.0) or 0.0
    scaling = header.text(f"{arch}.rope.scaling.type", "none")
    factor = header.real(f"{arch}.rope.scaling.factor", header.real(f"{arch}.rope.scale_linear", 1.0))
    if scaling not in ("none", "linear") and factor != 1.0:
        header.fail(f"{arch}.rope.scaling.type {shown(scaling)} is not supported (linear is)")
    name = header.text("general.name") or ""
    if not 0 < len(name) < 200 or not name.isprintable():  # it will be printed: no escape sequences
        name = os.path.splitext(os.path.basename(header.path))[0]
    fields: dict[str, Any] = {
        "n_layer": need("block_count"),
        "ffn": need("feed_forward_length"),
        "n_ctx_train": need("context_length"),
        "rope_dim": header.integer(f"{arch}.rope.dimension_count", head_dim),
        "activation": _activation(header, arch, n_head == n_kv_head and theta == 10000.0, override, notes),
        "name": name,
    }
    with located(header.path):
        return ModelConfig(
            arch=arch,
            hidden=hidden,
            n_head=n_head,
            n_kv_head=n_kv_head,
            head_dim=head_dim,
            n_vocab=n_vocab,
            rope_theta=theta,
            # llama files keep Q and K rows permuted for interleaved pairs; bitnet files do not
            rope_style="interleaved" if arch == "llama" else "half",
            eps=eps,
            sub_norm="blk.0.attn_sub_norm.weight" in header.tensors,
            tied="output.weight" not in header.tensors,
            rope_scale=factor if factor else 1.0,
            **fields,
        )


def _activation(header: Header, arch: str, mha_10000: bool, override: str | None, notes: list[str]) -> str:
    """Which activation gates the feed-forward part.

    The user's word, then ``<arch>.hidden_activation``, then the architecture: bitnet and llama are SiLU, bitnet-b1.58
    and bitnet-25 are squared ReLU, except that Microsoft's converter labels the SiLU models of 1bitLLM bitnet-b1.58
    too.  Those have a SentencePiece vocabulary, or full multi-head attention and rope base 10000.
    """
    said = header.text(f"{arch}.hidden_activation")
    if said is not None:
        said = {"relu_squared": "relu2", "relu_sqr": "relu2", "swish": "silu"}.get(said, said)
        if said not in ("relu2", "silu"):
            header.fail(f"{arch}.hidden_activation {shown(said)} is not supported (relu2 and silu are)")
    if override is not None:
        if said not in (None, override):
            notes.append(f"activation {override} as asked, although the file says {said}")
        return override
    if said is not None:
        return said
    if arch in ("bitnet", "llama"):
        return "silu"
    sentencepiece = header.text("tokenizer.ggml.model") == "llama"
    if sentencepiece or mha_10000:
        why = "a SentencePiece vocabulary" if sentencepiece else "full attention and rope base 10000"
        notes.append(f"activation taken as SiLU: labelled {arch} but has {why}, as the 1bitLLM models do; "
                     "if answers are garbage, ask for relu2")
        return "silu"
    return "relu2"


def _tensors(header: Header, i2s_layout: str) -> dict[str, Tensor]:
    """Tensors by name, with ``.scale`` companions folded in."""
    scales: dict[str, float] = {}
    for name, info in header.tensors.items():
        if name.endswith(".scale") and name[:-6] + ".weight" in header.tensors:
            if info.type not in names.VECTOR_TYPES or math.prod(info.dims) != 1:
                header.fail(f"tensor {shown(name)} is not one float; the file is damaged")
            scales[name[:-6] + ".weight"] = _one_float(header.view[info.offset : info.offset + (info.nbytes or 0)],
                                                       info.type)
    tensors = {}
    for name, info in header.tensors.items():
        if name.endswith(".scale") and name[:-6] + ".weight" in scales:
            continue
        assert info.nbytes is not None  # foreign types were refused
        shape = info.shape
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]  # ggml's trailing dimensions of 1 mean nothing
        tensor = Tensor(
            name=name,
            type=info.type,
            shape=shape,
            data=header.view[info.offset : info.offset + info.nbytes],
            scale=scales.get(name, 1.0),
            layout=i2s_layout if info.type == "I2_S" else "128",
        )
        if tensor.type == "I2_S":
            # n/4 bytes cannot hold a last block that is not full: its columns lie in bytes that were cut off
            whole = shape[0] % 4 == 0 if i2s_layout == "1x4" else math.prod(shape) % int(i2s_layout) == 0
            if not whole:
                header.fail(f"tensor {shown(name)} of shape {shape} cannot be I2_S in layout {i2s_layout}")
        tensors[name] = tensor
    return tensors


def _one_float(data: memoryview, type_name: str) -> float:
    if type_name == "F32":
        return float(struct.unpack("<f", data)[0])
    if type_name == "F16":
        return float(struct.unpack("<e", data)[0])
    return float(struct.unpack("<f", b"\0\0" + bytes(data))[0])  # BF16: the upper half of a float32


def _tokenizer(header: Header, n_vocab: int, notes: list[str]) -> TokenizerSpec:
    """TokenizerSpec from ``tokenizer.ggml.*``; kind "none" when the file brings no tokenizer."""
    model = header.text("tokenizer.ggml.model", "none")
    tokens = header.strings("tokenizer.ggml.tokens")
    if model in ("none", "no_vocab") or not tokens:
        notes.append("the file brings no tokenizer: it can be run on token ids only")
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
    if bpe and not pre and len(tokens) == 128256:
        # The official 2B-4T file has no pre; 128256 tokens are Llama 3's vocabulary.
        pre = "llama-bpe"
        notes.append("tokenizer.ggml.pre is missing; taken as llama-bpe because there are 128256 tokens")

    def token_id(key: str) -> int | None:
        value = header.integer(f"tokenizer.ggml.{key}_token_id")
        if value is not None and not 0 <= value < n_vocab:
            notes.append(f"tokenizer.ggml.{key}_token_id {value} is no token; ignored")
            return None
        return value

    eos = [token_id("eos"), token_id("eot"), token_id("eom")]
    for extra in header.numbers(KEY_EOS_IDS)[:64]:
        eos.append(extra if isinstance(extra, int) and 0 <= extra < n_vocab else None)
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
        bos_id=bos,
        eos_ids=tuple(dict.fromkeys(i for i in eos if i is not None)),
        pad_id=token_id("padding"),
        unk_id=token_id("unknown"),
        add_bos=bool(add_bos) and bos is not None,
        add_space_prefix=bool(header.flag("tokenizer.ggml.add_space_prefix", not bpe)),
    )


# ---- the writer ------------------------------------------------------------------------------------------------------

Buffer = bytes | bytearray | memoryview


class Entry(NamedTuple):
    """One tensor to be written.  ``data`` is its bytes, or a function that yields them in pieces."""

    name: str
    type: str
    shape: tuple[int, ...]  # NumPy order, (out, in)
    data: Buffer | Callable[[], Iterable[Buffer]]


def write(path: str | os.PathLike[str], metadata: Mapping[str, Any], tensors: Sequence[Entry]) -> None:
    """Write a GGUF file: version 3, alignment 32, tensors in the order given, same input same bytes.

    Metadata values: bool, int (stored as u32 where it fits), float (f32), str, lists of these, array.array,
    or what :func:`read_header` returned.  The file appears under its name only when it is complete.
    Raises ValueError for data that do not have the size of their type and shape.
    """
    path = os.fspath(path)
    head = bytearray(MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(metadata)))
    for key, value in metadata.items():
        head += _string(key)
        head += _value(key, value)
    offset = 0
    sizes = []
    for entry in tensors:
        type_id = TYPE_IDS[entry.type]
        dims = entry.shape[::-1]
        size = tensor_bytes(type_id, dims)
        assert size is not None
        head += _string(entry.name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_id, offset)
        sizes.append(size)
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    head += bytes(-len(head) % ALIGNMENT)

    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "wb") as file:
            file.write(head)
            for entry, size in zip(tensors, sizes, strict=True):
                done = 0
                for piece in entry.data() if callable(entry.data) else (entry.data,):
                    file.write(piece)
                    done += memoryview(piece).nbytes
                if done != size:
                    raise ValueError(f"tensor {entry.name} brought {done} bytes, {entry.type} needs {size}")
                file.write(bytes(-size % ALIGNMENT))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise


def _string(text: str) -> bytes:
    data = text.encode()
    return _U64.pack(len(data)) + data


_FORMAT_TYPES = {"B": 0, "b": 1, "H": 2, "h": 3, "I": 4, "i": 5, "f": 6, "?": 7, "Q": 10, "q": 11, "d": 12}


def _value(key: str, value: Any) -> bytes:
    """Type id and bytes of a metadata value."""
    if isinstance(value, bool):
        return struct.pack("<IB", _BOOL, value)
    if isinstance(value, int):
        for kind, least, most in ((4, 0, 1 << 32), (5, -1 << 31, 0), (10, 0, 1 << 64), (11, -1 << 63, 0)):
            if least <= value < most:
                return struct.pack("<I" + _SCALARS[kind], kind, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return _U32.pack(_STRING) + _string(value)
    if isinstance(value, StringArray):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + value.raw()
    if isinstance(value, array):
        value = memoryview(value)
    if isinstance(value, memoryview):
        return struct.pack("<IIQ", _ARRAY, _FORMAT_TYPES[value.format], len(value)) + value.tobytes()
    if isinstance(value, (list, tuple)) and value:
        if all(isinstance(element, str) for element in value):
            return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_string, value))
        if all(isinstance(element, bool) for element in value):
            return struct.pack("<IIQ", _ARRAY, _BOOL, len(value)) + bytes(value)
        if all(isinstance(element, int) for element in value):
            return _value(key, array("i" if all(-1 << 31 <= element < 1 << 31 for element in value) else "q", value))
        if all(isinstance(element, (int, float)) for element in value):
            return _value(key, array("f", value))
    raise ValueError(f"metadata {key}: {type(value).__name__} cannot be written to GGUF")
