"""threads: refuses to run after fork(), and finds how many threads the system allows.

OpenMP's library ends the whole process if it cannot start a thread.  Its threads do not exist in a forked process,
where the first step would wait for them for ever.  So both are checked before it is used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from edge.errors import EdgeError, UsageError

_loaded_by = 0  # the process that has loaded a model, 0: none


def is_forked() -> bool:
    """True if this process was forked from one that had loaded a model."""
    return _loaded_by not in (0, os.getpid())


def refuse_after_fork() -> None:
    """Raise UsageError in a process that was forked from one that had loaded a model."""
    if is_forked():
        raise UsageError(
            "this process was forked from one that had loaded a model, and does not have its threads; start it with "
            "spawn (multiprocessing.set_start_method('spawn')), or load models only after the fork")


def claim(wanted: int) -> tuple[int, list[str]]:
    """(number of threads that can be used, at most ``wanted``; notes, if it is fewer).

    The thread of an engine has as many threads of its own, and claims them before its first step
    (pyx/machine/claim.pxi).
    """
    global _loaded_by
    from pyx.machine import startable

    _loaded_by = os.getpid()
    started = startable(wanted)  # that of the engine is one of them
    n = wanted if started == wanted else max(1, (started + 1) // 2)  # the rest is for whatever else needs a thread
    if n == wanted:
        return n, []
    return n, [
        f"threads: {n} instead of {wanted}, because the system allows only {started} more; raise its limit on "
        "processes (ulimit -u) or memory"]


def start(thread: threading.Thread) -> None:
    """Start a thread.  Raises EdgeError if the system allows no more."""
    with starting():
        thread.start()


@contextmanager
def starting() -> Iterator[None]:
    """A context manager: if a thread cannot be started in it, that is an EdgeError."""
    try:
        yield
    except RuntimeError:  # can't start new thread
        raise EdgeError(
            "the system allows no more threads; raise its limit on processes (ulimit -u) or memory, or use fewer (-t 1)"
        ) from None
