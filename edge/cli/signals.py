"""Ctrl-C, SIGTERM and SIGHUP for commands; the library never touches signals.

They raise KeyboardInterrupt and :class:`Terminated` in the main thread, so that commands clean up.  While an answer is
streamed, the first of them stops it instead, so that the text so far is printed and kept; a second Ctrl-C interrupts
the program.  What the caller has set to be ignored stays ignored: a shell starts background jobs with SIGINT ignored,
nohup programs with SIGHUP.

A one-file program receives each Ctrl-C twice: from the terminal, and from the process that unpacked it, which forwards
every signal.  It could only be told to ignore them, and ``kill PID`` would reach nobody.  So there a Ctrl-C that comes
within ECHO seconds of the last one is the same; a copy that comes later counts, which costs a hint or an early end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

#: True if PyInstaller's one-file start-up has unpacked this program, and is its parent
ONE_FILE = os.path.basename(getattr(sys, "_MEIPASS", "")).startswith("_MEI")
ECHO = 0.5
GRACE = 5.0  # seconds to print and save after SIGTERM: whoever reads the output may have stopped reading
RETRY = 0.02  # seconds after which an exception is raised again that Python dropped


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived.  Like KeyboardInterrupt it is not an Exception, which many places catch."""


class CtrlC(Exception):
    """Ctrl-C at the prompt; ``had_text`` is whether a line was being typed."""

    def __init__(self, had_text: bool = False) -> None:
        super().__init__()
        self.had_text = had_text


class Signals:
    """The signals that have arrived, and the effect of the next one."""

    pressed = False  #: Ctrl-C has come, has raised nothing, and nobody has taken it
    ended = False  #: SIGTERM or SIGHUP has come
    _stop: Callable[[], object] | None = None
    _latest = float("-inf")  # the time of the last Ctrl-C

    @property
    def code(self) -> int:
        """The exit code for what has come."""
        return 143 if self.ended else 130 if self.pressed else 0

    def taken(self) -> bool:
        """True if Ctrl-C has been noted; it is noted no longer."""
        if not self.pressed:
            return False
        self.pressed = False
        return True

    @contextmanager
    def calling(self, stop: Callable[[], object] | None) -> Iterator[None]:
        """A context manager: the first signal calls ``stop``, from a signal handler; so does one noted before.  The
        second Ctrl-C raises KeyboardInterrupt unless the first has been taken.  None: each raises its exception.
        """
        outer, self._stop = self._stop, stop
        try:
            if self.code:
                if stop is None:
                    self.taken()
                    self._raise()
                stop()
            yield
        finally:
            self._stop = outer

    @contextmanager
    def handled(self) -> Iterator[None]:
        """A context manager for a whole command: signals are handled here.  In another thread it does nothing."""
        self.pressed = self.ended = False
        old, hook = {}, sys.unraisablehook
        if threading.current_thread() is threading.main_thread():
            sys.unraisablehook = self._dropped
            signal.signal(signal.SIGALRM, self._raise)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                    old[number] = handler
                    signal.signal(number, self._arrived)
        try:
            yield
        finally:
            sys.unraisablehook = hook
            for number, handler in old.items():
                signal.signal(number, handler)
            if old:
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _arrived(self, number: int, _frame: object) -> None:
        if self.ended:  # nothing interrupts the clean-up; the parent of a one-file program forwards its own, too
            return
        if number == signal.SIGINT:
            now = time.monotonic()
            if ONE_FILE and now - self._latest < ECHO:
                return
            self._latest = now
            if self.taken() or self._stop is None:
                raise KeyboardInterrupt
            self.pressed = True
        else:
            self.ended = True
            signal.setitimer(signal.ITIMER_REAL, GRACE)
            if self._stop is None:
                raise Terminated
        self._stop()

    def _dropped(self, lost: Any) -> None:
        """Raise again soon what was raised while an object was destroyed, where Python prints and drops exceptions."""
        if issubclass(lost.exc_type, KeyboardInterrupt | Terminated):
            signal.setitimer(signal.ITIMER_REAL, RETRY)
        else:
            sys.__unraisablehook__(lost)

    def _raise(self, *_: object) -> NoReturn:
        raise Terminated if self.ended else KeyboardInterrupt


SIGNALS = Signals()
