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
from functools import partial
from typing import TYPE_CHECKING

from edge.errors import EdgeError
from edge.session.answer_options import certain
from edge.threads import anew, start

if TYPE_CHECKING:
    from edge.session.session import Session


class Ahead:
    """Reads ahead for one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._text: str | None = None  # what is to be read; None: nothing
        self._read: str | None = None  # what was read
        self._thread: threading.Thread | None = None
        self._changed = anew(self, "_changed", threading.Condition)

    def typed(self, text: str) -> None:
        """The question so far is ``text``.  Returns at once; may be called from any thread."""
        with self._changed:
            self._text = certain(text)
            if self._thread is None and self._text != self._read:
                thread = threading.Thread(target=self._run, name="ahead", daemon=True)
                try:
                    start(thread)
                except EdgeError:  # then it is read after Enter
                    return
                self._thread = thread
            self._changed.notify()

    def stop(self) -> None:
        """Stop reading; returns when the session is free, at most one step later."""
        with self._changed:
            self._text = self._read = None
            self._changed.wait_for(lambda: self._thread is None)

    def finish(self) -> None:
        """Wait until all that is certain of the text was read."""
        with self._changed:
            self._changed.wait_for(lambda: self._thread is None)

    def _is_other(self, text: str) -> bool:
        return self._text != text

    def _run(self) -> None:
        while True:
            with self._changed:
                text = self._text
                if text is None or text == self._read:
                    self._thread = None
                    self._changed.notify_all()
                    return
            try:
                self._session.read_ahead(text, partial(self._is_other, text))
            except EdgeError:  # the answer will say what is wrong
                pass
            except BaseException:
                with self._changed:
                    self._thread = None
                    self._changed.notify_all()
                raise
            with self._changed:
                self._read = text
