"""HTTP: the routes.  An ASGI application on Starlette; edge/cli/serve.py runs it on uvicorn.

    GET  /                       the page             POST /v1/chat/completions   GET /health
    GET  /v1/models              (all also            POST /v1/completions        GET /metrics (if asked for)
    POST /tokenize, /detokenize   without /v1)        POST /v1/responses, /v1/embeddings
    POST /api/chat /api/generate /api/show /api/embed  GET  /api/tags /api/ps /api/version   as Ollama
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edge.errors import EdgeError, UsageError, check_text, shown
from edge.serve import keys, page
from edge.serve.answers import answer
from edge.serve.calls import Call, Refusal, refusal_of
from edge.serve.exchange import answer_json, body_of, refused, watched
from edge.serve.guard import Guard, style_of
from edge.serve.protocols import Writer, ollama, openai, responses
from edge.serve.service import Service

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.serve.conversations import Conversations

TEXT_LIMIT = 1 << 18  # characters to tokenize, tokens to detokenize: a tenth of a second


def application(service: Service, startup: Callable[[], object] | None = None) -> Any:
    """The ASGI application.

    ``startup`` starts to load the model; it is called once the port is open.
    """
    html, files = page.index(service.settings), page.files()

    def told(value: Callable[[Service], Any]) -> Any:
        """A route that needs nothing of its request."""
        async def route(_: Request) -> Response:
            return answer_json(value(service))
        return route

    async def one_model(request: Request) -> Response:
        found = openai.models(service)
        service.named(request.path_params["name"])
        return answer_json(found["data"][0])

    async def embedded(request: Request, inputs: list[str], cut: bool = False) -> Any:
        gone = threading.Event()
        return await watched(request.receive, asyncio.to_thread(service.vectors, inputs, gone, cut), gone.set)

    async def embeddings(request: Request) -> Response:
        body = await body_of(request)
        inputs, coded = openai.embedding(body, service.embedding_model().config.hidden)
        vectors, tokens = await embedded(request, inputs)
        return answer_json(openai.embeddings(service.name, vectors, coded, tokens))

    async def tokenize(request: Request) -> Response:
        engine, _c = service.ready()
        asked = keys.read(await body_of(request), keys.TOKENIZE)
        text = check_text(next(iter(asked.values()), None), "content")
        if len(text) > TEXT_LIMIT:
            raise Refusal(413, f"the text has {len(text)} characters; the limit is {TEXT_LIMIT}", "too_large")
        return answer_json({"tokens": list(await asyncio.to_thread(engine.tokenizer.encode, text))})

    async def detokenize(request: Request) -> Response:
        engine, _c = service.ready()
        tokens = keys.read(await body_of(request), keys.DETOKENIZE).get("tokens", ())
        if len(tokens) > TEXT_LIMIT:
            raise Refusal(413, f"tokens has {len(tokens)} ids; the limit is {TEXT_LIMIT}", "too_large")
        n_vocab = engine.config.n_vocab
        for token in tokens:
            if type(token) is not int or not 0 <= token < n_vocab:
                raise UsageError(f"has {shown(token)}; ids are from 0 to {n_vocab - 1}", argument="tokens")
        return answer_json({"content": await asyncio.to_thread(engine.tokenizer.decode, tokens)})

    async def health(_: Request) -> Response:
        if (trouble := service.trouble()) is not None:
            return answer_json({"status": "error", "error": trouble}, 500)
        if service.embedder is None and service.engine is None:
            return answer_json({"status": "loading"}, 503, {"Retry-After": "2"})
        return answer_json({"status": "ok", **(service.conversations.state() if service.conversations else {})})

    async def metrics(_: Request) -> Response:
        if not service.settings.metrics:
            raise Refusal(404, "metrics are off; start the server with --set metrics=on", "not_found")
        engine, conversations = service.ready()
        return Response(_prometheus(engine, conversations), media_type="text/plain; version=0.0.4")

    async def index(request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):  # clients of Ollama look for these words
            return Response("Ollama is running", media_type="text/plain", headers={"Vary": "Accept"})
        return Response(html, media_type="text/html; charset=utf-8", headers={**page.HEADERS, "Vary": "Accept"})

    async def page_file(request: Request) -> Response:
        if (found := files.get(request.path_params["name"])) is None:
            raise HTTPException(404)
        return Response(found[0], media_type=found[1], headers=page.HEADERS)

    async def ollama_embed(request: Request) -> Response:
        body, begun = await body_of(request), time.perf_counter_ns()
        inputs, cut = ollama.embed(body, service.embedding_model().config.hidden)
        vectors, tokens = await embedded(request, inputs, cut)
        return answer_json(ollama.embeddings(service.name, vectors, tokens, time.perf_counter_ns() - begun))

    async def ollama_embeddings(request: Request) -> Response:
        vectors, _ = await embedded(request, ollama.embeddings_of_old(await body_of(request)))
        return answer_json({"embedding": vectors[0].tolist()})

    async def ollama_show(request: Request) -> Response:
        asked, found = keys.read(await body_of(request), keys.OLLAMA_SHOW), ollama.show(service)
        service.named(check_text(asked.get("model") or asked.get("name") or None, "model"))
        return answer_json(found)

    def answers(parse: Callable[..., Call], writer: Callable[..., Writer]) -> Any:
        return partial(answer, service, parse, writer)

    openai_api = {
        "GET /models": told(openai.models), "GET /models/{name:path}": one_model,
        "POST /chat/completions": answers(openai.chat, openai.Writer),
        "POST /completions": answers(openai.completion, openai.Writer),
        "POST /responses": answers(responses.parse, responses.Writer), "POST /embeddings": embeddings}
    table = {
        "GET /": index, f"GET {page.PREFIX}{{name}}": page_file,
        "GET /health": health, "GET /v1/health": health, "GET /metrics": metrics,
        "POST /tokenize": tokenize, "POST /detokenize": detokenize, **openai_api,
        **{each.replace(" ", " /v1"): handler for each, handler in openai_api.items()},
        "POST /api/chat": answers(ollama.chat, partial(ollama.Writer, True)),
        "POST /api/generate": answers(ollama.generate, partial(ollama.Writer, False)), "POST /api/show": ollama_show,
        "GET /api/tags": told(ollama.tags), "GET /api/ps": told(ollama.ps), "GET /api/version": told(ollama.version),
        "POST /api/embed": ollama_embed, "POST /api/embeddings": ollama_embeddings}
    routes = [Route(each.partition(" ")[2], handler, methods=[each.partition(" ")[0]])
              for each, handler in table.items()]

    async def refuse(request: Request, error: Exception) -> Response:
        """Also for paths and methods that Starlette does not find."""
        status, path = getattr(error, "status_code", None), request.url.path[:100]
        allow = getattr(error, "headers", None)  # of 405: the methods that are
        if status == 404:
            error = Refusal(404, f"no such path: {path}", "not_found")
        elif status == 405:
            error = Refusal(405, f"{request.method} is not allowed for {path}", "method_not_allowed")
        return refused(refusal_of(error), style_of(request.scope), allow)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if startup is not None:
            startup()
        yield
        await asyncio.to_thread(service.close)

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={
        HTTPException: refuse, Refusal: refuse, EdgeError: refuse, Exception: refuse})
    return Guard(app, service)


def _prometheus(engine: Engine, conversations: Conversations) -> str:
    """Counters and gauges in Prometheus' text format."""
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
