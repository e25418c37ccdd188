"""planes: an ordinary model as sums of ternary matrices, so that it runs on ternary kernels without training.

Each matrix becomes W[row][k] ~ sum over p of scale[p][row][k / group] * code[p][row][k], codes -1, 0, 1 (PTQTP, arXiv
2509.16989).  It is stored as one ternary matrix of k * n_plane columns, in which the groups of all planes that belong
to the same columns lie side by side (docs/planes.md).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from edge.errors import InvalidFile, UsageError
from edge.formats import names
from edge.formats.checkpoint import Checkpoint, Tensor
from edge.formats.container import Buffer, Entry
from edge.formats.matrices import all_ternary
from edge.registry.encodings import ENCODINGS, MOST_PLANES, PLANE_TYPES, TERNARY_TYPES
from edge.tools.new_file import NewFile

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")
GROUPS = tuple(sorted(PLANE_TYPES))

_PIECE = 1 << 20  # weights that are fitted at a time


@dataclass(frozen=True)
class Planes:
    """How to make planes: ``count`` of them for each matrix, with a scale for each ``group`` columns.

    Raises UsageError for values that are not valid.
    """

    count: int = 3
    group: int = 32
    n_threads: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_PLANES:
            hint = f"use 1 to {MOST_PLANES}"
            raise UsageError(f"{self.count} planes cannot be written", argument="planes", hint=hint)
        if self.group not in GROUPS:
            hint = f"use {', '.join(map(str, GROUPS))}"
            raise UsageError(f"groups of {self.group} cannot be written", argument="group", hint=hint)


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
    """A new file with planes: each group of weights by itself is fitted as well as possible."""

    def __init__(self, checkpoint: Checkpoint, planes: Planes, embedding: str) -> None:
        check(checkpoint, planes.group)
        self.planes = planes
        config = dataclasses.replace(
            checkpoint.config, planes=planes.group, activation_quant=f"int8-{planes.group}")
        super().__init__(dataclasses.replace(checkpoint, config=config), PLANE_TYPES[planes.group], embedding)

    def metadata(self, extra: Mapping[str, Any] | None) -> dict[str, Any]:
        """All keys of the file, with where the planes come from and what they lose; the latter is NaN before all
        matrices are written.
        """
        matrices = [part.name for part in names.parts(self.config) if part.role == "matrix"]
        sums = [self.measured.get(name, (math.nan, math.nan)) for name in matrices]
        error, whole = (sum(each) for each in zip(*sums, strict=True))
        about = {
            "source": self.source(),
            "method": "fit",
            "bits": self.planes.count * (2 + 16 / self.planes.group),  # two of each code, 16 of the scale of a group
            "error": error / whole if whole else 0.0,
        }
        return super().metadata({**(extra or {}),
                                 **{f"bitnet-edge.planes.{key}": value for key, value in about.items()}})

    def source(self) -> str:
        """Name and types of what it is made from: "model.gguf (F16)"."""
        types = {tensor.type for name, tensor in self.checkpoint.tensors.items() if names.is_projection(name)}
        return f"{os.path.basename(os.path.abspath(self.checkpoint.path))} ({', '.join(sorted(types))})"

    def cost(self, entry: Entry) -> int:
        return entry.nbytes if entry.type == self.type else 0  # the rest takes no time beside a fit

    def _entry(self, role: str, tensor: Tensor) -> Entry:
        if role != "matrix":
            return super()._entry(role, tensor)
        rows, k = tensor.shape
        return Entry(tensor.name, self.type, (rows, k * self.planes.count), partial(self._planes, tensor))

    def _planes(self, tensor: Tensor) -> Iterator[Buffer]:
        """Some rows at a time, as whole panels: so progress moves, and little memory is needed."""
        from pyx.weights import StoredRows, all_floats, fit_matrix, pack_planes

        rows, k = tensor.shape
        n_plane, group, n_threads = self.planes.count, self.planes.group, self.planes.n_threads
        stored = StoredRows(tensor.type, tensor.data, rows, k)
        order = self.order(tensor.name) or range(rows)
        sums = [0.0, 0.0]
        panel = ENCODINGS[self.type].rows
        some = max(_PIECE // k // panel, 1) * panel
        for which in (order[at : at + some] for at in range(0, rows, some)):
            try:
                codes, scales, *squares = fit_matrix(
                    all_floats(stored, which, n_threads), len(which), k, group, n_plane, n_threads)
            except ValueError as failed:
                raise InvalidFile(f"{self.checkpoint.path}: tensor {tensor.name}: {failed}") from None
            sums = [each + more for each, more in zip(sums, squares, strict=True)]
            yield pack_planes(codes, scales, n_plane, len(which), k, group)
        self.measured[tensor.name] = sums[0], sums[1]
