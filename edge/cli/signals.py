"""Ctrl-C, SIGTERM and SIGHUP, turned into exceptions that commands can handle.

The library never touches signals.  Here those that end a program, SIGTERM and SIGHUP (its terminal was closed), become
:class:`Terminated`.  While an answer is streamed, the first of them or Ctrl-C stops it, so that the text so far is
printed and kept; a second Ctrl-C interrupts the program.  What the caller has set to be ignored stays ignored.

A one-file program receives each Ctrl-C twice: from the terminal, and from the process that unpacked it, which forwards
every signal; this cannot be turned off.  :func:`is_wish` distinguishes the two.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import FrameType
from typing import Any, TypeVar

from edge.machine import linux

#: signals that end a program; one that is meant for it alone or comes because its terminal is gone
ENDING = (signal.SIGTERM, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], Any]


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived.  Like KeyboardInterrupt it is not an Exception, which many places catch."""


class CtrlC(Exception):
    """Ctrl-C at the prompt; ``had_text`` is whether a line was being typed."""

    def __init__(self, had_text: bool = False) -> None:
        super().__init__()
        self.had_text = had_text


_terminated = False  # one of ENDING has arrived within handle_sigterm


def _terminate(_signum: int, _frame: FrameType | None) -> None:
    # The parent of a one-file program forwards the signal once more; it must not interrupt the clean-up.
    if not _terminated:
        note_terminated()
        raise Terminated


def note_terminated() -> None:
    """One of ENDING has arrived where an exception would be lost: :func:`check_terminated` raises it."""
    global _terminated
    _terminated = True


def check_terminated() -> None:
    """Raise Terminated if one of ENDING has arrived."""
    if _terminated:
        raise Terminated


def in_main_thread() -> bool:
    """Whether this is the main thread, the only one that can set signal handlers."""
    return threading.current_thread() is threading.main_thread()


#: whether PyInstaller's one-file start-up has unpacked this program, and is its parent
ONE_FILE = os.path.basename(getattr(sys, "_MEIPASS", "")).startswith("_MEI")
ECHO_SECONDS = 0.5
LATE_SECONDS = 60.0

_copy_until = 0.0  # a SIGINT that comes before this time is the copy of one that has come


def is_wish() -> bool:
    """Whether the SIGINT that has just arrived is a new Ctrl-C, not the copy of the last one from the one-file parent.

    Handlers call this once for each signal: a Ctrl-C is remembered, so that its copy is recognised.
    """
    global _copy_until
    now = time.monotonic()
    if ONE_FILE and now < _copy_until:
        _copy_until = 0.0
        return False
    _copy_until = latest = now + LATE_SECONDS  # the copy may come while the next lines run
    # A parent that has not run yet sends its copy when it does; one that has run has sent it, or the two became one.
    if not (ONE_FILE and linux.signal_waits(os.getppid(), signal.SIGINT)) and _copy_until == latest:
        _copy_until = now + ECHO_SECONDS
    return True


T = TypeVar("T")


def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop; the first Ctrl-C or one of ENDING cancels it, later ones do nothing.

    Raises Terminated or KeyboardInterrupt after it was cancelled by one of them.
    """
    import asyncio

    got: list[int] = []

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

        def stop(number: int) -> None:
            if not got:  # cancelled again, the task could not finish its clean-up
                got.append(number)
                task.cancel()

        kept = {}
        for number in (*ENDING, signal.SIGINT) if in_main_thread() else ():
            if (old := signal.getsignal(number)) is not signal.SIG_IGN:
                kept[number] = old
                loop.add_signal_handler(number, stop, number)
        try:
            return await task
        finally:
            for number, old in kept.items():
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN if got else old)  # what follows is clean-up, too

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise (KeyboardInterrupt if signal.SIGINT in got else Terminated) from None


def take(handlers: Mapping[signal.Signals, Handler]) -> dict[signal.Signals, Any]:
    """Set handlers of signals, except of those that are ignored: a shell starts background jobs with SIGINT ignored,
    nohup programs with SIGHUP.  Returns those that were there before; nothing is set outside of the main thread.
    """
    if not in_main_thread():
        return {}
    return {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }


Block = TypeVar("Block", bound="on_signals")


class on_signals:  # noqa: N801 - a base
    """A context manager: signals call what :meth:`handlers` says, in the main thread, between any two instructions."""

    def handlers(self) -> dict[signal.Signals, Handler]:
        """Signal -> what it calls."""
        return {signal.SIGINT: self.interrupt}

    def interrupt(self, _signum: int, _frame: FrameType | None) -> None:
        """Called for SIGINT."""
        raise NotImplementedError

    def __enter__(self: Block) -> Block:
        self._old = take(self.handlers())
        return self

    def __exit__(self, *_: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)


class interrupting(on_signals):  # noqa: N801 - a context manager, used like a function
    """A context manager: Ctrl-C raises KeyboardInterrupt as usual; its copy from a one-file parent raises nothing."""

    def interrupt(self, _signum: int, _frame: FrameType | None) -> None:
        if is_wish():
            raise KeyboardInterrupt


class noting(on_signals):  # noqa: N801 - a context manager, used like a function
    """A context manager: Ctrl-C is noted, for :meth:`taken`; only another one before that raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self._noted = False

    def interrupt(self, _signum: int, _frame: FrameType | None) -> None:
        if is_wish():
            if self._noted:
                raise KeyboardInterrupt
            self._noted = True

    def taken(self) -> bool:
        """Whether Ctrl-C has come since this was asked last."""
        noted, self._noted = self._noted, False
        return noted


class handle_sigterm:  # noqa: N801 - a context manager, used like a function
    """A context manager: the first of ENDING raises :class:`Terminated` in the main thread; later ones do nothing.

    While Python destroys an object it prints and drops every exception; one from a signal is raised again.
    """

    RETRY_SECONDS = 0.02

    def __enter__(self) -> None:
        global _terminated
        _terminated = False
        self._hook = sys.unraisablehook
        self._dropped: type[BaseException] | None = None  # and not raised again yet
        self._old = take(dict.fromkeys(ENDING, _terminate))
        if self._old:
            sys.unraisablehook = self._drop
            if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as it was before main()
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)
        if self._old:
            sys.unraisablehook = self._hook
            signal.setitimer(signal.ITIMER_REAL, 0)
            if dropped := self._dropped:
                self._dropped = None
                raise dropped

    def _drop(self, lost: sys.UnraisableHookArgs) -> None:
        """Called by Python with an exception that it drops."""
        global _terminated
        if lost.exc_type is not Terminated and lost.exc_type is not KeyboardInterrupt:
            return self._hook(lost)
        self._dropped = lost.exc_type
        _terminated = False
        # by another thread, once this has returned: raised here, the exception would be dropped as well
        returned = threading.Event()
        try:
            threading.Thread(target=self._raise_again, args=(returned,), daemon=True).start()
        except RuntimeError:  # no thread can be started: it is raised at the end
            pass
        returned.set()

    def _raise_again(self, returned: threading.Event) -> None:
        global _copy_until
        returned.wait()
        time.sleep(self.RETRY_SECONDS)
        dropped, self._dropped = self._dropped, None
        main = threading.main_thread().ident
        assert main is not None
        if dropped is Terminated:
            signal.pthread_kill(main, signal.SIGTERM)
        elif dropped is KeyboardInterrupt:
            _copy_until = 0.0  # it is no copy
            signal.pthread_kill(main, signal.SIGINT)


class stopping(on_signals):  # noqa: N801
    """A context manager: the first Ctrl-C or one of ENDING calls ``cancel`` and sets ``code``, the exit code of the
    program (else 0).  A second Ctrl-C raises KeyboardInterrupt.

    After one of ENDING the program has GRACE seconds to print and save what there is; then Terminated is raised, for
    whoever reads its output may have stopped reading.  ``cancel`` must be safe to call from a signal handler
    (``Session.cancel`` sets a flag).
    """

    GRACE = 5.0

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self.code = 0

    def handlers(self) -> dict[signal.Signals, Handler]:
        ending = (number for number in ENDING if signal.getsignal(number) is _terminate)
        return {**super().handlers(), **dict.fromkeys(ending, self.terminate)}

    def interrupt(self, _signum: int, _frame: FrameType | None) -> None:
        if is_wish():
            self.press()

    def press(self) -> None:
        """Ctrl-C was pressed."""
        if self.code:
            raise KeyboardInterrupt
        self.code = 130
        self._cancel()

    def terminate(self, _signum: int, _frame: FrameType | None) -> None:
        """Called for each of ENDING."""
        if _terminated:  # once more by the parent of a one-file program
            return
        note_terminated()
        self.code = 143
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.setitimer(signal.ITIMER_REAL, self.GRACE)
        self._cancel()

    def through(self, pieces: Iterator[T]) -> Iterator[T]:
        """``pieces``.  Starting an answer resets earlier cancellations, so one that came before is applied again."""
        if self.code:
            self._cancel()
        return pieces


def _out_of_time(_signum: int, _frame: FrameType | None) -> None:
    raise Terminated
