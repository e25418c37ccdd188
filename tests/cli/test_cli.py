"""The command line from inside: options, help, documentation, streams; and its way with the real engine.

What users may rely on is in test_contract.py, the chat on a terminal in test_chat_terminal.py.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import edge
from edge.cli import answers, options, output
from edge.cli.group import cli
from edge.errors import unbuilt
from edge.loading import load
from edge.registry.library import DEMO
from edge.sampling import Sampling
from edge.session.answer_options import AnswerOptions
from edge.settings import SETTINGS, with_options
from tests import fake_engine
from tests.services import in_python


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Any:
    """invoke("run", "hello") with the scripted engine, in this process."""
    monkeypatch.setattr(edge, "load", fake_engine.load, raising=False)
    for name in list(os.environ):
        if name.startswith("BITNET_EDGE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BITNET_EDGE_MODEL", DEMO)  # run and chat ask the model

    def run(*args: str, stdin: str = "", env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(cli, args, input=stdin, env=env)

    return run


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, bundled_model: Path) -> Any:
    """invoke() with the real engine and the model that ships inside."""
    for name in list(os.environ):
        if name.startswith("BITNET_EDGE_") and name != "BITNET_EDGE_MODELS":  # whoever tests may have pulled one
            monkeypatch.delenv(name)

    def run(*args: str, stdin: str = "") -> Result:
        return CliRunner().invoke(cli, args, input=stdin)

    return run


# ---- help and documentation ------------------------------------------------------------------------------------------


def test_what_is_not_built_is_named() -> None:
    missing = ModuleNotFoundError("No module named 'pyx.draft'", name="pyx.draft")
    assert "missing" in str(unbuilt(missing))
    for other in (ModuleNotFoundError("No module named 'jinja2'", name="jinja2"), AttributeError("no attribute 'x'")):
        assert unbuilt(other) is None


def test_help_of_one_command_imports_no_other() -> None:
    probe = (
        "import sys; sys.argv = ['x', 'tokens', '-h']\nfrom edge.cli.main import main\ntry: main()\nfinally: "
        "print(sorted(m for m in sys.modules if m.startswith(('edge.', 'pyx.', 'prompt_toolkit'))))"
    )
    loaded = in_python(probe).splitlines()[-1]
    for name in ("edge.engine", "edge.cli.chat", "edge.prompt.tokenizer", "edge.formats", "pyx", "prompt_toolkit"):
        assert f"'{name}'" not in loaded


# ---- options ---------------------------------------------------------------------------------------------------------


def parsed(*args: str) -> dict[str, Any]:
    """The parameters of `run` with these options."""
    command = cli.get_command(click.Context(cli), "run")
    assert command is not None
    context = command.make_context("run", [*args, "x"])
    return context.params


def test_what_stays_in_sight(tmp_path: Any) -> None:
    assert options.load_arguments(parsed("-sys", "Be kind."))["system"] == "Be kind."
    assert "system" not in options.load_arguments(parsed("-sys", ""))
    text = tmp_path / "system.txt"
    text.write_text("Be brief.\n")
    for none in (text, tmp_path / "none"):  # no session: loading it will say so, if it exists
        assert options.load_arguments(parsed("-sysf", str(text), "--session", str(none)))["system"] == "Be brief."


def test_every_name_a_finger_knows() -> None:
    assert parsed("--ctx-size", "64")["n_ctx"] == parsed("-c64")["n_ctx"] == 64
    assert parsed("--keep", "3")["sinks"] == 3 and parsed("--mem", "1G")["memory"] == "1G"
    assert parsed("--n-predict", "5")["max_tokens"] == parsed("-n5")["max_tokens"] == 5
    assert parsed("-s7")["seed"] == 7 and parsed("-r", "a", "--stop", r"b\n")["stop"] == ("a", "b\n")
    assert parsed("-sys", "hi")["system"] == "hi"


# ---- settings --------------------------------------------------------------------------------------------------------


def test_every_setting_reaches_what_it_sets() -> None:
    """Each name of --set is an argument of load() or ask(), or is one of the command itself."""
    values = {"switch": "off", "whole": "1", "number": "0.5", "text": "9", "size": "9M", "path": "/tmp"}
    for name, row in SETTINGS.items():
        if row.of in ("typing", "service", "chat", "print", "program") or row.names:
            continue
        flags = parsed("--set", f"{name}={row.choices[-1] if row.choices else values[row.kind]}")
        found = {**options.load_arguments(flags), **options.ask_arguments(flags)}
        found |= {field.name: getattr(found["sampling"], field.name) for field in dataclasses.fields(Sampling)}
        assert name in found and found[name] == flags[name] is not None, name


def test_the_table_fits_what_it_describes() -> None:
    """Names are the arguments of Python, and the defaults are theirs."""
    loading = {name: each.default for name, each in inspect.signature(load).parameters.items()}
    fields = {each.name: each.default for of in (AnswerOptions, Sampling) for each in dataclasses.fields(of)}
    for name, row in SETTINGS.items():
        if row.of not in ("typing", "service", "chat", "print"):
            assert name in loading or name in fields, name
            assert {**fields, **loading}.get(name) in (row.default, None, ()), name


@pytest.mark.parametrize(("library", "shown"), [
    ('; ctx=512 kv="int8:int4" would fit; force_memory=True tries anyway',
     "; --ctx 512 --kv int8:int4 would fit; --set force_memory=on tries anyway"),
    ('it works from memory="273M" on: raise', "it works from --memory 273M on: raise"),
    ('a larger ctx or overflow="slide" helps', "a larger --ctx or --set overflow=slide helps"),
    ("choose another with template=NAME", "choose another with --set template=NAME"),
    ("--set seed=5 has no tree=9, and the ctx is x=ctx", "--set seed=5 has no tree=9, and the ctx is x=ctx"),
])
def test_messages_of_the_library_with_options(library: str, shown: str) -> None:
    assert with_options(library) == shown


def test_settings_come_from_the_variable_and_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITNET_EDGE_SET", "top_k=3 queue=9  min_p=0.5")  # queue is of serve
    flags = parsed("--set", "top_k=4", "--set", "ignore-eos=on")
    assert (flags["top_k"], flags["min_p"], flags["ignore_eos"]) == (4, 0.5, True) and "queue" not in flags


@pytest.mark.parametrize(("word", "said"), [
    ("hed=int8", "did you mean head?"), ("head=int9", "'int9' is not one of"), ("top_k", "top_k=N"),
    ("ctx=9", "it is the option -c / --ctx"), ("queue=9", "no such setting here"), ("top_p=7", "from 0 to 1"),
    ("cache=maybe", "'on', 'off'"), ("zzz=1", "run --help-all lists them"),
])
def test_wrong_settings_are_refused_before_a_model_is_loaded(invoke: Any, word: str, said: str) -> None:
    for done in (invoke("run", "x", "--set", word), invoke("run", "x", env={"BITNET_EDGE_SET": word})):
        if word.startswith("queue") and not done.exit_code:
            continue
        assert done.exit_code == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_system_prompt(invoke: Any, tmp_path: Path) -> None:
    page = tmp_path / "museum.txt"
    page.write_bytes(b"\xef\xbb\xbfYou are a guide.\r\n")
    assert options.system_prompt({"system_file": str(page)}) == "You are a guide."
    usage = json.loads(invoke("run", "hello", "-sysf", str(page), "--json").stdout)["usage"]
    assert usage["prompt"] == 8 + len("You are a guide.")
    assert invoke("run", "hello", "-sysf", str(page), "-sys", "x").exit_code == 2
    assert invoke("run", "hello", "-sysf", str(tmp_path / "none")).exit_code == 2


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_answer_holds_newlines_back(capsys: pytest.CaptureFixture[str]) -> None:
    answer = answers.AnswerOutput(output.Output())
    seen = []
    for piece in ("a\n", "\n", "b", "\n\n", ""):
        answer.feed(piece)
        seen.append(capsys.readouterr().out)
    answer.end()
    answer.end()
    assert seen == ["a", "", "\n\nb", "", ""] and capsys.readouterr().out == "\n"


# ---- other commands --------------------------------------------------------------------------------------------------


def test_tokens(real: Any) -> None:
    text = "Hello, wörld!\n"
    ids = json.loads(real("tokens", "encode", text, "--json").stdout)
    assert real("tokens", "encode", text).stdout == " ".join(map(str, ids)) + "\n"
    assert real("tokens", "encode", "-", stdin=text).stdout == real("tokens", "encode", stdin=text).stdout
    assert real("tokens", "count", text).stdout == f"{len(ids)}\n"
    assert json.loads(real("tokens", "count", text, "--json").stdout) == {"tokens": len(ids)}
    assert real("tokens", "decode", *map(str, ids)).stdout == text + "\n"
    assert json.loads(real("tokens", "decode", "--json", stdin=json.dumps(ids)).stdout) == {"text": text}
    pieces = [line.split("\t") for line in real("tokens", "encode", text, "--pieces").stdout.splitlines()]
    assert [int(number) for number, _ in pieces] == ids
    assert real("tokens", "encode", "<|eot_id|>").stdout != real("tokens", "encode", "<|eot_id|>", "--special").stdout
    marked = real("tokens", "encode", "<|begin_of_text|>Hi<|eot_id|>", "--special").stdout.split()
    assert real("tokens", "decode", "--special", *marked).stdout == "<|begin_of_text|>Hi<|eot_id|>\n"
    assert real("tokens", "decode", *marked).stdout == "Hi\n"
    for bad in (("decode", "x"), ("decode", "99999999"), ("decode",), ("encode", "a", "-f", "b")):
        assert real("tokens", *bad).exit_code == 2
    assert real("tokens", "count", "x", "-m", "none.gguf").exit_code == 3


def test_model(real: Any, bundled_model: Path) -> None:
    shown = real("model", "--tensors")
    assert shown.exit_code == 0
    for word in ("6 layers", "I2_S", "blk.0.attn_q.weight"):
        assert word in shown.stdout
    facts = json.loads(real("model", str(bundled_model), "--json").stdout)
    assert facts["config"]["n_layer"] == 6
    assert facts["bytes"] == bundled_model.stat().st_size
    assert sum(entry["bytes"] for entry in facts["types"].values()) < facts["bytes"]
    assert real("model", "none.gguf").exit_code == 3


def test_convert(real: Any, bundled_model: Path, tmp_path: Path) -> None:
    target = tmp_path / "new.gguf"
    done = real("convert", str(bundled_model), str(target), "--json")
    result = json.loads(done.stdout)
    assert done.exit_code == 0 and result["nbytes"] == target.stat().st_size and len(result["sha256"]) == 64
    assert real("convert", str(bundled_model), str(target)).exit_code == 2
    again = real("convert", str(bundled_model), str(target), "--force", "--embedding", "Q8_0")
    assert again.exit_code == 0 and "sha256" in again.stdout and target.stat().st_size < result["nbytes"]
    assert real("convert", str(tmp_path / "none"), str(target), "--force").exit_code == 3


def test_bench(real: Any) -> None:
    fast = ("bench", "-d", "16", "-n", "4", "-r", "1", "-t", "1")
    report = json.loads(real(*fast, "--json").stdout)
    assert report["rows"][0]["depth"] == 16 and report["rows"][0]["tg"] > 0
    assert "| prompt t/s |" in real(*fast).stdout
    assert real("bench", "-d", "many").exit_code == 2


# ---- the real engine -------------------------------------------------------------------------------------------------


def test_real_run(real: Any) -> None:
    done = real("run", "Hello!", "--temp", "0", "-n", "24", "--json")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["text"].strip() and answer["usage"]["completion"] <= 24
    plain = real("run", "Hello!", "--temp", "0", "-n", "24", "-t", "1", "--by", "sentence")
    assert plain.stdout == answer["text"].rstrip("\n") + "\n"
    seeded = [real("run", "Hello!", "-s", "5", "-n", "12").stdout for _ in range(2)]
    assert seeded[0] == seeded[1]
    raw = real("run", "--raw", "Once upon a time", "--temp", "0", "-n", "8", "--set", "ignore_eos=on", "-v")
    assert raw.exit_code == 0 and "answer 8 tok" in raw.stderr
