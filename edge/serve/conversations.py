"""Conversations: the KV states of a service, and its calls from their arrival to their last event.

Clients send the whole conversation with every call.  A call enters the line of the engine before any work is done for
it, is prepared in a thread, and is answered when its turn comes in one of the states here: the free one whose tokens it
continues, else the one used longest ago.  The conversation that was there goes to the engine's store
(edge/cache/store.py), where its next request finds it.  There are as many states as contexts are planned, and the plan
has memory for SPARE_CONTEXTS more if that is free, so the memory plan holds whatever clients do.

The engine's thread writes the answers (edge/session/scheduler.py), and chooses their states.  In a kiosk another thread
forgets what was not used for a while: idle states and entries of the store, both under the locks of their owners.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from edge.aio import Bell, in_thread
from edge.cache.state import common
from edge.errors import Busy, EdgeError
from edge.prompt.interrupt import Interrupted
from edge.serve.calls import Call, stopping
from edge.session.generation import read, reply
from edge.session.outcome import Outcome
from edge.session.scheduler import ALL, END, Job, Scheduler
from edge.session.stream import Piece
from edge.threads import start
from pyx.machine import trim

if TYPE_CHECKING:
    from edge.cache.folder import Folder
    from edge.cache.state import KVState
    from edge.engine import Engine
    from edge.session.answer_options import PreparedCall
    from edge.session.scheduler import Work

GATHER = 0.002  # seconds in which what is written goes to its reader together
MOST_UNREAD = 4096  # events of a call that may wait for their reader
PATIENCE = 60.0  # seconds for a reader that takes nothing; then the answer ends
STUCK = 120.0  # seconds without a sign of life of an answer after which the service reports itself as unhealthy
BROKEN = 3  # answers in a row that failed with an internal error, after which it does, too
CLOSE_SECONDS = 10.0  # for the running answers to end
LOOK = 0.01  # seconds between two looks at whether they have
FORGETS = 1.0  # seconds between two looks at what is to be forgotten


class PendingAnswer:
    """One answer that a call asks for: in the line, being written, or over.

    ``job``: its place in the line, and its pieces.  ``prepared``: the call that is answered; known when it may have its
    turn.  ``outcome``: what is known of its answer.
    """

    def __init__(self, call: Call, work: Callable[[PendingAnswer], Work], patience: float | None) -> None:
        self.call = call
        self.prepared: PreparedCall | None = None
        self.outcome = Outcome()
        self.calls: list[dict[str, Any]] = []  # of functions, in OpenAI's form; known when the answer has ended
        self.why: str | None = None  # it ended early, as a finish reason
        self.job = Job(self.outcome, work(self), call.partial, patience)
        self._text: Any = None  # reads the text without calls of functions

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, see :class:`edge.session.answer.Answer`; "tool_calls" if it called functions."""
        return "tool_calls" if self.calls else self.outcome.finish_reason or self.why

    def read(self) -> list[Any]:
        """The pieces said since the last time, and at the end None.  Raises its error."""
        if self._text is None and self.outcome.form is not None:
            self._text = self.outcome.form.reader()
        found: list[Any] = []
        for _ in range(self.job.pieces.qsize()):
            item = self.job.pieces.get_nowait()
            if item is END:
                if (error := self.job.failure()) is not None:
                    if not isinstance(error, Exception):  # it ends the answer, not the event loop
                        error = RuntimeError(f"{type(error).__name__}: {error}")
                    try:
                        raise error
                    finally:  # its traceback holds this frame
                        del error
                if self._text is not None and (rest := self._text.flush()):
                    found.append(Piece(rest, ()))
                item = None
            elif self._text is not None and type(item) is Piece and not item.thought:
                item = item._replace(text=self._text.feed(item.text))
            found.append(item)
        return found


class PendingCall:
    """A call and its answers, one for each choice.  Made in the event loop that reads it."""

    def __init__(self, call: Call, answers: Sequence[PendingAnswer], scheduler: Scheduler) -> None:
        self.call = call
        self.answers = answers
        self._scheduler = scheduler
        self._bell = Bell()
        for each in answers:
            each.job.told = self._bell

    def stop(self, why: str) -> None:
        """End the answers within one step, also while they wait or read their prompts.  From any thread."""
        for each in self.answers:
            each.why, each.outcome.cancelled = why, True
            self._scheduler.post(each.job, ALL)

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
                await self._bell.wait()
                latest = time.monotonic()
                batch: list[tuple[int, Any]] = []
                for i, each in enumerate(self.answers):
                    found = each.read()
                    batch += [(i, event) for event in found]
                    left -= None in found
                    self._scheduler.post(each.job, len(found))
                if batch:
                    yield batch
        finally:
            if left:  # nobody reads the others any more
                self.stop("cancelled")


class Conversations:
    """The calls of a service.

    ``parallel``: number of answers at the same time, and of ``states``, the conversations in memory.  ``queue``: number
    of answers that may wait.  ``folder``: where conversations that leave memory are saved.  ``reads_ahead``: questions
    that are still being written are read.
    """

    def __init__(
        self, engine: Engine, parallel: int, queue: int, folder: Folder | None = None, reads_ahead: bool = True,
    ) -> None:
        most = None if engine.plan.room else engine.plan.kv_total  # None: as the pool of pages allows
        engine.store.share(most)
        if folder is not None:
            engine.store.remember(folder)
        engine.scheduler.limit(parallel, queue)
        self.engine = engine
        self._counts = dict.fromkeys(
            ("served", "refused", "cancelled", "failed", "prompt_tokens", "cached_tokens", "answer_tokens"), 0)
        self._scheduler = engine.scheduler
        self.states = [engine.space.new_state() for _ in range(parallel)]
        self._calls: weakref.WeakSet[PendingCall] = weakref.WeakSet()
        self._preparer = ThreadPoolExecutor(1, "prepares")  # one call after the other: there is memory for so much
        self._closing = threading.Event()
        self._beginning = array("i")  # of all conversations: the system prompt
        self._forgetter: threading.Thread | None = None
        self._failing = 0  # answers in a row
        self._reads_ahead = reads_ahead

    # ---- the service's side -----------------------------------------------------------------------------------------

    async def submit(self, call: Call, patience: float = PATIENCE) -> PendingCall:
        """Give a call a place in the line for each of its answers, before any work is done for it; then have it
        prepared in a thread, and answered at its turn.  ``patience``: seconds that an answer waits for a slow reader
        before it ends.

        A partial one runs only while nothing else runs or waits, else it is over at once; what comes next ends it
        within a step, and then runs.

        Raises what is wrong with it, Busy if the line is full, UsageError if it is never long enough, and Refusal (503)
        if the service ends.
        """
        if self._closing.is_set():
            raise stopping()
        pending = PendingCall(
            call, [PendingAnswer(call, self._work, patience) for _ in range(call.n_choices)], self._scheduler)
        try:
            if call.partial and not self._reads_ahead:
                raise Busy("nothing is read ahead here")
            self._scheduler.enter(*(each.job for each in pending.answers))
        except Busy:
            if call.partial:
                pending.answers[0].outcome.finish_reason = "length"  # nothing is read
                pending.answers[0].job.end()
                return pending
            self._counts["refused"] += 1
            raise
        self._calls.add(pending)
        try:
            with suppress(Interrupted):  # withdrawn meanwhile
                found = await in_thread(call.prepare, self.engine, lambda: pending.answers[0].why, pool=self._preparer)
                for one, prepared in zip(pending.answers, found):
                    one.prepared = prepared
            self._submit(pending)
        except BaseException as error:
            pending.stop("refused")
            self._submit(pending)  # to leave the line
            if isinstance(error, Exception):
                async for _ in pending.batches():
                    pass
            raise
        return pending

    def warm(self, system: str | None) -> None:
        """Read the system prompt, with which conversations begin; this also reads every weight once.  Blocks."""
        self.engine.session(system or "", (), self.states[0]).warm()
        self._beginning = self.states[0].tokens[:]

    def forget_after(self, seconds: float) -> None:
        """From now on, forget each conversation so many seconds after its last use."""
        self._forgetter = threading.Thread(target=self._forget, args=(seconds,), name="forgetting", daemon=True)
        start(self._forgetter)

    def state(self) -> dict[str, Any]:
        """Counts for ``/health`` and ``/metrics``."""
        return {"running": self._scheduler.running, "waiting": self._scheduler.waiting, **self._counts}

    def trouble(self) -> str | None:
        """The reason why no answers are made although requests wait; None if all is well."""
        if (silent := self._scheduler.silent) > STUCK:
            return f"an answer has made no progress for {silent:.0f} seconds"
        if self._failing >= BROKEN:
            return f"the last {self._failing} answers failed with internal errors"
        if self._forgetter is not None and not self._forgetter.is_alive() and not self._closing.is_set():
            return "conversations are no longer forgotten"
        return None

    def stop(self) -> None:
        """Begin to end: refuse what comes and what waits, and cancel what is written."""
        self._closing.set()
        for each in list(self._calls):
            each.stop("cancelled")

    def close(self) -> None:
        """End all answers, save the conversations, free the memory.  Blocks for some seconds at most."""
        self.stop()
        end = time.monotonic() + CLOSE_SECONDS
        while (self._scheduler.running or self._scheduler.waiting) and time.monotonic() < end:
            time.sleep(LOOK)
        for state in self.states:
            if not state.busy:
                if state.asked:
                    self.engine.store.set_aside(state)
                self.engine.space.free(state)
        self._preparer.shutdown(wait=False)

    # ---- in other threads --------------------------------------------------------------------------------------------

    def _submit(self, pending: PendingCall) -> None:
        for one in pending.answers:
            self._scheduler.submit(one.job, max(1, MOST_UNREAD // len(pending.answers)))

    def _work(self, pending: PendingAnswer) -> Work:
        """The work for an answer, in the engine's thread from its turn on."""
        state: KVState | None = None
        error: BaseException | None = None
        try:
            yield None
            if self._closing.is_set():
                raise stopping()
            if pending.why is None and pending.prepared is not None:
                call, outcome = self.engine.preparer.encoded(pending.prepared), pending.outcome
                outcome.spec, outcome.form = call.options.spec, call.options.form
                ids = call.ids or array("i")
                free = [each for each in self.states if not each.busy]
                state = max(free, key=lambda each: (each.continued_by(ids), -each.used))
                self.engine.space.take(state)
                yield from reply(self.engine.preparer, self.engine.store, state, call, outcome)
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._ended(pending, state, error)
            del error  # its traceback holds this frame

    def _ended(self, pending: PendingAnswer, state: KVState | None, error: BaseException | None) -> None:
        """An answer is over."""
        outcome, counts = pending.outcome, self._counts
        cancelled = pending.why == "cancelled" or outcome.finish_reason == "cancelled"
        if state is not None:
            bug = error is not None and not isinstance(error, (EdgeError, GeneratorExit))
            if error is None:
                if outcome.form is not None:
                    pending.calls = outcome.form.split(outcome.said.decode())[1]
                counts["prompt_tokens"] += outcome.usage.prompt
                counts["cached_tokens"] += outcome.usage.cached
                counts["answer_tokens"] += outcome.usage.completion
            elif bug:  # this conversation fails, the service goes on
                self.engine.space.free(state)
            counts["failed"] += bug
            self._failing = self._failing + 1 if bug else 0
            self.engine.space.release(state)
            self.engine.store.flush()
        if not pending.call.partial:
            counts["cancelled"] += cancelled
            counts["served"] += not cancelled and pending.why != "refused"

    # ---- forgetting -------------------------------------------------------------------------------------------------

    def _forget(self, seconds: float) -> None:
        """Forget what was not used for so long, until the service ends; in a thread of its own."""
        space, scheduler, forgotten = self.engine.space, self._scheduler, False
        while not self._closing.wait(FORGETS):
            before = time.monotonic() - seconds
            forgotten |= self.engine.store.forget(before)
            for state in self.states:
                if common(state.tokens, self._beginning) < len(state.tokens):
                    forgotten |= space.forget(state, before)
            if forgotten and not (scheduler.running or scheduler.waiting):
                forgotten = False
                trim()  # so that the system clears what was freed
                with suppress(EdgeError):
                    outcome = Outcome()
                    scheduler.begin(Job(outcome, self._begin_again(outcome), ahead=True), ALL)

    def _begin_again(self, outcome: Outcome) -> Work:
        """Have a state that was forgotten hold the beginning again: the next visitor need not wait for it, although the
        store may have dropped it.  In the engine's thread.
        """
        yield None
        engine, ids = self.engine, self._beginning
        state = next((each for each in self.states if not each.busy and not each.tokens), None)
        if state is not None:
            engine.space.take(state)
            try:
                yield from read(engine.plan, engine.store, state, ids, outcome, len(ids), stop=self._closing.is_set)
            finally:
                engine.space.release(state)
                engine.store.flush()
