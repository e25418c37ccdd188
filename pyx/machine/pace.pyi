"""pace: how many threads the next step takes, so that a busy machine does not slow it down (see pace.pyx)."""

def disturbed(ns: float, core: float) -> bool:
    """Whether other programs took the caller's core for a noticeable part of ns nanoseconds."""

class Pace:
    """The threads of the steps of one model: 1 to ``most``."""

    most: int
    settled: int  # threads of a step, but for trials
    trial: int  # threads on trial; 0: none
    def __init__(self, most: int) -> None: ...
    def threads(self) -> int: ...
    def took(self, n_row: int, begun: int, now: int, core: int) -> None: ...
