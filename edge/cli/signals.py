"""Ctrl-C and SIGTERM, turned into something the commands can handle.

The library below never touches signals; here SIGTERM becomes :class:`Terminated` and, while an answer streams, the
first Ctrl-C asks the session to stop (so that the partial turn is kept whole) and only the second one interrupts.

A one-file program gets each Ctrl-C twice: from the terminal, and from the process that unpacked it, which passes on
whatever it receives and cannot be told not to.  :func:`is_echo` tells the second from a wish.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
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


#: this program was unpacked by PyInstaller's one-file start-up, which stays as our parent
ONE_FILE = os.path.basename(getattr(sys, "_MEIPASS", "")).startswith("_MEI")
ECHO_SECONDS = 0.5

_handled = -ECHO_SECONDS  # when `stopping` last took a Ctrl-C


def is_echo() -> bool:
    """Is a SIGINT that arrives now the one-file parent's copy of the Ctrl-C that was just handled?"""
    return ONE_FILE and time.monotonic() - _handled < ECHO_SECONDS


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
        global _handled
        if self.interrupted:
            if is_echo():
                return
            raise KeyboardInterrupt
        self.interrupted = True
        _handled = time.monotonic()
        self._cancel()

    def __enter__(self) -> stopping:
        # A shell starts background jobs with SIGINT ignored; that wish is left alone.
        if in_main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._old = signal.signal(signal.SIGINT, self._on_sigint)
        return self

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)
