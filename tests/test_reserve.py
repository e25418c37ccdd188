"""Bookings at desks of all kinds: what was said comes back whole, and only what was corrected changes."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from training.grammar import amend, dates, facts, offers, reserve_request, values
from training.grammar.reserve import Reservation
from training.grammar.text import Voice, spelled

#: what the assistant adds of its own
_OWN = """
1 a an the at on from for to under name is that right you have it certainly done see then your which day time what where
how many people nights film would like book person and of
"""


def desk(seed: int, kind: str = "") -> Reservation:
    rng = Random(seed)
    voice = Voice(rng)
    voice.chatty, voice.typos, voice.small_names = 0.0, False, False
    shop = facts.draw(rng, "train", kind or rng.choice(list(offers.TRADES)), told=0.0)
    return Reservation(rng, voice, shop, "train")


_DIGITS = {spelled(n): str(n) for n in range(100)}


def _plain(text: str) -> str:
    for said, n in (("half a dozen", "6"), ("a dozen", "12"), ("a couple of", "2"), ("'s ", " ")):
        text = text.replace(said, n)
    return text


def words(text: str) -> list[str]:
    """The words in singular, or nearly, counts as digits."""
    found = re.findall(r"[^\s,.;:!?]+(?:[:.]\d+)?", _plain(text.lower()))
    return [_DIGITS[word] if word in _DIGITS else re.sub("(?<=..)(?:ren|ies|y|s*e?s|e)$", "", word) for word in found]


@pytest.mark.parametrize("kind", offers.TRADES)
def test_nothing_is_said_that_was_not_heard(kind: str) -> None:
    own = set(words(_OWN))
    for seed in range(120):
        visit = desk(seed, kind)
        reserve_request.turn(visit)
        visit.fill()
        amend.turn(visit)
        seen: set[str] = set()
        for asked, reply in visit.turns:
            seen |= set(words(asked))
            if reply == "Sorry. What should I change?":
                continue
            assert not set(words(reply)) - seen - own, (asked, reply)


def test_all_that_is_known_comes_back() -> None:
    asked_for = Counter[str]()
    for seed in range(1500):
        visit = desk(seed)
        reserve_request.turn(visit)
        visit.fill()
        for asked, reply in visit.turns:
            for clock in re.findall(r"\d+:\d\d", asked):
                assert clock in reply, (asked, reply)
        last = visit.turns[-1][1]
        assert last.endswith("Is that right?")
        for slot, value in visit.known.items():
            assert value.lower() in last.lower(), (slot, value, last)
            asked_for[slot] += 1
        assert all(wish in last for wish in visit.wishes) and visit.thing().lower() in last.lower()
    assert min(asked_for[slot] for slot in ("thing", "to", "people", "nights", "day", "time", "name")) > 50


def test_a_correction_changes_one_part() -> None:
    changed = Counter[str]()
    for seed in range(1500):
        visit = desk(seed)
        reserve_request.turn(visit)
        visit.fill()
        before = dict(visit.known, what=visit.thing(), wishes=", ".join(visit.wishes))
        turns = len(visit.turns)
        amend.turn(visit)
        after = dict(visit.known, what=visit.thing(), wishes=", ".join(visit.wishes))
        differ = {slot for slot in after if after[slot] != before.get(slot)} - {"thing"}
        assert len(differ) <= 1, (differ, visit.turns)
        if len(visit.turns) > turns:
            assert visit.turns[-1][1].removeprefix("Certainly. ").lower().startswith(visit.text().lower())
        changed.update(differ)
    assert min(changed[slot] for slot in ("what", "day", "time", "to", "people", "wishes")) > 8


def test_moments() -> None:
    """A part of a day goes with an hour of it, and the word before a day is the right one."""
    rng = Random(1)
    for _ in range(3000):
        day, time = dates.moment(rng)
        assert time.split()[0] in ("at", "from", "between")
        if "evening" in day:
            assert not re.search(r"\b(?:am|morning|2[0-4]:|[0-4]:)", time), (day, time)
        on = values.on(day)
        assert on.startswith("on ") != (day.split()[0] in ("today", "tomorrow", "tonight", "this", "next"))
    assert [dates.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22)] == (
        "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd".split())  # fmt: skip


def test_articles() -> None:
    assert [offers.with_article(each) for each in ("trim", "eye test", "highlights", "dress fitting", "waxing")] == [
        "a trim", "an eye test", "highlights", "a dress fitting", "waxing"]  # fmt: skip
