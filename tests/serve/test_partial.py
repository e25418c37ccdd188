"""Questions that are still being written: the services read them ahead, and every answer is the one without that."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge
from tests.http_service import BOUND, Server, serving
from tests.services import REAL, ROOT, environment

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


def test_the_other_apis_read_ahead(server: Server) -> None:
    """The same key with the same meaning; what they read is known to the whole request."""
    part, whole = system_and(QUESTION[:60]), system_and(QUESTION)
    options = {"temperature": 0, "num_predict": 4}
    body = {"messages": part, "tools": TOOLS, "stream": False, "partial": True, "options": {"num_predict": 0}}
    status, _, found = server.ask("POST", "/api/chat", body)
    assert status == 200 and found["message"]["content"] == "" and found["eval_count"] == 0, found
    assert found["prompt_eval_count"] > len(SYSTEM) // 6
    usage = server.chat(whole, tools=TOOLS)["usage"]
    assert cached(usage) >= found["prompt_eval_count"]
    body = {"messages": whole, "tools": TOOLS, "stream": False, "options": options}
    assert server.ask("POST", "/api/chat", body)[2]["prompt_eval_count"] == usage["prompt_tokens"]

    flat = [{"type": "function", **each["function"]} for each in TOOLS]
    part[-1]["content"], whole[-1]["content"] = f"So. {QUESTION[:60]}", f"So. {QUESTION}"
    body = {"input": part, "tools": flat, "max_output_tokens": 0, "partial": True}
    status, _, found = server.ask("POST", "/v1/responses", body)
    assert status == 200 and found["usage"]["output_tokens"] == 0 < found["usage"]["input_tokens"], found
    assert not any(part["text"] for item in found["output"] for part in item["content"])
    asked = {"input": whole, "tools": flat, "max_output_tokens": 4, "temperature": 0}
    usage = server.ask("POST", "/v1/responses", asked)[2]["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] >= found["usage"]["input_tokens"]
    assert server.ask("POST", "/v1/responses", {"input": whole, "max_output_tokens": 0})[0] == 400


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
    with serving("--no-read-ahead", "--ctx", "512") as server:
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


# ---- JSON lines ------------------------------------------------------------------------------------------------------


class Lines:
    """A running `chat --jsonl`."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*REAL, "chat", "--jsonl", "-m", "demo", "--greedy", "--ctx", "512", *arguments], cwd=ROOT,
            env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, messages: Any, **more: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"op": "chat", "messages": messages, **more}).encode() + b"\n")
        self._process.stdin.flush()

    def events(self, ident: int) -> list[dict[str, Any]]:
        """Up to the last one of a request."""
        found = []
        assert self._process.stdout
        for line in self._process.stdout:
            found.append(json.loads(line))
            assert found[-1]["ev"] != "error", found[-1]
            if found[-1].get("id") == ident and found[-1]["ev"] == "done":
                return found
        raise AssertionError("it ended")

    def ask(self, messages: Any, ident: int) -> str:
        self.send(messages, id=ident, max_tokens=5)
        return "".join(each["text"] for each in self.events(ident) if each["ev"] == "text" and each["id"] == ident)

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def twins() -> Iterator[tuple[Lines, Lines]]:
    """Two of them, in which the context slides."""
    with contextlib.closing(Lines("--system", SYSTEM)) as one, contextlib.closing(Lines("--system", SYSTEM)) as other:
        yield one, other


@given(ACTIONS, st.integers(0, 1 << 30), st.booleans())
@settings(max_examples=15)
def test_answers_in_json_lines_are_those_without(twins: Any, actions: Any, seed: int, waits: bool) -> None:
    said: list[str] = []
    for i, (kind, text) in enumerate(script(actions, seed)):
        messages = system_and(*said, text)[1:]
        if kind == "partial":
            twins[0].send(messages, id=i, partial=True, max_tokens=0)
            if waits:
                events = twins[0].events(i)
                assert [each["ev"] for each in events if each.get("id") == i] == ["done"]
        elif kind == "new":
            said = []
        else:
            answer, same = (each.ask(messages, i) for each in twins)
            assert answer == same
            said = [*said, text, answer] if len(said) < 4 else []


def test_partial_requests_of_json_lines_replace_each_other() -> None:
    with contextlib.closing(Lines("--system", SYSTEM)) as lines:
        message = [{"role": "user", "content": QUESTION}]
        for i in range(1, 4):
            lines.send([{"role": "user", "content": QUESTION[: 20 * i]}], id=i, partial=True, max_tokens=0)
        lines.send(message, id=4, max_tokens=20)
        lines.send(message, id=5, partial=True, max_tokens=0)  # an answer is there: nothing is read
        events = lines.events(4)
        answer = "".join(each["text"] for each in events if each["ev"] == "text")
        events = [each for each in events if each["ev"] == "done"]
        assert sorted(each["id"] for each in events) == [1, 2, 3, 4, 5]
        done = {each["id"]: each for each in events}
        assert [done[i]["finish_reason"] for i in (1, 2, 3)] == ["cancelled"] * 3
        assert done[5]["usage"]["prompt"] == 0
        longer = [*message, {"role": "assistant", "content": answer}, {"role": "user", "content": QUESTION}]
        lines.send(longer, id=6, partial=True, max_tokens=0)
        read = lines.events(6)[-1]["usage"]
        assert read["prompt"] > read["cached"] > 0
        lines.send(longer, id=7, max_tokens=2)
        usage = lines.events(7)[-1]["usage"]
        assert usage["cached"] == read["prompt"] and usage["prompt"] - usage["cached"] <= 8
