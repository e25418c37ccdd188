"""memory: aligned arenas, advice about maps (see memory.pyx)."""

from typing import Any

class Arena:
    """Zeroed, aligned, writable bytes."""

    nbytes: int
    def __init__(self, nbytes: int, huge: bool = False) -> None: ...
    @property
    def view(self) -> memoryview: ...

def advise(data: Any, advice: str, until: Any | None = None) -> bool:
    """Advice to the system about the whole pages in a buffer of a mapped file: huge, collapse, read or release."""

def huge_share(data: Any) -> float:
    """Share of a map's resident bytes that lie in 2 MiB pages."""

def offset(part: Any, whole: Any) -> int:
    """Byte of one buffer at which another begins."""

def trim() -> None: ...
