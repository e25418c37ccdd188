"""README and docs cannot drift: commands exist, code runs, links lead somewhere, dependencies are explained."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import make_pictures
import make_speed
from edge import __version__
from edge.cli.group import cli
from tests.project.test_structure import imports, modules, written

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted(page for folder in (".", "docs", "benchmarks", "benchmarks/log", "packaging")
               for page in (ROOT / folder).glob("*.md"))


def blocks(text: str, language: str) -> list[str]:
    """Fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def command_lines(page: Path) -> Iterator[str]:
    """Shell lines of a page, continued lines joined, comments dropped."""
    for block in blocks(page.read_text(), "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#"):
                yield line


def calls(line: str) -> Iterator[list[str]]:
    """Arguments of each `bitnet-edge` call in a shell line."""
    words = list(shlex.shlex(line.replace("$(", "( "), posix=True, punctuation_chars=True))
    while "bitnet-edge" in words:
        words = words[words.index("bitnet-edge") + 1 :]
        end = next((i for i, word in enumerate(words) if set(word) <= set("|&;<>()") and word), len(words))
        yield words[:end]


def python_code(page: Path) -> list[str]:
    return blocks(page.read_text(), "python")


def toml_list(key: str) -> list[str]:
    """A list of strings in pyproject.toml (Python 3.10 has no tomllib)."""
    match = re.search(rf"^{key} = (\[.*?\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert match, key
    return list(ast.literal_eval(re.sub(r"#.*", "", match[1])))


def name_of(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement)[0].lower().replace("_", "-")


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for line in command_lines(page):
        for target in re.findall(r"\bmake (\w+)", line):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"


def test_make_prints_help_by_default() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    for target in set(phony[1].split()) - {"help"}:
        assert f"make {target} " in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path) -> None:
    for line in command_lines(page):
        for arguments in calls(line):
            context, command = click.Context(cli, info_name="bitnet-edge"), cli
            while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
                found = command.get_command(context, arguments[0])
                assert found is not None, f"{page.name}: no command {arguments[0]!r} in {line!r}"
                command, arguments = found, arguments[1:]
            known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
            known |= {"--help", "-h", "--version"}
            for word in arguments:
                if re.match(r"--?[a-z]", word):
                    assert word.partition("=")[0] in known, f"{page.name}: {command.name} has no {word} ({line!r})"


def test_options_without_a_variable_are_named() -> None:
    """The pages name every option that has no environment variable, and no other."""
    def without(command: click.Command) -> Iterator[str]:
        for param in command.params:
            if isinstance(param, click.Option) and not param.allow_from_autoenv:
                yield next((name for name in param.opts if name in ("-p", "-f", "-o", "--stop")), param.opts[0])
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                yield from without(child)

    for page in ("cli.md", "contract.md"):
        text = (ROOT / "docs" / page).read_text()
        sentence = re.search(r"Every option can also be [^.]*?\sexcept\s(.*?`--cors`)", text, re.DOTALL)
        assert sentence and set(re.findall(r"`(-[\w-]+)`", sentence[1])) == set(without(cli)), page


@pytest.mark.parametrize("script", ["make_model", "against_peers", "drafts"])
def test_benchmark_examples_parse(script: str) -> None:
    parser = importlib.import_module(f"benchmarks.{script}").arguments_parser()
    lines = [line for line in command_lines(ROOT / "benchmarks" / "README.md") if f"{script}.py" in line]
    assert lines
    for line in lines:
        parser.parse_args(shlex.split(line.partition(f"{script}.py")[2]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_examples_compile(page: Path) -> None:
    for code in python_code(page):
        compile(code, str(page), "exec")


def test_readme_python_runs(bundled_model: Path, tmp_path: Path) -> None:
    for code in python_code(ROOT / "README.md"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
        )
        assert done.returncode == 0, done.stderr


PYTHON_PAGE = (ROOT / "docs" / "python.md").read_text()


@pytest.mark.parametrize("number", range(len(blocks(PYTHON_PAGE, "python"))))
def test_python_page_runs(bundled_model: Path, tmp_path: Path, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", blocks(PYTHON_PAGE, "python")[number]], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "BITNET_EDGE_MODEL": "demo"}, timeout=120,
    )
    assert done.returncode == 0 and done.stdout.strip() and not done.stderr, done.stderr


def test_readme_shell_runs(bundled_model: Path, tmp_path: Path) -> None:
    """Lines of the README that only use what ships: bitnet-edge on its bundled model."""
    lines = [line for line in command_lines(ROOT / "README.md") if line.startswith(("bitnet-edge ", "echo "))]
    assert lines
    launcher = tmp_path / "bitnet-edge"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edge "$@"\n')
    launcher.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    for line in lines:
        if re.search(r"bitnet-edge (?:chat|serve|pull)|-m |\.(?:gguf|toml|jsonl)", line):
            continue  # a conversation, a service, a download, or a file the reader brings
        done = subprocess.run(line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, input="")
        assert done.returncode == 0, f"{line}: {done.stderr}"


# ---- links and versions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_changelog_names_the_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0].startswith(__version__)


# ---- dependencies ----------------------------------------------------------------------------------------------------


def explained(heading: str) -> dict[str, list[str]]:
    """Rows of one table in docs/dependencies.md: package -> its other cells."""
    text = (ROOT / "docs" / "dependencies.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {name_of(row[0]): row[1:] for row in rows[2:]}


@pytest.mark.parametrize(
    ("heading", "key"),
    [("At run time", "dependencies"), ("To build", "requires"), ("Extra `dev`", "dev"), ("Extra `docs`", "docs"),
     ("Extra `freeze`", "freeze"), ("Extra `training`", "training")],
)
def test_every_dependency_is_explained(heading: str, key: str) -> None:
    rows = explained(heading)
    assert set(rows) == {name_of(requirement) for requirement in toml_list(key)}
    for package, cells in rows.items():
        assert all(cells), f"{package} has an empty cell"
        assert any(re.fullmatch(r"\d+\.\d\d MB", cell) for cell in cells), f"{package} has no size"


def test_run_time_dependencies_are_used() -> None:
    """Each is imported somewhere in edge/."""
    imported = {target.split(".")[0] for path in modules().values() for target in imports(path)}
    unused = {name.replace("-", "_") for name in explained("At run time")} - imported
    assert not unused, f"declared but never imported in edge/: {sorted(unused)}"


def test_what_is_imported_is_declared() -> None:
    declared = {name.replace("-", "_") for name in explained("At run time")} | {"edge", "pyx"}
    declared |= {"_sha2", "_sha256"}  # of the standard library: since Python 3.12, and before
    for path in modules().values():
        for target in imports(path):
            name = target.split(".")[0]
            assert name in declared or name in sys.stdlib_module_names, f"{path.name} imports {name}, not declared"


# ---- pages with figures, commands and messages -----------------------------------------------------------------------


def test_finish_reasons_are_those_of_the_contract() -> None:
    contract = (ROOT / "docs" / "contract.md").read_text()
    found = re.search(r"`finish_reason` \((.*?)\)", contract[contract.index("[json_object]") :], re.DOTALL)
    line = next(line for line in PYTHON_PAGE.splitlines() if "print(answer.finish_reason)" in line)
    assert found and set(re.findall(r'"(\w+)"', line)) == set(re.findall(r"`(\w+)`", found[1])) >= {"stop", "loop"}


def test_units_treat_exit_codes_alike() -> None:
    unit = (ROOT / "packaging" / "systemd" / "bitnet-edge.service").read_text()
    served = next(block for block in blocks((ROOT / "docs" / "kiosk.md").read_text(), "ini") if " serve " in block)
    for setting in ("Restart", "RestartPreventExitStatus", "SuccessExitStatus"):
        values = [re.findall(rf"^{setting}=(.*)$", text, re.MULTILINE) for text in (unit, served)]
        assert len(values[0]) == 1 and values[0] == values[1], setting


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_console_blocks_show_what_the_command_prints(page: Path) -> None:
    for block in blocks(page.read_text(), "console"):
        command, _, shown = block.partition("\n")
        assert command.startswith("$ bitnet-edge ")
        done = CliRunner().invoke(cli, shlex.split(command)[2:])
        assert done.exit_code == 0 and done.stdout == shown, command


def source_texts() -> list[str]:
    """Every text constant of the program and of click, parts of f-strings one by one."""
    files = [*(ROOT / "edge").rglob("*.py"), *Path(click.__file__).parent.glob("*.py")]
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in files)
    found = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    compiled = [path.read_text(encoding="utf-8") for path in (ROOT / "pyx").glob("*/*.pyx")]
    return [text for text in found if isinstance(text, str)] + compiled


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_lead_to_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text()):
        text = (page.parent / target).read_text() if target else page.read_text()
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
        slugs |= {re.sub(r"[-\s]+", "-", slug) for slug in slugs}  # as mkdocs writes them
        slugs |= set(re.findall(r'<a id="([\w-]+)"></a>', text))
        assert anchor in slugs, f"{page.name}: {target}#{anchor}"


def test_site_builds_with_strict_links(tmp_path: Path) -> None:
    """Without network: every page, every link, search."""
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        html = (tmp_path / "site" / page.with_suffix(".html").name).read_text()
        assert not re.search(r'(?:src|<link [^>]*href)="(?:https?:)?//', html), f"{page.name} loads from elsewhere"
    assert "ternary" in (tmp_path / "site" / "search" / "search_index.json").read_text()
    assert (tmp_path / "site" / "benchmarks" / "log" / "2026-11.html").is_file()  # linked from a page of docs/


# ---- speed -----------------------------------------------------------------------------------------------------------

LOG = ROOT / "benchmarks" / "log"


def named_entries() -> dict[str, str]:
    """Entries of the logbook that something cites: name -> text."""
    entries: dict[str, str] = {}
    for path in sorted(LOG.glob("2*.md")):
        for entry in re.split(r"^(?=<a id=|### )", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if named := re.match(r'<a id="([\w-]+)"></a>\s*$', entry):
                name = named[1]
                assert name not in entries, f"two entries are named {name}"
                entries[name] = ""
            elif entries and entries[name] == "":
                entries[name] = entry
    return entries


def test_tables_of_the_speed_page_are_current() -> None:
    text = make_speed.PAGE.read_text(encoding="utf-8")
    assert make_speed.page(text) == text, "run make docs"


def test_citations_of_the_logbook_lead_to_entries() -> None:
    entries = named_entries()
    cited = {(path.name, name) for path, text in written() for name in re.findall(r"benchmarks/log#([\w-]+)", text)}
    assert len(cited) > 15 and all(name in entries for _, name in cited), cited


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_shown_pictures_are_there() -> None:
    there = {path.resolve() for path in make_pictures.PICTURES.iterdir()}
    assert there == {(make_pictures.PICTURES / f"{name}.svg").resolve() for name in make_pictures.DRAWN}
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")):
        for alt, link in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert alt, f"{page.name}: {link} needs words for those who cannot see it"
            assert "://" in link or (page.parent / link).is_file(), f"{page.name} shows {link}"


def test_the_data_of_pictures_says_how_it_was_made() -> None:
    for path in make_pictures.RESULTS.iterdir():
        if path.suffix == ".json":
            assert json.loads(path.read_text(encoding="utf-8"))["command"], path.name
