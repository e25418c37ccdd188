"""Session: one conversation, or a series of raw prompts, with its KV state."""

from __future__ import annotations

import dataclasses
import os
import time
from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edge.cache.space import KVSpace
from edge.cache.state import KVState, Talk, common
from edge.errors import EdgeError, MemoryRefused, UsageError
from edge.prompt.interrupt import Interrupted, interruptible
from edge.session.answer import Answer, Outcome, write
from edge.session.logprobs import Scored, scores
from edge.session.preparing import Preparer
from edge.session.prompting import Prompting, common_messages, refuse_full, refuse_long
from edge.session.request import Prepared, check_text
from edge.session.scheduler import Scheduler
from edge.session.usage import Timings, Usage, stats_line
from edge.threads import refuse_after_fork

if TYPE_CHECKING:
    from edge.cache.parking import Parked
    from edge.cache.store import Store
    from edge.session.admission import Place
    from edge.session.answer import Work
    from edge.session.scheduler import Need


class Session:
    """One conversation, made by :meth:`edge.engine.Engine.session`.  One caller at a time, except :meth:`cancel`.

    Use it in programs that ask and read answers.  Use :class:`edge.session.conversation.Conversation`, which holds a
    Session, if a person can also ask for another answer or should see how full the context is.

    ``messages``: the conversation as dictionaries with ``role`` and ``content``.  It may be edited between calls; the
    next call reads it from the first difference.
    """

    def __init__(self, space: KVSpace, scheduler: Scheduler, store: Store, system: str | None = None) -> None:
        self.model = space.model
        self.plan = space.plan
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        self.forgotten = 0  # oldest messages that no longer fit and are not part of the prompt any more
        self.seed = int.from_bytes(os.urandom(8), "little")  # of the random numbers in use
        self.state: KVState | None = None  # allocated on first use
        self.known = 0  # messages of the latest chat() that this session, or the conversation it continued, had before
        self.parked: Parked | None = None  # what parking, or coming back from it, took last
        self.patient = False  # nobody waits for the next token of its answers, as in a batch
        self._space = space
        self._scheduler = scheduler
        self._admission = scheduler.admission
        self._preparer = Preparer(self.model, self.plan)
        self._store = store
        self._outcome = Outcome()  # of the latest call
        self._running: Outcome | None = None
        self._prompting = Prompting(self.model, self.plan)  # of the latest call
        self._beginning: tuple[Any, array[int]] | None = None  # tokens of a system prompt: of the latest one
        self._seeded = False  # the random numbers are those of a seed that a caller gave
        self._parked_at: str | None = None
        self._closed = False

    # ---- what callers do --------------------------------------------------------------------------------------------

    def ask(self, text: str, **options: Any) -> Answer:
        """One turn of the conversation; iterate to get the answer, or take its ``text``.

        Options, all by name:

        max_tokens: of the answer, 512 if not given; 0 reads the prompt only.
        temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, presence_penalty, frequency_penalty, seed: how
        tokens are chosen, see :class:`edge.Sampling`; ``sampling`` sets all of them, the others override it.
        stop: texts that end the answer and are not part of it.
        by: "token", "word", "sentence" or "all", the size of the pieces.
        logprobs: record the log probability of every token and of this many of the likeliest; see ``Answer.logprobs``.
        timeout: seconds, including the caller's own time between pieces.
        schema (a JSON schema as text or dictionary, a dataclass or a pydantic model), regex (Rust's, of the whole
        answer), choices (one of these texts) or grammar (Lark): at most one of them, the form of the answer; see
        :attr:`Answer.value`.  An unsupported key of a schema, or a mistake in a grammar, raises UsageError here.
        tools: functions the model may call, as a list in OpenAI's form or
        :class:`edge.constrain.functions.Functions`; see :attr:`Answer.calls`.  Together with a form the answer is a
        call or a text of that form.
        think: ask the model to think before it answers, or not to, if it can; None: as it was loaded.
        thinking_budget: tokens after which its thoughts are ended and the answer begins.
        ignore_eos: continue after the model's end token, for measurements.
        on_prefill: called with (tokens done, tokens in total, tokens cached) while the prompt is read.

        If it is stopped early (by closing the answer, :meth:`cancel` or a timeout), the text up to then is kept as the
        answer; a turn without any text is not kept.  Raises UsageError at once for invalid options; the answer raises
        ContextFull if the system prompt is longer than the context, or if the prompt is and ``overflow`` is "stop".  If
        the context slides and the text is longer than all of it, only its beginning and end are read: see
        :attr:`Answer.left_out`.
        """
        check_text(text)
        self._not_busy()
        return self._answer(Prepared(self._preparer.turn(options)), question=text)

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Answer:
        """Answer a whole conversation, which replaces ``messages``; the part already read is not read again.

        With ``overflow`` "stop" the answer depends on these messages and options alone; otherwise also on the tokens
        in which this session, or one that was set aside, wrote its earlier answers.

        ``messages``: dictionaries with ``role`` ("system", "user" or "assistant") and ``content``; the last is the
        question, or the result of a call (role "tool") after the assistant's message with its ``tool_calls``, or the
        assistant's: then the answer continues its text, without thoughts, and a form of the answer is refused.
        Options as in :meth:`ask`.
        """
        self._not_busy()
        return self._answer(self._preparer.call(messages, None, options))

    def complete(self, prompt: str | Sequence[int], **options: Any) -> Answer:
        """Continue a raw prompt, text (the model's BOS is put before it) or token ids (used as they are).

        No template is used, and ``messages`` does not change.  Options as in :meth:`ask`, except those for thinking;
        and ``echo``: with ``logprobs``, also record those of the prompt, see :attr:`Answer.prompt_logprobs`.
        """
        self._not_busy()
        return self._answer(self._preparer.call(None, prompt, options))

    def answer(self, call: Prepared, place: Place | None = None) -> Answer:
        """Answer a call that :meth:`edge.engine.Engine.prepare` returned.  One with a form is answered once; see
        Prepared.changed.  ``place``: that of the call, which the caller returns; None: it enters here.
        """
        self._not_busy()
        if call.request.constraint is None:
            call = dataclasses.replace(call, request=self._preparer.constrained(call.request))
        return self._answer(call, place=place)

    def choose(self, question: str, options: Sequence[str]) -> list[Scored]:
        """The probability of each of the given answers to a question, the likeliest first.

        Each result has ``text``; ``logprob`` in nats; ``probability`` (0 to 1) that the model's answer begins with this
        text; and ``share``, the probability among the given answers only::

            session.choose("Do you have tea?", ["yes", "no"])

        If the model's answer begins with "yes" with probability 0.3, and with "no" with probability 0.1, the shares are
        0.75 and 0.25: the likeliest answer is "yes", although most answers would begin with something else.

        The question is read once, and does not become part of the conversation.  Nothing is random: the same question
        gives the same numbers.  Raises UsageError for an empty text or list, and ContextFull as :meth:`ask`.
        """
        check_text(question)
        if isinstance(options, str) or not options:
            raise UsageError("is not a list of texts", argument="options")
        for each in options:
            check_text(each)
            if not each:
                raise UsageError("has an empty text", argument="options")
        outcome = self._outcome = Outcome()
        return sorted(self._scheduler.drive(self._score(outcome, question, options)), key=lambda each: -each.logprob)

    def score(self, question: str, answer: str) -> Scored:
        """The probability that the answer to a question begins with this text; see :meth:`choose`."""
        return self.choose(question, [answer])[0]

    def warm(self) -> int:
        """Read the system prompt and history of the next turn in advance.  Returns the number of cached tokens.

        Raises ContextFull as :meth:`ask`.
        """
        outcome = self._outcome = Outcome()
        return self._scheduler.drive(self._warm(outcome))

    def undo(self) -> str | None:
        """Remove the last question and its answer.  Returns the question, or None if there is none.

        Raises UsageError while an answer runs.
        """
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
        """Start a new conversation with the same system prompt.  Raises UsageError while an answer runs."""
        self._not_busy()
        self.messages = self.messages[:1] if self.system is not None else []
        self.forgotten = 0

    def cancel(self) -> None:
        """End the running call at the next token or chunk of prompt; from any thread or signal handler."""
        self._outcome.cancelled = True
        running = self._running
        if running is not None:
            running.cancelled = True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write conversation and KV cache to a file, for :meth:`edge.engine.Engine.load_session`.

        A power failure leaves the complete old file or the new one.  Raises UsageError while an answer runs, or
        if the file cannot be written or is not a session file.  Raises Busy if another process is writing it, and
        EdgeError if the disk is full or fails.
        """
        from edge.cache import codec

        self._not_busy()
        if self._parked_at:
            self.state = self._unpark()
        state = self.state
        taken = state is not None and self._space.take(state)
        try:
            if state is not None and taken:
                state.check()
            codec.save(self._space, path, state, Talk(self.messages, self.forgotten, self.seed))
        finally:
            if state is not None and taken:
                self._space.release(state)

    def park(self, path: str | os.PathLike[str]) -> Parked:
        """Save to a file and free the KV pages; the next call reads them back.

        Raises the same errors as :meth:`save`; the session is then not parked.
        """
        from edge.cache.parking import Parked

        begun = time.perf_counter()
        self.save(path)
        self.state, self._parked_at = None, os.path.abspath(os.fspath(path))
        self.parked = Parked.since(self._parked_at, begun)
        return self.parked

    def set_aside(self) -> None:
        """Keep the conversation in the engine's store (edge/cache/store.py), where any session whose prompt continues
        it, token by token, will find it; with :meth:`chat` in a context that slides, in any tokens of the same text.
        Nothing is kept unless beginnings are shared.
        """
        state = self.state
        if len(self.messages) < 2 or state is None or not self._space.take(state):
            return
        try:
            state.check()
            self._store.set_aside(state, self.messages, self.forgotten)
        finally:
            self._space.release(state)

    def _unpark(self) -> KVState | None:
        """The state from the file; None if the file is missing or damaged: the conversation is then read again.

        Raises MemoryRefused if there is not enough memory for it.
        """
        from edge.cache import codec
        from edge.cache.parking import Parked

        path, self._parked_at = self._parked_at or "", None
        begun = time.perf_counter()
        try:
            state, _ = codec.load(self._space, path)
            self.parked = Parked.since(path, begun)
            return state
        except MemoryRefused:
            self._parked_at = path
            raise
        except (EdgeError, OSError):
            return None

    def resume(self, state: KVState, talk: Talk) -> None:
        """Continue from a saved session."""
        self.state = state
        self._space.release(state)
        self.messages, self.forgotten, self.seed = list(talk.messages), talk.forgotten, talk.seed

    def close(self) -> None:
        """Free the KV cache.  The session cannot be used afterwards."""
        self._closed = True
        self.cancel()
        if self._running is None:
            self.state = None

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
        """Index of the first message after the system prompt."""
        return 0 if self.system is None else 1

    @property
    def finish_reason(self) -> str | None:
        """Why the latest answer ended, see :class:`edge.session.answer.Answer`."""
        return self._outcome.finish_reason

    @property
    def whole(self) -> bool:
        """Whether the latest answer has the form that was asked for, see :class:`edge.session.answer.Answer`."""
        return self._outcome.whole

    @property
    def usage(self) -> Usage:
        """Token counts of the latest answer, or of :meth:`warm`."""
        return self._outcome.usage

    @property
    def timings(self) -> Timings:
        """Times of the latest answer, in seconds."""
        return self._outcome.timings

    @property
    def left_out(self) -> int:
        """Number of characters of the latest question that were not read, see :class:`edge.session.answer.Answer`."""
        return self._outcome.left_out

    @property
    def n_tokens(self) -> int:
        """Number of tokens that the KV cache has seen."""
        return self.state.n_tokens if self.state else 0

    @property
    def held(self) -> int:
        """Number of these tokens that the conversation as it is now begins with: fewer after an undo, of which the KV
        cache learns with the next prompt.
        """
        if self.state is None or not self.messages:
            return 0
        asked = self.messages[-1]["role"] == "user"  # an example that was added
        return common(self.state.tokens, self.state.splice(self._encode(self.messages) if asked else self._next()))

    @property
    def evicted(self) -> int:
        """Number of tokens that are no longer attended to because they left the window."""
        return self.state.evicted if self.state else 0

    @property
    def kv_bytes(self) -> int:
        """Bytes allocated for the KV cache now: 0 before the first call."""
        return self.state.nbytes if self.state else 0

    @property
    def offload_error(self) -> str | None:
        """The reason why pages that leave the window can no longer be stored (``kv_offload``), or None."""
        return self.state.offload_error if self.state else None

    def stats_line(self) -> str:
        """Statistics of the latest answer, in one line of fixed format."""
        from pyx.memory import rss

        return stats_line(self.usage, self.timings, self.plan, rss()["rss"], self.evicted)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "answering" if self._running else "parked" if self._parked_at else "idle"
        return f"<Session of {self.model.config.name}: {len(self.messages)} messages, {self.n_tokens} tokens, {state}>"

    # ---- one call ---------------------------------------------------------------------------------------------------

    def _warm(self, outcome: Outcome) -> Generator[Need, None, int]:
        """Read what the next turn begins with.  Returns the number of tokens held."""
        with self._entered(outcome) as place:
            refuse_long(self.model, self.plan, self.messages, self._prompting.form)
            while not place.granted and not outcome.interrupted():
                yield place
            if not place.granted:
                return self.n_tokens
            state = self._begin()
            ids = state.splice(self._next())
            refuse_full(self.plan, ids)
            cached = common(state.tokens, ids)
            if cached < len(ids):
                ids = self._recall(state, ids, True)
                cached, _ = yield from state.prefill(
                    ids, outcome.interrupted, logits=False, share=len(ids), shared=self._store.add
                )
            outcome.usage, outcome.finish_reason = Usage(len(ids), cached), "length"  # as an answer of no tokens
            return len(state.tokens)

    def _score(
        self, outcome: Outcome, question: str, options: Sequence[str]
    ) -> Generator[Need, None, list[Scored]]:
        """Read the question, then each option after it."""
        with self._entered(outcome) as place:
            messages = [*self.messages, {"role": "user", "content": question}]
            refuse_long(self.model, self.plan, messages, self._prompting.form)
            while not place.granted:
                yield place
            state = self._begin()
            ids = self._recall(state, self._encode(messages), True)
            yield from state.prefill(ids, lambda: None)
            encode, lead = self.model.tokenizer.encode, self.model.answer_lead
            tokens = [array("i", encode(lead + each)) for each in options]
            return (yield from scores(state, options, tokens, min(32, self.model.chunk)))

    def _recall(self, state: KVState, ids: array[int], written: bool, by_anyone: bool = False) -> array[int]:
        """The prompt ``ids``, after the state has taken over a beginning of it from the store, if there is a longer one
        than its own.

        ``written``: with the tokens in which this session wrote its answers, see :meth:`KVState.splice`;
        ``by_anyone``: or in which another session wrote the same text.  Without that, the store changes no answer.
        """
        own = state.splice(ids) if written else ids
        refuse_full(self.plan, own)  # before anything of the state is lost
        found = self._store.find(ids if by_anyone else own, state.keep(own), by_anyone)
        if found is None:
            return own
        state.adopt(found.tokens, found.kv, found.sampled)
        self.known = max(self.known, common_messages(found.messages, self.messages))
        return state.splice(ids) if by_anyone else own

    def _not_busy(self) -> None:
        refuse_after_fork()
        if self._running is not None:
            raise UsageError("the session is still answering: finish or close its answer first")
        if self._closed or self.model.closed:
            raise UsageError("the session is closed")

    @contextmanager
    def _entered(self, outcome: Outcome, place: Place | None = None) -> Iterator[Place]:
        """Take the session, and a place among the running answers unless the caller has one."""
        self._not_busy()
        entered = [] if place is not None else self._admission.enter()
        self._running = self._outcome = outcome
        try:
            yield place or entered[0]
        finally:
            if self.state is not None:
                self._space.release(self.state)
            self._running = None
            if self._closed:
                self.state = None
            for each in entered:
                self._admission.leave(each)

    def _begin(self) -> KVState:
        """The state, reserved for this call; memory is allocated on first use."""
        state = self.state
        if state is None or not self._space.take(state):
            freed, state = state, self._unpark() if self._parked_at else None
            if state is None:
                state = self._space.new_state(self.seed)
                if freed is not None:
                    state.follow(freed)
            self.state = state
        state.check()
        state.patient = self.patient
        return state

    def _answer(self, call: Prepared, question: str | None = None, place: Place | None = None) -> Answer:
        outcome = self._outcome = Outcome(call.request.spec, call.request.form)
        return Answer(self._work(call, outcome, question, place), self._scheduler, outcome)

    def _work(self, call: Prepared, outcome: Outcome, question: str | None, place: Place | None) -> Work:
        """The whole of a call: an answer to its messages, which replace those of the session, or a continuation of its
        raw prompt; with ``question``, the next turn of the conversation.
        """
        begun, request, model = time.perf_counter(), call.request, self.model
        outcome.deadline = None if request.timeout is None else begun + request.timeout
        begun -= call.seconds
        asked, begun_text = False, ""
        with self._entered(outcome, place) as place:
            try:
                with interruptible(outcome.interrupted):
                    if question is None:
                        call = self._preparer.encoded(call)
                    else:
                        asking = {"role": "user", "content": question}
                        refuse_long(model, self.plan, [*self.messages, asking], request.form)
                while not place.granted:
                    if reason := outcome.interrupted():
                        outcome.finish_reason = reason
                        return
                    yield place
                state = self._begin()
                self._prompting = prompting = Prompting(model, self.plan, request.form, request.think)
                with interruptible(outcome.interrupted):
                    ids, outcome.left_out = call.ids, call.left_out
                    if call.messages is not None:
                        if call.messages[: len(self.messages)] != self.messages:
                            self.forgotten = 0  # another conversation: all of it counts again
                        self.known = common_messages(self.messages, call.messages)
                        self.messages = list(call.messages)
                        begun_text = self.messages[-1]["content"] if self.messages[-1]["role"] == "assistant" else ""
                    elif question is not None:
                        asking, outcome.left_out = prompting.fitting(asking, self.messages[: self._first])
                        self.messages.append(asking)
                    asked = call.messages is not None or question is not None
                    ids = self._chat_prompt(state, ids) if asked or ids is None else self._recall(state, ids, False)
                    share = self._shared(ids) if asked and self._store.on else 0
                refuse_full(self.plan, ids)
                self._reseed(state, request.sampling.seed)
                yield from write(model, self.plan, state, ids, request, outcome, begun, share, self._store.add)
            except Interrupted as early:
                outcome.finish_reason = early.reason
            finally:
                if asked:
                    self._keep(outcome, begun_text)

    def _keep(self, outcome: Outcome, begun: str) -> None:
        """Add the answer to the conversation; a turn without any is removed.  ``begun``: the answer that it continues.
        """
        text = str(outcome.said)
        if outcome.repeated:  # else the next answers would go on with it
            text = text[: -len(outcome.repeated)]
        if self.state is not None and self.state.dropped:
            text = self._prompting.end_of(text)
        if text or outcome.usage.completion or outcome.finish_reason == "stop":
            form = self._prompting.form
            content, calls = (text, []) if form is None else form.split(text)
            said: dict[str, Any] = {"role": "assistant", "content": begun + content}
            if begun:
                self.messages.pop()
            self.messages.append({**said, "tool_calls": calls} if calls else said)
        elif not begun:
            self.messages.pop()

    def _reseed(self, state: KVState, seed: int | None) -> None:
        """Begin the random numbers of ``seed``.  None continues those of this session, unless a caller chose them for
        an earlier answer: this one is to be random.
        """
        if seed is not None or self._seeded:
            self._seeded = seed is not None
            self.seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
            state.sampler.reseed(self.seed)

    # ---- prompt -----------------------------------------------------------------------------------------------------

    def _encode(self, messages: list[dict[str, str]]) -> array[int]:
        """The prompt for messages, without those that were dropped."""
        first = self._first
        return self._prompting.encode(messages[:first] + messages[first + self.forgotten :])

    def _next(self) -> array[int]:
        """What is known of the next prompt before its question: what those of two different ones have in common."""
        a, b = (self._encode([*self.messages, {"role": "user", "content": question}]) for question in ("a", "1"))
        return a[: common(a, b)]

    def _shared(self, ids: array[int]) -> int:
        """The number of tokens of ``ids`` with which every conversation with this system prompt begins; 0 without
        one.
        """
        if self.system is None:
            return 0
        form = self._prompting.form
        tools = None if form is None else (form.tools.choice == "none", [tool.given for tool in form.tools.tools])
        of = (self.system, tools, self._prompting.think)
        if self._beginning is None or self._beginning[0] != of:
            a, b = (self._encode([self.messages[0], {"role": "user", "content": question}]) for question in ("a", "1"))
            self._beginning = of, a[: common(a, b)]
        return common(ids, self._beginning[1])

    def _chat_prompt(self, state: KVState, given: array[int] | None) -> array[int]:
        """The prompt for ``messages``; ``given``: that of all of them, if the caller has just sent them.

        Answers keep the tokens that this session wrote (KVState.splice), whatever the store holds.  If the caller sent
        them, the session may be another one: then the prompt, and so the answer, depends on the messages alone; but if
        the context slides, what any session wrote is kept, as a cache that has dropped tokens cannot be made again.

        If the context slides, and more than a whole context of the prompt would have to be evaluated (the cache has
        dropped its beginning, for example after an undo), the prompt is shortened: the oldest turns are dropped until
        half of the context is free.
        """
        if self._first + self.forgotten >= len(self.messages):
            self.forgotten = 0  # the caller has shortened the conversation
        plan, sent, slides = self.plan, given is not None, self.plan.overflow != "stop"
        written, by_anyone = not sent or slides, sent and slides
        ids = self._encode(self.messages) if given is None or self.forgotten else given
        ids = self._recall(state, ids, written, by_anyone)
        if not slides or len(ids) - state.keep(ids) <= plan.n_ctx:
            return ids
        later = range(self._first + self.forgotten + 1, len(self.messages))
        turns = [i - self._first for i in later if self.messages[i]["role"] == "user"]
        if len(ids) <= plan.n_ctx // 2 or not turns:  # no turns: only the question is left
            return ids
        for n in self._store.forgotten() if sent else ():  # a conversation that was set aside without its oldest turns
            if n in turns:
                self.forgotten = n
                ids = self._recall(state, self._encode(self.messages), written, by_anyone)
                first = self._encode([*self.messages[: self._first], self.messages[self._first + n]])
                held = state.keep(ids)
                if held >= common(ids, first) and len(ids) - held <= plan.n_ctx:  # else it was another conversation
                    return ids
        # How many of the latest turns fit?  Tried 1, 2, 4 ..., then halved: what is encoded stays near what is kept.
        fits, tried = 0, 1
        too_many = len(turns) + 1
        while fits + 1 < too_many and not self._outcome.interrupted():
            tried = min(2 * fits or 1, len(turns)) if too_many > len(turns) else (fits + too_many) // 2
            self.forgotten = turns[-tried]
            if len(self._encode(self.messages)) <= plan.n_ctx // 2:
                fits = tried
            else:
                too_many = tried
            if fits == len(turns):
                break
        self.forgotten = turns[-max(1, fits)]
        return self._recall(state, self._encode(self.messages), written, by_anyone)
