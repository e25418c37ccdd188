"""Bookings at the desks of ``offers.py``: what is wanted is copied from the guest's words and comes back whole.

In one fixed order: the thing with its count or article, where to or what for, for whom, how many nights, day, time,
name, and behind a comma each wish as it was said.  The first request is put together in ``reserve_request.py``.
"""

from __future__ import annotations

import re
from random import Random

from training.grammar import booking_words as said
from training.grammar import dates, offers, values
from training.grammar import reserve_words as heard
from training.grammar.line import DOZENS
from training.grammar.shop import Shop
from training.grammar.text import ONES, Voice, expand, kindly, number, sentence, spelled

Turns = list[tuple[str, str]]
DAY, TIME, NAME = "For which day?", "At what time?", "Under which name?"
SLOTS = {
    "visit": {"thing": "What would you like to book?", "day": DAY, "time": TIME, "name": NAME},
    "hire": {"n": "", "day": DAY, "time": TIME, "name": NAME},
    "course": {"day": DAY, "time": TIME, "name": NAME},
    "ticket": {"to": "", "day": DAY, "time": TIME},
    "room": {"nights": "For how many nights?", "day": "From which day?", "name": NAME},
    "table": {"people": "For how many people?", "day": DAY, "time": TIME, "name": NAME},
    "hold": {"name": NAME},
}
_CLOCK = re.compile(r"at \d+:\d\d")


class Reservation:
    """One guest booking at a desk; collects turns."""

    def __init__(self, rng: Random, voice: Voice, shop: Shop, split: str) -> None:
        self.rng, self.voice, self.shop, self.split = rng, voice, shop, split
        self.trade = offers.TRADES[shop.kind]
        self.slots = SLOTS[self.trade.form]
        self.known: dict[str, str] = {}
        self.wishes: list[str] = []
        self.turns: Turns = []
        self.n, self.article = 0, ""  # a count, or what stands in its place
        self.before, self.head = "", ""
        self.place = ""  # two places on the
        self.several = False  # of several kinds: two bikes and a tandem

    # ---- how it is repeated

    def thing(self) -> str:
        """two mountain bikes, an eye test, a place on the pottery class"""
        one = f"{self.before} {self.head}".strip()
        if self.place:
            return f"{self.place} the {one}"
        if self.n:
            return f"{number(self.n)} {f'{self.before} {offers.children(self.n, self.head)}'.strip()}"
        if self.article == "a":
            return offers.with_article(one)
        if self.article == "many":
            return f"{self.before} {offers.children(2, self.head)}".strip()
        return f"{'your' if self.article == 'my' else self.article} {one}".strip()

    def text(self) -> str:
        """All that is known, in one fixed order."""
        s = self.known
        parts = [s["thing"] if "thing" in s else self.thing()]
        parts += [s[slot] for slot in ("to", "people", "nights", "day", "time") if slot in s]
        if "name" in s:
            parts.append("under the name " + s["name"])
        return ", ".join([" ".join(part for part in parts if part), *self.wishes])

    def _question(self, slot: str) -> str:
        if slot == "n":
            return f"How many {self.thing()}?"
        if slot == "to":
            return "Where to?" if self.shop.kind == "train" else "For which film?"
        return self.slots[slot]

    def missing(self) -> list[str]:
        """The slots that are still to be asked for."""
        return [slot for slot in self.slots if slot not in self.known]

    def reply(self) -> str:
        """Repeat, and ask for the next slot or for consent."""
        missing = self.missing()
        if not self.before + self.head:
            return self._question("thing")
        return sentence(self.text()) + (f". {self._question(missing[0])}" if missing else ". Is that right?")

    def say(self, pattern: str, **ways: str) -> None:
        """One turn of the guest, and the answer."""
        asked = self.voice.says(pattern, **ways)
        if self.voice.kind == "careful":
            asked = sentence(asked)
        self.turns.append((asked, kindly(asked) + self.reply()))

    # ---- what is wanted

    def _count(self) -> int:
        rng = self.rng
        return rng.choices((rng.randint(2, 6), rng.randint(7, 12), rng.randint(13, 40)), (80, 16, 4))[0]

    def shown(self, n: int, pair: str = "two") -> str:
        """A count as the guest writes it; ``pair``: another way to say two."""
        kind = self.rng.random()
        if kind < 0.08:
            return {2: pair}.get(n, DOZENS.get(n, spelled(n)))
        return str(n) if kind < 0.4 else spelled(n) if kind < 0.6 else number(n)

    def _several(self) -> str:
        """Of two kinds: two bikes and a tandem, one single and three returns; how the guest calls them."""
        said, heard = [], []
        for _ in range(2):
            before, head = self.something()
            while head in " ".join(said):
                before, head = self.something()
            n = self.rng.choice((1, 1, 2, 2, 3, 4))
            noun = f"{before} {offers.children(n, head)}".strip()
            article = offers.with_article(noun) if self.rng.random() < 0.5 else f"one {noun}"
            said.append(article if n == 1 else f"{self.shown(n)} {noun}")
            heard.append(article if n == 1 else f"{number(n)} {noun}")
        self.before, self.head, self.article, self.several = "", " and ".join(heard), "", True
        return " and ".join(said)

    def something(self) -> tuple[str, str]:
        """Something of this desk, of what the facts offer most often: what stands before, the thing."""
        rng = self.rng
        if self.shop.offers and rng.random() < 0.7:
            return rng.choice(self.shop.offers)
        before, head = offers.thing(rng, self.split, self.trade)
        if self.trade.form == "hold":
            coded = self.shop.kind == "parcels"
            draw = (lambda: values.code(rng)) if coded else (lambda: values.title(rng, self.split))
            return "", f"{head} {self.voice.form(values.pick(rng, self.split, draw))}"
        return before, head

    def wanted(self) -> str:
        """Decide what is wanted; how the guest calls it."""
        rng, form = self.rng, self.trade.form
        self.before, self.head = self.something()
        chance = rng.random()
        if form == "hold":
            self.article = "my" if self.shop.kind == "parcels" and chance < 0.5 else "the"
            return f"{self.article} {self.head}"
        if form == "visit":
            self.article = "a" if chance < 0.72 else "the" if chance < 0.82 else ""
            self.known["thing"] = self.thing()
            return self.known["thing"]
        if form == "course":
            if chance < 0.5:
                self.article = "the" if chance < 0.3 else ""
                self.head = "" if chance > 0.4 else self.head
                return self.thing()
            n = rng.choice((1, 1, 2, 2, 3, 4, 5))
            unit, joint = rng.choice(("place", "place", "spot", "seat")), rng.choice(("on", "in", "on"))
            first = f"a {unit}" if n == 1 and chance < 0.8 else f"{number(n)} {offers.children(n, unit)}"
            self.place = f"{first} {joint}"
            return self.thing()
        if form == "table":
            meal = self.head not in ("table", "booth")
            self.before = "" if meal else self.before
            self.article = "a" if not meal or chance < 0.3 else ""
            return "table" if chance < 0.12 and self.head == "table" and not self.before else self.thing()
        if form == "ticket" and chance < 0.14:
            shown, self.head = offers.passengers(rng, self.shop.kind == "train")
            self.before, self.article, self.several = "", "", True
            return shown
        if form in ("ticket", "hire") and 0.9 < chance < 0.98:
            self.known |= {"n": ""} if form == "hire" else {}
            return self._several()
        if form == "hire":
            self.known["n"] = ""
            if chance < 0.12 and self.shop.kind == "rooms":
                self.article = "the"
                return self.thing()
            if chance < 0.17:
                return self.thing()
            if chance < 0.24:
                self.article = "many"
                del self.known["n"]
                return self.thing()
        if chance < (0.85 if form == "room" else 0.5 if form == "hire" else 0.3):
            if rng.random() < 0.75:
                self.article = "a"
                return self.thing()
            self.n = 1
        else:
            self.n = self._count()
        return self.thing().replace(number(self.n), self.shown(self.n, "a couple of"), 1)

    def target(self) -> tuple[str, str]:
        """Where to, or what for: (how it is said, the value)."""
        if self.shop.kind == "train":
            value = self.voice.form(values.place(self.rng, self.split))
            if self.rng.random() < 0.15:
                value = self.voice.form(values.place(self.rng, self.split)) + " to " + value
                self.known["to"] = "from " + value
                return "from {to}", value
            self.known["to"] = "to " + value
            return "to {to}", value
        value = self.voice.form(values.title(self.rng, self.split))
        self.known["to"] = "for " + value
        return self.rng.choice(("for {to}", "for {to}", "to see {to}", "for {to}", "in {to}")), value

    def people(self) -> tuple[str, str]:
        """For how many, or whom: (how it is said, the value)."""
        rng, kind = self.rng, offers.crowd(self.rng, self.trade.form)
        if kind == "passengers":
            shown, repeated = offers.passengers(rng)
            self.known["people"] = "for " + repeated
            return "for {n}", shown
        if kind == "purpose":
            ours = [each for each in offers.PURPOSES if self.trade.form == "hire" or each.startswith("a ")]
            self.known["people"] = "for " + rng.choice(ours)
            return "for {n}", self.known["people"].removeprefix("for ")
        n = self._count()
        if kind == "crowd":
            crowd = rng.choice(offers.CROWDS)
            self.known["people"] = f"for {number(n)} {crowd}"
            return rng.choice(("for {n}", "for {n}", ", {n}", ", we are {n}")), f"{self.shown(n)} {crowd}"
        self.known["people"] = "for " + number(n)
        return rng.choice(heard.PEOPLE), self.shown(n)

    def nights(self) -> tuple[str, str]:
        """For how many nights: (how it is said, the value)."""
        n = self.rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 10, 14))
        noun = offers.children(n, "night")
        self.known["nights"] = f"for {number(n)} {noun}"
        return self.rng.choice(heard.NIGHTS), f"{self.shown(n)} {noun}"

    def moment(self, slots: list[str], part: str = "") -> tuple[str, dict[str, str]]:
        """Day or time or both: how they are said."""
        rng, voice = self.rng, self.voice
        day, time = dates.moment(rng)
        on = values.on(day)
        ways = {"day": voice.small(day), "on": voice.small(on), "time": time, "clock": time.partition(" ")[2]}
        short = time.startswith("at ") and not (ways["clock"].isdigit() or ways["clock"] in ONES)
        at = rng.choice(("{time}", "{time}", "{clock}", "around {clock}")) if short else "{time}"
        if self.trade.form == "ticket" and _CLOCK.fullmatch(time) and rng.random() < 0.5:
            what = "train|bus|one|coach|boat" if self.shop.kind == "train" else "show|one|screening"
            at = rng.choice(("on the {clock}", "with the {clock}", "the {clock}", "for the {clock}")) + f" [{what}|]"
        if self.trade.form == "hold" and "day" in slots:
            self.known["day"] = on
            if "time" in slots:
                self.known["time"] = time
            return expand(rng, rng.choice(heard.PICKUP)) + (" {on} {time}" if "time" in slots else " {on}"), ways
        if self.trade.form == "room":
            self.known["day"] = "from " + day
            return rng.choice(("from {day}", "from {day}", "starting {day}", "arriving {on}", "from {day} on")), ways
        if "day" in slots:
            self.known["day"] = on
        if "time" in slots:
            self.known["time"] = time
        if "time" not in slots:
            return rng.choice(("{on}", "{on}", "for {day}", ", {day}")), ways
        if "day" not in slots:
            return at, ways
        way = rng.choice(("{on} @", "{on} @", "@ {on}", ", {day}, @", ", {on} @", "for {day}, @", "for {day} @",
                          "{on}, @"))  # fmt: skip
        return way.replace("@", at), ways

    def wish(self) -> str:
        """One more wish, as it is said and repeated."""
        self.wishes.append(offers.wish(self.rng, self.shop.kind, self.wishes))
        return self.wishes[-1]

    # ---- the visit

    def name(self) -> str:
        """A name for it."""
        name = self.voice.form(values.full_name(self.rng, self.split))
        self.known["name"] = name
        return name

    def fill(self) -> None:
        """Answer until nothing is missing."""
        rng = self.rng
        while missing := self.missing():
            slot = missing[0]
            if rng.random() < 0.08:  # something else than what was asked for
                slot = rng.choice([other for other in missing if other in ("day", "time")] or [slot])
            if slot == "n":
                self.known["n"], self.article = "", ""
                self.n = self._count()
                self.say(rng.choice(said.ANSWER["n"]), n=self.shown(self.n))
            elif slot == "to":
                way, value = self.target()
                self.say(rng.choice(("{to}", f"{way}", f"{way}, please", "{to}[, please| please]")), to=value)
            elif slot == "people":
                way, value = self.people()
                self.say(way.lstrip(", ") if rng.random() < 0.5 else "{n}[, please| please|]", n=value)
            elif slot == "nights":
                way, value = self.nights()
                self.say(way.lstrip(", ") if rng.random() < 0.5 else "{n}[, please| please|]", n=value)
            elif slot == "name":
                self.say(rng.choice(said.ANSWER["name"]), name=self.name())
            else:
                both = slot == "day" and "time" in missing and rng.random() < 0.25
                way, ways = self.moment(["day", "time"] if both else [slot])
                way = way.lstrip(", ")
                way = way if both or rng.random() < 0.6 else f"{way}[, please| please| if possible|]"
                if "name" in missing and rng.random() < 0.06:
                    way, ways["name"] = f"{way}, [name|under|under the name|my name is] {{name}}", self.name()
                self.say(way, **ways)

    def recall(self, done: bool) -> None:
        """What was it again, when was it?"""
        rng, s = self.rng, self.known
        patterns, reply = said.ASK_BOOKING, f"You have {self.text()}."
        on, at = s.get("day", ""), s.get("time", "")
        kind = rng.random()
        if kind < 0.5 and on and at:
            patterns, reply = said.ASK_WHEN, f"It is {on} {at}."
            if kind < 0.2:
                patterns, reply = said.ASK_WHICH_DAY, f"It is {on}."
            elif kind < 0.35:
                patterns, reply = said.ASK_WHICH_TIME, f"It is {at}."
        asked = self.voice.says(rng.choice(patterns))
        self.turns.append((asked, kindly(asked) + reply + ("" if done else " Is that right?")))
