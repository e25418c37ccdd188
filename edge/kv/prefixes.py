"""Prefixes: prompt prefixes shared by many sessions, read and stored once, within a limit in bytes.

    tokens -> the KV cache of the longest beginning

Before a prompt is read, look up the entry that shares the longest beginning with it, token by token, and gets a
fork of the entry's KV cache: the pages are the same ones until somebody writes to them, so a hundred sessions on one
system prompt take one copy of it and what each has of its own.

With a folder, entries are files, too, and outlive the process.  A file is named after what it holds (a digest of model,
plan and tokens), written whole or not at all, and verified token by token when it is loaded.  What was used longest ago
goes first, in memory and on disk.
"""

from __future__ import annotations

import os
import re
import threading
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from edge.errors import EdgeError, UsageError
from edge.kv.config import PAGE
from edge.kv.space import KVSpace
from edge.kv.state import KVState, common

_NAME = re.compile(r"(\d{8})-[0-9a-f]{32}\.bes")


@dataclass
class _Entry:
    tokens: array[int]
    kv: Any
    nbytes: int


class Prefixes:
    """One per engine; shares nothing until :meth:`share`.  Thread-safe.

    ``max_bytes``: of KV pages that entries hold, each counted as if it shared nothing.  ``folder``: where entries are
    files, too, at most ``folder_bytes`` of them; files of others there are left alone.  ``hits`` and ``misses`` count
    the prompts that found a longer beginning here than their session had, and those that did not.
    """

    def __init__(self, space: KVSpace) -> None:
        self.on = False
        self.max_bytes = self.folder_bytes = 0
        self.folder: str | None = None
        self.hits = self.misses = 0
        self._space = space
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # tokens as bytes -> entry, the latest used last
        self._lock = threading.RLock()

    def share(
        self, max_bytes: int, folder: str | os.PathLike[str] | None = None, folder_bytes: int = 1 << 30
    ) -> Prefixes:
        """Start sharing, with no entries.  Raises UsageError where the folder cannot be made."""
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
        """Bytes of KV pages that entries hold."""
        with self._lock:
            return sum(entry.nbytes for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def tokens(self) -> list[array[int]]:
        """What is held in memory, the latest used last."""
        with self._lock:
            return [entry.tokens for entry in self._entries.values()]

    def add(self, state: KVState) -> None:
        """Keep what this state holds, unless it is larger than all that may be held."""
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
        """(tokens, fork of the KV cache) of the entry that begins as ids do, a page or more beyond so many tokens."""
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
        """Let go of what was used longest ago until no more than so many bytes are held; False: there was nothing."""
        with self._lock:
            begun = len(self._entries)
            while self._entries and self.nbytes > nbytes:
                self._entries.popitem(last=False)
            return len(self._entries) < begun

    def give_way(self) -> bool:
        """Let go of what was used longest ago, for somebody who needs its pages; False: there is nothing."""
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
        """The length, and a digest of all that decides what the pages hold."""
        import hashlib
        import json

        from edge.kv import codec

        digest = hashlib.sha256(self._space.model.fingerprint.encode())
        digest.update(json.dumps(codec.plan_of(self._space), sort_keys=True).encode() + b"\0" + tokens.tobytes())
        return f"{len(tokens):08d}-{digest.hexdigest()[:32]}.bes"

    def _write(self, state: KVState, tokens: array[int]) -> None:
        """Save an entry and make room; a folder that cannot be written costs time later and nothing now."""
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
        """The longest file that ids begin with, if that is longer than what is at hand."""
        from edge.kv import codec

        for _, _, path in sorted(self.files(), key=lambda file: os.path.basename(file[2]), reverse=True):
            n = int(os.path.basename(path)[:8])
            if n <= longer_than:
                break
            if n > len(ids) or os.path.basename(path) != self._name(ids[:n]):
                continue
            try:
                state, _ = codec.load(self._space, path)
            except EdgeError:
                state = None
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
        """(time of last use, bytes, path) of every entry on disk, what was used longest ago first."""
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
