"""Planes: an ordinary model as sums of ternary matrices, so that it runs on ternary kernels without training.

Each matrix becomes W[row][k] ~ sum over p of scale[p][row][k / group] * code[p][row][k], codes -1, 0, 1 (PTQTP, arXiv
2509.16989).  It is stored as one ternary matrix of k * n_plane columns, in which the groups of all planes that belong
to the same columns lie side by side (docs/planes.md).  This module chooses and writes them; edge.tools.convert does
the rest.
"""

from __future__ import annotations

import dataclasses
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from edge.errors import InvalidFile, UsageError
from edge.formats import gguf, names
from edge.formats.checkpoint import PLANE_TYPES, TERNARY_TYPES, Checkpoint, Tensor
from edge.formats.gguf_writer import Buffer
from edge.tools.convert import Target, Written

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")
GROUPS = tuple(sorted(PLANE_TYPES))
MOST = 3
#: planes of every matrix where nothing was measured
USUAL = 3


@dataclass(frozen=True)
class Planes:
    """How to make planes: ``count`` of each matrix, None: as many as needed; ``group``: columns that share a scale."""

    count: int | None = None
    group: int = 32
    n_threads: int = 1

    def __post_init__(self) -> None:
        if self.count is not None and not 1 <= self.count <= MOST:
            raise UsageError(f"{self.count} planes cannot be written", argument="planes", hint="use 1, 2, 3 or auto")
        if self.group not in GROUPS:
            hint = f"use {', '.join(map(str, GROUPS))}"
            raise UsageError(f"groups of {self.group} cannot be written", argument="group", hint=hint)


def bits(n_plane: float, group: int) -> float:
    """Bits per weight of that many planes: two of each code, 16 of the scale of each group."""
    return n_plane * (2 + 16 / group)


def check(checkpoint: Checkpoint, group: int) -> None:
    """Raise InvalidFile or UsageError, with one line, unless the model can be made of planes."""
    path, arch = checkpoint.path, checkpoint.config.arch
    matrices = [tensor for name, tensor in checkpoint.tensors.items() if names.is_projection(name)]
    if any(each.type in TERNARY_TYPES or each.floats == "latent" or names.looks_ternary(each) for each in matrices):
        raise UsageError(f"{path}: is ternary already; convert it without --planes")
    if arch not in FAMILIES:
        raise UsageError(f"{path}: planes of architecture {arch} are not supported ({', '.join(FAMILIES)} are)")
    for tensor in matrices:
        if tensor.shape[1] % group:
            fitting = [each for each in GROUPS if tensor.shape[1] % each == 0]
            hint = f"use --group {fitting[-1]}" if fitting else "it needs a multiple of 32; use llama.cpp"
            raise UsageError(f"{path}: tensor {tensor.name} has rows of {tensor.shape[1]}, not a multiple of {group}; "
                             f"{hint}")


class PlanesTarget(Target):
    """A new file with planes.  Without calibration: each group of weights by itself is fitted as well as possible."""

    def __init__(self, checkpoint: Checkpoint, planes: Planes, embedding: str) -> None:
        check(checkpoint, planes.group)
        self.planes = planes
        config = dataclasses.replace(
            checkpoint.config, planes=planes.group, activation_quant=f"int8-{planes.group}")
        super().__init__(dataclasses.replace(checkpoint, config=config), PLANE_TYPES[planes.group], embedding)

    def metadata(self, extra: Mapping[str, Any] | None) -> dict[str, Any]:
        """All keys of the file; what is measured while the tensors are written is NaN before."""
        sums = [written.squares for name, written in self.written.items() if names.is_projection(name)]
        error, whole = (sum(each) for each in zip(*sums, strict=True)) if all(sums) else (math.nan, math.nan)
        about = {
            "bitnet-edge.planes.source": self.source(),
            "bitnet-edge.planes.method": "fit",
            "bitnet-edge.planes.bits": self.bits(),
            "bitnet-edge.planes.error": error / whole if whole else 0.0,
        }
        return super().metadata({**(extra or {}), **about})

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

    def _entry(self, tensor: Tensor) -> gguf.Entry:
        if not names.is_projection(tensor.name):
            return super()._entry(tensor)
        self.written[tensor.name] = Written()
        rows, k = tensor.shape
        return gguf.Entry(tensor.name, self.type, (rows, k * self.n_plane(tensor)), partial(self._planes, tensor))

    def _planes(self, tensor: Tensor) -> Iterator[Buffer]:
        from pyx.planes import fit, floats
        from pyx.stored_rows import StoredRows
        from pyx.ternary import pack_planes

        rows, k = tensor.shape
        group, n_plane, n_threads = self.planes.group, self.n_plane(tensor), self.planes.n_threads
        try:
            weights = floats(StoredRows(tensor.type, tensor.data, rows, k), self.order(tensor.name), n_threads)
            codes, scales, error, whole = fit(weights, rows, k, group, n_plane, n_threads)
        except ValueError as failed:
            raise InvalidFile(f"{self.checkpoint.path}: tensor {tensor.name}: {failed}") from None
        data = pack_planes(codes, scales, n_plane, rows, k, group)
        self.written[tensor.name] = Written(zlib.crc32(data), squares=(error, whole))
        yield data
