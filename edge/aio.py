"""Answers in asyncio, many at once, without a thread for each.

    async with edge.aio.pieces(session.ask("Hello")) as pieces:
        async for piece in pieces:
            ...

The engine's thread writes them (edge/session/scheduler.py), and a :class:`Bell` wakes the event loop, which reads their
queues.  An answer is at most AHEAD pieces ahead of its reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from edge.session.answer import Answer
from edge.session.scheduler import END
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


class pieces(aclosing[AsyncGenerator[Piece, None]]):
    """The pieces of one answer for ``async for``, as they are written.  Raises what the answer raises.

    To leave an ``async with`` block, or to cancel its task, ends the answer and waits until the session is free.  A
    loop that is left without such a block also ends the answer, one step later.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer, self._pieces = answer, _read(answer)
        super().__init__(self._pieces)

    def __aiter__(self) -> pieces:
        return self

    def __anext__(self) -> Awaitable[Piece]:
        return anext(self._pieces)

    def __del__(self) -> None:
        self._answer.drop(0)  # asyncio closes the generator later, and the session may be used before


async def text(answer: Answer) -> str:
    """All of the answer."""
    async with pieces(answer) as parts:
        return "".join([piece.text async for piece in parts])


async def _read(answer: Answer) -> AsyncGenerator[Piece, None]:
    refuse_after_fork()
    bell, job = Bell(), answer.job
    answer.read_elsewhere(bell)
    try:
        await in_thread(answer.begin, AHEAD)
        while True:
            while job.pieces.empty():
                await bell.wait()
            item = job.pieces.get_nowait()
            if item is END:
                break
            answer.give_room(1)
            yield item
        if (error := job.failure()) is not None:
            raise error
    finally:
        error = None  # its traceback holds this frame
        if not job.over:
            await in_thread(answer.close)
