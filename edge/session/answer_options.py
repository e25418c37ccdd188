"""AnswerOptions: what a call asks for, checked once; PreparedCall: a call with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from edge.cache.state import OnPrefill
from edge.errors import UsageError
from edge.sampling import FIELDS, Sampling
from edge.session.stream import check_stop
from edge.settings import SETTINGS, check

if TYPE_CHECKING:
    from array import array

    from edge.constrain.constraint import Constraint
    from edge.constrain.functions import Form, Functions
    from edge.constrain.spec import Spec

#: the arguments for the form of an answer, of which one may be given
FORMS = ("schema", "regex", "choices", "grammar")
TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
#: options with a row in the table of settings; Sampling has the others of the table
BESIDES_SAMPLING = ("max_tokens", "by", "timeout", "ignore_eos", "think", "thinking_budget")
OF_PROGRAMS = ("logprobs", "shared", "echo", "partial")  # also in the table
OTHERS = (*OF_PROGRAMS, "stop", "on_prefill")


@dataclass(frozen=True)
class AnswerOptions:
    """The options of one call, made by :meth:`of`."""

    max_tokens: int = SETTINGS["max_tokens"].default
    sampling: Sampling = Sampling()  # noqa: RUF009  frozen
    stop: tuple[str, ...] = ()
    by: str = "token"
    logprobs: int | None = None  # number of most likely tokens to report besides the chosen one; None: none
    timeout: float | None = None
    ignore_eos: bool = False
    think: bool | None = None  # ask the model to think before it answers, or not to; None: as it was loaded
    thinking_budget: int | None = None  # tokens after which its thoughts are ended; None: it ends them itself
    shared: int = 0  # characters at the beginning of a question that other questions share
    echo: bool = False  # with logprobs: of the tokens of a raw prompt, too
    partial: bool = False  # the last message is still being written: it is read as far as it is certain
    on_prefill: OnPrefill | None = None
    lead: str = ""  # text that the template puts before every answer
    thinks: bool = False  # the answer may begin with thoughts
    spec: Spec | None = None  # the form of the answer
    constraint: Constraint | None = None  # the same, for the tokens of this model
    tools: Functions | None = None  # functions that the model may call
    form: Form | None = None  # the same, as they are described to this model and called by it

    @classmethod
    def of(
        cls, given: Mapping[str, Any], lead: str = "", usual: Sampling | None = None, thinks: bool = False
    ) -> AnswerOptions:
        """The options of a call; single values of sampling are merged into ``sampling``.

        ``usual``: the sampling if the options set none.

        Raises UsageError for an unknown option or a value that is not valid.
        """
        rest = {name: value for name, value in given.items() if value is not None or name in FIELDS}
        if unknown := rest.keys() - {"sampling", *FIELDS, *FORMS, *TOOLS, *BESIDES_SAMPLING, *OTHERS}:
            known = ", ".join(sorted(("sampling", *FIELDS, *FORMS, *TOOLS, *BESIDES_SAMPLING, *OTHERS)))
            raise UsageError(f"is not an option of an answer; the options are {known}", argument=min(unknown))
        found = {name: check(name, rest[name]) for name in (*BESIDES_SAMPLING, *OF_PROGRAMS) if name in rest}
        spec = None
        if forms := {name: rest[name] for name in FORMS if name in rest}:
            from edge.constrain.spec import Spec  # not needed where any text is allowed

            spec = Spec.of(**forms)
        logprobs, partial, on_prefill = found.get("logprobs"), found.get("partial"), rest.get("on_prefill")
        if on_prefill is not None and not callable(on_prefill):
            raise UsageError(f"is {short(on_prefill)}", argument="on_prefill", hint="it must be a function")
        if found.get("echo") and logprobs is None:
            raise UsageError("needs logprobs", argument="echo")
        options = cls(
            sampling=_sampling(rest, usual or Sampling()), stop=check_stop(rest.get("stop", ())),
            on_prefill=on_prefill, lead=lead, thinks=thinks and spec is None, spec=spec,
            tools=_tools(*map(rest.get, TOOLS)), **found)
        if partial and options.max_tokens:
            raise UsageError("needs max_tokens 0: nothing is answered", argument="partial")
        if partial and logprobs is not None:
            raise UsageError("cannot be combined with logprobs: nothing is answered", argument="partial")
        return options


def _sampling(given: Mapping[str, Any], usual: Sampling) -> Sampling:
    sampling = given.get("sampling", usual)
    if not isinstance(sampling, Sampling):
        raise UsageError(f"is {short(sampling)}", argument="sampling", hint="it must be an edge.Sampling")
    changes = {name: given[name] for name in FIELDS if name in given}
    if "choices" in given and "sampling" not in given:
        changes.setdefault("temperature", 0.0)  # the likeliest one
    return dataclasses.replace(sampling, **changes)


def _tools(tools: Any, choice: Any, parallel: bool | None) -> Functions | None:
    if choice is None and (tools is None or hasattr(tools, "choice")):  # they are Functions
        return tools
    from edge.constrain.functions import Functions

    return Functions.of(tools, choice, parallel)


@dataclass(frozen=True)
class PreparedCall:
    """A call of ``chat`` (``messages``), ``ask`` (``question``) or ``complete`` (``prompt``), checked.

    ``ids``: the tokens of its prompt, None before it is encoded.  ``seconds``: that encoding took.
    """

    options: AnswerOptions
    messages: list[dict[str, Any]] | None = None
    question: str | None = None
    prompt: str | Sequence[int] | None = None
    ids: array[int] | None = None
    seconds: float = 0.0

    def changed(self, **changes: Any) -> PreparedCall:
        """The same call with other options, as fields of AnswerOptions."""
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **changes))
