"""An answer that only repeats its end is stopped; one that says something is not."""

from __future__ import annotations

import random
from array import array

import pytest

import edge
from edge.session.loops import LONGEST, REPEATED, TIMES, loops
from tests import fakes


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
        state = engine.space.new_state()
        engine.space.take(state)

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
