"""winners: the largest logits of an int8 head for several vectors at once (see winners.pyx)."""

class Winners:
    """What decides which rows of one head can win."""

    least_codes: int
    def __init__(self, n_row: int, k: int, n_threads: int) -> None: ...
    @property
    def pairs(self) -> int: ...
