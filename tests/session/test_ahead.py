"""Reading while a person types: the answers are those without it, and after Enter only the end is read."""

from __future__ import annotations

import threading
import time
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge
from edge.cache.plan import PAGE
from edge.errors import ContextFull, UsageError
from edge.prompt.messages import certain
from edge.sampling import Sampling
from edge.session.read_ahead import Ahead

GREEDY = Sampling(temperature=0.0)
SYSTEM = "You sell tickets, coffee and umbrellas at the harbour, and you answer politely and briefly. "
WORDS = "where is the lift and what does a ticket cost for two adults, please 3.5 don't, ünï 你好".split()


@pytest.fixture(scope="module")
def engine(bundled_model):
    with edge.load(bundled_model, ctx=512, threads=1) as engine:
        yield engine


def test_all_but_the_last_word_is_certain() -> None:
    parts = {"": "", "Wh": "", "Where": "", "Where ": "Where", "Where is": "Where", "Where  is it": "Where  is",
             "a\nb": "a", " a": "", "  ": ""}
    for text, part in parts.items():
        assert certain(text) == part, text


def test_after_enter_only_the_end_is_read(engine) -> None:
    question = "Where is the lift, and what does a ticket to the island cost for two adults and a child?"
    alone = engine.session(SYSTEM * 3)
    expected = alone.ask(question, sampling=GREEDY, max_tokens=8).text
    session = engine.session(SYSTEM * 3)
    ahead = Ahead(session)
    for n in range(len(question) + 1):
        ahead.typed(question[:n])
    ahead.finish()
    held = session.state.n_tokens
    ahead.stop()
    assert session.ask(question, sampling=GREEDY, max_tokens=8).text == expected
    assert session.outcome.finish_reason == "length"
    session.read_ahead("Where")
    assert session.outcome.finish_reason == "length"
    assert session.outcome.usage.completion == 8  # those of the answer stay
    assert session.outcome.usage.cached == held and session.outcome.usage.prompt - held <= 8
    assert session.messages == alone.messages


@given(st.lists(st.tuples(st.sampled_from(["type", "erase", "replace", "wait", "ask", "undo"]), st.integers(1, 12)),
                max_size=24), st.integers(0, 1 << 30))
@settings(max_examples=25)
def test_any_edits_then_enter_are_as_without(engine, actions, seed) -> None:
    """Against a session that never read ahead: texts, messages and logits of the whole conversation."""
    plain, session = engine.session(SYSTEM), engine.session(SYSTEM)
    ahead, text = Ahead(session), ""
    for kind, n in [*actions, ("ask", 1)]:
        if kind == "type":
            text += " ".join(WORDS[(seed + n + i) % len(WORDS)] for i in range(n)) + " " * (n % 2)
        elif kind == "erase":
            text = text[: -n * 3]
        elif kind == "replace":
            text = text[:n] + WORDS[n % len(WORDS)] + text[n * 2 :]
        elif kind == "wait":
            ahead.finish()
        elif kind == "undo":
            ahead.stop()
            assert plain.undo() == session.undo()
        elif text.strip():
            ahead.stop()
            answers = [each.ask(text, sampling=GREEDY, max_tokens=5).text for each in (plain, session)]
            assert answers[0] == answers[1] and session.messages == plain.messages
            assert array("f", session.state.logits) == array("f", plain.state.logits)
            text = ""
        ahead.typed(text)
    ahead.stop()


def test_an_undo_costs_at_most_a_page(engine) -> None:
    session = engine.session(SYSTEM * 3)
    session.warm()
    before = session.state.n_tokens
    session.read_ahead("Where is the lift and what does it cost to go up and down all day long")
    assert session.state.n_tokens > before
    session.read_ahead("")
    session.ask("No.", max_tokens=0).text  # noqa: B018
    assert before - session.outcome.usage.cached <= PAGE


@pytest.mark.parametrize("options", [{"window": 64}, {"ctx": 96}])
def test_nothing_is_dropped_from_the_cache_for_it(bundled_model, options) -> None:
    with edge.load(bundled_model, **{"ctx": 512, "threads": 1, **options}) as engine:
        session, plain = engine.session("Be brief."), engine.session("Be brief.")
        for turn in range(4):
            question = f"What does it cost for {turn} adults and a child on a day like this, if at all?"
            session.read_ahead(certain(question + " And then there is more, much more than that. " * (5 * (turn % 2))))
            answers = [each.ask(question, sampling=GREEDY, max_tokens=20).text for each in (plain, session)]
            assert answers[0] == answers[1] and session.state.evicted == plain.state.evicted


def test_it_gives_way_to_answers(engine) -> None:
    other = iter(engine.session().ask("A long story.", max_tokens=50, ignore_eos=True))
    next(other)
    session = engine.session(SYSTEM)
    assert session.read_ahead("Where is the") == 0  # that answer is not over
    other.close()
    assert session.read_ahead("Where is the") > 0


def test_it_ends_as_soon_as_an_answer_comes(engine) -> None:
    session, other = engine.session(SYSTEM * 4), engine.session()
    coming: list[threading.Thread] = []
    said: list[str] = []

    def comes() -> bool:
        if session.state.n_tokens > 30 and not coming:
            coming.append(threading.Thread(target=lambda: said.append(other.ask("Tea?", max_tokens=3).text)))
            coming[0].start()
            while not engine.scheduler.waiting:
                time.sleep(0.001)
        return False

    session.read_ahead("", comes)
    assert 30 < session.state.n_tokens < 64
    coming[0].join()
    assert said[0]


@given(st.lists(st.integers(0, 80), max_size=8), st.integers(0, 2))
@settings(max_examples=15)
def test_a_conversation_that_is_sent_is_read_ahead(engine, cuts, turns) -> None:
    """As by read_ahead; the answer is that of a session that reads all of it at once."""
    question = "Where is the lift, and what does a ticket to the island cost for two adults and a child?"
    asked = [{"role": "system", "content": SYSTEM}]
    for _ in range(turns):
        asked += [{"role": "user", "content": "Two teas."}, {"role": "assistant", "content": "Here they are."}]
    session = engine.session()
    for cut in cuts:
        ahead = session.chat([*asked, {"role": "user", "content": question[:cut]}], partial=True, max_tokens=0)
        assert ahead.text == "" and ahead.finish_reason == "length" and ahead.usage.completion == 0
        assert session.messages == asked and ahead.usage.prompt <= session.state.n_tokens
    asked.append({"role": "user", "content": question})
    both = session, engine.session()
    answer, alone = (each.chat(asked, sampling=GREEDY, max_tokens=5, logprobs=1) for each in both)
    assert answer.text == alone.text and answer.logprobs == alone.logprobs
    assert not cuts or answer.usage.cached >= ahead.usage.prompt > 0


#: options of an answer; whatever it has to be, its prompt is read ahead
def test_what_was_typed_is_not_saved(engine, tmp_path) -> None:
    session = engine.session(SYSTEM)
    session.ask("Two teas.", max_tokens=4).text  # noqa: B018
    session.read_ahead("")
    before = session.state.n_tokens
    session.read_ahead("Where is the lift and what does it cost")
    assert session.state.n_tokens > before
    session.save(tmp_path / "session")
    with engine.load_session(tmp_path / "session") as loaded:
        assert loaded.state.n_tokens <= before and loaded.messages == session.messages
        question = "Where is the lift?"
        assert loaded.ask(question, sampling=GREEDY, max_tokens=4).text == session.ask(
            question, sampling=GREEDY, max_tokens=4).text


def test_partial_is_for_conversations_that_are_sent(engine) -> None:
    message = [{"role": "user", "content": "Where is"}]
    with pytest.raises(UsageError, match="partial needs max_tokens 0"):
        engine.session().chat(message, partial=True)
    with pytest.raises(UsageError, match="partial is for chat"):
        engine.session().ask("Where is", partial=True, max_tokens=0)
    with pytest.raises(UsageError, match="partial is for conversations"):
        engine.session().complete("Where is", partial=True, max_tokens=0)


def test_what_is_wrong_is_said_by_the_answer(engine) -> None:
    session = engine.session("word " * 2000)
    ahead = Ahead(session)
    ahead.typed("Where is ")
    ahead.stop()
    with pytest.raises(ContextFull):
        session.ask("Where is it?").text  # noqa: B018
