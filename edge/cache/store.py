"""Store: known beginnings of prompts with their KV caches, so that nothing is read twice.

    tokens -> the KV cache of the longest beginning

Before a session reads a prompt, it looks up the entry that shares the longest beginning with it, token by token, and
continues from a fork of the entry's KV cache.  A fork shares the pages until it writes to them, so a hundred sessions
with the same system prompt store it once.  There are two kinds of entries: beginnings that many conversations share
(:meth:`Store.add`), and conversations whose session is needed for another one (:meth:`Store.set_aside`).

Entries are in memory until it is needed or the limit is reached; the least recently used go first.  In a folder
(edge/cache/folder.py), those of one kind are also files and remain after the process ends.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from edge.cache.folder import Beginning, Folder
from edge.cache.plan import PAGE
from edge.cache.space import KVSpace
from edge.cache.state import KVState, common
from edge.errors import EdgeError, InvalidFile
from edge.files import remove

MOST = 256  # entries in memory


class Store:
    """The known beginnings of one engine; nothing is kept until :meth:`share` or :meth:`remember`.  Thread-safe.

    ``max_bytes``: limit for the KV pages of all entries in memory, each counted as if it shared none.  ``entries``:
    those in memory, by their tokens, the latest used last.
    """

    def __init__(self, space: KVSpace) -> None:
        self.max_bytes: float = 0
        self.entries: OrderedDict[bytes, Beginning] = OrderedDict()
        self._folders: list[Folder] = []  # where entries are also files
        self._shares = False  # entries are kept in memory
        self._space = space
        self._lock = threading.Lock()  # not held while a file is written or loaded

    @property
    def on(self) -> bool:
        """True if anything is kept."""
        return self._shares or bool(self._folders)

    def share(self, max_bytes: int | None) -> Store:
        """Start without entries in memory.  ``max_bytes`` None: only the page pool limits them."""
        with self._lock:
            self.max_bytes = float("inf") if max_bytes is None else max_bytes
            self.entries.clear()
            self._space.share_pages()
            self._charge()
            self._shares = True
        return self

    def remember(self, folder: Folder) -> None:
        """Use one more folder, also while entries are not shared in memory."""
        if folder.conversations and folder.listed():
            _ = self._space.model.fingerprint  # now, as its first use takes a while
        with self._lock:
            self._folders.append(folder)
            self._charge()

    def stop(self) -> None:
        """Keep nothing any more; files remain."""
        with self._lock:
            self._shares = False
            self.entries.clear()
            folders, self._folders = self._folders, []
            self._charge()
        for folder in folders:
            folder.close()

    @property
    def nbytes(self) -> int:
        """Bytes of KV pages that the entries in memory hold, each counted as if it shared none."""
        return sum(entry.nbytes for entry in list(self.entries.values()))

    # ---- in ---------------------------------------------------------------------------------------------------------

    def add(self, state: KVState) -> None:
        """Keep what this state holds as a beginning for other sessions."""
        self._put(state, Beginning(state.tokens[: state.n_tokens], False))

    def set_aside(self, state: KVState) -> None:
        """Keep what this state holds as a conversation that will continue, in place of its earlier parts.

        With ``kv_offload`` it is not kept in memory: each conversation would need its own file of pages.
        """
        state.untype()
        self._put(state, Beginning(state.tokens[: state.n_tokens], True, used=state.used))

    def _put(self, state: KVState, new: Beginning) -> None:
        if not new.n:
            return
        with self._lock:
            if (known := self.entries.get(new.key)) is not None:
                known.used = max(known.used, new.used)
                self.entries.move_to_end(new.key)
            elif self._shares and not (new.conversation and self._space.plan.offload):
                with suppress(MemoryError):
                    self._keep(new.with_cache(state.kv.fork()))
            folders = self._folders[:]
        for folder in folders:
            if folder.conversations is new.conversation:
                folder.keep(new, state)
        with self._lock:
            self._charge()

    def flush(self) -> None:
        """An answer has ended: what waits for that is written."""
        for folder in self._folders[:]:
            folder.flush()

    def _keep(self, entry: Beginning) -> bool:
        """Keep an entry in memory, unless it is larger than the limit.  Requires the lock."""
        if entry.nbytes > self.max_bytes:
            return False
        if entry.conversation:
            for old in [old for old in self.entries.values() if old.conversation and entry.continues(old)]:
                del self.entries[old.key]
        self.entries[entry.key] = entry
        while len(self.entries) > MOST or self.nbytes > self.max_bytes:
            self.entries.popitem(last=False)
        self._charge()
        return True

    def give_way(self) -> bool:
        """Drop the least recently used entry in memory to free its pages.  Returns False if there is none."""
        with self._lock:
            if not self.entries:
                return False
            self.entries.popitem(last=False)
            self._charge()
            return True

    def forget(self, before: float) -> bool:
        """Drop the conversations in memory that were last used before this time.  Returns whether there were any."""
        with self._lock:
            old = [each.key for each in self.entries.values() if each.conversation and each.used < before]
            for key in old:
                del self.entries[key]
            self._charge()
        return bool(old)

    def _charge(self) -> None:
        """Entries pay for their tables and tokens: the plan counts only those of the sessions.  Those on disk pay for
        their tokens as far as that leaves what the sessions were promised.  Requires the lock.
        """
        plan = self._space.plan
        listed = sum(folder.extra_bytes for folder in self._folders)
        spare = max(0, plan.room - plan.kv_total) if plan.room is not None else listed
        self._space.charge(sum(entry.extra_bytes for entry in self.entries.values()) + min(listed, spare))

    # ---- out --------------------------------------------------------------------------------------------------------

    def sync(self, state: KVState, ids: array[int]) -> None:
        """Have a state hold as much of the prompt ``ids`` as is known, by itself or here; the rest is to be read."""
        found = self.find(ids, state.keep(ids))
        if found is not None:
            state.kv, state.tokens = found, ids[: max(len(state.tokens), found.n_tokens)]

    def find(self, ids: array[int], longer_than: int = 0) -> Any:
        """A fork of the KV cache that holds the longest beginning of ``ids``, if that is longer than ``longer_than``
        tokens; by at least a page, unless ``ids`` continue all of its entry.  None: there is none.  A file is not
        loaded for less than half of its tokens.
        """
        useless: set[Beginning] = set()
        while True:
            with self._lock:
                best, n = self._best(ids, longer_than, useless)
                kv = self._lend(best) if best is not None and best.kv is not None else None
            if best is None:
                return None
            if best.kv is None:
                kv = self._loaded(best)
            if kv is not None and kv.crop(n) > longer_than:
                return kv
            useless.add(best)  # it cannot be loaded, or cannot go back so far

    def _best(self, ids: array[int], longer_than: int, useless: set[Beginning]) -> tuple[Beginning | None, int]:
        """The entry for :meth:`find`, and how many tokens it shares with ``ids``.  Requires the lock."""
        best, n, want = None, longer_than, ids.tobytes()
        beginning, parted = want[: 4 * (n + 1)], 0
        for entry in (*self.entries.values(), *self._listed()) if len(ids) > n else ():
            if entry in useless or not entry.key.startswith(beginning):
                continue
            length = parted = _common(entry.key, want, parted)
            part = length >= longer_than + PAGE and (entry.kv is not None or 2 * length >= entry.n)
            if part or length == entry.n:
                best, n, beginning = entry, length, want[: 4 * (length + 1)]
        return best, n

    def _lend(self, entry: Beginning) -> Any:
        """A fork of the cache of an entry in memory, which is now the latest used, as are those that it continues; None
        if there is no memory for it.  Requires the lock.
        """
        for each in [each for each in self.entries.values() if entry.continues(each)]:
            self.entries.move_to_end(each.key)
        self.entries.move_to_end(entry.key)
        try:
            return entry.kv.fork()
        except MemoryError:  # it is read again
            return None

    def _loaded(self, listed: Beginning) -> Any:
        """The cache of an entry on disk, which is then in memory, too; None if it cannot be loaded.  A damaged file is
        removed.
        """
        from edge.cache import kv_file

        own = listed.span is None
        while True:
            try:
                tokens, kv = kv_file.read(self._space, listed.path, listed.span)
                break
            except MemoryError:
                if not self.give_way():
                    return None
            except EdgeError as error:
                listed.usable = not isinstance(error, InvalidFile)  # else it cannot be read now
                if own and not listed.usable and not isinstance(error, kv_file.Unusable):
                    remove(listed.path)
                return None
        if own:
            with suppress(OSError):
                os.utime(listed.path)
        entry = Beginning(tokens, listed.conversation, kv)
        with self._lock:
            if self._shares and self._space.plan.offload is None and self._keep(entry):
                return self._lend(entry)
        return kv

    def _listed(self) -> list[Beginning]:
        """The entries on disk.  Requires the lock."""
        return [each for folder in self._folders for each in folder.listed() if each.usable]


def _common(key: bytes, want: bytes, likely: int) -> int:
    """Length of the common beginning of two token lists, given as bytes; found at once if it is ``likely``.

    Many entries part at the same token, after their system prompt.
    """
    at = 4 * likely
    if key[at : at + 4] != want[at : at + 4] and key.startswith(want[:at]):
        return likely
    return common(array("i", key), array("i", want))
