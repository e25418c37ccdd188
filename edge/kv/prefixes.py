"""Prefixes: prompt prefixes shared by many sessions, read and stored once, within a limit in bytes.

    tokens -> the KV cache of the longest beginning

Before a session reads a prompt, it looks up the entry that shares the longest prefix with it, token by token, and gets
a fork of the entry's KV cache.  A fork shares the pages until it writes to them, so a hundred sessions with the same
system prompt store it once.

With a folder, entries are also files and remain after the process ends.  A file is named by a digest of model, plan and
tokens, is written completely or not at all, and is verified token by token when it is loaded.  The least recently used
entries are removed first, in memory and on disk.
"""

from __future__ import annotations

import os
import re
import threading
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from edge.errors import EdgeError, InvalidFile, UsageError
from edge.kv.config import PAGE
from edge.kv.space import KVSpace
from edge.kv.state import KVState, common
from edge.model.threads import with_locks

_NAME = re.compile(r"(\d{8})-[0-9a-f]{32}\.bes")


@dataclass
class _Entry:
    tokens: array[int]
    kv: Any
    nbytes: int


class Prefixes:
    """The shared prefixes of one engine; nothing is shared until :meth:`share`.  Thread-safe.

    ``max_bytes``: limit for the KV pages of all entries, each counted as if it shared none.  ``folder``: where entries
    are also files, at most ``folder_bytes`` of them; other files there are left alone.  ``hits`` and ``misses``: number
    of prompts that found a longer prefix here than their session had, and that did not.
    """

    def __init__(self, space: KVSpace) -> None:
        self.on = False
        self.max_bytes = self.folder_bytes = 0
        self.folder: str | None = None
        self.hits = self.misses = 0
        self._space = space
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # tokens as bytes -> entry, the latest used last
        with_locks(self)

    def make_locks(self) -> None:
        """New locks, see :mod:`edge.model.threads`."""
        self._lock = threading.RLock()

    def share(
        self, max_bytes: int, folder: str | os.PathLike[str] | None = None, folder_bytes: int = 1 << 30
    ) -> Prefixes:
        """Start sharing, without entries.  Raises UsageError if the folder cannot be made."""
        folder = None if folder is None else os.fspath(folder)
        if folder is not None:
            try:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot keep prefixes in {folder}: {error.strerror}") from None
        with self._lock:
            self.max_bytes, self.folder_bytes, self.folder = max_bytes, folder_bytes, folder
            self.hits = self.misses = 0
            self._entries.clear()
            self._space.share_pages()
            self.on = True
        return self

    def stop(self) -> None:
        """Stop sharing; files remain."""
        with self._lock:
            self.on = False
            self._entries.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of KV pages that the entries hold."""
        with self._lock:
            return sum(entry.nbytes for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def tokens(self) -> list[array[int]]:
        """The tokens of the entries in memory, the least recently used first."""
        with self._lock:
            return [entry.tokens for entry in self._entries.values()]

    def add(self, state: KVState) -> None:
        """Add what this state holds, unless it is larger than the limit."""
        tokens = state.tokens[:]
        key = tokens.tobytes()
        with self._lock:
            if not self.on or not tokens or self._touch(key):
                return
            kv = state.fork()
            nbytes = kv.stats["bytes"]
            if nbytes <= self.max_bytes:
                self._entries[key] = _Entry(tokens, kv, nbytes)
                self.shrink(self.max_bytes)
            if self.folder is not None:
                self._write(state, tokens)

    def find(self, ids: array[int], longer_than: int = 0) -> tuple[array[int], Any] | None:
        """(tokens, fork of the KV cache) of the entry that shares the longest prefix with ``ids``, if that is at least
        a page longer than ``longer_than`` tokens.
        """
        with self._lock:
            if not self.on:
                return None
            best, n = None, longer_than + PAGE - 1
            for entry in self._entries.values():
                if (length := common(entry.tokens, ids)) > n:
                    best, n = entry, length
            if self.folder is not None and (read := self._read(ids, n)):
                best = read
            if best is None:
                self.misses += 1
                return None
            self.hits += 1
            self._touch(best.tokens.tobytes())
            return best.tokens[:], best.kv.fork()

    def shrink(self, nbytes: int) -> bool:
        """Drop the least recently used entries until at most ``nbytes`` are held.  Returns False if there was nothing
        to drop.
        """
        with self._lock:
            begun = len(self._entries)
            while self._entries and self.nbytes > nbytes:
                self._entries.popitem(last=False)
            return len(self._entries) < begun

    def give_way(self) -> bool:
        """Drop the least recently used entry to free its pages.  Returns False if there is none."""
        return self.shrink(self.nbytes - 1)

    def clear(self) -> None:
        """Drop the entries in memory; files remain."""
        with self._lock:
            self._entries.clear()

    def _touch(self, key: bytes) -> bool:
        if key in self._entries:
            self._entries.move_to_end(key)
            return True
        return False

    # ---- files ------------------------------------------------------------------------------------------------------

    def _name(self, tokens: array[int]) -> str:
        """The name of an entry's file: its length, and a digest of everything that its pages depend on."""
        import hashlib
        import json

        from edge.kv import codec

        digest = hashlib.sha256(self._space.model.fingerprint.encode())
        digest.update(json.dumps(codec.plan_of(self._space), sort_keys=True).encode() + b"\0" + tokens.tobytes())
        return f"{len(tokens):08d}-{digest.hexdigest()[:32]}.bes"

    def _write(self, state: KVState, tokens: array[int]) -> None:
        """Save an entry and remove old ones.  A folder that cannot be written is not an error: the prefix is read again
        later.
        """
        from edge.kv import codec

        path = os.path.join(self.folder or "", self._name(tokens))
        if os.path.exists(path):
            return
        try:
            codec.save(self._space, path, state)
            for old in self.files()[:-1]:  # the newest stays, however large
                if sum(size for _, size, _ in self.files()) <= self.folder_bytes:
                    break
                os.unlink(old[2])
        except (OSError, EdgeError):
            pass

    def _read(self, ids: array[int], longer_than: int) -> _Entry | None:
        """The longest entry on disk with which ``ids`` begins, if it is longer than ``longer_than``."""
        from edge.kv import codec

        for _, _, path in sorted(self.files(), key=lambda file: os.path.basename(file[2]), reverse=True):
            n = int(os.path.basename(path)[:8])
            if n <= longer_than:
                break
            if n > len(ids) or os.path.basename(path) != self._name(ids[:n]):
                continue
            try:
                state, _ = codec.load(self._space, path)
            except InvalidFile:
                state = None
            except EdgeError:  # no memory, or it cannot be read now
                continue
            if state is None or state.tokens != ids[:n]:  # damaged, or does not match its name
                _remove(path)
                continue
            try:
                os.utime(path)
            except OSError:
                pass
            self.add(state)
            return _Entry(state.tokens, state.kv, 0)
        return None

    def files(self) -> list[tuple[float, int, str]]:
        """(time of last use, bytes, path) of every entry on disk, the least recently used first."""
        found = []
        try:
            with os.scandir(self.folder) as folder:
                for each in folder:
                    if _NAME.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                        facts = each.stat(follow_symlinks=False)
                        found.append((facts.st_mtime, facts.st_size, each.path))
        except OSError:
            return []
        return sorted(found)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
