"""Generation: one answer, from logits to pieces: a loop, and processors that see each of its tokens.

The loop evaluates the prompt, and then token after token: the processors choose it and take note of it, its text is
passed on, and it is evaluated.  A processor has one job, an answer has only those that it needs, and the loop knows
none of them.  No step runs here: what must be evaluated (Segment) is yielded.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter as clock
from typing import TYPE_CHECKING

from edge.cache.state import common
from edge.errors import EdgeError
from edge.prompt.tokenizer import StreamDecoder
from edge.session.logprobs import Logprob, scored, scores, top_logprobs
from edge.session.loops import EVERY, loops
from edge.session.prompting import PromptEncoder, refuse_full
from edge.session.stream import Piece, Stream
from edge.session.usage import Timings, Usage

if TYPE_CHECKING:
    from edge.cache.plan import Plan
    from edge.cache.state import KVState, OnPrefill, Segment
    from edge.cache.store import Store
    from edge.model.model import Model
    from edge.session.answer_options import AnswerOptions, PreparedCall
    from edge.session.outcome import Outcome
    from edge.session.preparing import Preparer
    from edge.session.scheduler import Work

NONE = -1  # no token is chosen yet
MOST_SCORED = 256  # tokens of all choices of an answer
UNLIMITED = 1 << 62


@dataclass(eq=False)
class Generation:
    """One answer to the prompt ``ids``, of which other conversations share the first ``share`` tokens.  ``begun``: when
    the call began (time.perf_counter).
    """

    model: Model
    plan: Plan
    store: Store
    state: KVState
    ids: array[int]
    options: AnswerOptions
    outcome: Outcome
    begun: float
    share: int = 0
    choice: Sequence[int] = ()  # the tokens of the whole answer, if they are known
    n: int = 0  # tokens so far
    last: Sequence[Piece] = ()  # passed on after the text
    first: float = 0.0  # when the first token was chosen

    def __post_init__(self) -> None:
        model, options = self.model, self.options
        decoder = StreamDecoder(model.tokenizer, None if options.form is None else options.form.names)
        self.stream = Stream(
            decoder, options.stop, options.by, options.lead,
            options.thinks, model.thinking_marks)
        sampling = options.sampling
        self.most_held = self.plan.n_ctx if self.plan.overflow == "stop" else UNLIMITED
        #: number of largest logits that are needed, 0: all.  With gaps one of them might be never chosen
        gaps = model.usable + len(model.unused) > model.config.n_vocab
        compares = options.constraint or self.outcome.spec or options.logprobs is not None
        self.winners = 0 if gaps or compares else sampling.winners

    def run(self) -> Work:
        """Write the answer.  Raises EdgeError if no logit is usable."""
        state, options, outcome, start = self.state, self.options, self.outcome, clock()
        constraint = options.constraint
        state.reseed(options.sampling.seed)
        if options.echo and options.logprobs is not None:
            cached, reason = 0, (yield from scored(
                state, self.ids, options.logprobs, self.model.tokenizer.token_bytes, outcome.interrupted,
                options.on_prefill, outcome.prompt_logprobs))
        else:
            self.store.sync(state, self.ids)
            cached, reason = yield from state.prefill(
                self.ids, outcome.interrupted, options.on_prefill, share=self.share, winners=self.winners,
                shared=self.store.add)
        prompt_seconds = clock() - start
        outcome.usage = Usage(len(self.ids), cached)
        outcome.timings = Timings(prompt_seconds)
        if reason is None:
            yield from self._compare_choices()
            reason = None if options.max_tokens else "length"
        try:
            if reason is None:
                reason = yield from self._write()
            if not outcome.left:
                self._pass([*self.stream.flush(), *self.last])
        except GeneratorExit:
            reason = "cancelled"
            raise
        finally:
            state.drop_ahead()
            outcome.finish_reason = reason
            outcome.whole = constraint is None or (
                constraint.has_form(outcome.said.decode()) if self.stream.stopped
                else constraint.done or constraint.satisfied)
            outcome.usage = Usage(len(self.ids), cached, self.n)
            outcome.timings = Timings(
                prompt_seconds, self.first and self.first - self.begun,
                self.first and clock() - self.first - outcome.away)

    def _compare_choices(self) -> Generator[Segment, None, None]:
        """Compare the choices, if there are some and their tokens are few, or nothing else is asked for.  Greedily, the
        likeliest text is the answer, which need not have the likeliest tokens.
        """
        spec, options, encode = self.outcome.spec, self.options, self.model.tokenizer.encode
        if spec is None or not spec.choices or options.form is not None:
            return
        encoded = [array("i", encode(options.lead + each)) for each in spec.choices]
        longest = max(encoded, key=len)
        if not options.max_tokens and self.plan.overflow == "stop":
            refuse_full(self.plan, self.ids + longest)
        elif options.max_tokens and (
                sum(map(len, encoded)) > MOST_SCORED or len(self.ids) + len(longest) > self.most_held):
            return
        found = yield from scores(self.state, spec.choices, encoded, self.model.stop_ids)
        shares = self.outcome.shares = sorted(found, key=lambda each: -each.logprob)
        if options.sampling.temperature == 0:
            self.choice = encoded[spec.choices.index(shares[0].text)]

    def _write(self) -> Generator[Segment, None, str]:
        """Write tokens until the answer ends.  Returns why."""
        state, options, push = self.state, self.options, self.stream.push
        forced = None if options.constraint is None else options.constraint.forced
        stop_ids = frozenset() if options.ignore_eos else self.model.stop_ids
        most_ahead = min(self.most_held, len(self.ids) + options.max_tokens - 1)  # the last token is not evaluated
        processors = [kind(self) for kind, needed in PROCESSORS.items() if needed(self)]
        logits = state.logits
        while not (reason := self.outcome.interrupted()):
            token = choose(processors, logits)
            self.first = self.first or clock()
            if token in stop_ids:
                self.last = [piece for each in processors for piece in each.end(token)]
                return "stop"
            pieces = push(token)
            for each in processors:
                if reason := each.see(token, self.n + 1):
                    break
            self.n += 1
            state.tokens.append(token)
            if pieces:
                self._pass(pieces)
            if reason or len(state.tokens) > self.most_held:
                return reason or "context_full"
            segment = state.advance(token, self.winners, most_ahead, forced)
            if segment is not None:
                yield segment
            logits = state.take(segment)
        return reason

    def _pass(self, pieces: Iterable[Piece]) -> None:
        """Pass on what is said."""
        put = self.outcome.put
        assert put is not None
        for piece in pieces:
            (self.outcome.thoughts if piece.thought else self.outcome.said).extend(piece.bytes)
            put(piece)


def reply(
    preparer: Preparer, store: Store, state: KVState, call: PreparedCall, outcome: Outcome, share: int | None = None,
) -> Work:
    """Answer a call.  ``share``: other conversations begin with so many tokens of its prompt; None: the caller sends
    all messages, or a raw prompt, and another conversation that the state has is set aside.
    """
    options, ids, begun = call.options, call.ids, clock()
    assert ids is not None
    if options.timeout is not None and outcome.deadline is None:
        outcome.deadline = begun + options.timeout
    if share is None and state.asked and not state.continued_by(ids):
        store.set_aside(state)
    state.asked = 0
    if share is None and call.messages is not None:
        if store.on:
            prompting = PromptEncoder(preparer.model, preparer.plan, options.form, options.think)
            share = preparer.shared(prompting, [each for each in call.messages[:1] if each["role"] == "system"], ids)
        ends = (at for at in range(len(ids), 0, -1) if ids[at - 1] in preparer.model.stop_ids)
        state.asked = next(ends, 1 if options.partial else len(ids))
    if options.partial:
        yield from read(preparer.plan, store, state, ids, outcome, share or 0, options.on_prefill, lambda: False)
    else:
        yield from Generation(preparer.model, preparer.plan, store, state, ids, options, outcome,
                              begun - call.seconds, share or 0).run()


def read(
    plan: Plan, store: Store, state: KVState, ids: array[int], outcome: Outcome, share: int,
    report: OnPrefill | None = None, stop: Callable[[], bool] | None = None,
) -> Work:
    """Read the beginning ``ids`` of a prompt.  ``stop``: its question is still being written, so that as much is read
    as drops nothing from the cache, and until this is true.
    """
    begun, n, cached, reason = clock(), len(ids), min(common(state.tokens, ids), state.n_tokens), None
    outcome.finish_reason = "length"  # as an answer of no tokens
    if stop is not None and n > plan.kept_whole:
        return
    if cached < n:
        store.sync(state, ids)
        cached, reason = yield from state.prefill(
            ids, lambda: "cancelled" if stop is not None and stop() else outcome.interrupted(), report, False, share,
            shared=store.add, ahead=stop is not None)
    outcome.usage, outcome.timings = Usage(min(n, state.n_tokens), cached), Timings(clock() - begun)
    outcome.finish_reason = reason or "length"


def choose(processors: Sequence[Processor], logits: memoryview) -> int:
    """The next token."""
    token = NONE
    try:
        for each in processors:
            token = each.choose(token, logits)
    except ValueError as error:
        raise EdgeError(f"the model gave no usable answer ({error}); its file may be damaged") from None
    return token


class Processor:
    """Sees each token of an answer."""

    def __init__(self, generation: Generation) -> None:
        self.of = generation

    def choose(self, token: int, logits: memoryview) -> int:
        """The next token.  ``token``: the choice of the processors before this one, or NONE.  May change ``logits``."""
        return token

    def see(self, token: int, n: int) -> str | None:
        """Take note of the ``n``-th token, before its text is passed on.  Returns why the answer ends with it, or None.
        """
        return None

    def end(self, token: int) -> Sequence[Piece]:
        """The model ends the answer with this token, which is no part of it.  Returns what is passed on after the text.
        """
        return ()


class Logprobs(Processor):
    """Records the log probabilities; with ``echo`` that of the end, too, as programs that score texts expect."""

    chosen: Callable[[int], Logprob]

    def choose(self, token: int, logits: memoryview) -> int:
        of = self.of
        self.chosen = top_logprobs(logits, of.options.logprobs or 0, of.state.sampler, of.model.tokenizer.token_bytes)
        return token

    def see(self, token: int, n: int) -> None:
        self.of.outcome.logprobs.append(self.chosen(token))

    def end(self, token: int) -> Sequence[Piece]:
        if not self.of.options.echo:
            return ()
        self.of.outcome.logprobs.append(self.chosen(token))
        return (Piece("", (token,)),)


class ThinkingBudget(Processor):
    """Ends the thoughts after ``thinking_budget`` tokens, besides the one that begins them."""

    def __init__(self, of: Generation) -> None:
        super().__init__(of)
        self.budget = of.options.thinking_budget or 0
        self.inside = False  # the token before is a thought, too
        self.ending: list[int] = []  # the rest of the tokens that end them, the last first

    def choose(self, token: int, logits: memoryview) -> int:
        return self.ending.pop() if self.ending else token

    def see(self, token: int, n: int) -> None:
        inside = self.of.stream.thinking and not self.of.stream.ended_early
        self.budget -= inside and self.inside
        self.inside = inside
        if inside and self.budget <= 0:
            self.ending, self.of.stream.ended_early = self.of.model.end_of_thought[::-1], True


class Sampler(Processor):
    """Chooses what is likely, if nothing is chosen yet."""

    def __init__(self, of: Generation) -> None:
        super().__init__(of)
        sampling = of.options.sampling
        self.sample, self.tokens = of.state.sampler.sample, of.state.tokens
        self.filters = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
                        sampling.repeat_penalty, sampling.presence_penalty, sampling.frequency_penalty)
        n = max(sampling.repeat_last_n, 0)  # of the latest tokens; 0: of all
        self.recent = slice(-n, None) if sampling.penalises else None

    def choose(self, token: int, logits: memoryview) -> int:
        if token != NONE:
            return token
        return self.sample(logits, *self.filters, self.tokens[self.recent] if self.recent else None)


class FormedSampler(Sampler):
    """Chooses what the form of the answer allows: what would be chosen without it, if that is allowed."""

    def __init__(self, of: Generation) -> None:
        super().__init__(of)
        assert of.options.constraint is not None
        self.constraint, self.choice = of.options.constraint, [*of.choice][::-1]  # the last first

    def choose(self, token: int, logits: memoryview) -> int:
        token = self.choice.pop() if self.choice else super().choose(token, logits)
        while not self.constraint.allows(token, self.of.options.max_tokens - self.of.n):
            token = self.sample(logits, *self.filters, None, self.constraint.mask())
        return token

    def see(self, token: int, n: int) -> str | None:
        self.constraint.accept(token)
        ends = self.constraint.done or self.of.choice and not self.choice and self.constraint.satisfied
        return "stop" if ends else None


class Limits(Processor):
    """Ends the answer at a stop text, and after ``max_tokens``."""

    def see(self, token: int, n: int) -> str | None:
        if self.of.stream.stopped:
            return "stop"
        return "length" if n >= self.of.options.max_tokens else None


class Loops(Processor):
    """Ends an answer that only repeats itself."""

    def see(self, token: int, n: int) -> str | None:
        tokens, decode = self.of.state.tokens, self.of.model.tokenizer.decode
        again = 0 if n % EVERY else loops(tokens, n - 1)
        if not again:
            return None
        self.of.outcome.repeated = decode([*tokens[-again:], token], False)
        return "loop"


#: the processors, in the order in which they see a token, up to one that ends the answer -> whether an answer needs it
PROCESSORS: dict[type[Processor], Callable[[Generation], bool]] = {
    Logprobs: lambda of: of.options.logprobs is not None,  # before the logits are changed
    ThinkingBudget: lambda of: of.options.thinks and of.options.thinking_budget is not None,
    Sampler: lambda of: of.options.constraint is None,
    FormedSampler: lambda of: of.options.constraint is not None,
    Limits: lambda of: True,
    Loops: lambda of: of.options.constraint is None and not of.options.ignore_eos,
}
