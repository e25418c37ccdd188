"""``--session FILE``: opens the conversation of ``run`` and ``chat`` and saves it; /load of ``chat`` opens another.

A file that will be written is locked from before it is read until the command ends, by a hidden file next to it:
saving replaces the session file itself.  The system frees the lock of a process that has died.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from edge.errors import Busy, UsageError
from edge.files import STANDARD, exclusive

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.session import Session


class Keeper:
    """Opens the session of a command and saves it when it has changed.  Without ``--session`` it only opens a new one.
    As a context it has the file for itself; entering raises Busy if another process has it.

    Raises UsageError for options that contradict each other, before a model is loaded.
    """

    def __init__(self, flags: Mapping[str, Any], warn: Callable[[str], object] | None = None) -> None:
        self._warn = warn
        self.path: str | None = flags.get("session")
        self.saves = self.path is not None and not flags.get("session_ro")
        self._saved: tuple[Any, ...] = ()
        self._lock: _Lock | None = None
        if self.path is None:
            if flags.get("session_ro"):
                raise UsageError("--session-ro needs --session FILE")
            return
        if self.path == STANDARD:
            raise UsageError("--session - would be read and written; name a file")
        if not self.saves and not os.path.exists(self.path):
            raise UsageError(f"session file {self.path} does not exist, and --session-ro does not create it")

        from edge.cache import kv_file  # noqa: F401  both here so that the program's size is measured with them
        from edge.model import fingerprint  # noqa: F401

    def __enter__(self) -> Keeper:
        if self.saves and self.path is not None:
            self._lock = _Lock(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def open(self, engine: Engine, system: str | None) -> Session:
        """The session of the file, or a new one; ``system`` replaces the system prompt of a stored session."""
        if self.path is None or not os.path.exists(self.path):
            return engine.session(system=system)
        session = engine.load_session(self.path, self._warn)
        self._saved = _state(session)
        if system is not None and system != session.system:
            session.system = system or None
        return session

    def load(self, engine: Engine, path: str) -> Session:
        """The session of another file, which is saved there from now on if that of ``--session`` was.

        The KV cache so far makes room for it: the plan has one.  If the file is damaged behind its header, the
        conversation so far goes on, and is read again.
        """
        from edge.cache.kv_file import opened

        lock = _Lock(path) if self.saves and not self._has(path) else None
        try:
            with opened(path, of=engine.space):
                pass  # its header is that of a session of this model
            engine.space.give_way()
            session = engine.load_session(path, self._warn)
        except BaseException:
            if lock is not None:
                lock.close()
            raise
        if lock is not None:
            self.__exit__()
            self._lock = lock
        if self.saves:
            self.path, self._saved = path, _state(session)
        return session

    def save_as(self, session: Session, path: str) -> None:
        """Write a copy of the session to another file.  Raises Busy if another process has that one open, UsageError
        if it is that of ``--session-ro``.
        """
        if self.path and not self.saves and os.path.exists(path) and os.path.samefile(path, self.path):
            raise UsageError(f"cannot write {path}: --session-ro leaves it as it is; name another file")
        with nullcontext() if self._has(path) else closing(_Lock(path)):
            session.save(path)

    def _has(self, path: str) -> bool:
        return self._lock is not None and self._lock.session == os.path.realpath(path)

    def save(self, session: Session) -> None:
        """Write the session to its file, unless the file is up to date."""
        if self.saves and self.path is not None and (state := _state(session)) != self._saved:
            session.save(self.path)
            self._saved = state


class _Lock:
    """Keeps other processes from a session file.  Raises Busy if one has it, UsageError if its folder is not writable.
    """

    def __init__(self, path: str) -> None:
        try:
            self.session = os.path.realpath(path)
            folder, name = os.path.split(self.session)
            self._path = os.path.join(folder, f".{name}.lock")
            self._fd = exclusive(self._path)
        except FileNotFoundError:
            raise UsageError(f"cannot write {path}: the folder does not exist") from None
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        except Busy:
            raise Busy(f"another process has the session {path} open: end it, or use --session-ro") from None

    def close(self) -> None:
        """Let others have it."""
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._fd)


def _state(session: Session) -> tuple[Any, ...]:
    """Values that differ after every answer and every change of the conversation."""
    return [dict(message) for message in session.messages], session.state.n_tokens, session.outcome.timings
