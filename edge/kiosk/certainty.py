"""Whether a turn was understood for certain.  If not, the guest is asked before the order or a booking changes.

Understanding finds the names of the house in a turn, whatever else is said.  Here the rest is looked at: words that no
operation accounts for ("two of us are vegetarian"), and changes of what the guest has not named ("take it off").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

from edge.kiosk.accounts import aside, numbers
from edge.kiosk.house import House
from edge.kiosk.mentions import Mention, vocabulary
from edge.kiosk.operations import UNDO, Add, Answer, Book, Cancel, Change, Name, Operation, Remove
from edge.kiosk.phrases import listed, phrases
from edge.kiosk.reading import Understood, asks, clauses
from edge.kiosk.state import State
from edge.kiosk.words import COMMON, Word, folded, number, stem, words

#: words that tell who or how, and change nothing of what is meant
_PASSING = COMMON | {stem(word) for word in listed("in passing")}
_PLAIN = _PASSING | {stem(word) for name in ("stop", "no wish", "not names", "half said") for word in listed(name)}
#: what makes of "a latte" one more
_MORE = re.compile(
    r"(?:^|[,.!;] ?)(?:and|also|plus)\b"
    r"|\b(?:another|more|too|as well|also|add|extra|again|same|second|third)\b"
)
#: what tells of something that is not wanted any more, or not yet
_INSTEAD = re.compile(r"\b(?:rather|instead|prefers?|might|not)\b")
_ALL = re.compile(r"\b(?:all|both|each|everything|every|whole|lot|them|those|these|ones)\b")
#: what may mean the last thing that was said, or all of it
_FORGET = re.compile(r"\b(?:forget it|never ?mind)\b")
#: where a part of a clause begins that tells why
_PART = re.compile(r"[,;:()]+|\s[-–—]+\s|\b(?:because|'?cause|cos|since|as (?=he|she|i|we|they|it))\b")
#: what may take the last change back
_ASKING = re.compile(r"\basking\b")
_WANTS = frozenset("want wants would will has have gets takes says likes needs".split())
_CHANGES = Add | Remove | Change | Book | Cancel | Name


def sure(house: House, before: State, after: State, text: str, found: Understood) -> bool:
    """Whether the changes from ``before`` to ``after`` are the only ones that ``text`` can mean."""
    changes = [each for each in found.operations if isinstance(each, _CHANGES)]
    if UNDO in found.operations and _ASKING.search(folded(text)):
        return False
    if (after.lines, after.bookings, after.name) == (before.lines, before.bookings, before.name):
        return True
    return not (
        any(strays(house, text, found))
        or _uncounted(house, before, after, text, found)
        or _unnamed(house, before, text, changes)
        or _once_more(house, before, text, changes)
        or bool(found.unnoted) and any(isinstance(each, Remove) for each in changes)
        or _never_named(house, before, text, changes)
        or before.lines and bool(_FORGET.search(folded(text))) and _forgets(house, text, changes)
    )


def ordinary(house: House, text: str, found: Understood) -> bool:
    """Whether a turn changes the order or a booking, and all its words belong to that: none could tell of an emergency.
    """
    names = {stem for entry in vocabulary(house).entries for stem in entry.stems}
    values = {word.stem for each in found.operations if isinstance(each, Book | Name) for word in words(each.value)}
    changing = any(isinstance(each, _CHANGES) for each in found.operations)
    return changing and not any(_strays(house, text, names | values, _PASSING))


def strays(house: House, text: str, found: Understood) -> Iterator[str]:
    """The words of a turn that nothing accounts for; left out are questions that were answered, and parts of a clause
    that name nothing: "drop the latte, he's fallen asleep".
    """
    answered = any(isinstance(each, Answer) for each in found.operations)
    known = {word.stem for each in _told(found) for word in words(each)}
    for clause, ends in clauses(text):
        if not (answered and (ends or asks(folded(clause)))):
            for part in _PART.split(clause):
                if vocabulary(house).mentions(words(part)):
                    yield from _strays(house, part, known)


def _strays(house: House, text: str, known: Set[str], plain: Set[str] = _PLAIN) -> Iterator[str]:
    """The words of a text that are not names of the house, not ``known`` and not ``plain``."""
    turn = words(text)
    taken = {at for mention in vocabulary(house).mentions(turn) for at in range(mention.first, mention.last)}
    for at, word in enumerate(turn):
        if at not in taken and not _plain(word, plain) and word.stem not in known and not _person(turn, at):
            yield word.text


def _told(found: Understood) -> list[str]:
    """What the operations hold, and what the guest will be told."""
    told = list(found.told)
    for each in found.operations:
        match each:
            case Add() | Change():
                told += [each.item, each.size]
            case Book() | Name():
                told.append(each.value)
    return told


def _plain(word: Word, plain: Set[str]) -> bool:
    base = re.sub(r"(?:n't|'\w+)$", "", word.fold)
    return (
        len(base) < 2 or not base[0].isalpha() or number(word.fold) is not None
        or not plain.isdisjoint({word.stem, stem(base)})
        or any(phrases(name).fullmatch(base) for name in ("filler", "booking", "remove"))
    )


def _person(turn: list[Word], at: int) -> bool:
    """Whether a word tells for whom something is: "for my nan", "Leo wants a juice", "my wife would like"."""
    before = {word.fold for word in turn[max(0, at - 3) : at]}
    behind = {word.fold for word in turn[at + 1 : at + 2]}
    return "for" in before or bool(behind & _WANTS)


def _uncounted(house: House, before: State, after: State, text: str, found: Understood) -> bool:
    """Whether a number above one is in no operation: "a croissant each, so two"."""
    changes = [each for each in found.operations if isinstance(each, _CHANGES)]
    told, low = _told(found), folded(text)
    single = any(isinstance(one, Add) and one.count == 1 for one in changes)
    if single and re.search(r"(?<!of )\beach\b", low) and "each" not in " ".join(told):
        return True
    turn = words(low)
    said = [m for m in vocabulary(house).mentions(turn) if m.kind == "number" and m.value.isdecimal()]
    people = sum(int(mention.value) for mention in said)
    held, now = (
        {int(value) for fields in state.bookings.values() for value in fields.values() if value.isdecimal()}
        for state in (before, after)
    )
    if found.second or {people, people + 1} & (now - held):
        return False  # "two adults and three children", "three adults and a baby"
    known, spoken = numbers(before, after, changes, told), {*folded(" ".join(told)).split()}
    return any(
        int(mention.value) > 1 and int(mention.value) not in known and not aside(turn, mention)
        and not spoken & {word.fold for word in turn[mention.last : mention.last + 1]}
        for mention in said
    )  # fmt: skip


def _unnamed(house: House, before: State, text: str, changes: Sequence[Operation]) -> bool:
    """Whether more of a line changes than was named: "she takes a croissant instead of her soup" with two soups."""
    low, turn = folded(text), words(text)
    if _ALL.search(low):
        return False
    mentions = [mention for mention in vocabulary(house).mentions(turn) if mention.kind == "item"]
    for each in changes:
        if not isinstance(each, Remove | Change) or each.line > len(before.lines):
            continue
        line = before.lines[each.line - 1]
        named = [mention for mention in mentions if line.item in mention.values]
        whole = not each.count or isinstance(each, Change) and each.item
        if line.count > 1 and whole and named and not any(_several(turn, mention) for mention in named):
            return True
    return False


def _several(turn: list[Word], mention: Mention) -> bool:
    """Whether a name is in the plural, or a number above one stands before it."""
    last, before = turn[mention.last - 1], turn[max(0, mention.first - 2) : mention.first]
    plural = last.fold != last.stem and last.fold.endswith("s")
    return plural or any((number(word.fold) or 0) > 1 for word in before)


def _never_named(house: House, before: State, text: str, changes: Sequence[Operation]) -> bool:
    """Whether something is added that the turn does not name: "just the one cup" is no cup of soup."""
    said = {word.stem for word in words(text)}
    named = {value for m in vocabulary(house).mentions(words(text)) if m.kind == "item" for value in m.values}
    named |= {"", before.offered, *(line.item for line in (*before.lines, *before.gone))}
    for each in changes:
        if isinstance(each, Add | Change) and each.item not in named:
            if said.isdisjoint(word.stem for word in words(each.item)):  # "no wait make that green"
                return True
    return False


def _forgets(house: House, text: str, changes: Sequence[Operation]) -> bool:
    """Whether something goes that the turn does not name: "oh forget it, I'll ask at the counter"."""
    named = any(mention.kind in ("item", "extra", "size") for mention in vocabulary(house).mentions(words(text)))
    return not named and any(isinstance(each, Remove) for each in changes)


def _once_more(house: House, before: State, text: str, changes: Sequence[Operation]) -> bool:
    """Whether something is added though it is in the order already, or though something else should go; or twice."""
    added, low = [each.item for each in changes if isinstance(each, Add)], folded(text)
    if any(isinstance(each, Remove | Change) and each.line <= len(before.lines) for each in changes):
        return False
    if len({*added}) < len(added) and len({*map(repr, changes)}) < len(changes) and not _MORE.search(low):
        return True  # "a big white one. Flat white!"
    if not before.lines:
        return False
    held = {line.item for line in before.lines} & {*added}
    return any(not _more_of(house, text, item) for item in held) or bool(added) and bool(_INSTEAD.search(low))


def _more_of(house: House, text: str, item: str) -> bool:
    """Whether a turn says that it orders more of an item: before its name, or after all names."""
    turn = words(text)
    mentions = [mention for mention in vocabulary(house).mentions(turn) if mention.kind == "item"]
    named = [at for at, mention in enumerate(mentions) if item in mention.values]
    if not named:
        return bool(_MORE.search(folded(text)))
    before = mentions[named[0] - 1].last if named[0] else 0
    start = turn[before].start if before < len(turn) else len(text)
    behind = mentions[named[0] + 1].first if mentions[named[0] + 1 :] else len(turn)
    end = turn[behind - 1].end if behind else len(text)
    first = turn[mentions[named[0]].last - 1].end
    stop = re.search(r"[.!?;]", text[first:end])
    return bool(_MORE.search(folded(text)[start : first + stop.start() if stop else end]))
