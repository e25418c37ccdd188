"""Turns at counters with the operations they mean, printed without end; phrases and kinds of houses are in turns.txt.

A dialogue is the situation as edge.kiosk.prompt writes it (menu, facts, order so far), the guest's turn, and the
operations, one on a line: what a model has to write under the grammar of that turn.  Kinds of houses are held out for
validation and test.  Questions and their facts come from the DSTC9 pairs of the corpus (:func:`questions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random

from edge.kiosk.house import Booking, Extra, House, Item
from edge.kiosk.operations import (
    CONFIRM,
    DENY,
    DONE,
    RESTART,
    UNKNOWN,
    Add,
    Answer,
    Book,
    Change,
    Name,
    Operation,
    Remove,
    Talk,
    write,
)
from edge.kiosk.prompt import situation
from edge.kiosk.state import Line, State

Dialogue = Sequence[tuple[str, str]]  # (role, text): system, user or assistant

_NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
_PLAIN = {"done": DONE, "confirm": CONFIRM, "deny": DENY, "restart": RESTART, "unknown": UNKNOWN}
_KINDS = ("add", "remove", "count", "size", "with", "without", "name", "book", *_PLAIN, "thanks", "greeting", "goodbye")
_SHARES = (30, 10, 6, 6, 6, 6, 4, 8, 3, 3, 2, 1, 3, 1, 1, 1)


@cache
def phrases() -> dict[str, list[str]]:
    """Section of turns.txt -> its lines; lists of names, days and times are taken apart."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("turns.txt").read_text(encoding="utf-8").splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            lines = found.setdefault(header[1], [])
        elif line and not line.startswith("#"):
            lines.append(line)
    for listed in ("names", "days", "times"):
        found[listed] = found[listed][0].split(", ")
    return found


def houses(split: str) -> list[House]:
    """The houses of a split."""
    made = []
    for line in phrases()["kinds"]:
        where, rest = line.split(" ", 1)
        if where == split:
            name, stock = rest.split(": ", 1)
            items, sizes, extras = (part.split(", ") for part in stock.split(" | "))
            table = {extra: Extra(extra, 50) for extra in extras}
            half = len(items) // 2
            made.append(
                House(
                    name=name,
                    extras=table,
                    items=tuple(
                        Item(item, dict.fromkeys(sizes, 300) if at < half else {"": 300}, (), tuple(extras))
                        for at, item in enumerate(items)
                    ),
                    bookings=(Booking("table", {"day": "day", "time": "time", "people": "count"}),),
                )
            )
    return made


def dialogues(seed: int, split: str = "train") -> Iterator[Dialogue]:
    """Turns without end: the same for the same seed."""
    draw = Random(f"turns {split} {seed}")
    stock = houses(split)
    while True:
        house = draw.choice(stock)
        state = State(tuple(_line(house, draw) for _ in range(draw.randint(0, 3))))
        text, operations = _turn(house, state, draw)
        if draw.random() < 0.15:
            more, others = _turn(house, state, draw)
            if not any(isinstance(each, Remove) for each in operations):
                text, operations = f"{text}, and {more}", operations + others
        if draw.random() < 0.3:
            text = text[:1].upper() + text[1:] + draw.choice([".", "", "!"])
        yield _dialogue(house, state, text, operations)


def _dialogue(house: House, state: State, text: str, operations: list[Operation]) -> Dialogue:
    written = "\n".join(write(operation) for operation in operations)
    return [("system", situation(house, state)), ("user", text), ("assistant", written)]


def _line(house: House, draw: Random) -> Line:
    item = draw.choice(house.items)
    extras = tuple(sorted(draw.sample(item.extras, draw.choice([0, 0, 1]))))
    return Line(item.name, draw.choice([1, 1, 2, 3]), draw.choice(item.sizes) if item.sizes else "", extras)


def _spoken(line: Line, draw: Random) -> str:
    """ "two large lattes with oat milk" as a guest may say it."""
    counts = ["a", "one", "1"] if line.count == 1 else [_NUMBERS[line.count - 1], str(line.count)]
    count = draw.choice(counts)
    plural = "" if line.count == 1 or draw.random() < 0.3 else "s"
    extras = f" with {' and '.join(line.extras)}" if line.extras else ""
    size = f"{line.size} " if line.size else ""
    return f"{count} {size}{line.item.lower()}{plural}{extras}"


def _turn(house: House, state: State, draw: Random) -> tuple[str, list[Operation]]:
    """Something a guest may say, and what it means."""
    kind = draw.choices(_KINDS, _SHARES)[0]
    if not state.lines and kind in ("remove", "count", "size", "with", "without"):
        kind = "add"
    phrase = draw.choice(phrases()[kind])
    if kind == "add":
        lines = [_line(house, draw) for _ in range(draw.choice([1, 1, 2, 3]))]
        said = draw.choice([" and ", ", "]).join(_spoken(line, draw) for line in lines)
        return phrase.format(a=said), [Add(each.item, each.count, each.size, each.extras) for each in lines]
    if kind in _PLAIN:
        return phrase, [_PLAIN[kind]]
    if kind in ("thanks", "greeting", "goodbye"):
        return phrase, [Talk(kind)]
    if kind == "name":
        name = draw.choice(phrases()["names"])
        return phrase.format(w=name), [Name(name)]
    if kind == "book":
        day, time, people = draw.choice(phrases()["days"]), draw.choice(phrases()["times"]), str(draw.randint(2, 9))
        found = [Book("table", "day", day), Book("table", "time", time), Book("table", "people", people)]
        return phrase.format(d=day, t=time, p=people), list(found)
    number = draw.randint(1, len(state.lines))
    line = state.lines[number - 1]
    item = house.item(line.item)
    assert item is not None
    said = line.item.lower()
    if kind == "remove":
        return phrase.format(n=said), [Remove(number)]
    if kind == "count":
        count = draw.randint(1, 12)
        return phrase.format(n=said, c=draw.choice([str(count), _NUMBERS[count - 1]])), [Change(number, count)]
    if kind == "size" and item.sizes:
        size = draw.choice(item.sizes)
        return phrase.format(n=said, s=size), [Change(number, size=size)]
    extra = draw.choice(item.extras)
    if kind == "without":
        return phrase.format(n=said, x=extra), [Change(number, without=(extra,))]
    return draw.choice(phrases()["with"]).format(n=said, x=extra), [Change(number, extras=(extra,))]


def questions(pairs: list[tuple[str, str]], seed: int) -> Iterator[Dialogue]:
    """Each question of strangers, asked of a house of eight answers that stood near its own, or of one without it."""
    draw = Random(f"questions {seed}")
    order = list(range(len(pairs)))
    draw.shuffle(order)
    for at in order:
        question, answer = pairs[at]
        near = [body for _, body in pairs[max(0, at - 12) : at + 12] if body != answer]
        facts = draw.sample(near, min(7, len(near)))
        right = draw.random() < 0.7
        if right:
            facts.insert(draw.randint(0, len(facts)), answer)
        house = House(name="house", facts=tuple(facts))
        number = facts.index(answer) + 1 if right else 0
        yield _dialogue(house, State(), question, [Answer(number)])
