"""Scheduler: one thread of an engine steps all running answers.

A step reads the weights once, however many answers take part.  So a step evaluates everything that is ready: one token
(and what its form forces) for every answer that is being written, and as many tokens of prompts as do not delay these
answers much.

What is to be evaluated is a :class:`Job`: a generator that yields segments, and a queue of the pieces that it says.
Its caller prepares it (texts become tokens); then the engine's thread runs it, and callers only read the queue.

* As many jobs have a turn at the same time as contexts are planned; the others wait in the order in which they came.
* A reader says for how many pieces it has room.  A job whose reader has none stops after it has evaluated what it said
  last.  So a loop over an answer that is left and continued later, or ended, finds everything as it was.

The thread starts with the first job, and ends with the engine.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from edge.amounts import count
from edge.cache.state import Segment
from edge.errors import Busy, EdgeError, MemoryRefused, UsageError
from edge.model.model import Model
from edge.prompt.interrupt import interruptible
from edge.threads import is_forked, refuse_after_fork, start

if TYPE_CHECKING:
    from typing import TypeAlias

    from edge.session.outcome import Outcome

    #: yields the segments to evaluate, and before them None once: it is prepared, and waits for its turn
    Work: TypeAlias = Generator[Segment | None, None, None]

QUEUE = 64  # jobs that may wait for their turn
#: a step that reads prompts with tokens of answers takes at most this many times as long as one without prompts
MOST_SLOWED = 2.0
#: least rows of prompts in a step with tokens of answers; also used until their cost is known
LEAST_PROMPT = 4
ALL = 1 << 62  # room for every piece
LOOK = 0.05  # seconds between two looks at whether a job that waits was cancelled
LET_GO = 1.0  # seconds that a thread which drops an answer waits for its end
CLOSE_SECONDS = 5.0  # for the step that runs
END = object()  # the last item in the queue of a job


class Job:
    """An answer, or something else to evaluate, from its place in the line to its end.

    ``pieces``: what it says, then END.  ``error``: see :meth:`failure`.  ``told``: called
    by the engine's thread after each item, to wake a reader that does not wait for the queue itself; RuntimeError:
    there is none any more.  ``quiet``: only the end is put there.  ``ahead``: it reads what may be asked next, and
    gives way to everything else.  ``patience``: seconds without room after which it is cancelled; None: however long.
    ``position``: how many waited before it when it came.  ``expected``: the seconds until its turn, as estimated then.
    """

    def __init__(self, outcome: Outcome, work: Work, ahead: bool = False, patience: float | None = None) -> None:
        self.outcome = outcome
        self.work: Work | None = work  # once it is prepared, only for the engine's thread; None: it is over
        self.pieces: SimpleQueue[Any] = SimpleQueue()
        self.error: BaseException | None = None
        self.told: Callable[[], object] | None = None
        self.quiet = False
        self.ahead = ahead
        self.patience = patience
        self.position, self.expected = 0, 0.0
        self.thread: int | None = None  # the one that waits for its pieces
        self.prepared = False
        self.room = 0  # pieces that the reader has room for
        self.segment: Segment | None = None  # to evaluate, or evaluated last
        self.granted = 0.0  # when it got its turn; 0: it has none yet
        self.stopped = 0.0  # since when it has no room; 0: it has

    @property
    def over(self) -> bool:
        """True if nothing more is said."""
        return self.work is None

    def put(self, item: Any) -> None:
        """Say something."""
        self.room -= 1
        if not self.quiet:
            self._pass(item)

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more is said."""
        self.error = error  # first: who sees that it is over sees why
        self.work = self.segment = self.outcome.put = None
        self._pass(END)
        self.told = None

    def _pass(self, item: Any) -> None:
        self.pieces.put(item)
        if self.told is not None:
            try:
                self.told()
            except RuntimeError:
                self.outcome.cancelled = self.outcome.left = True

    def take(self) -> Any:
        """Wait for the next piece, or for END, which then stays in the queue."""
        # Ctrl-C between get() and put() has lost END where it is over and the queue is empty
        item = END if self.over and self.pieces.empty() else self.pieces.get()
        if item is END:
            self.pieces.put(END)
        return item

    def take_end(self) -> Any:
        """Wait for END; what was said before it is dropped."""
        while (item := self.take()) is not END:
            pass
        return item

    def failure(self) -> BaseException | None:
        """The error with which it failed, once: its reader raises it."""
        error, self.error = self.error, None
        return error


class Scheduler:
    """The line of an engine's jobs, and the thread that runs them.

    ``parallel``: the number of jobs that have a turn at the same time, None: any number.  ``give_way``: called if a
    cache may take no more pages; returns True if it freed some.  A step has only as many rows of prompts as do not
    delay the answers being written; but if nobody waits for these (``Segment.patient``), prompts are read in steps as
    wide as possible, in which a row costs less.

    ``steps`` and ``most_segments`` are statistics.
    """

    def __init__(
        self, model: Model, parallel: int | None = None, give_way: Callable[[], bool] = lambda: False
    ) -> None:
        self.limit(parallel, QUEUE)
        self.steps = self.most_segments = 0
        self._model = model
        self._give_way = give_way
        self._balance = Balance()
        self._jobs: dict[Job, None] = {}  # that are not over, in the order in which they came
        self._entering = threading.Lock()
        self._turns: list[Job] = []  # those that have a turn
        self._ready: list[Job] = []  # of these, what takes part in the next step
        self._seconds = 2.0  # of a turn, a running mean
        self._looked = 0.0  # when it did so last (time.monotonic)
        self._alive = 0.0  # when it showed a sign of life; 0: there is nothing to do for it
        self._ends = False  # then it ends: the engine is closed
        self._news: SimpleQueue[tuple[Job, int] | None] = SimpleQueue()  # None: the thread is to end
        weakref.finalize(self, self._news.put, None).atexit = False
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # the garbage collector may drop an answer while it is held
        _all.add(self)

    # ---- for callers -------------------------------------------------------------------------------------------------

    def limit(self, parallel: int | None, queue: int) -> None:
        """Set how many jobs have a turn at the same time, and how many may wait for one."""
        self.parallel, self.queue = parallel, queue

    @property
    def running(self) -> int:
        """The number of jobs that have a turn."""
        return len(self._turns)

    @property
    def waiting(self) -> int:
        """The number of jobs that wait for one."""
        return max(0, len(self._jobs) - len(self._turns))

    @property
    def silent(self) -> float:
        """Seconds for which the thread has not moved although it has something to do."""
        return time.monotonic() - alive if (alive := self._alive) else 0.0

    @property
    def here(self) -> bool:
        """True in the engine's thread, in which callbacks are called."""
        return self._thread is threading.current_thread()

    def enter(self, *jobs: Job) -> None:
        """Give jobs their places in the line, all or none, before any work is done for them.  What reads ahead ends.

        Raises Busy if too many are there already, for what reads ahead if any are; and UsageError if there is never
        room for so many.
        """
        n, parallel = len(jobs), self.parallel
        most = None if parallel is None else parallel + self.queue
        if most is not None and n > most:
            raise UsageError(f"asks for {n} answers; there is room for {most} (parallel and queue): send several "
                             "requests", argument="n")
        with self._entering:
            here = list(self._jobs)
            before = sum(not each.ahead for each in here)
            if before and jobs[0].ahead:
                raise Busy("answers are running or waiting")
            if most is not None and before + n > most:
                raise Busy(f"{count(self.running, 'answer')} running and {self.waiting} waiting; try again later",
                           retry_after=max(1.0, self._seconds))
            for i, job in enumerate(jobs):
                if parallel is not None and (position := before + i - parallel) >= 0:
                    job.position, job.expected = position, self._seconds * (position // parallel + 1)
                self._jobs[job] = None
        for each in here:
            if each.ahead:
                each.outcome.cancelled = True
                self.post(each)

    def submit(self, job: Job, room: int = 0) -> None:
        """Let a job that has entered and is prepared have its turn.  Raises as :meth:`post`."""
        self._start()
        job.outcome.put, job.prepared = job.put, True
        self.post(job, room)

    def post(self, job: Job, room: int = 0) -> None:
        """Tell the engine's thread that the reader of a job has room for more pieces, or that it was cancelled or left.
        From any thread and signal handler.

        Raises EdgeError if the system does not start the thread, and UsageError in a forked child.
        """
        if job.prepared and not job.over:
            with self._starting:
                self._start()
                self._news.put((job, room))

    def _start(self) -> None:
        refuse_after_fork()
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(
                    target=_run, args=(weakref.ref(self), self._news), name="engine", daemon=True)
                start(thread)
                self._thread = thread

    def leave(self, job: Job) -> None:
        """End a job that nobody reads any more.  Returns at once."""
        job.outcome.cancelled = job.outcome.left = True
        self.post(job)

    def drop(self, job: Job, seconds: float) -> None:
        """End a job whose answer nobody holds any more, and wait for that, at most ``seconds``: its session is free
        then.
        """
        if job.over or not job.prepared or job.outcome.left or is_forked() or sys.is_finalizing():
            return
        with suppress(EdgeError):
            self.leave(job)
            end = time.monotonic() + seconds  # a thread that holds a lock may be collecting garbage here
            while not self.here and not job.over and time.monotonic() < end:
                with suppress(Empty):
                    job.pieces.get(timeout=LET_GO)

    def begin(self, job: Job, room: int = 0) -> None:
        """Have a job run after all that came before: prepare it in this thread, and submit it.  What reads ahead is
        over at once if others are there.

        Raises what preparing it raises, and as :meth:`enter` and :meth:`post`; UsageError in the engine's thread.
        """
        self._refuse_here()
        work = job.work
        assert work is not None
        try:
            refuse_after_fork()
            self.enter(job)
            next(work, None)
            self.submit(job, room)
        except BaseException as error:
            if job.prepared:  # Ctrl-C
                self.leave(job)
            else:
                self._jobs.pop(job, None)
                work.close()
                job.end()
            if not (job.ahead and isinstance(error, Busy)):
                raise

    def read(self, job: Job, room: int, take: Callable[[], Any]) -> Any:
        """Give a job room for so many pieces, and wait for what ``take`` returns: a piece, or the end of the job.

        Raises the job's error; and UsageError in the engine's thread, which would wait for itself.
        """
        self._refuse_here()
        job.thread = threading.get_ident()
        self.post(job, room)
        try:
            item = take()
        except BaseException:  # Ctrl-C: the job ends, and the engine's thread has let go of it then
            self.leave(job)
            job.take_end()
            job.failure()
            raise
        if item is END and (error := job.failure()) is not None:
            try:
                raise error
            finally:  # its traceback holds this frame
                del error
        return item

    def _refuse_here(self) -> None:
        if self.here:
            raise UsageError("the answer is being written by this thread: only cancel() may be called now")

    def finish(self, job: Job) -> None:
        """Wait for the end of a job.  Raises as :meth:`read`."""
        job.quiet = True
        self.read(job, ALL, job.take_end)

    def run(self, outcome: Outcome, work: Work, ahead: bool = False) -> None:
        """Evaluate what ``work`` yields.  Raises as :meth:`begin` and :meth:`read`."""
        job = Job(outcome, work, ahead)
        self.begin(job)
        self.finish(job)

    def close(self) -> None:
        """End the thread after its step, and wait for that."""
        if (thread := self._thread) is not None and not is_forked():
            self._news.put(None)
            if not self.here:
                thread.join(CLOSE_SECONDS)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def run_jobs(self, news: tuple[Job, int] | None) -> bool:
        """Do what is to be done after this news, until there is nothing left.  False: the thread is to end."""
        self._show_life()
        try:
            self._receive(news)
            with interruptible(self._show_life):  # long work before a step looks there
                while self._work():
                    pass
        except BaseException as error:  # a bug: all end with it, and the next job starts another thread
            self._thread, self._alive = None, 0.0
            self._ready.clear()
            for job in list(self._jobs):
                self._over(job, error)
            raise
        self._alive = 0.0
        with self._starting:
            if self._ends and self._news.empty():
                self._thread = None
                return False
        return True

    def _work(self) -> bool:
        """Take the news, and do one step.  False: there is nothing to do."""
        for _ in range(self._news.qsize()):
            self._receive(self._news.get_nowait())
        self._show_life()
        self._grant()
        self._look()
        if self._ready:
            self._step()
        elif self.waiting or any(each.stopped and each.patience is not None for each in self._turns):
            with suppress(Empty):
                self._receive(self._news.get(timeout=LOOK))
        else:
            return False
        return True

    def _show_life(self) -> None:
        self._alive = time.monotonic()

    def _receive(self, news: tuple[Job, int] | None) -> None:
        """Take note of news."""
        if news is None:
            self._ends = True
        else:
            self._give_room(*news)

    def _give_room(self, job: Job, room: int) -> None:
        """Go on with a job whose reader has room again, or which was left."""
        job.room += room
        if not job.over and job.stopped and (job.room > 0 or job.outcome.left):
            job.outcome.away += time.perf_counter() - job.stopped
            job.stopped = 0.0
            if job.segment is not None and job.segment.error is not None:
                job.outcome.left |= job.outcome.cancelled  # then nobody wants to know
            self._go_on(job)

    def _grant(self) -> None:
        """Give turns to those that have waited longest."""
        turns = self._turns
        for job in list(self._jobs) if len(self._jobs) > len(turns) else ():
            if self.parallel is not None and len(turns) >= self.parallel or any(each.ahead for each in turns):
                break  # a job that reads ahead has the cache that the next one will want
            if job.prepared and not job.granted:
                job.granted = time.monotonic()
                turns.append(job)
                self._go_on(job)

    def _look(self) -> None:
        """End what was cancelled while it waits, what waits for itself, and those whose readers have lost patience."""
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        turns = self._turns
        for job in list(self._jobs):
            if job.granted:
                if job.stopped and job.patience is not None and time.perf_counter() - job.stopped > job.patience:
                    job.outcome.cancelled = True
                    self._give_room(job, ALL)
            elif job.prepared and job.outcome.interrupted():
                self._go_on(job)
            elif job.prepared and job.thread is not None and turns and all(job.thread == each.thread for each in turns):
                job.work.close()  # type: ignore[union-attr]
                self._over(job, Busy(f"this thread already runs {count(len(turns), 'answer')}, the most allowed; "
                                     "finish or close one of them first"))

    def _go_on(self, job: Job) -> None:
        """Run the generator of a job to its next segment, which takes part in the next step; or to its end, if nobody
        reads it any more.
        """
        work = job.work
        error: BaseException | None = None
        assert work is not None
        try:
            failed, job.segment = job.segment, None
            if failed is not None and failed.error is not None:
                error, failed.error = failed.error, None
                if job.outcome.left:
                    raise StopIteration
                job.segment = work.throw(error)
            while job.segment is None:
                job.segment = next(work)
            if not job.outcome.left:
                self._ready.append(job)
                return
        except StopIteration:
            error = None
        except BaseException as failure:
            error = failure
        try:
            work.close()
        except BaseException as failure:
            error = failure
        self._over(job, error)
        del error  # its traceback holds this frame

    def _over(self, job: Job, error: BaseException | None) -> None:
        """A job has ended."""
        del self._jobs[job]
        if job.granted:
            self._turns.remove(job)
            if not job.ahead:
                self._seconds += 0.2 * (time.monotonic() - job.granted - self._seconds)
        job.end(error)

    # ---- one step ----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Evaluate what is ready, and go on with those whose readers have room."""
        jobs, segments = self._ready[:], [each.segment for each in self._ready if each.segment is not None]
        try:
            if len(segments) == 1:
                self._evaluate(segments)
            for batch in self._balance.share(segments, self._model.chunk) if len(segments) > 1 else ():
                begun = time.perf_counter()
                self._evaluate(batch)
                self._balance.took(batch, time.perf_counter() - begun)
        except Exception as error:  # a bug
            for each in segments:
                each.error = error
        self._ready.clear()
        for job in jobs:
            if job.room > 0 or job.outcome.left:
                self._go_on(job)
            else:
                job.stopped = time.perf_counter()

    def _evaluate(self, batch: list[Segment]) -> None:
        """Run one step.  If it fails, each segment is tried alone, so that only those that fail get an error."""
        for each in batch:
            each.n_in_step = len(batch)
        self.steps += 1
        self.most_segments = max(self.most_segments, len(batch))
        while True:
            try:
                return self._model.step(batch)
            except MemoryError as error:
                if self._give_way():
                    continue
                failure: Exception = MemoryRefused(f"the memory limit is reached: {error}")
            except Exception as error:
                failure = error
            break
        if len(batch) > 1:
            for each in batch:
                self._evaluate([each])
        else:
            batch[0].error = failure


def _run(reference: weakref.ref[Scheduler], news: SimpleQueue[tuple[Job, int] | None]) -> None:
    """The thread of an engine; while it waits, it holds nothing of it."""
    while True:
        latest = news.get()
        scheduler = reference()
        if scheduler is None or not scheduler.run_jobs(latest):
            return
        del scheduler, latest


_all: weakref.WeakSet[Scheduler] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End the threads before the interpreter ends under them."""
    for each in list(_all):
        for job in list(each._jobs):
            each.leave(job)
        each.close()


class Balance:
    """The cost of steps, and how many rows of prompts fit in steps that write answers."""

    def __init__(self) -> None:
        self._writing: dict[int, float] = {}  # rows of answers -> seconds of a step without any prompt
        self._row = 0.0  # seconds of a row of prompt in such a step; 0: not known

    def share(self, segments: Sequence[Segment], most: int) -> list[list[Segment]]:
        """Divide segments into steps: tokens of answers first, complete; prompts share the room that is left
        equally.
        """
        steps: list[list[Segment]] = [[]]
        room = most
        prompts = [each for each in segments if each.part]
        for each in segments:
            if not each.part:
                n = len(each.ids)
                if n > room:
                    steps.append([])
                    room = most
                steps[-1].append(each)
                room -= n
        if prompts:
            rows = most - room
            if any(not each.part and not each.patient for each in segments):
                room = min(room, self._prompt_rows(rows))
            if room < len(prompts):
                steps.append([])
                room = most
            for i, each in enumerate(sorted(prompts, key=lambda each: len(each.ids))):
                each.cut(max(1, room // (len(prompts) - i)))
                steps[-1].append(each)
                room -= len(each.ids)
        return [each for each in steps if each]

    def _prompt_rows(self, rows: int) -> int:
        """The number of rows of prompts in a step with ``rows`` rows of answers."""
        alone = self._writing.get(rows)
        if not self._row or alone is None:
            return LEAST_PROMPT
        return max(LEAST_PROMPT, int((MOST_SLOWED - 1) * alone / self._row))

    def took(self, batch: Sequence[Segment], seconds: float) -> None:
        """Record the duration of a step."""
        prompts = sum(len(each.ids) for each in batch if each.part)
        rows = sum(len(each.ids) for each in batch if not each.part)
        if not prompts:
            known = self._writing.get(rows, seconds)
            self._writing[rows] = known + (min(seconds, 2 * known) - known) / 4
        elif rows and rows in self._writing:
            row = max(seconds - self._writing[rows], 0.01 * seconds) / prompts
            self._row += (row - self._row) / 4 if self._row else row
