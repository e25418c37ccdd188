"""Word vectors: a direction for each of some thousand words and pairs of words ("how much"); words that are used alike
have similar directions.

``vectors.bin`` is made by training/fact_model.py: one line of JSON ({"dims": D, "tokens": N, "scorer": ...}), one line
of N tokens, N pairs of float16 (the token's weight in a question, and in a statement), and N x D/2 bytes: the direction
of each token in steps of four bits, two per byte, lower half first, 8 for zero.  Read in plain Python.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from edge.kiosk.words import folded, stem

Vector = tuple[float, ...]
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors.bin")
#: number of words of a text that are compared; the rest is ignored
MOST = 40
#: number of directions that unknown words share
BUCKETS = 512
_PIECE = re.compile(r"[£$€]|\d+(?:[.:]\d+)*|[a-z]+(?:'[a-z]+)?|%")


@dataclass(frozen=True)
class Token:
    """A word or pair of words: its direction (a vector of length 1), and its weights in a question and in a
    statement.
    """

    name: str
    unit: Vector
    asks: float
    holds: float


def pieces(text: str) -> list[str]:
    """The words of a text in the form in which they are looked up: folded, with kinds for numbers and currencies."""
    found = []
    for piece in _PIECE.findall(folded(text[: 12 * MOST]))[:MOST]:
        if piece[0].isdecimal():
            piece = "<n.n>" if "." in piece or ":" in piece else "<n>" if len(piece) < 3 else "<nnn>"
        found.append("<cur>" if piece in "£$€" else piece)
    return found


def names(text: str, known: Mapping[str, Any], stems: Mapping[str, str]) -> list[str]:
    """The names of the tokens of a text, each once: words ("#" and a number if unknown), then known pairs."""
    parts = pieces(text)
    found = []
    for part in parts:
        found.append(part if part in known else stems.get(stem(part)) or f"#{bucket(stem(part))}")
    pairs = (f"{first}_{second}" for first, second in zip(parts, parts[1:]))
    return list(dict.fromkeys([*found, *(pair for pair in pairs if pair in known)]))


def bucket(name: str) -> int:
    """The number of an unknown word, computed from its stem."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little") % BUCKETS


def codes_of_unknown(name: str, dims: int) -> list[int]:
    """The direction of an unknown word: pseudo-random, always the same for the same name."""
    stream = b"".join(hashlib.blake2b(f"{name} {i}".encode()).digest() for i in range(dims // 64 + 1))
    return [byte % 15 - 7 for byte in stream[:dims]]


def coded(vector: Sequence[float]) -> list[int]:
    """A direction in whole steps from -7 to 7."""
    most = max(abs(x) for x in vector) or 1.0
    return [round(7 * x / most) for x in vector]


def unit(codes: Sequence[int]) -> Vector:
    norm = math.hypot(*codes) or 1.0
    return tuple(x / norm for x in codes)


def write(tokens: Mapping[str, tuple[Sequence[float], float, float]], scorer: Mapping[str, Any]) -> bytes:
    """The content of the file for these tokens: name -> (direction [dims, even], weight in a question, weight in a
    statement).
    """
    order = sorted(tokens)
    dims = len(tokens[order[0]][0])
    head = json.dumps({"dims": dims, "tokens": len(order), "scorer": scorer}).encode()
    weights = struct.pack(f"<{2 * len(order)}e", *(weight for name in order for weight in tokens[name][1:]))
    body = bytearray()
    for name in order:
        codes = coded(tokens[name][0])
        body += bytes(low + 8 | (high + 8) << 4 for low, high in zip(codes[::2], codes[1::2]))
    return b"\n".join((head, " ".join(order).encode(), weights + bytes(body)))


@cache
def table() -> tuple[dict[str, int], dict[str, Any], memoryview]:
    """The file, read once: token -> its number, the JSON header, the bytes after the names."""
    with open(PATH, "rb") as file:
        head, line, body = file.read().split(b"\n", 2)
    return {name: at for at, name in enumerate(line.decode().split(" "))}, json.loads(head), memoryview(body)


@cache
def stems() -> dict[str, str]:
    """Stem -> the first known word with it."""
    found: dict[str, str] = {}
    for name in table()[0]:
        if "_" not in name:
            found.setdefault(stem(name), name)
    return found


@lru_cache(4096)
def token(name: str) -> Token:
    """The token with this name: a known one, or "#" and a number."""
    index, head, body = table()
    dims, n, unknown = head["dims"], head["tokens"], head["scorer"]["unknown"]
    at = index.get(name)
    if at is None:
        return Token(name, unit(codes_of_unknown(name, dims)), *unknown)
    start = 4 * n + at * dims // 2
    halves = body[start : start + dims // 2]
    return Token(
        name, unit([x - 8 for byte in halves for x in (byte & 15, byte >> 4)]), *struct.unpack_from("<2e", body, 4 * at)
    )


def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of a text, each once."""
    return tuple(token(name) for name in names(text, table()[0], stems()))


@lru_cache(1 << 16)
def likeness(a: str, b: str) -> float:
    """Cosine of the directions of two tokens, given by name."""
    return 1.0 if a == b else sum(map(float.__mul__, token(a).unit, token(b).unit))
