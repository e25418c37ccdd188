"""Which statement of the house answers a question: words compared by their vectors (edge.kiosk.vectors).

Each pair of question and statement gets a few numbers (:func:`features`), and a small network, learned together with
the vectors (training/fact_model.py), makes a score of them.  Below a least score nothing is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from operator import mul

from edge.kiosk import vectors
from edge.kiosk.house import House
from edge.kiosk.mentions import vocabulary
from edge.kiosk.phrases import listed, paired, phrases
from edge.kiosk.words import COMMON, folded, stem, words

#: words that do not tell what a text is about
_STOP = frozenset(stem(word) for word in (*listed("stop"), *listed("light")))
#: what a turn that does not look like a question needs beyond a question
UNASKED = 0.3


@lru_cache(1024)
def prepared(text: str, asking: bool) -> vectors.Text:
    return vectors.read(text, asking)


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
    q, texts = prepared(question, True), [prepared(each, False) for each in statements]
    if not q.units or not texts:
        return [(0.0,) * 12 for _ in texts]
    asked = sum(q.weights) + 1e-6
    cosines, shares, likes, sums, bests, backs, helds = [], [], [], [], [], [], []
    for text in texts:
        table = [vectors.likeness(mine, text.units) for mine in q.units]
        most = [max(row, default=-1.0) for row in table]
        risen = [weight * _rises(value) for weight, value in zip(q.weights, most)]
        held = sum(text.weights) + 1e-6
        cosines.append(sum(map(mul, q.whole, text.whole)))
        sums.append(sum(risen))
        shares.append(sum(risen) / asked)
        likes.append(sum(weight * max(value, 0.0) for weight, value in zip(q.weights, most)) / asked)
        bests.append(max(risen))
        backs.append(sum(weight * _rises(max(column)) for weight, column in zip(text.weights, zip(*table))) / held)
        helds.append(math.log1p(held))
    lead = zip(_leads(cosines), _leads(shares), _leads(likes))
    return [
        (cosine, share, like, math.log1p(total), math.log1p(best), back, *leads, math.log1p(asked), held,
         math.log(len(texts)) / 3)
        for cosine, share, like, total, best, back, leads, held in zip(
            cosines, shares, likes, sums, bests, backs, lead, helds)
    ]  # fmt: skip


@cache
def scorer() -> dict[str, list[list[float]]]:
    scorer: dict[str, list[list[float]]] = vectors.table()[1]["scorer"]
    return scorer


@lru_cache(64)
def scores(question: str, statements: tuple[str, ...]) -> tuple[float, ...]:
    """The score of each statement; at 0, it is shown.  Understanding one turn may ask for the same scores twice."""
    net = scorer()
    found = []
    for row in features(question, statements):
        x = (*row, 1.0)
        hidden = [math.tanh(sum(map(mul, weights, x))) for weights in net["hidden"]]
        found.append(sum(map(mul, net["out"][0], (*hidden, *x))))
    return tuple(found)


def read(house: House) -> None:
    """Read the statements of a house before they are needed: it takes a fifth of a second."""
    for statement in house.facts:
        prepared(statement, False)


def choose(house: House, question: str, asking: bool = True) -> int:
    """The number, from 1, of the fact that answers a question; 0 where none does well enough.

    ``asking`` false: the turn does not look like a question, so more is needed.
    """
    if not house.facts:
        return 0
    question = _plainer(question)
    fitting = of_the_day(house, question)
    ranked = scores(question, tuple(house.facts[number] for number in fitting))
    best = max(range(len(ranked)), key=ranked.__getitem__, default=None)
    low = folded(question)
    if best is None or phrases("clock").match(low) or not asking and re.match(r"(?:without|with|no|not)\b", low):
        return 0  # what no house can know, and wishes
    fact = house.facts[fitting[best]]
    if not (fits_diet(house, question, fact) and fits_holiday(question, fact) and names_thing(question, fact)):
        return 0
    return fitting[best] + 1 if ranked[best] >= (0.0 if asking else UNASKED) else 0


def _plainer(question: str) -> str:
    """A question without slips, and as most guests ask it: "when do you close" asks for the time, not for the days."""
    low = folded(question)
    for pattern, instead in paired("asked as"):
        low, changed = pattern.subn(instead, low)
        question = low if changed else question
    return question


_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = r"\b(mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)days?\b"
_DAYS = re.compile(rf"{_WEEKDAY}(?:\s*(?:to|till|until|through|-|–)\s*{_WEEKDAY})?")


def weekdays(text: str) -> set[int]:
    """The days of the week that a text names, from 0 for Monday: "Tuesday to Thursday" -> {1, 2, 3}."""
    low = phrases("holiday").sub(" ", folded(text))
    found: set[int] = set()
    for match in _DAYS.finditer(low):
        first = _WEEKDAYS.index(match[1][:3])
        last = _WEEKDAYS.index(match[2][:3]) if match[2] else first
        found |= {day % 7 for day in range(first, last + 1 + 7 * (last < first))}
    if re.search(r"\b(?:every|each|any) day\b|\bdaily\b|\ball week\b|\bseven days\b", low):
        return set(range(7))
    found |= {5, 6} if re.search(r"\bweekends?\b", low) else set()
    return found | set(range(5)) if re.search(r"\bweekdays?\b", low) else found


def of_the_day(house: House, question: str) -> list[int]:
    """Indices of the facts that may answer a question: if some name the day it asks about, none about other days."""
    asked, told = weekdays(question), [weekdays(fact) for fact in house.facts]
    named = any(asked & days for days in told)
    return [at for at, days in enumerate(told) if not (named and days) or asked & days]


def fits_diet(house: House, question: str, fact: str) -> bool:
    """Whether a fact may answer a question about a diet or an allergen; true of other questions.

    It must speak of that diet, and name the thing that is asked about: what holds of the soup says nothing of a muffin.
    """
    asked, told = folded(question), folded(fact)
    diets = [(found.end(), answer) for diet, answer in paired("diets") for found in diet.finditer(asked)]
    if not diets or phrases("diet general").search(told):
        return True
    if not any(re.search(answer, told) for _, answer in diets):
        return False
    known, other = {word.stem for word in words(told)}, COMMON | {stem(word) for word in listed("diet about")}
    behind = {each.stem for end, _ in diets for each in words(asked[end:])[:1] if each.fold.isalpha()} - other
    if behind:  # "gluten free bread"
        return behind <= known
    turn = words(question)
    for item in vocabulary(house).mentions(turn):
        said = {word.stem for word in [*turn[item.first : item.last], *words(" ".join(item.values))]}
        if item.kind == "item" and not said & known:
            return False
    things = {stem(found[1]) for found in phrases("diet thing").finditer(asked)} - other
    return things <= known or bool(re.search(r"\b(?:all|every\w*)\b", told))


def fits_holiday(question: str, fact: str) -> bool:
    """Whether a fact may answer a question about a holiday; true of other questions.  Easter Monday is no Monday."""
    holiday = phrases("holiday")
    return not holiday.search(folded(question)) or bool(holiday.search(folded(fact)))


#: words of a short question, the least weight of a word in it that counts, and how like a word of the fact one must be
SHORT, COUNTS, ALIKE = 6, 0.3, 0.57


def names_thing(question: str, fact: str) -> bool:
    """Whether a fact speaks of the thing that a short question asks for; true of other questions.

    The emergency exit is not at the toilets, and a fact about the soup does not tell whether there is bread.
    """
    said = [word for word in words(question) if word.fold[0].isalnum()]
    if len(said) > SHORT or len(said) > 2 and not phrases("asks for").match(folded(question)):
        return True
    if any(one[:4] == two[:4] for one in content(question) for two in content(fact) if len(one) > 3 < len(two)):
        return True  # "parking" and "car park"
    asked, told = prepared(question, True), prepared(fact, False)
    least = COUNTS * max(asked.weights, default=0.0)
    heavy = [unit for unit, weight in zip(asked.units, asked.weights) if weight >= least]
    return max((max(vectors.likeness(unit, told.units), default=-1.0) for unit in heavy), default=1.0) >= ALIKE


def content(text: str) -> set[str]:
    """The stems of a text that tell what it is about."""
    plain = folded(text)
    for pattern, instead in paired("reworded"):
        plain = pattern.sub(instead, plain)
    stems = {word.stem for word in words(plain) if word.fold[0].isalnum()}
    return {each for each in stems if each not in _STOP and (len(each) > 1 or each.isdecimal())}


def certain(house: House, question: str, number: int) -> bool:
    """Whether the fact answers a question about a price: it holds a price and a word of the question."""
    fact = house.facts[number - 1]
    if not phrases("holds price").search(fact) or not content(question) & content(fact):
        return False
    return scores(question, house.facts)[number - 1] > UNASKED
