"""Signals that arrive while the program is busy with something else: they end it, and nothing is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from edge.cli import signals
from tests.services import ROOT
from tests.terminal import Terminal

PROGRAM = """
import os, signal, sys, time
from edge.cli.group import guard
from edge.cli import signals
from edge.cli.output import Output
from edge.cli.signals import SIGNALS

signals.GRACE = 600.0

def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0)  # the handler runs here at the latest

class Object:
    def __init__(self, number):
        self.number = number

    def __del__(self):
        send(self.number)

def work():
    with SIGNALS.handled():
        {work}
    return 0

sys.exit(guard(Output(), work))
"""


def python(code: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a program."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def run(work: str) -> tuple[int, str, str]:
    """The same of a program that does ``work`` as a command does."""
    return python(PROGRAM.format(work=work.replace("\n", "\n        ")))


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_while_an_object_is_destroyed_ends_the_program(number: str, code: int) -> None:
    assert run(f"Object(signal.{number})\ntime.sleep(60)\nprint('not interrupted')") == (code, "", "")


CLEAN_UP = """try:
    send(signal.SIGTERM)
finally:
    send(signal.SIGTERM)
    print("cleaned up")"""


def test_a_second_sigterm_does_not_interrupt_the_clean_up() -> None:
    """The parent of a one-file program forwards SIGTERM: sent to both, it arrives twice, the second a little later."""
    assert run(CLEAN_UP) == (143, "cleaned up\n", "")


LATE = """
import os, signal, sys, time
from edge.cli import group, main

def guard(out, work):
    code = real(out, work)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0)
    return code

real, group.guard = group.guard, guard
sys.argv = ["bitnet-edge", "--help"]
main.main()
"""


def test_ctrl_c_after_the_last_handler_prints_no_traceback() -> None:
    """A frozen program exits with 1 then: seen when the copy of a Ctrl-C from its parent came late."""
    code, _, err = python(LATE)
    assert (code, err) == (130, "")


EARLY = """
import os, signal, sys
from edge.cli.main import main

left = {left}

def at_import(event, _args):
    global left
    if event == "import":
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.{number})

sys.argv = ["bitnet-edge", "run", "hi", "-m", "demo", "-n", "1"]
sys.addaudithook(at_import)
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("left", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
@pytest.mark.parametrize(("number", "codes"), [("SIGINT", (-2, 130)), ("SIGTERM", (-15, 143))])
def test_a_signal_while_the_program_starts_prints_nothing(left: int, number: str, codes: tuple[int, int]) -> None:
    """At any of its imports, from the first line on; what the interpreter does before it is not ours."""
    code, _, err = python(EARLY.format(left=left, number=number))
    assert code in codes and err == ""


def test_a_copy_of_ctrl_c_is_the_same_press(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a one-file program, whose parent forwards it; in another one, two are two."""
    now = 0.0

    def press(copies: int) -> None:
        for _ in range(copies):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)

    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: now))
    with signals.SIGNALS.handled(), signals.SIGNALS.calling(lambda: None):
        with pytest.raises(KeyboardInterrupt):
            press(2)
        now += 1
        monkeypatch.setattr(signals, "ONE_FILE", True)
        press(3)
        assert signals.SIGNALS.taken()
        now += 1
        press(1)
        assert signals.SIGNALS.taken() and not signals.SIGNALS.taken()


WAITING = """
import threading
from edge.cli import readers, signals

threading.Thread(target=threading.Event().wait, daemon=True).start()
with signals.SIGNALS.handled():
    try:
        print("> ", end="", flush=True)
        readers.{reader}().read("")
    except BaseException as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize(("reader", "number", "expected"), [
    ("PlainReader", signal.SIGINT, "CtrlC"), ("PipeReader", signal.SIGTERM, "Terminated"),
])  # fmt: skip
def test_a_signal_that_does_not_interrupt_the_wait_for_a_line(reader: str, number: int, expected: str) -> None:
    """The system may give it to another thread, as it is made to do here."""
    with Terminal([sys.executable, "-c", WAITING.format(reader=reader)], os.environ) as terminal:
        terminal.expect("> ")
        terminal.reads()
        threads = [int(one) for one in os.listdir(f"/proc/{terminal.process.pid}/task")]
        os.kill(next(one for one in threads if one != terminal.process.pid), number)
        terminal.expect(expected)
