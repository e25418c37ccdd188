"""planes: dense matrices as sums of ternary planes (see planes.pyx)."""

from collections.abc import Sequence
from typing import Any

from pyx.weights.stored_rows import StoredRows

def floats(rows: StoredRows, order: Sequence[int] | None = None, n_threads: int = 1) -> memoryview: ...  # [n_row * k]
def fit(
    weights: Any,  # float32 buffer [n_row * k]
    n_row: int,
    k: int,
    group: int,
    n_plane: int,
    n_threads: int = 1,
) -> tuple[memoryview, memoryview, float, float]: ...  # codes, scales, sums of squares of errors and of weights
