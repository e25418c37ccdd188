"""A program with a model inside: one executable file, as ``bitnet-edge pack`` writes it (:mod:`edge.tools.pack`).

It is a frozen program with more sections, which follow it in this order:

    bitnet-edge.model     a GGUF file; it begins at a multiple of 64 KiB, so that any size of pages can map it
    bitnet-edge.prompts   the KV caches of its system prompt, if it has one: files of edge/cache/kv_file.py
    bitnet-edge.about     SHA-256 and CRC-32 of the rest, then JSON: what is inside, and the command line
    bitnet-edge.archive   the end of the program's own archive, where its start-up code looks for it
    the names and the table of all sections, at the very end: of a file that was cut, they are missing

Such a file is also a model: ``-m FILE`` reads the one inside.  It is hostile until validated, as every model file.
"""

from __future__ import annotations

import functools
import os
import struct
import sys
from collections.abc import Mapping
from typing import BinaryIO, NamedTuple, NoReturn

from edge.errors import InvalidFile

ELF = b"\x7fELF"
PAGE = 1 << 16  # bytes; the largest page of the processors in question
MODEL, ABOUT, ARCHIVE = "bitnet-edge.model", "bitnet-edge.about", "bitnet-edge.archive"
PROMPTS = "bitnet-edge.prompts"
FORMAT = 2
CHECKS = struct.Struct("<32sI")  # SHA-256, which `doctor` compares, and CRC-32, for every start: hashlib takes 1 MB
MAX_ABOUT = 1 << 20  # bytes; a system prompt of a million characters fits no context
MAX_NAMES = 1 << 16
TAIL = 1 << 13  # bytes at the end of a file that hold names and table
ROW = struct.Struct("<IIQQQQIIQQ")  # of the table: name, type, flags, address, offset, size, link, info, align, entsize


class Section(NamedTuple):
    """A section of an ELF file: where its bytes are."""

    offset: int
    size: int


class Packed(NamedTuple):
    """The content of a packed program.  ``start``, ``nbytes``: where in the file its model lies."""

    path: str
    start: int
    nbytes: int
    version: str  # of the program
    model: str
    licence: str  # "" if the model does not state it
    sha256: str  # of the model
    words: tuple[str, ...]  # the command line with which it starts, if it gets none
    prompts: tuple[Section, ...] = ()  # the KV caches of system prompts
    prompts_sha256: str = ""  # of all of them

    @property
    def shown(self) -> str:
        """The words as they could be typed; long texts are cut."""
        import shlex

        plain = ("".join(each if each.isprintable() else " " for each in word) for word in self.words)
        lines = (" ".join(word.split()) for word in plain)
        return shlex.join(line if len(line) <= 60 else f"{line[:57]}..." for line in lines)

    def encode(self) -> bytes:
        """The section ABOUT."""
        import hashlib
        import json
        import zlib

        model = {"name": self.model, "licence": self.licence, "bytes": self.nbytes, "sha256": self.sha256}
        said = {"format": FORMAT, "version": self.version, "model": model, "words": self.words,
                "prompts": [each.size for each in self.prompts], "prompts_sha256": self.prompts_sha256}
        data = json.dumps(said, ensure_ascii=False).encode()
        return CHECKS.pack(hashlib.sha256(data).digest(), zlib.crc32(data)) + data


@functools.cache
def own() -> Packed | None:
    """The content of the program that runs; None if it is not a packed one.  Raises InvalidFile."""
    return read(sys.executable) if getattr(sys, "frozen", False) else None


def read(path: str) -> Packed | None:
    """The content of the file ``path``; None if it is not a packed program.  Raises InvalidFile for a damaged one."""
    try:
        with open(path, "rb") as file:
            found = sections(file, path)
            return _packed(file, path, found) if found.keys() & {MODEL, ABOUT, ARCHIVE} else None
    except OSError as error:
        raise InvalidFile(f"cannot read {path}: {error.strerror}") from None


def sections(file: BinaryIO, path: str) -> dict[str, Section]:
    """The sections of a 64-bit little-endian ELF file by name; none for another file.

    Raises InvalidFile if the file was cut, or if its table is damaged.
    """
    size = os.fstat(file.fileno()).st_size
    head = os.pread(file.fileno(), 64, 0)
    if len(head) < 64 or head[:6] != ELF + b"\x02\x01":
        return {}
    table = struct.unpack_from("<Q", head, 40)[0]
    row, count, index = struct.unpack_from("<HHH", head, 58)
    if count and table + count * ROW.size > size:
        raise InvalidFile(f"{path}: the file was cut: it has {size} of {table + count * ROW.size} bytes; copy it again")
    found: dict[str, Section] = {}
    if count:
        if row != ROW.size or index >= count:
            damaged(path, "the table of its sections")
        rows = list(ROW.iter_unpack(os.pread(file.fileno(), count * ROW.size, table)))
        _, kind, _, _, start, length, *_ = rows[index]
        if kind != 3 or not 0 < length <= MAX_NAMES or start + length > size:
            damaged(path, "the names of its sections")
        names = os.pread(file.fileno(), length, start)
        for name, _, _, _, offset, nbytes, *_ in rows:
            text = names[name:].partition(b"\0")[0].decode("latin-1")
            if text in found and text in (MODEL, PROMPTS, ABOUT, ARCHIVE):
                damaged(path, "the table of its sections")
            found[text] = Section(offset, nbytes)
    if not found.keys() & {MODEL, ABOUT, ARCHIVE}:  # none, or it cannot be found any more
        end = os.pread(file.fileno(), TAIL, max(0, size - TAIL))
        if any(f"{name}\0".encode() in end for name in (MODEL, ABOUT, ARCHIVE)):
            damaged(path, "the table of its sections")
    return found


def _packed(file: BinaryIO, path: str, found: Mapping[str, Section]) -> Packed:
    """The content of the sections, validated."""
    size = os.fstat(file.fileno()).st_size
    if not found.keys() >= {MODEL, ABOUT, ARCHIVE}:
        damaged(path, "the table of its sections")
    model, about, archive = found[MODEL], found[ABOUT], found[ARCHIVE]
    apart = model.offset + model.size <= about.offset and about.offset + about.size <= archive.offset
    if not apart or archive.offset + archive.size > size or model.offset % PAGE or not model.offset or not model.size:
        damaged(path, "the table of its sections")
    if not CHECKS.size < about.size <= MAX_ABOUT:
        damaged(path, "the description of what is inside")
    data = os.pread(file.fileno(), about.size, about.offset)
    import json
    import zlib

    if zlib.crc32(data[CHECKS.size :]) != CHECKS.unpack_from(data)[1]:
        damaged(path, "the description of what is inside")
    try:
        said = json.loads(data[CHECKS.size :])
        if said["format"] != FORMAT:
            raise InvalidFile(f"{path}: packed by another version of bitnet-edge; use the program inside: run {path}")
        stated = said["model"]
        packed = Packed(path, model.offset, model.size, said["version"], stated["name"], stated["licence"],
                        stated["sha256"], tuple(said["words"]),
                        _prompts(found.get(PROMPTS), said.get("prompts", [])), said.get("prompts_sha256", ""))
    except (ValueError, LookupError, TypeError, RecursionError):
        damaged(path, "the description of what is inside")
    texts = (packed.version, packed.model, packed.licence, packed.sha256, packed.prompts_sha256)
    if not all(isinstance(text, str) and text.isprintable() for text in texts) or not all(
        isinstance(word, str) for word in packed.words
    ) or not packed.words:
        damaged(path, "the description of what is inside")
    if stated["bytes"] != model.size or packed.prompts and not (
        model.offset + model.size <= packed.prompts[0].offset and sum(packed.prompts[-1]) <= about.offset
    ):
        damaged(path, "the table of its sections")
    return packed


def _prompts(section: Section | None, sizes: list[int]) -> tuple[Section, ...]:
    """Where each of the KV caches lies.  Raises ValueError or TypeError if the sizes are not those of the section."""
    if any(type(size) is not int or size <= 0 for size in sizes) or sum(sizes) != (section.size if section else 0):
        raise ValueError
    starts = [section.offset + sum(sizes[:i]) for i in range(len(sizes))] if section else []
    return tuple(map(Section, starts, sizes))


def damaged(path: str, what: str) -> NoReturn:
    """Raise InvalidFile."""
    raise InvalidFile(f"{path}: {what} is damaged; copy the file again, or pack it again")
