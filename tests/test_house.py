"""Rules of a house in the dialogues the bundled model learns from: what is answered follows from what was told."""

from __future__ import annotations

import re
from random import Random

import pytest

from training.grammar import house
from training.grammar.shop import Shop
from training.grammar.text import Voice, plural

_NO = re.compile(r"\b(?:not|no|forbidden|outside|leave|stay|wait)\b")
_PAID = re.compile(r"\b(?:extra|not free|we charge)\b")


@pytest.mark.parametrize("seed", range(5))
def test_answers_follow_from_the_facts(seed: int) -> None:
    rng = Random(seed)
    heard = set()
    for _ in range(400):
        shop = Shop("snacks")
        told = house.rule(rng, shop)
        ((one, (kind, answer)),) = shop.rules.items()
        heard.add((kind, answer.split()[0]))
        assert (plural(one) if kind == "welcome" else one) in told and one[:-1] in answer, told
        if kind == "welcome":
            assert answer.startswith("Sorry") is bool(_NO.search(told)), told
        elif kind == "free":
            assert answer.startswith("No") is bool(_PAID.search(told)), told
        else:
            at = "at " if kind == "event" else ""
            assert answer.removeprefix(f"The {one} is {at}").removesuffix(".") in told, (told, answer)
    assert heard == {("welcome", "Yes,"), ("welcome", "Sorry,"), ("where", "The"), ("event", "The"), ("free", "Yes,"),
                     ("free", "No,")}  # fmt: skip


def test_questions() -> None:
    """A thing the facts speak of gets its answer, another one that nobody knows; the question names the thing."""
    known = unknown = 0
    for seed in range(1500):
        rng = Random(seed)
        shop, voice = Shop("snacks"), Voice(rng)
        voice.typos, voice.chatty = False, 0.0
        told = [house.rule(rng, shop) for _ in range(2)]
        asked, answer = house.rule_turn(rng, voice, shop)
        assert not re.search(r"[][{}|]|  ", asked + answer), asked
        if answer.startswith("Sorry, I do not know about "):
            unknown += 1
            what = answer.removeprefix("Sorry, I do not know about ").partition(".")[0].removeprefix("the ")
            assert not any(re.search(rf"\b{re.escape(what)}\b", each) for each in told), (told, answer)
        else:
            known += 1
            assert any(one[:-1] in asked.lower() and answer == reply for one, (_, reply) in shop.rules.items()), asked
    assert known > 900 and unknown > 250
