"""Users of other programs get one line that names what they typed as it is called here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edge.cli.group import cli
from edge.cli.habits import HINTS
from edge.errors import ModelNotFound
from edge.registry import library
from edge.settings import SETTINGS
from tests.services import ROOT, bitnet_edge, environment


def said(line: str) -> str:
    """Standard error of a command that exits 2 with one line."""
    done = CliRunner(env={**dict.fromkeys(BITNET), "BITNET_EDGE_MODELS": "/nowhere"}).invoke(cli, shlex.split(line))
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and not done.stdout, (line, done.output)
    return done.stderr


BITNET = [name for name in environment() if name.startswith("BITNET_EDGE")]


def test_a_value_may_come_after_an_equals_sign() -> None:
    assert bitnet_edge("run", "-m=demo", "-n=1", "--temp=0", "hello").returncode == 0


# ---- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("typed", "meant"), [
    ("run smollm2-135m hello", "run -m smollm2-135m hello"),
    ("run smollm2-135m 'What is ice?'", "run -m smollm2-135m 'What is ice?'"),
    ("run --temp 0 smollm2-135m hello", "run -m smollm2-135m --temp 0 hello"),
    ("run hf:microsoft/bitnet-b1.58-2B-4T-gguf hello", "run -m hf:microsoft/bitnet-b1.58-2B-4T-gguf hello"),
    ("run none.gguf hello", "run -m none.gguf hello"),
    (f"run {ROOT}/edge/bundled hello", f"run -m {ROOT}/edge/bundled hello"),
    ("run bonsai-1.7b", "run -m bonsai-1.7b 'your question'"),
    ("chat demo:latest", "chat -m demo:latest"),
    ("run demo", "chat -m demo"),
    ("run demo", "run -- demo"),
    ("tokens count demo", "tokens count -- demo"),
    ("serve demo --port 9000", "serve -m demo --port 9000"),
    ("batch demo in.jsonl out.jsonl", "batch -m demo in.jsonl out.jsonl"),
    ("embed bitnet-embedding-0.6b hello", "embed -m bitnet-embedding-0.6b hello"),
    ("demo", "chat -m demo"),
    ("smollm2-135m hello", "run -m smollm2-135m hello"),
])
def test_a_model_comes_after_m(typed: str, meant: str) -> None:
    line = said(typed)
    assert "is the name of a model; use: bitnet-edge " in line and f"bitnet-edge {meant}" in line


def test_what_only_looks_like_a_model_is_a_text(tmp_path: Path) -> None:
    """A word after ``--``, standard input, a prompt beside -m, and a file that is called like a model."""
    for arguments in (["--", "demo"], ["-m", "demo", "demo"], ["-p", "demo"]):
        assert bitnet_edge("run", "-n", "1", *arguments).returncode == 0
    assert bitnet_edge("run", "-n", "1", given="demo").returncode == 0
    (tmp_path / "maple").write_text("a list of trees")
    assert bitnet_edge("run", "-n", "1", "maple", cwd=tmp_path).returncode == 0
    (tmp_path / "maple").unlink()
    (tmp_path / "maple").mkdir()
    (tmp_path / "maple" / "config.json").touch()
    assert "run -m maple" in bitnet_edge("run", "-n", "1", "maple", cwd=tmp_path).stderr


def test_names_of_ollama_are_those_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size or ``latest`` comes after a colon there."""
    monkeypatch.setenv("BITNET_EDGE_MODELS", "/nowhere")
    assert library.resolve("demo:latest") == library.demo()
    for name in ("smollm2-135m:latest", "smollm2:135m", "SmolLM2:135M"):
        with pytest.raises(ModelNotFound, match="bitnet-edge pull smollm2-135m$"):
            library.resolve(name)
    with pytest.raises(ModelNotFound, match="did you mean bonsai-"):
        library.resolve("bonsai:1.5b")


# ---- options and commands --------------------------------------------------------------------------------------------


def commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def names(command: click.Command) -> set[str]:
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts)}


def test_hints_name_what_there_is() -> None:
    """No hint stands for an option that all its commands have, and each names commands, options and settings of ours.
    """
    every = commands()
    ours = set().union(*map(names, every.values())) | {"--help", "--version"}
    for typed, hint in HINTS.items():
        command, _, option = typed.rpartition(":")
        assert not command or command in {"bitnet-edge", *every}
        if option[0] == "-":
            there = [command == "bitnet-edge" and cli or every[command]] if command else every.values()
            assert any(option not in names(each) for each in there), typed
        for found in re.findall(r"(?<![\w-])--?[a-z][\w-]*", hint):
            assert found in ours, (typed, found)
        for name in re.findall(r"--set (\w+)", hint):
            assert name in SETTINGS and not SETTINGS[name].names, (typed, name)
        for name in re.findall(r"bitnet-edge (\w+)", hint):
            assert name in every, (typed, name)


@pytest.mark.parametrize(("typed", "answer"), [
    ("run -ngl 99 hello", "there is no option -ngl: no GPU is used"),
    ("run --n-gpu-layers=99 hello", "there is no option --n-gpu-layers: no GPU is used"),
    ("bench -p 256", "there is no option -p: -d "), ("chat -p hello", "bitnet-edge run"),
    ("run -cnv hello", "there is no option -cnv: bitnet-edge chat"), ("run -no-cnv hello", "--raw"),
    ("run -b 512 hello", "-b"), ("run -fa on hello", "-fa"), ("run -ctk q8_0 hello", "--kv"),
    ("run -hf a/b hello", "bitnet-edge pull hf:OWNER/NAME"), ("serve -np 4", "--parallel"),
    ("run --port 80 hello", "bitnet-edge serve"), ("run -temp 0 hello", "--temp"),
    ("run --top-k 4 hello", "--set top_k=N"), ("run --format json hello", "--schema"),
    ("run -nope hello", "'ope' is not a valid integer"), ("run -temperature 0 hello", "use --temperature"),
    ("-m demo run hello", "bitnet-edge run -m"), ("--ctx 512 run hello", "bitnet-edge run --ctx"),
    ("llama-cli -m x", "bitnet-edge run"), ("ps", "bitnet-edge serve"), ("help run", "--help"),
    ("chat hello", "chat takes no text; to ask it: bitnet-edge run hello; for a model: -m hello"),
    ("run -m demo hello there", "in quotes: 'hello there'"), ("chat -m demo hello", "bitnet-edge run hello"),
    ("'What is ice?'", "bitnet-edge run 'What is ice?'"),
    ("chta -m demo", "did you mean chat?"), ("xyzzy", "bitnet-edge --help"),
    ("run -n -1 hello", "from 0 on; a large number sets no limit"),
    ("run phi3:mini hello", "a model comes after -m"),
])
def test_options_of_others_are_known(typed: str, answer: str) -> None:
    assert answer in said(typed)
