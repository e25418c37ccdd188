"""Ollama's API: ``/api/chat``, ``/api/generate``, ``/api/tags``, ``/api/show``, ``/api/version``; newline-delimited
JSON.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

from edge.amounts import amount
from edge.kv.table import Weights
from edge.serve.calls import Call, Fields, bad, checked_text, messages_of, sampling_of
from edge.serve.openai import tools_of
from edge.session.sampling import Sampling

SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "repeat_penalty": "repeat_penalty",
    "repeat_last_n": "repeat_last_n",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}


def chat(body: Any, defaults: dict[str, Any], n_ctx: int) -> Call:
    """``POST /api/chat``.  Raises Refusal."""
    fields = Fields(body)
    call = _common(fields, defaults, n_ctx)
    call.messages = messages_of(body.get("messages"))
    call.options |= tools_of(Fields({"tools": body.get("tools")}))
    return call


def generate(body: Any, defaults: dict[str, Any], n_ctx: int) -> Call:
    """``POST /api/generate``: a prompt, put into the chat template unless ``raw``.  Raises Refusal."""
    fields = Fields(body)
    call = _common(fields, defaults, n_ctx)
    prompt = fields.text("prompt", "") or ""
    if fields.flag("raw"):
        if not prompt:
            raise bad("prompt is missing or empty", "prompt")
        call.prompt = prompt
    else:
        system = fields.text("system")
        call.messages = [{"role": "system", "content": system}] if system else []
        call.messages.append({"role": "user", "content": prompt})
    if fields.body.get("images"):
        raise bad("images are not supported", "images")
    return call


def _common(fields: Fields, defaults: dict[str, Any], n_ctx: int) -> Call:
    options = dict(defaults)
    given = fields.inner("options") or Fields({})
    options["sampling"] = sampling_of(given, defaults.get("sampling") or Sampling(), SAMPLING)
    most = given.whole("num_predict", -2, 1 << 24)
    if most is not None and most >= 0:
        options["max_tokens"] = most
    if stop := given.stops():
        options["stop"] = stop
    wanted = given.whole("num_ctx", 1, 1 << 24)
    if wanted is not None and wanted > n_ctx:
        raise bad(f"options.num_ctx is {wanted}, but the server has a context of {n_ctx} tokens; start it with --ctx "
                  f"{wanted}", "options.num_ctx")
    format_ = fields.body.get("format")
    if format_ == "json":
        options["schema"] = {"type": "object"}
    elif isinstance(format_, dict):
        options["schema"] = format_
    elif format_ not in (None, ""):
        raise bad("format is not json or a JSON schema", "format")
    return Call(options=options, stream=fields.flag("stream", True), include_usage=True,
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
             **more: Any) -> dict[str, Any]:
        """One line: a piece, or with ``done`` the end."""
        head: dict[str, Any] = {"model": self._model, "created_at": now()}
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


def show(name: str, config: Any, quantization: str, template: str, n_ctx: int, tools: bool) -> dict[str, Any]:
    """``POST /api/show``."""
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
        "capabilities": ["completion", *(["tools"] if tools else [])],
    }
