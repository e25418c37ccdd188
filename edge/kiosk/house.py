"""The house file: TOML written by the owner, checked (errors name the line), as plain data.

    name = "Corner Café"
    currency = "€"
    facts = ["We open at 8.", "Dogs are welcome on the terrace."]

    [texts]                                   # said word for word
    unknown = "I do not know that. Please ask at the counter."

    [extras]                                  # what can be added to items, each with its price
    "oat milk" = 0.50

    [[items]]
    name = "Flat white"
    others = ["flattie"]                      # other names, if any
    price = { small = 3.20, large = 3.90 }    # or one price
    extras = ["oat milk"]

    [[bookings]]
    name = "table"
    [bookings.fields]                         # field = day, time, count, name, phone, text or a list of choices
    day = "day"
    people = "count"
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from edge.amounts import count
from edge.errors import InvalidFile

T = TypeVar("T")
D = TypeVar("D")

#: the example house, which ships with the program
EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "example.toml")
#: the fixed texts of a house, with their defaults
TEXTS = {
    "greeting": "Hello. What would you like?",
    "emergency": "Please call the emergency number 112 now, or ask the nearest member of staff for help.",
    "unknown": "I do not know that. Please ask a member of staff.",
    "allergy": "I do not know more about allergies and diets. Please ask a member of staff.",
    "language": "I only understand English. Please ask a member of staff.",
    "long": "That was too long for me. Please tell me one thing at a time.",
    "unclear": "I did not understand that. Please say it in other words.",
}
#: kinds of fields of a booking, besides a list of choices
KINDS = ("day", "time", "count", "name", "phone", "text")
#: the largest file, and the largest number of entries of one kind
MAX_BYTES, MAX_ENTRIES, MAX_TEXT = 1 << 18, 500, 2000
#: the most mistakes that are listed
MAX_MISTAKES = 100


class InvalidHouse(InvalidFile):
    """A house file with mistakes.  ``mistakes``: each of them, "FILE, line N: what is wrong", ordered by line."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        more = f" ({count(len(mistakes) - 1, 'more mistake')}: see bitnet-edge kiosk check)" if mistakes[1:] else ""
        super().__init__(mistakes[0] + more)


@dataclass(frozen=True)
class Extra:
    """Something that can be added to items.  ``price``: in cents."""

    name: str
    price: int = 0
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """Something that can be ordered.  ``price``: size -> cents; an item in one size has the size ""."""

    name: str
    price: dict[str, int]
    others: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes that a guest chooses from; empty if the item comes in one size."""
        return tuple(size for size in self.price if size)


@dataclass(frozen=True)
class Booking:
    """Something that can be booked.  ``fields``: name -> one of KINDS, or the tuple of choices."""

    name: str
    fields: dict[str, str | tuple[str, ...]]
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class House:
    """One house file, checked: every name in it is defined, prices are exact cents."""

    name: str
    language: str = "en"
    currency: str = "€"
    texts: dict[str, str] = field(default_factory=lambda: dict(TEXTS))
    facts: tuple[str, ...] = ()
    extras: dict[str, Extra] = field(default_factory=dict)
    items: tuple[Item, ...] = ()
    bookings: tuple[Booking, ...] = ()
    orders: dict[str, Any] = field(default_factory=lambda: {"to": "stdout"})

    def item(self, name: str) -> Item | None:
        """The item of exactly this name."""
        return next((each for each in self.items if each.name == name), None)

    def booking(self, name: str) -> Booking | None:
        """What can be booked under exactly this name."""
        return next((each for each in self.bookings if each.name == name), None)

    def money(self, cents: int) -> str:
        """An amount as the kiosk says it: "€3.20"; a currency in letters follows the number: "3.20 CHF"."""
        amount = f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02d}"
        return f"{amount} {self.currency}" if self.currency.isalpha() else f"{self.currency}{amount}"

    def price_line(self, item: Item) -> str:
        """The row of the menu: "Flat white: small €3.20, large €3.90."."""
        prices = [f"{size} {self.money(cents)}".strip() for size, cents in item.price.items()]
        return f"{item.name}: {', '.join(prices)}."

    def statements(self) -> tuple[str, ...]:
        """All statements that can be quoted; operations number them from 1: facts, then rows of the menu, then
        extras.
        """
        rows = [self.price_line(item) for item in self.items]
        extras = [f"{each.name}: {self.money(each.price) if each.price else 'free'}." for each in self.extras.values()]
        return (*self.facts, *rows, *extras)


def load(path: str | os.PathLike[str]) -> House:
    """The house in the file at ``path``.

    Raises InvalidFile, "FILE, line N: what is wrong", for a file that cannot be read or used: InvalidHouse, with all
    mistakes, if the file is TOML.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidFile(f"cannot read {os.fspath(path) or repr('')}: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise InvalidFile(f"{path}: larger than {MAX_BYTES // 1024} KiB; a house file contains only texts and prices")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InvalidFile(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None
    return parse(text, os.fspath(path))


def parse(text: str, source: str = "house") -> House:
    """The house that ``text`` (TOML) describes.  ``source``: the name of the file for errors.

    Raises InvalidFile if ``text`` is not TOML, and InvalidHouse for all other mistakes.
    """
    try:
        table = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f"{source}, line {line[1]}" if line else f"{source}, last line"
        hint = "; a quotation mark is missing" if "Illegal character '\\n'" in str(error) else ""
        raise InvalidFile(f"{where}: {re.sub(r' *[(]at .*[)]$', '', str(error))}{hint}") from None
    except (ValueError, ArithmeticError):  # more digits than int() takes, an exponent that Decimal cannot hold
        raise InvalidFile(f"{source}: a number in the file is too large") from None
    except RecursionError:
        raise InvalidFile(f"{source}: nested too deeply") from None
    return _Reader(text, source).house(table)


class _Mistake(Exception):
    """What is wrong, and in which line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class _Reader:
    """Checks the parsed tables.  A mistake ends the reading of the value it is in; all mistakes are collected, and the
    rest is read on.
    """

    def __init__(self, text: str, source: str) -> None:
        self.lines = text.splitlines()
        self.source = source
        self.mistakes: list[_Mistake] = []

    def fail(self, message: str, *path: str | int) -> _Mistake:
        shown = "".join(char if char.isprintable() else " " for char in message)
        return _Mistake(self.line(path), shown if len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}...")

    def note(self, mistake: _Mistake) -> None:
        """Add to the list of mistakes.  Raises InvalidHouse if it is full."""
        self.mistakes.append(mistake)
        if len(self.mistakes) >= MAX_MISTAKES:
            raise self.invalid()

    def tried(self, default: D, read: Callable[..., T], *arguments: Any) -> T | D:
        """``read(*arguments)``, or ``default`` if there is a mistake in it, which is noted."""
        try:
            return read(*arguments)
        except _Mistake as mistake:
            self.note(mistake)
            return default

    def invalid(self) -> InvalidHouse:
        mistakes = sorted(self.mistakes, key=lambda each: each.line)
        return InvalidHouse([f"{self.source}, line {each.line}: {each}" for each in mistakes])

    def line(self, path: tuple[str | int, ...]) -> int:
        """The line of a value: ("items", 2, "price") is ``price`` in the third [[items]]; if it is not found, the line
        of its table.
        """
        best, headers, here = 1, {}, ()  # type: int, dict[str, int], tuple[str | int, ...]
        for number, line in enumerate(self.lines, 1):
            if header := re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line):
                parts = [part.strip().strip("\"'") for part in header[2].split(".")]
                if header[1] == "[[":
                    headers[parts[0]] = headers.get(parts[0], -1) + 1
                here = (parts[0], headers[parts[0]], *parts[1:]) if parts[0] in headers else tuple(parts)
                if here == path[: len(here)] or best == 1 and path and path == here[: len(path)]:
                    best = number  # the table of the value, or the first one below it
            elif key := re.match(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([\w-]+))\s*=", line):
                whole = (*here, key[1] or key[2] or key[3] or "")
                if whole == path[: len(whole)]:
                    best = number
            if path and isinstance(path[-1], str) and path[:1] == ("facts",) and path[-1] in line:
                return number
        return best

    def house(self, table: dict[str, Any]) -> House:
        """The house.  Raises InvalidHouse if there are mistakes."""
        known = {"name", "language", "currency", "texts", "facts", "extras", "items", "bookings", "orders", "greeting"}
        self.only(table, known)
        if "name" not in table:
            self.note(self.fail('a house needs a name: name = "..."'))
        texts = {**TEXTS, **self.tried({}, self.texts, table.get("texts", {}))}
        if "greeting" in table:
            texts["greeting"] = self.tried("", self.text, table["greeting"], "greeting")
        language = self.tried("en", self.text, table.get("language", "en"), "language")
        if language != "en":
            self.note(self.fail(f'language "{language}" is not supported; use "en"', "language"))
        extras = self.tried({}, self.extras, table.get("extras", {}))
        named = table.get("extras", {})  # also those with a mistake in them
        house = House(
            name=self.tried("", self.text, table.get("name", "none"), "name"),
            language=language,
            currency=self.tried("", self.text, table.get("currency", "€"), "currency"),
            texts=texts,
            facts=self.tried((), self.facts, table.get("facts", [])),
            extras=extras,
            items=self.tried((), self.each, table, "items", lambda entry, at: self.item(entry, named, at)),
            bookings=self.tried((), self.each, table, "bookings", self.booking),
            orders=self.tried({}, self.orders, table.get("orders", {"to": "stdout"})),
        )
        if self.mistakes:
            raise self.invalid()
        return house

    def only(self, table: Any, known: set[str], *path: str | int) -> None:
        """Note each key that is not known.  Raises _Mistake if ``table`` is not a table."""
        if not isinstance(table, dict):
            raise self.fail(f'"{path[-1]}" must be a table of keys and values', *path)
        for key in table:
            if key not in known:
                from difflib import get_close_matches

                near = get_close_matches(key, known, n=1)
                meant = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(sorted(known))}"
                self.note(self.fail(f'"{key}" is unknown; {meant}', *path, key))

    def text(self, value: Any, *path: str | int, entry: int = 0) -> str:
        """``entry``: the number of the text in its list, from 1; 0 for a text that is not in a list."""
        named = f'text {entry} of "{path[-1]}"' if entry else f'"{path[-1]}"'
        if not isinstance(value, str) or not value.strip():
            raise self.fail(f"{named} must be a text in quotes", *path)
        if len(value) > MAX_TEXT or any(not (c.isprintable() or c in "\n\t") for c in value):
            raise self.fail(f'{named} is longer than {MAX_TEXT} characters or contains control characters', *path)
        return " ".join(value.split())

    def names(self, value: Any, *path: str | int) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > MAX_ENTRIES:
            raise self.fail(f'"{path[-1]}" must be a list of texts: ["...", "..."]', *path)
        return tuple(
            self.tried("", partial(self.text, entry=number), each, *path) for number, each in enumerate(value, 1)
        )

    def cents(self, value: Any, *path: str | int) -> int:
        """The price in cents, exactly: 3.2, 3.20 or 3 -> 320, 320, 300.  Raises _Mistake."""
        number = Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else Decimal("nan")
        if not (number.is_finite() and 0 <= number <= 1_000_000):
            raise self.fail("a price must be a number from 0 to 1000000, such as 3.20", *path)
        cents = number * 100
        if cents != int(cents):
            raise self.fail(f"the price {value} has more than two decimals", *path)
        return int(cents)

    def texts(self, table: Any) -> dict[str, str]:
        self.only(table, set(TEXTS), "texts")
        return {key: self.tried("", self.text, value, "texts", key) for key, value in table.items() if key in TEXTS}

    def facts(self, value: Any) -> tuple[str, ...]:
        facts = self.names(value, "facts")
        for fact in dict.fromkeys(facts):
            if fact and facts.count(fact) > 1:
                self.note(self.fail("this fact is listed twice", "facts", fact))
        return facts

    def extras(self, table: Any) -> dict[str, Extra]:
        if not isinstance(table, dict) or len(table) > MAX_ENTRIES:
            raise self.fail('extras must be a table: "oat milk" = 0.50', "extras")
        return {name: self.tried(Extra(name), self.extra, name, value) for name, value in table.items()}

    def extra(self, name: str, value: Any) -> Extra:
        path = ("extras", name)
        self.text(name, *path)
        if not isinstance(value, dict):
            return Extra(name, self.cents(value, *path))
        self.only(value, {"price", "others"}, *path)
        others = self.tried((), self.names, value.get("others", []), *path, "others")
        return Extra(name, self.cents(value.get("price", 0), *path), others)

    def each(self, table: dict[str, Any], key: str, read: Callable[[dict[str, Any], int], Any]) -> tuple[Any, ...]:
        """The entries of [[key]]."""
        entries = table.get(key, [])
        if not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
            raise self.fail(f"write each entry of {key} below its own heading [[{key}]]", key)
        found: dict[int, Any] = {}  # by place
        named: dict[int, Any] = {}  # also those with a mistake in them
        for at, entry in enumerate(entries):
            if not isinstance(entry, dict) or "name" not in entry:
                self.note(self.fail(f'each of the {key} needs a name: name = "..."', key, at))
            elif (made := self.tried(None, read, entry, at)) is not None:
                found[at] = named[at] = made
            elif isinstance(entry["name"], str):
                named[at] = Extra(entry["name"])
        self.distinct(key, named)
        return tuple(found.values())

    def item(self, entry: dict[str, Any], extras: Any, at: int) -> Item:
        """``extras``: the table [extras]."""
        path = ("items", at)
        self.only(entry, {"name", "others", "price", "extras"}, *path)
        name = self.text(entry["name"], *path, "name")
        chosen = self.tried((), self.names, entry.get("extras", []), *path, "extras")
        for extra in chosen:
            if extra and extra not in extras:
                self.note(self.fail(f'the extra "{extra}" is not listed under [extras]', *path, "extras"))
        others = self.tried((), self.names, entry.get("others", []), *path, "others")
        price = entry.get("price")
        if price is None or price == {}:
            raise self.fail(f'"{name}" needs a price; 0 for what is free', *path)
        if not isinstance(price, dict):
            return Item(name, {"": self.cents(price, *path, "price")}, others, chosen)
        sizes = {
            self.text(size, *path, "price"): self.tried(0, self.cents, value, *path, "price")
            for size, value in price.items()
        }
        return Item(name, sizes, others, chosen)

    def booking(self, entry: dict[str, Any], at: int) -> Booking:
        path = ("bookings", at)
        self.only(entry, {"name", "others", "fields"}, *path)
        name = self.text(entry["name"], *path, "name")
        others = self.tried((), self.names, entry.get("others", []), *path, "others")
        table = entry.get("fields")
        if not isinstance(table, dict) or not 0 < len(table) <= 20:
            raise self.fail('a booking needs its fields: [bookings.fields] day = "day"', *path)
        kinds = {key: self.tried("", self.kind, key, kind, at) for key, kind in table.items()}
        return Booking(name, kinds, others)

    def kind(self, name: str, kind: Any, at: int) -> str | tuple[str, ...]:
        """The kind of the field ``name`` of a booking."""
        path = ("bookings", at, "fields", name)
        if isinstance(kind, list) and kind:
            return self.names(kind, *path)
        if isinstance(kind, str) and kind in KINDS:
            return kind
        raise self.fail(f'"{name}" must be one of {", ".join(KINDS)} or a list of choices', *path)

    def distinct(self, key: str, entries: dict[int, Any]) -> None:
        """Note each name that two entries have in common."""
        taken: dict[str, tuple[int, str]] = {}
        for at, entry in entries.items():
            for name in (entry.name, *entry.others):
                first, other = taken.setdefault(name.casefold(), (at, entry.name))
                if name and first != at:
                    self.note(self.fail(f'"{name}" is also a name of "{other}"', key, at))

    def orders(self, table: Any) -> dict[str, Any]:
        self.only(table, {"to", "file", "command"}, "orders")
        if len(table) != 1:
            raise self.fail('orders have one destination: to = "stdout", file = "..." or command = ["..."]', "orders")
        if "to" in table and table["to"] != "stdout":
            raise self.fail('to = "stdout" is the only value; use file = "..." for a file', "orders", "to")
        if "file" in table:
            return {"file": self.text(table["file"], "orders", "file")}
        if "command" in table:
            return {"command": self.names(table["command"], "orders", "command")}
        return {"to": "stdout"}
