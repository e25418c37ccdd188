"""Where the programs can run: symbol versions of the GNU C library, needed libraries, page sizes.

Stated floors, measured on Debian 12 with gcc 12: our own extensions 2.17 (any system since 2014); the frozen programs
2.35 (Ubuntu 22.04, Jetson), which is the interpreter's.  Debian 12's libstdc++ asks for 2.36, so it stays outside.
A program that is frozen on a newer system needs that system's C library; those that are given away come from Debian 12.
"""

from __future__ import annotations

import platform
import tarfile
from pathlib import Path

import pytest

from tests import elf
from tests.packaging.test_freeze import DIST, MACHINE, spec

ROOT = Path(__file__).resolve().parents[2]
OWN, WHOLE, DEBIAN_12 = (2, 17), (2, 35), (2, 36)
PAGE = 16384  # of a Raspberry Pi 5's kernel

#: the C library's own files: on every system, and not to be bundled, since they belong to its kernel interface; then
#: what the spec leaves to the system
SYSTEM = {*spec("SYSTEM"), "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
          "libutil.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def host() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.libc_ver()[1].split("."))


def promised(machine: str) -> tuple[int, ...]:
    """The newest C library that a program for ``machine`` in dist/ may need."""
    return host() if machine == MACHINE and host() > DEBIAN_12 else WHOLE


def stated(files: list[elf.Elf], floor: tuple[int, ...]) -> None:
    newer = {file.path.name: ".".join(map(str, file.glibc())) for file in files if file.glibc() > floor}
    assert not newer, f"need a newer glibc than {'.'.join(map(str, floor))}: {newer}"


def test_own_extensions() -> None:
    files = elf.folder(ROOT / "pyx")
    if not files:
        pytest.skip("the extensions are not built")
    stated(files, OWN)
    for file in files:
        assert set(file.needed) <= SYSTEM | {"libgomp.so.1", "libomp.so.5"}, f"{file.path.name} needs {file.needed}"


@pytest.fixture(params=[pytest.param("this machine", marks=pytest.mark.freeze), "aarch64"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> list[elf.Elf]:
    """Everything in a one-folder program."""
    if request.param == "this machine":
        return elf.folder(request.getfixturevalue("frozen")["folder"].parent)
    archive = DIST / "bitnet-edge-aarch64.tar.gz"
    if MACHINE == "aarch64" or not archive.exists():
        pytest.skip("no dist/bitnet-edge-aarch64.tar.gz; make freeze-aarch64 makes it on an x86-64 machine")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path)
    return elf.folder(tmp_path)


def test_whole_program(folder: list[elf.Elf]) -> None:
    stated(folder, promised(folder[0].machine))
    stated([file for file in folder if "pyx" in file.path.parts], OWN)


def test_everything_needed_is_inside(folder: list[elf.Elf]) -> None:
    inside = {file.path.name for file in folder}
    for file in folder:
        outside = set(file.needed) - inside - SYSTEM
        assert not outside, f"{file.path.name} needs {sorted(outside)}, which a bare system may lack"


def test_one_architecture(folder: list[elf.Elf]) -> None:
    assert len({file.machine for file in folder}) == 1


def test_pages(folder: list[elf.Elf]) -> None:
    """Stripping keeps segments where the loader can map them; aarch64 files also fit pages of 16 KiB."""
    for file in folder:
        for alignment, difference in file.segments:
            assert difference == 0, f"{file.path.name}: a segment's place in file and memory differ by {difference}"
            if file.machine == "aarch64":
                assert alignment >= PAGE, f"{file.path.name}: aligned to {alignment}, not to {PAGE}"
