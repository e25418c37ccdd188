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
    importance: Any = None,  # float32 buffer [k]
) -> tuple[memoryview, memoryview, float, float]: ...  # codes, scales, sums of squares of errors and of weights
def feed(
    weights: Any,  # float32 [n_row][group]
    u: Any,  # float32 [group][group]
    v: Any,  # float32 [group][group]
    n_plane: int,
    codes: Any,  # int8 [n_plane][n_row][group], written
    scales: Any,  # float32 [n_plane][n_row], written
    missed: Any,  # float32 [n_row][group], written
    n_threads: int = 1,
) -> float: ...  # sum of the squares of missed
