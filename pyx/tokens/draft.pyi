"""draft: what may come next, looked up in the tokens that are there (see draft.pyx)."""

from array import array
from collections.abc import Sequence
from typing import Any

MOST_DRAFT: int

class Draft:
    """Drafts of one session."""

    most: int
    always: bool
    ids: array[int]
    drafted: int
    accepted: int
    idle: bool
    def __init__(self, most: int, always: bool = False) -> None: ...
    def begin(self) -> None: ...
    def propose(self, tokens: Any, token: int, limit: int) -> int: ...
    def give(self, token: int, forced: Sequence[int], limit: int) -> int: ...
    def took(self, n: int, seconds: float) -> None: ...
    def follow(self, token: int) -> int: ...
    def stop(self) -> None: ...
