"""edge.kiosk: house files, operations and the order they keep; no model is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import InvalidFile, UsageError
from edge.kiosk import house as house_file
from edge.kiosk.check import unwritable
from edge.kiosk.operations import (
    CONFIRM,
    DENY,
    DONE,
    MAX_COUNT,
    PLAIN,
    RESTART,
    TALK,
    Add,
    Answer,
    Book,
    Cancel,
    Change,
    Name,
    Plain,
    Remove,
    Talk,
    grammar,
    read,
    write,
)
from edge.kiosk.state import Line, State, apply, as_dict, line_price, missing, total

HOUSES = [Path(house_file.EXAMPLE), *sorted((Path(__file__).parent / "vectors" / "kiosk" / "houses").glob("*.toml"))]
CAFE = house_file.load(house_file.EXAMPLE)


# ---- house files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", HOUSES, ids=lambda path: path.stem)
def test_houses_that_ship_are_valid(path: Path) -> None:
    house = house_file.load(path)
    assert house.items and house.facts and house.bookings
    assert house.statements()[: len(house.facts)] == house.facts


def test_prices_are_exact() -> None:
    house = house_file.parse('name = "x"\n[[items]]\nname = "a"\nprice = { s = 0.29, l = 19.99 }\n')
    assert house.items[0].price == {"s": 29, "l": 1999}  # 0.29 * 100 is 28.999... in floats
    assert house.price_line(house.items[0]) == "a: s €0.29, l €19.99."
    assert house_file.parse('name = "x"\ncurrency = "CHF"').money(1205) == "12.05 CHF"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('name="x"\n[[items]]\nname="a"\nprice=1\n\n[[items]]\nname="b"\nprice=1.234\n', 8, "more than two decimals"),
        ('name="x"\n[[items]]\nname="a"\nprice="1"\n', 4, "must be a number"),
        ('name="x"\n[[items]]\nname="a"\nprice=-1\n', 4, "must be a number"),
        ('name="x"\n[[items]]\nname="a"\nprice=nan\n', 4, "must be a number"),
        ('name="x"\n[[items]]\nname="a"\n', 2, "needs a price"),
        ('name="x"\n[[items]]\nname="a"\nextras=["z"]\nprice=2', 4, 'extra "z" is not listed'),
        ('name="x"\n[[items]]\nname="a"\nprice=1\n[[items]]\nname="A"\nprice=1', 5, "also a name of"),
        ('name="x"\n\nfoo=1', 3, '"foo" is unknown'),
        ('name="x"\nfacts=[\n"one",\n"two",\n"two",\n]', 4, "twice"),
        ('name="x"\n[texts]\nunknown=""', 3, "must be a text"),
        ('name="x"\n[[bookings]]\nname="t"\n[bookings.fields]\nday="dy"', 5, "must be one of"),
        ('name="x"\n[orders]\nto="paper"', 3, "stdout"),
        ('name="x"\nlanguage="de"', 2, 'use "en"'),
        ('name="x"\n[[items]\n', 2, ""),
        ('facts=["a"]', 1, "needs a name"),
    ],
)
def test_complaints_name_the_line(text: str, line: int, says: str) -> None:
    with pytest.raises(InvalidFile, match=rf"^cafe\.toml, line {line}: .*") as error:
        house_file.parse(text, "cafe.toml")
    assert says in str(error.value)


def test_all_mistakes_are_listed_by_line() -> None:
    text = 'name="x"\nfoo=1\n[extras]\noil=-1\n[[items]]\nname="a"\nprise=1\n[[items]]\nname="b"\n' \
           'price={s="1",l=true}\nextras=["z","oil"]\n[[items]]\nprice=3\n[[items]]\nname="B"\nprice=1\n[texts]\n' \
           'lang="a"\nlong=3\n[orders]\n[[bookings]]\nname="t"\n[bookings.fields]\nday="dy"\nn=[]'
    with pytest.raises(house_file.InvalidHouse) as error:
        house_file.parse(text, "h.toml")
    found = [mistake.removeprefix("h.toml, line ").split(": ", 1) for mistake in error.value.mistakes]
    number = "a price must be a number"
    for (line, message), (wanted, says) in zip(found, [
        ("2", '"foo" is unknown'), ("4", number), ("5", '"a" needs a price'), ("7", '"prise" is unknown'),
        ("10", number), ("10", number), ("11", 'the extra "z" is not listed'), ("12", "each of the items needs a name"),
        ("14", '"B" is also a name of "b"'), ("18", '"lang" is unknown'), ("19", '"long" must be a text'),
        ("20", "orders have one destination"), ("24", '"day" must be one of'), ("25", '"n" must be one of'),
    ], strict=True):  # fmt: skip
        assert line == wanted and message.startswith(says)
    assert str(error.value) == f"{error.value.mistakes[0]} (13 more mistakes: see bitnet-edge kiosk check)"


@pytest.mark.parametrize(("text", "mistakes"), [
    ('name = "x"\n\n[[item]]\nname = "a"\nprice = 1\n', ['line 3: "item" is unknown; did you mean "items"?']),
    ('name = "x"\nzz = 1', ['line 2: "zz" is unknown; known: bookings, ']),
    ('name = "x"\n[extras]\noil = 1e9', ["line 3: a price must be a number from 0 to 1000000, such as 3.20"]),
    ('orders = "x"\nname = "x"', ['line 1: "orders" must be a table of keys and values']),
    ('name = "x"\nfacts = ["a", 1, 2]',
     ['line 2: text 2 of "facts" must be a text in quotes', 'line 2: text 3 of "facts" must be a text in quotes']),
    ('name = "x"\n[[items]]\nname = "Tea"\nprice = "two"\n[[items]]\nname = "tea"\nprice = 1',
     ["line 4: a price must be", 'line 5: "tea" is also a name of "Tea"']),
])  # fmt: skip
def test_mistakes_are_named_with_what_to_do(text: str, mistakes: list[str]) -> None:
    with pytest.raises(house_file.InvalidHouse) as error:
        house_file.parse(text)
    found = [mistake.removeprefix("house, ") for mistake in error.value.mistakes]
    assert len(found) == len(mistakes) and all(map(str.startswith, found, mistakes)), found


def test_a_quotation_mark_that_is_missing() -> None:
    with pytest.raises(InvalidFile, match="line 1: .*; a quotation mark is missing$"):
        house_file.parse('name = "Bar\nfacts = []')


def test_orders_that_cannot_be_delivered(tmp_path: Path) -> None:
    house = house_file.parse('name = "x"\n[orders]\ncommand = ["no-such-program-here"]')
    assert "is not found here" in "".join(unwritable(house, str(tmp_path)))
    house = house_file.parse('name = "x"\n[orders]\ncommand = ["sh", "-c", "cat"]')
    assert not [*unwritable(house, str(tmp_path))]
    house = house_file.parse('name = "x"\n[orders]\nfile = "none/orders.jsonl"')
    assert "so the kiosk does not start" in "".join(unwritable(house, str(tmp_path)))


def test_the_list_of_mistakes_ends() -> None:
    with pytest.raises(house_file.InvalidHouse) as error:
        house_file.parse("\n".join(f"k{number} = 1" for number in range(20_000)))
    assert len(error.value.mistakes) == house_file.MAX_MISTAKES


@pytest.mark.parametrize(
    ("value", "says"),
    [("9" * 5000, "too large"), ("1e9999999999999999999", "too large"), ("1." + "1" * 5000, "two decimals"),
     ('1\n[texts]\n"a\\nb" = 1', '"a b" is unknown')],
)  # fmt: skip
def test_odd_numbers_and_keys_get_one_short_line(value: str, says: str) -> None:
    with pytest.raises(InvalidFile) as error:
        house_file.parse(f'name = "x"\n[extras]\noil = {value}')
    assert len(str(error.value)) < 2100 and "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot read"):
        house_file.load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "x"\ngreeting = "Caf\xe9"\n')
    with pytest.raises(InvalidFile, match="line 2: not UTF-8"):
        house_file.load(tmp_path / "latin.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (house_file.MAX_BYTES + 1))
    with pytest.raises(InvalidFile, match="larger than"):
        house_file.load(tmp_path / "large.toml")


@given(st.text(max_size=300))
def test_any_text_is_a_house_or_refused(text: str) -> None:
    try:
        house_file.parse(text)
    except InvalidFile as error:
        assert "\n" not in str(error)


# ---- operations ---------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
some = st.lists(texts, max_size=3).map(tuple)
numbers = st.integers(1, MAX_COUNT)
operations = st.one_of(
    st.builds(Add, texts, numbers, texts, some, some),
    st.builds(Remove, numbers, st.integers(0, 99)),
    st.builds(Change, numbers, st.integers(0, 99), texts, texts, some, some),
    st.builds(Name, texts),
    st.builds(Book, texts) | st.builds(Book, texts, texts.filter(bool), texts),
    st.builds(Cancel, texts),
    st.builds(Answer, st.integers(0, 600)),
    st.builds(Talk, st.sampled_from(TALK)),
    st.sampled_from(PLAIN).map(Plain),
)


@given(operations)
def test_write_and_read_are_inverse(operation: object) -> None:
    line = write(operation)
    assert "\n" not in line and read(line) == operation


@given(st.text(max_size=40))
def test_other_text_is_refused(line: str) -> None:
    try:
        assert write(read(line)) == line.strip()
    except InvalidFile:
        pass


def test_the_text_form() -> None:
    latte = Add("Latte", 2, "large", ("oat milk",), ("sugar",))
    assert write(latte) == 'add 2 "Latte" size "large" with "oat milk" without "sugar"'
    assert write(Change(1, count=3, item="Espresso")) == 'change 1 count 3 item "Espresso"'
    assert write(Book("table", "day", "next Friday")) == 'book "table" "day" = "next Friday"'
    assert write(Cancel("table")) == 'cancel "table"'
    assert write(Answer(0)) == "answer none"


def test_the_grammar_names_only_what_is_there() -> None:
    text = grammar(["Latte"], ["large"], [], {"table": ["day"]}, 2, [4], ["friday"], ["table"])
    assert '"\\"Latte\\""' in text and "extra" not in text and "with" not in text
    nothing = grammar([], [], [], {}, 0, [], [], [])
    assert "remove" not in nothing and "cancel" not in nothing
    assert 'cancel: "cancel " ("\\"table\\"")' in text


# ---- the order ----------------------------------------------------------------------------------------------------


def visit(*operations: object) -> State:
    state = State()
    for operation in operations:
        state = apply(CAFE, state, operation)
    return state


def test_orders_add_up() -> None:
    state = visit(Add("Latte", 2, "large", ("oat milk",)), Add("Brownie"), Add("Latte", 1, "large", ("oat milk",)))
    assert state.lines == (Line("Latte", 3, "large", ("oat milk",)), Line("Brownie"))
    assert total(CAFE, state) == 3 * (390 + 50) + 340


def test_a_size_that_is_open_has_no_price() -> None:
    state = visit(Add("Latte"), Add("Brownie"))
    assert line_price(CAFE, state.lines[0]) is None and total(CAFE, state) is None
    assert missing(CAFE, state) == [("Latte", "size")]
    assert total(CAFE, apply(CAFE, state, Change(1, size="small"))) == 330 + 340


def test_corrections() -> None:
    state = visit(Add("Latte", 2, "small"), Add("Brownie", 3))
    assert apply(CAFE, state, Remove(1)).lines == (Line("Brownie", 3),)
    assert apply(CAFE, state, Remove(2, 1)).lines[1].count == 2
    assert apply(CAFE, state, Remove(2, 5)).lines == (Line("Latte", 2, "small"),)
    milk = apply(CAFE, state, Change(1, extras=("oat milk",)))
    assert milk.lines[0].extras == ("oat milk",)
    assert apply(CAFE, milk, Change(1, without=("oat milk",))).lines[0].extras == ()
    swapped = apply(CAFE, milk, Change(1, item="Cappuccino")).lines[0]
    assert swapped == Line("Cappuccino", 2, "small", ("oat milk",))
    assert apply(CAFE, milk, Change(1, item="Brownie")).lines == (Line("Brownie", 5),)  # what is alike is one line
    assert apply(CAFE, state, Remove(1)).gone == (Line("Latte", 2, "small"),)


def test_bookings_and_names() -> None:
    state = visit(Book("table"), Book("table", "day", "Friday"), Book("table", "name", "Zoë"))
    assert state.bookings == {"table": {"day": "Friday", "name": "Zoë"}} and state.name == "Zoë"
    assert missing(CAFE, state) == [("table", "time"), ("table", "people")]


def test_done_and_confirmed() -> None:
    state = visit(Add("Brownie"), DONE)
    assert state.done and not state.confirmed
    assert apply(CAFE, state, CONFIRM).confirmed
    assert not apply(CAFE, state, DENY).done
    assert not visit(Add("Latte"), DONE, CONFIRM).confirmed  # of what size?
    assert not visit(Add("Brownie"), CONFIRM).confirmed
    again = apply(CAFE, apply(CAFE, state, CONFIRM), Add("Brownie"))
    assert not again.done and not again.confirmed
    assert apply(CAFE, state, RESTART) == State()


def test_a_booking_is_cancelled_beside_an_order() -> None:
    state = visit(Add("Flat white"), Book("table", "day", "Friday"), Plain("done"))
    after = apply(CAFE, state, Cancel("table"))
    assert after.bookings == {} and after.lines == state.lines and not after.done
    with pytest.raises(UsageError):
        apply(CAFE, after, Cancel("table"))
    assert apply(CAFE, visit(Book("table", "name", "Anna")), Cancel("table")) == State()


@pytest.mark.parametrize(
    "operation",
    [
        Add("Pizza"), Add("Latte", 1, "huge"), Add("Latte", 0), Add("Latte", 100), Add("Latte", 1, "", ("cheese",)),
        Remove(2), Remove(0), Change(1, size="bowl"), Book("yacht"), Book("table", "sails", "2"), Change(1, item="?"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(operation: object) -> None:
    state = visit(Add("Latte"))
    with pytest.raises(UsageError):
        apply(CAFE, state, operation)
    assert state == visit(Add("Latte"))


@given(st.lists(operations, max_size=12))
def test_any_operations_leave_a_state_that_adds_up(sequence: list[object]) -> None:
    state = State()
    for operation in sequence:
        try:
            state = apply(CAFE, state, operation)
        except UsageError:
            continue
    assert all(CAFE.item(line.item) for line in state.lines)
    assert as_dict(CAFE, state)["total"] == total(CAFE, state)


def test_nothing_empty_is_confirmed() -> None:
    assert not apply(CAFE, apply(CAFE, State(), Plain("done")), Plain("confirm")).confirmed
