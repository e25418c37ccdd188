"""Ollama's API, in newline-delimited JSON; edge/serve/app.py lists its routes."""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from edge.amounts import amount
from edge.errors import UsageError, check_text
from edge.formats.names import n_parameters
from edge.prompt.messages import check_messages, with_system
from edge.serve import keys, protocols
from edge.serve.calls import Call, Refusal, dump
from edge.serve.protocols.openai import embedding

if TYPE_CHECKING:
    from edge.serve.protocols import Collected
    from edge.serve.service import Service
    from edge.session.logprobs import Logprob
    from edge.session.stream import Piece

#: of Ollama, which some clients demand: Copilot in VS Code 0.6.4, Continue 0.6.5, Codex 0.13.4 (for /v1/responses).
#: Not 0.14: by that number clients know /v1/messages, which is not here.
VERSION = "0.13.5"


def chat(body: Any, defaults: dict[str, Any]) -> Call:
    """``POST /api/chat``; without messages, as clients load and unload a model, a call of nothing.  Raises UsageError.
    """
    asked = keys.read(body, keys.OLLAMA_CHAT)
    call = _common(asked, defaults)
    if asked.get("messages") != []:
        call.messages = keys.messages(asked)
    return call


def generate(body: Any, defaults: dict[str, Any]) -> Call:
    """``POST /api/generate``: a prompt, put into the chat template unless ``raw``; or none, as in :func:`chat`.  Raises
    UsageError.
    """
    asked = keys.read(body, keys.OLLAMA_GENERATE)
    prompt = asked.get("prompt")
    if asked.get("raw"):
        call = _common(asked, {name: value for name, value in defaults.items() if not name.startswith("think")})
        call.prompts, call.sent["prompts"] = [prompt] if prompt else [], "raw"
    else:
        call = _common(asked, defaults)
        if prompt:
            call.messages = with_system(check_messages([{"role": "user", "content": prompt}]), asked.get("system"))
            call.sent["system"] = "system"
    call.sent["messages"] = "prompt"
    return call


def _common(asked: Mapping[str, Any], defaults: dict[str, Any]) -> Call:
    form = asked.get("format", "")
    if form not in ("", "json") and not isinstance(form, dict):
        raise UsageError("is not json or a JSON schema", argument="format")
    own = {"schema": {"type": "object"} if form == "json" else form} if form != "" else {}
    given = {**asked, **asked.get("options", {})}  # some clients send options beside them
    options, sent = keys.options(given, defaults, own, "format")
    if asked.get("logprobs"):
        options["logprobs"] = asked.get("top_logprobs", 0)
    elif asked.get("top_logprobs"):
        raise UsageError("needs logprobs: true", argument="top_logprobs")
    return Call(options=options, logprobs=options.get("logprobs"), stream=asked.get("stream", True), include_usage=True,
                sent=sent)


# ---- responses ------------------------------------------------------------------------------------------------------


def now() -> str:
    """The current time in Ollama's format."""
    return written(time.time())


def written(seconds: float) -> str:
    """A time, in seconds since 1970, in Ollama's format."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Writer(protocols.Writer):
    """The lines of one answer, to a ``chat`` or to a prompt."""

    KIND, COMMENT = "application/x-ndjson", b""

    def __init__(self, chat: bool, _call: Call, _body: Any, served: str) -> None:
        self._chat, self._model = chat, served
        self._begun = time.perf_counter_ns()

    def piece(self, _index: int, piece: Piece, logprobs: list[Logprob] | None) -> bytes:
        """The line of a piece."""
        if piece.thought:
            return self._line("", piece.text)
        return self._line(piece.text, **self.scores(0, logprobs or []))

    def end(self, _index: int) -> bytes:
        """The last lines."""
        calls = self._calls()
        return (self._line("", calls=calls) if calls else b"") + self._line("", **self._end())

    def failed(self, refusal: Refusal) -> bytes:
        """The line of an error after the stream has begun."""
        return dump({"error": str(refusal)}) + b"\n"

    def whole(self, choices: list[Collected]) -> dict[str, Any]:
        """The response without streaming."""
        (found,) = choices
        return self._said(found.text, found.thought, self._calls(), **found.marks, **self._end())

    def nothing(self) -> dict[str, Any]:
        """The response to a request that loads the model."""
        return self._said("", done=True, done_reason="load")

    def _line(self, *said: Any, **more: Any) -> bytes:
        return dump(self._said(*said, **more)) + b"\n"

    def _said(self, text: str, thought: str = "", calls: list[dict[str, Any]] | None = None, logprobs: Any = None,
              **more: Any) -> dict[str, Any]:
        """A piece, or with ``done`` the end."""
        head: dict[str, Any] = {"model": self._model, "created_at": now()}
        if logprobs:
            more["logprobs"] = logprobs
        thoughts = {"thinking": thought} if thought else {}
        if not self._chat:
            return {**head, "response": text, **thoughts, "done": False, **more}
        made = {"tool_calls": calls} if calls else {}
        return {**head, "message": {"role": "assistant", "content": text, **thoughts, **made}, "done": False, **more}

    def _calls(self) -> list[dict[str, Any]]:
        return [{"id": each["id"], "function": {
            "index": i, "name": each["function"]["name"],
            "arguments": json.loads(each["function"]["arguments"], parse_float=_finite)}}
            for i, each in enumerate(self.answers[0].calls)]

    def _end(self) -> dict[str, Any]:
        """The additional keys of the last line; durations in nanoseconds."""
        outcome = self.answers[0].outcome
        usage, timings = outcome.usage, outcome.timings
        return {
            "done": True,
            "done_reason": "stop" if outcome.finish_reason in ("stop", "loop") else "length",
            "total_duration": time.perf_counter_ns() - self._begun,
            "load_duration": 0,  # the model is in memory before a request is read
            "prompt_eval_count": usage.prompt,
            "prompt_eval_duration": int(timings.prompt_seconds * 1e9),
            "eval_count": usage.completion,
            "eval_duration": int(timings.decode_seconds * 1e9),
        }


def _finite(number: str) -> float:
    """The nearest double: 1e400 would be written as Infinity, which is not JSON."""
    return max(-sys.float_info.max, min(float(number), sys.float_info.max))


def tags(service: Service) -> dict[str, Any]:
    """``GET /api/tags``: the one model that is served."""
    return {"models": [{**_entry(service), "modified_at": written(service.modified)}]}


def ps(service: Service) -> dict[str, Any]:
    """``GET /api/ps``: the model, which stays in memory."""
    return {"models": [{**_entry(service), "size_vram": 0, "expires_at": "9999-12-31T23:59:59Z",
                        "context_length": service.n_ctx}]}


def _entry(service: Service) -> dict[str, Any]:
    name, digest = service.name, service.model.fingerprint
    return {"name": name, "model": name, "size": service.nbytes, "digest": digest, "details": _details(service)}


def _details(service: Service) -> dict[str, Any]:
    config = service.model.config
    return {"parent_model": "", "format": "gguf", "family": config.arch, "families": [config.arch],
            "parameter_size": amount(n_parameters(config)).replace(" ", ""),
            "quantization_level": service.model.quantization}


def embed(body: Any, hidden: int) -> tuple[list[str], bool]:
    """``POST /api/embed``: (texts, whether one that is too long is cut).  Raises UsageError."""
    asked = keys.read(body, keys.OLLAMA_EMBED)
    inputs, _ = embedding({key: asked[key] for key in ("input", "dimensions") if key in asked}, hidden)
    return inputs, asked.get("truncate", False)


def embeddings_of_old(body: Any) -> list[str]:
    """``POST /api/embeddings``, which has one text.  Raises UsageError."""
    return [check_text(keys.read(body, keys.OLLAMA_EMBEDDINGS).get("prompt"), "prompt")]


def embeddings(name: str, vectors: list[array[float]], tokens: int, nanoseconds: int) -> dict[str, Any]:
    """The response to ``POST /api/embed``."""
    return {"model": name, "embeddings": [each.tolist() for each in vectors], "total_duration": nanoseconds,
            "load_duration": 0, "prompt_eval_count": tokens}


def version(_service: Service) -> dict[str, Any]:
    """``GET /api/version``."""
    from edge import __version__

    return {"version": VERSION, "bitnet-edge": __version__}


def show(service: Service) -> dict[str, Any]:
    """``POST /api/show``."""
    name, n_ctx, config, engine = service.name, service.n_ctx, service.model.config, service.engine
    answers = [] if engine is None else (
        ["completion"] + ["tools"] * (not service.settings.locked) + ["thinking"] * engine.model.thinks)
    return {
        "modelfile": "",
        "parameters": f"num_ctx {n_ctx}",
        "template": "" if engine is None else engine.template.name,
        "details": _details(service),
        "modified_at": written(service.modified),
        "model_info": {
            "general.architecture": config.arch,
            "general.name": name,
            "general.basename": name,  # the name that Copilot shows
            f"{config.arch}.context_length": n_ctx,
            f"{config.arch}.embedding_length": config.hidden,
            f"{config.arch}.block_count": config.n_layer,
        },
        "capabilities": answers or ["embedding"],
    }
