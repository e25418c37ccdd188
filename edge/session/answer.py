"""Answer: one call of a session: the pieces while they are written, how it ended, and its token counts and times.

The loop from logits to pieces (edge/session/generation.py) yields tokens to evaluate (Segment) and text (Piece).  It
runs no step itself: the scheduler does, in the thread that iterates the Answer or in one of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge.amounts import count
from edge.errors import EdgeError, UsageError, one_line
from edge.session.logprobs import Logprob, Scored
from edge.session.stream import Piece
from edge.session.usage import Timings, Usage

if TYPE_CHECKING:
    from edge.constrain.functions import Form
    from edge.constrain.spec import Spec
    from edge.session.scheduler import Need, Scheduler

    Work = Generator[Need | Piece, None, Any]


class AnswerText:
    """The text of an answer; of an endless answer only its end.

    Pieces are joined as they arrive, so that a long text takes little more memory than its characters.  ``dropped``:
    whether its beginning was dropped.
    """

    BLOCK = 512  # pieces that are joined

    def __init__(self) -> None:
        self.dropped = False
        self._whole = False  # all of it is wanted
        self._blocks: list[str] = []
        self._loose: list[str] = []

    def append(self, text: str) -> None:
        """Add the next piece."""
        self._loose.append(text)
        if len(self._loose) == self.BLOCK:
            self._blocks.append("".join(self._loose))
            self._loose.clear()

    def keep_all(self) -> None:
        """Drop nothing from now on."""
        self._whole = True

    def drop(self, pieces: int) -> None:
        """Drop all but the latest ``pieces`` pieces."""
        n = len(self._blocks) - (pieces + self.BLOCK - 1) // self.BLOCK
        if n > 0 and not self._whole:
            del self._blocks[:n]
            self.dropped = True

    def __str__(self) -> str:
        return "".join([*self._blocks, *self._loose])


@dataclass(slots=True, eq=False)
class Outcome:
    """The state of a call: written by the loop, read by the Answer."""

    spec: Spec | None = None  # what the answer has to be
    form: Form | None = None  # how calls of functions are written in it
    finish_reason: str | None = None
    usage: Usage = Usage()  # noqa: RUF009  frozen
    timings: Timings = Timings()  # noqa: RUF009  frozen
    said: AnswerText = field(default_factory=AnswerText)
    thoughts: AnswerText = field(default_factory=AnswerText)
    logprobs: list[Logprob] = field(default_factory=list)
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    shares: list[Scored] = field(default_factory=list)  # of the choices
    left_out: int = 0  # characters of the messages that are not read
    whole: bool = True  # the answer has the form that was asked for, or none was
    repeated: str = ""  # the end of an answer in a loop: what only repeats the text before it
    cancelled: bool = False
    deadline: float | None = None

    def interrupted(self) -> str | None:
        """The reason to end the call now, or None."""
        if self.cancelled:
            return "cancelled"
        return "timeout" if self.deadline is not None and time.perf_counter() > self.deadline else None


class Answer:
    """The result of ``ask``, ``complete`` and ``chat``.  Generation starts when it is iterated, or when its ``text`` is
    read or printed.

    Iterating yields :class:`Piece` objects; a ``for`` loop can be left at any time and continued later.  Closing
    (``with``, :meth:`close`, or dropping the last reference) ends the answer; the text generated so far is kept.
    Threads may share an answer: each piece goes to one of them, and ``text`` has all of it.
    """

    def __init__(self, work: Work, scheduler: Scheduler, outcome: Outcome) -> None:
        self.scheduler = scheduler  # that runs its steps
        self.work = work  # the generator
        self.outcome = outcome
        self._turn = threading.RLock()  # of the thread that does the next step
        self._stepping = False

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        return self._step(self._next)

    def _next(self) -> Piece:
        work, step = self.work, self.scheduler.step
        item = next(work)
        while type(item) is not Piece:
            item = step(work, item)
        return item

    def take(self) -> Work:
        """The generator, for another reader than this object, which then only has what was said so far."""
        def taken() -> Work:
            raise UsageError("the pieces of the answer are read elsewhere (edge.aio)")
            yield

        work, self.work = self.work, taken()
        return work

    def _step(self, do: Callable[[], Any]) -> Any:
        """Do something with the generator, when no other thread does."""
        with self._turn:
            if self._stepping:  # a callback or a signal handler
                raise UsageError("the answer is being written by this thread: only cancel() may be called now")
            self._stepping = True
            try:
                return do()
            finally:
                self._stepping = False

    @property
    def text(self) -> str:
        """The whole answer; generates what is missing.

        Raises EdgeError if more than 32,768 tokens have been iterated through a window, so that the beginning was not
        kept.
        """
        return self._all(self.outcome.said)

    def keep_all(self) -> None:
        """Drop nothing of a long answer, so that its text can be read at the end."""
        self.outcome.said.keep_all()
        self.outcome.thoughts.keep_all()

    def _all(self, said: AnswerText) -> str:
        said.keep_all()
        if self.outcome.finish_reason is None:
            for _ in self:
                if self.scheduler.admission.running > 1:
                    self._step(lambda: self.scheduler.wait(self.work, all_=True))
        if said.dropped:
            raise EdgeError(
                f"the beginning of the answer ({self.usage.completion} tokens) is gone: use its pieces as they come,"
                " or ask for the text before them")
        return str(said)

    @property
    def content(self) -> str:
        """The answer without the function calls in its ``text``."""
        return self.text if self.outcome.form is None else self.outcome.form.split(self.text)[0]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The function calls in the answer, in OpenAI's format."""
        return [] if self.outcome.form is None else self.outcome.form.split(self.text)[1]

    @property
    def form(self) -> Form | None:
        """How calls of functions are written in it; None without ``tools``."""
        return self.outcome.form

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
        if spec is not None and self.calls:
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
        """Whether the answer has the form that was asked for: False if ``max_tokens``, a stop text, a timeout or a
        cancellation cut it off before.  True where no form was asked for.
        """
        return self.outcome.whole

    @property
    def usage(self) -> Usage:
        """Numbers of tokens: ``prompt``, of these ``cached`` (not read again), ``completion`` (generated)."""
        return self.outcome.usage

    @property
    def left_out(self) -> int:
        """Number of characters of the question that are not read, because it is longer than a whole context that
        slides: those between its beginning and its end.  Known when ``on_prefill`` is first called, before anything is
        read.
        """
        return self.outcome.left_out

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
        they have more than 256 tokens together, or the answer may be a call of a function instead."""
        return self.outcome.shares

    @property
    def timings(self) -> Timings:
        """Seconds: ``prompt_seconds``, ``first_token_seconds`` (from the start of the call), ``decode_seconds``."""
        return self.outcome.timings

    def cancel(self) -> None:
        """Stop at the next token or chunk of the prompt.  May be called from any thread or signal handler."""
        self.outcome.cancelled = True

    def close(self) -> None:
        """End the answer now, or after the step of another thread.  The text so far is kept; a turn without any text is
        removed.
        """
        self.cancel()
        self._step(self.work.close)

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        """As ``text``: printing an answer prints all of it."""
        return self.text

    def __repr__(self) -> str:
        said = str(self.outcome.said)
        shown = said if len(said) <= 40 else said[:39] + "…"
        if self.finish_reason is None:
            begun = f"{shown!r}, being written" if self.usage.prompt else "not begun"
            return f"<Answer, {begun}: iterate it, print it or read its text>"
        tokens = count(self.usage.completion, "token")
        return f"<Answer {shown!r}, finish_reason={self.finish_reason!r}, {tokens}>"
