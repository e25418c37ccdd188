"""The order and the bookings of one visit, as plain data: apply(house, state, operation) -> state.

Prices are integer cents.  States are immutable: apply returns a new one, so undo and tests need only keep old states.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from edge.errors import UsageError
from edge.kiosk.house import House
from edge.kiosk.operations import MAX_COUNT, Add, Answer, Book, Cancel, Change, Name, Operation, Plain, Remove, Talk

#: the most lines of one order
MAX_LINES = 50


@dataclass(frozen=True)
class Line:
    """One line of the order.  ``size``: "" until the guest chooses one, if the item comes in sizes."""

    item: str
    count: int = 1
    size: str = ""
    extras: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """What has been ordered and booked so far.

    ``bookings``: name -> field -> value.  ``done``: the guest wants nothing more.  ``confirmed``: the guest has
    confirmed that; an empty order is never confirmed.  ``offered``: the item or the booking that a question was about
    last, which "I'd like one" refers to.  ``gone``: the lines that were taken away last, which "put it back" means.
    ``earlier``: the state before the last turn that changed the order or a booking, which "undo that" restores.
    """

    lines: tuple[Line, ...] = ()
    bookings: dict[str, dict[str, str]] = field(default_factory=dict)
    name: str = ""
    done: bool = False
    confirmed: bool = False
    offered: str = ""
    gone: tuple[Line, ...] = ()
    earlier: State | None = field(default=None, compare=False, repr=False)

    @property
    def empty(self) -> bool:
        return not (self.lines or self.bookings)


def apply(house: House, state: State, operation: Operation) -> State:
    """The state after one operation.

    Raises UsageError for an item, size, extra or booking that the house does not have, for a line that does not exist,
    and where there is nothing to undo.
    """
    if state.offered and not isinstance(operation, Talk):
        state = replace(state, offered="")
    match operation:
        case Answer(number):
            at = number - len(house.facts) - 1
            fact = house.facts[number - 1].casefold() if 0 < number <= len(house.facts) else ""
            told = [booking.name for booking in house.bookings if fact and booking.name.casefold() in fact]
            item = house.items[at].name if 0 <= at < len(house.items) else ""
            return replace(state, offered=item or (told[0] if len(told) == 1 else ""))
        case Add():
            line = Line(operation.item, operation.count, operation.size, operation.extras, operation.without)
            return _open(state, _joined(state.lines, _checked(house, line)))
        case Remove(number, count):
            line = _line(state, number)
            rest = line.count - (count or line.count)
            new = (replace(line, count=rest),) if rest > 0 else ()
            state = replace(state, gone=state.gone if new else (*state.gone, line)[-MAX_LINES:])
            return _open(state, (*state.lines[: number - 1], *new, *state.lines[number:]))
        case Change():
            line = _changed(house, _line(state, operation.line), operation)
            return _open(state, _replaced(state.lines, operation.line - 1, _checked(house, line)))
        case Name(value):
            return replace(state, name=value)
        case Book(name, key, value):
            booking = house.booking(name)
            if booking is None or (key and key not in booking.fields):
                raise UsageError(f'"{name}" with "{key}" cannot be booked here')
            fields = {**state.bookings.get(name, {}), **({key: value} if key else {})}
            known = replace(state, name=value) if key and booking.fields[key] == "name" else state
            return replace(known, bookings={**state.bookings, name: fields}, done=False, confirmed=False)
        case Cancel(name):
            if name not in state.bookings:
                raise UsageError(f'no "{name}" is booked')
            others = {each: fields for each, fields in state.bookings.items() if each != name}
            kept = replace(state, bookings=others, done=False, confirmed=False)
            return State() if kept.empty else kept
        case Plain("restart"):
            return State(earlier=state.earlier)
        case Plain("undo"):
            if state.earlier is None:
                raise UsageError("nothing has been changed that could be undone")
            before = state.earlier
            return replace(_open(state, before.lines), bookings=before.bookings, earlier=None)
        case Plain("done"):
            return replace(state, done=True)
        case Plain("confirm"):
            return replace(state, confirmed=state.done and not state.empty and not missing(house, state))
        case Plain("deny"):
            return replace(state, done=False, confirmed=False)
    return state


def _open(state: State, lines: tuple[Line, ...]) -> State:
    if len(lines) > MAX_LINES:
        raise UsageError(f"an order has at most {MAX_LINES} lines")
    return replace(state, lines=lines, done=False, confirmed=False)


def _line(state: State, number: int) -> Line:
    if not 1 <= number <= len(state.lines):
        raise UsageError(f"the order has no line {number}")
    return state.lines[number - 1]


def _joined(lines: tuple[Line, ...], new: Line) -> tuple[Line, ...]:
    """The lines with ``new`` added; an equal line is counted up instead."""
    for at, line in enumerate(lines):
        if replace(line, count=new.count) == new and line.count + new.count <= MAX_COUNT:
            return (*lines[:at], replace(line, count=line.count + new.count), *lines[at + 1 :])
    return (*lines, new)


def _replaced(lines: tuple[Line, ...], at: int, line: Line) -> tuple[Line, ...]:
    """The lines with another at ``at``; where it is the same as one that is there, the first of the two is both."""
    for other, each in enumerate(lines):
        if other != at and replace(each, count=line.count) == line and each.count + line.count <= MAX_COUNT:
            both = replace(line, count=each.count + line.count)
            first, second = sorted((at, other))
            return (*lines[:first], both, *lines[first + 1 : second], *lines[second + 1 :])
    return (*lines[:at], line, *lines[at + 1 :])


def _changed(house: House, line: Line, change: Change) -> Line:
    extras = [each for each in line.extras if each not in change.without]
    extras += [each for each in change.extras if each not in extras]
    refused = [each for each in change.without if each not in line.extras]  # what was there is only taken away
    dropped = [each for each in (*line.without, *refused) if each not in extras]
    if change.item:  # another item keeps what it has, too
        item = house.item(change.item)
        kept = item.extras if item else ()
        size = line.size if item and line.size in item.sizes else ""
        line = replace(line, item=change.item, size=size)
        extras, dropped = [e for e in extras if e in kept], [e for e in dropped if e in kept]
    return replace(
        line,
        count=change.count or line.count,
        size=change.size or line.size,
        extras=tuple(sorted(extras)),
        without=tuple(sorted(set(dropped))),
    )


def _checked(house: House, line: Line) -> Line:
    item = house.item(line.item)
    if item is None:
        raise UsageError(f'"{line.item}" is not on the menu')
    if line.size and line.size not in item.sizes:
        raise UsageError(f'"{line.item}" does not come in "{line.size}"')
    if not 1 <= line.count <= MAX_COUNT:
        raise UsageError(f"{line.count} of one thing cannot be ordered; 1 to {MAX_COUNT} can")
    for extra in (*line.extras, *line.without):
        if extra not in item.extras:
            raise UsageError(f'"{line.item}" does not come with "{extra}"')
    extras, without = tuple(sorted(set(line.extras))), tuple(sorted(set(line.without)))
    return replace(line, extras=extras, without=without)


def line_price(house: House, line: Line) -> int | None:
    """Price of a line in cents; None while its size is open."""
    item = house.item(line.item)
    assert item is not None  # apply let it in
    if line.size not in item.price:
        return None
    return line.count * (item.price[line.size] + sum(house.extras[extra].price for extra in line.extras))


def total(house: House, state: State) -> int | None:
    """Price of the order in cents; None while a size is open."""
    prices = [line_price(house, line) for line in state.lines]
    return None if None in prices else sum(price for price in prices if price is not None)


def keep_earlier(before: State, after: State) -> State:
    """``after`` one turn; if the turn changed the order or a booking, "undo" leads back to ``before``."""
    if (after.lines, after.bookings) == (before.lines, before.bookings):
        return after
    return replace(after, earlier=replace(before, earlier=None))


def missing(house: House, state: State) -> list[tuple[str, str]]:
    """What must be asked before the order is complete: (item, "size") of lines, (booking, field) of bookings."""
    asks = [(line.item, "size") for line in state.lines if line_price(house, line) is None]
    for name, fields in state.bookings.items():
        booking = house.booking(name)
        asks += [(name, key) for key in (booking.fields if booking else ()) if key not in fields]
    return asks


def as_dict(house: House, state: State) -> dict[str, Any]:
    """The state as plain JSON values, for events and finished orders; prices in cents."""
    lines = [
        {
            "item": line.item,
            "count": line.count,
            "size": line.size,
            "extras": list(line.extras),
            "without": list(line.without),
            "price": line_price(house, line),
        }
        for line in state.lines
    ]
    return {
        "lines": lines,
        "total": total(house, state),
        "name": state.name,
        "bookings": {name: dict(fields) for name, fields in state.bookings.items()},
        "done": state.done,
        "confirmed": state.confirmed,
    }
