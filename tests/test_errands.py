"""What the kiosk of the grammar refuses, and whom it greets: wishes that sound like orders, names of every kind."""

from __future__ import annotations

import re
from itertools import islice
from random import Random

import pytest

from training import grammar
from training.exam import marks
from training.exam.requests import all_requests
from training.grammar import echo, errands, names, off_topic, rude, talk, values
from training.grammar.text import Voice

ASKED = {" ".join(re.findall(r"[a-z0-9]+", said.lower())) for request in all_requests() for said in request.said}


def plain(said: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", said.lower()))


def test_errands_are_refused_and_nothing_of_them_given_back() -> None:
    seen = set()
    for seed in range(4000):
        rng = Random(seed)
        asked, reply = off_topic.errand(rng, Voice(rng), "train")
        assert reply in errands.ERRANDS and marks.refuses(reply), reply
        assert plain(asked) not in ASKED and "{" not in asked, asked
        seen.add(asked)
    assert len(seen) > 3600


def test_every_pattern_can_be_read() -> None:
    """All patterns of all replies, each in several readings: filled, and with no bracket or brace left over."""
    rng = Random(2)
    for patterns in (*errands.ERRANDS.values(), *off_topic.OFF_TOPIC.values()):
        for pattern in patterns:
            for _ in range(6):
                asked = off_topic._filled(rng, Voice(rng), "train", pattern)
                assert asked and not re.search(r"[][{}|]|  ", asked), (pattern, asked)


def test_an_errand_about_a_thing_names_it() -> None:
    for seed in range(200):
        rng = Random(seed)
        voice = Voice(rng)
        voice.typos = False
        asked, reply = off_topic.errand(rng, voice, "train", "lemon tart")
        assert "lemon tart" in asked.lower() and "lemon" not in reply, asked


def test_beginnings_of_orders_and_errands_are_the_same() -> None:
    """How a wish begins does not tell an order from an errand: "give me" begins both, as others do."""
    begun: dict[str, set[str]] = {}
    for dialogue in islice(grammar.dialogues(5), 1200):
        for (role, asked), (_, reply) in zip(dialogue, dialogue[1:]):
            kind = "errand" if reply in errands.ERRANDS else "order" if "Anything else?" in reply else ""
            if role == "user" and kind:
                begun.setdefault(" ".join(asked.lower().split()[:2]), set()).add(kind)
    both = {words for words, kinds in begun.items() if len(kinds) == 2}
    assert "give me" in both and len(both) > 12, both


def test_an_errand_between_leaves_the_order_alone() -> None:
    kept = 0
    for seed in range(300):
        rng = Random(seed)
        order = ""
        for _, reply in echo._pairs(rng, Voice(rng), "train"):
            if reply in errands.ERRANDS:
                continue
            told = re.sub(r" (?:small|medium|large)(?= )|^Certainly\. | (?:for|to) .*", "", reply).lower()
            if order and ", " in told:
                kept += 1
                assert told.startswith(order), (order, told)
            order = re.split(r" and |, |\. ", told)[0]
    assert kept > 60


# ---- names -----------------------------------------------------------------------------------------------------------


def test_the_name_is_given_back_letter_by_letter() -> None:
    told = []
    for seed in range(3000):
        rng = Random(seed)
        ((asked, reply),) = names.introduction(rng, Voice(rng), "train")
        name = re.fullmatch(r"Hello, (.*)! What can I do for you\?", reply)[1]  # type: ignore[index]
        assert name in asked, (asked, reply)
        assert plain(asked) not in ASKED, asked
        told.append(name)
    assert len(set(told)) > 2400


@pytest.mark.parametrize("form", [
    r"\w+-\w+", r"[A-Z]'\w+", r"[A-Z]\. \w+", r"[A-Z]{2,}", r"(?:Mc|De|La)[A-Z]\w+", r"(?:Dr|Mrs|Aunt) \w+",
    r"[A-Z][a-z]+ [A-Z][a-z]+", r"\w*[á-ž]\w*",
])  # fmt: skip
def test_names_of_every_form(form: str) -> None:
    rng = Random(3)
    drawn = [values.full_name(rng, "train") for _ in range(3000)]
    assert sum(bool(re.fullmatch(form, name)) for name in drawn) > 8


def test_who_says_what_he_is_has_told_no_name() -> None:
    reply = "I see. What can I do for you?"
    pattern = next(pattern for pattern, said in talk.ASIDES if said == reply)
    rng = Random(6)
    assert len({talk.say(rng, Voice(rng), pattern) for _ in range(200)}) > 100


def test_what_is_to_be_repeated_is_not_spite() -> None:
    """Names and words are said back; that somebody is something is not."""
    found = 0
    for seed in range(6000):
        rng = Random(seed)
        asked, reply = rude.turn(rng, Voice(rng), "train")
        found += bool(re.match(r"(?:please )?(?:say|repeat)", asked, re.I))
        assert reply in (rude.COMPLAINT, rude.NOT_OURS)
    assert found > 20
