"""Ollama's API: ``/api/chat``, ``/api/generate``, ``/api/embed``, ``/api/tags``, ``/api/ps``, ``/api/show``,
``/api/version``; newline-delimited JSON.
"""

from __future__ import annotations

import time
from array import array
from datetime import datetime, timezone
from typing import Any

from edge.amounts import amount
from edge.cache.table import Weights
from edge.serve import keys
from edge.serve.calls import (
    MOST_LOGPROBS,
    Call,
    Fields,
    bad,
    checked_json,
    checked_text,
    messages_of,
    sampling_of,
    thinking_of,
    tools_of,
    with_form,
)
from edge.serve.protocols.openai import embedding, scored


def chat(body: Any, defaults: dict[str, Any]) -> Call:
    """``POST /api/chat``.  Raises Refusal."""
    fields = Fields(body)
    call = _common(fields, defaults)
    keys.OLLAMA_CHAT.check(body)
    call.messages = messages_of(body.get("messages"))
    call.options |= tools_of(Fields({"tools": body.get("tools")})) | thinking_of(fields)
    return call


def generate(body: Any, defaults: dict[str, Any]) -> Call:
    """``POST /api/generate``: a prompt, put into the chat template unless ``raw``.  Raises Refusal."""
    fields = Fields(body)
    call = _common(fields, defaults)
    keys.OLLAMA_GENERATE.check(body)
    prompt = fields.text("prompt", "") or ""
    if fields.flag("raw"):
        if not prompt:
            raise bad("prompt is missing or empty", "prompt")
        call.prompts = [prompt]
        for name in ("think", "thinking_budget"):
            if fields.has(name):
                raise bad(f"{name} is for conversations: a raw prompt has no template", name)
            call.options.pop(name, None)
    else:
        call.options |= thinking_of(fields)
        system = fields.text("system")
        call.messages = [{"role": "system", "content": system}] if system else []
        call.messages.append({"role": "user", "content": prompt})
    return call


def _common(fields: Fields, defaults: dict[str, Any]) -> Call:
    options = dict(defaults)
    given = fields.inner("options") or Fields({})
    keys.OLLAMA_OPTIONS.check(given.body, "options.")
    options["sampling"] = sampling_of(given, defaults)
    most = given.whole("num_predict", -2, 1 << 24)
    if most is not None and most >= 0:
        options["max_tokens"] = most
    if stop := given.stops():
        options["stop"] = stop
    given.whole("num_ctx", 1, 1 << 31)  # a request can use the server's context, not more: /api/show tells it
    format_ = fields.body.get("format")
    if format_ == "json":
        options = with_form(options, {"schema": {"type": "object"}})
    elif isinstance(format_, dict):
        options = with_form(options, {"schema": checked_json(format_, "format")})
    elif format_ not in (None, ""):
        raise bad("format is not json or a JSON schema", "format")
    logprobs = None
    if fields.flag("logprobs"):
        logprobs = options["logprobs"] = fields.whole("top_logprobs", 0, MOST_LOGPROBS, 0)
    elif fields.whole("top_logprobs", 0, MOST_LOGPROBS):
        raise bad("top_logprobs needs logprobs: true", "top_logprobs")
    return Call(options=options, logprobs=logprobs, stream=fields.flag("stream", True), include_usage=True,
                model=checked_text(fields.body.get("model") or "", "model"))


# ---- responses ------------------------------------------------------------------------------------------------------


def now() -> str:
    """The current time in Ollama's format."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Writer:
    """The lines of one answer."""

    def __init__(self, call: Call, served: str) -> None:
        self._model = call.model or served
        self._begun = time.perf_counter_ns()

    def line(self, text: str, chat: bool, thought: str = "", calls: list[dict[str, Any]] | None = None,
             logprobs: list[Any] | None = None, **more: Any) -> dict[str, Any]:
        """One line: a piece, or with ``done`` the end."""
        head: dict[str, Any] = {"model": self._model, "created_at": now()}
        if logprobs:
            more["logprobs"] = [scored(each) for each in logprobs]
        if chat:
            message: dict[str, Any] = {"role": "assistant", "content": text}
            if thought:
                message["thinking"] = thought
            if calls:
                message["tool_calls"] = calls
            return {**head, "message": message, "done": False, **more}
        return {**head, "response": text, **({"thinking": thought} if thought else {}), "done": False, **more}

    def end(self, reason: str | None, prompt: int, completion: int, timings: Any, load_ns: int) -> dict[str, Any]:
        """The additional keys of the last line; durations in nanoseconds."""
        return {
            "done": True,
            "done_reason": "stop" if reason in ("stop", "loop", "cancelled") else "length",
            "total_duration": time.perf_counter_ns() - self._begun,
            "load_duration": load_ns,
            "prompt_eval_count": prompt,
            "prompt_eval_duration": int(timings.prompt_seconds * 1e9),
            "eval_count": completion,
            "eval_duration": int(timings.decode_seconds * 1e9),
        }


def details(config: Any, quantization: str) -> dict[str, Any]:
    """The description of a model in lists."""
    size = amount(Weights.of(config).parameters).replace(" ", "")
    return {"parent_model": "", "format": "gguf", "family": config.arch, "families": [config.arch],
            "parameter_size": size, "quantization_level": quantization}


def tags(name: str, nbytes: int, digest: str, config: Any, quantization: str) -> dict[str, Any]:
    """``GET /api/tags``: the one model that is served."""
    return {"models": [{"name": name, "model": name, "modified_at": now(), "size": nbytes, "digest": digest,
                        "details": details(config, quantization)}]}


def ps(name: str, nbytes: int, digest: str, config: Any, quantization: str, n_ctx: int) -> dict[str, Any]:
    """``GET /api/ps``: the model, which stays in memory."""
    return {"models": [{"name": name, "model": name, "size": nbytes, "digest": digest, "size_vram": 0,
                        "details": details(config, quantization), "expires_at": "9999-12-31T23:59:59Z",
                        "context_length": n_ctx}]}  # fmt: skip


def embed(body: Any, hidden: int) -> tuple[list[str | list[int]], bool]:
    """``POST /api/embed``: (texts, whether one that is too long is cut).  Raises Refusal."""
    fields = Fields(body)
    keys.OLLAMA_EMBED.check(body)
    inputs, _ = embedding({"input": body.get("input"), "dimensions": body.get("dimensions")}, hidden)
    if not all(isinstance(each, str) for each in inputs):
        raise bad("input is not a text or a list of texts", "input")
    return inputs, fields.flag("truncate")


def embeddings_of_old(body: Any) -> list[str | list[int]]:
    """``POST /api/embeddings``, which has one text.  Raises Refusal."""
    keys.OLLAMA_EMBEDDINGS.check(Fields(body).body)
    return [checked_text(body.get("prompt"), "prompt")]


def embeddings(name: str, vectors: list[array[float]], tokens: int, nanoseconds: int) -> dict[str, Any]:
    """The response to ``POST /api/embed``."""
    return {"model": name, "embeddings": [each.tolist() for each in vectors], "total_duration": nanoseconds,
            "load_duration": 0, "prompt_eval_count": tokens}  # fmt: skip


def show(
    name: str, config: Any, quantization: str, template: str, n_ctx: int, tools: bool, thinking: bool
) -> dict[str, Any]:
    """``POST /api/show``.  ``n_ctx``: of the server, the most that a request can use."""
    return {
        "modelfile": "",
        "parameters": f"num_ctx {n_ctx}",
        "template": template,
        "details": details(config, quantization),
        "model_info": {
            "general.architecture": config.arch,
            "general.name": name,
            f"{config.arch}.context_length": n_ctx,
            f"{config.arch}.embedding_length": config.hidden,
            f"{config.arch}.block_count": config.n_layer,
        },
        "capabilities": ["completion", *(["tools"] if tools else []), *(["thinking"] if thinking else [])],
    }
