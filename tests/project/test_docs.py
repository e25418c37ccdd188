"""README and docs cannot drift: commands exist, code runs, links lead somewhere, what is generated is current."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edge.cli.group import cli
from edge.serve import keys
from tests.services import ROOT

PAGES = [page for folder in (".", "docs", "benchmarks", "benchmarks/log", "packaging")
         for page in sorted((ROOT / folder).glob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str) -> list[str]:
    """Fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def command_lines(page: Path) -> Iterator[str]:
    """Shell lines of a page, continued lines joined, comments dropped."""
    for block in blocks(page, "bash"):
        yield from (line for line in block.replace("\\\n", " ").splitlines() if line.strip() and line[0] != "#")


def calls(line: str) -> Iterator[list[str]]:
    """Arguments of each `bitnet-edge` call in a shell line."""
    words = list(shlex.shlex(line.replace("$(", "( "), posix=True, punctuation_chars=True))
    while "bitnet-edge" in words:
        words = words[words.index("bitnet-edge") + 1 :]
        end = next((i for i, word in enumerate(words) if set(word) <= set("|&;<>()") and word), len(words))
        here: list[str] = words[:end]
        packed: list[str] = []
        if "--" in here:  # pack MODEL -o FILE -- COMMAND ...
            here, packed = here[: here.index("--")], here[here.index("--") + 1 :]
        yield here
        if packed:
            yield packed


@each_page
def test_commands_and_options_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for line in command_lines(page):
        for target in re.findall(r"\bmake (\w[\w-]*)", line):
            assert re.search(rf"^(?:[\w ]* )?{target}(?: [\w ]*)?:", makefile, re.MULTILINE), f"no target {target}"
        for arguments in calls(line):
            context, command = click.Context(cli, info_name="bitnet-edge"), cli
            while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
                found = command.get_command(context, arguments[0])
                assert found is not None, f"no command {arguments[0]!r} in {line!r}"
                command, arguments = found, arguments[1:]
            known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
            for word in arguments:
                if re.match(r"--?[a-z]", word):
                    assert word.partition("=")[0] in known | {"--help", "-h", "--version"}, f"no {word} ({line!r})"


def test_refused_keys_are_documented() -> None:
    said = (ROOT / "docs/serve.md").read_text().partition("**Refused**")[2].partition("\n\n")[0]
    missing = [key for key in {**keys.REFUSED, **keys.RESPONSES} if f"`{key}`" not in said
               and isinstance(keys.RESPONSES.get(key, ""), str)]
    assert set(missing) <= {"n", "partial", "response_format"}, missing  # those that some path has


EXAMPLES = [pytest.param(page, i, id=f"{page.name}-{i}") for page in PAGES for i in range(len(blocks(page, "python")))]


@pytest.mark.parametrize(("page", "number"), EXAMPLES)
def test_python_examples_run(bundled_model: Path, tmp_path: Path, page: Path, number: int) -> None:
    """Those of README and of the Python page; of the others that they compile."""
    code = blocks(page, "python")[number]
    compile(code, str(page), "exec")
    if page.name in ("README.md", "python.md") and page.parent.name != "benchmarks":
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120,
                              env={"PYTHONPATH": str(ROOT), "BITNET_EDGE_MODEL": "demo"})
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


@each_page
def test_console_blocks_show_what_the_command_prints(page: Path) -> None:
    for block in blocks(page, "console"):
        command, _, shown = block.partition("\n")
        done = CliRunner().invoke(cli, shlex.split(command.removeprefix("$ bitnet-edge ")))
        assert done.exit_code == 0 and done.stdout == shown, command


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        place = page.parent / target if target else page
        assert place.exists(), f"links to {target}"
        if anchor:
            text = place.read_text()
            slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                     for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
            slugs |= {re.sub(r"[-\s]+", "-", slug) for slug in slugs}  # as mkdocs writes them
            assert anchor in slugs | set(re.findall(r'<a id="([\w-]+)"></a>', text)), f"{target}#{anchor}"


def test_generated_pages_are_current(tmp_path: Path) -> None:
    """Each script that writes one, run in a copy, changes no page."""
    for path in ROOT.iterdir():
        if path.name in ("docs", "benchmarks", "packaging"):
            shutil.copytree(path, tmp_path / path.name)
        elif path.name[0] != ".":
            (tmp_path / path.name).symlink_to(path)
    scripts = [path for folder in ("docs", "packaging") for path in sorted((tmp_path / folder).rglob("make_*.py"))
               if path.name != "make_pictures.py"]
    assert scripts
    for script in scripts:
        subprocess.run([sys.executable, str(script)], check=True, cwd=tmp_path, capture_output=True,
                       env={**os.environ, "PYTHONPATH": str(tmp_path)})
    for folder in ("docs", "benchmarks", "packaging"):
        for page in (ROOT / folder).rglob("*.md"):
            assert (tmp_path / page.relative_to(ROOT)).read_text() == page.read_text(), f"{page}: run make docs"


def test_pictures_show_what_their_data_gives() -> None:
    """Every word and number in them; where bars end is drawn from the same numbers."""
    pytest.importorskip("matplotlib", reason="needs the extra dev")
    import make_pictures

    def texts(svg: str) -> list[str]:
        return re.findall(r"<text[^>]*>([^<]*)</text>", svg)

    for name, draw in make_pictures.DRAWN.items():
        committed = (make_pictures.PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert texts(committed) and texts(committed) == texts(make_pictures.svg(draw())), f"{name}: run make docs"
