"""Bodies: limits for requests that are still being received, so that a client that withholds its body does not block
others.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from edge.serve.calls import Refusal

LIMIT = 4 << 20  # bytes of a body
SECONDS = 30.0  # for a whole body
MOST = 32  # received at a time; beyond that the oldest gives way: an honest one is there within milliseconds


class Bodies:
    """The bodies that one service is receiving."""

    def __init__(self) -> None:
        self._receiving: dict[asyncio.Future[bytes], None] = {}  # the oldest first

    async def read(self, request: Request) -> bytes:
        """The body of a request.  Raises Refusal: 408 if it does not arrive in time, 413 if it is longer than LIMIT."""
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared[:20]) > LIMIT:
            raise Refusal(413, f"the request has {declared[:20]} bytes; the limit is {LIMIT}", "too_large")
        if len(self._receiving) >= MOST:
            oldest = next(iter(self._receiving))
            del self._receiving[oldest]
            oldest.cancel()
        receiving = asyncio.ensure_future(_receive(request))
        self._receiving[receiving] = None
        try:
            await asyncio.wait({receiving}, timeout=SECONDS)
            if not receiving.done():
                raise Refusal(408, f"the body of the request did not arrive within {SECONDS:g} seconds", "timeout")
            if receiving.cancelled():
                raise Refusal(408, "the body of the request is late, and the server is busy; try again", "timeout")
            return receiving.result()
        finally:
            self._receiving.pop(receiving, None)
            receiving.cancel()


async def _receive(request: Request) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > LIMIT:
            raise Refusal(413, f"the request has more than {LIMIT} bytes", "too_large")
    return bytes(data)
