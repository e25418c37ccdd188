"""The command line from inside: options, help, documentation, completion, streams; and its way with the real engine.

What users may rely on is in test_contract.py, the chat on a terminal in test_chat_terminal.py.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import edge
from edge import records
from edge.cache.config import KVConfig
from edge.cli import options, output
from edge.cli.command import CONTEXT, Context, Escaped
from edge.cli.group import COMMANDS, MORE, cli
from edge.constrain import bounds
from edge.errors import ContextFull, UsageError, unbuilt
from edge.loading import load
from edge.registry.library import DEMO
from edge.sampling import PRESETS, Sampling
from edge.session.answer_options import AnswerOptions
from tests import fake_engine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Any:
    """invoke("run", "hello") with the scripted engine, in this process."""
    monkeypatch.setattr(edge, "load", fake_engine.load, raising=False)
    for name in list(os.environ):
        if name.startswith("BITNET_EDGE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BITNET_EDGE_MODEL", DEMO)  # run and chat ask the model

    def run(*args: str, stdin: str = "") -> Result:
        return CliRunner().invoke(cli, args, input=stdin)

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


def every_command() -> Iterator[tuple[str, click.Command]]:
    """(full name, command), groups included."""

    def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield name, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for child in command.list_commands(context):
                found = command.get_command(context, child)
                assert found
                if not found.hidden:
                    yield from walk(f"{name} {child}", found)

    return walk("bitnet-edge", cli)


ALL = dict(every_command())


# ---- help and documentation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_every_command_and_option_has_help(name: str) -> None:
    command = ALL[name]
    assert command.help and command.help[0].isupper()
    assert command.help == command.help.strip()  # given as help=, not taken from a docstring a frozen build may drop
    context = Context(command, info_name=name, **CONTEXT)
    for param in command.get_params(context):
        if isinstance(param, click.Option):
            assert param.help and param.help.strip().endswith((".", ").")), f"{name} {param.opts}"
            assert param.help[0].isupper(), f"{name} {param.opts}"
    shown = command.get_help(context)
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_messages_name_options_as_typed(invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library calls an argument is an option here; a file that is called like one stays a file."""
    assert "--repeat-last-n is -5" in invoke("run", "x", "--repeat-last-n", "-5").stderr
    assert "--min-p is 3" in invoke("run", "x", "--min-p", "3").stderr
    monkeypatch.chdir(tmp_path)
    Path("system").write_bytes(b"\xff")
    assert "bitnet-edge: system is not UTF-8" in invoke("run", "x", "-sysf", "system").stderr
    for typed in ("-n", "--n-predict", "--ctx-size"):
        said = invoke("run", "hi", typed).stderr
        assert f"'{typed}' requires an argument" in said and "(try 'bitnet-edge run --help')" in said, said


def test_what_is_not_built_is_named(tmp_path: Path) -> None:
    """A module that is missing, or older than its source; not where there is no source, or another error's cause."""
    folder = tmp_path / "tokens"
    folder.mkdir()
    source, module = folder / "sampler.pyx", folder / "sampler.cpython-311-x86_64-linux-gnu.so"
    source.touch()
    bug = AttributeError("no attribute 'sample'")
    assert unbuilt(bug, tmp_path) is None  # nothing built at all: the import says so
    module.touch()
    os.utime(source, (100, 100))
    assert unbuilt(bug, tmp_path) is None
    os.utime(module, (99, 99))
    assert "older than its source (sampler.pyx)" in str(unbuilt(bug, tmp_path))
    source.unlink()
    assert unbuilt(bug, tmp_path) is None
    missing = ModuleNotFoundError("No module named 'pyx.tokens.sampler'", name="pyx.tokens.sampler")
    assert "missing" in str(unbuilt(missing, tmp_path))
    assert unbuilt(ModuleNotFoundError("No module named 'jinja2'", name="jinja2"), tmp_path) is None


@pytest.mark.parametrize("name", ALL)
def test_every_command_and_option_is_documented(name: str) -> None:
    command = ALL[name]
    text = (ROOT / "docs" / "cli.md").read_text()
    assert f"# {name}\n" in text
    section = text[text.index(f"# {name}\n") :]
    section = section[: section.find("\n## ") if "\n## " in section else len(section)]
    for param in command.params:
        for option in [*param.opts, *param.secondary_opts] if isinstance(param, click.Option) else []:
            assert option in section, f"{name} {option}"


def test_documentation_is_what_the_program_says() -> None:
    spec = importlib.util.spec_from_file_location("make_cli", ROOT / "packaging" / "docs" / "make_cli.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "cli.md").read_text() == module.page(), "run: python packaging/docs/make_cli.py"


def test_help_lists_the_short_texts_of_the_commands(invoke: Any) -> None:
    whole, brief = invoke("--help-all").stdout, invoke("-h").stdout
    for name, (_, text) in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None and (command.name, command.short_help) == (name, text)
        shown = whole if name in MORE else brief
        assert f"  {name} " in shown and (f"  {name} " in brief) != (name in MORE)
        assert text.split(";")[0].split(",")[0] in shown
        assert invoke(name, "-h").exit_code == invoke(name, "--help").exit_code == 0


@pytest.mark.parametrize("name", ["run", "chat", "serve"])
def test_common_help_fits_one_screen(name: str, invoke: Any) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    # click leaves two of 100 columns free
    lines = command.get_help(Context(command, info_name=f"bitnet-edge {name}", terminal_width=98)).splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 100
    options = [line for line in lines if line.startswith("  -")]
    assert not any(line.startswith("    ") for line in lines)  # one line for each option
    assert len(options) >= 15 and sum(f"bitnet-edge {name} " in line for line in lines[1:]) >= 2  # examples
    headings = re.findall(r"^([A-Z][\w ]+):$", "\n".join(lines), re.MULTILINE)
    assert headings[-2:] == ["Output", "Examples"] and {"Model", "Prompt", "Context", "Answer"} < set(headings)
    whole = invoke(name, "--help-all").stdout
    headings = re.findall(r"^([A-Z][\w ]+):$", whole, re.MULTILINE)
    assert headings[: headings.index("Examples")][-2:] == ["Loading", "Experiments"]
    assert {line.split()[0].rstrip(",") for line in options} <= set(re.findall(r"-[-a-z]+", whole))


def test_help_is_coloured_on_terminals_only(invoke: Any) -> None:
    plain = invoke("run", "--help").stdout
    coloured = invoke("--color", "always", "run", "--help").stdout
    assert "\x1b" not in plain and "\x1b[1mModel:\x1b[0m" in coloured and "\x1b[36m-m, --model MODEL\x1b[0m" in coloured
    assert click.unstyle(coloured) == plain


def test_help_of_one_command_imports_no_other() -> None:
    probe = (
        "import sys; sys.argv = ['x', 'tokens', '-h']\nfrom edge.cli.main import main\ntry: main()\nfinally: "
        "print(sorted(m for m in sys.modules if m.startswith(('edge.', 'pyx.', 'prompt_toolkit'))))"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    for name in ("edge.engine", "edge.cli.chat", "edge.prompt.tokenizer", "edge.formats", "pyx", "prompt_toolkit"):
        assert f"'{name}'" not in loaded


@pytest.mark.usefixtures("bundled_model")
def test_run_imports_nothing_it_does_not_use(tmp_path: Path) -> None:
    """Each import is paid for at every start, on a small board with milliseconds."""
    unused = "pathlib json difflib edge.cache.parking edge.formats.sentencepiece_model edge.formats.huggingface"
    probe = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {os.path.dirname(os.path.dirname(click.__file__))!r}]\n"
        "sys.argv = ['x', 'run', '-n', '1', 'hello']\nfrom edge.cli.main import main\ntry: main()\n"
        f"finally: print(sorted(set(sys.modules) & set('{unused}'.split())))"
    )
    command = [sys.executable, "-S", "-c", probe]  # -S: a development install imports some of these itself
    remembering = {**os.environ, "BITNET_EDGE_NO_CACHE": "", "BITNET_EDGE_CACHE": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=remembering, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_defaults_in_help_are_those_of_sampling(invoke: Any) -> None:
    shown = " ".join(invoke("run", "--help-all").stdout.split())
    for field in ("temperature", "top-k", "top-p", "min-p", "repeat-penalty", "repeat-last-n"):
        value = getattr(Sampling(), field.replace("-", "_"))
        text = shown[re.search(rf"--{field} [A-Z] ", shown).start() :]
        assert re.search(rf"\(default:?( the model's own, else)? {value:g}\)", text[: text.index("--", 3)])


# ---- options ---------------------------------------------------------------------------------------------------------


def parsed(*args: str) -> dict[str, Any]:
    """What `run` makes of these options."""
    command = cli.get_command(click.Context(cli), "run")
    assert command is not None
    context = command.make_context("run", [*args, "x"])
    return context.params


def test_options_become_arguments_of_load() -> None:
    nothing = {"head": "auto", "weights": "auto", "i2s_layout": "auto", "remember": False}  # of tests
    assert options.load_arguments(parsed()) == nothing
    assert options.load_arguments(parsed("--sinks", "0")) == {**nothing, "sinks": 0}  # regression: it was dropped
    flags = parsed("-c", "512", "--kv", "f16", "--window", "64", "--sinks", "2", "--memory", "1500M", "-t", "3",
                   "--isa", "neon", "--head", "native", "--weights", "huge", "--template", "llama3",
                   "--i2s-layout", "64", "--activation", "silu", "--overflow", "stop", "--force-memory",
                   "--kv-policy", "quarter", "--kv-budget", "b.json",
                   "--kv-drop-layers", "0,3", "--kv-offload", "/d", "--kv-offload-size", "9M",
                   "-sys", "not pinned then")
    assert options.load_arguments(flags) == {
        "ctx": 512, "kv": "f16", "window": 64, "sinks": 2, "memory": "1500M", "force_memory": True, "threads": 3,
        "isa": "neon", "head": "native", "weights": "huge", "template": "llama3", "i2s_layout": "64",
        "activation": "silu", "overflow": "stop", "kv_policy": "quarter", "kv_budget": "b.json",
        "kv_drop_layers": "0,3", "kv_offload": "/d", "kv_offload_size": "9M", "remember": False,
    }


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
    assert options.kv_type(parsed("-ctk", "q8_0")) == "q8_0:q8_0"
    assert options.kv_type(parsed("-ctk", "f16", "-ctv", "q8_0")) == "f16:q8_0"
    with pytest.raises(UsageError):
        options.kv_type(parsed("--kv", "f16", "-ctk", "f16"))


def test_load_knows_every_argument(tmp_path: Path) -> None:
    grammar = tmp_path / "a.lark"
    grammar.write_text('start: "a"')

    everything = parsed("-c", "9", "--kv", "f16", "--force-memory", "--template", "x", "--isa", "x", "-t", "1",
                        "--activation", "silu", "--sinks", "1", "--window", "1", "--memory", "1", "--overflow", "stop",
                        "--kv-policy", "recent", "--kv-budget", "x", "--kv-drop-layers",
                        "0", "--kv-offload", "/d", "--kv-offload-size", "1", "--regex", "a", "--no-think",
                        "--no-tune") | {"parallel": 2}
    known = {*inspect.signature(load).parameters, *(each.name for each in dataclasses.fields(KVConfig))}
    set_by_commands = {"model", "progress", "on_plan", "system", "reserve", "spare_contexts", "exact", "kv_options"}
    assert set(options.load_arguments(everything)) == known - set_by_commands
    asked = set(options.ask_arguments(parsed("-n", "5", "--ignore-eos", "--think-budget", "9")))
    for form in (("--schema", "{}"), ("--regex", "a"), ("--choice", "a"), ("--grammar", str(grammar))):
        asked |= set(options.ask_arguments(parsed(*form)))
    known = {*inspect.signature(AnswerOptions).parameters, "schema", "regex", "choices", "grammar"}
    own = {"lead", "thinks", "think", "echo", "logprobs", "spec", "constraint", "tools", "form", "shared", "partial"}
    assert {*asked, "timeout", "on_prefill"} == known - own


def test_a_schema_from_a_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas, check = [], bounds.check_schema
    monkeypatch.setattr(bounds, "check_schema", lambda schema: (schemas.append(schema), check(schema)))
    file = tmp_path / "order.json"
    file.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    asked = AnswerOptions.of(options.ask_arguments(parsed("--schema", str(file))))
    assert asked.spec is not None and asked.spec.value('{"n": 3}') == {"n": 3}
    assert len(schemas) == 1


def test_presets_and_their_exceptions() -> None:
    assert options.sampling(parsed()) == Sampling()
    for name, preset in PRESETS.items():
        assert options.sampling(parsed("--preset", name)) == preset
    assert options.sampling(parsed("--preset", "creative", "--top-k", "3")).top_k == 3
    assert options.sampling(parsed("--greedy")).temperature == 0
    assert options.sampling(parsed("--temp", "0.25", "-s", "1")) == Sampling(temperature=0.25, seed=1)


def test_escapes_in_stop_strings() -> None:
    convert = Escaped().convert
    assert convert(r"a\nb\tc\\n", None, None) == "a\nb\tc\\n"
    assert convert("\\x", None, None) == "\\x"


def test_system_prompt(invoke: Any, tmp_path: Path) -> None:
    page = tmp_path / "museum.txt"
    page.write_bytes(b"\xef\xbb\xbfYou are a guide.\r\n")
    assert options.system_prompt({"system_file": str(page)}) == "You are a guide."
    usage = json.loads(invoke("run", "hello", "-sysf", str(page), "--json").stdout)["usage"]
    assert usage["prompt"] == 8 + len("You are a guide.")
    assert invoke("run", "hello", "-sysf", str(page), "-sys", "x").exit_code == 2
    assert invoke("run", "hello", "-sysf", str(tmp_path / "none")).exit_code == 2


def test_environment_names(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, command in ALL.items():
        for param in command.params:
            if isinstance(param, click.Option) and param.envvar:
                variable = str(param.envvar).removeprefix("BITNET_EDGE_")
                assert f"--{variable.lower().replace('_', '-')}" in param.opts, name
    monkeypatch.setenv("BITNET_EDGE_VERSION", "1")
    monkeypatch.setenv("BITNET_EDGE_HELP", "1")
    assert invoke("run", "hello").stdout == "You said: hello\n"


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_answer_holds_newlines_back(capsys: pytest.CaptureFixture[str]) -> None:
    answer = output.AnswerOutput(output.Output())
    seen = []
    for piece in ("a\n", "\n", "b", "\n\n", ""):
        answer.feed(piece)
        seen.append(capsys.readouterr().out)
    answer.end()
    answer.end()
    assert seen == ["a", "", "\n\nb", "", ""] and capsys.readouterr().out == "\n"


class Screen(io.StringIO):
    """A terminal that only remembers."""

    def isatty(self) -> bool:
        return True


def test_progress_shows_itself_late_and_only_on_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Screen())
    quick = output.Output().progress("loading")
    quick(1, 10)
    quick.close()
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
    monkeypatch.setattr(output.Progress, "DELAY", 0.0)
    slow = output.Output().progress("loading")
    slow(1, 10)
    slow.close()
    slow(5, 10)
    assert sys.stderr.getvalue() == "\rloading 10%\x1b[K\r\x1b[K"  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    pipe = output.Output().progress("loading")
    pipe(1, 10)
    pipe.close()
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
    monkeypatch.setattr(output.Progress, "EVERY", 0.0)  # work of minutes leaves lines in a log
    log = output.Output().progress("pulling", "bytes", log=True)
    log(1e9, 4e9)
    log.say("from elsewhere")
    log.close()
    assert sys.stderr.getvalue() == "pulling 25% of 4.0 GB\nfrom elsewhere\n"  # type: ignore[attr-defined]


def test_progress_shows_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Screen())
    clock = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: clock[0])
    progress = output.Output().progress("reading", "tokens")

    def shown(seconds: float, done: float, total: float = 1000) -> str:
        clock[0] += seconds
        before = len(sys.stderr.getvalue())  # type: ignore[attr-defined]
        progress(done, total)
        return sys.stderr.getvalue()[before:].strip("\r").removesuffix("\x1b[K")  # type: ignore[attr-defined]

    assert [shown(0.5, 0), shown(0.4, 50)] == ["", ""]  # not within the first second
    assert shown(1.6, 100) == "reading 10% of 1000 tokens, 50 tokens/s, 18 s left"
    assert shown(0.05, 101) == ""  # not more than ten times a second
    for _ in range(30):
        line = shown(1, 100)
    assert line.startswith("reading 10% of 1000 tokens, 3.1 tokens/s, ")  # nothing moves
    for done in range(110, 410, 10):
        line = shown(1, done)
    assert line == "reading 40% of 1000 tokens, 10 tokens/s, 60 s left"  # what is long ago does not count
    assert shown(1, 20, 60) == "reading 33% of 60 tokens"  # from the beginning again
    progress.next("writing", "bytes")
    assert sys.stderr.getvalue().endswith("\rwriting...\x1b[K")  # type: ignore[attr-defined]
    shown(1, 0, 2e9)
    assert shown(2, 5e8, 2e9) == "writing 25% of 2.0 GB, 250.0 MB/s, 6 s left"
    progress.close()
    assert sys.stderr.getvalue().endswith("\r\x1b[K")  # type: ignore[attr-defined]


def test_records() -> None:
    assert records.error_of(ContextFull("full")) == {"ev": "error", "code": "context_full", "message": "full"}
    assert records.error_of(ValueError("x"))["code"] == "internal"
    assert records.plain({"a": (1.00000049, {"b": None})}) == {"a": [1.0, {"b": None}]}


# ---- other commands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(invoke: Any, shell: str) -> None:
    done = invoke("completion", shell)
    assert done.exit_code == 0 and "_BITNET_EDGE_COMPLETE" in done.stdout and "bitnet-edge" in done.stdout
    if shell == "bash" and shutil.which("bash"):
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)
    assert invoke("completion", "tcsh").exit_code == 2
    assert invoke("completion").exit_code == 2 and "bash" in invoke("completion").stderr


def test_help_is_a_word_too(invoke: Any) -> None:
    assert invoke("help").stdout == invoke("--help").stdout
    assert invoke("help", "run").stdout == invoke("run", "--help").stdout
    assert invoke("help", "nonsense").exit_code == 2


def test_completion_completes() -> None:
    def completed(words: str, at: int) -> list[str]:
        env = {**os.environ, "_BITNET_EDGE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = subprocess.run([sys.executable, "-m", "edge"], cwd=ROOT, env=env, capture_output=True, text=True)
        return [line.split(",")[1] for line in done.stdout.splitlines()]

    assert completed("bitnet-edge to", 1) == ["tokens"]
    assert completed("bitnet-edge run --repeat", 2) == ["--repeat-penalty", "--repeat-last-n"]
    assert completed("bitnet-edge run --preset c", 3) == ["creative"]


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


def test_doctor(real: Any) -> None:
    done = real("doctor")
    assert done.exit_code == 0 and "instructions" in done.stdout
    assert json.loads(real("doctor", "--json", "--no-selftest").stdout)["ok"] is True


# ---- the real engine -------------------------------------------------------------------------------------------------


def test_real_run(real: Any) -> None:
    done = real("run", "Hello!", "--greedy", "-n", "24", "--json")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["text"].strip() and answer["usage"]["completion"] <= 24
    plain = real("run", "Hello!", "--greedy", "-n", "24", "-t", "1", "--by", "sentence")
    assert plain.stdout == answer["text"].rstrip("\n") + "\n"
    seeded = [real("run", "Hello!", "-s", "5", "-n", "12").stdout for _ in range(2)]
    assert seeded[0] == seeded[1]
    raw = real("run", "--raw", "Once upon a time", "--greedy", "-n", "8", "--ignore-eos", "--stats")
    assert raw.exit_code == 0 and "answer 8 tok" in raw.stderr


def test_real_interrupt(bundled_model: Path) -> None:
    command = [sys.executable, "-m", "edge", "run", "Tell me more", "-n", "100000", "--ignore-eos"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130 and process.stdout.read().endswith(b"\n")
    process.stdout.close()


def test_real_chat(real: Any) -> None:
    done = real("chat", "--greedy", "-n", "16", "--stats", stdin="Hello!\nThanks!\n")
    *_, model, first, second = done.stderr.splitlines()
    assert model.startswith("demo (5.8 M parameters)") and "2048 tokens" in model and " MB of memory" in model
    assert done.exit_code == 0 and "(0 cached)" in first and "(0 cached)" not in second
