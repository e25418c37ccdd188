#!/usr/bin/env python3
"""Try all that the program does, in any of its forms, and compare every word with what another form says.

    packaging/check.py [--write FILE | --compare FILE] [--brief] [--modules FILE] [--qemu CPU] PROGRAM [ARGUMENT...]

    make build/answers.json                                                    the answers of the unfrozen program
    packaging/check.py --compare build/answers.json dist/bitnet-edge           another form must give the same
    packaging/check.py --compare build/answers.json --qemu cortex-a72 dist/bitnet-edge-aarch64

PROGRAM is anything that takes the arguments of bitnet-edge.  --modules: also write the names of all modules that an
unfrozen program imports for these checks.  --brief: only what depends on the processor and the C library.  --qemu:
emulated, see emulated.py.  One line a check: ok with its seconds,
or FAILED with what was seen; status 1 when one failed.  In every check a traceback, an internal error or a module that
is not there is a failure by itself, wherever it appears.  What the operating system can do to the program is in
smoke.sh.  Needs Python's standard library only, so that it runs wherever the program is to be tried.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import http.client
import http.server
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: golden.txt: the name of the model that comes with the program, a prompt, and its answer
MODEL, PROMPT, GOLDEN = (HERE / "golden.txt").read_text().split("\n", 2)
#: a model with a SentencePiece vocabulary, of random weights
PIECES = HERE.parent / "tests" / "vectors" / "tiny_gguf" / "silu_mha_tied.bitnet.tq1.q8.gguf"
BOUND = 300.0  # seconds for one program to answer: a bound, no measure
DEFECTS = re.compile(
    r"Traceback \(most recent|internal error[,:]|please report|\"code\": ?\"internal\"|ModuleNotFoundError|ImportError"
    r"|No module named|Failed to execute script", re.IGNORECASE)
SCHEMA = {
    "type": "object",
    "properties": {"item": {"enum": ["tea", "coffee"]}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["item", "count"],
}
TOOL = {"type": "function", "function": {"name": "order", "description": "Order a drink.", "parameters": SCHEMA}}
MESSAGES = [{"role": "user", "content": "Two teas, please."}]


class Failed(Exception):
    """A check has failed: the reason in one line, with the output of the program."""


def sound(text: str) -> None:
    """Raise Failed if a defect of the program shows in what it wrote."""
    if DEFECTS.search(text):
        raise Failed(f"a defect of the program: {text[-600:]}")


def need(condition: object, what: str, seen: object = "") -> None:
    if not condition:
        raise Failed(f"{what}: {str(seen)[-600:]}")


class Program:
    """The program under test, with a folder for its files and an environment of its own."""

    def __init__(self, command: list[str], folder: Path, **variables: str) -> None:
        self.command = command
        self.folder = folder
        self.prompts: Path | None = None  # a folder with what was read of a system prompt, to be made or used
        kept = ("PATH", "PYTHONPATH", "QEMU_", "TMPDIR", "LD_LIBRARY_PATH")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(kept)},
            "HOME": str(folder), "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "COLUMNS": "100", "TERM": "xterm",
            "XDG_STATE_HOME": str(folder / "state"), "BITNET_EDGE_CACHE": str(folder / "cache"),
            "BITNET_EDGE_MODELS": str(folder / "models"),
            "PROMPT_TOOLKIT_NO_CPR": "1", **variables,
        }

    def start(self, *arguments: str, **how: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *arguments], cwd=self.folder, env={**self.environment, **how.pop("variables", {})},
            text=True, **{"start_new_session": True, **how},
        )

    def run(self, *arguments: str, code: int = 0, text: str = "", remark: str = "", **variables: str) -> str:
        """Its standard output.  ``text``: its standard input; ``remark``: a pattern of what it may write
        to standard error, by default nothing."""
        process = self.start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             variables=variables)
        try:
            output, errors = process.communicate(text, timeout=BOUND)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end within {BOUND:.0f} s") from None
        finally:
            end(process)
        sound(output + errors)
        need(process.returncode == code, f"status {process.returncode}, not {code}", errors or output)
        need(re.fullmatch(remark, errors, re.DOTALL), "unexpected on standard error", errors)
        return output

    def ask(self, *arguments: str, **more: Any) -> str:
        """The answer of `run` by the model inside, the same each time."""
        return self.run("run", "-m", MODEL, "--temp", "0", "-n", "40", *arguments, **more)


def end(process: subprocess.Popen[str]) -> None:
    """Nothing of it may be left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def terminated(process: subprocess.Popen[str]) -> None:
    """SIGTERM, as systemd sends it to all processes of a service: 143 at once, and no word about a defect."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        code = process.wait(BOUND)
    except subprocess.TimeoutExpired:
        raise Failed("SIGTERM does not end it") from None
    need(code == 143, f"SIGTERM: status {code}, not 143")


# ---- the checks ------------------------------------------------------------------------------------------------------

#: name -> a function that tries one thing; what it returns must be the same in every form
CHECKS: dict[str, Callable[[Program], object]] = {}
#: the names of those that depend on the processor and the C library
BRIEF: set[str] = set()


def check(name: str, brief: bool = False) -> Callable[[Callable[[Program], object]], Callable[[Program], object]]:
    def keep(function: Callable[[Program], object]) -> Callable[[Program], object]:
        CHECKS[name] = function
        if brief:
            BRIEF.add(name)
        return function

    return keep


@check("--version", brief=True)
def _(program: Program) -> object:
    return program.run("--version")


@check("--help, run --help-all")
def _(program: Program) -> object:
    return [program.run("--help"), program.run("run", "--help-all")]


@check("run", brief=True)
def _(program: Program) -> object:
    answer = program.run("run", "-m", MODEL, "--temp", "0", "--set", "ignore_eos=on", "-n", "48", PROMPT)
    need(answer == GOLDEN, "another answer than in golden.txt", answer)
    return answer


@check("run: a prompt that is not ASCII, from a pipe")
def _(program: Program) -> object:
    return program.ask(text="Zwei Grüntees für Zoë, bitte – とお茶 🍵\n")


@check("run: --ctx 2048 with --kv int8, int4, int4c, f16", brief=True)
def _(program: Program) -> object:
    return [program.ask("--ctx", "2048", "--kv", kind, PROMPT) for kind in ("int8", "int4", "int4c", "f16")]


@check("run: --kv int4 with window and sinks, far past them")
def _(program: Program) -> object:
    found = json.loads(program.ask("--ctx", "2048", "--kv", "int4", "--window", "64", "--sinks", "8", "-n", "150",
                                   "--set", "ignore_eos=on", "--json", PROMPT))
    need(found["usage"]["evicted"] > 64 and found["kv"]["window"] == 64, "nothing was dropped", found)
    return found["text"]


@check("run: --schema, --choice, --regex, --grammar")
def _(program: Program) -> object:
    answer = program.ask("--schema", json.dumps(SCHEMA), PROMPT)
    found = json.loads(answer)
    need(found["item"] in ("tea", "coffee") and 1 <= found["count"] <= 9, "not by the schema", answer)
    grammar = program.folder / "drinks.lark"
    grammar.write_text('start: "one " ("tea" | "coffee")\n')
    others = [program.ask("--choice", "tea,coffee", PROMPT), program.ask("--regex", "[0-9]{2} teas", PROMPT),
              program.ask("--grammar", str(grammar), PROMPT)]
    need(re.fullmatch(r"(tea|coffee)\n[0-9]{2} teas\none (tea|coffee)\n", "".join(others)), "another form", others)
    return [answer, *others]


@check("run: --by, --seed, a built-in template")
def _(program: Program) -> object:
    return [program.ask("--by", "word", PROMPT),
            program.run("run", "-m", MODEL, "--seed", "7", "-n", "40", PROMPT),
            program.ask("--set", "template=chatml", PROMPT)]


@check("run: a model with a chat template of its own")
def _(program: Program) -> object:
    """Rendered by Jinja: those that many models have are written in Python."""
    template = "{% for m in messages %}{{ m.role | upper }}: {{ m.content | trim }}\n{% endfor %}ANSWER:"
    model = program.folder / "template.gguf"
    model.write_bytes(with_template(PIECES.read_bytes(), template))
    return program.run("run", "-m", str(model), "--temp", "0", "-n", "8", "Hello")


@check("run: a SentencePiece vocabulary; tokens", brief=True)
def _(program: Program) -> object:
    tokens = program.run("tokens", "encode", "-m", str(PIECES), "Grüne Tees 🍵")
    return [tokens, program.run("tokens", "decode", "-m", str(PIECES), text=tokens),
            program.run("tokens", "count", "-m", MODEL, PROMPT),
            program.run("run", "-m", str(PIECES), "--raw", "--temp", "0", "-n", "8", "Hello")]


@check("run: a session is saved and goes on")
def _(program: Program) -> object:
    file = str(program.folder / "talk.bes")
    turns = [json.loads(program.ask("--session", file, "--json", text)) for text in (PROMPT, "And a coffee.")]
    need(turns[1]["usage"]["cached"] > turns[0]["usage"]["prompt"], "the conversation was read again", turns[1])
    return [turn["text"] for turn in turns]


@check("chat from a pipe")
def _(program: Program) -> object:
    return program.run("chat", "-q", "-m", MODEL, "--temp", "0", text=f"{PROMPT}\nAnd a coffee.\n")


@check("chat on a terminal, with its line editor")
def _(program: Program) -> object:
    ours, theirs = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = program.start("chat", "-m", MODEL, "--temp", "0", "--set", "history=off", stdin=theirs, stdout=theirs,
                            stderr=theirs, start_new_session=False, preexec_fn=own_terminal)
    os.close(theirs)
    screen, deadline = "", time.monotonic() + BOUND

    def until(what: Callable[[], object]) -> None:
        nonlocal screen
        while not what():
            need(time.monotonic() < deadline, "it did not appear on the terminal", screen)
            if select.select([ours], [], [], 0.05)[0]:
                try:
                    screen += os.read(ours, 1 << 16).decode("utf-8", "replace")
                except OSError:  # the program has closed its side
                    return

    try:
        until(lambda: not termios.tcgetattr(ours)[3] & termios.ICANON)  # the line editor has the terminal
        os.write(ours, b"/hel\t")
        until(lambda: "/help" in screen)  # completed
        os.write(ours, b"\r")
        until(lambda: "Ctrl-D quits" in screen)
        until(lambda: not termios.tcgetattr(ours)[3] & termios.ICANON)
        os.write(ours, b"\x04")
        until(lambda: process.poll() is not None)
        need(process.wait(BOUND) == 0, f"status {process.returncode}", screen)
        sound(screen)
    finally:
        end(process)
        os.close(ours)
    return None


@check("chat --jsonl")
def _(program: Program) -> object:
    request = {"v": 1, "id": "a", "op": "chat", "messages": MESSAGES, "max_tokens": 40, "by": "sentence"}
    lines = program.run("chat", "--jsonl", "-m", MODEL, "--temp", "0", text=json.dumps(request) + "\n").splitlines()
    return "".join(event.get("text", "") for event in map(json.loads, lines))


@check("batch of three lines, and --resume")
def _(program: Program) -> object:
    texts = ["Do you have tea?", "When do you open?", "Is this a complaint? My coffee is cold."]
    bodies = [{"messages": [{"role": "user", "content": text}], "max_tokens": 40, "temperature": 0} for text in texts]
    bodies[2]["choices"] = ["yes", "no"]
    lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body}
             for i, body in enumerate(bodies)]
    source, target = program.folder / "in.jsonl", program.folder / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    program.run("batch", str(source), str(target), "-m", MODEL, remark=".*")
    program.run("batch", str(source), str(target), "-m", MODEL, "--resume", remark=".*")
    answers = [json.loads(line) for line in target.read_text().splitlines()]
    need(len(answers) == 3, "not three answers", answers)
    return {each["custom_id"]: each["response"]["body"]["choices"][0]["message"]["content"] for each in answers}


@check("embed")
def _(program: Program) -> object:
    remark = r"[^\n]+\n"  # the model inside was not made for it
    return [program.run("embed", "-m", MODEL, "a cup of tea", remark=remark),
            program.run("embed", "-m", MODEL, "--cosine", "a cup of tea", "a pot of tea", remark=remark)]


@check("convert, and the result answers")
def _(program: Program) -> object:
    target = str(program.folder / "converted.gguf")
    made = json.loads(program.run("convert", str(PIECES), target, "--json", remark=".*"))
    return [made["sha256"], program.run("run", "-m", target, "--raw", "--temp", "0", "-n", "8", "Hello")]


@check("pull from a hub on this machine, list, rm")
def _(program: Program) -> object:
    with hub(PIECES.read_bytes()) as address:
        program.run("pull", "hf:owner/name", "--name", "pulled", "--as-is", remark=".*", HF_ENDPOINT=address)
    listed = program.run("list", "--json")
    answer = program.run("run", "-m", "pulled", "--raw", "--temp", "0", "-n", "8", "Hello")
    program.run("rm", "pulled", remark=".*")
    need("pulled" in listed and "pulled" not in program.run("list", "--json"), "the list", listed)
    known = json.loads(program.run("list", "--all", "--json"))
    for model in known:  # buffers are as large as the processor needs them
        del model["memory_bytes"], model["board_bytes"]
    return [answer, known]


@check("pull speaks TLS")
def _(program: Program) -> object:
    """To a server that does not: the failure must be one of TLS, with its one line."""
    with hub(b"") as address:
        program.run("pull", "hf:owner/name", code=1, remark=r"bitnet-edge: [^\n]*(SSL|TLS)[^\n]*\n",
                    HF_ENDPOINT=address.replace("http:", "https:"))
    return None


@check("model, fit")
def _(program: Program) -> object:
    shown = json.loads(program.run("model", MODEL, "--check", "--json"))
    planned = json.loads(program.run("fit", MODEL, "--json"))
    return [shown["config"], shown["sound"], planned["kv_bytes"]]


@check("bench")
def _(program: Program) -> object:
    program.run("bench", "-m", MODEL, "-d", "32", "-n", "4", "-r", "1", "--json", remark=".*")
    return None


@check("doctor", brief=True)
def _(program: Program) -> object:
    report = program.run("doctor")
    need("all tests passed" in report, "another result", report)
    return None


@check("pack, and what the packed program answers")
def _(program: Program) -> object:
    """One file packs itself; any other form needs such a file, and must say so."""
    guide = program.folder / "guide"
    question = ("--temp", "0", "--system", "Be polite.", PROMPT)
    pack = ("pack", MODEL, "-o", str(guide), "--", "chat", "--temp", "0", "--system", "Be polite.", "-n", "40")
    if not is_one_file(program.command):
        missing = ("--program", str(guide))  # otherwise it may find the one that make freeze has made
        program.run("pack", *missing, *pack[1:], code=2, remark=r"(bitnet-edge: [^\n]+\n)")
        return [program.run("run", "-m", MODEL, "-n", length, *question) for length in ("40", "8")]
    program.run(*pack)
    packed = Program([str(guide)], program.folder)
    packed.environment = program.environment
    need("model: demo" in packed.run("--version"), "it does not say what is inside")
    need("all tests passed" in packed.run("doctor"), "its doctor fails")
    need(packed.run(text=f"{PROMPT}\n", remark=".*").strip(), "it does not chat")
    whole = guide.read_bytes()
    guide.write_bytes(whole[:-1])
    packed.run("run", PROMPT, code=4, remark=r"(bitnet-edge: [^\n]+\n)")
    guide.write_bytes(whole)
    return [packed.run("run", PROMPT), packed.run("run", "-n", "8", PROMPT)]


@check("completion")
def _(program: Program) -> object:
    completed = program.run("", COMP_WORDS="bitnet-edge ru", COMP_CWORD="1", _BITNET_EDGE_COMPLETE="bash_complete")
    need("run" in completed, "no completion", completed)
    return [program.run(_BITNET_EDGE_COMPLETE=f"{shell}_source") for shell in ("bash", "zsh", "fish")]


@check("errors: one line, and the documented status")
def _(program: Program) -> object:
    one = r"(bitnet-edge: [^\n]+\n)"
    program.run("run", "-m", "nowhere.gguf", "hello", code=3, remark=one)
    program.run("run", "-m", MODEL, "--no-such-flag", "hello", code=2, remark=".*no-such-flag.*")
    program.run("run", "-m", MODEL, "--schema", '{"type": "tea"}', "hello", code=2, remark=f".*{one}")
    program.run("run", "-m", MODEL, "--memory", "1M", "hello", code=5, remark=one)
    return None


@check("a system prompt is read once, and what is kept of it is the same bytes on every processor")
def _(program: Program) -> object:
    system = " ".join(f"Table {i} has {i % 7} seats and stands by window {i % 5}." for i in range(60))
    asked = ("--threads", "1", "--set", "isa=scalar", "--system", system, "-n", "8", "--json", PROMPT)
    here, elsewhere = program.folder / "cache" / "beginnings", program.prompts
    answers = [json.loads(program.ask(*asked, remark=".*")) for _ in range(3)]
    need(answers[2]["usage"]["cached"] > 500, "it was read again", answers[2]["usage"])
    (kept,) = here.glob("*.bes")
    data = kept.read_bytes()  # its header says how long reading took, which the checksum at the end includes
    digest = hashlib.sha256(data[20 + int.from_bytes(data[12:16], "little") : -4]).hexdigest()
    if elsewhere and elsewhere.exists():  # what another program has read, on another processor
        kept.unlink()
        shutil.copy(elsewhere / kept.name, kept)
        answers.append(json.loads(program.ask(*asked, remark=".*")))
        need(answers[3]["usage"] == answers[2]["usage"], "it was read again", answers[3]["usage"])
    elif elsewhere:
        shutil.copytree(here, elsewhere)
    need(len({answer["text"] for answer in answers}) == 1, "another answer", [answer["text"] for answer in answers])
    program.run("rm", "--prompts", remark=".*1 remembered prompt.*")
    need(not kept.exists(), "rm --prompts has left it")
    return [answers[2]["usage"], answers[2]["text"], kept.name, digest]


@check("serve: OpenAI, Ollama, streams, page, metrics, ended by SIGTERM")
def _(program: Program) -> object:
    with served(program, "--set", "metrics=on", "--temp", "0") as ask:
        def post(path: str, body: object) -> Any:
            return json.loads(ask("POST", path, body))

        greedy = {"messages": MESSAGES, "temperature": 0, "max_tokens": 40}
        path = "/v1/chat/completions"
        said: dict[str, object] = {"refused": [
            ask("GET", "/nowhere", status=404), ask("DELETE", path, status=405), ask("POST", path, {}, 400)]}
        whole = post(path, greedy)["choices"][0]["message"]["content"]
        lines = ask("POST", path, {**greedy, "stream": True}).splitlines()
        events = [line[6:] for line in lines if line.startswith("data: ")]
        need(events[-1] == "[DONE]", "the stream has no end", events)
        streamed = "".join(json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events[:-1])
        need(streamed == whole, "the stream says something else", (whole, streamed))
        said["chat"] = whole
        form = {"type": "json_schema", "json_schema": {"name": "order", "schema": SCHEMA}}
        said["schema"] = post(path, {**greedy, "response_format": form})["choices"][0]["message"]["content"]
        called = post(path, {**greedy, "max_tokens": 80, "tools": [TOOL], "tool_choice": "required"})
        call = called["choices"][0]["message"]["tool_calls"][0]["function"]
        need(call["name"] == "order" and json.loads(call["arguments"])["count"] >= 1, "another call", call)
        said["tool call"] = call
        completed = post("/v1/completions", {"prompt": "Two", "temperature": 0, "max_tokens": 8})
        said["completion"] = completed["choices"][0]["text"]
        said["tokens"] = post("/tokenize", {"content": PROMPT})["tokens"]
        need(json.loads(ask("GET", "/v1/models"))["data"], "no model is listed")

        options = {"temperature": 0, "num_predict": 40}
        of_ollama = {"model": "any", "options": options}
        lines = ask("POST", "/api/chat", {**of_ollama, "messages": MESSAGES}).splitlines()
        parts = [json.loads(line) for line in lines]
        need(parts[-1]["done"] and len(parts) > 2, "no stream", parts)
        said["ollama"] = "".join(part["message"]["content"] for part in parts)
        said["generate"] = post("/api/generate", {**of_ollama, "prompt": PROMPT, "stream": False})["response"]
        need(json.loads(ask("GET", "/api/tags"))["models"], "no model is listed for Ollama")

        for name in re.findall(r'="(page/[\w.]+)"', ask("GET", "/")):
            need(ask("GET", f"/{name}"), f"no {name}")
        metrics = ask("GET", "/metrics")
        need("bitnet_edge_requests_failed_total 0\n" in metrics, "requests have failed", metrics)
        need(json.loads(ask("GET", "/health"))["status"] == "ok", "not in health")
    return said


@check("serve --embeddings, on a Unix socket", brief=True)
def _(program: Program) -> object:
    with served(program, "--embeddings", socket_instead=True) as ask:
        return json.loads(ask("POST", "/v1/embeddings", {"input": "a cup of tea"}))["data"][0]["embedding"]


@check("serve --state: a conversation goes on after a restart")
def _(program: Program) -> object:
    texts, messages, state = [PROMPT, "And a coffee."], [], str(program.folder / "kept")
    for text in texts:
        messages.append({"role": "user", "content": text})
        with served(program, "--state", state) as ask:
            body = {"messages": messages, "temperature": 0, "max_tokens": 40, "user": "guest"}
            found = json.loads(ask("POST", "/v1/chat/completions", body))
            messages.append(found["choices"][0]["message"])
    need(found["usage"]["prompt_tokens_details"]["cached_tokens"] > 10, "it was read again", found["usage"])
    return [message["content"] for message in messages]


@check("serve --kiosk: page, instructions, what is refused", brief=True)
def _(program: Program) -> object:
    file = program.folder / "kiosk.toml"
    file.write_text('title = "Corner Café"\ninstructions = "You are a waiter."\nlonges_answer = 8\n', "utf-8")
    program.run("serve", "--port", "0", "--kiosk", str(file), code=2, remark=r"[^\n]*longes_answer[^\n]*\n")
    file.write_text(file.read_text("utf-8").replace("longes_", "longest_"), "utf-8")
    with served(program, "--kiosk", str(file)) as ask:
        need("Corner Caf" in ask("GET", "/") and ask("GET", "/page/kiosk.js"), "no page")
        path, body = "/v1/chat/completions", {"messages": MESSAGES, "temperature": 0}
        said = json.loads(ask("POST", path, body))["choices"][0]["message"]["content"]
        refused = ask("POST", path, {"messages": [{"role": "system", "content": "Be rude."}, *MESSAGES]}, 400)
        return [said, json.loads(refused)["error"]["code"]]


# ---- what they use ---------------------------------------------------------------------------------------------------


def is_one_file(command: list[str]) -> bool:
    """True for a one-file program: an ELF file without the folder of a one-folder one."""
    path = Path(command[0])
    if len(command) > 1 or not path.is_file() or (path.parent / "_internal").exists():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def with_template(model: bytes, template: str) -> bytes:
    """A GGUF file that also has this chat template, as the first of its keys; its data stays aligned to 32 bytes."""
    key = b"tokenizer.chat_template"
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, 0)
    text = template.encode()
    text += b" " * (-(len(entry) + len(text)) % 32)
    n_keys = struct.unpack_from("<Q", model, 16)[0]
    return model[:16] + struct.pack("<Q", n_keys + 1) + entry[:-8] + struct.pack("<Q", len(text)) + text + model[24:]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class OverSocket(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(BOUND)
        self.sock.connect(self.host)


@contextlib.contextmanager
def served(program: Program, *arguments: str, socket_instead: bool = False) -> Iterator[Callable[..., str]]:
    """`serve` as ask(method, path, body), which returns the body of an answer; then SIGTERM."""
    with tempfile.TemporaryDirectory(prefix="be-", dir="/tmp") as short:
        port = free_port()
        place = ["--socket", f"{short}/http"] if socket_instead else ["--port", str(port)]
        log = open(f"{short}/log", "w+", encoding="utf-8")
        process = program.start("serve", "-m", MODEL, *place, *arguments, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=log)

        def ask(method: str, path: str, body: object = None, status: int = 200) -> str:
            connection = OverSocket(f"{short}/http") if socket_instead else http.client.HTTPConnection(
                "127.0.0.1", port, timeout=BOUND)
            with contextlib.closing(connection):
                data = None if body is None else json.dumps(body)
                connection.request(method, path, data, {
                    "Content-Type": "application/json", "Host": "localhost", "Accept": "text/html, */*"})
                answer = connection.getresponse()
                text = answer.read().decode()
            sound(text)
            need(answer.status == status, f"{method} {path}: status {answer.status}", text)
            return text

        def written() -> str:
            log.seek(0)
            return log.read()

        try:
            deadline = time.monotonic() + BOUND
            while " answers at " not in written():
                sound(written())
                need(process.poll() is None and time.monotonic() < deadline, "it does not start", written())
                time.sleep(0.05)
            yield ask
            terminated(process)
            sound(written())
        except OSError as error:
            raise Failed(f"{error}: {written()[-600:]}") from None
        finally:
            end(process)
            log.close()


@contextlib.contextmanager
def hub(model: bytes) -> Iterator[str]:
    """The address of a model hub on loopback with one repository, owner/name, of one file."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    listed = [{"type": "file", "path": "model.gguf", "size": len(model),
               "lfs": {"oid": hashlib.sha256(model).hexdigest(), "size": len(model)}}]
    pages = {
        "/api/models/owner/name/revision/main": json.dumps({"id": "owner/name", "sha": commit}).encode(),
        f"/api/models/owner/name/tree/{commit}": json.dumps(listed).encode(),
        f"/owner/name/resolve/{commit}/model.gguf": model,
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:  # noqa: N802
            data = pages.get(self.path.partition("?")[0])
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


#: a start-up module for an unfrozen program: at its end it adds the names of what it has imported to a file
RECORDER = """\
import atexit, os, sys

def record():
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    with open({file!r}, "a") as out:
        out.write("".join(f"{{spec.name}}\\n" for spec in specs if spec is not None))

atexit.register(record)
"""


@contextlib.contextmanager
def recording(file: Path | None) -> Iterator[dict[str, str]]:
    """Variables with which an unfrozen program records its modules; at the end ``file`` has each name once."""
    if file is None:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="bitnet-edge-modules-") as folder:
        names = Path(folder, "names")
        names.touch()
        Path(folder, "sitecustomize.py").write_text(RECORDER.format(file=str(names)))
        path = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        yield {"PYTHONPATH": os.pathsep.join(path)}
        file.write_text("".join(f"{name}\n" for name in sorted(set(names.read_text().split()) - {"sitecustomize"})))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the answers to FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with the answers in FILE")
    parser.add_argument("--brief", action="store_true", help="try what depends on the processor and the C library")
    parser.add_argument("--modules", type=Path, metavar="FILE", help="write the names of imported modules to FILE")
    parser.add_argument("--qemu", metavar="CPU", help="emulate this processor")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="with arguments before its own")
    options = parser.parse_args()
    if not options.program:
        parser.error("no PROGRAM")
    if options.qemu and "QEMU_CPU" not in os.environ:  # once more, where the emulator is registered
        os.environ["QEMU_CPU"] = options.qemu
        os.execv(sys.executable, [sys.executable, str(HERE / "emulated.py"), sys.executable, *sys.argv])
    command = [os.path.abspath(options.program[0]) if "/" in options.program[0] else options.program[0],
               *options.program[1:]]
    expected = json.loads(options.compare.read_text()) if options.compare else {}
    pages = os.environ.get("QEMU_PAGESIZE")
    print(" ".join(options.program) + (f" on {options.qemu}" if options.qemu else "")
          + (f", pages of {pages} bytes" if pages else ""), flush=True)

    answers: dict[str, object] = {}
    failures, begun = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bitnet-edge-check-", dir="/var/tmp") as folder, \
            recording(options.modules) as variables:
        program = Program(command, Path(folder), **variables)
        if file := options.write or options.compare:
            program.prompts = file.with_suffix(".prompts")
            if options.write:
                shutil.rmtree(program.prompts, ignore_errors=True)
        checks = {name: each for name, each in CHECKS.items() if name in BRIEF or not options.brief}
        for name, function in checks.items():
            at = time.monotonic()
            try:
                answers[name] = function(program)
                if options.compare:
                    need(name in expected, "not in the file of answers")
                    need(answers[name] == expected[name], "another answer", difference(expected[name], answers[name]))
                print(f"ok     {time.monotonic() - at:6.1f} s  {name}", flush=True)
            except (Failed, OSError, ValueError, KeyError, IndexError, TypeError) as error:
                failures += 1
                what = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
                print(f"FAILED {time.monotonic() - at:6.1f} s  {name}: {what}", flush=True)
    if options.write and not failures:
        options.write.write_text(json.dumps(answers))
    print(f"{len(checks) - failures} of {len(checks)} checks passed in {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if failures else 0


def difference(expected: object, found: object) -> str:
    """The first place where two answers differ."""
    one, other = json.dumps(expected, ensure_ascii=False), json.dumps(found, ensure_ascii=False)
    at = len(os.path.commonprefix([one, other]))
    return f"expected ...{one[max(0, at - 40) : at + 160]}, found ...{other[max(0, at - 40) : at + 160]}"


if __name__ == "__main__":
    sys.exit(main())
