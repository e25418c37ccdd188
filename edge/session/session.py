"""Session: one conversation, or a series of raw prompts, with its KV state."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from edge.cache.space import KVSpace
from edge.cache.state import LEAST_CHUNK, KVState, common
from edge.errors import Busy, EdgeError, MemoryRefused, UsageError, check_text
from edge.prompt.interrupt import Interrupted, interruptible
from edge.prompt.messages import check_messages
from edge.session.answer import Answer
from edge.session.answer_options import PreparedCall
from edge.session.generation import Generation
from edge.session.logprobs import Logprob, Scored, scores
from edge.session.outcome import Outcome
from edge.session.prompting import PromptEncoder, refuse_full, refuse_long
from edge.session.scheduler import Scheduler
from edge.session.usage import ContextUse, Timings, Usage, stats_line
from edge.threads import refuse_after_fork

if TYPE_CHECKING:
    import numpy as np

    from edge.cache.plan import Plan
    from edge.cache.store import Store
    from edge.session.preparing import Preparer
    from edge.session.scheduler import Work

LOOK = 0.001  # seconds between two looks at whether a dropped answer has ended


class Session:
    """One conversation, made by :meth:`edge.engine.Engine.session`.  One caller at a time, except :meth:`cancel`.

    ``messages``: the conversation as dictionaries with ``role`` and ``content``.  It may be edited between calls; the
    next call reads it from the first difference.
    """

    def __init__(
        self, space: KVSpace, scheduler: Scheduler, store: Store, preparer: Preparer, system: str | None = None,
        examples: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.model = space.model
        self._examples = check_messages(examples) if examples else []  # as the system prompt, they stay
        first = [{"role": "system", "content": check_text(system, "system")}] if system else []
        self.messages: list[dict[str, Any]] = [*first, *map(dict, self._examples)]
        self.forgotten = 0  # oldest messages that no longer fit and are not part of the prompt any more
        self.seed = int.from_bytes(os.urandom(8), "little")  # of the random numbers in use
        self.state: KVState | None = None  # allocated on first use
        self.patient = False  # nobody waits for the next token of its answers, as in a batch
        self._space = space
        self._scheduler = scheduler
        self._preparer = preparer
        self._store = store
        self.outcome = Outcome()  # of the latest call: its usage, timings, finish_reason ...
        self._running: Outcome | None = None  # of what holds the session
        self._doing = ""  # what that is
        self._prompting = PromptEncoder(self.model, self.plan)  # of the latest call
        self._again = 0  # times that the last question was answered anew
        self._seeded = False  # the random numbers are those of a seed that a caller gave
        self._parked_at: str | None = None
        self._typed = False  # a question was read ahead that was not asked yet
        self._closed = False
        self._taking = threading.Lock()  # of two threads one gets the session

    # ---- what callers do --------------------------------------------------------------------------------------------

    def ask(self, text: str, **options: Any) -> Answer:
        """One turn of the conversation; iterate to get the answer, or take its ``text``.

        Options, all by name:

        max_tokens: of the answer, 512 if not given; 0 reads the prompt only.
        temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, presence_penalty, frequency_penalty, seed: how
        tokens are chosen, see :class:`edge.Sampling`; ``sampling`` sets all of them, the others override it.
        stop: texts that end the answer and are not part of it.
        by: "token", "word", "clause", "sentence" or "all", the size of the pieces; with "clause" the first piece ends
        with a clause, so that speech begins early, and the others are sentences.
        logprobs: record the log probability of every token and of this many of the likeliest; see ``Answer.logprobs``.
        timeout: seconds, including the caller's own time between pieces.
        schema (a JSON schema as text or dictionary, a dataclass or a pydantic model), regex (Rust's, of the whole
        answer), choices (one of these texts) or grammar (Lark): at most one of them, the form of the answer; see
        :attr:`Answer.value`.  An unsupported key of a schema, or a mistake in a grammar, raises UsageError here.
        tools: functions the model may call, as a list in OpenAI's form or
        :class:`edge.constrain.functions.Functions`; see :attr:`Answer.calls`.  ``tool_choice`` is OpenAI's, too.
        Together with a form the answer is a call or a text of that form.
        shared: number of characters at the beginning of the text that are the program's own, such as a file: what is
        read of them is kept for other questions, as a system prompt is.
        think: ask the model to think before it answers, or not to, if it can; None: as it was loaded.
        thinking_budget: tokens after which its thoughts are ended and the answer begins.
        ignore_eos: continue after the model's end token, for measurements.
        on_prefill: called with (tokens done, tokens in total, tokens cached) while the prompt is read, in the engine's
        thread, in which no answer can be read.

        If it is stopped early (by closing the answer, :meth:`cancel` or a timeout), the text up to then is kept as the
        answer; a turn without any text is not kept.  Raises UsageError at once for invalid options; the answer raises
        ContextFull if the system prompt is longer than the context, or if the prompt is and ``overflow`` is "stop".  If
        the context slides and the text is longer than all of it, only its beginning and end are read: see
        :attr:`Answer.left_out`.
        """
        self._not_busy()
        answer = self._answer(self._preparer.ask(text, options))
        self._again = 0
        return answer

    def regen(self, **options: Any) -> Answer:
        """Answer the last question again, with other random numbers; options as in :meth:`ask`.  Raises UsageError if
        there is none.
        """
        question = next((each["content"] for each in reversed(self.messages) if each["role"] == "user"), None)
        if question is None:
            raise UsageError("there is no question to answer again")
        again = self._again + 1
        sampling = (options.pop("sampling", None) or self.model.sampling).reseeded(again)
        answer = self.ask(question, sampling=sampling, **options)  # refuses bad options, does not run yet
        self.undo()
        self._again = again
        return answer

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Answer:
        """Answer a whole conversation, which replaces ``messages``; the part already read is not read again.

        With ``overflow`` "stop" the answer depends on these messages and options alone; otherwise also on the tokens
        in which this session, or one that was set aside, wrote its earlier answers.

        ``messages``: dictionaries with ``role`` ("system", "user" or "assistant") and ``content``; the last is the
        question, or the result of a call (role "tool") after the assistant's message with its ``tool_calls``, or the
        assistant's: then the answer continues its text, without thoughts, and a form of the answer is refused.
        Options as in :meth:`ask`; and ``partial``, with ``max_tokens`` 0: the last message is still being written, so
        only what is certain of it is read, as by :meth:`read_ahead`; ``usage.prompt`` tokens are then known of a prompt
        that begins so, 0: nothing was read, as other answers run or wait.
        """
        self._not_busy()
        return self._answer(self._preparer.call(check_messages(messages), None, options))

    def complete(self, prompt: str | Sequence[int], **options: Any) -> Answer:
        """Continue a raw prompt, text (the model's BOS is put before it) or token ids (used as they are).

        No template is used, and ``messages`` does not change.  Options as in :meth:`ask`, except those for thinking;
        and ``echo``: with ``logprobs``, also record those of the prompt, see :attr:`Answer.prompt_logprobs`, and of
        the token that ends the answer.
        """
        self._not_busy()
        return self._answer(self._preparer.call(None, prompt, options))

    def answer(self, call: PreparedCall) -> Answer:
        """Answer a call that :meth:`edge.engine.Engine.prepare` returned.  One with a form is answered once; see
        PreparedCall.changed.
        """
        self._not_busy()
        return self._answer(call)

    def choose(self, question: str, options: Sequence[str]) -> list[Scored]:
        """The probability of each of the given answers to a question, the likeliest first.

        Each result has ``text``; ``logprob`` in nats; ``probability`` (0 to 1) that the model's answer is this text and
        nothing more; and ``share``, the probability among the given answers only::

            session.choose("Do you have tea?", ["yes", "no"])

        If the model answers "yes" with probability 0.3, and "no" with probability 0.1, the shares are 0.75 and 0.25:
        the likeliest answer is "yes", although most answers would be something else.

        The question is read once, and does not become part of the conversation.  Nothing is random: the same question
        gives the same numbers.  Raises UsageError for an empty text or list, and ContextFull as :meth:`ask`, and for a
        question that does not fit in the context with each answer.
        """
        check_text(question)
        if isinstance(options, str) or not isinstance(options, Sequence) or not options:
            raise UsageError("is not a list of texts", argument="options")
        for each in options:
            check_text(each)
            if not each:
                raise UsageError("has an empty text", argument="options")
        outcome = self.outcome = Outcome()
        found: list[Scored] = self._scheduler.run(outcome, self._score(outcome, question, options))
        return sorted(found, key=lambda each: -each.logprob)

    def score(self, question: str, answer: str) -> Scored:
        """The probability that the answer to a question is this text; see :meth:`choose`."""
        return self.choose(question, [answer])[0]

    def logits(self, prompt: str | Sequence[int]) -> np.ndarray:
        """The logits of the token that follows a raw prompt, see :meth:`complete`: a NumPy array, float32 [n_vocab].

        Raises ContextFull for a prompt longer than the context, and MemoryRefused if NumPy, which no other answer
        needs, does not fit in the limit; one that was imported before the engine was loaded is in the plan.
        """
        while True:
            self._scored(prompt)
            state = self.state
            if state is not None and self._space.take(state):  # else it was freed, or the session closed
                break
        import numpy as np

        try:
            return np.array(state.logits, np.float32)
        finally:
            self._space.release(state)

    def logprobs(self, prompt: str | Sequence[int]) -> np.ndarray:
        """The log probability in nats of each token of a raw prompt: a NumPy array, float32 [n]; NaN for the first.
        Raises as :meth:`logits`.
        """
        found = [each.logprob for each in self._scored(prompt)]
        import numpy as np

        return np.array(found, np.float32)

    def _scored(self, prompt: str | Sequence[int]) -> list[Logprob]:
        self._space.admit_numpy()
        answer = self.complete(prompt, max_tokens=0, logprobs=0, echo=True)
        for _ in answer:
            pass
        return answer.prompt_logprobs

    def warm(self) -> int:
        """Read the system prompt and history of the next turn in advance.  Returns the number of cached tokens.

        Raises ContextFull as :meth:`ask`.
        """
        outcome = self.outcome = Outcome()
        self._scheduler.run(outcome, self._warm(outcome))
        return self.n_tokens

    def read_ahead(self, text: str, stop: Callable[[], bool] = lambda: False) -> int:
        """Read what the prompt of the next question will begin with, if the question begins with ``text``; see
        :mod:`edge.session.read_ahead`.  Returns the number of tokens that are now held.

        ``stop``: asked before each small step, in the engine's thread.  Nothing is read while other answers run or
        wait, it ends as soon as one comes, and it drops no tokens from the cache.  Raises ContextFull as :meth:`ask`.
        """
        self._not_busy()
        latest, outcome = self.outcome, Outcome()
        check_text(text)
        try:
            with suppress(Busy):
                self._scheduler.run(outcome, self._read_ahead(outcome, text, stop), ahead=True)
            return self.n_tokens
        finally:
            self.outcome = latest

    def undo(self) -> str | None:
        """Remove the last question and its answer.  Returns the question, or None if there is none.

        Raises UsageError while an answer runs.
        """
        self._not_busy()
        self._again = 0
        for at in range(len(self.messages) - 1, self._first + self._n_examples - 1, -1):
            if self.messages[at]["role"] == "user":
                question = self.messages[at]["content"]
                del self.messages[at:]
                if at <= self._first + self.forgotten:
                    self.forgotten = 0
                return question
        return None

    def clear(self) -> None:
        """Start a new conversation with the same system prompt and examples.  Raises UsageError during an answer."""
        self._not_busy()
        self.messages = [*self.messages[: self._first], *map(dict, self._examples)]
        self.forgotten = self._again = 0

    def cancel(self) -> None:
        """End the running call at the next token or chunk of prompt; from any thread or signal handler."""
        self.outcome.cancelled = True
        running = self._running
        if running is not None:
            running.cancelled = True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write conversation and KV cache to a file, for :meth:`edge.engine.Engine.load_session`.

        A power failure leaves the complete old file or the new one.  Raises UsageError while an answer runs, or
        if the file cannot be written or is not a session file.  Raises Busy if another process is writing it, and
        EdgeError if the disk is full or fails.  A call that comes meanwhile, from another thread, is refused.
        """
        with self._held(Outcome(), "being saved; try again when that is done"):
            self._write(path)

    def park(self, path: str | os.PathLike[str]) -> None:
        """Save to a file and free the KV pages; the next call reads them back.

        Raises the same errors as :meth:`save`; the session is then not parked.
        """
        with self._held(Outcome(), "being parked; try again when that is done"):
            self._write(path)
            self.state, self._parked_at = None, os.path.abspath(os.fspath(path))

    def _write(self, path: str | os.PathLike[str]) -> None:
        """Save a session that is held."""
        from edge.cache import kv_file

        if self._parked_at:
            self.state = self._unpark()
        state = self.state
        if state is not None and self._space.take(state):
            self._without_typed(state)
        kv_file.save(self._space, path, state, messages=list(self.messages), examples=self._n_examples,
                     forgotten=self.forgotten, seed=self.seed)

    def set_aside(self) -> None:
        """Keep the conversation in the engine's store (edge/cache/store.py), where any session whose prompt continues
        it, token by token, will find it; with :meth:`chat` in a context that slides, in any tokens of the same text.
        Nothing is kept unless beginnings are shared.
        """
        state = self.state
        if len(self.messages) < 2 or state is None or not self._space.take(state):
            return
        try:
            self._without_typed(state)
            self._store.set_aside(state, self.forgotten)
        finally:
            self._space.release(state)

    def _without_typed(self, state: KVState) -> None:
        """Check the state, and remove what was read of a question that was never asked: it goes into no file."""
        state.check()
        typed, self._typed = self._typed, False
        n = common(state.tokens, state.splice(self._next())) if typed else len(state.tokens)
        if n < len(state.tokens):
            state.crop(n)

    def _unpark(self) -> KVState | None:
        """The state from the file; None if the file is missing or damaged: the conversation is then read again.

        Raises MemoryRefused if there is not enough memory for it.
        """
        from edge.cache import kv_file

        path, self._parked_at = self._parked_at or "", None
        try:
            return kv_file.load(self._space, path)[0]
        except MemoryRefused:
            self._parked_at = path
            raise
        except (EdgeError, OSError):
            return None

    def resume(self, state: KVState, talk: Mapping[str, Any]) -> None:
        """Continue from a saved session, whose file has this header."""
        self.state = state
        self._space.release(state)
        self.messages, self.forgotten, self.seed = list(talk["messages"]), talk["forgotten"], talk["seed"]
        self._examples = [dict(each) for each in self.messages[self._first :][: talk["examples"]]]

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
    def plan(self) -> Plan:
        """The memory plan of the engine."""
        return self._space.plan

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
    def _n_examples(self) -> int:
        """Number of messages after the system prompt that are the examples; 0 if they were edited."""
        first, n = self._first, len(self._examples)
        return n if self.messages[first : first + n] == self._examples else 0

    @property
    def n_tokens(self) -> int:
        """Number of tokens that the KV cache has seen."""
        return self.state.n_tokens if self.state else 0

    @property
    def held(self) -> int:
        """Number of tokens of the conversation as it is now: after an undo or with another system prompt not those of
        the KV cache, which learns of it with the next prompt.
        """
        if self.state is None or not self.messages:
            return 0
        asked = self.messages[-1]["role"] == "user"  # an example that was added
        tokens, ids = self.state.tokens, self.state.splice(self._encode(self.messages) if asked else self._next())
        return len(ids) if common(tokens, ids) < len(tokens) else len(tokens)

    @property
    def turns(self) -> int:
        """Number of questions asked so far."""
        return sum(message["role"] == "user" for message in self.messages)

    @property
    def context(self) -> ContextUse:
        """The use of the context, in tokens."""
        plan, seen = self.plan, self.held
        evicted = min(self.evicted, seen)
        room = plan.window + plan.sinks if plan.window else plan.n_ctx
        used = min(seen - evicted, room)
        return ContextUse(used, room - used, min(plan.sinks, used), evicted, self.forgotten)

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
        from edge.machine.linux import rss

        return stats_line(self.outcome.usage, self.outcome.timings, self.plan, rss()["rss"], self.evicted)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "busy" if self._running else "parked" if self._parked_at else "idle"
        return f"<Session of {self.model.config.name}: {len(self.messages)} messages, {self.n_tokens} tokens, {state}>"

    # ---- one call ---------------------------------------------------------------------------------------------------

    def _warm(self, outcome: Outcome) -> Work:
        """Read what the next turn begins with."""
        with self._answering(outcome):
            refuse_long(self.model, self.plan, self.messages, self._prompting.form)
            ids = self._next()
            yield None
            if outcome.interrupted():
                return
            state = self._begin()
            ids = state.splice(ids)
            refuse_full(self.plan, ids)
            cached = common(state.tokens, ids)
            if cached < len(ids):
                ids = self._recall(state, ids, True)
                cached, _ = yield from state.prefill(
                    ids, outcome.interrupted, logits=False, share=len(ids), shared=self._store.add
                )
            outcome.usage, outcome.finish_reason = Usage(len(ids), cached), "length"  # as an answer of no tokens

    def _read_ahead(
        self, outcome: Outcome, text: str = "", stop: Callable[[], bool] = lambda: False,
        call: PreparedCall | None = None,
    ) -> Work:
        """Read what the next prompt begins with: a question that begins with ``text``, or a call, which brings its
        messages.
        """
        begun, sent, slides = time.perf_counter(), call is not None, self.plan.overflow != "stop"
        outcome.finish_reason = "length"  # as an answer of no tokens
        with self._answering(outcome):
            if call is None:
                refuse_long(self.model, self.plan, self.messages, self._prompting.form)
                ids = self._next(text)
            else:
                call, options = self._preparer.encoded(call), call.options
                if options.timeout is not None:
                    outcome.deadline = begun + options.timeout
                assert call.messages is not None and call.ids is not None
                if slides and call.messages[: len(self.messages)] != self.messages:
                    return  # what is here could not be made again
                self._prompting = PromptEncoder(self.model, self.plan, options.form, options.think)
                ids = call.ids
            yield None
            if outcome.interrupted():
                return
            state = self._begin()
            if call is not None:
                assert call.messages is not None
                self._take_over(call.messages)
            written = not sent or slides
            own = state.splice(ids) if written else ids
            if len(own) > self.plan.kept_whole or state.evicted or sent and self.forgotten:
                return
            cached, n = common(state.tokens, own), len(own)
            if cached < n:
                self._typed = True
                own = self._recall(state, ids, written, sent and slides)
                share = self._shared(own) if self._store.on else 0
                cached, reason = yield from state.prefill(
                    own, lambda: "cancelled" if stop() else outcome.interrupted(),
                    None if call is None else call.options.on_prefill, False, share, shared=self._store.add,
                    chunk=LEAST_CHUNK)
                n, outcome.finish_reason = len(state.tokens), reason or "length"
            outcome.usage, outcome.timings = Usage(n, cached), Timings(time.perf_counter() - begun)

    def _score(self, outcome: Outcome, question: str, options: Sequence[str]) -> Work:
        """Read the question, then each option after it."""
        with self._answering(outcome):
            asking, n_ctx = {"role": "user", "content": question}, self.plan.n_ctx
            messages = [*self.messages, asking]
            refuse_long(self.model, self.plan, messages, self._prompting.form)
            refuse_long(self.model, self.plan, [asking], None, True)
            ids = self._encode(messages)
            encode, lead = self.model.tokenizer.encode, self.model.answer_lead
            tokens = [array("i", encode(lead + each)) for each in options]
            longest = max(tokens, key=len)
            yield None
            state = self._begin()
            ids = self._recall(state, ids, True)
            if len(ids) + len(longest) > n_ctx:  # of a conversation the oldest messages may have gone
                refuse_full(self.plan, self._prompting.encode([*self.messages[: self._first], asking]) + longest, True)
            refuse_full(self.plan, ids + longest)
            yield from state.prefill(ids, lambda: None)
            return (yield from scores(state, options, tokens, self.model.stop_ids))

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
        return state.splice(ids) if by_anyone else own

    def _not_busy(self) -> None:
        refuse_after_fork()
        while self._running is not None and self._running.left and not self._scheduler.here:
            time.sleep(LOOK)  # it was dropped, and ends within a step
        if self._running is not None:
            raise UsageError(f"the session is {self._doing}")
        if self._closed or self.model.closed:
            raise UsageError("the session is closed")

    @contextmanager
    def _held(self, outcome: Outcome, doing: str) -> Iterator[None]:
        """Hold the session, so that nothing else is done with it.  Raises UsageError if something is."""
        with self._taking:
            self._not_busy()
            self._running, self._doing = outcome, doing
        try:
            yield
        finally:
            if self.state is not None:
                self._space.release(self.state)
            self._running = None
            if self._closed:
                self.state = None

    @contextmanager
    def _answering(self, outcome: Outcome) -> Iterator[None]:
        """Hold the session for an answer."""
        try:
            with self._held(outcome, "still answering: finish or close its answer first"):
                self.outcome = outcome
                yield
        finally:
            self._store.flush()

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

    def _answer(self, call: PreparedCall) -> Answer:
        options = call.options
        outcome = self.outcome = Outcome() if options.partial else Outcome(options.spec, options.form)
        return Answer(self.work(call, outcome), self._scheduler, outcome, options.partial)

    def work(self, call: PreparedCall, outcome: Outcome) -> Work:
        """What the engine's thread does to answer a prepared call."""
        if call.options.constraint is None:
            call = dataclasses.replace(call, options=self._preparer.constrained(call.options))
        return self._read_ahead(outcome, call=call) if call.options.partial else self._reply(call, outcome)

    def _reply(self, call: PreparedCall, outcome: Outcome) -> Work:
        """The whole of a call: an answer to its messages, which replace those of the session, the next turn of the
        conversation, or a continuation of a raw prompt.
        """
        begun, options, model, question = time.perf_counter(), call.options, self.model, call.question
        outcome.deadline = None if options.timeout is None else begun + options.timeout
        begun -= call.seconds
        asked, begun_text = False, ""
        with self._answering(outcome):
            try:
                prompting = PromptEncoder(model, self.plan, options.form, options.think)
                with interruptible(outcome.interrupted):
                    if question is None:
                        call = self._preparer.encoded(call)
                        ids, outcome.left_out = call.ids, call.left_out
                    else:
                        asking = {"role": "user", "content": question}
                        refuse_long(model, self.plan, [*self.messages, asking], options.form)
                        fitting, outcome.left_out = prompting.fitting([asking], self.messages[: self._first])
                        self._prompting = prompting
                        self._count_forgotten(len(self.messages) + 1)
                        ids = self._encode([*self.messages, *fitting])
                yield None
                if reason := outcome.interrupted():
                    outcome.finish_reason = reason
                    return
                state = self._begin()
                self._typed = False
                self._prompting = prompting
                with interruptible(outcome.interrupted):
                    if call.messages is not None:
                        self._take_over(call.messages)
                        begun_text = self.messages[-1]["content"] if self.messages[-1]["role"] == "assistant" else ""
                    elif question is not None:
                        self.messages += fitting
                    asked = call.messages is not None or question is not None
                    assert ids is not None
                    ids = self._chat_prompt(state, ids, question is None) if asked else self._recall(state, ids, False)
                    text = question[: options.shared] if question and not outcome.left_out else ""
                    share = self._shared(ids, text) if asked and self._store.on else 0
                refuse_full(self.plan, ids)
                self._reseed(state, options.sampling.seed)
                generation = Generation(model, self.plan, state, ids, options, outcome, begun)
                yield from generation.run(share, self._store.add)
            except Interrupted as early:
                outcome.finish_reason = early.reason
            finally:
                if asked:
                    self._keep(outcome, begun_text)

    def _take_over(self, messages: list[dict[str, Any]]) -> None:
        """Continue with the messages that a caller sends."""
        if messages[: len(self.messages)] != self.messages:
            self.forgotten = 0  # another conversation: all of it counts again
        self.messages = list(messages)

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

    def _count_forgotten(self, n: int) -> None:
        """Forget nothing if the caller has shortened the conversation, which now has ``n`` messages."""
        if self._first + self.forgotten >= n:
            self.forgotten = 0

    @property
    def _operators(self) -> list[dict[str, Any]]:
        """The messages that the operator wrote, with which other conversations begin, too: system prompt, examples."""
        return self.messages[: self._first + self._n_examples]

    def _next(self, text: str = "") -> array[int]:
        """What is known of the next prompt, whose question begins with ``text``."""
        first = self._first
        messages = self.messages[:first] + self.messages[first + self.forgotten :]
        if not text and messages == self._operators:
            return self._preparer.beginning(self._prompting, messages)
        return self._prompting.beginning(messages, text, " " * bool(text))

    def _shared(self, ids: array[int], text: str = "") -> int:
        """The number of tokens of ``ids`` with which other conversations begin, too: what the operator wrote, and the
        beginning ``text`` of the first question.
        """
        before = self._operators
        return common(ids, self._preparer.beginning(self._prompting, before, text)) if before or text else 0

    def _chat_prompt(self, state: KVState, ids: array[int], sent: bool) -> array[int]:
        """The prompt for ``messages``; ``ids``: that of all of them that are read, or if the caller has just ``sent``
        them that of all.

        Answers keep the tokens that this session wrote (KVState.splice), whatever the store holds.  If the caller sent
        them, the session may be another one: then the prompt, and so the answer, depends on the messages alone; but if
        the context slides, what any session wrote is kept, as a cache that has dropped tokens cannot be made again.

        If the context slides, and more than a whole context of the prompt would have to be evaluated (the cache has
        dropped its beginning, for example after an undo), the prompt is shortened: the oldest turns are dropped until
        half of the context is free.
        """
        self._count_forgotten(len(self.messages))
        plan, slides = self.plan, self.plan.overflow != "stop"
        written, by_anyone = not sent or slides, sent and slides
        ids = self._encode(self.messages) if sent and self.forgotten else ids
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
        while fits + 1 < too_many and not self.outcome.interrupted():
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
