"""``-`` in place of a file: standard input or output for each option that names one, or one line that refuses it, and
never a file of that name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from edge.cli.group import cli
from tests.services import REAL, bitnet_edge, environment

REQUEST = json.dumps({"custom_id": "a", "body": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}})
TEXT = "A large latte, please. " * 40
RUN = ("run", "-m", "demo", "-n", "2", "-c", "256", "-t", "1", "Hello")

#: option or argument -> (command with "-", standard input, what standard output or the one line of the refusal matches)
WAYS = {
    "run --file": ((*RUN[:-1], "-f", "-"), "Hello", r"\w"),
    "run --system-file": ((*RUN, "-sysf", "-"), "Be brief.", r"\w"),
    "run --schema": ((*RUN, "-n", "40", "--schema", "-"), '{"enum": ["tea"]}', r'^"tea"$'),
    "run --grammar": ((*RUN, "--grammar", "-"), 'start: "tea"', r"^tea$"),
    "run --session": ((*RUN, "--session", "-"), "", r"--session - .*name a file"),
    "batch source": (("batch", "-m", "demo", "-c", "256", "-", "out"), REQUEST, r"^$"),
    "batch output": (("batch", "-m", "demo", "-c", "256", "in", "-"), "", r'^{"id": "batch_req_1", "custom_id": "a"'),
    "pack --output": (("pack", "demo", "--program", "p", "-o", "-"), "", r"standard output.*name a file"),
    "pack --program": (("pack", "demo", "--program", "-", "-o", "x"), "", r"-: "),
    "convert source": (("convert", "-", "x.gguf"), "", r"'?-'?: |'-' is"),
    "convert output": (("convert", "in", "-"), "", r"standard output.*name a file"),
    "tokens count --file": (("tokens", "count", "-m", "demo", "-f", "-"), "Hello", r"^\d$"),
    "embed --npy": (("embed", "-m", "demo", "--npy", "-", "Hello"), "", r"^.NUMPY"),
}


def named(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """(command, option or argument) for each that names a file; folders and sockets are none."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from named(command.get_command(context, name), (*words, name))  # type: ignore[arg-type]
        return
    for param in command.params:
        shown = str(param.metavar or "")
        if re.match(r"FILE|IN$|OUT$", shown) or (isinstance(param.type, click.Path) and shown not in ("DIR", "PATH")):
            yield words, param.opts[-1]


def test_every_option_that_names_a_file_is_tried() -> None:
    tried = {way.rpartition(" ")[2] for way in WAYS}
    assert {name for _, name in named(cli)} == tried


@pytest.mark.parametrize("way", WAYS)
def test_a_dash_is_no_file(tmp_path: Path, way: str) -> None:
    command, given, wanted = WAYS[way]
    (tmp_path / "in").write_text(REQUEST + "\n")
    (tmp_path / "text").write_text(TEXT)
    done = subprocess.run([*REAL, *command], cwd=tmp_path, env=environment(), input=given.encode(), capture_output=True,
                          timeout=250)
    out, err = done.stdout.decode("latin-1"), done.stderr.decode()
    refused = done.returncode in (2, 3, 4)
    assert done.returncode == 0 or (refused and err.count("bitnet-edge:") == 1), (out, err)
    assert re.search(wanted, err if refused else out), (out, err)
    assert not os.path.lexists(tmp_path / "-")
    if way == "batch source":
        assert json.loads((tmp_path / "out").read_text())["custom_id"] == "a"


def test_standard_input_has_one_reader(tmp_path: Path) -> None:
    done = bitnet_edge(*RUN[:-1], "-f", "-", "-sysf", "-", given="Hello", cwd=tmp_path)
    assert done.returncode == 2 and "standard input can be read only once" in done.stderr
    done = bitnet_edge("chat", "-m", "demo", "-sysf", "-", given="Hello", cwd=tmp_path)
    assert done.returncode == 2 and "chat reads standard input itself" in done.stderr


def test_answers_on_standard_output_cannot_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "in").write_text(REQUEST + "\n")
    for target in ("-", "/dev/stdout"):
        done = bitnet_edge("batch", "-m", "demo", "-c", "256", "in", target, "--resume", cwd=tmp_path)
        assert done.returncode == 2 and f"{target} is not a file" in done.stderr


def test_what_cannot_be_written_leaves_no_empty_file(tmp_path: Path) -> None:
    """On a full disk, here one on which no file may have a byte."""
    full = f"ulimit -f 0; {' '.join(REAL)} embed -m demo --npy out.npy Hello"
    done = subprocess.run(["bash", "-c", full], cwd=tmp_path, env={**environment(), "PYTHONDONTWRITEBYTECODE": "1"},
                          capture_output=True, timeout=100)
    assert done.returncode == 1 and b"cannot write out.npy" in done.stderr and not os.listdir(tmp_path), done
