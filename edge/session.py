"""Session: one conversation, or one raw prompt after the other, and the loop that turns logits into pieces."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edge.context import Context, OnPrefill, common
from edge.errors import ContextFull, EdgeError, UsageError
from edge.request import DEFAULT_MAX_TOKENS, Request, check_text
from edge.sampling import Sampling
from edge.stream import Piece, Stream, check_stop
from edge.usage import Timings, Usage, stats_line

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.parking import Parked

class Session:
    """Made by :meth:`edge.engine.Engine.session`.  One caller at a time, except :meth:`cancel`.

    ``messages`` is the conversation as dictionaries with ``role`` and ``content``; it may be edited between calls,
    the next call evaluates from the first difference.  ``finish_reason`` of the last call: "stop", "length",
    "cancelled", "timeout", "context_full", or None while it runs and before the first.
    """

    def __init__(self, engine: Engine, system: str | None = None) -> None:
        self.engine = engine
        self.messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
        self.usage = Usage()
        self.timings = Timings()
        self.finish_reason: str | None = None
        self.forgotten = 0  # oldest messages that no longer fit and are not part of the prompt any more
        self.seed = int.from_bytes(os.urandom(8), "little")  # of the random numbers in use
        self._context: Context | None = None  # allocated on first use
        self.parked: Parked | None = None  # what parking, or coming back from it, took last
        self._parked_at: str | None = None
        self._busy = False
        self._closed = False
        self._cancelled = False

    # ---- what callers do --------------------------------------------------------------------------------------------

    def ask(
        self,
        text: str,
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        by: str = "token",
        timeout: float | None = None,
        ignore_eos: bool = False,
        on_prefill: OnPrefill | None = None,
    ) -> Iterator[Piece]:
        """One turn of the conversation; iterate to get the answer.

        ``by``: "token", "word", "sentence" or "all" is the size of the pieces.  ``stop``: texts that end the answer
        and are not part of it.  ``timeout``: seconds, the caller's own between pieces included.  ``on_prefill`` is
        called with (tokens done, tokens in all, tokens cached) while the prompt is read.

        Stopping early (closing the iterator, :meth:`cancel`, a timeout) keeps what was said as the answer; a turn
        without any text leaves no trace.  Raises ContextFull when the prompt does not fit and ``overflow`` is "stop".
        """
        check_text(text)
        lead = self.engine.answer_lead
        options = self._options(max_tokens, sampling, stop, by, timeout, ignore_eos, on_prefill, lead)
        return self._run(options, message=text)

    def complete(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        by: str = "token",
        timeout: float | None = None,
        ignore_eos: bool = False,
        on_prefill: OnPrefill | None = None,
    ) -> Iterator[Piece]:
        """Continue a raw prompt, text (the model's BOS is put before it) or token ids (used as they are).

        No template, ``messages`` stays as it is.  Arguments as in :meth:`ask`.
        """
        if isinstance(prompt, str):
            check_text(prompt)
        options = self._options(max_tokens, sampling, stop, by, timeout, ignore_eos, on_prefill)
        return self._run(options, prompt=prompt)

    def warm(self) -> int:
        """Evaluate what the next turn will begin with: system prompt and history.  Returns the tokens now held."""
        self._cancelled = False
        context = self._begin()
        try:
            # What the prompts of two different next questions have in common is known before the question.
            ids = self._encode([*self.messages, {"role": "user", "content": "a"}])
            other = self._encode([*self.messages, {"role": "user", "content": "1"}])
            ids = context.splice(ids[: common(ids, other)])
            if self.engine.plan.overflow == "stop" and len(ids) > self.engine.plan.n_ctx:
                raise ContextFull(self._too_long(len(ids)))
            cached = common(context.tokens, ids)
            if cached < len(ids):
                share = len(ids)
                cached, _ = context.prefill(ids, lambda: self._interrupted(None), None, logits=False, share=share)
            self.usage, self.timings = Usage(len(ids), cached), Timings()
            return len(context.tokens)
        finally:
            self._end()

    def undo(self) -> str | None:
        """Take the last question and its answer back; returns the question, None if there is none."""
        self._not_busy()
        for at in range(len(self.messages) - 1, -1, -1):
            if self.messages[at]["role"] == "user":
                question = self.messages[at]["content"]
                del self.messages[at:]
                if at <= self._first + self.forgotten:
                    self.forgotten = 0
                return question
        return None

    def clear(self) -> None:
        """Forget the conversation, keep the system prompt."""
        self._not_busy()
        self.messages = self.messages[:1] if self.system is not None else []
        self.forgotten = 0

    def cancel(self) -> None:
        """End the running call at the next token or chunk of prompt; from any thread or signal handler."""
        self._cancelled = True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it to a file for :meth:`edge.engine.Engine.load_session`; see :mod:`edge.session_file`."""
        from edge import session_file

        self._not_busy()
        if self._parked_at:
            self._context = self._unpark()
        if self._context:
            self._context.check()
        session_file.save(self, path)

    def park(self, path: str | os.PathLike[str]) -> Parked:
        """Save to a file and give the KV pages back; the next call takes them from there, see :mod:`edge.parking`."""
        from edge.parking import park

        self._not_busy()
        self.parked = park(self, path)
        return self.parked

    def _unpark(self) -> Context | None:
        from edge.parking import unpark

        return unpark(self)

    def close(self) -> None:
        """Give the KV cache back.  The session cannot be used afterwards."""
        self._closed = True
        self._cancelled = True
        if not self._busy:
            self._end()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what callers ask -------------------------------------------------------------------------------------------

    @property
    def system(self) -> str | None:
        """The system prompt; assign to change it from the next turn on."""
        if self.messages and self.messages[0]["role"] == "system":
            return self.messages[0]["content"]
        return None

    @system.setter
    def system(self, text: str | None) -> None:
        self._not_busy()
        rest = self.messages[1:] if self.system is not None else self.messages
        self.messages = [{"role": "system", "content": text}, *rest] if text else list(rest)
        self.forgotten = 0

    @property
    def _first(self) -> int:
        """Index of the first message behind the system prompt."""
        return 0 if self.system is None else 1

    @property
    def n_tokens(self) -> int:
        """Tokens the KV cache has seen."""
        return len(self._context.tokens) if self._context else 0

    @property
    def evicted(self) -> int:
        """Tokens seen that are no longer attended, because the context slid on."""
        return self._context.kv.evicted if self._context else 0

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache allocated now: 0 before the first call."""
        return self._context.kv.nbytes if self._context else 0

    @property
    def offload_error(self) -> str | None:
        """Why pages that left the window can no longer be kept (``kv_offload``); None as long as all is well."""
        return self._context.offload_error if self._context else None

    def stats_line(self) -> str:
        """The last call in one line of fixed form."""
        return stats_line(self.usage, self.timings, self.engine.plan, self.engine.rss()["rss"], self.evicted)

    # ---- state ------------------------------------------------------------------------------------------------------

    def _options(
        self,
        max_tokens: int | None,
        sampling: Sampling | None,
        stop: str | Sequence[str],
        by: str,
        timeout: float | None,
        ignore_eos: bool,
        on_prefill: OnPrefill | None,
        lead: str = "",
    ) -> Request:
        self._not_busy()
        self._cancelled = False  # here, not at the first token: a cancel() right after ask() counts
        most = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
        return Request(most, sampling or Sampling(), check_stop(stop), by, timeout, ignore_eos, on_prefill, lead)

    def _interrupted(self, deadline: float | None) -> str | None:
        """Why the call has to end now, or None."""
        if self._cancelled:
            return "cancelled"
        return "timeout" if deadline is not None and time.perf_counter() > deadline else None

    def _not_busy(self) -> None:
        if self._busy:
            raise UsageError("the session is still answering: finish or close its iterator first")
        if self._closed or self.engine.closed:
            raise UsageError("the session is closed")

    def _begin(self) -> Context:
        """Take the session; memory is allocated on first use."""
        self._not_busy()
        if self._context is None:
            parked = self._unpark() if self._parked_at else None
            self._context = parked or Context(self.engine, self.seed)
        self._context.check()
        self._busy = True
        return self._context

    def _end(self) -> None:
        """Give the session free again."""
        self._busy = False
        if self._closed:
            self._context = None

    # ---- prompt -----------------------------------------------------------------------------------------------------

    def _encode(self, messages: list[dict[str, str]]) -> array[int]:
        """The prompt for messages, without those that were forgotten."""
        first = self._first
        kept = messages[:first] + messages[first + self.forgotten :]
        return array("i", self.engine.template.encode(self.engine.tokenizer, kept, add_generation_prompt=True))

    def _shared(self, ids: array[int]) -> int:
        """How much of ids every conversation with this system prompt begins with; 0 without one."""
        if self.system is None:
            return 0
        n = len(ids)
        for question in ("a", "1"):
            n = min(n, common(ids, self._encode([self.messages[0], {"role": "user", "content": question}])))
        return n

    def _chat_prompt(self, context: Context) -> array[int]:
        """The prompt for ``messages``.

        Where the context slides, a prompt of which more than a whole context would have to be evaluated (the ring
        has lost what it begins with, after an undo for example) is shortened: the oldest turns are forgotten until
        half the context is free.
        """
        if self._first + self.forgotten >= len(self.messages):
            self.forgotten = 0  # the caller has shortened the conversation
        ids = context.splice(self._encode(self.messages))
        plan = self.engine.plan
        if plan.overflow == "stop" or len(ids) - context.keep(ids) <= plan.n_ctx:
            return ids
        while len(ids) > plan.n_ctx // 2:
            later = range(self._first + self.forgotten + 1, len(self.messages))
            turn = next((i for i in later if self.messages[i]["role"] == "user"), None)
            if turn is None:  # only the question is left
                break
            self.forgotten = turn - self._first
            ids = self._encode(self.messages)
        return ids

    def _raw_prompt(self, prompt: str | Sequence[int]) -> array[int]:
        tokenizer = self.engine.tokenizer
        if isinstance(prompt, str):
            bos = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
            ids = array("i", [*bos, *tokenizer.encode(prompt)])
        else:
            n_vocab = self.engine.config.n_vocab
            ids = array("i")
            for token in prompt:
                if not isinstance(token, int) or not 0 <= token < n_vocab:
                    raise UsageError(f"token {token!r} is not one of the {n_vocab} of the vocabulary")
                ids.append(token)
        if not ids:
            raise UsageError("the prompt is empty")
        return ids

    def _too_long(self, n: int) -> str:
        held = self.engine.plan.n_ctx
        return f"the prompt has {n} tokens, the context {held}; a larger --ctx or --overflow slide helps"

    # ---- answer -----------------------------------------------------------------------------------------------------

    def _run(
        self, options: Request, message: str | None = None, prompt: str | Sequence[int] | None = None
    ) -> Iterator[Piece]:
        """The whole call, as a generator; ``message`` for a turn of the conversation, ``prompt`` for a raw one."""
        begun = time.perf_counter()
        context = self._begin()
        self.finish_reason = None
        self.usage, self.timings = Usage(), Timings()
        answer: list[str] = []
        if message is not None:
            self.messages.append({"role": "user", "content": message})
        try:
            ids = self._chat_prompt(context) if prompt is None else self._raw_prompt(prompt)
            share = 0 if message is None or self.engine.prefixes is None else self._shared(ids)
            yield from self._generate(context, ids, options, begun, answer, share)
        finally:
            if message is not None:
                text = "".join(answer)
                if text or self.usage.completion or self.finish_reason == "stop":
                    self.messages.append({"role": "assistant", "content": text})
                else:
                    self.messages.pop()
            self._end()

    def _generate(
        self, context: Context, ids: array[int], options: Request, begun: float, answer: list[str], share: int
    ) -> Iterator[Piece]:
        """Evaluate the prompt, then sample, pass on and evaluate one token after the other."""
        engine, plan = self.engine, self.engine.plan
        if plan.overflow == "stop" and len(ids) > plan.n_ctx:
            raise ContextFull(self._too_long(len(ids)))
        deadline = None if options.timeout is None else begun + options.timeout
        most_held = plan.n_ctx if plan.overflow == "stop" else 1 << 62
        clock, evaluate, token = time.perf_counter, context.evaluate, 0

        start = clock()
        winners = options.sampling.winners
        cached, reason = context.prefill(
            ids, lambda: self._interrupted(deadline), options.on_prefill, share=share, winners=winners
        )
        prompt_seconds = clock() - start
        tokens, logits = context.tokens, context.logits
        self.usage = Usage(len(ids), cached)
        self.timings = Timings(prompt_seconds)

        stream = Stream(engine.tokenizer.stream(), options.stop, options.by, options.lead)
        push = stream.push
        stop_ids = frozenset() if options.ignore_eos else engine.stop_ids
        sampling = options.sampling
        if sampling.seed is not None:
            self.seed = sampling.seed
            context.sampler.reseed(sampling.seed)
        sample = context.sampler.sample
        args = (
            *(sampling.temp, sampling.top_k, sampling.top_p, sampling.min_p),
            *(sampling.repeat_penalty, sampling.presence_penalty, sampling.frequency_penalty),
        )
        recent = -sampling.repeat_last_n if sampling.repeat_last_n > 0 else 0  # start of a slice: 0 is all
        penalises = sampling.penalises

        count, most = 0, options.max_tokens
        most_ahead = min(most_held, len(ids) + most - 1)  # the last token is not evaluated
        pending = False  # the last token is not evaluated yet
        first = first_seconds = away = left = decode_seconds = 0.0
        try:
            if reason is None and most == 0:
                reason = "length"
            while reason is None:
                try:
                    token = sample(logits, *args, tokens[recent:] if penalises else None)
                except ValueError as error:
                    raise EdgeError(f"the model gave no usable answer ({error}); its file may be damaged") from None
                if not count:
                    first = clock()
                    first_seconds = first - begun
                if token in stop_ids:
                    reason = "stop"
                    break
                count += 1
                pending = True
                pieces = push(token)
                if pieces:
                    for piece in pieces:
                        answer.append(piece.text)
                        left = clock()
                        yield piece
                        away += clock() - left
                if stream.stopped:
                    reason = "stop"
                elif count >= most:
                    reason = "length"
                elif self._cancelled:
                    reason = "cancelled"
                elif deadline is not None and clock() > deadline:
                    reason = "timeout"
                elif len(tokens) >= most_held:
                    reason = "context_full"
                else:
                    logits = evaluate(token, winners, most_ahead)
                    pending = False
            decode_seconds = clock() - first - away if count else 0.0
            for piece in stream.flush():
                answer.append(piece.text)
                yield piece
        except GeneratorExit:
            if reason is None:
                reason, decode_seconds = "cancelled", left - first - away
            raise
        finally:
            context.settle()
            context.sampled = array("i", [token] if pending else [])
            self.finish_reason = reason
            self.usage = Usage(len(ids), cached, count, *context.drafts)
            self.timings = Timings(prompt_seconds, first_seconds, decode_seconds)
