"""The first request at a desk of ``reserve.py``: what is wanted, and as much of the rest as the guest likes.

A sentence is put together from a lead with a hole for the thing, what stands right behind the thing (``first``), in
front of everything (``ahead``), and in any order at the end (``tails``).
"""

from __future__ import annotations

import re

from training.grammar import reserve_words as heard
from training.grammar.reserve import Reservation


def turn(desk: Reservation) -> None:
    """The first request and its answer; seldom two of each, where the guest only wants to come."""
    if desk.trade.form == "visit" and desk.rng.random() < 0.06:
        desk.say(desk.rng.choice(heard.VAGUE))
        desk.say(desk.rng.choice(heard.ANSWER_THING), thing=desk.wanted())
        return
    request = _Request(desk)
    request.decide()
    desk.say(request.pattern(), **request.ways)


class _Request:
    """One sentence in the making; what it tells goes into the reservation at once."""

    def __init__(self, desk: Reservation) -> None:
        self.desk, self.rng, self.form = desk, desk.rng, desk.trade.form
        self.full = self.rng.choice((0.3, 0.7, 1.0, 1.0))  # how much of the rest is told with it
        self.ways = {"thing": desk.wanted()}  # hole -> what stands there
        self.whom = bool(desk.trade.whom) and self.rng.random() < (0.45 if self.form == "visit" else 0.15)
        leads = heard.LEADS[self.form]
        if self.whom:
            leads = heard.LEADS_WHO if self.form == "visit" else heard.LEADS_GROUP
        self.lead = self.rng.choice(leads)
        self.first = self.ahead = ""
        self.tails: list[str] = []

    def decide(self) -> None:
        """Everything that is told beside the thing."""
        if self.whom:
            self._for_whom()
        if self.form == "ticket" and self.rng.random() < 0.9:
            self._target()
        often = {"table": 0.9, "hire": 0.32, "room": 0.25, "visit": 0.6 if self.desk.shop.kind == "tours" else 0.0}
        if not self.whom and self.rng.random() < often.get(self.form, 0.0):
            self._people()
        if self.form == "room" and self.rng.random() < self.full:
            way, self.ways["nights"] = self.desk.nights()
            self.tails.append(way.replace("{n}", "{nights}"))
        self._moment()
        self._wishes()
        if "name" not in self.desk.known and self.rng.random() < 0.12:  # also where none would be asked for
            self.ways["name"] = self.desk.name()
            self.tails.append(
                self.rng.choice((", my name is {name}", "under the name {name}", "under {name}", ", name {name}"))
            )

    def _for_whom(self) -> None:
        """My daughter, mum: who is to come."""
        whose, being = self.rng.choice(("my", "my", "my", "our")), self.rng.choice(self.desk.trade.whom)
        own = being in ("mum", "dad", "uncle", "aunt") and self.rng.random() < 0.5  # mum wants: no word before it
        self.desk.known["people"] = f"for {being}" if own else f"for your {being}"
        self.ways["who"] = being if own else f"{whose} {being}"

    def _target(self) -> None:
        """Where to, or for which film."""
        self.first, self.ways["to"] = self.desk.target()
        if self.rng.random() < 0.3:
            self.first, self.lead = "", self.rng.choice(heard.SO)
            train = self.desk.shop.kind == "train"
            self.ahead = self.rng.choice(heard.PLACE_AHEAD if train else heard.TITLE_AHEAD) + " "
            if self.desk.known["to"].startswith("from "):
                self.ahead = "[we travel |it is |]from {to}[, so|:|,|.] "

    def _people(self) -> None:
        """For how many."""
        way, self.ways["n"] = self.desk.people()
        if self.rng.random() < 0.3 and self.desk.known["people"].count(" ") == 1:
            self.ahead, self.lead = self.rng.choice(heard.PEOPLE_AHEAD) + " ", self.rng.choice(heard.SO)
        elif self.form == "table":
            self.first = way
        else:
            self.tails.append(way)

    def _moment(self) -> None:
        """Day and time: behind the rest, before it, or amid the lead."""
        rng = self.rng
        slots = [slot for slot in ("day", "time") if slot in self.desk.slots and rng.random() < self.full]
        if self.form == "hold" and rng.random() < 0.6:
            slots = ["day", "time"][: rng.choice((1, 1, 2))]
        if not slots:
            return
        way, more = self.desk.moment(slots)
        self.ways |= more
        loose = not (self.ahead or way.startswith(("for", "with", "the ", "and", "to ")))
        if loose and rng.random() < 0.14 and not self.whom and self.form not in ("ticket", "room", "hold"):
            self.lead = rng.choice(heard.MIDDLE).replace("{moment}", way.lstrip(", "))
        elif loose and rng.random() < 0.16:
            self.ahead = way.lstrip(", ") + rng.choice((" ", ", ", ", ", ": "))
        else:
            self.tails.append(way)

    def _wishes(self) -> None:
        """One or two wishes, and the tails in any order."""
        desk, rng = self.desk, self.rng
        for hole in ("wish", "more"):
            if rng.random() < (0.38 if hole == "wish" else 0.1 * bool(desk.wishes)):
                self.tails.append(rng.choice(heard.WISH).replace("{wish}", f"{{{hole}}}"))
                self.ways[hole] = desk.wish()
        rng.shuffle(self.tails)
        order = "".join(self.tails)
        if order.find("{more}") < order.find("{wish}") and "{more}" in order:
            desk.wishes.reverse()  # they come back in the order in which they were said

    def pattern(self) -> str:
        """The sentence, with its holes."""
        rng = self.rng
        question, body = self.lead.endswith("?"), self.lead.rstrip("?")
        at = body.index("{thing}") + len("{thing}")
        rest = body[at:]
        if self.whom and rest.startswith(" for {who}"):
            at, rest = len(body), ""
        if rest in (" left", " available") and rng.random() < 0.6:
            at, rest = len(body), ""
        text = self.ahead + body[:at] + (" " + self.first if self.first else "") + rest
        text += "".join(" " + tail for tail in self.tails)
        if self.tails and rng.random() < 0.16:
            text += rng.choice((" ", " ", ", ")) + rng.choice(heard.CLOSING)
        elif rng.random() < 0.15:
            text += rng.choice((" please", ", please"))
        text += "?" if question else ""
        if rng.random() < 0.2 and not self.ahead.startswith(", "):
            text = rng.choice(heard.FRONT) + rng.choice((", ", ". ", ", so ", ": ", ", ")) + text
        if rng.random() < 0.2:
            text += ("" if question else rng.choice((".", ",", "."))) + " " + rng.choice(heard.BEHIND)
        return re.sub(r", *(?=[?,.])", "", text)
