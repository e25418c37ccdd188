"""A new file with planes: which models can have some, how many of each matrix, and their fit, group by group."""

from __future__ import annotations

import dataclasses
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from edge.errors import InvalidFile, UsageError
from edge.formats import names
from edge.formats.checkpoint import Checkpoint, Tensor
from edge.formats.gguf_writer import Buffer, Entry
from edge.formats.matrices import all_ternary
from edge.registry.encodings import MOST_PLANES, PLANE_TYPES, TERNARY_TYPES
from edge.tools.new_file import NewFile, Written

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")
GROUPS = tuple(sorted(PLANE_TYPES))
MOST = 3
#: planes of every matrix where nothing was measured
USUAL = 3


@dataclass(frozen=True)
class Planes:
    """How to make planes.

    ``count``: planes of each matrix; None: as measured with ``calibrate``, else :data:`USUAL`.  ``group``: columns
    that share a scale.  ``calibrate``: read a text with the model before (:mod:`edge.tools.planes.calibrated`);
    ``text``: its file, None: the one that ships.  ``bits`` per weight of all matrices and ``nats`` of divergence: how
    many planes may be chosen, and when no more are needed.

    Raises UsageError for values that are not valid or do not go together.
    """

    count: int | None = None
    group: int = 32
    n_threads: int = 1
    calibrate: bool = False
    text: str | None = None
    bits: float | None = None
    nats: float | None = None

    def __post_init__(self) -> None:
        if self.count is not None and not 1 <= self.count <= MOST:
            raise UsageError(f"{self.count} planes cannot be written", argument="planes", hint="use 1, 2, 3 or auto")
        if self.group not in GROUPS:
            hint = f"use {', '.join(map(str, GROUPS))}"
            raise UsageError(f"groups of {self.group} cannot be written", argument="group", hint=hint)
        if self.text is not None and not self.calibrate:
            raise UsageError("a text is read only for calibration; add --calibrate")
        if (self.bits, self.nats) != (None, None) and (not self.calibrate or self.count is not None):
            raise UsageError("--bits and --kl choose the number of planes; use --planes auto with --calibrate")
        if self.bits is not None and not bits(1, self.group) <= self.bits <= bits(MOST_PLANES, self.group):
            raise UsageError(f"{self.bits:g} bits per weight; with groups of {self.group} it can be "
                             f"{bits(1, self.group):g} to {bits(MOST_PLANES, self.group):g}")
        if self.nats is not None and not 0 < self.nats < math.inf:
            raise UsageError(f"a divergence of {self.nats:g} nats is not a positive number")


def bits(n_plane: float, group: int) -> float:
    """Bits per weight of that many planes: two of each code, 16 of the scale of each group."""
    return n_plane * (2 + 16 / group)


def check(checkpoint: Checkpoint, group: int) -> None:
    """Raise InvalidFile or UsageError, with one line, unless the model can be made of planes."""
    path, arch = checkpoint.path, checkpoint.config.arch
    matrices = [tensor for name, tensor in checkpoint.tensors.items() if names.is_projection(name)]
    known = any(each.type in TERNARY_TYPES or each.floats == "latent" for each in matrices)
    if known or all_ternary(matrices):
        raise UsageError(f"{path}: is ternary already; convert it without --planes")
    if arch not in FAMILIES:
        raise UsageError(f"{path}: planes of architecture {arch} are not supported ({', '.join(FAMILIES)} are)")
    for tensor in matrices:
        if tensor.shape[1] % group:
            fitting = [each for each in GROUPS if tensor.shape[1] % each == 0]
            hint = f"use --group {fitting[-1]}" if fitting else "it needs a multiple of 32; use llama.cpp"
            raise UsageError(f"{path}: tensor {tensor.name} has rows of {tensor.shape[1]}, not a multiple of {group}; "
                             f"{hint}")


class PlanesFile(NewFile):
    """A new file with planes.  Without calibration: each group of weights by itself is fitted as well as possible."""

    def __init__(self, checkpoint: Checkpoint, planes: Planes, embedding: str) -> None:
        check(checkpoint, planes.group)
        self.planes = planes
        config = dataclasses.replace(
            checkpoint.config, planes=planes.group, activation_quant=f"int8-{planes.group}")
        super().__init__(dataclasses.replace(checkpoint, config=config), PLANE_TYPES[planes.group], embedding)

    def metadata(self, extra: Mapping[str, Any] | None) -> dict[str, Any]:
        """All keys of the file; what is measured while the tensors are written is NaN before."""
        return super().metadata({**(extra or {}), **{f"bitnet-edge.planes.{key}": value
                                                     for key, value in self.about().items()}})

    def about(self) -> dict[str, Any]:
        """Where the planes come from and what they lose, by key."""
        sums = self._squares() if self.done() else [(math.nan, math.nan)]
        error, whole = (sum(each) for each in zip(*sums, strict=True))
        return {"source": self.source(), "method": "fit", "bits": self.bits(),
                "error": error / whole if whole else 0.0}

    def done(self) -> bool:
        """Whether all matrices are written."""
        return all(self._squares())

    def _squares(self) -> list[Sequence[float]]:
        return [written.squares for name, written in self.written.items() if names.is_projection(name)]

    def source(self) -> str:
        """Name and types of what it is made from: "model.gguf (F16)"."""
        types = {tensor.type for name, tensor in self.checkpoint.tensors.items() if names.is_projection(name)}
        return f"{os.path.basename(os.path.abspath(self.checkpoint.path))} ({', '.join(sorted(types))})"

    def n_plane(self, tensor: Tensor) -> int:
        """Planes of a matrix."""
        return self.planes.count or USUAL

    def bits(self) -> float:
        """Bits per weight of all matrices."""
        sizes = [(math.prod(tensor.shape), self.n_plane(tensor))
                 for name, tensor in self.checkpoint.tensors.items() if names.is_projection(name)]
        return bits(sum(size * n_plane for size, n_plane in sizes) / sum(size for size, _ in sizes), self.planes.group)

    def work(self, entry: Entry) -> int:
        """The bytes of planes: tables and vectors take next to no time."""
        return entry.nbytes if entry.type == self.type else 0

    def _entry(self, role: str, tensor: Tensor) -> Entry:
        if role != "matrix":
            return super()._entry(role, tensor)
        self.written[tensor.name] = Written()
        rows, k = tensor.shape
        return Entry(tensor.name, self.type, (rows, k * self.n_plane(tensor)), partial(self._planes, tensor))

    def floats(self, tensor: Tensor) -> memoryview:
        """A matrix as float32 [n_row * k], in the order of rows that is written."""
        from pyx.weights.planes import floats
        from pyx.weights.stored_rows import StoredRows

        rows = StoredRows(tensor.type, tensor.data, *tensor.shape)
        return floats(rows, self.order(tensor.name), self.planes.n_threads)

    def made(self, tensor: Tensor) -> tuple[Any, Any, float, float]:
        """Codes, scales and the sums of squares of errors and weights, see pyx.weights.planes.fit."""
        from pyx.weights.planes import fit

        rows, k = tensor.shape
        return fit(self.floats(tensor), rows, k, self.planes.group, self.n_plane(tensor), self.planes.n_threads)

    def _planes(self, tensor: Tensor) -> Iterator[Buffer]:
        from pyx.weights.ternary import pack_planes

        rows, k = tensor.shape
        try:
            codes, scales, error, whole = self.made(tensor)
        except ValueError as failed:
            raise InvalidFile(f"{self.checkpoint.path}: tensor {tensor.name}: {failed}") from None
        data = pack_planes(codes, scales, self.n_plane(tensor), rows, k, self.planes.group)
        self.written[tensor.name] = Written(zlib.crc32(data), squares=(error, whole))
        yield data
