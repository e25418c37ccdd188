"""OpenAI's API: ``/v1/chat/completions``, ``/v1/completions``, ``/v1/models``, ``/v1/embeddings``.

The tests have requests of real clients (tests/test_serve.py, tests/clients).  Unknown keys are ignored, as by OpenAI's
own server; keys that would change the answer and are not supported are refused by name.
"""

from __future__ import annotations

import base64
import struct
import time
import uuid
from array import array
from typing import Any

from edge.errors import UsageError
from edge.serve import calls
from edge.serve.calls import Call, Fields, Refusal, bad, dump
from edge.session.logprobs import Logprob
from edge.session.sampling import Sampling

#: key of a request -> field of Sampling; the last ones are extensions of llama.cpp's server
SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "top_k": "top_k",
    "min_p": "min_p",
    "repeat_penalty": "repeat_penalty",
    "repeat_last_n": "repeat_last_n",
}

FORMS = ("schema", "grammar", "regex", "choices")  # of an answer
MOST_TOKENS = 1 << 24
MOST_INPUTS = 2048  # texts of a request for embeddings


def chat(body: Any, defaults: dict[str, Any]) -> Call:
    """A request for a chat completion.  Raises Refusal."""
    fields = Fields(body)
    call = _common(fields, defaults)
    call.messages = calls.messages_of(body.get("messages"))
    if fields.flag("logprobs"):
        call.logprobs = fields.whole("top_logprobs", 0, calls.MOST_LOGPROBS, 0)
    elif fields.has("top_logprobs"):
        raise bad("top_logprobs needs logprobs: true", "top_logprobs")
    if call.messages[-1]["role"] not in ("user", "tool"):
        raise bad("the last message must have the role user or tool", "messages")
    _format(fields, call)
    if tools := tools_of(fields):
        call.options = {name: value for name, value in call.options.items() if name not in FORMS} | tools
    return _telling(call)


def completion(body: Any, defaults: dict[str, Any]) -> Call:
    """A request for a raw completion.  Raises Refusal."""
    fields = Fields(body)
    call = _common(fields, defaults)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0] if isinstance(prompt[0], (str, list)) else prompt
    if isinstance(prompt, list):
        if not prompt or not all(type(token) is int and 0 <= token < 1 << 31 for token in prompt):
            raise bad("prompt is not a string, a list of token ids, or a list with one of these", "prompt")
        call.prompt = prompt
    elif isinstance(prompt, str) and prompt:
        call.prompt = fields.text("prompt")
    else:
        raise bad("prompt is missing or empty", "prompt")
    call.logprobs = fields.whole("logprobs", 0, calls.MOST_LOGPROBS)
    call.echo = fields.flag("echo")
    if fields.text("suffix"):
        raise bad("suffix is not supported: the models have no fill-in-the-middle tokens", "suffix")
    _format(fields, call)
    return _telling(call)


def _telling(call: Call) -> Call:
    if call.logprobs is not None:
        call.options["logprobs"] = call.logprobs
    return call


def embedding(body: Any, hidden: int) -> tuple[list[str | list[int]], bool]:
    """A request for embeddings: (texts or lists of token ids, whether vectors are sent as base64).  Raises Refusal."""
    fields = Fields(body)
    given = body.get("input")
    several = isinstance(given, list) and not (given and type(given[0]) is int)
    inputs = given if several else [given]
    if not 1 <= len(inputs) <= MOST_INPUTS:
        raise bad(f"input has {len(inputs)} texts; it must have 1 to {MOST_INPUTS}", "input")
    for each in inputs:
        if isinstance(each, str):
            calls.checked_text(each, "input")
        elif not isinstance(each, list) or not each or not all(type(id_) is int and 0 <= id_ < 1 << 31 for id_ in each):
            raise bad("input is not a string, a list of token ids, or a list of these", "input")
    form = fields.text("encoding_format", "float")
    if form not in ("float", "base64"):
        raise bad("encoding_format is not float or base64", "encoding_format")
    if fields.body.get("dimensions") not in (None, hidden):
        raise bad(f"dimensions cannot be chosen; this model has {hidden}", "dimensions")
    return inputs, form == "base64"


def tools_of(fields: Fields) -> dict[str, Any]:
    """The options of a call with tools.  Raises Refusal."""
    given = fields.body.get("tools")
    try:
        from edge.constrain.tools import Tools

        tools = Tools.of(given, fields.body.get("tool_choice"), fields.flag("parallel_tool_calls", True))
    except UsageError as error:
        raise bad(str(error), "tools" if given else "tool_choice") from None
    return {} if tools is None else {"tools": tools}


def _common(fields: Fields, defaults: dict[str, Any]) -> Call:
    options = dict(defaults)
    options["sampling"] = calls.sampling_of(fields, defaults.get("sampling") or Sampling(), SAMPLING)
    most = fields.whole("max_completion_tokens", 0, MOST_TOKENS, fields.whole("max_tokens", -1, MOST_TOKENS))
    if most is not None and most >= 0:
        options["max_tokens"] = most
    stop = fields.stops()
    if stop:
        options["stop"] = stop
    if fields.flag("ignore_eos"):
        options["ignore_eos"] = True
    if fields.body.get("logit_bias"):
        raise bad("logit_bias is not supported", "logit_bias")
    stream = fields.flag("stream")
    include = fields.inner("stream_options")
    key = fields.text("user") or fields.text("session_id") or fields.text("prompt_cache_key")
    return Call(
        options=options,
        n=fields.whole("n", 1, calls.MOST_CHOICES, 1) or 1,
        stream=stream,
        include_usage=include is not None and include.flag("include_usage"),
        key=key,
        model=fields.text("model") or "",
    )


def _format(fields: Fields, call: Call) -> None:
    """Set the form of the answer from ``response_format`` and the extensions ``grammar``, ``regex`` and ``choices``; it
    replaces the default form.
    """
    own: dict[str, Any] = {}
    format_ = fields.inner("response_format")
    kind = format_.text("type", "text") if format_ is not None else "text"
    if format_ is not None and kind == "json_schema":
        outer = format_.inner("json_schema")
        if outer is None or not isinstance(outer.body.get("schema"), (dict, bool)):
            raise bad("response_format.json_schema.schema is missing", "response_format")
        own["schema"] = outer.body["schema"]
    elif kind == "json_object":
        own["schema"] = {"type": "object"}
    elif kind != "text":
        raise bad(f"response_format.type is {str(kind)[:40]!r}; it must be text, json_object or json_schema",
                  "response_format")
    for name in ("grammar", "regex"):
        if (text := fields.text(name)) is not None:
            own[name] = text
    choices = fields.body.get("choices") or fields.body.get("guided_choice")
    if choices is not None:
        if not isinstance(choices, list) or not all(isinstance(each, str) for each in choices):
            raise bad("choices is not a list of strings", "choices")
        own["choices"] = choices
    if len(own) > 1:
        first, second, *_ = own
        raise bad(f"{first} and {second} cannot be combined", second)
    if own:
        call.options = {name: value for name, value in call.options.items() if name not in FORMS} | own


# ---- responses ------------------------------------------------------------------------------------------------------


def usage(prompt: int, cached: int, completion: int) -> dict[str, Any]:
    """Token counts of a call, or of all choices of one."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def finish(reason: str | None) -> str | None:
    """The finish reason in OpenAI's terms."""
    return {"timeout": "length", "context_full": "length", "cancelled": "stop", "loop": "stop"}.get(
        reason or "", reason)


MARK = "\0"  # stands for the text


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(value) + b"\n\n"


class Writer:
    """The response to one call, as one object or as events.  ``served``: the name of the model."""

    def __init__(self, call: Call, served: str, ident: str | None = None) -> None:
        self.call = call
        self.chat = call.messages is not None
        self._head: dict[str, Any] = {
            "id": ("chatcmpl-" if self.chat else "cmpl-") + (ident or uuid.uuid4().hex[:24]),
            "object": "",
            "created": int(time.time()),
            "model": served,
        }
        self._around: dict[int, tuple[bytes, bytes]] = {}

    def first(self, index: int) -> list[bytes]:
        """The events at the beginning of a choice."""
        return [self._event(index, {"role": "assistant", "content": ""})] if self.chat else []

    def piece(self, index: int, text: str, logprobs: list[Logprob] | None = None) -> bytes:
        """The event of a piece of text."""
        if logprobs is not None:
            return self._event(index, {"content": text} if self.chat else text, logprobs=self._logprobs(logprobs))
        around = self._around.get(index)  # what is alike for all of them, encoded once
        if around is None:
            whole = self._event(index, {"content": MARK} if self.chat else MARK)
            before, _, behind = whole.rpartition(dump(MARK))
            around = self._around[index] = before, behind
        return around[0] + dump(text) + around[1]

    def thought(self, index: int, text: str) -> bytes:
        """The event of a piece of thinking, named as by llama.cpp and DeepSeek."""
        return self._event(index, {"reasoning_content": text})

    def called(self, index: int, calls: list[dict[str, Any]]) -> bytes:
        """The event of all tool calls: they are parsed when the answer is complete."""
        return self._event(index, {"tool_calls": [{"index": i, **each} for i, each in enumerate(calls)]})

    def last(self, index: int, reason: str | None) -> bytes:
        """The event at the end of a choice."""
        return self._event(index, {} if self.chat else "", reason=finish(reason))

    def totals(self, counts: dict[str, Any], timings: dict[str, Any] | None = None) -> bytes:
        """The token counts, if the client asked for them: the list of choices is empty, which crashes some clients."""
        return event({**self._begin(True), "choices": [], "usage": counts, **({"timings": timings} if timings else {})})

    def _begin(self, chunk: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if self.chat else "text_completion"
        return {**self._head, "object": kind}

    def _event(self, index: int, delta: Any, reason: str | None = None, logprobs: Any = None) -> bytes:
        body = {"delta": delta} if self.chat else {"text": delta}
        return event({
            **self._begin(True),
            "choices": [{"index": index, **body, "logprobs": logprobs, "finish_reason": reason}],
        })

    def whole(
        self, choices: list[dict[str, Any]], counts: dict[str, Any], timings: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The response without streaming."""
        return {**self._begin(False), "choices": choices, "usage": counts, **({"timings": timings} if timings else {})}

    def choice(
        self, index: int, text: str, reason: str | None, logprobs: list[Logprob], thought: str = "",
        calls: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """One choice of the response without streaming."""
        told = self._logprobs(logprobs) if self.call.logprobs is not None else None
        if not self.chat:
            before = self.call.prompt if self.call.echo and isinstance(self.call.prompt, str) else ""
            return {"index": index, "text": before + text, "logprobs": told, "finish_reason": finish(reason)}
        message: dict[str, Any] = {"role": "assistant", "content": None if calls and not text else text}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        return {"index": index, "message": message, "logprobs": told, "finish_reason": finish(reason)}

    def _logprobs(self, entries: list[Logprob]) -> dict[str, Any]:
        if self.chat:
            return {"content": [
                {**_token(each), "top_logprobs": [_token(other) for other in each.top]} for each in entries
            ]}
        return {
            "tokens": [each.text for each in entries],
            "token_logprobs": [each.logprob for each in entries],
            "top_logprobs": [{other.text: other.logprob for other in each.top} for each in entries],
            "text_offset": [],
        }


def _token(entry: Any) -> dict[str, Any]:
    return {"token": entry.text, "logprob": entry.logprob, "bytes": list(entry.bytes)}


def embeddings(name: str, vectors: list[array[float]], coded: bool, tokens: int) -> dict[str, Any]:
    """The response with the vectors; ``coded``: as base64 of little-endian float32."""
    def form(vector: array[float]) -> Any:
        if not coded:
            return vector.tolist()
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()

    data = [{"object": "embedding", "index": i, "embedding": form(each)} for i, each in enumerate(vectors)]
    return {"object": "list", "model": name, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def models(name: str, created: int, n_ctx: int, parameters: int, demo: bool) -> dict[str, Any]:
    """The list of models, which has one: the model that is served.  ``meta``: as llama.cpp; ``demo``: whether it is the
    demo model of the program.
    """
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": created, "owned_by": "bitnet-edge",
                  "max_model_len": n_ctx, "context_length": n_ctx, "meta": {"n_params": parameters, "demo": demo}}],
    }  # fmt: skip


def error(refusal: Refusal) -> dict[str, Any]:
    """The body of an error response."""
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "server_error")
    return {"error": {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}}
