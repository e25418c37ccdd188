"""The C kernels, compiled with the flags of setup.py, so that tests judge what is shipped."""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "pyx" / "kernels"
MACHINE = platform.machine()
BASELINE_FILES = ["scalar.c", "dispatch.c", "repack.c", "dequantize.c", "exact_page.c", "packed_page.c"]
TARGET_FILES = {
    "x86_64": ["sse41.c", "avx2.c", "avxvnni.c", "avx512vnni.c"],
    "aarch64": ["neon.c", "dotprod.c", "i8mm.c"],
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
    return [*setup["COMMON"], "-fPIC", *setup["ISA_FLAGS"].get(name, setup["BASELINE"])]


def tool(*names: str) -> str:
    """The first of these programs that is installed; skips the test otherwise."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    pytest.skip(f"needs {names[0]}")


def compiler(machine: str) -> str:
    return tool("gcc", "cc") if machine == MACHINE else tool(f"{machine}-linux-gnu-gcc")


def objects(
    machine: str, directory: Path, extra: tuple[str, ...] = (), cc: tuple[str, ...] = ()
) -> dict[str, Path]:
    """Compile every kernel file of one machine to NAME.s and NAME.o; a warning is an error.  File -> its object."""
    jobs = []
    command = [*(cc or [compiler(machine)])]
    names = [*BASELINE_FILES, *TARGET_FILES[machine]]
    for name in names:
        flags = [*flags_of(machine, name), "-Wall", "-Wextra", "-Werror", *extra]
        compile_one = [*command, *flags, "-S", str(KERNELS / name), "-o", str(directory / f"{name}.s")]
        jobs.append((compile_one, subprocess.Popen(compile_one, stderr=subprocess.PIPE, text=True)))
    for compile_one, job in jobs:
        _, errors = job.communicate()
        assert job.returncode == 0, f"{' '.join(compile_one)}\n{errors}"
    for name in names:
        march = [flag for flag in flags_of(machine, name) if flag.startswith("-m")]
        subprocess.run([*command, *march, "-c", f"{name}.s", "-o", f"{name}.o"], cwd=directory, check=True)
    return {name: directory / f"{name}.o" for name in names}


def compiled_once(once: Callable[[str, Callable[[Path], object]], Path], machine: str) -> dict[str, Path]:
    """:func:`objects` of a machine, compiled once in a run; ``once`` is the fixture."""
    compiler(machine)
    folder = once(f"kernels-{machine}", lambda folder: objects(machine, folder))
    return {name: folder / f"{name}.o" for name in [*BASELINE_FILES, *TARGET_FILES[machine]]}
