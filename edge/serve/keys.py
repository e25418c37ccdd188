"""Keys: what a request may contain, one table for each API, and which options of an answer its keys are.

The row of a key is the kind of its value: a type, (least, most) of a whole number, a list of the values themselves, a
table for an object, or ANY for what is checked where it is used: the options of an answer by AnswerOptions.  A text is
the reason why a key is refused: it would change the answer and cannot be honoured.  Keys in no table are ignored, also
those inside messages, tools and formats.  Null is the value of a key that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge.errors import UsageError, shown
from edge.prompt.messages import check_messages
from edge.sampling import FIELDS
from edge.serve.calls import dump
from edge.session.answer_options import BESIDES_SAMPLING, FORMS, TOOLS
from edge.settings import SETTINGS

Table = Mapping[str, Any]
ANY = object
MOST_TOKENS = 1 << 24
MOST_CHOICES = 8  # n
MOST_STOPS = 16
MOST_MESSAGES = 4096
TOP_LOGPROBS = (0, 20)
#: values of reasoning_effort; the model has no degrees, it thinks before it answers or does not
THINKING = [True, False, "none", "minimal", "low", "medium", "high", "xhigh", "max"]
_NAMES = {str: "a string", bool: "true or false", list: "a list"}


def read(body: Any, table: Table, where: str = "") -> dict[str, Any]:
    """The keys of an object that stand in its table, without null.  ``where``: path of the object in the request.

    Raises UsageError that names the key.
    """
    if not isinstance(body, dict):
        raise UsageError("is not a JSON object", argument=where) if where else UsageError(
            "the request is not a JSON object")
    asked: dict[str, Any] = {}
    for key, value in body.items():
        kind, path = table.get(key), f"{where}.{key}" if where else key
        if value is None or kind is None:
            continue
        if isinstance(kind, str):
            if value not in (False, "", [], IDLE.get(key)):
                raise UsageError(f"is not supported: {kind}", argument=path)
            continue
        if not where:
            check_json(value, path)
        if isinstance(kind, tuple):
            value = int(value) if isinstance(value, float) and value.is_integer() else value
            if type(value) is not int or not kind[0] <= value <= kind[1]:
                raise UsageError(f"is not a whole number from {kind[0]} to {kind[1]}", argument=path)
        elif isinstance(kind, list):
            if value not in kind:
                hint = f"it must be one of {', '.join(str(each).lower() for each in kind)}"
                raise UsageError(f"is {shown(value)}", argument=path, hint=hint)
        elif isinstance(kind, dict):
            value = read(value, kind, path)
        elif not isinstance(value, kind):
            raise UsageError(f"is not {_NAMES[kind]}", argument=path)
        asked[key] = value
    return asked


def check_json(value: Any, where: str) -> None:
    """Raise UsageError unless all texts in a JSON value are valid Unicode."""
    try:
        dump(value)
    except UnicodeEncodeError:
        raise UsageError("contains half of a surrogate pair, which is not valid text", argument=where) from None
    except RecursionError:
        raise UsageError("is nested too deeply", argument=where) from None


# ---- tables ---------------------------------------------------------------------------------------------------------

_TEXT = "only text is read and written"

#: key that no API here honours -> advice
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

_THINKING: Table = {
    "think": THINKING, "reasoning_effort": THINKING, "chat_template_kwargs": {"enable_thinking": bool},
    "thinking_budget": ANY}
_OPTIONS: Table = {
    **REFUSED, **_THINKING, **dict.fromkeys((*FIELDS, *FORMS, *TOOLS, "stop", "ignore_eos", "guided_choice"), ANY),
    "parallel_tool_calls": bool, "max_completion_tokens": (0, MOST_TOKENS),
    **dict.fromkeys(("max_tokens", "max_output_tokens", "num_predict"), (-2, MOST_TOKENS))}  # the last is Ollama's
_COMMON: Table = {**_OPTIONS, "model": str, "stream": bool}
#: for prompts that are not conversations
_RAW: Table = dict.fromkeys((*_THINKING, *TOOLS), "this route has no such key; POST /v1/chat/completions has it")

_OPENAI: Table = {
    **_COMMON, "stream_options": {"include_usage": bool}, "n": (1, MOST_CHOICES),
    "response_format": {"type": str, "schema": ANY, "json_schema": {"schema": ANY}}}
CHAT: Table = {**_OPENAI, "messages": ANY, "logprobs": bool, "top_logprobs": TOP_LOGPROBS, "partial": bool}
COMPLETION: Table = {**_OPENAI, **_RAW, "prompt": ANY, "logprobs": TOP_LOGPROBS, "echo": bool}
RESPONSES: Table = {
    **_COMMON, "input": ANY, "instructions": str, "max_output_tokens": (1, MOST_TOKENS), "metadata": ANY,
    "text": {"format": {"type": str, "schema": ANY, "name": str}, "verbosity": REFUSED["verbosity"]},
    "reasoning": {"effort": THINKING}, "include": list, "top_logprobs": TOP_LOGPROBS,
    **dict.fromkeys(("conversation", "previous_response_id"), "nothing is stored; send the whole conversation"),
    "prompt": "no prompts are stored; send it in input",
    "background": "wait for the answer, or stream it",
    "truncation": "nothing is cut off",
    "response_format": "use text.format"}
EMBEDDING: Table = {"model": str, "input": ANY, "encoding_format": ["float", "base64"], "dimensions": ANY}
TOKENIZE: Table = {"content": str, "prompt": str, "text": str}
DETOKENIZE: Table = {"tokens": list}

_OLLAMA: Table = {
    **_COMMON, "format": ANY, "logprobs": bool, "top_logprobs": TOP_LOGPROBS, "response_format": "use format",
    "options": _OPTIONS}
OLLAMA_CHAT: Table = {**_OLLAMA, "messages": ANY}
OLLAMA_GENERATE: Table = {
    **_OLLAMA, **dict.fromkeys(TOOLS, _RAW["tools"]), "prompt": str, "system": str, "raw": bool}
OLLAMA_EMBED: Table = {"model": str, "input": ANY, "truncate": bool, "dimensions": ANY}
OLLAMA_EMBEDDINGS: Table = {"model": str, "prompt": str}
OLLAMA_SHOW: Table = {"model": str, "name": str}

JSONL: Table = {
    **_OPTIONS, **dict.fromkeys(("messages", "by", "temp", "timeout"), ANY),
    "response_format": "use schema", "logprobs": "use bitnet-edge serve"}


# ---- options of an answer --------------------------------------------------------------------------------------------

#: key -> the option that it is; of several keys for one option the first counts
OPTIONS = {
    "temp": "temperature",
    **dict.fromkeys(("num_predict", "max_completion_tokens"), "max_tokens"),
    **{name: name for name in (*FIELDS, *FORMS, *TOOLS, *BESIDES_SAMPLING, "stop")},
    "guided_choice": "choices",  # as vLLM
    "max_output_tokens": "max_tokens",
    **dict.fromkeys(("chat_template_kwargs", "reasoning", "reasoning_effort"), "think"),  # of vLLM and OpenAI
}


def options(
    asked: Mapping[str, Any], defaults: Mapping[str, Any], form: Mapping[str, Any] | None = None, where: str = "",
) -> tuple[dict[str, Any], dict[str, str]]:
    """(the options of an answer: ``defaults``, changed by the keys of a request; option -> its key).

    ``form``: the one that another key asks for, ``where``.  Raises UsageError.
    """
    own = dict(form or {})
    sent = dict.fromkeys(own, where)
    for key, name in OPTIONS.items():
        if (value := _value(key, name, asked.get(key))) is None:
            continue
        if name not in own:
            own[name], sent[name] = value, key
        elif name in FORMS and own[name] != value:
            raise UsageError(f"and {sent[name]} ask for different {name}; give only one of them", argument=key)
    if "choices" in own:
        own.setdefault("temperature", 0.0)  # the likeliest one
    if forms := [name for name in FORMS if name in own]:
        sent["form"] = sent[forms[0]]
    return {name: value for name, value in defaults.items() if name not in FORMS or not forms} | own, sent


def _value(key: str, name: str, value: Any) -> Any:
    """The value of a key as that of the option ``name``; None if it asks for nothing."""
    if name == "think":
        value = next(iter(value.values()), None) if isinstance(value, dict) else value
        return None if value is None else value not in (False, "none")
    if name == "max_tokens" and value is not None and value < 0 or name == "stop" and value in ("", [], [""]):
        return None
    if name == "stop" and isinstance(value, list) and len(value) > MOST_STOPS:
        raise UsageError(f"is not a string or a list of at most {MOST_STOPS} strings", argument=key)
    whole = isinstance(value, float) and value.is_integer() and name in SETTINGS and SETTINGS[name].kind == "whole"
    return int(value) if whole else value


def messages(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a chat, checked.  Raises UsageError."""
    given = asked.get("messages")
    if isinstance(given, list) and len(given) > MOST_MESSAGES:
        raise UsageError(f"has {len(given)} messages; the limit is {MOST_MESSAGES}", argument="messages")
    return check_messages(given)


def form_of(asked: Mapping[str, Any] | None, where: str, inner: str = "") -> dict[str, Any]:
    """The form of an answer in OpenAI's way: an object with a ``type``.  ``where``: its path; ``inner``: the key of the
    object that has the schema, if it is not itself.  Raises UsageError.
    """
    if asked is None:
        return {}
    kind = asked.get("type")
    if kind == "json_schema":
        if "schema" not in (holder := asked.get(inner, {}) if inner else asked):
            raise UsageError("is missing", argument=f"{where}.{inner}.schema" if inner else f"{where}.schema")
        return {"schema": holder["schema"]}
    if kind == "json_object":  # of llama.cpp and others: with a schema, too
        return {"schema": asked.get("schema", {"type": "object"})}
    if kind != "text":
        raise UsageError(f"is {shown(kind)}", argument=f"{where}.type",
                         hint="it must be text, json_object or json_schema")
    return {}
