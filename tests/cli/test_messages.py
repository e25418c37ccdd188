"""What people type by mistake or out of habit: one line that names what is wrong and what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import edge
from edge.cli.batch import summary_line
from edge.cli.group import COMMANDS, NEIGHBOURS, NOT_HERE
from edge.errors import UsageError
from edge.formats import open_checkpoint
from edge.registry.library import demo
from edge.tools.batch import Summary
from tests.services import REAL, bitnet_edge, environment
from tests.terminal import Terminal


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["run", "-ngl", "99", "hi"], 2, "uses no GPU"),
    (["run", "--n-gpu-layers=99", "hi"], 2, "uses no GPU"),
    (["run", "-ngl99", "hi"], 2, "-ngl99 is not supported: bitnet-edge uses no GPU"),
    (["-ngl", "99"], 2, "-ngl is not supported: bitnet-edge uses no GPU"),
    (["-q", "-ngl", "99"], 2, "-ngl is not supported: bitnet-edge uses no GPU"),
    (["llama-cli"], 2, "use bitnet-edge run"),
    (["main"], 2, "use bitnet-edge run"),
    (["interactive"], 2, "use bitnet-edge chat"),
    (["llama-server"], 2, "use bitnet-edge serve"),
    (["stop", "x"], 2, "nothing runs in the background; Ctrl-C or SIGTERM ends serve"),
    (["cp", "a", "b"], 2, "a model is a file: copy it; bitnet-edge list --json shows its path"),
    (["push", "x"], 2, "bitnet-edge does not upload models"),
    (["update"], 2, "bitnet-edge pull MODEL --force downloads a model again"),
    (["download", "x"], 2, "use bitnet-edge pull"),
    (["quantize", "x"], 2, "use bitnet-edge convert"),
    (["fit", "falcon-3"], 3, "did you mean falcon3-"),
    (["fit", "zzzz"], 3, "bitnet-edge list --known shows those"),
    (["fit", ""], 3, "'' is neither a file nor the name of a pulled or a published model; bitnet-edge list"),
    (["fit", "-m", "falcon-3"], 3, "did you mean falcon3-"),
    (["fit", "-m", "2b-4t", "2b-4t"], 2, "MODEL and -m cannot be used together"),
    (["chat", "--modle", "x"], 2, "chat has no option --modle; did you mean --model?"),
    (["run", "--port", "1"], 2, "run has no option --port; it is an option of serve, pack ("),
    (["run", "--nosuch", "x"], 2, "run has no option --nosuch ("),
    (["--nosuch"], 2, "bitnet-edge has no option --nosuch ("),
    (["--ctx", "512", "run"], 2, "bitnet-edge has no option --ctx; it is an option of run, chat, "),
    (["tokens", "--ctx", "512"], 2, "tokens has no option --ctx; it is an option of run, chat, "),
    (["serve", "--socket", "/nowhere/at/all/x"], 2, "folder /nowhere/at/all does not exist"),
    (["-p", "hi"], 2, "bitnet-edge run -p"),
    (["runn"], 2, "did you mean 'run'?"),
    (["tokens"], 2, "missing command: "),
    (["fit", "--ctx", "0"], 2, "0 is not in the range x>=1."),
    (["run", "-m", "nosuch", "hi"], 3, "'nosuch' is neither a file nor a pulled model; bitnet-edge list shows"),
    (["run", "--temp", "hot", "hi"], 2, "bitnet-edge: invalid value for '--temp' / '--temperature': 'hot' is not a"),
    (["run", "-c", "10k", "hi"], 2, "'10k' is not a valid whole number; write its digits, such as 10240"),
    (["serve", "--port", "70000"], 2, "70000 is not in the range 0<=x<=65535."),
    (["bench", "--repeats", "0"], 2, "0 is not in the range x>=1."),
    (["convert", "a", "b", "c"], 2, "got unexpected extra argument (c)"),
    (["convert", "a"], 2, "bitnet-edge: missing argument 'OUT'."),
    (["default", "some/model.gguf"], 3, "a file has no name here; set BITNET_EDGE_MODEL=FILE to use one without -m"),
    (["run", "hi", "--choice", ""], 2, "--choice must have one text or more, each of at least one character"),
    (["pull", "demo"], 2, "demo is inside the program and needs no download; use it with -m demo"),
    (["pack", "a"], 2, "bitnet-edge: missing option '-o' / '--output'."),
    (["run", "hi", "--temp", "100"], 2, "bitnet-edge: --temperature is 100.0; it must be a number from 0 to 5"),
    (["run", "hi", "--temp"], 2, "bitnet-edge: option '--temp' requires an argument."),
    (["serve", "--port", "abc"], 2, "'abc' is not a valid whole number"),
    (["run", "--timeout", "soon", "hi"], 2, "'soon' is not a valid number of seconds"),
])
def test_mistakes_are_refused_with_what_to_do(arguments: list[str], code: int, said: str) -> None:
    done = bitnet_edge(*arguments)
    assert (done.returncode, done.stdout) == (code, "") and said in done.stderr, done
    assert done.stderr.count("\n") == 1


def test_weights_alone(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    done = bitnet_edge("run", "-m", str(tmp_path / "model.safetensors"), "hi")
    assert done.returncode == 4 and "name the folder that holds it" in done.stderr


def test_the_commands_of_others_lead_to_ours() -> None:
    assert {target.split()[0] for target in NEIGHBOURS.values()} <= set(COMMANDS) | {"serve"}
    assert not {*NEIGHBOURS, *NOT_HERE} & set(COMMANDS) and not set(NEIGHBOURS) & set(NOT_HERE)


@pytest.mark.parametrize(("command", "memory", "code", "said"), [
    ("run", "60", 2, "--memory is 60, in bytes; did you mean 60M?"),
    ("serve", "60", 2, "--memory is 60, in bytes; did you mean 60M?"),
    ("run", "60.5", 2, "--memory is 60.5, in bytes; did you mean 60.5M?"),
    ("run", "1.5", 2, "--memory is 1.5, in bytes; did you mean 1.5G?"),
    ("run", "700000", 2, "--memory is 700000, in bytes; write it like 1500M, 1.5G or 800MiB"),
    ("run", "1", 2, "--memory is 1, in bytes; did you mean 1G?"),
    ("run", "60K", 5, "the limit is 60K; did you mean 60M?"),
])
def test_a_limit_without_a_unit_names_the_likely_one(command: str, memory: str, code: int, said: str) -> None:
    done = bitnet_edge(command, "--memory", memory, *(["hi"] if command == "run" else ["--port", "0"]))
    assert done.returncode == code and done.stderr.endswith(f"{said}\n") and done.stderr.count("\n") == 1, done.stderr


def test_a_limit_without_its_unit_in_python() -> None:
    with pytest.raises(UsageError, match=r"memory is 60, in bytes; did you mean 60M\?"):
        edge.load(memory=60)


def test_a_session_made_with_other_options(tmp_path: Path) -> None:
    file = ("--session", str(tmp_path / "talk.bes"), "-t", "1", "-n", "2")
    assert bitnet_edge("run", *file, "--kv", "f16", "--ctx", "512", "hi").returncode == 0
    assert bitnet_edge("run", *file, "hi").returncode == 0  # as it was made
    done = bitnet_edge("run", *file, "--kv", "int8", "--ctx", "256", "hi")
    assert done.returncode == 4 and done.stderr.count("\n") == 1
    assert "give --kv f16 --ctx 512, as it was made with, or another file" in done.stderr
    assert bitnet_edge("run", *file, "--kv", "f16", "--ctx", "512", "hi").returncode == 0


USUAL = {"--kv": "int8", "--ctx": "512"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a session that was made with the usual options."""
    path = tmp_path_factory.mktemp("plain") / "talk.bes"
    usual = (word for pair in USUAL.items() for word in pair)
    assert bitnet_edge("run", "--session", str(path), "-t", "1", "-n", "2", *usual, "hi").returncode == 0
    return path.read_bytes()


@pytest.mark.parametrize(
    ("option", "give", "leave"),
    [
        (("--overflow", "stop"), "--overflow stop", "--overflow stop"),
        (("--window", "256"), "--window 256", "--window"),
        (("--sinks", "8"), None, "--sinks 4"),  # a session that sets none has the number of its file
        (("--kv-policy", "quarter"), "--kv-policy quarter", "--kv-policy"),
        (("--kv-drop-layers", "1"), "--kv-drop-layers 1", "--kv-drop-layers"),
        (("--kv-budget", "BUDGET"), "--kv-budget FILE", "--kv-budget"),
        (("--kv", "f16"), "--kv f16 --ctx 512", "--kv int8 --ctx 512"),
        (("--ctx", "256"), "--kv int8 --ctx 256", "--kv int8 --ctx 512"),
    ],
)
def test_the_option_by_which_a_session_differs_is_named(
    tmp_path: Path, plain: bytes, option: tuple[str, str], give: str | None, leave: str
) -> None:
    """A file made with the option, and one made without it: the message leads to exit code 0 either way."""
    budget = tmp_path / "budget.json"
    config = open_checkpoint(demo()).config
    keep = [[64] * config.n_kv_head for _ in range(config.n_layer)]
    budget.write_text(json.dumps(
        {"version": 1, "n_layer": config.n_layer, "n_kv_head": config.n_kv_head, "sinks": 4, "keep": keep}))

    def ask(name: str, options: dict[str, str]) -> subprocess.CompletedProcess[str]:
        words = [str(budget) if word in ("BUDGET", "FILE") else word for pair in options.items() for word in pair]
        return bitnet_edge("run", "--session", str(tmp_path / name), "-t", "1", "-n", "2", *words, "hi")

    def follow(message: str, options: dict[str, str]) -> dict[str, str]:
        given = re.search(r"give (--.*?)(?: without|, as)", message)
        left = re.findall(r"--[a-z-]+", *re.findall(r" without (.*?)[,;]", message) or [""])
        words = given[1].split() if given else []
        found = {**options, **dict(zip(words[::2], words[1::2]))}
        return {name: value for name, value in found.items() if name not in left}

    special = {**USUAL, option[0]: option[1]}
    (tmp_path / "plain").write_bytes(plain)
    assert ask("special", special).returncode == 0
    for name, options, named in (("special", USUAL, give), ("plain", special, leave)):
        done = ask(name, options)
        if named is None:
            assert done.returncode == 0, done.stderr
            continue
        assert done.returncode == 4 and done.stderr.count("\n") == 1
        assert f" {named}" in done.stderr
        again = ask(name, follow(done.stderr, options))
        assert again.returncode == 0, done.stderr + again.stderr


def test_settings_and_system_prompts_are_confirmed() -> None:
    lines = "/system Be kind.\nhi\n/system Be short.\n/set temp 0.5\n/set stats on\n/set seed 7\n/set stop none\n"
    done = bitnet_edge("chat", "-n", "2", "-t", "1", given=lines)
    assert done.returncode == 0, done.stderr
    model, *said = done.stderr.splitlines()
    assert model.startswith("demo (") and said == [
        "(used from the next message on)", "(used from the next message on; what was said stays, /clear starts anew)",
        "(temperature is now 0.5)", "(stats is now on)", "(seed is now 7)", "(stop is now none)"]


def test_quotes_of_a_shell_and_what_removes(tmp_path: Path) -> None:
    file = str(tmp_path / "my talk.bes")
    lines = f'/system Be kind.\n/system ""\n/system\n/set stop x\n/set stop ""\n/save "{file}"\n/save {file}\n'
    done = bitnet_edge("chat", "-m", "demo", "-t", "1", given=lines)
    said = done.stderr.splitlines()[1:]
    assert done.stdout == "(no system prompt)\n" and said[1].startswith("(no system prompt from")
    assert said[3] == "(stop is now none)" and os.listdir(tmp_path) == ["my talk.bes"]
    assert f"--session '{file}' continues" in said[4] and "in place of" not in said[4] and "in place of" in said[5]


def test_settings_name_the_values_of_their_key() -> None:
    lines = "/set max_tokens -1\n/set stats maybe\n/set nosuch 1\n"
    done = bitnet_edge("chat", "-n", "2", "-t", "1", given=lines)
    said = done.stderr.splitlines()[1:]  # the first names the model
    assert done.returncode == 2 and said[:2] == [
        "bitnet-edge: /set max_tokens -1: it must be a whole number from 1",
        "bitnet-edge: /set stats maybe: it must be on or off",
    ]
    assert said[2].startswith("bitnet-edge: /set nosuch 1: unknown key; keys are ") and len(said) == 3


def test_a_key_alone_shows_its_value_and_help_its_command() -> None:
    lines = "\n".join(("/set temp 0.5", "/set temp", "/set max_tokens", "/set seed", "/set seed 7", "/set seed",
                       "/set stop", "/help set", "/help /bye"))
    done = bitnet_edge("chat", "-n", "2", "-t", "1", given=lines)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert [line.split() for line in shown[:5]] == [
        ["temperature", "0.5"], ["max_tokens", "2"], ["seed", "random"], ["seed", "7"], ["stop", "none"]]
    assert [line.split()[0] for line in shown[5:]] == ["/set", "/exit,"]


def test_a_refused_variable_is_named() -> None:
    for name, value in (("BITNET_EDGE_CTX", "many"), ("BITNET_EDGE_MIN_P", "2"), ("BITNET_EDGE_MEMORY", "lots")):
        done = bitnet_edge("run", "hi", "-n", "1", **{name: value})
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and name in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("name", "meant"), [("BITNET_EDGE_CTXX", "BITNET_EDGE_CTX"), ("BITNET_EDGE_PORT", ""),
                        ("BITNET_EDGE_MODELS", "")]
)
def test_a_misspelt_variable_is_named(name: str, meant: str) -> None:
    """Those of other commands, and those of no option, are no mistakes."""
    done = bitnet_edge("run", "hi", "-n", "1", "-m", "demo", **{name: "7"})
    assert done.returncode == 0
    if meant:
        assert done.stderr.count("\n") == 1 and name in done.stderr and f"{meant}?" in done.stderr
    else:
        assert done.stderr == ""


def test_lines_on_a_terminal_break_between_words() -> None:
    """Remarks, errors and tables, whatever its width."""
    for arguments in (("list", "--known"), ("fit", "bonsai-4b"), ("doctor", "--no-selftest"),
                      ("run", "hi", "-n", "1", "-m", "demo", "--kv", "q3")):
        with Terminal([*REAL, *arguments], {**environment(), "NO_COLOR": "1"}, columns=60) as t:
            t.wait()
            lines = [line for line in t.screen.splitlines() if " " in line.strip()]  # a long path is one word
            assert lines and max(map(len, lines)) <= 60, t.screen


def test_progress_is_no_wider_than_the_terminal() -> None:
    program = ("from edge.cli.output import Output, Progress; Progress.DELAY = 0\n"
               "with Output().progress('looking for models that fit') as progress: progress(1, 2)")
    with Terminal([sys.executable, "-c", program], {**environment(), "TERM": "xterm"}, columns=24) as t:
        t.wait()
        assert "\rlooking for models that\x1b[K" in t.screen, t.screen


def test_an_unknown_command_lists_those_of_help() -> None:
    """With rm, but no mistyped command suggests it: it deletes."""
    said = bitnet_edge("frobnicate").stderr
    shown = bitnet_edge("--help").stdout.partition("Commands:")[2].partition("Options:")[0]
    names = re.findall(r"(?m)^  (\w+)  ", shown)
    assert "rm" in names and ", ".join(names) + "." in said
    for typo in ("rmm", "rmv", "r", "rn"):
        assert "'rm'" not in bitnet_edge(typo).stderr


def test_a_default_that_was_not_pulled_says_how_to_get_it(tmp_path: Path) -> None:
    done = bitnet_edge("default", "bonsai-4b", BITNET_EDGE_MODELS=str(tmp_path))
    assert done.returncode == 3 and "bitnet-edge pull bonsai-4b" in done.stderr


def test_a_batch_that_had_nothing_to_do_has_no_rate() -> None:
    assert "tokens/s" not in summary_line(Summary(total=3, before=3, answered=0, failed=0, tokens=0, seconds=0.5))
    done = Summary(total=3, before=0, answered=3, failed=0, tokens=8, seconds=2.0)
    assert summary_line(done).endswith(", 4.0 tokens/s")
