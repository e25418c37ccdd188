"""Call: the request of a client, in either API, validated.  Refusal: the reason why a request is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edge.errors import Busy, ContextFull, EdgeError, MemoryRefused, UsageError, shown
from edge.sampling import FIELDS, Sampling
from edge.session.answer_options import FORMS, ROLES, AnswerOptions

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.answer_options import PreparedCall

MOST_MESSAGES = 4096
MOST_CHOICES = 8  # n
MOST_STOPS = 16
MOST_LOGPROBS = 20
SAME = {"developer": "system", "function": "tool"}  # other names of roles
#: key of a request -> field of Sampling
SAMPLING = {name: name for name in FIELDS}


class Refusal(Exception):
    """A request that is answered with an error.  ``status``: of HTTP; ``code``: a fixed word for programs."""

    def __init__(
        self, status: int, message: str, code: str | None = None, param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after


def bad(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """The refusal of an invalid request (400); repeating the request would not help."""
    return Refusal(400, message, code, param)


#: argument of the library -> other keys of requests that become it
_SENT = {
    "messages": ("prompt", "input"),
    "max_tokens": ("max_completion_tokens", "max_output_tokens"),
    "think": ("reasoning_effort", "chat_template_kwargs", "reasoning"),
    "schema": ("response_format", "text", "format"),
    "choices": ("guided_choice",),
    "form": ("response_format", "text", "format", "schema", "regex", "grammar", "choices", "guided_choice"),
}


def refusal_of(error: BaseException, sent: Container[str] = ()) -> Refusal:
    """The refusal for an exception that was raised while answering.  ``sent``: the keys of the request, of which it
    names the one that is wrong.
    """
    def key(argument: str) -> str:
        return next((each for each in (argument, *_SENT.get(argument, ())) if each in sent), argument)

    if isinstance(error, Refusal):
        return error
    if isinstance(error, ContextFull):
        return bad(str(error), key("messages"), "context_length_exceeded")
    if isinstance(error, UsageError):
        said = str(error)
        argument = error.argument or said.partition(":")[0]  # "schema: /type: ..."
        if argument not in _SENT and error.argument is None:
            return bad(said)
        return bad(key(argument) + said.removeprefix(argument), key(argument))
    if isinstance(error, Busy):
        return Refusal(429, str(error), "busy", retry_after=error.retry_after or 2)
    if isinstance(error, MemoryRefused):
        return Refusal(503, str(error), "memory", retry_after=5)
    if isinstance(error, EdgeError):
        return Refusal(500, str(error), "engine")
    return Refusal(500, f"internal error: {type(error).__name__}", "internal")


def dump(value: Any) -> bytes:
    """JSON as bytes in UTF-8.  Texts of clients must have been checked (:func:`checked_text`)."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass
class Call:
    """One request for an answer.

    ``messages`` for a chat, each of them checked (:func:`message_of`), else ``prompts``, each a text or token ids, each
    of which gets ``n`` answers.  ``echo``: each answer is preceded by its prompt, the text of which is in ``echoed``.
    ``options``: keyword arguments of ``Session.chat`` and ``complete``.  ``key``: the conversation, if the client names
    one.  ``deadline`` (time.monotonic): when the answer ends at the latest, including waiting.  ``progress``: whether
    to report how far the prompt has been read.  ``sent``: the keys of the request.
    """

    messages: list[dict[str, Any]] | None = None
    prompts: list[str | list[int]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    key: str | None = None
    logprobs: int | None = None
    echo: bool = False
    echoed: list[str] = field(default_factory=list)
    deadline: float | None = None
    progress: bool = False
    sent: frozenset[str] = frozenset()

    @property
    def partial(self) -> bool:
        """Whether its last message is still being written: it is read ahead, and not answered."""
        return bool(self.options.get("partial"))

    @property
    def n_choices(self) -> int:
        """The number of answers: n for each prompt, those to the first prompt first."""
        return self.n * max(1, len(self.prompts))

    def prepare(self, engine: Engine) -> list[PreparedCall]:
        """What a session answers for each of its choices; of the n for one prompt, each has its own seed.

        Raises EdgeError for a call that cannot be answered.
        """
        if self.echo:
            decode = engine.tokenizer.decode
            self.echoed = [each if isinstance(each, str) else decode(each) for each in self.prompts]
        prepare = engine.preparer.prepare
        if self.messages is not None:
            found = [prepare(self.messages, None, self.options, checked=True)]
        else:
            found = [prepare(None, each, self.options) for each in self.prompts]

        def nth(one: PreparedCall, n: int) -> PreparedCall:  # its form begins anew
            return one.changed(sampling=one.options.sampling.reseeded(n), constraint=None) if n else one

        return [nth(one, n) for one in found for n in range(self.n)]


class Fields:
    """Reads the keys of a JSON object one by one; a key that is missing or null has the default value.

    Every method raises Refusal (400) for a wrong value.  ``where``: path of the object in the request, for messages.
    """

    def __init__(self, body: Any, where: str = "") -> None:
        if not isinstance(body, dict):
            raise bad(f"{where or 'the request'} is not a JSON object", where or None)
        self.body: Mapping[str, Any] = body
        self.where = f"{where}." if where else ""

    def has(self, name: str) -> bool:
        """Whether the key is there, and not null."""
        return self.body.get(name) is not None

    @property
    def sent(self) -> frozenset[str]:
        """The keys that are there, and not null."""
        return frozenset(filter(self.has, self.body))

    def text(self, name: str, default: str | None = None) -> str | None:
        """A string of valid Unicode."""
        value = self.body.get(name)
        if value is None:
            return default
        return checked_text(value, self.where + name)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise bad(f"{self.where}{name} is not true or false", self.where + name)
        return value

    def whole(self, name: str, least: int, most: int, default: int | None = None) -> int | None:
        """A whole number from ``least`` to ``most``; 2.0 is one, too."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise bad(f"{self.where}{name} is not a whole number from {least} to {most}", self.where + name)
        return value

    def number(self, name: str, least: float, most: float, default: float | None = None) -> float | None:
        """A number from ``least`` to ``most``."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise bad(f"{self.where}{name} is not a number from {least:g} to {most:g}", self.where + name)
        return float(value) if math.isfinite(value) else None

    def inner(self, name: str) -> Fields | None:
        """A nested object, or None."""
        value = self.body.get(name)
        return None if value is None else Fields(value, self.where + name)

    def stops(self) -> tuple[str, ...]:
        """The stop strings in the key ``stop``: one, or a list of at most MOST_STOPS; empty ones are left out."""
        value, where = self.body.get("stop"), f"{self.where}stop"
        if value is None:
            return ()
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list) or len(stops) > MOST_STOPS:
            raise bad(f"{where} is not a string or a list of at most {MOST_STOPS} strings", where)
        paths = [where if stops is not value else f"{where}[{i}]" for i in range(len(stops))]
        return tuple(text for stop, path in zip(stops, paths, strict=True) if (text := checked_text(stop, path)))


def checked_text(value: Any, where: str) -> str:
    """A text that is valid UTF-8.  Raises Refusal."""
    if value is None:
        raise bad(f"{where} is missing", where)
    if not isinstance(value, str):
        raise bad(f"{where} is not a string", where)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise bad(f"{where} contains half of a surrogate pair, which is not valid text", where) from None
    return value


def checked_json(value: Any, where: str) -> Any:
    """A JSON value whose texts are all valid UTF-8.  Raises Refusal."""
    try:
        dump(value)
    except UnicodeEncodeError:
        raise bad(f"{where} contains half of a surrogate pair, which is not valid text", where) from None
    except RecursionError:
        raise bad(f"{where} is nested too deeply", where) from None
    return value


def content_text(value: Any, where: str) -> str:
    """The text of a message: a text, or a list of parts of type text.  Raises Refusal."""
    if value is None:
        return ""
    if isinstance(value, str):
        return checked_text(value, where)
    if not isinstance(value, list):
        raise bad(f"{where} is not a string or a list of parts", where)
    texts = []
    for i, part in enumerate(value):
        kind = Fields(part, f"{where}[{i}]").body.get("type")
        if kind not in ("text", "input_text", "output_text", "refusal"):
            raise bad(f"{where}[{i}].type is {shown(kind)}; only text is supported", f"{where}[{i}].type")
        key = "refusal" if kind == "refusal" else "text"
        texts.append(checked_text(part.get(key), f"{where}[{i}].{key}"))
    return "".join(texts)


def messages_of(value: Any) -> list[dict[str, Any]]:
    """The messages of a chat request, with valid roles and contents as texts.  Raises Refusal."""
    if not isinstance(value, list) or not value:
        raise bad("messages is not a list with at least one message", "messages")
    if len(value) > MOST_MESSAGES:
        raise bad(f"{len(value)} messages; the limit is {MOST_MESSAGES}", "messages")
    return joined([message_of(each, f"messages[{i}]") for i, each in enumerate(value)])


def message_of(value: Any, where: str) -> dict[str, Any]:
    """One message, with a valid role and its content as text.  Raises Refusal."""
    fields = Fields(value, where)
    given = value.get("role")
    role = SAME.get(given, given) if isinstance(given, str) else given
    if role not in ROLES:
        known = ", ".join((*ROLES, *SAME))
        raise bad(f"{where}.role is {shown(given)}; it must be one of {known}", f"{where}.role")
    if given not in ("assistant", "function") and value.get("content") is None:  # of these OpenAI allows null
        raise bad(f"{where}.content is missing", f"{where}.content")
    content = content_text(value.get("content"), f"{where}.content") + (fields.text("refusal") or "")
    message: dict[str, Any] = {"role": role, "content": content}
    if fields.has("tool_calls") and (calls := _calls(value["tool_calls"], f"{where}.tool_calls")):
        message["tool_calls"] = calls
    for key, known in (("tool_call_id", "tool_call_id"), ("tool_name", "name"), ("name", "name")):  # the second: Ollama
        if (text := fields.text(key)) is not None and role == "tool":
            message[known] = text
    return message


def joined(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as templates need them: system messages that follow each other are one, and the results of several
    calls have the order of the calls.
    """
    found: list[dict[str, Any]] = []
    calls, first = [], 0  # ids of calls, and where their results begin
    for message in messages:
        if message["role"] == "system" and found and found[-1]["role"] == "system":
            found[-1]["content"] += "\n\n" + message["content"]
            continue
        found.append(message)
        if message["role"] != "tool":
            calls, first = [each.get("id") for each in message.get("tool_calls", ())], len(found)
        elif all(each.get("tool_call_id") in calls for each in found[first:]):
            found[first:] = sorted(found[first:], key=lambda each: calls.index(each.get("tool_call_id")))
    return found


def _calls(value: Any, where: str) -> list[dict[str, Any]]:
    """The calls of functions in a message.  Raises Refusal."""
    if not isinstance(value, list):
        raise bad(f"{where} is not a list of calls", where)
    for i, each in enumerate(checked_json(value, where)):
        call = Fields(each, f"{where}[{i}]")
        call.text("id")
        function = call.inner("function") or Fields({}, f"{where}[{i}].function")
        checked_text(function.body.get("name"), f"{where}[{i}].function.name")
        check_arguments(function.body.get("arguments"), f"{where}[{i}].function.arguments")
    return value


def check_arguments(value: Any, where: str) -> None:
    """Raise Refusal for arguments of a call that are no JSON object or the text of one; it may be empty."""
    try:
        found = json.loads(value) if value and isinstance(value, str) else value or {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise bad(f"{where} is not a JSON object", where)


def with_system(messages: list[dict[str, Any]], system: str | None) -> list[dict[str, Any]]:
    """The messages, with the system prompt of the service if they have none."""
    if not system or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


#: values of reasoning_effort -> whether the model thinks before it answers; it has no degrees
EFFORTS = {"none": False, "minimal": True, "low": True, "medium": True, "high": True, "xhigh": True, "max": True}


def effort_of(fields: Fields, key: str) -> bool | None:
    """Whether the model is to think, by one of EFFORTS.  Raises Refusal."""
    if (word := fields.text(key)) is None:
        return None
    if word not in EFFORTS:
        raise bad(f"{fields.where}{key} is {word[:40]!r}; it must be one of {', '.join(EFFORTS)}", fields.where + key)
    return EFFORTS[word]


def thinking_of(fields: Fields) -> dict[str, Any]:
    """The options for thinking, from ``think`` (Ollama), ``reasoning_effort`` (OpenAI), ``chat_template_kwargs`` (vLLM,
    llama.cpp) and ``thinking_budget``.  Raises Refusal.
    """
    asked: dict[str, bool] = {}
    if fields.has("think"):
        value = fields.body["think"]
        if isinstance(value, str) and value in EFFORTS:
            value = EFFORTS[value]
        if not isinstance(value, bool):
            raise bad(f"think is not true, false or one of {', '.join(EFFORTS)}", "think")
        asked["think"] = value
    if (inner := fields.inner("chat_template_kwargs")) is not None:
        for key in inner.body:
            if key != "enable_thinking":
                raise bad(f"chat_template_kwargs.{str(key)[:40]!a} is not supported; enable_thinking is",
                          "chat_template_kwargs")
        if inner.has("enable_thinking"):
            asked["chat_template_kwargs"] = inner.flag("enable_thinking")
    if (effort := effort_of(fields, "reasoning_effort")) is not None:
        asked["reasoning_effort"] = effort
    if len(set(asked.values())) > 1:
        raise bad(f"{' and '.join(asked)} contradict each other", next(iter(asked)))
    options: dict[str, Any] = {"think": next(iter(asked.values()))} if asked else {}
    if (budget := fields.whole("thinking_budget", 0, 1 << 24)) is not None:
        options["thinking_budget"] = budget
    return options


def tools_of(fields: Fields) -> dict[str, Any]:
    """The option ``tools`` of a call, from ``tools``, ``tool_choice`` and ``parallel_tool_calls``.  Raises Refusal."""
    given = checked_json(fields.body.get("tools"), "tools")
    choice = checked_json(fields.body.get("tool_choice"), "tool_choice")
    try:
        from edge.constrain.functions import Functions

        tools = Functions.of(given, choice, fields.flag("parallel_tool_calls", True))
    except UsageError as error:
        raise bad(str(error), str(error).split()[0].rstrip(":")) from None  # they begin with the path of what is wrong
    return {} if tools is None else {"tools": tools}


def partial_of(fields: Fields, options: Mapping[str, Any]) -> dict[str, Any]:
    """The option ``partial`` of a call, refused together with some of its ``options``.  Raises Refusal."""
    if not fields.flag("partial"):
        return {}
    try:
        AnswerOptions.of({**options, "partial": True})  # now: nothing more is done for it while others are answered
    except UsageError as error:
        raise refusal_of(error, fields.sent) from None
    return {"partial": True}


def schema_of(fields: Fields) -> Any:
    """The JSON schema in the key ``schema``.  Raises Refusal."""
    where = f"{fields.where}schema"
    if not isinstance(fields.body.get("schema"), (dict, bool)):
        raise bad(f"{where} is {'not a JSON schema' if fields.has('schema') else 'missing'}", where)
    return checked_json(fields.body["schema"], where)


def with_form(options: Mapping[str, Any], form: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with this form of the answer in place of theirs."""
    return {name: value for name, value in options.items() if name not in FORMS} | dict(form)


def sampling_of(fields: Fields, options: Mapping[str, Any], names: Mapping[str, str] = SAMPLING) -> Sampling:
    """The sampling of ``options``, the default ones, with the changes of the request.  ``names``: key of the request ->
    field of Sampling.

    Raises Refusal (400) that names the key.
    """
    base: Sampling = options.get("sampling") or Sampling()
    changes: dict[str, Any] = {}
    sent: dict[str | None, str] = {}  # field of Sampling -> the key that sets it
    for key, name in names.items():
        value = fields.body.get(key)
        if value is None:
            continue
        if isinstance(value, float) and value.is_integer() and name in ("top_k", "repeat_last_n", "seed"):
            value = int(value)
        changes[name], sent[name] = value, key
    if "temperature" not in changes and any(fields.body.get(key) for key in ("choices", "guided_choice")):
        changes["temperature"] = 0.0  # the likeliest one
    try:
        return replace(base, **changes) if changes else base
    except UsageError as error:
        key = sent[error.argument]
        raise bad(f"{fields.where}{key} is {shown(fields.body[key])}; {error.hint}", fields.where + key) from None
