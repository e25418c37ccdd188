"""Session: one conversation, or a series of raw prompts, with its KV state."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edge.cache.space import KVSpace
from edge.cache.state import KVState, common
from edge.errors import EdgeError, UsageError, check_text
from edge.prompt.interrupt import Interrupted, interruptible
from edge.prompt.messages import check_messages
from edge.session.answer import Answer
from edge.session.answer_options import PreparedCall
from edge.session.generation import read, reply
from edge.session.logprobs import Logprob, Scored
from edge.session.outcome import Outcome
from edge.session.prompting import PromptEncoder, refuse_full, refuse_long
from edge.session.scheduler import Scheduler
from edge.session.usage import ContextUse, stats_line
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
        examples: Sequence[Mapping[str, Any]] = (), state: KVState | None = None,
    ) -> None:
        self._examples = check_messages(examples) if examples else []  # as the system prompt, they stay
        first = [{"role": "system", "content": check_text(system, "system")}] if system else []
        self.messages: list[dict[str, Any]] = [*first, *map(dict, self._examples)]
        self.state = state or space.new_state()
        self.outcome = Outcome()  # of the latest call: its usage, timings, finish_reason ...
        self._model, self._space, self._scheduler, self._store, self._preparer = (
            space.model, space, scheduler, store, preparer)
        self._running: Outcome | None = None  # of what holds the session
        self._prompting = PromptEncoder(space.model, space.plan)  # of the latest call
        self._left_out = 0  # oldest messages that are not part of the latest prompt
        self._again = 0  # times that the last question was answered anew
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
        ContextFull if the text or the system prompt is longer than the context, or if the whole prompt is and
        ``overflow`` is "stop".
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
        sampling = (options.pop("sampling", None) or self._model.sampling).reseeded(again)
        answer = self.ask(question, sampling=sampling, **options)  # refuses bad options, does not run yet
        self.undo()
        self._again = again
        return answer

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Answer:
        """Answer a whole conversation, which replaces ``messages``; the part already read is not read again.

        The answer depends on these messages and options alone.  Earlier answers are read as the tokenizer splits them;
        from where that differs from how they were written they are read again.  If the context slides and all is too
        long for it, the oldest turns are left out.

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

        No template is used, and ``messages`` does not change.  A context that slides reads ids beyond its length,
        which slide, too.  Options as in :meth:`ask`, except those for thinking;
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
        gives the same numbers.  Raises UsageError for an empty text or list, and ContextFull as :meth:`ask`, and if the
        question does not fit with each answer in a context that does not slide.
        """
        from edge.constrain.spec import Spec

        if isinstance(options, str) or not isinstance(options, Sequence) or not options:
            raise UsageError("is not a list of texts", argument="options")
        for each in options:
            check_text(each)
            if not each:
                raise UsageError("has an empty text", argument="options")
        self._not_busy()
        call = self._preparer.ask(question, {"max_tokens": 0})
        answer = self._answer(call.changed(spec=Spec("", choices=tuple(options))))
        for _ in answer:
            pass
        if not answer.shares:
            raise EdgeError("the comparison was cancelled")
        return answer.shares

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
            if (logits := self.state.logits) is not None:  # else its memory was needed meanwhile
                break
        import numpy as np

        return np.array(logits, np.float32)

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
        self._scheduler.run(outcome, self._read(outcome))
        return self.state.n_tokens

    def read_ahead(self, text: str, stop: Callable[[], bool] = lambda: False) -> int:
        """Read what the prompt of the next question will begin with, if the question begins with ``text``; see
        :mod:`edge.session.read_ahead`.  Returns the number of tokens that are now held.

        ``stop``: asked before each small step, in the engine's thread.  Nothing is read while other answers run or
        wait, it ends as soon as one comes, and it drops no tokens from the cache.  Raises ContextFull as :meth:`ask`.
        """
        self._not_busy()
        check_text(text)
        outcome = Outcome()
        self._scheduler.run(outcome, self._read(outcome, text, stop), ahead=True)
        return self.state.n_tokens

    def undo(self) -> str | None:
        """Remove the last question and its answer.  Returns the question, or None if there is none.

        Raises UsageError while an answer runs.
        """
        self._not_busy()
        self._left_out = self._again = 0
        for at in range(len(self.messages) - 1, len(self._operators) - 1, -1):
            if self.messages[at]["role"] == "user":
                question = self.messages[at]["content"]
                del self.messages[at:]
                return question
        return None

    def clear(self) -> None:
        """Start a new conversation with the same system prompt and examples.  Raises UsageError during an answer."""
        self._not_busy()
        self.messages = [*self.messages[: self.system is not None], *map(dict, self._examples)]
        self._left_out = self._again = 0

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
        from edge.cache import kv_file

        with self._held(Outcome()):
            self._space.reserve(self.state)
            self.state.untype()  # a question that was read ahead
            n_examples = len(self._operators) - (self.system is not None)
            kv_file.write(self._space, path, self.state.tokens, self.state.kv, True, self.messages, n_examples)

    def close(self) -> None:
        """Free the KV cache.  The session cannot be used afterwards."""
        self._closed = True
        self.cancel()
        if self._running is None:
            self._space.free(self.state)

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
        rest = self.messages[self.system is not None :]
        self.messages = [{"role": "system", "content": text}, *rest] if text else rest

    @property
    def turns(self) -> int:
        """Number of questions asked so far."""
        return sum(message["role"] == "user" for message in self.messages)

    @property
    def context(self) -> ContextUse:
        """The use of the context by the conversation as it is now, in tokens: after an undo or with another system
        prompt not those of the KV cache, which learns of it with the next prompt.
        """
        plan, state, seen = self.plan, self.state, 0
        if state.n_tokens and self.messages:
            asked = self.messages[-1]["role"] == "user"  # an example that was added
            ids = self._spliced(self.messages) if asked else self._next()
            seen = len(ids) if common(state.tokens, ids) < state.n_tokens else state.n_tokens
        evicted = min(state.evicted, seen)
        room = plan.window + plan.sinks if plan.window else plan.n_ctx
        used = min(seen - evicted, room)
        return ContextUse(used, room - used, min(plan.sinks, used), evicted, self._left_out)

    def stats_line(self) -> str:
        """Statistics of the latest answer, in one line of fixed format."""
        from edge.machine.linux import rss

        outcome = self.outcome
        return stats_line(outcome.usage, outcome.timings, self.plan, rss()["rss"], self.state.evicted)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "busy" if self._running else "idle"
        n = self.state.n_tokens
        return f"<Session of {self._model.config.name}: {len(self.messages)} messages, {n} tokens, {state}>"

    # ---- one call ---------------------------------------------------------------------------------------------------

    def _answer(self, call: PreparedCall) -> Answer:
        options = call.options
        outcome = self.outcome = Outcome() if options.partial else Outcome(options.spec, options.form)
        return Answer(self._reply(call, outcome), self._scheduler, outcome, options.partial)

    def _reply(self, call: PreparedCall, outcome: Outcome) -> Work:
        """The whole of a call: an answer to its messages, which replace those of the session, the next turn of the
        conversation, or a continuation of a raw prompt.
        """
        begun, options, share = time.perf_counter(), call.options, None
        outcome.deadline = None if options.timeout is None else begun + options.timeout
        with self._held(outcome):
            self.outcome = outcome
            try:
                with interruptible(outcome.interrupted):
                    call = self._encoded(call)
                yield None
                if reason := outcome.interrupted():
                    raise Interrupted(reason)
                state, messages = self._begin(), call.messages
                if messages is not None:
                    self.messages = messages
                try:
                    if call.question is not None:
                        with interruptible(outcome.interrupted):
                            call, share = self._fitting(state, call)
                    call = replace(call, seconds=time.perf_counter() - begun)
                    yield from reply(self._preparer, self._store, state, call, outcome, share)
                finally:
                    if messages is not None and not options.partial:
                        self._keep(outcome)
            except Interrupted as early:
                outcome.finish_reason = early.reason

    def _encoded(self, call: PreparedCall) -> PreparedCall:
        """The call with the messages and tokens of its prompt.  Raises ContextFull."""
        model, plan, options = self._model, self.plan, call.options
        if call.question is None:
            call = self._preparer.encoded(call)
        if call.prompt is None:
            self._prompting, self._left_out = PromptEncoder(model, plan, options.form, options.think), 0
        if call.question is None:
            return call
        messages = [*self.messages, {"role": "user", "content": call.question}]
        refuse_long(model, plan, messages, options.form)
        refuse_long(model, plan, messages[-1:], None, True)
        ids = self._spliced(messages)
        refuse_full(plan, ids, self._seen(ids))
        return replace(call, messages=messages, ids=ids)

    def _fitting(self, state: KVState, call: PreparedCall) -> tuple[PreparedCall, int]:
        """(the call, without the oldest turns if the cache, whose beginning is dropped, cannot go back as far as its
        prompt differs; the number of tokens with which other conversations begin, too).
        """
        ids, question, n_ctx = call.ids or array("i"), call.question or "", self.plan.n_ctx
        if self.plan.overflow != "stop" and len(ids) > n_ctx:
            self._store.sync(state, ids)
            if len(ids) - state.n_tokens > n_ctx:
                ids = self._spliced(self.messages)
        text = question[: call.options.shared]
        share = self._preparer.shared(self._prompting, self._operators, ids, text) if self._store.on else 0
        return replace(call, ids=ids), share

    def _read(self, outcome: Outcome, text: str = "", stop: Callable[[], bool] | None = None) -> Work:
        """Read what the next turn begins with; with ``stop``, ahead of a question that begins with ``text``."""
        with self._held(outcome):
            refuse_long(self._model, self.plan, self.messages, self._prompting.form)
            ids = self._next(text)
            if stop is None:
                refuse_full(self.plan, ids, self._seen(ids))
            yield None
            if outcome.interrupted():
                return
            state = self._begin()
            share = self._preparer.shared(self._prompting, self._operators, ids) if self._store.on else 0
            yield from read(self.plan, self._store, state, ids, outcome, share, stop=stop)

    def _not_busy(self) -> None:
        refuse_after_fork()
        while self._running is not None and self._running.left and not self._scheduler.here:
            time.sleep(LOOK)  # it was dropped, and ends within a step
        if self._running is not None:
            raise UsageError("the session is still answering or being saved: finish or close its answer first")
        if self._closed or self._model.closed:
            raise UsageError("the session is closed")

    @contextmanager
    def _held(self, outcome: Outcome) -> Iterator[None]:
        """Hold the session, so that nothing else is done with it.  Raises UsageError if something is."""
        with self._taking:
            self._not_busy()
            self._running = outcome
        try:
            yield
        finally:
            self._space.release(self.state)
            self._running = None
            if self._closed:
                self._space.free(self.state)
            self._store.flush()

    def _begin(self) -> KVState:
        """The state, with memory that is reserved for this call."""
        self._space.take(self.state)
        return self.state

    def _keep(self, outcome: Outcome) -> None:
        """Add the answer to the conversation; a turn without any is removed."""
        text, last = outcome.said.decode(), self.messages[-1]
        if outcome.repeated:  # else the next answers would go on with it
            text = text[: -len(outcome.repeated)]
        continued = last["content"] if last["role"] == "assistant" else ""
        if text or outcome.usage.completion or outcome.finish_reason == "stop":
            form = self._prompting.form
            content, calls = (text, []) if form is None else form.split(text)
            if continued:
                self.messages.pop()
            said: dict[str, Any] = {"role": "assistant", "content": continued + content}
            self.messages.append({**said, "tool_calls": calls} if calls else said)
        elif not continued:
            self.messages.pop()

    # ---- prompt -----------------------------------------------------------------------------------------------------

    @property
    def _operators(self) -> list[dict[str, Any]]:
        """The messages that the operator wrote, with which other conversations begin, too: system prompt, examples."""
        first, n = int(self.system is not None), len(self._examples)
        return self.messages[: first + n * (self.messages[first : first + n] == self._examples)]

    def _seen(self, ids: array[int]) -> int:
        """The number of tokens of a prompt that need not be read, because the context slides and has seen them."""
        return 0 if self.plan.overflow == "stop" else min(common(self.state.tokens, ids), self.state.n_tokens)

    def _next(self, text: str = "") -> array[int]:
        """The known tokens of the next prompt, whose question begins with ``text``."""
        prompting = self._prompting
        if not text and self.messages == self._operators:
            return self.state.splice(self._preparer.beginning(prompting, self.messages))
        return self._spliced(self.messages, lambda messages: prompting.beginning(messages, text, " " * bool(text)))

    def _spliced(
        self, messages: list[dict[str, Any]], encode: Callable[[list[dict[str, Any]]], array[int]] | None = None
    ) -> array[int]:
        """The prompt for messages, with the tokens that the model wrote.  The oldest turns are left out if the context
        slides and more than all of it would have to be read.
        """
        state, plan, encode = self.state, self.plan, encode or self._prompting.encode
        ids, self._left_out = state.splice(encode(messages)), 0
        if plan.overflow != "stop" and len(ids) - self._seen(ids) > plan.n_ctx:
            recent = self._prompting.recent(messages)
            ids, self._left_out = state.splice(encode(recent)), len(messages) - len(recent)
        return ids
