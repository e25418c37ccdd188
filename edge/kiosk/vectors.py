"""What words mean: a vector for each of some thousand common words; words that are used alike point alike.

``vectors.bin`` is made by training/word_vectors.py: a line of JSON ({"dims": D, "words": N}), N words in a line, N
float16 lengths, and N x D signed bytes, the direction of each word.  A word's length is how much it counts in a text.
Plain Python: a turn compares some hundred words.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

Vector = tuple[float, ...]
_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors.bin")


def write(vectors: Mapping[str, Sequence[float]]) -> bytes:
    """The file of some vectors, sorted by word."""
    names = sorted(vectors)
    dims = len(vectors[names[0]])
    lengths = [math.hypot(*vectors[name]) or 1e-6 for name in names]
    head = json.dumps({"dims": dims, "words": len(names)}).encode() + b"\n" + " ".join(names).encode() + b"\n"
    bodies = []
    for name in names:
        most = max(abs(x) for x in vectors[name]) or 1.0
        bodies.append(struct.pack(f"{dims}b", *(round(127 * x / most) for x in vectors[name])))
    return head + struct.pack(f"<{len(names)}e", *lengths) + b"".join(bodies)


@cache
def table() -> tuple[dict[str, int], int, memoryview, memoryview]:
    """The file, read once: word -> its number, dims, lengths (float16), directions (signed bytes)."""
    with open(_PATH, "rb") as file:
        head, names, body = file.read().split(b"\n", 2)
    dims, n = json.loads(head)["dims"], json.loads(head)["words"]
    view = memoryview(body)
    return {word: at for at, word in enumerate(names.decode().split(" "))}, dims, view[: 2 * n], view[2 * n :]


@lru_cache(4096)
def vector(word: str) -> tuple[Vector, float] | None:
    """(Unit vector, length) of a folded word; None for a word that has none."""
    index, dims, lengths, body = table()
    at = index.get(word)
    if at is None:
        return None
    values = struct.unpack_from(f"{dims}b", body, at * dims)
    norm = math.hypot(*values) or 1.0
    return tuple(value / norm for value in values), struct.unpack_from("<e", lengths, 2 * at)[0]


@lru_cache(1 << 16)
def likeness(a: str, b: str) -> float:
    """Cosine of two words; 0 where one has no vector."""
    x, y = vector(a), vector(b)
    return sum(map(float.__mul__, x[0], y[0])) if x and y else 0.0


def of_text(words: Sequence[str]) -> Vector:
    """The unit vector of a text, given its folded words; empty where none has a vector."""
    known = [found for word in words if (found := vector(word))]
    total = [sum(column) for column in zip(*([length * x for x in unit] for unit, length in known))]
    norm = math.hypot(*total)
    return tuple(x / norm for x in total) if norm else ()
