"""Functions that run at once, each on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any


def together(*calls: Callable[[], Any], bound: float = 60) -> list[Any]:
    """Results of the calls, or what they raised; each must end within so many seconds."""
    results: list[Any] = [None] * len(calls)

    def work(i: int, call: Callable[[], Any]) -> None:
        try:
            results[i] = call()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(bound)
        assert not thread.is_alive(), "it never ends"
    return results


def at_once(call: Callable[[Any], Any], given: Iterable[Any]) -> list[Any]:
    """The results of a function for each of these values; raises what one call raised."""
    results = together(*(partial(call, each) for each in given), bound=600)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
