"""Bookings: tables, tickets, rooms, bikes (``desks.py``) here, all other desks in ``reserve.py``.

Every reply repeats all that is known and asks for the next thing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.grammar import amend, dates, desks, names, offers, reserve_request, values
from training.grammar import booking_words as said
from training.grammar.reserve import Reservation
from training.grammar.shop import Shop
from training.grammar.text import Voice, babble, kindly, number, sentence

Turns = list[tuple[str, str]]


class Desk:
    """One guest booking; collects turns."""

    def __init__(self, rng: Random, voice: Voice, shop: Shop, split: str) -> None:
        self.rng, self.voice, self.shop, self.split = rng, voice, shop, split
        self.kind = desks.KINDS[shop.kind]
        self.slots = self.kind.slots
        self.known: dict[str, str] = {}
        self.turns: Turns = []

    def draw(self, slot: str) -> tuple[dict[str, str], str]:
        """A value for a slot: the ways the guest says it, and how the assistant repeats it."""
        rng, voice = self.rng, self.voice
        if slot == "n":
            n = rng.choices((rng.randint(1, 6), rng.randint(7, 12), rng.randint(13, 60)), (80, 15, 5))[0]
            return {"n": number(n) if rng.random() < 0.6 else str(n)}, number(n)
        if slot == "day":
            day = dates.day(rng)
            return {"day": voice.small(day), "on": voice.small(values.on(day))}, day
        if slot == "time":
            time = values.time(rng)
            return {"time": time}, time
        if slot == "name":
            name = voice.form(values.full_name(rng, self.split))
            return {"name": name}, name
        kind = self.shop.kind
        if kind == "repair":
            known = rng.random() < 0.75
            thing = rng.choice(desks.THINGS) if known else values.pick(rng, self.split, lambda: values.coined(rng))
            return {"title": thing}, thing
        if kind == "pharmacy":
            code = values.pick(rng, self.split, lambda: values.code(rng))
            return {"title": code}, code
        if kind == "train":
            place = voice.form(values.place(rng, self.split))
            return {"title": place}, place
        if kind == "tours":
            tour = rng.choice(desks.TOURS) if rng.random() < 0.6 else values.place(rng, self.split)
            return {"title": tour}, tour
        title = voice.form(values.title(rng, self.split))
        return {"title": title}, title

    def text(self) -> str:
        """All that is known, in one fixed order."""
        s = self.known
        parts = [self.kind.thing(s)]
        if "day" in s:
            parts.append("from " + s["day"] if self.shop.kind == "hotel" else values.on(s["day"]))
        if "time" in s:
            parts.append("at " + s["time"])
        if "name" in s:
            parts.append("under the name " + s["name"])
        return " ".join(parts)

    def reply(self) -> str:
        """Repeat, and ask for the next slot or for consent."""
        missing = next((slot for slot in self.slots if slot not in self.known), None)
        if not self.known:
            return self.slots[missing] if missing else ""
        return sentence(self.text()) + (f". {self.slots[missing]}" if missing else ". Is that right?")

    def open(self) -> None:
        """The first wish, with some of the slots."""
        rng, kind = self.rng, self.kind
        what = rng.choice(kind.opens)
        free = [slot for slot in self.slots if slot not in self.known]
        given = [slot for slot in free if rng.random() < rng.choice((0.1, 0.45, 0.8))]
        if "name" not in free and "name" not in self.known and rng.random() < 0.2:
            given.append("name")  # not asked for, but told
        rng.shuffle(given)
        if given and given[0] == "name" and len(given) > 1:
            given.append(given.pop(0))
        shown: dict[str, str] = {}
        direct = self._direct(shown)
        if direct:
            what = direct
            given = [slot for slot in given if slot not in self.known]
        for slot in given:
            ways, self.known[slot] = self.draw(slot)
            shown |= ways
            fragments = said.FRAGMENT[slot]
            if isinstance(fragments, dict):
                fragments = fragments.get(self.shop.kind, [])
            if not fragments:
                del self.known[slot]
                continue
            if slot == "n" and self.known["n"] == "one":
                fragments = [desks.singular(each) for each in fragments]
            what += (", " if slot == "name" and rng.random() < 0.3 else " ") + rng.choice(fragments)
        pattern = rng.choice(said.OPENING if not direct else ["{what}[, please| please|]",
            "[i'd like|i want|can i get|could i have|we'd like|i need|may i have|give me|we need] {what}[, please| "
            "please|]"])
        if (direct or given) and rng.random() < 0.15:
            tail = "" if what.endswith(("{title}", "{name}")) else babble(rng, 3)  # where does a title end?
            pattern = f"{babble(rng, 5)} {{what}} {tail}"
        asked = self.voice.says(pattern.replace("{what}", what), **shown)
        self.turns.append((asked, self._led(asked)))

    def terse(self) -> bool:
        """Everything in a row, in any order: The Last Fox, Friday, two tickets, 7 pm."""
        rng, kind = self.rng, self.shop.kind
        if kind not in desks.TERSE:
            return False
        shown: dict[str, str] = {}
        parts = []
        for slot in self.slots:
            if slot in self.known or slot == "name":
                continue
            ways, self.known[slot] = self.draw(slot)
            shown |= ways
            noun = desks.singular(desks.TERSE[kind]) if self.known.get("n") == "one" else desks.TERSE[kind]
            title = {"tours": "{title} tour", "train": "to {title}"}.get(kind, "{title}")
            forms = {"n": "{n} " + noun, "title": title, "day": "[{day}|{on}]", "time": "[at |]{time}"}
            parts.append(forms[slot])
        rng.shuffle(parts)
        if kind in ("table", "hotel", "tours"):
            parts.insert(0, {"table": "a table", "hotel": "a room", "tours": "a tour"}[kind])
        if rng.random() < 0.8 and self.known.get("n") != "one":
            pattern = rng.choice(said.WHOLE[kind])
            while "{babble}" in pattern:
                pattern = pattern.replace("{babble}", babble(rng, 2), 1)
        else:
            pattern = rng.choice((", ", ", ", " ", " and ")).join(parts) + "[, please| please||]"
        if "name" not in self.known and rng.random() < 0.2:
            ways, self.known["name"] = self.draw("name")
            shown |= ways
            pattern = pattern.rstrip("?") + ", " + rng.choice(said.FRAGMENT["name"])  # type: ignore[arg-type]
        asked = self.voice.says(pattern, **shown)
        self.turns.append((asked, self._led(asked)))
        return True

    def _direct(self, shown: dict[str, str]) -> str:
        """two tickets for The Frozen Lighthouse; a table for four: the thing itself, counted."""
        rng, kind = self.rng, self.shop.kind
        if kind not in ("cinema", "museum", "train", "bikes", "pool", "table") or rng.random() < 0.4:
            return ""
        if kind == "table":
            ways, self.known["n"] = self.draw("n")
            shown |= ways
            return "a table for {n}"
        ways, n = self.draw("n")
        shown |= ways
        self.known["n"] = n
        whole = "title" in self.slots and rng.random() < 0.8
        noun = desks.singular(desks.TERSE[kind])
        if kind == "pool":
            noun = "pool ticket"
        elif kind in ("cinema", "train") and not whole:  # else nobody could tell what to ask for next
            noun = {"cinema": "[cinema|movie|film] ticket", "train": "train ticket"}[kind]
        text = "{n} " + noun + ("" if n == "one" else "s")
        if whole:
            ways, self.known["title"] = self.draw("title")
            shown |= ways
            text += " to {title}" if kind == "train" else " [for|for|to see] {title}"
        return text

    def _led(self, asked: str) -> str:
        return kindly(asked) + self.reply()

    def fill(self) -> None:
        """Answer until nothing is missing; sometimes with more than was asked."""
        rng = self.rng
        while missing := [slot for slot in self.slots if slot not in self.known]:
            slot = missing[0]
            ways, self.known[slot] = self.draw(slot)
            patterns = said.ANSWER[slot]
            if slot == "title":
                patterns = said.ANSWER_TITLE.get(self.shop.kind, patterns)
            people = slot == "n" and self.shop.kind in ("table", "boats", "tours") and self.known["n"] != "one"
            pattern = rng.choice(said.ANSWER_PEOPLE if people and rng.random() < 0.5 else patterns)
            if len(missing) > 1 and missing[1] in ("day", "time", "name") and rng.random() < 0.18:
                extra, self.known[missing[1]] = self.draw(missing[1])
                ways |= extra
                pattern = "{" + {"n": "n", "day": "on", "time": "time", "title": "title", "name": "name"}[slot] + "}"
                pattern += " " + rng.choice(said.FRAGMENT[missing[1]])  # type: ignore[call-overload]
            asked = self.voice.says(pattern, **ways)
            self.turns.append((asked, self._led(asked)))

    def correct(self) -> None:
        """Change one slot that was repeated."""
        rng = self.rng
        slot = rng.choice(list(self.known))
        old = self.known[slot]
        ways, new = self.draw(slot)
        if new == old:
            return
        self.known[slot] = new
        shown = next(iter(ways.values()))
        if slot == "n" and rng.random() < 0.5:
            noun = "people" if self.shop.kind in ("table", "boats", "tours") else desks.TERSE[self.shop.kind]
            shown += " " + (desks.singular(noun) if new == "one" else noun)
        if all(slot in self.known for slot in self.slots) and rng.random() < 0.12:
            self.turns.append((self.voice.says(rng.choice(said.NO)), "Sorry. What should I change?"))
        asked = self.voice.says(rng.choice(said.CHANGE), new=shown, old=self.voice.small(old) if slot == "day" else old)
        self.turns.append((asked, self._led(asked)))

    def recall(self, done: bool) -> None:
        """What was it again, when was it, for how many?"""
        s, rng = self.known, self.rng
        patterns, reply = said.ASK_BOOKING, f"You have {self.text()}."
        kind = rng.random()
        on, at = values.on(s.get("day", "")) if "day" in s else "", f"at {s['time']}" if "time" in s else ""
        if kind < 0.5 and (on or at) and self.shop.kind != "hotel":
            patterns, reply = said.ASK_WHEN, f"It is {on} {at}".rstrip().replace("  ", " ") + "."
            if on and kind < 0.2:
                patterns, reply = said.ASK_WHICH_DAY, f"It is {on}."
            elif at and kind < 0.35:
                patterns, reply = said.ASK_WHICH_TIME, f"It is {at}."
        elif kind < 0.65 and "n" in s:
            patterns, reply = said.ASK_COUNT[self.shop.kind], f"It is {desks.amount(self.shop.kind, s['n'])}."
        asked = self.voice.says(rng.choice(patterns))
        self.turns.append((asked, kindly(asked) + reply + ("" if done else " Is that right?")))


def _close(desk: Desk | Reservation) -> None:
    """Yes: it is booked."""
    asked = desk.voice.says(desk.rng.choice(said.YES))
    desk.turns.append((asked, f"Done: {desk.text()}. See you then!"))


def _correct(desk: Desk | Reservation) -> None:
    """One part of what was repeated is another, and all comes back."""
    if isinstance(desk, Reservation):
        amend.turn(desk)
    else:
        desk.correct()


def turns(
    rng: Random, voice: Voice, shop: Shop, split: str, aside: Callable[[], Turns], guest: str = "", whole: bool = False
) -> Turns:
    """One booking from the wish to the confirmation; arguments as in :func:`training.grammar.order.turns`."""
    often = 1.0 if shop.kind not in desks.KINDS else 0.65 if shop.kind == "table" else 0.5
    copied = shop.kind in offers.TRADES and rng.random() < often
    desk: Desk | Reservation = (Reservation if copied else Desk)(rng, voice, shop, split)
    if not whole and rng.random() < 0.02:
        desk.turns.append((voice.says(rng.choice(said.ASK_BOOKING)), "You have not booked anything yet."))
    if guest and "name" in desk.slots:
        desk.known["name"] = guest
    if isinstance(desk, Reservation):
        reserve_request.turn(desk)
    elif rng.random() > 0.42 or not desk.terse():
        desk.open()
    if desk.known and rng.random() < (0.22 if copied else 0.12):
        _correct(desk)
    if rng.random() < 0.10:
        desk.turns += aside()
    desk.fill()
    for _ in range(rng.choices((0, 1, 2), (48, 40, 12) if copied else (65, 27, 8))[0]):
        _correct(desk)
    if rng.random() < 0.06:
        desk.recall(done=False)
    if whole or rng.random() < 0.8:
        _close(desk)
        kind = rng.random()
        name = desk.known.get("name", guest)
        if kind < 0.11 and (name or not whole):  # else an earlier guest's name may stand above
            desk.turns += (names.recall if kind < 0.06 else names.who)(rng, voice, name)
        elif 0.11 < kind < 0.20:
            desk.recall(done=True)
    return desk.turns
