"""Prompts far longer than the context: prepared in time that grows with their length, and interrupted at once."""

from __future__ import annotations

import json
import re

import pytest

import edge
from edge.constrain.functions import Functions
from edge.errors import ContextFull
from edge.model.model import Model
from edge.prompt import interrupt
from edge.prompt.tokenizer import Tokenizer
from edge.serve.calls import Call
from tests.services import bitnet_edge


@pytest.fixture(scope="module")
def engine():
    with edge.load(threads=1, ctx=256) as engine:
        yield engine


@pytest.fixture
def longest(monkeypatch):
    """The lengths of all texts that are encoded."""
    lengths, encode = [0], Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: lengths.append(len(text)) or encode(self, text))
    return lambda: max(lengths)


def talk(n: int, text: str = "x") -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i in range(n)] + [
        {"role": "user", "content": "y"}]


@pytest.mark.parametrize("n", [20, 200, 2000])
def test_what_no_longer_fits_is_found_without_encoding_everything_for_each_turn(engine, n, monkeypatch):
    encoded = []
    encode = type(engine.model).encode

    def counting(self, messages, *rest):
        encoded.append(len(messages))
        return encode(self, messages, *rest)

    monkeypatch.setattr(type(engine.model), "encode", counting)
    with engine.session() as session:
        answer = session.chat(talk(n), max_tokens=1)
        assert answer.finish_reason is None
        list(answer)
        assert sum(encoded) <= 4 * n + 200
        prompts = [len(encode(engine.model, talk(n)[at:])) for at in range(0, n, 2)]
        assert answer.usage.prompt <= engine.plan.n_ctx and answer.usage.prompt in prompts
        assert answer.usage.prompt > engine.plan.n_ctx // 3 or n < 50


# ---- one text that is longer than the context ------------------------------------------------------------------------

BOOK = "All of this is long, and goes on. " * 2000  # 68,000 characters


@pytest.mark.parametrize("overflow", ["slide", "stop"])
@pytest.mark.parametrize("n", [8, 1000, 100_000])
def test_it_is_refused_and_nothing_is_shortened(overflow, n, longest):
    text = "All of this is long, and goes on. " * n
    long = [{"role": "user", "content": text}]
    with edge.load(threads=1, ctx=256, overflow=overflow) as engine, engine.session("Be short.") as session:
        session.ask("Hello", max_tokens=1).close()
        known = session.messages[:]
        calls = (lambda: session.ask(text), lambda: session.chat([*talk(20), *long]), lambda: session.complete(text),
                 lambda: session.chat([*long, *long]))
        for call in calls:
            if n > 8:
                with pytest.raises(ContextFull, match="the prompt has .*, the context 256; a larger ctx helps"):
                    list(call())
        assert session.messages == known and longest() <= 64 * 256
        if n == 8:
            assert session.ask(text, max_tokens=1).usage.prompt == 0
            assert len(list(session.chat(long, max_tokens=1))) == 1


def test_a_long_text_that_is_no_question_is_left_out_with_its_turn(engine):
    with engine.session() as session:
        answer = session.chat([{"role": "user", "content": BOOK}, *talk(2)[1:]], max_tokens=1)
        list(answer)
        assert answer.usage.prompt < 64
        list(session.chat([{"role": "user", "content": "x"}, {"role": "assistant", "content": BOOK}, *talk(0)],
                          max_tokens=1))
        assert session.outcome.usage.cached > 0 and session.outcome.usage.prompt < 64


@pytest.mark.parametrize("how", ["run", "run --json", "run --raw", "chat", "chat --jsonl"])
def test_commands_refuse_a_long_text(how):
    said = BOOK
    if how == "chat --jsonl":
        said = json.dumps({"op": "chat", "id": "a", "messages": [{"role": "user", "content": BOOK}]})
    done = bitnet_edge(*how.split(), "-n", "2", "--ctx", "256", "-t", "1", given=said + "\n")
    assert done.returncode == (0 if how == "chat --jsonl" else 7)
    said = "the prompt has [0-9]+ tokens or more, the context 256; a larger --ctx helps"
    assert re.search(said, done.stdout if "json" in how else done.stderr)


# ---- a system prompt that is longer than the context -----------------------------------------------------------------

TOO_LONG = "the system prompt has [0-9]+ tokens or more, the context 256; a shorter one or a larger ctx helps"
SAID = TOO_LONG.replace("ctx", "--ctx")  # by the command line
SYSTEMS = {
    "four million characters": BOOK * 60,
    "just too long": "Tea and scones by the sea. " * 80,
    "few tokens for many characters": " " * 400_000,
    "many bytes": "日本" * 150,
}


@pytest.mark.parametrize("overflow", ["slide", "stop"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_prompt_longer_than_the_context_is_refused_before_anything_is_read(name, overflow, monkeypatch):
    encoded, steps = [], []
    encode, step = Tokenizer.encode, Model.step
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: encoded.append(text) or encode(self, text))
    monkeypatch.setattr(Model, "step", lambda self, batch: steps.append(1) or step(self, batch))
    system = SYSTEMS[name]
    with edge.load(threads=1, ctx=256, overflow=overflow) as engine, engine.session(system) as session:
        talk = [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]
        calls = (
            lambda: session.warm(), lambda: session.ask("Hi", max_tokens=1).text, lambda: session.score("Hi", "yes"),
            lambda: session.chat(talk, max_tokens=1).text,
            lambda: session.chat([{"role": "user", "content": "Hi"}, *talk], max_tokens=1).text,
        )
        for call in calls:
            encoded.clear()
            with pytest.raises(ContextFull, match=TOO_LONG):
                call()
            assert not steps and len(encoded) <= 2
            assert len(encoded[0]) <= 8 * 256
        assert session.outcome.finish_reason is None and session.messages == talk[:1]
        # the session goes on
        assert session.complete("Hi", max_tokens=1).text is not None
        session.system = "Be short."
        assert session.ask("Hi", max_tokens=1).text is not None


@pytest.mark.parametrize("how", ["run", "run --json", "run -n 0", "chat", "chat --jsonl", "serve"])
def test_commands_refuse_a_long_system_prompt(tmp_path, how):
    (tmp_path / "big.txt").write_text(BOOK * 3)
    arguments = [*how.split(), "-m", "demo", "--ctx", "256", "-t", "1", "-sysf", str(tmp_path / "big.txt")]
    said = "Hi\n"
    if how == "run -n 0":
        arguments += ["--session", str(tmp_path / "new.bes")]
        said = ""
    elif how == "chat --jsonl":
        arguments = arguments[:-2]
        talk = [{"role": "system", "content": BOOK * 3}, {"role": "user", "content": "Hi"}]
        said = json.dumps({"op": "chat", "id": "a", "messages": talk}) + "\n"
    elif how == "serve":
        arguments += ["--port", "0"]
    done = bitnet_edge(*arguments, given=said)
    if how == "chat --jsonl":
        event = json.loads(done.stdout.splitlines()[-1])
        assert event["code"] == "context_full" and re.fullmatch(SAID, event["message"])
        return
    assert done.returncode == 7, done.stderr
    assert re.fullmatch("bitnet-edge: " + SAID, done.stderr.splitlines()[-1])


# ---- long texts besides questions ------------------------------------------------------------------------------------

HUGE = "ab" * 1_000_000
def function(**more: object) -> list[dict]:
    return [{"type": "function", "function": {"name": "f", **more}}]


FUNCTIONS = {
    "description": function(description=HUGE),
    "parameters": function(parameters={"type": "object", "properties": {"a": {"type": "string", "description": HUGE}}}),
    "just too long": function(description="Tea and scones by the sea. " * 80),
}


@pytest.mark.parametrize("overflow", ["slide", "stop"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_longer_than_the_context_are_refused(name, overflow, longest):
    talk, tools = [{"role": "user", "content": "Hi"}], Functions.of(FUNCTIONS[name])
    with edge.load(threads=1, ctx=256, overflow=overflow) as engine, engine.session() as session:
        calls = (lambda: session.ask("Hi", tools=tools, max_tokens=1).text,
                 lambda: Call(talk, options={"tools": tools}).prepare(engine))
        for call in calls:
            with pytest.raises(ContextFull, match="the prompt has .*, the context 256"):
                call()
        assert session.messages == []
    assert longest() <= 32 * 256


# ---- interrupts ------------------------------------------------------------------------------------------------------

LONG = {
    "one message": [{"role": "user", "content": "Tea and scones by the sea. " * 150_000}],
    "many": [{"role": ("user", "assistant")[i % 2], "content": "Grüße vom Meer. " * 100} for i in range(2001)],
    "other letters": [{"role": "user", "content": "日本語のテキスト、ここに。 " * 100_000}],
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("how", ["timeout", "cancelled"])
def test_preparing_a_long_prompt_ends_at_once(engine, name, how):
    """Not one token is evaluated, and most of the text is not even cut into tokens."""
    with engine.session() as session:
        session.ask("x", max_tokens=1).close()
        answer = session.chat(LONG[name], max_tokens=5, timeout=1e-6 if how == "timeout" else 1e6)
        if how == "cancelled":
            answer.cancel()
        assert list(answer) == [] and answer.finish_reason == how
        assert answer.usage.prompt == answer.usage.completion == 0
        assert session.ask("hello", max_tokens=3).usage is not None


def test_a_cancel_comes_through_in_the_middle(engine, monkeypatch):
    """It is looked for again and again: the tenth look ends it."""
    count = 0
    with engine.session() as session:
        answer = session.chat(LONG["many"], max_tokens=5)

        def look() -> None:
            nonlocal count
            count += 1
            if count == 10:
                answer.cancel()
            interrupt.check_interrupted()

        for module in ("prompt.tokenizer", "prompt.tokenizer.byte_level", "session.prompting"):
            monkeypatch.setattr(f"edge.{module}.check_interrupted", look)
        assert list(answer) == [] and answer.finish_reason == "cancelled" and count == 10
