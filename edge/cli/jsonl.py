"""``chat --jsonl``: the conversation protocol for programs, version 1, one JSON object a line.

The main thread reads requests and stays free for cancel, ping and signals; one worker thread answers, in order.  A bad
line is answered with an error event and never ends the process; unknown keys are ignored.  docs/contract.md describes
the events.  Here one client speaks through the standard streams; edge/cli/listen.py serves many through a socket.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import select
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from edge.cli import records
from edge.cli.output import Output
from edge.errors import EdgeError
from edge.session.sampling import Sampling
from edge.session.stream import BY

if TYPE_CHECKING:
    from edge.engine import Engine

FORMS = ("schema", "regex", "choices", "grammar")  # what an answer has to be: at most one of them
LINE_LIMIT = 4 << 20  # bytes of one request; a longer line is a mistake or an attack
QUEUE_LIMIT = 64  # requests that may wait
ROLES = ("system", "user", "assistant")

#: other names for the same keys, as the command line spells them
_SPELLINGS = {"temp": "temperature"}


#: key of a chat request -> (is the value good?, what it should be)
_KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_tokens": (lambda v: type(v) is int and v >= 0, "must be a whole number from 0"),
    "timeout": (lambda v: type(v) in (int, float) and 0 < v <= 1e9, "must be a number of seconds above 0"),
    "by": (lambda v: v in BY, "must be token, word, sentence or all"),
    "ignore_eos": (lambda v: type(v) is bool, "must be true or false"),
}


class Client:
    """Who asks; the events for it go to ``write``, one at a time."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._writing = threading.Lock()

    def emit(self, event: dict[str, Any], ident: str | int | None = None) -> None:
        """Write one event; whole lines only, whichever thread writes."""
        with self._writing:
            self._write(event if ident is None else {"id": ident, **event})


class Lines:
    """Cuts what arrives into lines; None stands for one that is too long."""

    def __init__(self) -> None:
        self._held = b""
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that ``data`` completes."""
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
            else:
                yield line
        if len(self._held) > LINE_LIMIT:
            if not self._skipping:
                yield None
            self._skipping, self._held = True, b""

    def rest(self) -> Iterator[bytes]:
        """A last line that no newline ends."""
        if self._held and not self._skipping:
            yield self._held


@dataclasses.dataclass
class Job:
    """One request on its way through the worker."""

    client: Client
    id: str | int | None
    op: str
    messages: list[dict[str, str]] = dataclasses.field(default_factory=list)
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    cancelled: bool = False
    answered: bool = False  # its last event is on its way: the id may be used again


class Protocol:
    """Serves standard input until its end.

    ``defaults`` are the ask arguments that the options gave; ``stats``: a line about each answer to standard error.
    """

    def __init__(
        self, out: Output, engine: Engine, defaults: dict[str, Any], system: str | None, stats: bool = False
    ) -> None:
        self.out = out
        self.engine = engine
        self.defaults = defaults
        self.system = system
        self.session = engine.session()
        self.remarked: str | None = None  # the error of --kv-offload that has been told
        self.client = Client(out.json)
        self.stats = stats
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._pending: list[Job] = []  # waiting or running, oldest first
        self._running: Job | None = None
        self._lock = threading.Lock()  # guards _pending and _running
        self._failure: BaseException | None = None
        self._wake_r, self._wake_w = os.pipe()

    # -- the main thread

    def run(self) -> int:
        """Serve; 0 when standard input ended."""
        self.client.emit(records.ready(self.engine))
        return self.serve(self._read)

    def serve(self, read: Callable[[], None]) -> int:
        """Answer, beside the caller's thread, what ``read`` hands to :meth:`handle` until it returns."""
        worker = threading.Thread(target=self._work, name="answers", daemon=True)
        worker.start()
        try:
            read()
            self._jobs.put(None)
            worker.join()
        except BaseException:
            self._stop_all()
            worker.join(timeout=5)
            raise
        finally:
            os.close(self._wake_w)
        if self._failure:
            raise self._failure
        return 0

    def _read(self) -> None:
        """Standard input, line by line.

        Read below Python's buffering: a worker that fails must be able to wake us, which select() on the descriptor
        allows, and no lock of a buffer may be held when the interpreter ends.
        """
        if sys.stdin is None:
            return
        fd = sys.stdin.fileno()
        lines = Lines()
        while True:
            ready, _, _ = select.select([fd, self._wake_r], [], [])
            if self._wake_r in ready:
                raise self._failure or RuntimeError("the worker ended")
            data = os.read(fd, 1 << 16)
            for line in lines.feed(data) if data else lines.rest():
                self.handle(line, self.client)
            if not data:
                return

    def handle(self, line: bytes | None, client: Client) -> None:
        """One request line; whatever is wrong with it becomes an error event."""
        ident: str | int | None = None
        try:
            if line is None:
                raise Refused("too_long", f"the request is longer than {LINE_LIMIT} bytes")
            if not line.strip():
                return
            request = parse(line)
            ident = identity(request)
            if request.get("v", records.PROTOCOL) != records.PROTOCOL:
                raise Refused("unsupported_version", f"only version {records.PROTOCOL} of the protocol is supported")
            op = request.get("op")
            handler = self.OPS.get(op) if isinstance(op, str) else None
            if handler is None:
                raise Refused("unknown_op", f"op must be one of {', '.join(self.OPS)}")
            handler(self, client, ident, request)
        except Refused as refused:
            client.emit(records.error(refused.code, str(refused)), ident)
        except EdgeError as error:
            client.emit(records.error_of(error), ident)

    def op_chat(self, client: Client, ident: str | int | None, request: dict[str, Any]) -> None:
        self._enqueue(Job(client, ident, "chat", messages_of(request), self._arguments(request)))

    def op_reset(self, client: Client, ident: str | int | None, _request: dict[str, Any]) -> None:
        self._enqueue(Job(client, ident, "reset"))

    def op_cancel(self, client: Client, ident: str | int | None, _request: dict[str, Any]) -> None:
        """Without an id: whatever is being answered now.  The answer to a cancel is the ``done`` of its request."""
        with self._lock:
            own = [job for job in self._unanswered(client) if ident in (None, job.id)]
            job = next((job for job in own if ident is not None or job is self._running), None)
            if job is not None:
                job.cancelled = True
                if job is self._running:
                    self.session.cancel()
        if job is None:
            why = "nothing to cancel" if ident is None else "no request with this id is running or waiting"
            raise Refused("unknown_id", why)

    def op_ping(self, client: Client, ident: str | int | None, _request: dict[str, Any]) -> None:
        client.emit({"ev": "pong"}, ident)

    def op_info(self, client: Client, ident: str | int | None, _request: dict[str, Any]) -> None:
        from edge import __version__

        engine = self.engine
        with self._lock:
            pending = len(self._unanswered())
        client.emit(
            {
                "ev": "info",
                "v": records.PROTOCOL,
                "version": __version__,
                "model": engine.config.name,
                "kv": records.kv(engine),
                "threads": engine.n_threads,
                "template": engine.template.name,
                "memory": records.plain(engine.memory()),
                "pending": pending,
            },
            ident,
        )

    OPS: dict[str, Callable[[Protocol, Client, str | int | None, dict[str, Any]], None]] = {
        "chat": op_chat,
        "cancel": op_cancel,
        "reset": op_reset,
        "info": op_info,
        "ping": op_ping,
    }

    def _enqueue(self, job: Job) -> None:
        with self._lock:
            if len(self._pending) >= QUEUE_LIMIT:
                raise Refused("busy", f"{QUEUE_LIMIT} requests are already waiting")
            if job.id is not None and any(other.id == job.id for other in self._unanswered(job.client)):
                raise Refused("bad_request", "a request with this id is already running or waiting")
            self._pending.append(job)
        self._jobs.put(job)

    def _unanswered(self, client: Client | None = None) -> list[Job]:
        """Requests of one client, or of all."""
        return [job for job in self._pending if not job.answered and client in (None, job.client)]

    def _finish(self, job: Job, event: dict[str, Any]) -> None:
        """The last event of a request.  Whoever reads it may use the id again at once."""
        with self._lock:
            job.answered = True
        job.client.emit(event, job.id)

    def _arguments(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask arguments of one request: the options of the command line, changed by the request's own keys."""
        request = {_SPELLINGS.get(key, key): value for key, value in request.items()}
        arguments = dict(self.defaults)
        base = arguments.get("sampling") or Sampling()
        changes = {f.name: request[f.name] for f in dataclasses.fields(Sampling) if request.get(f.name) is not None}
        arguments["sampling"] = dataclasses.replace(base, **changes)
        for key, (allowed, words) in _KEYS.items():
            value = request.get(key)
            if value is None:
                continue
            if not allowed(value):
                raise Refused("bad_request", f"{key} {words}")
            arguments[key] = value
        forms = {key: request[key] for key in FORMS if request.get(key) is not None}
        if forms:  # in place of the one that the options gave
            arguments = {key: value for key, value in arguments.items() if key not in FORMS} | forms
        stop = request.get("stop")
        if stop is not None:
            stop = [stop] if isinstance(stop, str) else stop
            if not isinstance(stop, list) or not all(isinstance(s, str) and s and is_text(s) for s in stop):
                raise Refused("bad_request", "stop must be a string or a list of strings")
            arguments["stop"] = tuple(stop)
        return arguments

    def _stop_all(self) -> None:
        with self._lock:
            for job in self._pending:
                job.cancelled = True
            if self._running is not None:
                self.session.cancel()
        self._jobs.put(None)

    # -- the worker thread

    def _work(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                with self._lock:
                    self._running = job
                try:
                    self._do(job)
                finally:
                    with self._lock:
                        self._running = None
                        self._pending.remove(job)
        except BaseException as error:  # mostly a closed standard output; the main thread ends the process
            self._failure = error
            os.write(self._wake_w, b"!")

    def _do(self, job: Job) -> None:
        try:
            if job.op == "reset":
                self.session.clear()
                self._finish(job, {"ev": "reset"})
            else:
                self._answer(job)
        except (BrokenPipeError, ConnectionError):
            raise
        except EdgeError as error:
            self._finish(job, records.error_of(error))
        except Exception as error:
            if self.out.verbose:
                import traceback

                traceback.print_exc()
            self._finish(job, records.error_of(error))
            self.session = self.engine.session()  # whatever state the old one was left in

    def _answer(self, job: Job) -> None:
        session, messages = self.session, job.messages
        if self.system is not None and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": self.system}, *messages]
        if messages[: len(session.messages)] != session.messages:
            session.forgotten = 0  # another conversation: all of it counts again
        session.messages = messages[:-1]
        with self._lock:  # ask() forgets earlier cancels, so none may come between it and this look
            if job.cancelled:
                pieces = None
            else:
                pieces = session.ask(
                    messages[-1]["content"],
                    **job.arguments,
                    on_prefill=lambda *counts: job.client.emit(records.prefill(*counts), job.id),
                )
        if pieces is None:
            self._finish(job, _never_begun())
            return
        for piece in pieces:
            job.client.emit(records.text(piece), job.id)
        self._finish(job, records.done(session))
        if session.offload_error and session.offload_error != self.remarked:
            self.out.warn(session.offload_error)
        self.remarked = session.offload_error
        if self.stats:
            self.out.stats(session.stats_line())


class Refused(Exception):
    """A request that cannot be served; ``code`` goes into the error event."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def parse(line: bytes) -> dict[str, Any]:
    """One request object."""
    try:
        request = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Refused("bad_json", f"the line is not valid JSON: {error}") from None
    if not isinstance(request, dict):
        raise Refused("bad_json", "a request must be a JSON object")
    return request


def identity(request: dict[str, Any]) -> str | int | None:
    """The request's id, to be echoed."""
    ident = request.get("id")
    if isinstance(ident, bool) or not isinstance(ident, (str, int, type(None))) or not is_text(str(ident)):
        raise Refused("bad_request", "id must be a string or a whole number")
    if len(str(ident)) > 256:
        raise Refused("bad_request", "id is longer than 256 characters")
    return ident


def messages_of(request: dict[str, Any]) -> list[dict[str, str]]:
    """The conversation of a chat request, validated: it ends with a question of the user."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("bad_request", 'messages must be a list such as [{"role":"user","content":"Hello"}]')
    result = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise Refused("bad_request", f"messages[{index}] must be an object with role and content")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise Refused("bad_request", f"messages[{index}].role must be one of {', '.join(ROLES)}")
        if not isinstance(content, str) or not is_text(content):
            raise Refused("bad_request", f"messages[{index}].content must be a string")
        result.append({"role": role, "content": content})
    if result[-1]["role"] != "user":
        raise Refused("bad_request", "the last message must have the role user")
    return result


def is_text(value: str) -> bool:
    """JSON can spell half characters (lone surrogates) that no encoding can write."""
    return not any("\ud800" <= c <= "\udfff" for c in value)


def _never_begun() -> dict[str, Any]:
    return {
        "ev": "done",
        "finish_reason": "cancelled",
        "usage": {"prompt": 0, "cached": 0, "completion": 0},
        "timings": {},
    }
