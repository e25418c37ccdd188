"""Answers in asyncio, many at once, without a thread for each.

    async with edge.aio.pieces(session.ask("Hello")) as pieces:
        async for piece in pieces:
            ...

One thread for each engine, started with the first answer and ended when there is none, runs them all: it collects
their segments, evaluates them in one step, and passes the pieces to their event loops.  An answer is at most AHEAD
pieces ahead of its reader.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from edge.errors import EdgeError
from edge.session.admission import Place
from edge.session.answer import Answer
from edge.session.stream import Piece
from edge.threads import refuse_after_fork, start, with_locks

if TYPE_CHECKING:
    from edge.session.scheduler import Scheduler

#: pieces that may wait for their reader
AHEAD = 16
#: seconds without any answer after which the thread ends
IDLE = 1.0

_drivers: weakref.WeakKeyDictionary[Scheduler, _Driver] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def pieces(answer: Answer) -> Pieces:
    """The pieces of an answer as they are written."""
    return Pieces(answer)


async def text(answer: Answer) -> str:
    """All of the answer."""
    async with Pieces(answer) as parts:
        return "".join([piece.text async for piece in parts])


class Pieces:
    """The pieces of one answer for ``async for``, in the event loop that first iterates them.  Raises what the answer
    raises.

    To leave an ``async with`` block, or to cancel its task, ends the answer and waits until the session is free.  A
    loop that is left without such a block also ends the answer, one step later.
    """

    def __init__(self, answer: Answer) -> None:
        self._reader = _Reader(answer)
        self._driver: _Driver | None = None

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> Piece:
        refuse_after_fork()
        reader = self._reader
        if self._driver is None:
            self._driver = _driver(reader)
        while not reader.waiting:
            if reader.ended:
                if reader.error is not None:
                    raise reader.error
                raise StopAsyncIteration
            await reader.wait()
        piece = reader.waiting.popleft()
        if len(reader.waiting) == AHEAD - 1:
            self._driver.go_on()
        return piece

    async def aclose(self) -> None:
        """End the answer now."""
        refuse_after_fork()
        self._leave()
        while self._driver is not None and not self._reader.ended:
            self._reader.waiting.clear()
            await self._reader.wait()

    def _leave(self) -> None:
        reader, driver = self._reader, self._driver
        if driver is not None and not reader.ended:
            reader.leaving = True
            reader.answer.cancel()
            driver.go_on()

    async def __aenter__(self) -> Pieces:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._leave()


class _Reader:
    """The pieces of one answer, passed from the thread that writes them to the event loop that reads them."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.waiting: deque[Piece] = deque()
        self.ended = False
        self.error: BaseException | None = None
        self.leaving = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()

    def begin(self) -> None:
        """Bind the reader to the running event loop."""
        self._loop = asyncio.get_running_loop()

    async def wait(self) -> None:
        """Wait until something has changed."""
        self._news.clear()
        if not self.waiting and not self.ended:
            await self._news.wait()

    def tell(self) -> None:
        """Wake the event loop because something has changed; called from the thread that writes."""
        try:
            self._loop.call_soon_threadsafe(self._news.set)  # type: ignore[union-attr]
        except RuntimeError:  # the loop is closed: nobody reads any more
            self.leaving = True


def _driver(reader: _Reader) -> _Driver:
    """The driver of the reader's engine, with this reader added to it."""
    reader.begin()
    scheduler = reader.answer.scheduler
    with _lock:
        driver = _drivers.get(scheduler)
        if driver is None:
            driver = _drivers[scheduler] = _Driver(scheduler)
        driver.add(reader)
    return driver


class _Driver:
    """The thread that runs the answers of one engine."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = weakref.ref(scheduler)
        self._readers: list[_Reader] = []
        self._thread: threading.Thread | None = None
        with_locks(self)

    def make_locks(self) -> None:
        """New locks, see :mod:`edge.threads`."""
        self._changed = threading.Condition()

    def add(self, reader: _Reader) -> None:
        """Run its answer.  Raises EdgeError if the system does not start the thread."""
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="answers", daemon=True)
                start(thread)
                self._thread = thread
            self._readers.append(reader)
            self._changed.notify()

    def go_on(self) -> None:
        """Continue: a reader has room again, or was closed."""
        with self._changed:
            self._changed.notify()

    def _ready(self) -> list[_Reader]:
        return [each for each in self._readers if each.leaving or len(each.waiting) < AHEAD]

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(self._ready, IDLE) and not self._readers:
                    self._thread = None
                    return
                ready = self._ready()
            scheduler = self._scheduler()
            if scheduler is None:
                return
            needs = [need for reader in ready if (need := self._advance(reader)) is not None]
            segments = [need for need in needs if type(need) is not Place]
            if segments:
                try:
                    scheduler.run(segments)
                except EdgeError as error:  # the system starts no thread: the answers end with it, this thread goes on
                    for each in segments:
                        each.error = error
            elif needs:
                needs[0].wait()  # all of them wait for a place
            del scheduler, needs, segments

    def _advance(self, reader: _Reader) -> Any:
        """Run an answer until it needs a step, its reader is full, or it ends.  Returns the segment of the step, else
        None.
        """
        answer = reader.answer
        try:
            if reader.leaving:
                answer.close()
                raise StopIteration
            told = False
            while len(reader.waiting) < AHEAD:
                item = answer.advance()
                if type(item) is not Piece:
                    return item
                reader.waiting.append(item)
                if not told:
                    reader.tell()
                    told = True
        except BaseException as error:
            reader.error = None if isinstance(error, StopIteration) else error
            with self._changed:
                self._readers.remove(reader)
            reader.ended = True
            reader.tell()
        return None
