"""A visit at a kiosk: guards, what is said, orders delivered exactly once, the command, the service."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import EdgeError, InvalidFile
from edge.kiosk import guards, say
from edge.kiosk.check import check
from edge.kiosk.deliver import Command, File, delivery
from edge.kiosk.emergencies import is_emergency
from edge.kiosk.guards import LONGEST, is_foreign
from edge.kiosk.house import EXAMPLE, House, load, parse
from edge.kiosk.operations import DENY
from edge.kiosk.reading import Understood
from edge.kiosk.state import State
from edge.kiosk.visit import NOT_DONE, SENT, Visit, event
from tests.http_service import serving
from tests.services import REAL, ROOT, Manager, Talk, environment, service, short_folder
from tests.terminal import CTRL_D, Terminal

HOUSE = load(EXAMPLE)


def settled(visit: Visit, text: str) -> str:
    """The reply to a turn; "yes" is said where the kiosk asks whether it understood the turn."""
    turn = visit.turn(text)
    return visit.turn("yes").say if turn.unsure else turn.say


def talk(*turns: str, house: House = HOUSE) -> list[str]:
    visit = Visit(house)
    return [visit.turn(turn).say for turn in turns]


@pytest.mark.parametrize(("text", "missed"), [
    ("a large latte and a scone please", "“scone”"), ("two scones and a large latte", "“scones”"),
    ("I'd like a scone", "“scone”"), ("a large latte, please. A warm scone too.", "“warm scone”"),
])  # fmt: skip
def test_what_the_menu_does_not_have_is_named(text: str, missed: str) -> None:
    visit = Visit(HOUSE)
    assert f"I could not find {missed} on the menu." in visit.turn(text).say
    assert [(line.item, line.count) for line in visit.state.lines] == ([("Latte", 1)] if "latte" in text else [])


TABLE = "a table for four tomorrow at 7pm, the name is Miller"


@pytest.mark.parametrize(("turns", "order"), [
    # sizes that were asked for
    (["a cappuccino and an orange juice", "small cappuccino", "large juice"],
     ["1 small Cappuccino", "1 large Orange juice"]),
    (["a hot chocolate and an orange juice", "small and large"], ["1 small Hot chocolate", "1 large Orange juice"]),
    (["3 cappuccinos", "one small and two large"], ["1 small Cappuccino", "2 × large Cappuccino"]),
    (["one large and one small latte and a brownie"], ["1 large Latte", "1 small Latte", "1 Brownie"]),
    (["two large and a small latte with sugar"], ["2 × large Latte", "1 small Latte with sugar"]),
    (["a latte", "and a small latte"], ["1 Latte", "1 small Latte"]),
    # corrections
    (["a small latte with soy milk", "no wait, oat milk"], ["1 small Latte with oat milk"]),
    (["two green teas with lemon", "one without lemon"], ["1 Green tea with lemon", "1 Green tea"]),
    (["a flat white", "no tea"], ["1 Flat white"]),
    (["a brownie, a croissant and a green tea", "remove everything except the brownie"], ["1 Brownie"]),
    (["a brownie and a croissant", "keep only the brownie"], ["1 Brownie"]),
    (["16 brownies", "five fewer brownies"], ["11 × Brownie"]),
    (["a small cappuccino with soy, and a flat white with an extra shot", "take it out of the flat white",
      "swap the soy for oat"], ["1 small Cappuccino with oat milk", "1 Flat white"]),
    (["four teas, two green, two black"], ["2 × Green tea", "2 × Black tea"]),
    (["two teas", "one green and one black"], ["1 Green tea", "1 Black tea"]),
    (["6 croissants, half with butter"], ["3 × Croissant", "3 × Croissant with butter"]),
    (["3 brownies", "no i say 2 brownies"], ["2 × Brownie"]),
    (["a cup of soup and a bowl of soup", "lemon in the cup please"],
     ["1 cup Lentil soup with lemon", "1 bowl Lentil soup"]),
    (["3 croissants", "take away one croissant"], ["2 × Croissant"]),
    (["3 croissants, 2 with butter", "and 2 more with butter"], ["1 Croissant", "4 × Croissant with butter"]),
    (["a bagel with cheese and tomato, and my friend will have the same but without cheese"],
     ["1 Avocado bagel with cheese and tomato", "1 Avocado bagel with tomato"]),
    (["a large cappuccino", "same for me"], ["2 × large Cappuccino"]),
    (["two flat whites", "no, three flat whites"], ["3 × Flat white"]),
    (["two flat whites", "No. Three flat whites"], ["3 × Flat white"]),
    (["two flat whites", "that's all", "no, I said three flat whites"], ["3 × Flat white"]),
    (["two flat whites", "no, and three flat whites"], ["5 × Flat white"]),
    (["two flat whites", "no, also three flat whites"], ["5 × Flat white"]),
    (["two flat whites", "no, three more flat whites"], ["5 × Flat white"]),
    (["two large lattes", "no, three large lattes please"], ["3 × large Latte"]),
    (["three large lattes", "no, two large lattes"], ["2 × large Latte"]),
    (["three lattes", "no, two large lattes"], ["2 × large Latte"]),
    (["two croissants", "no, one croissant with butter"], ["1 Croissant", "1 Croissant with butter"]),
    (["three small cappuccinos", "two of them with soy milk"],
     ["1 small Cappuccino", "2 × small Cappuccino with soy milk"]),
    # sizes that are named by what they are
    (["an espresso", "the big one"], ["1 double Espresso"]),
    (["a latte", "smaller"], ["1 small Latte"]),
    (["an espresso", "I don't care"], ["1 single Espresso"]),
    # a question stays open beside others
    (["two teas", "what?", "black please"], ["2 × Black tea"]),
    (["two teas", "what's the wifi password?", "hello", "green"], ["2 × Green tea"]),
    # in long sentences
    (["We are three: my son wants a brownie and I'd like a flat white"], ["1 Brownie", "1 Flat white"]),
    (["I'd like a cheese toastie, with tomato if that's not too much trouble, and a brownie"],
     ["1 Cheese toastie with tomato", "1 Brownie"]),
    (["do you know what, a brownie and a croissant"], ["1 Brownie", "1 Croissant"]),
    (["2x brownie"], ["2 × Brownie"]),
])  # fmt: skip
def test_nothing_is_dropped_or_doubled(turns: list[str], order: list[str]) -> None:
    visit = Visit(HOUSE)
    said = [visit.turn(turn).say for turn in turns]
    assert [each["text"] for each in visit.shown()["lines"]] == order
    assert not any("could not" in each for each in said)


@pytest.mark.parametrize(("turns", "order"), [
    # one of several, and all of several
    (["3 green teas and 2 black teas", "one of the green teas should be black"], ["2 × Green tea", "3 × Black tea"]),
    (["2 green teas and 3 black teas", "make two of them black"], ["5 × Black tea"]),
    (["a green tea and a black tea", "change all teas to sparkling water"], ["2 × Sparkling water"]),
    (["a brownie and two blueberry muffins", "remove everything but the muffins"], ["2 × Blueberry muffin"]),
    (["two croissants", "swap a croissant for a brownie"], ["1 Croissant", "1 Brownie"]),
    (["an espresso, double", "make the double an americano"], ["1 Americano"]),
    (["two small and two large americanos", "one of the large ones should be a latte"],
     ["2 × small Americano", "1 large Americano", "1 large Latte"]),
    (["a large latte and a small cappuccino", "swap the latte and the cappuccino sizes"],
     ["1 small Latte", "1 large Cappuccino"]),
    (["a croissant and a brownie", "replace everything with a muffin"], ["1 Blueberry muffin"]),
    (["a green tea and a still water", "all of them sparkling water"], ["2 × Sparkling water"]),
    (["a muffin and two brownies", "take one of each away"], ["1 Brownie"]),
    (["a small latte and a large latte", "remove the latte"], []),
    (["a small cappuccino and a large cappuccino", "no cappuccino"], []),
    (["a green tea with lemon and a black tea with lemon", "take the lemon out"], ["1 Green tea", "1 Black tea"]),
    # which of them
    (["two cappuccinos, one small one large", "the large with soy and the small with oat"],
     ["1 small Cappuccino with oat milk", "1 large Cappuccino with soy milk"]),
    (["two flat whites, one with soy milk", "the other with oat milk"],
     ["1 Flat white with oat milk", "1 Flat white with soy milk"]),
    (["a large latte", "another small one"], ["1 large Latte", "1 small Latte"]),
    (["two large lattes", "add soy milk to the first one"], ["1 large Latte", "1 large Latte with soy milk"]),
    (["a brownie and a sparkling water", "i'd rather have still water"], ["1 Brownie", "1 Still water"]),
    (["a large latte", "make it two with oat milk"], ["2 × large Latte with oat milk"]),
    (["a cappuccino for me and the same for my friend"], ["2 × Cappuccino"]),
    (["a large latte", "done", "no remove it"], []),
    # no slips for what is ordered
    (["the quick brown fox jumps over the lazy dog"], []),
])  # fmt: skip
def test_what_is_changed_of_several(turns: list[str], order: list[str]) -> None:
    visit = Visit(HOUSE)
    said = [visit.turn(turn).say for turn in turns]
    assert [each["text"] for each in visit.shown()["lines"]] == order
    assert not any("could not note" in each for each in said)


@pytest.mark.parametrize(("turns", "says", "order"), [
    (["a small latte and a large latte", "remove one latte"], "note “remove one latte”", 2),
    (["a large latte and a large cappuccino", "take away the large one"], "note “take away the large one”", 2),
    (["a flat white", "swap the soy one for a latte"], "note “swap the soy one for a latte”", 1),
    (["a large latte", "remove oat milk"], "There is no oat milk in your order.", 1),
    (["a black tea with sugar", "less sugar"], "note “less sugar”", 1),
    (["a large latte", "oat or soy milk, whichever"], "note “oat or soy milk”", 1),
    (["a muffin", "two or three croissants"], "note “two or three croissants”", 1),
    (["a large latte for takeaway and a brownie to eat in"], "note “for takeaway” or “to eat in”", 2),
    (["a large latte in my own cup"], "note “in my own cup”", 1),
    (["a croissant", "warm it up please"], "note “warm it up”", 1),
    (["a large latte to go"], "note “to go”", 1), (["a few muffins"], "note “a few”", 1),
])  # fmt: skip
def test_what_is_unclear_is_said_and_changes_nothing(turns: list[str], says: str, order: int) -> None:
    visit = Visit(HOUSE)
    said = [visit.turn(turn).say for turn in turns]
    assert says in said[-1]
    assert len(visit.state.lines) == order


@pytest.mark.parametrize("cancels", ["cancel the table", "forget the booking", "cancel my reservation please"])
def test_a_booking_is_cancelled_beside_an_order(cancels: str) -> None:
    visit = Visit(HOUSE)
    for turn in (TABLE, "a flat white"):
        visit.turn(turn)
    assert visit.turn(cancels).say == "Table: cancelled. Anything else?"
    assert not visit.state.bookings and [line.item for line in visit.state.lines] == ["Flat white"]
    visit = Visit(HOUSE)
    for turn in (TABLE, "a flat white", "that's all", f"no, {cancels}"):
        said = visit.turn(turn).say
    assert "Table: cancelled." in said and "Flat white" in said and said.endswith("Is that right?")
    order = visit.turn("yes").order
    assert order and order["bookings"] == {} and order["lines"][0]["item"] == "Flat white"


def test_anything_else() -> None:
    """After an order or a booking that is complete: no ends it; after an order, yes does not."""
    for first in ("a flat white", TABLE):
        visit = Visit(HOUSE)
        assert visit.turn(first).say.endswith("Anything else?")
        if first != TABLE:
            assert visit.turn("yes").say == "What else would you like?"
        assert visit.turn("yes" if first == TABLE else "no").say.endswith("Is that right?")
        assert visit.turn("no").say == "What should be different?" and not visit.state.done
        assert visit.turn("that's right").say.endswith("Is that right?")
        assert visit.turn("yes").order
    visit = Visit(HOUSE)
    visit.turn("a latte")
    assert visit.turn("no").say == "All right." and not visit.state.done  # "Latte: small or large?"
    assert Visit(HOUSE).turn("no").operations == (DENY,)
    assert talk(TABLE, "cancel that")[1] == "Table: cancelled. Anything else?"


@pytest.mark.parametrize("text", ["1e9 brownies", "3.5 brownies", "1/2 brownie", "a billion teas", "1,000 brownies"])
def test_no_fraction_is_taken_for_a_count(text: str) -> None:
    visit = Visit(HOUSE)
    assert visit.turn(f"add {text}").say == "You can order 1 to 99 of one thing." and visit.state.empty


@pytest.mark.parametrize("text", ["make the latte a medium", "make it medium", "medium please"])
def test_a_size_that_there_is_not_is_named(text: str) -> None:
    visit = Visit(HOUSE)
    visit.turn("a latte")
    said = visit.turn(text).say
    assert "I could not note “medium”." in said and said.endswith("Latte: small or large?")
    assert [line["text"] for line in visit.shown()["lines"]] == ["1 Latte"]


def test_an_open_question_is_given_up_after_a_while() -> None:
    said = talk("two teas", "hm?", "hm?", "hm?", "hm?")
    assert [each.endswith("“teas”: Green tea or Black tea?") for each in said] == [True] * 4 + [False]


@pytest.mark.parametrize("text", ["this cake is to die for", "12345", "the carrot cake looks lovely"])
def test_what_orders_nothing_is_not_understood(text: str) -> None:
    assert talk(text) == [HOUSE.texts["unclear"]]


def test_a_name_of_two_letters() -> None:
    assert "name Li. Anything else?" in talk("table for 3 tonight 8pm name Li")[0]


def test_the_bundled_model_takes_no_orders() -> None:
    path = next((ROOT / "edge" / "bundled").glob("*.gguf"), None)
    for model in ("bundled", *([str(path)] if path else [])):
        done = subprocess.run(
            [sys.executable, "-m", "edge", "kiosk", "-m", model], input=b"a latte\n", capture_output=True, timeout=300,
            cwd=ROOT, env=environment(),
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
        assert b"the kiosk needs no model" in done.stderr


def test_nobody_leaves_without_hearing_what_was_ordered() -> None:
    visit = Visit(HOUSE)
    visit.turn("a croissant")
    assert visit.turn("bye").say == "Your order: 1 Croissant. That is €2.10. Is that right?"
    assert talk("ok thanks bye") == ["Goodbye."]


def test_a_number_alone_asks_nothing() -> None:
    assert talk("two", "10") == [HOUSE.texts["unclear"]] * 2


def test_the_rest_of_a_time_and_a_name_in_two_parts() -> None:
    said = talk("can I reserve for Saturday?", "7", "pm", "4", "Smith, John")
    assert said[-1] == "Table: day Saturday, time 7 pm, people 4, name Smith, John. Anything else?"
    assert "name" not in talk("can I reserve for Saturday at 7 pm for 4?", "yes, please")[-1].partition("under")[0]


def test_two_tables_and_yesterday_are_not_booked_in_silence() -> None:
    assert "could not note “two tables”" in talk("can I book two tables")[0]
    assert talk("a table for two", "yesterday")[1].startswith("“yesterday” cannot be booked.")


def test_wishes_for_more_of_an_extra_are_named() -> None:
    visit = Visit(HOUSE)
    assert "could not note “half”" in talk("5 croissants, half with butter")[0]
    assert "could not note “two sugars”" in visit.turn("a flat white with two sugars").say
    assert visit.state.lines[0].extras == ("sugar",)


@pytest.mark.parametrize("text", [
    "a large latte and a brownie", "a bottle of orange juice and a bowl of soup",
    "two large lattes for me and a friend",
    "a large latte and a bit of sugar", "two more of those", "a table for two and a question",
])  # fmt: skip
def test_nothing_is_named_that_was_not_ordered(text: str) -> None:
    assert "could not find" not in Visit(HOUSE).turn(text).say


@pytest.mark.parametrize(("text", "wish", "item"), [
    ("a brownie without nuts", "without nuts", "Brownie"), ("a vegan brownie", "vegan", "Brownie"),
    ("flat white, gluten free please", "gluten free", "Flat white"), ("a latte without foam", "without foam", "Latte"),
    ("a decaf flat white", "decaf", "Flat white"), ("an iced latte", "iced", "Latte"),
    ("flat white with cheese", "with cheese", "Flat white"), ("a medium latte", "medium", "Latte"),
    ("half a croissant", "half", "Croissant"), ("a large croissant", "large", "Croissant"),
    ("can I have a gluten-free brownie?", "gluten-free", "Brownie"),
    ("a flat white with 2% milk", "2% milk", "Flat white"),
])  # fmt: skip
def test_a_wish_without_a_place_in_the_order_is_named(text: str, wish: str, item: str) -> None:
    visit = Visit(HOUSE)
    assert f"I could not note “{wish}”. Please ask a member of staff." in visit.turn(text).say
    assert [(line.item, line.count) for line in visit.state.lines] == [(item, 1)]


def test_a_wish_after_the_order_is_named() -> None:
    said = talk("a brownie", "no nuts please", "without nuts", "make it decaf", "with cheese")
    for text, wish in zip(said[1:], ("no nuts", "without nuts", "decaf", "cheese")):
        assert f"I could not note “{wish}”." in text


@pytest.mark.parametrize("text", [
    "a latte with oat milk, no rush", "a large latte with a friend", "a small oat milk latte and a nice brownie",
    "I'd like two large lattes, no sugar, thanks", "half a dozen croissants", "hello latte please",
    "a plain croissant with butter", "no thanks, a brownie",
])  # fmt: skip
def test_nothing_is_named_that_is_not_a_wish(text: str) -> None:
    assert "could not note" not in Visit(HOUSE).turn(text).say


@pytest.mark.parametrize(("text", "fact"), [
    ("I am allergic to nuts, what can I have?", 10), ("I am allergic to nuts", 10),
    ("I am vegan, what can I have?", 11),
    ("my son has a fish allergy, what can he eat?", 11), ("I am allergic to nuts. A brownie please", 10),
])  # fmt: skip
def test_a_stated_allergy_is_never_answered_with_the_menu(text: str, fact: int) -> None:
    visit = Visit(HOUSE)
    said = visit.turn(text).say
    assert said.startswith(f"{HOUSE.facts[fact]} {HOUSE.texts['allergy']}") and "You can order" not in said
    assert bool(visit.state.lines) == ("A brownie" in text)


@pytest.mark.parametrize("text", [
    "150 lattes", "ten thousand lattes", "1000 large lattes and a soup", "-3 espressos", "0 lattes", "zero lattes",
])
def test_more_than_can_be_ordered_is_refused(text: str) -> None:
    visit = Visit(HOUSE)
    assert visit.turn(text).say == "You can order 1 to 99 of one thing."
    assert not visit.state.lines


@pytest.mark.parametrize("text", [
    "My wife is having a heart attack", "he can't breathe!", "someone collapsed by the door", "call an ambulance",
    "I want to kill myself", "i dont want to live anymore", "there is a fire in the kitchen", "she's choking",
    "my son is missing", "I'm bleeding", "HELP ME", "he has a knife", "I took too many pills", "my baby won't wake up",
    "two coffees and my dad has passed out", "I think I\u2019m having a stroke", "he's clutching his chest",
    "my grandad has gone all grey", "she dropped to the ground", "the baby swallowed a coin", "my throat's closing up",
    "there's no reason to stay alive", "I can't see a way out", "i'm going into labour", "someone got run over",
    "hilfe, mein Vater atmet nicht", "au secours", "ayuda, mi hijo no respira", "aiuto", "pomocy", "救命",
])
def test_emergencies_reach_the_owners_text(text: str) -> None:
    visit = Visit(HOUSE)
    visit.turn("two croissants")
    before = visit.state
    turn = visit.turn(text)
    assert turn.say == HOUSE.texts["emergency"] and turn.guard == "emergency" and visit.state == before


def test_an_endless_turn_is_not_searched_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took a minute, in which nobody was answered."""
    searched: list[int] = []
    monkeypatch.setattr(guards, "is_emergency", lambda text: searched.append(len(text)) or is_emergency(text))
    assert Visit(HOUSE).turn("tea " * 1_000_000).guard == "long"
    assert searched and max(searched) <= guards.READ + 1
    for text in ("call an ambulance " + "tea " * 100_000, "tea " * 100_000 + "call an ambulance"):
        assert Visit(HOUSE).turn(text).guard == "emergency"


def test_other_languages_and_long_turns() -> None:
    for text in ("Ich möchte bitte einen Kaffee haben", "je voudrais un café s'il vous plaît", "コーヒーをください",
                 "quiero un café por favor"):
        assert is_foreign(text), text
    for text in ("a latte", "two flat whites", "do you have gluten free", "table for four", "croissant"):
        assert not is_foreign(text), text
    assert talk("x" * (LONGEST + 1)) == [HOUSE.texts["long"]]


def test_a_whole_visit() -> None:
    orders: list[dict[str, Any]] = []
    visit = Visit(HOUSE, orders.append)
    said = [visit.turn(text).say for text in (
        "a large latte with oat milk and two brownies please", "make it one brownie", "do you take dogs?",
        "What is the capital of France?", "that's all", "yes")]
    assert said[0] == ("Your order: 1 large Latte with oat milk and 2 × Brownie. That is €11.20. Anything else?")
    assert said[1].startswith("Your order: 1 large Latte with oat milk and 1 Brownie. That is €7.80.")
    assert said[2] == HOUSE.facts[4]
    assert said[3] == HOUSE.texts["unknown"]
    assert said[4].endswith("Is that right?") and "€7.80" in said[4]
    assert said[5].startswith("Thank you.")
    [order] = orders
    assert order["total"] == 780 and [line["item"] for line in order["lines"]] == ["Latte", "Brownie"]
    assert visit.state.empty


@pytest.mark.parametrize("turns", [
    ["that's all", "yes"], ["cancel the table", "that's all", "yes"],
    ["a brownie", "cancel my order", "that's all", "yes"], ["a brownie", "remove the brownie", "that's all", "yes"],
    ["that's all", "order"],
    ["a table for two tomorrow at 7", "cancel the table", "that's all", "yes"],
])  # fmt: skip
def test_nothing_empty_is_delivered(turns: list[str]) -> None:
    orders: list[dict[str, Any]] = []
    visit = Visit(HOUSE, orders.append)
    for text in turns:
        assert visit.turn(text).order is None, text
        assert not visit.state.confirmed
    assert orders == [] and visit.state.empty


def test_after_goodbye_the_visit_starts_anew() -> None:
    visit = Visit(HOUSE)
    visit.turn("my name is Anna")
    assert visit.state.name == "Anna"
    assert visit.turn("that's all").say == "Goodbye." and visit.state == State()


@pytest.mark.parametrize(("turns", "count", "end"), [
    (["make it two", "no, three"], 3, "Anything else?"), (["make it two", "no, three please"], 3, "Anything else?"),
    (["make it two", "that's all", "no, three please"], 3, "Is that right?"),
    (["that's all", "no wait, two"], 2, "Is that right?"), (["can we have 2 more"], 3, "Anything else?"),
    (["order"], 1, "Is that right?"),
])  # fmt: skip
def test_counts_are_corrected(turns: list[str], count: int, end: str) -> None:
    visit = Visit(HOUSE)
    said = [visit.turn(text).say for text in ("a flat white", *turns)]
    assert [line.count for line in visit.state.lines] == [count]
    assert said[-1].endswith(end) and said[-1].count("Your order") == 1
    assert (visit.turn("yes").order is not None) == (end == "Is that right?")


@pytest.mark.parametrize(("text", "wrong", "kept"), [
    ("a table for 0 people tomorrow at 25:00", ("25:00", "0"), {"day": "tomorrow"}),
    ("a table for two on 31 February at 7 pm", ("31 February",), {"time": "7 pm", "people": "2"}),
    ("a table for two on 30/02 at 7:75", ("30/02", "7:75"), {"people": "2"}),
    ("a table for two on 29 February at 23:59", (), {"day": "29 February", "time": "23:59", "people": "2"}),
])  # fmt: skip
def test_what_there_is_not_cannot_be_booked(text: str, wrong: tuple[str, ...], kept: dict[str, str]) -> None:
    visit = Visit(HOUSE)
    said = visit.turn(text).say
    assert visit.state.bookings == {"table": kept}
    assert all(f"“{each}”" in said for each in wrong) and ("cannot be booked" in said) == bool(wrong)
    assert said.endswith("?")


def test_an_impossible_answer_is_asked_again() -> None:
    said = talk("a table for two tomorrow", "25:00", "7 pm")
    assert "“25:00” cannot be booked." in said[1] and said[1].endswith("at what time?")
    assert "time 7 pm" in said[2]
    assert talk("a table tomorrow at 7 pm", "-2")[1] == "“-2” cannot be booked. Table: for how many?"


def test_cancel_everything_and_order() -> None:
    assert talk("cancel everything") == ["Your order is empty."]
    assert talk("a flat white", "that's all", "cancel everything", "that's all")[-1] == "Goodbye."
    assert talk("order")[0].startswith("You can order: Espresso")


def test_what_could_be_two_things_is_asked() -> None:
    visit = Visit(HOUSE)
    assert visit.turn("3 teas").say.startswith("“teas”: Green tea or Black tea?")
    assert visit.state.empty
    assert "3 × Green tea" in visit.turn("green").say


def test_a_missing_size_and_a_booking_are_asked_for() -> None:
    said = talk("a latte", "large", "a table for four tomorrow at 7", "Anna", "that is all", "no")
    assert said[0].endswith("Latte: small or large?") and "1 large Latte" in said[1]
    assert "under which name?" in said[2] and "name Anna" in said[3]
    assert said[4].endswith("Is that right?") and said[5].endswith("What should be different?")


def test_an_order_that_cannot_be_passed_on_stays_open() -> None:
    def fail(_: Any) -> None:
        raise OSError("no")

    visit = Visit(HOUSE, fail)
    visit.turn("a croissant")
    visit.turn("that's all")
    assert "could not be passed on" in visit.turn("yes").say
    assert not visit.state.empty


ALPHABET = sorted({word for item in HOUSE.items for word in item.name.split()} | set(
    "no not without with two a the remove instead of large small and , . ? ! please that all yes start again book "
    "table tomorrow 7 pm name Anna 99 1000000 do you have dogs what is".split()))


@given(st.lists(st.lists(st.sampled_from(ALPHABET), max_size=12).map(" ".join), max_size=6))
def test_whatever_is_said_the_words_are_the_owners_or_the_guests(turns: list[str]) -> None:
    """By construction: a template's word, the owner's or the guest's; and every total is right."""
    visit = Visit(HOUSE)
    for text in turns:
        turn = visit.turn(text)
        assert turn.say and len(turn.say) < 4000
        state = event(visit, turn)["state"]
        known = [line["price"] for line in state["lines"]]
        assert state["total"] == (None if None in known else sum(known))


@given(st.text(max_size=300))
def test_any_text_is_answered(text: str) -> None:
    assert Visit(HOUSE).turn(text).say


# ---- orders -------------------------------------------------------------------------------------------------------


def test_orders_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(b'{"id":"cut')  # the power went while it was written
    deliver = File(str(path))
    deliver({"id": "a"})
    deliver({"id": "b"})
    lines = path.read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines[1:]] == ["a", "b"]
    with pytest.raises(EdgeError, match="cannot write orders"):
        File(str(tmp_path / "no" / "x"))


def test_orders_survive_being_killed(tmp_path: Path) -> None:
    """Killed at any moment: an order is in the file once if the guest was thanked, and never twice."""
    house = tmp_path / "house.toml"
    house.write_text('name = "H"\n[[items]]\nname = "Tea"\nprice = 1\n[orders]\nfile = "orders.jsonl"\n')
    thanked = 0
    for i in range(6):
        child = subprocess.Popen([*REAL, "kiosk", str(house), "--jsonl"], cwd=ROOT, env=environment(),
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        for text in ("a tea", "that's all", "yes"):
            child.stdin.write(json.dumps({"text": text}) + "\n")
        child.stdin.flush()
        for _ in range(i % 4):
            line = child.stdout.readline()
            thanked += '"order"' in line
        child.send_signal(signal.SIGKILL)
        rest = child.communicate()[0]
        thanked += rest.count('"order"')
    path = tmp_path / "orders.jsonl"
    ids = [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []
    assert len(set(ids)) == len(ids) >= thanked


def test_orders_to_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = tmp_path / "take"
    script.write_text('#!/bin/sh\n[ -e "$OUT.fail" ]; ok=$?\ncat >> "$OUT"\n[ $ok = 1 ]\n')  # decided before it writes
    script.chmod(0o755)
    out = tmp_path / "out"
    monkeypatch.setenv("OUT", str(out))
    deliver = Command((str(script),), str(tmp_path))

    def until(n: int, left: int) -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            written = len(out.read_text().splitlines()) if out.exists() else 0
            if (written, len(list(Path(deliver.spool).iterdir()))) == (n, left):
                return
            time.sleep(0.02)
        raise AssertionError((out.read_text(), os.listdir(deliver.spool)))

    deliver({"id": "one"})
    until(1, 0)
    (tmp_path / "out.fail").touch()
    deliver({"id": "two"})
    until(2, 1)  # failed: kept
    (tmp_path / "out.fail").unlink()
    Command((str(script),), str(tmp_path))  # the next start tries it again
    until(3, 0)
    with pytest.raises(EdgeError, match="cannot write|cannot run"):
        delivery(parse('name = "H"\n[orders]\nfile = "no/such/folder/x"\n'), str(tmp_path), print)


# ---- the commands -------------------------------------------------------------------------------------------------


def kiosk(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REAL, "kiosk", *arguments], cwd=ROOT, env=environment(), input=stdin,
                          capture_output=True, text=True, timeout=120)


def test_the_command_in_a_pipe() -> None:
    done = kiosk(stdin="a croissant\n/order\n/facts\n/menu\nthat is all\nyes\n")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == HOUSE.texts["greeting"] and "Croissant" in lines[1] and "€2.10" in lines[2]
    assert any(line.strip().endswith(HOUSE.facts[1]) for line in lines)
    assert "    with milk, oat milk €0.50, soy milk €0.40, whipped cream €0.60" in lines
    assert [json.loads(line)["total"] for line in lines if line.startswith("{")] == [210]


def test_on_a_terminal_a_note_says_what_the_order_is() -> None:
    with Terminal([*REAL, "kiosk"], environment()) as terminal:
        for turn, reply in (("a croissant", "Anything else"), ("that is all", "Is that right"), ("yes", "Thank you")):
            terminal.taken_over()
            terminal.line(turn)
            seen = terminal.expect(re.escape(reply))
        assert re.search(r"The order, for the program that reads this output.*\n\{\"id\"", seen)
        terminal.taken_over()
        terminal.type(CTRL_D)
        assert terminal.wait() == 0


def test_jsonl() -> None:
    wrong = ["{", '{"text": 7}', "[]", '{"foo": 1}']
    requests = ['{"text": "two espressos"}', *wrong, '{"op": "new"}', '{"text": "hello"}']
    done = kiosk("--jsonl", stdin="\n".join(requests) + "\n")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["ev"] for each in events] == ["ready", "turn", *["error"] * 4, "new", "turn"]
    said = {each["message"] for each in events[2:6] if each["code"] == "bad_request"}
    assert said == {"text is not a string", "text is missing"}
    assert events[1]["operations"] == ['add 2 "Espresso"'] and events[1]["state"]["lines"][0]["count"] == 2
    assert events[7]["state"]["lines"] == []


TEA = 'name = "H"\n[[items]]\nname = "Tea"\nprice = 1\n[[items]]\nname = "Cake"\nprice = 3\n[orders]\n'


def said(client: Talk, text: str) -> Any:
    client.send({"text": text, "id": text})
    event = client.next()
    assert event["ev"] == "turn" and event["id"] == text
    return event


def test_guests_on_a_socket_do_not_meet(tmp_path: Path) -> None:
    """Each client is a visit of its own; each order is delivered once and told once; mistakes are answered in order."""
    house = tmp_path / "house.toml"
    house.write_text(TEA + 'file = "orders.jsonl"\n')
    with short_folder() as folder, contextlib.closing(Manager(folder)) as manager:
        path = folder / "socket"
        environ = manager.environment(1.0)
        with service(path, start=("kiosk", str(house)), **environ) as process, contextlib.ExitStack() as s:
            manager.expect("READY=1")
            one, two, bad = (s.enter_context(Talk(path)) for _ in range(3))
            for client in (one, two, bad):
                assert client.next() == {"ev": "ready", "v": 1, "house": "H", "say": "Hello. What would you like?"}
            assert said(one, "two teas")["operations"] == ['add 2 "Tea"']
            assert said(two, "a cake")["state"]["total"] == 300
            assert said(one, "that's all")["state"]["total"] == 200
            bad.send(b'{"foo": 1}\n')
            missing = bad.next()
            assert (missing["code"], missing["message"]) == ("bad_request", "text is missing")
            bad.send(b'{"text": 7}\n{\n{"op": "fly"}\n\xff\n{"op":"ping","id":1}\n' + b"x" * (5 << 20) + b"\n")
            codes = [bad.next().get("code", "pong") for _ in range(6)]
            assert codes == ["bad_request", "bad_json", "unknown_op", "bad_json", "pong", "too_long"]
            order = said(one, "yes")["order"]
            assert order["total"] == 200 and said(one, "yes").get("order") is None
            two.send({"op": "new"})
            assert two.next()["ev"] == "new" and said(two, "that's all")["state"]["lines"] == []
            two.send({"text": "a cake", "id": 1})
            two.send({"text": "that's all", "id": 2})
            two.send({"text": "yes", "id": 3})
            two.close()  # it does not wait for the answer: what it has confirmed is an order all the same
            deadline = time.monotonic() + 300
            while len((tmp_path / "orders.jsonl").read_text().splitlines()) < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert "WATCHDOG=1" in manager.hear(1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 143
        assert not path.exists()
    orders = [json.loads(line) for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    assert [each["total"] for each in orders] == [200, 300] and orders[0] == order


def test_orders_of_a_socket_to_standard_output(tmp_path: Path) -> None:
    house = tmp_path / "house.toml"
    house.write_text(TEA + 'to = "stdout"\n')
    with short_folder() as folder, service(folder / "s", start=("kiosk", str(house))) as process, \
            Talk(folder / "s") as one:
        one.next()
        for text in ("a tea", "that's all", "yes"):
            order = said(one, text).get("order")
        assert process.stdout and json.loads(process.stdout.readline()) == order


def test_check_and_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "house.toml"
    path.write_text('name = "H"\nfacts = ["We are open on Monday from 9:00.", "We are closed on Monday.", "Yes."]\n'
                    '[extras]\nham = 1\n[[items]]\nname = "Tea"\nothers = ["ham"]\nprice = 1\n')
    done = kiosk("check", str(path))
    assert done.returncode == 0
    for doubt in ("contradict each other about Monday", "too few words", "belongs to no item", "tell them apart"):
        assert doubt in done.stdout, doubt
    path.write_text('name = "H"\n[[items]]\nname = "Tea"\n')
    done = kiosk("check", str(path))
    assert done.returncode == 4 and "line 2" in done.stderr and done.stderr.count("\n") == 1
    path.write_text('name = "H"\n[[items]]\nname = "Tea"\n[texts]\nbye = "Bye"\n')
    done = kiosk("check", str(path))
    mistakes = [f'{path}, line 2: "Tea" needs a price; 0 for what is free',
                f'{path}, line 5: "bye" is unknown; '
                "known: allergy, emergency, greeting, language, long, unclear, unknown"]
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines() == [f"bitnet-edge: {mistake}" for mistake in mistakes]
    done = kiosk("check", "--json", str(path))
    assert done.returncode == 4 and json.loads(done.stdout) == {"mistakes": mistakes}
    done = kiosk(str(path))  # a kiosk that starts, too, says that there are more
    assert done.returncode == 4 and done.stderr.count("\n") == 1
    assert f"{mistakes[0]} (1 more mistake: see bitnet-edge kiosk check)" in done.stderr
    assert list(check(load(EXAMPLE))) == [
        'finished orders go to standard output; [orders] file = "orders.jsonl" keeps them']
    with pytest.raises(InvalidFile):
        load(tmp_path / "none.toml")


def test_help_shows_the_options_and_errors_the_whole_path(tmp_path: Path) -> None:
    shown = kiosk("--help").stdout
    assert all(each in shown for each in ("--jsonl", "--socket", "--model", "check", "Examples:"))
    path = tmp_path / "house.toml"
    path.write_text("no house\n")
    done = kiosk(str(path))
    assert done.returncode == 4 and f"{path}, line 1: " in done.stderr
    assert kiosk(str(tmp_path / "none.toml")).returncode == 4


def test_check_looks_where_orders_go(tmp_path: Path) -> None:
    path = tmp_path / "house.toml"
    path.write_text('name = "H"\n[[items]]\nname = "Tea"\nprice = 1\n[orders]\nfile = "none/orders.jsonl"\n')
    assert f"orders cannot be written to {tmp_path}/none/orders.jsonl" in kiosk("check", str(path)).stdout
    (tmp_path / "none").mkdir()
    assert "cannot be written" not in kiosk("check", str(path)).stdout


class Keys:
    """A person at the kiosk: lines, and Ctrl-C at the prompt."""

    interactive = True

    def __init__(self, *keys: Any) -> None:
        self.left = list(keys)

    def read(self, prompt: str) -> str:
        key = self.left.pop(0)
        if isinstance(key, Exception):
            raise key
        return str(key)


def test_interrupt_clears_a_line_and_quits_when_pressed_twice_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from edge.cli import kiosk as command
    from edge.cli import readers
    from edge.cli.output import Output
    from edge.cli.signals import Interrupted

    def pressed(text: bool = False) -> Interrupted:
        return Interrupted(text)

    keys = Keys(pressed(True), pressed(), "hello", pressed(), pressed(True), pressed(), pressed(), "never read")
    monkeypatch.setattr(readers, "choose_reader", lambda *_: keys)
    assert command.converse(Output(), Visit(HOUSE)) == 130
    assert keys.left == ["never read"]


def test_interrupt_leaves_no_turn_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that Ctrl-C finds being delivered is delivered once, and the guest is thanked."""
    from edge.cli import kiosk as command
    from edge.cli import readers
    from edge.cli.output import Output

    taken: list[Any] = []

    def deliver(order: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        taken.append(order)

    keys = Keys("a croissant", "that is all", "yes", "yes", EOFError())
    monkeypatch.setattr(readers, "choose_reader", lambda *_: keys)
    visit = Visit(HOUSE, deliver)
    assert command.converse(Output(), visit) == 0  # one press does not quit
    assert len(taken) == 1 and visit.state.empty


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_signal_ends_it_without_a_terminal(number: signal.Signals, code: int) -> None:
    with subprocess.Popen([*REAL, "kiosk"], env=environment(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"a croissant\n")
        process.stdin.flush()
        assert process.stdout.readline().decode().strip() == HOUSE.texts["greeting"]
        assert b"1 Croissant" in process.stdout.readline()  # now it reads lines
        process.send_signal(number)
        assert process.wait(300) == code and process.stderr.read() == b""


def test_the_service(tmp_path: Path) -> None:
    house = tmp_path / "house.toml"
    house.write_text(Path(EXAMPLE).read_text().replace('to = "stdout"', 'file = "orders.jsonl"'))
    with serving("--kiosk", str(house)) as server:
        assert f"{HOUSE.name} answers at http://127.0.0.1:" in server.log
        assert "/v1/chat/completions, are answered by the bundled model" in server.log
        assert server.ask("GET", "/v1/models")[2]["data"][0]["kiosk"] == HOUSE.name

        def turn(session: str | None, text: str | None) -> Any:
            return server.ask("POST", "/kiosk/turn", {"session": session, "text": text})[2]

        for body, status, said in (
            ({}, 400, "text is missing: send what the guest said, or null to greet a new guest"),
            ([], 400, "the request is not a JSON object"),
            ({"session": "no such", "text": "hello"}, 404,
             "no visit has the session 'no such'; send null as session to begin a new one"),
        ):
            answered = server.ask("POST", "/kiosk/turn", body)
            assert (answered[0], answered[2]["error"]["message"]) == (status, said)
        first, second = turn(None, None), turn(None, None)
        assert first["say"] == HOUSE.texts["greeting"] and first["session"] != second["session"]
        said = turn(first["session"], "two brownies")
        assert said["lines"] == [{"text": "2 × Brownie", "amount": "€6.80"}] and said["total"] == "€6.80"
        assert turn(second["session"], "hello")["lines"] == []
        assert turn(first["session"], "that's all")["suggest"] == ["Yes", "No"]
        assert turn(first["session"], "Yes")["order"]["total"] == 680
    assert len((tmp_path / "orders.jsonl").read_text().splitlines()) == 1


def test_understanding_needs_no_model() -> None:
    code = "import sys\nfrom edge.kiosk.visit import Visit\nfrom edge.kiosk.house import EXAMPLE, load\n" \
           "print(Visit(load(EXAMPLE)).turn('a croissant').say)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("Your order: 1 Croissant.") and "pyx" not in done.stdout.split()


def test_one_of_what_was_asked_about() -> None:
    assert "1 large Cappuccino" in talk("how much is a cappuccino?", "I'd like a large one")[-1]
    assert "2 × Croissant with butter" in talk("what does the croissant cost", "go on then two with butter")[-1]
    assert "latte" not in talk("how much is a latte?", "what do you have?", "that's all")[-1]


def test_what_newcomers_try() -> None:
    assert talk("what's in my order?") == ["Your order is empty."]
    assert "2 × small Cappuccino." in talk("a small cappuccino", "double it")[-1]
    said = talk("table for 4 saturday 7pm", "cancel the booking")
    assert said[-1] == "Table: cancelled. Anything else?"


COFFEES = "Espresso, Americano, Cappuccino, Latte or Flat white"


def test_what_drinks_are_there() -> None:
    """All that can be ordered, not the fact about alcohol."""
    for question in ("what drinks do you have?", "what do you have to drink"):
        said = talk(question)[-1]
        assert said.startswith("You can order: ") and all(item.name in said for item in HOUSE.items)


@pytest.mark.parametrize(("turns", "said"), [
    # an open question is not dropped in silence, nor what was ordered beside it doubled
    (["a coffee", "and a croissant"], f"Your order: 1 Croissant. That is €2.10. “coffee”: {COFFEES}?"),
    (["a coffee", "and a croissant", "that's all"], f"“coffee”: {COFFEES}?"),
    (["a coffee and a croissant, that's all", "latte"],
     "Your order: 1 Croissant and 1 Latte. Latte: small or large?"),
    (["2 teas and 2 coffees", "black"], f"Your order: 2 × Black tea. That is €5.60. “coffees”: {COFFEES}?"),
    (["a coffee and a brownie", "no coffee after all", "that's all"],
     "Your order: 1 Brownie. That is €3.40. Is that right?"),
    (["2 teas", "black with honey"], "I could not note “with honey”. Please ask a member of staff. "
     "Your order: 2 × Black tea. That is €5.60. Anything else?"),
    # fewer, but of which? nothing is added
    (["three small cappuccinos", "two of them with soy milk", "no, only two cappuccinos"],
     "I could not note “no, only two cappuccinos”. Please ask a member of staff."),
    # the total
    (["a brownie", "what does it cost?"], "Your order: 1 Brownie. That is €3.40."),
    (["a brownie", "how much do I have to pay?"], "Your order: 1 Brownie. That is €3.40."),
    # after the order
    (["a brownie", "that's all", "yes", "I want to cancel that order"], SENT),
    (["a brownie", "that's all", "yes", "actually make it large"], SENT),
    (["a brownie", "that's all", "yes", "a croissant"], "Your order: 1 Croissant. That is €2.10. Anything else?"),
    (["a brownie", "that's all", "yes", "thank you"], "You are welcome."),
    (["a croissant", "that's all", "yes", "undo that"], SENT),
    # all of several names, or of all sizes
    (["2 teas", "one of each"], "Your order: 1 Green tea and 1 Black tea. That is €5.60. Anything else?"),
    (["4 teas with lemon", "two of each, please"],
     "Your order: 2 × Green tea with lemon and 2 × Black tea with lemon. That is €11.20. Anything else?"),
    (["one of each tea"], "Your order: 1 Green tea and 1 Black tea. That is €5.60. Anything else?"),
    (["two lattes", "one of each"], "Your order: 1 small Latte and 1 large Latte. That is €7.20. Anything else?"),
    (["two lattes", "one large"], "Your order: 1 Latte and 1 large Latte. Latte: small or large?"),
    # the last change is taken back, once
    (["a small latte", "make it large", "I take that back"],
     "Your order: 1 small Latte. That is €3.30. Anything else?"),
    (["a croissant", "a brownie", "undo that"], "Your order: 1 Croissant. That is €2.10. Anything else?"),
    (["a croissant", "cancel everything", "undo that"], "Your order: 1 Croissant. That is €2.10. Anything else?"),
    (["a croissant", "a brownie", "undo that", "undo that"], "Your order: 1 Croissant. That is €2.10."),
    (["a table tomorrow at 7", "undo that"], "Table: cancelled. Anything else?"),
    (["undo that"], "Your order is empty."),
    # two lines change places
    (["a small latte and a large cappuccino", "swap the sizes"],
     "Your order: 1 large Latte and 1 small Cappuccino. That is €7.00. Anything else?"),
    (["2 small lattes and a large one", "swap the sizes"],
     "Your order: 1 small Latte and 2 × large Latte. That is €11.10. Anything else?"),
    (["two brownies and a croissant", "the other way round"],
     "Your order: 1 Brownie and 2 × Croissant. That is €7.60. Anything else?"),
    # what is on the menu
    (["Which teas do you have?"], "Green tea: €2.80. Black tea: €2.80."),
    (["what kinds of milk do you have"], "Oat milk: €0.50. Soy milk: €0.40. Milk: free."),
    (["a small cappuccino", "What sizes are there?"], "Cappuccino: small €3.10, large €3.70."),
    (["what sizes does the soup come in?"], "Lentil soup: cup €4.20, bowl €5.80."),
    (["what teas do you have", "I'll have one"], "I did not understand that. Please say it in other words."),
    (["a black tea", "no wait make that green"], "Your order: 1 Green tea. That is €2.80. Anything else?"),
    # what is not there cannot go
    (["a brownie", "remove the croissant"], "There is no Croissant in your order."),
    # slips of the pen
    (["lage capucino"], "Your order: 1 large Cappuccino. That is €3.70. Anything else?"),
    (["two lates smal"], "Your order: 2 × small Latte. That is €6.60. Anything else?"),
    (["three croissants", "oh sorry. a small cappuccino too"],
     "Your order: 3 × Croissant and 1 small Cappuccino. That is €9.40. Anything else?"),
    (["when do you close on Saturday?"], HOUSE.facts[0]),
])  # fmt: skip
def test_a_reply_word_for_word(turns: list[str], said: str) -> None:
    assert talk(*turns)[-1] == said


@pytest.mark.parametrize(("turns", "said"), [
    (["I'm allergic to soy, a large latte with soy milk"], "I could not note “a large latte with soy milk”."),
    (["three cheese toasties and a bowl of soup at 5 pm"], "I could not note “5 pm”."),
    ([TABLE, "and a high chair"], "I could not note “a high chair”."),
    (["a bowl of soup", "sorry the bowl with cheese not the cup"], "I did not understand that."),
    (["two croissants", "0 croissants"], "You can order 1 to 99 of one thing. Your order is as before."),
    (["what does a cappuccino with oat milk cost"], "Cappuccino: small €3.10, large €3.70."),
    (["sprechen Sie Deutsch?"], "I only understand English."),
    (["parlez-vous français ?"], "I only understand English."),
])  # fmt: skip
def test_wishes_beside_something_else_are_not_lost(turns: list[str], said: str) -> None:
    assert said in talk(*turns)[-1]


@pytest.mark.parametrize(("turns", "said"), [
    # what is named and came to nothing is said
    (["a black tea", "two sugars please"], "I could not note “two sugars”. Please ask a member of staff. "
     "Your order: 1 Black tea with sugar. That is €2.80. Anything else?"),
    (["double brownie"], "I could not note “double”. Please ask a member of staff. "
     "Your order: 1 Brownie. That is €3.40. Anything else?"),
    (["a latte and a croissant, both large"], "I could not note “large croissant”. Please ask a member of staff. "
     "Your order: 1 large Latte and 1 Croissant. That is €6.00. Anything else?"),
    # another kind than the menu has
    (["a chocolate brownie"], "I could not note “chocolate”. Please ask a member of staff. "
     "Your order: 1 Brownie. That is €3.40. Anything else?"),
    (["choclate cake"], "I could not find “choclate cake” on the menu. Do you want Carrot cake?"),
    (["choclate cake", "yes please"], "Your order: 1 Carrot cake. That is €3.90. Anything else?"),
    (["a chocolate cake and a small latte", "no, a brownie"],
     "Your order: 1 small Latte and 1 Brownie. That is €6.70. Anything else?"),
    (["an avocado bagel", "toasted please"], "I could not note “toasted”. Please ask a member of staff."),
    # nothing is settled by "sorry" and "no"
    (["a green tea and a black tea", "sorry make both black"],
     "Your order: 2 × Black tea. That is €5.60. Anything else?"),
    (["3 green teas and a black tea", "make both black"], "I could not note “make both black”. "
     "Please ask a member of staff."),
    (["a coffee", "no just a normal coffee"], f"“coffee”: {COFFEES}?"),
    (["alright"], "What would you like?"),
    (["a latte", "that's it"], "Latte: small or large? Say “no Latte” if you do not want one."),
    (["a latte", "that's it", "no latte"], "Your order is empty now. Anything else?"),
    (["a small cappuccino and a small latte", "the latte was wrong, I said americano"],
     "Your order: 1 small Cappuccino and 1 small Americano. That is €5.70. Anything else?"),
    (["So my friend wants a flat white and I'm torn between the soup and the toastie"],
     "Your order: 1 Flat white. That is €3.60. Anything else?"),
    # a question behind a greeting
    (["hiya, whats the wifi password"], HOUSE.facts[3]),
    (["a cheese toastie", "hmm how much is the toastie"], "Cheese toastie: €5.40."),
    (["Excuse me, where is the loo?"], HOUSE.facts[5]),
    # prices
    (["what does the oat milk cost extra"], "Oat milk: €0.50."),
    (["how much is the brownie and the carrot cake?"], "Brownie: €3.40. Carrot cake: €3.90."),
    # a booking behind a question
    (["what about saturday afternoon, can i book for 2 at half past three"],
     "Table: day saturday afternoon, time half past three, people 2. Table: under which name?"),
])  # fmt: skip
def test_nothing_false_is_said_and_nothing_dropped(turns: list[str], said: str) -> None:
    assert talk(*turns)[-1] == said


TWO_SOUPS = "a large cappuccino and two cups of soup"


@pytest.mark.parametrize(("turns", "says", "order"), [
    # one of several
    (["2 large cappuccinos and a small one", "one of the cappuccinos decaf"], "could not note “decaf”",
     ["2 × large Cappuccino", "1 small Cappuccino"]),
    (["two flat whites", "oh he wants oat milk in his"], "", ["1 Flat white", "1 Flat white with oat milk"]),
    (["two flat whites with oat milk", "only one of the two has oat milk"], "",
     ["1 Flat white", "1 Flat white with oat milk"]),
    ([TWO_SOUPS, "no I mean she takes a croissant instead of her soup, i keep mine"], "",
     ["1 large Cappuccino", "1 cup Lentil soup", "1 Croissant"]),
    (["two black teas", "my friend says she'd rather have an espresso than the tea"], "",
     ["1 Black tea", "1 Espresso"]),
    (["two croissants", "she'll take a brownie then instead of the croissant"], "", ["1 Croissant", "1 Brownie"]),
    (["3 muffins", "one muffin less, Ben doesn't like blueberries"], "", ["2 × Blueberry muffin"]),
    (["2 large cappuccinos and 2 small ones", "wait, Sven only wants an espresso, so one less large one"], "",
     ["1 large Cappuccino", "2 × small Cappuccino", "1 Espresso"]),
    (["2 large lattes and a large latte with oat milk", "and the other two small"], "",
     ["2 × small Latte", "1 large Latte with oat milk"]),
    (["a small latte and a large cappuccino", "remove a large one"], "", ["1 small Latte"]),
    (["a bowl of soup and two croissants", "one bowl too many"], "", ["2 × Croissant"]),
    # which one is meant is not clear: nothing is changed
    (["a large cappuccino and a large latte", "no sorry he wants a small one"], "could not note",
     ["1 large Cappuccino", "1 large Latte"]),
    ([TWO_SOUPS, "hmm she'd rather have a croissant"], "could not note",
     ["1 large Cappuccino", "2 × cup Lentil soup"]),
    (["two large lattes", "no coffee for the fourth person"], "could not note", ["2 × large Latte"]),
    (["a carrot cake and a small latte", "my husband is allergic. Take it off then please."], "could not note “take it",
     ["1 Carrot cake", "1 small Latte"]),
    (["a small latte and a brownie", "no not another one!"], "could not note", ["1 small Latte", "1 Brownie"]),
    (["a brownie and a muffin", "delete the others"], "could not note", ["1 Brownie", "1 Blueberry muffin"]),
    (["a brownie and a bagel", "without avocado on one of the.. no forget it, leave it"], "could not note",
     ["1 Brownie", "1 Avocado bagel"]),
    # counts said in the end, or again
    (["kids might want a croissant each, so two"], "", ["2 × Croissant"]),
    (["2 croissants too, and one for my wife, so three"], "", ["3 × Croissant"]),
    (["a croissant", "yes two, and butter"], "", ["2 × Croissant with butter"]),
    (["a black tea and a green tea", "one black tea and one green tea, thats all we want"], "Is that right?",
     ["1 Black tea", "1 Green tea"]),
    (["and a hot chocolate each"], "could not note “each”", ["1 Hot chocolate"]),
    # said again, or told, not ordered again
    (["an orange juice", "orange"], "small or large", ["1 Orange juice"]),
    (["a green tea", "and a cake", "carrot"], "", ["1 Green tea", "1 Carrot cake"]),
    (["i ordered a cappuccino ten minutes ago and nothing came"], "did not understand", []),
    # another thing, not a size of one that is there
    (["a large latte", "or just a small hot milk for her"], "could not find “hot milk”", ["1 large Latte"]),
    (["a glass of wine and a brownie"], "could not find “glass of wine”", ["1 Brownie"]),
    (["a cappuccino", "ok whatever, give me an espresso instead"], "", ["1 Espresso"]),
    (["a small orange juice", "no, Emma still gets a hot chocolate!"], "",
     ["1 small Orange juice", "1 Hot chocolate"]),
    (["a brownie", "and a big pot of tea for both of us"], "Green tea or Black tea?", ["1 Brownie"]),
    (["a tea", "one green one black"], "", ["1 Green tea", "1 Black tea"]),
    (["a green tea", "one black for me"], "", ["1 Green tea", "1 Black tea"]),
    (["a black one then please"], "", ["1 Black tea"]),
    (["black tea I meant, with a drop of milk"], "1 Black tea with milk", ["1 Black tea with milk"]),
    # one of several names is chosen, and something else ordered
    (["a tea please", "Black please, and a slice of the carrot cake"], "", ["1 Black tea", "1 Carrot cake"]),
    (["a tea and a brownie", "remove the brownie"], "Green tea or Black tea?", []),
    (["a latte for me and the same for my wife, both large"], "", ["2 × large Latte"]),
    (["a large hot chocolate with cream", "one for my friend without cream, and mine with"], "",
     ["1 large Hot chocolate with whipped cream", "1 large Hot chocolate"]),
    (["we'd like to have breakfast for two"], "could not find “breakfast”", []),
    (["a large cappuccino", "swap the latte for a tea"], "There is no Latte", ["1 large Cappuccino"]),
    (["1 green tea", "make two of them black"], "could not note", ["1 Green tea"]),
    (["two black teas", "no, i didn't say tea"], "", []),
    (["a black tea", "the green one is wrong, only black"], "There is no Green tea", ["1 Black tea"]),
    (["a brownie", "no, no toastie!"], "There is no Cheese toastie", ["1 Brownie"]),
    (["whatever cake you have", "oh sorry not the carrot cake"], "", []),
    (["a small hot chocolate", "she's asking if you have ice cream"], "I do not know", ["1 small Hot chocolate"]),
    (["can we bring our own birthday cake"], "I do not know", []),
    (["and one carrot cake two forks"], "could not find “forks”", ["1 Carrot cake"]),
    (["a small apple juice then"], "could not find “apple juice”", []),
    (["a carrot cake and a small latte", "oh sorry not the carrot cake, she's allergic to nuts!!"], "",
     ["1 small Latte"]),
    (["je voudrais un croissant et un thé vert"], "only understand English", []),
    # wishes
    (["a carrot cake without nuts"], f"{HOUSE.facts[10]} I could not note “without nuts”", ["1 Carrot cake"]),
    (["a small cappuccino", "can I have it extra hot"], "could not note “extra hot”", ["1 small Cappuccino"]),
    (["and for grandpa a brownie, but only if it's warm"], "could not note “only if it's warm”", ["1 Brownie"]),
    (["a brownie heated up"], "could not note “heated up”", ["1 Brownie"]),
    (["a small hot chocolate for her, not too hot"], "could not note “not too hot”", ["1 small Hot chocolate"]),
])  # fmt: skip
def test_what_pairs_and_families_say(turns: list[str], says: str, order: list[str]) -> None:
    visit = Visit(HOUSE)
    said = [settled(visit, turn) for turn in turns][-1]
    assert sorted(each["text"] for each in visit.shown()["lines"]) == sorted(order)
    assert says in said and ("could not" in said) == ("could not" in says)


@pytest.mark.parametrize(("turns", "says", "order"), [
    (["3 brownies and a carrot cake", "3 more brownies", "no wait, three in total i meant"], "",
     ["3 × Brownie", "1 Carrot cake"]),  # the line that was changed last
    (["a muffin and a large latte", "does the latte come with lactose free milk?", "make it soy then"], "",
     ["1 Blueberry muffin", "1 large Latte with soy milk"]),
    (["a hot chocolate, small", "no cake then, she'd like a muffin instead"], "",
     ["1 small Hot chocolate", "1 Blueberry muffin"]),
    (["a cappuccino and an americano", "Both large. Well, hers small."], "could not note “well, hers small”",
     ["1 large Cappuccino", "1 large Americano"]),
    (["a bagel without the avocado... joking. A bagel and a sparkling water."], "",
     ["1 Avocado bagel", "1 Sparkling water"]),
    (["a cup of soup and a green tea", "my friend wants the same but with black tea"], "",
     ["2 × cup Lentil soup", "1 Green tea", "1 Black tea"]),
    (["a latte", "small", "the same but with a brownie"], "could not note", ["1 small Latte"]),
    (["how much are three brownies", "yeah add them"], "could not note “yeah add them”", []),
    (["how much is a muffin", "add that please"], "", ["1 Blueberry muffin"]),
    (["So the muffin would be ok for him?"], "I do not know", []),
    (["a sparkling water and a bowl of soup", "no thats only for me, the soup"], "",
     ["1 Sparkling water", "1 bowl Lentil soup"]),
    (["a croissant and two brownies", "wait, not for me the croissant, he's having that"], "",
     ["1 Croissant", "2 × Brownie"]),
    (["a latte", "both"], "small or large", ["1 Latte"]),
    (["two lattes", "both"], "", ["1 small Latte", "1 large Latte"]),
    (["a small latte", "then an orange juice instead of the coffee, large"], "", ["1 large Orange juice"]),
    (["3 still waters", "sparkling for me instead of still, just mine"], "", ["2 × Still water", "1 Sparkling water"]),
    (["a large hot chocolate", "can i have cream on top then?? and a cookie"], "could not find “cookie”",
     ["1 large Hot chocolate with whipped cream"]),
    (["a double espresso and a brownie", "scrap the coffee, just the brownie and a small hot choc"], "",
     ["1 Brownie", "1 small Hot chocolate"]),
    (["a large orange juice", "scrap the juice, just some still water"], "", ["1 Still water"]),
    (["a small americano with an extra shot", "and do the same again but large"], "",
     ["1 small Americano with extra shot", "1 large Americano with extra shot"]),
    (["a small americano", "can you just add a large one"], "", ["1 small Americano", "1 large Americano"]),
    (["a bowl of soup", "two soups I mean, one for my wife"], "", ["2 × bowl Lentil soup"]),
    (["a bowl of soup", "is it gluten free? great, my wife gets one too then"], "", ["2 × bowl Lentil soup"]),
    (["a flat white", "no! not a hot chocolate, a cookie"], "could not find “cookie”", ["1 Flat white"]),
    (["an americano, small", "Can I swap my americano for a tea? Green."], "", ["1 Green tea"]),
    (["a croissant and a small americano", "and a green tea", "No, I said instead of the americano."], "",
     ["1 Croissant", "1 Green tea"]),
    (["a cheese toastie", "cut in two, and a small oj"], "", ["1 Cheese toastie", "1 small Orange juice"]),
    (["a coffee", "a black one"], "small or large", ["1 Americano"]),
    (["a coffee", "and one americano with milk"], "small or large", ["1 Americano with milk"]),
    (["a tea", "Black, please. English breakfast if you have it."], "", ["1 Black tea"]),
    (["just tap water", "and my boyfriend wants a toastie without tomato"], "Still water or Sparkling water?",
     ["1 Cheese toastie without tomato"]),
    (["a large hot chocolate", "one for my friend without cream, and mine with", "so two hot chocolates"],
     "Nothing has changed", ["1 large Hot chocolate", "1 large Hot chocolate without whipped cream"]),
    (["two small lattes", "one of them with soy milk, my sister doesn't drink milk"], "",
     ["1 small Latte", "1 small Latte with soy milk, without milk"]),
    (["a soup, a bowl", "hmm no. ok and an oat flat white"], "Anything else?",
     ["1 bowl Lentil soup", "1 Flat white with oat milk"]),
    (["two large lattes and one small"], "", ["2 × large Latte", "1 small Latte"]),
    (["a large latte", "and a small one with soy"], "", ["1 large Latte", "1 small Latte with soy milk"]),
    (["a large latte with soy", "and a small one", "scrap the other one"], "", ["1 small Latte"]),
    (["right so which cakes have NO nuts", "ok so the blueberry muffin. one please and an orange juice for her"],
     "small or large", ["1 Blueberry muffin", "1 Orange juice"]),
    (["a large americano", "No leave it."], "", ["1 large Americano"]),
    (["two brownies", "change mine to a muffin"], "", ["1 Brownie", "1 Blueberry muffin"]),
    (["a brownie with cream", "my sister wants the same"], "", ["2 × Brownie with whipped cream"]),
    (["a large cappuccino", "ok never mind the babyccino, she'll have a small hot chocolate then"], "",
     ["1 large Cappuccino", "1 small Hot chocolate"]),
    (["avo bagel", "yes. cheese on that please"], "", ["1 Avocado bagel with cheese"]),
    (["toast", "ok just a black tea"], "", ["1 Black tea"]),
    (["a croissant and a croissant with butter", "forget the plain croissant"], "", ["1 Croissant with butter"]),
    (["a table monday 11am for 4, Tom", "a cup of soup", "and cancel the soup, too hot today"], "",
     ["Table: day monday, time 11am, people 4, name Tom."]),
    (["a bowl of soup", "is the soup vegan", "and some lemon in it. is lemon extra?"], "Lemon: free.",
     ["1 bowl Lentil soup with lemon"]),
    (["can i get a double espresso and the same again for my friend"], "", ["2 × double Espresso"]),
    (["a green tea with lemon and two sugars"], "could not note “two sugars”", ["1 Green tea with lemon and sugar"]),
    (["a muffin and a carrot cake", "nuts! no cake then. is the muffin ok?"], "I do not know", ["1 Blueberry muffin"]),
    (["one hot chocolate for him, small, not too hot, and a croissant for me"], "could not note “not too hot”",
     ["1 small Hot chocolate", "1 Croissant"]),
    (["a bowl of soup and a cup of soup", "is the soup vegan?",
      "He has the bowl, I have the cup. And two waters, still."], "",
     ["1 bowl Lentil soup", "1 cup Lentil soup", "2 × Still water"]),
    (["a muffin", "What about the carrot cake, has that got walnuts?"], "I do not know", ["1 Blueberry muffin"]),
    (["a brownie and a croissant", "make it two of each"], "", ["2 × Brownie", "2 × Croissant"]),
    # said again
    (["2 single espressos and 2 croissants", "oh for... ONE single, one croissant. bye"], "Is that right?",
     ["1 single Espresso", "1 Croissant"]),
    (["a small hot chocolate with oat milk and a small juice", "Large hot chocolate with oat, small juice. That's all"],
     "Is that right?", ["1 large Hot chocolate with oat milk", "1 small Orange juice"]),
    (["a brownie and a brownie with cream", "no!! two brownies, one of them with cream. thats it"], "Is that right?",
     ["1 Brownie", "1 Brownie with whipped cream"]),
    (["a black tea and a green tea", "No more tea! Just those two."], "All right.", ["1 Black tea", "1 Green tea"]),
    (["a black tea and a green tea", "One black. One green."], "did not understand", ["1 Black tea", "1 Green tea"]),
    (["a bagel and a bowl of soup", "Forget the soup then, I'll just take the bagel"], "", ["1 Avocado bagel"]),
    (["a green tea and an espresso", "Single. And one more thing, is smoking allowed on the terrace?"], "I do not know",
     ["1 Green tea", "1 single Espresso"]),
    (["a black tea with lemon and a latte, small", "he'd rather have a soup than the tea. Bowl"], "",
     ["1 small Latte", "1 bowl Lentil soup"]),
    (["do you do sprinkles? and a cookie"], "could not find “cookie”", []),
    (["a muffin", "and a straw for the kids"], "could not find “straw”", ["1 Blueberry muffin"]),
    (["one cup and one bowl of soup"], "", ["1 cup Lentil soup", "1 bowl Lentil soup"]),
    (["and after that I can still get a piece of cake, right?"], "I do not know", []),
    (["a small latte", "and i could have a brownie as well, couldn't i?", "no i was only asking"], "",
     ["1 small Latte"]),
    (["a small latte", "make it small"], "Nothing has changed. Your order: 1 small Latte.", ["1 small Latte"]),
])  # fmt: skip
def test_what_newcomers_say(turns: list[str], says: str, order: list[str]) -> None:
    visit = Visit(HOUSE)
    said = [settled(visit, turn) for turn in turns][-1]
    assert sorted(each["text"] for each in visit.shown()["lines"]) == sorted(order)
    assert says in said and ("could not" in said) == ("could not" in says)


# ---- what is not certain is asked before anything changes ------------------------------------------------------------


DOUBTFUL = "mia thinks the teapot latte is lovely, can she take two brownies"


def test_a_doubtful_change_is_made_after_yes() -> None:
    visit = Visit(load(EXAMPLE))
    asked = visit.turn(DOUBTFUL)
    assert asked.unsure and visit.state.empty and visit.suggestions() == ["Yes", "No"]
    assert "not sure" in asked.say and "Your order would be: 2 × Brownie. That is €6.80. Is that right?" in asked.say
    assert visit.turn("yes, and a green tea").say.startswith("Your order: 2 × Brownie and 1 Green tea.")
    assert "Is that right?" in visit.turn("that's all").say and visit.turn("yes").order


@pytest.mark.parametrize(
    ("answer", "lines"),
    [("no", []), ("No, thanks!", []), ("no, a croissant", ["1 Croissant"]), ("a muffin", ["1 Blueberry muffin"])],
)
def test_a_doubtful_change_is_not_made_without_yes(answer: str, lines: list[str]) -> None:
    visit = Visit(load(EXAMPLE))
    visit.turn(DOUBTFUL)
    visit.turn(answer)
    assert [say.line_text(line) for line in visit.state.lines] == lines
    assert not visit.turn("yes").unsure and [say.line_text(line) for line in visit.state.lines] == lines


@pytest.mark.parametrize(("turns", "proposal", "order"), [
    (["a small latte and a bagel", "So a small latte, the bagel, and a carrot cake to share.", "no, one latte"],
     "1 small Latte, 1 Avocado bagel and 1 Carrot cake", ["1 small Latte", "1 Avocado bagel", "1 Carrot cake"]),
    (["the kids get a small hot chocolate each and share a brownie", "no two hot chocolates"],
     "2 × small Hot chocolate and 1 Brownie", ["2 × small Hot chocolate", "1 Brownie"]),
    (["a flat white", "she said a big white one. flat white!", "argh. no. just the one"], "", ["1 Flat white"]),
    (["a hot chocolate, small", "she said a big white one. flat white!", "no. just one flat white"],
     "1 small Hot chocolate and 1 Flat white", ["1 small Hot chocolate", "1 Flat white"]),
])  # fmt: skip
def test_no_with_a_correction_is_about_what_was_asked(turns: list[str], proposal: str, order: list[str]) -> None:
    visit = Visit(load(EXAMPLE))
    said = [visit.turn(turn) for turn in turns][-1]
    assert proposal in said.say and said.unsure == bool(proposal)
    assert not visit.turn("yes").unsure and [say.line_text(line) for line in visit.state.lines] == order


def test_a_doubt_that_is_not_answered_is_asked_again_or_given_up() -> None:
    visit = Visit(load(EXAMPLE))
    visit.turn(DOUBTFUL)
    asked = visit.turn("what's the wifi password?").say
    assert asked.startswith(HOUSE.facts[3]) and asked.endswith("would be: 2 × Brownie. That is €6.80. Is that right?")
    said = visit.turn("and a muffin").say
    assert said == f"{NOT_DONE} Your order: 1 Blueberry muffin. That is €3.20. Anything else?"
    visit.turn("a muffin")
    assert visit.turn("my husband is having a heart attack").guard == "emergency"
    visit.turn("yes")
    assert [say.line_text(line) for line in visit.state.lines] == ["1 Blueberry muffin"]


def test_no_to_a_thing_is_not_no_to_a_doubt() -> None:
    visit = Visit(load(EXAMPLE))
    for turn in ("a brownie and a small latte", DOUBTFUL, "no brownie then"):
        visit.turn(turn)
    assert [say.line_text(line) for line in visit.state.lines] == ["1 small Latte"]


def test_yes_to_a_doubt_does_not_send_the_order() -> None:
    visit = Visit(load(EXAMPLE))
    for turn in ("a green tea", "that's all", DOUBTFUL):
        visit.turn(turn)
    assert visit.turn("yes").order is None and visit.turn("that's all").order is None and visit.turn("yes").order


@pytest.mark.parametrize(
    ("turns", "doubtful"),
    [
        (["a table for four tomorrow at noon, name Lee", "two of my cousins play chess"], True),
        (["a large latte, a croissant", "my friend would rather have a brownie then"], True),
        (["a croissant", "one croissant"], True),
        (["a croissant", "and a croissant"], False),
        (["a large latte and a croissant", "drop the croissant, he's fallen asleep in the car"], False),
        (["two lattes for my cousin Bob and a brownie"], False),
    ],
)
def test_what_is_doubtful(turns: list[str], doubtful: bool) -> None:
    visit = Visit(load(EXAMPLE))
    before = visit.state
    for turn in turns:
        before, last = visit.state, visit.turn(turn)
    assert last.unsure == doubtful or (doubtful and visit.state == before), last


def test_a_doubt_in_the_events() -> None:
    visit = Visit(load(EXAMPLE))
    told = event(visit, visit.turn(DOUBTFUL))
    assert told["unsure"] and told["operations"] and not told["state"]["lines"]
    assert "unsure" not in event(visit, visit.turn("yes"))


@pytest.mark.parametrize(
    ("turn", "emergency"),
    [
        ("My wife would like a cappuccino, and I'll have an americano, black.", False),
        ("two teas and my wife is choking", True),
        ("a latte, oh god the baby is coming", True),
        ("I'll have a coffee and kill myself", True),
        ("we're three now, he has collapsed", True),
    ],
)
def test_an_order_word_for_word_is_no_emergency(turn: str, emergency: bool) -> None:
    visit = Visit(HOUSE)
    visit.turn("a table for two on Friday at noon, name Lee")
    assert is_emergency(turn) and (visit.turn(turn).guard == "emergency") == emergency


def test_an_emergency_never_waits_for_a_model() -> None:
    def reads(*_: object) -> Understood:
        raise AssertionError("the model was asked")

    assert Visit(HOUSE, reads=reads).turn("two teas and my wife is choking").guard == "emergency"


@pytest.mark.parametrize(
    ("turns", "order"),
    [
        (["a flat white and a muffin", "and a second muffin", "yes"], ["1 Flat white", "2 × Blueberry muffin"]),
        (["How much is a large cappuccino?", "And the flat white?", "Then two large cappuccinos and one flat white."],
         ["2 × large Cappuccino", "1 Flat white"]),
        (["a small americano", "forget it, that's all"], ["1 small Americano"]),
        (["a black tea", "No no, just the one cup."], ["1 Black tea"]),
        (["So you'd be shut on Monday? It's Easter Monday"], []),
    ],
)  # fmt: skip
def test_what_a_family_at_breakfast_said(turns: list[str], order: list[str]) -> None:
    visit = Visit(HOUSE)
    for turn in turns:
        visit.turn(turn)
    assert [say.line_text(line) for line in visit.state.lines] == order and not visit.state.name
