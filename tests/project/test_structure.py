"""The shape of the tree: floors and manners that docs/architecture.md promises."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: floor -> its modules; imports may only point to the same or a lower floor (docs/architecture.md, "Layout")
FLOORS = {name: floor for floor, names in {
    0: "edge.errors",
    1: "pyx.machine.bandwidth pyx.machine.cpu pyx.machine.memory pyx.machine.pace pyx.machine.team "
       "pyx.tokens.compare pyx.tokens.draft pyx.tokens.rank pyx.tokens.sampler pyx.tokens.strings",
    2: "pyx.head.bit_planes pyx.head.winners pyx.kv.budget pyx.kv.cache pyx.kv.page pyx.kv.policy pyx.kv.pool "
       "pyx.kv.recurrent pyx.kv.spill pyx.tokens.bpe pyx.weights.projection pyx.weights.stored_rows "
       "pyx.weights.ternary",
    3: "pyx.head.output_head pyx.layers.attention pyx.layers.rotary pyx.machine.residency pyx.step.probe "
       "pyx.weights.planes pyx.weights.tensors",
    4: "pyx.layers.feed_dense pyx.layers.feed_experts pyx.layers.layer pyx.layers.mix_attention "
       "pyx.layers.mix_delta pyx.step.scratch pyx.step.stages pyx.step.transformer",
    # values: a limit, a thread, a configuration
    6: "edge.threads",
    7: "edge.amounts edge.files edge.machine edge.packed",
    8: "edge.sampling",
    9: "edge.config edge.layers",
    # files and texts
    10: "edge.registry",
    11: "edge.formats",
    12: "edge.prompt",
    13: "edge.constrain",
    # one model in memory, and what the machine makes of it
    14: "edge.machine.choices edge.model",
    15: "edge.machine.placement",
    16: "edge.model.plan edge.model.sizes edge.model.weights",
    17: "edge.model.interpretation",
    18: "edge.machine.tuning edge.model.model",
    # what it remembers
    19: "edge.cache",
    20: "edge.cache.state",
    21: "edge.cache.store_entry edge.cache.space",
    22: "edge.cache.codec",
    23: "edge.cache.store_folder edge.cache.store",
    # conversations and answers
    24: "edge.cache.remembered edge.session edge.session.admission",
    25: "edge.session.logprobs edge.session.answer_options edge.session.scheduler",
    26: "edge.session.answer edge.session.prompting",
    27: "edge.session.preparing edge.session.session",
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

#: never imported by load -> answer: tools, tests and other people's frameworks
HEAVY = {"numpy", "torch", "transformers", "tokenizers", "gguf", "requests", "sentencepiece", "prompt_toolkit", "click",
         "llguidance"}


def modules() -> dict[str, Path]:
    """Module name -> source, for every Python file of the package."""
    found = {}
    for path in sorted((ROOT / "edge").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def floor(module: str) -> int | None:
    """Floor of a module, by its longest listed prefix; None for other people's modules."""
    parts = module.split(".")
    for n in range(len(parts), 0, -1):
        if (name := ".".join(parts[:n])) in FLOORS and (n > 1 or len(parts) == 1):
            return FLOORS[name]
    if parts[0] in ("edge", "pyx"):
        pytest.fail(f"{module} has no floor: add it to FLOORS in tests/project/test_structure.py")
    return None


def _type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def compiled(path: Path) -> str:
    """The module of a .pyx or .pxd file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@functools.cache
def _ours() -> set[str]:
    return set(modules()) | {compiled(each) for each in (ROOT / "pyx").glob("*/*.pyx")}


@functools.cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def imports(path: Path, lazy: bool = True) -> tuple[str, ...]:
    """Modules that a file imports, as dotted names; without ``lazy`` not those in functions and for type checkers."""

    def walk(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if not lazy and (_type_checking(child) or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))):
                continue
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                assert child.level == 0, f"{path}: imports are written in full"
                for alias in child.names:  # `from edge.formats import gguf` imports a module
                    whole = f"{child.module}.{alias.name}"
                    yield whole if whole in _ours() else child.module
            yield from walk(child)

    return tuple(walk(parsed(path.read_text())))


def cimports(path: Path) -> set[str]:
    """Modules of ours that a .pyx or .pxd file cimports."""
    return {f"pyx.{name}" for name in re.findall(r"^\s*from pyx\.([\w.]+) cimport", path.read_text(), re.MULTILINE)}


def test_imports_point_downwards() -> None:
    wrong = []
    for module, path in modules().items():
        here = floor(module)
        for target in imports(path):
            if target == "edge" and (here or 0) >= FLOORS["edge"]:
                continue
            there = floor(target)
            if there is not None and here is not None and there > here:
                wrong.append(f"{module} (floor {here}) imports {target} (floor {there})")
    assert not wrong, "\n".join(wrong)


def test_compiled_floor_points_downwards() -> None:
    for path in sorted((ROOT / "pyx").glob("*/*.p[yx][xd]")):
        module = compiled(path)
        source = path.read_text()
        for target in cimports(path) - {module}:
            assert (floor(target) or 0) <= (floor(module) or 0), f"{path.name} cimports {target}"
        assert not re.search(r"^\s*(from|import) edge\b", source, re.MULTILINE), f"{path.name} imports edge"
        assert "import numpy" not in source, path.name


def test_no_import_cycles() -> None:
    """Nor among imports in functions and for type checkers: of two modules one does not know the other."""
    ours = modules()
    graph = {module: set(imports(path)) & ours.keys() for module, path in ours.items()}
    for path in (ROOT / "pyx").glob("*/*.p[yx][xd]"):
        graph.setdefault(compiled(path), set()).update(cimports(path))
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, "import cycle: " + " -> ".join((*trail[trail.index(module) :], module))
        if module not in done:
            for target in sorted(graph[module] - {module}):
                visit(target, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


#: names with an underscore that others meant for everybody, or that have no other way in
NOT_PRIVATE = {
    *("_replace", "_asdict", "_fields", "_make"),  # namedtuple
    *("_exit", "_attn_implementation"),  # os, transformers
    *("_Namespace__attrs", "_keywords"),  # Jinja, jsonschema
}


def privates_of_others(path: Path) -> Iterator[str]:
    """Where a file reaches for a ``_name`` that it does not define: an attribute, or an import of ours."""
    nodes = list(ast.walk(parsed(path.read_text())))
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    own = {node.name for node in nodes if isinstance(node, defined)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bases = {name for node in nodes if isinstance(node, ast.ClassDef) for name in map(ast.unparse, node.bases)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own |= {node.attr} if getattr(node.value, "id", "") == "self" else set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr) and node.attr not in own | NOT_PRIVATE:
            if getattr(node.value, "id", "") != "self" or not bases:  # a subclass has what its base gave it
                yield f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("edge", "pyx"):
            for alias in node.names:
                if re.match("_(?!_)", alias.name):
                    yield f"{path.relative_to(ROOT)}:{node.lineno} from {node.module} import {alias.name}"


def test_nobody_reaches_for_what_is_private_to_others() -> None:
    folders = {"edge", "tests", "benchmarks", "lab", "training"}
    ours = [path for path, _ in written() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders]
    ours += (ROOT / "tests" / "vectors").glob("*.py")
    assert len(ours) > 250
    found = [each for path in ours for each in privates_of_others(path)]
    assert not found, "\n".join(found)


def test_only_the_command_line_prints() -> None:
    printing = {"print", "input", "sys.exit", "sys.stdout.write", "sys.stderr.write"}
    last = {name.rpartition(".")[2] for name in printing}
    for module, path in modules().items():
        if floor(module) == FLOORS["edge.cli"]:
            continue
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in last:
                called = ast.unparse(node.func)
                assert called not in printing, (
                    f"{path.name}:{node.lineno} calls {called}; only edge/cli prints and exits"
                )
        assert "signal" not in set(imports(path)), f"{path.name}: only edge/cli touches signals"


#: what only edge/machine asks of the operating system: names of calls, and the beginnings of its files
ASKED_OF_THE_SYSTEM = re.compile(
    r"sched_\w+|madvise|MADV_\w+|posix_fadvise|POSIX_FADV_\w+|memfd_create|O_TMPFILE|getrusage|SC_PHYS_PAGES|mlock\w*")
FILES_OF_THE_SYSTEM = re.compile(r"/(proc|sys)(/|$)")


def asks_the_system(text: str) -> Iterator[str]:
    """Where a file asks the operating system itself: calls, and paths below /proc and /sys outside of docstrings."""
    tree = parsed(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    words = {id(node.body[0].value)  # type: ignore[attr-defined]
             for node in ast.walk(tree) if isinstance(node, documented) and ast.get_docstring(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ASKED_OF_THE_SYSTEM.fullmatch(node.attr):
            yield f"{node.lineno} {ast.unparse(node)}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
            if FILES_OF_THE_SYSTEM.match(node.value) or ASKED_OF_THE_SYSTEM.fullmatch(node.value):
                yield f"{node.lineno} {node.value!r}"


def test_only_the_machine_knows_the_operating_system() -> None:
    assert [*asks_the_system("import os\nos.sched_getaffinity(0)\nopen(f'/proc/{1}/status')")]
    found = {module: list(asks_the_system(path.read_text())) for module, path in modules().items()}
    assert found.pop("edge.machine.linux"), "the check finds nothing"
    others = {module: where for module, where in found.items() if where and not module.startswith("edge.machine.")}
    assert not others, others


def sources() -> list[Path]:
    """Our sources below the two floors; generated and built files left out."""
    found = [*(ROOT / "edge").rglob("*.py"), *(ROOT / "pyx" / "kernels").glob("*.[ch]")]
    return sorted(found + [path for kind in ("pyx", "pxd", "pyi") for path in (ROOT / "pyx").glob(f"*/*.{kind}")])


#: folders of what is built, installed or data
FOREIGN = {".git", ".venv", ".venv-clients", "node_modules", "build", "dist", "vectors"}


@functools.cache
def written() -> list[tuple[Path, str]]:
    """Every text file a person wrote in this repository."""
    kinds = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".md", ".toml", ".sh", ".service", ".spec", ".json", ".jinja"}
    found = []
    for folder, below, names in os.walk(ROOT):
        below[:] = set(below) - FOREIGN
        for path in (Path(folder, name) for name in names):
            if path.is_file() and (
                (path.suffix in kinds and path.stat().st_size < 1 << 20) or path.name in ("Makefile", "run")
            ):
                found.append((path, path.read_text()))
    return sorted(found)


def test_no_paths_of_one_machine() -> None:
    private = re.compile(r"(?<![\w.$}~])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me|Us" + r"ers)/\w")
    for path, text in written():
        found = private.search(text)
        assert not found, f"{path.relative_to(ROOT)} names {found.group()}..., a path of one machine"


def test_nothing_is_built_for_this_machine_only() -> None:
    for path, text in written():
        if path.name in ("setup.py", "Makefile") or path.suffix in (".sh", ".toml"):
            code = re.sub(r'"""[\s\S]*?"""|#.*', "", text)
            assert "march=native" not in code and "mtune=native" not in code, path.name


def test_lines_end_in_time() -> None:
    for path, text in written():
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi", ".c", ".h"):
            long = [i for i, line in enumerate(text.splitlines(), 1) if len(line) > 120]
            assert not long, f"{path.relative_to(ROOT)}: lines over 120 characters: {long[:5]}"


def python(code: str, *arguments: str) -> str:
    """Output of a fresh interpreter in the repository root."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_run_path_imports_nothing_heavy(tiny_model: str) -> None:
    """edge.load -> answer on a GGUF with a byte-level vocabulary."""
    loaded = python(
        "import sys, edge\n"
        "with edge.load(sys.argv[1], ctx=64) as engine:\n"
        "    list(engine.session().ask('hello', max_tokens=4))\n"
        "print(*sys.modules)",
        tiny_model,
    )
    assert not HEAVY & set(loaded.split()), sorted(HEAVY & set(loaded.split()))


def test_import_is_light() -> None:
    """`import edge` compiles nothing, loads no extension and none of our dependencies."""
    loaded = set(python("import sys, edge\nprint(*sys.modules)").split())
    assert not loaded & (HEAVY | {"jinja2", "tiktoken", "psutil", "platformdirs", "pyx"})


def test_version_answers_before_click_is_imported() -> None:
    out = python(
        "import sys\nsys.argv = ['bitnet-edge', '--version']\nfrom edge.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print('click' in sys.modules)"
    )
    assert out.startswith("bitnet-edge ") and out.endswith("False\n")


def rooms() -> set[str]:
    """Every folder with something that a person wrote: at the top, and in the two layers at any depth."""
    found = {path.relative_to(ROOT) for path, _ in written()}
    outer = {path.parts[0] for path in found if len(path.parts) > 1 and not path.parts[0].startswith(".")}
    inner = {parent.as_posix() for path in found if path.suffix in (".py", ".pyx", ".c") for parent in path.parents}
    return outer | {each for each in inner if each.startswith(("edge/", "pyx/"))}


def test_every_room_is_in_the_architecture() -> None:
    """docs/architecture.md lists each folder, and none that is not there."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    layout = text.partition("## Layout\n\n```\n")[2].partition("```")[0]
    listed: list[str] = []
    for indent, name in re.findall(r"^((?:  ){0,3})(\w+)/ ", layout, re.MULTILINE):
        depth = len(indent) // 2
        parent = listed[-1].split("/")[:depth] if listed else []
        assert len(parent) == depth, f"{name}/ has no folder above it"
        listed.append("/".join([*parent, name]))
    assert rooms() - set(listed) == set(), "not in docs/architecture.md"
    assert all((ROOT / name).is_dir() for name in listed), "docs/architecture.md lists a folder that does not exist"


def test_every_file_says_what_it_is_for() -> None:
    """In its first lines: a docstring, or a comment in C, in shell scripts and in declarations of Cython."""
    kinds = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".sh", ".spec"}
    for path, text in written():
        if path.suffix in kinds:
            assert speaks(path.suffix, text), f"{path.relative_to(ROOT)}: its first lines do not say what it is for"


def speaks(kind: str, text: str) -> bool:
    """Whether the first lines of a file are words about it."""
    first = text.partition("\n")[2] if text.startswith("#!") else text
    if kind == ".py":
        return bool(ast.get_docstring(parsed(text)))
    return bool(re.match({".c": r"(/\*|//)", ".h": r"(/\*|//)"}.get(kind, r'("""|#)'), first))


CLOCKS = {f"time.{name}" for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time")}


def timed_asserts(text: str) -> list[int]:
    """Lines of the asserts that compare an elapsed time: a difference to a clock, or a name that was given one."""

    def elapsed(part: ast.AST, names: set[str]) -> bool:
        for each in ast.walk(part):
            if isinstance(each, ast.Name) and each.id in names:
                return True
            if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub):
                if any(isinstance(call, ast.Call) and ast.unparse(call.func) in CLOCKS for call in ast.walk(each.left)):
                    return True
        return False

    found = set()
    for function in ast.walk(parsed(text)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = [each for each in ast.walk(function) if isinstance(each, ast.Assign) and elapsed(each.value, set())]
            names = {name.id for each in given for name in each.targets if isinstance(name, ast.Name)}
            for each in ast.walk(function):
                if isinstance(each, ast.Assert) and any(
                    isinstance(part, ast.Compare) and elapsed(part, names) for part in ast.walk(each.test)
                ):
                    found.add(each.lineno)
    return sorted(found)


def test_no_test_asserts_a_time() -> None:
    """A machine may be busy; bounds of waiting (``time.monotonic() < deadline``) are no measurements."""
    for path in (ROOT / "tests").rglob("*.py"):
        assert timed_asserts(path.read_text()) == [], path.relative_to(ROOT)
