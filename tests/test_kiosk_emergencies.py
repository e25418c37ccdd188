"""Emergencies: recognised by learned weights (edge.kiosk.emergencies, training.emergency_model)."""

from __future__ import annotations

import json
import os

import pytest

from edge.kiosk import emergencies
from edge.kiosk.emergencies import MOST, features, is_emergency, parts, score, words_of
from edge.kiosk.guards import guard
from edge.kiosk.house import EXAMPLE, load
from tests.services import ROOT


@pytest.mark.parametrize("text", [
    "death by chocolate", "I'm dying for a coffee", "that cake is to die for", "my feet are killing me, a tea please",
    "fire-roasted tomatoes?", "a blood orange juice", "do you have a fireplace?", "Two teas and a scone",
    "can I smoke in my room", "where can I light a fire", "Is Blue Barn good for a group?",
    "I could murder a coffee", "hit me with a double espresso", "help me pick a cake", "I can't go on without coffee",
    "you guys are fire", "my phone died, can I charge it", "no peanuts please, my son can't have them",
    "I'd like to end with a dessert", "my son lost his hat", "cut the cake in half please", "a cut throat shave",
    "two espressos", "the blue cheese bagel with chives", "the cut fruit", "an espresso and the pale ale",
])
def test_what_only_sounds_like_one(text: str) -> None:
    assert not is_emergency(text)


@pytest.mark.parametrize("text", [
    "my uncle is clutching his arm and going grey", "a lad is floating face down in the pool", "hes not breathng",
    "were trapped in the lift", "she ate one by accident and her face is all puffy, allergic",
    "a van just crashed into the terrace",
    "my aunt drank bleach", "he is waving a machete at the staff", "the bin is smoking",
    "there won't be a tomorrow for me", "he won't let me leave and has my passport", "someone took my little girl",
])
def test_emergencies_in_other_words(text: str) -> None:
    assert is_emergency(text)


@pytest.mark.parametrize("text", [
    "Thanks for all your help!", "is there a hospital nearby?", "my mum had a heart attack last year, anything light?",
    "the first aid museum", "I'm not dying, just hungry", "is the sauna safe for pregnant women",
    "which floor is the roof bar on", "please hurry, my train leaves in five minutes", "my key is locked in the room",
    "she has a knife and fork already", "diabetic, so no sugar please", "shaking with excitement", "low on sugar lol",
    "he has a bottle of water",
])
def test_more_that_only_sounds_like_one(text: str) -> None:
    assert not is_emergency(text)


def counts(texts: list[dict[str, str | bool]]) -> tuple[int, int, int]:
    """Turns, emergencies found, and other turns taken for one."""
    taken = [each["emergency"] for each in texts if is_emergency(str(each["text"]))]
    return len(texts), taken.count(True), taken.count(False)


def lines(name: str) -> list[dict[str, str | bool]]:
    return [json.loads(line) for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("name", "expected"), [
    ("emergencies_blind", (200, 94, 3)), ("emergencies_blind2", (200, 97, 4)),
])  # fmt: skip
def test_the_blind_lists(name: str, expected: tuple[int, int, int]) -> None:
    """Half of each list are emergencies.  docs/kiosk.md states the counts, too."""
    assert counts(lines(f"tests/vectors/kiosk/{name}.jsonl")) == expected


def test_the_texts_that_it_learned_from() -> None:
    known = lines("training/emergencies.jsonl")
    assert counts(known) == (5429, 2486, 12)


def test_the_file_holds_what_its_first_line_tells() -> None:
    steps, _, weights = emergencies.table()
    assert all(step > 0 for step in steps) and tuple(map(len, weights)) == emergencies.SIZES
    assert os.path.getsize(emergencies.PATH) < 150_000


def test_a_long_turn_is_read_in_parts() -> None:
    words = [str(number) for number in range(3 * MOST)]
    read = [list(each) for each in parts(words)]
    assert all(len(each) <= MOST for each in read) and [*dict.fromkeys(sum(read, []))] == words
    for start, end in zip(words, words[MOST // 2 :]):  # what is half as long as a part is whole in one
        assert any(start in each and end in each for each in read) or int(end) - int(start) >= MOST // 2
    chat = "we had the soup and a salad and then a coffee by the window and it was all lovely thank you " * 5
    assert not is_emergency(chat) and is_emergency(f"{chat} my husband has collapsed, call an ambulance. {chat}")


@pytest.mark.parametrize(("text", "kind"), [
    ("he's not coming :(", ""), ("grandma is coming too", ""), ("my husband isn't coming today", ""),
    ("she's late", ""),
    ("he's not coming round", "emergency"), ("the baby is coming", "emergency"),
    ("my husband isn't coming to, he is unconscious", "emergency"),
])  # fmt: skip
def test_who_comes_is_no_emergency(text: str, kind: str) -> None:
    assert (guard(load(EXAMPLE), text) or ("",))[0] == kind


def test_nothing_to_read() -> None:
    for text in ("", "   ", "...", "\u200b", "🙂"):
        assert not words_of(text) and list(parts([])) == [[]] and not is_emergency(text)
    assert score("HELP, he is not breathing") == score("help, he is not breathing")


def test_learning() -> None:
    pytest.importorskip("torch", reason="training needs torch")
    from training import emergency_model as training

    def text(say: str, emergency: bool) -> training.Text:
        return training.Text(say, emergency, "list", "", features(words_of(say)))

    known = [text("he is bleeding", True), text("call a doctor", True), text("two teas", False), text("a scone", False)]
    content = training.file(training.learned(known), 0.0)
    assert content == training.file(training.learned(known), 0.0)
    found = training.scores(content, [*known, text("she is bleeding", True), text("three teas", False)])
    assert [each > 0 for each in found] == [True, True, False, False, True, False]
