"""The conversation protocol for programs, version 1, one JSON object per line; docs/contract.md describes the events.

Requests are answered in order.  An invalid line is answered with an error event; unknown keys are ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from edge import records
from edge.errors import Busy, EdgeError
from edge.files import LINE_LIMIT
from edge.serve import bodies, keys
from edge.serve.calls import Call, Refusal, bad
from edge.serve.conversations import Conversations, PendingAnswer, PendingCall, Prefill
from edge.serve.messages import messages_of, with_system
from edge.session.answer_options import FORMS

if TYPE_CHECKING:
    from edge.engine import Engine

QUEUE_LIMIT = 64  # requests that may wait
QUEUE_BYTES = 2 * LINE_LIMIT  # of these
KEY = "client"  # of its conversations
ID_LIMIT = 256  # characters


@dataclass
class Question:
    """A request for an answer; with ``call`` None for a reset.

    ``nbytes``: size of its line as text.  ``answered``: its last event was sent, so its id can be used again.
    """

    id: str | int | None
    nbytes: int
    call: Call | None = None
    pending: PendingCall | None = None
    timer: asyncio.TimerHandle | None = None
    answered: bool = False


class Channel(Protocol):
    """Where the events of a client go, such as :class:`edge.serve.pipe.Pipe`."""

    def send(self, event: dict[str, Any]) -> None:
        """Write one event; returns at once."""

    async def room(self) -> None:
        """Wait until only a few bytes are still to be written."""

    def close(self) -> None:
        """End it after everything is written."""


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
                self._held, self._skipping = bytearray(), True
                yield None

    def rest(self) -> Iterator[bytes]:
        """A last line without a newline."""
        if self._held and not self._skipping:
            line, self._held = bytes(self._held), bytearray()
            yield line


class Client:
    """The client of the protocol; all of it runs in the event loop.

    ``defaults``: arguments of ``Session.chat`` that a request does not set.  ``system``: the system prompt of
    conversations that have none.  ``on_end``: called with every answer.  ``on_bug``: called with
    unexpected exceptions.  ``finished``: it sends no more requests, but may still read answers.  ``gone``: it reads
    nothing any more.
    """

    def __init__(
        self, channel: Channel, engine: Engine, conversations: Conversations, defaults: dict[str, Any],
        system: str | None, on_end: Callable[[PendingAnswer], object], on_bug: Callable[[BaseException], object],
    ) -> None:
        self.channel = channel
        self.finished = self.gone = False
        self.questions: deque[Question] = deque()  # waiting or running, the oldest first
        self._lines = Lines()
        self._task: asyncio.Task[None] | None = None
        self._engine, self._conversations, self._defaults, self._system = engine, conversations, defaults, system
        self._on_end, self._on_bug = on_end, on_bug

    # ---- what the service does ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Send the event "ready"."""
        self.emit(records.ready(self._engine))

    def emit(self, event: dict[str, Any], ident: str | int | None = None) -> None:
        """Send one event."""
        if not self.gone:
            self.channel.send(event if ident is None else {"id": ident, **event})

    def feed(self, data: bytes) -> None:
        """Handle data that the client has sent."""
        for line in self._lines.feed(data):
            if self.gone:
                return
            self._handle(line)

    def end(self) -> None:
        """The client sends nothing more; the channel is closed after all requests are answered."""
        if not self.finished:
            self.finished = True
            for line in self._lines.rest():
                self._handle(line)
            if not self.questions:
                self.channel.close()

    def leave(self) -> None:
        """The client reads nothing any more."""
        self.gone = True
        self._cancel_all()

    async def stop(self) -> None:
        """The service ends: cancel all requests and wait until their last events are sent."""
        self._cancel_all()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self.channel.close()

    # ---- requests ----------------------------------------------------------------------------------------------------

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
                raise bad(f"only version {records.PROTOCOL} of the protocol is supported", code="unsupported_version")
            op = request.get("op")
            handler = self.OPS.get(op) if isinstance(op, str) else None
            if handler is None:
                raise bad(f"op must be one of {', '.join(self.OPS)}", code="unknown_op")
            handler(self, ident, request, bodies.size_of(line))
        except Refusal as refused:
            self.emit(records.error(refused.code or "bad_request", str(refused)), ident)
        except EdgeError as error:
            self.emit(records.error_of(error), ident)

    def _chat(self, ident: str | int | None, request: dict[str, Any], nbytes: int) -> None:
        call = chat(request, self._defaults)
        assert call.messages is not None
        call.messages, call.key = with_system(call.messages, self._system), KEY
        self._add(Question(ident, nbytes, call=call))

    def _reset(self, ident: str | int | None, _request: dict[str, Any], nbytes: int) -> None:
        self._add(Question(ident, nbytes))

    def _cancel(self, ident: str | int | None, _request: dict[str, Any], _nbytes: int) -> None:
        """Cancel the request with this id; without an id, the running one.  Its ``done`` is the answer."""
        open_ = [each for each in self.questions if not each.answered and ident in (None, each.id)]
        if not open_:
            raise bad("nothing to cancel" if ident is None else "no request with this id is running or waiting",
                      code="unknown_id")
        self._end(open_[0], "cancelled")

    def _ping(self, ident: str | int | None, _request: dict[str, Any], _nbytes: int) -> None:
        self.emit({"ev": "pong"}, ident)

    def _info(self, ident: str | int | None, _request: dict[str, Any], _nbytes: int) -> None:
        self.emit(records.info(self._engine, sum(not each.answered for each in self.questions)), ident)

    OPS: dict[str, Callable[[Client, str | int | None, dict[str, Any], int], None]] = {  # noqa: RUF012
        "chat": _chat,
        "cancel": _cancel,
        "reset": _reset,
        "info": _info,
        "ping": _ping,
    }

    def _add(self, question: Question) -> None:
        """Answer a request after those that wait already.  Raises Busy, and Refusal for an id that is in use."""
        if question.id is not None and any(each.id == question.id and not each.answered for each in self.questions):
            raise bad("a request with this id is already running or waiting")
        if len(self.questions) >= QUEUE_LIMIT:
            raise Busy(f"{len(self.questions)} requests are already waiting")
        if (waiting := sum(each.nbytes for each in self.questions)) + question.nbytes > QUEUE_BYTES:
            raise Busy(f"{waiting} bytes of requests are already waiting, this one has {question.nbytes}, and the "
                       f"limit is {QUEUE_BYTES}")
        self.questions.append(question)
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._work())
        if question.call is not None and question.call.deadline is not None:
            left = question.call.deadline - time.monotonic()
            question.timer = loop.call_later(left, self._end, question, "timeout")

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _last(self, question: Question, event: dict[str, Any]) -> None:
        """Send the last event of a request; its id can be used again after that."""
        if question.answered:
            return
        question.answered = True
        if question.timer is not None:
            question.timer.cancel()
        self.emit(event, question.id)

    def _end(self, question: Question, why: str) -> None:
        """Cancel a request, or end it because its deadline has passed."""
        if not question.answered and (question.pending is None or self._conversations.withdraw(question.pending, why)):
            self._last(question, records.never_begun(why))

    def _cancel_all(self) -> None:
        for each in list(self.questions):
            self._end(each, "cancelled")

    async def _work(self) -> None:
        while self.questions:
            question = self.questions[0]
            if not question.answered:
                await self._answer(question)
            self.questions.remove(question)
        self._task = None
        if self.finished:
            self.channel.close()

    async def _answer(self, question: Question) -> None:
        """Answer one request with its events; does not raise."""
        if question.call is None:
            self._conversations.forget(KEY)
            self._last(question, {"ev": "reset"})
            return
        try:
            pending = question.pending = self._conversations.enter(question.call, None)
            await self._conversations.prepare(pending)
            async for event in pending.pieces():
                self.emit(records.prefill(*event) if isinstance(event, Prefill) else records.text(event), question.id)
                await self.channel.room()
        except Refusal as refused:  # the service ends
            self._last(question, records.error("busy", str(refused)))
        except Exception as error:
            if not isinstance(error, EdgeError):
                self._on_bug(error)
            self._last(question, records.error_of(error))
        else:
            (answer,) = pending.answers
            self._last(question, records.done(answer.outcome, answer.evicted, answer.finish_reason, answer.calls))
            self._on_end(answer)


def chat(request: dict[str, Any], defaults: dict[str, Any]) -> Call:
    """The call of a request: the options of the command line, changed by the keys of the request.  Raises Refusal."""
    asked = keys.read(request, keys.JSONL)
    messages = messages_of(asked.get("messages"))
    forms = {key: asked[key] for key in FORMS if key in asked}
    options = keys.with_form(defaults, forms) | keys.tools(asked) | keys.think(asked)
    options |= {key: asked[key] for key in ("max_tokens", "by", "ignore_eos", "stop") if key in asked}
    options["sampling"] = keys.sampling(asked, defaults)
    timeout = asked.get("timeout", options.pop("timeout", None))
    deadline = None if timeout is None else time.monotonic() + timeout
    return Call(messages=messages, options=options, deadline=deadline, progress=True)


def parse(line: bytes) -> dict[str, Any]:
    """One request object.  Raises Refusal: 400 if the line is not a JSON object, 413 if it is too large."""
    request = bodies.parse(line, LINE_LIMIT, "too_long")
    if not isinstance(request, dict):
        raise bad("a request must be a JSON object", code="bad_json")
    return request


def identity(request: dict[str, Any]) -> str | int | None:
    """The id of the request, which its events repeat; None if it has none.  Raises Refusal (400) for other values."""
    ident = request.get("id")
    if isinstance(ident, bool) or not isinstance(ident, (str, int, type(None))):
        raise bad("id must be a string or a whole number", "id")
    if len(str(ident)) > ID_LIMIT:
        raise bad(f"id is longer than {ID_LIMIT} characters", "id")
    return keys.texts(ident, "id")
