"""The JSON text of a client: its size in memory is limited before it is parsed.

Bytes alone say little: four million of them can be a million objects of 64 bytes and more, and one character beyond
U+FFFF makes Python keep four bytes for every character of a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from edge.serve.calls import Refusal, bad

#: signs outside strings and about how many times 60 bytes the values that they stand for take
COSTS = {b",": 1, b":": 2, b"[": 4, b"{": 4}
MOST = 300_000  # the sum of these
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that do not begin a character
#: what begins a character beyond U+FFFF: a byte of UTF-8, or the escape of a surrogate
_WIDE = re.compile(rb"[\xf0-\xf7]|\\u[dD][89abAB]")


def size_of(data: bytes) -> int:
    """Bytes that JSON text takes as texts of Python at most: characters of a text have the width of its widest one."""
    narrow = data.isascii() and b"\\u" not in data
    width = 1 if narrow else 4 if _WIDE.search(data) else 2
    return width * len(data.translate(None, _CONTINUATION))


def parse(data: bytes, most: int, code: str, parse_int: Callable[[str], Any] | None = None) -> Any:
    """The JSON value that ``data`` is.  ``most``: the limit of :func:`size_of`; ``code``: of the refusal of larger
    ones.  Raises Refusal: 413 if it is too large or has too many values (MOST), 400 if it is not JSON.
    """
    if (size := size_of(data)) > most:
        raise Refusal(413, f"the request takes {size} bytes as text in memory; the limit is {most}", code)
    if _cost(data) > MOST:
        raise Refusal(413, "the request has too many lists, objects or numbers; the limit is about 75,000 lists and "
                      "objects, or 300,000 numbers", code)
    try:
        return json.loads(data.decode("utf-8"), parse_int=parse_int, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise bad(f"the request is not valid JSON: {str(error)[:200]}", code="bad_json") from None


def _cost(data: bytes) -> int:
    """The sum of COSTS of JSON text; counting ends soon after MOST."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # the other quotation marks are the ends of strings
    n, at = 0, 0
    while n <= MOST:
        begin = data.find(b'"', at)
        end = begin if begin >= 0 else len(data)
        n += sum(cost * data.count(sign, at, end) for sign, cost in COSTS.items())
        if begin < 0 or (close := data.find(b'"', begin + 1)) < 0:
            break
        at = close + 1
    return n


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
