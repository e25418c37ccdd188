"""Store: known beginnings of prompts with their KV caches, so that nothing is read twice.

    tokens -> the KV cache of the longest beginning

Before a session reads a prompt, it looks up the entry that shares the longest beginning with it, token by token, and
continues from a fork of the entry's KV cache.  A fork shares the pages until it writes to them, so a hundred sessions
with the same system prompt store it once.  There are two kinds of entries: beginnings that many conversations share
(:meth:`Store.add`), and conversations whose session is needed for another one (:meth:`Store.set_aside`).

Entries are in memory until it is needed or the limit is reached; the least recently used go first.  In a folder
(edge/cache/store_folder.py), those of one kind are also files and remain after the process ends.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from edge.cache.plan import PAGE
from edge.cache.space import KVSpace
from edge.cache.state import ConversationState, KVState, splice
from edge.cache.store_entry import Entry, common
from edge.cache.store_folder import Folder

MOST = 256  # entries in memory


class Store:
    """The known beginnings of one engine; nothing is kept until :meth:`share` or :meth:`remember`.  Thread-safe.

    ``max_bytes``: limit for the KV pages of all entries in memory, each counted as if it shared none; None: only the
    limit of the page pool.  ``folders``: where entries are also files.  ``hits`` and ``misses``: number of prompts that
    found a longer beginning here than their session had, and that did not.
    """

    def __init__(self, space: KVSpace) -> None:
        self.max_bytes: int | None = 0
        self.folders: list[Folder] = []
        self._remembered: list[Folder] = []  # those of them that :meth:`share` keeps
        self.hits = self.misses = 0
        self._shares = False  # entries are kept in memory
        self._space = space
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()  # tokens -> entry in memory, the latest used last
        self._lock = threading.Lock()  # not held while a file is written or loaded

    @property
    def on(self) -> bool:
        """Whether anything is kept."""
        return self._shares or bool(self.folders)

    def share(self, max_bytes: int | None, folder: Folder | None = None) -> Store:
        """Start without entries.  ``folder``: where they are also files, in place of an earlier one."""
        with self._lock:
            self.max_bytes = max_bytes
            self.hits = self.misses = 0
            self._entries.clear()
            self._space.share_pages()
            self.folders = [*self._remembered, *([] if folder is None else [folder])]
            self._listed()  # now, as the first use of the model's fingerprint takes a while
            self._charge()
            self._shares = True
        return self

    def remember(self, folder: Folder) -> None:
        """Use one more folder, whether entries are shared in memory or not."""
        self._remembered.append(folder)
        self.folders.append(folder)

    def stop(self) -> None:
        """Keep nothing any more; files remain."""
        with self._lock:
            self._shares = False
            self._entries.clear()
            folders, self.folders, self._remembered = self.folders, [], []
            self._charge()
        for each in folders:
            each.close()

    @property
    def nbytes(self) -> int:
        """Bytes of KV pages that the entries in memory hold, each counted as if it shared none."""
        with self._lock:
            return self._nbytes()

    @property
    def extra_bytes(self) -> int:
        """Bytes that the entries in memory take apart from their pages."""
        with self._lock:
            return sum(entry.extra_bytes for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def tokens(self) -> list[array[int]]:
        """The tokens of the entries in memory, the least recently used first."""
        with self._lock:
            return [entry.tokens for entry in self._entries.values()]

    def forgotten(self) -> list[int]:
        """How many messages the conversations here have forgotten, each number once, the latest used first."""
        with self._lock:
            everywhere = [*reversed(self._entries.values()), *self._listed()]
            return [n for n in dict.fromkeys(entry.talk.forgotten for entry in everywhere if entry.talk) if n]

    # ---- in ---------------------------------------------------------------------------------------------------------

    def add(self, state: KVState) -> None:
        """Keep what this state holds as a beginning for other sessions."""
        self._put(state, Entry(state.tokens, array("i"), None))

    def set_aside(self, state: KVState, messages: Sequence[dict[str, Any]], forgotten: int = 0) -> None:
        """Keep what this state holds as a conversation that will continue, in place of its earlier parts.

        ``forgotten``: number of the oldest ``messages`` that are not among the tokens.  With ``kv_offload`` it is not
        kept in memory: each conversation would need its own file of pages.
        """
        self._put(state, Entry(state.tokens, state.sampled, ConversationState(list(messages), forgotten)))

    def _put(self, state: KVState, entry: Entry) -> None:
        with self._lock:
            if not self.on or not entry.n:
                return
            if (here := self._entries.get(entry.key)) is not None:
                here.sampled, here.talk = entry.sampled, here.talk and entry.talk
                self._entries.move_to_end(entry.key)
            elif self._shares and (entry.talk is None or self._space.plan.offload is None):
                try:
                    self._keep(entry.with_cache(state.fork()))
                except MemoryError:
                    pass
        for each in self.folders:
            if each.conversations is (entry.talk is not None):
                each.put(entry, state)
        with self._lock:
            self._charge()

    def flush(self) -> None:
        """An answer has ended: what waits for that is written."""
        for each in self.folders:
            each.flush()

    def _keep(self, entry: Entry) -> bool:
        """Keep an entry in memory, unless it is larger than the limit.  Requires the lock."""
        most = entry.nbytes if self.max_bytes is None else self.max_bytes
        if entry.nbytes > most:
            return False
        if entry.talk is not None:
            for old in [old for old in self._entries.values() if old.talk is not None and entry.continues(old)]:
                del self._entries[old.key]
        self._entries[entry.key] = entry
        while len(self._entries) > MOST or (self.max_bytes is not None and self._nbytes() > self.max_bytes):
            self._entries.popitem(last=False)
        self._charge()
        return True

    def give_way(self) -> bool:
        """Drop the least recently used entry in memory to free its pages.  Returns False if there is none."""
        with self._lock:
            if not self._entries:
                return False
            self._entries.popitem(last=False)
            self._charge()
            return True

    def clear(self) -> None:
        """Drop the entries in memory; files remain."""
        with self._lock:
            self._entries.clear()
            self._charge()

    def _nbytes(self) -> int:
        return sum(entry.nbytes for entry in self._entries.values())

    def _charge(self) -> None:
        """Entries pay for their tables and tokens: the plan counts only those of the sessions.  Those on disk pay for
        their tokens as far as that leaves what the sessions were promised.  Requires the lock.
        """
        plan = self._space.plan
        listed = sum(folder.extra_bytes for folder in self.folders)
        spare = max(0, plan.room - plan.kv_total) if plan.room is not None else listed
        self._space.charge(sum(entry.extra_bytes for entry in self._entries.values()) + min(listed, spare))

    # ---- out --------------------------------------------------------------------------------------------------------

    def find(self, ids: array[int], longer_than: int = 0, spliced: bool = False) -> Entry | None:
        """The entry that shares the longest beginning with ``ids``, with a fork of its KV cache, if that is longer than
        ``longer_than`` tokens; by at least a page, unless ``ids`` continue all of it.  A file is not loaded for less
        than half of its tokens.

        ``spliced``: what the model wrote may be split into other tokens than in ``ids``, see :meth:`KVState.splice`.
        What follows then depends on what other sessions wrote: only for conversations sent to a context that slides.
        """
        useless: set[bytes] = set()
        while True:
            with self._lock:
                if not self.on:
                    return None
                best, n = self._best(ids, longer_than, spliced, useless)
                if best is not None and best.kv is not None:
                    found = self._lend(best, n)
            if best is None:
                self.misses += 1
                return None
            if best.kv is None:
                found = self._loaded(best, n)
            if found is not None and found.n > longer_than:
                self.hits += 1
                return found
            useless.add(best.key)  # it cannot be loaded, or cannot go back so far

    def _best(self, ids: array[int], longer_than: int, spliced: bool, useless: set[bytes]) -> tuple[Entry | None, int]:
        """The entry for :meth:`find`, and how many tokens it shares with ``ids``.  Requires the lock."""
        best, n, want = None, longer_than, ids.tobytes()
        beginning, parted = want[: 4 * (n + 1)], 0
        for entry in (*self._entries.values(), *self._listed()) if len(ids) > n else ():
            if entry.key in useless or not spliced and not entry.key.startswith(beginning):
                continue
            length = parted = common(entry.key, want, parted)
            if spliced and length < len(ids):
                length = min(entry.n, splice(entry.tokens + entry.sampled, ids, length, self._space.model)[0])
            part = length >= longer_than + PAGE and (entry.kv is not None or 2 * length >= entry.n)
            if length > n and (part or length == entry.n):
                best, n, beginning = entry, length, want[: 4 * (length + 1)]
        return best, n

    def _lend(self, entry: Entry, n: int) -> Entry | None:
        """The first ``n`` tokens of an entry in memory, which is now the latest used, as are those that it continues.
        Requires the lock.
        """
        for each in [each for each in self._entries.values() if entry.continues(each)]:
            self._entries.move_to_end(each.key)
        self._entries.move_to_end(entry.key)
        try:
            return entry.first(n, entry.kv.fork())
        except MemoryError:  # it is read again
            return None

    def _loaded(self, listed: Entry, n: int) -> Entry | None:
        """The first ``n`` tokens of an entry on disk, which is then in memory, too."""
        entry = listed.folder.load(listed, self.give_way) if listed.folder else None
        if entry is None:
            return None
        with self._lock:
            if self._shares and self._space.plan.offload is None and self._keep(entry):
                return self._lend(entry, n)
        return entry.first(n, entry.kv)

    def _listed(self) -> list[Entry]:
        """The entries on disk.  Requires the lock."""
        before = sum(folder.extra_bytes for folder in self.folders)
        found = [entry for folder in self.folders for entry in folder.listed()]
        if sum(folder.extra_bytes for folder in self.folders) != before:
            self._charge()
        return found
