"""Other compilers than the one that built this tree: clang, and the oldest GCC of Debian 12.  `make compilers` runs it;
`make test` leaves it out, since it compiles everything four times.

They must build every kernel without a warning, and what they build must answer with the same bits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel_builds import (
    BASELINE_FILES,
    KERNELS,
    MACHINE,
    ROOT,
    TARGET_FILES,
    build_harness,
    compiler,
    flags_of,
    objects,
    shipped,
    tool,
)
from tests.kernels.test_kernels import build as build  # a fixture
from tests.kernels.test_kernels import digests, run
from tests.kernels.test_kernels import native as native  # a fixture
from tests.packaging.test_freeze import golden, golden_run

pytestmark = pytest.mark.compilers


def test_no_warning_when_optimised(tmp_path: Path) -> None:
    """The optimiser sees more than the parser: what setup.py compiles, a warning being an error."""
    objects(MACHINE, tmp_path)


@pytest.mark.qemu
@pytest.mark.parametrize("cc", [("aarch64-linux-gnu-gcc-11",), ("clang", "--target=aarch64-linux-gnu")], ids=" ".join)
def test_kernels_of_another_processor(native: Path, tmp_path: Path, cc: tuple[str, ...]) -> None:
    """A warning is an error; every row has the digest that the specification has from the usual compiler."""
    tool(cc[0])
    compiler("aarch64")  # links: the kernels need no library of their compiler
    program = build_harness("aarch64", objects("aarch64", tmp_path, cc=cc), tmp_path, "-static")
    found = digests(run(tool("qemu-aarch64-static", "qemu-aarch64"), "-cpu", "max", program))
    assert set(found.values()) == set(digests(run(native, "scalar")).values())


@pytest.mark.parametrize("cc", ["gcc-11", "clang"])
def test_the_whole_package(native: Path, tmp_path: Path, cc: str) -> None:
    """Every kernel without a warning; extensions with their threads (clang brings libomp); then the digests of all
    rows, the golden answer and the same logits as ever.
    """
    tool(cc)
    trial = ["-fopenmp", "-shared", "-x", "c", "/dev/null", "-o", str(tmp_path / "trial.so")]
    if subprocess.run([cc, *trial], capture_output=True).returncode:
        pytest.skip(f"{cc} has no OpenMP library (Debian: libomp-dev)")
    for name in [*BASELINE_FILES, *TARGET_FILES[MACHINE]]:
        flags = [*flags_of(MACHINE, name), "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run([cc, *flags, str(KERNELS / name)], check=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("edge", "pyx", "build/cython"):  # C that is newer than its .pyx is used again
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=tmp_path, check=True,
        env={**os.environ, "CC": cc, "LDSHARED": f"{cc} -shared"},
    )
    program = build_harness(MACHINE, shipped(tmp_path), tmp_path)
    assert set(digests(run(program)).values()) == set(digests(run(native, "scalar")).values())
    done = golden_run(sys.executable, "-P", "-m", "edge", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, golden()[2]), done.stderr
    folder = ROOT / "tests" / "kernels"
    tests = [str(folder / f"test_{name}.py") for name in ("transformer", "pages", "kv")]
    checked = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={tmp_path}", *tests],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )
    assert checked.returncode == 0, checked.stdout[-3000:]
