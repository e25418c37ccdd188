"""Responses of HTTP: JSON, errors, streams, and clients that disconnect; edge/serve/bodies.py has the requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from edge.serve.calls import Refusal, dump
from edge.serve.protocols import openai

BODIES_LIMIT = 8 << 20  # bytes of all requests that are being received or answered
RESERVE = 3 * BODIES_LIMIT  # bytes in the memory plan for connections and requests
QUIET = 15.0  # seconds after which a stream without data sends a comment, so that no proxy closes it


def answer_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with ``value`` as JSON."""
    return Response(dump(value), status, dict(headers or {}), "application/json")


def refused(refusal: Refusal, style: str = "openai") -> Response:
    """An error in the form of the client's API."""
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after)))
    if refusal.status == 408:
        headers["Connection"] = "close"
    if refusal.status == 415:
        headers["Accept-Encoding"] = "identity"
    if refusal.status in (400, 401, 403, 404, 413, 415):
        headers["x-should-retry"] = "false"
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = {"error": str(refusal)} if style == "ollama" else openai.error(refusal)
    return answer_json(body, refusal.status, headers)


class StreamedResponse(Response):
    """A streamed response that notices at once when the client disconnects, also while nothing is sent.

    ``body``: the chunks.  ``gone``: called when the client has disconnected.  ``comment``: sent while there are none.
    """

    def __init__(
        self, body: AsyncIterator[bytes], kind: str, headers: Mapping[str, str], gone: Callable[[], object],
        comment: bytes | None = None,
    ) -> None:
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
    """Await ``work``; ends it if the client disconnects.  Raises ClientDisconnect."""
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
