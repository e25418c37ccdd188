"""Read ahead: reads the next question while it is still being typed, so that after Enter only its end is left to read.

    ahead = Ahead(session)
    ahead.typed("Where is the")       # again and again, with all of the text so far
    ahead.stop()                      # before the session does anything else

A thread reads what stands before the text, and the text without its last word, in small steps.  An edit removes what it
changed from the KV cache, at most a page more.  It reads only while nothing else runs, and only as far as nothing would
be dropped from the cache, which could not be undone; so the answers are those without it, bit for bit.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from edge.errors import EdgeError
from edge.prompt.messages import certain
from edge.threads import start

if TYPE_CHECKING:
    from edge.session.session import Session

LOOK = 0.001  # seconds between two looks at whether it has stopped


class Ahead:
    """Reads ahead for one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._text: str | None = None  # text to be read; None: nothing
        self._read: str | None = None  # text that was read
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def typed(self, text: str) -> None:
        """The question so far is ``text``.  Returns at once; may be called from any thread."""
        with self._lock:
            self._text = certain(text)
            if self._thread is None and self._text != self._read:
                self._thread = threading.Thread(target=self._run, name="ahead", daemon=True)
                try:
                    start(self._thread)
                except BaseException as error:
                    self._thread = None
                    if not isinstance(error, EdgeError):  # then it is read after Enter
                        raise

    def stop(self) -> None:
        """Stop reading; returns when the session is free, at most one step later."""
        self._text = None
        self.finish()
        self._read = None

    def finish(self) -> None:
        """Wait until all that is certain of the text was read.

        Neither by a Condition nor by join(): the exception of a signal breaks the lock of one, and after it the other
        takes a thread that runs for one that has ended (CPython 3.11).
        """
        while self._thread is not None:
            time.sleep(LOOK)

    def _is_other(self, text: str) -> bool:
        return self._text != text

    def _next(self) -> str | None:
        """The text to be read; None: there is none, and the thread ends."""
        with self._lock:
            if self._text is None or self._text == self._read:
                self._thread = None
                return None
            return self._text

    def _run(self) -> None:
        try:
            while (text := self._next()) is not None:
                with suppress(EdgeError):  # the answer will say what is wrong
                    self._session.read_ahead(text, partial(self._is_other, text))
                self._read = text
        except BaseException:
            self._thread = None
            raise
