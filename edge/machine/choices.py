"""Choices: what was measured to be fastest for a model on this machine, remembered in the user's cache folder.

    {"format": 2, "choices": [{"model": ..., "processor": ..., "kernels": ..., "head": "int8", "threads": 2, ...}]}

An entry belongs to a model by its shape and stored types, not its path, to a processor, and to a build of the kernels,
which may be faster in the next.  Choices change the speed and never an answer.  Whatever is wrong with
the file, it counts as absent; where it cannot be written, nothing is remembered.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.amounts import human
from edge.files import cache_home, replacing

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint

FORMAT = 2
#: most bytes of the file, and most entries: the newest
MOST_BYTES, MOST = 64 << 10, 64
#: types of the output head between which it is chosen
HEADS = ("two-stage", "int8", "q8_0")


class Stream(NamedTuple):
    """How weights are read, as :func:`pyx.machine.cpu.choose` takes it."""

    rows: int  # read side by side
    fetch: str  # how what comes next is fetched, one of pyx.machine.cpu.FETCHES
    ahead: int  # bytes by which it is fetched ahead

    def words(self) -> str:
        """As text: "4 rows at a time, 4 KiB ahead (L1)"."""
        return f"{self.rows} row{'s' * (self.rows > 1)} at a time, {self.ahead / 1024:g} KiB ahead ({self.fetch})"


class Choices(NamedTuple):
    """What was measured; None: not measured, or without a clear result, so that the default holds."""

    head: str | None = None  # type of the output head where it may be chosen, one of HEADS
    threads: int | None = None  # most threads of a step
    stream: Stream | None = None  # how weights are read
    many_tokens: int | None = None  # tokens of a step from which tables are looked up

    def __bool__(self) -> bool:
        return any(value is not None for value in self)

    def with_those_of(self, other: Choices) -> Choices:
        """These, but those of another where it has any."""
        return self._replace(**{name: value for name, value in other._asdict().items() if value is not None})

    def words(self) -> str:
        """The choices as text: "head int8, 2 threads"."""
        return ", ".join(
            text for value, text in (
                (self.head, f"head {self.head}"),
                (self.threads, f"{self.threads} thread{'s' * (self.threads != 1)}"),
                (self.stream, f"weights read {self.stream.words() if self.stream else ''}"),
                (self.many_tokens, f"tables from {self.many_tokens} tokens on"),
            ) if value is not None
        )

    @staticmethod
    def of(entry: Any) -> Choices | None:
        """The choices of an entry of the file; None if it is not valid."""
        if not isinstance(entry, dict):
            return None
        given = {name: entry.get(name) for name in Choices._fields}
        head, stream = given.pop("head"), given.pop("stream")
        if head is not None and head not in HEADS or stream is not None and stream not in map(list, STREAMS):
            return None
        for name, least, most in (("threads", 1, 1024), ("many_tokens", 16, 1 << 20)):
            value = given[name]
            if value is not None and (type(value) is not int or not least <= value <= most):
                return None
        return Choices(head=head, stream=None if stream is None else Stream(*stream), **given)


#: the ways that are compared on a machine (benchmarks/log#zen5), besides what the target does by itself
STREAMS = (
    Stream(4, "L1", 2 << 10),
    Stream(4, "L1", 4 << 10),
    Stream(2, "once", 3 << 10),
    Stream(1, "once", 8 << 10),
    Stream(4, "L2", 16 << 10),
    Stream(4, "rows", 24 << 10),
)


NOTHING = Choices()


class Key(NamedTuple):
    """What choices belong to."""

    model: str
    processor: str
    kernels: str
    given: int | None = None  # number of threads that was asked for; None: none


def key_of(checkpoint: Checkpoint, threads: int | None = None) -> Key:
    """The key of a model, by its shape and the bytes of each stored type, on this processor with these kernels.

    ``threads``: how many were asked for.
    """
    return Key(model_of(checkpoint), processor_of(), kernels(), threads)


def kernels() -> str:
    """What tells these kernels from those of another build: the size of their file."""
    from pyx.machine import cpu

    try:
        return f"{os.path.getsize(cpu.__file__)} bytes"
    except OSError:
        return "unknown"


def model_of(checkpoint: Checkpoint) -> str:
    """Shape and stored types as text, such as "bitnet-b1.58, 30 layers, 2560 wide, 20 / 5 heads of 128, ..."."""
    c = checkpoint.config
    types: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        for each in tensor.experts or (tensor,):
            types[each.type] += each.data.nbytes
    stored = ", ".join(f"{name} {human(n)}" for name, n in sorted(types.items()))
    return (f"{c.arch}, {c.n_layer} layers, {c.hidden} wide, {c.n_head} / {c.n_kv_head} heads of {c.head_dim}, "
            f"{c.n_vocab} words; {stored}")


def processor_of() -> str:
    """The processor, the instruction set in use, and the cores of this process as text."""
    from edge.machine.board import Board
    from edge.machine.cores import find
    from pyx.machine import cpu

    cores = find()
    return f"{Board().processor()}, {cpu.isa()}, {len(cores.fast)} of {len(cores.allowed)} cores" + (
        "" if cores.quota is None else f", time for {cores.quota:g}")


def place() -> str:
    """The path of the file."""
    return os.path.join(cache_home(), "choices.json")


def entries(path: str | None = None) -> list[tuple[Key, Choices]]:
    """What the file says, the newest last; nothing if it cannot be read or anything in it is not valid."""
    try:
        with open(path or place(), "rb") as file:
            text = file.read(MOST_BYTES + 1)
        import json  # most starts find no file

        content = json.loads(text) if len(text) <= MOST_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return []
    listed = content.get("choices") if isinstance(content, dict) and content.get("format") == FORMAT else None
    found: list[tuple[Key, Choices]] = []
    for entry in listed if isinstance(listed, list) else []:
        choices = Choices.of(entry)
        names = [entry.get(name) for name in ("model", "processor", "kernels")] if choices is not None else []
        given = entry.get("given") if choices is not None else None
        if choices is None or not all(isinstance(name, str) and name.isprintable() for name in names):
            return []
        if given is not None and type(given) is not int:
            return []
        found.append((Key(names[0], names[1], names[2], given), choices))
    return found


def remembered(key: Key, path: str | None = None) -> Choices:
    """The choices for a model on this machine; empty if there are none."""
    return next((choices for known, choices in reversed(entries(path)) if known == key), Choices())


def remember(key: Key, choices: Choices, path: str | None = None) -> bool:
    """Store choices in place of earlier ones of this key; none: forget these.  Returns whether that was possible."""
    import json

    path = path or place()
    kept = [each for each in entries(path) if each[0] != key][1 - MOST :]
    content = {"format": FORMAT, "choices": [{**k._asdict(), **c._asdict()} for k, c in (*kept, (key, choices)) if c]}
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(content, indent=1).encode())
    except OSError:
        return False
    return True
