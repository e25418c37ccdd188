"""PrefixStore: beginnings that many sessions share, read once and held once, within a number of bytes.

A session that is about to read a prompt asks the store for the entry that shares the longest beginning with it, token
by token.  It gets a fork of the entry's KV cache: the pages are the same ones until somebody writes to them, so a
hundred sessions on one system prompt take one copy of it and what each has of its own.

With a folder, entries are files, too, and outlive the process.  A file is named after what it holds (a digest of model,
plan and tokens), written whole or not at all, and verified token by token when it is loaded.  What was used longest ago
goes first, in memory and on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge.context import Context, common
from edge.errors import EdgeError, UsageError
from edge.kv_config import PAGE

if TYPE_CHECKING:
    from edge.engine import Engine

_NAME = re.compile(r"(\d{8})-[0-9a-f]{32}\.bes")


@dataclass
class _Entry:
    tokens: array[int]
    kv: Any
    nbytes: int


class PrefixStore:
    """Made by :meth:`edge.engine.Engine.share_prefixes`.

    ``max_bytes``: of KV pages that entries hold, each counted as if it shared nothing.  ``folder``: where entries are
    files, too, at most ``folder_bytes`` of them; files of others there are left alone.  ``hits`` and ``misses`` count
    the prompts that found a longer beginning here than their session had, and those that did not.
    """

    def __init__(
        self, engine: Engine, max_bytes: int, folder: str | os.PathLike[str] | None = None, folder_bytes: int = 1 << 30
    ) -> None:
        self.max_bytes, self.folder_bytes = max_bytes, folder_bytes
        self.folder = None if folder is None else os.fspath(folder)
        self.hits = self.misses = 0
        self._engine = engine
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # tokens as bytes -> entry, the latest used last
        if self.folder is not None:
            try:
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot keep prefixes in {self.folder}: {error.strerror}") from None

    @property
    def nbytes(self) -> int:
        """Bytes of KV pages that entries hold."""
        return sum(entry.nbytes for entry in list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, context: Context) -> None:
        """Keep what this context holds, unless it is larger than the whole store."""
        tokens = context.tokens[:]
        key = tokens.tobytes()
        if not tokens or self._touch(key):
            return
        kv = context.kv.fork()
        nbytes = kv.stats["bytes"]
        if nbytes <= self.max_bytes:
            self._entries[key] = _Entry(tokens, kv, nbytes)
            self.shrink(self.max_bytes)
        if self.folder is not None:
            self._write(context, tokens)

    def find(self, ids: array[int], longer_than: int = 0) -> tuple[array[int], Any] | None:
        """(tokens, fork of the KV cache) of the entry that begins as ids do, a page or more beyond so many tokens."""
        best, n = None, longer_than + PAGE - 1
        for entry in list(self._entries.values()):
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
        begun = len(self._entries)
        while self._entries and self.nbytes > nbytes:
            self._entries.popitem(last=False)
        return len(self._entries) < begun

    def clear(self) -> None:
        """Forget what is in memory; files stay."""
        self._entries.clear()

    def _touch(self, key: bytes) -> bool:
        if key in self._entries:
            self._entries.move_to_end(key)
            return True
        return False

    # ---- files ------------------------------------------------------------------------------------------------------

    def _name(self, tokens: array[int]) -> str:
        """The length, and a digest of all that decides what the pages hold."""
        from edge.session_file import plan_of

        digest = hashlib.sha256(self._engine.fingerprint.encode())
        digest.update(json.dumps(plan_of(self._engine), sort_keys=True).encode() + b"\0" + tokens.tobytes())
        return f"{len(tokens):08d}-{digest.hexdigest()[:32]}.bes"

    def _write(self, context: Context, tokens: array[int]) -> None:
        """Save an entry and make room; a folder that cannot be written costs time later and nothing now."""
        from edge import session_file
        from edge.session import Session

        path = os.path.join(self.folder or "", self._name(tokens))
        if os.path.exists(path):
            return
        page = Session(self._engine)  # the pages of a conversation without the conversation
        page._context = context
        try:
            session_file.save(page, path)
            for old in self._files()[:-1]:  # the newest stays, however large
                if sum(size for _, size, _ in self._files()) <= self.folder_bytes:
                    break
                os.unlink(old[2])
        except (OSError, EdgeError):
            pass

    def _read(self, ids: array[int], longer_than: int) -> _Entry | None:
        """The longest file that ids begin with, if that is longer than what is at hand."""
        for _, _, path in sorted(self._files(), key=lambda file: os.path.basename(file[2]), reverse=True):
            n = int(os.path.basename(path)[:8])
            if n <= longer_than:
                break
            if n > len(ids) or os.path.basename(path) != self._name(ids[:n]):
                continue
            try:
                context = self._engine.load_session(path)._context
            except EdgeError:
                context = None
            if context is None or context.tokens != ids[:n]:  # damaged, or not what its name says
                _remove(path)
                continue
            try:
                os.utime(path)
            except OSError:
                pass
            self.add(context)
            return _Entry(context.tokens, context.kv, 0)
        return None

    def _files(self) -> list[tuple[float, int, str]]:
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
