"""bandwidth: how fast this machine reads memory (see bandwidth.pyx)."""

from typing_extensions import Buffer

WAYS: tuple[str, ...]

def sum_of(data: Buffer, n_threads: int, way: str = "plain") -> int:
    """Sum modulo 2^64 of data as 8-byte words, read once by n_threads threads in one of WAYS."""
