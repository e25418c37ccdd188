"""Operations: everything that a guest's turn can mean, and the text form of each.

    add 2 "Flat white" size "large" with "oat milk" without "sugar"
    remove 1                         line 1 of the order; "remove 1 count 2" takes two of it away
    change 1 count 3                 also: size "small", item "Espresso", with "...", without "..."
    name "Anna"
    book "table" "day" = "tomorrow"
    cancel "table"
    answer 4                         statement 4 of the house; "answer none"
    confirm    deny    done    restart    undo    unknown
    small talk greeting

One operation per line.  Texts are names of the house or parts of the guest's turn, written as JSON strings; lines and
statements are numbered from 1.  :func:`read` is the inverse of :func:`write`; :func:`grammar` gives the grammar of this
text form for one turn at one house.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from edge.errors import InvalidFile

#: kinds of small talk; order: what have I ordered so far?
TALK = ("greeting", "thanks", "goodbye", "apology", "help", "order", "other")
#: the largest count of one item in one operation
MAX_COUNT = 99


@dataclass(frozen=True)
class Add:
    """Add ``count`` of an item to the order; ``size`` is "" until the guest chooses one."""

    item: str
    count: int = 1
    size: str = ""
    extras: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Remove:
    """Remove ``count`` of line ``line``; 0 removes the whole line."""

    line: int
    count: int = 0


@dataclass(frozen=True)
class Change:
    """Change line ``line``; fields that are empty or 0 stay unchanged."""

    line: int
    count: int = 0
    size: str = ""
    item: str = ""
    extras: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Name:
    """The guest's name, as the guest wrote it."""

    value: str


@dataclass(frozen=True)
class Book:
    """One field of a booking; ``field`` "" only says that the guest wants to book."""

    booking: str
    field: str = ""
    value: str = ""


@dataclass(frozen=True)
class Cancel:
    """Cancel a booking."""

    booking: str


@dataclass(frozen=True)
class Answer:
    """Quote statement ``number`` of the house as the answer; 0: no statement answers the question."""

    number: int


@dataclass(frozen=True)
class Talk:
    """Small talk of one kind in TALK."""

    kind: str


@dataclass(frozen=True)
class Plain:
    """An operation that is one word: confirm, deny, done, restart, undo (the last change), unknown."""

    word: str


PLAIN = ("confirm", "deny", "done", "restart", "undo", "unknown")
CONFIRM, DENY, DONE, RESTART, UNDO, UNKNOWN = (Plain(word) for word in PLAIN)
Operation = Add | Remove | Change | Name | Book | Cancel | Answer | Talk | Plain


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _details(operation: Add | Change) -> str:
    parts = [f" size {_quote(operation.size)}"] if operation.size else []
    parts += [f" with {_quote(extra)}" for extra in operation.extras]
    parts += [f" without {_quote(extra)}" for extra in operation.without]
    return "".join(parts)


def write(operation: Operation) -> str:
    """The line of text for an operation."""
    match operation:
        case Add():
            return f"add {operation.count} {_quote(operation.item)}{_details(operation)}"
        case Remove(line, count):
            return f"remove {line} count {count}" if count else f"remove {line}"
        case Change(line, count, _, item):
            count_, item_ = f" count {count}" if count else "", f" item {_quote(item)}" if item else ""
            return f"change {line}{count_}{item_}{_details(operation)}"
        case Name(value):
            return f"name {_quote(value)}"
        case Book(booking, name, value):
            return f"book {_quote(booking)}" + (f" {_quote(name)} = {_quote(value)}" if name else "")
        case Cancel(booking):
            return f"cancel {_quote(booking)}"
        case Answer(number):
            return f"answer {number or 'none'}"
        case Talk(kind):
            return f"small talk {kind}"
        case Plain(word):
            return word


_STRING = r'("(?:[^"\\]|\\.)*")'
_DETAILS = rf"((?: (?:size|with|without) {_STRING})*)"
_FORMS = {
    "add": re.compile(rf"add (\d+) {_STRING}{_DETAILS}"),
    "remove": re.compile(r"remove (\d+)(?: count (\d+))?"),
    "change": re.compile(rf"change (\d+)(?: count (\d+))?(?: item {_STRING})?{_DETAILS}"),
    "name": re.compile(rf"name {_STRING}"),
    "book": re.compile(rf"book {_STRING}(?: {_STRING} = {_STRING})?"),
    "cancel": re.compile(rf"cancel {_STRING}"),
    "answer": re.compile(r"answer (\d+|none)"),
    "small": re.compile(rf"small talk ({'|'.join(TALK)})"),
}


def read(line: str) -> Operation:
    """The operation in a line of text.  Raises InvalidFile for any other text."""
    line = line.strip()
    if line in PLAIN:
        return Plain(line)
    form = _FORMS.get(line.split(" ", 1)[0])
    found = form.fullmatch(line) if form else None
    if not found:
        raise InvalidFile(f"not an operation: {line[:80]}")
    got = found.groups()
    match line.split(" ", 1)[0]:
        case "add":
            return Add(json.loads(got[1]), int(got[0]), *_read_details(got[2]))
        case "remove":
            return Remove(int(got[0]), int(got[1] or 0))
        case "change":
            size, extras, without = _read_details(got[3])
            return Change(int(got[0]), int(got[1] or 0), size, json.loads(got[2] or '""'), extras, without)
        case "name":
            return Name(json.loads(got[0]))
        case "book":
            return Book(*(json.loads(each or '""') for each in got))
        case "cancel":
            return Cancel(json.loads(got[0]))
        case "answer":
            return Answer(0 if got[0] == "none" else int(got[0]))
        case _:
            return Talk(got[0])


def _read_details(text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """(size, extras, what to leave out) from the end of a line."""
    pairs = [(word, json.loads(value)) for word, value in re.findall(rf" (size|with|without) {_STRING}", text)]
    values = {kind: tuple(v for word, v in pairs if word == kind) for kind in ("size", "with", "without")}
    if len(values["size"]) > 1:
        raise InvalidFile("an operation has one size")
    return "".join(values["size"]), values["with"], values["without"]


def _choice(texts: list[str]) -> str:
    """Alternatives of a Lark grammar: each text as the JSON string that :func:`write` writes."""
    return " | ".join(_quote(_quote(text)) for text in dict.fromkeys(texts))


def grammar(
    items: list[str],
    sizes: list[str],
    extras: list[str],
    bookings: dict[str, list[str]],
    n_lines: int,
    statements: list[int],
    spans: list[str],
    booked: list[str],
    most: int = 8,
) -> str:
    """A Lark grammar of everything that one turn can mean: 1 to ``most`` operations, one per line.

    ``items``, ``sizes`` and ``extras`` are the candidates for this turn; ``bookings``: name -> fields; ``n_lines``: the
    number of lines of the order; ``statements``: the numbers that may be quoted; ``spans``: runs of words of the turn;
    ``booked``: current bookings.  Operations without candidates are left out.
    """
    kinds = [*(_quote(word) for word in PLAIN), '"answer none"', "talk"]
    rules = ['talk: "small talk " (' + " | ".join(_quote(kind) for kind in TALK) + ")", "count: /[1-9][0-9]?/"]
    details = '(" size " size)?' if sizes else ""
    if sizes:
        rules.append(f"size: {_choice(sizes)}")
    if extras:
        rules.append(f"extra: {_choice(extras)}")
        details += '(" with " extra)*(" without " extra)*'
    lines = " | ".join(_quote(str(line)) for line in range(1, n_lines + 1))
    if items:
        kinds.append("add")
        rules += [f"item: {_choice(items)}", f'add: "add " count " " item {details}']
    if n_lines:
        kinds += ["remove", "change"]
        new = '(" item " item)?' if items else ""
        rules += [f"line: {lines}", 'remove: "remove " line (" count " count)?',
                  f'change: "change " line (" count " count)?{new}{details}']  # fmt: skip
    if spans:
        kinds.append("name")
        rules += [f"span: {_choice(spans)}", 'name: "name " span']
    for at, (booking, fields) in enumerate(bookings.items()):
        kinds.append(f"book{at}")
        value = f'(" " ({_choice(fields)}) " = " span)?' if spans and fields else ""
        rules.append(f'book{at}: {_quote("book " + _quote(booking))} {value}')
    if booked:
        kinds.append("cancel")
        rules.append(f'cancel: "cancel " ({_choice(booked)})')
    if statements:
        kinds.append("answer")
        rules.append('answer: "answer " (' + " | ".join(_quote(str(n)) for n in statements) + ")")
    start = f'start: operation ("\\n" operation){{0,{most - 1}}}'
    return "\n".join([start, f"operation: {' | '.join(kinds)}", *rules]) + "\n"
