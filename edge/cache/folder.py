"""Folder: known beginnings as files (edge/cache/kv_file.py), which remain after the process ends.

A file is named by a digest of model, plan and tokens, is written completely or not at all, and is verified when it is
loaded.  Several processes may use one folder.  The least recently used files are removed first.
"""

from __future__ import annotations

import os
import re
import threading
import time
import zlib
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from edge.cache.space import KVSpace
from edge.cache.state import KVState
from edge.errors import Busy, EdgeError, InvalidFile, UsageError
from edge.files import exclusive, is_private, remove
from edge.model.fingerprint import sha256

MOST_FILES = 1024
RECENT = 50_000_000  # nanoseconds in which a folder may change twice with the same time of change
NAME = r"\d{8}-[0-9a-f]{32}\.bes"
_FILE = re.compile(NAME)
_HALF = re.compile(rf"\.{NAME}\.tmp")  # as kv_file.write calls it


class Beginning:
    """Tokens that were read, and their KV cache or the file that has it.

    ``key``: the tokens as bytes.  ``conversation``: it is one, not a beginning that many share.  ``path``, ``span``: as
    :func:`edge.cache.kv_file.read` takes them.  ``used``: when a conversation was last used (time.monotonic).
    ``extra_bytes``: the memory besides its pages.
    """

    def __init__(self, tokens: array[int], conversation: bool, kv: Any = None, path: str = "",
                 span: tuple[int, int] | None = None, used: float = 0.0) -> None:
        self.key = tokens.tobytes()
        self.n = len(tokens)
        self.conversation = conversation
        self.kv, self.path, self.span, self.used = kv, path, span, used
        self.usable = True  # as far as is known
        self.nbytes: int = 0 if kv is None else kv.stats["bytes"]
        self.extra_bytes: int = len(self.key) + (0 if kv is None else kv.extra_bytes)

    @property
    def tokens(self) -> array[int]:
        """The tokens."""
        return array("i", self.key)

    def with_cache(self, kv: Any) -> Beginning:
        """The same with its KV cache."""
        return Beginning(self.tokens, self.conversation, kv, used=self.used)

    def continues(self, other: Beginning) -> bool:
        """True if this one holds all of another one, and more."""
        return self.n > other.n and self.key.startswith(other.key)


def files(folder: str) -> list[tuple[float, int, str]]:
    """(time of last use, bytes, path) of every beginning in a folder, the least recently used first.  Half a file
    that a killed process left is removed.
    """
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for each in entries:
            if _HALF.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                with suppress(OSError, Busy):
                    fd = exclusive(each.path)
                    remove(each.path)
                    os.close(fd)
            elif _FILE.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                status = each.stat(follow_symlinks=False)
                found.append((status.st_mtime, status.st_size, each.path))
    return sorted(found)


class Folder:
    """The files of conversations; other files are left alone.

    ``max_bytes``: limit for all files.  ``warn``: is told why nothing can be written, once.  Raises UsageError if the
    folder cannot be made.
    """

    conversations = True  # else of beginnings that many share; it is made with its first file, and for this user alone

    def __init__(
        self, space: KVSpace, path: str | os.PathLike[str], max_bytes: int = 1 << 30,
        warn: Callable[[str], object] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.max_bytes = max_bytes
        self._warn = warn
        self._space = space
        c = space.model.config  # not its fingerprint, which takes much longer and is checked when a file is loaded
        self._plan = repr(sorted(space.page_plan.items()))
        self._tag = f"{zlib.crc32(f'{c.arch} {c.n_layer} {c.hidden} {c.n_vocab} {self._plan}'.encode()):08x}"
        self._known: dict[str, Beginning | None] = {}  # path of a file -> what is in it; None: nothing for us
        self._changed = 0  # when the folder had last changed, as it was listed; 0: to be listed again
        self._lock = threading.Lock()  # not held while a file is written
        if self.conversations:
            try:
                os.makedirs(self.path, mode=0o700, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot keep anything in {self.path}: {error.strerror}") from None
            self._evict()

    @property
    def extra_bytes(self) -> int:
        """Bytes of memory that the tokens of the listed files take."""
        return sum(each.extra_bytes for each in list(self._known.values()) if each is not None)

    def listed(self) -> list[Beginning]:
        """The beginnings of this model and plan.  Reads the tokens of files that another process has written."""
        with self._lock:
            if not self.conversations and not is_private(self.path):
                return []
            try:
                changed = os.stat(self.path).st_mtime_ns
            except OSError:
                changed = 0
            if not changed or changed != self._changed:
                known: dict[str, Beginning | None] = {}
                for _, _, path in files(self.path):
                    ours = os.path.basename(path)[9:17] == self._tag
                    known[path] = self._known[path] if path in self._known else self.head(path) if ours else None
                self._known = known
                self._changed = changed if time.time_ns() - changed > RECENT else 0
            return [each for each in self._known.values() if each is not None]

    def head(self, path: str, span: tuple[int, int] | None = None) -> Beginning | None:
        """The beginning in a file, without its cache; None if it is of no use here.  A damaged file is removed."""
        from edge.cache import kv_file  # with json: most starts find no file

        try:
            tokens, _ = kv_file.read(self._space, path, span, whole=False)
            return Beginning(tokens, self.conversations, path=path, span=span)
        except InvalidFile as error:
            if span is None and not isinstance(error, kv_file.Unusable):
                remove(path)
        except EdgeError:  # it cannot be read now
            pass
        return None

    def keep(self, new: Beginning, state: KVState) -> None:
        """Keep a beginning that a state holds."""
        self.write(new, state.kv)

    def flush(self) -> None:
        """An answer has ended: what waits for that is written."""

    def close(self) -> None:
        """Wait until all is written."""

    def write(self, new: Beginning, kv: Any, durable: bool = True) -> None:
        """Write a beginning with its cache, and remove old ones, unless it is larger than the limit.  A folder that
        cannot be written is a warning, not an error: the beginning is read again later.

        ``durable``: wait until the file is on the disk.
        """
        from edge.cache import kv_file

        path = self.path_of(new)
        try:
            if os.path.exists(path):
                os.utime(path)
                return
            if kv.stats["bytes"] > self.max_bytes:
                return
            kv_file.write(self._space, path, new.tokens, kv, durable)
            with self._lock:
                self._known[path] = Beginning(new.tokens, new.conversation, path=path)
                old = [each for each in self._known.values() if each and self.conversations and new.continues(each)]
            for each in old:
                remove(each.path)
            self._evict()
        except Busy:  # another process writes the same
            pass
        except (OSError, EdgeError) as error:
            if self._warn is not None:
                self._warn(f"answers go on, but are not kept: {error}")
                self._warn = None

    def _evict(self) -> None:
        """Remove files that are larger than the limit alone, then the least recently used ones that are too many."""
        found = files(self.path)
        for each in [each for each in found if each[1] > self.max_bytes]:
            remove(each[2])
            found.remove(each)
        while len(found) > MOST_FILES or sum(size for _, size, _ in found) > self.max_bytes:
            remove(found.pop(0)[2])

    def path_of(self, beginning: Beginning) -> str:
        """The path of a beginning's file.  In its name are its length, a tag that shows most files of other models and
        plans at once, and a digest of everything that its pages depend on.
        """
        digest = sha256(f"{self._space.model.fingerprint} {self._plan}".encode() + beginning.key)
        return os.path.join(self.path, f"{beginning.n:08d}-{self._tag}{digest.hexdigest()[:24]}.bes")
