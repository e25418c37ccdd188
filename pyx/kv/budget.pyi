"""budget: what each KV head of a cache keeps, and the bytes that takes (see budget.pyx)."""

from typing import Any

POLICIES: tuple[str, ...]  # what goes when room is needed

def shapes(*args: Any, **plan: Any) -> list[tuple[int, int, int, int]]:
    """For each layer and head: (tokens seen behind the sinks, sinks, pages of sinks, pages of the ring)."""

def bytes_for(*args: Any, **plan: Any) -> int:
    """Exactly the bytes of pages that a cache of this plan has room for."""
