"""Ctrl-C and SIGTERM, turned into something the commands can handle.

The library below never touches signals; here SIGTERM becomes :class:`Terminated` and, while an answer streams, the
first Ctrl-C stops the session (so that the partial turn is kept whole) and only the second one interrupts.

A one-file program gets each Ctrl-C twice: from the terminal, and from the process that unpacked it, which passes on
whatever it receives; this cannot be turned off.  :func:`is_wish` tells the second from the first.
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
    """SIGTERM arrived; like KeyboardInterrupt it must pass through ``except Exception``."""


_terminated = False  # SIGTERM has arrived within handle_sigterm


def _terminate(_signum: int, _frame: FrameType | None) -> None:
    global _terminated
    _terminated = True
    raise Terminated


def check_terminated() -> None:
    """Raise Terminated if SIGTERM has arrived: an exception raised while Python destroys an object is lost."""
    if _terminated:
        raise Terminated


def guard_maps() -> None:
    """A model file that gets shorter while it is in use is an error from now on, and no longer SIGBUS."""
    try:
        from pyx.memory import guard
    except ImportError:  # not built: loading raises the error
        return
    guard()


def in_main_thread() -> bool:
    """Signal handlers can only be set from the main thread."""
    return threading.current_thread() is threading.main_thread()


#: this program was unpacked by PyInstaller's one-file start-up, which stays as our parent
ONE_FILE = os.path.basename(getattr(sys, "_MEIPASS", "")).startswith("_MEI")
ECHO_SECONDS = 0.5

_wished = -ECHO_SECONDS  # when a Ctrl-C came whose copy has not come yet


def is_wish() -> bool:
    """Is the SIGINT that has just arrived a Ctrl-C of its own, not the one-file parent's copy of the last?

    Asked by handlers, once each time: a wish is remembered, so that its one copy will be known.
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
    """Run a coroutine in an event loop of its own; SIGTERM and Ctrl-C cancel it.

    Raises Terminated or KeyboardInterrupt once it has ended by one of them.
    """
    import asyncio

    got: list[int] = []

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

        def stop(number: int) -> None:
            if number != signal.SIGINT or is_wish():
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
                signal.signal(number, old)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise (KeyboardInterrupt if signal.SIGINT in got else Terminated) from None


Block = TypeVar("Block", bound="on_sigint")
class on_sigint:  # noqa: N801 - a base
    """Within the block SIGINT calls :meth:`handle`; where it is ignored that wish of the shell is left alone."""

    _old: Any = None

    def handle(self, _signum: int, _frame: FrameType | None) -> None:
        """In the main thread, between any two instructions."""
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
    """Within the block Ctrl-C raises KeyboardInterrupt, as ever, and its echo raises nothing wherever it arrives."""

    def handle(self, _signum: int, _frame: FrameType | None) -> None:
        if is_wish():
            raise KeyboardInterrupt


class handle_sigterm:  # noqa: N801 - a context manager, used like a function
    """Within the block SIGTERM raises :class:`Terminated` in the main thread."""

    def __enter__(self) -> None:
        global _terminated
        _terminated = False
        self._old: Any = signal.signal(signal.SIGTERM, _terminate) if in_main_thread() else None

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGTERM, self._old)


class stopping(on_sigint):  # noqa: N801
    """Within the block the first Ctrl-C calls ``cancel`` and sets ``interrupted``; the second raises.

    ``cancel`` must be safe to call from a signal handler (``Session.cancel`` sets a flag).
    """

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self.interrupted = False

    def handle(self, _signum: int, _frame: FrameType | None) -> None:
        if not is_wish():
            return
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self._cancel()

    def through(self, pieces: Iterator[T]) -> Iterator[T]:
        """``pieces`` as they are.  To ask forgets what was cancelled before; a Ctrl-C of that moment counts, too."""
        if self.interrupted:
            self._cancel()
        return pieces
