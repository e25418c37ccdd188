"""head: the output head (see head.pyx)."""

import array
from typing import Any, NamedTuple

from pyx.head.bit_planes import BitPlanes
from pyx.head.winners import Winners
from pyx.weights.stored_rows import StoredRows
from pyx.weights.ternary import TernaryMatrix

KINDS: dict[str, Any]

class Placement(NamedTuple):
    kind: str
    nbytes: int
    mapped: bool
    scratch: int
    allocated: int
    copied: int

def placement(kind: str, type: str, n_row: int, k: int, n_threads: int) -> Placement: ...

class Head:
    """The output head over stored rows: kind one of KINDS or "native"; "none" gives x instead of logits (n_row = k)."""

    kind: str
    n_row: int
    k: int
    n_threads: int
    matrix: TernaryMatrix | None
    bit_planes: BitPlanes | None
    winners: Winners | None
    usable: int  # rows from here on are never among the winners; assignable
    def __init__(self, stored: StoredRows, kind: str = "int8", n_threads: int = 1) -> None: ...
    def in_basis(self, block: int, signs: Any | None = None) -> None:
        """The rows are stored in a rotated basis: blocks of a power of two, signs float32 [k] or None."""
    def prepare(self) -> None: ...
    def timed(self, x: Any, top: int, n_threads: int) -> tuple[int, int]: ...
    def apply(self, x: Any, top: int = 0, n_threads: int = 1) -> array.array[float]: ...
    @property
    def mapped(self) -> bool: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def least_bytes(self) -> int: ...
    @property
    def more_bytes(self) -> int: ...
    @property
    def allocated(self) -> int: ...
    @property
    def scratch(self) -> int: ...
