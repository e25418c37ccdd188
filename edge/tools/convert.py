"""Convert: any supported ternary model -> one GGUF file that is used directly from the memory map.

It works tensor by tensor (peak memory: about the largest matrix as int8), writes dimensions, tokenizer and chat
template, reads back what it wrote, and only then gives the file its name.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from edge.errors import EdgeError, UsageError
from edge.files import check_new, exclusive, remove, sha256_of
from edge.formats import open_checkpoint
from edge.formats.container import layout, put
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

    ``progress(done, total, name)`` is called before each tensor with bytes of what takes the time, and at last with
    :data:`VERIFYING` as name.
    ``force``: replace ``dst`` if it exists.  ``ternarise``: round float matrices that are not ternary by their absmean,
    for master weights that are not marked as such.  ``planes``: make sums of ternary matrices of an ordinary model
    (:mod:`edge.tools.planes`); ``type`` plays no part then.  ``extra``: further metadata, such as
    {"general.license": "mit"}.

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
            except BaseException:
                remove(part)
                raise
    except OSError as error:
        raise EdgeError(f"{dst}: cannot be written ({error.strerror})") from None
    return Result(dst, os.path.getsize(dst), digest, n_tensors, checkpoint.notes + file.notes)


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
    _, offsets = layout(file.metadata(extra), entries)
    done, total = 0, sum(entry.nbytes for entry in entries)
    sums = []
    out.truncate(0)
    for entry, offset in zip(entries, offsets):
        progress(done, total, entry.name)
        out.seek(offset)
        sums.append(put(out, entry))
        done += entry.nbytes
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
