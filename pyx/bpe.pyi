"""bpe: byte-level byte-pair encoding (see bpe.pyx)."""

import array
from typing import Any

SKIP: int
RAW: int
TOKEN: int

class BytePairs:
    """A vocabulary: stored texts -> their bytes, and pieces of text -> ids."""

    blob: bytes
    ends: array.array[int]
    stranger: int
    def __init__(self, stored: Any, first: int, ends: Any, roles: bytes, alphabet: str, unknown: int = -1) -> None: ...
    def rank_by(self, stored: Any, first: int, ends: Any) -> int: ...
    def encode(self, pieces: list[str]) -> list[int]: ...
