"""What a clause names that came to nothing: the guest is told of it, so that nothing is dropped in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from edge.kiosk.mentions import Mention
from edge.kiosk.operations import Add, Book, Cancel, Change, Operation, Remove
from edge.kiosk.state import State
from edge.kiosk.words import COMMON, Word, number, words

#: before a number that is not ordered
_ASIDE = frozenset({"not", "instead", "was"})
_WE = frozenset({"are", "we're", "us"})


def certain(mention: Mention, turn: list[Word]) -> bool:
    """Whether a mention surely names an item, a size or an extra: "can" and "little" are also other words."""
    return mention.exact and (mention.last - mention.first > 1 or turn[mention.first].stem not in COMMON)


def lost(
    turn: list[Word], mentions: list[Mention], operations: list[Operation], before: State, after: State
) -> list[str]:
    """The names and numbers of a clause that none of its operations has, as they were said.

    ``before`` and ``after``: the states around the clause.  What was in the order before counts as spoken of.
    """
    if not any(isinstance(each, Add | Change | Remove | Book | Cancel) for each in operations):
        return []
    lines = [*before.lines, *after.lines]
    extras = {extra for line in lines for extra in (*line.extras, *line.without)}
    known = {"item": {line.item for line in lines}, "extra": extras, "size": {line.size for line in lines},
             "number": set(map(str, numbers(before, after, operations, ())))}  # fmt: skip
    found = []
    for at, mention in enumerate(mentions):
        meanings = [mention, *([mention.other] if mention.other else [])]
        if any(set(each.values) & known.get(each.kind, {*each.values}) for each in meanings):
            continue
        last = mention.last
        if mention.kind == "number":
            if aside(turn, mention):
                continue
            if at + 1 < len(mentions) and mentions[at + 1].first == last:
                last = mentions[at + 1].last  # "two sugars"
        elif not certain(mention, turn):
            continue
        found.append(" ".join(word.text for word in turn[mention.first : last]))
    return found


def numbers(before: State, after: State, operations: Iterable[Operation], told: Iterable[str]) -> set[int]:
    """The numbers that a turn or a clause accounts for: those of its operations and of the order and the bookings
    before and after it, alone or together, and those in ``told``, texts that the guest is told of.
    """
    lines = [*before.lines, *after.lines]
    values = [value for fields in after.bookings.values() for value in fields.values()]
    texts = (*told, *values, *(line.size for line in lines))
    found = {value for text in texts for word in words(text) if (value := number(word.fold)) is not None}
    found |= {line.count for line in lines}
    added, held = Counter[str](), Counter[str]()
    for each in operations:
        if isinstance(each, Add):
            added[each.item] += each.count
        if isinstance(each, Add | Change | Remove):
            found.add(each.count)
    for line in after.lines:
        held[line.item] += line.count
    had, has = (
        {int(value) for fields in state.bookings.values() for value in fields.values() if value.isdecimal()}
        for state in (before, after)
    )
    found |= {abs(old - new) for old in had for new in has}  # "two people fewer"
    found |= {*added.values(), *held.values()}
    return found | {added.total(), held.total(), sum(each.count for each in before.lines)}


def aside(turn: list[Word], mention: Mention) -> bool:
    """Whether a number counts nothing that is ordered: "not two", "we are three", "four of us", "the second one"."""
    ahead = [word.fold for word in turn[max(0, mention.first - 3) : mention.first]]
    behind = [word.fold for word in turn[mention.last : mention.last + 2]]
    told = bool(_ASIDE & {*ahead} or _WE & {*ahead[-1:]}) or behind == ["of", "us"] or behind[:1] == ["was"]
    return told or turn[mention.first].fold in ("one", "1")
