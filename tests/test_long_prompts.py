"""Prompts far longer than the context: prepared in time that grows with their length, and interrupted at once."""

from __future__ import annotations

import pytest

import edge
from edge.errors import UsageError


@pytest.fixture(scope="module")
def engine():
    with edge.load(threads=1, ctx=256) as engine:
        yield engine


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
        room = engine.plan.n_ctx // 2
        kept = session.messages[session.forgotten : -1]
        assert answer.usage.prompt == len(encode(engine.model, kept)) <= max(room, answer.usage.prompt * (n < 50))
        if session.forgotten:  # one turn more would not have fitted
            more = session.messages[session.forgotten - 2 : -1]
            assert len(encode(engine.model, more)) > room


def test_a_cancelled_call_does_not_go_on_looking_for_what_fits(engine):
    with engine.session() as session:
        answer = session.chat(talk(2000), max_tokens=5)
        answer.cancel()
        assert list(answer) == [] and answer.finish_reason == "cancelled"
        assert session.usage.completion == 0


@pytest.mark.parametrize("timeout", [0, -1, 10**400, float("nan"), float("inf"), "1", True, 2e9])
def test_impossible_timeouts_are_refused(engine, timeout):
    with engine.session() as session:
        with pytest.raises(UsageError, match="timeout"):
            session.ask("x", timeout=timeout)
        assert session.ask("x", timeout=1e9, max_tokens=1).text is not None


# ---- one text that is longer than the context ------------------------------------------------------------------------

BOOK = "All of this is long, and goes on. " * 2000  # 68,000 characters


@pytest.mark.parametrize("n", [1, 1000, 100_000])
def test_only_what_can_stay_of_a_long_text_is_read(engine, n):
    text = "First words. " + "Many words stand here. " * n + "Last words."
    told = []
    with engine.session("Be short.") as session:
        answer = session.ask(text, max_tokens=3, on_prefill=lambda *counts: told.append((answer.left_out, *counts)))
        list(answer)
        kept = session.messages[1]["content"]
        assert answer.usage.prompt <= engine.plan.n_ctx and told[0][1:] == (0, answer.usage.prompt, 0)
        if n == 1:
            assert kept == text and answer.left_out == 0
            return
        begin, end = kept.split(" … ")
        assert text.startswith(begin) and begin.startswith("First words.")
        assert text.endswith(end) and len(end) > 3 * len(begin)
        assert answer.left_out == told[0][0] == session.left_out == len(text) - len(begin) - len(end)
        # the talk goes on from what is held
        more = session.ask("And?", max_tokens=1)
        list(more)
        assert more.usage.cached >= answer.usage.prompt and more.left_out == 0


def test_a_client_that_sends_the_long_text_again_is_not_read_again(engine):
    """The same is left out each time."""
    talk = [{"role": "user", "content": BOOK}]
    with engine.session() as session:
        first = session.chat(talk, max_tokens=4)
        talk += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And?"}]
        second = session.chat(talk, max_tokens=4)
        assert second.text is not None and second.left_out == first.left_out > 60_000
        assert second.usage.cached >= first.usage.prompt


def test_a_raw_text_is_shortened_and_ids_are_not(engine):
    with engine.session() as session:
        answer = session.complete(BOOK, max_tokens=1)
        assert answer.text is not None and answer.usage.prompt <= engine.plan.n_ctx and answer.left_out > 60_000
        answer = session.complete([5] * 300, max_tokens=1)
        assert answer.text is not None and answer.usage.prompt == 300 and answer.left_out == 0


def test_half_characters_do_not_show(engine):
    with engine.session() as session:
        answer = session.ask("ä€𝄞" * 3000, max_tokens=1)
        assert answer.text is not None
        assert set(session.messages[0]["content"]) <= set("ä€𝄞 …") and answer.usage.prompt <= engine.plan.n_ctx


def test_a_context_that_stops_refuses_it():
    with edge.load(threads=1, ctx=256, overflow="stop") as engine, engine.session() as session:
        with pytest.raises(edge.EdgeError, match="the prompt has .* tokens, the context 256"):
            list(session.ask(BOOK, max_tokens=1))
        assert session.messages == []


@pytest.mark.parametrize("how", ["", "--json", "--jsonl", "--raw", "chat", "chat --jsonl"])
def test_commands_say_before_reading_what_is_left_out(root, how):
    import json
    import subprocess
    import sys

    text = BOOK
    if how == "chat --jsonl":
        text = json.dumps({"op": "chat", "id": "a", "messages": [{"role": "user", "content": BOOK}], "max_tokens": 2})
    command = how.split() if how.startswith("chat") else ["run", *how.split()]
    command = [sys.executable, "-m", "edge", *command, "-n", "2", "--ctx", "256", "-t", "1"]
    done = subprocess.run(command, cwd=root, input=text + "\n", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    if how != "chat --jsonl":
        assert "the text is longer than the context of 256 tokens" in done.stderr
        assert "characters in its middle are not read" in done.stderr
    if "json" in how:
        last = json.loads(done.stdout.splitlines()[-1])
        assert last["left_out"] > 60_000 and last["usage"]["prompt"] <= 256
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
    from edge.prompt import interrupt
    from edge.prompt.tokenizer import byte_level

    count = 0
    with engine.session() as session:
        answer = session.chat(LONG["many"], max_tokens=5)

        def look() -> None:
            nonlocal count
            count += 1
            if count == 10:
                answer.cancel()
            interrupt.look()

        monkeypatch.setattr("edge.prompt.template.look", look)
        monkeypatch.setattr(byte_level, "look", look)
        assert list(answer) == [] and answer.finish_reason == "cancelled" and count == 10
