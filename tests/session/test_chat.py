"""Conversation: turns, undo, other answers, loading a history, and how full the context is; lines of a pipe."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Any

import pytest

pytest.importorskip("pyx.sampler", reason="needs the compiled floor (python setup.py build_ext --inplace)")

from edge.cli import readers, repl, signals
from edge.errors import ContextFull, UsageError
from edge.sampling import PRESETS, Sampling
from edge.session.conversation import Conversation
from tests import fakes

GREEDY = Sampling(temperature=0.0)


def said(pieces) -> str:
    return "".join(piece.text for piece in pieces)


def talk(next_token=fakes.by_hash, **arguments) -> Conversation:
    options = {name: arguments.pop(name) for name in ("n_ctx", "overflow") if name in arguments}
    return Conversation(fakes.engine(next_token, **options), sampling=GREEDY, **arguments)


def test_turns_undo_and_clear():
    chat = talk(fakes.script("one", "two", "three"), system="sys")
    assert chat.system == "sys" and chat.turns == 0 and chat.undo() is None
    assert said(chat.ask("a")) == "one" and said(chat.ask("b")) == "two"
    assert chat.turns == 2
    assert chat.undo() == "b" and chat.turns == 1
    assert said(chat.ask("c")) == "two"
    assert [m["content"] for m in chat.messages] == ["sys", "a", "one", "c", "two"]
    chat.messages.clear()  # a copy
    assert len(chat.messages) == 5
    chat.clear()
    assert chat.messages == [{"role": "system", "content": "sys"}] and said(chat.ask("a")) == "one"


def test_system_prompt_changes_from_the_next_turn_on():
    chat = talk()
    first = said(chat.ask("q", max_tokens=8))
    chat.system = "new"
    assert [m["role"] for m in chat.messages] == ["system", "user", "assistant"]
    chat.undo()
    assert said(chat.ask("q", max_tokens=8)) != first
    chat.system = None
    chat.undo()
    assert chat.system is None and said(chat.ask("q", max_tokens=8)) == first


def test_regen_asks_the_same_question_with_other_numbers():
    hot = Sampling(temperature=30.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)
    chat = talk()
    with pytest.raises(UsageError, match="no question"):
        chat.regen()
    answers = [said(chat.ask("q", sampling=hot, max_tokens=30))]
    for _ in range(3):
        answers.append(said(chat.regen(sampling=hot, max_tokens=30)))
    assert len(set(answers)) == 4 and chat.turns == 1
    assert [m["content"] for m in chat.messages] == ["q", answers[-1]]
    chat.undo()
    assert said(chat.ask("q", sampling=hot, max_tokens=30)) == answers[0]  # the seed itself is untouched
    with pytest.raises(UsageError):
        chat.regen(by="letter")
    assert chat.turns == 1  # a refused call changes nothing


def test_a_saved_conversation_can_be_loaded():
    chat = talk(fakes.script("one", "two"), system="s")
    said(chat.ask("a"))
    other = talk(fakes.script("one", "two"), messages=chat.messages)
    assert other.messages == chat.messages
    assert said(other.ask("b")) == said(chat.ask("b")) == "two"


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (["assistant"], "expected: user"),
        (["user", "user"], "expected: assistant"),
        (["user", "system"], "must come first"),
        (["system", "system"], "must come first"),
        (["system", "assistant"], "expected: user"),
        (["tool"], "not known"),
    ],
)
def test_roles_in_impossible_order(roles, message):
    with pytest.raises(UsageError, match=message):
        talk(messages=[{"role": role, "content": "x"} for role in roles])


def test_contents_are_texts():
    with pytest.raises(UsageError, match="text"):
        talk().add("user", 3)


def test_context_use():
    chat = talk(fakes.script("answer"), n_ctx=64, overflow="slide")
    assert chat.context.used == 0 and chat.context.free == 64
    said(chat.ask("q"))
    use = chat.context
    assert use.used == chat.session.n_tokens and use.free == 64 - use.used and use.evicted == 0
    said(chat.ask("and a longer question"))
    assert chat.context.used > use.used
    chat.undo()
    assert use.used <= chat.context.used <= use.used + 2  # without what was removed, at once
    chat.clear()
    assert chat.context.used == 0
    said(chat.ask("q"))
    for _ in range(9):
        said(chat.ask("question", max_tokens=9))
    use = chat.context
    assert use.used == 64 and use.free == 0 and use.evicted == chat.session.n_tokens - 64
    assert chat.overflow == "slide"


def test_overflow_stop():
    chat = talk(n_ctx=32)
    assert chat.overflow == "stop"
    said(chat.ask("q", max_tokens=100))
    assert chat.session.finish_reason == "context_full"
    with pytest.raises(ContextFull):
        said(chat.ask("more"))
    assert chat.turns == 1
    chat.clear()
    assert said(chat.ask("q", max_tokens=3))


def test_cancel_and_close():
    with talk() as chat:
        pieces = chat.ask("q", max_tokens=50)
        next(pieces)
        chat.cancel()
        list(pieces)
        assert chat.session.finish_reason == "cancelled" and chat.turns == 1
    with pytest.raises(UsageError, match="closed"):
        chat.ask("q")


# ---- sampling values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -0.1}, {"temperature": float("nan")}, {"temperature": float("inf")}, {"temperature": "1"},
        {"temperature": True}, {"top_k": -2},
        {"top_k": 1.5}, {"top_p": 1.1}, {"top_p": -0.1}, {"min_p": 2}, {"repeat_penalty": 0}, {"repeat_last_n": -2},
        {"presence_penalty": float("nan")}, {"frequency_penalty": 1e9}, {"seed": 1.0}, {"seed": True},
    ],
)  # fmt: skip
def test_sampling_refuses(values):
    with pytest.raises(UsageError, match=next(iter(values))):
        Sampling(**values)


def test_presets():
    assert Sampling.preset("precise").temperature == 0 and Sampling.preset("creative", seed=3).seed == 3
    assert set(PRESETS) == {"precise", "balanced", "creative"}
    with pytest.raises(UsageError, match="precise, balanced, creative"):
        Sampling.preset("wild")
    with pytest.raises(UsageError):
        Sampling.preset("precise", temperature=-1)
    assert not Sampling().penalises and Sampling(repeat_penalty=1.1).penalises
    assert not Sampling(repeat_penalty=1.1, repeat_last_n=0).penalises and Sampling(presence_penalty=-1).penalises


# ---- lines of a pipe -------------------------------------------------------------------------------------------------


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Any:
    """(reader, write end) of a pipe that is standard input."""
    out, into = os.pipe()
    with open(out, encoding="utf-8") as stdin, open(into, "wb", buffering=0) as end:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield readers.PipeReader(), end


def test_lines_come_whole_however_they_are_written(piped: Any) -> None:
    reader, end = piped
    for part in (b"one\ntw", b"o\r\n\n\xff", b"three"):
        end.write(part)
    assert [reader.read("") for _ in range(3)] == ["one", "two", ""]
    end.close()
    assert reader.read("") == "\udcffthree"
    for _ in range(2):
        with pytest.raises(EOFError):
            reader.read("")


def test_endless_lines_are_refused(piped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, end = piped
    monkeypatch.setattr(readers, "LINE_LIMIT", 1000)
    end.write(b"x" * 1000 + b"\n" + b"y" * 2000)
    assert reader.read("") == "x" * 1000
    with pytest.raises(UsageError, match="longer than"):
        reader.read("")


@pytest.mark.parametrize("lines", [['"""', *["x" * 100] * 20, '"""'], ["x" * 100 + "\\"] * 20])
def test_endless_messages_are_refused(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repl, "LINE_LIMIT", 1000)
    class Lines:
        interactive = False

        def read(self, prompt: str) -> str:
            return lines.pop(0)

    talk = repl.Repl.__new__(repl.Repl)
    talk.reader = Lines()
    with pytest.raises(UsageError, match="longer than"):
        talk.read_message()


def test_a_signal_that_got_lost_ends_the_wait(piped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exception was raised where Python drops exceptions, or it came just before the system call."""
    reader, _ = piped
    monkeypatch.setattr(reader, "INTERVAL", 0.01)
    with signals.handle_sigterm():
        with contextlib.suppress(signals.Terminated):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)  # the handler raises here
        with pytest.raises(signals.Terminated):
            reader.read("")
