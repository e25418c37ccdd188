"""Bodies: limits for requests that are still being received, so that a client that withholds its body does not block
others.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from edge.serve.calls import Refusal

LIMIT = 4 << 20  # bytes of a body
SECONDS = 30.0  # for a whole body
MOST = 32  # received at a time for longer than PATIENCE: an honest one is there within milliseconds
PATIENCE = 1.0  # seconds
TURNS = 3  # of the event loop, from the data of a connection to the body that has them


class Bodies:
    """The bodies that one service is receiving."""

    def __init__(self) -> None:
        self._receiving = 0

    async def read(self, request: Request) -> bytes:
        """The body of a request.  Raises Refusal: 408 if it does not arrive in time, 413 if it is longer than LIMIT."""
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared[:20]) > LIMIT:
            raise Refusal(413, f"the request has {declared[:20]} bytes; the limit is {LIMIT}", "too_large")
        data, loop = bytearray(), asyncio.get_running_loop()
        receiving = asyncio.ensure_future(_receive(request, data))
        self._receiving += 1
        end = loop.time() + SECONDS
        try:
            while not receiving.done():
                await asyncio.wait({receiving}, timeout=min(PATIENCE, SECONDS))
                await _catch_up(receiving, data)
                if receiving.done():
                    break
                if loop.time() >= end:
                    raise Refusal(408, f"the body of the request did not arrive within {SECONDS:g} seconds", "timeout")
                if self._receiving > MOST:
                    raise Refusal(408, "the body of the request is late, and the server is busy; try again", "timeout")
            return receiving.result()
        finally:
            self._receiving -= 1
            receiving.cancel()


async def _catch_up(receiving: asyncio.Future[bytes], data: bytearray) -> None:
    """Let everything be read that has arrived: the loop may have been busy for longer than any limit."""
    before = -1
    while not receiving.done() and len(data) > before:
        before = len(data)
        for _ in range(TURNS):
            await asyncio.sleep(0)


async def _receive(request: Request, data: bytearray) -> bytes:
    async for part in request.stream():
        data += part
        if len(data) > LIMIT:
            raise Refusal(413, f"the request has more than {LIMIT} bytes", "too_large")
    return bytes(data)
