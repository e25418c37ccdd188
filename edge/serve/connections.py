"""HTTP connections: one that sends no request is closed, so that it does not block others.

What has arrived is read before a connection is called silent: many may come in one turn of the event loop, and their
requests are read in the next.
"""

from __future__ import annotations

import asyncio
import select
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from edge.serve.calls import Refusal, dump
from edge.serve.protocols import openai

SILENT = 10.0  # seconds for the header of a request; between two requests uvicorn waits for the first byte
PATIENCE = 1.0  # the same, while all connections are in use
RETRY = 2  # seconds after which a client that found all of them in use should try again


def _full() -> bytes:
    """The response to whoever comes when all connections are in use."""
    body = dump(openai.error(Refusal(429, "all connections are in use; try again later", "too_many_connections")))
    return (f"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Retry-After: {RETRY}\r\nConnection: close\r\n\r\n").encode() + body


class Connection(H11Protocol):
    """Closed if a header is not complete after SILENT seconds, and earlier if all connections are in use
    (``limit_concurrency``).  Then a new one gets status 429, and is closed if there are twice as many.
    """

    since = 0.0  # when it came
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._most, self.limit_concurrency = self.limit_concurrency, None  # uvicorn would answer with status 503
        self._refused = False

    def connection_made(self, transport: Any) -> None:
        """Called by asyncio for a new connection."""
        self.since = self.loop.time()
        if self._most is not None and len(self.connections) >= self._most:
            self._make_room()
            self._refused = len(self.connections) >= self._most
        super().connection_made(transport)
        if self._refused and self._most is not None and len(self.connections) > 2 * self._most:
            self.close()
        else:
            self._watch()

    def _make_room(self) -> None:
        """Close the connection that has been silent for the longest time, if that is long enough."""
        silent = [each for each in self.connections if isinstance(each, Connection) and each.silent]
        for each in sorted(silent, key=lambda each: each.since):
            if self.since - each.since < PATIENCE:
                break
            if not each.unread:
                each.close()
                break

    def data_received(self, data: bytes) -> None:
        """Called by asyncio for data of the client."""
        if self._refused:
            self.transport.write(_full())
            self.transport.close()
            return
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio after the connection has ended."""
        self._stop()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for data that are not HTTP.  If no response can be sent any more, only close."""
        try:
            super().send_400_response(msg)
        except Exception:  # h11: one has begun already, or it must not have a body (HEAD)
            self.transport.close()

    @property
    def silent(self) -> bool:
        """Whether no request is being received or answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def unread(self) -> bool:
        """Whether something has arrived that was not read yet."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the connection."""
        self._stop()
        self.connections.discard(self)
        self.transport.abort()

    def _watch(self) -> None:
        if not self.silent:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(SILENT, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.silent:
            self.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
