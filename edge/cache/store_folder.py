"""Store folder: entries of a store as files, which remain after the process ends.

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from edge.cache.space import KVSpace
from edge.cache.state import ConversationState, KVState
from edge.cache.store_entry import Entry
from edge.errors import EdgeError, InvalidFile, MemoryRefused, UsageError
from edge.files import remove
from edge.model.fingerprint import sha256

if TYPE_CHECKING:
    from edge.cache.codec import Part

MOST_FILES = 1024
RECENT = 50_000_000  # nanoseconds in which a folder may change twice with the same time of change
_NAME = re.compile(r"(\d{8})-[0-9a-f]{32}\.bes")
_HALF = re.compile(rf"\.{_NAME.pattern}\.tmp")  # as codec.save calls it


class Folder:
    """The files of one kind of entries: conversations, or beginnings that many share; other files are left alone.

    ``max_bytes``: limit for all files.  Raises UsageError if the folder cannot be made.
    """

    checks = True  # that a file is of this model when it is listed; else when it is loaded

    def __init__(
        self, space: KVSpace, path: str | os.PathLike[str], max_bytes: int = 1 << 30, conversations: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self.max_bytes = max_bytes
        self.conversations = conversations
        self._space = space
        self._files: dict[str, Entry | None] = {}  # name -> what is in the file; None: of another model or plan
        self._tag = ""  # of this model and plan, once it is needed
        self.extra_bytes = 0  # bytes of memory that the tokens of the listed files take
        self._changed = 0  # when the folder had last changed, as it was listed; 0: to be listed again
        self._lock = threading.Lock()  # not held while a file is written or loaded
        self.make()
        self._clean()

    def make(self) -> None:
        """Make the folder if it is missing.  Raises UsageError."""
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot keep anything in {self.path}: {error.strerror}") from None

    def listed(self) -> list[Entry]:
        """The entries.  Reads the tokens of files that another process has written."""
        with self._lock:
            try:
                changed = os.stat(self.path).st_mtime_ns
            except OSError:
                changed = 0
            if not changed or changed != self._changed:
                names = {os.path.basename(path) for _, _, path in self.files()}
                self._files = {name: entry for name, entry in self._files.items() if name in names}
                for name in names - set(self._files):
                    self._files[name] = self._head(name) if name[9:17] == self.tag() else None
                self._changed = changed if time.time_ns() - changed > RECENT else 0
            found = [entry for entry in self._files.values() if entry is not None]
            self.extra_bytes = sum(entry.extra_bytes for entry in found)
            return found

    def put(self, entry: Entry, state: KVState) -> None:
        """Write an entry, whose cache is that of the state."""
        self.write(entry, state.kv)

    def flush(self) -> None:
        """An answer has ended: write what waits for that."""

    def close(self) -> None:
        """Nothing is put here any more; wait until all is written."""

    def write(self, entry: Entry, kv: Any, durable: bool = True, seconds: float = 0.0) -> None:
        """Write an entry with its cache, and remove old ones.  A folder that cannot be written is not an error: the
        beginning is read again later.

        ``durable``: wait until the file is on the disk.  ``seconds``: that reading its tokens takes; 0: not known.
        """
        from edge.cache import codec  # with json: most starts find no file

        name = self.name(entry)
        path = os.path.join(self.path, name)
        try:
            if os.path.exists(path):
                os.utime(path)
                return
            codec.write(
                self._space, path, entry.tokens, kv, entry.talk, entry.sampled, durable=durable, seconds=seconds)
            with self._lock:
                known = self._files[name] = self._entry(name, entry.tokens, entry.sampled, entry.talk)
                self.extra_bytes += known.extra_bytes
                old = [each for each in self._files.values() if each and self.conversations and entry.continues(each)]
            for each in old:
                remove(os.path.join(self.path, each.file))
            files = self.files()
            while files and (len(files) > MOST_FILES or sum(size for _, size, _ in files) > self.max_bytes):
                remove(files.pop(0)[2])
        except (OSError, EdgeError):
            pass

    def load(self, listed: Entry, give_way: Callable[[], bool]) -> Entry | None:
        """An entry with its cache, from its file; None if that is not possible.  ``give_way``: frees memory if there is
        not enough; False if it cannot.
        """
        from edge.cache.codec import Foreign, Slow

        path = os.path.join(self.path, listed.file)
        try:
            entry = self._read(path, give_way)
        except (Foreign, Slow):  # of another model of the same shape; or of no use to this process
            with self._lock:
                self._files[listed.file] = None
            return None
        except InvalidFile:
            entry = None
        except EdgeError:  # it cannot be read now
            return None
        if entry is None or self.name(entry) != listed.file:  # damaged, or does not match its name
            remove(path)
            return None
        with suppress(OSError):
            os.utime(path)
        return entry

    def _read(self, path: str | Part, give_way: Callable[[], bool]) -> Entry:
        """An entry with its cache.  Raises EdgeError."""
        from edge.cache import codec

        while True:
            try:
                tokens, sampled, talk, kv = codec.load_cache(self._space, path)
                return Entry(tokens, sampled, talk if self.conversations else None, kv)
            except MemoryError:
                if not give_way():
                    raise MemoryRefused("no memory for a KV cache that was kept") from None

    def files(self) -> list[tuple[float, int, str]]:
        """(time of last use, bytes, path) of every entry, the least recently used first."""
        found = []
        try:
            with os.scandir(self.path) as folder:
                for each in folder:
                    if _NAME.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                        facts = each.stat(follow_symlinks=False)
                        found.append((facts.st_mtime, facts.st_size, each.path))
        except OSError:
            return []
        return sorted(found)

    def _entry(self, name: str, tokens: array[int], sampled: array[int], talk: ConversationState | None) -> Entry:
        """What of an entry is remembered while it is in a file."""
        entry = Entry(tokens, sampled, ConversationState(forgotten=talk.forgotten if talk else 0), folder=self)
        entry.file = name
        return entry

    def name(self, entry: Entry) -> str:
        """The name of an entry's file: its length, the tag, and a digest of everything that its pages depend on."""
        digest = sha256(f"{self._space.model.fingerprint} {self._plan()}".encode() + entry.key)
        return f"{entry.n:08d}-{self.tag()}{digest.hexdigest()[:24]}.bes"

    def tag(self) -> str:
        """What shows most files of other models and plans at once: the model's fingerprint takes much longer."""
        if not self._tag:
            c = self._space.model.config
            facts = f"{c.arch} {c.n_layer} {c.hidden} {c.n_vocab} {self._plan()}"
            self._tag = f"{zlib.crc32(facts.encode()):08x}"
        return self._tag

    def _plan(self) -> str:
        from edge.cache.codec import plan_of

        return repr(sorted(plan_of(self._space).items()))

    def _clean(self) -> None:
        """Remove what a killed process was writing."""
        with suppress(OSError), os.scandir(self.path) as folder:
            for each in folder:
                if _HALF.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                    from edge.cache.codec import remove_abandoned  # with json: most starts find none

                    remove_abandoned(each.path)

    def _head(self, name: str) -> Entry | None:
        """What is in a file; None if it is of another model or plan.  A damaged one is removed."""
        from edge.cache import codec

        path = os.path.join(self.path, name)
        try:
            entry = self._entry(name, *codec.head(self._space, path, self.checks))
            if not self.checks or self.name(entry) == name:
                return entry
        except codec.Foreign:
            return None
        except InvalidFile:
            pass
        except EdgeError:  # it cannot be read now
            return None
        remove(path)
        return None


class Inside(Folder):
    """Beginnings that lie in a packed program (edge/packed.py): what the machine that packed it has read."""

    def __init__(self, space: KVSpace, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._found: dict[bytes, Part] | None = None  # tokens -> part of this model and plan
        super().__init__(space, "")

    def make(self) -> None:
        """Nothing: the file is there."""

    def put(self, entry: Entry, state: KVState) -> None:
        """Nothing: the file is never written."""

    def listed(self) -> list[Entry]:
        """The entries of this model and plan."""
        from edge.cache import codec

        if self._found is None:
            self._found = {}
            for each in self._parts:
                with suppress(EdgeError):  # of another plan, or damaged: it is read again
                    self._found[codec.head(self._space, each)[0].tobytes()] = each
        tokens = [array("i", key) for key in self._found]
        self.extra_bytes = sum(4 * len(each) for each in tokens)
        return [self._entry("", each, array("i"), None) for each in tokens]

    def load(self, listed: Entry, give_way: Callable[[], bool]) -> Entry | None:
        """An entry with its cache; None if that is not possible."""
        with suppress(EdgeError):
            return self._read((self._found or {})[listed.key], give_way)
        return None
