"""Whether a turn speaks of danger to life, or of self-harm: learned weights of its words, pairs of words and letters.

``emergencies.bin`` is made by training/emergency_model.py: one line of JSON ({"steps": [2], "bias": ...}), then the
weights in int8, 2^16 for words and pairs, 2^15 for letters.  A feature is found by its checksum; two features that
share one share a weight.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from zlib import crc32

from edge.kiosk.words import folded

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "emergencies.bin")
#: number of weights for words and pairs, and for letters
SIZES = (1 << 16, 1 << 15)
#: number of words that are read at once; a longer turn is read in parts that overlap
MOST = 20
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+|[!?]")


def words_of(text: str) -> list[str]:
    """The words of a turn, numbers, and marks that tell how it is said."""
    return _WORD.findall(folded(text))


def parts(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """What is read at once: all words, or of many, parts that overlap by half."""
    for start in range(0, max(1, len(words) - MOST // 2), MOST // 2):
        yield words[start : start + MOST]


def features(words: Sequence[str]) -> tuple[list[int], list[int]]:
    """The numbers of the words and of the pairs of neighbours; of the three to five letters in a row in a word."""
    pairs = (f"{first} {second}" for first, second in pairwise(("^", *words, "$")))
    framed = {f"<{word}>" for word in words}
    letters = {word[at : at + n] for word in framed for n in (3, 4, 5) for at in range(len(word) - n + 1)}
    return tuple(
        sorted({crc32(name.encode()) % size for name in names})
        for names, size in zip(({*words, *pairs}, letters), SIZES)
    )  # type: ignore[return-value]


@cache
def table() -> tuple[list[float], float, tuple[memoryview, memoryview]]:
    """The file, read once: a step of the weights of each kind, the bias, the weights in steps."""
    with open(PATH, "rb") as file:
        head, body = file.read().split(b"\n", 1)
    read, weights = json.loads(head), memoryview(body).cast("b")
    return read["steps"], read["bias"], (weights[: SIZES[0]], weights[SIZES[0] :])


def score(text: str) -> float:
    """How much speaks for an emergency: above 0, more than against it."""
    steps, bias, weights = table()
    return bias + max(
        sum(
            step * sum(map(of.__getitem__, found)) / math.sqrt(len(found) or 1)
            for step, of, found in zip(steps, weights, features(words))
        )
        for words in parts(words_of(text))
    )


def is_emergency(text: str) -> bool:
    """Whether the owner's emergency text must be given.  In doubt it is."""
    return score(text) > 0
