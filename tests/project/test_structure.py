"""The shape of the tree, as docs/architecture.md promises it: layers, who prints, what is private."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

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
    8: "edge.sampling",
    9: "edge.config edge.layers",
    # files and texts
    10: "edge.registry",
    11: "edge.formats",
    12: "edge.prompt",
    13: "edge.constrain",
    # one model in memory, and what the machine makes of it
    14: "edge.machine.ways edge.model",
    15: "edge.machine.placement",
    16: "edge.model.plan edge.model.weights",
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


def sources() -> list[tuple[str, Path]]:
    """(module, file) of the package and of the compiled floor."""
    paths = [*(ROOT / "edge").rglob("*.py"), *(ROOT / "pyx").glob("*.p[yx][xd]")]
    return [(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path) for path in paths]


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
    for module, path in sources():
        here = floor(module)
        for target in imports(path):
            there = floor(target)
            assert there is None or here is None or there <= here or (target == "edge" and here >= FLOORS["edge"]), (
                f"{module} (floor {here}) imports {target} (floor {there})")


def test_names_of_the_compiled_layer_exist() -> None:
    """A check of types cannot tell: it reads no compiled module."""
    for path in (path for folder in ("edge", "benchmarks", "lab") for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyx"):
                module = import_module(str(node.module))
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{path}:{node.lineno} imports {alias.name}"


#: names with an underscore that others meant for everybody, or that have no other way in
NOT_PRIVATE = {
    *("_replace", "_asdict", "_fields", "_make"),  # namedtuple
    *("_exit", "_attn_implementation"),  # os, transformers
    *("_Namespace__attrs", "_keywords"),  # Jinja, jsonschema
}


def privates_of_others(path: Path) -> Iterator[str]:
    """Where a file reaches for a ``_name`` that it does not define: an attribute, or an import of ours."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    own = {node.name for node in nodes if isinstance(node, defined)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) == "self"}
    inherits = any(isinstance(node, ast.ClassDef) and node.bases for node in nodes)
    for node in nodes:
        if isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr) and node.attr not in own | NOT_PRIVATE:
            if not (inherits and ast.unparse(node.value) == "self"):  # a subclass has what its base gave it
                yield f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("edge", "pyx"):
            yield from (f"{path.relative_to(ROOT)}:{node.lineno} imports {alias.name}" for alias in node.names
                        if re.match("_(?!_)", alias.name))


@pytest.mark.parametrize("folder", ["edge", "tests", "benchmarks", "lab", "training"])
def test_nobody_reaches_for_what_is_private_to_others(folder: str) -> None:
    found = [each for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts
             for each in privates_of_others(path)]
    assert not found, "\n".join(found)


def test_only_the_command_line_prints() -> None:
    printing = {"print", "input", "sys.exit", "sys.stdout.write", "sys.stderr.write"}
    for path in (ROOT / "edge").rglob("*.py"):
        if not path.is_relative_to(ROOT / "edge" / "cli"):
            for node in ast.walk(ast.parse(path.read_text())):
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                assert called not in printing, f"{path}:{node.lineno} calls {called}"  # type: ignore[attr-defined]
            assert "signal" not in set(imports(path)), f"{path.name}: only edge/cli touches signals"


OF_COMMANDS = ("settings.py", "errors.py", "records.py", "files.py")


def test_the_library_names_its_arguments_and_no_options() -> None:
    """In messages for programs; the command line puts its options there.  Apart from tables of the command line, and
    what says how a model is converted.
    """
    for path in (ROOT / "edge").rglob("*.py"):
        where = path.relative_to(ROOT / "edge").as_posix()
        if where.startswith(("cli/", "serve/", "tools/")) or where in OF_COMMANDS:
            continue
        tree = ast.parse(path.read_text())
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in texts:
                named = re.search(r"(?<![\w-])--(?!inplace)[a-z]\S*", node.value)
                assert not named or "convert it with" in node.value, f"{path}:{node.lineno} names {named[0]}"
