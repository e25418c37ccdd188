"""Answers in asyncio, many at once, without a thread for each.

    async with edge.aio.pieces(session.ask("Hello")) as pieces:
        async for piece in pieces:
            ...

The engine's thread writes them (edge/session/scheduler.py), and a :class:`Bell` wakes the event loop, which reads their
queues.  An answer is at most AHEAD pieces ahead of its reader.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from queue import Empty
from typing import TYPE_CHECKING, Any, TypeVar

from edge.errors import EdgeError
from edge.session.answer import Answer
from edge.session.scheduler import End
from edge.session.stream import Piece
from edge.threads import refuse_after_fork, starting

if TYPE_CHECKING:
    from concurrent.futures import Executor

#: pieces that may wait for their reader
AHEAD = 16

T = TypeVar("T")


class Bell:
    """Wakes a reader in the running event loop when there is news; called by any thread.  Raises RuntimeError if the
    loop is closed.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._rung = False

    def __call__(self) -> None:
        if not self._rung:
            self._rung = True
            self._loop.call_soon_threadsafe(self._news.set)

    async def wait(self) -> None:
        """Wait until it has rung since the last time; then the queues are to be read."""
        await self._news.wait()
        self._news.clear()
        self._rung = False


async def in_thread(call: Callable[..., T], *arguments: Any, pool: Executor | None = None) -> T:
    """The result of a call that takes a while.  Raises EdgeError if the system starts no thread for it."""
    with starting():
        result = asyncio.get_running_loop().run_in_executor(pool, call, *arguments)
    try:
        return await result
    finally:  # the traceback of its error holds this frame
        del result


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
        self._bell: Bell | None = None
        self._ended = False

    def __aiter__(self) -> Pieces:
        return self

    def __repr__(self) -> str:
        return f"<Pieces of {self._answer!r}: read them with async for>"

    async def __anext__(self) -> Piece:
        refuse_after_fork()
        if self._bell is None:
            self._bell = Bell()
            self._answer.read_elsewhere(self._bell)
            await in_thread(self._answer.begin, AHEAD)
        item = await self._take()
        if type(item) is not End:
            self._answer.give_room(1)
            return item
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    async def _take(self) -> Any:
        assert self._bell is not None
        while True:
            try:
                item = self._answer.job.pieces.get_nowait()
            except Empty:
                if self._ended:
                    return End()
                await self._bell.wait()
            else:
                self._ended = type(item) is End
                return item

    async def aclose(self) -> None:
        """End the answer now."""
        refuse_after_fork()
        self._leave()
        while self._bell is not None and not self._ended:
            await self._take()

    def _leave(self) -> None:
        if self._bell is not None and not self._ended:
            self._answer.leave()

    async def __aenter__(self) -> Pieces:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        with contextlib.suppress(EdgeError):  # in a forked child
            self._leave()
