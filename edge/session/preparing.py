"""Preparing: what a caller asks -> a :class:`PreparedCall` call, which any session of the engine can answer.

Everything that does not depend on a session happens here, once for each call, whoever makes it: options and messages
are checked, the form of the answer is compiled, the template is filled in, and the prompt becomes tokens.
"""

from __future__ import annotations

import dataclasses
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge.cache.state import common
from edge.errors import UsageError, check_text
from edge.prompt.messages import certain, check_turns
from edge.session.answer_options import FORMS, AnswerOptions, PreparedCall
from edge.session.prompting import PromptEncoder, refuse_full, refuse_long

if TYPE_CHECKING:
    from edge.cache.plan import Plan
    from edge.model.model import Model


MOST_BEGINNINGS = 16  # system prompts of which the tokens are known


@dataclass(frozen=True)
class Preparer:
    """Prepares calls for one model and plan; all sessions of an engine have the same."""

    model: Model
    plan: Plan
    admit_forms: Callable[[], object]  # raises MemoryRefused, see KVSpace; called before anything of a form is loaded
    _beginnings: dict[str, array[int]] = field(default_factory=dict, init=False, repr=False)

    def prepare(
        self, messages: Sequence[dict[str, Any]] | None, prompt: str | Sequence[int] | None, given: Mapping[str, Any],
    ) -> PreparedCall:
        """A call with the tokens of its prompt, see :meth:`call` and :meth:`encoded`."""
        return self.encoded(self.call(messages, prompt, given))

    def ask(self, question: str, given: Mapping[str, Any]) -> PreparedCall:
        """A call of Session.ask; its prompt depends on the session.  Raises UsageError."""
        if given.get("partial"):
            raise UsageError("is for chat; use read_ahead", argument="partial")
        return PreparedCall(self._options(given), question=check_text(question))

    def call(
        self, messages: Sequence[dict[str, Any]] | None, prompt: str | Sequence[int] | None, given: Mapping[str, Any],
    ) -> PreparedCall:
        """A call of Session.chat, whose ``messages`` have been checked (:func:`check_messages`), or of
        Session.complete; its prompt is still text.  Raises UsageError.
        """
        if messages is not None:
            turns = check_turns(messages)
            if given.get("partial") and turns[-1]["role"] != "user":
                raise UsageError("needs a last message of the user", argument="partial")
            return PreparedCall(self._options(given, turns[-1]["role"] == "assistant"), messages=turns)
        for name in ("think", "thinking_budget", "partial"):
            if given.get(name) is not None:
                raise UsageError("is for conversations: a raw prompt has no template", argument=name)
        if isinstance(prompt, str):
            check_text(prompt, "prompt")
        elif not isinstance(prompt, Iterable):
            raise UsageError(f"is {prompt!r}", argument="prompt", hint="it must be text or token ids")
        return PreparedCall(self._options(given, raw=True), prompt=prompt)

    def encoded(self, call: PreparedCall) -> PreparedCall:
        """The call with the tokens of its prompt; of one whose last message is still being written, with those that are
        certain, and without that message.  The prompt of a question is left to its session.

        Raises ContextFull for a prompt that does not fit, and UsageError for messages that the template refuses.
        """
        if call.options.constraint is None:  # it begins anew
            call = dataclasses.replace(call, options=self.constrained(call.options))
        if call.ids is not None or call.question is not None:
            return call
        begun, form = time.perf_counter(), call.options.form
        prompting = PromptEncoder(self.model, self.plan, form, call.options.think)
        messages, prompt = call.messages, call.prompt
        if messages is None:
            assert prompt is not None
            if isinstance(prompt, str):
                refuse_long(self.model, self.plan, [{"role": "user", "content": prompt}], form, True)
            ids = self.model.encode_raw(prompt)
            if isinstance(prompt, str) or call.options.echo or self.plan.overflow == "stop":
                refuse_full(self.plan, ids)
        elif call.options.partial:
            *messages, last = messages
            part = certain(last["content"])
            ids = prompting.beginning(messages, part, " " * bool(part), False)
        else:
            ids = prompting.fitted(messages)
        seconds = time.perf_counter() - begun
        return dataclasses.replace(call, messages=messages, ids=ids, seconds=seconds)

    def beginning(self, prompting: PromptEncoder, messages: Sequence[dict[str, Any]], text: str = "") -> array[int]:
        """:meth:`PromptEncoder.beginning` of what many conversations begin with, encoded for the first of them only."""
        form = prompting.form
        tools = None if form is None else (form.tools.choice == "none", [tool.given for tool in form.tools.tools])
        key = repr((messages, text, tools, prompting.think))
        known = self._beginnings.get(key)
        if known is None:
            known = prompting.beginning(messages, text)
            if len(self._beginnings) >= MOST_BEGINNINGS:
                self._beginnings.clear()
            self._beginnings[key] = known
        return known

    def shared(
        self, prompting: PromptEncoder, messages: Sequence[dict[str, Any]], ids: array[int], text: str = ""
    ) -> int:
        """The number of tokens of a prompt with which other conversations begin, too: the operator's ``messages``, and
        the beginning ``text`` of the first question.
        """
        return common(ids, self.beginning(prompting, messages, text)) if messages or text else 0

    def constrained(self, options: AnswerOptions) -> AnswerOptions:
        """The options with the form for the tokens of this model, at the beginning of an answer, if there will be one.
        Raises UsageError.
        """
        spec = options.spec if options.form is None else options.form.spec
        if spec is None or options.partial:
            return options
        from edge.constrain.constraint import Constraint

        vocabulary = self.model.vocabulary()
        blanks = " " * self.model.tokenizer.strips_blank + options.lead
        constraint = Constraint(vocabulary, spec, blanks, options.max_tokens, not options.ignore_eos)
        return dataclasses.replace(options, constraint=constraint)

    def _options(self, given: Mapping[str, Any], continues: bool = False, raw: bool = False) -> AnswerOptions:
        """The options of an answer; of one that ``continues`` the last, so that its thoughts are over; or of a
        completion of a ``raw`` prompt.  Raises UsageError, also for what this model cannot do.
        """
        model, think = self.model, given.get("think")
        end = "cannot be combined with an answer to continue (the last message is the assistant's)"
        if continues:
            if think:
                raise UsageError(end, argument="think")
            if model.thinks and model.template.switches:
                given, think = {**given, "think": False}, False
        tools = given.get("tools")
        calls = tools and "none" not in (getattr(tools, "choice", ""), given.get("tool_choice"))
        if not given.get("partial") and (calls or any(given.get(name) is not None for name in FORMS)):
            self.admit_forms()
        usual = model.sampling if think is None or not model.thinks else model.advised(bool(think))
        lead, thinks = ("", False) if raw or continues else (model.answer_lead, model.thinks)
        options = self._thinking(AnswerOptions.of(given, lead, usual, thinks))
        if options.tools is not None:
            form = options.tools.form(model.template, model.tokenizer, options.spec)
            options = dataclasses.replace(options, form=form)
        if options.echo and not raw:
            raise UsageError("is for raw prompts (complete)", argument="echo")
        if continues and options.spec is not None:
            raise UsageError(f"{end}: a form is for a whole answer", argument="form")
        if continues and options.tools is not None and options.tools.choice == "required":
            raise UsageError(end, argument="tool_choice")
        return self.constrained(options)

    def _thinking(self, options: AnswerOptions) -> AnswerOptions:
        """The options, if the model can think or answer at once as they say.  Raises UsageError."""
        model, think = self.model, options.think
        if not model.thinks:
            for name, asked in (("think", think), ("thinking_budget", options.thinking_budget is not None)):
                if asked:
                    raise UsageError("cannot be used: this model does not think before it answers", argument=name)
            return dataclasses.replace(options, think=None)
        if think is not None:
            model.template.thinking(think)
            if think and options.spec is not None:
                raise UsageError("cannot be combined with a form, which the whole answer has", argument="think")
        return options
