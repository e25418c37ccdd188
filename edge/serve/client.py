"""What a client of a JSONL service is connected by: lines that come in, a channel for events that go out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

LINE_LIMIT = 4 << 20  # bytes of one request; a longer line is a mistake or an attack
QUEUE_LIMIT = 64  # requests of one client that may wait
QUEUE_BYTES = 2 * LINE_LIMIT  # of these; also of all clients of a service together


class Channel(Protocol):
    """The connection to a client.  It never blocks: a socket that the client does not read is closed
    (edge/serve/socket.py); a full standard output makes the answer wait (edge/serve/pipe.py).
    """

    @property
    def others(self) -> int:
        """Bytes of the waiting requests of the other clients of the service."""

    def send(self, event: dict[str, Any]) -> None:
        """Write one event as a line; returns at once."""

    async def room(self) -> None:
        """Wait until the client has read enough that more should be written."""

    def close(self) -> None:
        """Close the connection after everything is written."""


class Lines:
    """Splits incoming data into lines; None stands for a line that is too long."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that ``data`` completes."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
                continue
            if self._held:
                self._held += line
                line, self._held = bytes(self._held), bytearray()
            yield line if len(line) <= LINE_LIMIT else None
        if not self._skipping:
            self._held += rest
            if len(self._held) > LINE_LIMIT:
                self.give_up()
                yield None

    @property
    def held(self) -> int:
        """Bytes of the line that is not complete yet."""
        return len(self._held)

    def give_up(self) -> None:
        """Leave out the line that is not complete yet."""
        self._held, self._skipping = bytearray(), True

    def rest(self) -> Iterator[bytes]:
        """A last line without a newline."""
        if self._held and not self._skipping:
            line, self._held = bytes(self._held), bytearray()
            yield line
