"""OpenAI's API: ``/v1/chat/completions``, ``/v1/completions``, ``/v1/models``, ``/v1/embeddings``.

The tests have requests of real clients (tests/serve/test_serve.py, tests/clients).  edge/serve/keys.py has the keys.
"""

from __future__ import annotations

import base64
import codecs
import math
import secrets
import struct
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edge.errors import UsageError
from edge.formats.names import n_parameters
from edge.records import shares
from edge.registry.library import is_demo
from edge.serve import keys, protocols
from edge.serve.calls import Call, Refusal, dump
from edge.session.logprobs import Logprob
from edge.session.usage import Usage

if TYPE_CHECKING:
    from edge.serve.protocols import Collected
    from edge.serve.service import Service
    from edge.session.outcome import Outcome
    from edge.session.stream import Piece

MOST_INPUTS = 2048  # texts of a request for embeddings
MOST_PROMPTS = 64  # of one request; each waits for its turn in the queue


def chat(body: Any, defaults: dict[str, Any]) -> Call:
    """A request for a chat completion.  Raises UsageError."""
    asked = keys.read(body, keys.CHAT)
    call = _common(asked, defaults)
    call.messages = keys.messages(asked)
    if asked.get("logprobs"):
        call.logprobs = call.options["logprobs"] = asked.get("top_logprobs", 0)
    elif "top_logprobs" in asked:
        raise UsageError("needs logprobs: true", argument="top_logprobs")
    if asked.get("partial"):
        if call.n > 1:
            raise UsageError("cannot be combined with n: nothing is answered", argument="partial")
        call.options["partial"] = True
    return call


def completion(body: Any, defaults: dict[str, Any]) -> Call:
    """A request for a raw completion.  Raises UsageError."""
    asked = keys.read(body, keys.COMPLETION)
    call = _common(asked, {name: value for name, value in defaults.items() if not name.startswith("think")})
    call.prompts, call.sent["messages"] = _texts(asked.get("prompt"), "prompt", MOST_PROMPTS), "prompt"
    call.echo = asked.get("echo", False)
    if "logprobs" in asked:
        call.logprobs = call.options["logprobs"] = asked["logprobs"]
        call.options["echo"] = call.echo
    return call


def _texts(given: Any, name: str, most: int) -> list[Any]:
    """A text or token ids, or a list of at most ``most`` of these, in the key ``name``.  Raises UsageError."""
    several = isinstance(given, list) and not (given and type(given[0]) is int)
    found = given if several else [given]
    if not 1 <= len(found) <= most:
        raise UsageError(f"has {len(found)} texts", argument=name, hint=f"it must have 1 to {most}")
    for each in found:
        if each in (None, "", []):
            raise UsageError("is missing or empty", argument=name)
        if isinstance(each, str):
            continue
        if not isinstance(each, list) or not all(type(token) is int and 0 <= token < 1 << 31 for token in each):
            raise UsageError("is not a string, a list of token ids, or a list of these", argument=name)
    return found


def embedding(body: Any, hidden: int) -> tuple[list[str], bool]:
    """A request for embeddings: (texts, whether vectors are sent as base64).  Raises UsageError, also for token ids:
    what sends them has the vocabulary of another model.
    """
    asked = keys.read(body, keys.EMBEDDING)
    inputs = asked.get("input")
    if not all(isinstance(each, str | None) for each in (inputs if isinstance(inputs, list) else [inputs])):
        raise UsageError("is not a text or a list of texts", argument="input",
                         hint="instead of token ids send text (in LangChain check_embedding_ctx_length=False)")
    inputs = _texts(inputs, "input", MOST_INPUTS)
    if asked.get("dimensions") not in (None, hidden):
        raise UsageError(f"cannot be chosen; this model has {hidden}", argument="dimensions")
    return inputs, asked.get("encoding_format") == "base64"


def _common(asked: Mapping[str, Any], defaults: dict[str, Any]) -> Call:
    form = keys.form_of(asked.get("response_format"), "response_format", "json_schema")
    options, sent = keys.options(asked, defaults, form, "response_format")
    return Call(
        options=options,
        n=asked.get("n", 1),
        stream=asked.get("stream", False),
        include_usage=asked.get("stream_options", {}).get("include_usage", False),
        sent=sent,
    )


# ---- responses ------------------------------------------------------------------------------------------------------


def usage(usages: Sequence[Usage], n: int) -> dict[str, Any]:
    """The tokens of all choices; the prompt of ``n`` of them is counted once."""
    prompt, completion = sum(each.prompt for each in usages[::n]), sum(each.completion for each in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached for each in usages[::n])},
    }


def timings(outcome: Outcome, ended: str | None) -> dict[str, Any]:
    """Seconds, how much of the prompt was in the cache, and why the answer ended in our own words: OpenAI's
    ``finish_reason`` has fewer.
    """
    if outcome.finish_reason is None:  # it has not begun
        return {}
    seconds = {name: round(value, 6) for name, value in asdict(outcome.timings).items()}
    return {"timings": {**seconds, "cached_tokens": outcome.usage.cached, "ended": ended}}


def finish(reason: str | None) -> str | None:
    """The finish reason in OpenAI's terms: "length" says that the answer was cut off."""
    return {"timeout": "length", "context_full": "length", "cancelled": "length", "loop": "stop"}.get(
        reason or "", reason)


TEXT = "\0"  # stands for the text


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(value) + b"\n\n"


class Writer(protocols.Writer):
    """The responses to one call of both kinds of completions.  ``served``: the name of the model."""

    def __init__(self, call: Call, _body: Any, served: str, ident: str | None = None) -> None:
        self.call = call
        self.chat = call.messages is not None
        self._head: dict[str, Any] = {
            "id": ("chatcmpl-" if self.chat else "cmpl-") + (ident or secrets.token_hex(12)),
            "object": "",
            "created": int(time.time()),
            "model": served,
        }
        self._around: dict[int, tuple[bytes, bytes]] = {}  # bytes that all pieces of a begun choice have in common
        self._offsets: dict[int, Offsets] = {}

    def piece(self, index: int, piece: Piece, logprobs: list[Logprob] | None) -> bytes:
        """The event of a piece; a thought is named as by llama.cpp and DeepSeek."""
        begun, text = self._begun(index), piece.text
        if piece.thought:
            return begun + self._event(index, {"reasoning_content": text})
        if logprobs is not None:
            return begun + self._event(index, self._delta(text), logprobs=self.scores(index, logprobs))
        before, after = self._around[index]
        return begun + before + dump(text) + after

    def end(self, index: int) -> bytes:
        """The events at the end of a choice; calls of functions are parsed when the answer is complete."""
        one, events = self.answers[index], self._begun(index)
        if calls := one.calls:
            events += self._event(index, {"tool_calls": [{"index": i, **each} for i, each in enumerate(calls)]})
        delta: Any = {} if self.chat else ""
        return events + self._event(index, delta, finish(one.finish_reason), **shares(one.outcome.shares))

    def close(self) -> bytes:
        """The end of the stream; before it token counts if the client asked for them: the list of choices is empty,
        which crashes some clients.
        """
        counts = event({**self._begin(True), "choices": [], **self._totals()}) if self.call.include_usage else b""
        return counts + b"data: [DONE]\n\n"

    def failed(self, refusal: Refusal) -> bytes:
        """The event of an error after the stream has begun."""
        return event(error(refusal))

    def _begun(self, index: int) -> bytes:
        """The event at the beginning of a choice, once."""
        if index in self._around:
            return b""
        before, _, after = self._event(index, self._delta(TEXT)).rpartition(dump(TEXT))
        self._around[index] = before, after
        if self.chat:
            return self._event(index, {"role": "assistant", "content": ""})
        if not self.call.echo:
            return b""
        prompt = self.answers[index].outcome.prompt_logprobs
        scores = None if self.call.logprobs is None else self.scores(index, prompt)
        return self._event(index, self._echo(index), logprobs=scores)

    def _delta(self, text: str) -> Any:
        return {"content": text} if self.chat else text

    def _echo(self, index: int) -> str:
        return self.call.echoed[index // self.call.n] if self.call.echo else ""

    def _begin(self, chunk: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if self.chat else "text_completion"
        return {**self._head, "object": kind}

    def _event(self, index: int, delta: Any, reason: str | None = None, logprobs: Any = None, **more: Any) -> bytes:
        body = {"delta": delta} if self.chat else {"text": delta}
        return event({
            **self._begin(True),
            "choices": [{"index": index, **body, "logprobs": logprobs, "finish_reason": reason, **more}],
        })

    def _totals(self) -> dict[str, Any]:
        outcomes = [one.outcome for one in self.answers]
        counted = usage([each.usage for each in outcomes], self.call.n)
        return {"usage": counted, **timings(outcomes[0], self.answers[0].finish_reason)}

    def whole(self, choices: list[Collected]) -> dict[str, Any]:
        """The response without streaming."""
        made = [self.choice(i, found.text, one.finish_reason, found.marks or None, found.thought, one.calls)
                | shares(one.outcome.shares) for i, (found, one) in enumerate(zip(choices, self.answers))]
        return {**self._begin(False), "choices": made, **self._totals()}

    def made(self, choices: list[dict[str, Any]], usages: list[Usage]) -> dict[str, Any]:
        """The response with these choices, as a batch makes it."""
        return {**self._begin(False), "choices": choices, "usage": usage(usages, self.call.n)}

    def choice(
        self, index: int, text: str, reason: str | None, scores: Mapping[str, Any] | None, thought: str = "",
        calls: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """One choice of the response without streaming; ``scores``: also of the prompt, if it is echoed."""
        if not self.chat:
            text = self._echo(index) + text
            return {"index": index, "text": text, "logprobs": scores, "finish_reason": finish(reason)}
        message: dict[str, Any] = {"role": "assistant", "content": None if calls and not text else text}
        if thought:
            message["reasoning_content"] = thought
        if calls:
            message["tool_calls"] = calls
        return {"index": index, "message": message, "logprobs": scores, "finish_reason": finish(reason)}

    def scores(self, index: int, entries: list[Logprob]) -> dict[str, list[Any]]:
        """The log probabilities of the next tokens of a choice."""
        if self.chat:
            return {"content": [protocols.scored(each) for each in entries]}
        offsets = self._offsets.setdefault(index, Offsets(self._echo(index)))
        return {
            "tokens": [_name(each) for each in entries],
            "token_logprobs": [None if math.isnan(each.logprob) else each.logprob for each in entries],
            "top_logprobs": [None if math.isnan(each.logprob) else _names(each) for each in entries],
            "text_offset": [offsets.of(each) for each in entries],
        }


def _name(entry: Logprob) -> str:
    """The text of a token; of one that is a part of a character its bytes, as OpenAI writes them."""
    try:
        return entry.bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in entry.bytes)


def _names(entry: Logprob) -> dict[str, float]:
    """The likeliest tokens and the token itself, as in OpenAI's API.  Of several with one text: the likeliest."""
    return {_name(each): each.logprob for each in reversed((*entry.top, entry))}


class Offsets:
    """Where the tokens of a completion begin in its text, in characters.  ``echo``: the prompt that it begins with."""

    def __init__(self, echo: str) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at = 0
        self._echo = echo

    def of(self, token: Logprob) -> int:
        """The offset of the next token."""
        at = self._at
        text = self._decoder.decode(token.bytes)
        if at == 0 and text.startswith(" ") and self._echo and not self._echo.startswith(" "):
            text = text[1:]  # a blank that a tokenizer puts before a text
        self._at += len(text)
        return at


def embeddings(name: str, vectors: list[array[float]], coded: bool, tokens: int) -> dict[str, Any]:
    """The response with the vectors; ``coded``: as base64 of little-endian float32."""
    def form(vector: array[float]) -> Any:
        if not coded:
            return vector.tolist()
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()

    data = [{"object": "embedding", "index": i, "embedding": form(each)} for i, each in enumerate(vectors)]
    return {"object": "list", "model": name, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def models(service: Service) -> dict[str, Any]:
    """The list of models: the one that is served.  ``meta`` as in llama.cpp; ``demo``: whether it is the demo model."""
    model, n_ctx = service.model, service.n_ctx
    meta = {"n_params": n_parameters(model.config), "demo": is_demo(model.path)}
    one = {"id": service.name, "object": "model", "created": int(service.begun), "owned_by": "bitnet-edge"}
    return {"object": "list", "data": [{**one, "max_model_len": n_ctx, "context_length": n_ctx, "meta": meta}]}


def error(refusal: Refusal) -> dict[str, Any]:
    """The body of an error response."""
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "server_error")
    return {"error": {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}}
