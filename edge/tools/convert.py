"""Convert: any supported ternary model -> one GGUF file that is used directly from the memory map.

It works tensor by tensor (peak memory: about the largest matrix as int8), writes dimensions, tokenizer and chat
template, reads back what it wrote, and only then gives the file its name.

Where a tensor takes long (planes), an interrupted conversion goes on behind the last whole one: OUT.part keeps the
tensors, and OUT.part.json says which are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from edge import __version__
from edge.errors import EdgeError, UsageError
from edge.files import check_new, exclusive, remove, sha256_of
from edge.formats import open_checkpoint
from edge.formats.container import Buffer, Entry, layout, put
from edge.machine.linux import drop_cached
from edge.model.interpretation import interpreted
from edge.tools.new_file import NewFile

if TYPE_CHECKING:
    from edge.tools.planes import Planes

TYPES = ("I2_S", "TQ2_0")
VERIFYING = "verifying"  # a name in progress that no tensor has
EMBEDDINGS = ("F16", "Q8_0", "F32", "keep")

_BLOCK = 1 << 20


@dataclass
class Result:
    """The file that was written."""

    path: str
    nbytes: int
    sha256: str
    n_tensors: int
    notes: list[str] = field(default_factory=list)


def convert(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    type: str = "I2_S",
    embedding: str | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, name: None,
    *,
    force: bool = False,
    i2s_layout: str = "auto",
    activation: str | None = None,
    ternarise: bool = False,
    planes: Planes | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Result:
    """Write the model at ``src`` (GGUF file or Hugging Face directory) to the GGUF file ``dst``.

    ``type`` of the ternary matrices: "I2_S" (layout 128, exact) or "TQ2_0" (for llama.cpp; scales become float16).
    Matrices with a scale per 128 weights (Ternary-Bonsai) become PQ2_0_R64 instead of I2_S, which kernels read fastest,
    and PQ2_0, the same in plain rows, instead of TQ2_0; both are exact.  ``embedding`` (and an untied head): "F16",
    "Q8_0", "F32" or "keep" for the stored type; None is F16, and with ``planes`` Q8_0.

    ``progress(done, total, name)`` is called before each tensor and after each piece of it with bytes of what takes
    the time, and at last with :data:`VERIFYING` as name.
    ``force``: replace ``dst`` if it exists.  ``ternarise``: round float matrices that are not ternary by their absmean,
    for master weights that are not marked as such.  ``planes``: make sums of ternary matrices of an ordinary model
    (:mod:`edge.tools.planes`); ``type`` plays no part then, and what a crash or a signal interrupts goes on in the next
    call with the same arguments.  ``extra``: further metadata, such as {"general.license": "mit"}.

    Raises ModelNotFound, InvalidFile, UsageError, Busy if another process writes ``dst``, or EdgeError.
    """
    if type not in TYPES:
        raise UsageError(f"{type!r} cannot be written", argument="type", hint=f"use one of {', '.join(TYPES)}")
    embedding = embedding or ("F16" if planes is None else "Q8_0")
    if embedding not in EMBEDDINGS:
        hint = f"use one of {', '.join(EMBEDDINGS)}"
        raise UsageError(f"{embedding!r} cannot be written", argument="embedding", hint=hint)
    dst = os.fspath(dst)
    check_new(dst, force, "model.gguf", (src,))
    checkpoint = interpreted(open_checkpoint(
        src, i2s_layout=i2s_layout, activation=activation, ternarise=ternarise, dense=planes is not None))
    if checkpoint.config.planes:
        raise UsageError(f"{os.fspath(src)}: is made of planes already, and runs as it is; for another file convert "
                         "the model that it was made from")

    if planes is None:
        file = NewFile(checkpoint, type, embedding)
    else:
        from edge.tools.planes import PlanesFile

        file = PlanesFile(checkpoint, planes, embedding)
    part = f"{dst}.part"
    try:
        with os.fdopen(exclusive(part, 0o666), "r+b") as out:
            try:
                n_tensors, digest = _write(out, part, file, progress, extra)
                os.replace(part, dst)
                remove(f"{part}.json")
            except BaseException as error:
                if isinstance(error, EdgeError) or not os.path.exists(f"{part}.json"):  # once more it would fail again
                    remove(part)
                    remove(f"{part}.json")
                raise
    except OSError as error:
        kept = "; free some space, and the same command goes on" * os.path.exists(f"{part}.json")
        raise EdgeError(f"{dst}: cannot be written ({error.strerror}){kept}") from None
    return Result(dst, os.path.getsize(dst), digest, n_tensors, checkpoint.notes + file.notes)


class _Journal:
    """The tensors of an unfinished file that are on the disk and took long: OUT.part.json, one line for each, behind
    one that says what is made.  A line holds for the same header and the same bytes of the source.
    """

    def __init__(self, part: str, head: bytes, file: NewFile) -> None:
        self._path = f"{part}.json"
        self._new = file
        self._about = {"program": __version__, "head": hashlib.sha256(head).hexdigest()}
        self.done: dict[str, list[Any]] = {}  # name -> CRC of the source, CRC in the file, what was measured
        with suppress(OSError, ValueError), open(self._path, "rb") as lines:  # a crash may have cut off the last
            if json.loads(next(lines, b"")) == self._about:
                for line in lines:
                    self.done.update(json.loads(line))
        self._continued = False  # True: this process has written all of the journal so far
        if not self.done:
            remove(self._path)

    def find(self, name: str, in_file: Callable[[], int]) -> int | None:
        """The CRC of a tensor that is done, which ``in_file`` confirms; None: make it."""
        if name not in self.done:
            return None
        source, crc, (error, whole) = self.done[name]
        if source != self._source(name) or crc != in_file():
            return None
        self._new.measured[name] = error, whole
        return int(crc)

    def add(self, name: str, crc: int, out: BinaryIO) -> None:
        """A tensor is written; note it if it took long."""
        if name not in self._new.measured:
            return
        out.flush()
        os.fsync(out.fileno())  # what the journal names is on the disk
        self.done[name] = [self._source(name), crc, self._new.measured[name]]
        with open(self._path, "ab" if self._continued else "wb") as file:
            for line in ({name: self.done[name]},) if self._continued else (self._about, self.done):
                file.write(json.dumps(line).encode() + b"\n")
        self._continued = True

    def _source(self, name: str) -> int:
        return zlib.crc32(self._new.checkpoint.tensors[name].data)


def _write(
    out: BinaryIO, path: str, file: NewFile, progress: Callable[[int, int, str], None],
    extra: Mapping[str, Any] | None,
) -> tuple[int, str]:
    """Write the whole file and read it back; returns the number of its tensors and its SHA-256.

    The header comes last: until then no program takes the file for a model, and some of its numbers are measured while
    the tensors are made.  What is read back is read from the disk.  That checks more, and Linux can then cache it in
    pages of 2 MiB (large folios: XFS, ext4 since Linux 6.16); what is written is cached in pages of 4 KiB.
    """
    entries = file.entries()
    head, offsets = layout(file.metadata(extra), entries)
    journal = _Journal(path, head, file)
    done, total = 0, sum(map(file.cost, entries))
    sums = []
    if not journal.done:
        out.truncate(0)

    def reported(entry: Entry) -> Iterator[Buffer]:
        written = 0
        for piece in entry.data() if callable(entry.data) else (entry.data,):
            yield piece
            written += memoryview(piece).nbytes
            progress(done + (file.cost(entry) and written), total, entry.name)

    for entry, offset in zip(entries, offsets):
        progress(done, total, entry.name)
        crc = journal.find(entry.name, partial(_stored_crc, out, offset, entry.nbytes))
        if crc is None:
            out.seek(offset)
            crc = put(out, entry._replace(data=partial(reported, entry)))
            journal.add(entry.name, crc, out)
        sums.append(crc)
        done += file.cost(entry)
    out.seek(0)
    out.write(layout(file.metadata(extra), entries)[0])
    out.truncate(offsets[-1])  # the padding between tensors is zero
    out.flush()
    os.fsync(out.fileno())
    drop_cached(out.fileno())
    progress(total, total, VERIFYING)
    digest = sha256_of(path)  # first: what is read in order comes into the cache in large pages
    for entry, offset, expected in zip(entries, offsets, sums):
        if _stored_crc(out, offset, entry.nbytes) != expected:
            raise EdgeError(f"{file.checkpoint.path}: verification of the conversion failed: tensor {entry.name} "
                            "differs after reading it back; is the disk damaged?")
    file.verify(path)
    return len(entries), digest


def _stored_crc(file: BinaryIO, offset: int, nbytes: int) -> int:
    file.seek(offset)
    crc = 0
    for at in range(0, nbytes, _BLOCK):
        crc = zlib.crc32(file.read(min(_BLOCK, nbytes - at)), crc)
    return crc
