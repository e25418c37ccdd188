"""head: the output head (see head.pyx)."""

from pyx.table import Table

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
