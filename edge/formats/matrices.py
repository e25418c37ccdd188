"""Matrices: a stored tensor -> the ternary matrix of the compiled layer.

The kernels read groups of 128 weights of two bits, each after its scale.  Binary types (Bonsai 1-bit), which have a bit
for each weight, -1 or +1, become such rows of groups (PQ2_0, codes 0 and 2) when they are loaded, in memory of their
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edge.formats import names
from edge.formats.checkpoint import SEPARATE_EXPERTS, Tensor
from edge.registry.encodings import BINARY_TYPES

if TYPE_CHECKING:
    from pyx.weights import TernaryMatrix


def groups_type(tensor: Tensor) -> str:
    """The type of the result of :func:`as_groups`."""
    return "PQ2_0" if tensor.type in BINARY_TYPES else tensor.type


def as_groups(tensor: Tensor) -> Tensor:
    """A binary matrix as rows of groups; another tensor is returned unchanged.

    Raises ValueError if 128 weights have several scales.
    """
    if tensor.type not in BINARY_TYPES:
        return tensor
    from pyx.weights import binary_groups

    return tensor._replace(type="PQ2_0", data=binary_groups(tensor.data, BINARY_TYPES[tensor.type]).view)


def packed(
    tensor: Tensor, factor: float = 1.0, groups: bool = False, planes: int = 1, check: bool = True
) -> TernaryMatrix:
    """The matrix [rows of all experts, one after the other][columns] of a tensor; ``factor`` multiplies its scales.

    ``groups``: with a scale for each 128 weights.  ``planes``: matrices whose sum it is.  ``check``: look at all
    scales; without that, no byte of a mapped matrix is read.  Raises ValueError as
    :meth:`pyx.weights.TernaryMatrix.pack` does.
    """
    from pyx.machine import Arena
    from pyx.weights import TernaryMatrix

    if tensor.type == SEPARATE_EXPERTS:
        return TernaryMatrix.stack([packed(expert, factor, groups) for expert in tensor.experts])
    copied, tensor = tensor.type in BINARY_TYPES, as_groups(tensor)
    rows, k = tensor.flat
    matrix = TernaryMatrix.pack(
        tensor.type, tensor.data, rows, k // planes, scale=tensor.scale * factor, layout=tensor.layout,
        quantize=tensor.floats == "latent", groups=groups, planes=planes, check=check)
    if copied and matrix.mapped:
        matrix.move_to(Arena(matrix.room), 0)  # no file's map holds it
    return matrix


def all_ternary(matrices: Sequence[Tensor]) -> bool:
    """True if all weights of all float matrices are ternary.  Only a ternary model is read whole."""
    if not all(map(names.looks_ternary, matrices)):
        return False
    try:
        for matrix in matrices:
            packed(matrix)
    except ValueError:
        return False
    return True
