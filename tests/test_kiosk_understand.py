"""edge.kiosk.understand and what it stands on: orders, corrections, bookings and questions of our own making.

What strangers say is measured by training/kiosk_exam.py; here stands what must not change.
"""

from __future__ import annotations

import contextlib
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge
from edge.kiosk import house as house_file
from edge.kiosk import prompt, slots
from edge.kiosk.facts import choose
from edge.kiosk.mentions import close, vocabulary
from edge.kiosk.operations import UNKNOWN, Add, Answer, Book, Cancel, Change, Name, Plain, Remove, Talk, read, write
from edge.kiosk.say import line_text
from edge.kiosk.state import State, apply, keep_earlier
from edge.kiosk.understand import understand
from edge.kiosk.words import distance, stem, words

FOLDER = Path(__file__).parent / "vectors" / "kiosk" / "houses"
HOUSES = {path.stem: house_file.load(path) for path in FOLDER.glob("*.toml")}
HOUSES["cafe"] = CAFE = house_file.load(house_file.EXAMPLE)


def visit(house: str, *turns: str) -> State:
    state = State()
    for turn in turns:
        before = state
        for operation in understand(HOUSES[house], state, turn).operations:
            state = apply(HOUSES[house], state, operation)
        state = keep_earlier(before, state)
    return state


def order(house: str, *turns: str) -> list[str]:
    """The order as text: "2 Latte large +oat milk -sugar"."""
    return [
        " ".join([str(line.count), line.item, *filter(None, [line.size]),
                  *(f"+{e}" for e in line.extras), *(f"-{e}" for e in line.without)])
        for line in visit(house, *turns).lines
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("house", "turns", "lines"),
    [
        ("cafe", ["two large lattes with oat milk and a brownie please"], ["2 Latte large +oat milk", "1 Brownie"]),
        ("cafe", ["2 lattes, one large one small"], ["1 Latte large", "1 Latte small"]),
        ("cafe", ["can i get a large oat milk latte"], ["1 Latte large +oat milk"]),
        ("bakery", ["a ham and cheese croissant"], ["1 Butter croissant +cheese +ham"]),
        ("bakery", ["half a dozen bread rolls"], ["6 Bread roll"]),
        ("bakery", ["twenty-five choclate croisants"], ["25 Pain au chocolat"]),
        ("noodles", ["8 gyoza and pad thai with shrimp no peanuts"],
         ["1 Gyoza 8 pieces", "1 Pad thai +shrimp -peanuts"]),
        ("hotel", ["rosti with bacon"], ["1 Rösti +bacon"]),
        ("cafe", ["a latte", "large please"], ["1 Latte large"]),
        ("cafe", ["a brownie and a muffin", "no brownie"], ["1 Blueberry muffin"]),
        ("cafe", ["2 brownies", "make it three"], ["3 Brownie"]),
        ("cafe", ["2 brownies", "take one of the brownies off"], ["1 Brownie"]),
        ("cafe", ["small latte", "swap it for a hot chocolate"], ["1 Hot chocolate small"]),
        ("cafe", ["a croissant", "instead of the croissant I'd like a brownie"], ["1 Brownie"]),
        ("cafe", ["large latte with sugar", "no sugar please"], ["1 Latte large"]),
        ("cafe", ["small latte and a green tea", "add sugar to the tea"], ["1 Latte small", "1 Green tea +sugar"]),
        ("bakery", ["a big sourdough", "and slice the loaf"], ["1 Sourdough loaf large +sliced"]),
        ("cafe", ["a brownie", "cancel everything"], []),
        ("cafe", ["a brownie", "another one"], ["2 Brownie"]),
        ("cafe", ["an americano with chocolate and a latte with 2% milk"], ["1 Americano", "1 Latte +milk"]),
        ("cafe", ["two cappuccinos, one with oat milk and one with soy milk, both small", "change the soy one to oat"],
         ["2 Cappuccino small +oat milk"]),
        ("cafe", ["1 large latte, no sugar, 1 small latte w vanilla", "remove the small latte"],
         ["1 Latte large -sugar"]),
        ("noodles", ["2 bottles of coke", "cola cans not bottles", "one less"], ["1 Coke can"]),
        ("noodles", ["miso ramen with tofu", "not tofu, chicken"], ["1 Miso ramen +chicken"]),
        ("hotel", ["do you have an umbrella? I'll take one"], ["1 Umbrella"]),
        ("bakery", ["bakewell tart x4"], ["4 Bakewell tart"]),
        ("cafe", ["how much is a brownie?"], []),
    ],
)  # fmt: skip
def test_orders(house: str, turns: list[str], lines: list[str]) -> None:
    assert order(house, *turns) == lines


def test_bookings() -> None:
    state = visit("barber", "haircut with Danny tomorrow at 3", "Tom", "actually make it 4 pm")
    assert state.bookings == {
        "appointment": {"service": "haircut", "barber": "Danny", "day": "tomorrow", "time": "4 pm", "name": "Tom"}
    }
    state = visit("hotel", "a double room from Friday for 3 nights, two people", "Schmidt")
    assert state.bookings["room"] == {
        "kind": "double room", "arrival": "Friday", "nights": "3", "people": "2", "name": "Schmidt"
    }  # fmt: skip
    assert visit("cafe", "do I need to book a table?").bookings == {}
    party = visit("museum", "birthday party on June 5th, 12 kids, pirates", "knots instead of pirates", "15 kids")
    assert party.bookings["birthday party"] == {"day": "June 5th", "children": "15", "theme": "knots"}
    assert party.lines == ()


def test_names_and_ends() -> None:
    state = visit("cafe", "a brownie for Agnieszka", "that's all thanks", "yes")
    assert state.name == "Agnieszka" and state.done and state.confirmed
    assert understand(CAFE, State(), "xyzzy plugh").operations == [Plain("unknown")]


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("do you take dogs?", "Dogs are welcome"),
        ("can I get the wifi password?", "Wi-Fi is free"),
        ("is the soup vegan", "lentil soup is vegan"),
        ("can I bring my own mug?", "own cup"),
        ("how much is a large latte?", "Latte: small"),
        ("how old is the building?", None),
        ("do you have any job openings?", None),
    ],
)
def test_questions(question: str, says: str | None) -> None:
    (answer,) = understand(CAFE, State(), question).operations
    assert isinstance(answer, Answer)
    assert says in CAFE.statements()[answer.number - 1] if says else answer.number == 0


@pytest.mark.parametrize(
    ("turn", "kind"),
    [("what can I get here?", "help"), ("who are you", "help"), ("what's my total?", "order"), ("cheers!", "thanks")],
)
def test_talk(turn: str, kind: str) -> None:
    state = visit("cafe", "a brownie")
    assert understand(CAFE, state, turn).operations == [Talk(kind)]


@pytest.mark.parametrize("turn", [
    "I want no croissant", "not a brownie", "I love brownies", "my brother had a croissant yesterday",
    "I burnt my tongue on the latte", "this brownie is the bomb", "my wife never drinks coffee",
    "we ate the carrot cake last week", "until when can I get a toastie", "I'm torn between the soup and the toastie",
])  # fmt: skip
def test_what_guests_tell_is_not_ordered(turn: str) -> None:
    assert visit("cafe", turn).lines == ()
    assert len(visit("cafe", "two large lattes", turn).lines) == 1


@pytest.mark.parametrize("turn", [
    "I'd love a brownie", "my wife loves brownies so I'll have one", "we need a brownie", "I like a brownie please",
])  # fmt: skip
def test_what_guests_tell_and_order(turn: str) -> None:
    assert [line.item for line in visit("cafe", turn).lines] == ["Brownie"]


@pytest.mark.parametrize(("turns", "lines"), [
    (["a large latte and a large cappuccino", "the latte with oat milk and the cappuccino with soy"],
     ["1 large Latte with oat milk", "1 large Cappuccino with soy milk"]),
    (["a muffin and a croissant", "never mind, just the croissant"], ["1 Croissant"]),
    (["never mind, just a small latte then"], ["1 small Latte"]),
    (["a large latte for me, and my husband will have the same"], ["2 × large Latte"]),
    (["a hot chocolate for my little boy"], ["1 Hot chocolate"]),
    (["two small lattes", "the little one with oat milk"], ["2 × small Latte with oat milk"]),
])  # fmt: skip
def test_what_ordinary_guests_say(turns: list[str], lines: list[str]) -> None:
    assert [line_text(line) for line in visit("cafe", *turns).lines] == lines


@pytest.mark.parametrize(
    ("turn", "lines"),
    [
        ("the large latte and a small one", ["1 large Latte", "1 small Latte"]),
        ("the latte large, one small", ["1 large Latte", "1 small Latte"]),
    ],
)
def test_one_thing_named_for_two_lines(turn: str, lines: list[str]) -> None:
    assert [line_text(line) for line in visit("cafe", "a large latte", turn).lines] == lines


@pytest.mark.parametrize("turn", ["Hello, a table for two please, for Saturday", "Hi, table for two on Saturday"])
def test_a_greeting_is_not_a_name(turn: str) -> None:
    assert visit("cafe", turn).bookings["table"].keys() == {"day", "people"}


@pytest.mark.parametrize("turn", ["not", "?", "no", "two", "with", "-", "a a a a", "the the", "£", "1 2 3", "the one"])
def test_fragments_are_harmless(turn: str) -> None:
    for name, house in HOUSES.items():
        for state in (State(), visit(name, f"two {house.items[0].name}")):
            for operation in understand(house, state, turn).operations:
                state = apply(house, state, operation)


GLUE = """a the two no without with instead of make it and , . ? remove add for Anna at 7 friday one another both each
large small not sorry the first other ones should be want rather less more half actually""".split()


@st.composite
def conversation(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A house, and turns put together from its names and from what corrects them."""
    name = draw(st.sampled_from(sorted(HOUSES)))
    house = HOUSES[name]
    items = draw(st.lists(st.sampled_from(house.items), min_size=1, max_size=3))  # few, so that they are met again
    names = [each for item in items for each in (item.name, *item.others, *item.sizes, *item.extras)]
    said = st.one_of(st.sampled_from(GLUE), st.sampled_from(names), st.text(max_size=8))
    return name, draw(st.lists(st.lists(said, max_size=9).map(" ".join), max_size=4))


@settings(max_examples=200, deadline=None)
@given(conversation())
def test_nothing_is_said_that_neither_guest_nor_owner_said(drawn: tuple[str, list[str]]) -> None:
    """Whatever a guest types: operations apply, have a text form, and hold words of the turn or of the house only."""
    name, turns = drawn
    house, state = HOUSES[name], State()
    for turn in turns:
        found = understand(house, state, turn)
        operations = found.operations
        assert operations or found.unclear, "nothing is done, and nothing asked"  # "ice cream": which of two
        assert len(operations) <= 4 + 2 * len(turn)
        for operation in operations:
            assert read(write(operation)) == operation
            state = apply(house, state, operation)
            match operation:
                case Add(item, _, size, extras, without) | Change(_, _, size, item, extras, without):
                    owner = house.item(item) or house.items[0]
                    assert not item or owner.name == item
                    assert not size or any(size in each.sizes for each in house.items)
                    assert {*extras, *without} <= set(house.extras)
                case Name(value) | Book(_, _, value):
                    heard = " ".join(turn.split()).casefold()
                    choices = [c for b in house.bookings for k in b.fields.values() if isinstance(k, tuple) for c in k]
                    assert value.casefold() in heard or value in choices or value.isdecimal() or value == state.name
                case Answer(number):
                    assert number <= len(house.statements())
                case Remove():
                    pass


# ---- what it stands on --------------------------------------------------------------------------------------------


def test_words() -> None:
    assert [word.text for word in words("Two lattes, 7:30!")] == ["Two", "lattes", ",", "7:30", "!"]
    assert stem("lattes") == stem("latte") and stem("sliced") == stem("slice") and stem("berries") == "berry"
    assert close(words("cappucino")[0], stem("cappuccino")) and close(words("cofee")[0], stem("coffee"))
    assert not close(words("plain")[0], stem("plaice"))  # another word of English


@given(st.text("abcd", max_size=6), st.text("abcd", max_size=6))
def test_distance(a: str, b: str) -> None:
    assert distance(a, b) == distance(b, a)
    assert (distance(a, b) == 0) == (a == b)
    assert distance(a, b) >= min(3, abs(len(a) - len(b)))


@pytest.mark.parametrize(
    ("text", "day", "time"),
    [
        ("a table for four at 7 on Friday", "Friday", "7"),
        ("tomorrow at half past seven", "tomorrow", "half past seven"),
        ("the 12th of March around 7:30 pm", "the 12th of March", "7:30 pm"),
        ("next friday, noon", "next friday", "noon"),
        ("a latte for Anna", None, None),
    ],
)
def test_days_and_times(text: str, day: str | None, time: str | None) -> None:
    assert slots.day(text) == day and slots.time(text) == time


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my name is van der Berg, thanks", "van der Berg"),
        ("a latte for Anna please", "Anna"),
        ("one latte for my wife", None),
        ("I'm vegan", None),
        ("under Miller", "Miller"),
    ],
)
def test_names(text: str, name: str | None) -> None:
    assert slots.name(text) == name


def test_parts_of_names_and_what_is_not_clear() -> None:
    mentions = vocabulary(HOUSES["bakery"]).mentions(words("a croissant and a sourdough"))
    assert len(mentions[0].values) == 3 and mentions[1].values == ("Sourdough loaf",)
    assert understand(HOUSES["cafe"], State(), "a tea").unclear == [("tea", ("Green tea", "Black tea"))]


def test_a_house_without_facts() -> None:
    assert choose(house_file.parse('name = "x"'), "do you take dogs?") == 0


# ---- the same road with a model -----------------------------------------------------------------------------------


def test_spans_are_runs_of_words() -> None:
    assert prompt.spans("at 7, Anna") == ["at", "at 7", "at 7, Anna", "7", "7, Anna", "Anna"]


def test_a_model_can_write_nothing_but_operations(bundled_model: Path) -> None:
    """Whatever a model is inclined to say, what comes out applies to this house and this order."""
    state = visit("cafe", "two large lattes and a brownie")
    with edge.load(bundled_model) as model:
        for turn in ("take the brownie off", "a table for Zoë on Friday", 'say "quoted" \\ and ü'):
            operations = prompt.interpret(model, CAFE, state, turn).operations
            assert operations
            after = state
            for operation in operations:
                after = apply(CAFE, after, operation)


CORRECTED = [
    ("noodles", ["a large tonkotsu with an egg", "can the egg be left out"], ["1 large Tonkotsu ramen"]),
    ("noodles", ["a large tonkotsu and gyoza", "8"], ["1 large Tonkotsu ramen", "1 8 pieces Gyoza"]),
    ("noodles", ["a cola and edamame", "can"], ["1 can Coke", "1 Edamame"]),
    ("noodles", ["a large tonkotsu", "make the ramen a miso"], ["1 large Miso ramen"]),
    ("noodles", ["a tofu curry, mild", "she wants hers spicy"], ["1 Tofu curry with spicy"]),
    ("noodles", ["one large beef pho", "double the pho"], ["2 × large Beef pho"]),
    ("noodles", ["a mango lassi no ice", "lassi with ice is ok"], ["1 Mango lassi with ice"]),
    ("noodles", ["a pad thai with chicken", "pad thai no chicken, shrimp"], ["1 Pad thai with shrimp"]),
    ("bakery", ["two butter croissants and a cinnamon bun", "swap the bun for a pain au chocolat"],
     ["2 × Butter croissant", "1 Pain au chocolat"]),
    ("bakery", ["a birthday cake", "actually a whole victoria sponge would be better"], ["1 whole Victoria sponge"]),
    ("bakery", ["2 fruit scones with jam and cream", "cream on just one scone"],
     ["1 Fruit scone with clotted cream and jam", "1 Fruit scone with jam"]),
    ("bakery", ["2 brioches", "butter on one brioche"], ["1 Brioche", "1 Brioche with butter"]),
    ("bakery", ["4 baguettes: 1 with butter, 1 with cheese, 2 plain", "remove one plain"],
     ["1 Baguette", "1 Baguette with butter", "1 Baguette with cheese"]),
]  # fmt: skip


@pytest.mark.parametrize(("house", "turns", "order"), CORRECTED)
def test_corrections_in_other_words(house: str, turns: list[str], order: list[str]) -> None:
    assert [line_text(line) for line in visit(house, *turns).lines] == order


def test_a_name_that_is_spelled() -> None:
    assert slots.name("my name is spelled Pria") == "Pria"


class Scripted:
    """In place of an engine: writes what it is told."""

    def __init__(self, text: str) -> None:
        self.text, self.grammar = text, ""

    def session(self, system: str) -> Any:
        return contextlib.nullcontext(self)

    def ask(self, turn: str, grammar: str, **_: Any) -> Any:
        self.grammar = grammar
        return [types.SimpleNamespace(text=self.text)]


def test_with_a_model_wishes_are_named_too() -> None:
    brownie = prompt.interpret(Scripted('add 1 "Brownie"'), CAFE, State(), "a brownie without nuts please")
    assert brownie.operations == [Add("Brownie")] and brownie.unnoted == ["without nuts"]
    latte = prompt.interpret(
        Scripted('add 1 "Latte" size "large" with "butter"'), CAFE, State(), "a large latte with butter")
    assert latte.operations == [Add("Latte", 1, "large")] and latte.unnoted == ["with butter"]
    asked = prompt.interpret(Scripted("answer 12"), CAFE, State(), "is there soup without nuts?")
    assert asked.operations == [Answer(12)] and not asked.unnoted
    booked = State(bookings={"table": {"day": "Friday"}})
    model = Scripted('cancel "table"')
    assert prompt.interpret(model, CAFE, booked, "no table").operations == [Cancel("table")]
    assert "cancel" in model.grammar and "Table: day Friday." in prompt.situation(CAFE, booked)
    assert prompt.interpret(model, CAFE, State(), "no table").operations == [UNKNOWN] and "cancel" not in model.grammar


@pytest.mark.parametrize(("house", "turns", "lines"), [
    ("cafe", ["a large latte", "make it a cappuccino"], ["1 large Cappuccino"]),
    ("cafe", ["two double espressos", "one of them single"], ["1 double Espresso", "1 single Espresso"]),
    ("cafe", ["a large latte with oat milk", "soy instead"], ["1 large Latte with soy milk"]),
    ("cafe", ["one croissant with butter, one without"], ["1 Croissant with butter", "1 Croissant without butter"]),
    ("cafe", ["a large latte and a large cappuccino, both with oat milk"],
     ["1 large Latte with oat milk", "1 large Cappuccino with oat milk"]),
    ("cafe", ["large cappuccino with an extra shot, a small one without"],
     ["1 large Cappuccino with extra shot", "1 small Cappuccino without extra shot"]),
    ("cafe", ["a green tea and a brownie", "the brownie is not needed"], ["1 Green tea"]),
    ("cafe", ["a small latte", "sorry no, a flat white"], ["1 Flat white"]),
    ("cafe", ["two brownies", "make that two, not one"], ["2 × Brownie"]),
    ("barber", ["two fifty pound vouchers"], ["2 × £50 Gift voucher"]),
    ("barber", ["a 50 quid voucher in a gift box"], ["1 £50 Gift voucher with gift box"]),
    ("noodles", ["lrg pho no coriander, can of coke"], ["1 large Beef pho without coriander", "1 can Coke"]),
    ("noodles", ["kimchi and edamame", "cancel both of those"], []),
    # which of several
    ("noodles", ["a large pho and a large miso ramen", "no egg on the second one"],
     ["1 large Beef pho", "1 large Miso ramen without soft egg"]),
    ("theatre", ["two tubs with vanilla and one with strawberry", "take one of the vanillas off"],
     ["1 Ice cream tub with vanilla", "1 Ice cream tub with strawberry"]),
    ("climbing", ["shoes, a 43 and a 39", "the 39 should be a 38, they run big"],
     ["1 43 Climbing shoes", "1 38 Climbing shoes"]),
    ("climbing", ["two shoes in 33 and two in 35", "only one in 33"], ["1 33 Climbing shoes", "2 × 35 Climbing shoes"]),
    ("chippy", ["two large haddocks", "make one of them a cod"], ["1 large Haddock", "1 large Cod"]),
    ("theatre", ["two teas", "one of the teas without lemon"], ["1 Tea", "1 Tea without lemon"]),
    ("burritos", ["two tacos with pork, one taco with fish", "swap the two pork ones for chicken"],
     ["2 × Taco with chicken", "1 Taco with fish"]),
    # how many
    ("cafe", ["two flat whites", "no, a flat white"], ["1 Flat white"]),
    ("cafe", ["four brownies", "drop two of them"], ["2 × Brownie"]),
    ("cafe", ["two brownies", "not two, three"], ["3 × Brownie"]),
    ("cafe", ["six brownies", "that's too many, four will do"], ["4 × Brownie"]),
    ("cafe", ["five brownies", "one of us is ill, so four brownies"], ["4 × Brownie"]),
    ("chippy", ["four teas", "Doreen doesn't want a tea after all"], ["3 × Tea"]),
    # slips within a turn
    ("theatre", ["two tubs, one strawberry, no sorry, both vanilla"], ["2 × Ice cream tub with vanilla"]),
    ("theatre", ["a pint, no, a half of lager"], ["1 half Lager"]),
    ("cafe", ["two lattes, no sorry, three"], ["3 × Latte"]),
    # taken back
    ("climbing", ["a 60 m rope and a helmet", "drop the rope", "no, put the rope back"],
     ["1 Helmet", "1 60 m Rope"]),
    ("climbing", ["a helmet", "don't bother with the helmet"], []),
    ("theatre", ["a bottle of prosecco", "cancel the prosecco, they want G&Ts instead, two doubles"],
     ["2 × double Gin and tonic"]),
    ("chippy", ["a bottle of coke", "a can rather than a bottle, sorry"], ["1 can Cola"]),
    # another
    ("chippy", ["a chip butty with cheese", "and another one but no cheese on that"],
     ["1 Chip butty with cheese", "1 Chip butty without cheese"]),
    ("chippy", ["plaice and a pot of tea", "the same again for my wife"], ["2 × Plaice", "2 × pot Tea"]),
])  # fmt: skip
def test_corrections(house: str, turns: list[str], lines: list[str]) -> None:
    assert [line_text(line) for line in visit(house, *turns).lines] == lines


@pytest.mark.parametrize(("house", "turn", "lines"), [
    # sizes
    ("climbing", "two adults and a kid for half a day", ["2 × half day Adult ticket", "1 half day Kids' ticket"]),
    ("climbing", "day tickets for two adults and a kid", ["2 × day Adult ticket", "1 day Kids' ticket"]),
    ("climbing", "four shoes: 38, 38, 40, 44", ["2 × 38 Climbing shoes", "1 40 Climbing shoes", "1 44 Climbing shoes"]),
    ("climbing", "three harnesses, two medium and a small", ["2 × medium Harness", "1 small Harness"]),
    ("burritos", "four churros with chocolate", ["1 four pieces Churros with chocolate dip"]),
    ("theatre", "two pints and a lemonade", ["2 × pint Lager", "1 Lemonade"]),
    # which extra goes where
    ("chippy", "sausage and regular chips, gravy on the chips", ["1 Battered sausage", "1 regular Chips with gravy"]),
    ("chippy", "three kids boxes, no ketchup on one of them", ["2 × Kids' box", "1 Kids' box without ketchup"]),
    ("burritos", "two large bowls, chicken for him, beef for me, sour cream on both",
     ["1 large Burrito bowl with chicken and sour cream", "1 large Burrito bowl with beef and sour cream"]),
    ("burritos", "corn on the cob x2, one w lime, the other just cheese",
     ["1 Corn on the cob with lime", "1 Corn on the cob with cheese"]),
    ("burritos", "3 tacos, 2 beef 1 chicken, all w coriander",
     ["2 × Taco with beef and coriander", "1 Taco with chicken and coriander"]),
    # counts, spelling
    ("chippy", "cod and chips twice", ["2 × Cod", "2 × Chips"]),
    ("climbing", "large cofee with oatmilk", ["1 large Coffee with oat milk"]),
    ("chippy", "a small chips plain", ["1 small Chips"]),
    # nothing is ordered
    ("climbing", "does he have to bring his own harness to that?", []),
    ("climbing", "does my labrador have to wait in the car while we climb", []),
    ("chippy", "cheers mate", []),
])  # fmt: skip
def test_orders_of_strangers(house: str, turn: str, lines: list[str]) -> None:
    assert [line_text(line) for line in visit(house, turn).lines] == lines


@pytest.mark.parametrize(("house", "turns", "lines"), [
    # as it was before
    ("sundaes", ["six orange lollies", "make it five", "no, six was right"], ["6 × orange Ice lolly"]),
    ("sundaes",
     ["a regular peanut butter shake", "replace it with a strawberry one", "nah put it back to peanut butter"],
     ["1 regular Peanut butter milkshake"]),
    ("cafe", ["a small latte", "make it large", "no, small was fine"], ["1 small Latte"]),
    # what becomes of what was ordered
    ("cafe", ["a small americano with sugar", "do make that coffee a large one, would you"],
     ["1 large Americano with sugar"]),
    ("sundaes", ["two single vanilla cones and a single chocolate cone", "can all three be vanilla actually"],
     ["3 × single Cone with vanilla"]),
    ("sundaes", ["a triple cone with chocolate and mango", "could I have that in a tub instead of a cone?"],
     ["1 triple Tub with chocolate and mango"]),
    ("sundaes", ["three single strawberry cones", "one of the strawberry ones should be mango"],
     ["2 × single Cone with strawberry", "1 single Cone with mango"]),
    ("sundaes", ["a regular peanut butter shake", "replace the peanut butter shake with a strawberry one, same size"],
     ["1 regular Strawberry milkshake"]),
    ("sundaes", ["two waffles with strawberries", "make that one waffle with strawberries and one with banana"],
     ["1 Belgian waffle with strawberries", "1 Belgian waffle with banana"]),
    ("sundaes", ["a kids sundae with marshmallows", "marshmallows off, chocolate sauce on"],
     ["1 Kids' sundae with chocolate sauce"]),
    ("sundaes", ["a waffle with bacon and syrup", "the bacon one without the syrup please, just bacon"],
     ["1 Belgian waffle with bacon"]),
    ("cafe", ["a latte. No wait. A flat white"], ["1 Flat white"]),
    ("limekiln", ["two regular flat whites", "both with oat milk, I've just been told off"],
     ["2 × regular Flat white with oat milk"]),
    ("limekiln", ["a pretzel and a tea", "take both off again please, I left my wallet at home"], []),
    ("limekiln", ["two pairs of kids shoes", "one pair of kids shoes less please"], ["1 kids Climbing shoes"]),
    ("limekiln", ["three rolls of tape", "hmm no, two's plenty"], ["2 × Finger tape"]),
    ("cafe", ["a large cappuccino with oat milk", "regular milk is fine"], ["1 large Cappuccino with milk"]),
    ("cafe", ["a large latte with vanilla", "can you make that caramel"], ["1 large Latte with caramel syrup"]),
    ("cafe", ["a croissant and a muffin", "on second thoughts just the croissant"], ["1 Croissant"]),
    ("cafe", ["a green tea", "actually a black one"], ["1 Black tea"]),
    ("cafe", ["a green tea", "black instead of green"], ["1 Black tea"]),
    ("cafe", ["a cup of soup and a bagel", "my friend doesn't want the soup any more"], ["1 Avocado bagel"]),
    ("cafe", ["a brownie and a carrot cake", "swap the brownie and the cake for two muffins"],
     ["2 × Blueberry muffin"]),
    ("cafe", ["two brownies", "change one to a muffin"], ["1 Brownie", "1 Blueberry muffin"]),
    ("cafe", ["two brownies", "one of them should be a muffin"], ["1 Brownie", "1 Blueberry muffin"]),
    ("cafe", ["two large lattes, one with oat milk", "oat milk in the other one too"],
     ["2 × large Latte with oat milk"]),
    ("cafe", ["a large latte and a brownie", "can the latte be a small one"], ["1 small Latte", "1 Brownie"]),
    ("cafe", ["a large latte and a brownie", "brownie out, croissant in"], ["1 large Latte", "1 Croissant"]),
    ("cafe", ["a large latte and a brownie", "my friend will have the same latte"], ["2 × large Latte", "1 Brownie"]),
    ("cafe", ["a large latte with sugar", "without"], ["1 large Latte"]),
    ("cafe", ["two large lattes", "one with soy milk, one with oat milk"],
     ["1 large Latte with soy milk", "1 large Latte with oat milk"]),
    ("cafe", ["two croissants and two brownies", "one of each less"], ["1 Croissant", "1 Brownie"]),
    ("cafe", ["a small latte, a small cappuccino and a brownie", "the latte and the cappuccino large"],
     ["1 large Latte", "1 large Cappuccino", "1 Brownie"]),
    ("cafe", ["a croissant, a muffin and a brownie", "drop the last two"], ["1 Croissant"]),
    ("cafe", ["five brownies", "take two away"], ["3 × Brownie"]),
    ("cafe", ["five brownies", "too many, let's say three"], ["3 × Brownie"]),
    ("cafe", ["five brownies", "turn three into croissants"], ["2 × Brownie", "3 × Croissant"]),
    ("cafe", ["an orange juice, small", "nah, make it a water"], ["1 small Orange juice"]),  # which water is asked
    # counts and sizes
    ("cafe", ["two teas, one green with lemon, one black with soy milk"],
     ["1 Green tea with lemon", "1 Black tea with soy milk"]),
    ("cafe", ["2 small 1 large latte"], ["2 × small Latte", "1 large Latte"]),
    ("limekiln", ["shoes for two adults and a kid"], ["2 × adult Climbing shoes", "1 kids Climbing shoes"]),
    ("limekiln", ["one pair of adult shoes with socks"], ["1 adult Climbing shoes with socks"]),
    ("limekiln", ["half a chilli with nachos"], ["1 half Chilli bowl with nachos"]),
    # what is told orders nothing
    ("limekiln", ["Is there somewhere she can play? She's only two and a half"], []),
    ("limekiln", ["got any beer here? like proper beer"], []),
    ("sundaes", ["a banana split", "My son swells up if he so much as touches a peanut, is it safe for him?"],
     ["1 Banana split"]),
    ("limekiln", ["a pretzel", "Is there somewhere she can play? She's only two and a half"], ["1 Pretzel"]),
    ("sundaes", ["My son swells up if he so much as touches a peanut, is it safe for him?"], []),
])  # fmt: skip
def test_corrections_of_strangers(house: str, turns: list[str], lines: list[str]) -> None:
    assert [line_text(line) for line in visit(house, *turns).lines] == lines


@pytest.mark.parametrize(("house", "turns", "bookings"), [
    ("limekiln", ["a lane on Saturday at half past ten, 4 people", "could you make that eleven instead?"],
     {"lane": {"day": "Saturday", "time": "eleven", "people": "4"}}),
    ("sundaes", ["a table tonight at eight o'clock, 3 people", "make it seven, not eight. And there's 4 of us"],
     {"table": {"day": "tonight", "time": "seven", "people": "4"}}),
    ("limekiln", ["a lane at 7pm tomorrow for 6", "Dave and Ann are coming too, make that eight"],
     {"lane": {"day": "tomorrow", "time": "7pm", "people": "8"}}),
    ("limekiln", ["lane tomorrow week, 7pm, overhang please"],
     {"lane": {"wall": "overhang", "day": "tomorrow week", "time": "7pm"}}),
    ("limekiln", ["a lane, day after tomorrow, 1930", "five climbers, and we'd love the slab"],
     {"lane": {"wall": "slab", "day": "day after tomorrow", "time": "1930", "people": "5"}}),
    ("limekiln", ["a lane on the 30th at noon. It's me plus three mates", "can't do noon, it has to be half past nine"],
     {"lane": {"day": "the 30th", "time": "half past nine", "people": "4"}}),
    ("limekiln", ["a lane on Friday for 8", "we'll only be six, two of them are scared of heights"],
     {"lane": {"day": "Friday", "people": "6"}}),
    ("limekiln", ["a lane on Friday for 2", "and if one of us gets ill, do we still have to pay?"],
     {"lane": {"day": "Friday", "people": "2"}}),
    ("cafe", ["table for 4 on friday at 6", "one of us can't come"],
     {"table": {"day": "friday", "time": "6", "people": "3"}}),
    ("cafe", ["table for 2 on friday at 6", "plus one"], {"table": {"day": "friday", "time": "6", "people": "3"}}),
    ("cafe", ["table for 2 on friday at 6", "seven would be better"],
     {"table": {"day": "friday", "time": "seven", "people": "2"}}),
    ("cafe", ["a table at 19:00 for 2 adults and 2 kids"], {"table": {"time": "19:00", "people": "4"}}),
    ("hotel", ["single room from monday, two nights", "one night more"],
     {"room": {"kind": "single room", "arrival": "monday", "nights": "3"}}),
    ("limekiln", ["lane on the tower wall saturday at ten", "overhang not tower"],
     {"lane": {"wall": "overhang", "day": "saturday", "time": "ten"}}),
    ("limekiln", ["one place on the beginners course next Sunday"],
     {"course": {"kind": "beginners", "day": "next Sunday", "people": "1"}}),
    ("limekiln", ["a lane on Saturday at 3 and I also want to do the falling practice course"],
     {"lane": {"day": "Saturday", "time": "3"}, "course": {"kind": "falling practice"}}),
    ("sundaes", ["book me a table for Sunday at 12 noon, just two, 07700 900871"],
     {"table": {"day": "Sunday", "time": "12 noon", "people": "2", "phone": "07700 900871"}}),
    ("theatre", ["two people for the ghosts tour, oh no sorry, three, I forgot Priya"],
     {"backstage tour": {"route": "ghosts", "people": "3"}}),
    ("theatre", ["a table for two tonight", "the ghosts tour", "we don't need the tour any more, just the table"],
     {"table": {"day": "tonight", "people": "2"}}),
    ("climbing", ["the beginners thing on Monday for two people"],
     {"beginners' course": {"day": "Monday", "people": "2"}}),
    ("climbing", ["can we bring a cake from home for the party"], {}),
    ("chippy", ["can you keep a table for us"], {"table": {}}),
    ("burritos", ["cooking class, tamales, 2 ppl", "tbh forget it, too busy"], {}),
])  # fmt: skip
def test_bookings_of_strangers(house: str, turns: list[str], bookings: dict[str, dict[str, str]]) -> None:
    assert visit(house, *turns).bookings == bookings


def test_the_guests_of_a_table_are_not_cones() -> None:
    assert order("sundaes", "a table for 4 at 5 today and a double cone with mango") == ["1 Cone double +mango"]


@pytest.mark.parametrize(("text", "day"), [
    ("saturday 9.30", "saturday"), ("not friday, tuesday", "tuesday"), ("I can't do Monday, Wednesday", "Wednesday"),
    ("move it from Friday to Sunday", "Sunday"), ("on 24.12.", "24.12"), ("6.15", None),
])  # fmt: skip
def test_the_day_that_is_meant(text: str, day: str | None) -> None:
    assert slots.day(text) == day


@pytest.mark.parametrize(("turns", "lines"), [
    (["a pint of lager and a hot dog", "Make that a half."], ["1 Beer half pint", "1 Hot dog"]),
    (["two beers, pints", "one of them a half, sorry, I'm driving", "Cancel the half."], ["1 Beer pint"]),
    (["2 hot dogs w onions", "one of em without onions", "make it three of the ones with onions"],
     ["3 Hot dog +onion", "1 Hot dog"]),
    (["chicken burger", "no wait, bean burger", "ugh no, chicken burger, final answer"], ["1 Chicken burger"]),
    (["a hot dog and a small fries for the little one"], ["1 Hot dog", "1 Fries small"]),
    (["two single classics with ketchup for the boys"], ["2 Classic burger single +ketchup"]),
    (["two single classics", "cheese on one of those", "Cheese on neither."], ["2 Classic burger single"]),
    (["one dozen wings with hot sauce, one dozen with bbq", "both bbq please"], ["2 Chicken wings dozen +BBQ sauce"]),
    (["two small fries", "Dad wants chilli on one of the fries"], ["1 Fries small", "1 Fries small +chilli"]),
    (["4 large cokes", "and one less of the normal coke"], ["3 Cola large"]),
    (["can I have an egg on a cheeseburger?"], ["1 Cheeseburger +fried egg"]),
    (["a small fries", "make it large", "nah go back to small fries"], ["1 Fries small"]),
    (["a large vanilla shake and a brownie", "no brownie", "keep the brownie in, it's the shake I don't want"],
     ["1 Brownie"]),
])  # fmt: skip
def test_corrections_at_a_burger_counter(turns: list[str], lines: list[str]) -> None:
    assert sorted(order("joes", *turns)) == sorted(lines)


def test_another_name_and_a_table_beside_an_order() -> None:
    named = visit("cafe", "a table tomorrow at 2 for 2, name Ed", "not Ed, Bob")
    assert named.bookings["table"]["name"] == "Bob"
    assert visit("cafe", "a table and a latte").bookings == {"table": {}}
    assert not visit("cafe", "can I bring a latte to a table").bookings
