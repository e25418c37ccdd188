"""Random requests, most of them wrong, to every route of `bitnet-edge serve`: with a model, and with embeddings.

A request is a valid one of its route, of which some fields, header lines, the path, the method or the bytes of the body
are replaced.  It is sent at once, in pieces, several on one connection, or not to its end.  Allowed is an answer, or an
error below 500 (or 503: too many requests), in valid HTTP and JSON, within PATIENCE.  At the end the service must give
the answers that it gave at first, hold no more files, threads and memory than after the first requests, and must have
written nothing to standard error.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.at_once import at_once
from tests.http_service import Server, serving

PATIENCE = 120.0  # seconds for one connection
CLIENTS = 8
POOL = 8  # threads that the event loop keeps for blocking calls, made as they are needed
FIRST = 0.3  # share of the time after which what is held is measured
GROWTH = 24 << 20  # bytes more at the end: conversations that are kept, fragments
SAID = [{"role": "user", "content": "Two teas, please."}]
FUNCTION: dict[str, Any] = {"type": "function", "function": {
    "name": "order", "description": "Order a drink", "parameters": {
        "type": "object", "properties": {"drink": {"enum": ["tea", "coffee"]}}, "required": ["drink"]}}}
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 3, "repeat_penalty": 1.1,
            "repeat_last_n": 8, "presence_penalty": 0.1, "frequency_penalty": 0.1}
COMMON = {**SAMPLING, "model": "any", "max_tokens": 8, "max_completion_tokens": 8, "stop": ["tea"], "ignore_eos": False,
          "logit_bias": {}, "stream": False, "stream_options": {"include_usage": True}, "user": "guest", "n": 1,
          "session_id": "guest", "prompt_cache_key": "guest", "response_format": {"type": "json_object"},
          "grammar": 'start: "yes" | "no"', "regex": "yes|no", "choices": ["yes", "no"], "guided_choice": ["yes"],
          "think": False, "reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False},
          "thinking_budget": None, "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "best_of": 1,
          "modalities": ["text"], "functions": [], "verbosity": "medium"}
#: route -> (method, every documented field with a valid value, those that are always sent)
ROUTES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "/v1/chat/completions": ("POST", {
        **COMMON, "messages": SAID, "logprobs": True, "top_logprobs": 2, "tools": [FUNCTION], "tool_choice": "auto",
        "parallel_tool_calls": True}, ("messages", "max_tokens")),
    "/v1/completions": ("POST", {**COMMON, "prompt": "Guest: Hello", "echo": True, "suffix": "", "logprobs": 2},
                        ("prompt", "max_tokens")),
    "/v1/responses": ("POST", {
        "input": SAID, "instructions": "Be short.", "stream": False, "temperature": 0, "top_p": 1, "model": "any",
        "max_output_tokens": 8, "text": {"format": {"type": "json_object"}, "verbosity": "medium"},
        "reasoning": {"effort": "none"}, "tools": [{"type": "function", **FUNCTION["function"]}], "tool_choice": "auto",
        "parallel_tool_calls": False, "user": "guest", "include": [], "top_logprobs": 2, "truncation": "disabled",
        "previous_response_id": None, "metadata": {}}, ("input", "max_output_tokens")),
    "/v1/embeddings": ("POST", {"input": "tea", "encoding_format": "float", "dimensions": 256, "model": "any"},
                       ("input",)),
    "/tokenize": ("POST", {"content": "tea", "prompt": "tea", "text": "tea"}, ()),
    "/detokenize": ("POST", {"tokens": [5, 6]}, ("tokens",)),
    "/api/chat": ("POST", {"model": "any", "messages": SAID, "options": {**SAMPLING, "num_predict": 8, "num_ctx": 64,
                           "stop": ["tea"]}, "format": "json", "stream": False, "tools": [FUNCTION], "think": False,
                           "logprobs": True, "top_logprobs": 2, "keep_alive": "5m"}, ("messages", "options")),
    "/api/generate": ("POST", {"model": "any", "prompt": "Hello", "system": "Be short.", "raw": False, "stream": False,
                               "options": {**SAMPLING, "num_predict": 8}, "format": {"type": "object"}, "images": [],
                               "suffix": "", "template": ""}, ("prompt", "options")),
    "/api/embed": ("POST", {"model": "any", "input": ["tea"], "truncate": True, "dimensions": 256}, ("input",)),
    "/api/embeddings": ("POST", {"model": "any", "prompt": "tea"}, ("prompt",)),
    "/api/show": ("POST", {"model": "demo"}, ()),
    **{path: ("GET", {}, ()) for path in ("/", "/health", "/v1/health", "/metrics", "/v1/models", "/v1/models/any",
                                          "/api/tags", "/api/ps", "/api/version")},
}
DEPTHS = (900, 930, 945, 955, 960, 965, 970, 975, 980, 985)  # around the deepest that Python reads
#: JSON texts of values, some of which are not JSON
WRONG = [
    "null", "true", "0", "-1", "1", "2.0", "1.5", "-0.0", "1e999", "-1e999", "1e-999", "NaN", "Infinity", "9" * 400,
    "9" * 5000, "1e400000000", "18446744073709551616", "-9223372036854775809", '""', '"\\u0000"', '"\\ud800"',
    '"\\ud83d\\ude00"', '"a\\nb\\tc"', '"' + "tea " * 3000 + '"', '"<|eot_id|>"', '"\u202e\ufeff"', "[]", "[[]]",
    "[null]", "[1]", '["x"]', "[" * 100_000, "{}", '{"type":"x"}', '{"":{"":[]}}',
    *('{"a":' * n + "1" + "}" * n for n in DEPTHS), *("[" * n + "]" * n for n in DEPTHS),
    '{"a":1,"a":2}', '[{"role":"user"}]', '[{"role":"user","content":null}]',
    '[{"role":["user"],"content":"x"}]', '[{"role":"user","content":[{"type":"text","text":5}]}]',
    '[{"role":"user","content":[{"type":"text","text":"x"}]}]', '[{"role":"user","content":"x","name":{"a":[1]}}]',
    '[{"role":"assistant","content":"x","tool_calls":5},{"role":"user","content":"y"}]',
    '[{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"\\ud800",'
    '"arguments":"{"}}]},{"role":"tool","tool_call_id":7,"content":"x"}]',
    '[{"role":"tool","content":"x","tool_call_id":{}}]', "[" + "1," * 5000 + "1]",
    '[{"type":"function","function":{"name":"\\ud800","parameters":{}}}]',
    '[{"type":"function","function":{"name":"f","description":"\\ud800","parameters":{"description":"\\udfff"}}}]',
    '[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"\\ud800":{}}}}}]',
    '{"type":"json_schema","json_schema":{"schema":{"const":"\\ud800"}}}', '{"enum":["\\ud800"]}',
    '{"type":"json_schema","json_schema":{"name":5,"schema":{"type":"string","maxLength":1e308}}}',
    '{"type":"json_schema","json_schema":{"schema":{"$ref":"#"}}}', '{"type":"function","function":{"name":[]}}',
    '"required"', '"none"', '"(a|b)*c{2,5000}"', '"start: start"', '"(?<=x)["', '["\\ud800"]', '["",""]',
    '[{"type":"function_call","call_id":"a","name":"\\ud800","arguments":"{}"}]', '{"type":"allowed_tools"}',
    '[{"type":"function_call","call_id":"a","name":"f","arguments":"["},{"type":"function_call_output","output":5}]',
    '[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]', '{"effort":"\\ud800"}', '"high"',
    '[{"role":"assistant","content":"y"}]', '[{"role":"user","content":"x"},{"role":"system","content":"y"}]',
    '{"type":"allowed_tools","mode":"auto","tools":[[]]}', '{"format":{"type":"json_schema","schema":{"a":1}}}',
    '{"include_usage":"\\ud800"}', '{"temperature":"\\ud800","seed":1e308,"num_ctx":-5,"stop":7}',
]
HEADERS = [
    "Host: 127.0.0.1", "Host: localhost:[", "Host: 127.0.0.1:[", "Host: [::1]:x]", "Host: ", "Host: evil.example",
    "Host: \x80\xff", "Host: 127.0.0.1:99999999999", "Origin: null", "Origin: http://127.0.0.1", "Origin: \xff",
    "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 0", "Content-Length: 5, 5",
    "Content-Length: \xb2", "Content-Length: 1e3", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked, chunked",
    "Expect: 100-continue", "Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c", "Connection: close",
    "Authorization: Bearer \xe9", "Authorization: " + "x" * 20_000, "X: " + "y" * 70_000, "Content-Type: text/plain",
    "Content-Encoding: gzip", "Content-Type: application/json; charset=utf-16", "Access-Control-Request-Headers: \xff",
    "Range: bytes=0-", "If-None-Match: *", ": x", "A b: c", "Cookie: \t", "\tfolded", "Accept-Encoding: *;q=0",
]
PATHS = [
    "/..%2f..%2fetc/passwd", "/../../etc/passwd", "/v1/models/../../x", "/v1/models/%00", "/v1/models/\xff", "/%",
    "/v1/models/%ed%a0%80", "/v1/models/" + "x" * 5000, "//evil.example/", "/[", "[", "*", "http://evil.example/health",
    "http://[/health", "127.0.0.1:80", "/health/", "/v1/chat/completions/", "/V1/MODELS", "/?" + "a=b&" * 3000,
    "/health#x", "/health?\x00", "", "?", "/health%0d%0aX:%20y", "/api/", "/v1/models/..;/", "/x" * 40_000,
]
METHODS = ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PRI", "get", "X" * 300, "é"]


class Wrong(Exception):
    """The service did what it must not do."""


class Visit:
    """Connection ``number``: its requests, and how they are sent."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.rng = random.Random(number)
        self.methods: list[str] = []
        self.whole = True  # all that was announced is sent

    def json(self, fields: dict[str, Any], always: tuple[str, ...]) -> bytes:
        """A body: some of the fields, some of them with wrong values."""
        rng = self.rng
        chosen = [name for name in fields if name in always or rng.random() < 0.15]
        found = {name: json.dumps(fields[name]) for name in chosen}
        for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
            if not fields:
                break
            name, value = rng.choice(list(fields)), rng.choice(WRONG)
            if isinstance(fields[name], dict) and fields[name] and rng.random() < 0.6:
                inner = {key: json.dumps(each) for key, each in fields[name].items()}
                inner[rng.choice(list(inner))] = value
                value = "{" + ",".join(f"{json.dumps(key)}:{each}" for key, each in inner.items()) + "}"
            found[name] = value
        text = [f"{json.dumps(name)}:{value}" for name, value in found.items()]
        if text and rng.random() < 0.1:
            text.append(rng.choice(text))  # a key twice
        return ("{" + ",".join(text) + "}").encode("utf-8", "surrogatepass")

    def body(self, fields: dict[str, Any], always: tuple[str, ...]) -> bytes:
        rng = self.rng
        kind, data = rng.random(), self.json(fields, always)
        if kind < 0.04:
            return rng.choice(WRONG).encode("utf-8", "surrogatepass")
        if kind < 0.07:
            return rng.randbytes(rng.choice([0, 1, 100, 70_000]))
        if kind < 0.10:
            return data.decode().encode(rng.choice(["utf-16", "utf-8-sig", "utf-32"]))
        if kind < 0.18 and data:
            at = rng.randrange(len(data))
            return data[:at] + rng.choice([b"", b"\x00", b"\xff", b"\xed\xa0\x80", b'"', b"}"]) + data[at + 1 :]
        if kind < 0.19:
            return data[:-1] + b" " * (5 << 20)
        return data

    def request(self) -> list[bytes]:
        """One request, in pieces."""
        rng = self.rng
        path, (method, fields, always) = rng.choice(list(ROUTES.items()))
        data = self.body(fields, always) if method == "POST" or rng.random() < 0.1 else b""
        if rng.random() < 0.1:
            path = path.removeprefix("/v1")
        if rng.random() < 0.08:
            path = rng.choice(PATHS)
        if rng.random() < 0.08:
            method = rng.choice(METHODS)
        self.methods.append(method)
        lines = [] if rng.random() < 0.05 else ["Host: 127.0.0.1"]
        lines += rng.sample(HEADERS, rng.choice([0] * 8 + [1, 1, 2]))
        if rng.random() < 0.01:
            lines += [f"X-{i}: {i}" for i in range(rng.choice([150, 5000]))]
        pieces = [data]
        if rng.random() < 0.15:
            lines.append("Transfer-Encoding: chunked")
            size = rng.choice([1 << 20, 1000, 7]) if len(data) < 20_000 else 1 << 16
            pieces = [b"%x\r\n" % len(part) + part + b"\r\n" for i in range(0, len(data), size)
                      for part in [data[i : i + size]]]
            ends = [b"0\r\n\r\n"] * 8 + [b"0\r\nX: y\r\n\r\n", b"zz\r\n", b"-1\r\n\r\n", b"f" * 99 + b"\r\n"]
            pieces.append(rng.choice(ends))
        elif data or rng.random() < 0.5:
            n = len(data)
            if rng.random() < 0.06:
                n = rng.choice([n + 10, max(0, n - 5), 0])
                self.whole = self.whole and n <= len(data)
            lines.append(f"Content-Length: {n}")
        if len(lines) > 3:  # two lengths, or a wrong one: it need not be whole
            self.whole = False
        version = rng.choice(["HTTP/1.1"] * 40 + ["HTTP/1.0", "HTTP/2.0", "HTTP/1.10", "http/1.1", ""])
        head = f"{method} {path} {version}\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n"
        return [head.encode("utf-8" if rng.random() < 0.5 else "latin-1"), *pieces]

    def go(self) -> Iterator[tuple[int, str]]:
        """Send it all; the (status, media type) of each response.  Raises Wrong."""
        rng = self.rng
        pieces = [piece for _ in range(rng.choice([1, 1, 1, 2, 3])) for piece in self.request()]
        leaves = rng.random() < 0.06
        with socket.create_connection((self.server.host, self.server.port), timeout=PATIENCE) as connection:
            try:
                for piece in pieces:
                    if leaves and rng.random() < 0.5:
                        connection.sendall(piece[: len(piece) // 2])
                        return
                    if rng.random() < 0.05:
                        for at in range(0, min(len(piece), 60), 3):  # slowly
                            connection.sendall(piece[at : at + 3])
                            time.sleep(0.002)
                        piece = piece[60:]
                    connection.sendall(piece)
                if leaves:
                    return
                if not self.whole:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                self.whole = False  # refused before it was read to its end
            file, n = connection.makefile("rb"), 0
            try:
                for method in self.methods:
                    found = answer_in(file, method)
                    if found is None:
                        break
                    n += 1
                    yield found
            except ConnectionResetError:
                self.whole = False
            except http.client.IncompleteRead:
                if self.whole:
                    raise
            if not n and self.whole:
                raise Wrong("closed without an answer")


class Unclosed:
    """The input of a connection, for one HTTPResponse after the other: each would close it."""

    def __init__(self, file: Any) -> None:
        self.readline, self.read, self.readinto = file.readline, file.read, file.readinto

    def makefile(self, _mode: str) -> Unclosed:
        return self

    def close(self) -> None:
        pass


def answer_in(file: Any, method: str) -> tuple[int, str] | None:
    """(status, media type) of the next response, None at the end.  Raises Wrong for what is not HTTP or JSON."""
    response = http.client.HTTPResponse(Unclosed(file), method=method)  # type: ignore[arg-type]
    try:
        response.begin()
    except http.client.RemoteDisconnected:
        return None
    status, kind = response.status, response.headers.get("content-type", "").partition(";")[0]
    if status == 400 and kind == "text/plain":
        body = file.read()  # not understood, not even as HEAD; the connection is closed
    elif response.length is None and not response.chunked and response.headers.get("connection") != "close":
        raise Wrong(f"{status}: a body without length")
    else:
        body = response.read()
    if status >= 500 and status != 503:
        raise Wrong(f"status {status}: {body[:200]!r}")
    if status >= 400 and kind == "application/json" and (b"\n" in body or len(body) > 4000):
        raise Wrong(f"an error of {len(body)} bytes: {body[:200]!r}")
    if kind == "application/json" and body:
        strict(body)
    elif kind == "application/x-ndjson":
        for line in body.splitlines():
            strict(line)
    elif kind == "text/event-stream":
        for line in body.split(b"\n\n"):
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                strict(line[6:])
    return status, kind


def strict(data: bytes) -> None:
    """Raise Wrong unless ``data`` is JSON, and not an internal error."""
    def refuse(name: str) -> Any:
        raise ValueError(name)

    try:
        found = json.loads(data.decode(), parse_constant=refuse)
    except ValueError as error:
        raise Wrong(f"not JSON ({error}): {data[:200]!r}") from None
    told = found.get("error") if isinstance(found, dict) else None
    if "internal error" in str(told):
        raise Wrong(str(told))


def polite(server: Server, name: str) -> Any:
    """An answer that is always the same."""
    if name == "embeddings":
        return server.ask("POST", "/v1/embeddings", {"input": "Two teas, please."})[2]["data"]
    return server.chat("Two teas, please.")["choices"]


SERVICES = {"model": ("--set", "metrics=on", "--parallel", "2"), "embeddings": ("--embeddings",)}


def resources(pid: int) -> dict[str, int]:
    """Threads, open files and resident bytes of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {"threads": int(status["Threads"]), "files": len(os.listdir(f"/proc/{pid}/fd")),
            "resident": int(status["VmRSS"].split()[0]) * 1024}


def campaign(seconds: float, seed: int, only: int | None = None) -> tuple[Counter[str], list[str]]:
    """(counts, what was wrong) of both services."""
    counts, wrong = of_one("model", seconds / 2, seed, only)
    more, others = of_one("embeddings", seconds / 2, seed, only)
    return counts + more, wrong + others


def of_one(
    name: str, seconds: float, seed: int, only: int | None = None, most: int = 1 << 40
) -> tuple[Counter[str], list[str]]:
    """(counts, what was wrong) of at most ``most`` connections to one service."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    numbers = iter(range(seed * 1_000_000, seed * 1_000_000 + most) if only is None else [only])
    lock = threading.Lock()
    with serving("--ctx", "512", *SERVICES[name]) as server:
        usual, first = polite(server, name), resources(server.process.pid)
        until = time.monotonic() + seconds

        def run(until: float) -> None:
            while time.monotonic() < until and len(wrong) < 20:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                try:
                    found = list(Visit(server, number).go())
                except (Wrong, OSError, ValueError, http.client.HTTPException) as error:
                    wrong.append(f"{name} {number}: {type(error).__name__}: {str(error)[:300]}")
                    continue
                with lock:
                    counts.update(["connections", *(str(status) for status, _ in found)])

        def crowd(until: float) -> None:
            at_once(run, [until] * (CLIENTS if only is None else 1))

        def held(files: int) -> dict[str, int]:
            """The resources of the service, once it has no more than this number of files open."""
            if name != "embeddings":
                server.until(running=0, waiting=0)
            deadline = time.monotonic() + PATIENCE
            while (found := resources(server.process.pid))["files"] > files and time.monotonic() < deadline:
                time.sleep(0.2)  # connections are being closed
            return found

        crowd(until - seconds * (1 - FIRST))
        before = held(first["files"])
        crowd(until)
        if server.process.poll() is not None:
            wrong.append(f"{name}: the service ended with {server.process.returncode}")
            return counts, wrong
        after = held(before["files"])
        if polite(server, name) != usual:
            wrong.append(f"{name}: another answer than before")
        for what, slack in (("threads", POOL + CLIENTS), ("files", 0), ("resident", GROWTH)):
            if after[what] > before[what] + slack:
                wrong.append(f"{name}: {what}: {before[what]} before, {after[what]} after")
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)
        assert server.process.stderr
        if said := server.process.stderr.read():
            wrong.append(f"{name}: standard error: {said[:1500] + said[-1500:]}")
        counts[f"MB more ({name})"] = (after["resident"] - before["resident"]) // 1_000_000
    return counts, wrong
