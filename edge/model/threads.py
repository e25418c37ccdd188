"""threads: refuses to run after fork(), and finds how many threads the system allows.

OpenMP's library ends the whole process if it cannot start a thread.  Its threads do not exist in a forked process,
where the first step would wait for them for ever.  So both are checked before it is used.
"""

from __future__ import annotations

import os
import threading

from edge.errors import UsageError

_used = False  # this process has loaded a model
_forked = False  # or the one that it was forked off had


def _after_fork() -> None:
    global _forked
    _forked = _used


os.register_at_fork(after_in_child=_after_fork)


def refuse_after_fork() -> None:
    """Raise UsageError in a process that was forked from one that had loaded a model."""
    if _forked:
        raise UsageError(
            "this process was forked from one that had loaded a model, and does not have its threads; start it with "
            "spawn (multiprocessing.set_start_method('spawn')), or load models only after the fork")


def claim(wanted: int) -> tuple[int, list[str]]:
    """(number of threads that can be used, at most ``wanted``; notes, if it is fewer).

    Tests this by starting ``wanted`` threads that wait for each other.
    """
    global _used
    _used = True
    done = threading.Event()
    started = []
    try:
        for _ in range(wanted - 1):
            thread = threading.Thread(target=done.wait, name="claim")
            thread.start()
            started.append(thread)
    except RuntimeError:  # can't start new thread
        pass
    finally:
        done.set()
        for thread in started:
            thread.join()
    if len(started) == wanted - 1:
        return wanted, []
    n = max(1, (len(started) + 1) // 2)  # the rest is for whatever else needs a thread
    return n, [f"the system starts only {len(started)} more threads (a limit on processes or memory): {n} are used"]
