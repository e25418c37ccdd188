"""Amounts as text: bytes in powers of ten (MB, GB; MiB and GiB are also read), parameters, counts; and a median."""

from __future__ import annotations

import re
from collections.abc import Iterable

from edge.errors import UsageError

MOST_DIGITS = 4000  # of a number; sys.int_info.default_max_str_digits is 4300
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def human(n: int) -> str:
    """``n`` bytes as text in powers of ten: ``81 MB``, ``1.1 GB``."""
    return f"{n / 1e9:.1f} GB" if n >= 999.5e6 else f"{n / 1e6:.0f} MB"


def amount(n: int) -> str:
    """A large number as text: ``12.0 K``, ``5.8 M``, ``1.7 B``."""
    unit, name = (1e9, "B") if n >= 999.5e6 else (1e6, "M") if n >= 999.5e3 else (1e3, "K")
    return f"{n / unit:.1f} {name}"


def parse_whole(digits: str) -> int:
    """A whole number in JSON text.  Raises ValueError for one that Python would not read, in words for users."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number has {len(digits)} digits; the limit is {MOST_DIGITS}")
    return int(digits)


def parse_size(value: str | int | None, name: str = "memory") -> int | None:
    """``"1500M"``, ``"1.5G"`` (powers of ten), ``"2GiB"`` (powers of 1024) or a number of bytes -> bytes; None -> None.

    Raises UsageError for other values; ``name``: of the argument, for the message.
    """
    if value is None:
        return None
    match = re.fullmatch(r"(?a)\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", str(value).upper())
    if not match or isinstance(value, bool) or float(match[1]) <= 0 or (match[3] and not match[2]):
        raise UsageError(f"is {value!r}", argument=name, hint="write it like 1500M, 1.5G or 800MiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2]])


def count(n: int, noun: str) -> str:
    """A number with its noun: ``1 turn``, ``2 turns``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def median(numbers: Iterable[float]) -> float:
    """The middle one of some numbers; of an even number of them the mean of both."""
    ordered = sorted(numbers)
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
