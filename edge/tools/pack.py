"""pack: puts a model and a command line into a copy of the frozen program: one file to copy to a board.

No compiler or linker is needed: the result is the program, byte for byte but for the place of its section table, and
then the sections of :mod:`edge.packed`.  The program's start-up code (PyInstaller's) looks for the end of its
archive, a *cookie*, from the end of the file backwards, and the cookie says how long the archive is.  So a second
cookie at the end, which says that the archive reaches back over the model, lets the program start without a search
through the model.  Its length has 32 bits: after a larger model the archive itself is repeated.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO

import edge
from edge.errors import EdgeError, InvalidFile, UsageError
from edge.files import check_new, replacing
from edge.formats import open_checkpoint
from edge.packed import ABOUT, ARCHIVE, CHECKS, MAX_ABOUT, MODEL, PAGE, PROMPTS, ROW, Packed, Section, read, sections

MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of the ELF header
MAX_PROGRAM = 256 << 20
COOKIE = struct.Struct(">8sIIII64s")  # magic, length of archive, offset and length of its table, Python, its library
MAGIC = b"MEI\014\013\012\013\016"
ENTRY = struct.Struct(">IIIIBc")  # length of this entry, offset, stored length, length, compressed, type; then its name
VERSION = b"bitnet-edge.version"
PIECE = 1 << 20
ZEROS = bytes(PIECE)


@dataclass(frozen=True)
class Program:
    """A frozen one-file program.  ``archive``: where its archive lies; ``cookie``: the end of that."""

    path: str
    data: bytes
    machine: str
    archive: Section
    cookie: tuple[Any, ...]

    @classmethod
    def open(cls, path: str) -> Program:
        """Read and check the program.  Raises UsageError if it is none that can be packed, InvalidFile."""
        other = f"{path}: is not the one-file program of bitnet-edge {edge.__version__}; make freeze makes it"
        if not os.path.isfile(path):
            raise UsageError(f"{path}: no such program")
        if read(path) is not None:
            raise UsageError(f"{path}: has a model inside already; pack from the program without one")
        try:
            with open(path, "rb") as file:
                found = sections(file, path)
                data = file.read(MAX_PROGRAM + 1)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        archive = found.get("pydata")
        if archive is None or len(data) > MAX_PROGRAM:
            raise UsageError(other)
        end = archive.offset + archive.size
        if not COOKIE.size <= archive.size <= end <= len(data):
            raise InvalidFile(f"{path}: the program is damaged")
        magic, length, *cookie = COOKIE.unpack_from(data, end - COOKIE.size)
        if magic != MAGIC or length > end or _read_version(data[end - length : end], *cookie[:2]) != edge.__version__:
            raise UsageError(other)
        machine = MACHINES.get(struct.unpack_from("<H", data, 18)[0])
        if machine is None:
            raise UsageError(f"{path}: is for an unknown processor; {' and '.join(MACHINES.values())} are known")
        return cls(path, data, machine, Section(end - length, length), tuple(cookie))

    def ending(self, end: int) -> bytes:
        """The section ARCHIVE for a file in which it begins at byte ``end``."""
        reach = end + COOKIE.size - self.archive.offset
        if reach < 1 << 32:
            return COOKIE.pack(MAGIC, reach, *self.cookie)
        return self.data[self.archive.offset : self.archive.offset + self.archive.size]


def _read_version(archive: bytes, offset: int, length: int) -> str | None:
    """The version that the archive of a program states; None if it states none."""
    import zlib

    at, end = offset, min(offset + length, len(archive))
    while at + ENTRY.size < end:
        size, start, stored, _, compressed, _ = ENTRY.unpack_from(archive, at)
        if archive[at + ENTRY.size : at + size].rstrip(b"\0") == VERSION:
            data = archive[start : start + min(stored, 1000)]
            try:
                return (zlib.decompressobj().decompress(data, 1000) if compressed else data).decode()
            except (zlib.error, UnicodeDecodeError):
                return None
        at += max(size, ENTRY.size)
    return None


@dataclass(frozen=True)
class Result:
    """The file that was written.  ``inside``: what is in it."""

    path: str
    nbytes: int
    machine: str
    inside: Packed


def pack(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    program: str | os.PathLike[str] | None = None,
    machine: str | None = None,
    words: Sequence[str] = ("chat",),
    licence: str = "",
    prompts: Sequence[str | os.PathLike[str]] = (),
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **reading: Any,
) -> Result:
    """Write the frozen ``program`` (None: the one that runs) with the GGUF file ``model`` inside to ``out``.

    ``machine``: what the program must be for ("x86_64", "aarch64"; None: any).  ``words``: the command line with
    which it starts.  ``licence``: if the file does not state its own.  ``prompts``: files of :func:`read_prompt`.
    ``force``: replace ``out`` if it exists.  ``progress(done, total)`` is called with bytes.  ``reading``: options of
    :func:`edge.formats.open_checkpoint`.

    ``out`` appears under its name when it is complete.  Raises ModelNotFound, InvalidFile, UsageError, or EdgeError if
    the file cannot be written.
    """
    out, source = os.fspath(out), program_path(program, machine)
    check_new(out, force, "guide", (model, source))
    base = Program.open(source)
    if machine not in (None, base.machine):
        raise UsageError(f"{source}: is for {base.machine}, not for {machine}; --program names one for {machine}")
    checkpoint = open_checkpoint(model, **reading)
    if checkpoint.format != "gguf" or len(checkpoint.maps) != 1:
        raise UsageError(f"{checkpoint.path}: is not a GGUF file; make one with: bitnet-edge convert IN OUT.gguf")
    data = memoryview(checkpoint.maps[0])
    stated = checkpoint.metadata.get("general.license")
    inside = Packed(
        out, -(-len(base.data) // PAGE) * PAGE, len(data), edge.__version__, _one_line(checkpoint.config.name),
        _one_line(stated if isinstance(stated, str) else licence), "", tuple(words),
    )
    if len(inside.encode()) > MAX_ABOUT - 100:  # the digest of the model comes later
        raise UsageError(f"the arguments are longer than {MAX_ABOUT >> 10} KiB; shorten the system prompt")
    try:
        with replacing(out, 0o777) as file:
            file.write(base.data)
            file.seek(inside.start)
            digest = hashlib.sha256()
            for piece in pieces(data, progress):
                digest.update(piece)
                if piece == ZEROS[: len(piece)]:  # a hole stays a hole
                    file.seek(len(piece), os.SEEK_CUR)
                else:
                    file.write(piece)
            places = {MODEL: Section(inside.start, inside.nbytes)}
            file.seek(inside.start + inside.nbytes)
            caches = [Path(each).read_bytes() for each in prompts]
            kept = tuple(_append(file, cache) for cache in caches)
            checked = hashlib.sha256(b"".join(caches)).hexdigest() if kept else ""
            if kept:
                places[PROMPTS] = Section(kept[0].offset, sum(each.size for each in kept))
            inside = inside._replace(sha256=digest.hexdigest(), prompts=kept, prompts_sha256=checked)
            places[ABOUT] = _append(file, inside.encode())
            places[ARCHIVE] = _append(file, base.ending(file.tell()))
            names, rows = _make_table(base.data, places, file.tell())
            _append(file, names)
            table = _append(file, rows)
            nbytes = file.tell()
            file.seek(40)
            file.write(struct.pack("<Q", table.offset))
            file.seek(60)
            file.write(struct.pack("<H", len(rows) // ROW.size))
    except OSError as error:
        raise EdgeError(f"cannot write {out}: {error.strerror}") from None
    return Result(out, nbytes, base.machine, inside)


def _append(file: BinaryIO, data: bytes) -> Section:
    """Write data where the file is; returns its place."""
    at = file.tell()
    return Section(at, file.write(data))


def _make_table(base: bytes, places: Mapping[str, Section], at: int) -> tuple[bytes, bytes]:
    """Names and table of the sections of ``base`` and of those at ``places``, to be written at byte ``at`` of the file.
    """
    start = struct.unpack_from("<Q", base, 40)[0]
    count, index = struct.unpack_from("<HH", base, 60)
    rows = [list(row) for row in ROW.iter_unpack(base[start : start + count * ROW.size])]
    names = base[rows[index][4] : rows[index][4] + rows[index][5]]
    for name, place in places.items():
        align = PAGE if name == MODEL else 1
        rows.append([len(names), 1, 0, 0, place.offset, place.size, 0, 0, align, 0])
        names += name.encode() + b"\0"
    rows[index][4:6] = at, len(names)
    names += bytes(-(at + len(names)) % 8)
    return names, b"".join(ROW.pack(*row) for row in rows)


def pieces(data: memoryview, progress: Callable[[int, int], None] | None) -> Iterator[bytes]:
    """The bytes of the model in pieces, with progress after each."""
    for at in range(0, len(data), PIECE):
        yield bytes(data[at : at + PIECE])
        if progress:
            progress(min(at + PIECE, len(data)), len(data))


def program_path(program: str | os.PathLike[str] | None, machine: str | None) -> str:
    """The path of the program to pack: the one that is named, the one that runs, or that of a copy of the source."""
    if program is not None:
        return os.fspath(program)
    here = machine in (None, os.uname().machine)
    if here and getattr(sys, "frozen", False):
        return sys.executable
    source = os.path.dirname(os.path.dirname(os.path.abspath(edge.__file__)))
    made = os.path.join(source, "dist", "bitnet-edge" if here else f"bitnet-edge-{machine}")
    if os.path.isfile(made):
        return made
    if os.path.isfile(os.path.join(source, "packaging", "freeze.sh")) and (here or machine == "aarch64"):
        target, takes = ("freeze", "a minute") if here else ("freeze-aarch64", "half an hour, as root")
        raise UsageError(f"the model is put into the one-file program, which is not made yet: make -C {quote(source)} "
                         f"{target} makes it (about {takes}); then give the same command again")
    kind = "" if here else f" for {machine}"
    raise UsageError(f"the model is put into the one-file program{kind}, which is not here; name it with --program "
                     "FILE (docs/one-file.md says where it comes from)")


def read_prompt(
    model: str | os.PathLike[str], system: str, path: str | os.PathLike[str], **loading: Any
) -> None:
    """Write what the packed program reads of its system prompt, so that no board has to.  ``loading``: options of
    :func:`edge.load`, which must be those of the board.  Raises whatever loading and reading raise.
    """
    from edge.cache import kv_file

    with edge.load(model, system=system, cache=False, **loading) as engine, engine.session() as session:
        session.warm()
        kv_file.write(engine.space, path, session.state.tokens, session.state.kv)


def verify(inside: Packed) -> bool:
    """True if all of a packed program is as it was packed, by SHA-256; reads all of it."""
    digest, prompts = hashlib.sha256(), hashlib.sha256()
    with open(inside.path, "rb") as file:
        about = sections(file, inside.path)[ABOUT]
        file.seek(about.offset)
        data = file.read(about.size)
        file.seek(inside.start)
        left = inside.nbytes
        while left and (piece := file.read(min(left, PIECE))):
            digest.update(piece)
            left -= len(piece)
        for each in inside.prompts:
            file.seek(each.offset)
            prompts.update(file.read(each.size))
    same = not inside.prompts or prompts.hexdigest() == inside.prompts_sha256
    same &= hashlib.sha256(data[CHECKS.size :]).digest() == CHECKS.unpack_from(data)[0]
    return same and digest.hexdigest() == inside.sha256


def _one_line(text: str, most: int = 100) -> str:
    """Text from an untrusted file in one printable line."""
    line = "".join(each if each.isprintable() else " " for each in text).strip()
    return line if len(line) <= most else line[: most - 3] + "..."
