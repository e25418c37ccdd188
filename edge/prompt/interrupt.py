"""Interrupts: preparing a long prompt ends at once when its answer is cancelled or its time is over.

The caller that prepares a prompt passes to :func:`interruptible` what may end it; long work calls :func:`look` between
two parts of the work.  It is known to the thread alone: nobody has to pass it on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """The work has ended early.  ``reason``: why, as a finish reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Here(threading.local):
    reason: Callable[[], str | None] | None = None


_here = _Here()


@contextmanager
def interruptible(reason: Callable[[], str | None]) -> Iterator[None]:
    """Within the block :func:`look` raises Interrupted once ``reason`` returns one."""
    before, _here.reason = _here.reason, reason
    try:
        yield
    finally:
        _here.reason = before


def look() -> None:
    """Raise Interrupted if there is a reason to; call it every few milliseconds of work."""
    if _here.reason is not None and (reason := _here.reason()):
        raise Interrupted(reason)
