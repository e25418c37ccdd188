"""The conversation protocol for programs, version 1, one JSON object per line; docs/contract.md describes the events.

The requests of one client are answered in order; those of different clients at the same time, as far as contexts are
planned (``--parallel``).  An invalid line is answered with an error event and ends nothing; unknown keys are ignored.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge.errors import EdgeError
from edge.sampling import Sampling
from edge.serve import keys, received, records
from edge.serve.calls import (
    Call,
    Fields,
    Refusal,
    bad,
    checked_json,
    checked_text,
    messages_of,
    sampling_of,
    thinking_of,
    tools_of,
    with_system,
)
from edge.serve.client import LINE_LIMIT, Channel, Client, Job
from edge.serve.conversations import PATIENCE, Conversations, Prefill, Ticket
from edge.serve.conversations import Job as Asked
from edge.session.stream import BY

if TYPE_CHECKING:
    from edge.engine import Engine

FORMS = ("schema", "regex", "choices", "grammar")  # what an answer has to be: at most one of them
MOST_TOKENS = 1 << 31
TIMEOUTS = (0.001, 1e9)  # seconds
ID_LIMIT = 256  # characters

#: key of a request -> field of Sampling
SAMPLING = {"temp": "temperature", **{each.name: each.name for each in dataclasses.fields(Sampling)}}


@dataclass
class Question(Job):
    """A request for an answer; with ``call`` None for a reset."""

    call: Call | None = None
    asked: Asked | None = None
    timer: asyncio.TimerHandle | None = None


@dataclass
class Desk:
    """What the clients of one service share.

    ``defaults``: arguments of ``Session.chat`` that a request does not set.  ``system``: the system prompt of
    conversations that have none.  ``patience``: seconds that an answer waits for a slow reader, None: without limit.
    ``told``: called with the ticket of every answer.  ``failed``: called with unexpected exceptions.
    """

    engine: Engine
    conversations: Conversations
    defaults: dict[str, Any]
    system: str | None = None
    patience: float | None = PATIENCE
    told: Callable[[Ticket], object] = lambda ticket: None
    failed: Callable[[BaseException], object] = lambda error: None
    asked: int = 0  # requests that have no last event yet
    keys: itertools.count[int] = field(default_factory=itertools.count)

    def welcome(self, channel: Channel) -> Asker:
        """A new client."""
        return Asker(channel, self)


class Asker(Client[Question]):
    """One client of the protocol."""

    def __init__(self, channel: Channel, desk: Desk) -> None:
        super().__init__(channel)
        self._desk = desk
        self._key = f"client {next(desk.keys)}"

    def begin(self) -> None:
        """Send the event "ready"."""
        self.emit(records.ready(self._desk.engine))

    # ---- requests ----------------------------------------------------------------------------------------------------

    def handle(self, line: bytes | None) -> None:
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
            handler(self, ident, request, received.size_of(line))
        except Refusal as refused:
            self.emit(records.error(refused.code or "bad_request", str(refused)), ident)
        except EdgeError as error:
            self.emit(records.error_of(error), ident)

    def _chat(self, ident: str | int | None, request: dict[str, Any], nbytes: int) -> None:
        self._add(Question(ident, nbytes, call=self._call(request)))

    def _reset(self, ident: str | int | None, _request: dict[str, Any], nbytes: int) -> None:
        self._add(Question(ident, nbytes))

    def _cancel(self, ident: str | int | None, _request: dict[str, Any], _nbytes: int) -> None:
        """Cancel the request with this id; without an id, the running one.  The answer is the ``done`` of that
        request.
        """
        open_ = [job for job in self.jobs if not job.answered and ident in (None, job.id)]
        if not open_:
            raise bad("nothing to cancel" if ident is None else "no request with this id is running or waiting",
                      code="unknown_id")
        self._end(open_[0], "cancelled")

    def _ping(self, ident: str | int | None, _request: dict[str, Any], _nbytes: int) -> None:
        self.emit({"ev": "pong"}, ident)

    def _info(self, ident: str | int | None, _request: dict[str, Any], _nbytes: int) -> None:
        self.emit(records.info(self._desk.engine, self._desk.asked), ident)

    OPS: dict[str, Callable[[Asker, str | int | None, dict[str, Any], int], None]] = {  # noqa: RUF012
        "chat": _chat,
        "cancel": _cancel,
        "reset": _reset,
        "info": _info,
        "ping": _ping,
    }

    def _add(self, job: Question) -> None:
        if job.id is not None and any(each.id == job.id and not each.answered for each in self.jobs):
            raise bad("a request with this id is already running or waiting")
        self.enqueue(job)
        self._desk.asked += 1
        if job.call is not None and job.call.deadline is not None:
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(job.call.deadline - time.monotonic(), self._end, job, "timeout")

    def _call(self, request: dict[str, Any]) -> Call:
        """The call of a request: the options of the command line, changed by the keys of the request.  Raises
        Refusal.
        """
        fields = Fields(request)
        keys.JSONL.check(request)
        messages = messages_of(request.get("messages"))
        messages = with_system(messages, self._desk.system)
        options = dict(self._desk.defaults)
        options["sampling"] = sampling_of(fields, options.get("sampling") or Sampling(), SAMPLING)
        if (most := fields.whole("max_tokens", 0, MOST_TOKENS)) is not None:
            options["max_tokens"] = most
        if (by := fields.text("by")) is not None:
            if by not in BY:
                raise bad("by must be token, word, sentence or all", "by")
            options["by"] = by
        options["ignore_eos"] = fields.flag("ignore_eos", options.get("ignore_eos", False))
        if fields.has("stop"):
            if "" in (request["stop"] if isinstance(request["stop"], list) else [request["stop"]]):
                raise bad("stop must be a string or a list of strings, and none may be empty", "stop")
            options["stop"] = fields.stops()
        forms = {key: checked_json(request[key], key) for key in FORMS if fields.has(key)}
        if forms:  # in place of the one that the options gave
            options = {key: value for key, value in options.items() if key not in FORMS} | forms
        options |= tools_of(fields) | thinking_of(fields)
        timeout = fields.number("timeout", *TIMEOUTS, options.pop("timeout", None))
        deadline = None if timeout is None else time.monotonic() + timeout
        return Call(messages=messages, options=options, key=self._key, deadline=deadline, progress=True)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _last(self, job: Question, event: dict[str, Any]) -> None:
        """Send the last event of a request; its id can be used again after that."""
        if job.answered:
            return
        job.answered = True
        self._desk.asked -= 1
        if job.timer is not None:
            job.timer.cancel()
        self.emit(event, job.id)

    def _end(self, job: Question, why: str) -> None:
        """Cancel a request, or end it because its deadline has passed."""
        if job.answered:
            return
        if job.asked is None or self._desk.conversations.withdraw(job.asked, why):
            self._last(job, records.never_begun(why))

    def cancel(self) -> None:
        """Cancel all requests of this client."""
        for job in list(self.jobs):
            self._end(job, "cancelled")

    async def answer(self, job: Question) -> None:
        """Answer one request with its events; does not raise."""
        desk = self._desk
        if job.call is None:
            desk.conversations.forget(self._key)
            self._last(job, {"ev": "reset"})
            return
        try:
            job.asked = desk.conversations.enter(job.call, desk.patience)
            await desk.conversations.begin(job.asked)
            async for event in job.asked.pieces():
                if isinstance(event, Prefill):
                    self.emit(records.prefill(*event), job.id)
                else:
                    self.emit(records.text(event), job.id)
                await self.channel.room()
        except Refusal as refused:
            self._last(job, records.error("busy", str(refused)))  # the service ends
        except EdgeError as error:
            self._last(job, records.error_of(error))
        except Exception as error:
            desk.failed(error)
            self._last(job, records.error_of(error))
        else:
            ticket = job.asked.tickets[0]
            self._last(job, records.done(ticket))
            desk.told(ticket)


def parse(line: bytes) -> dict[str, Any]:
    """One request object.  Raises Refusal: 400 if the line is not a JSON object, 413 if it is too large."""
    request = received.parse(line, LINE_LIMIT, "too_long", _whole)
    if not isinstance(request, dict):
        raise bad("a request must be a JSON object", code="bad_json")
    return request


def _whole(digits: str) -> int | float:
    """A number in JSON. One with thousands of digits is valid JSON, but never a valid option: it becomes infinity."""
    return int(digits) if len(digits) < 400 else float(digits)


def identity(request: dict[str, Any]) -> str | int | None:
    """The id of the request, which its events repeat; None if it has none.  Raises Refusal (400) for other values."""
    ident = request.get("id")
    if isinstance(ident, bool) or not isinstance(ident, (str, int, type(None))):
        raise bad("id must be a string or a whole number", "id")
    if len(str(ident)) > ID_LIMIT:
        raise bad(f"id is longer than {ID_LIMIT} characters", "id")
    checked_text(str(ident), "id")
    return ident
