"""Store: known beginnings of prompts with their KV caches, so that nothing is read twice.

    tokens -> the KV cache of the longest beginning

Before a session reads a prompt, it looks up the entry that shares the longest beginning with it, token by token, and
continues from a fork of the entry's KV cache.  A fork shares the pages until it writes to them, so a hundred sessions
with the same system prompt store it once.  There are two kinds of entries: beginnings that many conversations share
(:meth:`Store.add`), and conversations whose session is needed for another one (:meth:`Store.set_aside`).

Entries are in memory until it is needed or the limit is reached.  With a folder, those of one kind are also files and
remain after the process ends.  A file is named by a digest of model, plan and tokens, is written completely or not at
all, and is verified when it is loaded.  Several processes may use one folder.  The least recently used entries are
removed first, in memory and on disk.
"""

from __future__ import annotations

import os
import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from edge.cache.config import PAGE
from edge.cache.space import KVSpace
from edge.cache.state import KVState, Talk, splice
from edge.errors import EdgeError, InvalidFile, UsageError
from edge.files import remove
from edge.threads import with_locks

MOST = 256  # entries in memory
MOST_FILES = 1024
_NAME = re.compile(r"(\d{8})-[0-9a-f]{32}\.bes")
_HALF = re.compile(rf"\.{_NAME.pattern}\.tmp")  # as codec.save calls it
_BY_MESSAGES = re.compile(r"[0-9a-f]{40}\.bes")  # a conversation, as earlier versions kept it


class Found(NamedTuple):
    """A beginning that a session takes over: its tokens, a KV cache, the last token of an answer if that is not in the
    cache, and the messages of the conversation, if it is one.
    """

    tokens: array[int]
    kv: Any
    sampled: array[int]
    messages: Sequence[dict[str, Any]]


class Entry:
    """A beginning: its tokens, and its KV cache unless that is in a file.

    ``key``: the tokens as bytes.  ``sampled``: the last token of an answer if it is not in the cache.  ``talk``: of a
    conversation, its messages, and how many of the oldest are not among the tokens; else None.  ``beside``: bytes that
    it takes beside its pages.
    """

    def __init__(self, tokens: array[int], sampled: array[int], talk: Talk | None, kv: Any = None) -> None:
        self.key = tokens.tobytes()
        self.n = len(tokens)
        self.sampled = sampled
        self.talk = talk
        self.kv = kv
        self.nbytes: int = 0 if kv is None else kv.stats["bytes"]
        self.beside: int = len(self.key) + (0 if kv is None else kv.beside)

    @property
    def tokens(self) -> array[int]:
        """The tokens."""
        return array("i", self.key)

    def with_cache(self, kv: Any) -> Entry:
        """The same with its KV cache."""
        return Entry(self.tokens, self.sampled, self.talk, kv)

    def continues(self, other: Entry) -> bool:
        """Whether this entry holds all of another one, and more."""
        return self.n > other.n and self.key.startswith(other.key)

    def found(self, n: int, kv: Any) -> Found:
        """The first ``n`` tokens on this cache, and no more than it can go back to."""
        n = kv.crop(n)
        sampled = self.sampled if n == self.n else array("i")
        return Found(self.tokens[:n], kv, sampled, self.talk.messages if self.talk else ())


def common(key: bytes, want: bytes, likely: int) -> int:
    """Length of the common beginning of two token lists, given as bytes; found at once if it is ``likely``.

    Many entries part at the same token, behind their system prompt.
    """
    at = 4 * likely
    if key[at : at + 4] != want[at : at + 4] and key.startswith(want[:at]):
        return likely
    low, high = 0, min(len(key), len(want)) // 4 + 1  # so many are equal; so many are not
    while high - low > 1:
        middle = (low + high) // 2
        if key.startswith(want[4 * low : 4 * middle], 4 * low):
            low = middle
        else:
            high = middle
    return low


class Store:
    """The known beginnings of one engine; nothing is kept until :meth:`share`.  Thread-safe.

    ``max_bytes``: limit for the KV pages of all entries, each counted as if it shared none; None: only the limit of the
    page pool.  ``folder``: where entries are also files, at most ``folder_bytes`` of them; other files there are left
    alone.  ``hits`` and ``misses``: number of prompts that found a longer beginning here than their session had, and
    that did not.
    """

    def __init__(self, space: KVSpace) -> None:
        self.on = False
        self.max_bytes: int | None = None
        self.folder: str | None = None
        self.folder_bytes = 0
        self.hits = self.misses = 0
        self._conversations = False  # those are the files; else the beginnings
        self._space = space
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()  # tokens -> entry in memory, the latest used last
        self._files: dict[str, Entry | None] = {}  # name -> what is in the file; None: of another model or plan
        with_locks(self)

    def make_locks(self) -> None:
        """New locks, see :mod:`edge.threads`."""
        self._lock = threading.Lock()  # not held while a file is written or loaded

    def share(
        self, max_bytes: int | None, folder: str | os.PathLike[str] | None = None, folder_bytes: int = 1 << 30,
        conversations: bool = False,
    ) -> Store:  # fmt: skip
        """Start without entries.  ``conversations``: the folder is for conversations instead of beginnings.  Raises
        UsageError if the folder cannot be made.
        """
        folder = None if folder is None else os.fspath(folder)
        if folder is not None:
            try:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot keep anything in {folder}: {error.strerror}") from None
        with self._lock:
            self.max_bytes, self.folder, self.folder_bytes = max_bytes, folder, folder_bytes
            self._conversations = conversations
            self.hits = self.misses = 0
            self._entries.clear()
            self._files.clear()
            self._space.share_pages()
            self._clean()
            self._listed()  # now, as the first use of the model's fingerprint takes a while
            self._charge()
            self.on = True
        return self

    def stop(self) -> None:
        """Keep nothing any more; files remain."""
        with self._lock:
            self.on = False
            self._entries.clear()
            self._charge()

    @property
    def nbytes(self) -> int:
        """Bytes of KV pages that the entries in memory hold, each counted as if it shared none."""
        with self._lock:
            return self._nbytes()

    @property
    def beside(self) -> int:
        """Bytes that the entries in memory take beside their pages."""
        with self._lock:
            return sum(entry.beside for entry in self._entries.values())

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
        self._put(state, Entry(state.tokens, state.sampled, Talk(list(messages), forgotten)))

    def _put(self, state: KVState, entry: Entry) -> None:
        with self._lock:
            if not self.on or not entry.n:
                return
            if (here := self._entries.get(entry.key)) is not None:
                here.sampled, here.talk = entry.sampled, here.talk and entry.talk
                self._entries.move_to_end(entry.key)
            elif entry.talk is None or self._space.plan.offload is None:
                try:
                    self._keep(entry.with_cache(state.fork()))
                except MemoryError:
                    pass
            to_disk = self.folder is not None and (entry.talk is not None) is self._conversations
        if to_disk:
            self._write(state, entry)

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
        listed = sum(entry.beside for entry in self._files.values() if entry is not None)
        spare = max(0, plan.room - plan.kv_total) if plan.room is not None else listed
        self._space.charge(sum(entry.beside for entry in self._entries.values()) + min(listed, spare))

    # ---- out --------------------------------------------------------------------------------------------------------

    def find(self, ids: array[int], longer_than: int = 0, spliced: bool = False) -> Found | None:
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
            if found is not None and len(found.tokens) > longer_than:
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

    def _lend(self, entry: Entry, n: int) -> Found | None:
        """The first ``n`` tokens of an entry in memory, which is now the latest used, as are those that it continues.
        Requires the lock.
        """
        for each in [each for each in self._entries.values() if entry.continues(each)]:
            self._entries.move_to_end(each.key)
        self._entries.move_to_end(entry.key)
        try:
            return entry.found(n, entry.kv.fork())
        except MemoryError:  # it is read again
            return None

    def _loaded(self, listed: Entry, n: int) -> Found | None:
        """The first ``n`` tokens of an entry on disk, which is then in memory, too."""
        entry = self._load(listed)
        if entry is None:
            return None
        with self._lock:
            if self._space.plan.offload is None and self._keep(entry):
                return self._lend(entry, n)
        return entry.found(n, entry.kv)

    # ---- files ------------------------------------------------------------------------------------------------------

    def _name(self, entry: Entry) -> str:
        """The name of an entry's file: its length, and a digest of everything that its pages depend on."""
        import hashlib
        import json

        from edge.cache import codec

        digest = hashlib.sha256(self._space.model.fingerprint.encode())
        digest.update(json.dumps(codec.plan_of(self._space), sort_keys=True).encode() + b"\0" + entry.key)
        return f"{entry.n:08d}-{digest.hexdigest()[:32]}.bes"

    def _clean(self) -> None:
        """Remove what nobody will read: files that earlier versions named by messages, and what a killed process was
        writing.
        """
        from edge.cache import codec

        try:
            with os.scandir(self.folder or "") as folder:
                for each in folder:
                    if each.is_file(follow_symlinks=False):
                        if _BY_MESSAGES.fullmatch(each.name) and codec.is_session(each.path):
                            remove(each.path)
                        elif _HALF.fullmatch(each.name):
                            codec.remove_abandoned(each.path)
        except OSError:
            pass

    def _listed(self) -> list[Entry]:
        """The entries on disk.  Reads the tokens of files that another process has written.  Requires the lock."""
        if self.folder is None:
            return []
        names = {os.path.basename(path) for _, _, path in self.files()}
        self._files = {name: entry for name, entry in self._files.items() if name in names}
        for name in (new := names - set(self._files)):
            self._files[name] = self._head(os.path.join(self.folder, name))
        if new:
            self._charge()
        return [entry for entry in self._files.values() if entry is not None]

    def _head(self, path: str) -> Entry | None:
        """What is in a file; None if it is of another model or plan.  One that is damaged, or older than anything this
        program reads, is removed.
        """
        from edge.cache import codec

        try:
            tokens, sampled, talk = codec.head(self._space, path)
            entry = Entry(tokens, sampled, _listed(talk))
        except codec.Outdated:
            entry = None
        except codec.Foreign:
            return None
        except InvalidFile:
            entry = None
        except EdgeError:  # it cannot be read now
            return None
        if entry is not None and self._name(entry) == os.path.basename(path):
            return entry
        remove(path)
        return None

    def _load(self, listed: Entry) -> Entry | None:
        """An entry with its cache, from its file; None if that is not possible."""
        from edge.cache import codec

        path = os.path.join(self.folder or "", self._name(listed))
        while True:
            try:
                tokens, sampled, talk, kv = codec.load_cache(self._space, path)
            except MemoryError:
                if self.give_way():
                    continue
                return None
            except InvalidFile:
                tokens = array("i")
            except EdgeError:  # it cannot be read now
                return None
            break
        if tokens.tobytes() != listed.key:  # damaged, or does not match its name
            remove(path)
            return None
        try:
            os.utime(path)
        except OSError:
            pass
        return Entry(tokens, sampled, talk if self._conversations else None, kv)

    def _write(self, state: KVState, entry: Entry) -> None:
        """Save an entry and remove old ones.  A folder that cannot be written is not an error: the beginning is read
        again later.
        """
        from edge.cache import codec

        name = self._name(entry)
        path = os.path.join(self.folder or "", name)
        try:
            if os.path.exists(path):
                os.utime(path)
                return
            codec.save(self._space, path, state, entry.talk)
            with self._lock:
                self._files[name] = Entry(entry.tokens, entry.sampled, _listed(entry.talk))
                self._charge()
                old = [each for each in self._files.values() if each and self._conversations and entry.continues(each)]
            for each in old:
                remove(os.path.join(self.folder or "", self._name(each)))
            files = self.files()
            while files and (len(files) > MOST_FILES or sum(size for _, size, _ in files) > self.folder_bytes):
                remove(files.pop(0)[2])
        except (OSError, EdgeError):
            pass

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


def _listed(talk: Talk | None) -> Talk:
    """What of a talk is remembered while it is in a file."""
    return Talk(forgotten=talk.forgotten if talk else 0)
