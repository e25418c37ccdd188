"""Keys: what a request may contain, one table for each kind of request and for each kind of object in it.

A key is honoured; or it would change the answer and is refused with a reason, unless its value asks for nothing; or it
is harmless: it does not change the answer, and docs/serve.md names it.  Keys in no table are ignored.
tests/serve/test_keys.py compares the tables with the keys that OpenAI and Ollama publish, however deep they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from edge.sampling import FIELDS
from edge.serve.calls import bad
from edge.session.answer_options import NOTHING, UNREAD


class Refused(NamedTuple):
    """Why a key is refused, and the values with which it is not, as they ask for nothing; those of NOTHING never do."""

    why: str
    idle: tuple[Any, ...] = ()


class Keys(NamedTuple):
    """The keys of one kind of object.  ``inner``: the tables of the objects in the value of a key."""

    honoured: frozenset[str]
    refused: Mapping[str, Refused]
    harmless: frozenset[str] = frozenset()
    inner: Mapping[str, Keys] = {}

    def check(self, body: Mapping[str, Any], where: str = "") -> None:
        """Refuse a request with a key that has no effect here.  ``where``: path of the object in the request."""
        for name, (why, idle) in self.refused.items():
            value = body.get(name)
            if value not in NOTHING and not any(type(value) is type(each) and value == each for each in idle):
                raise bad(f"{where}{name} is not supported: {why}", where + name)
        for name, table in self.inner.items():
            value = body.get(name)
            if isinstance(value, Mapping):
                table.check(value, f"{where}{name}.")
            for i, each in enumerate(value if isinstance(value, list) else ()):
                if isinstance(each, Mapping):
                    table.check(each, f"{where}{name}[{i}].")


def _of(*groups: str) -> frozenset[str]:
    return frozenset(" ".join(groups).split())


_TEXT = "the answer is text"
_SAMPLING = " ".join(FIELDS)
_LIMITS = "max_tokens stop ignore_eos"
_FORMS = "response_format regex grammar choices guided_choice"
_THINKING = "think reasoning_effort chat_template_kwargs thinking_budget"
_KEYS_OF_CACHE = "user session_id prompt_cache_key"
_REMARKS = "model safety_identifier service_tier store prompt_cache_options prompt_cache_retention"

# ---- objects inside requests ----------------------------------------------------------------------------------------

_FUNCTIONS = Refused("only functions can be called")
_UNREAD = {key: Refused(why) for key, why in UNREAD.items()}  # of messages, items and their parts
_AT_ONCE = Refused("functions are called one answer at a time", (False,))
_CALLED = {  # of calls that were made
    "namespace": Refused("functions have no namespaces here"),
    "caller": Refused("functions are called by the client", ({"type": "direct"},)),
    "async": _AT_ONCE,
}
_CALLABLE = {  # of functions
    "allowed_callers": Refused("functions are called by the client", (["direct"],)),
    "async": _AT_ONCE,
    "defer_loading": Refused("nothing is loaded later", (False,)),
}

_PART = Keys(  # of a content
    _of("type text refusal"), _UNREAD, _of("prompt_cache_breakpoint annotations logprobs")
)
_CALL = Keys(  # of earlier answers
    _of("function id"), {"custom": _FUNCTIONS, **_CALLED}, _of("type"),
    {"function": Keys(_of("name arguments"), _CALLED, _of("index"))},
)
_MESSAGE = Keys(
    _of("role content refusal tool_calls tool_call_id name tool_name"),
    {**_UNREAD, **_CALLED},
    _of("thinking reasoning reasoning_content"),
    {"content": _PART, "tool_calls": _CALL},
)
_FUNCTION = Keys(_of("name description parameters strict"), _CALLABLE)
_TOOL = Keys(_of("type function"), {"custom": _FUNCTIONS, **_CALLABLE}, inner={"function": _FUNCTION})
_CHOICE = Keys(
    _of("type function allowed_tools mode tools"),
    {"custom": _FUNCTIONS, "server_label": _FUNCTIONS},
    inner={"function": Keys(_of("name"), {}), "allowed_tools": Keys(_of("mode tools"), {})},
)
_TOOLS = {"tools": _TOOL, "tool_choice": _CHOICE}
_DESCRIBED = _of("name description strict")  # of a schema: it is followed whatever these say
_FORMAT = Keys(
    _of("type json_schema schema"), {}, inner={"json_schema": Keys(_of("schema"), {}, _DESCRIBED)}
)
_STREAM = {"stream_options": Keys(_of("include_usage"), {}, _of("include_obfuscation"))}

_ITEM = Keys(  # of the input of a response
    _of("type role content call_id name arguments output"),
    {**_UNREAD, **_CALLED, "function_call": Refused("use an item of this type")},
    _of("id status phase summary encrypted_content"),
    {"content": _PART, "output": _PART},
)
_RESPONSE_TOOL = Keys(
    _of("type name description parameters strict output_schema"), _CALLABLE
)
_RESPONSE_CHOICE = Keys(_of("type name mode tools"), {"custom": _FUNCTIONS, "server_label": _FUNCTIONS})
_RESPONSE_TEXT = Keys(
    _of("format"),
    {"verbosity": Refused("say in the input how long the answer is to be", ("medium",))},
    inner={"format": Keys(_of("type schema"), {}, _DESCRIBED)},
)
_REASONING = Keys(
    _of("effort"),
    {
        "context": Refused("thoughts of earlier answers are not read again", ("auto", "current_turn")),
        "mode": Refused("there is one", ("standard",)),
    },
    _of("summary generate_summary"),
)

# ---- requests -------------------------------------------------------------------------------------------------------

_ELSEWHERE = Refused("this API has no such key", ({},))

#: what would change an answer: refused by every API that does not honour it, where it has no better reason
_ANSWERS: dict[str, Refused] = {
    # honoured by one API or another
    **dict.fromkeys(
        _of(_SAMPLING, _LIMITS, _FORMS, _THINKING, "temp max_completion_tokens max_output_tokens num_predict",
            "messages prompt input instructions system tools options format text"), _ELSEWHERE),
    "ignore_eos": _ELSEWHERE._replace(idle=(False,)),
    "tool_choice": _ELSEWHERE._replace(idle=("auto",)),
    "n": Refused("send several requests", (1,)),
    "echo": _ELSEWHERE._replace(idle=(False,)),
    "raw": _ELSEWHERE._replace(idle=(False,)),
    "partial": _ELSEWHERE._replace(idle=(False,)),
    "logprobs": _ELSEWHERE._replace(idle=(False,)),
    "top_logprobs": _ELSEWHERE._replace(idle=(0,)),
    "reasoning": Refused("use reasoning_effort or think"),
    "schema": Refused("use response_format"),
    "previous_response_id": Refused("nothing is stored; send the whole conversation"),
    # of OpenAI
    "audio": Refused(_TEXT),
    "image": Refused(_TEXT),
    "modalities": Refused(_TEXT, (["text"],)),
    **{key: _UNREAD[key] for key in ("images", "videos")},
    "functions": Refused("use tools"),
    "function_call": Refused("use tool_choice", ("none",)),
    "web_search_options": Refused("nothing is searched"),
    "moderation": Refused("nothing is moderated"),
    "verbosity": Refused("say in the messages how long the answer is to be", ("medium",)),
    "best_of": Refused("use n and choose yourself", (1,)),
    "suffix": Refused("the models have no fill-in-the-middle tokens"),
    "background": Refused("wait for the answer, or stream it", (False,)),
    "background_options": Refused("wait for the answer, or stream it"),
    "conversation": Refused("nothing is stored; send the whole conversation"),
    "context_management": Refused("nothing is compacted; send the whole conversation"),
    "truncation": Refused("nothing is cut off", ("disabled",)),
    "max_tool_calls": Refused("functions are called by the client"),
    "access_programs": Refused("there are none"),
    "logit_bias": Refused("scores of single tokens cannot be changed", ({},)),
    # of Ollama
    "truncate": Refused("nothing is cut off", (False,)),
    "shift": Refused("--overflow of the server decides", (False,)),
    "_debug_render_only": Refused("prompts are answered", (False,)),
    "template": Refused("start the server with --template"),
    "context": Refused("send all messages of the conversation"),
    **dict.fromkeys(("width", "height", "steps"), Refused(_TEXT, (0,))),
    "tfs_z": Refused("use min_p or top_p", (1, 1.0)),
    "penalize_newline": Refused("use repeat_penalty", (True,)),
    # of other servers
    "n_predict": Refused("use max_tokens"),
    "repetition_penalty": Refused("use repeat_penalty", (1, 1.0)),
    "typical_p": Refused("use min_p or top_p", (1, 1.0)),
    "mirostat": Refused("use min_p or top_p", (0,)),
    "dry_multiplier": Refused("use repeat_penalty", (0, 0.0)),
    "xtc_probability": Refused("use temperature", (0, 0.0)),
    "min_tokens": Refused("use a form such as regex", (0,)),
    "stop_token_ids": Refused("use stop"),
    "bad_words": Refused("use a form such as grammar"),
    "guided_json": Refused("use response_format"),
    "guided_regex": Refused("use regex"),
    "guided_grammar": Refused("use grammar"),
    "structured_outputs": Refused("use response_format, regex, grammar or choices"),
    "json_schema": Refused("use response_format"),
}


def _answer(
    honoured: frozenset[str], refused: Mapping[str, Refused], harmless: frozenset[str] = frozenset(),
    inner: Mapping[str, Keys] = {},
) -> Keys:
    """The keys of a request for an answer, or of its options: with those that any API refuses."""
    known = honoured | harmless
    others = {name: why for name, why in _ANSWERS.items() if name not in known}
    return Keys(honoured, {**others, **refused}, harmless, inner)


#: of Ollama's requests, without their options
_OF_OPTIONS = {**dict.fromkeys((*FIELDS, "stop"), Refused("give it in options")),
               "max_tokens": Refused("use num_predict in options")}

CHAT = _answer(
    _of("messages n stream stream_options logprobs top_logprobs max_completion_tokens tools tool_choice",
        "parallel_tool_calls metadata partial", _SAMPLING, _LIMITS, _FORMS, _THINKING, _KEYS_OF_CACHE),
    {},
    _of(_REMARKS, "prediction"),
    {"messages": _MESSAGE, "response_format": _FORMAT, **_TOOLS, **_STREAM},
)

COMPLETION = _answer(
    _of("prompt n stream stream_options logprobs echo max_completion_tokens metadata", _SAMPLING, _LIMITS, _FORMS,
        _KEYS_OF_CACHE),
    {name: Refused("a raw prompt has no template") for name in _THINKING.split()},
    _of(_REMARKS),
    {"response_format": _FORMAT, **_STREAM},
)

RESPONSES = _answer(
    _of("input instructions stream stream_options temperature top_p max_output_tokens text reasoning tools tool_choice",
        "parallel_tool_calls user prompt_cache_key previous_response_id top_logprobs include metadata partial"),
    {"prompt": Refused("no prompts are stored; send it in input"), "max_tokens": Refused("use max_output_tokens")},
    _of(_REMARKS),
    {"input": _ITEM, "text": _RESPONSE_TEXT, "reasoning": _REASONING, "tools": _RESPONSE_TOOL,
     "tool_choice": _RESPONSE_CHOICE, "stream_options": Keys(frozenset(), {}, _of("include_obfuscation"))},
)

EMBEDDING = Keys(_of("input encoding_format dimensions"), {}, _of("model user"))

_OPTIONS = _answer(
    _of("num_ctx num_predict stop", _SAMPLING),
    {"max_tokens": Refused("use num_predict")},
    _of("mirostat_eta mirostat_tau num_keep num_batch num_gpu main_gpu num_thread numa low_vram f16_kv use_mmap",
        "use_mlock logits_all vocab_only embedding_only"),
)

OLLAMA_CHAT = _answer(
    _of("messages tools stream format options logprobs top_logprobs partial", _THINKING),
    _OF_OPTIONS,
    _of("model keep_alive"),
    {"messages": _MESSAGE, "tools": _TOOL, "options": _OPTIONS},
)

OLLAMA_GENERATE = _answer(
    _of("prompt system raw stream format options logprobs top_logprobs", _THINKING),
    _OF_OPTIONS,
    _of("model keep_alive"),
    {"options": _OPTIONS},
)

OLLAMA_EMBED = Keys(_of("input truncate dimensions"), {}, _of("model keep_alive options"))
OLLAMA_EMBEDDINGS = Keys(_of("prompt"), {}, _of("model keep_alive options"))

JSONL = _answer(
    _of("v id op messages partial by timeout schema regex choices grammar tools tool_choice parallel_tool_calls temp",
        _SAMPLING, _LIMITS, _THINKING),
    {"response_format": Refused("use schema"), "logprobs": Refused("use bitnet-edge serve", (False,))},
    inner={"messages": _MESSAGE, **_TOOLS},
)
