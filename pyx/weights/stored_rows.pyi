"""stored_rows: the rows of a stored matrix (see stored_rows.pyx)."""

import array
from typing import Any

#: type -> values and bytes of a block, values that a code can have (0: floats), rows that are stored side by side
TYPES: dict[str, tuple[int, int, int, int]]

def buffer_bytes(type: str, k: int, n_threads: int) -> int:
    """Bytes of the buffers in which threads read rows of a type from a file."""

class StoredRows:
    """Stored rows [n_row][k] of one float type, decoded one at a time."""

    type: str
    n_row: int
    n_threads: int  # that may read rows at once
    k: int
    buffer: int  # bytes in which rows of the file are read
    def __init__(self, type: str, data: Any, n_row: int, k: int) -> None: ...
    def read_from(self, source: Any, fd: int, n_threads: int, start: int = 0) -> None:
        """Take rows from the file fd, not from source, the map of its bytes from start on."""
    def row(self, index: int) -> array.array[float]: ...
    @property
    def nbytes(self) -> int: ...
