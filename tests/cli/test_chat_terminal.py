"""The chat on a terminal: what a person sees and types (the promises are in test_contract.py)."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import edge
from edge.cli.readers import PipeReader
from edge.cli.signals import SIGNALS, CtrlC
from edge.cli.terminal import TerminalReader
from tests.services import FAKE, on_a_terminal
from tests.terminal import CTRL_C, CTRL_D, CTRL_Z, PASTE, Screen, Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Any:
    """with terminal("chat", delay=0.01) as t: ..."""
    def run(*args: str, delay: float = 0, command: list[str] | None = None, **extra: str) -> Terminal:
        return Terminal([*(command or FAKE), *args], on_a_terminal(tmp_path, FAKE_DELAY=str(delay), **extra))

    return run


def test_a_conversation_is_saved_and_loaded(terminal: Any, tmp_path: Path) -> None:
    """Its text cannot rewrite the screen; a failed command leaves the conversation as it was."""
    talk, other, kept = (str(tmp_path / name) for name in ("talk.bes", "other.bes", "kept.bes"))
    (tmp_path / "notes.txt").write_text("not a session")
    with terminal("chat", "-m", "demo", "-n", "8", "--session", kept, command=[sys.executable, "-m", "edge"]) as t:
        def command(line: str, answer: str) -> str:
            t.line(line)
            return t.expect(answer.replace(" ", r"\s+") + ".*> ")  # a long path moves the words to other rows

        t.expect("> ")
        command("/load", "name a file")
        command("/save", "name a file")
        command(f"/save {other}", "saved to .*other.bes")  # nothing was said
        command("A large latte, please.", r"\r\n\r\n")
        command(f"/save {talk}", "saved to .*talk.bes")
        command("/system A kiosk.", "used from")
        command("Two teas, please.", r"\r\n\r\n")
        command(f"/save {tmp_path}/notes.txt", "not be replaced")
        command(f"/save {tmp_path}/nowhere/talk.bes", "the folder does not")
        for missing in ("nowhere.bes", "notes.txt"):
            command(f"/load {tmp_path}/{missing}", "bitnet-edge:.*" + missing)
            command("/context", "2 turns")
        command(f"/load {talk}", r"talk.bes, 1 question\).*> A large latte, please\.\r\n\w+")
        command("/context", "1 turn\\b")
        command("And a tea.", r"\r\n\r\n")
        command(f"/load {other}", "other.bes, 0 questions")
        command("/context", "0 turns")
        t.line("/exit")
        assert t.wait() == 0
    for file, question in ((kept, "Two teas, please."), (talk, "And a tea.")):
        with terminal("chat", "--session", file, command=[sys.executable, "-m", "edge"]) as t:
            t.expect(rf"after 2 questions; /clear.*> {question}\r\n[^>]+> ")
    assert (tmp_path / "notes.txt").read_text() == "not a session"


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
        t.line("/help")
        t.expect(r"temperature of 0\.7 and at most 512 tokens.*> ")
        t.line("/set temp 0")
        t.expect("> ")
        t.line("/set stop END")
        t.expect(r"stop is now END.*> ")
        t.line("/set stop")
        t.expect(r"stop +'END'.*> ")
        t.line("/set stop none")
        t.expect(r"stop is now none.*> ")
        t.line("/regen")
        t.expect(r"always the same.*You said: hello\r\n.*> ")
        t.line("/set temp hot")
        t.expect(r"not a valid float.*> ")
        for wrong in ("-3", "0", "many"):
            t.line(f"/set max_tokens {wrong}")
            t.expect(r"bitnet-edge:.* max_tokens.*> ")
        t.line("/set max_tokens 3")
        t.expect("> ")
        t.line("hello")
        t.expect(r"You\r\n.*stopped at the token limit.*> ")
        t.line("/set top_k 5")
        t.expect(r"top_k is now 5.*> ")
        t.line("/set seed random")
        t.expect(r"seed is now random.*> ")
        t.line("/set timeout 9")
        t.expect(r"timeout is now 9.*> ")
        t.line("hello")
        t.expect(r"You\r\n.*> ")
        t.line("/stats")
        t.expect(r"answer \d+ tok.*> ")
        t.line("/undo")
        t.expect(r"removed: 'hello' and its answer.*> ")
        t.line("/context")
        t.expect(r"tokens used, .*2 turns.*> ")
        t.line("/clear")
        t.expect(r"new conversation.*> ")
        t.line("/regen")
        t.expect(r"no question.*> ")
        t.line("/bye")
        assert t.wait() == 0


def test_text_that_leaves_the_context_is_reported_once(terminal: Any) -> None:
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


def test_tab_completes_commands_and_arrow_up_brings_lines_back(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.type("/con\t")
        t.expect("/con.*text")  # may be drawn in two parts
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


#: what a person has begun -> the keys for it
BEGUN = {
    "text": "abc",
    "search with text": "\x12hel",
    "menu": "/\t\t",
    "pasted lines": PASTE.format("a\rb\rc"),
    "paste without its end": "ab\x1b[200~cd\ref",
    "half a key": "ab\x18",
    "quoted insert": "ab\x11",
    "macro": "ab\x18(c",
    "quotes": '"""a\r',
}


@pytest.mark.slow
@pytest.mark.parametrize("begun", BEGUN)
def test_no_key_or_signal_leaves_a_terminal_that_does_not_answer(terminal: Any, begun: str) -> None:
    """Regression: Ctrl-R Ctrl-C: what was typed from then on went to a search that had no window."""
    with terminal(command=["bash", "--norc", "--noprofile", "-i"]) as t:
        t.line(" ".join([*FAKE, "chat", "--set", "history=off"]))
        t.expect("quits.*> ")
        chat = max(t.family(t.process.pid))
        for event in ("Ctrl-C", "SIGINT", "Ctrl-D", "Ctrl-Z", "resized"):
            t.taken_over()
            t.type(BEGUN[begun])
            t.taken()
            t.settle()
            if event == "Ctrl-C":
                t.type(CTRL_C)
            elif event == "SIGINT":
                os.kill(chat, signal.SIGINT)
            elif event == "Ctrl-D":
                t.type(CTRL_D)
            elif event == "resized":
                for size in ((10, 20), (1, 1), (40, 100)):
                    t.resize(*size)
                    t.settle()
            else:
                t.type(CTRL_Z)
                t.taken()
                if begun not in ("quoted insert", "paste without its end"):  # where it is text
                    t.expect(r"Stopped.*# |Stopped.*\$ ")
                    t.line("\x15fg")  # without what the chat had not read yet
                    t.expect(r"fg\r\n[^\n]*chat[^\n]*\n")
            t.settle()
            t.type(CTRL_C)
            t.settle()
            t.screen = ""
            t.line("hello")
            t.expect(r"You said: hello\r\n.*> ")
        t.taken_over()
        t.type(CTRL_D)
        t.expect("exit|bash-")


def test_a_window_that_is_closed_ends_the_chat(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.type("abc\x12")
        t.settle()
        t.hang_up()
        assert t.process.wait(300) == 143


def test_a_window_that_is_closed_during_an_answer_loses_nothing(
    terminal: Any, bundled_model: Path, tmp_path: Path
) -> None:
    """However the signal and the failing write come: five times, later and later in the answer."""
    talk = str(tmp_path / "talk.bes")
    command = [sys.executable, "-m", "edge"]
    for i in range(5):
        endless = ("chat", "-m", "demo", "--temp", "0", "--set", "ignore_eos=on", "-n", "100000", "--session", talk)
        with terminal(*endless, command=command) as t:
            t.expect("> ")
            t.taken_over()
            t.line(f"tell me joke {i}")
            t.expect(f"joke {i}.*?\n.*?[a-z]{{3}} [a-z]")
            time.sleep(0.02 * i)
            t.hang_up()
            assert t.process.wait(300) == 143
    with edge.load(bundled_model) as engine:
        messages = engine.load_session(talk).messages
    asked = [message["content"] for message in messages if message["role"] == "user"]
    assert asked == [f"tell me joke {i}" for i in range(5)]
    assert all(message["content"] for message in messages)


def test_ctrl_c_just_before_the_prompt_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chat has noted it, and the reader, which does not note, acts on it."""
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        reader = TerminalReader({}, None, False)
        monkeypatch.setattr(SIGNALS, "pressed", True)
        with pytest.raises(CtrlC) as caught:
            reader.read("> ")
        assert not caught.value.had_text
        keys.send_text("a question\r")
        assert reader.read("> ") == "a question" and not SIGNALS.pressed
    SIGNALS.pressed = True
    with pytest.raises(KeyboardInterrupt):
        PipeReader().read("")


@pytest.mark.parametrize("before", ["hello there, my friend\r", "/help\r", ""])
def test_ctrl_d_is_not_lost(terminal: Any, before: str, tmp_path: Path) -> None:
    """During an answer, right after a command, and while the model is loaded: the terminal keeps it as NUL."""
    loading, mark = tmp_path / "loading", tmp_path / "mark"
    if not before:
        loading.touch()
    with terminal("chat", delay=0.01, FAKE_HOLD=str(loading), FAKE_MARK=str(mark)) as t:
        if before:
            t.expect("> ")
            t.taken_over()
            t.type(before)
            t.expect("You said" if "hello" in before else "system")
        while not mark.exists():
            time.sleep(0.01)
        t.type(CTRL_D)
        loading.unlink(missing_ok=True)
        assert t.wait() == 0


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


@pytest.mark.parametrize("begin", [["chat"], ["run", "go"]])
def test_an_answer_that_was_stopped_goes_on_between_words(terminal: Any, begin: list[str]) -> None:
    """Ctrl-Z in an answer, and fg: the shell has written lines meanwhile."""
    script = json.dumps([["go", " ".join(f"word-{n}" for n in range(100, 160))]])
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with terminal(command=shell, delay=0.005, FAKE_SCRIPT=script) as t:
        t.line(" ".join([*FAKE, *begin]))
        if begin == ["chat"]:
            t.expect("quits.*> ")
            t.taken_over()
            t.line("go")
        t.expect("word-107 ")
        t.type(CTRL_Z)
        t.expect("Stopped.*# |Stopped.*[$] ")
        t.line("fg")
        t.expect(r"fg\r\n[^\n]*\n")
        screen = Screen(100)
        screen.write(t.expect("word-150").replace("\r", ""))
        assert len(screen.rows) > 3 and all(len(row.rstrip()) > 90 for row in screen.shown[:-1])
        assert all(re.fullmatch(r"word-\d{3}", word) for row in screen.shown[1:] for word in row.split())
