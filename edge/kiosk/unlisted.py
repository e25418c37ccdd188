"""What a clause orders that cannot be ordered: things that are not on the menu, and numbers that are not counts."""

from __future__ import annotations

import re

from edge.kiosk.mentions import Mention
from edge.kiosk.operations import MAX_COUNT
from edge.kiosk.words import COMMON, Word, number

#: where the name of a thing ends
ENDS = frozenset(
    "and or but with without for to from on in at of by if so that then as too also plus no not instead please thanks "
    "is are would will can could & , . ; ! ? ( )".split()
)
#: what follows "and a" without being a thing to order
_NO_THING = frozenset(
    "bit moment minute second table few couple lot little half more one ones quick question day friend word bag box "
    "people persons person adults kids children "
    "cup place seat size large small medium big regular other another different extra".split()
)
#: words that make a number of another
_LARGE = frozenset({"hundred", "hundreds", "thousand", "thousands", "million", "millions", "billion", "billions"})
#: what is no whole number
_FRACTION = re.compile(r"\d+(?:[.,/]\d+)+|\d+e\d+", re.IGNORECASE)
_ORDERED = re.compile(
    r"(?:(?:and|also|plus|oh|hi|hello|then|please|,) )*"
    r"(?:(?:i'?d (?:like|love)|i would like|i want|i'?ll (?:have|take|get)|give me|get me|add|make it) )?"
)
_FOR_WHOM = re.compile(r"for (?:the|my|our|his|her) \w+")
_POLITE = frozenset({"please", "thanks", "thank", "you", "too", "also", "as", "well", "then", ".", "!", ","})


def places(mentions: list[Mention]) -> set[int]:
    """Where the words of a turn stand that name something of the house."""
    return {at for mention in mentions if mention.kind != "number" for at in range(mention.first, mention.last)}


def thing_at(turn: list[Word], start: int, taken: set[int]) -> str:
    """The thing that "a scone" or "two hot scones" names at ``start``, or "".  ``taken``: places of known words."""
    if start + 1 >= len(turn):
        return ""
    if turn[start].fold not in ("a", "an", "another", "some") and number(turn[start].fold) is None:
        return ""
    end = start + 1
    while end < len(turn) and turn[end].fold not in ENDS and end - start <= 3:
        end += 1
    name = turn[start + 1 : end]
    if not name or {name[0].fold, name[0].stem} & _NO_THING or not name[0].fold.isalpha():
        return ""
    if [word.fold for word in turn[end : end + 1]] == ["of"] and end + 1 < len(turn):  # "a bottle of wine"
        last = turn[end + 1]
        if end + 1 in taken or not last.fold.isalpha() or last.stem in COMMON or number(last.fold) is not None:
            return ""
        end += 2
    if set(range(start, end + 1)) & taken:
        return ""
    return " ".join(word.text for word in turn[start + 1 : end])


def sized_thing(turn: list[Word], mentions: list[Mention]) -> str:
    """The thing that "a small hot milk" names where the menu has none; "" for "a small one" and the like."""
    for mention in mentions:
        if mention.kind != "size" or not mention.first or turn[mention.first - 1].fold not in ("a", "an", "another"):
            continue
        end = mention.last
        while end < len(turn) and turn[end].fold not in ENDS and turn[end].fold.isalpha() and end - mention.last < 3:
            end += 1
        name = turn[mention.last : end]
        if name and not any(each.fold in ("one", "ones", "size", "sized") for each in name) and any(
            each.stem not in COMMON for each in name
        ):  # fmt: skip
            return " ".join(word.text for word in name)
    return ""


def no_count(text: str, turn: list[Word], mentions: list[Mention]) -> bool:
    """Whether a number that is not a count of 1 to MAX_COUNT stands right before an item: "150 lattes", "1/2 tea"."""
    taken = places(mentions)
    items = [mention.first for mention in mentions if mention.kind == "item"]
    for found in _FRACTION.finditer(text):
        before = sum(word.start < found.end() for word in turn)
        if any(0 <= first - before <= 2 for first in items):
            return True
    for at, word in enumerate(turn):
        digits = word.fold.isdecimal()
        wrong = word.fold in _LARGE or word.fold == "zero" or digits and not 1 <= int(word.fold[:9]) <= MAX_COUNT
        if digits and at and turn[at - 1].fold in "-−–" and turn[at - 1].end == word.start:
            wrong = at == 1 or turn[at - 2].end < turn[at - 1].start  # "-3", not "3-4"
        if wrong and at not in taken and any(0 < first - at <= 3 for first in items):
            return True
    return False


def missed(turn: list[Word], mentions: list[Mention]) -> list[str]:
    """Things ordered beside others that the menu does not have: the scone of "a latte and a scone"."""
    taken = places(mentions)
    found = []
    if thing := thing_at(turn, 0, taken):
        found.append(thing)
    for at, word in enumerate(turn[:-2]):
        if word.fold in ("and", "plus", "&", ",", "like", "have", "get", "want", "take", "me"):
            start = at + 1 + (turn[at + 1].fold in ("also", "then", "and", "maybe"))
            if thing := thing_at(turn, start, taken):
                found.append(thing)
    for at in range(1, len(turn)):  # "one carrot cake two forks"
        if at - 1 in taken and (number(turn[at].fold) or 0) > 1 and (thing := thing_at(turn, at, taken)):
            found.append(thing)
    return list(dict.fromkeys(found))


def ordered_alone(turn: list[Word]) -> str:
    """What a clause orders that the menu does not have: "a scone please", "I'd like two scones"; "" for nothing."""
    text = " ".join(word.fold for word in turn)
    ordered = _ORDERED.match(text)
    assert ordered is not None
    start = len(ordered[0].split())
    name = thing_at(turn, start, set())
    end = start + 1 + len(name.split())
    behind = _FOR_WHOM.sub("", " ".join(word.fold for word in turn[end:])).split()  # "a straw for the kids"
    return name if name and all(word in _POLITE for word in behind) else ""
