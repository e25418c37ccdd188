"""The shape of the tree, as docs/architecture.md promises it: layers, who prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import ROOT

#: floor -> its modules; imports may only point to the same or a lower floor (docs/architecture.md, "Layout")
FLOORS = {name: floor for floor, names in {
    0: "edge.errors",
    1: "pyx.machine",
    2: "pyx.tokens",
    3: "pyx.kv pyx.weights",
    4: "pyx.step",
    # values: a limit, a thread, a configuration
    6: "edge.threads",
    7: "edge.amounts edge.files edge.machine edge.packed edge.settings",
    8: "edge.options edge.sampling",
    9: "edge.config edge.layers",
    # files and texts
    10: "edge.registry",
    11: "edge.formats",
    12: "edge.prompt",
    13: "edge.constrain",
    # one model in memory, and what the machine makes of it
    14: "edge.machine.ways edge.model",
    15: "edge.machine.placement",
    16: "edge.model.weights",
    17: "edge.model.interpretation",
    18: "edge.model.model",
    # what it remembers
    19: "edge.cache",
    20: "edge.cache.state",
    21: "edge.cache.space",
    22: "edge.cache.kv_file",
    23: "edge.cache.folder edge.cache.remembered edge.cache.store",
    # conversations and answers
    24: "edge.session",
    25: "edge.session.logprobs edge.session.answer_options edge.session.outcome edge.session.scheduler",
    26: "edge.session.answer edge.session.prompting",
    27: "edge.session.generation edge.session.preparing edge.session.session",
    28: "edge.aio edge.session.read_ahead",
    29: "edge.engine",
    30: "edge.loading",
    # the public API is lazy: it names the floors above errors and is imported by services and the command line
    31: "edge edge.records",
    # programs
    32: "edge.tools",
    33: "edge.serve",
    34: "edge.tools.batch",
    35: "edge.cli",
    36: "edge.__main__",
}.items() for name in names.split()}


def floor(module: str) -> int | None:
    """Floor of a module, by its longest listed prefix; None for other people's modules."""
    parts = module.split(".")
    for n in range(len(parts), 0, -1):
        if (name := ".".join(parts[:n])) in FLOORS and (n > 1 or len(parts) == 1):
            return FLOORS[name]
    if parts[0] in ("edge", "pyx"):
        pytest.fail(f"{module} has no floor: add it to FLOORS in tests/project/test_structure.py")
    return None


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports or cimports, as dotted names."""
    if path.suffix != ".py":
        text = path.read_text()
        assert not re.search(r"^\s*(?:from|import) (?:edge|numpy)\b", text, re.MULTILINE), path.name
        yield from (f"pyx.{name}" for name in re.findall(r"^\s*from pyx\.([\w.]+) cimport", text, re.MULTILINE))
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and node.level == 0, f"{path}: imports are written in full"
            for alias in node.names:  # `from edge.formats import gguf` imports a module
                whole = f"{node.module}.{alias.name}"
                place = ROOT.joinpath(*whole.split("."))
                is_module = place.is_dir() or any(place.with_suffix(kind).is_file() for kind in (".py", ".pyx"))
                yield whole if is_module else node.module


def test_imports_point_downwards() -> None:
    for path in [*(ROOT / "edge").rglob("*.py"), *(ROOT / "pyx").glob("*.p[yx][xd]")]:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        here = floor(module)
        for target in imports(path):
            there = floor(target)
            assert there is None or here is None or there <= here or (target == "edge" and here >= FLOORS["edge"]), (
                f"{module} (floor {here}) imports {target} (floor {there})")


def test_only_the_command_line_prints() -> None:
    printing = {"print", "input", "sys.exit", "sys.stdout.write", "sys.stderr.write"}
    for path in (ROOT / "edge").rglob("*.py"):
        if not path.is_relative_to(ROOT / "edge" / "cli"):
            for node in ast.walk(ast.parse(path.read_text())):
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                assert called not in printing, f"{path}:{node.lineno} calls {called}"  # type: ignore[attr-defined]
            assert "signal" not in set(imports(path)), f"{path.name}: only edge/cli touches signals"


def test_scripts_name_tests_that_exist() -> None:
    for script in (ROOT / ".ci" / "run", *(ROOT / "packaging").glob("*.sh")):
        for name in re.findall(r"tests/[\w/]+\.py", script.read_text()):
            assert (ROOT / name).exists(), f"{script.name} names {name}"
