"""Signals that arrive while the program is busy with something else: they end it, and nothing is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import os, signal, sys, time
from edge.cli.group import guard
from edge.cli.output import Output
from edge.cli.signals import handle_sigterm

def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0)  # the handler runs here at the latest

class Object:
    def __init__(self, number):
        self.number = number
    def __del__(self):  # Python prints and drops what is raised here
        send(self.number)

def work():
    with handle_sigterm():
        {work}
    return 0

sys.exit(guard(Output(), work))
"""


def run(work: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a program that does ``work``."""
    code = PROGRAM.format(work=work.replace("\n", "\n        "))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_while_an_object_is_destroyed_ends_the_program(number: str, code: int) -> None:
    assert run(f"Object(signal.{number})\ntime.sleep(60)\nprint('not interrupted')") == (code, "", "")


CLEAN_UP = """try:
    send(signal.SIGTERM)
finally:
    {second}
    print("cleaned up")"""


@pytest.mark.parametrize("second", ["send(signal.SIGTERM)", "Object(signal.SIGTERM)"])
def test_a_second_sigterm_does_not_interrupt_the_clean_up(second: str) -> None:
    """The parent of a one-file program forwards SIGTERM: sent to both, it arrives twice, the second a little later."""
    assert run(CLEAN_UP.format(second=second)) == (143, "cleaned up\n", "")


def test_other_exceptions_that_python_drops_are_still_printed() -> None:
    code, out, err = run("import weakref\nset_ = set()\nkept = weakref.ref(set_, lambda _: 1 / 0)\ndel set_")
    assert (code, out) == (0, "") and "ZeroDivisionError" in err
