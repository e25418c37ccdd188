"""The conversation protocol for programs, version 1, one JSON object per line; docs/contract.md describes the events.

Requests are answered in order, in one session.  One thread reads them, and answers what needs no model at once; the one
that serves writes the answers.  If nobody reads the output, the answer waits.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from edge import records
from edge.errors import Busy, EdgeError, UsageError, check_text
from edge.files import LINE_LIMIT
from edge.prompt.messages import with_system
from edge.serve import bodies, keys
from edge.serve.calls import Refusal
from edge.session.outcome import Outcome
from edge.settings import check
from edge.threads import start

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.answer import Answer
    from edge.session.session import Session

QUEUE_LIMIT = 64  # requests that may wait
QUEUE_BYTES = 2 * LINE_LIMIT  # of these
ID_LIMIT = 256  # characters


@dataclass(eq=False)
class Question:
    """A request for an answer to ``messages``; without any for a reset.

    ``nbytes``: size of its line as text.  ``deadline`` (time.monotonic): when it ends at the latest, including waiting.
    ``why``: the reason to end it early.
    """

    id: str | int | None
    nbytes: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    deadline: float | None = None
    timer: threading.Timer | None = None  # ends it while it waits
    begun: bool = False
    answer: Answer | None = None
    why: str | None = None


class Client:
    """The program that sends requests.

    ``write``: takes the bytes of an event.  ``defaults``: options of answers that a request does not set.  ``system``:
    the system prompt of conversations that have none.  ``on_end``: called after every answer.  ``on_bug``: called with
    unexpected exceptions.
    """

    def __init__(
        self, engine: Engine, write: Callable[[bytes], object], defaults: dict[str, Any], system: str | None,
        on_end: Callable[[Session], object], on_bug: Callable[[BaseException], object],
    ) -> None:
        self._engine, self._session = engine, engine.session("")
        self._write, self._defaults, self._system, self._on_end, self._on_bug = write, defaults, system, on_end, on_bug
        self._questions: deque[Question] = deque()  # waiting or running, the oldest first
        self._todo: SimpleQueue[Question | None] = SimpleQueue()  # None: there are no more
        self._lock = threading.RLock()  # of the questions and of the output
        self._failure: BaseException | None = None  # of the thread that reads

    def serve(self, source: int | None) -> None:
        """Answer the requests from this file descriptor until its end, or until :meth:`stop`; None: there are none.

        Raises what ``write`` raises.
        """
        self.emit(records.ready(self._engine))
        if source is None:
            return
        start(threading.Thread(target=self._read, args=(source,), name="input", daemon=True))
        while (question := self._todo.get()) is not None:
            self._answer(question)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Cancel all requests and end; from a signal handler, too."""
        for each in list(self._questions):
            each.why = "cancelled"
            if each.answer is not None:
                each.answer.cancel()
        self._todo.put(None)

    def emit(self, event: dict[str, Any], ident: str | int | None = None) -> None:
        """Write one event."""
        event = event if ident is None else {"id": ident, **event}
        data = json.dumps(event, ensure_ascii=False).encode() + b"\n"
        with self._lock:
            self._write(data)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _read(self, source: int) -> None:
        """Handle the requests; in a thread of its own."""
        try:
            for line in _lines(source):
                self._handle(line)
        except BaseException as error:  # of the output
            self._failure = error
        self._todo.put(None)

    def _handle(self, line: bytes | None) -> None:
        """Handle one request line; None: one that was too long.  An invalid one is answered with an error event."""
        ident: str | int | None = None
        try:
            if line is None:
                raise Refusal(413, f"the request is longer than {LINE_LIMIT} bytes", "too_long")
            if not line.strip():
                return
            request = parse(line)
            ident = identity(request)
            if request.get("v", records.PROTOCOL) != records.PROTOCOL:
                raise Refusal(400, f"only version {records.PROTOCOL} of the protocol is supported",
                              code="unsupported_version")
            op = request.get("op")
            if op == "chat":
                self._add(Question(ident, bodies.size_of(line), *chat(request, self._defaults, self._system)))
            elif op == "reset":
                self._add(Question(ident, bodies.size_of(line)))
            elif op == "cancel":
                self._cancel(ident)
            elif op == "info":
                self.emit(records.info(self._engine, len(self._questions)), ident)
            elif op == "ping":
                self.emit({"ev": "pong"}, ident)
            else:
                raise Refusal(400, "op must be one of chat, cancel, reset, info, ping", code="unknown_op")
        except Refusal as refused:
            self.emit(records.error(str(refused.code), str(refused)), ident)
        except EdgeError as error:
            self.emit(records.error_of(error), ident)

    def _add(self, question: Question) -> None:
        """Answer a request after those that wait already.  Raises Busy, and UsageError for an id that is in use."""
        with self._lock:
            if question.id is not None and any(each.id == question.id for each in self._questions):
                raise UsageError("a request with this id is already running or waiting")
            if len(self._questions) >= QUEUE_LIMIT:
                raise Busy(f"{len(self._questions)} requests are already waiting")
            if (waiting := sum(each.nbytes for each in self._questions)) + question.nbytes > QUEUE_BYTES:
                raise Busy(f"{waiting} bytes of requests are already waiting, this one has {question.nbytes}, and the "
                           f"limit is {QUEUE_BYTES}")
            if question.deadline is not None:
                left = max(0.0, question.deadline - time.monotonic())
                question.timer = threading.Timer(left, self._withdraw, (question, "timeout"))
                question.timer.daemon = True
                start(question.timer)
            self._questions.append(question)
        self._todo.put(question)

    def _cancel(self, ident: str | int | None) -> None:
        """Cancel the request with this id; without an id, the running one.  Its ``done`` is the answer."""
        with self._lock:
            found = next((each for each in self._questions if ident in (None, each.id)), None)
            if found is None:
                said = "nothing to cancel" if ident is None else "no request with this id is running or waiting"
                raise Refusal(400, said, code="unknown_id")
            if not self._withdraw(found, "cancelled"):
                found.why = "cancelled"
                if found.answer is not None:
                    found.answer.cancel()

    def _withdraw(self, question: Question, why: str) -> bool:
        """End a request that waits.  Returns whether it did."""
        with self._lock:
            if question.begun or question not in self._questions:
                return False
            self._last(question, records.done(Outcome(), 0, why))
            return True

    def _last(self, question: Question, event: dict[str, Any]) -> None:
        """Send the last event of a request; its id can be used again after that."""
        with self._lock:
            if question.timer is not None:
                question.timer.cancel()
            self._questions.remove(question)
            self.emit(event, question.id)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, question: Question) -> None:
        """Answer one request with its events."""
        with self._lock:
            if question not in self._questions:
                return
            question.begun = True
        try:
            if question.why is not None:
                event = records.done(Outcome(), 0, question.why)
            elif not question.messages:
                self._session.clear()
                event = {"ev": "reset"}
            else:
                event = self._written(question)
        except OSError:  # of the output
            raise
        except Exception as error:
            if not isinstance(error, EdgeError):
                self._on_bug(error)
            event = records.error_of(error)
        self._last(question, event)

    def _written(self, question: Question) -> dict[str, Any]:
        """Write an answer; the result is its last event."""
        session, messages, options = self._session, question.messages, question.options

        def reading(done: int, total: int, cached: int) -> None:
            self.emit(records.prefill(done, total, cached), question.id)

        if question.deadline is not None:
            options["timeout"] = max(question.deadline - time.monotonic(), 1e-3)
        call = self._engine.preparer.call(messages, None, {**options, "on_prefill": reading})
        question.answer = answer = session.answer(call)
        if question.why is not None:
            answer.cancel()
        form = answer.outcome.form
        reader = None if form is None else form.reader()  # of the text without calls of functions
        for piece in answer:
            said = piece if reader is None or piece.thought else piece._replace(text=reader.feed(piece.text))
            self.emit(records.text(said), question.id)
        if reader is not None and (rest := reader.flush()):
            self.emit({"ev": "text", "text": rest}, question.id)
        calls = [] if reader is None else session.messages[-1].get("tool_calls", [])
        self._on_end(session)
        reason = "tool_calls" if calls else answer.finish_reason
        return records.done(answer.outcome, session.state.evicted, reason, calls)


def _lines(source: int) -> Iterator[bytes | None]:
    """The lines of the input, as far as it can be read; None: one that is too long."""
    with suppress(OSError), open(source, "rb", closefd=False) as file:
        while line := file.readline(LINE_LIMIT + 1):
            if len(line) <= LINE_LIMIT or line.endswith(b"\n"):
                yield line
                continue
            yield None
            while line and not line.endswith(b"\n"):
                line = file.readline(LINE_LIMIT)


def chat(
    request: dict[str, Any], defaults: dict[str, Any], system: str | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any], float | None]:
    """(messages, options, deadline) of a request: the options of the command line, changed by its keys.  Raises
    UsageError.
    """
    asked = keys.read(request, keys.JSONL)
    messages = with_system(keys.messages(asked), system)
    options, _ = keys.options(asked, defaults)
    timeout = check("timeout", options.pop("timeout", None))
    return messages, options, None if timeout is None else time.monotonic() + timeout


def parse(line: bytes) -> dict[str, Any]:
    """One request object.  Raises Refusal if the line is none, or is too large."""
    request = bodies.parse(line, LINE_LIMIT, "too_long")
    if not isinstance(request, dict):
        raise Refusal(400, "a request must be a JSON object", code="bad_json")
    return request


def identity(request: dict[str, Any]) -> str | int | None:
    """The id of the request, which its events repeat; None if it has none.  Raises UsageError for other values."""
    ident = request.get("id")
    if isinstance(ident, bool) or not isinstance(ident, (str, int, type(None))):
        raise UsageError("must be a string or a whole number", argument="id")
    if len(str(ident)) > ID_LIMIT:
        raise UsageError(f"is longer than {ID_LIMIT} characters", argument="id")
    check_text(str(ident), "id")
    return ident
