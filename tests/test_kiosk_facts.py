"""Which fact answers a question: word vectors, the scorer over them, and what hostile texts do to both."""

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


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small file of vectors in place of the one that ships."""

    def forget() -> None:
        for cached in (vectors.table, vectors.token, vectors.likeness, facts.prepared, facts.scorer, vectors.stems):
            cached.cache_clear()

    path = tmp_path / "vectors.bin"
    path.write_bytes(
        vectors.write(
            {"tea": ([0.3, -0.4], 1.0, 0.5), "coffee": ([0.0, 2.0], 2.0, 0.25), "tea_coffee": ([1.0, 0.0], 3.0, 4.0)},
            SCORER,
        )
    )
    monkeypatch.setattr(vectors, "PATH", str(path))
    forget()
    yield path
    monkeypatch.undo()
    forget()


def test_a_file_of_vectors_holds_what_was_written(own_file: Path) -> None:
    tea, coffee = vectors.token("tea"), vectors.token("coffee")
    assert tea.unit == pytest.approx((0.6, -0.8), abs=0.05) and (tea.asks, tea.holds) == (1.0, 0.5)
    assert coffee.unit == (0.0, 1.0) and (coffee.asks, coffee.holds) == (2.0, 0.25)
    assert vectors.likeness("tea", "coffee") == pytest.approx(-0.8, abs=0.05)
    assert [token.name for token in vectors.tokens("Tea, COFFEE and teas")] == ["tea", "coffee", vectors.names(
        "and", {}, {})[0], "tea_coffee"]  # fmt: skip


def test_words_that_are_used_alike_have_vectors_that_point_alike() -> None:
    for word, like, unlike in (("dog", "puppy", "invoice"), ("toilet", "loo", "airport"), ("car", "vehicle", "soup")):
        assert vectors.likeness(word, like) > vectors.likeness(word, unlike) + 0.1


def test_unknown_words_are_only_like_themselves() -> None:
    first, second = vectors.tokens("qwzxv zzyzx")
    assert first.name[0] == "#" and vectors.likeness(first.name, first.name) == 1.0
    assert abs(vectors.likeness(first.name, second.name)) < 0.6
    assert vectors.tokens("qwzxvs")[0].name == first.name  # the same stem
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
    for cached in (vectors.token, vectors.likeness, facts.prepared):
        cached.cache_clear()
    assert [facts.scores(each, CAFE.facts) for each in reversed(questions)] == first[::-1]


def test_each_statement_is_scored_for_itself_wherever_it_stands() -> None:
    order = list(CAFE.facts)
    before = dict(zip(order, facts.scores("do you have wifi", order)))
    random.Random(1).shuffle(order)
    after = dict(zip(order, facts.scores("do you have wifi", order)))
    assert after == pytest.approx(before)


@pytest.mark.parametrize("text", [
    "", " ", "?", "\0", "\ud800", "́", "的的的", "😀" * 500, "a" * 600, "'" * 600, "wifi " * 5000, "1" * 5000,
    "9" * 600 + "." * 600, "a'b'c'd" * 100, "_", "#1", "how_much", "<n>", "\n".join(["open"] * 300), "ﷺ" * 200,
])  # fmt: skip
def test_hostile_texts(text: str) -> None:
    for statements in (CAFE.facts, (text, *CAFE.facts[:2]), (text,)):
        found = facts.scores(text, statements)
        assert len(found) == len(statements) and all(map(math.isfinite, found))
    assert len(vectors.tokens(text)) < 2 * vectors.MOST
    assert 0 <= choose(CAFE, text) <= len(CAFE.facts)


def test_work_is_bounded_by_the_words_that_are_read() -> None:
    """However long the texts: at most 2 x MOST tokens each, and each pair of tokens is compared once."""
    draw = random.Random(2)
    names = [name for name in vectors.table()[0] if name.isalpha()]
    question = " ".join(draw.choices(names, k=4000))
    vectors.likeness.cache_clear()
    facts.scores(question, [question[::-1], question])
    assert vectors.likeness.cache_info().misses <= 2 * (2 * vectors.MOST) ** 2


def test_no_statements() -> None:
    assert facts.scores("do you have wifi", ()) == []


def test_the_file_that_ships_is_whole() -> None:
    index, head, body = vectors.table()
    assert len(index) == head["tokens"] and len(body) == head["tokens"] * (4 + head["dims"] // 2)
    net = head["scorer"]
    assert all(len(row) == 13 for row in net["hidden"]) and len(net["out"][0]) == len(net["hidden"]) + 13
