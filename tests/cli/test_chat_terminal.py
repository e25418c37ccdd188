"""The chat on a terminal: what a person sees and types (the promises are in test_contract.py)."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.services import FAKE, on_a_terminal
from tests.terminal import CTRL_C, CTRL_D, PASTE, Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Any:
    """with terminal("chat", delay=0.01) as t: ..."""
    def run(*args: str, delay: float = 0, command: list[str] | None = None, **extra: str) -> Terminal:
        return Terminal([*(command or FAKE), *args], on_a_terminal(tmp_path, FAKE_DELAY=str(delay), **extra))

    return run


def test_banner_names_the_model_and_the_way_out(terminal: Any) -> None:
    with terminal("chat") as t:
        banner = t.expect("> ")
        assert "fake-1k" in banner and "2048 tokens" in banner and "/help" in banner and "Ctrl-D" in banner
    with terminal("chat", "-q") as t:
        assert "fake-1k" not in t.expect("> ")


def test_a_conversation_that_goes_on_says_so(terminal: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edge"]
    kept = ("chat", "--session", str(tmp_path / "talk.bes"), "-n", "4")
    with terminal(*kept, command=command) as t:
        assert "goes on" not in t.expect("> ")
        t.line("hello")
        t.expect(r"\n\r\n.*> ")
        t.line("/exit")
        assert t.wait() == 0
    with terminal(*kept, command=command) as t:
        assert "after 1 question; /clear" in t.expect("> ")


def test_a_command_without_its_slash_is_answered_with_a_hint(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.line("exit")
        t.expect("/exit is the command.*You said: exit.*> ")
        t.line("/exit")
        assert t.wait() == 0


def test_commands(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.line("/help")
        t.expect(r"/regen .*Ctrl-D quits.*> ")
        t.line("/rubbish")
        t.expect(r"unknown command /rubbish.*> ")
        t.line("hello")
        t.expect(r"You said: hello\r\n.*> ")
        t.line("/regen")
        t.expect(r"You said: hello\r\n.*> ")
        t.line("/set temp 0")
        t.expect("> ")
        t.line("/regen")
        t.expect(r"always the same.*You said: hello\r\n.*> ")
        t.line("/set temp hot")
        t.expect(r"is not a number.*> ")
        t.line("/set max_tokens 3")
        t.expect("> ")
        t.line("hello")
        t.expect(r"You\r\n.*stopped at the token limit.*> ")
        t.line("/set stats on")
        t.expect("> ")
        t.line("hello")
        t.expect(r"prompt \d+ tok .* rss .*> ")
        t.line("/undo")
        t.expect(r"turn removed.*> ")
        t.line("/context")
        t.expect(r"\[#+\.+\].*2 turns.*> ")
        t.line("/clear")
        t.expect(r"new conversation.*> ")
        t.line("/regen")
        t.expect(r"no question.*> ")
        t.line("/bye")
        assert t.wait() == 0


def test_commands_in_other_spellings(terminal: Any) -> None:
    """Capitals count as small letters, the nearest name is suggested, and words that no command takes are refused."""
    with terminal("chat") as t:
        t.expect("> ")
        t.line("/HELP Undo")
        assert "/regen" not in t.expect("/undo .*> ")
        t.line("/ctx")
        t.expect(r"unknown command /ctx; did you mean /context\?.*> ")
        for question in ("hello", "hello there"):
            t.line(question)
            t.expect(rf"You said: {question}\r\n.*> ")
        for line in ("/undo 3", "/clear all", "/regen hotter", "/exit now", "/stats last"):
            t.line(line)
            t.expect(f"{line}: it takes no argument.*> ")
        t.line("/context")
        t.expect(r"2 turns.*> ")
        t.line("/EXIT")
        assert t.wait() == 0


def test_text_that_leaves_the_context_is_told_once(terminal: Any) -> None:
    with terminal("chat", "-m", "demo", "-c", "64", "-n", "24", command=[sys.executable, "-m", "edge"]) as t:
        t.expect("> ")
        shown = ""
        for _ in range(4):
            t.line("A large latte, please.")
            shown += t.expect(r"please\.\x1b.*\n\r\n.*> ")
        assert shown.count("no longer sees the oldest text") == 1
        t.line("/clear")
        t.expect("new conversation.*> ")
        t.line("A tea.")
        assert "no longer sees" not in t.expect(r"tea\.\x1b.*\n\r\n.*> ")


def test_undo_takes_back_words_and_of_a_long_text_more() -> None:
    """Regression: a step for each character, of which each holds the whole text: 140 MB for 13,500."""
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    from edge.cli.terminal import TerminalReader

    def typed(*texts: str) -> str:
        with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
            for text in (*texts, "\r"):
                keys.send_text(text)
            return TerminalReader({}, None, False).read("> ")

    undo = "\x1f"
    assert typed("one two three", undo) == "one two"
    text = "a word " * 500
    assert typed(text) == text
    rest = typed(text, undo * 12)
    assert text.startswith(rest) and 0 < len(rest) <= 1000


def test_pasted_lines_are_one_message(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.type(PASTE.format("first\rsecond\rlong words\rsnow"))
        t.line("")
        t.expect("Schnee: ❄, Öl.*> ")
        t.line("/context")
        t.expect("1 turn\\b")


def test_several_lines(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.line("one\\")
        t.expect(r"\. ")
        t.line("two")
        t.expect(r"First sentence\. Second one\..*> ")
        t.line('"""a')
        t.expect(r"\. ")
        t.line('b"""')
        t.expect(r"You said: a\r\nb\r\n.*> ")
        t.line("/multi")
        t.expect(r"only /end sends.*\. ")
        t.line("x")
        t.expect(r"\. ")
        t.line("y")
        t.expect(r"\. ")
        t.line("/end")
        t.expect(r"You said: x\r\ny\r\n.*> ")


def test_tab_completes_commands_and_arrow_up_brings_lines_back(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.type("/con\t")
        t.expect("/context")
        t.line("")
        t.expect(r"0 turns.*> ")
        t.line("hello there")
        t.expect(r"You said: hello there\r\n.*> ")
        t.type("\x1b[A")
        t.expect("hello there")
        t.line("")
        t.expect(r"You said: hello there\r\n.*> ")


def test_second_interrupt_ends_an_answer_that_does_not_listen(terminal: Any) -> None:
    with terminal("chat", delay=1.0) as t:
        t.expect("> ")
        t.line("hello")
        t.expect("Y")  # of "You said": a Ctrl-C before the answer has begun is one at the prompt
        t.handed_over()
        t.type(CTRL_C)
        t.expect(r"\^C")
        t.type(CTRL_C)
        t.expect("> ")
        t.type(CTRL_D)
        assert t.wait() == 0


def test_interrupt_signal_at_the_prompt_is_ctrl_c(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.process.send_signal(signal.SIGINT)
        t.expect("Ctrl-C again")
        t.expect("> ")
        t.process.send_signal(signal.SIGINT)
        assert t.wait() == 130


def test_terminate_at_the_prompt(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.process.send_signal(signal.SIGTERM)
        assert t.wait() == 143
        assert "Traceback" not in t.screen


def test_terminate_while_the_prompt_loads_its_history(terminal: Any) -> None:
    """The line editor prints an exception that a signal raises in a task of its own, and then waits for Enter."""
    program = (
        "import os, signal, sys\n"
        "from edge.cli import terminal\n"
        "terminal.PrivateHistory.load_history_strings = lambda self: os.kill(os.getpid(), signal.SIGTERM) or []\n"
        "from tests import fake_engine; fake_engine.install()\n"
        "from edge.cli.main import main; main()\n"
    )
    with terminal("chat", command=[sys.executable, "-c", program]) as t:
        assert t.wait(60) == 143
        assert "Traceback" not in t.screen and "Press ENTER" not in t.screen


def test_terminal_that_cannot_move_its_cursor(terminal: Any) -> None:
    with terminal("chat", TERM="dumb") as t:
        t.expect("> ")
        t.line("hello")
        t.expect(r"You said: hello\r\n.*> ")
        t.reads()  # a signal between Python's prompt and its read() waits for the next key
        t.type(CTRL_C)
        t.expect("Ctrl-C again.*> ")
        t.reads()
        t.type(CTRL_C)
        assert t.wait() == 130
        assert "\x1b[" not in t.screen


def test_piped_input_and_terminal_output(terminal: Any) -> None:
    shell = ["sh", "-c", f"printf 'hello\\n' | {' '.join(FAKE)} chat"]
    with terminal(command=shell) as t:
        assert t.wait() == 0
        model, answer, rest = t.screen.split("\r\n")  # standard error is the terminal: it names the model
        assert "fake-1k (" in model and (answer, rest) == ("You said: hello", "")


@pytest.mark.slow
def test_slow_things_show_progress(terminal: Any) -> None:
    with terminal("run", "hello", FAKE_LOAD="2.5") as t:
        t.expect(r"loading the model.* [1-9]0%.*\r\x1b\[K", timeout=300)
        t.expect("You said: hello")
        assert t.wait() == 0
    with terminal("run", "hello", "-q", FAKE_LOAD="1.5") as t:
        assert t.wait() == 0
        assert t.screen == "You said: hello\r\n"


def test_real_chat(terminal: Any, bundled_model: Path) -> None:
    with terminal("chat", "-n", "20", command=[sys.executable, "-m", "edge"]) as t:
        t.expect(bundled_model.stem.split("-")[0] + ".*> ", timeout=300)
        t.line("Hello!")
        t.expect(r"Hello!.*2004l\w[^\r]*\r\n\r\n.*> ", timeout=300)  # 2004l: the line editor hands over
        t.line("/stats")
        t.expect(r"answer \d+ tok.*> ")
        t.type(CTRL_D)
        assert t.wait() == 0
