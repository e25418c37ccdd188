"""codec: a KVState <-> bytes, the format of session files, parked sessions and the files of a store.

Little endian throughout, no padding:

    magic 8 bytes | version u32 | length of the header u32 | CRC-32 of these three and the header, u32 | header, JSON
    tokens i32 [n_tokens] | pages in the format of pyx.kv.cache.KVCache.dump | CRC-32 of everything before, u32

The header contains the fingerprint of the model (edge.model.fingerprint), the plan of the KV cache, its counters, the
messages, the state of the sampler and, if the cache was freed, the tokens to read again.  The file's size follows from
it and is checked before anything is read into memory.  Files are not trusted: an invalid one raises InvalidFile and
changes nothing.  The checksums detect damage, not forgery; a forged file can make a model write nonsense, but nothing
worse.

A session is written to a hidden file next to the old one and synced to the disk, then renamed: if the power fails, the
path has the complete old session or the complete new one.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import time
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

from edge.cache.config import parse_kv_type
from edge.cache.space import KVSpace
from edge.cache.state import ConversationState, KVState
from edge.errors import Busy, EdgeError, InvalidFile, UsageError, check_path
from edge.files import exclusive

MAGIC = b"\x89BES\r\n\x1a\n"  # as PNG's: shows a transfer that changed line ends or dropped the eighth bit
VERSION = 2
HEADER_LIMIT = 4 << 20  # bytes; that is more conversation than any model remembers
LEAST_SECONDS, MOST_SECONDS = 1.0, 1e6  # that loading may take
ROLES = ("system", "user", "assistant", "tool")
_START = struct.Struct("<8sII")
_CRC = struct.Struct("<I")


_MESSAGE = {"role", "content", "tool_calls", "tool_call_id", "name"}
_CALL = {"id", "type", "function"}


class Part(NamedTuple):
    """A session file that is a part of another file: ``nbytes`` from ``start``."""

    path: str
    start: int
    nbytes: int


class Foreign(InvalidFile):
    """The file may be in order, but was made by another version of this program, with another model or KV plan."""


class Slow(EdgeError):
    """Loading the file takes longer than reading its tokens again."""


# ---- save -----------------------------------------------------------------------------------------------------------


def save(
    space: KVSpace, path: str | os.PathLike[str], state: KVState | None, talk: ConversationState | None = None
) -> None:
    """Write a state (None for an empty one; it may have been freed) and its talk to ``path``, replacing an older
    session file.

    Raises UsageError if the file cannot be written or is not a session file, Busy if another process is writing it, and
    EdgeError if the disk is full or fails; the old file is then unchanged.
    """
    if state is None:
        write(space, path, array("i"), None, talk)
    else:
        write(space, path, state.tokens, state.kv, talk, state.sampled, state.lost, state.random)


def write(
    space: KVSpace, path: str | os.PathLike[str], tokens: array[int], kv: Any, talk: ConversationState | None,
    sampled: array[int] | None = None, lost: array[int] | None = None, random: Sequence[int] = (), durable: bool = True,
    seconds: float = 0.0,
) -> None:
    """The same for the parts of a state.  Without a talk it is a beginning that many share.

    ``durable``: the file is on the disk afterwards; else a power failure may leave a damaged one.  ``seconds``: that
    reading its tokens takes on this machine; see :func:`load_cache`.  0: not known.
    """
    talk = talk or ConversationState()
    path = os.path.realpath(check_path(path))  # a link stays a link
    mode = _replaceable(path)
    if not all(map(_message, talk.messages)):
        raise UsageError(f"saved messages must have a role ({', '.join(ROLES)}) and a content, and of more only "
                         "tool_calls in OpenAI's form")
    n_tokens, most = kv.counters if kv else (0, 0)
    states = kv.states if kv else []
    facts = {
        "model": space.model.fingerprint,
        "name": space.model.config.name.encode("utf-8", "replace").decode(),
        "kv": plan_of(space),
        "n_tokens": n_tokens,
        "most": most,
        **({"states": states} if states else {}),
        "sampled": list(sampled or ()),
        "lost": list(lost or ()),
        "seed": talk.seed & (1 << 64) - 1,  # as many bits as the sampler looks at
        "sampler": list(random) or None,
        "messages": list(talk.messages),
        "forgotten": talk.forgotten,
        **({"seconds": round(min(seconds, MOST_SECONDS), 3)} if seconds else {}),
    }
    header = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()
    if len(header) > HEADER_LIMIT:
        raise EdgeError(f"the conversation has {len(header)} bytes; a session file holds {HEADER_LIMIT}")
    start = _START.pack(MAGIC, VERSION, len(header))
    parts = [start, _CRC.pack(zlib.crc32(header, zlib.crc32(start))), header, memoryview(tokens).cast("B")]
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.tmp")
    try:
        fd = exclusive(temporary)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    renamed = False
    try:
        with open(fd, "wb") as file:  # locked until it is closed
            try:
                file.truncate(0)
                os.fchmod(fd, mode)
                crc = 0
                for part in (*parts, *(kv.dump() if kv else ())):
                    crc = zlib.crc32(part, crc)
                    file.write(part)
                file.write(_CRC.pack(crc))
                file.flush()
                if durable:
                    os.fsync(fd)
                os.replace(temporary, path)
                renamed = True
            finally:
                if not renamed:
                    os.unlink(temporary)
        if durable:
            _sync_folder(os.path.dirname(path))
    except OSError as error:
        raise EdgeError(f"cannot write {path}: {error.strerror}") from None


def _replaceable(path: str) -> int:
    """The permissions for the new file: those of the old one, else private.  Raises UsageError if the old one must not
    be replaced.

    A file that is not a session file is not replaced: the path is probably a typing error.
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


def remove_abandoned(path: str) -> None:
    """Remove the hidden file of a process that does not write it any more."""
    try:
        fd = exclusive(path)
    except (OSError, Busy):
        return
    try:
        os.unlink(path)
    finally:
        os.close(fd)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- load -----------------------------------------------------------------------------------------------------------


def load(space: KVSpace, path: str | os.PathLike[str]) -> tuple[KVState, ConversationState, str]:
    """The state and the talk in a session file, and "" or, of a file made for another KV cache, for which one: then the
    state holds no tokens, but knows those that are to be read again.

    Raises InvalidFile if the file is damaged or of another version or model; UsageError if it cannot be read;
    MemoryRefused if there is not enough memory.
    """
    with _opened(space, path) as reader:
        facts = _header(space, reader, fitting=False)
        state, made = space.new_state(facts["seed"]), facts["kv"]
        sampled, lost = array("i", facts["sampled"]), array("i", facts["lost"])
        if facts["sampler"] is not None:
            state.sampler.state = facts["sampler"]
        if made == plan_of(space):
            state.tokens, state.sampled, state.lost = _body(space, reader, facts, state.kv), sampled, lost
            return state, _talk(facts), ""
        state.lost = _tokens(space, reader, facts) + sampled + lost
        reader.skip()
        return state, _talk(facts)._replace(forgotten=0), _short(f"{made.get('n_ctx')} tokens, {made.get('kv_type')}")


def load_cache(
    space: KVSpace, path: str | os.PathLike[str] | Part
) -> tuple[array[int], array[int], ConversationState, Any]:
    """(tokens, sampled token, talk, KV cache) of a session file, without a state of the session.

    Raises as :func:`load`, MemoryError, and Slow if reading the tokens takes less time, as far as that is known.
    """
    with _opened(space, path) as reader:
        facts = _header(space, reader)
        if facts.get("seconds"):
            reader.hurry(max(LEAST_SECONDS, facts["seconds"]))
        kv = space.new_cache()
        return _body(space, reader, facts, kv), array("i", facts["sampled"]), _talk(facts), kv


def head(
    space: KVSpace, path: str | os.PathLike[str] | Part, checked: bool = True, fitting: bool = True
) -> tuple[array[int], array[int], ConversationState]:
    """The same without the KV cache, which is neither read nor checked.  ``checked``: whether it is made sure that the
    file is of this model, whose fingerprint takes a while; ``fitting``: that its cache is one of this plan.
    """
    with _opened(space, path, checked) as reader:
        facts = _header(space, reader, checked, fitting)
        return _tokens(space, reader, facts), array("i", facts["sampled"]), _talk(facts)


def _talk(facts: dict[str, Any]) -> ConversationState:
    return ConversationState(facts["messages"], facts["forgotten"], facts["seed"])


@contextmanager
def _opened(space: KVSpace, path: str | os.PathLike[str] | Part, checked: bool = True) -> Iterator[_Reader]:
    """A session file; what is wrong with it is said with its name."""
    name = path.path if isinstance(path, Part) else check_path(path)
    _ = checked and space.model.fingerprint  # its errors are not about this file
    try:
        # a pipe must not make us wait
        with open(name, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise InvalidFile("not a file")
            if isinstance(path, Part):
                file.seek(path.start)
            yield _Reader(file, path.nbytes if isinstance(path, Part) else facts.st_size)
    except InvalidFile as error:
        raise type(error)(f"session file {name}: {error}") from None
    except OSError as error:
        raise UsageError(f"cannot read session file {name}: {error.strerror}") from None


def made_with(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The ctx and kv of the session in a file, and the sinks of one that slides, as arguments of :func:`edge.load`; {}
    if unknown: loading it will raise the error.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            magic, version, length = _START.unpack(file.read(_START.size))
            if magic != MAGIC or version != VERSION or length > HEADER_LIMIT:
                return {}
            plan = _facts(file.read(_CRC.size + length)[_CRC.size :])["kv"]
        found = {"sinks": plan.get("sinks"), "ctx": plan.get("n_ctx"), "kv": plan.get("kv_type")}
        parse_kv_type(found["kv"])
    except (OSError, struct.error, EdgeError, AttributeError, TypeError):
        return {}
    if not _natural(found["sinks"], 1 << 20) or not _natural(found["ctx"], 1 << 24):
        return {}
    return found if plan.get("window") else {"ctx": found["ctx"], "kv": found["kv"]}


class _Reader:
    """Reads exactly as many bytes as asked for, and updates the checksum."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.size = size
        self.at = 0  # bytes read
        self.crc = 0
        self._file = file
        self._begun, self._most = time.perf_counter(), float("inf")

    def hurry(self, seconds: float) -> None:
        """From now on, raise Slow once it is clear that all of it takes longer."""
        self._begun, self._most = time.perf_counter(), seconds

    def fill(self, view: memoryview) -> None:
        """Read into a writable buffer."""
        at = 0
        while at < len(view):
            n = self._file.readinto(view[at:])  # type: ignore[attr-defined]
            if not n:
                raise InvalidFile("ends too early")
            at += n
            spent = time.perf_counter() - self._begun
            if spent > self._most / 4 and spent * self.size > self._most * (self.at + at):
                raise Slow("the disk is slower than the model")
        self.at += len(view)
        self.crc = zlib.crc32(view, self.crc)

    def take(self, n: int) -> bytearray:
        """The next ``n`` bytes; ``n`` must have been checked against the file's size."""
        data = bytearray(n)
        self.fill(memoryview(data))
        return data

    def skip(self) -> None:
        """Read up to the checksum at the end, and check it."""
        while (left := self.size - _CRC.size - self.at) > 0:
            self.take(min(left, 1 << 20))
        self.check()

    def check(self) -> None:
        """Check that the next four bytes are the checksum of all bytes before."""
        expected = self.crc
        if _CRC.unpack(self.take(_CRC.size))[0] != expected:
            raise InvalidFile("damaged (its checksum is wrong)")


def _header(space: KVSpace, reader: _Reader, checked: bool = True, fitting: bool = True) -> dict[str, Any]:
    """The header of a file for this model and, if it must be ``fitting``, plan; the reader is then at the tokens."""
    if reader.size < _START.size + 2 * _CRC.size:
        raise InvalidFile("not a session file, or cut off at its beginning")
    magic, version, length = _START.unpack(reader.take(_START.size))
    if magic != MAGIC:
        raise InvalidFile("not a session file")
    if version != VERSION:
        raise Foreign(f"version {version} of the format; this program reads {VERSION}")
    if length > min(HEADER_LIMIT, reader.size):
        raise InvalidFile("damaged (the length of its header is impossible)")
    start = reader.crc
    expected = _CRC.unpack(reader.take(_CRC.size))[0]
    header = reader.take(length)
    if zlib.crc32(header, start) != expected:
        raise InvalidFile("damaged (the checksum of its header is wrong)")
    facts = _facts(header)
    config = space.model.config
    if checked and facts["model"] != space.model.fingerprint:
        other = _short(facts["name"])
        same = "of the same name" if other == config.name else f"({other}, not this {config.name})"
        raise Foreign(f"made with another model {same}")
    if fitting and facts["kv"] != plan_of(space):
        raise Foreign("made for another KV cache")
    if facts["n_tokens"] * 4 > reader.size:
        raise InvalidFile("damaged (its number of tokens is wrong)")
    return facts


def _tokens(space: KVSpace, reader: _Reader, facts: dict[str, Any]) -> array[int]:
    tokens = array("i", bytes(reader.take(4 * facts["n_tokens"])))
    for ids in (tokens, facts["sampled"], facts["lost"]):
        if ids and not 0 <= min(ids) <= max(ids) < space.model.config.n_vocab:
            raise InvalidFile("damaged (a token is not in the vocabulary)")
    return tokens


def _body(space: KVSpace, reader: _Reader, facts: dict[str, Any], kv: Any) -> array[int]:
    """Reads what follows the header: the pages into ``kv``; returns the tokens."""
    n_tokens, most, states = facts["n_tokens"], facts["most"], facts.get("states", [])
    try:
        size = reader.at + 4 * n_tokens + kv.dump_bytes(n_tokens, most, states) + _CRC.size
    except ValueError as error:
        raise InvalidFile(f"damaged ({error})") from None
    if size != reader.size:
        raise InvalidFile(f"damaged (it has {reader.size} bytes and should have {size})")
    tokens = _tokens(space, reader, facts)
    try:
        kv.restore(n_tokens, most, reader.fill, states)
    except ValueError as error:
        raise InvalidFile(f"damaged ({error})") from None
    reader.check()
    return tokens


def plan_of(space: KVSpace) -> dict[str, Any]:
    """What two plans must have in common so that their caches can hold the same pages."""
    c, plan = space.model.config, space.plan.cache
    budgets = plan["budgets"] and [list(row) for row in plan["budgets"]]  # as JSON has it
    windows, shape, snapshots = plan.pop("windows"), plan.pop("recurrent"), plan.pop("snapshots")  # the model's own
    return {**plan, "budgets": budgets, "shape": list(c.kv_shape),
            **({"windows": list(windows)} if windows else {}),
            **({"recurrent": list(shape), "snapshots": snapshots} if shape else {})}


def _short(text: str) -> str:
    """One line of printable text from a file."""
    return "".join(c if c.isprintable() else "?" for c in text[:100])


def _natural(value: Any, below: int = 1 << 60) -> bool:
    return type(value) is int and 0 <= value < below


def _message(value: Any) -> bool:
    """Whether ``value`` is a message: role and content; for calls of functions also tool_calls, tool_call_id, name."""
    if not isinstance(value, dict) or not {"role", "content"} <= set(value) <= _MESSAGE or value["role"] not in ROLES:
        return False
    calls = value.get("tool_calls", [])
    texts = [text for name, text in value.items() if name != "tool_calls"]
    return isinstance(calls, list) and all(map(_call, calls)) and all(isinstance(t, str) and _is_text(t) for t in texts)


def _call(value: Any) -> bool:
    """Whether ``value`` is a call of a function in OpenAI's form."""
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or set(function) != {"name", "arguments"} or not set(value) <= _CALL:
        return False
    texts = [*function.values(), *(value[name] for name in value if name != "function")]
    return all(isinstance(text, str) and _is_text(text) for text in texts)


def _is_text(text: str) -> bool:
    """Whether a text has no halves of surrogate pairs, which cannot be printed."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


#: key of the header -> whether its value has the right type
_KINDS = {
    "model": lambda v: isinstance(v, str),
    "name": lambda v: isinstance(v, str) and _is_text(v),
    "kv": lambda v: isinstance(v, dict),
    "n_tokens": _natural,
    "most": _natural,
    "sampled": lambda v: isinstance(v, list) and len(v) <= 1 and all(_natural(i, 1 << 31) for i in v),
    "lost": lambda v: isinstance(v, list) and all(_natural(i, 1 << 31) for i in v),
    "seed": lambda v: _natural(v, 1 << 64),
    "sampler": lambda v: (
        v is None or (isinstance(v, list) and len(v) == 4 and all(_natural(i, 1 << 64) for i in v) and any(v))
    ),
    "messages": lambda v: isinstance(v, list) and all(map(_message, v)),
    "forgotten": _natural,
}


def _facts(header: bytes | bytearray) -> dict[str, Any]:
    """The header, with the type of every value checked; the values are checked later.  Unknown keys are ignored."""
    try:
        facts = json.loads(header.decode())
    except (ValueError, RecursionError):
        raise InvalidFile("damaged (its header is not JSON)") from None
    if isinstance(facts, dict):
        facts.setdefault("lost", [])  # earlier files have none
    for key, good in _KINDS.items():
        if not isinstance(facts, dict) or key not in facts or not good(facts[key]):
            raise InvalidFile(f"damaged ({key} in its header is wrong)")
    if not _states(facts.get("states", [])):
        raise InvalidFile("damaged (states in its header is wrong)")
    seconds = facts.get("seconds", 0)
    if type(seconds) not in (int, float) or not 0 <= seconds <= MOST_SECONDS:
        raise InvalidFile("damaged (seconds in its header is wrong)")
    return facts


def _states(value: Any) -> bool:
    """Whether ``value`` lists states of gated delta layers: [[tokens, kept]]."""
    return isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 2 and _natural(each[0]) and type(each[1]) is bool for each in value
    )
