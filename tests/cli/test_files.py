"""Files that people name: ``~`` is expanded, a byte order mark is no text, ``-`` is standard input or output."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from edge.cli.chat import history_path
from edge.cli.group import cli
from edge.cli.options import written_out
from edge.files import cache_home, replacing
from edge.formats import open_checkpoint
from edge.formats.huggingface_tokenizer import chat_templates
from edge.formats.mapped import read_json
from edge.model.interpretation import remembered_at
from edge.options import Options
from edge.prompt.template import Template
from edge.registry import library
from edge.serve import bodies
from edge.serve.calls import Refusal
from tests.http_service import serving
from tests.services import REAL, bitnet_edge, environment

MARK = b"\xef\xbb\xbf"
RUN = ("run", "-m", "demo", "-n", "8", "-c", "256", "-t", "1", "--temp", "0")
QUESTION = "A large latte, please."
JSONL = json.dumps({"op": "chat", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8})
SCHEMA = '{"enum": ["tea", "coffee"]}'
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home folder; nothing named ~ is made beside it."""
    place, work = tmp_path / "home", tmp_path / "work"
    place.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(place))
    for name in ("CACHE_HOME", "STATE_HOME", "DATA_HOME"):
        monkeypatch.delenv(f"XDG_{name}", raising=False)
    yield place
    assert not os.listdir(work)


def parameters(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Parameter]]:
    """(command, option or argument) for each that takes a path and nothing else."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from parameters(command.get_command(context, name), (*words, name))  # type: ignore[arg-type]
    for param in command.params:
        if re.match("(FILE|DIR|PATH|IN|OUT)", str(param.metavar)) or isinstance(param.type, click.Path):
            yield " ".join(words), param


PATHS = [param for _, param in parameters(cli) if isinstance(param.type, click.Path)]


def test_every_option_that_takes_a_path_expands_it(home: Path) -> None:
    assert {param.name for param in PATHS} >= {"state", "socket_path", "session", "files", "source", "output", "npy"}
    for param in PATHS:
        for text, wanted in (("~/x", f"{home}/x"), ("~root/x", f"{os.path.expanduser('~root')}/x"), ("x~", "x~"),
                             ("~nobody-here/x", "~nobody-here/x"), ("-", "-")):
            assert param.type.convert(text, param, None) == wanted, param.name


def test_models_settings_and_variables_expand_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, bundled_model: Path
) -> None:
    model = home / "m.gguf"
    model.symlink_to(bundled_model)
    assert open_checkpoint("~/m.gguf").path == str(model) == library.choose("~/m.gguf").path
    monkeypatch.setenv("BITNET_EDGE_MODEL", "~/m.gguf")
    assert library.choose().path == str(model)
    for name, text in (("s", SCHEMA), ("t", TEMPLATE)):
        (home / name).write_text(text)
    assert written_out("schema", "~/s") == written_out("grammar", "~/s") == SCHEMA
    assert Options(kv_offload="~").kv_offload == str(home)
    assert Options(kv_budget="~/b.json").kv_budget == str(home / "b.json")
    checkpoint = open_checkpoint(str(model))
    assert Template.for_model(checkpoint, name="~/t").name == "t"
    for variable, xdg, found in (("MODELS", "DATA", library.folder), ("CACHE", "CACHE", cache_home),
                                 ("HOME", "STATE", history_path),
                                 ("STATE", "STATE", lambda: remembered_at(checkpoint))):
        for name in (f"BITNET_EDGE_{variable}", f"XDG_{xdg}_HOME"):
            monkeypatch.delenv(name, raising=False)
        assert str(found()).startswith(f"{home}/.")
        monkeypatch.setenv(f"XDG_{xdg}_HOME", "~/xdg")
        assert str(found()).startswith(f"{home}/xdg/bitnet-edge")
        monkeypatch.setenv(f"BITNET_EDGE_{variable}", "~/own")
        assert str(found()).startswith(f"{home}/own")


def test_a_service_keeps_its_conversations_at_home(home: Path) -> None:
    with serving(cwd=Path.cwd(), HOME=str(home), BITNET_EDGE_STATE="~/conv") as server:
        server.chat(QUESTION)
    assert any((home / "conv").glob("*.*"))


def test_an_empty_path_is_refused_where_it_stands(home: Path) -> None:
    """Of "$FILE" without a value: before a model is loaded and an answer is lost."""
    for param in PATHS:
        with pytest.raises(click.BadParameter, match="empty"):
            param.type.convert("", param, None)
    for name in ("session", "file", "system-file", "grammar", "schema"):
        done = bitnet_edge("run", "-m", "nowhere.gguf", "hi", f"--{name}", "")
        assert done.returncode == 2 and f"--{name}" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert bitnet_edge(*RUN, "hi", BITNET_EDGE_SESSION="").returncode == 0  # a variable without a value is not set


@pytest.mark.parametrize("relative", ["xdg", "./xdg", ".."])
def test_relative_folders_of_xdg_are_ignored(home: Path, monkeypatch: pytest.MonkeyPatch, relative: str) -> None:
    """The XDG Base Directory Specification: all paths in these variables are absolute, others are invalid."""
    for name in ("BITNET_EDGE_CACHE", "BITNET_EDGE_HOME", "BITNET_EDGE_MODELS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", relative)
    assert cache_home() == f"{home}/.cache/bitnet-edge"
    assert library.folder() == f"{home}/.local/share/bitnet-edge/models"
    assert str(history_path()) == f"{home}/.local/state/bitnet-edge/history"
    monkeypatch.setenv("BITNET_EDGE_MODELS", "own")  # a variable of the program
    assert library.folder() == os.path.abspath("own")


def test_a_file_that_cannot_be_written_whole_is_named(home: Path) -> None:
    """A full disk is not that of standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "edge", "default", "demo"], env=environment(XDG_DATA_HOME=str(home)), text=True,
        capture_output=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    assert done.returncode == 1
    assert done.stderr == f"bitnet-edge: {home}/bitnet-edge/models/.default: File too large\n"
    with pytest.raises(OSError) as raised, replacing(str(home / "x")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == str(home / "x")


def test_text_that_is_not_utf8_is_named_so() -> None:
    """Editors of Windows write UTF-16, too."""
    line = json.dumps({"custom_id": "a", "body": json.loads(JSONL)}) + "\n"
    for encoding in ("utf-16", "utf-16-le", "latin-1"):
        text = line.replace("latte", "latt\u00e9").encode(encoding)
        done = subprocess.run([sys.executable, "-m", "edge", "batch", "-m", "demo", "-", "-"], input=text,
                              env=environment(), capture_output=True)
        assert done.returncode == 2 and b" not UTF-8 text (byte " in done.stderr and b"codec" not in done.stderr, done
        with pytest.raises(Refusal, match=r"the request is not UTF-8 text \(byte"):
            bodies.parse(text, bodies.LIMIT, "too_large")


# ---- byte order marks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    (*RUN,), (*RUN, "-f", "-"), (*RUN, "-f", "FILE"), (*RUN, "-sysf", "FILE", QUESTION),
    (*RUN, "--schema", "FILE", QUESTION), (*RUN, "--schema", "TEXT", QUESTION), (*RUN, "--set", "template=FILE", "Hi"),
    (*RUN, "-p", "TEXT"), ("chat", *RUN[1:]), ("chat", "--jsonl", *RUN[1:]), ("batch", *RUN[1:], "-", "-"),
    ("embed", "-m", "demo"), ("tokens", "count", "-m", "demo"),
], ids=" ".join)
def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Editors and shells of Windows write one; piped texts of several files have several."""
    kinds = {"--schema": SCHEMA, "--set": TEMPLATE, "--jsonl": JSONL,
             "batch": json.dumps({"custom_id": "a", "body": json.loads(JSONL)})}
    text = next((kinds[word] for word in words if word in kinds), QUESTION)

    def said(mark: str) -> Any:
        (tmp_path / "file").write_bytes((mark + text).encode())
        given = {"FILE": str(tmp_path / "file"), "TEXT": mark + text, "template=FILE": f"template={tmp_path / 'file'}"}
        lines = (mark + text + "\n") * (2 if words[0] == "chat" else 1)
        done = bitnet_edge(*(given.get(word, word) for word in words), given=lines)
        assert done.returncode == 0, done.stderr
        return re.sub(r'"(\w*seconds|ttft|created|id|rss|text_id)": [^,}]+', "", done.stdout)

    assert said("") == said("\ufeff") != ""


def test_a_byte_order_mark_in_bodies_and_in_files_of_models(tmp_path: Path) -> None:
    with serving() as server:
        body = json.dumps({"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 2}).encode()
        assert server.ask("POST", "/v1/chat/completions", MARK + body)[0] == 200
    (tmp_path / "config.json").write_bytes(MARK + b"{}")
    assert read_json(str(tmp_path), "config.json") == {}
    (tmp_path / "chat_template.jinja").write_bytes(MARK + TEMPLATE.encode())
    assert chat_templates(str(tmp_path), {}) == {"default": TEMPLATE}
    budget = tmp_path / "b.json"
    budget.write_bytes(MARK + b"[]")
    done = bitnet_edge(*RUN, "--set", f"kv_budget={budget}", "Hi")
    assert done.returncode and "is not JSON" not in done.stderr


# ---- "-" in place of a file ------------------------------------------------------------------------------------------

REQUEST = json.dumps({"custom_id": "a", "body": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}})
TEXT = "A large latte, please. " * 40

#: option or argument -> (command with "-", standard input, what standard output or the one line of the refusal matches)
WAYS = {
    "run --file": ((*RUN, "-f", "-"), "Hello", r"\w"),
    "run --system-file": ((*RUN, "Hello", "-sysf", "-"), "Be brief.", r"\w"),
    "run --schema": ((*RUN, "Hello", "-n", "40", "--schema", "-"), '{"enum": ["tea"]}', r'^"tea"$'),
    "run --grammar": ((*RUN, "Hello", "--grammar", "-"), 'start: "tea"', r"^tea$"),
    "run --session": ((*RUN, "Hello", "--session", "-"), "", r"--session - .*name a file"),
    "batch source": (("batch", "-m", "demo", "-c", "256", "-", "out"), REQUEST, r"^$"),
    "batch output": (("batch", "-m", "demo", "-c", "256", "in", "-"), "", r'^{"id": "batch_req_1", "custom_id": "a"'),
    "pack --output": (("pack", "demo", "--program", "p", "-o", "-"), "", r"standard output.*name a file"),
    "pack --program": (("pack", "demo", "--program", "-", "-o", "x"), "", r"-: "),
    "serve --kiosk": (("serve", "--port", "0", "--kiosk", "-"), "colour = 1", r"standard input: colour is not a key"),
    "convert source": (("convert", "-", "x.gguf"), "", r"'?-'?: |'-' is"),
    "convert output": (("convert", "in", "-"), "", r"standard output.*name a file"),
    "tokens count --file": (("tokens", "count", "-m", "demo", "-f", "-"), "Hello", r"^\d$"),
    "embed --npy": (("embed", "-m", "demo", "--npy", "-", "Hello"), "", r"^.NUMPY"),
}


def test_every_option_that_names_a_file_is_tried() -> None:
    tried = {way.rpartition(" ")[2] for way in WAYS}
    assert {param.opts[-1] for _, param in parameters(cli) if param.metavar not in ("DIR", "PATH")} == tried


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
    done = bitnet_edge(*RUN, "-f", "-", "-sysf", "-", given="Hello", cwd=tmp_path)
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
