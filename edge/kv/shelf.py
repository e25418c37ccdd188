"""Shelf: conversations that stay in memory to be continued, until their pages are needed.

Each is a fork of a session's KV cache and the tokens it holds.  It has no logits and no sampler, and shares its pages
with the sessions that continue it.  The one that has waited longest is dropped first; it is not written to a file, as
the disk of a board is often a card, which wears out, and talks are private.
"""

from __future__ import annotations

import threading
from array import array
from dataclasses import dataclass
from typing import Any

from edge.model.threads import with_locks

MOST = 256  # conversations


@dataclass(frozen=True)
class Aside:
    """One conversation: its messages, how many of them are no longer in the prompt, and its cache and tokens."""

    messages: list[dict[str, Any]]
    forgotten: int
    tokens: array[int]
    sampled: array[int]
    kv: Any


class Shelf:
    """The conversations of one KVSpace that wait; thread-safe."""

    def __init__(self) -> None:
        self._asides: list[Aside] = []  # the latest last
        with_locks(self)

    def make_locks(self) -> None:
        """New locks, see :mod:`edge.model.threads`."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._asides)

    @property
    def nbytes(self) -> int:
        """Bytes of KV pages, each conversation counted as if it shared none."""
        with self._lock:
            return sum(each.kv.stats["bytes"] for each in self._asides)

    @property
    def beside(self) -> int:
        """Bytes that the caches take beside their pages."""
        with self._lock:
            return sum(each.kv.beside for each in self._asides)

    def put(self, aside: Aside) -> None:
        """Keep a conversation."""
        with self._lock:
            self._asides.append(aside)
            del self._asides[:-MOST]

    def take(self, messages: list[dict[str, Any]]) -> Aside | None:
        """Remove and return the longest conversation that ``messages`` continue, or None."""
        with self._lock:
            found = [each for each in self._asides if each.messages == messages[: len(each.messages)]]
            if not found:
                return None
            best = max(found, key=lambda each: len(each.messages))
            self._asides.remove(best)
            return best

    def give_way(self) -> bool:
        """Drop the oldest conversation; returns False if there is none."""
        with self._lock:
            if not self._asides:
                return False
            del self._asides[0]
            return True

    def clear(self) -> None:
        """Drop all conversations."""
        with self._lock:
            self._asides.clear()
