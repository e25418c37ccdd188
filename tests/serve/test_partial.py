"""Questions that are still being written: the services read them ahead, and every answer is the one without that."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge
from tests.http_service import BOUND, Server, serving

SYSTEM = "You sell tickets, coffee and umbrellas at the harbour, and you answer politely and briefly. " * 3
QUESTION = "Where is the lift, and what does a ticket to the island cost for two adults and a child?"
WORDS = "where is the lift and what does a ticket cost for two adults, please 3.5 don't, ünï 你好".split()
PATH = "/v1/chat/completions"

#: what a visitor does with the text: writes words, erases characters, sends what is there to be read, or asks
ACTIONS = st.lists(st.tuples(st.sampled_from(["write", "erase", "partial", "new", "ask"]), st.integers(1, 12)),
                   min_size=1, max_size=12)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--parallel", "2", "--ctx", "512", "--system", SYSTEM) as server:
        yield server


@pytest.fixture(scope="module")
def engine() -> Any:
    with edge.load(ctx=512, overflow="stop") as engine:
        yield engine


def system_and(*texts: str) -> list[dict[str, str]]:
    """A conversation: the system prompt, then questions and answers in turn."""
    roles = ("user", "assistant") * len(texts)
    talk = [{"role": role, "content": text} for role, text in zip(roles, texts)]
    return [{"role": "system", "content": SYSTEM}, *talk]


def partial(server: Server, messages: Any, **more: Any) -> dict[str, Any]:
    """The usage of a partial request."""
    body = server.chat(messages, **{"max_tokens": 0, "partial": True, **more})
    choice = body["choices"][0]
    assert choice["message"]["content"] == "" and body["usage"]["completion_tokens"] == 0
    return body["usage"]


def cached(usage: dict[str, Any]) -> int:
    return usage["prompt_tokens_details"]["cached_tokens"]


def script(actions: list[tuple[str, int]], seed: int) -> Iterator[tuple[str, str]]:
    """("partial", text), ("new", "") and ("ask", text) in turn; the last one asks."""
    text = ""
    for kind, n in [*actions, ("write", 1), ("ask", 1)]:
        if kind == "write":
            text += " ".join(WORDS[(seed + n + i) % len(WORDS)] for i in range(n)) + " " * (n % 2)
        elif kind == "erase":
            text = text[: -n * 3]
        elif kind != "ask" or text.strip():
            yield kind, text
            text = text if kind == "partial" else ""


# ---- HTTP ------------------------------------------------------------------------------------------------------------


def test_only_the_end_is_read_after_partial_requests(server: Server) -> None:
    held, read = 0, 0
    for n in range(0, len(QUESTION) + 1, 7):
        usage = partial(server, QUESTION[:n])
        assert usage["prompt_tokens"] >= held and cached(usage) >= held
        held, read = usage["prompt_tokens"], read + usage["prompt_tokens"] - cached(usage)
    assert read > 10
    usage = server.chat(QUESTION)["usage"]
    assert cached(usage) >= held and usage["prompt_tokens"] - cached(usage) <= 8


@given(ACTIONS, st.integers(0, 1 << 30))
@settings(max_examples=15)
def test_answers_over_http_are_those_of_a_fresh_service(server: Server, engine: Any, actions: Any, seed: int) -> None:
    """However partial requests, edits and new conversations come before it; numbers and all."""
    said: list[str] = []
    for kind, text in script(actions, seed):
        if kind == "partial":
            partial(server, system_and(*said, text))
        elif kind == "new":
            said = []
        else:
            body = server.chat(system_and(*said, text), max_tokens=5, logprobs=True, top_logprobs=1)
            fresh = engine.session().chat(system_and(*said, text), max_tokens=5, temperature=0, logprobs=1)
            assert body["choices"][0]["message"]["content"] == fresh.text
            assert [each["logprob"] for each in body["choices"][0]["logprobs"]["content"]] == [
                each.logprob for each in fresh.logprobs]
            said = [*said, text, fresh.text] if len(said) < 4 else []


@pytest.mark.parametrize("more,words", [
    ({"max_tokens": 5}, "needs max_tokens 0"), ({"n": 2}, "cannot be combined with n"),
    ({"logprobs": True}, "cannot be combined with logprobs"), ({"partial": 1}, "not true or false"),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, "message of the user"),
])
def test_what_partial_cannot_have_is_refused(server: Server, more: dict[str, Any], words: str) -> None:
    body = {"messages": [{"role": "user", "content": "Where is the"}], "max_tokens": 0, "partial": True, **more}
    status, _, found = server.ask("POST", PATH, body)
    assert status == 400 and found["error"]["param"] == "partial", found
    assert words in found["error"]["message"] and "\n" not in found["error"]["message"]
    for path, prompt in (("/v1/completions", {"prompt": "x"}), ("/api/chat", {"messages": body["messages"]}),
                         ("/api/generate", {"prompt": "x"}), ("/v1/responses", {"input": "x"})):
        status, _, found = server.ask("POST", path, {**prompt, "partial": True})
        assert status == 400 and "partial" in str(found["error"])


TOOLS = [{"type": "function", "function": {"name": "order", "description": "Order a drink", "parameters": {
    "type": "object", "properties": {"drink": {"enum": ["tea", "coffee"]}}, "required": ["drink"]}}}]
OBJECT = {"type": "object", "properties": {"drink": {"enum": ["tea", "coffee"]}}, "required": ["drink"]}


@pytest.mark.parametrize("more", [
    {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "required"}, {"tools": TOOLS, "tool_choice": "none"},
    {"tools": TOOLS, "choices": ["yes", "no"]}, {"choices": ["yes", "no"]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "drink", "schema": OBJECT}}},
])
def test_functions_and_forms_change_nothing(server: Server, more: dict[str, Any]) -> None:
    """A client sends what it will send, and ``partial``; the answer is the one without that."""
    more = {**more, "max_tokens": 12}
    for seed in range(3):
        messages = system_and(f"Number {len(str(more))}, {seed}. {QUESTION} Tell me {seed}.")
        part = [*messages[:-1], {"role": "user", "content": messages[-1]["content"][:-8]}]
        held = partial(server, part, **{**more, "max_tokens": 0})["prompt_tokens"]
        body = server.chat(messages, **more)
        assert held > len(SYSTEM) // 6 and cached(body["usage"]) >= held
        server.chat("Another conversation.")
        server.chat("And another one.")
        again = server.chat(messages, **more)
        for each in (body, again):
            for call in each["choices"][0]["message"].get("tool_calls", ()):
                del call["id"]
        assert body["choices"] == again["choices"]


def test_it_never_runs_together_with_answers(server: Server) -> None:
    """While one is written, nothing is read and nobody waits."""
    asked = {"messages": [{"role": "user", "content": "A long story."}], "max_tokens": 100_000, "ignore_eos": True,
             "stream": True}
    connection = server.connect()
    connection.request("POST", PATH, json.dumps(asked), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.read(10)
    before = server.until(running=1)
    assert partial(server, QUESTION)["prompt_tokens"] == 0
    connection.close()
    answer.close()
    after = server.until(running=0)
    assert partial(server, QUESTION)["prompt_tokens"] > 0
    assert after["cancelled"] == before["cancelled"] + 1 and server.ask("GET", "/health")[2]["refused"] == 0


def test_a_whole_request_ends_a_partial_one(server: Server) -> None:
    """Within a step, and it goes on from where that one has come, although another context is free."""
    messages = system_and("word " * 330, "Yes.", "Why")
    found: list[dict[str, Any]] = []
    for _ in range(20):
        reading = threading.Thread(target=lambda: found.append(partial(server, messages)))
        reading.start()
        time.sleep(0.01)
        body = server.chat(messages, max_tokens=1)
        reading.join(BOUND)
        first, usage = found[-1], body["usage"]
        assert cached(usage) >= first["prompt_tokens"]
        if 0 < first["prompt_tokens"] < usage["prompt_tokens"] - 32:
            return
        messages[1] = {"role": "user", "content": f"{len(found)} " + messages[1]["content"]}
    raise AssertionError("none was ended")


def test_it_can_be_turned_off() -> None:
    with serving("--set", "read_ahead=off", "--ctx", "512") as server:
        assert partial(server, QUESTION)["prompt_tokens"] == 0
        usage = server.chat(QUESTION)["usage"]  # the first tokens of every prompt were read at the start
        assert cached(usage) <= 4 < usage["prompt_tokens"]


def test_what_was_never_asked_is_in_no_file(tmp_path: Any) -> None:
    """Of the conversation that leaves the context only what was said is stored."""
    with serving("--ctx", "512", "--state", str(tmp_path)) as server:
        first = server.chat(system_and("Two teas."))["choices"][0]["message"]["content"]
        talk = system_and("Two teas.", first)
        held = partial(server, [*talk, {"role": "user", "content": ""}])["prompt_tokens"]
        assert partial(server, [*talk, {"role": "user", "content": QUESTION}])["prompt_tokens"] > held + 10
        server.chat("Another conversation.")
    with serving("--ctx", "512", "--state", str(tmp_path)) as server:
        usage = server.chat([*talk, {"role": "user", "content": QUESTION}])["usage"]
        assert 0 < cached(usage) <= held
