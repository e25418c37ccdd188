"""Convert: any supported ternary model -> one GGUF file that is used directly from the memory map.

It works tensor by tensor (peak memory: about the largest matrix as int8), writes dimensions, tokenizer and chat
template, reads back what it wrote, and only then gives the file its name.  An interrupted conversion is continued
(:mod:`edge.formats.gguf_part`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from edge import __version__
from edge.errors import EdgeError, UsageError
from edge.files import check_new, sha256_of
from edge.formats import open_checkpoint
from edge.formats.checkpoint import Checkpoint
from edge.formats.gguf_part import Unfinished
from edge.formats.gguf_writer import Entry
from edge.model.interpretation import interpreted
from edge.tools.new_file import NewFile

if TYPE_CHECKING:
    from edge.tools.planes.planes_file import Planes

TYPES = ("I2_S", "TQ2_0")
VERIFYING = "verifying"  # a name in progress that no tensor has
EMBEDDINGS = ("F16", "Q8_0", "F32", "keep")

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
    progress: Callable[[int, int, str], None] | None = None,
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

    ``progress(done, total, name)`` is called before each tensor with bytes of what takes the time, and at last with
    :data:`VERIFYING` as name.
    ``force``: replace ``dst`` if it exists.  ``ternarise``: round float matrices that are not ternary by their absmean,
    for master weights that are not marked as such.  ``planes``: make sums of ternary matrices of an ordinary model
    (:mod:`edge.tools.planes`); ``type`` plays no part then.  ``extra``: further metadata, such as
    {"general.license": "mit"}.

    An interrupted conversion leaves ``dst.part`` and ``dst.part.jsonl``; the next one to ``dst`` with the same source
    and options continues it.

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
    if checkpoint.planes:
        raise UsageError(f"{os.fspath(src)}: is made of planes already, and runs as it is; for another file convert "
                         "the model that it was made from")

    if planes is None:
        file = NewFile(checkpoint, type, embedding)
    else:
        from edge.tools.planes.planes_file import PlanesFile

        file = PlanesFile(checkpoint, planes, embedding)
    entries = file.entries()
    try:
        with Unfinished(dst, file.metadata(extra), entries, _source(checkpoint)) as part:
            try:
                digest = _write(part, file, entries, progress, extra)
                part.publish()
            except EdgeError:  # to go on would end in the same way
                part.discard()
                raise
    except OSError as error:
        kept = f"; what is finished is kept in {dst}.part, convert again to go on" if error.errno in _FULL else ""
        raise EdgeError(f"{dst}: cannot be written ({error.strerror}){kept}") from None
    return Result(dst, os.path.getsize(dst), digest, len(entries), checkpoint.notes + file.notes)


def _write(
    part: Unfinished, file: NewFile, entries: Sequence[Entry], progress: Callable[[int, int, str], None] | None,
    extra: Mapping[str, Any] | None,
) -> str:
    """Write the tensors that are not there yet and check the whole file; returns its SHA-256."""
    done, total = 0, sum(map(file.work, entries))
    there = 0
    for entry in entries:
        if entry.name in part.finished and file.resume(entry.name, part.finished[entry.name]):
            there += 1
        else:
            if progress:
                progress(done, total, entry.name)
            crc = part.add(entry)
            part.note(entry.name, crc, file.about(entry.name))
        done += file.work(entry)
    if there:
        file.notes.append(f"went on with an interrupted conversion: {there} of {len(entries)} tensors were there")
    part.complete(file.metadata(extra))
    if progress:
        progress(total, total, VERIFYING)
    digest = sha256_of(part.path)  # first: what is read in order comes into the cache in large pages
    damaged = part.damaged()
    if damaged is not None:
        raise EdgeError(f"{file.checkpoint.path}: verification of the conversion failed: tensor {damaged} differs "
                        "after reading it back; is the disk damaged?")
    file.verify(part.path)
    return digest


def _source(checkpoint: Checkpoint) -> dict[str, Any]:
    """What distinguishes one source from another that would give a file of the same header, apart from the options."""
    about = (os.fstat(each.file.fileno()) for each in checkpoint.maps)
    files = sorted([each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns] for each in about)
    return {"program": __version__, "files": files,
            "options": {name: str(value) for name, value in sorted(asdict(checkpoint.reading).items())}}
