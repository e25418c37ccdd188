"""Finds doubtful entries in a valid house file: names that no guest can tell apart, facts that no question leads to."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

from edge.kiosk.facts import choose
from edge.kiosk.house import House
from edge.kiosk.words import folded

_TIME = re.compile(r"\b\d{1,2}[:.]\d{2}\b|\b\d{1,2} ?(?:am|pm)\b", re.IGNORECASE)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def check(house: House) -> Iterator[str]:
    """One line for each doubtful entry."""
    names: dict[str, str] = {}
    for kind, entries in (("item", house.items), ("extra", tuple(house.extras.values())), ("booking", house.bookings)):
        for entry in entries:
            for name in (entry.name, *entry.others):
                other = names.setdefault(folded(name), f"{kind} {entry.name!r}")
                if other != f"{kind} {entry.name!r}":
                    yield (f"{name!r} is a name of the {other} and of the {kind} {entry.name!r}: "
                           "a guest cannot tell them apart")
    yield from _contradictions(house)
    for number, fact in enumerate(house.facts, 1):
        if len(re.findall(r"\w+", fact)) < 3:
            yield f"fact {number} ({fact!r}) has too few words to be found by a question"
        elif choose(house, fact) != number:
            found = choose(house, fact)
            yield (f"fact {number} ({fact!r}) is not found even by its own words; "
                   + (f"fact {found} is" if 0 < found <= len(house.facts) else "say in it what it is about"))
    used = {extra for item in house.items for extra in item.extras}
    for extra in house.extras:
        if extra not in used:
            yield f"the extra {extra!r} belongs to no item: it cannot be ordered"
    if not house.facts and not house.items and not house.bookings:
        yield "there is nothing to order, to book or to ask about"
    if (house.items or house.bookings) and house.orders == {"to": "stdout"}:
        yield 'finished orders go to standard output; [orders] file = "orders.jsonl" keeps them'


def unwritable(house: House, folder: str) -> Iterator[str]:
    """The reason why orders cannot be written to the file of the house, if any.  ``folder``: relative paths begin
    here.
    """
    if "file" in house.orders:
        path = os.path.join(folder, house.orders["file"])
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):
            yield f"orders cannot be written to {path}: the folder does not exist, so the kiosk does not start"
        elif not os.access(path if os.path.exists(path) else parent, os.W_OK) or os.path.isdir(path):
            yield f"orders cannot be written to {path}, so the kiosk does not start"
    if "command" in house.orders:
        program = os.path.join(folder, name) if "/" in (name := house.orders["command"][0]) else name
        if shutil.which(program) is None:
            yield (f"the command {name!r} of [orders] is not found here; until it is, orders are kept and tried "
                   "again at each start")


def _contradictions(house: House) -> Iterator[str]:
    """Two facts that state different hours for the same day, or one that says closed where another says open."""
    said: dict[str, tuple[int, str]] = {}
    for number, fact in enumerate(house.facts, 1):
        low = fact.lower()
        if not re.search(r"\b(?:we are|we're|we) (?:open|closed)\b|\bopening hours\b", low):
            continue
        closed = bool(re.search(r"\bclosed\b", low))
        for day in _DAYS:
            if re.search(rf"\b{day}s?\b", low):
                state = "closed" if closed and not _TIME.search(low) else "open"
                if day in said and said[day][1] != state:
                    yield f"facts {said[day][0]} and {number} contradict each other about {day.capitalize()}"
                said.setdefault(day, (number, state))
