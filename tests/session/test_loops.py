"""An answer that only repeats its end is stopped; one that says something is not."""

from __future__ import annotations

import bisect
import functools
import inspect
import random
from array import array
from pathlib import Path

import pytest

import edge
from edge.session import loops as found
from edge.session.loops import EVERY, LONGEST, REPEATED, TIMES, VARIED
from tests import fakes

ROOT = Path(__file__).resolve().parents[2]


def loops(tokens, n):
    """In a text that is no prose: only what is repeated word for word."""
    return found.loops(tokens, n, lambda ids: "{}" * len(ids))


@pytest.mark.parametrize("period", [1, 2, 7, 16, 40, 160, LONGEST])
def test_a_repeated_end_is_found_once_it_is_long_enough(period):
    draw = random.Random(period)
    part = [draw.randrange(1 << 24) for _ in range(period)]
    front = [draw.randrange(1 << 24) for _ in range(1000)]
    enough = period + max(REPEATED, (TIMES - 1) * period)
    repeated = (part * (enough // period + 1))[:enough]
    assert loops(array("i", front + repeated), len(front) + enough)
    assert loops(array("i", repeated), enough)
    assert not loops(array("i", front + repeated[:-1]), len(front) + enough - 1)
    changed = repeated[:]
    changed[enough // 3] += 1
    assert not loops(array("i", front + changed), len(front) + enough)
    assert not loops(array("i", repeated), enough - 1), "what stands in the prompt is not the answer's"


def test_tables_and_rulers_are_no_loops():
    line = list(range(12))
    rows = [token for row in range(60) for token in [*line, 1000 + row]]
    assert not loops(array("i", rows), len(rows))
    assert not loops(array("i", list(range(500)) + [7] * 120), 620)


def when(text, tokenizer):
    """After how many tokens a loop is found in an answer, as it is looked for while the answer is written; None: never.
    """
    ids = array("i", tokenizer.encode(text))
    return next((n for n in range(EVERY, len(ids), EVERY) if found.loops(ids[:n], n, tokenizer.decode)), None)


@pytest.fixture(scope="module")
def tokenizer():
    with edge.load(threads=1) as engine:
        yield engine.tokenizer


def sentences(form, draw, slots):
    return [form.format(*(draw.choice(each) for each in slots)) for _ in range(150)]


VARIED_LOOPS = {
    "Bello is a lovable {} who {} to {}. ": (
        ["dog", "friend", "companion"], ["loves", "likes"], ["play", "run", "sleep"]),
    "The king revealed himself to be a {}, and {} revealed himself to be a {}. ": (
        ["giant", "king"], ["he", "the king"], ["giant", "king", "thief"]),
    "They are also known as the \"{} of the {}\" or the \"{} of the night.\" {}": (
        ["nightingale", "owl"], ["night", "dark"], ["nightingale", "owl"], ["", "In modern times, that is so.\n\n"]),
}


@pytest.mark.parametrize("form", VARIED_LOOPS)
@pytest.mark.parametrize("seed", range(5))
def test_a_loop_with_variations_is_found(form, seed, tokenizer):
    """And what is fresh ends it: with one new sentence among a few it is none."""
    draw = random.Random(seed)
    text = sentences(form, draw, VARIED_LOOPS[form])
    assert (when("".join(text), tokenizer) or 9999) < 1300
    ids = tokenizer.encode("".join(text))
    assert VARIED <= found.loops(array("i", ids), len(ids), tokenizer.decode) < len(ids)
    letters = "abcdefghijklmnoprstuvw"
    for at in range(0, len(text), 3):
        text[at] = " ".join("".join(draw.choice(letters) for _ in range(5)) for _ in range(6)) + ". "
    assert when("".join(text), tokenizer) is None


DAYS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
GIFTS = ("a partridge in a pear tree|two turtle doves|three French hens|four calling birds|five golden rings|"
         "six geese a-laying|seven swans a-swimming|eight maids a-milking|nine ladies dancing|ten lords a-leaping|"
         "eleven pipers piping|twelve drummers drumming").split("|")
FARM = {"cow": "moo", "pig": "oink", "duck": "quack", "horse": "neigh", "sheep": "baa", "dog": "woof", "cat": "meow"}
COUNTED = "{0} bottles of beer on the wall, {0} bottles of beer.\nTake one down and pass it around, {1} bottles left.\n"
NAMES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
FINE = {
    "a cumulative song": "\n\n".join(
        f"On the {day} day of Christmas my true love sent to me\n" + "\n".join(GIFTS[at::-1])
        for at, day in enumerate(DAYS)
    ),
    "a song that counts": "".join(COUNTED.format(n, n - 1) for n in range(99, 0, -1)),
    "a song that counts in words": "".join(map(COUNTED.format, NAMES[:0:-1], NAMES[-2::-1])),
    "verses with a refrain": "\n\n".join(
        f"Old MacDonald had a farm, and on his farm he had a {a},\nwith a {s}-{s} here and a {s}-{s} there,\n"
        f"here a {s}, there a {s}, everywhere a {s}-{s}.\nOld MacDonald had a farm." for a, s in FARM.items()
    ),
    "a list of one form": "".join(f"- {a.capitalize()} and {b}: this is what the {a} says to the {b}.\n"
                                  for a in NAMES for b in NAMES[:6] if a != b),
    "a table": "".join(f"| {n} | {n * n} | {'yes' if n % 3 else 'no'} | open |\n" for n in range(200)),
    "a matrix": "\n".join(" ".join(str(int(a == b)) for b in range(25)) for a in range(25)),
    "throws": " ".join(random.Random(1).choices(["heads", "tails"], k=900)),
    "code of one form": inspect.getsource(functools)[:9000],
    "code that is there twice": inspect.getsource(bisect),
    "kernels": (ROOT / "pyx/kernels/avx512vnni.c").read_text()[:9000],
    "options": (ROOT / "docs/cli.md").read_text()[:12000],
}


@pytest.mark.parametrize("what", FINE)
def test_songs_lists_tables_and_code_are_no_loops(what, tokenizer):
    assert when(FINE[what], tokenizer) is None


def test_an_answer_that_loops_ends_and_one_for_measuring_does_not():
    with edge.load(threads=1) as engine, engine.session() as session:
        ids = [5, 6, 7, 8] * 100
        looping = session.complete(ids, max_tokens=400, temperature=0.0, repeat_penalty=1.0)
        forever = session.complete(ids, max_tokens=400, temperature=0.0, ignore_eos=True)
        assert looping.finish_reason is None
        text = looping.text
        assert looping.finish_reason in ("loop", "stop", "length")
        assert forever.text.startswith(text) and forever.finish_reason == "length"
        assert forever.usage.completion == 400


def test_a_model_in_a_loop_is_stopped():
    """Whatever the logits are, the same token comes: far from the limit it ends, and what was said stays."""
    with edge.load(threads=1) as engine, engine.session() as session:
        token = engine.tokenizer.encode("a")[-1]
        state = engine.space.new_state(1)

        class Stuck:
            def sample(self, *_: object) -> int:
                return token

            def reseed(self, seed: int) -> None:
                pass

        state.sampler = Stuck()
        session.state = state
        engine.space.release(state)
        answer = session.complete("a", max_tokens=5000)
        assert set(answer.text.strip()) == {"a"} and answer.finish_reason == "loop"
        assert REPEATED < answer.usage.completion <= REPEATED + 33
        answer = session.complete("a", max_tokens=600, ignore_eos=True)
        assert answer.text and answer.finish_reason == "length" and answer.usage.completion == 600


def test_repetitions_do_not_stay_in_the_conversation():
    """Regression: the next answers went on with them.  The caller gets all of the text; the conversation keeps it once.
    """
    with fakes.engine(fakes.script("So: " + "again " * 200), n_ctx=4096) as engine, engine.session() as session:
        answer = session.ask("q", max_tokens=1000)
        assert answer.text.startswith("So: again again again ") and answer.finish_reason == "loop"
        assert session.messages[-1]["content"].strip() == "So: again"
        assert session.ask("and now?", max_tokens=3).text and session.outcome.usage.cached > 0
