"""Questions at a kiosk: what is answered from the menu, the order or the facts, and what is said beside it."""

from __future__ import annotations

import pytest

from edge.kiosk.house import EXAMPLE, load
from edge.kiosk.visit import Visit

HOUSE = load(EXAMPLE)
UNKNOWN = HOUSE.texts["unknown"]


def talk(*turns: str) -> list[str]:
    visit = Visit(HOUSE)
    return [visit.turn(turn).say for turn in turns]


def ordered(*turns: str) -> list[str]:
    visit = Visit(HOUSE)
    for turn in turns:
        visit.turn(turn)
    return [f"{line.count} {line.size} {line.item}".replace("  ", " ") for line in visit.state.lines]


@pytest.mark.parametrize(("text", "said"), [
    ("does soy milk cost extra", "Soy milk: €0.40."),
    ("is the oat milk one extra", "Oat milk: €0.50."),
    ("what does the oat milk cost extra", "Oat milk: €0.50."),
    ("what does a cappuccino with oat milk cost", "Cappuccino: small €3.10, large €3.70. Oat milk: €0.50."),
    ("how much is the brownie and the carrot cake?", "Brownie: €3.40. Carrot cake: €3.90."),
    ("hmm how much is the toastie", "Cheese toastie: €5.40."),
    ("do you have tea", "Green tea: €2.80. Black tea: €2.80."),
    ("how much is tea", "Green tea: €2.80. Black tea: €2.80."),
    ("hiya, whats the wifi password", "The Wi-Fi is free; the password is on your receipt."),
    ("Excuse me, where is the loo?", "The toilets are at the back on the left, behind the counter."),
    ("oh and do the brownies have nuts in them?", "The brownie and the carrot cake contain nuts."),
])  # fmt: skip
def test_answered_from_the_menu_and_the_facts(text: str, said: str) -> None:
    assert talk(text) == [said]


@pytest.mark.parametrize(("turns", "order", "said"), [
    (["a flat white", "merci, and do you have croissants"], ["1 Flat white"], "Croissant: €2.10."),
    (["a flat white and what cakes have you got"], ["1 Flat white"], "Carrot cake: €3.90."),
    (["ok toastie, and chips?"], ["1 Cheese toastie"], UNKNOWN),
    (["two brownies, and croissants?"], ["2 Brownie"], "Croissant: €2.10."),
    (["a brownie, and a muffin?"], ["1 Brownie", "1 Blueberry muffin"], ""),
    (["a cappuccino", "whats the diff between small and large"], ["1 Cappuccino"], "Cappuccino: small €3.10, large"),
])  # fmt: skip
def test_a_question_beside_an_order(turns: list[str], order: list[str], said: str) -> None:
    assert ordered(*turns) == order
    assert said in talk(*turns)[-1]


@pytest.mark.parametrize("text", [
    "how much is it all", "how much is it now?", "wait, did you get my brownie?", "did you take off the 20 cents",
    "how much was that again", "how much do I owe you?", "whats that all together", "How much is all together please?",
    "how much then", "And how much is all?", "how much it cost all together?", "and what's that come to",
    "what's the total", "yes. whats that all together", "is the brownie in there still?",
])  # fmt: skip
def test_the_order_is_read_back(text: str) -> None:
    assert talk("a brownie", text)[-1] == "Your order: 1 Brownie. That is €3.40."


def test_the_total_after_a_question_about_an_item() -> None:
    assert talk("a brownie", "do you have croissants", "how much is it")[-1] == "Croissant: €2.10."
    assert "That is €3.40." in talk("a brownie", "do you have croissants", "how much is it all together")[-1]
    assert talk("do you have croissants", "how much is it in total") == ["Croissant: €2.10."] * 2
    assert talk("a brownie", "a green tea. and the total?")[-1].count("That is €6.20.") == 1


@pytest.mark.parametrize(("text", "fact"), [
    ("n whats ur wifi", 4), ("when do you close?", 1), ("when do you close today", 1), ("what time do you shut?", 1),
    ("when do you close on Sundays?", 2), ("on which days are you closed?", 2), ("when does the kitchen close", 3),
])  # fmt: skip
def test_facts_asked_for_in_other_words(text: str, fact: int) -> None:
    assert talk(text) == [HOUSE.facts[fact - 1]]


@pytest.mark.parametrize("text", ["is the oat milk in there still?", "is my oat milk in it"])
def test_what_is_in_an_order_is_read_back(text: str) -> None:
    assert talk("a small latte with oat milk", text)[-1] == "Your order: 1 small Latte with oat milk. That is €3.80."


@pytest.mark.parametrize("text", [
    "to drink here", "and to drink... something cold", "just until 11:30", "and daddy has nothing hes on a diet hihi",
])  # fmt: skip
def test_a_statement_is_not_answered_beside_the_question(text: str) -> None:
    assert not any(fact in talk("a brownie", text)[-1] for fact in HOUSE.facts)


@pytest.mark.parametrize(("turns", "said"), [
    (["good morning! how are you?"], HOUSE.texts["greeting"]),
    (["coffee", "just a normal coffee, black"], "“coffee”: Espresso, Americano, Cappuccino, Latte or Flat white?"),
    (["a brownie", "that's all", "oui, yes"], "Thank you. Your order: 1 Brownie. That is €3.40."),
    (["a brownie", "ok without then. bye"], "Your order: 1 Brownie. That is €3.40. Is that right?"),
    (["a brownie", "thanks. bye"], "You are welcome. Your order: 1 Brownie. That is €3.40. Is that right?"),
    (["a brownie", "no? then nothing else"], "Your order: 1 Brownie. That is €3.40. Is that right?"),
    (["a latte", "that's it"], "Latte: small or large? Say “no Latte” if you do not want one."),
    (["a coffee with milk", "a latte i guess"], "Your order: 1 Latte with milk. Latte: small or large?"),
])  # fmt: skip
def test_nothing_is_said_twice_or_lost(turns: list[str], said: str) -> None:
    assert talk(*turns)[-1] == said


@pytest.mark.parametrize(("text", "wish"), [
    ("a large americano in my cup please", "in my cup"), ("a brownie heated up", "heated up"),
    ("a flat white, to drink here", "to drink here"),
])  # fmt: skip
def test_wishes_are_said_not_to_be_noted(text: str, wish: str) -> None:
    assert f"I could not note “{wish}”." in talk(text)[0]


@pytest.mark.parametrize(("turns", "said"), [
    # of what was named before
    (["avocado bagel. is it vegan"], UNKNOWN), (["2 croissants", "are they vegan?"], UNKNOWN),
    (["a bowl of soup", "is it gluten free"], "The lentil soup is vegan and gluten free."),
    # wishes put as a question, and what a fact tells of them
    (["a large latte", "can you put that in my own cup"], f"{HOUSE.facts[17]} I could not note “in my own cup”."),
    (["a large latte", "can you warm it up"], "I could not note “warm it up”."),
    (["a carrot cake", "without nuts please"], f"{HOUSE.facts[10]} I could not note “without nuts”."),
    # prices instead of a total that is not known yet
    (["an espresso", "how much do i owe you"], "Espresso: single €2.20, double €2.90."),
    (["do you have sugar"], "Sugar: free."),
    (["is the soup vegan and how much is it"], f"{HOUSE.facts[11]} Lentil soup: cup €4.20, bowl €5.80."),
    (["is the soup vegan", "how much is it"], "Lentil soup: cup €4.20, bowl €5.80."),
    (["do you have other drinks"], "You can order: Espresso"),
    (["a brownie", "great. can we sit outside?"], UNKNOWN),
    (["a small apple juice then"], "I could not find “apple juice” on the menu. Do you want Orange juice?"),
])  # fmt: skip
def test_answers_beside_the_order(turns: list[str], said: str) -> None:
    assert talk(*turns)[-1].startswith(said)


@pytest.mark.parametrize(("turns", "order"), [
    (["can we bring our own birthday cake"], []), (["a latte", "she's asking if you have ice cream"], ["1 Latte"]),
    (["is the hot chocolate vegan", "ok a large one with soy please"], ["1 large Hot chocolate"]),
    (["are there nuts in the brownie?", "two please"], ["2 Brownie"]),
    (["is the soup vegan and how much is it", "i'll take it"], ["1 Lentil soup"]),
    (["two cokes and a latte"], ["1 Latte"]),
    # the question which of several is meant
    (["a tea", "then just a black one"], ["1 Black tea"]), (["some water", "hm no, still for me"], ["1 Still water"]),
    (["a tea", "Black please, and a slice of the carrot cake"], ["1 Black tea", "1 Carrot cake"]),
    (["some water", "still for me. two large lattes"], ["1 Still water", "2 large Latte"]),
    (["some water", "still i guess, for the dog"], ["1 Still water"]), (["a tea", "what is green tea"], []),
    (["a tea", "green with lemon and sugar"], ["1 Green tea"]),
])  # fmt: skip
def test_what_an_answer_orders(turns: list[str], order: list[str]) -> None:
    assert ordered(*turns) == order
