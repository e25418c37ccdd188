"""Scheduler: writes all running answers; what they need is evaluated in common steps.

A step reads the weights once, however many answers take part.  So a step evaluates everything that is ready: one token
(and what its form forces) for every answer that is being written, and as many tokens of prompts as do not delay these
answers much.

An answer is a generator that yields what must be done before it goes on (Segment, Slot), and its pieces.  Two threads
run all of them: one prepares (texts are encoded, files are read until the first tokens are known), one steps.  Both
start when there is work and end when there has been none for a while.  Whoever wants the pieces gives a
:class:`Reader`: an event loop (edge/aio.py), a service, a batch, or a thread that waits.

An answer that runs alone and is iterated by a thread does its steps in that thread: passing them to another one costs
more than a step of a small model (benchmarks/SPEED.md).  As soon as two run, the stepping thread goes on with it, piece
by piece.  It waits a moment for the answers of the last step, since who reads them is asking for the next piece.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from edge.errors import EdgeError, MemoryRefused
from edge.model.model import Model
from edge.session.admission import LOOK, Admission, Slot
from edge.threads import refuse_after_fork, start
from pyx.step import Segment

if TYPE_CHECKING:
    from typing import TypeAlias

    Need: TypeAlias = "Segment | Slot"  # what an answer waits for

T = TypeVar("T")

#: the share of a step's time for which answers of the last step are waited for
LINGER = 0.25
#: a step that reads prompts with tokens of answers takes at most this many times as long as one without prompts
MOST_SLOWED = 2.0
#: least rows of prompts in a step with tokens of answers; also used until their cost is known
LEAST_PROMPT = 4
#: seconds without work after which a thread ends
IDLE = 1.0


class Reader(Protocol):
    """Who gets what an answer says; called by the threads of the scheduler, and never to wait."""

    def put(self, piece: Any) -> bool:
        """Take a piece.  Returns whether there is room for another; if not, the answer waits for
        :meth:`Scheduler.go_on`."""

    def end(self, error: BaseException | None, value: Any) -> None:
        """The answer has ended: with an error, or with the value that the generator returned."""


class Running:
    """An answer that the scheduler writes.  ``work``: its generator.  ``need``: what it waits for; None: it goes on."""

    __slots__ = ("active", "begun", "leaving", "need", "over", "reader", "work")

    def __init__(self, work: Generator[Any, None, Any], reader: Reader, need: Need | None = None) -> None:
        self.work = work
        self.reader = reader
        self.need = need
        self.begun = False  # it is past the thread that prepares
        self.active = False  # the stepping thread writes it now
        self.leaving = False  # it is to end now
        self.over = False


class Waiting:
    """The reader that is a thread.  ``all_``: it waits for the end, and takes the pieces from elsewhere."""

    def __init__(self, all_: bool) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended = False
        self._all = all_
        self._news: SimpleQueue[Any] = SimpleQueue()

    def put(self, piece: Any) -> bool:
        """Take a piece, and wake the thread."""
        if not self._all:
            self._news.put(piece)
        return self._all

    def end(self, error: BaseException | None, value: Any) -> None:
        """Wake the thread."""
        self.error, self.value, self.ended = error, value, True
        self._news.put(None)

    def wait(self) -> Any:
        """Wait for the piece, or for the end: None."""
        return self._news.get()


class Worker(Generic[T]):
    """A thread that starts when there is work for it.  ``run``: takes it, by :meth:`get`, until that returns None."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.idle: float | None = IDLE  # None: it never ends
        self._name = name
        self._run = run
        self._posted: SimpleQueue[T | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        #: held while work is posted; the garbage collector may post some meanwhile
        self._posting = threading.RLock()

    def post(self, item: T | None) -> None:
        """Give work to the thread; None only wakes it.  Raises EdgeError if the system does not start it, UsageError in
        a forked child.
        """
        refuse_after_fork()
        with self._posting:
            if self._thread is None:
                thread = threading.Thread(target=self._main, name=self._name, daemon=True)
                start(thread)
                self._thread = thread
            self._posted.put(item)

    def get(self, timeout: float | None = None) -> T | None:
        """The next item.  None: there was none within ``timeout`` seconds; without it: the thread is to end."""
        while True:
            try:
                item = self._posted.get(timeout=self.idle if timeout is None else timeout)
            except Empty:
                if timeout is not None:
                    return None
                with self._posting:
                    if self._posted.empty():
                        self._thread = None
                        return None
            else:
                if item is not None:
                    return item

    def get_posted(self) -> list[T]:
        """All that wait."""
        items = [self._posted.get_nowait() for _ in range(self._posted.qsize())]
        return [each for each in items if each is not None]

    def keep(self, idle: float | None) -> None:
        """Let the thread end after ``idle`` seconds without work; with None it stays, and starts now."""
        self.idle = idle
        if idle is None or self._thread is not None:  # else there is nothing to end
            self.post(None)

    def _main(self) -> None:
        try:
            self._run()
        finally:
            with self._posting:
                if self._thread is threading.current_thread():  # a bug ended it: the next work starts another one
                    self._thread = None


class Scheduler:
    """Writes the running answers.

    ``admission``: who runs.  ``give_way``: called if a cache may take no more pages; returns True if it freed some.  A
    step has only as many rows of prompts as do not delay the answers being written; but if nobody waits for these
    (``Segment.patient``), prompts are read in steps as wide as possible, in which a row costs less.

    ``steps``, ``most_segments`` and ``most_rows`` are statistics of the steps of the stepping thread.
    """

    def __init__(self, model: Model, admission: Admission, give_way: Callable[[], bool] = lambda: False) -> None:
        self.admission = admission
        self.steps = self.most_segments = self.most_rows = 0
        self._model = model
        self._give_way = give_way
        self._preparer: Worker[Callable[[], object]] = Worker("prepares", self._prepare_all)
        self._stepper: Worker[Running] = Worker("steps", self._step_all)
        self._in_line: list[Running] = []  # answers that wait for their slots, of the preparing thread
        self._balance = Balance()
        self._turn = threading.Lock()  # held while a step runs

    # ---- for whoever has an answer -----------------------------------------------------------------------------------

    def submit(self, work: Generator[Any, None, Any], reader: Reader) -> Running:
        """Write an answer to its end, or as far as its reader has room.

        Raises EdgeError if the system starts no thread, and UsageError in a forked child.
        """
        running = Running(work, reader)
        self.prepare(partial(self.begin, running))
        return running

    def prepare(self, call: Callable[[], object]) -> None:
        """Call something in the thread that prepares answers.  Raises as :meth:`submit`."""
        self._preparer.post(call)

    def begin(self, running: Running) -> None:
        """Run an answer in this thread until its first step; the stepping thread goes on with it."""
        if not self._advance(running):
            return
        if type(running.need) is Slot:  # only in the thread that prepares
            self._in_line.append(running)
            self.admission.when_granted(running.need, partial(self._preparer.post, self._begin_granted))
            return
        running.begun = True
        try:
            self._stepper.post(running)
        except BaseException as error:
            running.need.error = error  # type: ignore[union-attr]
            self._advance(running)

    def go_on(self, running: Running, leaving: bool = False) -> None:
        """The reader of an answer has room again; with ``leaving`` the answer is to end now."""
        running.leaving |= leaving
        if not running.over:
            self._stepper.post(running)

    def keep_threads(self, keep: bool) -> None:
        """Start both threads, and let them wait for work as long as it takes; or no longer.  Raises as :meth:`submit`.
        """
        for worker in (self._preparer, self._stepper):
            worker.keep(None if keep else IDLE)

    # ---- for a thread that waits -------------------------------------------------------------------------------------

    def step(self, work: Generator[Any, None, Any], need: Need) -> Any:
        """Do in this thread what an answer needs that runs alone, and return what it yields next; if others run, the
        next piece.

        Raises what the answer raises: MemoryRefused at the memory limit, UsageError if the engine was closed or in a
        forked child, EdgeError if the system starts no thread for several answers, and Busy if this thread would wait
        for itself.
        """
        if self.admission.running > 1 and type(need) is Segment:
            return self.wait(work, need)
        try:
            if type(need) is Segment:
                self._alone(need)
            else:
                refuse_after_fork()
                self.admission.wait(need)
        except BaseException as error:
            return work.throw(error)
        return next(work)

    def _alone(self, segment: Segment) -> None:
        try:
            return self._model.step((segment,))
        except MemoryError:
            self.evaluate((segment,))
        failure, segment.error = segment.error, None
        if failure is not None:
            raise failure

    def wait(self, work: Generator[Any, None, Any], need: Need | None = None, all_: bool = False) -> Any:
        """Have an answer that has its slot written by the stepping thread; return its next piece, or None after all of
        them.  Raises StopIteration at the end otherwise, and as :meth:`step`.
        """
        reader = Waiting(all_)
        running = Running(work, reader, need)
        running.begun = True
        try:
            self._stepper.post(running)
            piece = reader.wait()
        except EdgeError:  # the system starts no thread, or this is a forked child
            work.close()
            raise
        except BaseException:  # Ctrl-C: the answer ends; the stepping thread has let go of it then
            running.leaving = True
            self._stepper.post(running)
            while not reader.ended:
                reader.wait()
            raise
        error, reader.error = reader.error, None
        if error is not None:
            try:
                raise error
            finally:  # its traceback holds this frame
                del error
        if reader.ended and not all_:
            raise StopIteration(reader.value)
        return piece

    def drive(self, work: Generator[Need, None, T]) -> T:
        """Evaluate what ``work`` yields, until it returns its result."""
        try:
            need = next(work)
            while True:
                need = self.step(work, need)
        except StopIteration as end:
            return end.value

    # ---- the threads -------------------------------------------------------------------------------------------------

    def _advance(self, running: Running) -> bool:
        """Run an answer until it needs something.  False: it has ended, or its reader has no room."""
        work, reader, need, error, value = running.work, running.reader, running.need, None, None
        running.need = None
        try:
            if running.leaving:
                work.close()
                raise StopIteration
            if type(need) is Segment and need.error is not None:  # type: ignore[union-attr]
                error, need.error = need.error, None  # type: ignore[union-attr]
                item = work.throw(error)
                error = None
            else:
                item = next(work)
            while type(item) is not Segment:
                if type(item) is Slot:
                    break
                if not reader.put(item):
                    running.active = False
                    return False
                item = next(work)
            running.need = item
            return True
        except StopIteration as end:
            error, value = None, end.value
        except BaseException as failure:
            error = failure
        running.active, running.over = False, True
        reader.end(error, value)
        return False

    def _prepare_all(self) -> None:
        """What the preparing thread does: what was posted, and a look at the answers in the line from time to time."""
        while True:
            call = self._preparer.get(LOOK if self._in_line else None)
            if call is None and not self._in_line:
                return
            (call or self._begin_granted)()
            del call

    def _begin_granted(self) -> None:
        """Go on with answers whose slots were granted, and with those that were cancelled."""
        waiting, self._in_line = self._in_line, []
        for each in waiting:
            self.begin(each)

    def _step_all(self) -> None:
        """What the stepping thread does."""
        latest: set[int] = set()  # caches that took part in the step before
        running: list[Running] = []
        while True:
            if not running:
                first = self._stepper.get()
                if first is None:
                    return
                self._add(first, running)
                del first
                if not running:
                    continue
            self._gather(running, latest)
            batch: list[Any] = [each.need for each in running]
            try:
                self.evaluate(batch)
            except Exception as error:
                for each in batch:
                    each.error = error
            latest = {id(each.kv) for each in batch}
            del batch
            running = [each for each in running if self._advance(each)]

    def _add(self, running: Running, to: list[Running]) -> bool:
        """Write an answer that was posted; not if it is being written.  Returns whether it takes part in a step."""
        if running.active or running.over or not running.begun:
            return False
        running.active = True
        if running.need is None and not self._advance(running):
            return False
        to.append(running)
        return True

    def _gather(self, running: list[Running], latest: set[int]) -> None:
        """Add the posted answers, and wait a moment for those of the last step whose readers have not asked yet."""
        until = time.perf_counter() + LINGER * self._balance.seconds
        for each in self._stepper.get_posted():
            self._add(each, running)
        missing = latest - {id(each.need.kv) for each in running}  # type: ignore[union-attr]
        while missing and len(running) < self.admission.running:
            posted = self._stepper.get(max(until - time.perf_counter(), 0))
            if posted is None:
                break
            if self._add(posted, running):
                missing.discard(id(posted.need.kv))  # type: ignore[union-attr]

    # ---- one step ----------------------------------------------------------------------------------------------------

    def evaluate(self, segments: Sequence[Segment]) -> None:
        """Evaluate segments together, each at least in part, in as many steps as their rows need; an exception of one
        is stored in its ``error``.
        """
        with self._turn:
            for batch in self._balance.share(segments, self._model.chunk):
                for each in batch:
                    each.n_in_step = len(batch)
                self.steps += 1
                self.most_segments = max(self.most_segments, len(batch))
                self.most_rows = max(self.most_rows, sum(len(each.ids) for each in batch))
                begun = time.perf_counter()
                self._attempt(batch)
                self._balance.took(batch, time.perf_counter() - begun)

    def _attempt(self, batch: list[Segment]) -> None:
        """Run one step.  If it fails, each segment is tried alone, so that only those that fail get an error."""
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
                self._attempt([each])
        else:
            batch[0].error = failure


class Balance:
    """The cost of steps, and how many rows of prompts fit in steps that write answers."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of the latest step
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
        self.seconds = seconds
        prompts = sum(len(each.ids) for each in batch if each.part)
        rows = sum(len(each.ids) for each in batch if not each.part)
        if not prompts:
            known = self._writing.get(rows, seconds)
            self._writing[rows] = known + (min(seconds, 2 * known) - known) / 4
        elif rows and rows in self._writing:
            row = max(seconds - self._writing[rows], 0.01 * seconds) / prompts
            self._row += (row - self._row) / 4 if self._row else row
