"""Turns, undo, other answers, a history that is loaded, and how full the context is; lines of a pipe."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from edge.cli import readers, repl, signals
from edge.cli.keep import Keeper
from edge.cli.output import Output
from edge.errors import UsageError
from edge.sampling import Sampling
from edge.session.session import Session
from tests import fakes

GREEDY = Sampling(temperature=0.0)


def said(pieces) -> str:
    return "".join(piece.text for piece in pieces)


def talk(next_token=fakes.by_hash, system: str | None = None, **options) -> Session:
    engine = fakes.engine(next_token, **options)
    engine.model.sampling = GREEDY
    return engine.session(system)


def test_turns_undo_and_clear():
    chat = talk(fakes.script("one", "two", "three"), system="sys")
    assert chat.system == "sys" and chat.turns == 0 and chat.undo() is None
    assert said(chat.ask("a")) == "one" and said(chat.ask("b")) == "two"
    assert chat.turns == 2
    assert chat.undo() == "b" and chat.turns == 1
    assert said(chat.ask("c")) == "two"
    assert [m["content"] for m in chat.messages] == ["sys", "a", "one", "c", "two"]
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
    hot = Sampling(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)
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


def test_context_use():
    chat = talk(fakes.script("answer"), n_ctx=64, overflow="slide")
    assert chat.context.used == 0 and chat.context.free == 64
    said(chat.ask("q"))
    use = chat.context
    assert use.used == chat.state.n_tokens and use.free == 64 - use.used and use.evicted == 0
    said(chat.ask("and a longer question"))
    assert chat.context.used > use.used
    chat.undo()
    assert use.used <= chat.context.used <= use.used + 2  # without what was removed, at once
    full = chat.context.used
    chat.system = "s"  # what was said is read again behind it: it takes its room all the same
    assert full < chat.context.used
    chat.system = None
    chat.clear()
    assert chat.context.used == 0
    said(chat.ask("q"))
    for _ in range(9):
        said(chat.ask("question", max_tokens=9))
    use = chat.context
    assert use.used == 64 and use.free == 0 and use.evicted == chat.state.n_tokens - 64


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

    talk = repl.Repl(None, None, Lines(), {}, fakes.engine(fakes.script("Yes.")).session(), None)
    with pytest.raises(UsageError, match="longer than"):
        talk.read_message()


def test_ctrl_c_between_enter_and_the_answer_drops_the_question(capsys: pytest.CaptureFixture[str]) -> None:
    """However often: only Ctrl-C at an empty prompt counts, and reading ahead may take a step to stop."""
    lines = ["first", "second", "third"]

    class Lines:
        interactive, typed, reserve = True, None, 0

        def read(self, prompt: str) -> str:
            if not lines:
                raise EOFError
            return lines.pop(0)

    engine = fakes.engine(fakes.script("Yes."))
    talk = repl.Repl(Output(), engine, Lines(), {}, engine.session(), Keeper({}))

    stop_reading = talk.ahead.stop

    def stop() -> None:
        stop_reading()
        if lines:
            os.kill(os.getpid(), signal.SIGINT)

    talk.ahead.stop = stop  # type: ignore[method-assign]
    with signals.SIGNALS.handled():
        assert talk.run() == 0 and not lines
    assert "Ctrl-C again" not in "".join(capsys.readouterr())
    assert [message["content"] for message in talk.talk.messages if message["role"] == "user"] == ["third"]


def test_lines_of_a_message_are_read_ahead_until_they_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: reading ahead went on during the question, which was refused."""
    lines = ['"""first', "second", '"""']
    reading, seen = threading.Event(), []

    class Lines:
        interactive, typed, reserve = True, None, 0

        def read(self, prompt: str) -> str:
            if not lines:
                raise EOFError
            if lines[0] == '"""':
                self.typed('""')
                assert reading.wait(10)
            return lines.pop(0)

    def read_ahead(text: str, stop: Callable[[], bool]) -> None:
        reading.set()
        while not stop():
            time.sleep(0.001)
        reading.clear()

    def ask(text: str, **more: Any) -> Any:
        seen.append((text, reading.is_set()))
        return answer(text, **more)

    session = fakes.engine(fakes.script("Yes.")).session()
    answer = session.ask
    monkeypatch.setattr(session, "read_ahead", read_ahead)
    monkeypatch.setattr(session, "ask", ask)
    assert repl.Repl(Output(), None, Lines(), {}, session, Keeper({})).run() == 0
    assert seen == [("first\nsecond", False)]
