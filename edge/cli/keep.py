"""``--session FILE``: opens the conversation of ``run`` and ``chat`` and saves it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edge.errors import UsageError

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.session import Session


class Keeper:
    """Opens the session of a command and saves it when it has changed.  Without ``--session`` it only opens a new one.

    Raises UsageError for options that contradict each other, before a model is loaded.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self.path: str | None = flags.get("session")
        self.saves = self.path is not None and not flags.get("session_ro")
        self._saved: tuple[Any, ...] = ()
        if self.path is None:
            if flags.get("session_ro"):
                raise UsageError("--session-ro needs --session FILE")
            return
        if not self.saves and not os.path.exists(self.path):
            raise UsageError(f"session file {self.path} does not exist, and --session-ro does not create it")
        if self.saves and not os.path.isdir(os.path.dirname(os.path.realpath(self.path))):
            raise UsageError(f"the folder of the session file {self.path} does not exist")

    def open(self, engine: Engine, system: str | None) -> Session:
        """The session of the file, or a new one; ``system`` replaces the system prompt of a stored session."""
        if self.path is None or not os.path.exists(self.path):
            return engine.session(system=system)
        session = engine.load_session(self.path)
        self._saved = _state(session)
        if system is not None and system != session.system:
            session.system = system or None
        return session

    def save(self, session: Session) -> None:
        """Write the session to its file, unless the file is up to date."""
        if self.saves and self.path is not None and (state := _state(session)) != self._saved:
            session.save(self.path)
            self._saved = state


def _state(session: Session) -> tuple[Any, ...]:
    """Values that differ after every answer and every change of the conversation."""
    return [dict(message) for message in session.messages], session.forgotten, session.n_tokens, session.timings
