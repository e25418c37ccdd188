"""The dialogues that the bundled model learns from: same seed same text, splits apart, and every reply true."""

from __future__ import annotations

import ast
import collections
import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from training import corpus, grammar
from training.grammar import (
    ask_hours,
    booking_words,
    correction_words,
    desks,
    menu,
    notes,
    off_topic,
    order_words,
    shop,
    talk,
    tariff,
    text,
    values,
)
from training.grammar.counter import Counter
from training.grammar.line import DOZENS
from training.grammar.text import Voice
from training.heldout import NAMES, clean

SPLITS = values.SPLITS


def sample(n: int, split: str = "train", seed: int = 3) -> list[grammar.Dialogue]:
    return list(islice(grammar.dialogues(seed, split), n))


DIALOGUES = {split: sample(1500, split) for split in ("train", "test")}


def turns(dialogue: grammar.Dialogue) -> Iterator[tuple[str, str, str]]:
    """(all that was visible before the answer, the question, the answer)"""
    seen = ""
    for (role, said), (_, answer) in zip(dialogue, dialogue[1:]):
        seen += said + "\n"
        if role == "user":
            yield seen, said, answer


# ---- the streams -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [grammar.dialogues, grammar.echoes])
def test_the_seed_decides(stream: object) -> None:
    def first(seed: int) -> list[grammar.Dialogue]:
        return list(islice(stream(seed, "train"), 60))  # type: ignore[operator]

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_the_seed_decides_in_every_process() -> None:
    """The order of a set may differ between processes; nothing printed may hang on it."""
    code = (
        "import hashlib, itertools as i, training.grammar as g; print(hashlib.sha256(repr(["
        "list(i.islice(s(2), 400)) for s in (g.dialogues, g.echoes)]).encode()).hexdigest())"
    )
    told = {subprocess.check_output([sys.executable, "-c", code], cwd=Path(__file__).parents[1], env={
        **os.environ, "PYTHONHASHSEED": seed}) for seed in "12"}  # fmt: skip
    assert len(told) == 1


def test_form() -> None:
    for dialogue in [*sample(300), *islice(grammar.echoes(1), 300)]:
        roles = [role for role, _ in dialogue]
        assert roles[0] in ("system", "user") and roles[-1] == "assistant"
        rest = roles[roles[0] == "system" :]
        assert rest == ["user", "assistant"] * (len(rest) // 2)
        for _, said in dialogue:
            assert said == said.strip() and said, dialogue
            assert not re.search(r"[\[\]{}|\ue000\ue001]|  ", said), said
            assert said.isprintable() or "\n" in said, said


def test_a_visit_without_a_word_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = [("user", "hi"), ("assistant", "Hello!")]
    drawn = iter([[("system", "Dogs wait outside.")], [], spoken])
    monkeypatch.setattr(grammar, "_kiosk", lambda *_: next(drawn))
    assert next(grammar.dialogues(1)) == spoken


def test_guests_vary() -> None:
    """Most of what guests say is said once in 600 dialogues, and in 30 ways or more for each intent."""
    asked = [said for d in DIALOGUES["train"][:600] for role, said in d if role == "user"]
    assert len(set(asked)) > 0.7 * len(asked)
    intents = [order_words.WANT, order_words.MORE, correction_words.MAKE_THAT, correction_words.SWAP,
               correction_words.COUNT_OF,
               order_words.DONE, order_words.ASK_TOTAL, booking_words.OPENING, booking_words.YES,
               booking_words.CHANGE, ask_hours.ASK_DAY, ask_hours.ASK_ALL, menu.ASK_PRICE, menu.ASK_MENU]  # fmt: skip
    for patterns in intents:
        rng = Random(1)
        assert len({text.expand(rng, pattern) for _ in range(60) for pattern in patterns}) >= 30, patterns[0]


def test_patterns() -> None:
    rng = Random(2)
    found = {text.expand(rng, "a [b|c [d|]|] e") for _ in range(200)}
    assert found == {"a b e", "a c d e", "a c e", "a e"}
    with pytest.raises(AssertionError, match="unclosed"):
        text.expand(rng, "a [b")


@pytest.mark.parametrize(("one", "more"), [
    ("latte", "lattes"), ("slice of cake", "slices of cake"), ("ham sandwich", "ham sandwiches"), ("lily", "lilies"),
    ("white loaf", "white loaves"), ("nachos", "nachos"), ("tray", "trays"), ("zyx", "zyxes"),
    ("glass of milk", "glasses of milk"),
])  # fmt: skip
def test_plurals(one: str, more: str) -> None:
    assert text.plural(one) == more


def test_no_two_files_name_each_other() -> None:
    """Also not for types alone: each file is read after those it names."""
    named = {}
    for path in Path(grammar.__file__).parent.glob("[a-z]*.py"):
        found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        own = [node for node in found if (node.module or "").startswith("training.grammar")]
        named[path.stem] = {(node.module or "").removeprefix("training.grammar").strip(".") or alias.name
                            for node in own for alias in node.names}  # fmt: skip
    order = list(graphlib.TopologicalSorter(named).static_order())  # raises CycleError
    assert order.index("counter") < order.index("correction") < order.index("order")


# ---- splits ----------------------------------------------------------------------------------------------------------


def test_names_of_the_splits_differ() -> None:
    drawn = {}
    for split in SPLITS:
        rng = Random(5)
        drawn[split] = {values.first_name(rng, split).lower() for _ in range(1500)}
        assert all(values.split_of(name) == split for name in drawn[split])
    assert not drawn["train"] & drawn["test"] and not drawn["train"] & drawn["valid"]
    assert not drawn["valid"] & drawn["test"]
    known = {name.lower() for name in values.FIRST_NAMES}
    assert known & drawn["train"] and known & drawn["valid"] and known & drawn["test"]


def test_combinations_of_the_splits_differ() -> None:
    """Size and item: what test asks for, train never said."""
    pairs = {f"{size} {item}" for kind in shop.SIZED for size in shop.SIZES[kind] for item in shop.GOODS_OF[kind]}
    of_test = "|".join(pair for pair in pairs if values.split_of(pair) == "test")
    held_out = re.compile(rf"(?<!extra )\b(?:{of_test})s?\b")

    def ordered(split: str) -> set[str]:
        rng, found = Random(4), set()
        for _ in range(1500):
            line = Counter(rng, Voice(rng), shop.Shop(rng.choice(sorted(shop.SIZED))), split, "").line()
            found |= set(held_out.findall(line.text())) if line else set()
        return found

    assert ordered("test") and not ordered("train")
    assert not any(held_out.search(said) for d in DIALOGUES["train"] for role, said in d if role == "assistant")


def test_held_out_names_are_never_learned() -> None:
    assert len(NAMES) == len({name.lower() for name in NAMES}) >= 50
    known = {name.lower() for name in (*values.FIRST_NAMES, *values.SURNAMES)}
    assert not known & {name.lower() for name in NAMES}
    assert not clean("hello " + NAMES[3].lower() + "!") and clean("hello " + NAMES[3] + "xyz")
    for dialogue in [*sample(300), *islice(grammar.echoes(1), 500)]:
        assert all(clean(said) for _, said in dialogue)


# ---- replies are true ------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[\w$€£:.-]*\w")
_AMOUNT = re.compile(r"[$€£]\d[\d.]*\b|\d[\d.]* [$€£](?!\d)")


def test_replies_come_from_what_is_visible() -> None:
    """A rare word of a reply (a name, an item, an hour, a code) was said before it; sums and spellings excepted."""
    replies = [(seen.lower(), {word.lower() for word in _WORD.findall(answer)}, answer)
               for dialogue in DIALOGUES["train"] for seen, _, answer in turns(dialogue)]  # fmt: skip
    count = collections.Counter(word for _, words, _ in replies for word in words)
    small_talk = [reply for pattern, reply in (*talk.GREET, *talk.BYE, *talk.ASIDES)]
    asked = [question for kind in desks.KINDS.values() for question in kind.slots.values()]
    fixed = " ".join([*talk.JOKES, *small_talk, *off_topic.OFF_TOPIC, *asked, "booked costs password"]).lower()
    rng = Random(5)
    noted = [[set(_WORD.findall(note(rng, "train")[1].lower())) for _ in range(40)] for note, _ in notes.NOTES.values()]
    fixed += " ".join(word for each in noted for word in set.intersection(*each))
    checked = 0
    for seen, words, answer in replies:
        for word in words:
            if count[word] <= 2 and word[0] not in "$€£" and word not in fixed:
                checked += 1
                words_too = {text.spelled(int(word)), DOZENS.get(int(word), "")} if word.isdigit() else set()
                shown = [re.sub(r"(?<=\w)(?:ves|ies|es|s|y)$", "", word), *filter(None, words_too)]
                assert any(each in seen for each in shown), (word, answer)
    assert checked > 500


def test_bills_read_prices_and_work_out_nothing() -> None:
    """Each line of a bill bears the price that the list gives to its thing; no other amount is ever told."""
    bills = 0
    for dialogue in DIALOGUES["train"]:
        told = dialogue[0][1] if dialogue[0][0] == "system" else ""
        for _, _, answer in turns(dialogue):
            assert all(amount in told for amount in _AMOUNT.findall(answer)), answer
            if menu.TILL not in answer:
                continue
            bills += 1
            for row in answer.partition(". " + menu.TILL)[0].removeprefix("Certainly. ").split(", "):
                thing, _, price = row.rpartition(" at ")
                amount = price.removesuffix(" each")
                assert (amount != price) is not thing.lower().startswith("one "), row
                held = re.findall(r"([\w' -]+?)(?: costs| is| for|:)? " + re.escape(amount), told)
                assert any(_head(item) in thing.lower() for item in held), (row, told)
    assert bills > 60


def test_prices_are_those_of_the_facts() -> None:
    """Large popcorn: $7.25 is told where popcorn, large and $7.25 stand in the facts; else it is not known."""
    told, units, unknown, written = 0, 0, 0, collections.Counter()  # type: int, int, int, collections.Counter[str]
    for dialogue in (*DIALOGUES["train"], *islice(grammar.echoes(3), 1500)):
        facts = dialogue[0][1].lower()
        for _, asked, answer in turns(dialogue):
            unknown += answer.startswith("Sorry, I do not know the price of")
            found = re.fullmatch(r"([^:]+): ([$€£][\d.]+|[\d.]+ [$€£])( .*)?\.", answer)
            if not found:
                continue
            told += 1
            units += bool(found[3])
            written[re.sub(r"\d", "9", found[2])] += 1
            words = [word for word in found[1].lower().split() if word != "to"]
            assert all(word in facts for word in words), (facts, asked, answer)
            amount = f"{found[2]}{found[3] or ''}"
            assert any(word in row for row in _rows(facts, amount) for word in words), (facts, asked, answer)
    assert told > 500 and units > 60 and unknown > 30
    assert {"$9.99", "$9", "$99", "$99.99", "$999.99", "€9.99"} <= set(written)
    assert any(tariff.amounts(Random(seed), "€")().endswith(" €") for seed in range(200))


def _rows(facts: str, amount: str) -> list[str]:
    """Each place of an amount in the facts: what stands between the amounts before and behind it."""
    money = [(found.start(), found.end()) for found in re.finditer(r"[$€£][\d.]*\d|\b\d[\d.]* [$€£](?!\d)", facts)]
    ends, starts = [0, *(end for _, end in money)], [*(start for start, _ in money[1:]), len(facts)]
    return [
        facts[before:start] + facts[end:after]
        for before, (start, end), after in zip(ends, money, starts, strict=False)
        if facts.startswith(amount, start)
    ]


def _head(item: str) -> str:
    """The last word of a thing, without what a plural changes."""
    word = item.lower().split()[-1]
    return word[: max(2, len(word) - 2)]


def test_never_a_person() -> None:
    for dialogue in DIALOGUES["train"]:
        for _, _, answer in turns(dialogue):
            assert not re.search(r"\bI am (?:a (?:person|human|man|woman)|human)|\bmy (?:wife|husband|son)", answer)


# ---- the corpus ------------------------------------------------------------------------------------------------------

needs_corpus = pytest.mark.skipif(not corpus.available(), reason="the third-party corpus is not on this machine")


@needs_corpus
@pytest.mark.parametrize("source", ["task", "small", "free", "refuse"])
def test_corpus(source: str) -> None:
    found = list(corpus.dialogues(source, "test", seed=1))
    assert found and found == list(corpus.dialogues(source, "test", seed=1))
    assert all(clean(said) for dialogue in found for _, said in dialogue)
    assert source == "refuse" or all(dialogue[0][0] == "system" for dialogue in found)


@needs_corpus
def test_no_invented_hours_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pilots' assistant told hours that nobody gave it; those dialogues are kept for comparison only."""
    lines = corpus.lines
    monkeypatch.setattr(corpus, "lines", lambda group, split: islice(lines(group, split), 1000))
    told = re.compile(r"\bwe (?:are )?(?:open|close)\b|opening hours are", re.IGNORECASE)

    def telling(split: str) -> int:
        return sum(any(role == "assistant" and told.search(said) for role, said in dialogue)
                   for dialogue in corpus.dialogues("pilot", split))  # fmt: skip

    assert telling("test") > 20 and telling("train") == 0


def test_sources(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    assert not corpus.available()
    assert next(corpus.dialogues("kiosk", "train", 1)) == sample(1, seed=1)[0]
    assert len(next(corpus.dialogues("day", "train", 1))) > 40
    with pytest.raises(FileNotFoundError, match="BITNET_EDGE_CORPUS"):
        corpus.dialogues("task")
    with pytest.raises(ValueError, match="no source 'tea'"):
        corpus.dialogues("tea")
