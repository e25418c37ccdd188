"""Bookings in a visit: what changes them, what does not, and what is said where nothing can be booked."""

from __future__ import annotations

import pytest

from edge.kiosk.house import EXAMPLE, load
from edge.kiosk.visit import Visit

HOUSE = load(EXAMPLE)
FULL = "a table for three tomorrow at 1, name Ed"
KNOWN = {"day": "tomorrow", "time": "1", "people": "3", "name": "Ed"}


def visit(*turns: str) -> tuple[dict[str, str] | None, str]:
    """The booked table after the turns, None for none, and the last reply."""
    guest = Visit(HOUSE)
    said = [guest.turn(turn).say for turn in turns][-1]
    return guest.state.bookings.get("table"), said


@pytest.mark.parametrize(("turn", "changed"), [
    # counts from where they stand
    ("one person more", {"people": "4"}), ("one more person is coming", {"people": "4"}),
    ("two people fewer", {"people": "1"}), ("it's 2 adults and 3 children", {"people": "5"}),
    ("we are three adults and two kids", {"people": "5"}), ("change the party to seven", {"people": "7"}),
    ("we are one more", {"people": "4"}), ("add another person", {"people": "4"}), ("drop one person", {"people": "2"}),
    # times and days from where they stand are not taken
    ("one hour later", {}), ("half an hour earlier", {}), ("the day after", {}),
    # a name that stands beside a time
    ("change the name and the time: Bob, 3 pm", {"name": "Bob", "time": "3 pm"}),
    # a second table is refused, a table on another day is not this one
    ("and another table for two on Tuesday at 2", {}), ("another table for two on Tuesday", {}),
    ("and a table for two on Tuesday", {}), ("a table for two on Tuesday at 2", {}),
    ("can we also have another table for 3 on Sunday", {}), ("change it to Tuesday", {"day": "Tuesday"}),
    ("cancel the Tuesday one", {}), ("send it to table 5", {}),
    ("one is enough", {}),
    # what is told of some guests, or is not sure yet
    ("two of us can't do stairs, are there any", {}), ("and two of us are vegetarian, is the soup ok for them", {}),
    ("it might be four adults, I'll let you know", {}),
    # the value that is wrong is named
    ("no 4", {"people": "4"}), ("no, 4", {"people": "4"}),
    ("sorry not 1, my wife says 2", {"time": "2"}), ("not Ed, Bob", {"name": "Bob"}), ("Bob, not Ed", {"name": "Bob"}),
    ("so 1 pm is no good is it? make it 2 then", {"time": "2"}), ("1 pm is no good, make it 2", {"time": "2"}),
    ("change the time to 2, that's all", {"time": "2"}), ("make it 2, that's all", {}),
    # "one" that stands for a person, a day that belongs to the goodbye, a question whether it is noted right
    ("change the name to Weber, he's the one paying haha", {"name": "Weber"}),
    ("Fine. That's all then, see you Saturday.", {}), ("yes that's it, see you saturday", {}),
    ("great, till Monday", {}),
    ("see you Sunday at 8 instead", {"day": "Sunday", "time": "8"}), ("So that's at half past ten, right?", {}),
    # who it is for
    ("put it under Bauer", {"name": "Bauer"}), ("on the name Fitzgerald, and that's me done", {"name": "Fitzgerald"}),
    ("It's Easter Monday", {"day": "Easter Monday"}),
    ("N O V A K", {"name": "Novak"}), ("does it have to be at 1? can we do half past", {"time": "half past 1"}),
])  # fmt: skip
def test_a_turn_changes_what_it_says_and_nothing_else(turn: str, changed: dict[str, str]) -> None:
    assert visit(FULL, turn)[0] == {**KNOWN, **changed}


@pytest.mark.parametrize(
    "turn", ["no table please", "no booking please", "cancel the table", "cancel the tomorrow one", "cancel"]
)
def test_a_table_is_cancelled(turn: str) -> None:
    assert visit(FULL, turn) == (None, "Table: cancelled. Anything else?")


@pytest.mark.parametrize(("turns", "fields"), [
    # an answer to the question for people is no time
    (["a table tomorrow at 5 pm, name Zoë", "we will be three actually"], {"time": "5 pm", "people": "3"}),
    (["a table tomorrow at 5 pm, name Zoë", "we will be three actually", "no wait four"],
     {"time": "5 pm", "people": "4"}),
    (["a table tomorrow", "-3 people"], {"time": "", "people": ""}),
    (["a table tomorrow, for two", "one is enough"], {"time": ""}),
    (["a table tomorrow at 5 pm, name Zoë", "just the one"], {"people": "1"}),
    # a name is not made of what is left of a day
    (["a table for three tomorrow at 1", "It's Easter Monday"], {"day": "Easter Monday", "name": ""}),
    ([FULL, "my name isn't Ed"], {**KNOWN, "name": ""}), ([FULL, "my name isn't Ed, it's Bob"], {"name": "Bob"}),
    # fields of the only thing that can be booked, and nothing else
    (["for twelve, today, two people"], {"day": "today", "time": "twelve", "people": "2"}),
    (["4 people, tonight, quarter past six, name is O'Brien"],
     {"day": "tonight", "time": "quarter past six", "people": "4", "name": "O'Brien"}),
    (["4 people tonight at six?"], {"day": "tonight", "time": "six", "people": "4"}),
    # the same number for several fields
    (["a table tomorrow at 2 for 2, Kim, and 2 large lattes"], {"time": "2", "people": "2", "name": "Kim"}),
    (["reserve a table for 2 at 2 on the 2nd for 2"], {"day": "the 2nd", "time": "2", "people": "2"}),
    (["make a reservation, please. Sarah, 2 people, 10:30"], {"name": "Sarah", "people": "2", "time": "10:30"}),
    (["reserve a table for tomorrow evening"], {"day": "tomorrow evening"}),
    (["reserve a table for a couple"], {"people": "2"}),
    (["a table tomorrow at 1", "Peter", "two"], {"name": "Peter", "people": "2"}),
    (["book a table for Monday 9 am same number"], {"name": ""}),
    (["a table for four on Monday and another for two on Tuesday"], {"day": "Monday", "people": "4"}),
    # either of two
    (["a table for 3 tomorrow at 7 pm, Ines", "so 7pm is no good is it? make it 5 then", "yes"], {"time": "5"}),
    (["a table for 4 at 4 on the 4th under Jo", "make that 5"], {"people": "4", "time": "4"}),
    (["a table for two tomorrow", "3 pm", "no, 4"], {"people": "2", "time": "4"}),
    (["a table today", "not today"], {"day": ""}), (["a table", "not today"], {"day": ""}),
])  # fmt: skip
def test_fields(turns: list[str], fields: dict[str, str]) -> None:
    table = visit(*turns)[0]
    assert table is not None and {key: table.get(key, "") for key in fields} == fields


@pytest.mark.parametrize("turn", ["change my booking to Friday", "I have a reservation under Smith", "reserve parking",
                                  "send it to table 5", "cancel my booking", "no table please",
                                  "for table 5 please", "bring it to our table", "keep the change",
                                  "no, keep the cream on the chocolate!", "tomorrow at six?", "for two people",
                                  "I was here yesterday with two people"])  # fmt: skip
def test_no_table_is_booked(turn: str) -> None:
    assert visit(turn)[0] is None


@pytest.mark.parametrize(("turns", "booked"), [
    (["what about saturday, can i book for 2 at half past three"],
     {"day": "saturday", "people": "2", "time": "half past three"}),
    (["hello we have a reservation for 12 under Novak", "ok then can i make one now for tomorrow",
      "yes tomorrow 12.30 for two"], {"day": "tomorrow", "time": "12.30", "people": "2"}),
    (["a table and a latte"], {}),
    (["then a table for two, tomorrow about eleven"], {"day": "tomorrow", "people": "2", "time": "eleven"}),
    (["a table on Saturday, for three adults and a baby"], {"day": "Saturday", "people": "4"}),
    (["a table on Saturday at 1", "eight, and can we have the big table at the back"],
     {"day": "Saturday", "time": "1", "people": "8"}),
    (["a table for two", "today, now"], {"people": "2", "day": "today", "time": "now"}),
    (["a table for 8 tomorrow", "change the party to seven"], {"day": "tomorrow", "people": "7"}),
    (["I booked a table for tonight under Schmidt, can we come half an hour later?"], None),
    (["a table for 3 tomorrow at 2", "Schmidt, with dt"],
     {"day": "tomorrow", "time": "2", "people": "3", "name": "Schmidt"}),
    (["a table for 3 tomorrow at 2", "Okonkwo, O K O N K W O"],
     {"day": "tomorrow", "time": "2", "people": "3", "name": "Okonkwo"}),
    (["a table for 3 tomorrow at 2", "Name? Marta and Paul Lindqvist"],
     {"day": "tomorrow", "time": "2", "people": "3", "name": "Marta and Paul Lindqvist"}),
])  # fmt: skip
def test_what_is_booked(turns: list[str], booked: dict[str, str] | None) -> None:
    assert visit(*turns)[0] == booked


@pytest.mark.parametrize(("turns", "wish"), [
    (["Can I book a table outside for 6 tonight at 5"], "outside"),
    ([FULL, "outside please, because of the dogs"], "outside"),
    ([FULL, "Could we sit by the window?"], "by the window"), (["a table on the terrace for two"], "on the terrace"),
    (["a table on Saturday at 1", "eight, and can we have the big table at the back"], "the big table"),
    (["a table for 3 tomorrow at 2", "Meyer with a i"], "with a i"),
])  # fmt: skip
def test_wishes_of_a_booking_are_said_not_to_be_noted(turns: list[str], wish: str) -> None:
    assert f"I could not note “{wish}”" in visit(*turns)[1]


@pytest.mark.parametrize(("turn", "name"), [
    ("one for each", ""), ("and another brownie, for sharing", ""), ("just one!! for mum", ""),
    ("it's for dessert", ""), ("for my auntie", ""), ("it's Monday", ""), ("for leo", "leo"),
    ("its for leo. thats all", "leo"), ("yes thats right, i'm Leo", "Leo"), ("on the name Fitzgerald", "Fitzgerald"),
    ("oh, and it's for Tom", ""),
    ("by the way, it's for Tom", "Tom"),
])  # fmt: skip
def test_the_name_of_an_order(turn: str, name: str) -> None:
    guest = Visit(HOUSE)
    guest.turn("a brownie")
    guest.turn(turn)
    assert guest.state.name == name


def test_a_name_is_taken_off() -> None:
    guest = Visit(HOUSE)
    guest.turn("a hot chocolate, my name is Ed")
    assert "The name is removed." in guest.turn("my name isn't Ed lol. small").say
    assert guest.state.name == "" and guest.state.lines[0].size == "small"


@pytest.mark.parametrize("turn", ["with marshmallows for Emma", "and for Tom can you make that decaf"])
def test_whom_a_thing_is_for_is_not_the_name(turn: str) -> None:
    guest = Visit(HOUSE)
    guest.turn("a flat white")
    guest.turn(turn)
    assert guest.state.name == ""


@pytest.mark.parametrize(("turns", "said"), [
    ([FULL, "yes thanks"], "Is that right?"),
    ([f"{FULL}, and can you tell me if dogs are ok"], "Dogs are welcome on the terrace"),
    ([FULL, "and another table for two on Tuesday at 2"], "I can book only one table at a time."),
    ([FULL, "cancel the Tuesday one"], "There is no table for Tuesday in your order."),
    (["a brownie", "send it to table 5"], "I could not note “send it to table 5”."),
    ([FULL, "one hour later"], "I could not note “one hour later”."),
    (["a table tomorrow", "-3 people"], "“-3” cannot be booked."),
    (["a table for two tomorrow at 1", "no name"],
     "“no name” cannot be booked. Table: under which name? Say “no table” if you do not want one."),
    (["a table for two tomorrow at 1", "done"], "Say “no table” if you do not want one."),
    (["a table", "not today"], "All right. Table: for which day?"),
    # what has no place in it
    ([FULL, "My number is 0660 1234567. Do you need a deposit?"], "I could not note “0660 1234567”."),
    (["a brownie", "call me on 0660 1234567"], "I could not note “0660 1234567”."),
    (["a table for 4 at 4 on the 4th under Jo", "make that 5"], "I could not note “make that 5”."),
    # agreement and goodbye
    ([FULL, "Fine. That's all then, see you Saturday."],
     "Table: day tomorrow, time 1, people 3, name Ed. Is that right?"),
    ([FULL, "make it 2, that's all"],
     "I could not note “make it 2”. Please ask a member of staff. Table: day tomorrow, time 1, people 3, name Ed. Is"),
    ([FULL, "ok. actually can we do 2 pm instead"], "time 2 pm, people 3, name Ed. Anything else?"),
    ([FULL, "done", "yes that's it, see you saturday"], "Thank you, Ed. Table: day tomorrow"),
    ([FULL, "change the time to 2, that's all"], "Table: day tomorrow, time 2, people 3, name Ed. Is that right?"),
    (["a brownie", "done", "yes bye"], "Thank you. Your order: 1 Brownie."),
    (["a brownie", "done", "Quite right. Good day to you."], "Thank you. Your order: 1 Brownie."),
    (["a brownie", "Quite right. Good day to you."], "Your order: 1 Brownie. That is €3.40. Is that right?"),
    (["a brownie", "yes thats right, i'm Leo"], "Thank you, Leo. Your order: 1 Brownie. That is €3.40. Is that right?"),
    (["a brownie", "done", "bye"], "Is that right?"), (["good day to you"], HOUSE.texts["greeting"]),
    # answered from the state
    ([FULL, "So that's in the morning, half past ten, right?"], "Table: day tomorrow, time 1, people 3, name Ed."),
    ([FULL, "so it's for 3 people?"], "Table: day tomorrow, time 1, people 3, name Ed."),
    ([FULL, "are you open on Saturday at seven?"], "We are open Monday to Friday"),
    ([FULL, "what time did I book?"], "time 1"), ([FULL, "what did I book?"], "Table: day tomorrow"),
    ([FULL, "how many people did I say?"], "people 3"), ([FULL, "when is my booking?"], "day tomorrow, time 1"),
    ([FULL, "how many people is my booking for?"], "people 3"), ([FULL, "is it booked?"], "Table: day tomorrow"),
    ([FULL, "confirm"], "Is that right?"), ([FULL, "done", "y"], "Thank you, Ed."),
    (["a brownie", "total?"], "That is €3.40."), (["a brownie", "how many brownies do I have"], "1 Brownie"),
    (["a brownie", "done", "n"], "What should be different?"),
])  # fmt: skip
def test_what_is_said(turns: list[str], said: str) -> None:
    assert said in visit(*turns)[1]
