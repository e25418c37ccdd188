"""bpe: byte-level byte-pair encoding (see bpe.pyx)."""

import array
from collections.abc import Callable
from typing import Any

SKIP: int
RAW: int
TOKEN: int

class BytePairs:
    """A vocabulary: stored texts -> their bytes, and pieces of text -> ids."""

    blob: bytes  # of all texts
    ends: array.array[int]  # uint32 [n]: where each text ends in blob
    stranger: int  # the first text with a character outside the alphabet, or -1
    ignore_merges: bool  # whether a whole text that is a token is this token, although no merge makes it
    def __init__(
        self,
        stored: Any,  # a buffer with the texts, each behind its length in 8 bytes
        first: int,  # byte where the first text begins
        ends: Any,  # int64 [n]: where each text ends in stored
        roles: bytes | bytearray,  # [n]: SKIP, RAW or TOKEN
        alphabet: str,  # [256]: the character that stands for each byte
    ) -> None: ...
    def rank_by(self, stored: Any, first: int, ends: Any, begin: int = 0) -> int:
        """Rank tokens by the first of these merges ("left right") that makes them.

        ends: int64 [number of merges].  Returns the first merge, from ``begin`` on, that makes no token, or -1.
        """
    def encode(self, pieces: list[str] | list[bytes], check: Callable[[], object] | None = None) -> list[int]:
        """Token ids of texts that a pattern has split: no token reaches from one text into the next.

        ``check``: called every few milliseconds of work; what it raises ends the work.
        """
