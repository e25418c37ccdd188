"""The few fields of an ELF file that say where it runs: needed libraries and symbol versions, alignment; and small
files made by hand, in place of a frozen program.

A reader of our own: readelf prints for people, and differs in its ways of shortening names.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import edge

PT_LOAD, SHT_DYNAMIC, SHT_VERNEED = 1, 6, 0x6FFFFFFE
DT_NEEDED, DT_RPATH, DT_RUNPATH = 1, 15, 29
MACHINES = {62: "x86_64", 183: "aarch64"}


@dataclass
class Elf:
    """One program or shared object."""

    path: Path
    machine: str
    needed: list[str] = field(default_factory=list)
    #: folders in which the loader looks for them
    folders: list[str] = field(default_factory=list)
    #: library -> version names of its symbols that this file asks for
    versions: dict[str, list[str]] = field(default_factory=dict)
    #: of each loaded segment: its alignment, and how far file offset and address agree modulo the alignment (0: do)
    segments: list[tuple[int, int]] = field(default_factory=list)

    def glibc(self) -> tuple[int, ...]:
        """The newest version of the GNU C library it asks for; (0,) when none."""
        names = [name for names in self.versions.values() for name in names if name.startswith("GLIBC_")]
        return max((tuple(map(int, name[6:].split("."))) for name in names if name[6:7].isdigit()), default=(0,))


def read(path: Path) -> Elf | None:
    """None for a file that is not 64-bit little-endian ELF.  Source: System V ABI, chapters 4 and 5."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    machine = struct.unpack_from("<H", data, 18)[0]
    elf = Elf(path, MACHINES.get(machine, str(machine)))
    at_program, at_section = struct.unpack_from("<QQ", data, 32)
    size_program, n_program, size_section, n_section = struct.unpack_from("<4H", data, 54)
    for i in range(n_program):
        segment = struct.unpack_from("<IIQQQQQQ", data, at_program + i * size_program)
        kind, _, offset, address, _, _, _, alignment = segment
        if kind == PT_LOAD:
            elf.segments.append((alignment, (offset - address) % max(alignment, 1)))
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at_section + i * size_section) for i in range(n_section)]

    def text(strings: int, offset: int) -> str:
        begin = sections[strings][4] + offset
        return data[begin : data.index(b"\0", begin)].decode()

    for _, kind, _, _, offset, size, link, info, _, _ in sections:
        if kind == SHT_DYNAMIC:
            for at in range(offset, offset + size, 16):
                tag, value = struct.unpack_from("<qQ", data, at)
                if tag == DT_NEEDED:
                    elf.needed.append(text(link, value))
                elif tag in (DT_RPATH, DT_RUNPATH):
                    elf.folders += text(link, value).split(":")
        elif kind == SHT_VERNEED:
            at = offset
            for _ in range(info):
                _, count, file, first, following = struct.unpack_from("<HHIII", data, at)
                names = elf.versions.setdefault(text(link, file), [])
                one = at + first
                for _ in range(count):
                    _, _, _, name, after = struct.unpack_from("<IHHII", data, one)
                    names.append(text(link, name))
                    one += after
                at += following
    return elf


def folder(path: Path) -> list[Elf]:
    """Every ELF file below a folder, by each of its names."""
    return [elf for file in sorted(path.rglob("*")) if file.is_file() and (elf := read(file))]


# ---- files made by hand ----------------------------------------------------------------------------------------------


def made(sections: dict[str, bytes], machine: int = 62) -> bytes:
    """A 64-bit ELF file of these sections: header, bytes, names, table."""
    names, rows, data = b"\0", [(0,) * 10], bytes(64)
    for name, content in {**sections, ".shstrtab": b""}.items():
        at = len(names)
        names += name.encode() + b"\0"
        content = content if name in sections else names
        rows.append((at, 1 if name in sections else 3, 0, 0, len(data), len(content), 0, 0, 1, 0))
        data += content
    data += bytes(-len(data) % 8)
    head = struct.pack("<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, 2, machine, 1, 0, 0, len(data), 0, 64, 56, 0,
                       64, len(rows), len(rows) - 1)
    return head + data[64:] + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows)


def archive(version: str = edge.__version__, name: bytes = b"bitnet-edge.version") -> bytes:
    """An archive as PyInstaller makes one: data, table, cookie."""
    data = version.encode()
    entry = struct.pack(">IIIIBc", 18 + 32, 0, len(data), len(data), 0, b"x") + name.ljust(32, b"\0")
    length = len(data) + len(entry) + 88
    cookie = struct.pack(">8sIIII64s", b"MEI\014\013\012\013\016", length, len(data), len(entry), 311, b"libpython")
    return data + entry + cookie
