"""Admission: the one line in which calls wait for their turn to answer.

A session of a program, a request of a service and a line of a batch enter here, once each.  As many run at the same
time as contexts are planned, the others wait; who came first is first, and gets the free slot that fits best.  Beyond
the length of the line, Busy says when to come again.

What is read ahead of a question (edge/session/read_ahead.py) enters, too, but only while nothing else is here; it is
stopped as soon as anything comes, which runs when its slot is returned.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from edge.amounts import count
from edge.errors import Busy, UsageError

QUEUE = 64  # calls that may wait
LOOK = 0.05  # seconds between two checks whether a call that waits was cancelled


class Slot:
    """A call's slot: in the line until it is granted, then its right to run one answer.

    ``number``: which of the slots that run, None while it waits.  ``position``: how many waited before it when it
    came.  ``expected``: the seconds until it is granted, as estimated then.  ``stop``: of what only reads ahead: called
    if another call comes.
    """

    def __init__(
        self, pick: Callable[[Sequence[int]], int] | None, position: int, expected: float,
        stop: Callable[[], object] | None = None,
    ) -> None:
        self.pick = pick
        self.stop = stop
        self.position = position
        self.expected = expected
        self.number: int | None = None
        self.since = 0.0  # when it was granted
        self.thread = threading.get_ident()
        self.then: Callable[[], object] | None = None
        self._waits = threading.Lock()  # no Event: a signal's exception in wait() would break the lock inside
        self._waits.acquire()

    @property
    def granted(self) -> bool:
        """Whether the call may run."""
        return self.number is not None

    def grant(self, number: int) -> None:
        """Give the right to run, and wake who waits for it."""
        self.number, self.since = number, time.monotonic()
        self._waits.release()
        then, self.then, self.pick = self.then, None, None  # what they hold may hold the slot: it would stay in memory
        if then is not None:
            then()

    def wait(self) -> None:
        """Wait until it is granted, at most LOOK seconds; then the caller checks whether the answer was cancelled."""
        if self._waits.acquire(timeout=LOOK):
            self._waits.release()


class Admission:
    """Who answers now, and who waits.

    ``parallel``: the number of answers at the same time, None: any number.  ``queue``: the number of calls that may
    wait.  ``lock``: held while a slot is picked; who keeps books about slots holds it, too.
    """

    def __init__(self, parallel: int | None = None, queue: int = QUEUE) -> None:
        self.limit(parallel, queue)
        self._running: dict[int, Slot] = {}
        self._line: deque[Slot] = deque()
        self.lock = threading.RLock()  # the garbage collector may end an answer while it is held
        self._seconds = 2.0  # of an answer, a running mean

    def limit(self, parallel: int | None, queue: int) -> None:
        """Set both limits."""
        self.parallel, self.queue = parallel, queue

    @property
    def running(self) -> int:
        """The number of calls that run now."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """The number of calls that wait."""
        return len(self._line)

    def enter(
        self, n: int = 1, pick: Callable[[Sequence[int]], int] | None = None, stop: Callable[[], object] | None = None
    ) -> list[Slot]:
        """The slots of ``n`` calls, all or none, to be returned by :meth:`leave`; they run as soon as they are
        granted.  Who holds one does not enter again for the same answer.

        ``pick``: chooses one of the free numbers, below ``parallel``, for a call that is granted; None: any.
        ``stop``: for what only reads ahead: called, with the lock held, if another call comes; it is to return its slot
        soon.

        Raises Busy if too many calls wait already, or if any is here and ``stop`` is given; and UsageError if so many
        can never be admitted.
        """
        with self.lock:
            slots = []
            most = None if self.parallel is None else self.parallel + self.queue
            if most is not None and n > most:
                raise UsageError(f"asks for {n} answers; there is room for {most} (parallel and queue): send "
                                 "several requests", argument="n")
            here = [*self._running.values(), *self._line]
            before = sum(each.stop is None for each in here)
            if stop is not None and before:
                raise Busy("answers are running or waiting")
            if most is not None and before + n > most:
                raise Busy(f"{count(len(self._running), 'answer')} running and {len(self._line)} waiting; try again "
                           "later", retry_after=max(1.0, self._seconds))
            for i in range(n):
                ahead = 0 if self.parallel is None else before + i - self.parallel
                wait = 0.0 if self.parallel is None or ahead < 0 else self._seconds * (ahead // self.parallel + 1)
                slots.append(Slot(pick, max(0, ahead), wait, stop))
            for each in here:
                if each.stop is not None:
                    each.stop()
            self._line += slots
            self._advance()
        return slots

    def leave(self, slot: Slot) -> None:
        """Return a slot, granted or not; the first in the line gets what is free."""
        with self.lock:
            if slot.number is not None and self._running.get(slot.number) is slot:
                del self._running[slot.number]
                if slot.stop is None:
                    self._seconds += 0.2 * (time.monotonic() - slot.since - self._seconds)
                self._advance()
            elif slot in self._line:
                self._line.remove(slot)
                slot.pick = slot.then = None
            slot.stop = None

    def when_granted(self, slot: Slot, then: Callable[[], object]) -> None:
        """Call ``then`` with the lock held: now, if the slot is granted, else as soon as it is."""
        with self.lock:
            if slot.granted:
                then()
            else:
                slot.then = then

    def wait(self, slot: Slot) -> None:
        """Wait a while for a slot.  Raises Busy if this thread itself runs all answers, and so would wait for ever."""
        with self.lock:
            stuck = not slot.granted and all(each.thread == slot.thread for each in self._running.values())
        if stuck:
            raise Busy(f"this thread already runs {count(self.running, 'answer')}, the most allowed; finish or close "
                       "one of them first")
        slot.wait()

    def _advance(self) -> None:
        """Grant what is free.  Requires the lock."""
        while (
            self._line and (self.parallel is None or len(self._running) < self.parallel)
            and all(each.stop is None for each in self._running.values())  # it has the cache that this one will want
        ):
            slot = self._line.popleft()
            if slot.pick is None or self.parallel is None:
                number = next(i for i in itertools.count() if i not in self._running)
            else:
                number = slot.pick([i for i in range(self.parallel) if i not in self._running])
            self._running[number] = slot
            slot.grant(number)
