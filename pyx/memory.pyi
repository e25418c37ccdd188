"""memory: aligned arenas and mapped files (see memory.pyx)."""

from typing import Any

class Arena:
    """Zeroed, aligned, writable bytes."""

    nbytes: int
    def __init__(self, nbytes: int, huge: bool = False) -> None: ...
    @property
    def view(self) -> memoryview: ...

class MappedFile:
    """A file mapped read-only."""

    size: int
    def __init__(self, path: Any) -> None: ...
    @property
    def view(self) -> memoryview: ...
    def will_need(self) -> None: ...

def advise(data: Any, advice: str, until: Any | None = None) -> bool:
    """Advice to the system about the whole pages in a buffer of a mapped file: huge, collapse, read or release."""

def huge_share(data: Any) -> float:
    """Share of a map's resident bytes that lie in 2 MiB pages."""

def guard() -> None:
    """Survive files that get shorter while they are mapped, by a handler of SIGBUS; for programs."""

def watch(data: Any) -> int:
    """Register a map for the guard; its number for :func:`forget`."""

def forget(number: int) -> None: ...
def lost() -> int:
    """How often a part of a watched map was found to be gone."""

def trim() -> None: ...
def rss() -> dict[str, int]:
    """Resident bytes: {"rss", "anon", "file"}."""
