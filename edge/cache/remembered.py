"""Remembered: what the operator wrote (a system prompt, functions, files, examples) is read once in its life.

The KV cache of such a beginning is kept in a private folder of this user, from where every later process takes it.
Never what a user said, nor what was answered: that is for sessions (--session) and for a service's --state.

A beginning is only kept if reading it took longer than loading it will, and more than a moment.  It is written when the
answer has ended.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from contextlib import suppress

from edge.cache.folder import NAME, Beginning, Folder, files
from edge.cache.plan import PAGE
from edge.cache.space import KVSpace
from edge.cache.state import KVState
from edge.errors import EdgeError
from edge.files import cache_home, is_private, remove
from edge.model.fingerprint import KEPT
from edge.threads import start

MAX_BYTES = 256 << 20
LOADED = 40e6  # bytes a second that a memory card gives
LEAST = 0.25  # seconds of reading from which a beginning is kept
LEFT_FREE = 1 << 30  # bytes of the disk that are never taken; of a small one a twentieth
_OURS = re.compile(rf"{NAME}|\.{NAME}\.tmp|{KEPT.pattern}")


def place() -> str:
    """The path of the folder, which may not exist."""
    return os.path.join(cache_home(), "beginnings")


def size(path: str) -> tuple[int, int]:
    """(beginnings, bytes) of the folder, if it is private."""
    found = files(path) if is_private(path) else []
    return len(found), sum(nbytes for _, nbytes, _ in found)


def forget(path: str) -> tuple[int, int]:
    """Remove all of them.  Returns (beginnings, bytes)."""
    before = size(path)
    for each in os.scandir(path) if is_private(path) else ():
        if _OURS.fullmatch(each.name) and each.is_file(follow_symlinks=False):
            remove(each.path)
    left = size(path)
    return before[0] - left[0], before[1] - left[1]


class Remembered(Folder):
    """The folder of remembered beginnings.  Nothing that goes wrong with it is an error: the beginning is read again.

    Beginnings wait in memory, as forks that share their pages, until :meth:`flush` starts a thread that writes them.
    ``packed``: files in a packed program, each its path and span, which are found here, too.
    """

    conversations = False

    def __init__(
        self, space: KVSpace, packed: Iterable[tuple[str, tuple[int, int]]] = (), max_bytes: int = MAX_BYTES
    ) -> None:
        super().__init__(space, place(), max_bytes)
        self._packed = [known for path, span in packed if (known := self.head(path, span))]
        self._waiting: dict[bytes, Beginning] = {}  # by their tokens, with their caches
        self._writer: threading.Thread | None = None

    def listed(self) -> list[Beginning]:
        """The beginnings of this model and plan, in the folder and in the packed program."""
        return self._packed + super().listed()

    def keep(self, new: Beginning, state: KVState) -> None:
        """Keep a beginning that was just read, if that is worth it."""
        seconds = state.reading_seconds
        if new.n >= PAGE and seconds > LEAST and new.key not in self._waiting:
            with suppress(MemoryError):
                new = new.with_cache(state.kv.fork())
                if new.nbytes < min(self.max_bytes, seconds * LOADED):
                    self._waiting[new.key] = new

    def flush(self) -> None:
        """Write what waits, in the background."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            if waiting:
                writer = threading.Thread(target=self._write, args=(waiting, self._writer), name="remembering",
                                          daemon=False)  # unlike the thread of the engine, which starts it
                with suppress(EdgeError):
                    start(writer)
                    self._writer = writer

    def close(self) -> None:
        """Wait until the writer has ended; what still waits is not written."""
        if self._writer is not None:
            self._writer.join()
        self._waiting.clear()

    def _write(self, waiting: dict[bytes, Beginning], before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        while waiting:
            _, new = waiting.popitem()
            with suppress(OSError, EdgeError):
                if self._has_room(new.nbytes):
                    # a damaged file is noticed and read again
                    self.write(new, new.kv, durable=False)

    def _has_room(self, nbytes: int) -> bool:
        """True if the folder is there, or could be made, is private, and so much may be written to its disk."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        disk = os.statvfs(self.path)
        left = min(LEFT_FREE, disk.f_blocks * disk.f_frsize // 20)
        return is_private(self.path) and disk.f_bavail * disk.f_frsize - nbytes > left
