"""Groups: tensors that become rows of groups (PQ2_0, or Q2_0) when they are loaded, in memory of their own.

The kernels read groups of 128 weights of two bits behind their scale.  The words of MLX are such codes, whose scales
are stored apart.  Q1_0 (Bonsai 1-bit) has a bit for each weight, -1 or +1: codes 0 and 2.
"""

from __future__ import annotations

from edge.formats import mlx
from edge.formats.checkpoint import Tensor


def groups_type(tensor: Tensor) -> str:
    """The type of the result of :func:`as_groups`."""
    return "PQ2_0" if tensor.type == "Q1_0" else mlx.whole_type(tensor)


def as_groups(tensor: Tensor) -> Tensor:
    """The matrix as rows of groups, if its type is one of TO_GROUPS; another tensor is returned unchanged.

    Raises ValueError if the weights are not ternary or a scale exceeds float16.
    """
    if tensor.type != "Q1_0":
        return mlx.whole(tensor)
    from pyx.ternary import binary_groups

    return tensor._replace(type="PQ2_0", data=memoryview(binary_groups(tensor.data)))
