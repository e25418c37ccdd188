"""HTTP: routes, who may ask, limits, streams.  An ASGI application on Starlette; edge/cli/serve.py runs it on uvicorn.

    GET  /                       the page             POST /v1/chat/completions   GET /health
    GET  /v1/models              (all also            POST /v1/completions        GET /metrics (if asked for)
    POST /tokenize, /detokenize   without /v1)        POST /v1/embeddings
    POST /api/chat /api/generate /api/show            GET  /api/tags /api/version           as Ollama

A page of another site, or a name that somebody points at this machine, must not reach the model: Host and Origin are
checked before anything else.  Whoever goes away ends his answer within one step.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from edge.errors import EdgeError
from edge.serve import ollama, openai
from edge.serve.calls import Call, Fields, Refusal, bad, dump, refusal_of
from edge.serve.conversations import Conversations, Job, Ticket

if TYPE_CHECKING:
    from array import array

    from edge.engine import Engine
    from edge.tools.embed import Embedder

BODY_LIMIT = 4 << 20  # bytes of a request
BODIES_LIMIT = 8 << 20  # bytes of all requests that are being received or answered
TEXT_LIMIT = 1 << 18  # characters to tokenize, tokens to detokenize: a tenth of a second
RESERVE = (8 << 20) + 2 * BODIES_LIMIT  # bytes in the memory plan for connections and requests
QUIET = 15.0  # seconds after which a stream that says nothing sends a comment, so that no proxy closes it
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.html")


@dataclass
class Settings:
    """How the service behaves.  ``hosts``: names it answers to beside addresses, localhost and this machine's."""

    name: str | None = None  # of the model, as clients see it; None: that of the file
    api_key: str | None = None
    hosts: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()  # origins of other sites that may ask; "*": all
    metrics: bool = False
    kiosk: Any = None  # edge.serve.kiosk.Desk: the house behind /kiosk/turn, which the page then shows
    parallel: int = 1
    queue: int = 64
    timeout: float | None = None  # seconds for one answer
    state: str | None = None
    state_bytes: int = 1 << 30
    system: str | None = None  # for conversations that bring none
    defaults: dict[str, Any] = field(default_factory=dict)  # arguments of chat and complete


class Service:
    """What the routes share.  The engine comes later (:meth:`open`): until then the answer is 503."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine: Engine | None = None
        self.conversations: Conversations | None = None
        self.embedder: Embedder | None = None  # in place of the two above
        self.embedding = threading.Lock()
        self.failure: str | None = None
        self.begun = time.time()
        self.name = settings.name or ""

    def open(self, engine: Engine) -> None:
        """Answer with this engine from now on."""
        s = self.settings
        self.name = s.name or engine.config.name
        self.conversations = Conversations(engine, s.parallel, s.queue, s.state, s.state_bytes)
        self.engine = engine

    def open_embedder(self, embedder: Embedder) -> None:
        """Compute embeddings from now on, and nothing else."""
        self.name = self.settings.name or embedder.config.name
        self.embedder = embedder

    def close(self) -> None:
        """End all answers and save the conversations."""
        if self.conversations is not None:
            self.conversations.close()

    def ready(self) -> tuple[Engine, Conversations]:
        """Raises Refusal (503) while the model is loading."""
        if self.failure is not None:
            raise Refusal(500, self.failure, "load_failed")
        if self.embedder is not None:
            raise bad(f"{self.name} is served for embeddings only (--embeddings)", "model", "embeddings_only")
        if self.engine is None or self.conversations is None:
            raise Refusal(503, "the model is being loaded", "loading", retry_after=2)
        return self.engine, self.conversations

    @property
    def n_ctx(self) -> int:
        """Tokens that a prompt or a text may have.  Raises Refusal while the model is loading."""
        if self.embedder is not None:
            return self.embedder.config.n_ctx_train
        return self.ready()[0].plan.n_ctx

    def vectors(self, inputs: list[str | list[int]], gone: threading.Event) -> tuple[list[array[float]], int]:
        """(the vectors of texts or token ids, tokens in all).  Blocks; ends when ``gone`` is set.  Raises EdgeError."""
        embedder = self.embedder
        if embedder is None:
            raise bad(f"{self.name} does not serve embeddings; start with --embeddings and an embedding model",
                      "model", "not_an_embedding_model")
        texts = [embedder.tokens(each) if isinstance(each, str) else embedder.checked(each) for each in inputs]
        found: list[array[float]] = []
        with self.embedding:
            for ids in texts:
                if gone.is_set():
                    break
                found.append(embedder.of_tokens(ids))
        return found, sum(map(len, texts))

    # ---- a call -----------------------------------------------------------------------------------------------------

    def with_system(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages, with the service's own system prompt where they bring none."""
        system = self.settings.system
        if system and messages and messages[0]["role"] != "system":
            return [{"role": "system", "content": system}, *messages]
        return messages

    def check(self, call: Call) -> None:
        """Refuse what cannot be answered before a stream has begun with status 200: a form that is not supported, and
        what does not fit, with the counts, instead of cutting it silently.  Blocks.  Raises Refusal, EdgeError.
        """
        engine, _ = self.ready()
        if call.options.keys() & {*openai.FORMS, "tools"}:
            with engine.session("") as session:
                session.request(call.options)
        if call.messages is not None:
            tools, messages, definitions = call.options.get("tools"), call.messages, None
            if tools is not None:
                form = tools.form(engine.template, engine.tokenizer)
                messages, definitions = form.messages(messages), form.definitions
            n = len(engine.model.encode(messages, definitions))
        elif isinstance(call.prompt, str):
            n = len(engine.tokenizer.encode(call.prompt)) + 1
        else:
            n = len(call.prompt or ())
        n_ctx = engine.plan.n_ctx
        if n >= n_ctx and engine.plan.overflow == "stop":
            raise bad(f"the prompt has {n} tokens, and the context {n_ctx}; shorten it, or start the server with a "
                      "larger --ctx", "messages" if call.messages is not None else "prompt",
                      "context_length_exceeded")

    async def submit(self, call: Call) -> Job:
        """The call, on its way: a ticket for each of its choices.  Raises Refusal."""
        _, conversations = self.ready()
        if self.settings.timeout is not None:
            call.options.setdefault("timeout", self.settings.timeout)
        if call.messages is not None:
            call.messages = self.with_system(call.messages)
        await asyncio.to_thread(self.check, call)
        job = Job(call)
        try:
            for i in range(call.n):
                conversations.submit(job.ticket(call.choice(i)))
        except Refusal:
            self.withdraw(job)
            raise
        return job

    def withdraw(self, job: Job) -> None:
        """Nobody wants its answers any more."""
        if self.conversations is not None:
            for ticket in job.tickets:
                self.conversations.withdraw(ticket)


# ---- responses ------------------------------------------------------------------------------------------------------


def answer_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dump(value), status, dict(headers or {}), "application/json")


def refused(refusal: Refusal, style: str = "openai") -> Response:
    """An error as the client's dialect has it."""
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after)))
    if refusal.status in (400, 401, 403, 404, 413):
        headers["x-should-retry"] = "false"
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = {"error": str(refusal)} if style == "ollama" else openai.error(refusal)
    return answer_json(body, refusal.status, headers)


class Stream(Response):
    """A streamed response that notices at once when the client goes away, also while it says nothing.

    ``body``: the chunks; ``gone`` is called when nobody reads them any more; ``comment``: what to send in silences.
    """

    def __init__(
        self, body: AsyncIterator[bytes], kind: str, headers: Mapping[str, str], gone: Callable[[], object],
        comment: bytes | None = None,
    ) -> None:  # fmt: skip
        super().__init__(b"", 200, dict(headers), kind)
        self._chunks = body
        self._gone = gone
        self._comment = comment
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self._send(send))
        watcher = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait({sending, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except OSError:
            pass
        finally:
            self._gone()
            sending.cancel()
            watcher.cancel()

    async def _send(self, send: Any) -> None:
        comments = None if self._comment is None else asyncio.ensure_future(self._comments(send, self._comment))
        try:
            async for chunk in self._chunks:
                self._silent = False
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            if comments is not None:
                comments.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _comments(self, send: Any, comment: bytes) -> None:
        while True:
            self._silent = True
            await asyncio.sleep(QUIET)
            if self._silent:
                await send({"type": "http.response.body", "body": comment, "more_body": True})


async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def watched(request: Request, work: Awaitable[Any], gone: Callable[[], object]) -> Any:
    """Await ``work``; a client that goes away meanwhile ends it.  Raises ClientDisconnect."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_until_gone(request.receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone()
        watcher.cancel()
        task.cancel()


async def body_of(request: Request) -> Any:
    """The JSON of a request, at most BODY_LIMIT bytes.  Raises Refusal."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > BODY_LIMIT:
        raise Refusal(413, f"the request has {declared} bytes; the limit is {BODY_LIMIT}", "too_large")
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > BODY_LIMIT:
            raise Refusal(413, f"the request has more than {BODY_LIMIT} bytes", "too_large")
    try:
        return json.loads(bytes(data).decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise bad(f"the request is not JSON: {str(error)[:200]}", code="bad_json") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# ---- OpenAI ---------------------------------------------------------------------------------------------------------


@dataclass
class Collected:
    """One choice, put together from its pieces."""

    text: str = ""
    thought: str = ""
    tokens: int = 0
    logprobs: list[Any] = field(default_factory=list)


def _queue_headers(job: Job) -> dict[str, str]:
    first = job.tickets[0]
    return {"x-queue-position": str(first.position), "x-queue-seconds": f"{first.expected:.1f}"}


def counts_of(tickets: list[Ticket]) -> tuple[int, int, int]:
    """Prompt, cached and answer tokens of all choices; the prompt counts once."""
    usages = [ticket.answer.usage for ticket in tickets if ticket.answer is not None]
    if not usages:
        return 0, 0, 0
    return usages[0].prompt, usages[0].cached, sum(usage.completion for usage in usages)


def timings_of(ticket: Ticket) -> dict[str, Any]:
    """Seconds, how much of the prompt was held already, and where what was held ended."""
    answer = ticket.answer
    if answer is None:
        return {}
    return {
        **{name: round(value, 6) for name, value in asdict(answer.timings).items() if isinstance(value, float)},
        "cached_tokens": answer.usage.cached,
        **({"prefix_broke_at_message": ticket.broke} if ticket.broke is not None else {}),
    }


async def openai_answer(service: Service, request: Request, parse: Callable[..., Call]) -> Response:
    """Both completions."""
    call = parse(await body_of(request), service.settings.defaults)
    engine, _ = service.ready()
    job = await service.submit(call)
    writer = openai.Writer(call, service.name)
    if call.stream:
        return Stream(_sse(job, writer), "text/event-stream; charset=utf-8", _queue_headers(job),
                      lambda: service.withdraw(job), b": waiting\n\n")
    found = await watched(request, _collect(job), lambda: service.withdraw(job))
    choices = [_choice(writer, i, each, ticket) for i, (each, ticket) in enumerate(zip(found, job.tickets))]
    return answer_json(writer.whole(choices, openai.usage(*counts_of(job.tickets)), timings_of(job.tickets[0])),
                       headers=_queue_headers(job))


async def _collect(job: Job) -> list[Collected]:
    """All choices of a call, to their ends."""
    choices = [Collected() for _ in job.tickets]
    async for batch in job.batches():
        for index, piece in batch:
            found = choices[index]
            if piece is None:
                continue
            if piece.thought:
                found.thought += piece.text
            else:
                found.text += piece.text
                if job.call.logprobs is not None:
                    found.logprobs += logprobs_of(job.tickets[index], piece, found.tokens)
            found.tokens += len(piece.ids)
    return choices


def logprobs_of(ticket: Ticket, piece: Any, begin: int) -> list[Any]:
    """The log probabilities of a piece's tokens, which come behind the first ``begin`` of the answer's."""
    assert ticket.answer is not None
    return list(ticket.answer.logprobs[begin : begin + len(piece.ids)])


def _choice(writer: openai.Writer, index: int, found: Collected, ticket: Ticket) -> dict[str, Any]:
    return writer.choice(index, found.text, ticket.finish_reason, found.logprobs, found.thought, ticket.calls)


async def _sse(job: Job, writer: openai.Writer) -> AsyncIterator[bytes]:
    """Server-sent events: the chunks of all choices, as they come."""
    call, tickets = job.call, job.tickets
    taken = [0] * len(tickets)  # tokens of the answers
    opened: set[int] = set()
    try:
        async for batch in job.batches():
            events: list[bytes] = []
            for index, piece in batch:
                if index not in opened:
                    opened.add(index)
                    events += writer.first(index)
                first, taken[index] = taken[index], taken[index] + (0 if piece is None else len(piece.ids))
                if piece is None:
                    if calls := tickets[index].calls:
                        events.append(writer.called(index, calls))
                    events.append(writer.last(index, tickets[index].finish_reason))
                elif piece.thought:
                    events.append(writer.thought(index, piece.text))
                elif call.logprobs is not None:
                    entries = logprobs_of(tickets[index], piece, first)
                    events.append(writer.piece(index, piece.text, entries))
                elif piece.text:
                    events.append(writer.piece(index, piece.text))
            if events:
                yield b"".join(events)
        end = b"data: [DONE]\n\n"
        if call.include_usage:
            end = writer.totals(openai.usage(*counts_of(tickets)), timings_of(tickets[0])) + end
        yield end
    except Exception as error:
        yield openai.event(openai.error(refusal_of(error)))


# ---- Ollama ---------------------------------------------------------------------------------------------------------


async def ollama_answer(service: Service, request: Request, parse: Callable[..., Call], chat: bool) -> Response:
    """``/api/chat`` and ``/api/generate``."""
    body = await body_of(request)
    engine, _ = service.ready()
    prompt_free = body.get("messages") == [] if chat and isinstance(body, dict) else not _asks(body, chat)
    if prompt_free:  # this is how Ollama's clients load and unload a model
        return answer_json({"model": body.get("model", service.name), "created_at": ollama.now(), "done": True,
                            "done_reason": "load", **({"message": {"role": "assistant", "content": ""}} if chat
                                                      else {"response": ""})})
    call = parse(body, service.settings.defaults, engine.plan.n_ctx)
    job = await service.submit(call)
    ticket = job.tickets[0]
    writer = ollama.Writer(call, service.name)
    load_ns = int(engine.load_seconds * 1e9)

    def end() -> dict[str, Any]:
        prompt, _, completion = counts_of(job.tickets)
        assert ticket.answer is not None
        return writer.end(ticket.answer.finish_reason, prompt, completion, ticket.answer.timings, load_ns)

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for batch in job.batches():
                said = [writer.line("", chat, piece.text) if piece.thought else writer.line(piece.text, chat)
                        for _, piece in batch if piece is not None and piece.text]
                if said:
                    yield b"".join(dump(each) + b"\n" for each in said)
            if calls := ticket.calls:
                yield dump(writer.line("", chat, calls=_ollama_calls(calls))) + b"\n"
            yield dump(writer.line("", chat, **end())) + b"\n"
        except Exception as error:
            yield dump({"error": str(refusal_of(error))}) + b"\n"

    if call.stream:
        return Stream(lines(), "application/x-ndjson", _queue_headers(job), lambda: service.withdraw(job))
    found = (await watched(request, _collect(job), lambda: service.withdraw(job)))[0]
    calls = _ollama_calls(ticket.calls)
    return answer_json(writer.line(found.text, chat, found.thought, calls, **end()))


def _asks(body: Any, chat: bool) -> bool:
    return not isinstance(body, dict) or chat or bool(body.get("prompt"))


def _ollama_calls(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"function": {"name": each["function"]["name"], "arguments": json.loads(each["function"]["arguments"])}}
            for each in calls]


# ---- the application ------------------------------------------------------------------------------------------------


def application(service: Service, startup: Callable[[], object] | None = None, wyoming: Any = None) -> Any:
    """The ASGI application.

    ``startup`` runs in a thread of its own once the port is open; it loads the model.  ``wyoming``: a second door
    (:class:`edge.serve.wyoming.Door`), opened and closed with this one.
    """

    def quantization() -> str:
        assert service.engine is not None
        return service.engine.plan.kv_type

    async def models(_: Request) -> Response:
        found = openai.models(service.name, int(service.begun), service.n_ctx)
        if service.settings.kiosk is not None:
            found["data"][0]["kiosk"] = service.settings.kiosk.house.name
        return answer_json(found)

    async def kiosk_turn(request: Request) -> Response:
        desk = service.settings.kiosk
        if desk is None:
            raise Refusal(404, "no kiosk is served; start the server with --kiosk FILE", "not_found")
        fields = Fields(await body_of(request))
        return answer_json(await asyncio.to_thread(desk.turn, fields.text("session"), fields.text("text")))

    async def one_model(request: Request) -> Response:
        n_ctx, name = service.n_ctx, request.path_params["name"]
        if name != service.name:
            raise Refusal(404, f"the model '{name[:80]}' is not available; use {service.name}", "model_not_found",
                          "model")
        return answer_json(openai.models(service.name, int(service.begun), n_ctx)["data"][0])

    async def chat(request: Request) -> Response:
        return await openai_answer(service, request, openai.chat)

    async def completion(request: Request) -> Response:
        return await openai_answer(service, request, openai.completion)

    async def embeddings(request: Request) -> Response:
        body = await body_of(request)
        if service.embedder is None:
            service.ready()
        hidden = service.embedder.config.hidden if service.embedder is not None else 0
        inputs, coded = openai.embedding(body, hidden)
        gone = threading.Event()
        vectors, tokens = await watched(request, asyncio.to_thread(service.vectors, inputs, gone), gone.set)
        return answer_json(openai.embeddings(service.name, vectors, coded, tokens))

    async def tokenize(request: Request) -> Response:
        engine, _c = service.ready()
        fields = Fields(await body_of(request))
        text = fields.text("content") or fields.text("prompt") or fields.text("text") or ""
        if len(text) > TEXT_LIMIT:
            raise Refusal(413, f"the text has {len(text)} characters; the limit is {TEXT_LIMIT}", "too_large")
        return answer_json({"tokens": list(await asyncio.to_thread(engine.tokenizer.encode, text))})

    async def detokenize(request: Request) -> Response:
        engine, _c = service.ready()
        tokens = Fields(await body_of(request)).body.get("tokens")
        if isinstance(tokens, list) and len(tokens) > TEXT_LIMIT:
            raise Refusal(413, f"tokens has {len(tokens)} ids; the limit is {TEXT_LIMIT}", "too_large")
        if not isinstance(tokens, list) or not all(
                type(token) is int and 0 <= token < engine.config.n_vocab for token in tokens):
            raise bad("tokens is not a list of token ids", "tokens")
        return answer_json({"content": await asyncio.to_thread(engine.tokenizer.decode, tokens)})

    async def health(_: Request) -> Response:
        if service.failure is not None:
            return answer_json({"status": "error", "error": service.failure}, 500)
        if service.embedder is not None:
            return answer_json({"status": "ok"})
        if service.conversations is None:
            return answer_json({"status": "loading"}, 503, {"Retry-After": "2"})
        trouble = service.conversations.trouble()
        if trouble is not None:
            return answer_json({"status": "error", "error": trouble}, 500)
        return answer_json({"status": "ok", **service.conversations.state()})

    async def metrics(_: Request) -> Response:
        if not service.settings.metrics:
            raise Refusal(404, "metrics are off; start the server with --metrics", "not_found")
        engine, conversations = service.ready()
        return Response(_prometheus(engine, conversations), media_type="text/plain; version=0.0.4")

    async def page(_: Request) -> Response:
        with open(PAGE, encoding="utf-8") as file:
            text = file.read()
        return Response(text, media_type="text/html; charset=utf-8", headers={
            "Content-Security-Policy": policy(text), "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
        })

    async def ollama_chat(request: Request) -> Response:
        return await ollama_answer(service, request, ollama.chat, True)

    async def ollama_generate(request: Request) -> Response:
        return await ollama_answer(service, request, ollama.generate, False)

    async def ollama_tags(_: Request) -> Response:
        engine, _c = service.ready()
        size = os.path.getsize(engine.path) if os.path.isfile(engine.path) else 0
        return answer_json(ollama.tags(service.name, size, engine.fingerprint, engine.config, quantization()))

    async def ollama_show(request: Request) -> Response:
        engine, _c = service.ready()
        await body_of(request)
        return answer_json(ollama.show(service.name, engine.config, quantization(), engine.template.name,
                                       engine.plan.n_ctx, False))

    async def ollama_version(_: Request) -> Response:
        from edge import __version__

        return answer_json({"version": __version__})

    routes = [Route("/", page, methods=["GET"]), Route("/health", health), Route("/v1/health", health),
              Route("/metrics", metrics), Route("/tokenize", tokenize, methods=["POST"]),
              Route("/detokenize", detokenize, methods=["POST"]), Route("/kiosk/turn", kiosk_turn, methods=["POST"])]
    for path, handler, method in (("/models", models, "GET"), ("/models/{name:path}", one_model, "GET"),
                                  ("/chat/completions", chat, "POST"), ("/completions", completion, "POST"),
                                  ("/embeddings", embeddings, "POST")):
        routes += [Route(prefix + path, handler, methods=[method]) for prefix in ("/v1", "")]
    for path, handler, method in (("chat", ollama_chat, "POST"), ("generate", ollama_generate, "POST"),
                                  ("show", ollama_show, "POST"), ("tags", ollama_tags, "GET"),
                                  ("version", ollama_version, "GET")):
        routes.append(Route(f"/api/{path}", handler, methods=[method]))

    async def not_found(request: Request, _error: Exception) -> Response:
        return _refuse(request, Refusal(404, f"no such path: {request.url.path[:100]}", "not_found"))

    async def wrong_method(request: Request, _error: Exception) -> Response:
        return _refuse(request, Refusal(405, f"{request.method} is not allowed for {request.url.path[:100]}",
                                        "method_not_allowed"))

    async def refuse(request: Request, error: Exception) -> Response:
        return _refuse(request, refusal_of(error))

    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if startup is not None:
            threading.Thread(target=startup, name="loading", daemon=True).start()
        if wyoming is not None:
            await wyoming.start()
        yield
        if wyoming is not None:
            await wyoming.stop()
        await asyncio.to_thread(service.close)

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={
        404: not_found, 405: wrong_method, Refusal: refuse, EdgeError: refuse, Exception: refuse})
    return Guard(app, service)


def policy(page: str) -> str:
    """The Content-Security-Policy of the page: its own script and style by their hashes, and this server; no more."""
    def own(tag: str) -> str:
        inside = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        return "'sha256-" + base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() + "'"

    return (f"default-src 'none'; script-src {own('script')}; style-src {own('style')}; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def _refuse(request: Request, refusal: Refusal) -> Response:
    return refused(refusal, "ollama" if request.url.path.startswith("/api/") else "openai")


def _prometheus(engine: Engine, conversations: Conversations) -> str:
    """Counters and gauges in Prometheus' text form."""
    state = conversations.state()
    lines = []
    for name, kind, about, value in (
        ("requests_running", "gauge", "Answers in progress", state["running"]),
        ("requests_waiting", "gauge", "Requests in the queue", state["waiting"]),
        ("requests_served_total", "counter", "Answers made", state["served"]),
        ("requests_refused_total", "counter", "Requests refused because the queue was full", state["refused"]),
        ("requests_cancelled_total", "counter", "Requests whose client disconnected", state["cancelled"]),
        ("requests_failed_total", "counter", "Requests that failed with an internal error", state["failed"]),
        ("prompt_tokens_total", "counter", "Prompt tokens", state["prompt_tokens"]),
        ("prompt_tokens_cached_total", "counter", "Prompt tokens found in the KV cache", state["cached_tokens"]),
        ("answer_tokens_total", "counter", "Tokens written", state["answer_tokens"]),
        ("memory_planned_bytes", "gauge", "Planned memory", engine.plan.total_bytes),
        ("memory_resident_bytes", "gauge", "Memory in use", engine.rss()["rss"]),
    ):
        full = f"bitnet_edge_{name}"
        lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}", f"{full} {value}"]
    return "\n".join(lines) + "\n"


class Guard:
    """Who may ask: the name under which it is asked for (Host), the page that asks (Origin), the key.

    A name that an attacker points at this machine (DNS rebinding) is not one of ours; a page of another site has an
    Origin that is not ours.  Both are refused before a route sees the request.
    """

    #: paths that are answered without the key: a probe and the page have none
    OPEN = ("/", "/health", "/v1/health")

    def __init__(self, app: Any, service: Service) -> None:
        self._app = app
        self._service = service
        self._bodies = 0  # bytes of requests that are not answered yet

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        held = 0

        async def counted() -> Any:
            nonlocal held
            message = await receive()
            n = len(message.get("body", b""))
            if self._bodies + n > BODIES_LIMIT:
                raise Refusal(503, f"requests in progress take {BODIES_LIMIT} bytes; try again later", "memory",
                              retry_after=2)
            held += n
            self._bodies += n
            return message

        try:
            await self._guarded(scope, counted, send)
        finally:
            self._bodies -= held

    async def _guarded(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        style = "ollama" if scope["path"].startswith("/api/") else "openai"
        settings = self._service.settings
        host, origin = headers.get("host", ""), headers.get("origin")
        allowed = self._origin(origin, host)
        if not self._host(host):
            response = refused(Refusal(403, f"the host name '{host[:80]}' is not allowed; add it with "
                                       "--host-name", "host_refused"), style)
        elif origin is not None and allowed is None:
            response = refused(Refusal(403, f"requests from {origin[:80]} are not allowed; add this origin with --cors",
                                       "origin_refused"), style)
        elif scope["method"] == "OPTIONS" and allowed:
            response = Response(b"", 204, {
                "Access-Control-Allow-Methods": "GET, POST", "Access-Control-Max-Age": "600",
                "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "*")[:500]})
        elif settings.api_key is not None and scope["path"] not in self.OPEN and not self._key(headers):
            response = refused(Refusal(401, "the API key is missing or wrong", "invalid_api_key"), style)
        else:
            response = self._app

        async def with_cors(message: Any) -> None:
            if allowed and message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"],
                           (b"access-control-allow-origin", allowed.encode()), (b"vary", b"Origin")]}
            await send(message)

        await response(scope, receive, with_cors if allowed else send)

    def _host(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]").lower().rstrip(".")
        if not name:
            return True  # HTTP/1.0 and Unix sockets; no browser sends none
        try:
            ipaddress.ip_address(name)
            return True  # no name at all: cannot have been pointed here
        except ValueError:
            pass
        own = os.uname().nodename.lower()
        return name in ("localhost", own, f"{own}.local", *self._service.settings.hosts)

    def _origin(self, origin: str | None, host: str) -> str | None:
        """What to allow: "" for this server's own pages, the origin for one that was named; None: refuse."""
        if origin is None:
            return ""
        if origin in (f"http://{host}", f"https://{host}"):
            return ""
        cors = self._service.settings.cors
        return origin if origin in cors or "*" in cors else None

    def _key(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("authorization", "")
        given = given[7:] if given[:7].lower() == "bearer " else headers.get("x-api-key", "")
        return hmac.compare_digest(given.encode("latin-1").strip(), (self._service.settings.api_key or "").encode())
