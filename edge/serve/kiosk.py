"""Visits of several guests at once: from the page of ``serve --kiosk FILE``, where each visit has a name, and over JSON
lines (``kiosk --jsonl`` and ``--socket``), where each client is one guest after another.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge.kiosk.house import House
from edge.kiosk.understand import understand
from edge.kiosk.visit import Reads, Turn, Visit, event
from edge.serve import records
from edge.serve.calls import Refusal, checked_text
from edge.serve.client import LINE_LIMIT, Channel, Client, Full, Job
from edge.serve.jsonl import identity, parse
from edge.serve.received import size_of

VISITS = 1000  # kept; the one used longest ago is forgotten first, those without an order before the others


class Desk:
    """The visits of ``serve --kiosk``.  ``deliver``: takes finished orders, see :func:`edge.kiosk.deliver.delivery`."""

    def __init__(self, house: House, deliver: Callable[[dict[str, Any]], object]) -> None:
        self.house = house
        self._deliver = deliver
        self._visits: OrderedDict[str, Visit] = OrderedDict()
        self._lock = threading.Lock()

    def turn(self, session: str | None, text: str | None) -> dict[str, Any]:
        """Answer what a guest said.

        ``session``: the name that an earlier answer gave; None begins a new visit.  ``text``: what was said; None only
        greets.  Raises Refusal (404) for the name of a visit that is not known, or no longer.
        """
        with self._lock:
            if session is not None and session not in self._visits:
                problem = f"no visit has the session '{session[:40]}'; send null as session to begin a new one"
                raise Refusal(404, problem, "session_not_found", "session")
            if session is None:
                session = secrets.token_urlsafe(12)
                self._visits[session] = Visit(self.house, self._deliver)
                if len(self._visits) > VISITS:
                    idle = (name for name, each in self._visits.items() if each.state.empty and name != session)
                    del self._visits[next(idle, next(iter(self._visits)))]
            self._visits.move_to_end(session)
            visit = self._visits[session]
            turn: Turn = visit.greet() if text is None else visit.turn(text)
            return {"session": session, **event(visit, turn), **visit.shown(), "suggest": visit.suggestions()}


# ---- JSON lines -----------------------------------------------------------------------------------------------------


@dataclass
class Said(Job):
    """A turn; ``text`` None: the next guest comes.  ``event``: the answer, if it is known already."""

    text: str | None = None
    event: dict[str, Any] | None = None


class Room:
    """The house of a JSONL service.

    ``reads``: the function that understands turns.  ``deliver``: called by one thread at a time.
    """

    def __init__(self, house: House, deliver: Callable[[dict[str, Any]], object], reads: Reads = understand) -> None:
        self.house = house
        self._deliver = deliver
        self._reads = reads
        self._delivering = threading.Lock()
        self._running: set[object] = set()  # turns being answered
        self._seen: set[object] = set()  # those of the last look

    def welcome(self, channel: Channel) -> Guest:
        """A new client."""
        return Guest(channel, self)

    def visit(self) -> Visit:
        """A new visit."""
        return Visit(self.house, self._one_by_one, self._reads)

    def _one_by_one(self, order: dict[str, Any]) -> None:
        with self._delivering:
            self._deliver(order)

    async def turn(self, visit: Visit, text: str) -> Turn:
        """Answer a turn in a thread, because orders are written to disk and models need time."""
        mark = object()
        self._running.add(mark)
        try:
            return await asyncio.to_thread(visit.turn, text)
        finally:
            self._running.discard(mark)

    def alive(self) -> bool:
        """Whether every turn that was running at the last call has ended."""
        stuck = self._seen & self._running
        self._seen = set(self._running)
        return not stuck


class Guest(Client[Said]):
    """One client: one visit after another."""

    def __init__(self, channel: Channel, room: Room) -> None:
        super().__init__(channel)
        self._room = room
        self._visit = room.visit()

    def begin(self) -> None:
        """Send the event "ready" with the greeting."""
        house = self._room.house.name
        self.emit({"ev": "ready", "v": records.PROTOCOL, "house": house, "say": self._visit.greet().say})

    def handle(self, line: bytes | None) -> None:
        """Handle one request line; None: one that was too long.  An invalid one is answered with an error event."""
        if line is not None and not line.strip():
            return
        job = Said(None, size_of(line or b""))
        try:
            if line is None:
                raise Refusal(413, f"the request is longer than {LINE_LIMIT} bytes", "too_long")
            request = parse(line)
            job.id = identity(request)
            op = request.get("op", "say")
            if op == "say":
                job.text = checked_text(request.get("text"), "text")
            elif op == "ping":
                job.event = {"ev": "pong"}
            elif op != "new":
                raise Refusal(400, "op must be say, new or ping", "unknown_op")
        except Refusal as refused:
            job.event = records.error(refused.code or "bad_request", str(refused))
        try:
            self.enqueue(job)  # a mistake, too: each line is answered by one event, in order
        except Full as full:
            self.emit(records.error("busy", str(full)), job.id)

    async def answer(self, job: Said) -> None:
        """Answer one turn with its event; does not raise."""
        try:
            if job.event is None and job.text is None:
                self._visit = self._room.visit()
                job.event = {"ev": "new", "say": self._visit.greet().say}
            elif job.event is None:
                job.event = event(self._visit, await self._room.turn(self._visit, job.text or ""))
        except Exception as error:  # a bug, or a model that failed: this turn fails, the visit goes on
            job.event = records.error_of(error)
        self.emit(job.event, job.id)
        await self.channel.room()

    def leave(self) -> None:
        """The client has disconnected; turns that it sent are still handled."""
        self.gone = True

    def cancel(self) -> None:
        """The service ends: waiting turns are not answered; an order that is being confirmed is delivered."""
        for job in list(self.jobs)[1:]:
            job.answered = True
