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
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from edge.errors import InvalidFile

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
        extras = [f"{each.name}: {self.money(each.price)}." for each in self.extras.values()]
        return (*self.facts, *rows, *extras)


def load(path: str | os.PathLike[str]) -> House:
    """The house in the file at ``path``.

    Raises InvalidFile, "FILE, line N: what is wrong", for a file that cannot be read or used.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidFile(f"cannot read {path}: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise InvalidFile(f"{path}: larger than {MAX_BYTES // 1024} KiB; a house file contains only texts and prices")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InvalidFile(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None
    return parse(text, os.fspath(path))


def parse(text: str, source: str = "house") -> House:
    """The house that ``text`` (TOML) describes.  ``source``: the name of the file for errors.  Raises InvalidFile."""
    try:
        table = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f"{source}, line {line[1]}" if line else f"{source}, last line"
        raise InvalidFile(f"{where}: {re.sub(r' *[(]at .*[)]$', '', str(error))}") from None
    except RecursionError:
        raise InvalidFile(f"{source}: nested too deeply") from None
    return _Reader(text, source).house(table)


class _Reader:
    """Checks the parsed tables; each error names the line of the value."""

    def __init__(self, text: str, source: str) -> None:
        self.lines = text.splitlines()
        self.source = source

    def fail(self, message: str, *path: str | int) -> InvalidFile:
        return InvalidFile(f"{self.source}, line {self.line(path)}: {message}")

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
                if here == path[: len(here)]:
                    best = number
            elif key := re.match(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([\w-]+))\s*=", line):
                whole = (*here, key[1] or key[2] or key[3] or "")
                if whole == path[: len(whole)]:
                    best = number
            if path and isinstance(path[-1], str) and path[:1] == ("facts",) and path[-1] in line:
                return number
        return best

    def house(self, table: dict[str, Any]) -> House:
        known = {"name", "language", "currency", "texts", "facts", "extras", "items", "bookings", "orders", "greeting"}
        self.only(table, known)
        if "name" not in table:
            raise self.fail('a house needs a name: name = "..."')
        texts = {**TEXTS, **self.texts(table.get("texts", {}))}
        if "greeting" in table:
            texts["greeting"] = self.text(table["greeting"], "greeting")
        extras = self.extras(table.get("extras", {}))
        items = self.each(table, "items", lambda entry, at: self.item(entry, extras, at))
        bookings = self.each(table, "bookings", self.booking)
        self.distinct("items", items)
        self.distinct("bookings", bookings)
        language = self.text(table.get("language", "en"), "language")
        if language != "en":
            raise self.fail(f'language "{language}" is not supported; use "en"', "language")
        return House(
            name=self.text(table["name"], "name"),
            language=language,
            currency=self.text(table.get("currency", "€"), "currency"),
            texts=texts,
            facts=self.facts(table.get("facts", [])),
            extras=extras,
            items=items,
            bookings=bookings,
            orders=self.orders(table.get("orders", {"to": "stdout"})),
        )

    def only(self, table: Any, known: set[str], *path: str | int) -> None:
        if not isinstance(table, dict):
            raise self.fail("must be a table of keys and values", *path)
        for key in table:
            if key not in known:
                raise self.fail(f'"{key}" is unknown; known: {", ".join(sorted(known))}', *path, key)

    def text(self, value: Any, *path: str | int) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.fail(f'"{path[-1]}" must be a text in quotes', *path)
        if len(value) > MAX_TEXT or any(not (c.isprintable() or c in "\n\t") for c in value):
            raise self.fail(f'"{path[-1]}" is longer than {MAX_TEXT} characters or contains control characters', *path)
        return " ".join(value.split())

    def names(self, value: Any, *path: str | int) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > MAX_ENTRIES:
            raise self.fail(f'"{path[-1]}" must be a list of texts: ["...", "..."]', *path)
        return tuple(self.text(each, *path) for each in value)

    def cents(self, value: Any, *path: str | int) -> int:
        """The price in cents, exactly: 3.2, 3.20 or 3 -> 320, 320, 300.  Raises InvalidFile."""
        number = Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else Decimal("nan")
        if not (number.is_finite() and 0 <= number <= 1_000_000):
            raise self.fail("a price must be a number of 0 or more, such as 3.20", *path)
        cents = number * 100
        if cents != int(cents):
            raise self.fail(f"the price {value} has more than two decimals", *path)
        return int(cents)

    def texts(self, table: Any) -> dict[str, str]:
        self.only(table, set(TEXTS), "texts")
        return {key: self.text(value, "texts", key) for key, value in table.items()}

    def facts(self, value: Any) -> tuple[str, ...]:
        facts = self.names(value, "facts")
        for fact in facts:
            if facts.count(fact) > 1:
                raise self.fail("this fact is listed twice", "facts", fact)
        return facts

    def extras(self, table: Any) -> dict[str, Extra]:
        if not isinstance(table, dict) or len(table) > MAX_ENTRIES:
            raise self.fail('extras must be a table: "oat milk" = 0.50', "extras")
        found = {}
        for name, value in table.items():
            path = ("extras", name)
            self.text(name, *path)
            if isinstance(value, dict):
                self.only(value, {"price", "others"}, *path)
                others = self.names(value.get("others", []), *path, "others")
                found[name] = Extra(name, self.cents(value.get("price", 0), *path), others)
            else:
                found[name] = Extra(name, self.cents(value, *path))
        return found

    def each(self, table: dict[str, Any], key: str, read: Callable[[dict[str, Any], int], Any]) -> tuple[Any, ...]:
        entries = table.get(key, [])
        if not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
            raise self.fail(f"write each entry of {key} below its own heading [[{key}]]", key)
        for at, entry in enumerate(entries):
            if not isinstance(entry, dict) or "name" not in entry:
                raise self.fail(f'each of the {key} needs a name: name = "..."', key, at)
        return tuple(read(entry, at) for at, entry in enumerate(entries))

    def item(self, entry: dict[str, Any], extras: dict[str, Extra], at: int) -> Item:
        self.only(entry, {"name", "others", "price", "extras"}, "items", at)
        name = self.text(entry["name"], "items", at, "name")
        price = entry.get("price")
        if isinstance(price, dict) and price:
            sizes = {self.text(size, "items", at, "price"): value for size, value in price.items()}
        elif price is None or isinstance(price, dict):
            raise self.fail(f'"{name}" needs a price; 0 for what is free', "items", at)
        else:
            sizes = {"": price}
        chosen = self.names(entry.get("extras", []), "items", at, "extras")
        for extra in chosen:
            if extra not in extras:
                raise self.fail(f'the extra "{extra}" is not listed under [extras]', "items", at, "extras")
        return Item(
            name=name,
            price={size: self.cents(value, "items", at, "price") for size, value in sizes.items()},
            others=self.names(entry.get("others", []), "items", at, "others"),
            extras=chosen,
        )

    def booking(self, entry: dict[str, Any], at: int) -> Booking:
        self.only(entry, {"name", "others", "fields"}, "bookings", at)
        table = entry.get("fields")
        if not isinstance(table, dict) or not 0 < len(table) <= 20:
            raise self.fail('a booking needs its fields: [bookings.fields] day = "day"', "bookings", at)
        fields: dict[str, str | tuple[str, ...]] = {}
        for name, kind in table.items():
            path = ("bookings", at, "fields", name)
            if isinstance(kind, list) and kind:
                fields[name] = self.names(kind, *path)
            elif kind in KINDS:
                fields[name] = kind
            else:
                raise self.fail(f'"{name}" must be one of {", ".join(KINDS)} or a list of choices', *path)
        name = self.text(entry["name"], "bookings", at, "name")
        return Booking(name, fields, self.names(entry.get("others", []), "bookings", at, "others"))

    def distinct(self, key: str, entries: tuple[Any, ...]) -> None:
        """Raise InvalidFile if two entries have a name in common."""
        taken: dict[str, str] = {}
        for at, entry in enumerate(entries):
            for name in (entry.name, *entry.others):
                if (other := taken.setdefault(name.casefold(), entry.name)) != entry.name or (
                    name == entry.name and [each.name for each in entries].count(name) > 1
                ):
                    raise self.fail(f'"{name}" is also a name of "{other}"', key, at)

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
