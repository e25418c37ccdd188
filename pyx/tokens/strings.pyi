"""strings: where the texts of a stored list end (see strings.pyx)."""

import array
from typing import Any

def ends(data: Any, start: int, count: int) -> array.array[int]:
    """Ends of the first ``count`` length-prefixed texts from byte ``start`` on; fewer where the buffer ends before."""

def starting(data: Any, start: int, stops: Any, prefix: bytes) -> list[int]:
    """Indices of those of them that begin with these bytes."""
