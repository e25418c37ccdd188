"""Understanding by a model: an instruct model writes the operations, under a grammar for this turn and house.

The grammar allows nothing but operations on items, sizes and extras of the menu, lines of the order, numbers of
statements, and runs of words of the guest's turn.  Operations that cannot be applied are dropped; if none is left, the
result is ``unknown``.  Requests that the order cannot hold are found by code, as without a model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edge.errors import InvalidFile, UsageError
from edge.kiosk import wishes
from edge.kiosk.house import House
from edge.kiosk.mentions import vocabulary
from edge.kiosk.operations import UNKNOWN, Add, Change, Operation, grammar, read
from edge.kiosk.reading import Understood
from edge.kiosk.say import booking_text
from edge.kiosk.state import State, apply
from edge.kiosk.words import words

#: most words of a value, and most tokens of an answer
MAX_SPAN, MAX_TOKENS = 5, 160

_OPERATIONS = """You take orders at a counter. Write what the guest's last message means, one operation on a line:
add COUNT ITEM size SIZE with EXTRA without EXTRA - something new is ordered; size, with, without only if said
remove LINE - line LINE of the order goes; "remove LINE count N" takes away N of it
change LINE count N size SIZE item ITEM with EXTRA without EXTRA - line LINE becomes different; only what changes
name TEXT - the guest's name
book THING FIELD = TEXT - one field of a booking
cancel THING - a booking is taken back
answer NUMBER - the guest asks something and fact NUMBER answers it; "answer none" if no fact does
confirm - yes; deny - no; done - the guest wants nothing more; restart - the guest takes everything back; undo - the
guest takes the last change back
small talk KIND - greeting, thanks, goodbye, apology, help, order (asks what is ordered so far), other
unknown - anything else"""


def spans(turn: str) -> list[str]:
    """Runs of up to MAX_SPAN words of a turn, unchanged."""
    parts = words(turn)
    found = []
    for first in range(len(parts)):
        for last in range(first, min(first + MAX_SPAN, len(parts))):
            if parts[first].fold.isalnum() and parts[last].fold[-1].isalnum():
                found.append(turn[parts[first].start : parts[last].end])
    return list(dict.fromkeys(found))


def system(house: House, state: State) -> str:
    """The system prompt for an instruct model: the operations, then the situation."""
    return f"{_OPERATIONS}\n\n{situation(house, state)}"


def situation(house: House, state: State) -> str:
    """The house and the current order, as text for a model."""
    menu = [
        f'"{item.name}"'
        + (f" ({', '.join(item.sizes)})" if item.sizes else "")
        + (f" with {', '.join(item.extras)}" if item.extras else "")
        for item in house.items
    ]
    bookings = [f'"{each.name}": {", ".join(each.fields)}' for each in house.bookings]
    facts = [f"{number} {fact}" for number, fact in enumerate(house.statements(), 1)]
    order = [
        f'{number} {line.count} "{line.item}" {line.size} {" ".join(f"with {extra}" for extra in line.extras)}'.strip()
        for number, line in enumerate(state.lines, 1)
    ]
    booked = [booking_text(name, fields) for name, fields in state.bookings.items()]
    parts = [
        "Menu:\n" + "\n".join(menu) if menu else "",
        "Bookings:\n" + "\n".join(bookings) if bookings else "",
        "Facts:\n" + "\n".join(facts) if facts else "",
        "The order so far:\n" + ("\n".join(order) or "nothing"),
        "Booked so far:\n" + "\n".join(booked) if booked else "",
    ]
    return "\n\n".join(part for part in parts if part)


def turn_grammar(house: House, state: State, turn: str) -> str:
    """The Lark grammar of everything that a turn may mean at this house."""
    return grammar(
        items=[item.name for item in house.items],
        sizes=list(dict.fromkeys(size for item in house.items for size in item.sizes)),
        extras=list(house.extras),
        bookings={each.name: list(each.fields) for each in house.bookings},
        n_lines=len(state.lines),
        statements=list(range(1, len(house.statements()) + 1)),
        spans=spans(turn),
        booked=list(state.bookings),
    )


def interpret(model: Any, house: House, state: State, turn: str) -> Understood:
    """The meaning of a turn by ``model`` (:class:`edge.engine.Engine`); the operations can be applied in order.

    Wishes that the order cannot hold, and extras that an item does not come with, are in ``unnoted``.
    """
    with model.session(system(house, state)) as session:
        answer = session.ask(turn, grammar=turn_grammar(house, state, turn), max_tokens=MAX_TOKENS, temperature=0.0)
        text = "".join(piece.text for piece in answer)
    found, unnoted = [], []
    for line in text.splitlines():
        try:
            operation, not_offered = _offered(house, state, read(line))
            state = apply(house, state, operation)
        except (InvalidFile, UsageError):  # cut off by the limit, or of nothing that is there
            continue
        found.append(operation)
        unnoted += not_offered
    if any(isinstance(each, (Add, Change)) for each in found):
        parts = words(turn)
        unnoted += wishes.unnoted(house, turn, parts, vocabulary(house).mentions(parts))
    return Understood(found or [UNKNOWN], unnoted=list(dict.fromkeys(unnoted)))


def _offered(house: House, state: State, operation: Operation) -> tuple[Operation, list[str]]:
    """The operation without the extras that its item does not come with, and these extras as wishes."""
    if not isinstance(operation, (Add, Change)):
        return operation, []
    name = operation.item
    if isinstance(operation, Change) and not name and 1 <= operation.line <= len(state.lines):
        name = state.lines[operation.line - 1].item
    item = house.item(name)
    if item is None:
        return operation, []
    wanted = {"with": operation.extras, "without": operation.without}
    unnoted = [f"{how} {each}" for how, extras in wanted.items() for each in extras if each not in item.extras]
    extras, without = (tuple(each for each in extras if each in item.extras) for extras in wanted.values())
    return replace(operation, extras=extras, without=without), unnoted
