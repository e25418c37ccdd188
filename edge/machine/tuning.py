"""Tuning: measures for less than a second, or for some where others run, what is fastest for a model on this machine.

Which output head, how many threads, how weights are read, from how many tokens on tables are looked up:
rules of thumb were wrong on processors that were not at hand when they were made.  So the alternatives are tried in
turns, on the model's own weights: steps through its first layers, without logits, and parts of the output head after
such steps, since in a step, too, the weights pass through the caches before the head is read.

The first alternative is the default.  Another one is chosen only if it is clearly faster, twice: in the odd rounds and
in the even ones, each by its least time.  If the least times of an alternative differ between the two, other programs
were running, and the next answer is waited for; a trial during which another program took a core does not count.  What
is clear is remembered at once, so later measurements are of the rest.  (How many of the threads run while other
programs need the cores is decided from step to step, by :mod:`pyx.machine.pace`; this decides how many there are.)
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from edge.errors import EdgeError
from edge.machine.board import Board
from edge.machine.choices import NOTHING, STREAMS, Choices, Key, Stream, remember
from edge.threads import start

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint
    from edge.model.model import Model

#: seconds of a measurement, in all; and of later ones, when other programs took the processor from the first
BOUND, MOST_BOUND = 0.9, 3.6
#: trials of each alternative that are enough, and most rounds until there are so many that count
ROUNDS, MOST_ROUNDS = 16, 128
#: least share of the time that another alternative than the default must save
GAIN = 0.03
#: share by which the least times of odd and even rounds may differ
NOISE = 0.03
#: bytes of weights that a trial step reads: so many times the largest cache, within bounds
CACHES, LEAST_PASS, MOST_PASS = 3, 12 << 20, 128 << 20
#: tokens in the cache of the trials
MOST_TOKENS = 128
#: codes of the part of the output head that is measured
PART = 16 << 20
#: with fewer bytes of weights there is little to choose
LEAST = 32 << 20
#: seconds between two measurements
AGAIN = 0.2
#: in the background: seconds without a step before a measurement, and after how many answers one is tried
PAUSE, TRIES = 0.5, 10


class Disturbed(Exception):
    """An answer needs the processor."""


class Subject(Protocol):
    """What is measured."""

    def alternatives(self) -> Mapping[str, Sequence[Any]]:
        """Field of :class:`Choices` -> its values, the default first."""

    def seconds(self, name: str, value: Any) -> float | None:
        """Seconds of one trial; None if another program took a core meanwhile.  Raises Disturbed."""

    def use(self, name: str, value: Any) -> None:
        """Have later trials use this value."""


def measure(subject: Subject, clock: Callable[[], float] = time.perf_counter, bound: float = BOUND) -> Choices:
    """Compare all alternatives within ``bound`` seconds; what was not clear is None."""
    end = clock() + bound
    listed = subject.alternatives()
    chosen = {name: values[0] for name, values in listed.items() if len(values) == 1}
    compared = {name: values for name, values in listed.items() if len(values) > 1}
    left = sum(map(len, compared.values()))
    for name, values in compared.items():
        now = clock()
        until = now + (end - now) * len(values) / left
        left -= len(values)
        try:
            value = compare(values, partial(subject.seconds, name), until, clock)
        except Disturbed:
            break
        subject.use(name, values[0] if value is None else value)
        if value is not None:
            chosen[name] = value
    return Choices(**chosen)


def compare(
    values: Sequence[Any], seconds: Callable[[Any], float | None], until: float, clock: Callable[[], float]
) -> Any:
    """The fastest value; the first one unless another is clearly faster; None if there was not enough time, or noise.

    Raises Disturbed.
    """

    times: dict[Any, list[float]] = {value: [] for value in values}
    longest, order = 0.0, list(values)
    for _ in range(MOST_ROUNDS):
        if min(map(len, times.values())) >= ROUNDS:
            break
        for value in order:
            begun = clock()
            if begun + 1.5 * longest > until:
                break
            taken = seconds(value)
            longest = max(longest, clock() - begun)
            if taken is not None:
                times[value].append(taken)
        order.reverse()
    if min(map(len, times.values())) < 4:  # twice in odd and in even rounds
        return None
    halves = {value: (min(taken[::2]), min(taken[1::2])) for value, taken in times.items()}
    best = min(values, key=lambda value: min(halves[value]))
    for value in (values[0], best):
        least = min(halves[value])
        if max(halves[value]) > (1 + NOISE) * least:
            return None
    clear = all(new < (1 - GAIN) * old for new, old in zip(halves[best], halves[values[0]], strict=True))
    return best if clear else values[0]


class Trials:
    """A loaded model as a :class:`Subject`.

    ``new_cache``: makes a KV cache.  ``heads``: types of the output head to compare, the default first.  ``known``:
    what need not be compared.  ``idle``: called before each trial; False ends the measurement.  ``given``: the number
    of threads was asked for, so it is not compared.
    """

    def __init__(
        self,
        model: Model,
        checkpoint: Checkpoint,
        new_cache: Callable[[], Any],
        heads: Sequence[str] = (),
        known: Choices = NOTHING,
        idle: Callable[[], bool] = lambda: True,
        given: bool = False,
    ) -> None:
        from pyx.machine import cpu

        self._model, self._checkpoint, self._new_cache, self._idle = model, checkpoint, new_cache, idle
        self._kinds, self.known, self._given = heads, known, given
        self._own = cpu.chosen_now()  # (stream, many_tokens)
        self._now: dict[str, Any] = {"threads": model.n_threads, "stream": self._own[0], "many_tokens": self._own[1]}
        self._now |= {name: value for name, value in known._asdict().items() if value is not None and name != "head"}
        self._heads: dict[str, Any] = {}
        self._cache: Any = None
        self._tokens = 0  # that a trial adds to it
        with model.alone() as transformer:
            layer = transformer.weight_bytes / max(1, transformer.n_layer)
            size = min(MOST_PASS, max(LEAST_PASS, CACHES * (Board().cache() or 0)))
            self._layers = min(transformer.n_layer, max(1, round(size / max(1.0, layer))))
            self._hidden = transformer.answered  # of the last answer: the winners of a two-stage head depend on it

    def alternatives(self) -> dict[str, Sequence[Any]]:
        """See :class:`Subject`."""
        n, many = self._model.n_threads, self._own[1]
        found: dict[str, Sequence[Any]] = {
            "threads": [n] if self._given else list(dict.fromkeys((n, max(1, n - 1), max(1, n // 2)))),
            "stream": list(dict.fromkeys((Stream(*self._own[0]), *STREAMS))),
        }
        if len(self._kinds) > 1 and self._hidden is not None:
            found["head"] = self._kinds
        if not self._model.config.activation_group:
            found["many_tokens"] = (many, 2 * many)
        found = {name: values for name, values in found.items() if getattr(self.known, name) is None}
        for kind in found.get("head", ()):
            self._head(kind)  # made before the first trial, whose duration tells how long the next ones take
        return found

    def use(self, name: str, value: Any) -> None:
        """See :class:`Subject`."""
        if name != "head":
            self._now[name] = value

    def seconds(self, name: str, value: Any) -> float | None:
        """See :class:`Subject`."""
        from pyx.machine import cpu
        from pyx.machine.pace import disturbed

        if not self._idle():
            raise Disturbed
        now = self._now if name == "head" else {**self._now, name: value}
        n_token = self._own[1] if name == "many_tokens" else 1
        with self._model.alone() as transformer:
            head = self._head(value) if name == "head" else None
            cpu.choose(now["stream"], now["many_tokens"])
            try:
                ns, core = transformer.trial(
                    [self._segment(n_token)], 1 if n_token > 1 else self._layers, now["threads"])
                if head is not None:
                    ns, core = head.timed(self._hidden, self._model.sampling.winners, now["threads"])
            finally:
                cpu.choose(*self._own)
        return None if disturbed(ns, core) else 1e-9 * ns

    def _segment(self, n: int) -> Any:
        from pyx.step.transformer import Segment

        if self._cache is None or n != self._tokens or self._cache.n_tokens + n > max(n, MOST_TOKENS):
            self._cache = None  # its pages are free before others are taken
            self._cache, self._tokens = self._new_cache(), n  # trials of another n go through other layers
        return Segment(self._cache, array("i", range(1, n + 1)))

    def _head(self, kind: str) -> Any:
        """The part of an output head of a type."""
        if kind not in self._heads:
            from edge.model.weights import output_head

            rows = max(64, PART // self._model.config.hidden // 64 * 64)
            head = output_head(self._checkpoint, kind, self._model.n_threads, rows)
            head.prepare()
            self._heads[kind] = head
        return self._heads[kind]


class Tuner:
    """Measures for one loaded model, at most once, and remembers the result.

    ``key``: gives what the result is remembered by.  ``heads``: types of the output head to compare, the default first.
    ``known``: what is remembered already.  ``given``: the number of threads was asked for.  ``alone``: no other model
    is in memory, so that how weights are read, which all models of a process share, is used from then on.
    """

    def __init__(
        self,
        model: Model,
        checkpoint: Checkpoint,
        key: Callable[[], Key],
        heads: Sequence[str],
        known: Choices,
        given: bool = False,
        alone: bool = False,
    ) -> None:
        self.known, self._given, self._alone = known, given, alone
        self._model, self._checkpoint, self._key, self._heads = model, checkpoint, key, heads
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def useful(self) -> bool:
        """Whether there is something to measure: not all is remembered, and the weights are not small."""
        known = self.known
        missing = (known.stream is None or known.threads is None and not self._given
                   or bool(self._heads) and known.head is None)
        return missing and not self._model.closed and self._model.transformer.weight_bytes >= LEAST

    def now(
        self, new_cache: Callable[[], Any], idle: Callable[[], bool] = lambda: True, tries: int = 1
    ) -> Choices | None:
        """Measure and remember; takes at most a second.  ``tries``: measure what was not clear up to so often, and
        longer, since other programs have quieter moments.

        None if nothing was clear, since other programs were running, if nothing has been answered yet, or if memory is
        short.
        """
        model, before = self._model, self.known
        steps = model.steps

        def free() -> bool:
            return idle() and model.steps == steps and not self._stopped.is_set()

        try:
            if model.moving is not None and model.moving.is_alive():
                return None
            if not self._answered:
                return None
            trials = Trials(
                model, self._checkpoint, new_cache, self._heads if _room() else (), before, free, self._given)
            for i in range(tries):
                if i and (not self.useful or self._stopped.wait(AGAIN) or not free()):
                    break
                trials.known = self.known = self.known.with_those_of(
                    measure(trials, bound=min(BOUND * (i + 1), MOST_BOUND)))
        except (MemoryError, EdgeError):
            pass
        if self.known == before:
            return None
        remember(self._key(), self.known)
        if self._alone:
            from pyx.machine import cpu

            with model.alone():
                cpu.choose(self.known.stream, self.known.many_tokens or 0)
        return self.known

    @property
    def _answered(self) -> bool:
        """Whether the last step was one of an answer."""
        return self._model.transformer.answered is not None

    def start(self, new_cache: Callable[[], Any], idle: Callable[[], bool]) -> None:
        """Measure in the background, as soon as something was answered and nothing has happened for a while."""

        def work() -> None:
            tries, tried_at = 0, 0  # at which number of steps
            while tries < TRIES:
                steps = self._model.steps
                if self._stopped.wait(PAUSE):
                    return
                if steps in (tried_at, 0) or steps != self._model.steps or not self._answered or not idle():
                    continue
                if self.now(new_cache, idle, 2) and not self.useful:
                    return
                tries, tried_at = tries + 1, steps

        if self._thread is None and self.useful:
            thread = threading.Thread(target=work, name="tuning", daemon=True)
            try:
                start(thread)
            except EdgeError:
                return
            self._thread = thread

    def stop(self) -> None:
        """End a measurement, and wait until its last trial has ended."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _room() -> bool:
    """Whether there is plenty of memory for parts of output heads."""
    from edge.machine.memory import available_memory

    return (available_memory() or 0) >= 16 * PART
