"""Answer: one call of a session: the pieces while they are written, how it ended, and its token counts and times.

The loop from logits to pieces (edge/session/generation.py) runs in the engine's thread (edge/session/scheduler.py); who
iterates the Answer reads the queue of its pieces.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from edge.amounts import count
from edge.errors import EdgeError, UsageError, one_line
from edge.session.logprobs import Logprob, Scored
from edge.session.outcome import Outcome
from edge.session.scheduler import END, LET_GO, Job
from edge.session.stream import Piece
from edge.session.usage import Timings, Usage
from edge.threads import is_forked

if TYPE_CHECKING:
    from edge.session.scheduler import Scheduler, Work


class Answer:
    """The result of ``ask``, ``complete`` and ``chat``.  Generation starts when it is iterated, or when its ``text`` is
    read or printed.

    Iterating yields :class:`Piece` objects; a ``for`` loop can be left at any time and continued later.  Closing
    (``with``, :meth:`close`, or dropping the last reference) ends the answer; the text generated so far is kept.
    Threads may share an answer: each piece goes to one of them, and ``text`` has all of it.
    """

    def __init__(self, work: Work, scheduler: Scheduler, outcome: Outcome, ahead: bool = False) -> None:
        self.outcome = outcome
        self.job = Job(outcome, work, ahead)
        self._scheduler = scheduler
        self._beginning = threading.RLock()  # of threads that share it, one prepares it
        self._begins = False
        self._elsewhere = False

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        if self._elsewhere or not self.job.prepared:
            self._begin()
        item = self._scheduler.read(self.job, 1, self.job.take)
        if item is END:
            raise StopIteration
        return item

    def _begin(self) -> None:
        if self._elsewhere:
            raise UsageError("the pieces of the answer are read elsewhere (edge.aio)")
        self.begin()

    def begin(self, room: int = 0) -> None:
        """Prepare it in this thread, and have it written as far as its reader has room; once.  Raises what it cannot be
        begun for.
        """
        with self._beginning:
            if self.job.prepared or self.job.over:
                return
            self._refuse_within()
            self._begins = True
            try:
                self._scheduler.begin(self.job, room)
            finally:
                self._begins = False

    def _refuse_within(self) -> None:
        if self._begins:  # a signal handler
            raise UsageError("the answer is being written by this thread: only cancel() may be called now")

    def give_room(self, n: int) -> None:
        """Its reader elsewhere has room for so many more pieces."""
        self._scheduler.post(self.job, n)

    def read_elsewhere(self, told: Callable[[], object]) -> None:
        """Leave its pieces to another reader than this object, which then only has what was said so far.  ``told``: see
        :class:`Job`.
        """
        self._elsewhere, self.job.told = True, told

    @property
    def text(self) -> str:
        """The whole answer; generates what is missing."""
        return self._all(self.outcome.said)

    def _all(self, said: bytearray) -> str:
        if self.outcome.finish_reason is None:
            self._begin()
            self._scheduler.finish(self.job)
        return said.decode()

    @property
    def content(self) -> str:
        """The answer without the function calls in its ``text``."""
        return self.text if self.outcome.form is None else self.outcome.form.split(self.text)[0]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The function calls in the answer, in OpenAI's format."""
        return [] if self.outcome.form is None else self.outcome.form.split(self.text)[1]

    @property
    def thoughts(self) -> str:
        """The text of the model's thinking before the answer, not part of ``text``; generates what is missing."""
        return self._all(self.outcome.thoughts)

    @property
    def value(self) -> Any:
        """The parsed answer if a ``schema`` was given: an instance of its class, or JSON types; otherwise the text.

        Runs to its end.  Raises EdgeError if the answer was cut off or calls functions instead, or if the class refuses
        it.
        """
        text, spec = self.content, self.outcome.spec
        if self.calls:
            raise EdgeError("the answer calls a function and has no value; see calls")
        if not self.whole:
            raise EdgeError(f"the answer is incomplete ({self.finish_reason}): it does not have its form")
        try:
            return text if spec is None else spec.value(text)
        except (ValueError, TypeError) as error:
            raise EdgeError(f"the answer does not fit: {one_line(error)}") from error

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended; None until then.

        "stop": the model ended it, or a stop string was found.  "length": ``max_tokens`` was reached.  "cancelled" and
        "timeout": it was ended from outside.  "context_full": the context is full, and ``overflow`` is "stop".  "loop":
        its end only repeats itself (edge/session/loops.py; not detected with ``ignore_eos``); the repetitions do not
        stay in the conversation.
        """
        return self.outcome.finish_reason

    @property
    def whole(self) -> bool:
        """True if the answer has the form that was asked for: False if ``max_tokens``, a stop text, a timeout or a
        cancellation cut it off before.  True where no form was asked for.
        """
        return self.outcome.whole

    @property
    def usage(self) -> Usage:
        """Numbers of tokens: ``prompt``, of these ``cached`` (not read again), ``completion`` (generated)."""
        return self.outcome.usage

    @property
    def logprobs(self) -> list[Logprob]:
        """If ``logprobs`` was set: for each token so far ``id``, ``text``, ``logprob`` in nats, and ``top``, the
        likeliest tokens; in the order of the ids of the pieces."""
        return self.outcome.logprobs

    @property
    def prompt_logprobs(self) -> list[Logprob]:
        """If ``echo`` was set: the same for each token of the prompt; the first, which nothing precedes, has the
        ``logprob`` NaN."""
        return self.outcome.prompt_logprobs

    @property
    def shares(self) -> list[Scored]:
        """With ``choices``: how likely each of them is, the likeliest first, as Session.choose returns it.  Empty if
        they have more than 256 tokens together and ``max_tokens`` is not 0, or the answer may be a call of a function.
        """
        return self.outcome.shares

    @property
    def timings(self) -> Timings:
        """Seconds: ``prompt_seconds``, ``first_token_seconds`` (from the start of the call), ``decode_seconds``."""
        return self.outcome.timings

    def cancel(self) -> None:
        """Stop at the next token or chunk of the prompt.  May be called from any thread or signal handler."""
        self.outcome.cancelled = True

    def close(self) -> None:
        """End the answer, and wait until the session is free: a step at most.  The text so far is kept; a turn without
        any text is removed.
        """
        self.cancel()
        job = self.job
        with self._beginning:
            if not job.prepared and job.work is not None:
                self._refuse_within()
                job.work.close()
                job.end()
        if not job.over and not is_forked():
            self._scheduler.leave(job)
            self._scheduler.read(job, 0, job.take_end)

    def drop(self, seconds: float = LET_GO) -> None:
        """End it, as nobody reads it any more: its session is free within a step, for which this waits ``seconds``."""
        self._scheduler.drop(self.job, seconds)

    def __del__(self) -> None:
        self.drop()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        """As ``text``: printing an answer prints all of it."""
        return self.text

    def __repr__(self) -> str:
        said = self.outcome.said.decode()
        shown = said if len(said) <= 40 else said[:39] + "…"
        if self.finish_reason is None:
            begun = f"{shown!r}, being written" if self.usage.prompt else "not begun"
            return f"<Answer, {begun}: iterate it, print it or read its text>"
        tokens = count(self.usage.completion, "token")
        return f"<Answer {shown!r}, finish_reason={self.finish_reason!r}, {tokens}>"
