"""What can be booked: the slots in the order in which they are asked for, and how a booking is spoken of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from training.grammar.text import plural


@dataclass(frozen=True)
class Kind:
    """One thing to be booked: its slots in the order in which they are asked for, and how it is spoken of."""

    slots: dict[str, str]  # slot -> question
    opens: list[str]  # "{...}": what the guest may say first; {what} is filled by ``what``
    thing: Callable[[dict[str, str]], str]  # what is booked, with all that is known


def _counted(n: str, singular: str) -> str:
    return f"{n} {singular if n == 'one' else plural(singular)}"


def _table(s: dict[str, str]) -> str:
    return "a table" + (f" for {s['n']}" if "n" in s else "")


def _tour(s: dict[str, str]) -> str:
    return "the " + (s["title"] + " " if "title" in s else "") + "tour" + (f" for {s['n']}" if "n" in s else "")


def _thing(singular: str, joint: str = " for ") -> Callable[[dict[str, str]], str]:
    def thing(s: dict[str, str]) -> str:
        counted = _counted(s["n"], singular) if "n" in s else plural(singular)
        return counted + (joint + s["title"] if "title" in s else "")

    return thing


DAY, TIME, NAME = "For which day?", "At what time?", "Under which name?"
KINDS = {
    "table": Kind({"n": "For how many people?", "day": DAY, "time": TIME, "name": NAME},
                  ["[book|reserve|get|have] a table", "make a [reservation|booking]", "have a table at yours"],
                  _table),
    "cinema": Kind({"title": "For which film?", "n": "How many tickets?", "day": DAY, "time": TIME},
                   ["[buy|get|book|order|reserve] [cinema |movie |film |]tickets", "see a [film|movie]",
                       "go to the movies"], _thing("ticket")),
    "museum": Kind({"n": "How many tickets?", "day": DAY, "name": NAME},
                   ["[buy|get|book] [some |]museum tickets", "visit the [museum|exhibition]"], _thing(
                       "museum ticket")),
    "train": Kind({"title": "Where to?", "n": "How many tickets?", "day": DAY, "time": TIME},
                  ["[buy|get|book] [a |][train ticket|train tickets]", "take a train", "go by train"], _thing(
                      "ticket", " to ")),
    "hotel": Kind({"n": "For how many nights?", "day": "From which day?", "name": NAME},
                  ["[book|get|reserve|have] a room", "stay [here|at the hotel]",
                      "book a room for the night"],
                  lambda s: "a room" + (f" for {_counted(s['n'], 'night')}" if "n" in s else "")),
    "bikes": Kind({"n": "How many bikes?", "day": DAY, "time": TIME, "name": NAME},
                  ["[rent|hire|get|book] [bikes|a bike]", "rent some bikes"], _thing("bike")),
    "boats": Kind({"n": "For how many people?", "day": DAY, "time": TIME, "name": NAME},
                  ["[rent|hire|book] a boat", "go on the lake by boat", "take a boat out"],
                  lambda s: "a boat" + (f" for {s['n']}" if "n" in s else "")),
    "library": Kind({"title": "Which book?", "name": NAME},
                    ["[borrow|reserve|get|order] a book", "put a book on hold", "reserve a [book|title]"],
                    lambda s: "the book" + (f" {s['title']}" if "title" in s else "")),
    "pharmacy": Kind({"name": NAME, "title": "Which order number?"},
                     ["pick up [my|a] [prescription|order|medicine]", "collect my [prescription|medicine|order]"],
                     lambda s: "order" + (f" number {s['title']}" if "title" in s else "")),
    "pool": Kind({"n": "How many tickets?", "day": DAY}, ["[buy|get] [pool|swimming] tickets", "go swimming"], _thing(
    "pool ticket")),
    "tours": Kind({"title": "Which tour?", "n": "For how many people?", "day": DAY, "time": TIME, "name": NAME},
                  ["[book|take|join] a tour", "join one of the tours", "see the town"],
                  _tour),
    "repair": Kind({"title": "What should we repair?", "day": DAY, "name": NAME},
                   ["[get|have] something repaired", "bring something in for repair", "have something fixed"],
                   lambda s: "a repair" + (f" of the {s['title']}" if "title" in s else "")),
}  # fmt: skip
TOURS = "city|harbor|river|castle|night|food|old town|museum|wine|bus|walking|garden|ghost".split("|")
THINGS = """
phone|laptop|watch|left shoe|camera|radio|toaster|lamp|guitar|bicycle|suitcase|umbrella|tablet|clock|coffee machine|
chair|heater|jacket|zipper|violin|screen|printer|headset|speaker|drill|sewing machine|boots|handbag
""".replace("\n", "").split("|")
#: kinds of booking that are asked for most
COMMON = ("table", "cinema", "train")
#: what is counted where everything is said in a row
TERSE = {
    "cinema": "tickets", "train": "tickets", "museum": "museum tickets", "pool": "pool tickets", "bikes": "bikes",
    "table": "people", "tours": "people", "hotel": "nights",
}  # fmt: skip


def amount(kind: str, n: str) -> str:
    """for four people; four tickets"""
    if kind in ("table", "tours", "boats"):
        return f"for {n} {'person' if n == 'one' else 'people'}"
    return f"{n} {singular(TERSE[kind]) if n == 'one' else TERSE[kind]}"


def singular(text: str) -> str:
    """{n} tickets -> {n} ticket, for a count of one."""
    return re.sub(r"\b(person|night|ticket|seat|bike)s\b", r"\1", text.replace("people", "person"))
