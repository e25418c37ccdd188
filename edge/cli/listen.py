"""``chat --socket PATH``: the JSONL protocol for many clients, on a unix socket, as a service of systemd.

All clients share one session.  Each request carries its whole conversation, so that none can see another's; what the
conversations have in common (the system prompt) is read once; and the memory is that of one session, as planned.
Answers are made one after the other.  docs/kiosk.md describes the service.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import stat
from typing import TYPE_CHECKING, Any

from edge.cli import records
from edge.cli.jsonl import Client, Lines, Protocol
from edge.cli.notify import Notifier
from edge.errors import Busy, EdgeError, UsageError

if TYPE_CHECKING:
    from edge.cli.output import Output
    from edge.engine import Engine

#: bytes of a path in sockaddr_un.sun_path, its terminating NUL left out (unix(7))
PATH_LIMIT = 107
CLIENTS = 32  # connections at a time
SEND_SECONDS = 5.0  # a client that does not read for so long has gone


class Listener:
    """A listening unix socket; its file is removed when it closes.

    A file that a killed process left behind is replaced.  The file's mode is what the umask leaves of 0777: connecting
    needs the right to write.  Raises UsageError where nothing can listen and Busy where somebody does.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        size = len(os.fsencode(path))
        if not path or "\0" in path:
            raise UsageError("--socket needs the path of a file")
        if size > PATH_LIMIT:
            raise UsageError(f"the path of the socket has {size} bytes, Linux allows {PATH_LIMIT}: {path}")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._clear()
            self.socket.bind(path)
            self._made = _identity(path)
            self.socket.listen(CLIENTS)
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
        """Make room at the path, where that takes nothing away from anybody."""
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
        """Stop listening and remove the file, unless it has become somebody else's."""
        self.socket.close()
        try:
            if _identity(self.path) == self._made:
                os.unlink(self.path)
        except OSError:
            pass


def _identity(path: str) -> tuple[int, int]:
    facts = os.stat(path)
    return facts.st_dev, facts.st_ino


class Connection(Client):
    """A client at the other end of a socket.  One that goes away, or never reads, harms nobody else."""

    def __init__(self, connection: socket.socket, service: Service) -> None:
        super().__init__(self._send)
        self.socket = connection
        self.lines = Lines()
        self.gone = False
        self.finished = False  # it will ask nothing more, but may still read its answers
        self._service = service

    def fileno(self) -> int:
        return self.socket.fileno()

    def _send(self, event: dict[str, Any]) -> None:
        if self.gone:
            return
        try:
            self.socket.sendall(json.dumps(event, ensure_ascii=False).encode() + b"\n")
        except OSError:  # closed, or SEND_SECONDS are over
            self._service.abandon(self)


class Service(Protocol):
    """Serves a listening socket until a signal ends it."""

    def __init__(
        self,
        out: Output,
        engine: Engine,
        defaults: dict[str, Any],
        system: str | None,
        stats: bool,
        listener: Listener,
    ) -> None:
        super().__init__(out, engine, defaults, system, stats)
        self._listener = listener
        self._clients: list[Connection] = []
        self._notifier = Notifier()
        self._progress = 0  # tokens in the KV cache, when last looked at

    def run(self) -> int:
        """Listen; only exceptions (signals) end it."""
        self.session.system = self.system
        self.session.warm()  # reads every weight: the first answer need not wait for the card
        self._notifier.send(f"READY=1\nSTATUS={self.engine.config.name} listens at {self._listener.path}")
        self.out.info(f"listening at {self._listener.path}")
        try:
            return self.serve(self._accept)
        finally:
            self._notifier.send("STOPPING=1")
            for client in self._clients:
                client.socket.close()

    def _accept(self) -> None:
        """Look at all sockets, and at the clock for the watchdog."""
        listening = self._listener.socket
        while True:
            asking = [client for client in self._clients if not client.finished]
            # Whoever only waits for answers wakes nobody when they have been given: look now and then.
            patience = 0.2 if len(asking) < len(self._clients) else self._notifier.seconds
            watched: list[Any] = [listening, self._wake_r, *asking]
            ready, _, _ = select.select(watched, [], [], patience)
            self._feed_watchdog()
            if self._wake_r in ready:
                raise self._failure or RuntimeError("the worker ended")
            for client in asking:
                if client in ready:
                    self._read_from(client)
            if listening in ready:
                self._welcome()
            self._dismiss()

    def _welcome(self) -> None:
        try:
            connection, _ = self._listener.socket.accept()
        except OSError:  # it has gone again, or this process has too many files open
            return
        connection.settimeout(SEND_SECONDS)
        client = Connection(connection, self)
        if len(self._clients) >= CLIENTS:
            client.emit(records.error("busy", f"{CLIENTS} clients are connected already"))
            connection.close()
            return
        self._clients.append(client)
        client.emit(records.ready(self.engine))

    def _read_from(self, client: Connection) -> None:
        try:
            data = client.socket.recv(1 << 16)
        except OSError:
            self.abandon(client)
            return
        for line in client.lines.feed(data) if data else client.lines.rest():
            self.handle(line, client)
        client.finished = not data

    def _dismiss(self) -> None:
        """Close the connections of those who have left, and of those who have got all they asked for."""
        for client in self._clients[:]:
            if client.gone or (client.finished and not self._waits(client)):
                self._clients.remove(client)
                client.socket.close()

    def _waits(self, client: Client) -> bool:
        with self._lock:
            return any(job.client is client for job in self._pending)

    def abandon(self, client: Connection) -> None:
        """Nobody will read the answers to this client any more; from any thread."""
        client.gone = True
        try:
            client.socket.shutdown(socket.SHUT_RDWR)  # wakes select()
        except OSError:
            pass
        with self._lock:
            for job in self._pending:
                if job.client is client:
                    job.cancelled = True
                    if job is self._running:
                        self.session.cancel()

    def _feed_watchdog(self) -> None:
        """Alive is: nothing to do, or the answer has grown since the last look.

        A decode loop that hangs stops the feeding, however well this thread may be.
        """
        with self._lock:
            idle = not self._pending
        tokens = self.session.n_tokens
        if idle or tokens != self._progress:
            self._notifier.alive()
        self._progress = tokens
