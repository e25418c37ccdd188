"""The C kernels, compiled with the flags of setup.py, so that tests judge what is shipped."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import runpy
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "pyx" / "kernels"
HARNESS = ROOT / "tests" / "kernels" / "harness.c"
MACHINE = platform.machine()
BASELINE_FILES = ["scalar.c", "dispatch.c", "repack.c", "dequantize.c", "packed_page.c"]
SETUP = runpy.run_path(str(ROOT / "setup.py"))
TARGET_FILES = {
    machine: [f"{name}.c" for name in SETUP["targets_of"](machine) if name != "scalar"]
    for machine in ("x86_64", "aarch64")
}


def flags_of(machine: str, name: str) -> list[str]:
    """The flags with which setup.py compiles one kernel file; -fPIC comes from Python, for every extension."""
    saved = os.environ.get("BITNET_EDGE_TARGET")
    os.environ["BITNET_EDGE_TARGET"] = machine
    try:
        setup = runpy.run_path(str(ROOT / "setup.py"))
    finally:
        if saved is None:
            del os.environ["BITNET_EDGE_TARGET"]
        else:
            os.environ["BITNET_EDGE_TARGET"] = saved
    return [*setup["COMMON"], "-fPIC", *setup["flags_of"](name)]


def tool(*names: str) -> str:
    """The first of these programs that is installed; skips the test otherwise."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    pytest.skip(f"needs {names[0]}")


def preloaded(folder: Path, source: str, *libraries: str) -> str:
    """A library of this C code, for LD_PRELOAD: it stands in front of the system's.  Skips the test without glibc."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("needs glibc")
    (folder / "preloaded.c").write_text(source)
    made = folder / "preloaded.so"
    subprocess.run([tool("gcc", "cc"), "-shared", "-fPIC", folder / "preloaded.c", "-o", made, *libraries], check=True)
    return str(made)


def compiler(machine: str) -> str:
    return tool("gcc", "cc") if machine == MACHINE else tool(f"{machine}-linux-gnu-gcc")


def objects(
    machine: str, directory: Path, extra: Sequence[str] = (), cc: Sequence[str] = (), names: Sequence[str] = ()
) -> dict[str, Path]:
    """Compile kernel files of one machine, or every one, to NAME.s and NAME.o; a warning is an error.  File -> its
    object."""
    jobs = []
    command = [*(cc or [compiler(machine)])]
    names = names or [*BASELINE_FILES, *TARGET_FILES[machine]]
    for name in names:
        flags = [*flags_of(machine, name), "-Wall", "-Wextra", "-Wundef", "-Werror", *extra]
        compile_one = [*command, *flags, "-S", str(KERNELS / name), "-o", str(directory / f"{name}.s")]
        jobs.append((compile_one, subprocess.Popen(compile_one, stderr=subprocess.PIPE, text=True)))
    for compile_one, job in jobs:
        _, errors = job.communicate()
        assert job.returncode == 0, f"{' '.join(compile_one)}\n{errors}"
    for name in names:
        march = [flag for flag in flags_of(machine, name) if flag.startswith("-m")]
        subprocess.run([*command, *march, "-c", f"{name}.s", "-o", f"{name}.o"], cwd=directory, check=True)
    return {name: directory / f"{name}.o" for name in names}


def shipped(tree: Path = ROOT) -> dict[str, Path]:
    """File -> the object that setup.py has made of it in this tree, and linked into an extension."""
    folder = tree / "build" / f"temp-{MACHINE}" / "pyx" / "kernels"
    return {name: folder / f"{Path(name).stem}.o" for name in [*BASELINE_FILES, *TARGET_FILES[MACHINE]]}


def compiled(machine: str) -> dict[str, Path]:
    """File -> its object: as in this tree's extensions; else, and for another machine, of :func:`objects`, kept."""
    if machine == MACHINE:
        built = shipped()
        newest = max(path.stat().st_mtime_ns for path in [ROOT / "setup.py", *KERNELS.glob("*.[ch]")])
        if all(path.is_file() and path.stat().st_mtime_ns > newest for path in built.values()):
            return built
    folder = kept(f"kernels-{machine}", compiler(machine), (), lambda folder: objects(machine, folder))
    return {name: folder / f"{name}.o" for name in [*BASELINE_FILES, *TARGET_FILES[machine]]}


def build_harness(machine: str, built: dict[str, Path], directory: Path, *link: str) -> Path:
    """The harness, linked with these objects."""
    program, main = directory / "harness", directory / "main.o"
    # -O2 compiles its checks in a third of the time of -O3, and they run as fast
    flags = [*flags_of(machine, "scalar.c"), "-O2", "-Wall", "-Wextra", "-Werror", f"-I{KERNELS}"]
    subprocess.run([compiler(machine), *flags, "-c", str(HARNESS), "-o", str(main)], check=True)
    objects = [str(main), *(str(path) for path in built.values())]
    subprocess.run([compiler(machine), "-fopenmp", *link, *objects, "-o", str(program), "-lm"], check=True)
    return program


def kept(name: str, cc: str, flags: Sequence[str], fill: Callable[[Path], object]) -> Path:
    """build/tests/NAME, which fill(folder) has filled with what this compiler makes of the kernels with these flags.

    It stays for the next run, and is filled again when the compiler, a flag, a kernel or the harness has changed.
    The first process to come fills it; the others wait.
    """
    digest = hashlib.sha256(subprocess.run([cc, "--version"], capture_output=True, check=True).stdout)
    digest.update(" ".join(flags).encode())
    for path in [ROOT / "setup.py", Path(__file__), HARNESS, *sorted(KERNELS.glob("*.[ch]"))]:
        digest.update(path.name.encode() + path.read_bytes())
    folder = ROOT / "build" / "tests" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "made-of"
        if not stamp.exists() or stamp.read_text() != digest.hexdigest():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            fill(folder)
            stamp.write_text(digest.hexdigest())
    return folder
