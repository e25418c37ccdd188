"""Answer: one call of a session: the pieces while they are written, how it ended, and its token counts and times.

The loop from logits to pieces (:func:`write`) is a generator that yields tokens to evaluate (Segment) and text (Piece).
It runs no step itself: an Answer drives it in the caller's thread, edge/aio.py drives many in one thread.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from edge.amounts import count
from edge.errors import EdgeError
from edge.model.model import Segment
from edge.session.logprobs import Logprob, look, scored
from edge.session.loops import EVERY, loops
from edge.session.stream import Piece, Stream
from edge.session.usage import Timings, Usage

if TYPE_CHECKING:
    from edge.cache.config import KVPlan
    from edge.cache.state import KVState
    from edge.constrain.functions import Form
    from edge.constrain.spec import Spec
    from edge.model.model import Model
    from edge.session.request import Request
    from edge.session.scheduler import Need, Scheduler

    Work = Generator[Need | Piece, None, None]


class Said:
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


class Outcome:
    """The state of a call: written by the loop, read by the Answer."""

    __slots__ = (
        "cancelled", "deadline", "finish_reason", "form", "left_out", "logprobs", "prompt_logprobs", "repeated", "said",
        "spec", "thoughts", "timings", "usage", "whole",
    )

    def __init__(self, spec: Spec | None = None, form: Form | None = None) -> None:
        self.finish_reason: str | None = None
        self.usage = Usage()
        self.timings = Timings()
        self.said = Said()
        self.thoughts = Said()
        self.logprobs: list[Logprob] = []
        self.prompt_logprobs: list[Logprob] = []
        self.left_out = 0  # characters of the messages that are not read
        self.whole = True  # the answer has the form that was asked for, or none was
        self.repeated = ""  # the end of an answer in a loop: what only repeats the text before it
        self.cancelled = False
        self.deadline: float | None = None
        self.spec = spec  # what the answer has to be
        self.form = form  # how calls of functions are written in it

    def interrupted(self) -> str | None:
        """The reason to end the call now, or None."""
        if self.cancelled:
            return "cancelled"
        return "timeout" if self.deadline is not None and time.perf_counter() > self.deadline else None


class Answer:
    """The result of ``ask``, ``complete`` and ``chat``.  Generation starts when it is iterated or its ``text`` is read.

    Iterating yields :class:`Piece` objects; a ``for`` loop can be left at any time and continued later.  Closing
    (``with``, :meth:`close`, or dropping the last reference) ends the answer; the text generated so far is kept.
    """

    def __init__(self, work: Work, scheduler: Scheduler, outcome: Outcome) -> None:
        self.scheduler = scheduler  # that runs its steps
        self._work = work
        self._outcome = outcome
        self._need: Segment | None = None  # what :meth:`advance` has asked for

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        work, step = self._work, self.scheduler.step
        item = next(work)
        while type(item) is not Piece:
            try:
                step(item)  # type: ignore[arg-type]
            except BaseException as error:
                item = work.throw(error)
            else:
                item = next(work)
        return item

    def advance(self) -> Piece | Need:
        """One step of the answer, for :mod:`edge.aio` and the scheduler.  Programs iterate instead.

        Returns the next Piece, or what the caller must do before it calls this again: evaluate a Segment
        (Scheduler.run), or call ``wait()`` of a Place.  Raises StopIteration at the end.
        """
        need, self._need = self._need, None
        if need is None or need.error is None:
            item = next(self._work)
        else:
            error, need.error = need.error, None
            item = self._work.throw(error)
        if isinstance(item, Segment):
            self._need = item
        return item

    @property
    def text(self) -> str:
        """The whole answer; generates what is missing.

        Raises EdgeError if more than 32,768 tokens have been iterated through a window, so that the beginning was not
        kept.
        """
        return self._all(self._outcome.said)

    def _all(self, said: Said) -> str:
        said.keep_all()
        if self._outcome.finish_reason is None:
            for _ in self:
                if self.scheduler.admission.running > 1:
                    try:
                        self.scheduler.finish(self)
                    except EdgeError:  # before its first step, too: it must not keep its place
                        self.close()
                        raise
        if said.dropped:
            raise EdgeError(
                f"the beginning of the answer ({self.usage.completion} tokens) is gone: use its pieces as they come,"
                " or ask for the text before them")
        return str(said)

    @property
    def content(self) -> str:
        """The answer without the function calls in its ``text``."""
        return self.text if self._outcome.form is None else self._outcome.form.split(self.text)[0]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The function calls in the answer, in OpenAI's format."""
        return [] if self._outcome.form is None else self._outcome.form.split(self.text)[1]

    @property
    def form(self) -> Form | None:
        """How calls of functions are written in it; None without ``tools``."""
        return self._outcome.form

    @property
    def thoughts(self) -> str:
        """The text of the model's thinking before the answer, not part of ``text``; generates what is missing."""
        return self._all(self._outcome.thoughts)

    @property
    def value(self) -> Any:
        """The parsed answer if a ``schema`` was given: an instance of its class, or JSON types; otherwise the text.

        Runs to its end.  Raises EdgeError if the answer was cut off, or calls functions instead.
        """
        text, spec = self.content, self._outcome.spec
        if spec is not None and self.calls:
            raise EdgeError("the answer calls a function and has no value; see calls")
        if not self.whole:
            raise EdgeError(f"the answer is incomplete ({self.finish_reason}): it does not have its form")
        try:
            return text if spec is None else spec.value(text)
        except (ValueError, TypeError) as error:
            raise EdgeError(f"the answer is incomplete ({self.finish_reason}): {error}") from None

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended; None until then.

        "stop": the model ended it, or a stop string was found.  "length": ``max_tokens`` was reached.  "cancelled" and
        "timeout": it was ended from outside.  "context_full": the context is full, and ``overflow`` is "stop".  "loop":
        its end only repeats itself (edge/session/loops.py; not detected with ``ignore_eos``); the repetitions do not
        stay in the conversation.
        """
        return self._outcome.finish_reason

    @property
    def whole(self) -> bool:
        """Whether the answer has the form that was asked for: False if ``max_tokens``, a stop text, a timeout or a
        cancellation cut it off before.  True where no form was asked for.
        """
        return self._outcome.whole

    @property
    def usage(self) -> Usage:
        """Numbers of tokens: ``prompt``, of these ``cached`` (not read again), ``completion`` (generated), ``drafted``,
        of these ``accepted``."""
        return self._outcome.usage

    @property
    def left_out(self) -> int:
        """Number of characters of the question that are not read, because it is longer than a whole context that
        slides: those between its beginning and its end.  Known when ``on_prefill`` is first called, before anything is
        read.
        """
        return self._outcome.left_out

    @property
    def logprobs(self) -> list[Logprob]:
        """If ``logprobs`` was set: for each token so far ``id``, ``text``, ``logprob`` in nats, and ``top``, the
        likeliest tokens; in the order of the ids of the pieces."""
        return self._outcome.logprobs

    @property
    def prompt_logprobs(self) -> list[Logprob]:
        """If ``echo`` was set: the same for each token of the prompt; the first, which nothing precedes, has the
        ``logprob`` NaN."""
        return self._outcome.prompt_logprobs

    @property
    def timings(self) -> Timings:
        """Seconds: ``prompt_seconds``, ``first_token_seconds`` (from the start of the call), ``decode_seconds``."""
        return self._outcome.timings

    def cancel(self) -> None:
        """Stop at the next token or chunk of the prompt.  May be called from any thread or signal handler."""
        self._outcome.cancelled = True

    def close(self) -> None:
        """End the answer now.  The text so far is kept; a turn without any text is removed."""
        self._work.close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        said = str(self._outcome.said)
        shown = said if len(said) <= 40 else said[:39] + "…"
        tokens = count(self.usage.completion, "token")
        return f"<Answer {shown!r}, finish_reason={self.finish_reason!r}, {tokens}>"


def write(
    model: Model,
    plan: KVPlan,
    state: KVState,
    ids: array[int],
    request: Request,
    outcome: Outcome,
    begun: float,
    share: int = 0,
    shared: Callable[[KVState], object] | None = None,
) -> Work:
    """The loop of an answer: evaluate the prompt, then sample, yield and evaluate one token after the other.

    ``begun``: when the call began (time.perf_counter).  ``share`` and ``shared``: see KVState.prefill.

    Raises EdgeError if no logit is usable.
    """
    most_held = plan.n_ctx if plan.overflow == "stop" else 1 << 62
    clock, deadline, token = time.perf_counter, outcome.deadline, 0

    start = clock()
    sampling = request.sampling
    constraint = request.constraint
    gaps = model.usable + len(model.unused) > model.config.n_vocab  # then a winner might be one that is never chosen
    winners = sampling.winners if constraint is None and request.logprobs is None and not gaps else 0
    forced = None if constraint is None else constraint.forced
    if request.echo and request.logprobs is not None:
        cached, reason = 0, (yield from scored(
            state, ids, request.logprobs, min(32, model.chunk), model.tokenizer.token_bytes, outcome.interrupted,
            request.on_prefill, outcome.prompt_logprobs))  # fmt: skip
    else:
        cached, reason = yield from state.prefill(
            ids, outcome.interrupted, request.on_prefill, share=share, winners=winners, shared=shared
        )
    prompt_seconds = clock() - start
    tokens, logits = state.tokens, state.logits
    outcome.usage = Usage(len(ids), cached)
    outcome.timings = Timings(prompt_seconds)

    decoder = model.tokenizer.decoder() if request.form is None else request.form.decoder(model.tokenizer.decoder())
    stream = Stream(decoder, request.stop, request.by, request.lead, request.thinks, model.thinking_marks)
    push, advance, take = stream.push, state.advance, state.take
    stop_ids = frozenset() if request.ignore_eos else model.stop_ids
    sample = state.sampler.sample
    args = (
        *(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p),
        *(sampling.repeat_penalty, sampling.presence_penalty, sampling.frequency_penalty),
    )
    recent = -sampling.repeat_last_n if sampling.repeat_last_n > 0 else 0  # start of a slice: 0 is all
    penalises = sampling.penalises

    looks = not request.ignore_eos and constraint is None
    telling = request.logprobs
    budget = request.thinking_budget if request.thinks else None  # tokens left for thoughts
    ending: list[int] = []  # tokens that end them, the last first
    said, thought = outcome.said, outcome.thoughts
    count, most = 0, request.max_tokens
    endless = plan.endless(sampling.repeat_last_n if penalises else 0)
    most_ahead = min(most_held, len(ids) + most - 1)  # the last token is not evaluated
    pending = False  # the last token is not evaluated yet
    first = first_seconds = away = left = decode_seconds = 0.0
    try:
        if reason is None and most == 0:
            reason = "length"
        while reason is None:
            if telling is not None:
                chosen = look(logits, telling, state.sampler, model.tokenizer.token_bytes)
            try:
                if ending:
                    token = ending.pop()
                else:
                    token = sample(logits, *args, tokens[recent:] if penalises else None)
                while constraint is not None and not constraint.allows(token, most - count):
                    token = sample(logits, *args, None, constraint.mask())
            except ValueError as error:
                raise EdgeError(f"the model gave no usable answer ({error}); its file may be damaged") from None
            if not count:
                first = clock()
                first_seconds = first - begun
            if token in stop_ids:
                reason = "stop"
                break
            if constraint is not None:
                constraint.accept(token)
            count += 1
            if telling is not None:
                outcome.logprobs.append(chosen(token))
            pending = True
            thought_of = budget is not None and stream.thinking
            pieces = push(token)
            if budget is not None and stream.thinking:
                budget -= thought_of
                if budget <= 0:
                    ending, budget = model.end_of_thought[::-1], None
            if pieces:
                for piece in pieces:
                    (thought if piece.thought else said).append(piece.text)
                    left = clock()
                    yield piece
                    away += clock() - left
            if stream.stopped or (constraint is not None and constraint.done):
                reason = "stop"
            elif count >= most:
                reason = "length"
            elif looks and not count % EVERY and (again := loops(tokens, count - 1)):
                reason = "loop"
                outcome.repeated = model.tokenizer.decode([*tokens[-again:], token], False)
            elif outcome.cancelled:
                reason = "cancelled"
            elif deadline is not None and clock() > deadline:
                reason = "timeout"
            elif len(tokens) >= most_held:
                reason = "context_full"
            else:
                segment = advance(token, winners, most_ahead, forced)
                if segment is not None:
                    yield segment
                logits = take(token, segment)
                pending = False
                if count >= endless and not count % Said.BLOCK:
                    state.drop(plan.recalled)
                    said.drop(plan.recalled)
                    thought.drop(plan.recalled)
        decode_seconds = clock() - first - away if count else 0.0
        for piece in stream.flush():
            (thought if piece.thought else said).append(piece.text)
            yield piece
    except GeneratorExit:
        if reason is None:
            reason, decode_seconds = "cancelled", left - first - away
        raise
    finally:
        state.settle()
        state.sampled = array("i", [token] if pending else [])
        outcome.finish_reason = reason
        outcome.whole = constraint is None or constraint.done or constraint.satisfied
        outcome.usage = Usage(len(ids), cached, count, *state.drafts)
        outcome.timings = Timings(prompt_seconds, first_seconds, decode_seconds)
