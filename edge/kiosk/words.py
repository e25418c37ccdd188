"""Words of a turn: splitting, stems, numbers as people write them, and the distance of two words."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from edge.kiosk.phrases import listed

_WORD = re.compile(r"\d+(?:[.:]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)*|[^\w\s]")

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_UNITS = [*_ONES.split(), "seventeen", "eighteen", "nineteen"]
#: number word -> number
NUMBERS = {
    **{word: number for number, word in enumerate(_UNITS)},
    **{word: 10 * ten for ten, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)},
    "couple": 2, "pair": 2, "dozen": 12,
}  # fmt: skip

_IRREGULAR = {
    "children": "child", "kids": "kid", "people": "person", "persons": "person", "men": "man", "women": "woman",
    "loaves": "loaf", "halves": "half", "knives": "knife", "feet": "foot", "teeth": "tooth", "mice": "mouse",
    "potatoes": "potato", "tomatoes": "tomato", "chillies": "chili", "chilli": "chili", "chilies": "chili",
    "opened": "open", "openings": "vacancy",
    "opening": "open", "closed": "close", "closing": "close", "shut": "close", "paid": "pay",
    "bought": "buy", "brought": "bring", "left": "left", "leaves": "leave", "was": "be", "is": "be", "are": "be",
    "parking": "park", "smoking": "smoke", "news": "news", "gas": "gas", "bus": "bus", "this": "this", "his": "his",
    "us": "us", "yes": "yes", "plus": "plus", "does": "do", "did": "do", "has": "have", "had": "have",
    "coffe": "coffe", "doughnut": "donut", "doughnuts": "donut", "yoghurt": "yogurt", "yoghurts": "yogurt",
}  # fmt: skip


@dataclass(frozen=True)
class Word:
    """One word or punctuation mark of a turn: as written, folded, and its place."""

    text: str
    fold: str
    stem: str
    start: int
    end: int


def folded(text: str) -> str:
    """Lower case without accents: "Rösti" -> "rosti"."""
    if text.isascii():
        return text.casefold()
    plain = unicodedata.normalize("NFKD", text.replace("’", "'").replace("ß", "ss"))
    return "".join(c for c in plain if not unicodedata.combining(c)).casefold()


@lru_cache(4096)
def stem(word: str) -> str:
    """A folded word without endings that are ignored when words are compared: plural, -ed, -ing, 's."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    word = re.sub(r"'s?$", "", word)
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    n = len(word)
    if n > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if n > 4 and re.search(r"(?:ch|sh|x|ss|z)es$", word):
        return word[:-2]
    if n > 3 and word.endswith("s") and word[-2] not in "su":
        word = word[:-1]
        n -= 1
    if n > 4 and word.endswith("ie"):
        return f"{word[:-2]}y"  # "brownie", as "brownies"
    if n > 5 and word.endswith("ing"):
        word = word[:-3]
    elif n > 4 and word.endswith("ed"):
        word = word[:-2]
    else:
        return word[:-1] if n > 4 and word.endswith("e") else word
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
        word = word[:-1]
    return word


def words(text: str) -> list[Word]:
    """The words and marks of a text, in order."""
    found = []
    for match in _WORD.finditer(text):
        if fold := folded(match[0]):  # a lone accent is not a word
            found.append(Word(match[0], fold, stem(fold), match.start(), match.end()))
    return found


def number(word: str) -> int | None:
    """The value of a folded number word or of digits, up to 999; None for other words."""
    if word.isdecimal() and len(word) <= 3:
        return int(word)
    return NUMBERS.get(word.removesuffix("'s"))


@lru_cache(8192)
def distance(a: str, b: str, most: int = 2) -> int:
    """Edits between two words (insert, delete, replace, swap neighbours); ``most`` + 1 if there are more."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row, older = row, [i], before
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y))
            if older and i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        before = last
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


#: stems that say nothing about a house
COMMON = frozenset(stem(word) for word in listed("common"))
