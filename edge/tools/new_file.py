"""The file that a conversion makes: its keys, and the type and bytes of each tensor.

:mod:`edge.tools.convert` writes it; :mod:`edge.tools.planes` has another kind, for dense models.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from edge.config import ModelConfig
from edge.errors import EdgeError, InvalidFile, UsageError
from edge.formats import gguf, names
from edge.formats.checkpoint import SEPARATE_EXPERTS, Checkpoint, Reading, Tensor
from edge.formats.container import Buffer, Entry
from edge.formats.gguf_keys import architecture, metadata, rope_tensor
from edge.formats.matrices import packed
from edge.layers import Delta
from edge.registry.encodings import (
    BINARY_TYPES,
    ENCODINGS,
    FLOAT_TYPES,
    GROUP_TYPES,
    PANELS,
    TERNARY_TYPES,
)
from edge.registry.families import FAMILIES

if TYPE_CHECKING:
    from pyx.weights import TernaryMatrix

#: TQ2_0 holds the same groups of 128 weights as I2_S, with the four codes of a byte in the opposite order
_REVERSED = bytes(b >> 6 | (b >> 2 & 0x0C) | (b << 2 & 0x30) | (b << 6 & 0xC0) for b in range(256))

_ROWS = 256  # embedding rows per piece


def _conventions(c: ModelConfig) -> tuple[Any, ...]:
    """The part of a configuration that must be read back unchanged: all but numbers that a file rounds to float32, and
    the rotation, whose style it may change.
    """
    layers = [asdict(layer) for layer in c.layers]
    for layer in layers:
        for name in ("rotation", "query_scale"):
            layer["mixer"].pop(name, None)
    return c.n_vocab, c.activation_quant, c.tied, c.rotated, layers


#: tensors of a gated delta layer with rows for each value head
_OF_VALUE_HEADS = ("attn_qkv", "attn_gate", "ssm_conv1d", "ssm_alpha", "ssm_beta", "ssm_a", "ssm_dt")


def _tiled(config: ModelConfig) -> ModelConfig:
    """The same model with the value heads of gated delta layers in the order of GGUF (:class:`edge.layers.Delta`)."""
    layers = tuple(
        replace(layer, mixer=replace(layer.mixer, tiled=True)) if isinstance(layer.mixer, Delta) else layer
        for layer in config.layers
    )
    return replace(config, layers=layers)


def _place(name: str) -> tuple[int, str]:
    """The layer of a tensor and what it is there, (3, "attn_q"); (-1, "") of one that belongs to no layer."""
    parts = name.split(".")
    return (int(parts[1]), parts[2]) if parts[0] == "blk" else (-1, "")


def _heads(mixer: Any) -> list[int] | None:
    """The old value head of each new one, of a gated delta mixer whose heads are not tiled; None if nothing moves."""
    each = mixer.n_v_head // mixer.n_k_head
    if mixer.tiled or 1 in (each, mixer.n_k_head):
        return None
    return [key * each + i for i in range(each) for key in range(mixer.n_k_head)]


class NewFile:
    """The new file: the type of each tensor.

    Raises UsageError if the model cannot be stored in this form.
    """

    def __init__(self, checkpoint: Checkpoint, type: str, embedding: str) -> None:
        self.checkpoint = checkpoint
        self.config = _tiled(checkpoint.config)
        self.type = type
        self.embedding = embedding
        self.arch = architecture(self.config)
        # some architectures keep Q and K rows ordered for interleaved rotary pairs, others for half-split pairs
        style = FAMILIES[self.arch].rope_style
        rotation = self.config.attention[0].rotation
        self.permute = style if style != rotation.style else None
        if self.permute and any(mixer.qkv_bias for mixer in self.config.attention):
            raise UsageError(f"{checkpoint.path}: has biases of queries and keys, which cannot be reordered for GGUF; "
                             "use the original model")
        #: True if matrices have a scale per 128 weights of a row; and the type that stores these
        self.grouped = self.config.activation_quant == "int8-128"
        self.groups = PANELS if type == "I2_S" else "PQ2_0"
        if self.permute and rotation.dim != self.config.head_dim:
            raise UsageError(f"{checkpoint.path}: rotates only {rotation.dim} of {self.config.head_dim} "
                             "dimensions, whose rows cannot be reordered for GGUF")
        self.notes: list[str] = []
        #: tensor that takes long -> what was measured while it was made; of planes, the sums of the squares of errors
        #: and weights
        self.measured: dict[str, tuple[float, float]] = {}

    def metadata(self, extra: Mapping[str, Any] | None) -> dict[str, Any]:
        """All keys of the file.  Numbers may change while the tensors are written, not the size of a value."""
        return metadata(self.checkpoint, self.groups if self.grouped else self.type, extra)

    def entries(self) -> list[Entry]:
        """One entry per tensor; the bytes are computed when the writer reads them."""
        tensors = self.checkpoint.tensors
        entries = [
            self._entry(part.role, tensors[part.name]) for part in names.parts(self.config) if part.name in tensors
        ]
        made = rope_tensor(self.config)
        if made is not None and made[0] not in tensors:
            entries.append(Entry(made[0], "F32", (len(made[1]),), array("f", made[1]).tobytes()))
        return entries

    def cost(self, entry: Entry) -> int:
        """The share of a tensor in the time that it takes, as bytes."""
        return entry.nbytes

    def _entry(self, role: str, tensor: Tensor) -> Entry:
        stored, made = self._stored(role, tensor)
        return Entry(tensor.name, stored, tensor.shape, partial(made, tensor, stored))

    def _stored(self, role: str, tensor: Tensor) -> tuple[str, Callable[[Tensor, str], Iterator[Buffer]]]:
        """The type of a tensor in the file, and what makes its bytes of it and that type."""
        row = tensor.shape[-1]
        if role in ("matrix", "experts"):
            if not self._is_ternary(tensor):
                if tensor.scale != 1.0:
                    self._refuse(tensor, "is dense and has a scale, which cannot be written")
                self.notes.append(f"{tensor.name} is not ternary; copied as {tensor.type}")
                return tensor.type, self._table
            if self.grouped:
                if row % 128:
                    self._refuse(tensor, f"has rows of {row}, not a multiple of 128 as {self.groups} needs; use the "
                                         "original model")
                return "PQ2_0" if len(tensor.shape) == 3 and tensor.shape[1] % 64 else self.groups, self._groups
            if self.type == "I2_S" and math.prod(tensor.shape) % 128:
                self._refuse(tensor, f"has {math.prod(tensor.shape)} weights, not a multiple of 128 as I2_S needs; use "
                                     "the original model")
            if self.type == "TQ2_0" and row % ENCODINGS["TQ2_0"].span:
                self._refuse(tensor, f"has rows of {row}, not a multiple of 256 as TQ2_0 needs; use I2_S")
            return self.type, self._ternary
        if role != "table":
            return "F32", self._table
        if tensor.type in (*GROUP_TYPES, *BINARY_TYPES):  # ternary too: any other type is larger and no better
            # of a table that is not the head only a row is read at a time
            return self.groups if tensor.name == self.checkpoint.head else "PQ2_0", self._groups
        stored = tensor.type if self.embedding == "keep" else self.embedding
        if stored == "Q8_0" and row % 32:
            self._refuse(tensor, f"has rows of {row}, not a multiple of 32 as Q8_0 needs; use F16")
        return stored, self._table

    def _refuse(self, tensor: Tensor, why: str) -> NoReturn:
        raise UsageError(f"{self.checkpoint.path}: tensor {tensor.name} {why}")

    def _is_ternary(self, tensor: Tensor) -> bool:
        """True if a projection becomes ternary: stored so, rounded on demand, or floats that are scale x {-1, 0, 1}."""
        if tensor.type in (*TERNARY_TYPES, SEPARATE_EXPERTS) or tensor.floats == "latent":
            return True
        if tensor.type not in FLOAT_TYPES or tensor.floats == "dense":
            return False
        try:
            self._pack(tensor)
        except InvalidFile:
            if tensor.floats != "either":
                raise
            return False
        return True

    def _pack(self, tensor: Tensor, groups: bool = False) -> TernaryMatrix:
        """A stored projection; ``groups``: with a scale for each 128 weights."""
        try:
            return packed(tensor, groups=groups)
        except ValueError as error:
            raise InvalidFile(f"{self.checkpoint.path}: tensor {tensor.name}: {error}") from None

    # ---- producers: what the writer calls ----

    def _ternary(self, tensor: Tensor, stored: str) -> Iterator[Buffer]:
        from pyx.weights import TernaryMatrix

        rows, k = tensor.flat
        matrix = self._pack(tensor)
        scale, *others = set(matrix.scales)
        if others:
            self._refuse(tensor, f"has several scales and {stored} gets one; use the original model")
        if self.moves(tensor.name):
            weights = b"".join(self._moved(tensor.name, memoryview(matrix.unpack()).cast("B"), rows))
            matrix = TernaryMatrix.pack("I8", memoryview(weights), rows, k, scale=scale)
        yield matrix.encode() if stored == "I2_S" else self._tq2(tensor, matrix.encode()[:-32], scale)

    def _groups(self, tensor: Tensor, stored: str) -> Iterator[Buffer]:
        """PQ2_0: for each 128 weights a float16 scale and 32 bytes of codes; or panels of these."""
        from pyx.weights import TernaryMatrix

        matrix = self._pack(tensor, groups=True)
        if self.moves(tensor.name):
            groups, unit = matrix.encode_groups(), ENCODINGS["PQ2_0"].nbytes
            data = b"".join(self._moved(tensor.name, groups, matrix.n_row, unit=unit))
            matrix = TernaryMatrix.pack("PQ2_0", data, matrix.n_row, matrix.k)
        yield matrix.encode_panels() if stored == PANELS else matrix.encode_groups()

    def _tq2(self, tensor: Tensor, codes: bytes, scale: float) -> bytes:
        """TQ2_0: per 256 weights 64 bytes of codes (low bits first) and a float16 scale."""
        try:
            half = struct.pack("<e", scale)
        except OverflowError:
            half = b"\0\0"
        if half == b"\0\0":
            self._refuse(tensor, "has a scale beyond float16, as TQ2_0 stores it; use I2_S")
        codes = codes.translate(_REVERSED)
        return b"".join(codes[i : i + 64] + half for i in range(0, len(codes), 64))

    def _table(self, tensor: Tensor, stored: str) -> Iterator[Buffer]:
        """Embedding, head, norms and matrices of floats: as stored, or decoded and encoded again row by row."""
        from pyx.weights import StoredRows

        data = tensor.data
        if self.moves(tensor.name):
            data = memoryview(b"".join(self._moved(tensor.name, data, tensor.shape[0])))
        if tensor.type == stored:
            yield data
            return
        rows, k = tensor.shape if len(tensor.shape) == 2 else (1, tensor.shape[0])
        old = StoredRows(tensor.type, data, rows, k)
        encode = _ENCODERS[stored]
        for start in range(0, rows, _ROWS):
            try:
                yield b"".join(encode(old.row(i)) for i in range(start, min(start + _ROWS, rows)))
            except (OverflowError, ValueError):
                raise InvalidFile(f"{self.checkpoint.path}: tensor {tensor.name} holds values that {stored} cannot; "
                                  "use F32") from None

    # ---- the order of rows and columns ----

    def moves(self, name: str) -> bool:
        """True if a tensor has rows or columns in another order in the file."""
        return self.order(name) is not None or self.columns(name) is not None

    def _moved(self, name: str, values: Any, n_row: int, unit: int = 1) -> Iterator[Any]:
        """The parts of a sequence with something for each row, or for equal parts of it, in the order of the file;
        ``unit`` items are never parted.
        """
        width, columns = len(values) // n_row, self.columns(name)
        rows: Sequence[int] = self.order(name) or range(n_row)
        if columns is None or width == 1:  # one scale for a whole row
            yield from (values[row * width : (row + 1) * width] for row in rows)
            return
        part = width // len(columns)
        if part * len(columns) != width or part % unit:
            raise UsageError(f"{self.checkpoint.path}: tensor {name} has scales for more weights than a value head has "
                             "columns, which cannot be reordered for GGUF; use the original model")
        yield from (values[start : start + part] for row in rows
                    for start in (row * width + column * part for column in columns))

    def columns(self, name: str) -> list[int] | None:
        """Which value head's columns, of those that ``ssm_out`` has, each head has in the file; None: no change."""
        layer, kind = _place(name)
        return _heads(self.checkpoint.config.layers[layer].mixer) if kind == "ssm_out" else None

    def order(self, name: str) -> list[int] | None:
        """The old row of each new row if rows of queries and keys, or those of value heads, are reordered; None if not.

        Half-split row (half h, index d) of a head becomes row 2d + h for interleaved pairs (as in llama.cpp's
        conversion).
        """
        layer, kind = _place(name)
        if kind in _OF_VALUE_HEADS:
            mixer: Any = self.checkpoint.config.layers[layer].mixer
            heads = _heads(mixer)
            if heads is None:
                return None
            others = mixer.channels - mixer.inner if kind in ("attn_qkv", "ssm_conv1d") else 0  # queries and keys
            each = mixer.head_dim_v if kind in ("attn_qkv", "ssm_conv1d", "attn_gate") else 1
            return [*range(others), *(others + head * each + row for head in heads for row in range(each))]
        if self.permute is None or kind not in ("attn_q", "attn_k"):
            return None
        head_dim = self.config.head_dim
        n_head = self.config.n_head if kind == "attn_q" else self.config.n_kv_head
        half = head_dim // 2
        if self.permute == "interleaved":
            inside = [h * half + d for d in range(half) for h in range(2)]
        else:
            inside = [2 * d + h for h in range(2) for d in range(half)]
        return [head * head_dim + row for head in range(n_head) for row in inside]

    # ---- when it is written ----

    def verify(self, path: str) -> None:
        """Read the file back.  Raises EdgeError unless it is the same model."""
        if _conventions(gguf.read(path, Reading()).config) != _conventions(self.config):
            raise EdgeError(f"{self.checkpoint.path}: verification of the conversion failed: the dimensions differ "
                            "after reading it back")


# ---- float encoders: one row array("f") -> bytes ---------------------------------------------------------------------


def to_f16(row: array[float]) -> bytes:
    """Float16 [k], little endian.  Raises OverflowError for a value beyond float16."""
    return struct.pack(f"<{len(row)}e", *row)


def _to_q8_0(row: array[float]) -> bytes:
    from pyx.weights import to_q8_0

    return to_q8_0(row)


_ENCODERS: dict[str, Callable[[array[float]], bytes]] = {
    "F32": lambda row: row.tobytes(),
    "F16": to_f16,
    "Q8_0": _to_q8_0,
}
