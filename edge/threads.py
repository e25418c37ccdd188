"""threads: refuses to run after fork(), and finds how many threads the system allows.

OpenMP's library ends the whole process if it cannot start a thread.  Its threads do not exist in a forked process,
where the first step would wait for them for ever.  So both are checked before it is used.

Our own threads do not exist there either, and a lock that one of them held is never released.  So locks are made anew
in the child: everything can still be closed there, and what needs a thread is refused.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from edge.errors import EdgeError, UsageError

T = TypeVar("T")

_used = False  # this process has loaded a model
_forked = False  # or the one that it was forked off had
#: object -> name of each attribute that is made anew -> what makes it
_made: weakref.WeakKeyDictionary[object, dict[str, Callable[[], object]]] = weakref.WeakKeyDictionary()


def anew(owner: object, name: str, make: Callable[[], T]) -> T:
    """The value of an attribute that is made now, and again in each forked child, such as a lock."""
    _made.setdefault(owner, {})[name] = make
    return make()


def renew(owner: object) -> None:
    """Make such attributes again."""
    for name, make in _made[owner].items():
        setattr(owner, name, make())


def _after_fork() -> None:
    global _forked
    _forked = _used
    for owner in list(_made):
        renew(owner)


os.register_at_fork(after_in_child=_after_fork)


def refuse_after_fork() -> None:
    """Raise UsageError in a process that was forked from one that had loaded a model."""
    if _forked:
        raise UsageError(
            "this process was forked from one that had loaded a model, and does not have its threads; start it with "
            "spawn (multiprocessing.set_start_method('spawn')), or load models only after the fork")


def claim(wanted: int) -> tuple[int, list[str]]:
    """(number of threads that can be used, at most ``wanted``; notes, if it is fewer).

    Each thread that runs steps has as many threads of its own, and claims them before its first step
    (pyx.machine.team).
    """
    global _used
    from pyx.machine.team import startable

    _used = True
    started = startable(wanted - 1)
    if started == wanted - 1:
        return wanted, []
    n = max(1, (started + 1) // 2)  # the rest is for whatever else needs a thread
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
