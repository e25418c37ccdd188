"""``--session FILE``: opens the conversation of ``run`` and ``chat`` and saves it; /load of ``chat`` opens another.

A file that will be written is locked from before it is read until the command ends, by a hidden file next to it:
saving replaces the session file itself.  The system frees the lock of a process that has died.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from edge.errors import Busy, UsageError
from edge.files import STANDARD, exclusive

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.session import Session


class Keeper:
    """Opens the session of a command and saves it.  Without ``--session`` it only opens a new one.  As a context it has
    the file for itself; entering raises Busy if another process has it.

    Raises UsageError for options that contradict each other, before a model is loaded.
    """

    def __init__(self, flags: Mapping[str, Any], warn: Callable[[str], object] | None = None) -> None:
        self._warn = warn
        self._locks = ExitStack()
        self.path: str | None = flags.get("session")
        self.target = None if flags.get("session_ro") else self.path  # where it is saved
        if self.path is None:
            if flags.get("session_ro"):
                raise UsageError("--session-ro needs --session FILE")
            return
        if self.path == STANDARD:
            raise UsageError("--session - would be read and written; name a file")
        if not self.target and not os.path.exists(self.path):
            raise UsageError(f"session file {self.path} does not exist, and --session-ro does not create it")

        from edge.cache import kv_file  # noqa: F401  both here so that the program's size is measured with them
        from edge.model import fingerprint  # noqa: F401

    def __enter__(self) -> Keeper:
        if self.target:
            self._locks.enter_context(_locked(self.target))
        return self

    def __exit__(self, *_: object) -> None:
        self._locks.close()

    def open(self, engine: Engine, system: str | None) -> Session:
        """The session of the file, or a new one; ``system`` replaces the system prompt of a stored session."""
        if self.path is None or not os.path.exists(self.path):
            return engine.session(system=system)
        session = engine.load_session(self.path, self._warn)
        if system is not None and system != session.system:
            session.system = system or None
        return session

    def load(self, engine: Engine, path: str) -> Session:
        """The session of another file, in which it is saved from now on if that of ``--session`` was.

        The KV cache so far makes room for it: the plan has one.  If the file is damaged after its header, the
        conversation so far goes on, and is read again.
        """
        from edge.cache.kv_file import opened

        with ExitStack() as locks:
            if self.target and not self._has(path):
                locks.enter_context(_locked(path))
            with opened(path, of=engine.space):
                pass  # its header is that of a session of this model
            engine.space.give_way()
            session = engine.load_session(path, self._warn)
            if self.target and not self._has(path):
                self._locks.close()
                self._locks, self.target = locks.pop_all(), path
        return session

    def save_as(self, session: Session, path: str) -> None:
        """Write a copy of the session to another file.  Raises Busy if another process has that one open, UsageError
        if it is that of ``--session-ro``.
        """
        if self.path and not self.target and os.path.exists(path) and os.path.samefile(path, self.path):
            raise UsageError(f"cannot write {path}: --session-ro leaves it as it is; name another file")
        with nullcontext() if self._has(path) else _locked(path):
            session.save(path)

    def save(self, session: Session) -> None:
        """Write the session to its file, if it has one."""
        if self.target:
            session.save(self.target)

    def _has(self, path: str) -> bool:
        return self.target is not None and os.path.realpath(self.target) == os.path.realpath(path)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """A context in which other processes are kept from a session file.  Raises Busy if one has it, UsageError if its
    folder is not writable.
    """
    try:
        folder, name = os.path.split(os.path.realpath(path))
        lock = os.path.join(folder, f".{name}.lock")
        held = exclusive(lock)
    except FileNotFoundError:
        raise UsageError(f"cannot write {path}: the folder does not exist") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    except Busy:
        raise Busy(f"another process has the session {path} open: end it, or use --session-ro") from None
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(lock)
        os.close(held)
