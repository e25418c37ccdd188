"""Scheduler: combines the segments of all running answers into common steps.

Weights are read once a step, however many answers take part, so what is ready goes together: one row (or its drafts)
for every answer that writes, and as many rows of prompts that are being read as do not keep the writers waiting.

An answer that is alone runs its steps in its own thread: handing them to another costs more than a small model's step
(benchmarks/SPEED.md).  As soon as two run, one thread steps for all of them, and ends when they have.  It waits a
moment for those who took part in the step before, since they are choosing their next token just then.  Answers of
which only the whole text is wanted are written by that thread itself, which saves handing over every token.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from edge.errors import Busy, MemoryRefused
from edge.model.model import Model, Segment

if TYPE_CHECKING:
    from typing import TypeAlias

    T = TypeVar("T")
    Need: TypeAlias = "Segment | Place"  # what an answer waits for

#: of the time that a step takes, what is waited for answers that took part in the one before
LINGER = 0.25
#: a step that reads prompts beside answers that write takes at most so many times of one that does not
BESIDE = 2.0
#: rows of prompts beside writers, at least; and until their cost is known
LEAST_BESIDE = 8
#: seconds without work after which the stepping thread ends
IDLE = 1.0
#: seconds between two looks whether an answer that waits for its place was cancelled
LOOK = 0.05
#: answers that may wait for a place
QUEUE = 64


class Place:
    """A place among the answers that run at the same time; granted at once, or in the order of the queue."""

    def __init__(self) -> None:
        self.granted = False
        self.thread = threading.get_ident()
        self._granted = threading.Event()

    def grant(self) -> None:
        self.granted = True
        self._granted.set()

    def wait(self) -> None:
        """Wait until it is granted, at most LOOK seconds: then the caller checks whether the answer was cancelled."""
        self._granted.wait(LOOK)


class Writer(Protocol):
    """The interface of an answer for the code that drives it."""

    def advance(self) -> Any:
        """The next piece, or what is needed before."""

    def cancel(self) -> None:
        """End it."""


class Driven:
    """An answer whose pieces nobody waits for: the stepping thread writes it to its end."""

    def __init__(self, answer: Writer) -> None:
        self.answer = answer
        self.error: BaseException | None = None
        self.ended = threading.Lock()  # released at the end
        self.ended.acquire()

    def need(self) -> Segment | None:
        """What has to be evaluated next; None: it has ended."""
        try:
            while not isinstance(need := self.answer.advance(), Segment):
                pass
            return need
        except BaseException as error:
            self.error = None if isinstance(error, StopIteration) else error
            self.ended.release()
            return None


class Scheduler:
    """``give_way`` is called where a cache may take no more pages: True if somebody has given some back.

    ``steps``, ``most_segments`` and ``most_rows`` count what was done for several answers together.

    ``parallel``: how many answers may run at the same time, None: any number.  Beyond that QUEUE of them wait, first
    come, first served.  ``unhurried``: nobody waits for the next token, as in a batch.  Then prompts are read in steps
    as wide as possible, in which a row costs less, not by as many rows as do not keep the writers waiting.
    """

    def __init__(
        self, model: Model, give_way: Callable[[], bool] = lambda: False, parallel: int | None = None
    ) -> None:
        self.parallel = parallel
        self.unhurried = False
        self.steps = self.most_segments = self.most_rows = 0  # of answers that did not run alone
        self._model = model
        self._give_way = give_way
        self._turn = threading.Lock()  # held while a step runs
        self._inside: set[Place] = set()  # running calls
        self._queue: deque[Place] = deque()
        self._door = threading.Lock()  # of the two above
        self._posted: SimpleQueue[Segment | Driven] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pace = Pace()

    # ---- who runs ----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Calls that run now."""
        return len(self._inside)

    @property
    def queued(self) -> int:
        """Calls that wait for a place."""
        return len(self._queue)

    def enter(self) -> Place:
        """A place for a call, which :meth:`leave` gives back; it may have to wait until it is granted.

        Raises Busy when too many wait already.
        """
        place = Place()
        with self._door:
            if self.parallel is None or len(self._inside) < self.parallel:
                self._inside.add(place)
                place.grant()
                return place
            if len(self._queue) >= QUEUE:
                raise Busy(f"{self.parallel} answers are running and {QUEUE} are waiting; try again later")
            self._queue.append(place)
        return place

    def leave(self, place: Place) -> None:
        """Give a place back; the next in the queue gets it."""
        with self._door:
            if place in self._inside:
                self._inside.discard(place)
                if self._queue:
                    first = self._queue.popleft()
                    self._inside.add(first)
                    first.grant()
            elif place in self._queue:
                self._queue.remove(place)

    # ---- what they need ----------------------------------------------------------------------------------------------

    def step(self, need: Need) -> None:
        """Have a segment evaluated, of a prompt at least a part; or wait a while for a place.

        Raises MemoryRefused at the memory limit, UsageError when the engine was closed, and Busy instead of waiting for
        a place where this thread itself runs all the answers that hold one.
        """
        if type(need) is Place:
            return self._wait(need)
        if len(self._inside) <= 1:
            try:
                return self._model.step((need,))  # type: ignore[arg-type]
            except MemoryError:
                pass
        self.run((need,))  # type: ignore[arg-type]
        error = need.error  # type: ignore[union-attr]
        if error is not None:
            try:
                need.error = None  # type: ignore[union-attr]
                raise error
            finally:
                del error

    def _wait(self, place: Place) -> None:
        with self._door:
            stuck = not place.granted and all(each.thread == place.thread for each in self._inside)
        if stuck:
            most = self.parallel
            raise Busy(f"this thread already runs {most} answers, the most allowed; finish or close one of them first")
        place.wait()

    def run(self, segments: Sequence[Segment]) -> None:
        """Have several evaluated, each at least in part; what goes wrong with one is in its ``error``."""
        if len(segments) >= len(self._inside):
            with self._turn:
                return self._evaluate(segments)
        waits = []
        for segment in segments:
            segment.done = threading.Lock()
            segment.done.acquire()
            waits.append(segment.done)
        try:
            for segment in segments:
                self._posted.put(segment)
            self._start()
            for done in waits:
                done.acquire()
        except BaseException:
            for segment in segments:
                segment.waiting = False
            with self._turn:  # nobody is evaluating them any more
                pass
            raise

    def finish(self, answer: Writer) -> None:
        """Write an answer that holds a place to its end, in the thread that steps for several.

        Raises what iterating it would raise.
        """
        driven = Driven(answer)
        self._posted.put(driven)
        self._start()
        try:
            driven.ended.acquire()
        except BaseException:
            answer.cancel()
            driven.ended.acquire()
            raise
        if driven.error is not None:
            raise driven.error

    def drive(self, work: Generator[Need, None, T]) -> T:
        """Evaluate what ``work`` yields until it returns."""
        try:
            segment = next(work)
            while True:
                try:
                    self.step(segment)
                except BaseException as error:
                    segment = work.throw(error)
                else:
                    segment = next(work)
        except StopIteration as end:
            return end.value

    # ---- the stepping thread -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._door:  # it ends in here, too, when nothing is posted
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="steps", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        latest: set[int] = set()  # caches that took part in the step before
        driven: list[Driven] = []
        while True:
            batch = self._driven(driven)
            if not batch:
                try:
                    self._add(self._posted.get(timeout=IDLE), batch, driven)
                except Empty:
                    with self._door:
                        if self._posted.empty():
                            self._thread = None
                            return
                if not batch:
                    continue
            self._gather(batch, driven, latest)
            with self._turn:
                batch = [each for each in batch if each.waiting]
                try:
                    self._evaluate(batch)
                except Exception as error:
                    for each in batch:
                        each.error = error
            latest = {id(each.kv) for each in batch}
            for each in batch:
                if each.done is not None:
                    each.done.release()

    def _driven(self, driven: list[Driven]) -> list[Segment]:
        """What those need that are written here; those that have ended are let go."""
        batch = []
        for each in list(driven):
            need = each.need()
            if need is None:
                driven.remove(each)
            else:
                need.done, need.waiting = None, True
                batch.append(need)
        return batch

    def _add(self, posted: Segment | Driven, batch: list[Segment], driven: list[Driven]) -> None:
        if isinstance(posted, Driven):
            driven.append(posted)
        else:
            batch.append(posted)

    def _gather(self, batch: list[Segment], driven: list[Driven], latest: set[int]) -> None:
        """Add to a batch what has been posted, and wait a moment for those of the step before who have not."""
        until = time.perf_counter() + LINGER * self._pace.seconds
        for _ in range(self._posted.qsize()):
            self._add(self._posted.get_nowait(), batch, driven)
        missing = latest - {id(each.kv) for each in batch}
        while missing and len(batch) < len(self._inside):
            try:
                posted = self._posted.get(timeout=max(until - time.perf_counter(), 0))
            except Empty:
                break
            self._add(posted, batch, driven)
            if isinstance(posted, Segment):
                missing.discard(id(posted.kv))

    # ---- one step ----------------------------------------------------------------------------------------------------

    def _evaluate(self, segments: Sequence[Segment]) -> None:
        """Evaluate them together, in as many steps as their rows need; the turn is held."""
        for batch in self._pace.share(segments, self._model.chunk, self.unhurried):
            for each in batch:
                each.company = len(batch)
            self.steps += 1
            self.most_segments = max(self.most_segments, len(batch))
            self.most_rows = max(self.most_rows, sum(len(each.ids) for each in batch))
            begun = time.perf_counter()
            self._attempt(batch)
            self._pace.took(batch, time.perf_counter() - begun)

    def _attempt(self, batch: list[Segment]) -> None:
        """One step; where it fails each is tried alone, so that only those that fail notice."""
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


class Pace:
    """What steps cost, and how many rows of prompts fit beside those who write."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of the latest step
        self._writing: dict[int, float] = {}  # rows of answers -> seconds of a step without any prompt
        self._row = 0.0  # seconds of a row of prompt beside them; 0: not known

    def share(self, segments: Sequence[Segment], most: int, unhurried: bool = False) -> list[list[Segment]]:
        """The steps: what is written goes first, whole; prompts get what room the first step leaves, alike."""
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
            if rows and not unhurried:
                room = min(room, self._beside(rows))
            if room < len(prompts):
                steps.append([])
                room = most
            for i, each in enumerate(sorted(prompts, key=lambda each: len(each.ids))):
                each.cut(max(1, room // (len(prompts) - i)))
                steps[-1].append(each)
                room -= len(each.ids)
        return [each for each in steps if each]

    def _beside(self, rows: int) -> int:
        """Rows of prompts beside so many rows that are written."""
        alone = self._writing.get(rows)
        if not self._row or alone is None:
            return LEAST_BESIDE
        return max(LEAST_BESIDE, int((BESIDE - 1) * alone / self._row))

    def took(self, batch: Sequence[Segment], seconds: float) -> None:
        """A step took so long."""
        self.seconds = seconds
        prompts = sum(len(each.ids) for each in batch if each.part)
        rows = sum(len(each.ids) for each in batch if not each.part)
        if not prompts:
            known = self._writing.get(rows, seconds)
            self._writing[rows] = known + (min(seconds, 2 * known) - known) / 4
        elif rows and rows in self._writing:
            row = max(seconds - self._writing[rows], 0.01 * seconds) / prompts
            self._row += (row - self._row) / 4 if self._row else row
