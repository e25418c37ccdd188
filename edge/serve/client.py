"""Client: one client of a JSONL service: reads lines, writes events, answers requests one after the other.

All of it runs in the event loop.  Events go through a :class:`Channel`, which never blocks: a socket that the client
does not read is closed (edge/serve/socket.py); a full standard output makes the answer wait (edge/serve/pipe.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from edge.errors import Busy

LINE_LIMIT = 4 << 20  # bytes of one request; a longer line is a mistake or an attack
QUEUE_LIMIT = 64  # requests of one client that may wait
QUEUE_BYTES = 2 * LINE_LIMIT  # of these; also of all clients of a service together


class Channel(Protocol):
    """The connection to a client."""

    @property
    def others(self) -> int:
        """Bytes of the waiting requests of the other clients of the service."""

    def send(self, event: dict[str, Any]) -> None:
        """Write one event as a line; returns at once."""

    async def room(self) -> None:
        """Wait until the client has read enough that more should be written."""

    def close(self) -> None:
        """Close the connection after everything is written."""


class Lines:
    """Splits incoming data into lines; None stands for a line that is too long."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that ``data`` completes."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
                continue
            if self._held:
                self._held += line
                line, self._held = bytes(self._held), bytearray()
            yield line if len(line) <= LINE_LIMIT else None
        if not self._skipping:
            self._held += rest
            if len(self._held) > LINE_LIMIT:
                self.give_up()
                yield None

    @property
    def held(self) -> int:
        """Bytes of the line that is not complete yet."""
        return len(self._held)

    def give_up(self) -> None:
        """Leave out the line that is not complete yet."""
        self._held, self._skipping = bytearray(), True

    def rest(self) -> Iterator[bytes]:
        """A last line without a newline."""
        if self._held and not self._skipping:
            line, self._held = bytes(self._held), bytearray()
            yield line


@dataclass
class Job:
    """One request.  ``nbytes``: size of its line as text; ``answered``: its last event was sent, so its id can be used
    again.
    """

    id: str | int | None
    nbytes: int
    answered: bool = False


J = TypeVar("J", bound=Job)


class Client(Generic[J]):
    """The base class of protocols, which override :meth:`begin`, :meth:`handle`, :meth:`answer` and :meth:`end`.

    ``finished``: the client sends no more requests, but may still read answers.  ``gone``: it reads nothing any more.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.finished = self.gone = False
        self.jobs: deque[J] = deque()  # waiting or running, the oldest first
        self.lines = Lines()
        self._task: asyncio.Task[None] | None = None

    # ---- what a protocol says ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Send the first event."""

    def handle(self, line: bytes | None) -> None:
        """Handle one request line; None: one that was too long.  Mistakes in it become an error event."""
        raise NotImplementedError

    async def answer(self, job: J) -> None:
        """Answer one request; does not raise."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel all requests."""

    # ---- what a service does -----------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Bytes of the requests of this client that wait or run."""
        return sum(job.nbytes for job in self.jobs)

    def emit(self, event: dict[str, Any], ident: str | int | None = None) -> None:
        """Send one event."""
        if not self.gone:
            self.channel.send(event if ident is None else {"id": ident, **event})

    def feed(self, data: bytes) -> None:
        """Handle data that the client has sent."""
        for line in self.lines.feed(data):
            if self.gone:
                return
            self.handle(line)

    def end(self) -> None:
        """The client sends nothing more; the channel is closed after all requests are answered."""
        if not self.finished:
            self.finished = True
            for line in self.lines.rest():
                self.handle(line)
            if not self.jobs:
                self.channel.close()

    def leave(self) -> None:
        """The client reads nothing any more."""
        self.gone = True
        self.cancel()

    async def stop(self) -> None:
        """The service ends: cancel all requests and wait until their last events are sent."""
        self.cancel()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self.channel.close()

    def enqueue(self, job: J) -> None:
        """Answer a request after those that wait already.  Raises Busy."""
        if len(self.jobs) >= QUEUE_LIMIT:
            raise Busy(f"{len(self.jobs)} requests are already waiting")
        if (waiting := self.queued + self.channel.others) + job.nbytes > QUEUE_BYTES:
            raise Busy(f"{waiting} bytes of requests are already waiting, this one has {job.nbytes}, and the limit is "
                       f"{QUEUE_BYTES}")
        self.jobs.append(job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self.jobs:
            job = self.jobs[0]
            if not job.answered:
                await self.answer(job)
            self.jobs.remove(job)
        self._task = None
        if self.finished:
            self.channel.close()
