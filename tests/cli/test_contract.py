"""docs/contract.md, line by line: one test of the same name for each.

All run the program as a process, most of them with the scripted engine of tests/fake_engine.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from edge.errors import EXIT_CODES
from pyx import machine
from tests import elf
from tests.fake_engine import reply
from tests.services import FAKE, REAL, ROOT, on_a_terminal
from tests.terminal import CTRL_C, CTRL_D, Screen, Terminal

STATS = re.compile(
    r"prompt \d+ tok \(\d+ cached\) \d+\.\d t/s \| answer \d+ tok \d+\.\d t/s \| first \d+\.\d s"
    r" \| kv \d+/[\w:]+ [\d.]+ (MB|GB) \| rss [\d.]+ (MB|GB) of [\d.]+ (MB|GB) planned"
)

Done = subprocess.CompletedProcess


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A plain environment; state goes to a folder of the test's own."""
    return on_a_terminal(tmp_path / "state")


@pytest.fixture
def call(env: dict[str, str]) -> Any:
    """Run to the end: call("run", "hello", stdin="", delay=0.0) -> CompletedProcess with text."""

    def run(*args: str, stdin: str | bytes = "", delay: float = 0, command: Sequence[str] = FAKE, **extra: str) -> Done:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run([*command, *args], input=data, capture_output=True, timeout=300,
                              env={**env, "FAKE_DELAY": str(delay), **extra})
        return Done(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def start(env: dict[str, str]) -> Any:
    """Start and leave running: start("run", "long", delay=0.05) -> Popen with pipes."""
    running = []

    def run(*args: str, delay: float = 0, **extra: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*FAKE, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env={**env, "FAKE_DELAY": str(delay), **extra},
        )
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


@pytest.fixture
def terminal(env: dict[str, str]) -> Any:
    """Start on a terminal: with terminal("chat") as t: ..."""

    def run(*args: str, delay: float = 0, columns: int = 100, **extra: str) -> Terminal:
        return Terminal([*FAKE, *args], {**env, "FAKE_DELAY": str(delay), **extra}, columns)

    return run


def wait_for_steps(path: Path, n: int) -> None:
    """Wait until the fake model has made ``n`` steps."""
    while not path.exists() or path.stat().st_size < n:
        time.sleep(0.01)


def waiting_bytes(pipe: int) -> int:
    """Bytes in a pipe that nobody has read yet."""
    held = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
    return int.from_bytes(held, sys.byteorder)


def events_of(done: Done) -> list[dict[str, Any]]:
    """JSON lines on standard output."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def begin_answer(process: subprocess.Popen[bytes]) -> None:
    """Close standard input and wait for the first bytes of the answer."""
    assert process.stdin and process.stdout
    process.stdin.close()
    assert select.select([process.stdout], [], [], 300)[0]
    assert process.stdout.read(1) == b"a"  # of "all work and no play"


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_answer_ends_with_one_newline(call: Any) -> None:
    for question in ("hello", "lines", "nothing"):
        assert call("run", question).stdout == reply(question).rstrip("\n") + "\n"


def test_nothing_is_printed_without_an_answer(call: Any) -> None:
    done = call("run", "-n", "0", "hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = call("chat", "-n", "0", stdin=b"hello\n")
    assert (done.returncode, done.stdout) == (2, "") and "--max-tokens is 0; a chat is for answers" in done.stderr
    done = call("chat", "--jsonl", "-n", "0", stdin=b'{"op":"chat","messages":[{"role":"user","content":"hello"}]}\n')
    assert json.loads(done.stdout.splitlines()[-1])["finish_reason"] == "length" and done.stderr == ""


def test_nothing_but_the_answer(call: Any) -> None:
    done = call("run", "hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "You said: hello\n", "")


def test_streamed(start: Any) -> None:
    process = start("run", "long", delay=0.02)
    begin_answer(process)
    assert process.poll() is None  # 7800 tokens of 20 ms are far from written


def test_by_sentence(call: Any) -> None:
    pieces = {}
    for by in ("token", "word", "clause", "sentence", "all"):
        assert call("run", "two", "--by", by).stdout == reply("two") + "\n"
        events = events_of(call("chat", "--jsonl", "--by", by, stdin=json.dumps(chat("two"))))
        pieces[by] = [event["text"] for event in events if event["ev"] == "text"]
        assert "".join(pieces[by]) == reply("two")
    assert pieces["sentence"] == ["First sentence. ", "Second one."]
    assert len(pieces["all"]) == 1 and len(pieces["word"]) == 4 and len(pieces["token"]) == len(reply("two"))


def test_words_are_whole(call: Any, terminal: Any) -> None:
    text = " ".join(f"word{n:03}" for n in range(60))
    script = {"FAKE_SCRIPT": json.dumps([["code", "```\n" + text + "\n```"], ["text", text]])}
    for args in (("run", "text"), ("chat", "-q")):
        with terminal(*args, columns=37, **script) as t:
            if args[0] == "chat":
                t.expect("> ")
                t.line("text")
                shown = t.expect("word059\r\n").rpartition("2004l")[2]
            else:
                shown = t.expect("word059\r\n")
        screen = Screen(37)
        screen.write(shown.replace("\r\n", "\n"))
        words = " ".join(screen.shown).split()
        assert words[-60:] == text.split(), "no word is broken"
        assert screen.copied.rstrip("\n").split("\n")[-1].split() == text.split(), "it is one line"
    with terminal("run", "code", columns=37, **script) as t:
        assert text + "\r\n```" in t.expect("```\r\n$")
    with terminal("run", "text", columns=37, TERM="dumb", **script) as t:
        assert text in t.expect("word059")
    assert call("run", "text", **script).stdout == text + "\n"


def test_terminal_is_protected(call: Any, terminal: Any) -> None:
    assert call("run", "escape").stdout == reply("escape") + "\n"
    with terminal("run", "escape") as t:
        assert t.wait() == 0
        assert "\x1b[31m" not in t.screen and "\x07" not in t.screen and "red" in t.screen


def test_colour_only_on_terminals(call: Any, terminal: Any) -> None:
    def coloured(done: Done) -> bool:
        return "\x1b[" in done.stderr

    bad = ("run", "--temp", "-1", "x")
    assert not coloured(call(*bad))
    assert coloured(call(*bad, CLICOLOR_FORCE="1"))
    assert not coloured(call(*bad, CLICOLOR_FORCE="1", NO_COLOR="1"))
    for extra, expected in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with terminal(*bad, **extra) as t:
            assert t.wait() == 2
            assert ("\x1b[" in t.screen) is expected


def test_one_line_errors(call: Any) -> None:
    for args in (("run", "--temp", "-1", "x"), ("run", "-q", "x", "-m", "none.gguf"), ("rum",), ("run", "--rubbish")):
        done = call(*args)
        assert done.returncode and done.stdout == ""
        assert done.stderr.startswith("bitnet-edge: ") and done.stderr.count("\n") == 1
    said = call("run", "-v", "x", "-m", "nowhere.gguf").stderr  # an expected failure: where it was found helps nobody
    assert said == call("run", "x", "-m", "nowhere.gguf").stderr and said.count("\n") == 1


def test_quiet_or_verbose(call: Any) -> None:
    assert call("-v", "run", "-q", "hello").stderr == "" and "plan: " in call("-q", "run", "-v", "hello").stderr
    assert "plan: " in call("run", "-v", "hello", BITNET_EDGE_QUIET="1").stderr
    assert call("run", "-q", "hello", BITNET_EDGE_VERBOSE="1").stderr == ""


def test_not_built(call: Any) -> None:
    for module in ("pyx.machine", "pyx.tokens"):
        program = f"import sys; sys.modules['{module}'] = None; from edge.cli.main import main; main()"
        done = call("run", "hello", "-m", "demo", command=[sys.executable, "-c", program])
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "the compiled part" in done.stderr and "setup.py build_ext --inplace" in done.stderr
        asked = ("run", "hello", "-m", "demo", "--json")
        failed = json.loads(call(*asked, command=[sys.executable, "-c", program]).stdout)["error"]
        assert failed["code"] == "not_built" and f"bitnet-edge: {failed['message']}\n" == done.stderr
        program = f"import sys; sys.modules['{module}'] = None; import edge; edge.load()"
        done = call(command=[sys.executable, "-c", program])
        assert done.stderr.splitlines()[-1].startswith("edge.errors.NotBuilt: the compiled part"), done.stderr


def test_bugs_ask_for_a_report(call: Any) -> None:
    done = call("run", "crash")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "report" in done.stderr and "-v" in done.stderr
    assert "Traceback" in call("run", "crash", "-v").stderr


def test_utf8_whatever_the_locale(call: Any) -> None:
    latin = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    for environment in ({}, latin):
        assert call("run", "snow", **environment).stdout == reply("snow") + "\n"


# ---- input -----------------------------------------------------------------------------------------------------------


def test_prompt_sources(call: Any, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("from a file\n")

    def asked(*args: str, stdin: str = "") -> str:
        done = call("run", *args, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout.removeprefix("You said: ").removesuffix("\n")

    assert asked("a") == "a"
    assert asked("-p", "b") == "b"
    assert asked("-f", str(notes)) == "from a file"
    assert asked("a", "-f", str(notes), stdin="piped\n") == "a\n\nfrom a file\n\npiped"
    assert asked("a", stdin="piped\r\nrows\r\n") == "a\n\npiped\nrows"
    assert asked("-", stdin="piped\n") == "piped"
    assert asked("-f", "-", stdin="piped\n") == "piped"
    assert asked("-f", str(notes), "-f", "-", "-f", str(notes), stdin="x") == "from a file\n\nfrom a file\n\nx"
    assert asked(stdin="piped") == "piped"
    assert call("run", "a", "-p", "b").returncode == 2
    unquoted = call("run", "what", "is", "it")
    assert unquoted.returncode == 2 and "quotes" in unquoted.stderr


def test_stdin_may_be_missing(env: dict[str, str]) -> None:
    for redirection in ("<&-", "</dev/null"):
        done = subprocess.run(f"{' '.join(FAKE)} run hello {redirection}", shell=True, env=env, capture_output=True,
                              text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "You said: hello\n", "")


def test_never_asks(call: Any, terminal: Any) -> None:
    done = call("run")
    assert done.returncode == 2 and "prompt" in done.stderr
    with terminal("run") as t:
        assert t.wait() == 2


def test_not_text(call: Any, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    done = call("run", "-f", str(tmp_path / "latin.txt"))
    assert done.returncode == 2 and "latin.txt" in done.stderr and "UTF-8" in done.stderr
    done = call("run", "x", stdin=b"caf\xe9")
    assert done.returncode == 2 and "standard input" in done.stderr
    done = call("run", stdin=b"a\0b")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1 and "byte 1 is NUL" in done.stderr
    bytes_argument = [*(part.encode() for part in FAKE), b"run", b"caf\xe9"]
    raw = subprocess.run(bytes_argument, input=b"", capture_output=True, env=env)
    assert raw.returncode == 2 and b"UTF-8" in raw.stderr


def test_environment(call: Any) -> None:
    assert call("run", "hello", BITNET_EDGE_MAX_TOKENS="3").stdout == "You\n"
    assert call("run", "hello", "-n", "8", BITNET_EDGE_MAX_TOKENS="3").stdout == "You said\n"
    assert call("run", "hello", BITNET_EDGE_KV="f16", BITNET_EDGE_JSON="1").stdout.count('"f16"') == 1
    assert call("run", "hello", BITNET_EDGE_STOP=" ", BITNET_EDGE_PROMPT="x").stdout == "You said: hello\n"
    form = call("run", "hello", "--regex", "[0-9]{3}", command=REAL, BITNET_EDGE_GRAMMAR="/no/such")
    assert form.stdout.strip().isdecimal(), form.stderr


# ---- which model -----------------------------------------------------------------------------------------------------


def test_packed_program(call: Any, bundled_model: Path, tmp_path: Path) -> None:
    """A stand-in for the frozen program, which tests/tools/test_pack.py packs."""
    base, guide = tmp_path / "program", tmp_path / "guide"
    base.write_bytes(elf.made({"pydata": elf.archive()}))
    start = ("import sys; sys.frozen = True; sys.executable = sys.argv.pop(1); "
             "from edge.cli.main import main; main()")
    inside = [sys.executable, "-c", start, str(guide)]
    made = call("pack", "demo", "-o", str(guide), "--program", str(base), "--", "chat", "--temp", "0", "-n", "4", "-c",
                "128", command=REAL)
    assert made.returncode == 0 and made.stderr == ""
    question = "Two green teas, please."
    without = {"BITNET_EDGE_MODEL": ""}

    def answers(*options: str, **env: str) -> str:
        done = call("run", question, *options, command=inside, **{**without, **env})
        assert done.returncode == 0 and done.stderr == ""
        return str(done.stdout)

    chatted = call(stdin=f"{question}\n", command=inside, **without)
    assert chatted.returncode == 0 and chatted.stdout.strip() == answers().strip()
    longer = answers("-n", "8")
    assert longer.startswith(answers().strip()) and longer != answers()
    assert answers(BITNET_EDGE_MAX_TOKENS="8") == longer
    assert answers("--temp", "0.5", "--seed", "1")
    assert json.loads(call("doctor", "--json", command=inside).stdout)["selftest"]["packed"].startswith("ok")
    whole = bytearray(guide.read_bytes())
    for cut in (base.stat().st_size, len(whole) - 1):
        guide.write_bytes(whole[:cut])
        done = call("run", question, command=inside, **without)
        assert done.returncode == 4 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    whole[len(whole) // 2] ^= 1
    guide.write_bytes(whole)
    done = call("doctor", "--json", command=inside)
    assert done.returncode == 1 and json.loads(done.stdout)["selftest"]["packed"].startswith("wrong")


def test_which_model(call: Any, bundled_model: Path, tmp_path: Path) -> None:
    """-m, then the default, then the only pulled model, then the demo model, whatever other options are given."""
    models = tmp_path / "models"
    few = ("--temp", "0", "-c", "128", "-t", "1", "-n", "4")
    without = {"BITNET_EDGE_MODEL": "", "BITNET_EDGE_MODELS": str(models)}

    def answers(*more: str, **env: str) -> tuple[str, str]:
        """(the model that answers, standard error)"""
        done = call("run", "two green teas", "--json", *few, *more, command=REAL, **{**without, **env})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["model"], done.stderr

    def shown() -> str:
        """The model that a person sees."""
        with Terminal([*REAL, "run", "tea", "-n", "1"], on_a_terminal(tmp_path, **without)) as t:
            return t.expect(r"model \w+").split()[-1]

    def default(*name: str) -> tuple[int, str]:
        done = call("default", *name, command=REAL, **without)
        return done.returncode, done.stdout

    def pull(name: str) -> None:
        """As pull leaves a model, under a name of its own."""
        folder = models / name
        folder.mkdir(parents=True)
        target = folder / "m.gguf"
        assert call("convert", "demo", str(target), command=REAL).returncode == 0
        record = {"source": "hf:a/b", "revision": "main", "nbytes": 1, "sha256": None, "licence": "MIT",
                  "converted": False, "file": "m.gguf"}
        (folder / "pull.json").write_text(json.dumps(record))

    name, said = answers()
    assert re.fullmatch(r"bitnet-edge: (no model was chosen: the demo model answers .*; for a real one: )"
                        r"bitnet-edge pull\n", said), said
    assert answers("-q") == answers("-m", "demo") == (name, "") and answers("--raw") == (name, said)
    assert default() == (0, "demo\n") and default("one")[0] == 3
    pull("one")
    assert default() == (0, "one\n") and answers()[1] == "" and shown() == "one"
    pull("two")
    assert default() == (0, "demo\n") and answers()[1] == said
    assert default("TWO") == (0, "two\n") and answers()[1] == "" and shown() == "two"
    assert answers(BITNET_EDGE_MODEL="one")[1] == "" and answers("-m", "one")[1] == ""
    # chat names it once more with its size, context and memory, whether it was named or not; -q says nothing
    named = rf"{name} \(5\.8 M parameters\)(, for tests)?: context of 128 tokens.* MB of memory.*\n"
    for more, lines in (((), 1), (("-m", "one"), 1), (("-m", "demo"), 1), (("-q",), 0)):
        done = call("chat", *few, *more, stdin="", command=REAL, **without)
        assert done.returncode == 0 and re.fullmatch(f"({named}){{{lines}}}", done.stderr), done.stderr
        assert ("for tests" in done.stderr) == ("demo" in more)
    assert call("rm", "two", command=REAL, **without).returncode == 0
    assert default() == (0, "one\n")
    (models / ".default").write_text("gone\n")
    done = call("run", "hi", *few, command=REAL, **without)
    assert done.returncode == 3 and "bitnet-edge default NAME" in done.stderr and done.stderr.count("\n") == 1
    assert default("--unset") == (0, "one\n") and default("demo") == (0, "demo\n") and shown() == "demo"
    program = "import edge; print(edge.load(ctx=64).config.name)"
    environment = {key: value for key, value in os.environ.items() if key != "BITNET_EDGE_MODEL"}
    for folder, warned in ((models, ""), (tmp_path / "none", "the demo model answers")):
        environment["BITNET_EDGE_MODELS"] = str(folder)
        loaded = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert loaded.stdout == name + "\n" and warned in loaded.stderr and bool(warned) == bool(loaded.stderr)


def test_demo_model(call: Any) -> None:
    ready = json.loads(call("chat", "--jsonl", command=REAL).stdout.splitlines()[0])
    assert ready["model"] == json.loads(call("run", "--json", "-m", "demo", "x", command=REAL).stdout)["model"]
    assert json.loads(call("model", "demo", "--json", command=REAL).stdout)
    assert call("run", "hi", "-m", "dmeo", command=REAL).stderr.rstrip().endswith("did you mean demo?")


# ---- exit codes ------------------------------------------------------------------------------------------------------


def test_exit_codes_are_documented(call: Any) -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "docs" / "contract.md").read_text(), re.MULTILINE)
    assert {int(code): text for code, text in rows} == EXIT_CODES
    shown = call("run", "--help-all").stdout
    for code, text in EXIT_CODES.items():
        assert re.search(rf"^  {code}\s+{re.escape(text)}$", shown, re.MULTILINE)


def test_exit_2_usage(call: Any) -> None:
    for args, hint in (
        (("rum",), "did you mean rm or run?"),
        (("run", "x", "--tempp", "1"), "--temp"),
        (("run", "x", "--kv", "q3"), "int8"),
        (("run", "x", "--set", "top_k=many"), "--set top_k"),
        (("run", "x", "--set", "topk=1"), "did you mean top_k?"),
        (("run", "x", "--memory", "lots"), "1500M"),
        (("run", "x", "-f", "/no/such/file"), "/no/such/file"),
        (("run", "x", "--raw", "-sys", "y"), "--raw"),
        (("run", "x", "--raw", "--session", "x.bes"), "--raw"),
        (("run", "x", "-n", "five"), "'five'"),
        (("run", "x", "--temp", "7"), "--temp is 7"),
        (("run", "x", "-c", "5", "--window", "100"), "--window 100 and"),
        (("run", "x", "--set", "min_p=2"), "--set min_p is 2"),
    ):
        done = call(*args)
        assert done.returncode == 2 and hint in done.stderr and done.stderr.count("\n") == 1, (args, done.stderr)
    assert call("run", "--stop=-n", "--", "one-nine").stdout == "You said: one\n"


def test_exit_3_not_found(call: Any, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.gguf", tmp_path):
        done = call("run", "x", "-m", str(path))
        assert done.returncode == 3 and str(path) in done.stderr


def test_exit_4_invalid(call: Any, tmp_path: Path) -> None:
    for data in (b"", b"GGUF", b"not a model at all", b"GGUF\x03\0\0\0" + b"\xff" * 64):
        path = tmp_path / "bad.gguf"
        path.write_bytes(data)
        done = call("run", "x", "-m", str(path))
        assert done.returncode == 4 and "bad.gguf" in done.stderr and done.stderr.count("\n") == 1


def test_exit_5_memory(call: Any) -> None:
    done = call("run", "x", "--memory", "1M")
    assert done.returncode == 5 and "limit" in done.stderr


def test_exit_6_processor(call: Any) -> None:
    done = call("run", "x", "--set", "isa=lacking")  # as the fake says
    assert done.returncode == 6 and "lacking" in done.stderr
    for name, code in {**dict.fromkeys(set(machine.isas()) - set(machine.supported()), 6), "rubbish": 2}.items():
        assert call("run", "x", "--set", f"isa={name}", command=REAL).returncode == code
        assert call("run", "x", command=REAL, BITNET_EDGE_ISA=name).returncode == code


def test_exit_7_context_full(call: Any) -> None:
    done = call("run", "long", "--set", "overflow=stop", "--ctx", "64")
    assert done.returncode == 7
    assert done.stdout.startswith("all work") and done.stdout.endswith("\n") and len(done.stdout) > 40
    done = call("run", "x" * 100, "--set", "overflow=stop", "--ctx", "64")
    assert (done.returncode, done.stdout) == (7, "")


@pytest.mark.slow
def test_exit_124_timeout(call: Any) -> None:
    done = call("run", "long", "--timeout", "4", delay=0.1, FAKE_LOAD="0.5")
    assert done.returncode == 124
    assert done.stdout.startswith("all") and done.stdout.endswith("\n")
    assert len(done.stdout) < 4 / 0.1


def test_exit_130_interrupt(start: Any, tmp_path: Path) -> None:
    process = start("run", "long", delay=0.02)
    begin_answer(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    assert process.stdout.read().endswith(b"\n") and process.stderr.read() == b""
    for number, code, more in ((signal.SIGINT, 130, ()), (signal.SIGTERM, 143, ("--json",))):
        mark = tmp_path / f"mark {code}"
        loading = start("run", "long", *more, FAKE_LOAD="60", FAKE_MARK=str(mark))
        loading.stdin.close()
        while not mark.exists():
            time.sleep(0.01)
        loading.send_signal(number)
        assert (loading.wait(300), loading.stderr.read()) == (code, b"")
        said = loading.stdout.read()
        assert json.loads(said)["error"]["code"] == "cancelled" if more else said == b""


@pytest.mark.slow
def test_exit_143_terminate(start: Any, env: dict[str, str], tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        process = start("run", "long", delay=0.02)
        begin_answer(process)
        process.send_signal(number)
        assert process.wait(300) == 143
        assert process.stdout.read().endswith(b"\n") and process.stderr.read() == b""
    process = start("run", "long", "--json", delay=0.02, FAKE_STEPS=str(tmp_path / "steps"))
    process.stdin.close()
    wait_for_steps(tmp_path / "steps", 20)
    process.terminate()
    assert process.wait(300) == 143
    done = json.loads(process.stdout.read())
    assert done["finish_reason"] == "cancelled" and done["text"].startswith("all work")
    source, target, steps = (tmp_path / name for name in ("in.jsonl", "out.jsonl", "batched"))
    body = {"messages": [{"role": "user", "content": "long"}], "max_tokens": 400}
    asked = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    source.write_text(json.dumps(asked) + "\n")
    process = start("batch", str(source), str(target), delay=0.02, FAKE_STEPS=str(steps))
    wait_for_steps(steps, 20)
    process.terminate()
    assert process.wait(300) == 143 and b"--resume" in process.stderr.read() and target.read_bytes() == b""
    # a reader that has stopped reading does not keep the program alive
    reader, writer = os.pipe()
    with open(reader, "rb"):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        numbers = {"FAKE_SCRIPT": json.dumps([["numbers", " ".join(map(str, range(2000)))]])}
        blocked = subprocess.Popen([*FAKE, "run", "numbers", "-n", "9000"], stdin=subprocess.DEVNULL, stdout=writer,
                                   env={**env, **numbers})
        os.close(writer)
        while waiting_bytes(reader) < 4000:
            time.sleep(0.05)
        blocked.terminate()
        assert blocked.wait(300) == 143
    for args in (("chat", "-q"), ("chat", "--jsonl")):
        waiting = start(*args)
        if "-q" in args:
            waiting.stdin.write(b"hello\n")
        waiting.stdout.readline()
        waiting.terminate()
        assert waiting.wait(300) == 143 and waiting.stderr.read() == b""


def test_closed_pipe_is_quiet(env: dict[str, str]) -> None:
    for args in ("run long", "run long --json", "run -h"):
        command = f"{{ {' '.join(FAKE)} {args}; echo $? >&2; }} </dev/null | head -c 1 >/dev/null"
        done = subprocess.run(["sh", "-c", command], env={**env, "FAKE_DELAY": "0.001"}, capture_output=True, text=True)
        assert done.stderr == "0\n", args


def test_full_disk(env: dict[str, str]) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        for args in (["run", "hello"], ["run", "hello", "--json"], [], ["-h"], ["run", "--help-all"]):
            done = subprocess.run([*FAKE, *args], input=b"", stdout=full, stderr=subprocess.PIPE, env=env)
            assert done.returncode == 1 and done.stderr == b"bitnet-edge: standard output: No space left on device\n"


def test_closed_output(env: dict[str, str]) -> None:
    for args in ("run hello", "--version"):
        command = f"{' '.join(FAKE)} {args} >&-"
        done = subprocess.run(["sh", "-c", command], env=env, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and done.stderr.startswith("bitnet-edge: standard output is closed"), args


# ---- facts for programs ----------------------------------------------------------------------------------------------


def test_stats_line(call: Any) -> None:
    done = call("run", "hello", "-v")
    assert done.stdout == "You said: hello\n" and STATS.fullmatch(done.stderr.splitlines()[-1])
    assert STATS.search(" ".join((ROOT / "docs" / "contract.md").read_text().split()))


def test_threads_and_cores(call: Any) -> None:
    """tests/machine/test_cores.py has the machines with fast and slow cores, and the masks of real threads."""
    asked = ("chat", "--jsonl", "--threads")
    allowed = len(os.sched_getaffinity(0))
    for given, expected in (("1", {1}), ("3", {3}), ("-1", set(range(1, allowed + 1))), ("-99", {1})):
        done = call(*asked, given, stdin='{"op": "info"}\n', command=REAL)
        assert json.loads(done.stdout.splitlines()[1])["threads"] in expected
    refused = call(*asked, "0")
    assert refused.returncode == 2 and "--threads is 0" in refused.stderr


def test_form(call: Any, tmp_path: Path) -> None:
    schema = tmp_path / "order.json"
    schema.write_text('{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}')
    for given in (str(schema), schema.read_text()):
        done = call("run", "Two teas", "--schema", given, "--seed", "1", "-n", "60", command=REAL)
        assert set(json.loads(done.stdout)) == {"n"} and done.stderr == ""
    assert call("run", "Tea?", "--choice", r"yes\, please,no", command=REAL).stdout in ("yes, please\n", "no\n")
    grammar = tmp_path / "time.lark"
    grammar.write_text('start: /[0-9]{2}/ ":" /[0-9]{2}/')
    assert re.fullmatch(r"\d\d:\d\d\n", call("run", "When?", "--grammar", str(grammar), command=REAL).stdout)
    for more, reason in ((("-n", "3"), "length"), (("--stop", "aa", "--stop", "e"), "stop")):
        asked = ("When?", "--regex", "(ae){40}", *more)
        cut = call("run", *asked, command=REAL)
        assert cut.returncode == 1 and cut.stderr.count("\n") == 1 and "incomplete" in cut.stderr
        assert re.fullmatch("[ae]*\n", cut.stdout)
        cut = call("run", *asked, "--json", command=REAL)
        assert cut.returncode == 1 and json.loads(cut.stdout)["finish_reason"] == reason
    piped = call("chat", "--regex", "(ae){40}", "-n", "3", stdin="When?\n", command=REAL)
    assert piped.returncode == 1 and "incomplete" in piped.stderr


def test_choice(call: Any) -> None:
    asked = ("run", "Is a whale a fish?", "--choice", "yes,no,perhaps")
    told = json.loads(call(*asked, "--json", command=REAL).stdout)
    assert [set(each) for each in told["shares"]] == [{"text", "share", "probability", "logprob"}] * 3
    assert told["text"] == max(told["shares"], key=lambda each: each["share"])["text"]
    assert sum(each["share"] for each in told["shares"]) == pytest.approx(1)
    assert {call(*asked, command=REAL).stdout for _ in range(3)} == {told["text"] + "\n"}
    done = call("chat", "--jsonl", *asked[2:], stdin=json.dumps(chat(asked[1])), command=REAL)
    assert json.loads(done.stdout.splitlines()[-1])["shares"] == told["shares"]
    drawn = {call(*asked, "--temp", "5", "--seed", str(seed), command=REAL).stdout for seed in range(6)}
    assert len(drawn) > 1


def test_form_refused(call: Any) -> None:
    for wrong, words in (
        (("--schema", '{"not":{}}'), 'Unimplemented keys: ["not"]'), (("--schema", "nowhere.json"), "nowhere"),
        (("--regex", "("), "--regex is wrong: "), (("--regex", "a", "--choice", "b"), "--regex and --choice: "),
        (("--schema", '{"type":'), "--schema is not JSON"), (("--grammar", "nowhere.lark"), "nowhere.lark"),
    ):
        done = call("run", "x", "-m", "nowhere.gguf", *wrong)
        assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_json_object(call: Any) -> None:
    done = call("run", "hello", "--json")
    assert done.stdout.count("\n") == 1
    answer = json.loads(done.stdout)
    assert answer["text"] == "You said: hello" and answer["finish_reason"] == "stop" and answer["model"] == "fake-1k"
    assert answer["usage"] == {"prompt": 8, "cached": 0, "completion": 15, "evicted": 0}
    assert set(answer["timings"]) == {"prompt_seconds", "first_token_seconds", "decode_seconds"}
    assert set(answer["kv"]) == {"ctx", "type", "window", "sinks", "bytes"} and answer["kv"]["type"] == "int8"
    assert json.loads(call("run", "hello", "--json", "-n", "2").stdout)["finish_reason"] == "length"
    failed = call("run", "hello", "--json", "-m", "nowhere.gguf")
    assert failed.returncode == 3 and json.loads(failed.stdout)["error"]["code"] == "model_not_found"
    assert failed.stderr.count("\n") == 1
    for wrong in (("hello", "-n", "x"), ("hello", "--regex", "("), ("",)):
        refused = call("run", "--json", *wrong)
        assert refused.returncode == 2 and refused.stdout == "" and refused.stderr.count("\n") == 1


def test_version_is_fast(call: Any) -> None:
    done = call("--version", command=REAL)
    assert re.fullmatch(r"bitnet-edge \d+\.\d+\.\d+\n", done.stdout)
    probe = "import sys; sys.argv = ['x', '--version']\nfrom edge.cli.main import main\ntry: main()\n" \
            "finally: print(sorted(set(sys.modules) & {'click', 'edge.engine', 'typing', 'pyx'}))"
    assert call(command=[sys.executable, "-S", "-c", probe]).stdout.splitlines()[-1] == "[]"


def test_run_imports_no_numpy(call: Any, tmp_path: Path) -> None:
    """Nor what else it does not use: each import is paid for at every start, on a small board with milliseconds."""
    unused = ("numpy sentencepiece safetensors psutil prompt_toolkit tokenizers torch asyncio pathlib json difflib "
              "edge.formats.sentencepiece_model edge.formats.huggingface")
    probe = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {os.path.dirname(os.path.dirname(click.__file__))!r}]\n"
        "sys.argv = ['x', 'run', 'hello', '-n', '4']\nfrom edge.cli.main import main\ntry: main()\n"
        f"finally: print(sorted(set(sys.modules) & set('{unused}'.split())))"
    )
    command = [sys.executable, "-S", "-c", probe]  # -S: a development install imports some of these itself
    done = call(command=command, BITNET_EDGE_NO_CACHE="", BITNET_EDGE_CACHE=str(tmp_path))
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[]"


def test_bare_command(call: Any) -> None:
    done = call()
    assert done.returncode == 0 and done.stderr == ""
    assert 'bitnet-edge run "' in done.stdout and "bitnet-edge chat" in done.stdout


# ---- sessions --------------------------------------------------------------------------------------------------------

SMALL = ("--temp", "0", "-c", "128", "-t", "1", "-n", "12")


def test_session_goes_on(call: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "talk.bes")
    first = call("run", "Hello!", "--session", file, *SMALL, command=REAL)
    assert first.returncode == 0, first.stderr
    second = call("run", "A tea, please.", "--session", file, "--json", "-v", *SMALL, command=REAL)
    usage = json.loads(second.stdout)["usage"]
    assert 0 < usage["cached"] < usage["prompt"] and f"({usage['cached']} cached)" in second.stderr
    third = call("chat", "--session", file, "-v", *SMALL, stdin="Thank you!\n/context\n", command=REAL)
    assert third.returncode == 0 and "3 turns" in third.stdout
    assert int(re.search(r"\((\d+) cached\)", third.stderr)[1]) >= usage["prompt"]
    whole = call("chat", *SMALL, stdin="Hello!\nA tea, please.\nThank you!\n", command=REAL).stdout
    assert whole.startswith(first.stdout + json.loads(second.stdout)["text"].rstrip("\n"))
    assert whole.endswith("\n" + third.stdout.partition("  ")[0])
    said = "bitnet-edge: session file .*: made for another KV cache .*; its text is read again\n"
    for words in (said, ""):
        other = call("run", "Bye!", "--session", file, *SMALL, "--kv", "f16", command=REAL)
        assert other.returncode == 0 and other.stdout and re.fullmatch(words, other.stderr), other.stderr
    assert call("chat", "--session", file, "--jsonl").returncode == 2


def test_session_read_only(call: Any, tmp_path: Path) -> None:
    file = tmp_path / "talk.bes"
    missing = call("run", "x", "--session", str(file), "--session-ro")
    assert missing.returncode == 2 and missing.stderr.count("\n") == 1 and not file.exists()
    assert call("run", "x", "--session-ro").returncode == 2
    call("run", "Hello!", "--session", str(file), *SMALL, command=REAL)
    before = file.read_bytes()
    for command in ("run", "chat"):
        done = call(command, "--session", str(file), "--session-ro", *SMALL, stdin="And you?\n", command=REAL)
        assert done.returncode == 0 and done.stdout and file.read_bytes() == before
    done = call("chat", "--session", str(file), "--session-ro", *SMALL, command=REAL, stdin=f"Hi\n/save {file}\n")
    assert "--session-ro leaves it as it is" in done.stderr and file.read_bytes() == before


def test_session_prepared(call: Any, env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "guide.bes"
    done = call("run", "--session", str(file), "-sys", "You sell coffee. " * 4, *SMALL[:-1], "0", command=REAL)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
    answer = call("run", "Hello!", "--session", str(file), "--session-ro", "--json", *SMALL, command=REAL)
    usage = json.loads(answer.stdout)["usage"]
    assert usage["prompt"] - usage["cached"] < 20 < usage["cached"]
    assert call("run", "-n", "0").returncode == 2  # nothing to prepare without a session
    asked = "Hello!\nWhat is coffee?\n"
    prepare = [*REAL, "run", "--session", str(tmp_path / "new.bes"), "-sys", "You sell coffee.", *SMALL[:-1], "0"]
    script = f"{shlex.join(prepare)}\ncat"
    done = subprocess.run(["sh", "-c", script], input=asked, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (0, asked)  # the script still has its own input


def test_session_locked(call: Any, env: dict[str, str], tmp_path: Path) -> None:
    """Whoever has a session to write it keeps others away, from a file that /load took, too, until it ends or dies."""
    one, two = (str(tmp_path / name) for name in ("one.bes", "two.bes"))
    assert call("run", "Hello!", "--session", two, *SMALL, command=REAL).returncode == 0
    chat = subprocess.Popen([*REAL, "chat", "--session", one, *SMALL], env=env, text=True, stdin=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert chat.stdin and chat.stderr
    chat.stdin.write("Hello!\n")
    chat.stdin.flush()
    while not os.path.exists(one):
        assert chat.poll() is None
        time.sleep(0.05)
    for path, codes in ((one, (75, 0)), (two, (0, 75))):
        assert call("run", "Hi", "--session", one, *SMALL, command=REAL).returncode == codes[0]
        assert call("run", "Hi", "--session", two, *SMALL, command=REAL).returncode == codes[1]
        assert call("run", "Hi", "--session", path, "--session-ro", *SMALL, command=REAL).returncode == 0
        if path == one:
            chat.stdin.write(f"/load {two}\n")
            chat.stdin.flush()
            while f"from now on, {two} is written" not in chat.stderr.readline():
                assert chat.poll() is None
    chat.kill()
    chat.communicate()
    assert call("run", "Hi", "--session", two, *SMALL, command=REAL).returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["one.bes", "two.bes"]


def test_session_invalid(call: Any, tmp_path: Path) -> None:
    file = tmp_path / "talk.bes"
    call("run", "Hello!", "--session", str(file), *SMALL, command=REAL)
    good = file.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 1
    for data in (bad, good[:-1], b"notes\n", b""):
        file.write_bytes(data)
        done = call("run", "Hi", "--session", str(file), *SMALL, command=REAL)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1), done.stderr
        assert "talk.bes" in done.stderr and file.read_bytes() == data


def test_session_saved_whole(call: Any, tmp_path: Path) -> None:
    """tests/cache/test_session_file.py kills it at each moment."""
    file = tmp_path / "a" / "talk.bes"
    file.parent.mkdir()
    for _ in range(2):
        assert call("run", "Hello!", "--session", str(file), *SMALL, command=REAL).returncode == 0
        assert file.stat().st_mode & 0o777 == 0o600 and os.listdir(file.parent) == ["talk.bes"]


# ---- chat ------------------------------------------------------------------------------------------------------------


#: the program, for which every prompt is worth remembering at once
KEEPS = [sys.executable, "-c", "from edge.cache import remembered; remembered.LOADED = 1e30; remembered.LEAST = 0.0; "
         "from edge.cli.main import main; main()"]
ROOMY = ("--temp", "0", "-c", "512", "-t", "1", "-n", "12")
HOUSE = "The lamp in the hall is on, the door to the garden is shut, and the heating is set to twenty degrees. " * 3


@pytest.fixture
def house(call: Any, tmp_path: Path) -> Any:
    """Ask the house: house("Is it warm?", "-c", "9") -> (text, usage)."""

    def ask(question: str, *options: str, system: str = HOUSE, **extra: str) -> tuple[str, dict[str, Any]]:
        where = {"BITNET_EDGE_CACHE": str(tmp_path / "cache"), "BITNET_EDGE_NO_CACHE": "", **extra}
        done = call("run", question, "--system", system, "--json", *options, *ROOMY, command=KEEPS, **where)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["text"], json.loads(done.stdout)["usage"]

    return ask


def test_prompts_are_remembered(house: Any, tmp_path: Path) -> None:
    """tests/cache/test_remembered.py has the rest of the promise."""
    first, read = house("Is the lamp on?")
    again, known = house("Is the lamp on?")
    assert first == again and read["cached"] == 0 and read["prompt"] - known["cached"] < 24 < known["cached"]
    folder = tmp_path / "cache" / "beginnings"
    (file,) = folder.glob("*.bes")  # beside it: the fingerprint of the model's file
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}
    assert int(file.name[:8]) == known["cached"] and b"Is the lamp on" not in file.read_bytes()


def test_no_cache(house: Any, tmp_path: Path) -> None:
    house("Is the lamp on?", "--set", "cache=off")
    house("Is the lamp on?", BITNET_EDGE_NO_CACHE="1")
    assert not (tmp_path / "cache" / "beginnings").exists()
    house("Is the lamp on?")
    assert house("Is the lamp on?", "--set", "cache=off")[1]["cached"] == 0 < house("Is the lamp on?")[1]["cached"]


def test_prompts_are_deleted(house: Any, call: Any, tmp_path: Path) -> None:
    house("Is the lamp on?")
    other = tmp_path / "cache" / "beginnings" / "notes.txt"
    other.write_text("mine")
    done = call("rm", "--prompts", command=REAL, BITNET_EDGE_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0 and "deleted 1 remembered prompt" in done.stderr
    assert list(other.parent.iterdir()) == [other]
    assert house("Is the lamp on?")[1]["cached"] == 0


def test_chat_reads_ahead(env: dict[str, str]) -> None:
    cached = {}
    for option in ("read_ahead=on", "read_ahead=off"):
        with Terminal([*REAL, "chat", "-v", "--set", option, "--system", HOUSE, *ROOMY], env) as t:
            t.expect("> ")
            t.type("Is the lamp in the hall ")
            t.settle()
            t.line("on?")
            cached[option] = int(re.search(r"\((\d+)\s+cached", t.expect(r"prompt [^|]*cached\)"))[1])
    assert cached["read_ahead=on"] > 60 and cached["read_ahead=off"] == 0


def test_chat_without_terminal(call: Any) -> None:
    done = call("chat", stdin='hello\n\n"""\na\nsnow\n"""\nx\\\ny\n//slash\n/undo\n/exit\nnever\n')
    answers = ["You said: hello", reply("snow"), "You said: x\ny", "You said: /slash"]
    assert (done.returncode, done.stdout) == (0, "".join(f"{answer}\n" for answer in answers))
    assert "\x1b" not in done.stderr
    assert call("chat", stdin="hello").stdout == "You said: hello\n"  # a last line without its newline counts


def test_chat_pipe_errors(call: Any) -> None:
    done = call("chat", "--set", "overflow=stop", "--ctx", "64", stdin="hello\nlong\nhello\n")
    assert done.returncode == 7 and done.stdout.count("hello") == 1
    for line, wrong in ((b"a\0b", "this line is not UTF-8 text (byte 1 is NUL)"),
                        (b"\xff", "this line is not UTF-8 text (byte 0)"),
                        (b'"""\none\n\xff\ntwo"""', "this line is not UTF-8 text"),
                        (b"/rubbish", "unknown command /rubbish; /help lists the commands")):
        done = call("chat", "-q", stdin=line + b"\nhello\n/exit\n")
        assert (done.returncode, done.stdout) == (2, "You said: hello\n")
        assert done.stderr.startswith(f"bitnet-edge: {wrong}") and done.stderr.count("\n") == 1


def test_chat_keeps_the_conversation(call: Any) -> None:
    done = call("chat", "-v", stdin="hello\nagain\n")
    first, second = (int(n) for n in re.findall(r"\((\d+) cached\)", done.stderr))
    assert first == 0 and second >= len("hello") + len(reply("hello"))


def test_chat_interrupt_answer(terminal: Any) -> None:
    with terminal("chat", delay=0.01) as t:
        t.expect("> ")
        t.line("long")
        t.handed_over()
        t.expect("all work")
        t.type(CTRL_C)
        t.expect(r"\^C[^\n]*\(stopped\)[^\n]*\r\n\r\n.*> ")
        t.line("/context")
        t.expect("1 turn\\b")  # what was said is kept
        t.line("hello")
        assert "(stopped)" not in t.expect(r"You said: hello\r\n.*> ")
        t.type(CTRL_D)
        assert t.wait() == 0


def test_chat_interrupt_prompt(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.type("half a question")
        t.expect("half a question")
        t.type(CTRL_C)
        t.expect("\n.*> ")
        t.line("hello")
        t.expect("You said: hello.*> ")
        t.type(CTRL_C)
        t.expect("Ctrl-C again.*> ")
        t.type("another half")
        t.expect("another half")
        t.type(CTRL_C)  # clears it, and does not count
        t.expect("\n.*> ")
        t.type(CTRL_C)
        t.expect("Ctrl-C again")
        t.type(CTRL_C)
        assert t.wait() == 130
    with terminal("chat", TERM="dumb") as t:
        shown = t.expect("> ")
        t.line("hello")
        shown += t.expect(r"You said: hello\r\n.*> ")
        t.reads()  # a signal between Python's prompt and its read() waits for the next key
        t.type(CTRL_C)
        shown += t.expect("Ctrl-C again.*> ")
        t.reads()
        t.type(CTRL_C)
        assert t.wait() == 130 and "\x1b[" not in shown + t.screen


def test_chat_end(terminal: Any) -> None:
    with terminal("chat") as t:
        t.expect("> ")
        t.type(CTRL_D)
        assert t.wait() == 0


def test_chat_history_is_private(terminal: Any, tmp_path: Path) -> None:
    for extra, path in (
        ({}, tmp_path / "state" / "bitnet-edge" / "history"),
        ({"BITNET_EDGE_HOME": str(tmp_path / "home")}, tmp_path / "home" / "history"),
    ):
        with terminal("chat", **extra) as t:
            t.expect("> ")
            t.line("remember me")
            t.expect("You said: remember me.*> ")
            t.type(CTRL_D)
            assert t.wait() == 0
        assert "remember me" in path.read_text() and path.stat().st_mode & 0o777 == 0o600
    with terminal("chat", "--set", "history=off", BITNET_EDGE_HOME=str(tmp_path / "none")) as t:
        t.expect("> ")
        t.line("hello")
        t.expect("You said: hello.*> ")
        t.type(CTRL_D)
        t.wait()
    assert not (tmp_path / "none").exists()


# ---- JSONL protocol --------------------------------------------------------------------------------------------------


def chat(content: str, **more: Any) -> dict[str, Any]:
    return {"op": "chat", "messages": [{"role": "user", "content": content}], **more}


@pytest.fixture
def protocol(call: Any) -> Any:
    """All requests at once -> all events."""

    def run(*requests: Any, args: Sequence[str] = ()) -> list[dict[str, Any]]:
        lines = [request if isinstance(request, str) else json.dumps(request) for request in requests]
        done = call("chat", "--jsonl", *args, stdin="\n".join(lines))
        assert (done.returncode, done.stderr) == (0, "")
        return events_of(done)

    return run


def texts(events: list[dict[str, Any]], ident: Any = None) -> str:
    return "".join(event["text"] for event in events if event["ev"] == "text" and event.get("id") == ident)


def test_jsonl_ready_first(protocol: Any) -> None:
    assert protocol() == [{"ev": "ready", "v": 1, "model": "fake-1k", "ctx": 2048, "kv": "int8"}]


def test_jsonl_chat(protocol: Any) -> None:
    first = chat("hello", id="a")
    again = {"op": "chat", "id": "b", "max_tokens": 4, "by": "all", "temperature": 0.5, "seed": 7, "messages": [
        *first["messages"], {"role": "assistant", "content": reply("hello")}, {"role": "user", "content": "more"}]}
    events = protocol(first, again, chat("hello", id="c", stop="said"), args=("--system", "be nice"))
    assert texts(events, "a") == "You said: hello" and texts(events, "b") == "You " and texts(events, "c") == "You "
    done = {event["id"]: event for event in events if event["ev"] == "done"}
    assert list(done) == ["a", "b", "c"] and [done[i]["finish_reason"] for i in "abc"] == ["stop", "length", "stop"]
    assert done["a"]["usage"]["prompt"] == 8 + len("be nice")
    assert done["b"]["usage"]["cached"] >= done["a"]["usage"]["prompt"] + len(reply("hello")) - 1
    prefill = [event for event in events if event["ev"] == "prefill" and event["id"] == "b"]
    assert prefill[-1]["done"] == prefill[-1]["total"] == done["b"]["usage"]["prompt"]


def test_jsonl_unknown_keys(protocol: Any) -> None:
    events = protocol(chat("hello", id=17, colour="blue", v=1), chat("hello"))
    assert texts(events, 17) == texts(events, None) == "You said: hello"
    assert all("id" not in event or event["id"] == 17 for event in events)


def test_jsonl_tools(call: Any) -> None:
    tool = {"type": "function", "function": {"name": "order", "parameters": {
        "type": "object", "properties": {"drink": {"enum": ["tea", "coffee"]}}, "required": ["drink"],
        "additionalProperties": False}}}
    base = {"op": "chat", "messages": [{"role": "user", "content": "Tea, please."}], "max_tokens": 80, "tools": [tool]}
    requests = [{**base, "id": "call", "tool_choice": "required"}, {**base, "id": "text", "tool_choice": "none"},
                {**base, "id": "form", "choices": ["yes", "no"]}, {**base, "id": "bad", "tools": [{}]}]
    events = events_of(call("chat", "--jsonl", command=REAL, stdin="\n".join(map(json.dumps, requests))))
    last = {event["id"]: event for event in events if event["ev"] in ("done", "error")}
    assert last["call"]["finish_reason"] == "tool_calls" and texts(events, "call") == ""
    (made,) = last["call"]["tool_calls"]
    assert json.loads(made["function"]["arguments"])["drink"] in ("tea", "coffee")
    assert "tool_calls" not in last["text"] and texts(events, "text")
    assert "tool_calls" in last["form"] or texts(events, "form") in ("yes", "no")
    assert last["bad"]["code"] == "bad_request" and "tools[0]" in last["bad"]["message"]
    result = {"role": "tool", "tool_call_id": made["id"], "content": "done"}
    again = [*base["messages"], {"role": "assistant", "content": "", "tool_calls": [made]}, result]
    done = call("chat", "--jsonl", command=REAL, stdin=json.dumps({**base, "id": 1, "messages": again}) + "\n")
    assert json.loads(done.stdout.splitlines()[-1])["ev"] == "done"


def test_jsonl_form(call: Any) -> None:
    def asked(ident: str, **more: Any) -> dict[str, Any]:
        return {"id": ident, "op": "chat", "messages": [{"role": "user", "content": "Tea?"}], "max_tokens": 40, **more}

    requests = [
        asked("a", choices=["yes", "no"]), asked("b", schema={"enum": ["yes", 5]}), asked("c", schema={"not": {}}),
        asked("d", choices=["yes"], regex="a"), asked("e"),
    ]
    lines = "\n".join(map(json.dumps, requests))
    events = events_of(call("chat", "--jsonl", "--regex", "[0-9]{3}", command=REAL, stdin=lines))
    assert texts(events, "a") in ("yes", "no") and json.loads(texts(events, "b")) in ("yes", 5)
    errors = {event["id"]: event for event in events if event["ev"] == "error"}
    assert set(errors) == {"c", "d"} and {e["code"] for e in errors.values()} == {"bad_request"}
    assert '"not"' in errors["c"]["message"] and re.fullmatch("[0-9]{3}", texts(events, "e"))


def test_jsonl_errors(protocol: Any) -> None:
    bad = [
        ("rubbish", "bad_json"), ("[1]", "bad_json"), ("[" * 60000, "bad_json"), ('{"op":"ping"', "bad_json"),
        ({}, "unknown_op"), ({"op": ["chat"]}, "unknown_op"), ({"op": "chat"}, "bad_request"),
        ({"op": "chat", "messages": []}, "bad_request"), ({"op": "chat", "messages": ["x"]}, "bad_request"),
        ({"op": "chat", "messages": [{"role": "king", "content": "x"}]}, "bad_request"),
        ({"op": "chat", "messages": [{"role": "user", "content": 5}]}, "bad_request"),
        ({"op": "chat", "messages": [{"role": "assistant", "content": "x"}]}, "bad_request"),
        ('{"op":"chat","messages":[{"role":"user","content":"\\ud800"}]}', "bad_request"),
        ('{"op":"ping","id":"\\ud800"}', "bad_request"), ({"op": "ping", "id": 1.5}, "bad_request"),
        ({"op": "ping", "v": 2}, "unsupported_version"), ({"op": "cancel", "id": "nobody"}, "unknown_id"),
        (chat("x", max_tokens="many"), "bad_request"), (chat("x", max_tokens=True), "bad_request"),
        (chat("x", temp=-1), "bad_request"), (chat("x", stop=[5]), "bad_request"),
        (chat("x", by="page"), "bad_request"), (chat("x", timeout=0), "bad_request"), (chat("crash"), "internal"),
        (json.dumps(chat("x" * 5_000_000)), "too_long"),
    ]
    events = protocol(*(request for request, _ in bad), chat("hello", id="last"))
    codes = sorted(event["code"] for event in events if event["ev"] == "error")
    assert codes == sorted(code for _, code in bad)
    assert texts(events, "last") == "You said: hello"
    full = protocol(chat("x" * 100, id="f"), chat("hi", id="h"), args=("--set", "overflow=stop", "--ctx", "64"))
    assert [(e["id"], e["code"]) for e in full if e["ev"] == "error"] == [("f", "context_full")]
    assert texts(full, "h") == "You said: hi"
    many = protocol(*(chat("hello", id=i) for i in range(200)))
    done = [event["id"] for event in many if event["ev"] == "done"]
    busy = [event["id"] for event in many if event.get("code") == "busy"]
    assert sorted(done + busy) == list(range(200)) and done == sorted(done)


def test_error_codes_are_documented() -> None:
    """The table of the contract, the table of the program, and what the program really sends."""
    from edge import errors, records

    text = (ROOT / "docs" / "contract.md").read_text()
    listed = dict(re.findall(r"^  \| `(\w+)` \| (.+) \|$", text, re.MULTILINE))
    assert listed == records.CODES
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.EdgeError)]
    before = {"model_not_found", "unsupported_cpu", "not_built"}  # a model is loaded
    for kind in (*kinds, ValueError):
        assert records.error_of(kind("x"))["code"] in listed.keys() | before
    source = (ROOT / "edge" / "serve" / "protocols" / "jsonl.py").read_text()
    sent = set(re.findall(r'(?:code=|records\.error\(|bytes", )"(\w+)"', source))
    assert {"bad_json", "unknown_op", "unknown_id", "unsupported_version", "too_long"} <= sent <= set(listed)


def send(process: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    assert process.stdin
    process.stdin.write(json.dumps(request).encode() + b"\n")


def events_until(process: subprocess.Popen[bytes], **wanted: Any) -> list[dict[str, Any]]:
    """Events up to the first that has these values."""
    assert process.stdout
    events = []
    while line := process.stdout.readline():
        events.append(json.loads(line))
        if all(events[-1].get(key) == value for key, value in wanted.items()):
            return events
    raise AssertionError(f"{wanted} never came")


def test_jsonl_cancel(start: Any) -> None:
    process = start("chat", "--jsonl", delay=0.01)
    send(process, chat("long", id="a", max_tokens=5000))
    send(process, chat("long", id="b", max_tokens=5000))
    send(process, chat("hello", id="c"))
    events_until(process, id="a", ev="text")
    send(process, {"op": "cancel", "id": "b"})
    send(process, {"op": "cancel"})
    done = [event for event in events_until(process, id="c", ev="done") if event["ev"] == "done"]
    assert [(event["id"], event["finish_reason"]) for event in done] == [
        ("b", "cancelled"), ("a", "cancelled"), ("c", "stop")]
    assert set(done[0]["usage"].values()) == {0} and set(done[0]["timings"].values()) == {0.0}
    for other in done[1:]:  # one that never began has the same keys
        assert done[0].keys() == other.keys()
        assert all(done[0][part].keys() == other[part].keys() for part in ("usage", "timings"))


def test_jsonl_reset(protocol: Any) -> None:
    events = protocol(chat("hello", id=1), {"op": "reset", "id": 2}, chat("hello", id=3))
    assert [event["id"] for event in events if event["ev"] in ("done", "reset")] == [1, 2, 3]


def test_jsonl_thoughts(call: Any) -> None:
    events = events_of(call("chat", "--jsonl", stdin=json.dumps(chat("please think", id="t")), FAKE_THINKS="1"))
    assert texts(events, "t") == "Yes."
    assert "".join(event["text"] for event in events if event["ev"] == "thought") == "hm, so"


def test_jsonl_ping_and_info(start: Any) -> None:
    process = start("chat", "--jsonl", delay=0.01)
    send(process, chat("long", id="a", max_tokens=5000))
    events_until(process, id="a", ev="text")
    send(process, {"op": "ping", "id": "p"})
    events_until(process, id="p", ev="pong")
    send(process, {"op": "info", "id": "i"})
    info = events_until(process, id="i", ev="info")[-1]
    assert info["model"] == "fake-1k" and info["threads"] == 2 and info["kv"]["type"] == "int8" and info["pending"] == 1
    assert info["memory"]["rss"] > 0 and re.fullmatch(r"\d+\.\d+\.\d+", info["version"])


def test_jsonl_end(start: Any) -> None:
    process = start("chat", "--jsonl", delay=0.005)
    send(process, chat("hello", id="a"))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and err == b"" and json.loads(out.splitlines()[-1])["ev"] == "done"


# ---- the contract itself ---------------------------------------------------------------------------------------------


def test_each_line_has_its_test() -> None:
    promised = re.findall(r"^- \[(\w+)\]", (ROOT / "docs" / "contract.md").read_text(), re.MULTILINE)
    assert len(promised) == len(set(promised))
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert tests - {"each_line_has_its_test", "error_codes_are_documented"} == set(promised)


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_plan_before_loading(call: Any) -> None:
    done = call("run", "hello", "-v")
    lines = done.stderr.splitlines()
    plan = [line for line in lines if line.startswith("plan: ")]
    assert plan == lines[: len(plan)] and plan[-1].startswith("plan: total ")
    assert re.fullmatch(r"plan: kv +\d+\.\d MB  2048 tokens, int8", plan[-2])
    assert "plan:" not in call("run", "hello").stderr
    shown = call("fit", command=REAL).stdout.partition("\n")[2].partition("\n\n")[0].splitlines()
    said = call("run", "hello", "-v", "-n", "1", command=REAL).stderr
    plan = [line.removeprefix("plan: ") for line in said.splitlines() if line.startswith("plan: ")]
    assert [line.split()[0] for line in shown] == [line.split()[0] for line in plan]
    measured = ("program", "total")  # of this process: a few pages differ
    same = [[line.strip() for line in lines if not line.strip().startswith(measured)] for lines in (shown, plan)]
    assert same[0] == same[1]


def test_context_remarks(call: Any) -> None:
    for options, words in (
        (("-c", "4096"), "longer than the 2048"),
        (("-c", "8"), "context of 8 tokens "),
        (("-c", "63"), "use at least 64"),
        (("--window", "8"), "window of 8 tokens"),
    ):
        for command in (("run", "hello", "-n", "2"), ("chat",)):
            done = call(*command, *options, command=REAL)
            assert done.returncode == 0 and words in done.stderr, (options, done.stderr)
            warnings = [line for line in done.stderr.splitlines() if line.startswith("bitnet-edge: ")]
            assert len(warnings) == 1
    assert call("run", "hello", "-n", "2", "-c", "64", command=REAL).stderr == ""


def test_kv_types(call: Any) -> None:
    few = ("run", "hello", "-n", "2", "--temp", "0", "-c", "128", "--json")
    types = {}
    for options in (("--kv", "int8:int4"), ("--kv", "q8_0:q4_0"), ("--kv", "int4"), ("--kv", "binary")):
        done = call(*few, *options, "-v", command=REAL)
        assert done.returncode == 0, done.stderr
        kv = json.loads(done.stdout)["kv"]
        types[options] = (kv["type"], kv["bytes"])
        assert re.search(rf"^plan: kv .*, {kv['type']}(, |$)", done.stderr, re.M)
        assert ("KV type binary is for experiments only" in done.stderr) == (kv["type"] == "binary")
    found = list(types.values())
    assert found[0] == found[1] and [kind for kind, _ in found[1:]] == ["int8:int4", "int4", "binary"]
    assert found[1][1] > found[2][1] > found[3][1]
    for wrong in (("--kv", "int9"), ("--kv", "int8:int4:int4")):
        done = call(*few, *wrong, command=REAL)
        assert done.returncode == 2
        assert re.fullmatch(r"bitnet-edge: KV type '.*' is not known; types are f32, f16, int8, .*\n", done.stderr)


def test_kv_budget_invalid(call: Any, tmp_path: Path) -> None:
    budget = {"version": 1, "n_layer": 1, "n_kv_head": 1, "sinks": 4, "keep": [[100]]}
    for text in ("keep everything", json.dumps(budget)):
        (tmp_path / "budget.json").write_text(text)
        done = call("run", "hello", "--set", f"kv_budget={tmp_path / 'budget.json'}", command=REAL)
        assert done.returncode == 4 and len(done.stderr.splitlines()) == 1 and "budget.json" in done.stderr


def test_system_prompt_stays(call: Any, tmp_path: Path) -> None:
    system = ("-sys", "You are a waiter in a small cafe by the sea, and you are always kind.")
    options = ("-n", "24", "--temp", "0", "-t", "1", "-c", "128", "-v")
    lines = "Hello, can I order a coffee?\nA large one.\nAnd cake?\n" * 4 + "/context\n"
    pinned = {}
    for more in ((), ("--sinks", "4")):
        done = call("chat", *system, *options, *more, stdin=lines, command=REAL)
        assert done.returncode == 0 and re.search(r"128/int8 \d+ MB, \d+ dropped", done.stderr), done.stderr
        pinned[more] = int(re.search(r"the first (\d+) are always kept", done.stdout)[1])
    assert pinned[("--sinks", "4")] == 4 and pinned[()] > 15
    file = ("--session", str(tmp_path / "talk.bes"))
    assert call("run", *file, *system, "-n", "0", "-c", "128", "-t", "1", command=REAL).returncode == 0
    done = call("run", "Hello!", *file, "--session-ro", "-n", "4", "-c", "128", "-t", "1", "--json", command=REAL)
    assert json.loads(done.stdout)["kv"]["sinks"] == pinned[()]


def test_input_limits(call: Any) -> None:
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run([*FAKE, "run", "-"], stdin=endless, capture_output=True, timeout=300)
    assert done.returncode == 2 and b"standard input is longer than 64 MiB" in done.stderr
    done = call("chat", stdin="a" * (5 << 20))
    assert done.returncode == 2 and "longer than 4 MiB" in done.stderr


def test_long_text(call: Any) -> None:
    text = "All of this is long, and goes on. " * 500
    few = ("run", "-n", "2", "-c", "256", "-t", "1", "--json")
    for more in ((), ("--set", "overflow=stop"), ("--system", text)):
        done = call(*few, *more, stdin=text, command=REAL)
        assert done.returncode == 7 and "tokens or more, the context 256" in done.stderr


def test_kv_offload(call: Any, tmp_path: Path) -> None:
    lines = "".join(f"{line}\n" for line in ["Hello, can I order a coffee?", "A large one.", "And cake?"] * 4)
    lines += "/undo\n" * 8 + "A tea, then.\n"
    options = ("-n", "20", "--temp", "0", "-t", "1", "--window", "96", "-c", "1024", "-v")
    cached = []
    for more in ((), ("--set", f"kv_offload={tmp_path}")):
        done = call("chat", *options, *more, stdin=lines, command=REAL)
        assert done.returncode == 0, done.stderr
        cached.append((done.stdout, int(re.findall(r"\((\d+) cached\)", done.stderr)[-1])))
    assert cached[0][0] == cached[1][0] and cached[0][1] == 0 < cached[1][1]
    assert list(tmp_path.iterdir()) == []


def test_memory_limit(call: Any) -> None:
    whole = json.loads(call("run", "hello", "--json", "-n", "1", "--kv", "f16", command=REAL).stdout)["kv"]
    plan = call("run", "hello", "-v", "-n", "1", "--kv", "f16", command=REAL).stderr
    total = float(re.search(r"plan: total +([\d.]+) MB", plan)[1])
    done = call("run", "hello", "--json", "-n", "1", "--kv", "f16", "--memory", f"{total - 1:.1f}MB", command=REAL)
    shorter = json.loads(done.stdout)["kv"]
    assert shorter["ctx"] < whole["ctx"] and shorter["bytes"] < whole["bytes"]
    assert call("run", "hello", "--memory", "1M", command=REAL).returncode == 5
    for vectors in (("embed", "hello"), ("serve", "--embeddings", "--port", "0")):
        done = call(*vectors, "--memory", "20M", "-m", "demo", command=REAL)
        assert done.returncode == 5 and "the limit is 20 MB" in done.stderr.splitlines()[-1]
