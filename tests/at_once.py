"""Functions that run at once, each on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Results of the calls, or what they raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.exception() or each.result() for each in [pool.submit(call) for call in calls]]


def at_once(call: Callable[[Any], Any], given: Iterable[Any]) -> list[Any]:
    """The results of a function for each of these values; raises what one call raised."""
    values = list(given)
    with ThreadPoolExecutor(len(values)) as pool:
        return list(pool.map(call, values))
