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
])  # fmt: skip
def test_the_order_is_read_back(text: str) -> None:
    assert talk("a brownie", text)[-1] == "Your order: 1 Brownie. That is €3.40."


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
    (["a coffee with milk", "a latte i guess"], "Your order: 1 Latte. Latte: small or large?"),
])  # fmt: skip
def test_nothing_is_said_twice_or_lost(turns: list[str], said: str) -> None:
    assert talk(*turns)[-1] == said


@pytest.mark.parametrize(("text", "wish"), [
    ("a large americano in my cup please", "in my cup"), ("a brownie heated up", "heated up"),
    ("a flat white, to drink here", "to drink here"),
])  # fmt: skip
def test_wishes_are_said_not_to_be_noted(text: str, wish: str) -> None:
    assert f"I could not note “{wish}”." in talk(text)[0]
