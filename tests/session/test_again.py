"""Why tokens of a prompt were read again: the number, the reason and the place, with nothing of the text in facts."""

from __future__ import annotations

from array import array

import pytest

import edge
from edge.cache import remembered
from edge.sampling import Sampling
from edge.session.read_again import Again, repeated

GREEDY = Sampling(temperature=0.0)
HOUSE = "You look after a house. The lamp in the hall is on, the door is shut and the heating is off. "
CLOCK = "It is {}. "


@pytest.fixture(scope="module")
def engine(bundled_model):
    with edge.load(bundled_model, ctx=512, threads=1) as engine:
        yield engine


def ask(session, text="Is the lamp on?", **options):
    answer = session.ask(text, sampling=GREEDY, max_tokens=4, **options)
    assert answer.text is not None
    return answer


def test_runs_of_tokens_count_once() -> None:
    a, b = array("i", range(40)), array("i", [*range(20, 40), 99, *range(7), 98, *range(8)])
    assert repeated(a, b) == 28
    assert repeated(a, array("i")) == repeated(array("i"), a) == repeated(a, array("i", [5] * 40)) == 0


def test_a_conversation_that_goes_on_reads_nothing_again(engine) -> None:
    session = engine.session(HOUSE)
    assert ask(session).again == Again(session.outcome.usage.prompt, "new")
    for text in ("And the door?", "Then switch the heating on, and open the door for the cat."):
        assert ask(session, text).again is None
    session.undo()
    assert ask(session, "What did you say about lamps before the sun went down?").again is None


def test_a_clock_at_the_front_changes_the_system_prompt(engine) -> None:
    session = engine.session(CLOCK.format("10:41") + HOUSE * 2)
    ask(session)
    session.system = CLOCK.format("10:52") + HOUSE * 2
    answer = ask(session, "And the door?")
    again = answer.again
    assert again.reason == "system" and again.message == 0 and again.after >= 5
    n = answer.usage.prompt - answer.usage.cached
    assert n - 16 <= again.tokens <= n  # all but the changed minutes, and the question
    line = again.line(engine.tokenizer)
    assert line.startswith(f"{again.tokens} tokens read again: the system prompt changed after {again.after} tokens, ")
    assert "It is 10:52" in line and "\n" not in line
    assert "10:5" not in again.line() and "10:5" not in str(again.facts) and "10:5" not in repr(again)
    assert again.facts == {"tokens": again.tokens, "reason": "system", "message": 0, "after": again.after}


@pytest.mark.parametrize("system", [None, HOUSE])
def test_the_message_that_changed_is_named(engine, system) -> None:
    first = [{"role": "system", "content": system}] if system else []
    talk = [*first, {"role": "user", "content": CLOCK.format("10:41") + HOUSE},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "And the door to the garden behind the kitchen?"}]
    session = engine.session()
    session.chat(talk, sampling=GREEDY, max_tokens=4).text  # noqa: B018
    talk[-3] = {"role": "user", "content": CLOCK.format("10:52") + HOUSE}
    answer = session.chat(talk, sampling=GREEDY, max_tokens=4)
    assert answer.text is not None and answer.again.reason == "message" and answer.again.message == len(first)
    assert f"message {len(first)} changed after" in answer.again.line()


def test_an_edit_of_a_question_that_is_being_written_is_told(engine) -> None:
    """With the answer where the session itself read ahead, and with the request that reads it where that was sent."""
    end = " is the lift, and what does a ticket to the island cost for two adults and a child? "
    session = engine.session(HOUSE)
    for text in ("Were", "Were" + end, "Were", "Were" + end, "Where" + end):
        session.read_ahead(text)
    again = ask(session, "Where" + end).again
    assert again.reason == "edited" and 20 < again.tokens < 60 and again.facts == {
        "tokens": again.tokens, "reason": "edited"}
    assert again.line(engine.tokenizer) == (
        f"{again.tokens} tokens read again: the question was edited while it was written")
    session.read_ahead("And" + end)
    assert ask(session, "And" + end).again is None

    session = engine.session()
    for text, edited in (("Were" + end, False), ("Where" + end, True), ("Where" + end + "Say it. ", False)):
        messages = [{"role": "system", "content": HOUSE}, {"role": "user", "content": text}]
        ahead = session.chat(messages, partial=True, max_tokens=0)
        assert ahead.text == "" and (ahead.again is not None and ahead.again.reason == "edited") is edited, text
    assert session.chat(messages, max_tokens=1, sampling=GREEDY).text is not None and session.outcome.again is None


def test_an_older_message_that_is_left_out_is_history(engine) -> None:
    talk = [{"role": "system", "content": HOUSE}]
    for text in ("Is the lamp in the hall on?", "And is the door to the garden shut?", "Is the heating on or off now?"):
        talk += [{"role": "user", "content": text}, {"role": "assistant", "content": f"I looked at it: {text}"}]
    talk.append({"role": "user", "content": "Thank you."})
    session = engine.session()
    session.chat(talk, sampling=GREEDY, max_tokens=4).text  # noqa: B018
    answer = session.chat([talk[0], *talk[3:]], sampling=GREEDY, max_tokens=4)
    assert answer.text is not None and answer.again.reason == "history"
    assert answer.again.line() == f"{answer.again.tokens} tokens read again: older messages were left out"


def test_a_cache_that_cannot_go_back_is_told(bundled_model) -> None:
    with edge.load(bundled_model, ctx=128, threads=1) as engine:
        session = engine.session(HOUSE)
        question = "Tell me a long story about the house. " * 5
        session.ask(question, sampling=GREEDY, max_tokens=120, ignore_eos=True).text  # noqa: B018
        assert session.evicted
        session.undo()
        again = ask(session, question + "The end.").again
        assert again.reason == "evicted" and "KV cache" in again.line()


def test_memory_that_was_given_to_others_is_told(engine) -> None:
    session = engine.session(HOUSE)
    ask(session)
    session.state.free()
    answer = ask(session, "And the door?")
    assert answer.again.reason == "evicted" and answer.again.tokens > 20 and answer.usage.cached == 0


def test_the_disk_tells_another_system_prompt_and_another_cache(bundled_model, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("BITNET_EDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BITNET_EDGE_NO_CACHE")
    monkeypatch.setattr(remembered, "LOADED", 1e30)
    monkeypatch.setattr(remembered, "AT_ONCE", 0.0)

    def again(system, **options):
        with edge.load(bundled_model, ctx=512, threads=1, **options) as engine:
            return ask(engine.session(system)).again

    assert again(HOUSE * 3).reason == "new"
    assert again(HOUSE * 3) is None
    changed = again(HOUSE + "The cat is out. " + HOUSE * 2)
    assert changed.reason == "system" and changed.tokens > 20
    other = again(HOUSE * 3, kv="f16")
    assert other.reason == "file" and other.tokens > 60 and "KV type" in other.line()


def test_a_raw_prompt_has_no_messages(engine) -> None:
    session = engine.session()
    session.complete(CLOCK.format("10:41") + HOUSE, sampling=GREEDY, max_tokens=2).text  # noqa: B018
    answer = session.complete(CLOCK.format("10:52") + HOUSE, sampling=GREEDY, max_tokens=2)
    assert answer.text is not None and answer.again.reason == "message" and answer.again.message is None
    assert "the prompt changed after" in answer.again.line()
