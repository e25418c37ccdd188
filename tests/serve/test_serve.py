"""`bitnet-edge serve`: the forms of OpenAI and Ollama, who may ask, limits, streams, and clients that go away."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

import edge
from edge.cli.serve import SPARE
from edge.errors import ContextFull, UsageError
from edge.prompt import interrupt
from edge.prompt.tokenizer import byte_level
from edge.serve import bodies, conversations, exchange
from edge.serve.calls import Call, Refusal
from edge.serve.kiosk import LANGUAGES
from edge.serve.service import Service, Settings
from edge.session.preparing import Preparer
from tests import fakes
from tests.http_service import BOUND, GREEDY, Server, serving
from tests.services import FAKE, REAL, bitnet_edge

QUESTION = "Two teas and a scone, please."
LONG = {"temperature": 0, "max_tokens": 100_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One service for all tests that leave it as it was."""
    settings = ("--set", "queue=2", "--set", "metrics=on")
    with serving("--parallel", "2", *settings, "--ctx", "512", "--name", "guide") as server:
        yield server


@pytest.fixture(scope="module")
def alone() -> Any:
    """The answers of the model when it is asked directly."""
    with edge.load(ctx=512) as engine:
        def say(*questions: str) -> list[str]:
            session, said = engine.session(), []
            for question in questions:
                sampling = edge.Sampling(temperature=0)
                said.append(session.ask(question, max_tokens=16, sampling=sampling).text)
            return said

        yield say


# ---- OpenAI -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["/v1", ""])
def test_models(server: Server, prefix: str) -> None:
    status, _, body = server.ask("GET", f"{prefix}/models")
    assert status == 200 and [each["id"] for each in body["data"]] == ["guide"]
    meta = body["data"][0]["meta"]  # what the page shows
    assert meta["demo"] is True and 5_700_000 < meta["n_params"] < 5_900_000
    assert re.search(r"^guide: demo \(5\.8 M parameters\) answers at http", server.log, re.MULTILINE)
    assert server.ask("GET", f"{prefix}/models/guide")[2]["id"] == "guide"
    status, _, body = server.ask("GET", f"{prefix}/models/other")
    assert status == 404 and body["error"]["code"] == "model_not_found"


def test_an_answer_is_the_one_the_model_gives(server: Server, alone: Any) -> None:
    body = server.chat(QUESTION)
    choice = body["choices"][0]
    assert body["object"] == "chat.completion" and body["model"] == "guide"
    assert choice["message"] == {"role": "assistant", "content": alone(QUESTION)[0]}
    assert choice["finish_reason"] in ("stop", "length") and choice["index"] == 0
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0


def test_a_stream_says_the_same(server: Server) -> None:
    whole = server.chat(QUESTION)["choices"][0]
    events = server.events("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}], **GREEDY})
    assert events.pop() == "[DONE]"
    assert all(len(event["choices"]) == 1 for event in events), "a client dies of an empty list it did not ask for"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == whole["message"]["content"]
    assert [event["choices"][0]["finish_reason"] for event in events][-1] == whole["finish_reason"]
    assert {event["id"] for event in events} == {events[0]["id"]}


def test_contents_may_be_lists(server: Server) -> None:
    parts = [{"type": "text", "text": QUESTION[:8]}, {"type": "text", "text": QUESTION[8:]}]
    assert server.chat([{"role": "user", "content": parts}])["choices"] == server.chat(QUESTION)["choices"]


def test_stop_seed_and_names_of_limits(server: Server) -> None:
    said = server.chat(QUESTION)["choices"][0]["message"]["content"]
    word = said.split()[1]
    for stop in (word, [word]):
        choice = server.chat(QUESTION, stop=stop)["choices"][0]
        assert word not in choice["message"]["content"] and choice["finish_reason"] == "stop"
    assert server.chat(QUESTION, max_tokens=None, max_completion_tokens=2)["usage"]["completion_tokens"] == 2
    warm = {"temperature": 1.5, "seed": 11, "top_p": 1, "max_tokens": 12}
    assert server.chat("Tell me a joke.", **warm)["choices"] == server.chat("Tell me a joke.", **warm)["choices"]


def test_several_choices(server: Server) -> None:
    body = server.chat("Tell me a joke.", n=2, temperature=1.5, seed=5)
    assert [each["index"] for each in body["choices"]] == [0, 1]
    assert body["usage"]["completion_tokens"] > 2
    events = server.events("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "n": 2, **GREEDY})
    assert {event["choices"][0]["index"] for event in events[:-1]} == {0, 1}
    formed = server.chat("Tea?", n=4, guided_choice=["yes", "no"], temperature=3, seed=5)
    assert {each["message"]["content"] for each in formed["choices"]} <= {"yes", "no"}


def test_calls_of_functions_whole_and_streamed(server: Server) -> None:
    parameters = {"type": "object", "properties": {"drink": {"enum": ["tea", "coffee"]}, "cups": {"type": "integer"}},
                  "required": ["drink", "cups"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("order", "cancel")]
    named = {"type": "function", "function": {"name": "cancel"}}
    asked = [{"role": "user", "content": "Two teas, please."}]
    for choice, names in (("required", {"order", "cancel"}), (named, {"cancel"})):
        body = {"messages": asked, "tools": tools, "tool_choice": choice, "temperature": 0, "max_tokens": 100}
        whole = server.chat(**body)["choices"][0]
        assert whole["finish_reason"] == "tool_calls" and whole["message"]["content"] is None
        events = server.events("/v1/chat/completions", body)
        assert events.pop() == "[DONE]"
        deltas = [event["choices"][0]["delta"] for event in events]
        parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
        assert not any(delta.get("content") for delta in deltas), "a call is no text"
        assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
        assert [part["index"] for part in parts] == list(range(len(parts))) != []
        for call, part in zip(whole["message"]["tool_calls"], parts, strict=True):
            assert call["function"] == part["function"] and call["type"] == part["type"] == "function" and part["id"]
            assert call["function"]["name"] in names
            found = json.loads(call["function"]["arguments"])
            assert found["drink"] in ("tea", "coffee") and isinstance(found["cups"], int)
        answered = [*asked, whole["message"], {"role": "tool", "content": "done",
                                               "tool_call_id": whole["message"]["tool_calls"][0]["id"]}]
        body = {"tools": tools, "tool_choice": "none"}
        assert server.chat(answered, **body)["choices"][0]["finish_reason"] in ("stop", "length")


def test_log_probabilities_of_every_choice(server: Server) -> None:
    """Whole and streamed, of each choice its own: the tokens spell the text."""
    body = {"messages": [{"role": "user", "content": "Tell me a joke."}], "n": 2, "seed": 3, "temperature": 1.5,
            "max_tokens": 12, "logprobs": True, "top_logprobs": 2}
    whole = server.chat(**body)["choices"]
    streamed: dict[int, list[Any]] = {0: [], 1: []}
    for event in server.events("/v1/chat/completions", body)[:-1]:
        choice = event["choices"][0]
        streamed[choice["index"]] += (choice["logprobs"] or {"content": []})["content"]
    for choice in whole:
        entries = choice["logprobs"]["content"]
        assert streamed[choice["index"]] == entries
        spelled = b"".join(bytes(entry["bytes"]) for entry in entries).decode()
        assert spelled.strip() == choice["message"]["content"].strip()
        assert all(len(entry["top_logprobs"]) == 2 and entry["logprob"] <= 0 for entry in entries)


def test_raw_completions(server: Server, alone: Any) -> None:
    status, _, body = server.ask("POST", "/v1/completions", {"prompt": "Guest: Hello", **GREEDY})
    assert status == 200 and body["object"] == "text_completion" and body["choices"][0]["text"]
    tokens = server.ask("POST", "/tokenize", {"content": "Guest: Hello"})[2]["tokens"]
    assert server.ask("POST", "/detokenize", {"tokens": tokens})[2]["content"].strip() == "Guest: Hello"
    assert server.ask("POST", "/detokenize", tokens)[0] == 400  # not an object
    echoed = server.ask("POST", "/v1/completions", {"prompt": "Guest: Hello", "echo": True, **GREEDY})[2]
    assert echoed["choices"][0]["text"] == "Guest: Hello" + body["choices"][0]["text"]
    events = server.events("/v1/completions", {"prompt": "Guest: Hello", **GREEDY})
    assert "".join(each["choices"][0]["text"] for each in events[:-1]) == body["choices"][0]["text"]


def test_the_conversation_is_not_read_again(server: Server) -> None:
    first = [{"role": "user", "content": "A large latte with oat milk, please."}]
    other = [{"role": "user", "content": "When do you open on Sunday?"}]
    said = {}
    for name, messages in (("first", first), ("other", other)):  # two at a time, in turns
        said[name] = server.chat(messages)["choices"][0]["message"]
    for name, messages in (("first", first), ("other", other)):
        more = [*messages, said[name], {"role": "user", "content": "And a tea."}]
        body = server.chat(more)
        held = body["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert held > 8 and body["usage"]["prompt_tokens"] - held < 20, body


def test_embeddings(bundled_model: Path) -> None:
    """Any model can be asked, as with `bitnet-edge embed`; that gives the same vectors."""
    texts = ["A tea, please.", "A coffee, please."]
    done = bitnet_edge("embed", *texts)
    wanted = [json.loads(line)["vector"] for line in done.stdout.splitlines()]
    with serving("--embeddings", "--name", "vectors") as server:
        assert server.log.startswith("vectors: demo (5.8 M parameters) answers at ") and server.log.count("\n") == 1
        status, _, body = server.ask("POST", "/v1/embeddings", {"model": "any", "input": texts})
        assert status == 200 and body["model"] == "vectors" and body["usage"]["prompt_tokens"] > 4
        assert [each["embedding"] for each in body["data"]] == wanted
        coded = server.ask("POST", "/v1/embeddings", {"input": texts[0], "encoding_format": "base64"})[2]["data"]
        assert list(struct.unpack("<256f", base64.b64decode(coded[0]["embedding"]))) == wanted[0]
        for ids in ([5, 6, 7], [[5, 6, 7], [8]], ["tea", [5]], [10**6]):  # LangChain's are tiktoken's
            for path in ("/v1/embeddings", "/api/embed"):
                status, _, found = server.ask("POST", path, {"input": ids})
                assert status == 400 and "send text (in LangChain check_embedding_ctx_length=False)" in str(found)
        for wrong, words in (({"input": []}, "0 texts"), ({"input": [1.5]}, "a list of texts"),
                             ({"input": "tea " * 9000}, "the model reads"), ({"input": {}}, "a list of texts"),
                             ({"input": "x", "dimensions": 5}, "256"), ({}, "missing or empty"),
                             ({"input": "x", "encoding_format": "x"}, "base64"), ({"input": "\ud800"}, "surrogate")):
            status, _, found = server.ask("POST", "/v1/embeddings", wrong)
            assert status == 400 and words in found["error"]["message"], found
            assert found["error"]["param"] in (*wrong, "input")
        assert server.ask("GET", "/health")[0] == 200 and server.ask("GET", "/v1/models/vectors")[0] == 200
        for path in ("/api/tags", "/api/ps"):  # Ollama's clients look for the model first
            (listed,) = server.ask("GET", path)[2]["models"]
            assert listed["name"] == "vectors" and listed["digest"] and listed["size"] > 1e6
        shown = server.ask("POST", "/api/show", {"model": "vectors"})[2]
        assert shown["capabilities"] == ["embedding"]
        assert shown["model_info"][f"{shown['details']['family']}.embedding_length"] == 256
        status, _, found = server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        assert status == 400 and found["error"]["code"] == "embeddings_only"


def test_embeddings_have_a_memory_plan(bundled_model: Path) -> None:
    """Before anything is loaded; --ctx is the longest text."""
    done = bitnet_edge("serve", "--embeddings", "--port", "0", "--memory", "20M")
    assert done.returncode == 5 and done.stderr.count("\n") == 1 and "the limit is 20 MB" in done.stderr
    with serving("--embeddings", "-v", "--ctx", "64", "--memory", "500M") as server:
        plan = [line.split()[1:] for line in server.log.splitlines() if line.startswith("plan: ")]
        assert plan[-1][0] == "total" and ["64", "tokens,", "f16"] in [row[3:] for row in plan]
        status, _, found = server.ask("POST", "/v1/embeddings", {"input": "tea " * 65})
        assert status == 400 and "the model reads 64; shorten it, or use a larger --ctx" in found["error"]["message"]
        assert server.ask("POST", "/v1/embeddings", {"input": ["tea " * 60, "tea"]})[0] == 200
        status, _, found = server.ask("POST", "/api/embed", {"input": "tea " * 65, "truncate": True})
        assert status == 200 and found["prompt_eval_count"] == 64


@pytest.mark.parametrize("more", [("--temp", "0"), ("--parallel", "2"), ("--no-think",), ("--state", "x")])
def test_embeddings_refuse_what_is_for_answers(more: tuple[str, ...]) -> None:
    done = bitnet_edge("serve", "--embeddings", "--port", "0", *more)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and f"{more[0].replace('no-', '')} " in done.stderr




# ---- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "param"), [
    ({}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
    ({"messages": [{"role": "system", "content": "x"}, {"role": "developer", "content": "y"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [
        {"function": {"name": "f"}}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": 7}]}, "messages[1].content"),
    ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images"),
    ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
    ({"messages": [{"role": "user", "content": "tea " * 9000}]}, "messages"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"reasoning_effort": "high"}, "reasoning_effort"),
    ({"chat_template_kwargs": {"enable_thinking": True}}, "chat_template_kwargs"),
    ({"guided_choice": [""]}, "guided_choice"),
    ({"guided_choice": ["a"], "choices": ["b"]}, "guided_choice"),
    ({"schema": "x"}, "schema"),
    ({"schema": {"type": "x"}}, "schema"),
    ({"schema": {"type": "integer"}, "response_format": {"type": "json_object"}}, "schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}}, "response_format"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 7}, "top_p"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"stream": "yes"}, "stream"),
    ({"stop": ["a", 1]}, "stop"),
    ({"stop": ["x"] * 100}, "stop"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": "json"}, "response_format"),
    ({"stream_options": 5}, "stream_options"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"choices": []}, "choices"),
    ({"guided_choice": []}, "guided_choice"),
    ({"regex": ""}, "regex"),
    ({"grammar": ""}, "grammar"),
    *(({"response_format": each}, "response_format.type")
      for each in ({}, {"a": 1}, {"type": None}, {"json_schema": {"schema": {"type": "object"}}})),
])
def test_bad_requests_name_what_is_wrong(server: Server, body: dict[str, Any], param: str) -> None:
    if "messages" not in body and body:
        body = {"messages": [{"role": "user", "content": "x"}], **body}
    status, headers, found = server.ask("POST", "/v1/chat/completions", body)
    assert status == 400 and found["error"]["param"] == param, found
    assert found["error"]["type"] == "invalid_request_error" and "\n" not in found["error"]["message"]
    assert headers["x-should-retry"] == "false"


def test_what_is_not_json(server: Server) -> None:
    for data in (b"", b"{", b"[]", b"\xff", b'{"a":NaN}', b"[" * 60_000, b'{"seed":' + b"9" * 5000 + b"}"):
        status, _, body = server.ask("POST", "/v1/chat/completions", data)
        assert status == 400 and "error" in body and "sys." not in body["error"]["message"], (data[:10], body)
    status, _, body = server.ask("POST", "/v1/chat/completions", b" " * (bodies.LIMIT + 1))
    assert status == 413 and str(bodies.LIMIT) in body["error"]["message"]


def raw(server: Server, data: bytes, *more: bytes) -> bytes:
    """Everything that is answered to these bytes, of which each next part is sent after an answer to the one before."""
    with server.socket() as connection:
        connection.sendall(data)
        answer = connection.recv(65536)
        for part in more:
            connection.sendall(part)
            while rest := connection.recv(65536):
                answer += rest
        return answer


@pytest.mark.parametrize("data", [
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",  # answered before its body
    b"HEAD /detokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
])
def test_a_broken_body_after_the_answer_closes_the_connection(server: Server, data: bytes) -> None:
    assert raw(server, data, b"-1\r\n").count(b"HTTP/1.1") == 1
    assert server.ask("GET", "/health")[0] == 200
    assert select.select([server.process.stderr], [], [], 0.2)[0] == [], "nothing is written to the log"


def test_unknown_places_are_json_too(server: Server) -> None:
    for path in ("/v1/threads", "/nothing", "/v1/assistants"):
        status, _, body = server.ask("POST", path, {})
        assert status == 404 and body["error"]["code"] == "not_found"
    status, headers, _ = server.ask("GET", "/v1/chat/completions")
    assert status == 405 and headers["allow"] == "POST"
    status, _, body = server.ask("POST", "/v1/embeddings", {"input": "x"})
    assert status == 400 and body["error"]["code"] == "not_an_embedding_model"


def test_slashes_at_the_end_and_twice(server: Server) -> None:
    """Base URLs are often typed with one."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    for path in ("/v1/chat/completions/", "//v1/chat/completions", "/v1//chat/completions//"):
        assert server.ask("POST", path, body)[0] == 200, path
    for path in ("/v1/models/", "/v1/models/guide/", "/health/", "//", "/api/tags/"):
        assert server.ask("GET", path)[0] == 200, path
    assert isinstance(server.ask("POST", "//api/nothing/", {})[2]["error"], str), "still in the form of that API"


def test_targets_with_the_address_of_the_server(server: Server) -> None:
    """RFC 9112, 3.2.2: a server must accept them, as clients of a proxy send them."""
    for target, status in (("http://localhost/health", 200), ("HTTP://localhost:80/v1/models?x=1", 200),
                           ("http://localhost", 200), ("http://localhost/nothing", 404),
                           ("ftp://localhost/health", 404), ("/http://localhost/health", 404)):
        assert server.ask("GET", target)[0] == status, target
    assert server.ask("GET", "http://localhost/health", headers={"Host": "evil.example"})[0] == 403
    assert "error" in server.ask("POST", "http://localhost/api/chat", {"messages": 5})[2]


def test_bodies_that_are_encoded(server: Server) -> None:
    data = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}).encode()
    for coding, status in (("gzip", 415), ("br", 415), ("deflate, gzip", 415), ("identity", 200)):
        sent = gzip.compress(data) if status == 415 else data
        found, headers, body = server.ask("POST", "/v1/chat/completions", sent, {"Content-Encoding": coding})
        assert found == status, body
        if status == 415:
            assert headers["accept-encoding"] == "identity" and "Content-Encoding" in body["error"]["message"]


def test_names_and_origins(server: Server) -> None:
    host = f"{server.host}:{server.port}"
    for name, status in ((host, 200), ("localhost:8080", 200), ("[::1]:8080", 200), ("evil.example", 403),
                         ("127.0.0.1.evil.example:8080", 403), ("localhost.evil.example", 403)):
        assert server.ask("GET", "/v1/models", headers={"Host": name})[0] == status, name
    for origin, status in ((f"http://{host}", 200), ("http://evil.example", 403), ("null", 403)):
        found, headers, body = server.ask("GET", "/v1/models", headers={"Origin": origin})
        assert found == status and "access-control-allow-origin" not in headers, origin
        assert status == 200 or f"from {origin} to {host} are not allowed" in body["error"]["message"]


def test_keys_and_named_origins() -> None:
    """The key is asked for by all that tells or costs something (ollama#1053, #9114)."""
    arguments = ("--cors", "https://app.example", "--host-name", "Box.example", "--set", "metrics=on", "--ctx", "256")
    with serving(*arguments, BITNET_EDGE_API_KEY="a key") as server:
        right = {"Authorization": "Bearer a key"}
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/api/chat"),
                             ("GET", "/api/tags"), ("GET", "/metrics"), ("POST", "/tokenize"), ("GET", "/nothing")):
            for headers in ({}, {"Authorization": "Bearer a"}, {"Authorization": "Basic YSBrZXk="},
                            {"x-api-key": "secrà"}):
                status, found, body = server.ask(method, path, None, headers)
                assert status == 401 and found["www-authenticate"] == "Bearer" and "a key" not in str(body)
        for headers in (right, {"x-api-key": "a key"}):
            assert server.ask("GET", "/v1/models", headers=headers)[0] == 200
        assert server.ask("GET", "/health")[0] == 200 and server.ask("GET", "/")[0] == 200
        assert server.ask("GET", "/v1/models", headers={**right, "Host": "box.example"})[0] == 200
        status, headers, _ = server.ask("GET", "/v1/models", headers={**right, "Origin": "https://app.example"})
        assert status == 200 and headers["access-control-allow-origin"] == "https://app.example"
        status, headers, _ = server.ask("OPTIONS", "/v1/chat/completions", headers={
            "Origin": "https://app.example", "Access-Control-Request-Headers": "authorization"})
        assert status == 204 and headers["access-control-allow-headers"] == "authorization"


def test_no_door_is_opened_by_mistake() -> None:
    for arguments in (["--host", "0.0.0.0"], ["--host", "::"]):
        done = bitnet_edge("serve", *arguments)
        assert done.returncode == 2 and "--api-key" in done.stderr and "--insecure" in done.stderr


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = bitnet_edge("serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 75 and "--port" in done.stderr


def test_a_model_that_is_refused_ends_the_service() -> None:
    done = bitnet_edge("serve", "--port", "0", "-m", "nothing.gguf")
    assert done.returncode == 3 and done.stderr.count("\n") == 1


# ---- queue, disconnects, health -----------------------------------------------------------------------------------


def endless(server: Server, stream: bool, text: str = "Tell me a story.") -> socket.socket:
    """A request whose answer does not end by itself; the caller closes the connection."""
    body = json.dumps({"messages": [{"role": "user", "content": text}], **LONG, "stream": stream}).encode()
    connection = server.socket()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.slow
def test_silent_connections_do_not_hold_the_service() -> None:
    with serving("--set", "queue=1") as server, contextlib.ExitStack() as held:
        silent = [held.enter_context(server.socket())
                  for _ in range(SPARE + 20)]
        assert server.ask("GET", "/health")[0] in (200, 503)
        deadline = time.monotonic() + BOUND
        while server.ask("GET", "/health")[0] != 200 and time.monotonic() < deadline:
            time.sleep(0.1)  # nobody is called silent before his time
        assert server.ask("GET", "/health")[0] == 200
        silent[SPARE // 2].sendall(b"GET /health HTTP/1.1\r\nHost: local")  # never complete: closed after 10 seconds
        for connection in (silent[0], silent[SPARE // 2]):
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""


@pytest.mark.parametrize("which", ["hard", "soft"])
def test_more_connections_than_files(which: str) -> None:
    """With a hard limit of 64 open files further clients are refused; a soft one is raised."""
    limited = ["sh", "-c", f'ulimit -{"Sn" if which == "soft" else "n"} 64; exec "$@"', "sh", *REAL]
    with serving("--ctx", "256", command=limited) as server, contextlib.ExitStack() as held:
        begun, status = time.monotonic(), 0
        for _ in range(200):
            with contextlib.suppress(ConnectionError):
                held.enter_context(server.socket())
        with contextlib.suppress(ConnectionError):
            status = server.ask("GET", "/health")[0]
        assert time.monotonic() - begun < 10, "it waited until a silent connection was closed"
        assert status == 200 or which == "hard"
        held.close()
        deadline = time.monotonic() + BOUND
        while status != 200 and time.monotonic() < deadline:
            with contextlib.suppress(ConnectionError):
                status = server.ask("GET", "/health")[0]
        assert status == 200 and server.chat("Two teas.")["choices"]
        assert server.process.stderr is not None
        ready, _, _ = select.select([server.process.stderr], [], [], 0)
        log = os.read(server.process.stderr.fileno(), 1 << 16).decode() if ready else ""
        assert (log.count("connections"), log.count("\n")) == ((1, 1) if which == "hard" else (0, 0)), log


def test_many_clients_at_once_get_answers_or_are_asked_to_come_again() -> None:
    """Each writes its whole request at once, and some leave: what has arrived is read before anything is late."""
    rng = random.Random(3)
    body = json.dumps({"messages": [{"role": "user", "content": "Two teas."}], **GREEDY, "max_tokens": 2}).encode()
    request = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
               b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def client(leaves: bool) -> bytes | None:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        try:
            writer.write(request)
            if leaves:
                await asyncio.sleep(rng.random() * 0.2)
                return None
            return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), BOUND)
        finally:
            writer.close()

    async def all_at_once() -> list[bytes | None]:
        return await asyncio.gather(*(client(rng.random() < 0.3) for _ in range(500)))

    with serving("--set", "queue=16") as server:
        heads = [head for head in asyncio.run(all_at_once()) if head is not None]
        statuses = [head.split()[1] for head in heads]
        assert set(statuses) <= {b"200", b"429"} and b"200" in statuses and len(statuses) > 300
        assert all(b"retry-after: " in head.lower() for head in heads if head.split()[1] == b"429")
        server.until(running=0, waiting=0)
        assert server.chat("Two teas.")["choices"]


def test_a_body_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "SECONDS", 0.05)

    async def never() -> Any:
        await asyncio.sleep(BOUND)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-length", b"9")]}
    with pytest.raises(Refusal, match="within 0.05 seconds") as refused:
        asyncio.run(exchange.body_of(Request(scope, never)))
    assert refused.value.status == 408 and exchange.refused(refused.value).headers["connection"] == "close"


def test_long_texts_are_not_tokenized(server: Server) -> None:
    for path, body in (("/tokenize", {"content": "tea " * 70_000}), ("/detokenize", {"tokens": [5] * 270_000})):
        status, _, found = server.ask("POST", path, body)
        assert status == 413 and "the limit is 262144" in found["error"]["message"]


def test_health_and_metrics(server: Server) -> None:
    _, headers, _ = server.ask("POST", "/v1/completions", {"prompt": "hi", **GREEDY})
    assert headers["x-queue-position"] == "0" and float(headers["x-queue-seconds"]) >= 0
    status, _, body = server.ask("GET", "/health")
    assert status == 200 and body["status"] == "ok"
    status, headers, text = server.ask("GET", "/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain")
    names = set(re.findall(r"^(bitnet_edge_\w+) \d+$", text, re.MULTILINE))
    assert len(names) == text.count("# TYPE") == text.count("# HELP") > 8


def test_health_says_when_answers_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step hangs: the probe must not say ok."""
    released = threading.Event()
    monkeypatch.setattr(conversations, "STUCK", 0.05)

    async def scene() -> tuple[str | None, str | None]:
        engine = fakes.engine()
        engine.model.transformer.hook = lambda: released.wait(BOUND)
        calls = conversations.Conversations(engine, 1, 1)
        before = calls.trouble()
        call = await calls.submit(Call(messages=[{"role": "user", "content": "x"}], options={"max_tokens": 3}))
        deadline = time.monotonic() + BOUND
        while (trouble := calls.trouble()) is None and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        released.set()
        assert [batch async for batch in call.batches()]
        assert calls.trouble() is None
        calls.close()
        return before, trouble

    before, trouble = asyncio.run(scene())
    assert before is None and trouble is not None and "made no progress" in trouble


def test_health_prepares_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the program is gone, or a template wants other messages: only one of them ends all answers."""
    service = Service(Settings())
    assert service.trouble() is None
    service.open(fakes.engine())
    try:
        for error, wanted in ((None, None), (UsageError("no system message"), None),
                              (ModuleNotFoundError("regex"), "internal error: ModuleNotFoundError")):
            def fail(*_: Any, error: Exception | None = error, **__: Any) -> None:
                if error is not None:
                    raise error

            monkeypatch.setattr(Preparer, "prepare", fail)
            assert service.trouble() == wanted
    finally:
        service.close()


@pytest.mark.parametrize("overflow", ["stop", "slide"])
def test_a_service_whose_calls_are_long_is_not_ill(monkeypatch: pytest.MonkeyPatch, overflow: str) -> None:
    """While a long prompt is prepared, and at each look where it is encoded at its seat."""
    well: list[bool] = []

    async def scene(engine: Any) -> None:
        calls = conversations.Conversations(engine, 1, 1)

        def look() -> None:
            interrupt.check_interrupted()
            well.append(calls.trouble() is None)

        monkeypatch.setattr(byte_level, "check_interrupted", look)
        try:
            asked = Call(messages=[{"role": "user", "content": "ab" * 60_000}], options={"max_tokens": 1})
            with pytest.raises(ContextFull):
                await calls.submit(asked)
            assert calls.state()["running"] == calls.state()["waiting"] == 0
        finally:
            calls.close()

    with edge.load(ctx=2048, threads=1, overflow=overflow) as engine:
        asyncio.run(scene(engine))
    assert len(well) > 5 and all(well)


def test_an_answer_that_nobody_reads_waits_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: a reader that has stopped reading stops the writer, and after a while ends it."""
    monkeypatch.setattr(conversations, "MOST_UNREAD", 10)

    async def scene() -> tuple[int, int, list[str | None]]:
        engine = fakes.engine()
        calls = conversations.Conversations(engine, 2, 1)
        options = {"max_tokens": 4000, "temperature": 0, "ignore_eos": True}
        call = await calls.submit(Call(messages=[{"role": "user", "content": "x"}], n=2, options=options), patience=0.3)
        batches = call.batches()
        read = len(await batches.__anext__())
        steps = -1
        while steps != engine.model.steps:  # until it waits
            steps = engine.model.steps
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        waited = engine.model.steps - steps  # within its patience it only waits
        while not all(each.job.over for each in call.answers):
            await asyncio.sleep(0.02)
        async for batch in batches:
            read += len(batch)
        calls.close()
        assert engine.scheduler.running == 0
        return read, waited, [each.finish_reason for each in call.answers]

    read, waited, reasons = asyncio.run(scene())
    assert reasons == ["cancelled", "cancelled"] and not waited and read <= 40


def test_loading_is_503_and_a_failed_load_is_said() -> None:
    service = Service(Settings())
    for failure, status in ((None, 503), ("no model", 500)):
        service.failure = failure
        with pytest.raises(Refusal) as refused:
            service.ready()
        assert refused.value.status == status


def test_conversations_survive_a_restart(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "A large latte with oat milk, please."}]
    arguments = ("--ctx", "512", "--state", str(tmp_path / "state"))
    with serving(*arguments) as server:
        messages.append(server.chat(messages)["choices"][0]["message"])
    assert len(list((tmp_path / "state").iterdir())) == 1
    messages.append({"role": "user", "content": "And a tea."})
    with serving(*arguments) as server:
        body = server.chat(messages)
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] > 8
        server.chat("Something else")  # takes the place: the conversation goes to its file
        assert server.chat([*messages, body["choices"][0]["message"], {"role": "user", "content": "Thanks"}])[
            "usage"]["prompt_tokens_details"]["cached_tokens"] > 16


def test_the_folder_of_conversations_is_limited(tmp_path: Path) -> None:
    """Regression: one that was larger than the limit emptied it, and a folder that cannot be written was not said."""
    state = tmp_path / "state"

    def files_after(size: str, *questions: str) -> list[Path]:
        with serving("--parallel", "2", "--state", str(state), "--set", f"state_size={size}") as server:
            for question in questions:
                server.chat(question)
        return sorted(state.iterdir())

    kept = files_after("500k", "Hello", "A tea, please.")
    assert len(kept) == 2 and files_after("500k", "word " * 250) == kept, "what is larger alone is not written"
    os.utime(kept[0], (1, 1))
    assert files_after("150k") == kept[1:], "a smaller limit holds from the start"
    with serving("--parallel", "2", "--state", str(state)) as server:
        server.chat("Hello")
        shutil.rmtree(state)
        for question in ("One", "Two", "Three", "Four"):
            server.chat(question)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(BOUND) == 143
        assert server.process.stderr is not None
        (line,) = server.process.stderr.read().splitlines()
        assert line.startswith("bitnet-edge: answers go on, but are not kept: cannot write ") and "not exist" in line


def test_a_signal_ends_answers_and_refuses_what_waits(tmp_path: Path) -> None:
    """Regression: answers went on for five seconds, and then broke off: 500 in plain text, streams without an end."""
    chat, messages = "/v1/chat/completions", [{"role": "user", "content": QUESTION}]
    whole, streamed = {"messages": messages, **LONG}, {"messages": messages, **LONG, "stream": True}
    asked = [(chat, whole), (chat, streamed), ("/v1/responses", {"input": QUESTION, "stream": True}),
             ("/api/chat", {"messages": messages, "options": {"num_predict": -1}})]
    state = ("--state", str(tmp_path / "state"))
    fake = {"FAKE_DELAY": "0.02", "FAKE_SCRIPT": json.dumps([[".", "all work and no play " * 999]])}
    with serving("--parallel", "4", *state, command=FAKE, **fake) as server, contextlib.ExitStack() as held:
        def begin(path: str, body: Any, **promised: str) -> socket.socket:
            data = json.dumps(body).encode()
            head = {"Host": "localhost", "Content-Length": str(len(data)), **promised}
            connection = held.enter_context(server.socket())
            connection.sendall(f"POST {path} HTTP/1.1\r\n".encode()
                               + "".join(f"{name}: {value}\r\n" for name, value in head.items()).encode()
                               + b"\r\n" + data)
            return connection

        running = [begin(*each) for each in asked]
        server.until(running=4)
        waiting = [begin(chat, whole), begin(chat, streamed),
                   begin("/api/chat", {"messages": messages, "stream": False})]
        server.until(waiting=3)
        late = begin(chat, whole, **{"Content-Length": "4000"})  # the rest never comes
        server.until(waiting=3)
        server.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        heads, bodies = zip(*(rest(each).split(b"\r\n\r\n", 1) for each in (*running, *waiting)))
        assert time.monotonic() - begun < 60, "it waits for the answers no longer"
        statuses = [int(head.split()[1]) for head in heads]
        assert statuses == [200, 200, 200, 200, 503, 200, 503], heads
        answer = json.loads(bodies[0])
        assert answer["timings"]["ended"] == "cancelled" and answer["choices"][0]["message"]["content"]
        assert answer["choices"][0]["finish_reason"] == "length", "it was cut off"
        assert bodies[1].count(b'"finish_reason":"length"') == 1 and b"data: [DONE]\n\n" in bodies[1]
        assert b"event: response.incomplete\n" in bodies[2], bodies[2]
        assert b'"done":true,"done_reason":"length"' in bodies[3]
        assert json.loads(bodies[4])["error"]["code"] == "shutting_down" and b"retry-after: " in heads[4].lower()
        assert b'"code":"shutting_down"' in bodies[5] and "stopping" in json.loads(bodies[6])["error"]
        head, body = rest(late).split(b"\r\n\r\n", 1)
        assert b" 503 " in head and json.loads(body)["error"]["code"] == "shutting_down"
        assert server.process.wait(BOUND) == 143


def rest(connection: socket.socket) -> bytes:
    """Everything that comes until the connection is closed."""
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


# ---- Ollama, the page ---------------------------------------------------------------------------------------------


def test_ollama(server: Server) -> None:
    told = server.ask("GET", "/api/version")[2]
    assert told["bitnet-edge"] == edge.__version__
    version = [int(part) for part in told["version"].split(".")]
    for demanded in ([0, 6, 4], [0, 6, 5], [0, 13, 4]):  # Copilot in VS Code, Continue, Codex
        assert version >= demanded
    assert version < [0, 14]  # from there clients send Anthropic's /v1/messages
    model = server.ask("GET", "/api/tags")[2]["models"][0]
    assert model["name"] == "guide" and model["details"]["parameter_size"] == "5.8M"
    assert model["details"]["quantization_level"] == "I2_S"  # of the weights, not of the KV cache
    shown = server.ask("POST", "/api/show", {"model": "guide"})[2]
    assert shown["model_info"]["general.architecture"] and "completion" in shown["capabilities"]
    options = {"temperature": 0, "num_predict": 16}
    messages = [{"role": "user", "content": QUESTION}]
    body = server.ask("POST", "/api/chat", {"messages": messages, "options": options, "stream": False, "tools": []})[2]
    wanted = server.chat(QUESTION)["choices"][0]["message"]["content"]
    assert body["message"]["content"] == wanted and body["done"] and body["eval_count"] > 0
    status, headers, text = server.ask("POST", "/api/chat", {"messages": messages, "options": options})
    lines = [json.loads(line) for line in text.splitlines()]
    assert headers["content-type"] == "application/x-ndjson"
    assert "".join(line["message"]["content"] for line in lines) == wanted
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    made = server.ask("POST", "/api/generate", {"prompt": QUESTION, "options": options, "stream": False})[2]
    assert made["response"] == wanted
    assert server.ask("POST", "/api/generate", {"model": "guide"})[2]["done_reason"] == "load"
    large = {"messages": messages, "options": {**options, "num_ctx": 100_000}, "stream": False}  # Home Assistant's
    assert server.ask("POST", "/api/chat", large)[2]["message"]["content"] == wanted  # it gets what there is
    assert shown["parameters"] == "num_ctx 512"
    assert shown["model_info"][f"{shown['details']['family']}.context_length"] == 512
    running = server.ask("GET", "/api/ps")[2]["models"]
    assert [each["context_length"] for each in running] == [512] and running[0]["name"] == "guide"
    assert isinstance(server.ask("POST", "/api/nothing", {})[2]["error"], str)


def test_ollamas_calls_have_ids_and_places(server: Server) -> None:
    """Since 0.12.10; whole, streamed, and sent back with their results in another order."""
    parameters = {"type": "object", "properties": {"drink": {"enum": ["tea", "coffee"]}}, "required": ["drink"]}
    tools = [{"type": "function", "function": {"name": "order", "parameters": parameters}}]
    asked = [{"role": "user", "content": "A tea and a coffee, please."}]
    body = {"messages": asked, "tools": tools, "tool_choice": "required", "options": {"temperature": 0}}
    whole = server.ask("POST", "/api/chat", {**body, "stream": False})[2]["message"]
    lines = [json.loads(line)["message"] for line in server.ask("POST", "/api/chat", body)[2].splitlines()]
    streamed = [call for line in lines for call in line.get("tool_calls", ())]
    for calls in (whole["tool_calls"], streamed):
        assert [call["function"]["index"] for call in calls] == list(range(len(calls))) != []
        assert len({call["id"] for call in calls if re.fullmatch(r"call_\w+", call["id"])}) == len(calls)
        assert all(call["function"]["arguments"]["drink"] in ("tea", "coffee") for call in calls)
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in reversed(streamed)]
    again = {**body, "messages": [*asked, {**whole, "tool_calls": streamed}, *results], "tool_choice": "none"}
    assert server.ask("POST", "/api/chat", {**again, "stream": False})[0] == 200


def test_ollamas_options_may_stand_beside_options(server: Server) -> None:
    """Some clients send them there (ollama-ai-provider-v2); those in options win."""
    def said(**keys: Any) -> tuple[str, int]:
        body = {"messages": [{"role": "user", "content": QUESTION}], "stream": False, **keys}
        status, _, found = server.ask("POST", "/api/chat", body)
        assert status == 200, found
        return found["message"]["content"], found["eval_count"]

    wild = {"temperature": 3.0, "top_p": 1.0, "seed": 7}
    wanted = said(options={**wild, "num_predict": 12})
    assert wanted != said(options={"temperature": 0, "num_predict": 12})
    for most in ("num_predict", "max_tokens", "max_output_tokens"):
        assert said(**wild, **{most: 12}) == wanted
    assert said(temperature=0, max_tokens=99, options={**wild, "num_predict": 12}) == wanted
    word = wanted[0].split()[1]
    assert word not in said(**wild, stop=[word], options={"num_predict": 12})[0]
    for where in ({"temperature": 9}, {"options": {"temperature": 9}}):
        status, _, body = server.ask("POST", "/api/chat", {"messages": [{"role": "user", "content": "Hi"}], **where})
        assert status == 400 and body["error"].startswith("temperature is 9; it must be")


def test_the_root_is_a_page_for_browsers_and_ollama_for_programs(server: Server) -> None:
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    for accept in (None, "*/*", "application/json", "text/plain"):
        for method in ("GET", "HEAD"):
            status, headers, text = server.ask(method, "/", None, {} if accept is None else {"Accept": accept})
            assert status == 200 and headers["content-type"].startswith("text/plain") and headers["vary"] == "Accept"
            assert headers["content-length"] == "17" and text == ("Ollama is running" if method == "GET" else "")
    status, headers, text = server.ask("GET", "/", None, {"Accept": browser})
    assert status == 200 and headers["content-type"].startswith("text/html") and headers["vary"] == "Accept"
    assert text.startswith("<!doctype html>")


def test_ollamas_times_are_those_of_the_file_and_of_the_answer(server: Server, bundled_model: Path) -> None:
    told = [server.ask("GET", "/api/tags")[2]["models"][0]["modified_at"] for _ in range(2)]
    told.append(server.ask("POST", "/api/show", {"model": "guide"})[2]["modified_at"])
    modified = [datetime.fromisoformat(each.replace("Z", "+00:00")).timestamp() for each in told]
    assert modified == pytest.approx([os.path.getmtime(bundled_model)] * 3, abs=1e-3)
    body = {"prompt": "Hi", "stream": False, "options": {"num_predict": 1}}
    found = server.ask("POST", "/api/generate", body)[2]
    spent = [found[f"{name}_duration"] for name in ("load", "prompt_eval", "eval")]
    assert spent[0] == 0 and 0 < sum(spent) <= found["total_duration"]


def test_the_one_model_answers_to_any_name_and_says_its_own(server: Server) -> None:
    """All APIs alike: only who asks for the model itself must name it."""
    paths = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/responses": "input",
             "/api/chat": "messages", "/api/generate": "prompt"}
    for path, key in paths.items():
        asked = [{"role": "user", "content": "Hi"}] if key == "messages" else "Hi"
        few = {"max_output_tokens": 2} if key == "input" else {"max_tokens": 2}
        few = {"options": {"num_predict": 2}} if path.startswith("/api") else few
        for name in ("guide", "gpt-4o", None):
            status, _, body = server.ask("POST", path, {key: asked, "model": name, "stream": False, **few})
            assert status == 200 and body["model"] == "guide", (path, name, body)
        assert server.ask("POST", path, {key: asked, "model": 5})[0] == 400
    for path in ("/api/chat", "/api/generate"):  # to load it
        assert server.ask("POST", path, {"model": "llama3", "messages": []})[2]["model"] == "guide"
    for name, wanted in (("guide", 200), ("guide:latest", 200), ("gpt-4o", 404), ("guide:1b", 404), ("", 400)):
        status, _, shown = server.ask("POST", "/api/show", {"model": name})
        assert status == wanted == server.ask("POST", "/api/show", {"name": name})[0], shown
        if name:
            assert server.ask("GET", f"/v1/models/{name}")[0] == wanted
    shown = server.ask("POST", "/api/show", {"model": "guide"})[2]
    assert "tools" in shown["capabilities"], "calls work with every template"


@pytest.mark.parametrize("refuses", ["", "{{ raise_exception('no system messages') }}"])
def test_functions_are_described_where_the_template_writes_no_system_message(tmp_path: Path, refuses: str) -> None:
    """/api/show says "tools", so the model must hear of them."""
    file, body = tmp_path / "t.jinja", "{{ m['role'] + ': ' + m['content'] }}\n"
    file.write_text("{% for m in messages %}{% if m['role'] == 'system' %}" + refuses + "{% else %}" + body
                    + "{% endif %}{% endfor %}assistant: ")
    function = {"name": "order", "description": "tea " * 50, "parameters": {"type": "object"}}
    with serving("--set", f"template={file}", "--ctx", "512", "--name", "guide") as server:
        assert "tools" in server.ask("POST", "/api/show", {"model": "guide"})[2]["capabilities"]
        alone = server.chat("Tea.")["usage"]["prompt_tokens"]
        told = server.chat("Tea.", tools=[{"type": "function", "function": function}], tool_choice="required")
        assert told["usage"]["prompt_tokens"] > alone + 50


def test_why_an_answer_ended(server: Server) -> None:
    """OpenAI's word and our own, whole and streamed: the page tells visitors the second."""
    question = [{"role": "user", "content": QUESTION}]
    for keys, words in (({}, ("stop", "stop")), ({"max_tokens": 3}, ("length", "length")),
                        ({"ignore_eos": True, "max_tokens": 5000}, ("length", "context_full"))):
        whole = server.chat(question, **keys)
        text = server.ask("POST", "/v1/chat/completions", {"messages": question, "stream": True, "temperature": 0,
                                                           "stream_options": {"include_usage": True}, **keys})[2]
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        assert events[-1]["choices"] == [] and events[-1]["usage"] | {"prompt_tokens_details": 0} == whole["usage"] | {
            "prompt_tokens_details": 0} and events[-1]["timings"]["cached_tokens"] >= 0
        for reason, timings in ((whole["choices"][0]["finish_reason"], whole["timings"]),
                                (events[-2]["choices"][0]["finish_reason"], events[-1]["timings"])):
            assert (reason, timings["ended"]) == words


def test_the_page_is_small_and_asks_nobody_else(server: Server) -> None:
    status, headers, text = server.ask("GET", "/", None, {"Accept": "text/html"})
    policy = headers["content-security-policy"]
    assert status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
    files, seen = {"": text}, [text]
    while seen:
        for name in re.findall(r"""(?:page|\.)/([\w.]+\.(?:js|css))""", seen.pop()):
            if name not in files:
                status, headers, found = server.ask("GET", f"/page/{name}")
                assert status == 200 and headers["x-content-type-options"] == "nosniff"
                files[name] = found
                seen.append(found)
    assert {"style.css", "main.js", "home.js", "kiosk.js", "talk.js", "markdown.js"} <= set(files)
    words = re.search(r"LANGUAGES = \{ en: .*?\}, (.*) \};", files["words.js"])
    assert words and ("en", *words[1].split(", ")) == LANGUAGES
    for found in files.values():
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)[\w.]", found)
        assert "innerHTML" not in found and "insertAdjacentHTML" not in found
    assert sum(len(zlib.compress(each.encode())) for each in files.values()) < 60_000
    for name in ("none.js", "__init__.py", "..%2fapp.py", "index.html"):
        assert server.ask("GET", f"/page/{name}")[0] == 404
