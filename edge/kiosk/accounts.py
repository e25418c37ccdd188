"""What a clause names that came to nothing: the guest is told of it, so that nothing is dropped in silence."""

from __future__ import annotations

from collections import Counter

from edge.kiosk.mentions import Mention
from edge.kiosk.operations import Add, Book, Cancel, Change, Operation, Remove
from edge.kiosk.state import Line, State
from edge.kiosk.words import COMMON, Word, number, words


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
             "number": _numbers(operations, lines, after)}  # fmt: skip
    found = []
    for at, mention in enumerate(mentions):
        meanings = [mention, *([mention.other] if mention.other else [])]
        if any(set(each.values) & known.get(each.kind, {*each.values}) for each in meanings):
            continue
        last = mention.last
        if mention.kind == "number":
            ahead = turn[mention.first - 1].fold if mention.first else ""
            if turn[mention.first].fold in ("one", "1") or ahead in ("are", "we're", "us") or (
                [word.fold for word in turn[last : last + 2]] == ["of", "us"]
            ):  # fmt: skip
                continue  # "the second one", "we are three", "the four of us"
            if at + 1 < len(mentions) and mentions[at + 1].first == last:
                last = mentions[at + 1].last  # "two sugars"
        elif not certain(mention, turn):
            continue
        found.append(" ".join(word.text for word in turn[mention.first : last]))
    return found


def _numbers(operations: list[Operation], lines: list[Line], after: State) -> set[str]:
    """The numbers that operations and lines hold, alone or together, as digits."""
    told = [line.size for line in lines] + [value for fields in after.bookings.values() for value in fields.values()]
    found = {value for text in told for word in words(text) if (value := number(word.fold)) is not None}
    added, held = Counter[str](), Counter[str]()
    for each in operations:
        if isinstance(each, Add):
            added[each.item] += each.count
        if isinstance(each, Add | Change | Remove):
            found.add(each.count)
    for line in after.lines:
        held[line.item] += line.count
    found |= {line.count for line in lines} | {*added.values(), *held.values(), added.total(), held.total()}
    return {str(value) for value in found}
