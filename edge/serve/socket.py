"""A JSONL protocol for many clients on a Unix socket, as a service of systemd.

One event loop reads and writes for all clients and never waits for one: output that a client does not read is kept, up
to BUFFER bytes, then the client is disconnected.  What waits for all clients together is limited, too, and part of the
memory plan (RESERVE).  docs/service.md describes the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import select
import socket
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edge.errors import Busy, EdgeError, UsageError
from edge.serve import records
from edge.serve.client import QUEUE_BYTES, Channel
from edge.serve.notify import Notifier

if TYPE_CHECKING:
    from edge.serve.protocols.jsonl import Client

#: most bytes of a path in sockaddr_un.sun_path, without its terminating NUL (unix(7))
PATH_LIMIT = 107
CLIENTS = 64  # connections at a time
BACKLOG = 1024  # connections that wait to be accepted, if only to receive an error because all places are taken
BUFFER = 512 << 10  # bytes that may wait for a client to read them
UNREAD = 8 * BUFFER  # bytes that may wait for all clients together
#: bytes in the memory plan for the service and its connections, for requests (as text, and parsed), and for events
RESERVE = (8 << 20) + 2 * QUEUE_BYTES + UNREAD
TICK = 0.2  # seconds between two checks of clients that send nothing, and of the watchdog
LAST_SECONDS = 5.0  # for the last events: when the service ends, and for clients that are done


class Listener:
    """A listening Unix socket; its file is removed when it closes.

    A file left by a killed process is replaced.  The mode of the file is 0777 without the bits of the umask; clients
    need write permission to connect.  Raises UsageError if the path cannot be used, and Busy if another process listens
    there.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        size = len(os.fsencode(path))
        if not path or "\0" in path:
            raise UsageError("--socket needs the path of a file")
        if size > PATH_LIMIT:
            raise UsageError(f"the path of the socket has {size} bytes; the limit is {PATH_LIMIT}: {path}")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._clear()
            self.socket.bind(path)
            self._made = _identity(path)
            self.socket.listen(BACKLOG)
            self.socket.setblocking(False)
        except OSError as error:
            self.socket.close()
            if error.errno == errno.ENOENT:
                raise UsageError(f"cannot listen at {path}: folder {os.path.dirname(path) or '.'} does not "
                                 "exist; create it first") from None
            if error.errno == errno.EADDRINUSE:  # somebody was faster
                raise Busy(f"another process listens at {path}") from None
            raise UsageError(f"cannot listen at {path}: {error.strerror or error}") from None
        except EdgeError:
            self.socket.close()
            raise

    def _clear(self) -> None:
        """Remove an old socket file at the path, if nobody uses it."""
        try:
            mode = os.stat(self.path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise UsageError(f"cannot listen at {self.path}: the file exists and is not a socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                os.unlink(self.path)
                return
            except TimeoutError:  # its queue is full: very much in use
                pass
        raise Busy(f"another process listens at {self.path}")

    def close(self) -> None:
        """Stop listening and remove the file, unless another process has replaced it."""
        self.socket.close()
        try:
            if _identity(self.path) == self._made:
                os.unlink(self.path)
        except OSError:
            pass


def _identity(path: str) -> tuple[int, int]:
    facts = os.stat(path)
    return facts.st_dev, facts.st_ino


class Connection(asyncio.Protocol):
    """A client of the socket.  One that disconnects, or never reads, does not affect others."""

    def __init__(self, server: Server) -> None:
        self.client: Client | None = None
        self.closed_at: float | None = None  # when the last event was sent
        self._server = server
        self._transport: asyncio.WriteTransport | None = None
        self._poll = select.poll()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio for a new connection; one too many gets the error "busy" and is closed."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._poll.register(transport.get_extra_info("socket").fileno(), 0)
        if not self._server.admit(self):
            self.send(records.error("busy", f"{CLIENTS} clients are connected already"))
            self.close()
            return
        self.client = self._server.welcome(self)
        self.client.begin()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio for data of the client."""
        if self.client is not None:
            self.client.feed(data)
            if self.client.lines.held:
                self._server.shorten()

    def eof_received(self) -> bool:
        """The client has closed its side, or disconnected."""
        if self.client is not None:
            self.client.end()
            self.look()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio after the connection has ended."""
        self._server.dismiss(self)
        self._transport = None
        if self.client is not None:
            self.client.leave()
            # each holds the other, and so they would stay in memory until Python looks for such objects
            self.client.lines.give_up()
            self.client = None

    def look(self) -> None:
        """Disconnect if the client has hung up: while it sends nothing, no event tells so."""
        hung_up = any(events & (select.POLLHUP | select.POLLERR) for _, events in self._poll.poll(0))
        late = self.closed_at is not None and time.monotonic() - self.closed_at > LAST_SECONDS
        if hung_up or late:
            self.drop()

    @property
    def others(self) -> int:
        """Bytes of the waiting requests of the other clients."""
        return self._server.queued - (self.client.queued if self.client is not None else 0)

    @property
    def unread(self) -> int:
        """Bytes that wait for the client to read them."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, event: dict[str, Any]) -> None:
        """Write one event as a line; a client that leaves more than BUFFER bytes unread is disconnected, and if all
        together leave more than UNREAD, the one that leaves most.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(json.dumps(event, ensure_ascii=False).encode() + b"\n")
        if unread := self.unread:
            if unread > BUFFER:
                self.drop()
            self._server.drain()

    async def room(self) -> None:
        """Returns at once: a client that does not read is disconnected."""

    def close(self) -> None:
        """Close the connection after everything is written."""
        if self._transport is not None and not self._transport.is_closing():
            self.closed_at = time.monotonic()
            self._transport.close()

    def drop(self) -> None:
        """Disconnect the client at once."""
        if self.client is not None:
            self.client.leave()
        if self._transport is not None:
            self._transport.abort()


def _ignore(_loop: object, _context: object) -> None:
    pass


class Server:
    """Serves a listening socket until it is cancelled.

    ``welcome``: makes the client of a connection.  ``alive``: whether work has made progress since it was last called.
    ``status``: a text for systemd.
    """

    def __init__(
        self, listener: Listener, welcome: Callable[[Channel], Client], alive: Callable[[], bool], status: str
    ) -> None:
        self.welcome = welcome
        self._listener = listener
        self._alive = alive
        self._status = status
        self._connections: set[Connection] = set()
        self._notifier = Notifier()

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for another connection."""
        if len(self._connections) >= CLIENTS:
            return False
        self._connections.add(connection)
        return True

    def dismiss(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._connections.discard(connection)

    @property
    def queued(self) -> int:
        """Bytes of the requests of all clients that wait or run."""
        return sum(client.queued for client in self._clients())

    def _clients(self) -> list[Client]:
        return [each.client for each in self._connections if each.client is not None]

    def shorten(self) -> None:
        """Give up the longest unfinished lines if they and all requests have more than QUEUE_BYTES together."""
        clients = self._clients()
        while sum(client.queued + client.lines.held for client in clients) > QUEUE_BYTES:
            longest = max(clients, key=lambda client: client.lines.held)
            if not longest.lines.held:
                return
            longest.lines.give_up()
            longest.emit(records.error("busy", f"requests of all clients take {QUEUE_BYTES} bytes; try again later"))

    def drain(self) -> None:
        """Disconnect the clients that leave most unread if all leave more than UNREAD bytes together."""
        unread = sum(each.unread for each in self._connections)
        for most in sorted(self._connections, key=lambda each: -each.unread):
            if unread <= UNREAD:
                return
            unread -= most.unread
            most.drop()

    async def run(self, ready: Callable[[], object]) -> None:
        """Listen; ``ready`` is called when clients can connect."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_ignore)  # no file descriptor left: accept() is tried again
        server = await loop.create_server(lambda: Connection(self), sock=self._listener.socket, backlog=BACKLOG)
        self._notifier.send(f"READY=1\nSTATUS={self._status}")
        ready()
        try:
            while True:
                await asyncio.sleep(min(TICK, self._notifier.seconds or TICK))
                if self._notifier.due and self._alive():
                    self._notifier.alive()
                for connection in list(self._connections):
                    if connection.closed_at is not None or connection.client is None or connection.client.finished:
                        connection.look()
        finally:
            self._notifier.send("STOPPING=1")
            server.close()
            await self._farewell()

    async def _farewell(self) -> None:
        """End all answers and tell the clients."""
        stopping = [asyncio.ensure_future(client.stop()) for client in self._clients()]
        until = time.monotonic() + LAST_SECONDS
        if stopping:
            await asyncio.wait(stopping, timeout=LAST_SECONDS)
        while self._connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.drop()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
