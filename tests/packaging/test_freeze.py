"""The frozen program: made once (packaging/freeze.sh does nothing when nothing changed), then run and looked into.

What a board must survive is in packaging/smoke.sh, which also takes binaries for other processors; here it is run on
the two programs for this machine, and what a shell cannot see well is tested in Python.  What the program must be able
to do is in packaging/check.py: `make check` runs it on these two, and here it tells which modules must be inside.
"""

from __future__ import annotations

import ast
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests import elf
from tests.http_service import serving
from tests.serve.test_deleted import asked_for_everything
from tests.services import ROOT, on_a_terminal
from tests.terminal import CTRL_C, CTRL_D, Terminal

PACKAGING = ROOT / "packaging"
DIST = ROOT / "dist"
MACHINE = platform.machine()

#: bytes of the one-file program: 17.0 MB with Python 3.11; with the 3.13 of Debian 13 about 1.2 MB more
LIMIT = 17_300_000 if sys.version_info < (3, 12) else 18_700_000


def golden() -> tuple[str, str, str]:
    """(model, prompt, answer)."""
    model, prompt, answer = (PACKAGING / "golden.txt").read_text().split("\n", 2)
    return model, prompt, answer


def golden_run(*program: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    model, prompt, _ = golden()
    return subprocess.run(
        [*map(str, program), "run", "-m", model, "--temp", "0", "--set", "ignore_eos=on", "-n", "48", prompt],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, env={**os.environ, **environment},
    )


def spec(name: str) -> dict[str, str]:
    """A dictionary of names and reasons in the spec."""
    for node in ast.parse((PACKAGING / "bitnet-edge.spec").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return dict(ast.literal_eval(node.value))
    raise AssertionError(f"{name} is not in the spec")


# ---- frozen ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_smoke(frozen: dict[str, Path], kind: str) -> None:
    done = subprocess.run(
        [str(PACKAGING / "smoke.sh"), str(frozen[kind])], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    print(done.stdout)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "          "))]
    assert done.returncode == 0, "\n".join(failed) or done.stderr


def test_no_library_is_looked_for_in_the_builders_folders(frozen: dict[str, Path]) -> None:
    files = elf.folder(frozen["folder"].parent)
    ours = {path.stem for path in (PACKAGING.parent / "pyx").glob("*.pyx")}
    assert ours <= {file.path.name.partition(".")[0] for file in files}  # how many others there are is the system's
    assert {folder for file in files for folder in file.folders if not folder.startswith("$ORIGIN")} == set()


def test_size(frozen: dict[str, Path]) -> None:
    assert frozen["file"].stat().st_size <= LIMIT


# ---- what is inside --------------------------------------------------------------------------------------------------


def looked_into(program: Path) -> tuple[set[str], set[str]]:
    """(files, Python modules) of a one-file program."""
    from PyInstaller.archive.readers import CArchiveReader

    archive = CArchiveReader(str(program))
    return set(archive.toc), set(archive.open_embedded_archive("PYZ.pyz").toc)


def all_modules(program: Path) -> set[str]:
    """Everything that can be imported in a one-file program: modules in Python, of the start-up library, compiled
    ones, and those that are a part of the interpreter."""
    from PyInstaller.archive.readers import CArchiveReader

    archive = CArchiveReader(str(program))
    files, found = looked_into(program)
    with zipfile.ZipFile(io.BytesIO(archive.extract("base_library.zip"))) as library:
        found |= {name.rpartition(".")[0].replace("/", ".").removesuffix(".__init__") for name in library.namelist()}
    for file in files:
        if "." not in file:  # a module that the start-up code needs itself
            found.add(file)
        elif ".so" in file:
            parts = file.split("lib-dynload/")[-1].split("/")
            found.add(".".join([*parts[:-1], parts[-1].partition(".")[0]]))
    interpreter = archive.extract(next(file for file in files if file.startswith("libpython3")))
    found |= {name.decode() for name in re.findall(rb"(?<=\0PyInit_)\w+", interpreter)}
    return found | set(sys.builtin_module_names)


@pytest.fixture(scope="module")
def imported(bundled_model: Path, once: Any) -> set[str]:
    """The modules that the program imports here, unfrozen, while it does all that packaging/check.py asks of it."""

    def record(folder: Path) -> None:
        done = subprocess.run(["make", "build/answers.json"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout

    once("modules", record)
    return set((ROOT / "build" / "modules.txt").read_text().split())


@pytest.mark.freeze
@pytest.mark.parametrize("machine", ["this machine", "aarch64"])
def test_every_module_that_a_command_imports_is_inside(
    machine: str, imported: set[str], request: pytest.FixtureRequest
) -> None:
    """And every module of ours; but for those that the spec leaves out on purpose: check.py passes without them."""
    ours = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
            for path in (*(ROOT / "edge").rglob("*.py"), *(ROOT / "pyx").glob("*.pyx"))}
    if machine == "this machine":
        program = request.getfixturevalue("frozen")["file"]
    else:
        program = DIST / "bitnet-edge-aarch64"
        if MACHINE == "aarch64" or not program.exists():
            pytest.skip("no dist/bitnet-edge-aarch64; make freeze-aarch64 makes it on an x86-64 machine")
        if any(path.stat().st_mtime > program.stat().st_mtime for path in ours.values()):
            pytest.skip("dist/bitnet-edge-aarch64 is older than the sources; make freeze-aarch64 makes it again")
    start = [sys.executable, "-c", "import sys; print(*sys.modules)"]  # with whatever .pth files import here
    always = set(subprocess.run(start, capture_output=True, text=True, check=True).stdout.split())
    wanted = {name for name in imported if name not in always or name.split(".")[0] in sys.stdlib_module_names}
    left_out = tuple(spec("EXCLUDED"))
    # a frozen program begins with another main module, and without site
    inside = all_modules(program) | {"edge.__main__", "site", "_sitebuiltins"}
    inside |= {"_frozen_importlib", "_frozen_importlib_external"}  # the interpreter's own
    missing = {name for name in (wanted | set(ours)) - inside
               if not any(name == each or name.startswith(f"{each}.") for each in left_out)}
    assert len(wanted) > 300 and not missing, sorted(missing)


def test_encodings_of_locales_are_inside(frozen: dict[str, Path]) -> None:
    """Python asks for that of the terminal before it runs a line of ours; and for that of names in zip files."""
    names = ["ascii", "latin_1", "utf_8", "utf_16", "utf_32", "idna", "cp437", "cp1251", "cp1252", "cp1255", "tis_620",
             "koi8_r", "koi8_t", "koi8_u", "kz1048", "ptcp154", *(f"iso8859_{n}" for n in range(1, 17) if n != 12)]
    assert {f"encodings.{name}" for name in names} <= all_modules(frozen["file"])


def test_licences_are_inside(frozen: dict[str, Path]) -> None:
    files, modules = looked_into(frozen["file"])
    text = (frozen["folder"].parent / "_internal" / "LICENSES.txt").read_text()
    owners = metadata.packages_distributions()
    top = {module.split(".")[0] for module in modules} | {file.split("/")[0] for file in files}
    for package in {name for module in top for name in owners.get(module, ())}:
        assert f"\n{package}" in text, f"no licence of {package}"
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in text.upper()


# ---- where it runs: symbol versions of the GNU C library, needed libraries, page sizes -------------------------------

# Stated floors, measured on Debian 12 with gcc 12: our own extensions 2.17 (any system since 2014); the frozen programs
# 2.35 (Ubuntu 22.04, Jetson), which is the interpreter's.  Debian 12's libstdc++ asks for 2.36, so it stays outside.
# A program frozen on a newer system needs its C library; those that are given away come from Debian 12.
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
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> list[elf.Elf]:
    """All ELF files of a one-folder program."""
    if request.param == "this machine":
        return elf.folder(request.getfixturevalue("frozen")["folder"].parent)
    archive = DIST / "bitnet-edge-aarch64.tar.gz"
    if MACHINE == "aarch64" or not archive.exists():
        pytest.skip("no dist/bitnet-edge-aarch64.tar.gz; make freeze-aarch64 makes it on an x86-64 machine")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path)
    return elf.folder(tmp_path)


def test_whole_program(whole: list[elf.Elf]) -> None:
    stated(whole, promised(whole[0].machine))
    stated([file for file in whole if "pyx" in file.path.parts], OWN)


def test_everything_needed_is_inside(whole: list[elf.Elf]) -> None:
    inside = {file.path.name for file in whole}
    for file in whole:
        outside = set(file.needed) - inside - SYSTEM
        assert not outside, f"{file.path.name} needs {sorted(outside)}, which a bare system may lack"


def test_one_architecture(whole: list[elf.Elf]) -> None:
    assert len({file.machine for file in whole}) == 1


def test_pages(whole: list[elf.Elf]) -> None:
    """Stripping keeps segments where the loader can map them; aarch64 files also fit pages of 16 KiB."""
    for file in whole:
        for alignment, difference in file.segments:
            assert difference == 0, f"{file.path.name}: a segment's place in file and memory differ by {difference}"
            if file.machine == "aarch64":
                assert alignment >= PAGE, f"{file.path.name}: aligned to {alignment}, not to {PAGE}"


# ---- on a terminal; one-file programs get its signals twice ----------------------------------------------------------


@pytest.fixture(params=["file", "folder"])
def chat(request: Any, frozen: dict[str, Path], tmp_path: Path) -> Any:
    """with chat() as terminal: an endless answer to every message"""

    def run(**extra: str) -> Terminal:
        endless = ["chat", "--temp", "0", "--set", "ignore_eos=on", "-n", "100000", "--set", "history=off"]
        return Terminal([str(frozen[request.param]), *endless], on_a_terminal(tmp_path, **extra))

    return run


def test_line_editor_is_inside(chat: Any) -> None:
    with chat() as terminal:
        terminal.taken_over()
        terminal.type("/hel\t")
        terminal.expect(r"\x1b\[\?2004h.*/hel.*?p")  # not that of the first lines; it may be drawn in two steps
        terminal.line("")
        terminal.expect(r"/regen .*Ctrl-D\s+quits")


def stopped(terminal: Terminal) -> None:
    """Wait until a Ctrl-C has stopped the answer, and until the next one is not taken for its copy."""
    terminal.taken_over()
    time.sleep(0.6)  # two that the program sees within half a second are one


def test_ctrl_c_at_any_moment_after_enter_ends_the_answer_and_not_the_chat(chat: Any) -> None:
    with chat() as terminal:
        terminal.taken_over()
        for delay in (0, 0.001, 0.002, 0.004, 0.008, 0.3):
            terminal.line("tell me a joke")
            terminal.handed_over()
            time.sleep(delay)
            terminal.type(CTRL_C)
            stopped(terminal)
        terminal.type(CTRL_D)
        assert terminal.wait() == 0 and "Ctrl-C again" not in terminal.screen


def test_one_ctrl_c_at_a_plain_prompt_does_not_leave(chat: Any) -> None:
    with chat(TERM="dumb") as terminal:
        terminal.expect("> ")
        terminal.reads()  # a signal between Python's prompt and its read() waits for the next key
        terminal.type(CTRL_C)
        terminal.expect("Ctrl-C again.*> ")
        time.sleep(0.6)
        terminal.type(CTRL_C)
        assert terminal.wait() == 130


# ---- deleted ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_service_whose_program_is_deleted(frozen: dict[str, Path], kind: str, tmp_path: Path) -> None:
    """With what it unpacked for itself, as a cleaner of temporary folders does."""
    unpacked, copy = tmp_path / "tmp", tmp_path / "copy"
    unpacked.mkdir()
    if kind == "file":
        copy.mkdir()
        shutil.copy(frozen["file"], copy)
    else:
        shutil.copytree(frozen["folder"].parent, copy)
    options = ("-m", "demo", "--ctx", "512", "--set", "metrics=on")
    with serving(*options, command=[str(copy / "bitnet-edge")], TMPDIR=str(unpacked)) as server:
        assert any(unpacked.iterdir()) == (kind == "file")
        shutil.rmtree(copy)
        shutil.rmtree(unpacked)
        asked_for_everything(server)


# ---- a processor without AVX2, seen through the emulator -------------------------------------------------------------


def test_no_avx2(frozen: dict[str, Path], tmp_path: Path) -> None:
    if MACHINE != "x86_64" or shutil.which("qemu-x86_64-static") is None or os.getuid() != 0:
        pytest.skip("needs x86-64, qemu-user-static and root")
    program = tmp_path / "bitnet-edge.qemu-x86_64"
    shutil.copy(frozen["file"], program)
    command = [sys.executable, str(PACKAGING / "emulated.py"), str(program)]
    trial = subprocess.run([*command[:2], "true"], capture_output=True, text=True)
    if trial.returncode != 0:
        pytest.skip(f"no emulation here: {trial.stderr.strip()}")
    done = golden_run(*command, QEMU_CPU="Nehalem")
    assert (done.returncode, done.stdout) == (0, golden()[2]), done.stderr


# ---- source distribution ---------------------------------------------------------------------------------------------


def test_source_distribution_is_complete(tmp_path: Path) -> None:
    """Every tracked source is in it; packaging/wheels.sh builds it in a clean environment."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    tree = tmp_path / "tree"
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    if (ROOT / "build" / "cython").is_dir():  # C that is newer than its .pyx is used again
        shutil.copytree(ROOT / "build" / "cython", tree / "build" / "cython")
    code = "import setuptools.build_meta as build; print(build.build_sdist('.'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tree / done.stdout.split()[-1]) as archive:
        packed = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    wanted = {name for name in listed.stdout.splitlines() if name.startswith(("edge/", "pyx/"))}
    wanted |= {"setup.py", "pyproject.toml", "README.md", "LICENSE"}
    missing = {name for name in wanted if (ROOT / name).is_file()} - packed
    assert not missing, sorted(missing)
