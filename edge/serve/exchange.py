"""HTTP: bodies of requests; responses: JSON, errors, streams, and clients that disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from edge.serve.bodies import LIMIT, VALUE, cost, parse, size_of
from edge.serve.calls import Refusal, dump
from edge.serve.protocols import openai

SECONDS = 30.0  # for the whole body of a request
BODIES_LIMIT = 8 << 20  # bytes of all requests that are being received or answered
RESERVE = 3 * BODIES_LIMIT  # bytes in the memory plan for connections and requests
#: of errors: status -> headers
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}, 415: {"Accept-Encoding": "identity"}}


async def body_of(request: Request) -> Any:
    """The JSON value of a request's body.  Raises Refusal if it is late (408), longer than LIMIT (413), compressed
    (415) or not JSON.
    """
    if set(request.headers.getlist("content-encoding")) - {"identity"}:
        raise Refusal(415, "the body of the request is compressed or encoded; send it as it is, without "
                      "Content-Encoding", "unsupported_encoding")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > LIMIT:
        raise Refusal(413, f"the request has {declared[:20]} bytes; the limit is {LIMIT}", "too_large")
    try:
        data = await asyncio.wait_for(_receive(request), SECONDS)
    except asyncio.TimeoutError:
        raise Refusal(408, f"the body of the request did not arrive within {SECONDS:g} seconds", "timeout") from None
    request.scope["hold"](size_of(data) + VALUE * cost(data) - len(data))
    return parse(data, LIMIT, "too_large")


async def _receive(request: Request) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > LIMIT:
            raise Refusal(413, f"the request has more than {LIMIT} bytes", "too_large")
    return bytes(data)


def answer_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with ``value`` as JSON."""
    return Response(dump(value), status, dict(headers or {}), "application/json")


def refused(refusal: Refusal, style: str = "openai", more: Mapping[str, str] | None = None) -> Response:
    """An error in the form of the client's API.  ``more``: other headers."""
    headers = dict(more or {})
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after)))
    if refusal.status in (400, 401, 403, 404, 413, 415):
        headers["x-should-retry"] = "false"
    headers |= HEADERS.get(refusal.status, {})
    body = {"error": str(refusal)} if style == "ollama" else openai.error(refusal)
    return answer_json(body, refusal.status, headers)


class Streamed(StreamingResponse):
    """A stream that ends at once when its client disconnects, also while nothing is sent; then ``gone`` is called.
    Starlette's own loads another 21 modules for that.
    """

    def __init__(self, body: AsyncIterator[bytes], kind: str, headers: Mapping[str, str], gone: Callable[[], object]):
        super().__init__(body, 200, {**headers, "cache-control": "no-store", "x-accel-buffering": "no"}, kind)
        self._gone = gone

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with suppress(ClientDisconnect, OSError):
            await watched(receive, self.stream_response(send), self._gone)


async def watched(receive: Callable[[], Awaitable[Any]], work: Awaitable[Any], gone: Callable[[], object]) -> Any:
    """Await ``work``; ends it if the client disconnects.  Raises ClientDisconnect."""
    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, leaving = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone()
        leaving.cancel()
        task.cancel()
