"""Scheduler: combines the segments of all running answers into common steps.

A step reads the weights once, however many answers take part.  So a step evaluates everything that is ready: one token
(or its drafts) for every answer that is being written, and as many tokens of prompts as do not delay these answers
much.

A single answer runs its steps in its own thread: passing them to another thread costs more than a step of a small model
(benchmarks/SPEED.md).  As soon as two run, one thread steps for all of them, and ends when they have ended.  It waits a
moment for the answers of the last step, since they are choosing their next token at that time.  Answers of which only
the whole text is wanted are written by that thread itself, which saves passing every token.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from edge.errors import InvalidFile, MemoryRefused
from edge.model.model import Model, Segment
from edge.session.admission import Admission, Place
from edge.threads import refuse_after_fork, start, with_locks

if TYPE_CHECKING:
    from typing import TypeAlias

    T = TypeVar("T")
    Need: TypeAlias = "Segment | Place"  # what an answer waits for

#: the share of a step's time for which answers of the last step are waited for
LINGER = 0.25
#: a step that reads prompts beside answers takes at most this many times as long as one without prompts
BESIDE = 2.0
#: least rows of prompts beside answers; also used until their cost is known
LEAST_BESIDE = 4
#: seconds without work after which the stepping thread ends
IDLE = 1.0


class Advancing(Protocol):
    """The interface of an answer for code that drives it."""

    def advance(self) -> Any:
        """The next piece, or what must be done before it."""

    def cancel(self) -> None:
        """End the answer."""


class Driven:
    """An answer whose pieces nobody waits for: the stepping thread writes it to its end."""

    def __init__(self, answer: Advancing) -> None:
        self.answer = answer
        self.error: BaseException | None = None
        self.ended = threading.Lock()  # released at the end
        self.ended.acquire()

    def need(self) -> Segment | None:
        """The segment to evaluate next; None: the answer has ended."""
        try:
            while not isinstance(need := self.answer.advance(), Segment):
                pass
            return need
        except BaseException as error:
            self.error = None if isinstance(error, StopIteration) else error
            self.ended.release()
            return None


class Scheduler:
    """Evaluates the segments of all running answers.

    ``admission``: who runs.  ``give_way``: called if a cache may take no more pages; returns True if it freed some.  A
    step has only as many rows of prompts as do not delay the answers being written; but if nobody waits for these
    (``Segment.patient``), prompts are read in steps as wide as possible, in which a row costs less.

    ``steps``, ``most_segments`` and ``most_rows`` are statistics of the steps for several answers.
    """

    def __init__(self, model: Model, admission: Admission, give_way: Callable[[], bool] = lambda: False) -> None:
        self.admission = admission
        self.steps = self.most_segments = self.most_rows = 0  # of answers that did not run alone
        self._model = model
        self._give_way = give_way
        self._posted: SimpleQueue[Segment | Driven] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._balance = Balance()
        with_locks(self)

    def make_locks(self) -> None:
        """New locks, see :mod:`edge.threads`."""
        self._turn = threading.Lock()  # held while a step runs
        self._posting = threading.Lock()  # held while work is posted, so that the stepping thread does not end

    # ---- what they need ----------------------------------------------------------------------------------------------

    def step(self, need: Need) -> None:
        """Evaluate a segment (of a prompt at least a part), or wait a while for a place.

        Raises MemoryRefused at the memory limit, UsageError if the engine was closed or in a forked child, EdgeError if
        the system starts no thread for several answers, and Busy if this thread would wait for itself.
        """
        if type(need) is Place:
            refuse_after_fork()
            return self.admission.wait(need)
        if self.admission.running <= 1:
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

    def run(self, segments: Sequence[Segment]) -> None:
        """Evaluate several segments, each at least in part; an exception of one is stored in its ``error``."""
        if len(segments) >= self.admission.running:
            with self._turn:
                return self._evaluate(segments)
        waits = []
        for segment in segments:
            segment.done = threading.Lock()
            segment.done.acquire()
            waits.append(segment.done)
        try:
            self._post(segments)
            for done in waits:
                done.acquire()
        except BaseException:
            for segment in segments:
                segment.waiting = False
            with self._turn:  # nobody is evaluating them any more
                pass
            raise

    def finish(self, answer: Advancing) -> None:
        """Write an answer that holds a place to its end, in the thread that steps for several answers.

        Raises what iterating over it would raise.
        """
        driven = Driven(answer)
        self._post((driven,))
        try:
            driven.ended.acquire()
        except BaseException:
            answer.cancel()
            driven.ended.acquire()
            raise
        if driven.error is not None:
            raise driven.error

    def drive(self, work: Generator[Need, None, T]) -> T:
        """Evaluate the segments that ``work`` yields, until it returns its result."""
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

    def _post(self, work: Sequence[Segment | Driven]) -> None:
        """Give work to the stepping thread.  Raises EdgeError if the system does not start it."""
        refuse_after_fork()
        with self._posting:  # it ends in here, too, when nothing is posted
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="steps", daemon=True)
                start(thread)
                self._thread = thread
            for each in work:
                self._posted.put(each)

    def _serve(self) -> None:
        latest: set[int] = set()  # caches that took part in the step before
        driven: list[Driven] = []
        while True:
            batch = self._driven(driven)
            if not batch:
                try:
                    self._add(self._posted.get(timeout=IDLE), batch, driven)
                except Empty:
                    with self._posting:
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
        """The segments that the answers written here need; answers that have ended are removed."""
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
        """Add the posted segments to a batch, and wait a moment for the answers of the last step that have posted
        none.
        """
        until = time.perf_counter() + LINGER * self._balance.seconds
        for _ in range(self._posted.qsize()):
            self._add(self._posted.get_nowait(), batch, driven)
        missing = latest - {id(each.kv) for each in batch}
        while missing and len(batch) < self.admission.running:
            try:
                posted = self._posted.get(timeout=max(until - time.perf_counter(), 0))
            except Empty:
                break
            self._add(posted, batch, driven)
            if isinstance(posted, Segment):
                missing.discard(id(posted.kv))

    # ---- one step ----------------------------------------------------------------------------------------------------

    def _evaluate(self, segments: Sequence[Segment]) -> None:
        """Evaluate segments together, in as many steps as their rows need.  Requires the turn."""
        for batch in self._balance.share(segments, self._model.chunk):
            for each in batch:
                each.company = len(batch)
            self.steps += 1
            self.most_segments = max(self.most_segments, len(batch))
            self.most_rows = max(self.most_rows, sum(len(each.ids) for each in batch))
            begun = time.perf_counter()
            self._attempt(batch)
            self._balance.took(batch, time.perf_counter() - begun)

    def _attempt(self, batch: list[Segment]) -> None:
        """Run one step.  If it fails, each segment is tried alone, so that only those that fail get an error; not if
        the model's file was cut, since the caches have grown then.
        """
        while True:
            try:
                return self._model.step(batch)
            except MemoryError as error:
                if self._give_way():
                    continue
                failure: Exception = MemoryRefused(f"the memory limit is reached: {error}")
            except InvalidFile as error:
                for each in batch:
                    each.error = error
                return
            except Exception as error:
                failure = error
            break
        if len(batch) > 1:
            for each in batch:
                self._attempt([each])
        else:
            batch[0].error = failure


class Balance:
    """The cost of steps, and how many rows of prompts fit beside answers that are being written."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of the latest step
        self._writing: dict[int, float] = {}  # rows of answers -> seconds of a step without any prompt
        self._row = 0.0  # seconds of a row of prompt beside them; 0: not known

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
        """The number of rows of prompts beside ``rows`` rows of answers."""
        alone = self._writing.get(rows)
        if not self._row or alone is None:
            return LEAST_BESIDE
        return max(LEAST_BESIDE, int((BESIDE - 1) * alone / self._row))

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
