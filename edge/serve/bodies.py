"""JSON text of requests, parsed within limits.

Bytes alone say little about JSON text: four million of them can be a million objects of 64 bytes and more, and one
character beyond U+FFFF makes Python keep four bytes for every character of a text.
"""

from __future__ import annotations

import json
import re
from typing import Any

from edge.amounts import parse_whole
from edge.serve.calls import Refusal

LIMIT = 4 << 20  # bytes of a body

#: a sign outside strings, or the beginning of a string -> about how many times VALUE bytes the value that it stands for
#: takes
COSTS = {ord(","): 1, ord(":"): 2, ord("["): 4, ord("{"): 4, ord('"'): 1}
VALUE = 60
MOST_VALUES = 300_000  # the sum of these
_SIGN = re.compile(rb'"[^"]*"|[,:[{]')
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that do not begin a character
#: the beginning of a character beyond U+FFFF: a byte of UTF-8, or the escape of a surrogate
_WIDE = re.compile(rb"[\xf0-\xf7]|\\u[dD][89abAB]")


def size_of(data: bytes) -> int:
    """Bytes that JSON text takes as texts of Python at most: characters of a text have the width of its widest one."""
    narrow = data.isascii() and b"\\u" not in data
    width = 1 if narrow else 4 if _WIDE.search(data) else 2
    return width * len(data.translate(None, _CONTINUATION))


def parse(data: bytes, most: int, code: str) -> Any:
    """The JSON value that ``data`` is.  ``most``: the limit of :func:`size_of`; ``code``: of the refusal of larger
    ones.  Raises Refusal: 413 if it is too large or has too many values (MOST_VALUES), 400 if it is not JSON.
    """
    if (size := size_of(data)) > most:
        raise Refusal(413, f"the request takes {size} bytes as text in memory; the limit is {most}", code)
    if cost(data) > MOST_VALUES:
        raise Refusal(413, "the request has too many lists, objects or numbers; the limit is about 75,000 lists and "
                      "objects, 150,000 texts, or 300,000 numbers", code)
    try:
        return json.loads(data.decode("utf-8-sig"), parse_int=parse_whole, parse_constant=_no_constant)
    except RecursionError:
        raise Refusal(400, "the request is nested too deeply", "bad_json") from None
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the request is not UTF-8 text (byte {error.start})", "bad_json") from None
    except ValueError as error:
        raise Refusal(400, f"the request cannot be read as JSON: {str(error)[:200]}", "bad_json") from None


def cost(data: bytes) -> int:
    """The sum of COSTS of JSON text; counting ends soon after MOST_VALUES."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # the other quotation marks are the ends of strings
    n = 0
    for sign in _SIGN.finditer(data):
        n += COSTS[data[sign.start()]]
        if n > MOST_VALUES:
            break
    return n


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
