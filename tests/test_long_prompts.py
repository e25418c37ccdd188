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
