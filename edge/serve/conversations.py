"""Conversations: the sessions of a service and a bounded queue of requests.

Clients send the whole conversation with every request.  A place holds one session and its KV cache.  A request goes to
the free place whose conversation it continues, else to an unused one, else to the least recently used.  The
conversation that was there goes to the engine's store (edge/cache/store.py), where its next request finds it.  There
are as many places as contexts are planned, and the plan has memory for ASIDE contexts more if that is free, so the
memory plan holds whatever clients do.

Each place has a thread that makes its answers and then waits for the next request; the scheduler evaluates the segments
of all running answers together.  Events reach the event loop of the service through a :class:`Mailbox`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.errors import EdgeError
from edge.prompt.interrupt import interruptible
from edge.serve.calls import Call, Refusal
from edge.session.prompting import common_messages
from edge.session.stream import Piece
from edge.session.usage import Timings, Usage
from edge.threads import start

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.answer import Answer
    from edge.session.session import Session

ASIDE = 8  # contexts' worth of memory, at most, for conversations that wait
GATHER = 0.002  # seconds in which what is written goes to its reader together
MOST_UNREAD = 4096  # pieces that may wait for their reader
PATIENCE = 60.0  # seconds for a reader that takes nothing; then the answer ends
STUCK = 120.0  # seconds without a sign of life of an answer after which the service reports itself as unhealthy


class Prefill(NamedTuple):
    """How far a prompt has been read, in tokens."""

    done: int
    total: int
    cached: int


class Mailbox:
    """Events of the tickets of one call, from the threads that answer to the event loop.

    A reader gets the new events at most once in GATHER seconds, because a small model writes a token in less time than
    the event loop needs for one.  A ticket that is MOST_UNREAD events ahead of its reader waits for it, at most
    ``patience`` seconds; None: without limit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, patience: float | None) -> None:
        self._loop = loop
        self._patience = patience
        self._open = False  # nobody waits for the reader any more
        self._items: deque[tuple[int, Any]] = deque()
        self._told = False  # the loop knows that there is something
        self._waiter: asyncio.Future[None] | None = None
        self._room = threading.Event()
        self._latest = 0.0  # when the reader last got something

    def put(self, index: int, event: Any) -> bool:
        """Add an event; may be called from any thread.  Returns whether somebody will read it."""
        if len(self._items) >= MOST_UNREAD and event is not None and not self._open:
            self._room.clear()
            if len(self._items) >= MOST_UNREAD and not self._open and not self._room.wait(self._patience):
                return False
        self._items.append((index, event))
        if not self._told:
            self._told = True
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop is closed: the service ends
                return False
        return True

    def open(self) -> None:
        """From now on, do not wait for the reader: only a few events follow."""
        self._open = True
        self._room.set()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[tuple[int, Any]]:
        """The new events; waits for at least one."""
        early = self._latest + GATHER - time.monotonic()
        if early > 0:
            await asyncio.sleep(early)
        while not self._items:
            self._told = False  # before the look that decides: what comes behind it wakes us
            if not self._items:
                self._waiter = self._loop.create_future()
                await self._waiter
        found = [self._items.popleft() for _ in range(len(self._items))]
        self._room.set()
        self._latest = time.monotonic()
        return found


class Ticket:
    """One request for one answer: waiting, running or done.

    ``position``: the number of requests before it when it arrived.  ``expected``: estimated seconds until it begins.
    ``broke``: index of the first message that was not in the cache.  ``evicted``: tokens that the session no longer
    sees at the end.  ``offload_error``: the reason why pages that left the window can no longer be stored.
    """

    def __init__(self, call: Call, mailbox: Mailbox, index: int) -> None:
        self.call = call
        self.evicted = 0
        self.offload_error: str | None = None
        self._why = "cancelled"
        self.position = 0
        self.expected = 0.0
        self.answer: Answer | None = None
        self.calls: list[dict[str, Any]] = []  # of functions, in OpenAI's form; known when the answer has ended
        self.broke: int | None = None
        self.touched = time.monotonic()  # the last sign of life
        self._mailbox = mailbox
        self._index = index  # among those of the call
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """The client has disconnected: end the answer within one step, also while it waits or reads its prompt.  May be
        called from any thread.
        """
        self._cancelled.set()
        self._mailbox.open()
        answer = self.answer
        if answer is not None:
            answer.cancel()

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, see :class:`edge.session.answer.Answer`; "tool_calls" if it called functions."""
        if self.answer is None:
            return self._why
        return "tool_calls" if self.calls else self.answer.finish_reason

    @property
    def usage(self) -> Usage:
        """Tokens read and written."""
        return Usage() if self.answer is None else self.answer.usage

    @property
    def timings(self) -> Timings:
        """Seconds taken."""
        return Timings() if self.answer is None else self.answer.timings

    @property
    def left_out(self) -> int:
        """Number of characters of the question that are not read, see Answer."""
        return 0 if self.answer is None else self.answer.left_out

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._cancelled.is_set()

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self.call.deadline is not None and time.monotonic() >= self.call.deadline

    def touch(self) -> None:
        """A sign of life, while nothing is put."""
        self.touched = time.monotonic()

    def give_up(self) -> None:
        """End the ticket because its deadline passed before it began."""
        self._why = "timeout"

    def put(self, event: Any) -> None:
        """Add a piece, an error, or None for the end; may be called from any thread."""
        self.touch()
        if not self._mailbox.put(self._index, event):
            self.cancel()
        self.touch()


class Job:
    """A call and the tickets of its choices.  Made in the event loop that reads it.

    ``patience``: seconds that an answer waits for a slow reader before it is ended; None: without limit.
    """

    def __init__(self, call: Call, patience: float | None = PATIENCE) -> None:
        self.call = call
        self.tickets: list[Ticket] = []
        self._mailbox = Mailbox(asyncio.get_running_loop(), patience)

    def ticket(self, call: Call) -> Ticket:
        """The ticket of one more choice."""
        ticket = Ticket(call, self._mailbox, len(self.tickets))
        self.tickets.append(ticket)
        return ticket

    async def batches(self) -> AsyncIterator[list[tuple[int, Any]]]:
        """The new events, as (number of the choice, piece or None at its end), until all choices have ended.

        Raises what an answer raised.
        """
        left = len(self.tickets)
        while left:
            batch = await self._mailbox.take()
            for _, event in batch:
                if isinstance(event, BaseException):
                    try:
                        raise event
                    finally:  # its traceback holds this frame: the request would stay in memory with it
                        del event, batch, _
                left -= event is None
            yield batch

    async def pieces(self) -> AsyncIterator[Piece]:
        """The pieces of the only choice."""
        async for batch in self.batches():
            for _, piece in batch:
                if piece is not None:
                    yield piece


class Place:
    """A session, its thread, and the ticket that it answers."""

    def __init__(self, index: int, session: Session) -> None:
        self.index = index
        self.session = session
        self.used = 0.0  # when it was last free
        self.key: str | None = None
        self.ticket: Ticket | None = None


class Conversations:
    """The places of a service and its queue.

    ``parallel``: number of answers at the same time, and of conversations in memory.  ``queue``: number of requests
    that may wait.  ``folder``: where conversations that leave memory are saved, at most ``folder_bytes`` of them.
    """

    def __init__(
        self, engine: Engine, parallel: int, queue: int, folder: str | None = None, folder_bytes: int = 1 << 30
    ) -> None:
        most = None if engine.plan.room else engine.plan.kv_total  # None: as the pool of pages allows
        engine.store.share(most, folder, folder_bytes, conversations=True)
        self._seen: dict[int, tuple[Ticket, float, int]] = {}  # place -> what :meth:`alive` saw there
        self.engine = engine
        self.parallel = parallel
        self.queue = queue
        self.served = self.refused = self.cancelled = self.failed = 0
        self.prompt_tokens = self.cached_tokens = self.answer_tokens = 0
        self._places = [Place(i, engine.session(system="")) for i in range(parallel)]
        self._waiting: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._seconds = 2.0  # of an answer, a running mean
        self._closing = False
        self._threads = [
            threading.Thread(target=self._work, args=(place,), name=f"answers {place.index}", daemon=True)
            for place in self._places
        ]
        for thread in self._threads:
            start(thread)

    # ---- the service's side -----------------------------------------------------------------------------------------

    def admit(self, n: int) -> None:
        """Refuse a call with ``n`` answers that :meth:`submit` would refuse now, before any work is done for it: 400 if
        there is never room for so many, else 429.
        """
        most = self.parallel + self.queue
        if n > most:
            raise Refusal(400, f"the request asks for {n} answers; the server has room for {most} (--parallel and "
                          "--queue): send several requests", "too_many")
        with self._lock:
            if len(self._waiting) >= self.queue and all(place.ticket is not None for place in self._places):
                raise self._full()

    def _full(self) -> Refusal:
        """The queue is full.  Requires the lock."""
        self.refused += 1
        return Refusal(429, f"{self.queue} requests are waiting already; try again later", "queue_full",
                       retry_after=max(1.0, self._seconds))

    def submit(self, ticket: Ticket) -> None:
        """Add a ticket to the queue.  Raises Refusal: 429 if the queue is full, 503 if the service ends."""
        with self._lock:
            if self._closing:
                raise Refusal(503, "the server is shutting down", "shutting_down", retry_after=5)
            free = sum(place.ticket is None for place in self._places) - len(self._waiting)
            ticket.position = max(0, -free)
            ticket.expected = 0.0 if free > 0 else self._seconds * (ticket.position // self.parallel + 1)
            if free <= 0 and ticket.position >= self.queue:
                raise self._full()
            self._waiting.append(ticket)
            self._ready.notify_all()  # each place asks itself whether it is the best one

    def withdraw(self, ticket: Ticket) -> None:
        """Cancel a ticket; one that waits leaves the queue at once."""
        ticket.cancel()
        with self._lock:
            try:
                self._waiting.remove(ticket)
            except ValueError:
                return
            self.cancelled += 1
        ticket.put(None)

    def expire(self, ticket: Ticket) -> None:
        """The deadline of a ticket has passed: one that waits leaves the queue; one that runs ends by itself."""
        with self._lock:
            try:
                self._waiting.remove(ticket)
            except ValueError:
                return
            self.served += 1
        ticket.give_up()
        ticket.put(None)

    def forget(self, key: str) -> None:
        """Do not continue the last conversation of this client."""
        with self._lock:
            for place in self._places:
                if place.key == key and place.ticket is None:
                    place.session.clear()

    def warm(self, system: str | None) -> None:
        """Read the system prompt, with which conversations begin; this also reads every weight once.  Blocks."""
        place = self._places[0]
        place.session.system = system
        place.session.warm()

    def alive(self) -> bool:
        """Whether every running answer has made progress since the last call; True if none runs."""
        with self._lock:
            running = [(place, place.ticket) for place in self._places if place.ticket is not None]
        seen = {place.index: (ticket, ticket.touched, place.session.n_tokens) for place, ticket in running}
        stuck = any(self._seen.get(index) == found for index, found in seen.items())
        self._seen = seen
        return not stuck

    def state(self) -> dict[str, Any]:
        """Counts for ``/health`` and ``/metrics``."""
        with self._lock:
            return {
                "running": sum(place.ticket is not None for place in self._places),
                "waiting": len(self._waiting),
                "served": self.served,
                "refused": self.refused,
                "cancelled": self.cancelled,
                "failed": self.failed,
                "prompt_tokens": self.prompt_tokens,
                "cached_tokens": self.cached_tokens,
                "answer_tokens": self.answer_tokens,
            }

    def trouble(self) -> str | None:
        """The reason why no answers are made although requests wait; None if all is well."""
        now = time.monotonic()
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        if dead and not self._closing:
            return f"{len(dead)} of {self.parallel} answering threads have ended"
        for place in self._places:
            ticket = place.ticket
            if ticket is not None and now - ticket.touched > STUCK:
                return f"an answer has made no progress for {now - ticket.touched:.0f} seconds"
        return None

    def close(self) -> None:
        """End all answers, save the conversations, free the memory.  Blocks for some seconds at most."""
        with self._lock:
            self._closing = True
            waiting, self._waiting = list(self._waiting), deque()
            running = [place.ticket for place in self._places if place.ticket is not None]
            self._ready.notify_all()
        for ticket in (*waiting, *running):
            ticket.cancel()
        for ticket in waiting:
            ticket.put(None)
        for thread in self._threads:
            thread.join(timeout=10)
        for place in self._places:
            if place.ticket is None:
                place.session.set_aside()
                place.session.close()

    # ---- the threads that answer ------------------------------------------------------------------------------------

    def _work(self, place: Place) -> None:
        while True:
            with self._lock:
                while (ticket := None if self._closing else self._next(place)) is None:
                    if self._closing:
                        return
                    self._ready.wait()
                place.ticket = ticket
            begun = time.monotonic()
            try:
                if ticket.late:
                    ticket.give_up()
                elif not ticket.cancelled:
                    self._answer(place, ticket)
                ticket.put(None)
            except EdgeError as error:
                ticket.put(error)
            except Exception as error:  # a bug: this conversation fails, the service goes on with a new session
                with self._lock:
                    self.failed += 1
                ticket.put(error)
                place.session.close()
                place.session = self.engine.session(system="")
            finally:
                with self._lock:
                    place.ticket, place.used = None, time.monotonic()
                    if ticket.cancelled:
                        self.cancelled += 1
                    else:
                        self.served += 1
                        self._seconds += 0.2 * (time.monotonic() - begun - self._seconds)
                    self._ready.notify_all()

    def _next(self, place: Place) -> Ticket | None:
        """The oldest request, if this is the best of the free places for it.  Requires the lock."""
        if not self._waiting:
            return None
        ticket = self._waiting[0]
        free = [each for each in self._places if each.ticket is None]
        if max(free, key=lambda each: self._fits(each, ticket.call)) is not place:
            return None
        self._waiting.popleft()
        if self._waiting and len(free) > 1:
            self._ready.notify_all()
        return ticket

    def _fits(self, place: Place, call: Call) -> tuple[int, bool, float]:
        """How well a place fits a request: (messages of it that it holds, whether it is the client's own, how long it
        was unused).
        """
        held = place.session.messages
        common = common_messages(held, call.messages or [])
        continues = common if common == len(held) else 0
        return continues, call.key is not None and call.key == place.key, -place.used

    def _answer(self, place: Place, ticket: Ticket) -> None:
        call, session = ticket.call, place.session
        if call.messages is not None:
            held = session.messages
            if common_messages(held, call.messages) < len(held):  # another conversation takes the place
                session.set_aside()
        place.key = call.key

        def reading(*counts: int) -> None:
            ticket.touch()
            if call.progress:
                ticket.put(Prefill(*counts))

        more: dict[str, Any] = {"on_prefill": reading}
        if call.deadline is not None:
            more["timeout"] = max(call.deadline - time.monotonic(), 1e-3)
        if call.prepared is not None:
            answer = session.answer(call.prepared.changed(**more))
        elif call.messages is not None:
            answer = session.chat(call.messages, **call.options, **more)
        else:
            answer = session.complete(call.prompt or "", **call.options, **more)
        reader = None if answer.form is None else answer.form.reader()
        with answer, interruptible(ticket.touch):  # a long prompt takes long before anything of it is read
            ticket.answer = answer
            if ticket.cancelled:
                answer.cancel()
            for piece in answer:
                if reader is not None and not piece.thought:
                    piece = piece._replace(text=reader.feed(piece.text))
                ticket.put(piece)
        if call.messages is not None and session.known < len(call.messages) - 1:
            ticket.broke = session.known
        ticket.evicted, ticket.offload_error = session.evicted, session.offload_error
        if reader is not None:
            if rest := reader.flush():
                ticket.put(Piece(rest, ()))
            said = session.messages[-1] if session.messages else {}  # with the ids that the client will repeat
            ticket.calls = said.get("tool_calls") or []
        with self._lock:
            self.prompt_tokens += answer.usage.prompt
            self.cached_tokens += answer.usage.cached
            self.answer_tokens += answer.usage.completion
