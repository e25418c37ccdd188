"""The kiosk behind the page of `serve --kiosk FILE`: visits of several guests at once, each with a name of its own."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from edge.kiosk.house import House
from edge.kiosk.visit import Turn, Visit, event

VISITS = 1000  # kept; the one used longest ago is forgotten first


class Desk:
    """``deliver``: what takes finished orders, see :func:`edge.kiosk.deliver.delivery`."""

    def __init__(self, house: House, deliver: Callable[[dict[str, Any]], object]) -> None:
        self.house = house
        self._deliver = deliver
        self._visits: OrderedDict[str, Visit] = OrderedDict()
        self._lock = threading.Lock()

    def turn(self, session: str | None, text: str | None) -> dict[str, Any]:
        """Answer what a guest said; ``session`` None or unknown: a new guest; ``text`` None: only greet."""
        with self._lock:
            if session is None or session not in self._visits:
                session = secrets.token_urlsafe(12)
                self._visits[session] = Visit(self.house, self._deliver)
                while len(self._visits) > VISITS:
                    self._visits.popitem(last=False)
            self._visits.move_to_end(session)
            visit = self._visits[session]
            turn: Turn = visit.greet() if text is None else visit.turn(text)
            return {"session": session, **event(visit, turn), **visit.shown(), "suggest": visit.suggestions()}
