"""HTTP connections: one that sends no request is closed, so that it does not block others."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SILENT = 10.0  # seconds for the header of a request; between two requests uvicorn waits for the first byte


class Connection(H11Protocol):
    """Closed if a header is not complete after SILENT seconds, and earlier if all connections are in use."""

    since = 0.0  # when it came
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Called by asyncio for a new connection."""
        if self.limit_concurrency is not None and len(self.connections) + 1 >= self.limit_concurrency:
            silent = [each for each in self.connections if isinstance(each, Connection) and each.silent]
            if silent:
                min(silent, key=lambda each: each.since).close()
        self.since = self.loop.time()
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio for data of the client."""
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
