"""Which statement of the house answers a question: words in common, words for the same thing, words that are used alike
(edge.kiosk.vectors), what is asked for.

Each pair of question and statement gets a few numbers (:func:`features`); their weights were fitted to the question and
answer pairs of hotels and restaurants that strangers wrote (training/rank_facts.py).  Below a margin nothing is shown.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cache

from edge.kiosk import vectors
from edge.kiosk.house import House
from edge.kiosk.phrases import kinds, listed, reworded
from edge.kiosk.words import close, folded, stem, words

#: words that do not tell one question from another
_STOP = frozenset(stem(word) for word in listed("stop"))
_LIGHT = frozenset(stem(word) for word in listed("light"))
#: weights of :func:`features`, fitted by training/rank_facts.py
WEIGHTS = (-3.16, -0.33, 4.62, 1.78, 1.38, 1.46, 0.0, -0.25, -0.74, 0.28, 6.46, -2.55, -2.19)
#: the least score of a statement that is shown; a lead over the next that is CLEAR makes it less by EASED
LEAST, LEAST_UNASKED = 0.7, 0.9
CLEAR, EASED = 1.5, 0.4


@cache
def _nearness() -> dict[int, float]:
    """Group of topics.txt -> how near its words are to one another: the fewer, the nearer."""
    size: dict[int, int] = {}
    for numbers in _topics().values():
        for number in numbers:
            size[number] = size.get(number, 0) + 1
    return {number: 0.85 if n <= 5 else 0.7 if n <= 9 else 0.5 for number, n in size.items()}


@cache
def _topics() -> dict[str, frozenset[int]]:
    """Stem -> the groups of topics.txt that it stands in."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "topics.txt")
    groups: dict[str, set[int]] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file):
            if not line.startswith("#"):
                for word in line.split():
                    for part in (word, *word.split("-")) if "-" in word and word != "wi-fi" else (word,):
                        if part not in ("in", "off", "on", "out", "up", "go", "to", "away", "based"):
                            groups.setdefault(stem(folded(part)), set()).add(number)
    return {word: frozenset(numbers) for word, numbers in groups.items()}


@dataclass(frozen=True)
class _Text:
    """A text as it is compared: stems that count, their topics, what it asks for or holds."""

    stems: tuple[str, ...]
    topics: dict[str, frozenset[int]]
    asks: frozenset[str]
    holds: frozenset[str]
    words: tuple[str, ...]  # that have a vector
    vector: vectors.Vector


@cache
def _prepared(text: str) -> _Text:
    plain = folded(text)
    for pattern, instead in reworded():
        plain = pattern.sub(instead, plain)
    stems = [word.stem for word in words(plain) if word.fold[0].isalnum()]
    kept = tuple(dict.fromkeys(each for each in stems if each not in _STOP and (len(each) > 1 or each.isdecimal())))
    table = _topics()
    return _Text(
        kept,
        {each: table.get(each, frozenset()) for each in kept},
        frozenset(kind for kind, pattern in kinds("asks").items() if pattern.search(folded(text))),
        frozenset(kind for kind, pattern in kinds("holds").items() if pattern.search(text)),
        known := tuple(dict.fromkeys(word.fold for word in words(text) if vectors.vector(word.fold))),
        vectors.of_text(known),
    )


def _near(question: _Text, texts: list[_Text]) -> list[tuple[float, ...]]:
    """For each text, by vectors: how near it is to the question, by how much it leads the others, what of that nearness
    is beyond chance, and how well it covers the words of the question.
    """
    cosines = [sum(map(float.__mul__, question.vector, text.vector)) if text.vector else 0.0 for text in texts]
    first, second = sorted((*cosines, 0.0, 0.0), reverse=True)[:2]
    lengths = {word: found[1] for word in question.words if (found := vectors.vector(word))}
    total = sum(lengths.values()) or 1.0
    covered = [
        sum(
            length * max((vectors.likeness(word, other) for other in text.words), default=0.0)
            for word, length in lengths.items()
        )
        / total
        for text in texts
    ]
    return [
        (cosine, cosine - (second if cosine == first else first), max(cosine - 0.4, 0.0), cover)
        for cosine, cover in zip(cosines, covered)
    ]


def _match(word: str, topics: frozenset[int], statement: _Text) -> float:
    """How well a word of a question is found in a statement: 1 the same, less for a word for the same thing."""
    if word in statement.topics:
        return 1.0
    near = _nearness()
    shared = [near[group] for other in statement.topics.values() for group in topics & other]
    if shared:
        return max(shared)
    for other in statement.stems:
        if len(word) > 4 and len(other) > 4 and (word[:6] == other[:6] or close(word, other)):
            return 0.8
    return 0.0


def features(question: str, statements: tuple[str, ...]) -> list[tuple[float, ...]]:
    """For each of ``statements``, what speaks for it as the answer; the first number is always 1.

    A word of the question weighs more, the fewer statements it is found in; half where nobody here knows it.
    """
    q, texts = _prepared(question), [_prepared(each) for each in statements]
    n = len(texts)
    table = {word: [_match(word, q.topics[word], text) for text in texts] for word in q.stems}
    weight = {}
    for word, row in table.items():
        found = sum(match > 0 for match in row)
        weight[word] = math.log((n + 1) / (found + 0.5)) if found or q.topics[word] else 0.5 * math.log(2 * (n + 1))
        weight[word] *= 0.4 if word in _LIGHT else 1.0
    total = sum(weight.values())
    topics = frozenset().union(*q.topics.values())
    rows: list[tuple[float, ...]] = []
    near = _near(q, texts)
    for at, text in enumerate(texts):
        same = sum(weight[word] for word in q.stems if table[word][at] == 1.0)
        alike = sum(weight[word] * table[word][at] for word in q.stems)
        rest = sum(each not in q.topics and not text.topics[each] & topics for each in text.stems)
        held = len(q.asks & text.holds) / len(q.asks) if q.asks else 0.0
        rows.append(
            (
                1.0,
                same / total if total else 0.0,
                alike / total if total else 0.0,
                math.log1p(alike),
                1.0 / (1 + rest) if alike else 0.0,
                held if alike else 0.0,
                held if not total else 0.0,
                1.0 if q.asks and not held else 0.0,
                1.0 if alike and not total - alike > 0.3 * total else 0.0,
                *near[at],
            )
        )
    return rows


def scores(question: str, statements: tuple[str, ...]) -> list[float]:
    """The score of each statement: above 0, it is more likely than not the answer."""
    return [sum(w * x for w, x in zip(WEIGHTS, row)) for row in features(question, statements)]


def choose(house: House, question: str, asking: bool = True) -> int:
    """The number, from 1, of the fact that answers a question; 0 where none does well enough.

    ``asking`` false: the turn does not look like a question, so more is needed.
    """
    if not house.facts:
        return 0
    ranked = scores(question, house.facts)
    best = max(range(len(ranked)), key=ranked.__getitem__)
    lead = ranked[best] - max((score for at, score in enumerate(ranked) if at != best), default=ranked[best])
    least = (LEAST if asking else LEAST_UNASKED) - (EASED if lead > CLEAR else 0.0)
    return best + 1 if ranked[best] >= least else 0


def content(text: str) -> set[str]:
    """The stems of a text that tell what it is about."""
    return {each for each in _prepared(text).stems if each not in _LIGHT}


def certain(house: House, question: str, number: int) -> bool:
    """Whether the fact holds what a question about a price asks for."""
    return (
        "price" in _prepared(house.facts[number - 1]).holds
        and scores(question, house.facts)[number - 1] > LEAST_UNASKED
    )
