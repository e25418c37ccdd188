"""Corrections of a booking: another number, day, time, place or thing; only what is mentioned changes."""

from __future__ import annotations

import re

from training.grammar import booking_words as said
from training.grammar import offers
from training.grammar import reserve_words as heard
from training.grammar.reserve import Reservation
from training.grammar.text import ONES, number


def turn(desk: Reservation) -> None:
    """One correction, if anything can be corrected."""
    rng, form = desk.rng, desk.trade.form
    could = [slot for slot in ("day", "time", "to") if slot in desk.known]
    counted = desk.n > 0 or form in ("hire", "ticket") and desk.article == "a"
    if _heads(desk) > 0 and not counted or counted and "people" not in desk.known:
        could += ["count", "count"]
    if desk.several:
        pass
    elif (desk.before or form in ("visit", "course", "hold")) and desk.head not in ("table", "room", "ticket"):
        could += ["thing", "thing"]
    elif desk.before and desk.head in desk.trade.things:
        could += ["kind", "kind"]
    if len(desk.wishes) < 2:
        could.append("wish")
    if not could:
        return
    if not desk.missing() and rng.random() < 0.12:
        asked = desk.voice.says(rng.choice(said.NO))
        desk.turns.append((asked, "Sorry. What should I change?"))
    slot = rng.choice(could)
    if slot == "wish":
        desk.say(rng.choice(heard.EXTRA), wish=desk.wish())
    elif slot == "count":
        _recount(desk)
    elif slot in ("thing", "kind"):
        _rename(desk, slot)
    else:
        old = desk.known[slot]
        if slot == "to":
            _, shown = desk.target()
            old = re.sub("^(?:for|to|from) ", "", old)
            if desk.known["to"].startswith("from "):
                shown = "from " + shown
        else:
            way, more = desk.moment([slot])
            shown = more["day" if slot == "day" else "time"]
            if slot == "day" and form == "room" and rng.random() < 0.5:
                shown = "from " + shown
            if slot == "day":
                old = re.sub("^(?:on|from) ", "", old)
        if slot in heard.CHANGE_OF and rng.random() < 0.5:
            pattern = rng.choice(heard.CHANGE_OF[slot])
            bare = re.sub("^at ", "", shown)
            desk.say(pattern, **{"new": shown, "old": old, **({"bare": bare} if "{bare}" in pattern else {})})
        else:
            _change(desk, shown, old)


def _change(desk: Reservation, new: str, old: str) -> None:
    pattern = desk.rng.choice(heard.CHANGE).replace("{reason}", f"[{'|'.join(heard.REASON)}]")
    desk.say(pattern + desk.rng.choice(("", "", ", please")) * (pattern[-1] not in "?" and "please" not in pattern),
             new=new, old=old)  # fmt: skip


def _heads(desk: Reservation) -> int:
    """For how many it is, where that is a mere number; else 0."""
    last = desk.known.get("people", "").removeprefix("for ")
    return ONES.index(last) if last in ONES else int(last) if last.isdigit() else 0


def _recount(desk: Reservation) -> None:
    rng = desk.rng
    people = _heads(desk) > 0
    before = _heads(desk) or desk.n or 1
    old = number(before)
    n = rng.choice([m for m in range(1 if not people else 2, 13) if m != before])
    reason = f"[{'|'.join(heard.MORE if n > before else heard.FEWER)}]"
    if people:
        desk.known["people"] = "for " + number(n)
    else:
        desk.n = n
    shown = desk.shown(n)
    if not people and rng.random() < 0.45:  # the thing is named again, by all its words or the last
        noun = offers.children(n, desk.head)
        shown += " " + (noun if rng.random() < 0.6 else f"{desk.before} {noun}".strip())
    desk.say(rng.choice(heard.COUNT).replace("{reason}", reason), n=shown, old=old)


def _rename(desk: Reservation, slot: str) -> None:
    """Another thing of the same desk, or another kind of it."""
    rng, form = desk.rng, desk.trade.form
    before, head = desk.before, desk.head
    for _ in range(20):
        desk.before, desk.head = desk.something()
        if form == "course":
            desk.head = head if rng.random() < 0.6 or not head else desk.head
        if slot == "kind":
            desk.head = head
        if (desk.before, desk.head) != (before, head) and (slot == "thing" or desk.before not in ("", before)):
            break
    one, was = f"{desk.before} {desk.head}".strip(), f"{before} {head}".strip()
    if desk.n > 1 or desk.article == "many":
        new, old = (f"{a} {offers.children(2, b)}".strip() for a, b in ((desk.before, desk.head), (before, head)))
    elif desk.article == "a":
        new, old = offers.with_article(one), offers.with_article(was)
        new, old = rng.choice(((new, old), (new, f"the {was}"), (one, was)))
    else:
        new, old = rng.choice(((one, was), (f"the {one}", f"the {was}"))) if desk.article == "the" else (one, was)
    if slot == "kind" and rng.random() < 0.3 and desk.n <= 1:
        new, old = desk.before, before or was
    if form == "course" and rng.random() < 0.4:
        old = before
    if desk.article == "my":
        new, old = (one, was) if rng.random() < 0.5 else (f"my {one}", f"my {was}")
    if "thing" in desk.known:
        desk.known["thing"] = desk.thing()
    _change(desk, new, old)
