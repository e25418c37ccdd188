"""Request: the options of one call, validated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from edge.cache.state import OnPrefill
from edge.errors import UsageError
from edge.sampling import FIELDS, Sampling
from edge.session.stream import BY, check_stop

if TYPE_CHECKING:
    from array import array

    from edge.constrain.constraint import Constraint
    from edge.constrain.functions import Form, Functions
    from edge.constrain.spec import Spec

DEFAULT_MAX_TOKENS = 512
MOST_TIMEOUT = 1e9  # seconds: thirty years
MOST_LOGPROBS = 100  # alternatives that may be asked for
#: the arguments for the form of an answer, of which one may be given
FORMS = ("schema", "regex", "choices", "grammar")
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Request:
    """The options of one call.  Raises UsageError if one is invalid."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    sampling: Sampling = Sampling()  # noqa: RUF009  frozen
    stop: tuple[str, ...] = ()
    by: str = "token"
    logprobs: int | None = None  # most likely tokens to tell beside the chosen one; None: tell nothing
    timeout: float | None = None
    ignore_eos: bool = False
    think: bool | None = None  # ask the model to think before it answers, or not to; None: as it was loaded
    thinking_budget: int | None = None  # tokens after which its thoughts are ended; None: it ends them itself
    echo: bool = False  # with logprobs: of the tokens of a raw prompt, too
    on_prefill: OnPrefill | None = None
    lead: str = ""  # what the template puts before every answer
    thinks: bool = False  # the answer may begin with thoughts
    spec: Spec | None = None  # what the answer has to be
    constraint: Constraint | None = None  # the same, for the tokens of this model
    tools: Functions | None = None  # functions that the model may call
    form: Form | None = None  # the same, as they are described to this model and called by it

    def __post_init__(self) -> None:
        if isinstance(self.max_tokens, bool) or not isinstance(self.max_tokens, int) or self.max_tokens < 0:
            hint = "it must be a whole number from 0"
            raise UsageError(f"is {short(self.max_tokens)}", argument="max_tokens", hint=hint)
        if not isinstance(self.sampling, Sampling):
            raise UsageError(f"is {short(self.sampling)}", argument="sampling", hint="it must be an edge.Sampling")
        if self.by not in BY:
            raise UsageError(f"is {short(self.by)}", argument="by", hint=f"it must be one of {', '.join(BY)}")
        if self.timeout is not None and not (type(self.timeout) in (int, float) and 0 < self.timeout <= MOST_TIMEOUT):
            large = isinstance(self.timeout, int) and self.timeout >= 1 << 62  # and perhaps too long to print
            shown = "too large" if large else short(self.timeout)
            raise UsageError(f"is {shown}", argument="timeout", hint="it must be a number of seconds, above 0 to 1e9")
        if self.logprobs is not None and (type(self.logprobs) is not int or not 0 <= self.logprobs <= MOST_LOGPROBS):
            hint = f"it must be a whole number from 0 to {MOST_LOGPROBS}"
            raise UsageError(f"is {short(self.logprobs)}", argument="logprobs", hint=hint)

        if self.think is not None and not isinstance(self.think, bool):
            raise UsageError(f"is {short(self.think)}", argument="think", hint="it must be True, False or None")
        budget = self.thinking_budget
        if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 0):
            hint = "it must be a whole number from 0"
            raise UsageError(f"is {short(budget)}", argument="thinking_budget", hint=hint)
        if self.echo and self.logprobs is None:
            raise UsageError("needs logprobs", argument="echo")

    @classmethod
    def of(
        cls, options: Mapping[str, Any], lead: str = "", usual: Sampling | None = None, thinks: bool = False
    ) -> Request:
        """The options of a call; single values of sampling are merged into ``sampling``.

        ``usual``: the sampling if the options set none.

        Raises UsageError for an unknown option or a value that is not valid.
        """
        rest = dict(options)
        sampling = rest.pop("sampling", None)
        sampling = (usual or Sampling()) if sampling is None else sampling
        changes = {name: rest.pop(name) for name in FIELDS if name in rest}
        if changes and isinstance(sampling, Sampling):
            sampling = dataclasses.replace(sampling, **changes)
        if rest.get("max_tokens", 0) is None:
            del rest["max_tokens"]
        if rest.get("tools") is not None and not hasattr(rest["tools"], "choice"):
            from edge.constrain.functions import Functions

            rest["tools"] = Functions.of(rest["tools"])
        rest["spec"] = _spec(*(rest.pop(name, None) for name in FORMS))
        stop = rest.get("stop")
        rest["stop"] = () if stop is None else check_stop(stop)
        unknown = rest.keys() - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            own = {field.name for field in dataclasses.fields(cls)} - {"lead", "thinks", "spec", "constraint", "form"}
            known = ", ".join(sorted({*FIELDS, *FORMS, *own}))
            raise UsageError(f"is not an option of an answer; the options are {known}", argument=min(unknown))
        return cls(sampling=sampling, lead=lead, thinks=thinks and rest["spec"] is None, **rest)


@dataclass(frozen=True)
class Prepared:
    """A call of ``chat`` (``messages``) or ``complete`` (``prompt``), checked; see Engine.prepare.  ``ids``: the tokens
    of its prompt, None before it is encoded.  ``left_out``: characters that are not read, see Answer.  ``seconds``:
    that encoding took.
    """

    request: Request
    messages: list[dict[str, Any]] | None = None
    prompt: str | Sequence[int] | None = None
    ids: array[int] | None = None
    left_out: int = 0
    seconds: float = 0.0

    def changed(self, **changes: Any) -> Prepared:
        """The same call with other options of its request, as fields of Request."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, **changes))


def _spec(schema: Any, regex: str | None, choices: Sequence[str] | None, grammar: str | None) -> Spec | None:
    """The form of the answer; imports nothing if any text is allowed."""
    if schema is None and regex is None and choices is None and grammar is None:
        return None
    from edge.constrain.spec import Spec

    return Spec.of(schema, regex, choices, grammar)


def check_text(text: str) -> None:
    """Raise UsageError unless a message or prompt is a text that can be encoded in UTF-8."""
    if not isinstance(text, str):
        raise UsageError(f"a message must be text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"character {error.start} of the message is half a surrogate pair, not text") from None


def has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether functions were called in these messages; then :mod:`edge.constrain.functions` writes their prompt."""
    return any("tool_calls" in message or message["role"] == "tool" for message in messages)


def check_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy of a conversation that ends with a question, with the result of a function, or with the beginning of the
    answer.  Raises UsageError.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence) or not messages:
        raise UsageError('messages must be a list such as [{"role": "user", "content": "Hello"}]')
    copied = []
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise UsageError(f"a message has a role, one of {', '.join(ROLES)}, and a content")
        calls, content = message.get("tool_calls") or [], message.get("content")
        content = "" if content is None and calls else content
        check_text(content)  # type: ignore[arg-type]
        copied.append({"role": message["role"], "content": content, **({"tool_calls": calls} if calls else {})})
    last = copied[-1]
    if last["role"] == "assistant" and not last["content"] and "tool_calls" not in last and len(copied) > 1:
        del copied[-1]  # an answer that has not begun
        last = copied[-1]
    if not any(each["role"] in ("user", "tool") for each in copied):
        raise UsageError("has no message of the user: there is nothing to answer", argument="messages")
    if "tool_calls" in last:
        raise UsageError("ends with calls of functions: send their results", argument="messages")
    return copied
