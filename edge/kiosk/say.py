"""The text of replies: the owner's sentences word for word, and sentences filled in from the state."""

from __future__ import annotations

from collections.abc import Sequence

from edge.kiosk.house import House
from edge.kiosk.operations import MAX_COUNT, UNKNOWN, Answer, Book, Change, Name, Plain, Talk
from edge.kiosk.phrases import phrases
from edge.kiosk.reading import Understood
from edge.kiosk.state import Line, State, missing, total

#: the question for a field of a booking, by its kind
_ASK = {
    "day": "For which day?",
    "time": "At what time?",
    "count": "For how many?",
    "name": "Under which name?",
    "phone": "What is your phone number?",
}


def listed(texts: list[str], last: str = "and") -> str:
    """Texts as a list in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {last} {texts[-1]}" if texts else ""


def quoted(texts: Sequence[str]) -> list[str]:
    """The texts in quotation marks, each once."""
    return [f"“{text}”" for text in dict.fromkeys(texts)]


def line_text(line: Line) -> str:
    """``1 large Latte with oat milk, without sugar``; ``2 × Brownie``, as the names of items have no plural."""
    count = "1" if line.count == 1 else f"{line.count} ×"
    text = " ".join(part for part in (count, line.size, line.item) if part)
    if line.extras:
        text += f" with {listed(list(line.extras))}"
    if line.without:
        text += f"{',' if line.extras else ''} without {listed(list(line.without), 'or')}"
    return text


def order_text(house: House, state: State) -> str:
    """The lines of the order, with the total if every size is known."""
    text = f"{listed([line_text(line) for line in state.lines])}."
    cents = total(house, state)
    return text if cents is None else f"{text} That is {house.money(cents)}."


def booking_text(name: str, fields: dict[str, str]) -> str:
    """A booking and its fields: ``Table: day tomorrow, time 7 pm.``"""
    told = ", ".join(f"{key} {value}" for key, value in fields.items())
    return f"{name[:1].upper()}{name[1:]}: {told}." if told else f"{name[:1].upper()}{name[1:]}."


def question(house: House, state: State) -> str:
    """The question that must be asked next; "" if none."""
    asks = missing(house, state)
    if not asks:
        return ""
    name, key = asks[0]
    item = house.item(name)
    if key == "size" and item is not None and item.sizes:
        return f"{name}: {listed(list(item.sizes), 'or')}?"
    booking = house.booking(name)
    kind = booking.fields.get(key) if booking else None
    if isinstance(kind, tuple):
        return f"{key[:1].upper()}{key[1:]}: {listed(list(kind), 'or')}?"
    if kind in _ASK and key in (kind, "people", "persons", "guests", "date", "phone"):
        return f"{name[:1].upper()}{name[1:]}: {_ASK[kind][:1].lower()}{_ASK[kind][1:]}"
    return f"{name[:1].upper()}{name[1:]}: which {key}?"


def doubt(word: str, names: Sequence[str]) -> str:
    """A question for the one of ``names`` that ``word`` means."""
    if len(names) == 1:
        return f"I could not find “{word}” on the menu. Do you want {names[0]}?"
    return f"“{word}”: {listed(list(names), 'or')}?"


def help_text(house: House) -> str:
    """What a guest can do at this house."""
    can = []
    if house.items:
        can.append("order: " + listed([item.name for item in house.items]))
    if house.bookings:
        can.append("book: " + listed([booking.name for booking in house.bookings]))
    if house.facts:
        can.append("ask about the house")
    return "You can " + "; ".join(can) + "."


def reply(
    house: House,
    before: State,
    after: State,
    understood: Understood,
    doubts: Sequence[tuple[str, tuple[str, ...]]] = (),
) -> str:
    """The reply to a turn that changed the state from ``before`` to ``after``; it ends with the questions for all
    that is unclear, also before this turn (``doubts``).
    """
    operations = understood.operations
    parts: list[str] = []
    words = [each.word for each in operations if isinstance(each, Plain)]
    asked = [each.number for each in operations if isinstance(each, Answer)]
    statements = house.statements()
    talk = list(dict.fromkeys(each.kind for each in operations if isinstance(each, Talk)))
    for kind in talk:
        greeting = house.texts["greeting"] if after.empty else "Hello."
        parts.append({"greeting": greeting, "thanks": "You are welcome."}.get(kind, ""))
    for number in dict.fromkeys(asked):
        unknown = house.texts["allergy" if understood.allergy and any(asked) else "unknown"]
        told = statements[number - 1] if number else unknown
        parts.append(f"{told[:1].upper()}{told[1:]}" if number > len(house.facts) else told)
    if "restart" in words and after.empty:
        return " ".join([*parts, "All of that is forgotten.", house.texts["greeting"]])
    asked_for = {word for word, names in (*understood.unclear, *doubts) if len(names) == 1}  # named by the question
    if missed := [each for each in understood.missed if each not in asked_for]:
        parts.append(f"I could not find {listed(quoted(missed), 'or')} on the menu.")
    if understood.unnoted:
        parts.append(f"I could not note {listed(quoted(understood.unnoted), 'or')}. Please ask a member of staff.")
    if after.confirmed:
        return " ".join(filter(None, [*parts, finished(house, after)]))
    if understood.unread:
        parts.append(f"I did not understand {listed(quoted(understood.unread), 'or')}.")
    if understood.absent:
        parts.append(f"There is no {listed(list(dict.fromkeys(understood.absent)), 'or')} in your order.")
    for name in dict.fromkeys(understood.second):
        parts.append(f"I can book only one {name} at a time. Please finish or change this booking first.")
    if understood.no_count:
        parts.append(f"You can order 1 to {MAX_COUNT} of one thing.")
        parts.append("Your order is as before." if before.lines and after.lines == before.lines else "")
    if understood.impossible:
        parts.append(f"{listed(quoted(understood.impossible))} cannot be booked.")
    reads_back = after.done and not after.empty and not question(house, after)
    if after.lines != before.lines and not reads_back:
        parts.append(f"Your order: {order_text(house, after)}" if after.lines else "Your order is empty now.")
    parts += [booking_text(name, now) for name, now in after.bookings.items()
              if now != before.bookings.get(name) and not reads_back]  # fmt: skip
    parts += [f"{name[:1].upper()}{name[1:]}: cancelled." for name in before.bookings if name not in after.bookings]
    if after.name != before.name and any(isinstance(each, Name) for each in operations):
        parts.append(f"Thank you, {after.name}." if after.name else "The name is removed.")
    for kind in talk:
        order = "Your order is empty." if after.empty else "" if reads_back else read_back(house, after)
        order = order if order not in parts else ""  # it has been said, as it has changed
        parts.append({"goodbye": "Goodbye.", "help": help_text(house), "order": order}.get(kind, ""))
    asking = question(house, after)
    unfilled = missing(house, after)[:1]
    refused = {"deny", "done", "confirm"} & set(words) or any(map(phrases("nameless").match, understood.impossible))
    if unfilled and refused and asking == question(house, before):
        asking += f" Say “no {unfilled[0][0]}” if you do not want one."
    doubts = list(dict.fromkeys([*understood.unclear, *doubts]))
    if after.done and not after.empty:
        parts.append(asking or f"{read_back(house, after)} Is that right?")
    elif "done" in words and after.empty:
        parts.append("Goodbye.")
    elif "deny" in words and before.done:
        parts.append("What should be different?")
    elif "deny" in words:
        parts += ["All right.", asking if after.bookings else ""]
    elif asking and (
        after != before
        or understood.impossible
        or understood.unnoted
        or Talk("order") in operations
        or not (any(parts) or understood.unclear)
    ):
        parts.append(asking if operations != [UNKNOWN] or any(parts) else f"{house.texts['unclear']} {asking}")
    elif (after.lines, after.bookings) != (before.lines, before.bookings) and not doubts:
        parts.append("Anything else?")
    elif "confirm" in words and not any(parts):
        parts.append("What would you like?" if after.empty else "What else would you like?")
    elif Talk("apology") in operations and not any(parts):
        parts.append("No problem.")
    text = " ".join(part for part in parts if part)
    if not text and any(isinstance(each, Book | Change) for each in operations):
        text = f"Nothing has changed. {read_back(house, after)}"  # it is as the guest wants it, or was not understood
    if not (text or understood.unclear or doubts and not operations):
        text = question(house, after) or house.texts["unclear"]
    return " ".join(filter(None, [text, *(doubt(word, names) for word, names in doubts)]))


def proposal(house: House, before: State, after: State) -> str:
    """The question whether the change from ``before`` to ``after`` is meant."""
    parts = ["I am not sure that I understood you."]
    if after.lines != before.lines:
        order = f": {order_text(house, after)}" if after.lines else " empty."
        parts.append(f"Your order would be{order}")
    for name, now in after.bookings.items():
        if now != before.bookings.get(name):
            parts.append(f"Your booking would be: {booking_text(name, now)}")
    parts += [f"Your booking would be cancelled: {name}." for name in before.bookings if name not in after.bookings]
    if after.name != before.name and after.bookings == before.bookings:
        parts.append(f"Your name would be {after.name}." if after.name else "Your name would be removed.")
    return " ".join([*parts, "Is that right?"])


def read_back(house: House, state: State) -> str:
    """The whole order and all bookings."""
    parts = [f"Your order: {order_text(house, state)}"] if state.lines else []
    return " ".join([*parts, *(booking_text(name, fields) for name, fields in state.bookings.items())])


def finished(house: House, state: State) -> str:
    """The last words of a visit that ended with an order or a booking."""
    return f"Thank you{', ' + state.name if state.name else ''}. {read_back(house, state)}"
