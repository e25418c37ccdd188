"""bit_planes: an int8 head in bit planes (see bit_planes.pyx)."""

BLOCK: int

def sizes(n_row: int, k: int, of_rows: bool, n_threads: int) -> tuple[int, int]: ...

class BitPlanes:
    """The bit planes of one head."""

    def __init__(self, n_row: int, k: int, n_threads: int) -> None: ...
    @property
    def rows_read(self) -> tuple[int, ...]: ...
