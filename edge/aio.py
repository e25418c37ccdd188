"""Answers in asyncio, many at once, without a thread for each.

    async with edge.aio.pieces(session.ask("Hello")) as pieces:
        async for piece in pieces:
            ...

The scheduler writes them (edge/session/scheduler.py); an :class:`Inbox` passes what it writes to the event loop.  An
answer is at most AHEAD pieces ahead of its reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.errors import EdgeError
from edge.session.answer import Answer
from edge.session.stream import Piece
from edge.threads import refuse_after_fork

if TYPE_CHECKING:
    from edge.session.scheduler import Running

#: pieces that may wait for their reader
AHEAD = 16


class Inbox:
    """Events from the threads of the scheduler, on their way to the running event loop.

    ``most``: events that may wait; None: any number.  ``more``: called in the loop when there is room again.  ``gone``:
    called when nobody reads any more: the loop is closed, or there has been no room for ``patience`` seconds; None:
    however long.
    """

    def __init__(
        self, most: int | None, more: Callable[[], object], gone: Callable[[], object], patience: float | None = None
    ) -> None:
        self._most = most
        self._more = more
        self._gone = gone
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._items: deque[Any] = deque()
        self._full = False
        self._woken = False  # the loop knows that there is something
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def put(self, item: Any) -> bool:
        """Add an event; may be called from any thread.  Returns whether there is room for another."""
        with self._lock:
            self._items.append(item)
            room = self._most is None or len(self._items) < self._most
            filled, self._full = not room and not self._full, not room
            woken, self._woken = self._woken, True
        try:
            if not woken:
                self._loop.call_soon_threadsafe(self._wake)
            if filled and self._patience is not None:
                self._loop.call_soon_threadsafe(self._watch, self._patience)
        except RuntimeError:  # the loop is closed
            self._gone()
        return room

    def open(self) -> None:
        """From now on there is always room: only a few events follow."""
        with self._lock:
            self._most, self._full = None, False

    def close(self) -> None:
        """Nothing is taken any more; what writes to it is let go."""
        self.open()
        self._more = self._gone = lambda: None
        if self._timer is not None:
            self._timer.cancel()

    async def take(self, most: int | None = None) -> list[Any]:
        """The new events, at most ``most``; waits for at least one."""
        while True:
            with self._lock:
                n = len(self._items) if most is None else min(most, len(self._items))
                found = [self._items.popleft() for _ in range(n)]
                full, self._full = self._full, self._full and not n
                self._woken &= bool(found)
            if full and found:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                self._more()
            if found:
                return found
            self._waiter = self._loop.create_future()
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _watch(self, patience: float) -> None:
        if self._full and self._timer is None:
            self._timer = self._loop.call_later(patience, self._gone)


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
        self._answer = answer
        self._reader: _Reader | None = None
        self._end: _End | None = None

    def __aiter__(self) -> Pieces:
        return self

    def __repr__(self) -> str:
        return f"<Pieces of {self._answer!r}: read them with async for>"

    async def __anext__(self) -> Piece:
        refuse_after_fork()
        if self._reader is None:
            self._reader = _Reader(self._answer)
        if self._end is None:
            (item,) = await self._reader.inbox.take(1)
            if type(item) is Piece:
                return item
            self._end = item
        if self._end.error is not None:
            raise self._end.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the answer now."""
        refuse_after_fork()
        self._leave()
        while self._reader is not None and self._end is None:
            self._end = next((each for each in await self._reader.inbox.take() if type(each) is _End), None)

    def _leave(self) -> None:
        if self._reader is not None and self._end is None:
            self._reader.leave()

    async def __aenter__(self) -> Pieces:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        with contextlib.suppress(EdgeError):  # in a forked child
            self._leave()


class _End(NamedTuple):
    """The last event of an answer."""

    error: BaseException | None


class _Reader:
    """What the scheduler passes the pieces of one answer to; it does not hold the Pieces, which may be dropped."""

    def __init__(self, answer: Answer) -> None:
        self.inbox = Inbox(AHEAD, self._more, self.leave)
        self._answer = answer
        self._running: Running = answer.scheduler.submit(answer.take(), self)

    def put(self, piece: Piece) -> bool:
        """Called by the scheduler."""
        return self.inbox.put(piece)

    def end(self, error: BaseException | None, value: Any) -> None:
        """Called by the scheduler."""
        self.inbox.put(_End(error))

    def _more(self) -> None:
        self._answer.scheduler.go_on(self._running)

    def leave(self) -> None:
        """Nobody reads the answer any more."""
        self._answer.cancel()
        self._answer.scheduler.go_on(self._running, leaving=True)
