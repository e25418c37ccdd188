"""Keys: what a request may contain, one table for each API: key -> what its value must be.

A text in the place of a check is the reason why a key is refused: it would change the answer and cannot be honoured.
Keys in no table are ignored, also those inside messages, tools and formats.  Null is the value of a key that is not
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from edge.errors import UsageError, shown
from edge.sampling import FIELDS, Sampling
from edge.serve.calls import bad, dump
from edge.session.answer_options import FORMS

MOST_TOKENS = 1 << 24
MOST_CHOICES = 8  # n
MOST_STOPS = 16
MOST_LOGPROBS = 20
#: values of reasoning_effort; the model has no degrees, it thinks before it answers or does not
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

Check = Callable[[Any, str], Any]  # (value, path of it in the request) -> value
Table = Mapping[str, Check | str]


def read(body: Any, table: Table, where: str = "") -> dict[str, Any]:
    """The keys of an object that stand in its table, without null.  ``where``: path of the object in the request.

    Raises Refusal (400) that names the key.
    """
    if not isinstance(body, dict):
        raise bad(f"{where or 'the request'} is not a JSON object", where or None)
    asked: dict[str, Any] = {}
    for key, value in body.items():
        check, path = table.get(key), f"{where}.{key}" if where else key
        if value is None or check is None:
            continue
        if not isinstance(check, str):
            asked[key] = check(value if where else texts(value, path), path)
        elif value not in (False, "", [], IDLE.get(key)):
            raise bad(f"{path} is not supported: {check}", path)
    return asked


# ---- values ---------------------------------------------------------------------------------------------------------


def given(value: Any, _: str) -> Any:
    """Anything; it is checked later."""
    return value


def text(value: Any, where: str) -> str:
    """A string."""
    if value is None:
        raise bad(f"{where} is missing", where)
    if not isinstance(value, str):
        raise bad(f"{where} is not a string", where)
    return value


def texts(value: Any, where: str) -> Any:
    """A JSON value whose texts are all valid Unicode."""
    try:
        dump(value)
    except UnicodeEncodeError:
        raise bad(f"{where} contains half of a surrogate pair, which is not valid text", where) from None
    except RecursionError:
        raise bad(f"{where} is nested too deeply", where) from None
    return value


def flag(value: Any, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise bad(f"{where} is not true or false", where)
    return value


def whole(least: int, most: int) -> Check:
    """A whole number; 2.0 is one, too."""
    def check(value: Any, where: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise bad(f"{where} is not a whole number from {least} to {most}", where)
        return value

    return check


def number(least: float, most: float) -> Check:
    """A number."""
    def check(value: Any, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise bad(f"{where} is not a number from {least:g} to {most:g}", where)
        return float(value)

    return check


def strings(value: Any, where: str) -> list[str]:
    """A list of strings."""
    if not isinstance(value, list):
        raise bad(f"{where} is not a list of strings", where)
    return [text(each, f"{where}[{i}]") for i, each in enumerate(value)]


def stops(value: Any, where: str) -> list[str]:
    """The strings that end an answer: one, or a list; empty ones are left out."""
    if not isinstance(value, (str, list)) or len(value) > MOST_STOPS and isinstance(value, list):
        raise bad(f"{where} is not a string or a list of at most {MOST_STOPS} strings", where)
    found = [text(value, where)] if isinstance(value, str) else strings(value, where)
    return [each for each in found if each]


def thinking(value: Any, where: str) -> bool:
    """Whether the model is to think before it answers."""
    if not isinstance(value, bool) and value not in EFFORTS:
        raise bad(f"{where} is {shown(value)}; it must be true, false or one of {', '.join(EFFORTS)}", where)
    return value if isinstance(value, bool) else value != "none"


def schema(value: Any, where: str) -> Any:
    """A JSON schema."""
    if not isinstance(value, (dict, bool)):
        raise bad(f"{where} is not a JSON schema", where)
    return value


def mapping(value: Any, where: str) -> Any:
    """An object with any keys."""
    read(value, {}, where)
    return value


def inside(table: Table) -> Check:
    """An object with a table of its own."""
    return lambda value, where: read(value, table, where)


# ---- tables ---------------------------------------------------------------------------------------------------------

_TEXT = "only text is read and written"

#: what no API here honours -> what to do instead
REFUSED: Table = {
    "n": "send several requests",
    **dict.fromkeys(("audio", "image", "images", "videos", "modalities"), _TEXT),
    "functions": "use tools",
    "function_call": "use tool_choice",
    "logit_bias": "scores of single tokens cannot be changed",
    "best_of": "use n and choose yourself",
    "suffix": "the models have no fill-in-the-middle tokens",
    "web_search_options": "nothing is searched",
    "verbosity": "say in the messages how long the answer is to be",
    "template": "start the server with --set template=NAME",
    "context": "send all messages of the conversation",
    **dict.fromkeys(("mirostat", "tfs_z", "typical_p"), "use min_p or top_p"),
    "repetition_penalty": "use repeat_penalty",
    "n_predict": "use max_tokens",
    "min_tokens": "use a form such as regex",
    "stop_token_ids": "use stop",
    "bad_words": "use a form such as grammar",
    **dict.fromkeys(("guided_json", "guided_regex", "guided_grammar", "structured_outputs", "json_schema"),
                    "use the form of an answer that this API has"),
    "partial": "POST /v1/chat/completions has it",
}
#: the values with which refused keys ask for nothing
IDLE = {"n": 1, "best_of": 1, "modalities": ["text"], "function_call": "none", "verbosity": "medium", "logit_bias": {},
        "repetition_penalty": 1, "typical_p": 1, "tfs_z": 1, "truncation": "disabled"}

_SAMPLING: Table = dict.fromkeys(FIELDS, given)  # Sampling has their ranges
_THINKING: Table = {
    "think": thinking, "reasoning_effort": thinking, "chat_template_kwargs": inside({"enable_thinking": flag}),
    "thinking_budget": whole(0, MOST_TOKENS)}
_TOOLS: Table = {"tools": given, "tool_choice": given, "parallel_tool_calls": flag}
#: keys of /v1/chat/completions that change an answer, for the routes that do not have all of them
_ELSEWHERE: Table = dict.fromkeys(
    ("schema", "regex", "grammar", "choices", "guided_choice", "stop", "ignore_eos", "max_completion_tokens",
     *_SAMPLING, *_THINKING, *_TOOLS), "this route has no such key; POST /v1/chat/completions has it")
_OPENAI: Table = {
    **REFUSED, **_SAMPLING, "model": text, "stream": flag, "stop": stops, "ignore_eos": flag,
    "stream_options": inside({"include_usage": flag}), "metadata": mapping, "n": whole(1, MOST_CHOICES),
    "presence_penalty": number(-2, 2), "frequency_penalty": number(-2, 2),
    "max_tokens": whole(-1, MOST_TOKENS), "max_completion_tokens": whole(0, MOST_TOKENS),
    "response_format": inside({"type": text, "schema": schema, "json_schema": inside({"schema": schema})}),
    "schema": schema, "regex": text, "grammar": text, "choices": strings, "guided_choice": strings,  # the last as vLLM
    "user": text, "session_id": text, "prompt_cache_key": text}

CHAT: Table = {
    **_OPENAI, **_THINKING, **_TOOLS, "messages": given, "logprobs": flag, "top_logprobs": whole(0, MOST_LOGPROBS),
    "partial": flag}

COMPLETION: Table = {**_ELSEWHERE, **_OPENAI, "prompt": given, "logprobs": whole(0, MOST_LOGPROBS), "echo": flag}

RESPONSES: Table = {
    **_ELSEWHERE, **REFUSED, **_TOOLS, "model": text, "input": given, "instructions": text, "stream": flag,
    "temperature": given, "top_p": given, "max_output_tokens": whole(1, MOST_TOKENS), "user": text,
    "prompt_cache_key": text, "text": inside({"format": inside({"type": text, "schema": schema, "name": text}),
                                                "verbosity": REFUSED["verbosity"]}),
    "reasoning": inside({"effort": thinking}), "include": strings, "top_logprobs": whole(0, MOST_LOGPROBS),
    "metadata": mapping,
    **dict.fromkeys(("conversation", "previous_response_id"), "nothing is stored; send the whole conversation"),
    "prompt": "no prompts are stored; send it in input",
    "background": "wait for the answer, or stream it",
    "truncation": "nothing is cut off",
    "max_tokens": "use max_output_tokens",
    "response_format": "use text.format"}

EMBEDDING: Table = {"model": text, "input": given, "encoding_format": text, "dimensions": given}
TOKENIZE: Table = {"content": text, "prompt": text, "text": text}
DETOKENIZE: Table = {"tokens": given}

LIMITS = ("num_predict", "max_tokens", "max_output_tokens")  # the first is Ollama's
_OPTIONS: Table = {
    **_ELSEWHERE, **REFUSED, **_SAMPLING, "stop": stops, "num_ctx": whole(1, 1 << 31),
    **dict.fromkeys(LIMITS, whole(-2, MOST_TOKENS))}
_OLLAMA: Table = {
    **_OPTIONS, "model": text, "stream": flag, "format": given, "logprobs": flag,
    "top_logprobs": whole(0, MOST_LOGPROBS), "response_format": "use format", "options": inside(_OPTIONS)}
OLLAMA_CHAT: Table = {**_OLLAMA, **_THINKING, **_TOOLS, "messages": given}
OLLAMA_GENERATE: Table = {**_OLLAMA, **_THINKING, "prompt": text, "system": text, "raw": flag}
OLLAMA_EMBED: Table = {"model": text, "input": given, "truncate": flag, "dimensions": given}
OLLAMA_EMBEDDINGS: Table = {"model": text, "prompt": text}
OLLAMA_SHOW: Table = {"model": text, "name": text}

JSONL: Table = {
    **REFUSED, **_SAMPLING, **_THINKING, **_TOOLS, "messages": given, "by": text, "temp": given,
    "max_tokens": whole(0, 1 << 31), "stop": given, "ignore_eos": flag, "timeout": number(0.001, 1e9),
    "schema": schema, "regex": text, "grammar": text, "choices": strings,
    "response_format": "use schema", "logprobs": "use bitnet-edge serve"}


# ---- several keys ----------------------------------------------------------------------------------------------------


def sampling(asked: Mapping[str, Any], options: Mapping[str, Any]) -> Sampling:
    """The sampling of ``options``, the default ones, with the changes of the request.  Raises Refusal (400) that names
    the key.
    """
    sent = {name: key for key, name in (*zip(FIELDS, FIELDS), ("temp", "temperature")) if key in asked}
    changes = {name: asked[key] for name, key in sent.items()}
    for name in ("top_k", "repeat_last_n", "seed"):
        if isinstance(value := changes.get(name), float) and value.is_integer():
            changes[name] = int(value)
    if "temperature" not in changes and (asked.get("choices") or asked.get("guided_choice")):
        changes["temperature"] = 0.0  # the likeliest one
    try:
        return replace(options.get("sampling") or Sampling(), **changes)
    except UsageError as error:
        key = sent[str(error.argument)]
        raise bad(f"{key} is {shown(asked[key])}; {error.hint}", key) from None


def think(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options for thinking, from ``think`` (Ollama), ``reasoning_effort`` (OpenAI), ``chat_template_kwargs`` (vLLM,
    llama.cpp) and ``thinking_budget``.
    """
    said = {**asked.get("chat_template_kwargs", {}), **asked}
    options = {name: said[name] for name in ("think", "thinking_budget") if name in said}
    for other in ("enable_thinking", "reasoning_effort"):
        if other in said:
            options.setdefault("think", said[other])
    return options


def tools(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The option ``tools`` of a call, from ``tools``, ``tool_choice`` and ``parallel_tool_calls``.  Raises Refusal."""
    try:
        from edge.constrain.functions import Functions

        found = Functions.of(asked.get("tools"), asked.get("tool_choice"), asked.get("parallel_tool_calls", True))
    except UsageError as error:
        raise bad(str(error), str(error).split()[0].rstrip(":")) from None  # they begin with the path of what is wrong
    return {} if found is None else {"tools": found}


def form(asked: Mapping[str, Any] | None, where: str, inner: str = "") -> dict[str, Any]:
    """The form of an answer in OpenAI's way: an object with a ``type``.  ``where``: its path; ``inner``: the key of the
    object that has the schema, if it is not itself.  Raises Refusal.
    """
    if asked is None:
        return {}
    kind = asked.get("type")
    if kind == "json_schema":
        if "schema" not in (holder := asked.get(inner, {}) if inner else asked):
            path = f"{where}.{inner}.schema" if inner else f"{where}.schema"
            raise bad(f"{path} is missing", path)
        return {"schema": holder["schema"]}
    if kind == "json_object":  # of llama.cpp and others: with a schema, too
        return {"schema": asked.get("schema", {"type": "object"})}
    if kind != "text":
        raise bad(f"{where}.type is {shown(kind)}; it must be text, json_object or json_schema", f"{where}.type")
    return {}


def with_form(options: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with this form of the answer, if there is one, in place of theirs."""
    return {**{name: value for name, value in options.items() if not own or name not in FORMS}, **own}
