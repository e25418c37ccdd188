"""Complaints of users about other servers of this kind: each is a test, named after it.

Where a complaint comes from is in its docstring.  The forms of the protocols are in tests/serve/test_serve.py.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edge.serve import bodies, exchange
from tests.http_service import BOUND, GREEDY, Server, serving

LONG = {"temperature": 0, "max_tokens": 100_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--ctx", "512", "--set", "queue=2", "--set", "metrics=on") as server:
        yield server


@pytest.fixture(scope="module")
def sliding() -> Iterator[Server]:
    """One whose answers need not end."""
    with serving("--ctx", "4096", "--set", "overflow=slide", "--set", "queue=4", "--set", "metrics=on") as server:
        yield server


@contextlib.contextmanager
def asked(server: Server, content: str, **more: Any) -> Iterator[socket.socket]:
    """A connection on which a chat was asked for."""
    body = json.dumps({"messages": [{"role": "user", "content": content}], **more}).encode()
    with server.socket() as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        yield connection


def reset(connection: socket.socket) -> None:
    """Hang up without a word, as a client that was killed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("leave", [reset, socket.socket.close])
@pytest.mark.parametrize("stream", [True, False])
def test_1_generation_goes_on_after_a_disconnect_also_queued_and_in_prefill(
    sliding: Server, stream: bool, leave: Callable[[socket.socket], None]
) -> None:
    """llama.cpp#24496, #13262, ik_llama.cpp#1020."""
    before = sliding.until(running=0, waiting=0)
    with asked(sliding, "Tell me a story.", stream=stream, **LONG) as answering:
        sliding.until(running=1)
        with asked(sliding, "Hello", stream=stream, **LONG) as queued:
            sliding.until(running=1, waiting=1)
            leave(queued)
            sliding.until(running=1, waiting=0)
        leave(answering)
        sliding.until(running=0)
    with asked(sliding, "tea and cake " * 1200, stream=stream, **LONG) as reading:  # 3000 tokens of prompt
        sliding.until(running=1)
        leave(reading)
        state = sliding.until(running=0)
    assert state["cancelled"] - before["cancelled"] == 3 and state["served"] == before["served"]
    assert state["failed"] == 0


def test_2_requests_are_part_of_the_plan_too(sliding: Server) -> None:
    """Whoever sends large requests and waits holds memory: together at most what is planned."""
    part = b"{" + b" " * (bodies.LIMIT - 1000)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (len(part) + 100)
    held: list[socket.socket] = []
    status = 400
    deadline = time.monotonic() + BOUND
    try:
        while status == 400:  # until all of it has arrived
            if not held or select.select(held, [], [], 0)[0]:  # one was answered: it met a small one at the limit
                for connection in held:
                    connection.close()
                held = []
                for _ in range(exchange.BODIES_LIMIT // len(part)):
                    held.append(sliding.socket())
                    held[-1].sendall(head + part)
            status, headers, body = sliding.ask("POST", "/v1/chat/completions", b" " * 100_000)
            assert time.monotonic() < deadline, body
            time.sleep(0.05)
        assert status == 503 and headers["retry-after"] and "try again" in body["error"]["message"]
    finally:
        for connection in held:
            connection.close()
    deadline = time.monotonic() + BOUND
    while sliding.ask("POST", "/v1/chat/completions", b" " * 100_000)[0] != 400:  # their room is free again
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_3_silent_truncation_with_200(server: Server) -> None:
    """ollama#4967, #3839: 400, with the counts."""
    for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "tea and cake " * 600}]}),
                       ("/v1/completions", {"prompt": "tea and cake " * 600})):
        for stream in (False, True):
            status, _, found = server.ask("POST", path, {**body, "stream": stream})
            assert status == 400 and found["error"]["code"] == "context_length_exceeded"
            assert re.search(r"has \d{4} tokens, the context 512", found["error"]["message"])
    status, _, found = server.ask("POST", "/api/chat", {"messages": [{"role": "user", "content": "tea " * 2000}]})
    assert status == 400 and ", the context 512" in found["error"]


@pytest.mark.parametrize("schema", [
    {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},  # cannot be obeyed
    {"type": "strin"},
    {"$ref": "#/nowhere"},
    {"$ref": "https://example.org/schema.json"},
    {"type": "string", "pattern": "(("},
    {"type": "object", "properties": 7},
])
@pytest.mark.parametrize("stream", [False, True])
def test_5_schemas_that_fail_open_or_as_500(server: Server, schema: Any, stream: bool) -> None:
    """llama.cpp#19051, #24097: an answer that ignores the schema; #17574: 500, which clients try again."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    status, headers, found = server.ask("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "x"}], "response_format": form, "stream": stream, **GREEDY})
    assert status == 400 and headers["x-should-retry"] == "false", found
    assert found["error"]["type"] == "invalid_request_error" and "\n" not in found["error"]["message"]
    status, _, found = server.ask("POST", "/api/chat", {
        "messages": [{"role": "user", "content": "x"}], "format": schema, "stream": stream})
    assert status == 400 and isinstance(found["error"], str)


def test_6_unbounded_queues(sliding: Server) -> None:
    """ollama#7758: 429 with Retry-After, and the place in the queue."""
    sliding.until(running=0, waiting=0)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(asked(sliding, f"Story {i}", stream=True, **LONG)) for i in range(5)]
        sliding.until(running=1, waiting=4)
        status, headers, found = sliding.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "x"}]})
        assert status == 429 and 1 <= int(headers["retry-after"]) <= 120
        assert found["error"]["type"] == "rate_limit_error"
        places = set()
        for connection in waiting:
            with connection.makefile("rb") as head:
                assert head.readline() == b"HTTP/1.1 200 OK\r\n"
                fields = dict(line.decode().strip().split(": ", 1) for line in iter(head.readline, b"\r\n"))
            places.add(int(fields["x-queue-position"]))
            assert float(fields["x-queue-seconds"]) >= 0
        assert places <= {0, 1, 2, 3} and 3 in places
    sliding.until(running=0, waiting=0)
