"""Visit: one guest at one house: each turn is guarded, understood, applied and answered.  No terminal code, no model
needed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from edge.errors import EdgeError
from edge.kiosk import facts, say
from edge.kiosk.guards import guard, is_foreign
from edge.kiosk.house import House
from edge.kiosk.operations import DENY, UNKNOWN, Operation, Talk, write
from edge.kiosk.state import State, apply, as_dict, line_price, total
from edge.kiosk.understand import Understood, understand
from edge.kiosk.words import words

#: number of turns about something else after which an open question is dropped
ASIDES = 3

Reads = Callable[[House, State, str], Understood]


@dataclass(frozen=True)
class Turn:
    """The result of one turn.  ``guard``: the kind of the fixed text, if one was given; ``order``: the finished order,
    if any.
    """

    say: str
    operations: tuple[Operation, ...] = ()
    guard: str = ""
    order: dict[str, Any] | None = None


@dataclass
class Visit:
    """One guest.  ``reads``: the function that understands turns, by code by default, else by an instruct model.

    ``deliver`` is called with each finished order before the guest is thanked.  If it raises, the guest is told, and
    the order stays open.
    """

    house: House
    deliver: Callable[[dict[str, Any]], object] = lambda order: None
    reads: Reads = understand
    state: State = field(default_factory=State)
    _doubt: tuple[str, str, tuple[str, ...]] | None = None  # the last turn, a word of it, and what that may be
    _asides: int = 0  # turns since then

    def greet(self) -> Turn:
        """The greeting.  The facts are read now, so that the first question is answered as fast as the others."""
        facts.read(self.house)
        return Turn(self.house.texts["greeting"])

    def turn(self, text: str) -> Turn:
        """Reply to what the guest said."""
        house, before = self.house, self.state
        if fixed := guard(house, text):
            return Turn(fixed[1], guard=fixed[0])
        meant = self._meant(text)
        understood = self.reads(house, before, meant)
        operations = understood.operations
        after = before
        for operation in operations:
            after = apply(house, after, operation)
        reminder = self._doubted(text, understood, meant == text and replace(after, offered=before.offered) == before)
        if operations == [UNKNOWN] and not understood.remarks and is_foreign(text):
            return Turn(house.texts["language"], tuple(operations), "language")
        said = " ".join(filter(None, (say.reply(house, before, after, understood), reminder)))
        order = None
        if after.confirmed and not after.empty:
            order = {"id": secrets.token_hex(8), "house": house.name, **as_dict(house, after)}
            try:
                self.deliver(order)
            except (OSError, EdgeError):
                self.state = before
                return Turn(f"Your order could not be passed on. {house.texts['unknown']}", tuple(operations))
            after = State()
        elif after.empty and (after.done or Talk("goodbye") in operations):
            after = State()  # the guest leaves without an order: the next turn is of a new visit
        self.state = after
        return Turn(said, tuple(operations), order=order)

    def _doubted(self, text: str, understood: Understood, aside: bool) -> str:
        """Keep the open question: that of this turn, or the one before an ``aside``, which is asked again.  Returns the
        text to say.
        """
        if understood.unclear:
            self._doubt = (text, *understood.unclear[0]) if len(understood.unclear) == 1 else None
            self._asides = 0
        elif self._doubt is not None:
            self._asides += 1
            if not aside or self._asides > ASIDES or Talk("goodbye") in understood.operations or DENY in (
                understood.operations
            ):  # fmt: skip
                self._doubt = None
            else:
                return say.doubt(*self._doubt[1:])
        return ""

    def _meant(self, text: str) -> str:
        """``text``; if it only chooses a name for the turn before, that turn with the name: "3 teas" and then
        "green".
        """
        if self._doubt is None:
            return text
        turn, word, names = self._doubt
        said = {each.stem for each in words(text)}
        parts = {name: {each.stem for each in words(name)} for name in names}
        others = {name: {stem for n in names if n != name for stem in parts[n]} for name in names}
        fitting = [name for name in names if said & (parts[name] - others[name])]
        if len(fitting) > 1 and word in turn:
            return f"{turn}, {text}"  # "two teas" and then "one green, one black"
        if len(fitting) != 1 or len(said) > 4 or word not in turn:
            return text
        return turn.replace(word, fitting[0], 1)

    def shown(self) -> dict[str, Any]:
        """The order for a screen: texts and amounts."""
        house, state = self.house, self.state
        lines = []
        for line in state.lines:
            cents = line_price(house, line)
            lines.append({"text": say.line_text(line), "amount": "" if cents is None else house.money(cents)})
        lines += [{"text": say.booking_text(name, fields), "amount": ""} for name, fields in state.bookings.items()]
        cents = total(house, state)
        return {"lines": lines, "total": house.money(cents) if state.lines and cents is not None else "",
                "name": state.name}

    def suggestions(self) -> list[str]:
        """Likely next replies, for buttons."""
        asks = say.question(self.house, self.state)
        if self.state.done and not asks:
            return ["Yes", "No"]
        if not self.state.empty:
            return ["That is all", "Start again"]
        return ["What do you have?"] if self.house.items else []


def event(visit: Visit, turn: Turn) -> dict[str, Any]:
    """A turn as one JSON object: the operations, the state, the reply, the finished order."""
    return {
        "ev": "turn",
        "say": turn.say,
        "operations": [write(operation) for operation in turn.operations],
        **({"guard": turn.guard} if turn.guard else {}),
        "state": as_dict(visit.house, visit.state),
        **({"order": turn.order} if turn.order else {}),
    }
