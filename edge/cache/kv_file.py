"""kv_file: the file of a KV state.  Session files, known beginnings in a folder and those in a packed program all have
this one format.

Little endian throughout, no padding:

    magic 8 bytes | version u32 | length of the header u32 | CRC-32 of these three and the header, u32 | header, JSON
    tokens i32 [n_tokens] | pages in the format of pyx.kv.KVCache.dump | CRC-32 of everything before, u32

The header contains the fingerprint of the model (edge.model.fingerprint), the plan of the KV cache, its counters, and
what else belongs to the state.  The file's size follows from it and is checked before anything is read into
memory.  Files are not trusted: an invalid one raises InvalidFile and changes nothing.  The checksums detect damage, not
forgery; a forged file can make a model write nonsense, but nothing worse.

A file is written as a hidden one next to the old one and synced to the disk, then renamed: if the power fails, the path
has the complete old file or the complete new one.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from edge.cache.space import KVSpace
from edge.cache.state import KVState
from edge.errors import Busy, EdgeError, InvalidFile, MemoryRefused, UsageError, check_path
from edge.files import exclusive, remove
from edge.options import parse_kv_type
from edge.prompt.messages import check_messages

MAGIC = b"\x89BES\r\n\x1a\n"  # as PNG's: shows a transfer that changed line ends or dropped the eighth bit
VERSION = 2
HEADER_LIMIT = 4 << 20  # bytes; that is more conversation than any model remembers
_START = struct.Struct("<8sII")
_CRC = struct.Struct("<I")



class Unusable(InvalidFile):
    """The file may be in order, but is of no use here: another version of this program, model or KV plan made it."""


# ---- write ----------------------------------------------------------------------------------------------------------


def write(
    space: KVSpace, path: str | os.PathLike[str], tokens: array[int], kv: Any, durable: bool = True,
    messages: Sequence[dict[str, Any]] = (), examples: int = 0,
) -> None:
    """Write tokens and their KV cache (None: there is none) to ``path``, replacing an older file of a KV state.

    The cache may hold only the first of the tokens.  ``durable``: the file is on the disk afterwards; else a power
    failure may leave a damaged one.  ``messages``: of a conversation; ``examples``: how many of them after the system
    prompt are some.

    Raises UsageError if the file cannot be written or is not one of a KV state, Busy if another process is writing it,
    and EdgeError if the disk is full or fails; the old file is then unchanged.
    """
    path = os.path.realpath(check_path(path))  # a link stays a link
    mode = _replaceable(path)
    n_tokens, most = kv.counters if kv else (0, 0)
    facts = {
        "model": space.model.fingerprint,
        "name": space.model.config.name.encode("utf-8", "replace").decode(),
        "kv": space.page_plan,
        "n_tokens": n_tokens,
        "most": most,
        "states": kv.states if kv else [],  # of gated delta layers, [[tokens, kept]]
        "lost": list(tokens[n_tokens:]),  # that the cache does not hold
        "messages": check_messages(messages) if messages else [],
        "examples": examples,
    }
    header = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()
    if len(header) > HEADER_LIMIT:
        raise EdgeError(f"the conversation has {len(header)} bytes; a session file holds {HEADER_LIMIT}")
    start = _START.pack(MAGIC, VERSION, len(header))
    parts = [start, _CRC.pack(zlib.crc32(header, zlib.crc32(start))), header, memoryview(tokens[:n_tokens]).cast("B")]
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.tmp")
    try:
        fd = exclusive(temporary)
    except Busy:
        raise Busy(f"another process or thread is writing {path}") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    try:
        with open(fd, "wb") as file:  # locked until it is closed
            try:
                file.truncate(0)
                os.fchmod(fd, mode)
                crc = 0
                for part in (*parts, *(kv.dump() if n_tokens else ())):
                    crc = zlib.crc32(part, crc)
                    file.write(part)
                file.write(_CRC.pack(crc))
                file.flush()
                if durable:
                    os.fsync(fd)
                os.replace(temporary, path)
            except BaseException:
                remove(temporary)
                raise
        if durable:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
    except OSError as error:
        raise EdgeError(f"cannot write {path}: {error.strerror}") from None


def _replaceable(path: str) -> int:
    """The permissions for the new file: those of the old one, else private.  Raises UsageError if the old one must not
    be replaced: if it is of another kind, the path is probably a typing error.
    """
    try:
        facts = os.stat(path)
        if stat.S_ISREG(facts.st_mode):
            with open(path, "rb") as file:
                if file.read(len(MAGIC)) in (MAGIC, b""):  # of any version; or nothing is in it
                    return stat.S_IMODE(facts.st_mode)
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(path)):
            raise UsageError(f"cannot write {path}: the folder does not exist") from None
        return 0o600
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    raise UsageError(f"{path} is not a session file, and will not be replaced")


# ---- read -----------------------------------------------------------------------------------------------------------


def load(space: KVSpace, path: str | os.PathLike[str]) -> tuple[KVState, dict[str, Any], str]:
    """The state in a file, its header, and "" or, of a file made for another KV cache, for which one: then the state
    holds no tokens, but knows those that are to be read again.

    Raises InvalidFile if the file is damaged or of another version or model; UsageError if it cannot be read;
    MemoryRefused if there is not enough memory.
    """
    with opened(path, of=space) as file:
        facts, made, n_vocab = file.facts, file.facts["kv"], space.model.config.n_vocab
        state = space.new_state()
        if made == space.page_plan:
            space.take(state)
            try:
                state.tokens, made = file.read(space, state.kv), ""
            except MemoryError as error:
                raise MemoryRefused(f"no memory for a session: {error}") from None
            finally:
                space.release(state)
        else:
            state.tokens = file.tokens(n_vocab)
            file.finish()
            size, own = (f"{each.get('n_ctx')} tokens, {each.get('kv_type')}" for each in (made, space.page_plan))
            made = _short(size if size != own else "other settings")
        state.tokens.extend(facts["lost"])
        return state, facts, made


def read(
    space: KVSpace, path: str, span: tuple[int, int] | None = None, whole: bool = True
) -> tuple[array[int], Any]:
    """(tokens, KV cache) of a file.  ``span``: see :func:`opened`.  ``whole`` False: only its beginning is read,
    without the cache (None), and whichever model made it, as its fingerprint takes a while.

    Raises as :func:`load`, and MemoryError.
    """
    with opened(path, span, space if whole else None) as file:
        if file.facts["kv"] != space.page_plan:
            raise Unusable("made for another KV cache")
        if not whole:
            return file.tokens(space.model.config.n_vocab), None
        kv = space.new_cache()
        return file.read(space, kv), kv


def made_with(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The ctx and kv of the session in a file, and the sinks of one that slides, as arguments of :func:`edge.load`; {}
    if unknown: loading it will raise the error.
    """
    try:
        with opened(path) as file:
            plan = file.facts["kv"]
        found = {"sinks": plan.get("sinks"), "ctx": plan.get("n_ctx"), "kv": plan.get("kv_type")}
        parse_kv_type(found["kv"])
    except (EdgeError, AttributeError, TypeError):
        return {}
    if not _natural(found["sinks"], 1 << 20) or not _natural(found["ctx"], 1 << 24):
        return {}
    return found if plan.get("window") else {"ctx": found["ctx"], "kv": found["kv"]}


@contextmanager
def opened(
    path: str | os.PathLike[str], span: tuple[int, int] | None = None, of: KVSpace | None = None
) -> Iterator[KVFile]:
    """A file whose header was read; what is wrong with it is said with its name.  ``span``: (start, bytes) of one that
    is a part of another file.  ``of``: whose model must have made it.
    """
    path = check_path(path)
    model = of.model.fingerprint if of else ""  # its errors are not about this file
    try:
        # a pipe must not make us wait
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InvalidFile("not a file")
            start, nbytes = span or (0, status.st_size)
            file.seek(start)
            found = KVFile(file, nbytes)
            if of and found.facts["model"] != model:
                name, other = of.model.config.name, _short(found.facts["name"])
                same = "of the same name" if other == name else f"({other}, not this {name})"
                raise Unusable(f"made with another model {same}")
            yield found
    except InvalidFile as error:
        raise type(error)(f"session file {path}: {error}") from None
    except OSError as error:
        raise UsageError(f"cannot read session file {path}: {error.strerror}") from None


class KVFile:
    """An open file, which is read from its beginning to its end: its header (``facts``), tokens, pages."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self._at = self._crc = 0  # bytes read, and their checksum
        if size < _START.size + 2 * _CRC.size:
            raise InvalidFile("not a session file, or cut off at its beginning")
        magic, version, length = _START.unpack(self._take(_START.size))
        if magic != MAGIC:
            raise InvalidFile("not a session file")
        if version != VERSION:
            raise Unusable(f"version {version} of the format; this program reads {VERSION}")
        if length > min(HEADER_LIMIT, size):
            raise InvalidFile("damaged (the length of its header is impossible)")
        start = self._crc
        expected = _CRC.unpack(self._take(_CRC.size))[0]
        header = self._take(length)
        if zlib.crc32(header, start) != expected:
            raise InvalidFile("damaged (the checksum of its header is wrong)")
        self.facts = _facts(header)
        if self.facts["n_tokens"] * 4 > size:
            raise InvalidFile("damaged (its number of tokens is wrong)")

    def tokens(self, n_vocab: int) -> array[int]:
        """The tokens, which follow the header."""
        tokens = array("i", bytes(self._take(4 * self.facts["n_tokens"])))
        for ids in (tokens, self.facts["lost"]):
            if ids and not 0 <= min(ids) <= max(ids) < n_vocab:
                raise InvalidFile("damaged (a token is not in the vocabulary)")
        return tokens

    def read(self, space: KVSpace, kv: Any) -> array[int]:
        """The tokens; their pages are read into ``kv``, an empty cache.  The size is checked first.

        Raises MemoryError.
        """
        n_tokens, most, states = (self.facts[name] for name in ("n_tokens", "most", "states"))
        try:
            nbytes = kv.dump_bytes(n_tokens, most, states) if n_tokens else 0
            size = self._at + 4 * n_tokens + nbytes + _CRC.size
            if size != self._size:
                raise InvalidFile(f"damaged (it has {self._size} bytes and should have {size})")
            space.make_room_for(nbytes)
            tokens = self.tokens(space.model.config.n_vocab)
            if n_tokens:
                kv.restore(n_tokens, most, self._fill, states)
        except ValueError as error:
            raise InvalidFile(f"damaged ({error})") from None
        self.finish()
        return tokens

    def finish(self) -> None:
        """Read what is left, and check the checksum at the end."""
        while (left := self._size - _CRC.size - self._at) > 0:
            self._take(min(left, 1 << 20))
        expected = self._crc
        if _CRC.unpack(self._take(_CRC.size))[0] != expected:
            raise InvalidFile("damaged (its checksum is wrong)")

    def _fill(self, view: memoryview) -> None:
        """Read into a writable buffer, and update the checksum."""
        at = 0
        while at < len(view):
            n = self._file.readinto(view[at:])  # type: ignore[attr-defined]
            if not n:
                raise InvalidFile("ends too early")
            at += n
        self._at += len(view)
        self._crc = zlib.crc32(view, self._crc)

    def _take(self, n: int) -> bytearray:
        """The next ``n`` bytes; ``n`` must have been checked against the file's size."""
        data = bytearray(n)
        self._fill(memoryview(data))
        return data


# ---- the header -----------------------------------------------------------------------------------------------------


def _short(text: str) -> str:
    """One line of printable text from a file."""
    return "".join(c if c.isprintable() else "?" for c in text[:100])


def _natural(value: Any, below: int = 1 << 60) -> bool:
    return type(value) is int and 0 <= value < below


def _printable(value: Any) -> bool:
    """True if no text in it has half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


#: key of the header -> whether its value has the right type
_KINDS = {
    "model": lambda v: isinstance(v, str),
    "name": lambda v: isinstance(v, str) and _printable(v),
    "kv": lambda v: isinstance(v, dict),
    "n_tokens": _natural,
    "most": _natural,
    "states": lambda v: isinstance(v, list) and all(
        isinstance(each, list) and len(each) == 2 and _natural(each[0]) and type(each[1]) is bool for each in v
    ),
    "lost": lambda v: isinstance(v, list) and all(_natural(i, 1 << 31) for i in v),
    "messages": lambda v: isinstance(v, list),
    "examples": _natural,
}


def _facts(header: bytes | bytearray) -> dict[str, Any]:
    """The header, with the type of every value checked; the values are checked later.  Unknown keys are ignored."""
    try:
        facts = json.loads(header.decode())
    except (ValueError, RecursionError):
        raise InvalidFile("damaged (its header is not JSON)") from None
    for key, good in _KINDS.items():
        if not isinstance(facts, dict) or key not in facts or not good(facts[key]):
            raise InvalidFile(f"damaged ({key} in its header is wrong)")
    try:
        return facts | {"messages": facts["messages"] and check_messages(facts["messages"])}
    except UsageError as error:
        raise InvalidFile(f"damaged ({error})") from None
