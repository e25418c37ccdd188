"""Admission: the one line in which calls wait for their turn to answer.

A session of a program, a request of a service and a line of a batch enter here, once each.  As many run at the same
time as contexts are planned, the others wait; who came first is first, and gets the free place that fits best.  Beyond
the length of the line, Busy says when to come again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from edge.amounts import count
from edge.errors import Busy, UsageError
from edge.threads import with_locks

QUEUE = 64  # calls that may wait
LOOK = 0.05  # seconds between two checks whether a call that waits was cancelled


class Place:
    """A call's place: in the line until it is granted, then its right to run one answer.

    ``number``: which of the places that run, None while it waits.  ``position``: how many waited before it when it
    came.  ``expected``: the seconds until it is granted, as estimated then.
    """

    def __init__(self, pick: Callable[[Sequence[int]], int] | None, position: int, expected: float) -> None:
        self.pick = pick
        self.position = position
        self.expected = expected
        self.number: int | None = None
        self.since = 0.0  # when it was granted
        self.thread = threading.get_ident()
        self.then: Callable[[], object] | None = None
        self._granted = threading.Event()

    @property
    def granted(self) -> bool:
        """Whether the call may run."""
        return self.number is not None

    def grant(self, number: int) -> None:
        """Give the right to run, and wake who waits for it."""
        self.number, self.since = number, time.monotonic()
        self._granted.set()
        then, self.then, self.pick = self.then, None, None  # what they hold may hold the place: it would stay in memory
        if then is not None:
            then()

    def wait(self) -> None:
        """Wait until it is granted, at most LOOK seconds; then the caller checks whether the answer was cancelled."""
        self._granted.wait(LOOK)


class Admission:
    """Who answers now, and who waits.

    ``parallel``: the number of answers at the same time, None: any number.  ``queue``: the number of calls that may
    wait.  ``lock``: held while a place is picked; who keeps books about places holds it, too.
    """

    def __init__(self, parallel: int | None = None, queue: int = QUEUE) -> None:
        self.limit(parallel, queue)
        self._running: dict[int, Place] = {}
        self._line: deque[Place] = deque()
        self._seconds = 2.0  # of an answer, a running mean
        with_locks(self)

    def make_locks(self) -> None:
        """A new lock, see :mod:`edge.threads`; the calls that wait are not in a child."""
        self._line.clear()
        self.lock = threading.RLock()  # the garbage collector may end an answer while it is held

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

    def enter(self, n: int = 1, pick: Callable[[Sequence[int]], int] | None = None) -> list[Place]:
        """The places of ``n`` calls, all or none, to be returned by :meth:`leave`; they run as soon as they are
        granted.  Who holds one does not enter again for the same answer.

        ``pick``: chooses one of the free numbers, below ``parallel``, for a call that is granted; None: any.

        Raises Busy if too many calls wait already, and UsageError if so many can never be admitted.
        """
        with self.lock:
            places = []
            most = None if self.parallel is None else self.parallel + self.queue
            if most is not None and n > most:
                raise UsageError(f"asks for {n} answers; there is room for {most} (--parallel and --queue): send "
                                 "several requests", argument="n")  # fmt: skip
            before = len(self._running) + len(self._line)
            if most is not None and before + n > most:
                raise Busy(f"{count(len(self._running), 'answer')} running and {len(self._line)} waiting; try again "
                           "later", retry_after=max(1.0, self._seconds))  # fmt: skip
            for i in range(n):
                ahead = 0 if self.parallel is None else before + i - self.parallel
                wait = 0.0 if self.parallel is None or ahead < 0 else self._seconds * (ahead // self.parallel + 1)
                places.append(Place(pick, max(0, ahead), wait))
            self._line += places
            self._advance()
        return places

    def leave(self, place: Place) -> None:
        """Return a place, granted or not; the first in the line gets what is free."""
        with self.lock:
            if place.number is not None and self._running.get(place.number) is place:
                del self._running[place.number]
                self._seconds += 0.2 * (time.monotonic() - place.since - self._seconds)
                self._advance()
            elif place in self._line:
                self._line.remove(place)
                place.pick = place.then = None

    def when_granted(self, place: Place, then: Callable[[], object]) -> None:
        """Call ``then`` with the lock held: now, if the place is granted, else as soon as it is."""
        with self.lock:
            if place.granted:
                then()
            else:
                place.then = then

    def wait(self, place: Place) -> None:
        """Wait a while for a place.  Raises Busy if this thread itself runs all answers, and so would wait for ever."""
        with self.lock:
            stuck = not place.granted and all(each.thread == place.thread for each in self._running.values())
        if stuck:
            raise Busy(f"this thread already runs {count(self.running, 'answer')}, the most allowed; finish or close "
                       "one of them first")  # fmt: skip
        place.wait()

    def _advance(self) -> None:
        """Grant what is free.  Requires the lock."""
        while self._line and (self.parallel is None or len(self._running) < self.parallel):
            place = self._line.popleft()
            if place.pick is None or self.parallel is None:
                number = next(i for i in itertools.count() if i not in self._running)
            else:
                number = place.pick([i for i in range(self.parallel) if i not in self._running])
            self._running[number] = place
            place.grant(number)
