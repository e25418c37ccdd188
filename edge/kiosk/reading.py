"""What all parts of understanding a turn share: the house, the state after each operation, and what was found."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from edge.errors import UsageError
from edge.kiosk.house import House
from edge.kiosk.mentions import vocabulary
from edge.kiosk.operations import Add, Operation
from edge.kiosk.phrases import phrases
from edge.kiosk.state import State, apply, missing


@dataclass
class Understood:
    """The meaning of a turn.

    ``unclear``: (words of the turn, the items that they may mean; one item is asked about, not taken);
    ``missed``: words that order something that is not on the menu; ``unnoted``: wishes that an order cannot hold;
    ``unread``: parts that were not understood, beside others that were; ``impossible``: days, times and numbers that do
    not exist; ``absent``: what should be taken away and is not in the order; ``second``: bookings of which there is one
    already; ``no_count``: something was ordered less than once or more than MAX_COUNT times; ``allergy``: the guest
    told what they may not eat.
    """

    operations: list[Operation] = field(default_factory=list)
    unclear: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    unnoted: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    second: list[str] = field(default_factory=list)
    offered: str = ""  # the item that the last question was about
    no_count: bool = False
    allergy: bool = False
    unsure: bool = False

    @property
    def told(self) -> list[str]:
        """All parts of the turn that the guest is told of."""
        unclear = [text for text, _ in self.unclear]
        return [*unclear, *self.missed, *self.unnoted, *self.unread, *self.impossible, *self.absent, *self.second]

    @property
    def remarks(self) -> bool:
        """Whether the guest must be told something besides the operations, of what was understood."""
        return len(self.told) > len(self.unread) or self.no_count


class Reading:
    """One turn while it is read; ``state`` includes the operations found so far."""

    def __init__(self, house: House, state: State, text: str) -> None:
        self.house, self.state, self.before = house, state, state
        self.text = text
        self.names = vocabulary(house)
        self.found = Understood()
        self.asked = missing(house, state)[:1]
        self.last = _last_changed(state)  # the line that "it" is
        self.unwanted = ""  # "day" or "time", where one was said to be wrong
        self.unnamed = text  # the turn without the guest's name
        self.offered = state.offered  # the item that was asked about last
        self.known = frozenset(self.names.parts) | {
            part for entry in self.names.entries if entry.kind != "item" for part in entry.stems
        }

    def emit(self, operation: Operation) -> bool:
        """Add an operation if it can be applied.  Returns whether it was."""
        try:
            self.state = apply(self.house, self.state, operation)
        except UsageError:
            return False
        self.found.operations.append(operation)
        if isinstance(operation, Add):
            self.offered = ""  # "one" is what was ordered
        return True

    def kind_of(self, booking: str, key: str) -> str:
        """The kind of a field of a booking: one of house.KINDS, or "choice"."""
        entry = self.house.booking(booking)
        kind = entry.fields.get(key, "") if entry else ""
        return kind if isinstance(kind, str) else "choice"


def _last_changed(state: State) -> int:
    """The line that the guest ordered or changed last; 0 where the order is empty."""
    before = state.earlier.lines if state.earlier else ()
    fresh = [number for number, line in enumerate(state.lines, 1) if line not in before]
    return fresh[-1] if fresh else len(state.lines)


def inquires(low: str) -> bool:
    """Whether a folded text asks how things are, so that no word in it orders: "does he need a harness"."""
    return bool(phrases("inquiring").search(low))


def asks(low: str) -> bool:
    """Whether a folded text has the form of a question; polite orders have this form, too."""
    return bool(phrases("asking").search(phrases("opener").sub("", low)))


def clauses(text: str) -> list[tuple[str, bool]]:
    """The clauses of a turn, and whether each ends in a question mark."""
    found, start = [], 0
    for match in phrases("clause").finditer(text):
        piece = text[start : match.start()]
        joint = match[0].strip(" ,").lower()
        if joint in ("actually", "then") and re.match(r"\W*$|[,;]", text[match.end() :]):
            continue  # "a large one actually", "a tea then, with milk"
        if joint == "actually":
            start = match.start()
        else:
            start = match.end()
        found.append((piece.strip(" ,"), "?" in match[0]))
    found.append((text[start:].strip(" ,"), False))
    return [(piece, ends) for piece, ends in found if piece]
