"""table: the embedding and the output head (see table.pyx)."""

import array
from typing import Any

class Table:
    """Stored rows [n_row][k] of one float type, decoded one at a time."""

    type: str
    n_row: int
    k: int
    row_bytes: int
    def __init__(self, type: str, data: Any, n_row: int, k: int) -> None: ...
    def row(self, index: int) -> array.array[float]: ...
    @property
    def nbytes(self) -> int: ...

class Head:
    """The output head over a table: "int8", "f16", "f32" or "native"."""

    kind: str
    n_row: int
    k: int
    mapped: bool
    def __init__(self, table: Table, kind: str = "int8", n_threads: int = 1) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def allocated(self) -> int: ...
