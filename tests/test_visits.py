"""What the kiosk of the grammar makes of a visit: the line that is meant, the name that was told, the order kept."""

from __future__ import annotations

import re
from itertools import islice
from random import Random

import pytest

from training import grammar
from training.exam.requests import all_requests
from training.grammar import booking, correction, desks, facts, names, order_words, rude, talk, text, values
from training.grammar.counter import Counter
from training.grammar.line import Line, spoken
from training.grammar.shop import Shop
from training.grammar.text import Voice

DIALOGUES = [[said for _, said in dialogue] for dialogue in islice(grammar.dialogues(11), 1200)]
ECHOES = [[said for _, said in dialogue] for dialogue in islice(grammar.echoes(11), 600)]
LINES = [Line("cheese toast", 2), Line("pot of mint tea", 1, "large"), Line("scone", 3, "", "no butter")]


def counter(seed: int, lines: list[Line]) -> Counter:
    rng = Random(seed)
    voice = Voice(rng)
    voice.kind, voice.chatty, voice.typos, voice.small_names = "lower", 0.0, False, False
    found = Counter(rng, voice, Shop("bakery"), "train", "")
    found.order.lines = list(lines)
    return found


# ---- corrections -----------------------------------------------------------------------------------------------------


def test_another_count_changes_the_line_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thing that is named, by all its words or the last, means its line; a number alone the last line."""
    own = [{"cheese", "toast", "toasts"}, {"pot", "pots", "mint", "tea", "teas"}, {"scone", "scones"}]
    seen = set()
    monkeypatch.setattr(correction, "KEPT", 0.0)  # no other line is named
    for seed in range(400):
        visit = counter(seed, LINES)
        correction.say(visit, correction._recount)
        ((asked, reply),) = visit.turns
        changed = [i for i in range(3) if visit.order.lines[i] != LINES[i]]
        assert len(changed) == 1, asked
        words = set(re.findall(r"[a-z]+", asked))
        named = [i for i in range(3) if own[i] & words]
        assert changed == (named or [2]), (asked, reply)
        n = visit.order.lines[changed[0]].n
        assert {text.number(n), str(n), "single"} & set(re.findall(r"\w+", asked)), asked
        assert reply.removeprefix("Certainly. ").startswith(text.sentence(visit.order.text()))
        seen.add((bool(named), changed[0]))
    assert seen == {(True, 0), (True, 1), (True, 2), (False, 2)}


def test_more_of_a_thing_is_added_to_its_line() -> None:
    for seed in range(100):
        visit = counter(seed, LINES)
        correction.say(visit, correction._more)
        added = [new.n - old.n for new, old in zip(visit.order.lines, LINES)]
        asked = visit.turns[0][0]
        assert added.count(0) == 2 and sum(added) in (-1, 1, 2, 3, 4)
        less = re.search(r"\b(?:less|fewer|too many|take off|leave off|remove|drop|cancel)\b", asked)
        assert bool(less) is (sum(added) == -1), asked
        assert less or re.search(r"\b(?:another|more|additional|on top)\b", asked), asked


@pytest.mark.parametrize("change", [correction._resize, correction._swap, correction._drop])
def test_other_changes_leave_other_lines_alone(change) -> None:  # type: ignore[no-untyped-def]
    changed = 0
    for seed in range(60):
        visit = counter(seed, LINES)
        correction.say(visit, change)
        left = visit.order.lines
        kept = sum(line in left for line in LINES)
        assert kept >= 2 and len(left) == (3 if change is not correction._drop else 2)
        changed += kept == 2
        for asked, reply in visit.turns:
            assert reply == text.kindly(asked) + text.sentence(visit.order.text()) + ". Anything else?"
    assert changed > 40


def test_a_last_word_is_used_only_where_it_is_clear() -> None:
    lines = [Line("green tea", 2), Line("mint tea", 2), Line("corner table by the window")]
    rng, voice = Random(1), counter(1, lines).voice
    called = {correction._called(rng, voice, lines, 0, 2) for _ in range(50)}
    assert called == {"green teas"}
    assert {correction._called(rng, voice, lines, 2, 2) for _ in range(50)} == {"corner tables by the window", "tables"}


# ---- orders and bookings are kept ------------------------------------------------------------------------------------


def test_the_order_is_still_known_after_the_name() -> None:
    """What comes up is what was repeated last, and it can be asked for afterwards."""
    coming = asked_again = 0
    for dialogue in DIALOGUES:
        whole = known = ""
        for said in dialogue[1 + len(dialogue) % 2 :: 2]:  # the assistant's
            if found := re.search(r"^(?:Certainly\. |You have )*(.*?)\. (?:Anything else|Which size|Sorry, we)", said):
                whole = found[1]
            if found := re.search(r"Thank you, ((?:[A-Za-z]\. )?.*?)\. (.*), coming up\.$", said):
                coming += 1
                name, known = found[1], found[2]
                if whole and not re.search(r"[$€£]|I do not", whole):  # a bill ends with less
                    assert whole.lower() in (known.lower(), f"{known} for {name}".lower()), dialogue
            elif known and (found := re.fullmatch(r"(?:Certainly\. )?You have (?!the brain)(.*)\.", said)):
                asked_again += 1
                assert found[1].lower().startswith(known.lower()), dialogue
    assert coming > 150 and asked_again > 20


def test_a_booking_can_be_asked_for() -> None:
    heard = set()
    for seed in range(500):
        rng = Random(seed)
        shop = facts.draw(rng, "train", rng.choice(list(desks.COMMON)), told=0.0)
        desk = booking.Desk(rng, Voice(rng), shop, "train")
        desk.fill()
        desk.recall(done=True)
        reply = desk.turns[-1][1].removeprefix("Certainly. ").removesuffix(".")
        assert reply in (f"You have {desk.text()}", reply if reply.startswith("It is ") else ""), reply
        for word in re.findall(r"\w+", reply):
            assert word in ("You", "have", "It", "is", "person", "people", "for") or word in desk.text(), (reply, word)
        heard.add(reply.split()[2])
    assert {"at", "on", "a", "for"} <= heard


# ---- who is who ------------------------------------------------------------------------------------------------------


def test_only_who_says_it_of_himself_has_told_a_name() -> None:
    """"Hello, X!" answers an introduction; a remark about others or the assistant gets a line without its words."""
    for seed in range(3000):
        rng = Random(seed)
        asked, reply = rude.turn(rng, Voice(rng), "train")
        assert reply in (rude.COMPLAINT, rude.NOT_OURS), asked
    introduced = told = 0
    for dialogue in (*DIALOGUES, *ECHOES):
        name = ""
        for asked, reply in zip(dialogue, dialogue[1:]):
            if found := re.fullmatch(r"Hello, (.*)! What can I do for you\?", reply):
                name, introduced = found[1], introduced + 1
                assert name in asked, (asked, reply)
            elif reply == "I do not know your name yet.":
                assert not name, dialogue
            elif name and (found := re.fullmatch(r"Your name is (.*)\.", reply)):
                told += 1
                assert found[1] == name or found[1] in "\n".join(dialogue), dialogue
    assert introduced > 100 and told > 60


def test_remarks_are_none_of_the_exam() -> None:
    asked = {_plain(said) for request in all_requests() if request.subject == "tone" for said in request.said}
    for seed in range(6000):
        rng = Random(seed)
        assert _plain(rude.turn(rng, Voice(rng), "train")[0]) not in asked


def _plain(said: str) -> str:
    return " ".join(re.findall(r"[a-z]+", said.lower()))


def test_who_are_you_and_who_am_i() -> None:
    mine = {reply for _, reply in talk.ASIDES}
    rng = Random(4)
    replies = {reply for _ in range(200) for _, reply in names.who(rng, Voice(rng), "Odile")}
    assert "Your name is Odile." in replies and len(replies & mine) > 5


# ---- jokes, stock ----------------------------------------------------------------------------------------------------


def test_no_joke_comes_twice() -> None:
    several = 0
    for seed in range(200):
        rng = Random(seed)
        told = [reply for _, reply in talk.joke(rng, Voice(rng)) if reply in talk.JOKES]
        assert len(set(told)) == len(told)
        for joke, following in zip(told, told[1:]):
            assert talk.JOKES[(talk.JOKES.index(joke) + 1) % len(talk.JOKES)] == following
        several += len(told) > 1
    assert several > 100


def test_stock() -> None:
    """A yes bears the price of the list, a no all that there is."""
    heard = set()
    for seed in range(200):
        visit = counter(seed, [])
        visit.shop.prices = {} if seed % 4 == 0 else {"rye bread": "$4.50", "mint tea": "$3"}
        visit.ask_stock()
        for asked, reply in visit.turns:
            heard.add(reply.split()[0])
            if reply.startswith("Yes"):
                item = next(each for each in visit.shop.prices if text.plural(each) in asked)
                assert reply == f"Yes, the {item} is {visit.shop.prices[item]}."
            elif reply.startswith("Sorry"):
                assert reply.endswith("We have rye bread $4.50, mint tea $3.") and "rye bread" not in asked
    assert heard == {"Yes,", "Sorry,", "I"}


def test_what_is_not_sold_is_said_and_not_noted() -> None:
    missed = 0
    for seed in range(1500):
        visit = counter(seed, [])
        visit.shop.prices = {"rye bread": "$4.50", "mint tea": "$3", "scone": "$2.50", "plum pie": "$4"}
        visit.add(order_words.WANT)
        for asked, reply in visit.turns:
            if found := re.search(r"\. Sorry, we do not have (.*?)\. ", reply):
                missed += 1
                assert not any(text.plural(line.item) == found[1] for line in visit.order.lines), reply
                assert found[1][:3] in asked and reply.endswith("Anything else?"), (asked, reply)
    assert missed > 50


# ---- values ----------------------------------------------------------------------------------------------------------


def test_titles_with_little_words() -> None:
    rng = Random(3)
    titles = [values.title(rng, "train") for _ in range(1000)]
    within = [each for each in titles if re.search(r" (?:for|at|on|in|to|with|from|by) ", each)]
    assert len(within) > 150
    assert any(re.search(r" for (?:Two|Three|Four|Five)$", each) for each in titles)


def test_what_holds_and_where_it_stands() -> None:
    assert text.plural("corner table by the window") == "corner tables by the window"
    assert text.plural("pot of mint tea") == "pots of mint tea"
    line = Line("corner table by the window", 1)
    found = {spoken(Random(seed), counter(seed, []).voice, line) for seed in range(60)}
    assert "the corner table by the window" in found and line.text() == "one corner table by the window"
