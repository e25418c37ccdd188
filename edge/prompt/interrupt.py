"""Interrupts: preparing a long prompt ends at once when its answer is cancelled or its time is over.

The caller passes to :func:`interruptible` a function that says when to stop; long work calls
:func:`check_interrupted` between its parts.  The function is stored per thread, so it need not be passed on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """The work was ended early.  ``reason``: why, as a finish reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Here(threading.local):
    reason: Callable[[], str | None] | None = None


_here = _Here()


@contextmanager
def interruptible(reason: Callable[[], str | None]) -> Iterator[None]:
    """A context manager: inside it, :func:`check_interrupted` raises Interrupted as soon as ``reason``, or that of an
    enclosing one, returns a text.
    """
    before = _here.reason
    _here.reason = reason if before is None else lambda: reason() or before()
    try:
        yield
    finally:
        _here.reason = before


def check_interrupted() -> None:
    """Raise Interrupted if the work is to stop; to be called every few milliseconds of work."""
    if _here.reason is not None and (reason := _here.reason()):
        raise Interrupted(reason)
