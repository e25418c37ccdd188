"""Answers: what a call returns, its options by the field's names, log probabilities, choices between texts."""

from __future__ import annotations

import asyncio
import math
import re
import textwrap
import threading

import numpy as np
import pytest

import edge
from edge.errors import ContextFull, UsageError
from tests import fakes, handmade
from tests.oracles.attention import log_softmax
from tests.streams import run


@pytest.fixture(scope="module")
def engine(request):
    with edge.load(ctx=256, threads=1) as engine:
        yield engine


# ---- the help --------------------------------------------------------------------------------------------------------


def test_the_examples_of_help_run(monkeypatch, capsys) -> None:
    """help(edge): the first answer, and the loop, which goes on after an error and forgets its guest."""
    first, loop = re.findall(r"(?<=\n\n)(?:    .*\n|\n(?=    ))+", edge.__doc__)
    exec(textwrap.dedent(first), {})
    assert capsys.readouterr().out.strip()
    questions = iter(["Two teas, please.", "\ud800", "bye", "A coffee."])

    def typed(prompt: str) -> str:
        try:
            return next(questions)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)
    exec(textwrap.dedent(loop), {"edge": edge})
    out = capsys.readouterr().out
    assert out.count("[stop]") + out.count("[length]") == 2 and out.count("\n") == 3, out


# ---- the call --------------------------------------------------------------------------------------------------------


def test_text_runs_to_the_end_and_results_are_the_answers_own() -> None:
    session = fakes.engine(fakes.script("Hello there.", "Second.")).session()
    first = session.ask("Hi", temperature=0)
    assert first.finish_reason is None and session.messages == []
    assert first.text == first.text == "Hello there." and first.finish_reason == "stop"
    second = session.ask("More", temperature=0)
    assert next(second).text == "S" and second.text == "Second."
    assert first.usage.completion == 12 and second.usage.completion == 7  # the second has changed nothing of the first
    assert second.usage.cached > 0 and first.usage.cached == 0 and first.timings.prompt_seconds > 0
    assert list(second) == []


def test_cancel_is_the_answers_own() -> None:
    session = fakes.engine(fakes.script("abcdef", "next")).session()
    answer = session.ask("q", temperature=0)
    answer.cancel()
    assert answer.text == "" and answer.finish_reason == "cancelled" and session.messages == []
    assert session.ask("q", temperature=0).text == "abcdef"


def test_an_answer_that_is_let_go_gives_the_session_free() -> None:
    """At once, without the collector of cycles."""
    session = fakes.engine(fakes.script("abc", "next")).session()
    for _piece in session.ask("q", temperature=0):
        break
    assert session.ask("r", temperature=0).text == "next"


def test_chat_takes_a_whole_conversation() -> None:
    engine = fakes.engine(fakes.script("one", "two", "three"))
    session = engine.session()
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
    assert session.chat(talk, temperature=0).text == "one"
    talk += [{"role": "assistant", "content": "one"}, {"role": "user", "content": "b"}]
    answer = session.chat(tuple(talk), temperature=0)
    assert answer.text == "two" and answer.usage.cached > 0
    assert session.messages == [*talk, {"role": "assistant", "content": "two"}]
    assert session.chat([{"role": "user", "content": "other"}], temperature=0).text == "one"
    assert len(session.messages) == 2 and len(talk) == 4
    held = [dict(message) for message in session.messages]
    wrong = [{"role": "user"}], [{"role": "root", "content": ""}], [{"role": "user", "content": 3}]
    for bad in ([], "text", talk[:1], *wrong):
        with pytest.raises(UsageError):
            session.chat(bad)
    assert session.messages == held


def test_options_by_their_names() -> None:
    session = fakes.engine(lambda history: 97).session()
    flat = {"temperature": 5.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 3}
    one = session.complete("x", max_tokens=9, **flat)
    two = session.complete("x", max_tokens=9, sampling=edge.Sampling(**flat))
    mixed = session.complete("x", max_tokens=9, sampling=edge.Sampling(**{**flat, "seed": 5}), seed=3)
    assert one.text == two.text == mixed.text
    with pytest.raises(UsageError, match="temperature is -1; it must be a number") as caught:
        session.ask("q", temperature=-1)
    assert caught.value.argument == "temperature" and caught.value.hint.startswith("it must be a number")
    with pytest.raises(UsageError, match="temp is not an option"):
        session.ask("q", temp=1)
    with pytest.raises(UsageError, match="logprobs"):
        session.ask("q", logprobs=-1)
    with pytest.raises(UsageError, match="on_prefill is 3; it must be a function"):
        session.ask("q", on_prefill=3)


# ---- probabilities ---------------------------------------------------------------------------------------------------


def rows_behind(engine: edge.Engine, ids: list[int], n: int) -> list[list[float]]:
    """Log probabilities behind each of the last n tokens, from a cache of their own."""
    with engine.model.alone() as transformer:
        return log_softmax(run(transformer, engine.space.new_cache(), ids)[-n:]).tolist()


def test_logprobs_are_the_models(bundled_model) -> None:
    with edge.load(ctx=256, threads=1) as engine:
        prompt = engine.model.encode_raw("A coffee, please. A coffee, please. A").tolist()
        options = {"max_tokens": 12, "ignore_eos": True, "seed": 2, "temperature": 0.9}
        penalties = {"repeat_penalty": 1.4, "presence_penalty": 0.5}  # change what is chosen, not what is told
        answer = engine.session().complete(prompt, logprobs=3, **options, **penalties)
        ids = [id for piece in answer for id in piece.ids]
        assert [each.id for each in answer.logprobs] == ids and len(ids) == 12
        plain = engine.session().complete(prompt, **options, **penalties)
        assert [id for piece in plain for id in piece.ids] == ids and plain.logprobs == []
        for told, row in zip(answer.logprobs, rows_behind(engine, [*prompt, *ids[:-1]], 12), strict=True):
            assert told.logprob == pytest.approx(row[told.id], abs=1e-4)
            best = sorted(range(len(row)), key=lambda i: -row[i])[:3]
            assert [each.id for each in told.top] == best
            assert [each.logprob for each in told.top] == pytest.approx([row[i] for i in best], abs=1e-4)
            assert told.bytes == engine.tokenizer.token_bytes(told.id)
        none = engine.session().complete(prompt, logprobs=0, **options)
        none.text  # noqa: B018
        assert all(each.top == () for each in none.logprobs) and len(none.logprobs) == 12


def test_logits_and_log_probabilities_are_arrays(bundled_model, engine) -> None:
    session = engine.session()
    ids = engine.model.encode_raw("A coffee, please. " * 9).tolist()
    logits, logprobs = session.logits(ids[:-1]), session.logprobs(ids)
    assert (logits.dtype, logits.shape) == (np.float32, (engine.config.n_vocab,))
    assert (logprobs.dtype, logprobs.shape) == (np.float32, (len(ids),)) and np.isnan(logprobs[0])
    assert logprobs[-3:] == pytest.approx(
        [row[id] for row, id in zip(rows_behind(engine, ids[:-1], 3), ids[-3:])], abs=1e-4)
    assert logprobs[-1] == pytest.approx(log_softmax(logits)[ids[-1]], abs=1e-4)


@pytest.mark.parametrize("overflow", ["slide", "stop"])
def test_what_is_scored_is_scored_whole_or_refused(bundled_model, overflow: str) -> None:
    """Text or tokens, in any context: regression, a long text was shortened before it was scored."""
    with edge.load(bundled_model, ctx=128, threads=1, overflow=overflow) as small:
        session, most = small.session(), 128
        text = "A coffee, please. " * 40
        ids = small.model.encode_raw(text).tolist()
        assert len(ids) > most and len(session.logprobs(ids[:most])) == most
        for prompt in (text, ids, text * 1000):
            for scored in (session.logits, session.logprobs):
                with pytest.raises(ContextFull, match="the context 128; a larger ctx"):
                    scored(prompt)
            if isinstance(prompt, str):
                with pytest.raises(ContextFull):
                    session.choose(prompt, ["yes", "no"])
        assert session.choose("Tea?", ["yes", "no"])
        if overflow == "slide":
            for _ in range(4):
                session.ask("Tell me about tea.", max_tokens=60, ignore_eos=True).text  # noqa: B018
            assert session.context.left_out or session.state.evicted
            assert session.choose("Tea?", ["yes", "no"])  # of a long conversation the end counts


def test_a_comparison_needs_all_logits() -> None:
    """A head of two stages computes those of the likeliest tokens, where an answer needs no others."""
    def compared(head: str) -> list[object]:
        with edge.load("demo", ctx=256, head=head) as engine:
            session = engine.session("")
            assert session.ask("hello", temperature=0, max_tokens=5).text
            return session.choose("Where is seat 7?", ["no", "red cup"])

    assert compared("two-stage") == compared("int8")


def test_a_choice_is_the_likeliest_text(bundled_model, engine) -> None:
    """Not the one with the likeliest first token; drawn only if a temperature is given."""
    texts = ["yes", "no", "Yes, of course.", "tea", "tea with milk", "We are open from 8 am to 6 pm.", "No."]
    for i, question in enumerate(("Are you open?", "Is Paris the capital of France?", "What do you drink?")):
        session = engine.session("You sell coffee.")
        found = session.choose(question, texts)
        answer = session.ask(question, choices=texts)
        assert answer.text == found[0].text and answer.finish_reason == "stop" and answer.whole
        assert answer.shares == session.outcome.shares == found
        one = engine.session("You sell coffee.").ask(question, choices=[texts[i], f"{texts[i]} More."], seed=3)
        assert one.text == one.shares[0].text
        short = engine.session("You sell coffee.").ask(question, choices=texts, max_tokens=1)
        assert short.text in texts or not short.whole
    drawn = {engine.session().ask("Tea?", choices=["yes", "no"], temperature=3.0, seed=seed).text for seed in range(20)}
    assert drawn == {"yes", "no"}
    many = engine.session().ask("Which?", choices=[f"{i} and {i}" for i in range(100)])
    assert many.whole and many.text and many.shares == []


def as_whole_answer(engine: edge.Engine, prompt: list[int], text: str, lead: str | None = None) -> float:
    """The log probability of the tokens of a text and then of any end, counted with NumPy from a cache of its own."""
    tokens = engine.tokenizer.encode((engine.model.answer_lead if lead is None else lead) + text)
    rows = np.array(rows_behind(engine, [*prompt, *tokens], len(tokens) + 1))
    ends = rows[-1, sorted(engine.model.stop_ids)]
    return float(sum(rows[i, token] for i, token in enumerate(tokens)) + np.log(np.exp(ends).sum()))


@pytest.mark.parametrize("texts", [
    ["1", "10", "12"], ["2", "24"], ["New", "New York", "Boston"], ["tea"], ["yes", "yes please", "yes, please."],
    [" yes", "yes", " no"], ["no", "no\n"], ["a coffee"] * 2,
])
def test_a_choice_is_a_whole_answer(bundled_model, engine, texts) -> None:
    """Its end belongs to it: else one that begins another would be likelier always.  The model has several ends."""
    assert len(engine.model.stop_ids) > 1
    question = "What is 5 times 2?"
    prompt = engine.model.encode([{"role": "user", "content": question}]).tolist()
    session = engine.session()
    found = session.choose(question, texts)
    expected = {text: as_whole_answer(engine, prompt, text) for text in texts}
    for each in found:
        assert each.logprob == pytest.approx(expected[each.text], abs=1e-3)
        assert each.share == pytest.approx(np.exp(expected[each.text] - np.logaddexp.reduce(
            [expected[text] for text in texts])), abs=1e-3)
    for more in ({}, {"ignore_eos": True}):
        answer = engine.session().ask(question, choices=texts, **more)
        assert answer.text == found[0].text and answer.finish_reason == "stop" and answer.whole
        assert {each.text for each in answer.shares} == set(texts)


def test_choices_of_a_tiny_model(tmp_path) -> None:
    """Without a template, and of one end or none."""
    tokens = ["1", "0", "2", "<end>", *"abcdefghijkl"]
    keys = {"tokenizer.ggml.tokens": handmade.value(handmade.ARR, (handmade.STR, tokens)),
            "tokenizer.ggml.merges": handmade.value(handmade.ARR, (handmade.STR, []))}
    for end in (3, None):
        keys["tokenizer.ggml.eos_token_id"] = None if end is None else handmade.value(handmade.U32, end)
        path = tmp_path / f"{end}.gguf"
        path.write_bytes(handmade.model(keys=keys))
        with edge.load(path, threads=1) as engine:
            assert engine.model.stop_ids == ({3} if end else set())
            for text in "abcdefgh":
                prompt = engine.model.encode_raw(text).tolist()
                found = engine.session().complete(text, choices=["1", "10", "12", "0"])
                found.text  # noqa: B018
                for each in found.shares:
                    wanted = as_whole_answer(engine, prompt, each.text, "") if end else sum(
                        row[token] for row, token in zip(
                            rows_behind(engine, [*prompt, *engine.tokenizer.encode(each.text)[:-1]], each.n_tokens),
                            engine.tokenizer.encode(each.text)))
                    assert each.logprob == pytest.approx(wanted, abs=1e-3)
                assert found.text == found.shares[0].text


def test_choices_that_a_full_context_has_no_room_for(bundled_model) -> None:
    """Nothing is scored then: the likeliest tokens are taken, as far as there is room."""
    texts = ["yes", "We are open from 8 to 6."]
    with edge.load("demo", ctx=64, overflow="stop", threads=1) as engine:
        ids = engine.model.encode_raw("tea " * 99).tolist()
        for n in (40, 60, 63, 64):
            answer = engine.session().complete(ids[:n], choices=texts)
            assert any(text.startswith(answer.text) for text in texts) and answer.text
            assert len(answer.shares) == (2 if n == 40 else 0)
            assert answer.finish_reason == ("stop" if answer.whole and n < 64 else "context_full")
        question = "tea " * 12
        assert len(engine.session().choose(question, ["yes"])) == 1
        with pytest.raises(ContextFull):
            engine.session().choose(question, ["yes " * 60])


def test_choices_are_scored_behind_one_prompt(bundled_model, engine) -> None:
    session = engine.session("You sell coffee.")
    texts = ["Yes, of course.", "No.", "We are open from 8 am to 6 pm every day of the week, and on Sunday from noon."]
    steps: list[int] = []
    real = engine.model.step
    engine.model.step = lambda batch: (steps.append(sum(len(each.ids) for each in batch)), real(batch))[1]
    try:
        found = session.choose("Are you open?", texts)
    finally:
        del engine.model.step
    assert sorted(each.text for each in found) == sorted(texts)
    assert [each.logprob for each in found] == sorted((each.logprob for each in found), reverse=True)
    assert sum(each.share for each in found) == pytest.approx(1)
    prompt = engine.model.encode([*session.messages, {"role": "user", "content": "Are you open?"}]).tolist()
    assert sum(steps) == len(prompt) + sum(each.n_tokens for each in found)
    for each in found:
        assert each.logprob == pytest.approx(as_whole_answer(engine, prompt, each.text), abs=1e-3)
        assert each.probability == math.exp(each.logprob)
        assert session.score("Are you open?", each.text) == each._replace(share=1.0)
    assert session.messages == [{"role": "system", "content": "You sell coffee."}]
    before = engine.session("You sell coffee.").ask("Are you open?", temperature=0).text
    assert session.ask("Are you open?", temperature=0).text == before  # nothing is left behind
    for bad in ([], "text", [""], [3]):
        with pytest.raises(UsageError):
            session.choose("Are you open?", bad)


# ---- several threads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
def test_threads_share_an_answer(engine: edge.Engine, others: int) -> None:
    """Each piece goes to one of them; the text is what one thread would have got."""
    question, options = "Tell me all that you have.", {"max_tokens": 60, "temperature": 0, "ignore_eos": True}
    expected = engine.session().ask(question, **options).text
    beside = [engine.session().ask("Hi", max_tokens=200, ignore_eos=True) for _ in range(others)]
    for each in beside:
        next(each)
    for read in ("pieces", "text"):
        answer, parts, errors = engine.session().ask(question, **options), [], []

        def iterate() -> None:
            try:
                parts.extend(piece.text for piece in answer)  # noqa: B023
            except Exception as error:
                errors.append(error)  # noqa: B023

        threads = [threading.Thread(target=iterate) for _ in range(3)]
        for thread in threads:
            thread.start()
        if read == "text":
            assert answer.text == expected
        for thread in threads:
            thread.join()
        assert not errors and answer.text == expected and answer.finish_reason == "length"
        assert read == "text" or len("".join(parts)) == len(expected)
    for each in beside:
        each.close()


def test_another_thread_closes_an_answer(engine: edge.Engine) -> None:
    session, errors = engine.session(), []
    answer = session.ask("Tell me all.", max_tokens=400, ignore_eos=True)
    begun = threading.Event()

    def iterate() -> None:
        try:
            for _ in answer:
                begun.set()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=iterate)
    thread.start()
    begun.wait()
    answer.close()
    thread.join()
    assert not errors and answer.finish_reason == "cancelled"
    assert session.messages[-1]["content"] == answer.text


def test_a_callback_cannot_read_the_answer_it_is_called_for(engine: edge.Engine) -> None:
    answer = engine.session().ask("Hi", max_tokens=5, on_prefill=lambda *_: answer.text)
    with pytest.raises(UsageError, match="being written by this thread"):
        answer.text  # noqa: B018


def test_a_loop_of_asyncio_that_is_left_frees_the_session(engine: edge.Engine) -> None:
    async def read() -> None:
        session = engine.session()
        async for _ in edge.aio.pieces(session.ask("Hi", max_tokens=4000, ignore_eos=True)):
            break
        assert await edge.aio.text(session.ask("Hi", max_tokens=3))

    asyncio.run(read())


def test_the_pieces_of_an_answer_have_one_reader_in_an_event_loop(engine: edge.Engine) -> None:
    async def read() -> None:
        answer = engine.session().ask("Hi", max_tokens=40, ignore_eos=True)
        async with edge.aio.pieces(answer) as pieces:
            first = await anext(pieces)
            with pytest.raises(UsageError, match="read elsewhere"):
                answer.text  # noqa: B018
            rest = [piece.text async for piece in pieces]
        assert answer.text == first.text + "".join(rest) and answer.finish_reason == "length"

    asyncio.run(read())
