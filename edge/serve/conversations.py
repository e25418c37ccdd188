"""Conversations: the sessions of a service, and its calls from their arrival to their last event.

Clients send the whole conversation with every call.  A call enters the line (edge/session/admission.py) before any work
is done for it, is prepared meanwhile, and is answered at a seat, which has a session with its KV cache: the free one
whose conversation it continues, else an unused one, else the least recently used.  The conversation that was there
goes to the engine's store (edge/cache/store.py), where its next request finds it.  There are as many seats as contexts
are planned, and the plan has memory for ASIDE contexts more if that is free, so the memory plan holds whatever clients
do.

Each seat has a thread that makes its answers and then waits for the next call; the scheduler evaluates the segments of
all running answers together.  Events reach the event loop of the service through a :class:`Mailbox`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.errors import Busy, EdgeError
from edge.prompt.interrupt import Interrupted, interruptible
from edge.serve.calls import Call, Refusal
from edge.session.prompting import common_messages
from edge.session.stream import Piece
from edge.session.usage import Timings, Usage
from edge.threads import start, starting

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.admission import Place
    from edge.session.answer import Answer
    from edge.session.request import Prepared
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
        """Add an event; may be called from any thread.  The last one never waits for its reader.

        Returns whether somebody will read it.
        """
        last = event is None or isinstance(event, BaseException)
        if len(self._items) >= MOST_UNREAD and not last and not self._open:
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
    """One answer that a call asks for: in the line, being prepared, being written, or over.

    ``place``: its place in the line.  ``prepared``: what a session answers; known when it has begun.  ``broke``: index
    of the first message that was not in the cache.  ``evicted``: tokens that the session no longer sees at the end.
    ``offload_error``: the reason why pages that left the window can no longer be stored.
    """

    def __init__(self, call: Call, place: Place, mailbox: Mailbox, index: int) -> None:
        self.call = call
        self.place = place
        self.prepared: Prepared | None = None
        self.open = True  # neither at a seat nor over
        self.evicted = 0
        self.offload_error: str | None = None
        self.answer: Answer | None = None
        self.calls: list[dict[str, Any]] = []  # of functions, in OpenAI's form; known when the answer has ended
        self.broke: int | None = None
        self.touched = time.monotonic()  # the last sign of life
        self.why: str | None = None  # it ended early, as a finish reason
        self._mailbox = mailbox
        self._index = index  # among those of the call

    def end(self, why: str) -> None:
        """End the answer within one step, also while it waits or reads its prompt.  May be called from any thread."""
        self.why = why
        self._mailbox.open()
        answer = self.answer
        if answer is not None:
            answer.cancel()

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, see :class:`edge.session.answer.Answer`; "tool_calls" if it called functions."""
        if self.answer is None:
            return self.why
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
        """Whether nobody waits for it any more."""
        return self.why == "cancelled"

    def touch(self) -> None:
        """A sign of life, while nothing is put."""
        self.touched = time.monotonic()

    def put(self, event: Any) -> None:
        """Add a piece, an error, or None for the end; may be called from any thread."""
        self.touch()
        if not self._mailbox.put(self._index, event):
            self.end("cancelled")
        self.touch()


class Job:
    """A call and the tickets of its choices.  Made in the event loop that reads it.

    ``patience``: seconds that an answer waits for a slow reader before it is ended; None: without limit.
    """

    def __init__(self, call: Call, places: Sequence[Place], patience: float | None = PATIENCE) -> None:
        self.call = call
        mailbox = Mailbox(asyncio.get_running_loop(), patience)
        self.tickets = [Ticket(call, place, mailbox, i) for i, place in enumerate(places)]
        self._mailbox = mailbox

    def interrupted(self) -> str | None:
        """The reason why it ended before it was prepared; None if it goes on."""
        return self.tickets[0].why

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


class Seat:
    """A session, its thread, and the ticket that it answers.  ``next``: the tickets that are sent here."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.used = 0.0  # when it was last free
        self.key: str | None = None
        self.ticket: Ticket | None = None
        self.next: SimpleQueue[Ticket | None] = SimpleQueue()


class Conversations:
    """The calls of a service.

    ``parallel``: number of answers at the same time, and of conversations in memory.  ``queue``: number of answers that
    may wait.  ``folder``: where conversations that leave memory are saved, at most ``folder_bytes`` of them.
    """

    def __init__(
        self, engine: Engine, parallel: int, queue: int, folder: str | None = None, folder_bytes: int = 1 << 30
    ) -> None:
        most = None if engine.plan.room else engine.plan.kv_total  # None: as the pool of pages allows
        engine.store.share(most, folder, folder_bytes, conversations=True)
        engine.admission.limit(parallel, queue)
        self._seen: dict[int, tuple[Ticket, float, int]] = {}  # seat -> what :meth:`alive` saw there
        self.engine = engine
        self.served = self.refused = self.cancelled = self.failed = 0
        self.prompt_tokens = self.cached_tokens = self.answer_tokens = 0
        self._admission = engine.admission  # its lock is that of all books here
        self._seats = [Seat(engine.session(system="")) for _ in range(parallel)]
        self._open: set[Ticket] = set()  # of calls that are not over
        self._closing = False
        # one thread: the tokens of a long text take many times its memory
        self._preparing = ThreadPoolExecutor(1, "preparing")
        with starting():
            self._preparing.submit(int)
        self._threads = [
            threading.Thread(target=self._work, args=(seat,), name=f"answers {i}", daemon=True)
            for i, seat in enumerate(self._seats)
        ]
        for thread in self._threads:
            start(thread)

    # ---- the service's side -----------------------------------------------------------------------------------------

    def enter(self, call: Call, patience: float | None = PATIENCE) -> Job:
        """Give a call a place in the line for each of its answers, before any work is done for it; then
        :meth:`begin`.

        Raises Busy if the line is full, UsageError if it is never long enough, Refusal (503) if the service ends.
        """
        with self._admission.lock:
            if self._closing:
                raise Refusal(503, "the server is shutting down", "shutting_down", retry_after=5)
            try:
                places = self._admission.enter(call.n_choices, lambda free: self._best(free, call))
            except Busy:
                self.refused += 1
                raise
            job = Job(call, places, patience)
            self._open.update(job.tickets)
        return job

    async def begin(self, job: Job) -> None:
        """Prepare a call that has entered; its answers begin when their places are granted.

        Raises Refusal or EdgeError for a call that cannot be answered; it has left the line then.
        """

        def prepare() -> list[Prepared]:
            with interruptible(job.interrupted):
                return job.call.prepare(self.engine)

        try:
            prepared = await asyncio.get_running_loop().run_in_executor(self._preparing, prepare)
        except Interrupted:  # withdrawn meanwhile
            return
        except BaseException:
            self.withdraw(job, "refused")
            raise
        with self._admission.lock:
            for ticket, one in zip(job.tickets, prepared, strict=True):
                if ticket.open:
                    ticket.prepared = one
                    self._admission.when_granted(ticket.place, partial(self._send, ticket))

    def _send(self, ticket: Ticket) -> None:
        """Have a ticket answered at the seat of its place.  Requires the lock."""
        assert ticket.place.number is not None
        ticket.open = False
        self._seats[ticket.place.number].next.put(ticket)

    def withdraw(self, job: Job, why: str = "cancelled") -> bool:
        """End the answers of a call: those that are not at a seat at once, those that run within a step.  ``why``:
        "cancelled": nobody waits for them any more; "timeout": their deadline has passed.

        Returns whether none has begun.
        """
        begun = False
        for ticket in job.tickets:
            with self._admission.lock:
                waits, ticket.open = ticket.open, False
                if waits:
                    self._over(ticket, why)
            if waits or why == "cancelled":
                ticket.end(why)  # the deadline of an answer that runs ends it by itself
            if waits:
                ticket.put(None)
            begun |= not waits
        return not begun

    def _over(self, ticket: Ticket, why: str | None) -> None:
        """A ticket leaves.  Requires the lock."""
        self.cancelled += why == "cancelled"
        self.served += why in (None, "timeout")
        self._open.discard(ticket)
        self._admission.leave(ticket.place)

    def forget(self, key: str) -> None:
        """Do not continue the last conversation of this client."""
        with self._admission.lock:
            for seat in self._seats:
                if seat.key == key and seat.ticket is None:
                    seat.session.clear()

    def warm(self, system: str | None) -> None:
        """Read the system prompt, with which conversations begin; this also reads every weight once.  Blocks."""
        session = self._seats[0].session
        session.system = system
        session.warm()

    def alive(self) -> bool:
        """Whether every running answer has made progress since the last call; True if none runs."""
        running = [(i, seat, ticket) for i, seat in enumerate(self._seats) if (ticket := seat.ticket) is not None]
        seen = {i: (ticket, ticket.touched, seat.session.n_tokens) for i, seat, ticket in running}
        stuck = any(self._seen.get(i) == found for i, found in seen.items())
        self._seen = seen
        return not stuck

    def state(self) -> dict[str, Any]:
        """Counts for ``/health`` and ``/metrics``."""
        with self._admission.lock:
            return {
                "running": self._admission.running,
                "waiting": self._admission.waiting,
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
            return f"{len(dead)} of {len(self._seats)} answering threads have ended"
        for seat in self._seats:
            ticket = seat.ticket
            if ticket is not None and now - ticket.touched > STUCK:
                return f"an answer has made no progress for {now - ticket.touched:.0f} seconds"
        return None

    def close(self) -> None:
        """End all answers, save the conversations, free the memory.  Blocks for some seconds at most."""
        with self._admission.lock:
            self._closing = True
            tickets = list(self._open)
            waiting = [ticket for ticket in tickets if ticket.open]
            for ticket in waiting:
                ticket.open = False
                self._over(ticket, "cancelled")
        for ticket in tickets:
            ticket.end("cancelled")
        for ticket in waiting:
            ticket.put(None)
        for seat in self._seats:
            seat.next.put(None)
        self._preparing.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads:
            thread.join(timeout=10)
        for seat in self._seats:
            if seat.ticket is None:
                seat.session.set_aside()
                seat.session.close()

    # ---- the threads that answer ------------------------------------------------------------------------------------

    def _work(self, seat: Seat) -> None:
        while (ticket := seat.next.get()) is not None:
            last: Exception | None = None
            seat.ticket = ticket
            try:
                if ticket.why is None:
                    self._answer(seat, ticket)
            except EdgeError as error:
                last = error
            except Exception as error:  # a bug: this conversation fails, the service goes on with a new session
                last = error
                seat.session.close()
                seat.session = self.engine.session(system="")
            finally:
                with self._admission.lock:
                    seat.ticket, seat.used = None, time.monotonic()
                    self.failed += last is not None and not isinstance(last, EdgeError)
                    self._over(ticket, "cancelled" if ticket.cancelled else None)
            ticket.put(last)
            del ticket, last

    def _best(self, free: Sequence[int], call: Call) -> int:
        """The free seat that fits a call best: that holds most of its messages, then the client's own, then the one
        that was unused for longest.
        """

        def fits(number: int) -> tuple[int, bool, float]:
            seat = self._seats[number]
            held = seat.session.messages
            common = common_messages(held, call.messages or [])
            return common if common == len(held) else 0, call.key is not None and call.key == seat.key, -seat.used

        return max(free, key=fits)

    def _answer(self, seat: Seat, ticket: Ticket) -> None:
        call, session, prepared = ticket.call, seat.session, ticket.prepared
        assert prepared is not None
        messages = prepared.messages
        if messages is not None and common_messages(session.messages, messages) < len(session.messages):
            session.set_aside()  # another conversation takes the seat
        seat.key = call.key

        def reading(*counts: int) -> None:
            ticket.touch()
            if call.progress:
                ticket.put(Prefill(*counts))

        more: dict[str, Any] = {"on_prefill": reading}
        if call.deadline is not None:
            more["timeout"] = max(call.deadline - time.monotonic(), 1e-3)
        answer = session.answer(prepared.changed(**more), ticket.place)
        reader = None if answer.form is None else answer.form.reader()
        with answer, interruptible(ticket.touch):  # a long prompt takes long before anything of it is read
            ticket.answer = answer
            if ticket.cancelled:
                answer.cancel()
            for piece in answer:
                if reader is not None and not piece.thought:
                    piece = piece._replace(text=reader.feed(piece.text))
                ticket.put(piece)
        if messages is not None and session.known < len(messages) - 1:
            ticket.broke = session.known
        ticket.evicted, ticket.offload_error = session.evicted, session.offload_error
        if reader is not None:
            if rest := reader.flush():
                ticket.put(Piece(rest, ()))
            said = session.messages[-1] if session.messages else {}  # with the ids that the client will repeat
            ticket.calls = said.get("tool_calls") or []
        with self._admission.lock:
            self.prompt_tokens += answer.usage.prompt
            self.cached_tokens += answer.usage.cached
            self.answer_tokens += answer.usage.completion
