"""ternary: packed ternary matrices (see ternary.pyx)."""

import array
from collections.abc import Sequence
from typing import Any

from pyx.machine.memory import Arena

#: types that consist of panels -> weights of a group
PANEL_GROUPS: dict[str, int]

def pack_planes(
    codes: Any,  # int8 [n_plane][n_row][k]
    scales: Any,  # float32 [n_plane][n_row][k / group]
    n_plane: int,
    n_row: int,
    k: int,
    group: int,
) -> bytes: ...

def binary_groups(data: Any, block: int = 128) -> Arena:
    """The bytes of a Q1_0 tensor as those of a PQ2_0 tensor."""

class TernaryMatrix:
    """A matrix [n_row][k] of -1, 0, +1 with scales."""

    mapped: bool  # the codes are used directly from the file's map
    far: bool
    @property
    def stored(self) -> memoryview | None: ...  # the tensor's bytes, if mapped
    @staticmethod
    def pack(
        type: str,
        data: Any,  # a buffer of exactly the stored bytes
        n_row: int,
        k: int,
        scale: float = 1.0,  # multiplies the scales in the bytes
        layout: str = "128",  # of I2_S: "128", "64" or "1x4"
        quantize: bool = True,  # floats that are not ternary may be quantised
        groups: bool = False,  # always store a scale per 128 weights along k
        planes: int = 1,  # of panels: matrices whose sum is meant
        check: bool = True,  # look at the scales of groups
    ) -> TernaryMatrix: ...
    @staticmethod
    def stack(matrices: Sequence[TernaryMatrix]) -> TernaryMatrix: ...  # one below the other
    @staticmethod
    def dense(type: str, data: Any, n_row: int, k: int, scale: float = 1.0) -> TernaryMatrix: ...
    @property
    def code_bytes(self) -> int: ...  # of codes, including scales between them
    @property
    def room(self) -> int: ...  # bytes that move_to needs
    def move_to(self, arena: Arena, offset: int) -> None: ...
    @property
    def n_row(self) -> int: ...
    @property
    def k(self) -> int: ...
    def in_basis(self, block: int, signs: Any | None = None) -> None:
        """The rows are stored in a rotated basis: blocks of a power of two, signs float32 [k] or None."""
    @property
    def n_plane(self) -> int: ...
    @property
    def group(self) -> int: ...  # weights that share a scale between the codes; 0: it lies elsewhere
    @property
    def is_dense(self) -> bool: ...
    @property
    def nbytes(self) -> int: ...  # read for one product
    @property
    def scales(self) -> list[float]: ...  # [1], [n_row], [n_row][k / 256 or 128], [n_plane][n_row][k / group]
    @property
    def zero_fraction(self) -> float: ...
    def unpack(self) -> array.array[int]: ...  # int8 [n_row][k]
    # int8 [n_plane][n_row][k], float32 [n_plane][n_row][k / group]
    def unpack_planes(self) -> tuple[array.array[int], array.array[float]]: ...
    def sum_planes(self) -> array.array[float]: ...  # float32 [n_row][k]
    def encode(self) -> bytes: ...  # of an I2_S tensor
    def encode_groups(self) -> bytes: ...  # of a PQ2_0 tensor
    def encode_panels(self) -> bytes: ...  # of a PQ2_0_R64, TP64_R64 or TP32_R64 tensor
    def accumulate(self, x: Any) -> array.array[int]: ...  # x: int8 [k]; int32 [n_row]
    def matvec(self, x: Any, groups: bool = False) -> array.array[float]: ...  # x: float32 [n][k]; float32 [n][n_row]
