"""Ctrl-C and SIGTERM, turned into exceptions that commands can handle.

The library never touches signals.  Here SIGTERM becomes :class:`Terminated`.  While an answer is streamed, the first
Ctrl-C or SIGTERM stops it, so that the text so far is printed and kept; a second Ctrl-C interrupts the program.

A one-file program receives each Ctrl-C twice: from the terminal, and from the process that unpacked it, which forwards
every signal; this cannot be turned off.  :func:`is_wish` distinguishes the two.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar


class Terminated(BaseException):
    """SIGTERM arrived.  Like KeyboardInterrupt it is not an Exception, so that ``except Exception`` does not stop
    it.
    """


class Interrupted(Exception):
    """Ctrl-C at the prompt; ``had_text`` is whether a line was being typed."""

    def __init__(self, had_text: bool = False) -> None:
        super().__init__()
        self.had_text = had_text


_terminated = False  # SIGTERM has arrived within handle_sigterm


def _terminate(_signum: int, _frame: FrameType | None) -> None:
    # The parent of a one-file program forwards the signal once more; it must not interrupt the clean-up.
    if not _terminated:
        note_terminated()
        raise Terminated


def note_terminated() -> None:
    """SIGTERM has arrived where an exception would be lost: :func:`check_terminated` raises it."""
    global _terminated
    _terminated = True


def check_terminated() -> None:
    """Raise Terminated if SIGTERM has arrived."""
    if _terminated:
        raise Terminated


def guard_maps() -> None:
    """From now on, a model file that is truncated while in use causes an error instead of SIGBUS."""
    try:
        from pyx.memory import guard
    except ImportError:  # not built: loading raises the error
        return
    guard()


def in_main_thread() -> bool:
    """Whether this is the main thread, the only one that can set signal handlers."""
    return threading.current_thread() is threading.main_thread()


#: whether PyInstaller's one-file start-up has unpacked this program, and is its parent
ONE_FILE = os.path.basename(getattr(sys, "_MEIPASS", "")).startswith("_MEI")
ECHO_SECONDS = 0.5

_wished = -ECHO_SECONDS  # when a Ctrl-C came whose copy has not come yet


def is_wish() -> bool:
    """Whether the SIGINT that has just arrived is a new Ctrl-C, not the copy of the last one from the one-file parent.

    Handlers call this once for each signal: a Ctrl-C is remembered, so that its copy is recognised.
    """
    global _wished
    now = time.monotonic()
    if ONE_FILE and now - _wished < ECHO_SECONDS:
        _wished = -ECHO_SECONDS
        return False
    _wished = now
    return True


T = TypeVar("T")


def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop; the first SIGTERM or Ctrl-C cancels it, later ones do nothing.

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
        for number in (signal.SIGTERM, signal.SIGINT) if in_main_thread() else ():
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


Block = TypeVar("Block", bound="on_sigint")
class on_sigint:  # noqa: N801 - a base
    """A context manager: SIGINT calls :meth:`handle`.  If the shell has set SIGINT to be ignored, it stays ignored."""

    _old: Any = None

    def handle(self, _signum: int, _frame: FrameType | None) -> None:
        """Called in the main thread, between any two instructions."""
        raise NotImplementedError

    def __enter__(self: Block) -> Block:
        # A shell starts background jobs with SIGINT ignored.
        if in_main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._old = signal.signal(signal.SIGINT, self.handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)


class interrupting(on_sigint):  # noqa: N801 - a context manager, used like a function
    """A context manager: Ctrl-C raises KeyboardInterrupt as usual; its copy from a one-file parent raises nothing."""

    def handle(self, _signum: int, _frame: FrameType | None) -> None:
        if is_wish():
            raise KeyboardInterrupt


class handle_sigterm:  # noqa: N801 - a context manager, used like a function
    """A context manager: the first SIGTERM raises :class:`Terminated` in the main thread; later ones do nothing.

    While Python destroys an object it prints and drops every exception; one from SIGTERM or Ctrl-C is raised again.
    """

    RETRY_SECONDS = 0.02

    def __enter__(self) -> None:
        global _terminated
        _terminated = False
        self._hook = sys.unraisablehook
        self._dropped: type[BaseException] | None = None  # and not raised again yet
        self._old: Any = None
        if in_main_thread():
            self._old = signal.signal(signal.SIGTERM, _terminate)
            sys.unraisablehook = self._drop

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            sys.unraisablehook = self._hook
            signal.signal(signal.SIGTERM, self._old)
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
        global _wished
        returned.wait()
        time.sleep(self.RETRY_SECONDS)
        dropped, self._dropped = self._dropped, None
        main = threading.main_thread().ident
        assert main is not None
        if dropped is Terminated:
            signal.pthread_kill(main, signal.SIGTERM)
        elif dropped is KeyboardInterrupt:
            _wished = -ECHO_SECONDS  # it is no copy
            signal.pthread_kill(main, signal.SIGINT)


class stopping(on_sigint):  # noqa: N801
    """A context manager: the first Ctrl-C or SIGTERM calls ``cancel`` and sets ``code``, the exit code of the program
    (else 0).  A second Ctrl-C raises KeyboardInterrupt.

    After SIGTERM the program has GRACE seconds to print and save what there is; then Terminated is raised, for whoever
    reads its output may have stopped reading.  ``cancel`` must be safe to call from a signal handler
    (``Session.cancel`` sets a flag).
    """

    GRACE = 5.0
    _old_terminate: Any = None

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self.code = 0

    def __enter__(self) -> stopping:
        if in_main_thread() and signal.getsignal(signal.SIGTERM) is _terminate:
            self._old_terminate = signal.signal(signal.SIGTERM, self._terminated)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._old_terminate is not None:
            signal.signal(signal.SIGTERM, self._old_terminate)

    def handle(self, _signum: int, _frame: FrameType | None) -> None:
        if not is_wish():
            return
        if self.code:
            raise KeyboardInterrupt
        self.code = 130
        self._cancel()

    def _terminated(self, _signum: int, _frame: FrameType | None) -> None:
        if _terminated:  # once more by the parent of a one-file program
            return
        note_terminated()
        self.code = 143
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.setitimer(signal.ITIMER_REAL, self.GRACE)
        self._cancel()

    def through(self, pieces: Iterator[T]) -> Iterator[T]:
        """Yield ``pieces``.  Starting an answer resets earlier cancellations, so one that arrived meanwhile is applied
        again.
        """
        if self.code:
            self._cancel()
        return pieces


def _out_of_time(_signum: int, _frame: FrameType | None) -> None:
    raise Terminated
