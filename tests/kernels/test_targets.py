"""docs/add_a_target.md: a target is added as the page says, and no other file needs to know it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kernel_builds import HARNESS, KERNELS, MACHINE, ROOT, SETUP, compiler, flags_of
from tests.kernels.test_kernels import build as build  # a fixture
from tests.kernels.test_kernels import listing, run

PAGE = ROOT / "docs" / "add_a_target.md"


@pytest.mark.parametrize("name", SETUP["TARGETS"])
def test_three_places_know_a_target(name: str) -> None:
    text = (KERNELS / f"{name}.c").read_text()
    assert f"const struct kernels kernels_{name} = {{" in text and f'.name = "{name}"' in text
    dispatch = (KERNELS / "dispatch.c").read_text()
    assert re.search(rf"\bneeds_{name} = ", dispatch)
    if name != "scalar":  # the specification: also named by those that compare with it
        assert dispatch.count(f"needs_{name}") > 1
        found = subprocess.run(["git", "grep", "-lwE", f"kernels_{name}|needs_{name}", "--", "pyx", "edge", "setup.py"],
                               cwd=ROOT, text=True, capture_output=True, check=True).stdout.split()
        assert sorted(found) == sorted(["pyx/kernels/dispatch.c", f"pyx/kernels/{name}.c"])


def test_the_page_names_what_there_is() -> None:
    text = PAGE.read_text()
    for path in re.findall(r"`((?:pyx|tests)/[\w./]+)`", text):
        assert (ROOT / path.replace("NAME", "scalar")).is_file(), path
    places = re.findall(r"^\d\. \*\*`([\w./]+)`\*\*", text, re.MULTILINE)
    assert places == ["setup.py", "pyx/kernels/NAME.c", "pyx/kernels/dispatch.c"]
    for path, word in {"setup.py": "TARGETS", "pyx/kernels/dispatch.c": "cpu_features",
                       "tests/kernels/test_kernels.py": "QEMU_CPUS"}.items():
        assert f"`{word}`" in text and re.search(rf"\b{word}\b", (ROOT / path).read_text())


def test_a_target_is_added_as_the_page_says(build, tmp_path: Path) -> None:
    """With the specification's own code under another name."""
    kernels = tmp_path / "kernels"
    shutil.copytree(KERNELS, kernels)
    scalar = (kernels / "scalar.c").read_text()
    (kernels / "again.c").write_text(scalar.replace("kernels_scalar", "kernels_again").replace('"scalar"', '"again"'))
    dispatch = (kernels / "dispatch.c").read_text()
    (kernels / "dispatch.c").write_text(dispatch.replace("enum { needs_scalar = 0 };",
                                                         "enum { needs_scalar = 0, needs_again = 0 };"))
    made = [flag.replace("=T(scalar)", "=T(scalar) T(again)") for flag in flags_of(MACHINE, "dispatch.c")]
    built = dict(build(MACHINE))
    for name, flags in {"again.c": flags_of(MACHINE, "scalar.c"), "dispatch.c": made}.items():
        built[name] = tmp_path / f"{name}.o"
        subprocess.run([compiler(MACHINE), *flags, "-O1", "-c", kernels / name, "-o", built[name]], check=True)
    program = tmp_path / "harness"
    command = [compiler(MACHINE), *flags_of(MACHINE, "scalar.c"), "-O1", f"-I{kernels}", HARNESS, *built.values()]
    subprocess.run([*command, "-o", program, "-lm"], check=True)
    known, best = listing(run(program, "--list"))
    assert list(known)[:2] == ["scalar", "again"] and known["again"] == "supported" and best != "again"
