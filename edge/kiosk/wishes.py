"""Wishes that an order cannot hold: "without nuts", "decaf", "half a", "gluten free".

They are repeated to the guest, so that nothing is dropped silently.
"""

from __future__ import annotations

import re

from edge.kiosk.drafts import DEFINITE
from edge.kiosk.house import House
from edge.kiosk.mentions import SIZES, Mention, close
from edge.kiosk.phrases import listed, phrases
from edge.kiosk.unlisted import ENDS, places
from edge.kiosk.words import COMMON, Word, folded, number, words

_WITH = frozenset({"with", "without", "no", "w/o", "minus"})
_ARTICLES = frozenset(
    "a an any some the extra more just only lots plenty % of bit drop splash dash touch pinch little".split()
)
#: words that may come before an adjective
_OPENERS = DEFINITE | {"a", "an", "some", "another", "and", "plus", ",", "want", "like", "have", "get", "take", "me"}
#: words before a size that ends a clause
_BEFORE_SIZE = frozenset({"a", "an", "the", "to", "it", "that", "them", "those", "in", "one", "mine", "size"})
#: words of size that have no special meaning
_USUAL = frozenset({"regular", "normal", "standard", "usual", "full", "whole", "single", "piece"})


def unnoted(house: House, text: str, turn: list[Word], mentions: list[Mention]) -> list[str]:
    """The wishes of a clause that names ``mentions``, as they were said.

    Extras of the house are not among them: where the item is ordered, it is checked whether it comes with them.
    """
    taken = places(mentions)
    found: dict[int, str] = {}
    low = folded(text) if len(folded(text)) == len(text) else text.lower()
    for match in phrases("diet").finditer(low):
        span = [at for at, word in enumerate(turn) if match.start() <= word.start < match.end()]
        if span and not places([m for m in mentions if m.kind != "size"]) & set(span):  # "in my own cup"
            found[span[0]] = text[match.start() : match.end()]
            taken |= set(span)
    items = [mention for mention in mentions if mention.kind == "item"]
    with_this = {at for mention in mentions if mention.kind == "extra" for at in range(mention.first, mention.last)}
    for at, word in enumerate(turn):
        if word.fold == "half" and turn[at + 1 : at + 2] and turn[at + 1].fold in _WITH:
            found[at] = word.text  # "5 teas, half with lemon"
        if word.fold in _WITH and at not in taken and (last := _thing(turn, at, taken)):
            found[at] = text[word.start : turn[last].end]
            taken |= set(range(at, last + 1))
            with_this |= set(range(at, last + 1))
        follows = turn[at + 1].fold if at + 1 < len(turn) else ""
        if word.fold in ("and", "or") and at - 1 in with_this and follows not in _ARTICLES | _WITH | {""}:
            if number(follows) is None and (last := _thing(turn, at, taken)):  # "without sugar and cinnamon"
                found[at] = text[turn[at + 1].start : turn[last].end]
                taken |= set(range(at, last + 1))
                with_this |= set(range(at, last + 1))
    for mention in mentions:
        at = mention.first - 1 - (mention.first > 1 and turn[mention.first - 1].fold == "%")
        if mention.kind == "extra" and at > 0 and (number(turn[at].fold) or 0) > 1 and (
            turn[at - 1].fold in _WITH or turn[at - 1].fold == "and" and at - 2 in with_this
        ):  # fmt: skip
            found[at] = text[turn[at].start : turn[mention.last - 1].end]  # "with two sugars": there is one or none
        if mention.kind == "item" and not replaced_kind(house, turn, mentions, mention):
            for at in _adjectives(house, turn, mentions, mention, taken):
                found[at] = turn[at].text
    for at, word in enumerate(turn):  # "make it a medium" in a house without that size
        known = taken | {each for m in mentions for each in range(m.first, m.last)} | set(found)
        if word.fold in SIZES and word.fold not in _USUAL and at not in known and (
            (not at or turn[at - 1].fold in _BEFORE_SIZE) and all(_polite(each.fold) for each in turn[at + 1 :])
        ):  # fmt: skip
            found[at] = word.text
    several = any(mention.kind == "number" and int(mention.value) > 1 for mention in mentions)
    if items and not several and each_of_us(low):
        found[len(turn)] = "each"
    return [found[at] for at in sorted(found)]


def each_of_us(low: str) -> bool:
    """Whether a clause orders as many as there are guests, whose number it does not tell: "a hot chocolate each"."""
    return bool(re.search(r"\b(?:(?<!of )each|for each of (?:us|them)|for (?:all|everyone|everybody))\W*$", low))


def replaced_kind(house: House, turn: list[Word], mentions: list[Mention], item: Mention) -> str:
    """What is asked for where a guest puts another kind before a part of a name: "chocolate cake" for "Carrot cake"."""
    sized = any(each.kind == "size" and each.first == item.first for each in mentions)  # a "pint" is a lager
    if item.exact or len(item.values) > 1 or sized:
        return ""
    known = house.item(item.value)
    named = {part.stem for part in words(known.name)} - {""} if known else set()
    said = [close(word, part) for word in turn[item.first : item.last] for part in named]
    if named and not any(said):  # "breakfast" is a part of another name of the black tea
        return " ".join(word.text for word in turn[item.first : item.last])
    own = {word.stem for known in [house.item(item.value)] if known for name in (known.name, *known.others)
           for word in words(name)}  # fmt: skip
    kinds = [at for at in _adjectives(house, turn, mentions, item, places(mentions)) if turn[at].stem not in own]
    kind = " ".join(turn[at].fold for at in sorted(kinds))
    if not kinds or phrases("diet").search(kind) or any(m.kind == "size" and m.first in kinds for m in mentions):
        return ""
    return " ".join(word.text for word in turn[min(kinds) : item.last])


def _thing(turn: list[Word], at: int, taken: set[int]) -> int:
    """The index after the thing that follows "with" or "no" at ``at``; 0 if there is none, or if the house knows it."""
    start = at + 1
    while start < len(turn) and (turn[start].fold in _ARTICLES or number(turn[start].fold) is not None):
        start += 1
    end = start
    while end < len(turn) and end - start < 3 and turn[end].fold not in ENDS and turn[end].fold.isalpha():
        end += 1
    if end == start or taken & set(range(at, end + 1)):
        return 0
    first = turn[start]
    if first.stem in COMMON or first.fold in listed("no wish") or number(first.fold) is not None:
        return 0
    return end - 1


def _adjectives(house: House, turn: list[Word], mentions: list[Mention], item: Mention, taken: set[int]) -> list[int]:
    """Indices of words directly before an item that are not names of the house."""
    sizes = {size for value in item.values if (known := house.item(value)) for size in known.sizes}
    found = []
    at = item.first - 1
    if at > 0 and turn[at].fold in ("a", "an", "the") and turn[at - 1].fold == "half":
        return [] if "half" in sizes else [at - 1]
    while at >= 0 and item.first - at <= 3:
        size = next((m for m in mentions if m.kind == "size" and m.first <= at < m.last), None)
        if size is not None:
            if not sizes & set(size.values):
                found.append(at)
            at = size.first - 1
            continue
        word = turn[at]
        if at in taken or not word.fold.isalpha() or word.fold in ENDS or number(word.fold) is not None:
            break
        of_size = word.fold in SIZES and word.fold not in _USUAL or word.fold == "half"
        if not of_size and (word.stem in COMMON or word.fold in listed("no wish") or _polite(word.fold)):
            break
        found.append(at)
        at -= 1
    opened = at < 0 or turn[at].fold in _OPENERS or number(turn[at].fold) is not None or not turn[at].fold.isalpha()
    return found if opened else []


def _polite(word: str) -> bool:
    return not re.sub(r"\W", "", phrases("filler").sub("", word)) or bool(phrases("ordering").search(word))
