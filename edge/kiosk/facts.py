"""Which statement of the house answers a question: words compared by their vectors (edge.kiosk.vectors).

Each pair of question and statement gets a few numbers (:func:`features`), and a small network, learned together with
the vectors (training/fact_model.py), makes a score of them.  Below a least score nothing is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from edge.kiosk import vectors
from edge.kiosk.house import House
from edge.kiosk.phrases import listed, phrases, reworded
from edge.kiosk.words import folded, stem, words

#: words that do not tell what a text is about
_STOP = frozenset(stem(word) for word in (*listed("stop"), *listed("light")))
#: what a turn that does not look like a question needs beyond a question
UNASKED = 0.3


@dataclass(frozen=True)
class _Text:
    """A text as it is compared: its tokens, and their weighted sums as a question and as a statement, of length 1."""

    tokens: tuple[vectors.Token, ...]
    asks: vectors.Vector
    holds: vectors.Vector


@lru_cache(1024)
def prepared(text: str) -> _Text:
    tokens = vectors.tokens(text)

    def total(weights: list[float]) -> vectors.Vector:
        sums = [sum(column) for column in zip(*([w * x for x in t.unit] for w, t in zip(weights, tokens)))]
        norm = math.hypot(*sums)
        return tuple(x / norm for x in sums) if norm else ()

    return _Text(tokens, total([token.asks for token in tokens]), total([token.holds for token in tokens]))


def _rises(likeness: float) -> float:
    """Near 0 for words that have little in common, near 1 for the same word."""
    return 1.0 / (1.0 + math.exp(9.0 * (0.65 - likeness)))


def _leads(values: list[float]) -> list[float]:
    """By how much each value leads the best of the others; 0 where there are no others."""
    first, second = sorted((*values, values[0]) if len(values) == 1 else values, reverse=True)[:2]
    return [value - (second if value == first else first) for value in values]


def features(question: str, statements: Sequence[str]) -> list[tuple[float, ...]]:
    """For each of ``statements``, what speaks for it as the answer.

    Each word of the question is aligned with the word of the statement that is most like it, and the other way round;
    heavy words count more.
    """
    q, texts = prepared(question), [prepared(each) for each in statements]
    if not q.tokens or not texts:
        return [(0.0,) * 12 for _ in texts]
    asked = sum(token.asks for token in q.tokens) + 1e-6
    cosines, shares, likes, sums, bests, backs = [], [], [], [], [], []
    for text in texts:
        table = [[vectors.likeness(mine.name, other.name) for other in text.tokens] for mine in q.tokens]
        most = [max(row, default=-1.0) for row in table]
        risen = [token.asks * _rises(value) for token, value in zip(q.tokens, most)]
        held = sum(token.holds for token in text.tokens) + 1e-6
        cosines.append(sum(map(float.__mul__, q.asks, text.holds)))
        sums.append(sum(risen))
        shares.append(sum(risen) / asked)
        likes.append(sum(token.asks * max(value, 0.0) for token, value in zip(q.tokens, most)) / asked)
        bests.append(max(risen))
        backs.append(sum(token.holds * _rises(max(column)) for token, column in zip(text.tokens, zip(*table))) / held)
    lead = zip(_leads(cosines), _leads(shares), _leads(likes))
    return [
        (cosine, share, like, math.log1p(total), math.log1p(best), back, *leads, math.log1p(asked),
         math.log1p(sum(token.holds for token in text.tokens)), math.log(len(texts)) / 3)
        for cosine, share, like, total, best, back, leads, text in zip(
            cosines, shares, likes, sums, bests, backs, lead, texts)
    ]  # fmt: skip


@cache
def scorer() -> dict[str, list[list[float]]]:
    scorer: dict[str, list[list[float]]] = vectors.table()[1]["scorer"]
    return scorer


def scores(question: str, statements: Sequence[str]) -> list[float]:
    """The score of each statement; at 0, it is shown."""
    net = scorer()
    found = []
    for row in features(question, statements):
        x = (*row, 1.0)
        hidden = [math.tanh(sum(map(float.__mul__, weights, x))) for weights in net["hidden"]]
        found.append(sum(map(float.__mul__, net["out"][0], (*hidden, *x))))
    return found


def choose(house: House, question: str, asking: bool = True) -> int:
    """The number, from 1, of the fact that answers a question; 0 where none does well enough.

    ``asking`` false: the turn does not look like a question, so more is needed.
    """
    if not house.facts:
        return 0
    ranked = scores(question, house.facts)
    best = max(range(len(ranked)), key=ranked.__getitem__)
    return best + 1 if ranked[best] >= (0.0 if asking else UNASKED) else 0


def content(text: str) -> set[str]:
    """The stems of a text that tell what it is about."""
    plain = folded(text)
    for pattern, instead in reworded():
        plain = pattern.sub(instead, plain)
    stems = {word.stem for word in words(plain) if word.fold[0].isalnum()}
    return {each for each in stems if each not in _STOP and (len(each) > 1 or each.isdecimal())}


def certain(house: House, question: str, number: int) -> bool:
    """Whether the fact answers a question about a price: it holds a price and a word of the question."""
    fact = house.facts[number - 1]
    if not phrases("holds price").search(fact) or not content(question) & content(fact):
        return False
    return scores(question, house.facts)[number - 1] > UNASKED
