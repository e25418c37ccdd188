"""HTTP connections: what uvicorn leaves open, or closes too early."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SILENT = 10.0  # seconds for the header of a request; between two requests uvicorn waits for the first byte

LOOK = 0.25  # seconds between two looks for a client that sends no more, and may have left


class Connection(H11Protocol):
    """Closed if a header is not complete after SILENT seconds, or at once if there are ``most``.

    ``full``: called if there are.
    """

    def __init__(self, *arguments: Any, most: int, full: Callable[[], object], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._most = most
        self._full = full
        self._timer: asyncio.TimerHandle | None = None
        self._all_sent = False

    def connection_made(self, transport: Any) -> None:
        """Called by asyncio for a new connection."""
        super().connection_made(transport)
        if len(self.connections) > self._most:
            self._full()
            transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio for data of the client."""
        super().data_received(data)
        self._watch()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Called by asyncio if the client sends no more; True: the connection stays open for its answer.

        A client on a Unix socket may wait for one (``nc -N``).  On TCP one that has left looks the same: it has left.
        """
        unix = self.transport.get_extra_info("socket").family == socket.AF_UNIX
        asked = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        self._all_sent = unix and asked and not self._alone()
        if self._all_sent:
            self.loop.call_later(LOOK, self._look)
        return self._all_sent

    def on_response_complete(self) -> None:
        """Called by uvicorn when a response has been sent; perhaps it answers the next request then."""
        super().on_response_complete()
        if self._all_sent and self.cycle.response_complete:
            self.transport.close()

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

    def _alone(self) -> bool:
        """True if the client has left: asyncio does not say so when it has sent all."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), 0)
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        if self._alone():
            self.transport.abort()
        else:
            self.loop.call_later(LOOK, self._look)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # a request is received or answered
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(SILENT, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
