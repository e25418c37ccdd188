"""What a call asks for: its options and messages, validated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from edge.cache.state import OnPrefill
from edge.errors import UsageError, check_text, check_whole
from edge.sampling import FIELDS, Sampling
from edge.session.stream import check_stop
from edge.settings import SETTINGS, check

if TYPE_CHECKING:
    from array import array

    from edge.constrain.constraint import Constraint
    from edge.constrain.functions import Form, Functions
    from edge.constrain.spec import Spec

MOST_LOGPROBS = 100  # alternatives that may be asked for
#: the arguments for the form of an answer, of which one may be given
FORMS = ("schema", "regex", "choices", "grammar")
ROLES = ("system", "user", "assistant", "tool")
#: keys of messages that would change the answer -> why they are refused
UNREAD = {
    **dict.fromkeys(("image_url", "images", "audio", "audio_url", "input_audio", "video_url", "videos", "file"),
                    "only text is read"),
    "function_call": "use tool_calls",
}
NOTHING: tuple[Any, ...] = (None, "", [])  # values of a key that ask for nothing


@dataclass(frozen=True)
class AnswerOptions:
    """The options of one call.  Raises UsageError if one is invalid."""

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
    lead: str = ""  # what the template puts before every answer
    thinks: bool = False  # the answer may begin with thoughts
    spec: Spec | None = None  # what the answer has to be
    constraint: Constraint | None = None  # the same, for the tokens of this model
    tools: Functions | None = None  # functions that the model may call
    form: Form | None = None  # the same, as they are described to this model and called by it

    def __post_init__(self) -> None:
        for name in ("max_tokens", "by", "timeout", "ignore_eos", "think", "thinking_budget"):
            object.__setattr__(self, name, check(name, getattr(self, name)))
        object.__setattr__(self, "shared", check_whole(self.shared, "shared", 0))
        if self.logprobs is not None:
            object.__setattr__(self, "logprobs", check_whole(self.logprobs, "logprobs", 0, MOST_LOGPROBS))
        if not isinstance(self.sampling, Sampling):
            raise UsageError(f"is {short(self.sampling)}", argument="sampling", hint="it must be an edge.Sampling")
        if self.on_prefill is not None and not callable(self.on_prefill):
            raise UsageError(f"is {short(self.on_prefill)}", argument="on_prefill", hint="it must be a function")
        if self.echo and self.logprobs is None:
            raise UsageError("needs logprobs", argument="echo")
        if not isinstance(self.partial, bool):
            raise UsageError(f"is {short(self.partial)}", argument="partial", hint="it must be True or False")
        if self.partial and self.max_tokens:
            raise UsageError("needs max_tokens 0: nothing is answered", argument="partial")
        if self.partial and self.logprobs is not None:
            raise UsageError("cannot be combined with logprobs: nothing is answered", argument="partial")

    @classmethod
    def of(
        cls, options: Mapping[str, Any], lead: str = "", usual: Sampling | None = None, thinks: bool = False
    ) -> AnswerOptions:
        """The options of a call; single values of sampling are merged into ``sampling``.

        ``usual``: the sampling if the options set none.

        Raises UsageError for an unknown option or a value that is not valid.
        """
        rest = dict(options)
        sampling = rest.pop("sampling", None)
        sampling = (usual or Sampling()) if sampling is None else sampling
        changes = {name: rest.pop(name) for name in FIELDS if name in rest}
        if rest.get("choices") is not None and "sampling" not in options and "temperature" not in options:
            changes["temperature"] = 0.0  # the likeliest one
        if changes and isinstance(sampling, Sampling):
            sampling = dataclasses.replace(sampling, **changes)
        if rest.get("max_tokens", 0) is None:
            del rest["max_tokens"]
        tools, choice = rest.get("tools"), rest.pop("tool_choice", None)
        if choice is not None or tools is not None and not hasattr(tools, "choice"):
            from edge.constrain.functions import Functions

            rest["tools"] = Functions.of(tools, choice)
        forms = {name: form for name in FORMS if (form := rest.pop(name, None)) is not None}
        rest["spec"] = None
        if forms:
            from edge.constrain.spec import Spec  # not needed where any text is allowed

            rest["spec"] = Spec.of(**forms)
        stop = rest.get("stop")
        rest["stop"] = () if stop is None else check_stop(stop)
        unknown = rest.keys() - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            own = {field.name for field in dataclasses.fields(cls)} - {"lead", "thinks", "spec", "constraint", "form"}
            known = ", ".join(sorted({*FIELDS, *FORMS, *own, "tool_choice"}))
            raise UsageError(f"is not an option of an answer; the options are {known}", argument=min(unknown))
        return cls(sampling=sampling, lead=lead, thinks=thinks and rest["spec"] is None, **rest)


@dataclass(frozen=True)
class PreparedCall:
    """A call of ``chat`` (``messages``), ``ask`` (``question``) or ``complete`` (``prompt``), checked.

    ``ids``: the tokens of its prompt, None before it is encoded.  ``left_out``: characters that are not read, see
    Answer.  ``seconds``: that encoding took.
    """

    options: AnswerOptions
    messages: list[dict[str, Any]] | None = None
    question: str | None = None
    prompt: str | Sequence[int] | None = None
    ids: array[int] | None = None
    left_out: int = 0
    seconds: float = 0.0

    def changed(self, **changes: Any) -> PreparedCall:
        """The same call with other options, as fields of AnswerOptions."""
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **changes))


def certain(text: str) -> str:
    """The part of a text that will be the same tokens however it goes on: all but its last word."""
    whole = text.rstrip()
    end = len(whole) if len(whole) < len(text) else max(whole.rfind(" "), whole.rfind("\n"), 0)
    return text[:end].rstrip()


def has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether functions were called in these messages; then :mod:`edge.constrain.functions` writes their prompt."""
    return any("tool_calls" in message or message["role"] == "tool" for message in messages)


def check_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy of messages, each of which has a role and a text.  Raises UsageError."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence) or not messages:
        raise UsageError('messages must be a list such as [{"role": "user", "content": "Hello"}]')
    copied = []
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise UsageError(f"a message has a role, one of {', '.join(ROLES)}, and a content")
        if unread := next((key for key in UNREAD if message.get(key) not in NOTHING), None):
            raise UsageError(f"have {unread}, which is not supported: {UNREAD[unread]}", argument="messages")
        calls, content = message.get("tool_calls") or [], message.get("content")
        content = "" if content is None and calls else content
        check_text(content)
        copied.append({"role": message["role"], "content": content, **({"tool_calls": calls} if calls else {})})
        for key in ("tool_call_id", "name") if message["role"] == "tool" else ():
            if message.get(key) is not None:
                check_text(message[key])
                copied[-1][key] = message[key]
    return copied


def check_turns(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A conversation that ends with a question, with the result of a function, or with the beginning of the answer; an
    answer at its end that has not begun is removed.  Raises UsageError.
    """
    last = messages[-1]
    if last["role"] == "assistant" and not last["content"] and "tool_calls" not in last and len(messages) > 1:
        del messages[-1]  # an answer that has not begun
        last = messages[-1]
    if not any(each["role"] in ("user", "tool") for each in messages):
        raise UsageError("has no message of the user: there is nothing to answer", argument="messages")
    if "tool_calls" in last:
        raise UsageError("ends with calls of functions: send their results", argument="messages")
    return messages
