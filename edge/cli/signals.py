"""Ctrl-C and SIGTERM, turned into something the commands can handle.

The library below never touches signals; here SIGTERM becomes :class:`Terminated` and, while an answer streams, the
first Ctrl-C asks the session to stop (so that the partial turn is kept whole) and only the second one interrupts.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Terminated(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt it must pass through ``except Exception``."""


def _terminate(_signum: int, _frame: FrameType | None) -> None:
    raise Terminated


def in_main_thread() -> bool:
    """Signal handlers can only be set from the main thread."""
    return threading.current_thread() is threading.main_thread()


class handle_sigterm:  # noqa: N801 - a context manager, used like a function
    """Within the block SIGTERM raises :class:`Terminated` in the main thread."""

    def __enter__(self) -> None:
        self._old: Any = signal.signal(signal.SIGTERM, _terminate) if in_main_thread() else None

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGTERM, self._old)


class stopping:  # noqa: N801
    """Within the block the first Ctrl-C calls ``cancel`` and sets ``interrupted``; the second raises.

    ``cancel`` must be safe to call from a signal handler (``Session.cancel`` sets a flag).
    """

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self._old: Any = None
        self.interrupted = False

    def _on_sigint(self, _signum: int, _frame: FrameType | None) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self._cancel()

    def __enter__(self) -> stopping:
        # A shell starts background jobs with SIGINT ignored; that wish is left alone.
        if in_main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._old = signal.signal(signal.SIGINT, self._on_sigint)
        return self

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)
