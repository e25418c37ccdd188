"""The same road with a model: an instruct model writes the operations, held to a grammar of this turn at this house.

Nothing but operations can come out: items, sizes and extras of the menu, lines of the order, numbers of statements,
and runs of words of the guest's turn.  What cannot be applied is dropped; what is left is never empty.
"""

from __future__ import annotations

from typing import Any

from edge.errors import InvalidFile, UsageError
from edge.kiosk.house import House
from edge.kiosk.operations import UNKNOWN, Operation, grammar, read
from edge.kiosk.state import State, apply
from edge.kiosk.words import words

#: the longest run of words that is a value, and the most tokens of an answer
MAX_SPAN, MAX_TOKENS = 5, 160

_OPERATIONS = """You take orders at a counter. Write what the guest's last message means, one operation on a line:
add COUNT ITEM size SIZE with EXTRA without EXTRA - something new is ordered; size, with, without only if said
remove LINE - line LINE of the order goes; "remove LINE count N" takes away N of it
change LINE count N size SIZE item ITEM with EXTRA without EXTRA - line LINE becomes different; only what changes
name TEXT - the guest's name
book THING FIELD = TEXT - one field of a booking
answer NUMBER - the guest asks something and fact NUMBER answers it; "answer none" if no fact does
confirm - yes; deny - no; done - the guest wants nothing more; restart - the guest takes everything back
small talk KIND - greeting, thanks, goodbye, apology, help, order (asks what is ordered so far), other
unknown - anything else"""


def spans(turn: str) -> list[str]:
    """Runs of up to MAX_SPAN words of a turn, as they stand in it."""
    parts = words(turn)
    found = []
    for first in range(len(parts)):
        for last in range(first, min(first + MAX_SPAN, len(parts))):
            if parts[first].fold.isalnum() and parts[last].fold[-1].isalnum():
                found.append(turn[parts[first].start : parts[last].end])
    return list(dict.fromkeys(found))


def system(house: House, state: State) -> str:
    """The system prompt of an instruct model: the operations, then the situation."""
    return f"{_OPERATIONS}\n\n{situation(house, state)}"


def situation(house: House, state: State) -> str:
    """The house and the order as it stands, for a model."""
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
    parts = [
        "Menu:\n" + "\n".join(menu) if menu else "",
        "Bookings:\n" + "\n".join(bookings) if bookings else "",
        "Facts:\n" + "\n".join(facts) if facts else "",
        "The order so far:\n" + ("\n".join(order) or "nothing"),
    ]
    return "\n\n".join(part for part in parts if part)


def turn_grammar(house: House, state: State, turn: str) -> str:
    """The Lark grammar of what a turn may mean at this house."""
    return grammar(
        items=[item.name for item in house.items],
        sizes=list(dict.fromkeys(size for item in house.items for size in item.sizes)),
        extras=list(house.extras),
        bookings={each.name: list(each.fields) for each in house.bookings},
        n_lines=len(state.lines),
        statements=list(range(1, len(house.statements()) + 1)),
        spans=spans(turn),
    )


def interpret(model: Any, house: House, state: State, turn: str) -> list[Operation]:
    """The operations that ``model`` (:class:`edge.engine.Model`) takes a turn to mean; they can be applied in order."""
    with model.session(system(house, state)) as session:
        answer = session.ask(turn, grammar=turn_grammar(house, state, turn), max_tokens=MAX_TOKENS, temperature=0.0)
        text = "".join(piece.text for piece in answer)
    found: list[Operation] = []
    for line in text.splitlines():
        try:
            operation = read(line)
            state = apply(house, state, operation)
        except (InvalidFile, UsageError):  # cut off by the limit, or an extra that this item does not come with
            continue
        found.append(operation)
    return found or [UNKNOWN]
