"""The lines of an order: how they are repeated, and the many ways in which guests say them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

from training.grammar.text import Voice, expand, listed, number, plural, spelled

#: parts of a whole; the thing follows
DOZENS = {6: "half a dozen", 12: "a dozen", 24: "two dozen", 36: "three dozen"}
#: the count after the thing, which is in the plural; {n} is the count
THING_FIRST = (
    "{things}[,|:|,| -] {n}[ of them| of those| pieces| in all|]|{things}, [make it|i need|we want|i'd say|say] {n}|"
    "[some|the] {things}, {n} [of them|of those|in all|to be exact|altogether]"
)
#: the count with a cross, as on a list; {d} is in digits
CROSSED = "{thing} x {d}|{thing} x{d}|{d} x {thing}|{d}x {thing}|{thing} ({d})|{d} x {things}|{thing} times {d}"
#: words before what is to be done with a thing, none of them repeated
EACH = ("", "", "", "[,|, and|, but|, that is|, if you can|, please,]", ", {all}", ", {all},")

#: the word before a thing said after it
LATER = (", {size} ones", ", the {size} ones", "[,| -] [all|each|every one] {size}", ", the {size} kind",
         ", {size} please")  # fmt: skip
LATER_ONE = (", a {size} one", ", the {size} one", ", the {size} kind", ", {size}", ", {size} please",
             ", {size} if you can")  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One line of an order."""

    item: str
    n: int = 1
    size: str = ""  # or another word before the thing: a colour, a flavour
    extra: str = ""  # what is to be done with it, as the guest said it: no butter, with oat milk, sliced
    loose: bool = False  # a size is still to be asked for
    row: str = ""  # its row in the price list, where that is another than the item

    def text(self) -> str:
        """two large lattes with oat milk"""
        noun = self.item if self.n == 1 else plural(self.item)
        return " ".join(part for part in (number(self.n), self.size, noun, self.extra) if part).replace(" ,", ",")

    def short(self) -> str:
        """lattes, to ask for their size"""
        return self.item if self.n == 1 else plural(self.item)


@dataclass
class Order:
    """What the guest has ordered so far; ``tail`` is "to go" or "for here" once said."""

    lines: list[Line] = field(default_factory=list)
    name: str = ""
    tail: str = ""

    def text(self) -> str:
        return listed([line.text() for line in self.lines]) + (f" {self.tail}" if self.tail else "")


def article(text: str) -> str:
    """a or an, by the first letter."""
    return "an" if text[:1].lower() in tuple("aeiou") else "a"


def spoken(rng: Random, voice: Voice, line: Line, shown_size: bool = True) -> str:
    """A line as a guest says it: 2 large lattes with oat milk."""
    size = line.size if shown_size else ""
    later = bool(size) and rng.random() < 0.14  # three wings, hot ones
    thing = " ".join(part for part in ("" if later else size, voice.form(line.item)) if part)
    text = _counted(rng, line.n, thing)
    if later:
        text += expand(rng, rng.choice(LATER if line.n > 1 else LATER_ONE)).replace("{size}", size)
    if not line.extra:
        return text
    return text + with_extra(rng, line)


def with_extra(rng: Random, line: Line) -> str:
    """What is to be done with a thing, as it follows the thing."""
    if line.extra.startswith(","):  # of which kinds they are
        return line.extra if rng.random() < 0.5 else expand(rng, "[:| -|, so|, that is|, I mean|;]") + line.extra[1:]
    both = "both" if line.n == 2 else "[all|each|every one]" if line.n > 2 else "that is"
    lead = expand(rng, rng.choice(EACH).replace("{all}", both)) if rng.random() < 0.6 else ""
    return f" {lead} {line.extra}".replace(" ,", ",").replace("  ", " ")


def _counted(rng: Random, n: int, thing: str) -> str:
    """a latte, 3 x latte, half a dozen lattes, five of those lattes, lattes, two of them"""
    things, unit = plural(thing), re.match(r"(?:gram|liter|pound|meter|kilo)s? of ", thing)
    kind = rng.random()
    if n == 1:
        one = article(thing)
        if re.search(r" (?:by|from|in|on|near|under) the ", thing) and kind < 0.6:
            one = "the"
        elif kind < 0.94:
            one = rng.choice((one, one, one, one, "one", "1", "one", ""))
        else:
            one = rng.choice(("the", "my", "just one", "one of your", "a single", "your", "some", "that"))
        if one == "one of your":
            return f"{one} {things}"
        return f"{one} {thing}".strip()
    shown = number(n) if n <= 12 and rng.random() < 0.66 else spelled(n) if rng.random() < 0.4 else str(n)
    if n in DOZENS and kind < 0.4 and not unit:
        return f"{DOZENS[n]} {things}"
    if n == 2 and kind < 0.1:
        return f"{rng.choice(('a couple of', 'a couple', 'a pair of'))} {things}"
    if unit or kind < 0.78:
        return f"{shown} {things}"
    if kind < 0.84:
        return f"{shown} of {rng.choice(('those', 'these', 'your', 'the', 'those nice', 'your lovely'))} {things}"
    if kind < 0.92:
        form = expand(rng, CROSSED)
    else:
        form = expand(rng, THING_FIRST)
    return form.replace("{things}", things).replace("{thing}", thing).replace("{n}", shown).replace("{d}", str(n))
