"""rotary: rotary position embedding (see rotary.pyx)."""

import array
from typing import Any

class Rotary:
    """The rotation of attention layers: how far a pair of dimensions turns per position."""

    def __init__(self, config: Any, freqs: Any | None = None) -> None: ...  # config: an edge.layers.Rotation
    def angles(self, position: int) -> tuple[array.array[float], array.array[float]]:
        """(cosines, sines) of a position, float32 [dim / 2]."""
