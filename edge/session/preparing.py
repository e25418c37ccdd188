"""Preparing: what a caller asks -> a :class:`Prepared` call, which any session of the engine can answer.

Everything that does not depend on a session happens here, once for each call, whoever makes it: options and messages
are checked, the form of the answer is compiled, the template is filled in, and the prompt becomes tokens.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge.errors import UsageError
from edge.session.prompting import Prompting, refuse_full, refuse_long
from edge.session.request import Prepared, Request, check_messages, check_text

if TYPE_CHECKING:
    from edge.cache.config import KVPlan
    from edge.model.model import Model


@dataclass(frozen=True)
class Preparer:
    """Prepares calls for one model and plan."""

    model: Model
    plan: KVPlan

    def call(
        self, messages: Sequence[Mapping[str, Any]] | None, prompt: str | Sequence[int] | None,
        options: Mapping[str, Any],
    ) -> Prepared:  # fmt: skip
        """A call of Session.chat (``messages``) or Session.complete (``prompt``), checked; its prompt is still text.

        Raises UsageError.
        """
        if messages is not None:
            copied = check_messages(messages)
            continues = copied[-1]["role"] == "assistant"
            return Prepared(self._continuing(options) if continues else self.turn(options), messages=copied)
        for name in ("think", "thinking_budget"):
            if options.get(name) is not None:
                raise UsageError("is for conversations: a raw prompt has no template", argument=name)
        prompt = () if prompt is None else prompt
        if isinstance(prompt, str):
            check_text(prompt)
        return Prepared(self._request(options), prompt=prompt)

    def encoded(self, call: Prepared) -> Prepared:
        """The call with the tokens of its prompt.  In a context that slides, a message that is longer than all of it is
        shortened.

        Raises ContextFull for a prompt that does not fit, and UsageError for messages that the template refuses.
        """
        if call.ids is not None:
            return call
        begun, form = time.perf_counter(), call.request.form
        prompting = Prompting(self.model, self.plan, form, call.request.think)
        messages, prompt = call.messages, call.prompt
        if messages is None:
            text = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []
            refuse_long(self.model, self.plan, text, form)
            prompt, left_out = prompting.shortened(prompt, 1) if isinstance(prompt, str) else (prompt or (), 0)
            ids = self.model.encode_raw(prompt)
        else:
            refuse_long(self.model, self.plan, messages, form)
            system = messages[:1] if messages[0]["role"] == "system" else []
            fitting = [prompting.fitting(each, system) for each in messages]
            messages, left_out = [each for each, _ in fitting], sum(n for _, n in fitting)
            ids = prompting.encode(messages)
        refuse_full(self.plan, ids)
        seconds = time.perf_counter() - begun
        return dataclasses.replace(call, messages=messages, ids=ids, left_out=left_out, seconds=seconds)

    def turn(self, options: Mapping[str, Any]) -> Request:
        """The options of an answer to messages.  Raises UsageError."""
        request = self._request(options, self.model.answer_lead, self.model.thinks)
        if request.echo:
            raise UsageError("is for raw prompts (complete)", argument="echo")
        return request

    def constrained(self, request: Request) -> Request:
        """The request with its form for the tokens of this model, at the beginning of an answer.  Raises UsageError."""
        spec = request.spec if request.form is None else request.form.spec
        if spec is None:
            return request
        from edge.constrain.constraint import Constraint

        vocabulary = self.model.vocabulary(self.plan.for_grammars)
        blanks = request.lead + " " * self.model.tokenizer.strips_blank
        constraint = Constraint(vocabulary, spec, blanks, request.max_tokens, not request.ignore_eos)
        return dataclasses.replace(request, constraint=constraint)

    def _request(self, options: Mapping[str, Any], lead: str = "", thinks: bool = False) -> Request:
        """The options of a call, checked.  ``lead``: what the template puts before the answer; ``thinks``: whether the
        answer may begin with thinking.
        """
        model, think = self.model, options.get("think")
        usual = model.sampling if think is None or not model.thinks else model.advised(bool(think))
        request = self._thinking(Request.of(options, lead, usual, thinks))
        if request.tools is not None:
            form = request.tools.form(model.template, model.tokenizer, request.spec)
            request = dataclasses.replace(request, form=form)
        return self.constrained(request)

    def _thinking(self, request: Request) -> Request:
        """The request, if the model can think or answer at once as it says.  Raises UsageError."""
        model, think = self.model, request.think
        if not model.thinks:
            for name, asked in (("think", think), ("thinking_budget", request.thinking_budget is not None)):
                if asked:
                    raise UsageError("cannot be used: this model does not think before it answers", argument=name)
            return dataclasses.replace(request, think=None)
        if think is not None:
            model.template.thinking(think)
            if think and request.spec is not None:
                raise UsageError("cannot be combined with a form, which the whole answer has", argument="think")
        return request

    def _continuing(self, options: Mapping[str, Any]) -> Request:
        """The options of an answer that has begun already, so that its thoughts are over.  Raises UsageError."""
        model, end = self.model, "cannot be combined with an answer to continue (the last message is the assistant's)"
        if options.get("think"):
            raise UsageError(end, argument="think")
        if model.thinks and model.template.switches:
            options = {**options, "think": False}
        request = self._request(options)
        if request.echo:
            raise UsageError("is for raw prompts (complete)", argument="echo")
        if request.spec is not None:
            raise UsageError(f"{end}: a form is that of a whole answer", argument="form")
        if request.tools is not None and request.tools.choice == "required":
            raise UsageError(end, argument="tool_choice")
        return request
