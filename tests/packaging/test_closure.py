"""packaging/closure.py: what a program needs, from the metadata of packages made here, for machines that are not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

requirements = pytest.importorskip("packaging.requirements", reason="packaging is not installed (extra freeze)")


@pytest.fixture(scope="module")
def module() -> Any:
    spec = importlib.util.spec_from_file_location("closure", ROOT / "packaging" / "closure.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def package(folder: Path, name: str, *needs: str, version: str = "1.0") -> None:
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {need}" for need in needs)]
    (about / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    package(tmp_path, "web", "Text_Kit>=1", "old-toml; python_version < '3.11'", "fast[all]; extra == 'speed'")
    package(tmp_path, "text-kit", "web", "arm-only; platform_machine == 'aarch64'", "windows; sys_platform == 'win32'")
    package(tmp_path, "old-toml")
    package(tmp_path, "arm-only")
    package(tmp_path, "fast", "deep; extra == 'all'", "other; extra == 'none'")
    package(tmp_path, "deep", version="3.2")
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "python", "machine", "names"),
    [
        ("web", "3.11", "x86_64", "text-kit web"),
        ("web", "3.10", "x86_64", "old-toml text-kit web"),
        ("web", "3.9", "x86_64", "old-toml text-kit web"),  # versions are no decimal fractions
        ("web", "3.13", "aarch64", "arm-only text-kit web"),
        ("web[speed]", "3.11", "x86_64", "deep fast text-kit web"),
        ("web; python_version < '3.11'", "3.13", "x86_64", ""),
    ],
)
def test_what_is_needed(module: Any, site: Path, wanted: str, python: str, machine: str, names: str) -> None:
    """Markers are those of the target; circles end; an extra brings its own, also when it is asked for later."""
    found, missing = module.closure(
        [requirements.Requirement(wanted)], module.target(python, machine), [str(site)])
    assert list(found) == names.split() and missing == []
    both, _ = module.closure([requirements.Requirement(each) for each in ("web", "web[speed]")],
                             module.target("3.11", machine), [str(site)])
    assert {"deep", "fast"} <= both.keys()


def test_what_is_missing_is_named(module: Any, site: Path) -> None:
    package(site, "whole", "nowhere>=2", "web")
    found, missing = module.closure(
        [requirements.Requirement("whole")], module.target("3.11", "x86_64"), [str(site)])
    assert list(found) == ["text-kit", "web", "whole"] and [str(each) for each in missing] == ["nowhere>=2"]
    assert module.pins({"deep": module.closure([requirements.Requirement("deep")], None, [str(site)])[0]["deep"]}) == \
        ["deep==3.2"]


def test_of_this_project() -> None:
    """Everything that `dependencies` leads to is installed here, and nothing that only other extras need."""
    done = subprocess.run([sys.executable, str(ROOT / "packaging" / "closure.py")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    names = {line.partition("==")[0] for line in done.stdout.split()}
    assert {"click", "starlette", "anyio", "h11", "markupsafe", "wcwidth"} <= names
    assert not names & {"pytest", "pyinstaller", "matplotlib", "tokenizers", "setuptools"}
