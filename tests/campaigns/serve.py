"""Many clients of `bitnet-edge serve` at once, some of which hang up: every answer must be the one it gives alone.

    python -m tests.campaigns.serve [--requests 10000] [--clients 50] [--parallel 4] [--seed 1] [--model FILE]
    python -m tests.campaigns.serve --share 40      # only the service's own share, over so many rounds

A client has conversations of one to three turns, drawn from their number: chats and raw completions, whole and
streamed, in OpenAI's and Ollama's form, greedy and drawn with a seed, with stop strings, log probabilities and forms.
Every fifth request is left by its client: while its body is sent, while it waits, reads its prompt, or answers.
What was said until then must be the beginning of what the conversation says alone, in Python.

Afterwards nothing may be left over: running and waiting requests, threads, open files, memory beyond the plan; and the
service's own counts must account for every request.  Prints latencies, counts, and what the service adds to a request
and to a token over the same answers from the Python API.  Exit 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edge
from tests.http_service import Server, serving

CTX = 512
POOL = 8  # threads that the event loop keeps for blocking calls, made as they are needed
PATIENCE = 300.0  # seconds for one answer
CASES = 1500  # different conversations; a run of more requests has them again
WORDS = "please tell me about the tea the cake a large coffee two scones when do you open thank you and then".split()
SCHEMA = {"type": "object", "properties": {"drink": {"enum": ["tea", "coffee"]}, "cups": {"type": "integer"}},
          "required": ["drink", "cups"], "additionalProperties": False}


class Case:
    """Conversation ``number``: its turns as (kind, options of the Python API, keys of the request)."""

    def __init__(self, number: int) -> None:
        rng = random.Random(number)
        self.questions = [" ".join(rng.choices(WORDS, k=rng.choice([2, 5, 12, 60]))) for _ in range(rng.randint(1, 3))]
        self.raw = rng.random() < 0.15
        self.key = f"guest {number}" if rng.random() < 0.3 else None
        self.options: dict[str, Any] = {"max_tokens": rng.randint(1, 24), "temperature": 0.0}
        if rng.random() < 0.6:
            self.options |= {"temperature": 1.2, "seed": rng.randrange(1 << 30), "top_p": 0.95}
        form = rng.random()
        if form < 0.05:
            self.options["choices"] = ["yes, with pleasure", "no, sorry"]
        elif form < 0.1:
            self.options |= {"schema": SCHEMA, "max_tokens": 64}
        elif form < 0.3:
            self.options["stop"] = [rng.choice(["tea", " you", "e a", ". "])]
        self.logprobs = form > 0.9
        self.said: list[str] = []  # alone
        self.reasons: list[str] = []

    def alone(self, engine: edge.Engine) -> None:
        """Find out what it says."""
        with engine.session("") as session:
            for i, question in enumerate(self.questions):
                if self.raw:
                    answer = session.complete(question, **self.options)
                else:
                    answer = session.chat(self.messages(i), **self.options)
                self.said.append(answer.text)
                self.reasons.append("stop" if answer.finish_reason in ("stop", "loop") else "length")

    def messages(self, turn: int) -> list[dict[str, str]]:
        found = []
        for question, answer in zip(self.questions[:turn], self.said, strict=False):
            found += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        return [*found, {"role": "user", "content": self.questions[turn]}]

    def request(self, turn: int, dialect: str, stream: bool) -> tuple[str, dict[str, Any]]:
        """(path, body)."""
        body: dict[str, Any] = {"model": "any", "stream": stream}
        own = dict(self.options)
        schema = own.pop("schema", None)
        if dialect == "ollama":
            own["num_predict"] = own.pop("max_tokens")
            body |= {"options": own, **({"format": schema} if schema else {})}
            if self.raw:
                return "/api/generate", {**body, "prompt": self.questions[turn], "raw": True}
            return "/api/chat", {**body, "messages": self.messages(turn)}
        body |= own
        if schema:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "order", "schema": schema}}
        if self.key:
            body["user"] = self.key
        if stream:
            body["stream_options"] = {"include_usage": True}
        if self.raw:
            return "/v1/completions", {**body, "prompt": self.questions[turn],
                                       **({"logprobs": 2} if self.logprobs else {})}
        if self.logprobs:
            body |= {"logprobs": True, "top_logprobs": 2}
        return "/v1/chat/completions", {**body, "messages": self.messages(turn)}


class Campaign:
    def __init__(self, server: Server, cases: list[Case], requests: int, seed: int) -> None:
        self.server = server
        self.cases = cases
        self.left = requests
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.wrong: list[str] = []

    async def run(self, clients: int) -> None:
        progress = asyncio.ensure_future(self._progress())
        await asyncio.gather(*(self._client(i) for i in range(clients)))
        progress.cancel()

    async def _progress(self) -> None:
        while True:
            await asyncio.sleep(30)
            print(f"{self.left} requests left, {dict(self.counts)}, {len(self.wrong)} wrong", file=sys.stderr)

    async def _client(self, _number: int) -> None:
        rng, held = self.rng, None
        while self.left > 0:
            case = rng.choice(self.cases)
            for turn in range(len(case.questions)):
                if self.left <= 0:
                    break
                self.left -= 1
                # Ollama has no choices and no log probabilities
                plain = "choices" not in case.options and not case.logprobs
                dialect = rng.choice(["openai", "openai", "ollama"]) if plain else "openai"
                try:
                    held = await asyncio.wait_for(self._request(case, turn, dialect, held), PATIENCE)
                except Exception as error:
                    self.wrong.append(f"case {case.questions} turn {turn}: {type(error).__name__} {error}")
                    held = None
        if held is not None:
            held[1].close()
            await held[1].wait_closed()

    async def _request(self, case: Case, turn: int, dialect: str, held: Any) -> Any:
        """One request, perhaps left; the connection, if it can be used again."""
        rng = self.rng
        stream, leaves = rng.random() < 0.6, rng.random() < 0.2
        path, body = case.request(turn, dialect, stream)
        data = json.dumps(body).encode()
        head = (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\n\r\n").encode()
        reader, writer = held or await asyncio.open_connection(self.server.host, self.server.port)
        begun = time.perf_counter()
        how = rng.choice(["body", "at once", "later", "answer"]) if leaves else ""
        if how == "body":
            writer.write(head + data[: rng.randrange(len(data))])
            await writer.drain()
            writer.close()
            self.counts["left while sending"] += 1
            return None
        writer.write(head + data)
        await writer.drain()
        if how in ("at once", "later"):
            await asyncio.sleep(0 if how == "at once" else rng.random() * 0.5)
            writer.close()
            self.counts["left while waiting or answered"] += 1
            return None
        status, kind, chunks = await _response(reader)
        raw = b""
        most = rng.randrange(1, 2000) if how == "answer" else 1 << 30
        async for chunk in chunks:
            raw += chunk
            if len(raw) >= most:
                break
        if how == "answer":
            writer.close()
            self.counts["left while reading"] += 1
        else:
            self.seconds.append(time.perf_counter() - begun)
            self.counts[f"{dialect} {'streamed' if stream else 'whole'}"] += 1
        if status != 200:
            raise ValueError(f"{status} {raw[:300]!r}")
        text, reason = said(raw, kind, partial=bool(how))
        wanted = case.said[turn]
        if how:
            if not wanted.startswith(text):
                raise ValueError(f"left at {text!r}, alone {wanted!r}")
            return None
        if text != wanted or reason != case.reasons[turn]:
            raise ValueError(f"{path}: {text!r} ({reason}), alone {wanted!r} ({case.reasons[turn]})")
        return reader, writer


async def _response(reader: asyncio.StreamReader) -> tuple[int, str, Any]:
    """(status, media type, the parts of its body)."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    lines = head.split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)

    async def parts() -> Any:
        if "content-length" in fields:
            yield await reader.readexactly(int(fields["content-length"]))
            return
        while n := int(await reader.readline(), 16):
            yield (await reader.readexactly(n + 2))[:-2]
        await reader.readline()

    return int(lines[0].split()[1]), fields.get("content-type", ""), parts()


def said(raw: bytes, kind: str, partial: bool) -> tuple[str, str]:
    """(text, finish reason) of a response, of which the end may be missing."""
    if kind.startswith("application/json"):
        body = json.loads(raw) if not partial or raw.endswith(b"}") else {}
        return _text(body)
    events = raw.decode(errors="ignore" if partial else "strict").split("\n\n" if "event-stream" in kind else "\n")
    whole = events[:-1]
    if not partial and events[-1]:
        raise ValueError(f"the stream ends with {events[-1]!r}")
    text = reason = ""
    for event in whole:
        event = event.removeprefix("data: ")
        if event == "[DONE]" or not event or event.startswith(":"):
            continue
        more, end = _text(json.loads(event))
        text += more
        reason = end or reason
    if not partial and "event-stream" in kind and whole[-1] != "data: [DONE]":
        raise ValueError("the stream has no end")
    return text, reason


def _text(body: dict[str, Any]) -> tuple[str, str]:
    """(text, finish reason) of a whole body or a chunk, in either dialect."""
    if "error" in body:
        raise ValueError(str(body["error"]))
    if "choices" in body:
        if not body["choices"]:
            return "", ""
        choice = body["choices"][0]
        part = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
        return part.get("content") or "", choice["finish_reason"] or ""
    part = body.get("message") or {"content": body.get("response")}
    return part.get("content") or "", body.get("done_reason") or ""


# ---- what is left over ----------------------------------------------------------------------------------------------


def resources(pid: int) -> dict[str, int]:
    """Threads, open files and resident bytes of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {"threads": int(status["Threads"]), "files": len(os.listdir(f"/proc/{pid}/fd")),
            "resident": int(status["VmRSS"].split()[0]) * 1024}


@contextlib.contextmanager
def peak(pid: int) -> Iterator[dict[str, int]]:
    """The most that was seen meanwhile."""
    import threading

    seen, stop = resources(pid), threading.Event()

    def look() -> None:
        while not stop.wait(0.2):
            for name, value in resources(pid).items():
                seen[name] = max(seen[name], value)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def hammer(arguments: argparse.Namespace) -> bool:
    cases = [Case(arguments.seed * 1_000_003 + i) for i in range(min(CASES, arguments.requests))]
    model: dict[str, Any] = {} if arguments.model is None else {"model": arguments.model}
    begun = time.perf_counter()
    with edge.load(ctx=CTX, overflow="stop", parallel=1, **model) as engine:
        for case in cases:
            case.alone(engine)
    print(f"{len(cases)} conversations alone, in Python: {time.perf_counter() - begun:.0f} s")
    options = ["--parallel", str(arguments.parallel), "--queue", "1000", "--ctx", str(CTX), "--metrics"]
    with serving(*options, *([] if arguments.model is None else ["-m", arguments.model])) as server:
        warm = Campaign(server, cases[:100], 200, arguments.seed)
        asyncio.run(warm.run(arguments.clients))
        server.until(running=0, waiting=0)
        time.sleep(2)  # threads without work end
        before, counted = resources(server.process.pid), server.ask("GET", "/health")[2]
        campaign = Campaign(server, cases, arguments.requests, arguments.seed)
        begun = time.perf_counter()
        with peak(server.process.pid) as most:
            asyncio.run(campaign.run(arguments.clients))
        seconds = time.perf_counter() - begun
        state = server.until(running=0, waiting=0)
        time.sleep(2)
        after, planned = resources(server.process.pid), server.gauge("memory_planned_bytes")
    wrong = warm.wrong + campaign.wrong
    counts = campaign.counts
    ends = {name: state[name] - counted[name] for name in ("served", "cancelled", "failed", "refused")}
    whole = sum(counts[name] for name in counts if not name.startswith("left"))
    print(f"{arguments.requests} requests of {arguments.clients} clients in {seconds:.0f} s, --parallel "
          f"{arguments.parallel}: {dict(sorted(counts.items()))}")
    print(f"the service counts {ends}")
    print(f"answers to the end: {whole}; seconds: median {statistics.median(campaign.seconds):.3f}, "
          f"p99 {statistics.quantiles(campaign.seconds, n=100)[98]:.3f}")
    print(f"memory planned {planned / 1e6:.0f} MB, at most in use {most['resident'] / 1e6:.0f} MB; "
          f"before {before}, after {after}")
    if sum(counts.values()) + len(campaign.wrong) < arguments.requests:
        wrong.append("requests are missing")
    if not whole <= ends["served"] <= whole + arguments.requests or ends["failed"] or ends["refused"]:
        wrong.append(f"the counts do not fit: {ends}")
    if most["resident"] > planned:
        wrong.append("more memory in use than planned")
    for name, slack in (("threads", POOL), ("files", 0), ("resident", 8 << 20)):
        if after[name] > before[name] + slack:
            wrong.append(f"{name}: {before[name]} before, {after[name]} after")
    for line in wrong[:20]:
        print("WRONG:", line)
    print(f"wrong: {len(wrong)}")
    return not wrong


# ---- the service's own share ----------------------------------------------------------------------------------------


def share(rounds: int, model: str | None, tokens: int = 129) -> None:
    """What HTTP adds to the same answers: to a request of one token, and to every further token of a stream."""
    named: dict[str, Any] = {} if model is None else {"model": model}
    messages = [{"role": "user", "content": "Two teas and a scone, please."}]
    options: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}
    taken: dict[tuple[str, int], list[float]] = {}
    with (edge.load(ctx=CTX, overflow="stop", **named) as engine, engine.session("") as session,
          serving("--ctx", str(CTX), *([] if model is None else ["-m", model])) as server):
        connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)

        def python(n: int) -> None:
            for _ in session.chat(messages, max_tokens=n, **options):
                pass

        def ask(n: int, stream: bool) -> None:
            body = {"messages": messages, "max_tokens": n, "stream": stream, **options}
            connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200 and answer.read()

        ways = {"Python": python, "whole": lambda n: ask(n, False), "streamed": lambda n: ask(n, True)}
        for turn in range(rounds + 3):
            for n in (1, tokens):
                for name, way in ways.items():
                    begun = time.perf_counter()
                    way(n)
                    if turn >= 3:
                        taken.setdefault((name, n), []).append(time.perf_counter() - begun)
        connection.close()
    median = {which: 1000 * statistics.median(times) for which, times in taken.items()}
    for name in ways:
        one, many = median[name, 1], median[name, tokens]
        print(f"{name:>9}: 1 token {one:.2f} ms, {tokens} tokens {many:.2f} ms; its own share: a request "
              f"{one - median['Python', 1]:.2f} ms, a token "
              f"{1000 * (many - one - median['Python', tokens] + median['Python', 1]) / (tokens - 1):.0f} us")


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model")
    parser.add_argument("--share", type=int, metavar="ROUNDS", help="measure only the service's own share")
    arguments = parser.parse_args()
    if arguments.share:
        share(arguments.share, arguments.model)
        return 0
    good = hammer(arguments)
    share(40, arguments.model)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
