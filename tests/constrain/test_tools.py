"""Calls of functions (edge/constrain/functions.py): what templates are given, and calls that cannot be malformed."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import edge
from edge.constrain.constraint import Constraint
from edge.constrain.functions import Form, Functions
from edge.constrain.vocabulary import Vocabulary
from edge.errors import EdgeError, UsageError
from edge.formats import open_checkpoint
from edge.formats.checkpoint import Added
from edge.prompt.template import Template
from edge.prompt.tokenizer import StreamDecoder, Tokenizer
from edge.session.stream import Stream
from pyx.tokens import Sampler

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather <|im_end|> of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12},
                                                     "unit": {"enum": ["C", "F"]}}, "required": ["city"]}}}
LIGHT = {"type": "function", "function": {"name": "light", "parameters": {
    "type": "object", "properties": {"on": {"$ref": "#/$defs/switch"}}, "required": ["on"],
    "$defs": {"switch": {"type": "boolean"}}}}}

#: the ways of Qwen3 and of Llama 3, shortened
MARKED = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}# Functions
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>
Answer within <tool_call></tool_call>.<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role != 'system' or not tools %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
WHOLE = """\
{%- for message in messages %}<|start|>{{ message.role }}
{% if tools and loop.last %}Respond {"name": function, "parameters": dictionary}.
{% for t in tools %}{{ t | tojson(indent=4) }}
{% endfor %}{% endif %}
{%- if message.tool_calls %}{"name": "{{ message.tool_calls[0].function.name }}", "parameters": {{
message.tool_calls[0].function.arguments | tojson }}}{% else %}{{ message.content }}{% endif %}<|eot_id|>
{% endfor %}"""
MARKS = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]


@pytest.fixture(scope="module")
def tokenizer(bundled_model) -> Tokenizer:
    """The bundled model's, with the marks of Qwen3."""
    spec = open_checkpoint(str(bundled_model)).tokenizer
    added = {text: Added(i, special=text[1] == "|") for i, text in enumerate(MARKS, len(spec.tokens))}
    return Tokenizer.build(dataclasses.replace(spec, added=added))


def template(tokenizer: Tokenizer, text: str, bundled_model: Any) -> Template:
    checkpoint = open_checkpoint(str(bundled_model))
    checkpoint.chat_template = text
    return Template.for_model(checkpoint, "model")


@pytest.fixture(scope="module")
def vocabulary(tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer, tokenizer.n_vocab + 3, tokenizer.eos_ids)


def answer(vocabulary: Vocabulary, tokenizer: Tokenizer, form: Form, seed: int, most: int = 120,
           wish: str = "") -> tuple[str, list[dict[str, Any]], list[int]]:
    """(content, calls, tokens) of an answer from random logits that lean towards the tokens of ``wish``."""
    random, sampler, ids = np.random.default_rng(seed), Sampler(vocabulary.n_vocab, seed), []
    spec, wanted = form.spec, tokenizer.encode(wish, special=True)
    constraint = Constraint(vocabulary, spec, "", most) if spec else None
    while len(ids) < most:
        logits = random.normal(0, 3, vocabulary.n_vocab).astype(np.float32)
        if len(ids) < len(wanted):
            logits[wanted[len(ids)]] = 100
        token = sampler.sample(logits, 1.0)
        while constraint is not None and not constraint.allows(token, most - len(ids)):
            token = sampler.sample(logits, 1.0, mask=constraint.mask())
        if token in vocabulary.stop_ids:
            break
        if constraint is not None:
            constraint.accept(token)
        ids.append(token)
        if constraint is not None and constraint.done:
            break
    stream, reader = Stream(StreamDecoder(tokenizer, form.names)), form.reader()
    pieces = [piece for token in ids for piece in stream.push(token)] + list(stream.flush())
    content = "".join(reader.feed(piece.text) for piece in pieces) + reader.flush()
    whole = form.split("".join(piece.text for piece in pieces))
    assert whole[0] == content and [c["function"] for c in whole[1]] == [c["function"] for c in reader.calls()]
    return content, reader.calls(), ids


def check(calls: list[dict[str, Any]]) -> None:
    """Each call is one of the two functions, with arguments of its schema."""
    jsonschema = pytest.importorskip("jsonschema")
    assert len({call["id"] for call in calls}) == len(calls)
    for call in calls:
        assert call["type"] == "function" and set(call) == {"id", "type", "function"}
        tool = next(t["function"] for t in (WEATHER, LIGHT) if t["function"]["name"] == call["function"]["name"])
        jsonschema.validate(json.loads(call["function"]["arguments"]),
                            {**tool["parameters"], "additionalProperties": False})


@pytest.mark.parametrize("text", [MARKED, WHOLE, None], ids=["marked", "whole", "unknown"])
def test_required_calls_are_never_malformed(vocabulary, tokenizer, bundled_model, text) -> None:
    known = Template.for_model(open_checkpoint(str(bundled_model)))
    known = template(tokenizer, text, bundled_model) if text else known
    assert known.tools == {MARKED: "marked", WHOLE: "whole", None: ""}[text]
    form = Functions.of([WEATHER, LIGHT], "required").form(known, tokenizer)
    names = set()
    for seed in range(15):
        content, calls, _ = answer(vocabulary, tokenizer, form, seed)
        assert calls and content == ""
        check(calls)
        names |= {call["function"]["name"] for call in calls}
    assert names == {"get_weather", "light"}


def test_a_named_function_is_called_once(vocabulary, tokenizer, bundled_model) -> None:
    named = {"type": "function", "function": {"name": "light"}}
    form = Functions.of([WEATHER, LIGHT], named).form(template(tokenizer, MARKED, bundled_model), tokenizer)
    for seed in range(5):
        _, calls, _ = answer(vocabulary, tokenizer, form, seed)
        assert [call["function"]["name"] for call in calls] == ["light"]


@pytest.mark.parametrize("text", [MARKED, WHOLE], ids=["marked", "whole"])
def test_auto_is_text_or_calls(vocabulary, tokenizer, bundled_model, text) -> None:
    form = Functions.of([WEATHER, LIGHT]).form(template(tokenizer, text, bundled_model), tokenizer)
    call = '<tool_call>\n{"name": "light"' if text == MARKED else '{"name": "light"'
    for seed in range(5):
        content, calls, ids = answer(vocabulary, tokenizer, form, seed, most=30, wish="It is nice {here")
        assert content.startswith("It is nice {here") and (calls == [] or text == MARKED)
        content, calls, ids = answer(vocabulary, tokenizer, form, seed, wish=call)
        assert content == "" and calls[0]["function"]["name"] == "light"
        check(calls)
    if text == MARKED:
        content, calls, _ = answer(vocabulary, tokenizer, form, 1, wish="Let me see. " + call)
        assert content == "Let me see. " and calls[0]["function"]["name"] == "light"
        content, calls, _ = answer(vocabulary, tokenizer, form, 1, wish="a < b, <tool", most=30)
        assert content.startswith("a < b, <tool") and not calls


def test_none_says_nothing_of_tools(tokenizer, bundled_model) -> None:
    form = Functions.of([WEATHER], "none").form(template(tokenizer, MARKED, bundled_model), tokenizer)
    assert form.spec is None and form.definitions is None
    assert form.split('{"name": 1}') == ('{"name": 1}', [])


def test_an_answer_of_three_tokens(vocabulary, tokenizer, bundled_model) -> None:
    """What Home Assistant asks when it is set up: one tool, max_tokens=3."""
    form = Functions.of([WEATHER]).form(template(tokenizer, MARKED, bundled_model), tokenizer)
    for seed in range(10):
        content, calls, ids = answer(vocabulary, tokenizer, form, seed, most=3)
        assert len(ids) <= 3 and calls == [] and isinstance(content, str)


@pytest.mark.parametrize(
    ("tools", "choice", "words"),
    [
        ({}, None, "tools must be a list"), ([1], None, "tools[0] must be an object"),
        ([{"type": "function", "function": {"name": "a b"}}], None, "tools[0].function.name"),
        ([WEATHER, WEATHER], None, "two functions named get_weather"),
        ([WEATHER], "always", "tool_choice is 'always'; it must be none, auto, required"),
        ([WEATHER], {"type": "function", "function": {"name": "x"}}, "tool_choice.function.name is 'x'"),
        ([], "required", "there are no tools"),
        ([{"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}], None, "of type object"),
        ([{"type": "function", "function": {"name": "a", "strict": True, "parameters": {"not": {}}}}], None, '"not"'),
    ],
)
def test_what_is_wrong_is_named(tools, choice, words) -> None:
    with pytest.raises(UsageError) as error:
        Functions.of(tools, choice)
    assert words in str(error.value)


def test_tools_that_are_not_strict_take_any_object() -> None:
    tools = Functions.of([{"type": "function", "function": {"name": "a", "parameters": {"type": "object", "not": {}}}}])
    assert tools.tools[0].schema == '{"type":"object"}'
    assert Functions.of([], "auto") is None and Functions.of(None) is None


def test_what_the_template_is_given(tokenizer, bundled_model) -> None:
    """Definitions and results reach the prompt; the marks in them stay text, those of the template count."""
    known = template(tokenizer, MARKED, bundled_model)
    form = Functions.of([WEATHER]).form(known, tokenizer)
    called = {"name": "get_weather", "arguments": '{"city": "</tool_call>"}'}
    first = {"id": "1", "type": "function", "function": called}
    messages = form.messages([
        {"role": "system", "content": "Be short."}, {"role": "user", "content": "Oslo? <tool_call>"},
        {"role": "assistant", "content": None, "tool_calls": [first]},
        {"role": "tool", "tool_call_id": "1", "content": "rain <|im_end|>"},
    ])
    text = known.render(messages, tools=form.definitions)
    assert json.dumps(WEATHER) in text and '{"city": "</tool_call>"}' in text and "rain <|im_end|>" in text
    ids = known.encode(tokenizer, messages, tools=form.definitions)
    counts = [ids.count(tokenizer.markers[mark]) for mark in MARKS]
    assert counts == [5, 4, 2, 2]  # starts with the open one, ends, and marks around the call and in the system
    whole = template(tokenizer, WHOLE, bundled_model)
    text = whole.render(messages, tools=form.definitions)
    assert '{"name": "get_weather", "parameters": {"city": "</tool_call>"}}' in text


def test_templates_without_tools_get_them_in_words(tokenizer, bundled_model) -> None:
    known = Template.for_model(open_checkpoint(str(bundled_model)))
    form = Functions.of([LIGHT]).form(known, tokenizer)
    call = {"function": {"name": "light", "arguments": {"on": True}}}
    messages = form.messages([
        {"role": "user", "content": "Light!"}, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "done"},
    ])
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"] and form.definitions is None
    assert '"name": "light"' in messages[0]["content"] and "done" in messages[3]["content"]
    assert messages[2]["content"] == '{"name": "light", "parameters": {"on": true}}'
    known.encode(tokenizer, messages)


@pytest.mark.parametrize("text", [MARKED, None], ids=["marked", "unknown"])
def test_a_session_calls_and_gets_the_result(bundled_model, tmp_path, text) -> None:
    (tmp_path / "marked.jinja").write_text(MARKED)
    known = str(tmp_path / "marked.jinja") if text else None
    with edge.load(threads=1, ctx=1024, template=known) as engine:
        session = engine.session("Be short.")
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Light, please!"}]
        with pytest.raises(UsageError, match="tool_choice"):
            session.chat(messages, tool_choice="required")
        asked: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 120}
        answer = session.chat(messages, tools=[WEATHER, LIGHT], **asked)
        assert answer.content == "" and len(answer.calls) == 1 and answer.finish_reason == "stop"
        check(answer.calls)
        with pytest.raises(EdgeError, match="see calls"):
            _ = answer.value
        said = session.messages[-1]
        assert said["role"] == "assistant" and said["content"] == "" and len(said["tool_calls"]) == 1
        messages += [said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "done"}]
        for tools in ([WEATHER, LIGHT], None):
            answer = session.chat(messages, max_tokens=20, **({"tools": tools} if tools else {}))
            assert answer.text is not None and answer.usage.completion
        with pytest.raises(UsageError, match="tools must be"):
            session.chat(messages, tools=LIGHT)


def test_numbers_of_arguments_are_written_as_the_model_wrote_them(tokenizer, bundled_model) -> None:
    """1e400 is JSON, Infinity is not."""
    form = Functions.of([{"type": "function", "function": {"name": "f"}}], "required").form(
        template(tokenizer, WHOLE, bundled_model), tokenizer)
    arguments = '{"a": 1e400, "b": 1.10, "c": "\u00e9"}'
    (call,) = form.split(f'{{"name": "f", "parameters": {arguments}}}')[1]
    assert call["function"]["arguments"] == arguments
