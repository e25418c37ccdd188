"""Conversations: the sessions of a service, and its calls from their arrival to their last event.

Clients send the whole conversation with every call.  A call enters the line (edge/session/admission.py) before any work
is done for it, is prepared meanwhile, and is answered in its slot, which has a session with its KV cache: the free one
whose conversation it continues, else an unused one, else the least recently used.  The conversation that was there
goes to the engine's store (edge/cache/store.py), where its next request finds it.  There are as many slots as contexts
are planned, and the plan has memory for SPARE_CONTEXTS more if that is free, so the memory plan holds whatever clients
do.

Nothing here has a thread: the two of the scheduler (edge/session/scheduler.py) prepare calls and write answers, and an
inbox (edge/aio.py) brings the events to the event loop of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.aio import Inbox
from edge.cache.folder import Folder
from edge.errors import Busy, EdgeError
from edge.prompt.interrupt import Interrupted, check_interrupted, interruptible
from edge.serve.calls import Call, stopping
from edge.session.admission import Slot
from edge.session.answer import Outcome
from edge.session.answer_options import certain
from edge.session.prompting import common_messages
from edge.session.scheduler import Running, Scheduler
from edge.session.stream import Piece

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.answer import Answer
    from edge.session.answer_options import PreparedCall
    from edge.session.session import Session

SPARE_CONTEXTS = 8  # contexts' worth of memory, at most, for conversations that wait
GATHER = 0.002  # seconds in which what is written goes to its reader together
MOST_UNREAD = 4096  # events that may wait for their reader
PATIENCE = 60.0  # seconds for a reader that takes nothing; then the answer ends
STUCK = 120.0  # seconds without a sign of life of an answer after which the service reports itself as unhealthy
BROKEN = 3  # answers in a row that failed with an internal error, after which it does, too
CLOSE_SECONDS = 10.0  # for the running answers to end


class Prefill(NamedTuple):
    """How far a prompt has been read, in tokens."""

    done: int
    total: int
    cached: int


class PendingAnswer:
    """One answer that a call asks for: in the line, being prepared, being written, or over.  The scheduler passes it
    its pieces.

    ``slot``: where it is in the line, or among those that run.  ``prepared``: what a session answers; known when it has
    begun.  ``outcome``: what is known of its answer.  ``evicted``: tokens that the session no longer sees at the end.
    ``offload_error``: the reason why pages that left the window can no longer be stored.
    """

    def __init__(
        self, call: Call, slot: Slot, inbox: Inbox, index: int, scheduler: Scheduler,
        on_end: Callable[[PendingAnswer, BaseException | None], None],
    ) -> None:
        self.call = call
        self.slot = slot
        self.prepared: PreparedCall | None = None
        self.open = True  # neither in a session nor over
        self.over = threading.Event()
        self.evicted = 0
        self.offload_error: str | None = None
        self.outcome = Outcome()
        self.calls: list[dict[str, Any]] = []  # of functions, in OpenAI's form; known when the answer has ended
        self.touched = time.monotonic()  # the last sign of life
        self.why: str | None = None  # it ended early, as a finish reason
        self._inbox = inbox
        self._index = index  # among those of the call
        self._scheduler = scheduler
        self._on_end = on_end
        self._running: Running | None = None
        self._text: Any = None  # reads the text without calls of functions

    def begin(self, answer: Answer) -> None:
        """Have the answer written."""
        self.outcome = answer.outcome
        self._text = None if answer.form is None else answer.form.reader()
        self._running = running = Running(answer.work, self)
        if self.cancelled:
            answer.cancel()
        self._scheduler.begin(running)

    def stop(self, why: str) -> None:
        """End the answer within one step, also while it waits or reads its prompt.  May be called from any thread."""
        self.why = why
        self._inbox.open()
        self.outcome.cancelled = True
        self.go_on()

    def go_on(self) -> None:
        """There is room for more pieces."""
        if self._running is not None:
            self._scheduler.go_on(self._running)

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, see :class:`edge.session.answer.Answer`; "tool_calls" if it called functions."""
        return "tool_calls" if self.calls else self.outcome.finish_reason or self.why

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.why == "cancelled"

    def touch(self) -> None:
        """A sign of life."""
        self.touched = time.monotonic()

    def post(self, event: Any) -> bool:
        """Pass the reader a piece, an error, or None for the end.  Returns whether there is room for more."""
        self.touch()
        return self._inbox.put((self._index, event))

    def put(self, piece: Piece) -> bool:
        """Called by the scheduler."""
        if self._text is not None and not piece.thought:
            piece = piece._replace(text=self._text.feed(piece.text))
        return self.post(piece)

    def end(self, error: BaseException | None, _value: Any = None) -> None:
        """Called by the scheduler."""
        if self._text is not None and error is None and (rest := self._text.flush()):
            self.post(Piece(rest, ()))
        self._running = None  # which holds this, and the request
        self._on_end(self, error)


class PendingCall:
    """A call and its answers, one for each choice.  Made in the event loop that reads it."""

    def __init__(
        self, call: Call, slots: Sequence[Slot], patience: float | None, scheduler: Scheduler,
        on_end: Callable[[PendingAnswer, BaseException | None], None],
    ) -> None:
        self.call = call
        self._prepared: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._inbox = Inbox(MOST_UNREAD, self._go_on, partial(self._stop, "cancelled"), patience)
        self.answers = [
            PendingAnswer(call, slot, self._inbox, i, scheduler, on_end) for i, slot in enumerate(slots)]

    def _go_on(self) -> None:
        for each in self.answers:
            each.go_on()

    def _stop(self, why: str) -> None:
        for each in self.answers:
            each.stop(why)

    def interrupted(self) -> str | None:
        """The reason why it ended before it was prepared; None if it goes on."""
        return self.answers[0].why

    def is_prepared(self, error: BaseException | None) -> None:
        """Called in the thread that prepares; ``error``: why the call cannot be answered."""
        prepared = self._prepared

        def settle() -> None:
            if not prepared.done():
                prepared.set_result(error)

        with contextlib.suppress(RuntimeError):  # the loop is closed: the service ends
            prepared.get_loop().call_soon_threadsafe(settle)

    async def accepted(self) -> None:
        """Wait until the call is prepared.  Raises what is wrong with it; it has left the line then."""
        error = await self._prepared
        if error is not None:
            try:
                del self._prepared
                raise error
            finally:  # its traceback holds this frame: the request would stay in memory with it
                self._inbox.close()
                del error

    async def batches(self) -> AsyncIterator[list[tuple[int, Any]]]:
        """The new events, as (number of the choice, piece or None at its end), until all choices have ended.

        A reader gets them at most once in GATHER seconds, because a small model writes a token in less time than the
        event loop needs for one.  Raises what an answer raised.
        """
        left, latest = len(self.answers), 0.0
        try:
            while left:
                if (early := latest + GATHER - time.monotonic()) > 0:
                    await asyncio.sleep(early)
                batch = await self._inbox.take()
                latest = time.monotonic()
                for _, event in batch:
                    if isinstance(event, BaseException):
                        try:
                            raise event
                        finally:  # its traceback holds this frame: the request would stay in memory with it
                            del event, batch, _
                    left -= event is None
                yield batch
        finally:
            self._inbox.close()

    async def pieces(self) -> AsyncIterator[Piece]:
        """The pieces of the only choice."""
        async for batch in self.batches():
            for _, piece in batch:
                if piece is not None:
                    yield piece


class SlotSession:
    """The session of a slot, and the answer that is written in it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.used = 0.0  # when it was last free
        self.key: str | None = None
        self.typed = ""  # the beginning of a question that was read ahead last
        self.pending: PendingAnswer | None = None


class Conversations:
    """The calls of a service.

    ``parallel``: number of answers at the same time, and of conversations in memory.  ``queue``: number of answers that
    may wait.  ``folder``: where conversations that leave memory are saved.  ``reads_ahead``: whether
    questions are read that are still being written.
    """

    def __init__(
        self, engine: Engine, parallel: int, queue: int, folder: Folder | None = None, reads_ahead: bool = True,
    ) -> None:
        most = None if engine.plan.room else engine.plan.kv_total  # None: as the pool of pages allows
        engine.store.share(most, folder)
        engine.admission.limit(parallel, queue)
        self.engine = engine
        self._counts = dict.fromkeys(
            ("served", "refused", "cancelled", "failed", "prompt_tokens", "cached_tokens", "answer_tokens"), 0)
        self._admission = engine.admission  # its lock is that of all books here
        self._scheduler = engine.scheduler
        self._sessions = [SlotSession(engine.session(system="")) for _ in range(parallel)]
        self._open: set[PendingAnswer] = set()  # of calls that are not over
        self._closing = False
        self._failing = 0  # answers in a row
        self._reads_ahead = reads_ahead
        self._scheduler.keep_threads(True)

    # ---- the service's side -----------------------------------------------------------------------------------------

    def submit(self, call: Call, patience: float | None = PATIENCE) -> PendingCall:
        """Give a call a slot for each of its answers, before any work is done for it, and have it prepared and
        answered.  ``patience``: seconds that an answer waits for a slow reader before it is ended; None: without limit.

        A partial one runs only while nothing else runs or waits, else it is over at once; what comes next ends it
        within a step, and then runs.

        Raises Busy if the line is full, UsageError if it is never long enough, Refusal (503) if the service ends.
        """
        with self._admission.lock:
            if self._closing:
                raise stopping()
            pending: PendingCall
            stop = (lambda: self.withdraw(pending)) if call.partial else None  # called with the lock held
            try:
                if call.partial and not self._reads_ahead:
                    raise Busy("nothing is read ahead here")
                slots = self._admission.enter(call.n_choices, lambda free: self._best(free, call), stop)
            except Busy:
                if call.partial:
                    return self._dropped(call)
                self._counts["refused"] += 1
                raise
            pending = PendingCall(call, slots, patience, self._scheduler, self._ended)
            self._open.update(pending.answers)
        self._scheduler.prepare(partial(self._prepare, pending))
        return pending

    def _dropped(self, call: Call) -> PendingCall:
        """A partial call that is over, and of which nothing was read."""
        pending = PendingCall(call, [Slot(None, 0, 0.0)], None, self._scheduler, self._ended)
        (one,) = pending.answers
        one.open, one.outcome.finish_reason = False, "length"
        pending.is_prepared(None)
        one.post(None)
        return pending

    def withdraw(self, call: PendingCall, why: str = "cancelled") -> bool:
        """End the answers of a call: those that have not begun at once, those that run within a step.  ``why``:
        "cancelled": nobody waits for them any more; "timeout": their deadline has passed.

        Returns whether none has begun.
        """
        begun = False
        for each in call.answers:
            with self._admission.lock:
                waits, each.open = each.open, False
                if waits:
                    self._over(each, why)
            if waits or why == "cancelled":
                each.stop(why)  # the deadline of an answer that runs ends it by itself
            if waits:
                each.post(None)
            begun |= not waits
        return not begun

    def _over(self, pending: PendingAnswer, why: str | None) -> None:
        """An answer leaves.  Requires the lock."""
        if not pending.call.partial:
            self._counts["cancelled"] += why == "cancelled"
            self._counts["served"] += why in (None, "timeout")
        self._open.discard(pending)
        self._admission.leave(pending.slot)
        pending.over.set()

    def forget(self, key: str) -> None:
        """Do not continue the last conversation of this client."""
        with self._admission.lock:
            for each in self._sessions:
                if each.key == key and each.pending is None:
                    each.session.clear()

    def warm(self, system: str | None) -> None:
        """Read the system prompt, with which conversations begin; this also reads every weight once.  Blocks."""
        session = self._sessions[0].session
        session.system = system
        session.warm()

    def state(self) -> dict[str, Any]:
        """Counts for ``/health`` and ``/metrics``."""
        with self._admission.lock:
            return {
                "running": self._admission.running,
                "waiting": self._admission.waiting,
                **self._counts,
            }

    def trouble(self) -> str | None:
        """The reason why no answers are made although requests wait; None if all is well."""
        now = time.monotonic()
        for each in self._sessions:
            pending = each.pending
            if pending is not None and now - pending.touched > STUCK:
                return f"an answer has made no progress for {now - pending.touched:.0f} seconds"
        if self._failing >= BROKEN:
            return f"the last {self._failing} answers failed with internal errors"
        return None

    def stop(self) -> list[PendingAnswer]:
        """Begin to end: refuse what comes and what waits, and cancel what is written.  Returns what is not over."""
        with self._admission.lock:
            self._closing = True
            pending = list(self._open)
            waiting = [each for each in pending if each.open]
            for each in waiting:
                each.open = False
                self._over(each, "cancelled")
        for each in pending:
            each.stop("cancelled")
        for each in waiting:
            each.post(stopping())
        return pending

    def close(self) -> None:
        """End all answers, save the conversations, free the memory.  Blocks for some seconds at most."""
        pending = self.stop()
        end = time.monotonic() + CLOSE_SECONDS
        for each in pending:
            each.over.wait(max(0.0, end - time.monotonic()))
        for slot in self._sessions:
            if slot.pending is None:
                slot.session.set_aside()
                slot.session.close()
        self._scheduler.keep_threads(False)

    # ---- in the threads of the scheduler ----------------------------------------------------------------------------

    def _prepare(self, call: PendingCall) -> None:
        """Prepare a call that has entered; its answers begin when their slots are granted."""
        prepared: list[PreparedCall] = []
        error: BaseException | None = None
        try:
            with interruptible(call.interrupted):
                check_interrupted()  # withdrawn before it came here
                prepared = call.call.prepare(self.engine)
        except Interrupted:
            pass
        except BaseException as failure:
            self.withdraw(call, "refused")
            error = failure
        call.is_prepared(error)
        del error
        granted = []
        with self._admission.lock:
            for pending, one in zip(call.answers, prepared):
                pending.prepared = one
                if pending.slot.granted:
                    granted.append(pending)
                elif pending.open:
                    begin = partial(self._begin, pending)
                    self._admission.when_granted(pending.slot, partial(self._scheduler.prepare, begin))
        for pending in granted:
            self._begin(pending)

    def _best(self, free: Sequence[int], call: Call) -> int:
        """The free slot whose session fits a call best: that holds most of its messages, then that has read its
        question ahead, then the client's own, then the one that was unused for longest.
        """

        def fits(number: int) -> tuple[int, bool, bool, float]:
            slot = self._sessions[number]
            held, messages = slot.session.messages, call.messages or []
            common = common_messages(held, messages)
            typed = slot.typed and common == len(held) < len(messages) and messages[common]["content"].startswith(
                slot.typed)
            own = call.key is not None and call.key == slot.key
            return common if common == len(held) else 0, bool(typed), own, -slot.used

        return max(free, key=fits)

    def _begin(self, pending: PendingAnswer) -> None:
        """Have an answer written whose slot was granted."""
        with self._admission.lock:
            if not pending.open:
                return
            pending.open = False
            assert pending.slot.number is not None and pending.prepared is not None
            slot = self._sessions[pending.slot.number]
            slot.pending = pending
        call, session, messages = pending.call, slot.session, pending.prepared.messages

        def reading(*counts: int) -> None:
            pending.touch()
            if call.progress:
                pending.post(Prefill(*counts))

        try:
            with interruptible(pending.touch):  # a long prompt takes long before anything of it is read
                if (
                    messages is not None and common_messages(session.messages, messages) < len(session.messages)
                    and not (call.partial and self.engine.plan.overflow != "stop")  # see Session._read_ahead
                ):
                    session.set_aside()  # another conversation takes the slot
                slot.key = call.key
                slot.typed = certain(call.messages[-1]["content"]) if call.partial and call.messages else ""
                more: dict[str, Any] = {"on_prefill": reading}
                if call.deadline is not None:
                    more["timeout"] = max(call.deadline - time.monotonic(), 1e-3)
                pending.begin(session.answer(pending.prepared.changed(**more), pending.slot))
        except BaseException as error:
            pending.end(error)

    def _ended(self, pending: PendingAnswer, error: BaseException | None) -> None:
        """An answer that had begun is over."""
        assert pending.slot.number is not None and pending.prepared is not None
        slot = self._sessions[pending.slot.number]
        session, usage = slot.session, pending.outcome.usage
        bug = error is not None and not isinstance(error, EdgeError)
        if error is None:
            pending.evicted, pending.offload_error = session.evicted, session.offload_error
            if pending.outcome.form is not None:
                said = session.messages[-1] if session.messages else {}  # with the ids that the client will repeat
                pending.calls = said.get("tool_calls") or []
        elif bug:  # this conversation fails, the service goes on with a new session
            session.close()
            slot.session = self.engine.session(system="")
        with self._admission.lock:
            slot.pending, slot.used = None, time.monotonic()
            if error is None:
                self._counts["prompt_tokens"] += usage.prompt
                self._counts["cached_tokens"] += usage.cached
                self._counts["answer_tokens"] += usage.completion
            self._counts["failed"] += bug
            self._failing = self._failing + 1 if bug else 0
            self._over(pending, "cancelled" if pending.cancelled else None)
        if error is not None and not isinstance(error, Exception):
            error = RuntimeError(f"{type(error).__name__}: {error}")  # it ends the answer, not the event loop
        pending.post(error)
