"""Call: the request of a client, in either API, validated.  Refusal: the reason why a request is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edge.errors import Busy, ContextFull, EdgeError, MemoryRefused, UsageError
from edge.sampling import FIELDS, Sampling
from edge.session.request import FORMS, ROLES

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.request import Prepared

MOST_MESSAGES = 4096
MOST_CHOICES = 8  # n
MOST_STOPS = 16
MOST_LOGPROBS = 20
#: key of a request -> field of Sampling
SAMPLING = {name: name for name in FIELDS}


class Refusal(Exception):
    """A request that is answered with an error.  ``status``: of HTTP; ``code``: a fixed word for programs."""

    def __init__(
        self, status: int, message: str, code: str | None = None, param: str | None = None,
        retry_after: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after


def bad(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """The refusal of an invalid request (400); repeating the request would not help."""
    return Refusal(400, message, code, param)


def refusal_of(error: BaseException) -> Refusal:
    """The refusal for an exception that was raised while answering."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ContextFull):
        return bad(str(error), "messages", "context_length_exceeded")
    if isinstance(error, UsageError):
        return bad(str(error), getattr(error, "argument", None))
    if isinstance(error, Busy):
        return Refusal(429, str(error), "busy", retry_after=error.retry_after or 2)
    if isinstance(error, MemoryRefused):
        return Refusal(503, str(error), "memory", retry_after=5)
    if isinstance(error, EdgeError):
        return Refusal(500, str(error), "engine")
    return Refusal(500, f"internal error: {type(error).__name__}", "internal")


def dump(value: Any) -> bytes:
    """JSON as bytes in UTF-8.  Texts of clients must have been checked (:func:`checked_text`): half a surrogate pair
    cannot be encoded.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass
class Call:
    """One request for an answer.

    ``messages`` for a chat, else ``prompts``, each a text or token ids, each of which gets ``n`` answers.  ``echo``:
    each answer is preceded by its prompt, the text of which is in ``echoed``.  ``options``: keyword arguments of
    ``Session.chat`` and ``complete``.  ``key``: the conversation, if the client names one.  ``deadline``
    (time.monotonic): when the answer ends at the latest, including waiting.  ``progress``: whether to report how far
    the prompt has been read.
    """

    messages: list[dict[str, Any]] | None = None
    prompts: list[str | list[int]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    key: str | None = None
    model: str = ""
    logprobs: int | None = None
    echo: bool = False
    echoed: list[str] = field(default_factory=list)
    deadline: float | None = None
    progress: bool = False

    @property
    def n_choices(self) -> int:
        """The number of answers: n for each prompt, those to the first prompt first."""
        return self.n * max(1, len(self.prompts))

    def prepare(self, engine: Engine) -> list[Prepared]:
        """What a session answers for each of its choices; of the n for one prompt, each has its own seed.

        Raises EdgeError for a call that cannot be answered.
        """
        if self.echo:
            decode = engine.tokenizer.decode
            self.echoed = [each if isinstance(each, str) else decode(each) for each in self.prompts]
        if self.messages is not None:
            found = [engine.prepare(self.messages, **self.options)]
        else:
            found = [engine.prepare(prompt=each, **self.options) for each in self.prompts]

        def nth(one: Prepared, n: int) -> Prepared:  # its form begins anew
            return one.changed(sampling=one.request.sampling.reseeded(n), constraint=None) if n else one

        return [nth(one, n) for one in found for n in range(self.n)]


class Fields:
    """Reads the keys of a JSON object one by one; a key that is missing or null has the default value.

    Every method raises Refusal (400) for a value of the wrong type or out of range.  ``where``: path of the object in
    the request, for messages.
    """

    def __init__(self, body: Any, where: str = "") -> None:
        if not isinstance(body, dict):
            raise bad(f"{where or 'the request'} is not a JSON object")
        self.body: Mapping[str, Any] = body
        self._where = f"{where}." if where else ""

    def has(self, name: str) -> bool:
        """Whether the key is there, and not null."""
        return self.body.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str | None:
        """A string of valid Unicode."""
        value = self.body.get(name)
        if value is None:
            return default
        return checked_text(value, self._where + name)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise bad(f"{self._where}{name} is not true or false", self._where + name)
        return value

    def whole(self, name: str, least: int, most: int, default: int | None = None) -> int | None:
        """A whole number from ``least`` to ``most``; 2.0 is one, too."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise bad(f"{self._where}{name} is not a whole number from {least} to {most}", self._where + name)
        return value

    def number(self, name: str, least: float, most: float, default: float | None = None) -> float | None:
        """A number from ``least`` to ``most``."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise bad(f"{self._where}{name} is not a number from {least:g} to {most:g}", self._where + name)
        return float(value) if math.isfinite(value) else None

    def inner(self, name: str) -> Fields | None:
        """A nested object, or None."""
        value = self.body.get(name)
        return None if value is None else Fields(value, self._where + name)

    def stops(self, name: str = "stop") -> tuple[str, ...]:
        """Stop strings: one, or a list of at most MOST_STOPS; empty ones are left out."""
        value = self.body.get(name)
        if value is None:
            return ()
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list) or len(stops) > MOST_STOPS:
            raise bad(f"{self._where}{name} is not a string or a list of at most {MOST_STOPS} strings",
                      self._where + name)
        return tuple(text for stop in stops if (text := checked_text(stop, self._where + name)))


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
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "input_text", "refusal"):
            raise bad(f"{where} contains a part of type {str(kind)[:40]!r}; only text is supported", where)
        texts.append(checked_text(part.get("text", part.get("refusal")), where))
    return "".join(texts)


def messages_of(value: Any, name: str = "messages") -> list[dict[str, Any]]:
    """The messages of a chat request, with valid roles and contents as texts.  ``name``: their key in the request.

    Raises Refusal.
    """
    if not isinstance(value, list) or not value:
        raise bad(f"{name} is not a list with at least one message", name)
    if len(value) > MOST_MESSAGES:
        raise bad(f"{len(value)} messages; the limit is {MOST_MESSAGES}", name)
    found: list[dict[str, Any]] = []
    for i, each in enumerate(value):
        where = f"{name}[{i}]"
        if not isinstance(each, dict):
            raise bad(f"{where} is not a JSON object", where)
        role = each.get("role")
        role = {"developer": "system", "function": "tool"}.get(role, role) if isinstance(role, str) else role
        if role not in ROLES:
            raise bad(f"{where}.role is {str(role)[:40]!r}; it must be {', '.join(ROLES[:-1])} or {ROLES[-1]}", where)
        message: dict[str, Any] = {"role": role, "content": content_text(each.get("content"), f"{where}.content")}
        for name in ("tool_calls", "tool_call_id", "name"):
            if each.get(name) is not None:
                message[name] = checked_json(each[name], f"{where}.{name}")
        if role == "system" and found and found[-1]["role"] == "system":  # for templates that know one at a time
            found[-1]["content"] += "\n\n" + message["content"]
        else:
            found.append(message)
    return found


def with_system(messages: list[dict[str, Any]], system: str | None) -> list[dict[str, Any]]:
    """The messages, with the system prompt of the service if they have none."""
    if not system or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


#: values of reasoning_effort -> whether the model thinks before it answers; it has no degrees
EFFORTS = {"none": False, "minimal": True, "low": True, "medium": True, "high": True, "xhigh": True, "max": True}


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
    if (word := fields.text("reasoning_effort")) is not None:
        if word not in EFFORTS:
            raise bad(f"reasoning_effort is {word[:40]!r}; it must be one of {', '.join(EFFORTS)}", "reasoning_effort")
        asked["reasoning_effort"] = EFFORTS[word]
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
        raise bad(str(error), "tools" if given else "tool_choice") from None
    return {} if tools is None else {"tools": tools}


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
    for key, name in names.items():
        value = fields.body.get(key)
        if value is None:
            continue
        if isinstance(value, float) and value.is_integer() and name in ("top_k", "repeat_last_n", "seed"):
            value = int(value)
        changes[name] = value
    try:
        return replace(base, **changes) if changes else base
    except EdgeError as error:
        wrong = getattr(error, "argument", None)
        sent = next((key for key, field_ in names.items() if field_ == wrong), None)
        raise bad(str(error) if sent is None else str(error).replace(str(wrong), sent, 1), sent) from None
