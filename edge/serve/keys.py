"""Keys: what a request may contain, one table for each kind of request.

A key is honoured; or it would change the answer and is refused with a reason, unless its value asks for nothing; or it
is harmless: it does not change the answer, and docs/serve.md names it.  Keys in no table are ignored.
tests/serve/test_keys.py compares the tables with the keys that OpenAI and Ollama publish.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from edge.sampling import FIELDS
from edge.serve.calls import bad


class Refused(NamedTuple):
    """Why a key is refused, and the values with which it is not, as they ask for nothing."""

    why: str
    idle: tuple[Any, ...] = ()


class Keys(NamedTuple):
    """The keys of one kind of request."""

    honoured: frozenset[str]
    refused: Mapping[str, Refused]
    harmless: frozenset[str] = frozenset()

    def check(self, body: Mapping[str, Any], where: str = "") -> None:
        """Refuse a request with a key that has no effect here.  ``where``: path of the object in the request."""
        for name, (why, idle) in self.refused.items():
            value = body.get(name)
            if value is not None and not any(type(value) is type(each) and value == each for each in idle):
                raise bad(f"{where}{name} is not supported: {why}", where + name)


def _of(*groups: str) -> frozenset[str]:
    return frozenset(" ".join(groups).split())


_TEXT = "the answer is text"
_BIAS = Refused("scores of single tokens cannot be changed", ({},))
_SAMPLING = " ".join(FIELDS)
_LIMITS = "max_tokens stop ignore_eos"
_FORMS = "response_format regex grammar choices guided_choice"
_THINKING = "think reasoning_effort chat_template_kwargs thinking_budget"
_KEYS_OF_CACHE = "user session_id prompt_cache_key"
_REMARKS = "model metadata safety_identifier service_tier store prompt_cache_options prompt_cache_retention"

#: what other servers call it, or have besides
_OTHERS = {
    "n_predict": Refused("use max_tokens"),
    "repetition_penalty": Refused("use repeat_penalty", (1, 1.0)),
    "typical_p": Refused("use min_p or top_p", (1, 1.0)),
    "mirostat": Refused("use min_p or top_p", (0,)),
    "dry_multiplier": Refused("use repeat_penalty", (0, 0.0)),
    "xtc_probability": Refused("use temperature", (0, 0.0)),
    "min_tokens": Refused("use a form such as regex", (0,)),
    "stop_token_ids": Refused("use stop", ([],)),
    "bad_words": Refused("use a form such as grammar", ([],)),
    "guided_json": Refused("use response_format"),
    "guided_regex": Refused("use regex"),
    "guided_grammar": Refused("use grammar"),
    "structured_outputs": Refused("use response_format, regex, grammar or choices"),
    "json_schema": Refused("use response_format"),
    "logit_bias": _BIAS,
}

CHAT = Keys(
    _of("messages n stream stream_options logprobs top_logprobs max_completion_tokens tools tool_choice",
        "parallel_tool_calls", _SAMPLING, _LIMITS, _FORMS, _THINKING, _KEYS_OF_CACHE),
    {
        **_OTHERS,
        "audio": Refused(_TEXT),
        "modalities": Refused(_TEXT, (["text"],)),
        "functions": Refused("use tools", ([],)),
        "function_call": Refused("use tool_choice", ("none",)),
        "web_search_options": Refused("nothing is searched"),
        "moderation": Refused("nothing is moderated"),
        "verbosity": Refused("say in the messages how long the answer is to be", ("medium",)),
    },
    _of(_REMARKS, "prediction"),
)  # fmt: skip

COMPLETION = Keys(
    _of("prompt n stream stream_options logprobs echo", _SAMPLING, _LIMITS, _FORMS, _KEYS_OF_CACHE),
    {
        **_OTHERS,
        "best_of": Refused("use n and choose yourself", (1,)),
        "suffix": Refused("the models have no fill-in-the-middle tokens", ("",)),
        **{name: Refused("a raw prompt has no template") for name in _THINKING.split()},
    },
    _of(_REMARKS),
)  # fmt: skip

RESPONSES = Keys(
    _of("input instructions stream stream_options temperature top_p max_output_tokens text reasoning tools tool_choice",
        "parallel_tool_calls user prompt_cache_key previous_response_id top_logprobs include"),
    {
        "background": Refused("wait for the answer, or stream it", (False,)),
        "background_options": Refused("wait for the answer, or stream it"),
        "conversation": Refused("nothing is stored; send the whole conversation in input"),
        "context_management": Refused("nothing is compacted; send the whole conversation in input", ([],)),
        "prompt": Refused("no prompts are stored; send it in input"),
        "truncation": Refused("nothing is cut off", ("disabled",)),
        "max_tool_calls": Refused("functions are called by the client"),
        "image": Refused(_TEXT),
        "moderation": Refused("nothing is moderated"),
        "access_programs": Refused("there are none", ([],)),
    },
    _of(_REMARKS),
)  # fmt: skip

TEXT = Keys(  # the object text of a response
    _of("format"), {"verbosity": Refused("say in the input how long the answer is to be", ("medium",))}
)
EMBEDDING = Keys(_of("input encoding_format dimensions"), {}, _of("model user"))

OLLAMA_CHAT = Keys(
    _of("messages tools stream format options logprobs top_logprobs", _THINKING), {}, _of("model keep_alive"))

OLLAMA_GENERATE = Keys(
    _of("prompt system raw stream format options logprobs top_logprobs", _THINKING),
    {
        "suffix": Refused("the models have no fill-in-the-middle tokens", ("",)),
        "template": Refused("start the server with --template", ("",)),
        "context": Refused("use /api/chat with all messages", ([],)),
        "images": Refused(_TEXT, ([],)),
        "width": Refused(_TEXT, (0,)),
        "height": Refused(_TEXT, (0,)),
        "steps": Refused(_TEXT, (0,)),
    },
    _of("model keep_alive"),
)  # fmt: skip

OLLAMA_OPTIONS = Keys(
    _of("num_ctx num_predict stop", _SAMPLING),
    {
        "tfs_z": Refused("use min_p or top_p", (1, 1.0)),
        "typical_p": Refused("use min_p or top_p", (1, 1.0)),
        "mirostat": Refused("use min_p or top_p", (0,)),
        "penalize_newline": Refused("use repeat_penalty", (True,)),
    },
    _of("mirostat_eta mirostat_tau num_keep num_batch num_gpu main_gpu num_thread numa low_vram f16_kv use_mmap",
        "use_mlock logits_all vocab_only embedding_only"),
)  # fmt: skip

OLLAMA_EMBED = Keys(_of("input truncate dimensions"), {}, _of("model keep_alive options"))
OLLAMA_EMBEDDINGS = Keys(_of("prompt"), {}, _of("model keep_alive options"))

JSONL = Keys(
    _of("v id op messages by timeout schema regex choices grammar tools tool_choice parallel_tool_calls temp",
        _SAMPLING, _LIMITS, _THINKING),
    {
        "response_format": Refused("use schema"),
        "functions": Refused("use tools", ([],)),
        "n": Refused("send several requests", (1,)),
        "logprobs": Refused("use bitnet-edge serve", (False,)),
        "logit_bias": _BIAS,
    },
)  # fmt: skip
