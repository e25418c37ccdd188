"""Which fact answers a question: word vectors, the layer and scorer over them, and what hostile texts do to them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.kiosk import facts, vectors
from edge.kiosk import house as house_file
from edge.kiosk.facts import choose

CAFE = house_file.load(house_file.EXAMPLE)
SCORER = {"hidden": [[0.0] * 13], "out": [[0.0] * 14], "unknown": [0.5, 0.5]}
#: two dimensions, one hidden number: of the first dimension of the word before, written to the second of the word
LAYER = {"near": [[4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]], "turn": [[0.0], [3.0]], "bias": [[0.0], [0.0]],
         "more": [[-2.0], [1.0]]}  # fmt: skip
CACHED = (vectors.table, vectors.layer, vectors.stems, vectors.token, vectors.beside, facts.prepared, facts.scorer,
          facts.scores)  # fmt: skip


def likeness(a: str, b: str) -> float:
    return sum(x * y for x, y in zip(vectors.token(a).unit, vectors.token(b).unit))


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small file of vectors in place of the one that ships."""

    def forget() -> None:
        for cached in CACHED:
            cached.cache_clear()

    path = tmp_path / "vectors.bin"
    path.write_bytes(
        vectors.write(
            {"tea": ([0.3, -0.4], 1.0, 0.5), "coffee": ([0.0, 2.0], 2.0, 0.25), "tea_coffee": ([1.0, 0.0], 3.0, 4.0)},
            SCORER,
            LAYER,
        )
    )
    monkeypatch.setattr(vectors, "PATH", str(path))
    forget()
    yield path
    monkeypatch.undo()
    forget()


def test_a_file_of_vectors_holds_what_was_written(own_file: Path) -> None:
    tea, coffee = vectors.token("tea"), vectors.token("coffee")
    assert tea.unit == pytest.approx((0.6, -0.8), abs=0.05) and tea.raw == (1.0, 0.5)
    assert coffee.unit == (0.0, 1.0) and coffee.raw == (2.0, 0.25)
    assert likeness("tea", "coffee") == pytest.approx(-0.8, abs=0.05)
    words, pairs = vectors.names("Tea, COFFEE and teas", vectors.table()[0], vectors.stems())
    assert words == ["tea", "coffee", vectors.names("and", {}, {})[0][0], "tea"] and pairs == ["tea_coffee"]


def test_the_word_before_turns_a_word_and_changes_its_weight(own_file: Path) -> None:
    alone, after = vectors.read("coffee", True), vectors.read("tea coffee", True)
    assert alone.units == [pytest.approx((0.0, 1.0))] and alone.weights == [pytest.approx(math.log1p(math.exp(2.0)))]
    hidden = math.tanh(4 * vectors.token("tea").unit[0])
    assert after.units[1] == pytest.approx((0.0, 1.0))  # turned along itself
    assert after.weights[1] == pytest.approx(math.log1p(math.exp(2.0 - 2 * hidden)), rel=0.02)
    assert after.units[0] == pytest.approx(vectors.token("tea").unit)  # nothing stands before it
    turned = vectors.read("tea tea", True).units[1]
    x, y = vectors.token("tea").unit
    y += 3 * hidden
    assert turned == pytest.approx((x / math.hypot(x, y), y / math.hypot(x, y)), abs=0.02)
    assert math.hypot(*after.whole) == pytest.approx(1.0)


def test_words_that_are_used_alike_have_vectors_that_point_alike() -> None:
    for word, like, unlike in (("dog", "puppy", "invoice"), ("toilet", "loo", "airport"), ("car", "vehicle", "soup")):
        assert likeness(word, like) > likeness(word, unlike) + 0.1


def test_unknown_words_are_only_like_themselves() -> None:
    (first, second), _ = vectors.names("qwzxv zzyzx", vectors.table()[0], vectors.stems())
    assert first[0] == "#" and likeness(first, first) == pytest.approx(1.0)
    assert abs(likeness(first, second)) < 0.6
    assert vectors.names("qwzxvs", {}, {})[0] == [first]  # the same stem
    assert choose(CAFE, "qwzxv?") == 0


def test_numbers_and_currencies_are_kinds() -> None:
    assert vectors.pieces("£3.50 at 10:30, room 12, row 1234, 5 %") == [
        "<cur>", "<n.n>", "at", "<n.n>", "room", "<n>", "row", "<nnn>", "<n>", "%"]  # fmt: skip


@pytest.mark.parametrize(("question", "words"), [
    ("do you have wifi", "Wi-Fi"),
    ("can i bring my puppy", "Dogs"),
    ("when do you open", "We are open"),
    ("is there parking", "car park"),
    ("do you take cards", "by card"),
])
def test_questions_about_the_example(question: str, words: str) -> None:
    number = choose(CAFE, question)
    assert number and words in CAFE.facts[number - 1]


def test_a_price_is_certain_only_where_the_fact_is_about_the_thing() -> None:
    house = house_file.parse('name = "x"\nfacts = ["Tap water is free.", "A refill of filter coffee costs 50 cents."]')
    assert not facts.certain(house, "how much is a cappuccino?", 2)
    assert facts.certain(house, "how much is a refill of filter coffee?", 2)


def test_scores_do_not_depend_on_what_was_asked_before() -> None:
    questions = ["do you have wifi", "where is the toilet", "can my dog come in", "is it open on sunday"]
    first = [facts.scores(each, CAFE.facts) for each in questions]
    for cached in CACHED:
        cached.cache_clear()
    assert [facts.scores(each, CAFE.facts) for each in reversed(questions)] == first[::-1]


def test_each_statement_is_scored_for_itself_wherever_it_stands() -> None:
    order = list(CAFE.facts)
    before = dict(zip(order, facts.scores("do you have wifi", tuple(order))))
    random.Random(1).shuffle(order)
    after = dict(zip(order, facts.scores("do you have wifi", tuple(order))))
    assert after == pytest.approx(before)


@pytest.mark.parametrize("text", [
    "", " ", "?", "\0", "\ud800", "́", "的的的", "😀" * 500, "a" * 600, "'" * 600, "wifi " * 5000, "1" * 5000,
    "9" * 600 + "." * 600, "a'b'c'd" * 100, "_", "#1", "how_much", "<n>", "\n".join(["open"] * 300), "ﷺ" * 200,
])  # fmt: skip
def test_hostile_texts(text: str) -> None:
    for statements in (CAFE.facts, (text, *CAFE.facts[:2]), (text,)):
        found = facts.scores(text, statements)
        assert len(found) == len(statements) and all(map(math.isfinite, found))
    assert len(vectors.read(text, True).units) < 2 * vectors.MOST
    assert 0 <= choose(CAFE, text) <= len(CAFE.facts)


def test_work_is_bounded_by_the_words_that_are_read() -> None:
    """However long the texts: at most 2 x MOST tokens each."""
    draw = random.Random(2)
    names = [name for name in vectors.table()[0] if name.isalpha()]
    question = " ".join(draw.choices(names, k=4000))
    vectors.beside.cache_clear()
    for asking in (True, False):
        assert len(vectors.read(question, asking).units) < 2 * vectors.MOST
    assert vectors.beside.cache_info().misses <= vectors.MOST


def test_no_statements() -> None:
    assert facts.scores("do you have wifi", ()) == ()


def test_the_file_that_ships_is_whole() -> None:
    index, head, body = vectors.table()
    dims, hidden = head["dims"], len(head["near"]["bias"][0])
    assert len(index) == head["tokens"] and len(body) == head["tokens"] * (4 + dims // 2) + 5 * dims * hidden
    net = head["scorer"]
    assert all(len(row) == 13 for row in net["hidden"]) and len(net["out"][0]) == len(net["hidden"]) + 13


@pytest.mark.parametrize(("question", "fact"), [
    ("Is the muffin vegan?", ""), ("is the muffin gluten free?", ""), ("do you have gluten free bread?", ""),
    ("Is the croissant nut free?", ""), ("is the brownie vegan?", ""), ("is the bread gluten free?", ""),
    ("does the brownie contain nuts?", "The brownie and the carrot cake contain nuts."),
    ("is the soup vegan?", "The lentil soup is vegan and gluten free."),
    ("do you have anything gluten free?", "The lentil soup is vegan and gluten free."),
])  # fmt: skip
def test_a_fact_about_another_thing_does_not_answer_for_a_diet(question: str, fact: str) -> None:
    chosen = choose(CAFE, question)
    assert (CAFE.facts[chosen - 1] if chosen else "") == fact


@pytest.mark.parametrize("question", [
    # things that no fact names
    "where is the emergency exit", "can I have extra bread", "does that include coffee?", "pizza?",
    "do you bake the croissants yourselves?", "are they fresh?", "is tip included",
    "does the cheese toastie contain meat?",
    # what no fact can tell
    "what time is it", "what's the time please?",
])  # fmt: skip
def test_a_fact_about_another_thing_is_not_shown(question: str) -> None:
    assert choose(CAFE, question) == 0


@pytest.mark.parametrize(("question", "fact"), [
    ("where are the toilets", "The toilets are"), ("are you open on Easter Monday", "We are closed on Sundays"),
    ("are you open on Christmas Day", "We are closed on Sundays"), ("is there parking", "There is no car park"),
    ("toilets?", "The toilets are"),
    ("are you open on Monday", "We are open Monday"),
    ("do you have high chairs", "Children are welcome"), ("what time do you open", "We are open Monday"),
])  # fmt: skip
def test_holidays_and_things_that_a_fact_names(question: str, fact: str) -> None:
    assert CAFE.facts[choose(CAFE, question) - 1].startswith(fact)


def test_a_holiday_is_not_a_weekday() -> None:
    house = house_file.parse('name = "x"\nfacts = ["We are open Monday to Friday from 8:00 to 17:00."]')
    assert choose(house, "are you open on Easter Monday") == 0 != choose(house, "are you open on Monday")
