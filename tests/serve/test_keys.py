"""Keys of requests (edge/serve/keys.py): every key that OpenAI and Ollama publish, in every object of a request, is
honoured, refused, or named as harmless in docs/serve.md.

``vectors/published_keys.json`` is what tests/vectors/make_published_keys.py reads from the official packages; where
they are installed (.venv-clients), their present keys are walked, too.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.errors import UsageError
from edge.sampling import FIELDS
from edge.serve import keys
from edge.serve.calls import Fields, Refusal, message_of, messages_of
from edge.serve.keys import Keys
from edge.serve.protocols import jsonl, ollama, openai, responses
from edge.session.answer_options import FORMS, UNREAD, check_messages
from tests.services import ROOT

VECTORS = ROOT / "tests" / "vectors"
CLIENTS = ROOT / ".venv-clients" / "bin" / "python"

CALLED = {"role": "assistant", "content": None,
          "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
MESSAGES = [
    {"role": "system", "content": "a"}, {"role": "developer", "content": "b"},
    {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "refusal", "refusal": "d"}]},
    CALLED, {"role": "tool", "tool_call_id": "c", "content": "e"}, {"role": "function", "name": "f", "content": "g"},
]
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CHAT: dict[str, Any] = {"messages": MESSAGES, "tools": TOOLS}
NAMED = {"tool_choice": {"type": "function", "function": {"name": "f"}}}
SOME = {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": TOOLS}}}
FLAT = {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": TOOLS}}
FORMATS: list[dict[str, Any]] = [{"type": "text"}, {"type": "json_object"},
                                 {"type": "json_schema", "json_schema": {"name": "s", "schema": True}}]
INPUT: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"},
                                                         {"type": "refusal", "refusal": "c"}]},
    {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "d"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "e"},
                                                                     {"type": "refusal", "refusal": "f"}]},
]
OLLAMA = [{"role": "user", "content": "a"}, {"role": "tool", "tool_name": "f", "content": "b"},
          {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]
LINES = keys.JSONL._replace(honoured=keys.JSONL.honoured - {"v", "id", "op"})  # these are read before the request is

#: name in the packages -> the table, the function that reads it, and valid requests with all objects that are read
ROUTES: dict[str, tuple[Keys, Callable[[Any], object], list[dict[str, Any]]]] = {
    "openai chat": (keys.CHAT, lambda body: openai.chat(body, {}), [
        {**CHAT, **NAMED, "stream_options": {}, "response_format": FORMATS[0]},
        {**CHAT, **SOME, "response_format": FORMATS[1]}, {**CHAT, **FLAT, "response_format": FORMATS[2]}]),
    "openai completion": (keys.COMPLETION, lambda body: openai.completion(body, {}), [
        {"prompt": "Hi", "stream_options": {}, "response_format": each} for each in FORMATS]),
    "openai responses": (keys.RESPONSES, lambda body: responses.parse(body, {}), [
        {"input": INPUT, "tools": [{"type": "function", **FUNCTION}], "tool_choice": choice, "stream_options": {},
         "text": {"format": form}, "reasoning": {"effort": "low"}}
        for choice in ({"type": "function", "name": "f"}, {"type": "allowed_tools", "mode": "auto", "tools": TOOLS})
        for form in ({"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "name": "s", "schema": True})]),
    "openai embedding": (keys.EMBEDDING, lambda body: openai.embedding(body, 256), [{"input": "Hi"}]),
    "ollama chat": (keys.OLLAMA_CHAT, lambda body: ollama.chat(body, {}), [
        {"messages": OLLAMA, "tools": TOOLS, "options": {}}]),
    "ollama generate": (keys.OLLAMA_GENERATE, lambda body: ollama.generate(body, {}), [
        {"prompt": "Hi", "options": {}}]),
    "ollama embed": (keys.OLLAMA_EMBED, lambda body: ollama.embed(body, 256), [{"input": "Hi"}]),
    "ollama embeddings": (keys.OLLAMA_EMBEDDINGS, ollama.embeddings_of_old, [{"prompt": "Hi"}]),
    "lines": (LINES, lambda body: jsonl.chat(body, {}), [
        {**CHAT, **NAMED}, {**CHAT, **SOME}, {**CHAT, **FLAT}]),
}


def published(name: str) -> dict[str, dict[str, set[str]]]:
    """Place -> type -> the keys of the objects there: those of the file, and of the packages where they are
    installed.
    """
    told = [json.loads((VECTORS / "published_keys.json").read_text())]
    if CLIENTS.exists():
        done = subprocess.run([str(CLIENTS), str(VECTORS / "make_published_keys.py")], capture_output=True, text=True)
        told += [json.loads(done.stdout)] if done.returncode == 0 else []
    found: dict[str, dict[str, set[str]]] = {}
    for each in told:
        for place, kinds in each["keys"].get(name, {}).items():
            for kind, listed in kinds.items():
                found.setdefault(place, {}).setdefault(kind, set()).update(listed.split())
    return found


def objects(table: Keys, body: Any, place: str = "", path: str = "") -> Iterator[tuple[Keys, str, str, dict[str, Any]]]:
    """(table, place, path, object) of a request and of all objects in it that have a table."""
    yield table, place, path, body
    for key, inner in table.inner.items():
        value = body.get(key)
        for i, each in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(each, dict):
                at = f"{path}{key}[{i}]." if isinstance(value, list) else f"{path}{key}."
                yield from objects(inner, each, f"{place}.{key}".lstrip("."), at)


def changed(name: str, sample: dict[str, Any], path: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Read a request in which one object was changed.  Raises Refusal."""
    table, read, _ = ROUTES[name]
    body = copy.deepcopy(sample)
    change(next(each for _, _, at, each in objects(table, body) if at == path))
    read(body)


def places(name: str) -> Iterator[tuple[dict[str, Any], Keys, str, str, dict[str, Any]]]:
    """(request, table, place, path, object) for all objects of the valid requests."""
    for sample in ROUTES[name][2]:
        for found in objects(ROUTES[name][0], sample):
            yield sample, *found


def groups(table: Keys) -> list[frozenset[str]]:
    return [table.honoured, frozenset(table.refused), table.harmless]


@pytest.mark.parametrize("name", ROUTES)
def test_valid_requests_are_read(name: str) -> None:
    for sample in ROUTES[name][2]:
        ROUTES[name][1](sample)


@pytest.mark.parametrize("name", sorted({*ROUTES} - {"lines"}))
def test_every_published_key_of_every_object_has_its_place(name: str) -> None:
    """Objects of a type that no valid request has are refused as a whole; so are those that are the value of a refused
    key, and those of a harmless one have no effect.
    """
    tables = {place: table for _, table, place, _, _ in places(name)}
    walked = published(name)
    assert walked[""] and {place for place in tables if "response_format" not in place} <= set(walked)
    for place, kinds in walked.items():
        if place not in tables:
            parent, _, key = place.rpartition(".")
            assert parent not in tables or key not in tables[parent].honoured, f"{place} is not looked into"
            continue
        known = frozenset().union(*groups(tables[place]))
        assert len(known) == sum(map(len, groups(tables[place]))), f"{place}: a key stands in two groups"
        for kind, listed in kinds.items():
            there = [(sample, path, each) for sample, _, at, path, each in places(name) if at == place]
            if len(kinds) == 1 or kind in (each.get(key) for _, _, each in there for key in ("type", "role")):
                assert not listed - known, f"{place} {kind}: neither honoured, refused nor harmless"
            else:
                sample, path, each = there[0]
                with pytest.raises(Refusal) as refused:
                    changed(name, sample, path, lambda one, kind=kind: (one.clear(), one.update(type=kind)))
                assert (refused.value.param or "").startswith(path.partition(".")[0].partition("[")[0])


@pytest.mark.parametrize("name", ROUTES)
def test_honoured_keys_are_read(name: str) -> None:
    """A value of a wrong type is refused, and the message or the parameter names the key, or the text around it that
    is none.
    """
    unread: dict[tuple[str, str], bool] = {}
    for sample, table, place, path, _ in places(name):
        for key in table.honoured:
            unread.setdefault((place, key), True)
            for value in ({"\ud800": [7]}, -7.5):
                try:
                    changed(name, sample, path, lambda one, key=key, value=value: one.update({key: value}))
                except Refusal as refused:
                    told = f"{refused.param} {refused}"
                    assert refused.status == 400
                    assert key in told and path.partition(".")[0] in told or path and "surrogate" in told, (key, told)
                    unread[place, key] = False
    assert not any(unread.values()), [each for each, still in unread.items() if still]


@pytest.mark.parametrize("name", ROUTES)
def test_refused_keys_are_named_with_the_reason(name: str) -> None:
    for sample, table, _, path, _ in places(name):
        for key, (why, idle) in table.refused.items():
            for value in (True, 7, "x", ["x"], {"x": 1}):
                if value in idle:
                    continue
                with pytest.raises(Refusal) as refused:
                    changed(name, sample, path, lambda one, key=key, value=value: one.update({key: value}))
                assert refused.value.status == 400 and refused.value.param == path + key
                assert f"{path}{key} is not supported: {why}" in str(refused.value)
            for value in (*idle, None, []):
                changed(name, sample, path, lambda one, key=key, value=value: one.update({key: value}))


@pytest.mark.parametrize("name", [each for each in ROUTES if "embed" not in each])
def test_what_one_api_refuses_no_other_ignores(name: str) -> None:
    """In requests (Ollama's options are a part of one), in messages and items, and in their parts; so are the keys
    that set the form, the sampling and the length of an answer elsewhere.
    """
    kinds = {"": "request", "options": "request", "messages": "message", "input": "message",
             "messages.content": "part", "input.content": "part", "input.output": "part"}
    asked = {*FIELDS, *FORMS, "max_tokens", "stop", "tools"}
    refused: dict[str, set[str]] = {"request": asked, "message": set(), "part": set()}
    for each in ROUTES:
        for _, table, place, _, _ in places(each) if "embed" not in each else ():
            refused.get(kinds.get(place, "none"), set()).update(table.refused)
    with pytest.raises(Refusal):  # OpenAI searches then
        changed(name, ROUTES[name][2][0], "", lambda one: one.update(web_search_options={}))
    assert {"logit_bias", "audio", "web_search_options", "context"} < refused["request"] and "images" in refused["part"]
    for sample, table, place, path, _ in places(name):
        for key in refused.get(kinds.get(place, "none"), set()) - table.honoured - table.harmless:
            with pytest.raises(Refusal) as error:
                changed(name, sample, path, lambda one, key=key: one.update({key: {"x": 1}}))
            assert error.value.param == path + key
            for value in (None, "", []):
                changed(name, sample, path, lambda one, key=key, value=value: one.update({key: value}))


@pytest.mark.parametrize("name", ROUTES)
def test_harmless_keys_are_named_in_the_manual(name: str) -> None:
    manual = Path(ROOT, "docs", "serve.md").read_text()
    for sample, table, _, path, _ in places(name):
        for key in table.harmless:
            assert f"`{key}`" in manual, key
            if key != "model":
                changed(name, sample, path, lambda one, key=key: one.update({key: 7}))


def test_unknown_keys_are_ignored() -> None:
    for name in ROUTES:
        for sample, _, _, path, _ in places(name):
            if path:  # kwargs of functions are the model's to read
                changed(name, sample, path, lambda one: one.update(x_new_key={"anything": 1}))


def test_values_that_ask_for_nothing_are_of_their_type() -> None:
    with pytest.raises(Refusal, match="best_of is not supported"):
        keys.COMPLETION.check(Fields({"best_of": True}).body)


def test_messages_in_python_are_judged_alike() -> None:
    for key, why in UNREAD.items():
        said = {"role": "user", "content": "Hi"}
        assert check_messages([{**said, key: None}, {**said, key: []}])
        with pytest.raises(UsageError, match=f"messages have {key}, which is not supported: {why}"):
            check_messages([{**said, key: "x"}])


def test_a_refusal_is_the_text_of_a_message() -> None:
    assert message_of({"role": "assistant", "content": None, "refusal": "No."}, "m")["content"] == "No."


def test_results_have_the_order_of_their_calls() -> None:
    """Templates write no ids: the first result is read as that of the first call."""
    calls = [{"id": each, "function": {"name": "f"}} for each in "ab"]
    results = [{"role": "tool", "tool_call_id": each, "content": each} for each in "ba"]
    for given, wanted in ((results, "ab"), (results[:1], "b"), ([*results, {"role": "tool", "content": "x"}], "abx")):
        found = messages_of([{"role": "assistant", "tool_calls": calls}, *given])
        assert "".join(each["content"] for each in found) == wanted
