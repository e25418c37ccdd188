"""Word vectors: a direction for each of some thousand words and pairs of words ("how much"); words that are used alike
have similar directions.  A layer then changes direction and weight of a word by the words beside it and the whole text.

``vectors.bin`` is made by training/fact_model.py: one line of JSON ({"dims": D, "tokens": N, "near": ..., "scorer":
...}), one line of N tokens, N pairs of float16 (the token's weight in a question, and in a statement, before the layer
and softplus), N x D/2 bytes: the direction of each token in steps of four bits, two per byte, lower half first, 8 for
zero; and the layer in int8: H rows of 4 x D (the word before, the word, the word after, the whole text), then D rows of
H.  Read in plain Python.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import repeat
from operator import mul
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
    """A word or pair of words: its direction (a vector of length 1), and its weights in a question and in a statement,
    before the layer and softplus.
    """

    name: str
    unit: Vector
    raw: tuple[float, float]


@dataclass(frozen=True)
class Text:
    """A text as it is compared: the direction and weight of each token, and the direction of their sum."""

    units: list[Vector]
    weights: list[float]
    whole: Vector


def pieces(text: str) -> list[str]:
    """The words of a text in the form in which they are looked up: folded, with kinds for numbers and currencies."""
    found = []
    for piece in _PIECE.findall(folded(text[: 12 * MOST]))[:MOST]:
        if piece[0].isdecimal():
            piece = "<n.n>" if "." in piece or ":" in piece else "<n>" if len(piece) < 3 else "<nnn>"
        found.append("<cur>" if piece in "£$€" else piece)
    return found


def names(text: str, known: Mapping[str, Any], stems: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The names of the tokens of a text: its words in order ("#" and a number if unknown); its known pairs."""
    parts = pieces(text)
    found = [part if part in known else stems.get(stem(part)) or f"#{bucket(stem(part))}" for part in parts]
    pairs = (f"{first}_{second}" for first, second in zip(parts, parts[1:]))
    return found, list(dict.fromkeys(pair for pair in pairs if pair in known))


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


def write(tokens: Mapping[str, tuple[Sequence[float], float, float]], scorer: Mapping[str, Any],
          layer: Mapping[str, Any]) -> bytes:  # fmt: skip
    """The content of the file for these tokens: name -> (direction [dims, even], weight in a question, in a statement).

    ``layer``: "near" [H][4 x dims] and "turn" [dims][H]; "bias" and "more" [2][H], for questions and for statements.
    """
    order = sorted(tokens)
    dims = len(tokens[order[0]][0])
    steps = [max(abs(x) for row in layer[name] for x in row) / 127 or 1.0 for name in ("near", "turn")]
    near = {"steps": steps, "bias": layer["bias"], "more": layer["more"]}
    head = json.dumps({"dims": dims, "tokens": len(order), "near": near, "scorer": scorer}).encode()
    body = bytearray(struct.pack(f"<{2 * len(order)}e", *(weight for name in order for weight in tokens[name][1:])))
    for name in order:
        codes = coded(tokens[name][0])
        body += bytes(low + 8 | (high + 8) << 4 for low, high in zip(codes[::2], codes[1::2]))
    for name, step in zip(("near", "turn"), steps):
        body += array("b", (round(x / step) for row in layer[name] for x in row)).tobytes()
    return b"\n".join((head, " ".join(order).encode(), bytes(body)))


@cache
def table() -> tuple[dict[str, int], dict[str, Any], memoryview]:
    """The file, read once: token -> its number, the JSON header, the bytes after the names."""
    with open(PATH, "rb") as file:
        head, line, body = file.read().split(b"\n", 2)
    return {name: at for at, name in enumerate(line.decode().split(" "))}, json.loads(head), memoryview(body)


@cache
def layer() -> tuple[list[list[Vector]], list[Vector]]:
    """The layer: H rows of D for the word before, the word, the word after, and the whole text; D rows of H."""
    index, head, body = table()
    dims, hidden = head["dims"], len(head["near"]["bias"][0])
    first, second = head["near"]["steps"]
    values = body[len(index) * (4 + dims // 2) :].cast("b").tolist()
    near, turn = values[: 4 * dims * hidden], values[4 * dims * hidden :]
    parts = [
        [tuple(first * x for x in near[row + part : row + part + dims]) for row in range(0, len(near), 4 * dims)]
        for part in range(0, 4 * dims, dims)
    ]
    return parts, [tuple(second * x for x in turn[row : row + hidden]) for row in range(0, len(turn), hidden)]


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
        return Token(name, unit(codes_of_unknown(name, dims)), tuple(unknown))
    start = 4 * n + at * dims // 2
    halves = body[start : start + dims // 2]
    codes = [x - 8 for byte in halves for x in (byte & 15, byte >> 4)]
    return Token(name, unit(codes), struct.unpack_from("<2e", body, 4 * at))


def times(rows: Sequence[Vector], vector: Vector) -> Vector:
    """A matrix times a vector."""
    return tuple([sum(map(mul, row, vector)) for row in rows])


@lru_cache(4096)
def beside(name: str) -> tuple[Vector, Vector, Vector]:
    """What a word adds to the hidden numbers of the word after it, of itself, and of the word before it."""
    before, itself, after, _ = layer()[0]
    direction = token(name).unit
    return times(before, direction), times(itself, direction), times(after, direction)


def likeness(vector: Vector, others: Sequence[Vector]) -> list[float]:
    """Cosines of a vector and others, all of length 1; math.dist is the fastest way to them without compiled code."""
    return [1.0 - distance * distance / 2 for distance in map(math.dist, repeat(vector), others)]


def softplus(x: float) -> float:
    return math.log1p(math.exp(x)) if x < 20 else x


def total(units: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """The direction of a weighted sum."""
    sums = [sum(map(mul, weights, column)) for column in zip(*units)]
    norm = math.hypot(*sums)
    return tuple(x / norm for x in sums) if norm else tuple(sums)


def read(text: str, asking: bool) -> Text:
    """A question, or a statement, with each word as the words around it make it."""
    words, pairs = names(text, table()[0], stems())
    role, known = 0 if asking else 1, [token(name) for name in (*words, *pairs)]
    units, raw = [each.unit for each in known], [each.raw[role] for each in known]
    if words:
        rows, turn = layer()
        near = table()[1]["near"]
        more = near["more"][role]
        whole = times(rows[3], total(units, [softplus(x) for x in raw]))
        base = [a + b for a, b in zip(whole, near["bias"][role])]
        seen = [beside(name) for name in words]
        nothing = (0.0,) * len(base)
        for at, (before, (_, itself, _), after) in enumerate(
            zip([nothing, *(each[0] for each in seen)], seen, [*(each[2] for each in seen[1:]), nothing])
        ):
            hidden = tuple(map(math.tanh, map(sum, zip(base, before, itself, after))))
            turned = [x + y for x, y in zip(units[at], times(turn, hidden))]
            norm = math.hypot(*turned) or 1.0
            units[at] = tuple(x / norm for x in turned)
            raw[at] += sum(map(mul, more, hidden))
    weights = [softplus(x) for x in raw]
    return Text(units, weights, total(units, weights))
