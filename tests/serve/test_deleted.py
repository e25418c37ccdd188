"""A command that runs for long has read all of the program before it is ready: it goes on when the program is gone."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http_service import Server, serving
from tests.services import ROOT, environment, on_a_terminal
from tests.terminal import EDITOR, Terminal

#: runs the copy; writes the name of each module that is read from a file when the copy is gone
DRIVER = """\
import os, sys

def hook(event, arguments):
    if event == "import" and arguments[0] not in sys.builtin_module_names and not os.path.exists(here):
        os.write(log, f"{arguments[0]}\\n".encode())

here = os.path.abspath(sys.argv[1])
log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
del sys.argv[1:3]
sys.addaudithook(hook)
from edge.cli.main import main
main()
"""

ASKED = [{"role": "user", "content": "Two teas and a scone, please."}]
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["drink"], "properties": {
    "drink": {"enum": ["tea", "coffee"]}, "when": {"type": "string", "format": "date"},
    "n": {"type": "integer", "minimum": 1}, "code": {"type": "string", "pattern": "^a[bc]+$"}}}
TOOLS = [{"type": "function", "function": {"name": "order", "parameters": SCHEMA}}]
FORMS: list[dict[str, Any]] = [
    {}, {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, {"regex": r"\p{Lu}\w+"},
    {"response_format": {"type": "json_object"}}, {"choices": ["yes", "no"]}, {"grammar": "start: /[a-z]{3}/"},
    {"tools": TOOLS, "tool_choice": "required"}, {"n": 2, "seed": 4, "logprobs": True, "top_logprobs": 2}]
CHAT = "/v1/chat/completions"


class Copy:
    """A copy of the program that can be deleted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder / "copy", folder / "imported"
        ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.p[yx][xdi]", "*.o")
        for name in ("edge", "pyx"):
            shutil.copytree(ROOT / name, self.folder / name, ignore=ignored)
        (self.folder / "driver.py").write_text(DRIVER)
        self.command = [sys.executable, str(self.folder / "driver.py"), str(self.folder), str(self.log)]
        self.variables = {"PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1", "XDG_CACHE_HOME": str(folder)}

    def delete(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def imported(self) -> list[str]:
        """The modules that were imported afterwards."""
        return self.log.read_text().split()


@pytest.fixture
def copy(tmp_path: Path, bundled_model: Path) -> Copy:
    return Copy(tmp_path)


@contextlib.contextmanager
def deleted(copy: Copy, *arguments: str) -> Iterator[Server]:
    """A service of which the program was deleted before the first request."""
    with serving("--ctx", "512", *arguments, command=copy.command, **copy.variables) as server:
        where = Path(f"/proc/{server.process.pid}/maps")
        assert not where.exists() or str(copy.folder) in where.read_text()  # it is the copy that runs
        copy.delete()
        yield server


def asked_for_everything(server: Server) -> None:
    """Every kind of request, and right answers."""
    tags = server.ask("GET", "/api/tags")[2]
    for path in ("/health", "/metrics", "/v1/models", "/api/ps", "/api/version", "/"):
        assert server.ask("GET", path, headers={"Accept": "text/html"})[0] == 200, path
    assert tags["models"][0]["size"] > 0
    for form in FORMS:
        for stream in (False, True):
            body = {"messages": ASKED, "max_tokens": 60, "temperature": 1, "stream": stream, **form}
            status, _, found = server.ask("POST", CHAT, body)
            assert status == 200 and "internal error" not in str(found), found
            assert form.get("tools") is None or "tool_calls" in str(found)
    plain: list[tuple[str, Any]] = [
        ("/v1/completions", {"prompt": ["Hello", "Grüße"], "echo": True, "logprobs": 2, "max_tokens": 8}),
        ("/v1/responses", {"input": "Hello", "max_output_tokens": 8}), ("/tokenize", {"content": "Grüße 😀"}),
        ("/detokenize", {"tokens": [1, 2]}), ("/api/generate", {"prompt": "Hello", "options": {"num_predict": 8}}),
        ("/api/chat", {"messages": ASKED, "format": SCHEMA, "tools": TOOLS}), ("/api/show", {"model": "demo"}),
        (CHAT, {"messages": ASKED, "partial": True, "max_tokens": 0})]
    for path, asked in plain:
        assert server.ask("POST", path, asked)[0] == 200, path
    bad: list[tuple[Any, int]] = [
        (b"{", 400), (b"\xff", 400), ({"messages": []}, 400), ({"messages": ASKED, "regex": "["}, 400),
        ({"messages": ASKED, "grammar": "start: ("}, 400), ({"messages": ASKED, "temperature": 9}, 400),
        ({"messages": [{"role": "user", "content": "a " * 9000}]}, 400), (b"[" * 99999, 413)]
    for wrong, status in bad:
        assert server.ask("POST", CHAT, wrong)[0] == status, wrong
    for host, status in (("xn--bcher-kva.example", 403), ("b\xfccher.example", 403), ("localhost", 200)):
        assert server.ask("GET", "/health", headers={"Host": host})[0] == status
    assert server.ask("PUT", CHAT)[0] == 405 and server.ask("GET", "/nowhere")[0] == 404
    with server.socket() as leaves:
        body = json.dumps({"messages": ASKED, "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
        leaves.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (
            CHAT.encode(), len(body), body))
        assert leaves.recv(100).startswith(b"HTTP/1.1 200")
    with server.socket() as garbled:
        garbled.sendall(b"garbled\r\n\r\n")
        assert garbled.recv(100).startswith(b"HTTP/1.1 400")
    state = server.until(cancelled=1, running=0)
    assert state["status"] == "ok" and state["failed"] == 0 and server.ask("GET", "/api/tags")[2] == tags


def test_a_service(copy: Copy) -> None:
    with deleted(copy, "--set", "metrics=on", "--state", str(copy.log.parent / "state")) as server:
        asked_for_everything(server)
    assert server.process.returncode == 128 + signal.SIGTERM and copy.imported == []
    assert list((copy.log.parent / "state").glob("*.bes"))


def test_a_template_of_the_user(copy: Copy) -> None:
    """Jinja itself loads some of its parts late: where a template fails, and for some filters."""
    file = copy.log.parent / "t.jinja"
    file.write_text("{% for m in messages %}{% if m.content == 'fail' %}{{ 1 // 0 }}{% endif %}{{ m | pprint }}"
                    "{{ m.content | tojson | wordwrap | title | urlize }}{{ strftime_now('%Y') }}\\u00e9{% endfor %}: ")
    with deleted(copy, "--set", f"template={file}") as server:
        assert server.chat("Tea.")["choices"]
        status, _, found = server.ask("POST", CHAT, {"messages": [{"role": "user", "content": "fail"}]})
        assert status == 500 and "by zero" in found["error"]["message"]
        assert server.ask("GET", "/health")[2]["status"] == "ok"
    assert copy.imported == []


def test_lines_and_a_pipe(copy: Copy) -> None:
    """`chat --jsonl`: forms, functions, errors; then `chat` with lines."""
    asked = [{"op": "chat", "messages": ASKED, "max_tokens": 40, **more} for more in (
        {}, {"schema": SCHEMA}, {"regex": "[0-9]{3}"}, {"choices": ["yes", "no"]}, {"tools": TOOLS}, {"regex": "["})]
    lines = "".join(json.dumps(each) + "\n" for each in [*asked, {"op": "nothing"}])
    for arguments, given, wanted in ((["--jsonl"], lines, '"ev": "done"'), ([], "Hello\nGrüße 😀\n", "Hello"),
                                     (["--choice", "Yes,No,Perhaps"], "Hello\n/regen\n", "e")):
        spare = shutil.copytree(copy.folder, copy.folder.parent / "spare")
        process = subprocess.Popen(
            [*copy.command, "chat", "--ctx", "512", *arguments], env=environment(**copy.variables), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with process:
            assert process.stdout and process.stderr
            (process.stdout if "--jsonl" in arguments else process.stderr).readline()  # it is ready
            copy.delete()
            out, _ = process.communicate(given, timeout=300)
        assert process.returncode == 0 and wanted in out and "internal" not in out, out
        assert copy.imported == []
        spare.rename(copy.folder)


def test_a_chat_on_a_terminal(copy: Copy, tmp_path: Path) -> None:
    variables = {**on_a_terminal(tmp_path), **copy.variables}
    with Terminal([*copy.command, "chat", "--ctx", "512"], variables) as terminal:
        terminal.expect("Ctrl-D quits")
        terminal.expect(EDITOR)  # it is ready
        copy.delete()
        talk = tmp_path / "talk.bes"
        for line, words in (("Hello", ""), ("Grüße 😀", ""), ("/stats", "rss"), ("/help", "/undo"), ("/sett", "/set"),
                            ("/set top_p 0.5", ""), (f"/save {talk}", "saved"), (f"/load {talk}", r"2\s+questions"),
                            ("/system be nice", ""), ("/regen", ""), ("/context", "token"), ("/undo", "")):
            terminal.line(line)
            terminal.expect(f"2004l.*?{words}")  # it has the line, and answers, maybe with the next prompt
            terminal.expect(EDITOR)
        terminal.line("/exit")
        assert terminal.wait() == 0
    assert copy.imported == []
