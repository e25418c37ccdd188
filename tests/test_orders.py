"""Orders at the grammar's counters: what is said of a thing comes back with it; corrections change what they name."""

from __future__ import annotations

import re
from random import Random

import pytest

from training.exam.goods import MENUS
from training.grammar import correction, goods, menu, order_words, shop, text, values
from training.grammar.counter import CLEARED, Counter
from training.grammar.line import DOZENS, Line, spoken
from training.grammar.shop import Shop
from training.grammar.text import Voice


def counter(seed: int, kind: str = "bakery", lines: tuple[Line, ...] = ()) -> Counter:
    rng = Random(seed)
    voice = Voice(rng)
    voice.kind, voice.chatty, voice.typos, voice.small_names = "lower", 0.0, False, False
    found = Counter(rng, voice, Shop(kind), "train", "")
    found.order.lines = list(lines)
    return found


def counts(n: int) -> set[str]:
    """The ways to say a count."""
    ways = {str(n), text.spelled(n), f"x{n}", f"{n}x", DOZENS.get(n, str(n))}
    return ways | ({"a couple", "a pair"} if n == 2 else set())


# ---- what is said ----------------------------------------------------------------------------------------------------


def test_every_part_of_a_wish_is_repeated() -> None:
    """Item, word before it, what is to be done with it: all stand in the wish, and the answer is the order."""
    extras = sizes = many = 0
    for seed in range(700):
        visit = counter(seed, list(shop.GOODS_OF)[seed % len(shop.GOODS_OF)])
        visit.add(order_words.WANT)
        asked, reply = visit.turns[0]
        asked = asked.lower()
        for line in visit.order.lines:
            assert line.item.lower() in asked or text.plural(line.item).lower() in asked, (asked, line)
            assert line.extra.lstrip(", ").lower() in asked, (asked, line)
            ways = "|".join(map(re.escape, counts(line.n)))
            assert line.n == 1 or re.search(rf"(?<![a-z\d])(?:{ways})(?![a-z\d])", asked), (asked, line)
            extras, sizes, many = extras + bool(line.extra), sizes + bool(line.size), many + (line.n > 12)
        if len(visit.turns) == 1:  # else a size was asked for
            order = f"{text.sentence(visit.order.text())}{f' for {visit.order.name}' if visit.order.name else ''}."
            assert reply == f"{text.kindly(asked)}{order} Anything else?"
            assert all(line.size in asked for line in visit.order.lines)
    assert extras > 250 and sizes > 250 and many > 30


def test_one_line_said_in_many_ways() -> None:
    line = Line("grape tart", 6, "warm", "no cream")
    ways = {spoken(Random(seed), counter(seed).voice, line) for seed in range(400)}
    assert len(ways) > 60
    assert any(way.startswith("half a dozen warm grape tarts") for way in ways)
    assert any("grape tarts" in way and "warm ones" in way for way in ways)
    assert all("no cream" in way and "warm" in way and "grape tart" in way for way in ways)
    assert line.text() == "six warm grape tarts no cream"


@pytest.mark.parametrize(("n", "words"), [
    (0, "zero"), (13, "thirteen"), (20, "twenty"), (47, "forty-seven"), (100, "one hundred"),
    (350, "three hundred and fifty"),
])  # fmt: skip
def test_counts_in_words(n: int, words: str) -> None:
    assert text.spelled(n) == words


def test_goods_are_none_of_the_exam() -> None:
    """Counters draw from many patterns; none of them names a thing of the exam, and all have wishes of their own."""
    asked = {item for items in MENUS.values() for item in items.split("|")}
    for kind in shop.GOODS_OF:
        rng = Random(6)
        made = {goods.made(rng, "train", kind) for _ in range(500)}
        assert len(made) > 60, kind
        assert not made & asked and not {text.plural(item) for item in made} & asked
        assert all(values.split_of(item) == "train" for item in made)
        assert len({goods.done_with(rng, kind) for _ in range(200)}) > 60


def test_a_shelf_without_prices() -> None:
    """What there is is named where it stands, and nothing is said of prices."""
    for seed in range(100):
        visit = counter(seed, "groceries")
        told = menu.shelf(visit.rng, "train", visit.shop)
        assert all(text.plural(item) in told for item in visit.shop.shelf)
        visit.ask_stock()
        ((asked, reply),) = visit.turns
        (item,) = [item for item in visit.shop.shelf if reply == f"Yes, we have {text.plural(item)}."]
        assert text.plural(item) in asked


def test_of_which_kinds_they_are() -> None:
    """Six tarts, two plain and four filled: the kinds add up to the count."""
    for seed in range(60):
        line = counter(seed).kinds(Line("grape tart", 6))
        ((first, second),) = re.findall(r"^, (\w+) [\w-]+ and (\w+) [\w-]+$", line.extra)
        assert text.ONES.index(first) + text.ONES.index(second) == 6
        assert line.text().startswith("six grape tarts, ")


def test_sizes_of_a_price_list() -> None:
    """Each size is a row with its own price; the bill reads the row of the size that was ordered."""
    read = loose = 0
    for seed in range(300):
        visit = counter(seed, "coffee")
        visit.shop.facts = menu.written(visit.rng, "train", visit.shop)
        if not visit.shop.sizes:
            continue
        visit.add(order_words.WANT)
        loose += any("Which size" in reply for _, reply in visit.turns)
        if visit.order.lines:
            correction.say(visit, correction._resize)
        for row, line in zip(visit.bill().partition(". " + menu.TILL)[0].split(", "), visit.order.lines):
            if line.item in visit.shop.sizes:
                read += 1
                assert line.size in visit.shop.sizes[line.item]
                assert f"{line.size} " in row and f" at {visit.shop.prices[f'{line.size} {line.item}']}" in row
    assert read > 60 and loose > 5


# ---- corrections -----------------------------------------------------------------------------------------------------

LINES = (Line("peach sorbet", 2), Line("jar of plum jam", 1, "large", "with a lid"),
         Line("oat roll", 3, "warm", "in a bag"))  # fmt: skip


def test_one_word_for_another() -> None:
    """Not peach, lemon: the thing that has the word gets the other; all else stays."""
    changed = set()
    for seed in range(200):
        visit = counter(seed, lines=LINES)
        correction.say(visit, correction._word)
        for asked, _ in visit.turns:
            (at,) = [i for i in range(3) if visit.order.lines[i] != LINES[i]]
            old, new = (set(each.item.split()) for each in (LINES[at], visit.order.lines[at]))
            assert len(old - new) == len(new - old) == 1 and old ^ new <= set(re.findall(r"[\w'-]+", asked))
            changed.add(at)
    assert changed == {0, 1, 2}


def test_another_wish_for_a_thing() -> None:
    said = gone = 0
    for seed in range(200):
        visit = counter(seed, lines=LINES)
        correction.say(visit, correction._wish)
        for asked, _ in visit.turns:
            (at,) = [i for i in range(3) if visit.order.lines[i] != LINES[i]]
            extra = visit.order.lines[at].extra
            assert extra in asked
            said, gone = said + bool(extra), gone + (not extra)
            if not extra:
                assert LINES[at].extra.removeprefix("with ") in asked
    assert said > 80 and gone > 5


def test_what_stays_is_named_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correction, "KEPT", 1.0)
    for seed in range(200):
        visit = counter(seed, lines=LINES)
        correction.say(visit, correction._recount)
        ((asked, reply),) = visit.turns
        changed = [i for i in range(3) if visit.order.lines[i] != LINES[i]]
        assert len(changed) == 1 and reply == f"{text.kindly(asked)}{text.sentence(visit.order.text())}. Anything else?"


def test_two_corrections_at_once() -> None:
    both = 0
    for seed in range(200):
        visit = counter(seed, lines=LINES)
        correction.say(visit, correction._recount, correction._drop)
        ((asked, reply),) = visit.turns
        assert "{" not in asked and reply.startswith(text.kindly(asked) + text.sentence(visit.order.text()))
        assert len(visit.order.lines) == 2
        both += visit.order.lines[0] not in LINES or visit.order.lines[1] not in LINES
    assert both > 80


def test_all_taken_back() -> None:
    visit = counter(3, lines=LINES)
    visit.order.tail = "to go"
    visit.clear()
    assert visit.turns[-1][1] == CLEARED and not visit.order.lines and not visit.order.tail
    visit.add(order_words.WANT)
    assert not any(line.item in visit.turns[-1][1] for line in LINES)


def test_a_correction_may_come_instead_of_the_name() -> None:
    """What comes up is the order as it was corrected last."""
    late = 0
    for seed in range(300):
        visit = counter(seed, lines=LINES)
        visit.finish(lambda: [], lambda: correction.say(visit, correction._recount))  # noqa: B023
        assert visit.turns[-1][1].endswith(f"{text.sentence(visit.order.text())}, coming up.")
        late += tuple(visit.order.lines) != LINES
    assert 10 < late < 60
