"""Tuning: measures for less than a second what is fastest for a model on this machine.

Which output head, how many threads, how far ahead weights are fetched, from how many tokens on tables are looked up:
rules of thumb were wrong on processors that were not at hand when they were made.  So the alternatives are tried in
turns, on the model's own weights: steps through its first layers, without logits, and parts of the output head after
such steps, since in a step, too, the weights pass through the caches before the head is read.

The first alternative is the default.  Another one is chosen only if it is clearly faster, twice: in the odd rounds and
in the even ones.  If an alternative took different times in both, other programs were running, and nothing is chosen;
if they take the cores, the measurement ends.  (How many of the threads run while other programs need the cores is
decided from step to step, by :mod:`pyx.pace`; this decides how many there are.)
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from edge.amounts import median
from edge.errors import EdgeError
from edge.model.board import Board
from edge.model.choices import Choices, Key, remember
from edge.threads import start

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint
    from edge.model.model import Model

#: seconds of a measurement, in all
BOUND = 0.9
#: most rounds of one comparison
ROUNDS = 8
#: least share of the time that another alternative than the default must save
GAIN = 0.03
#: shares by which the best times of odd and even rounds, and the median and the best of all may differ
NOISE, SPREAD = 0.06, 0.15
#: bytes of weights that a trial step reads: so many times the largest cache, within bounds
CACHES, LEAST_PASS, MOST_PASS = 3, 12 << 20, 128 << 20
#: codes of the part of the output head that is measured
PART = 16 << 20
#: bytes by which weights may be fetched ahead, besides the default
DISTANCES = (4 << 10, 12 << 10, 48 << 10)
#: with fewer bytes of weights there is little to choose
LEAST = 32 << 20
#: in the background: seconds without a step before a measurement, and after how many answers one is tried
PAUSE, TRIES = 0.5, 10


class Disturbed(Exception):
    """Other programs, or an answer, need the processor."""


class Subject(Protocol):
    """What is measured."""

    def alternatives(self) -> Mapping[str, Sequence[Any]]:
        """Field of :class:`Choices` -> its values, the default first."""

    def seconds(self, name: str, value: Any) -> float | None:
        """Seconds of one trial; None if another program took a core meanwhile.  Raises Disturbed."""

    def use(self, name: str, value: Any) -> None:
        """Have later trials use this value."""


def measure(subject: Subject, clock: Callable[[], float] = time.perf_counter, bound: float = BOUND) -> Choices:
    """Compare all alternatives within ``bound`` seconds.  Raises Disturbed."""
    end = clock() + bound
    chosen: dict[str, Any] = {}
    compared = {name: values for name, values in subject.alternatives().items() if len(values) > 1}
    for i, (name, values) in enumerate(compared.items()):
        now = clock()
        until = now + (end - now) / (len(compared) - i)
        value = compare(values, partial(subject.seconds, name), until, clock)
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
    longest, lost, order = 0.0, 0, list(values)
    for _ in range(ROUNDS):
        for value in order:
            begun = clock()
            if begun + 1.5 * longest > until:
                break
            taken = seconds(value)
            longest = max(longest, clock() - begun)
            if taken is None:
                lost += 1
                if lost > len(values):
                    raise Disturbed
            else:
                times[value].append(taken)
        order.reverse()
    if min(map(len, times.values())) < 4:  # twice in odd and in even rounds
        return None
    halves = {value: (min(taken[::2]), min(taken[1::2])) for value, taken in times.items()}
    best = min(values, key=lambda value: min(halves[value]))
    for value in (values[0], best):
        least = min(halves[value])
        if max(halves[value]) > (1 + NOISE) * least or median(times[value]) > (1 + SPREAD) * least:
            return None
    clear = all(new < (1 - GAIN) * old for new, old in zip(halves[best], halves[values[0]], strict=True))
    return best if clear else values[0]


class Trials:
    """A loaded model as a :class:`Subject`.

    ``new_cache``: makes a KV cache.  ``heads``: types of the output head to compare, the default first.  ``threads``:
    whether their number may be chosen.  ``idle``: called before each trial; False ends the measurement.
    """

    def __init__(
        self,
        model: Model,
        checkpoint: Checkpoint,
        new_cache: Callable[[], Any],
        heads: Sequence[str] = (),
        threads: bool = True,
        idle: Callable[[], bool] = lambda: True,
    ) -> None:
        from pyx import cpu

        self._model, self._checkpoint, self._new_cache, self._idle = model, checkpoint, new_cache, idle
        self._kinds, self._choose_threads = heads, threads
        self._own = cpu.chosen_now()  # (ahead, many_tokens)
        self._now = {"threads": model.n_threads, "ahead": self._own[0], "many_tokens": self._own[1]}
        self._heads: dict[str, Any] = {}
        self._cache: Any = None
        with model.alone() as transformer:
            layer = transformer.weight_bytes / max(1, transformer.n_layer)
            size = min(MOST_PASS, max(LEAST_PASS, CACHES * (Board().cache() or 0)))
            self._layers = min(transformer.n_layer, max(1, round(size / max(1.0, layer))))
            self._hidden = transformer.answered  # of the last answer: the winners of a two-stage head depend on it

    def alternatives(self) -> dict[str, Sequence[Any]]:
        """See :class:`Subject`."""
        n, (ahead, many) = self._model.n_threads, self._own
        found: dict[str, Sequence[Any]] = {}
        if self._choose_threads:
            found["threads"] = list(dict.fromkeys((n, max(1, n - 1), max(1, n // 2))))
        found["ahead"] = list(dict.fromkeys((ahead, *DISTANCES)))
        if len(self._kinds) > 1 and self._hidden is not None:
            found["head"] = self._kinds
            for kind in self._kinds:
                self._head(kind)  # made before the first trial, whose duration tells how long the next ones take
        if not self._model.config.activation_group:
            found["many_tokens"] = (many, 2 * many)
        return found

    def use(self, name: str, value: Any) -> None:
        """See :class:`Subject`."""
        if name != "head":
            self._now[name] = value

    def seconds(self, name: str, value: Any) -> float | None:
        """See :class:`Subject`."""
        from pyx import cpu
        from pyx.pace import disturbed

        if not self._idle():
            raise Disturbed
        now = self._now if name == "head" else {**self._now, name: value}
        n_token = self._own[1] if name == "many_tokens" else 1
        with self._model.alone() as transformer:
            head = self._head(value) if name == "head" else None
            cpu.choose(now["ahead"], now["many_tokens"])
            try:
                ns, core = transformer.trial(
                    [self._segment(n_token)], 1 if n_token > 1 else self._layers, now["threads"])
                if head is not None:
                    ns, core = head.timed(self._hidden, self._model.sampling.winners, now["threads"])
            finally:
                cpu.choose(*self._own)
        return None if disturbed(ns, core) else 1e-9 * ns

    def _segment(self, n: int) -> Any:
        from pyx.transformer import Segment

        if self._cache is None or self._cache.room < n:
            self._cache = self._new_cache()
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
    ``known``: what is remembered already.
    """

    def __init__(
        self, model: Model, checkpoint: Checkpoint, key: Callable[[], Key], heads: Sequence[str], known: Choices
    ) -> None:
        self.known = known
        self._model, self._checkpoint, self._key, self._heads = model, checkpoint, key, heads
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def useful(self) -> bool:
        """Whether there is something to measure: nothing is remembered, or not which head, and the weights are not
        small.
        """
        missing = not self.known or bool(self._heads) and self.known.head is None
        return missing and not self._model.closed and self._model.transformer.weight_bytes >= LEAST

    def now(self, new_cache: Callable[[], Any], idle: Callable[[], bool] = lambda: True) -> Choices | None:
        """Measure and remember; takes at most a second.  None if other programs or an answer needed the processor, if
        nothing has been answered yet, or if memory is short; then nothing is remembered.
        """
        model = self._model
        try:
            if model.moving is not None and model.moving.is_alive():
                return None
            if not self._answered or model.transformer.pace is not None and not model.transformer.pace.calm:
                return None
            steps = model.steps
            trials = Trials(
                model, self._checkpoint, new_cache, self._heads if _room() else (),
                idle=lambda: idle() and model.steps == steps and not self._stopped.is_set())
            found = measure(trials)
        except (Disturbed, MemoryError, EdgeError):
            return None
        if not found:
            return None
        self.known = self.known._replace(**{name: each for name, each in found._asdict().items() if each is not None})
        remember(self._key(), self.known)
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
                if self.now(new_cache, idle):
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
    from edge.model.footprint import available_memory

    return (available_memory() or 0) >= 16 * PART
