"""--memory: no command's process ever takes more, by the kernel's own count, and the least limit that a refusal names
works.

Each command is first refused, then runs with that least limit, answers until its context is full and more, and reports
VmHWM, the most that was resident.  A limit leaves no slack on purpose: the margin is in the plan itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import make_model
from edge.serve.exchange import RESERVE
from tests.http_service import Server, serving
from tests.services import REAL, ROOT, environment, on_a_terminal
from tests.terminal import CTRL_D, EDITOR, Terminal

#: the program, which at its end writes what the kernel says of it to $PEAK
WATCHED = [sys.executable, "-c", """
import atexit, os, sys
def end():
    with open("/proc/self/status") as status, open(os.environ["PEAK"], "w") as out:
        out.write(status.read())
atexit.register(end)
from edge.cli.main import main
sys.argv[0] = "bitnet-edge"
sys.exit(main())
"""]
TEXT = "Tell me a story, für schön, Tiếng Việt, 한국어"  # not all ASCII: the tables of all characters come in
LONG = ("--set", "ignore_eos=on", "-n", "700")  # more than the context holds
SCHEMA = '{"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a", "n"]}'
TURNS = f"{TEXT}\n/regen\n{TEXT} again\n/undo\nhello\n/stats\n"


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "tiny.gguf"
    make_model.make(path, "tiny-llama", "PQ2_0_R64", "Q8_0")
    return path


@pytest.fixture(scope="session")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose weights are copied into 2 MiB pages while it answers: 36 MB of them."""
    path = tmp_path_factory.mktemp("moved") / "moved.gguf"
    shape = replace(make_model.SHAPES["tiny-llama"], n_layer=8, hidden=1024, ffn=4096, n_head=8, n_kv_head=8)
    make_model.make(path, shape, "PQ2_0", "Q8_0")
    return path


def least_named(text: str) -> int:
    """The megabytes of the least limit that works, as a refusal names them."""
    found = re.search(r"it works from --memory (\d+)M on", text)
    assert found, text
    return int(found[1])


def kept(status: str, limit: int) -> None:
    """Assert that /proc/PID/status keeps to the limit, given in megabytes."""
    peak = {name: int(kib) * 1024 / 1e6 for name, kib in re.findall(r"(VmHWM|RssAnon|RssFile):\s+(\d+) kB", status)}
    assert 10 < peak["VmHWM"] <= limit, (peak, limit)


def run(tmp_path: Path, args: Sequence[str | Path], limit: int, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command within a limit in megabytes."""
    env = environment(PEAK=str(tmp_path / "peak"), BITNET_EDGE_STATE=str(tmp_path))
    line = [*WATCHED, *map(str, args), "--memory", f"{limit}M"]
    return subprocess.run(line, cwd=ROOT, env=env, input=text, capture_output=True, text=True)


def least(tmp_path: Path, *args: str | Path) -> int:
    """The least limit of a command in megabytes, as its refusal names it."""
    refused = run(tmp_path, args, 15)
    assert refused.returncode == 5, refused.stderr
    return least_named(refused.stderr)


def within(tmp_path: Path, *args: str | Path, text: str = "", times: int = 1) -> str:
    """Run a command with its least limit, so many times; what it printed last."""
    limit = least(tmp_path, *args)
    for _ in range(times):
        done = run(tmp_path, args, limit, text)
        cut = "incomplete and does not have its form" in done.stderr  # of random weights it may be
        assert done.returncode == int(cut), done.stderr
        kept((tmp_path / "peak").read_text(), limit)
    return done.stdout + done.stderr


RUN: dict[str, Sequence[str]] = {
    "plain": LONG,
    "json": (*LONG, "--json"),
    "schema": ("--schema", SCHEMA, "-n", "300"),
    "regex": ("--regex", "[a-z ]{300}", "-n", "300"),
    "float cache": (*LONG, "--kv", "f16", "--window", "200"),
}


@pytest.mark.parametrize("options", RUN.values(), ids=list(RUN))
def test_run(small: Path, tmp_path: Path, options: Sequence[str]) -> None:
    within(tmp_path, "run", "-m", small, *options, TEXT)


@pytest.mark.parametrize("options", [(), ("-c", "256")], ids=str)
def test_the_least_limit_that_is_named_is_the_least(small: Path, tmp_path: Path, options: Sequence[str]) -> None:
    args = ("run", "-m", small, *options, "-n", "1", "hi")
    limit = least(tmp_path, *args)
    assert run(tmp_path, args, limit).returncode == 0
    assert run(tmp_path, args, limit - 2).returncode == 5


@pytest.mark.parametrize(("model", "n"), [("small", "700"), ("moved", "60")])
def test_run_with_a_session(request: pytest.FixtureRequest, tmp_path: Path, model: str, n: str) -> None:
    """Made, and then continued.  To know the model again its file is read in many places, but not through the map."""
    within(tmp_path, "run", "-m", request.getfixturevalue(model), "--set", "ignore_eos=on", "-n", n,
           "--session", tmp_path / "talk.bes", TEXT, times=2)


def test_a_conversation_that_is_loaded_takes_the_room_of_the_one_before(small: Path, tmp_path: Path) -> None:
    """Regression: for a moment there were two KV caches, of which the plan has one."""
    talk = tmp_path / "talk.bes"
    cache = ("--ctx", "4096", "--kv", "f32")
    within(tmp_path, "chat", "-m", small, *cache, "--set", "ignore_eos=on", "-n", "3600",
           text=f"{TEXT}\n/save {talk}\n/load {talk}\n/load {talk}\n/context\n")


@pytest.mark.parametrize(
    ("model", "options"),
    [("small", LONG), ("small", (*LONG, "--session", "talk.bes")), ("small", ("-n", "100", "--schema", SCHEMA)),
     ("moved", ("--set", "ignore_eos=on", "-n", "60", "--session", "talk.bes"))],
)
def test_chat_in_a_pipe(request: pytest.FixtureRequest, tmp_path: Path, model: str, options: Sequence[str]) -> None:
    options = [str(tmp_path / each) if each.endswith(".bes") else each for each in options]
    said = within(tmp_path, "chat", "-m", request.getfixturevalue(model), *options, text=TURNS, times=2)
    header, planned, held = (
        int(re.search(pattern, said)[1])  # type: ignore[index]
        for pattern in (r"(\d+) MB of memory planned", r"of (\d+) MB planned", r"rss (\d+) MB")
    )
    assert header == planned >= held  # the header and /stats mean the same


def test_chat_for_programs(small: Path, tmp_path: Path) -> None:
    requests = [
        {"op": "chat", "id": str(i), "messages": [{"role": "user", "content": TEXT}], "max_tokens": 300,
         **({"schema": json.loads(SCHEMA)} if i == 2 else {"ignore_eos": True})}
        for i in range(3)
    ]
    within(tmp_path, "chat", "-m", small, "--jsonl", text="".join(json.dumps(each) + "\n" for each in requests))


@pytest.mark.parametrize("session", [False, True])
def test_chat_on_a_terminal(small: Path, tmp_path: Path, session: bool) -> None:
    """With a full history, long lines, search and completion."""
    folder = tmp_path / "bitnet-edge"
    folder.mkdir()
    entries = "".join(f"\n# 2026-01-01 00:00:00\n+a line typed before, für {i}\n" for i in range(20000))
    (folder / "history").write_text(entries[: 1 << 20])
    env = on_a_terminal(tmp_path, PEAK=str(tmp_path / "peak"))
    args = ["chat", "-m", str(small), *LONG, *(("--session", str(tmp_path / "talk.bes")) if session else ())]
    with Terminal([*WATCHED, *args, "--memory", "15M"], env) as t:
        limit = least_named(t.expect("M on: "))
    with Terminal([*WATCHED, *args, "--memory", f"{limit}M"], env, columns=60) as t:
        for line in (TEXT, "word " * 200, "/regen", "/st\tats", "/help", "/undo", "\x12typed\x07\x15/context"):
            t.expect(EDITOR)
            t.line(line)
        t.expect(EDITOR)
        t.type(CTRL_D)
        assert t.wait() == 0
    kept((tmp_path / "peak").read_text(), limit)


def test_batch(small: Path, tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 200}
    forms = [{}, {"response_format": {"type": "json_schema", "json_schema": {
        "name": "a", "schema": json.loads(SCHEMA)}}}]
    (tmp_path / "in").write_text("".join(
        json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body | forms[i % 2]})
        + "\n" for i in range(6)))
    within(tmp_path, "batch", tmp_path / "in", tmp_path / "out", "-m", small)


def test_embed(small: Path, tmp_path: Path) -> None:
    within(tmp_path, "embed", "-m", small, (TEXT + " ") * 4)


def test_bench(moved: Path, tmp_path: Path) -> None:
    within(tmp_path, "bench", "-m", moved, "--depths", "100", "-n", "16", "-r", "1", "--parallel", "1,2")


SERVED: dict[str, Sequence[str]] = {
    "plain": (),
    "state": ("--state", "STATE"),
    "several": ("--parallel", "3", "--state", "STATE"),
}


FORM = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": json.loads(SCHEMA)}}}
#: requests that take the most memory for their size, whether they are answered or not
LARGE: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "Hi " * 1_300_000}]},
    *({"messages": [{"role": "user", "content": "x"}], "metadata": values} for values in (
        [{}] * 70_000, [i + 0.5 for i in range(280_000)], [f"{i:09}" for i in range(140_000)])),
    {"prompt": [7] * 280_000},
]


def talk(server: Server, *asked: dict[str, Any]) -> None:
    """Ask a question with each of these options, six at a time, and for what is known of the model."""
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda i: server.chat(f"{TEXT} {i}", max_tokens=200, **asked[i]), range(len(asked))))
    for path in ("/", "/api/tags", "/api/ps", "/v1/models"):
        assert server.ask("GET", path, None, {"Accept": "text/html"})[0] == 200


def status_of(server: Server) -> str:
    return Path(f"/proc/{server.process.pid}/status").read_text()


@pytest.mark.parametrize("options", SERVED.values(), ids=list(SERVED))
def test_serve(small: Path, tmp_path: Path, options: Sequence[str]) -> None:
    """Several at once, and large requests.  With what the refusal of a form asks for in addition also forms, although
    conversations had taken it.
    """
    args = ["-m", str(small), *(each.replace("STATE", str(tmp_path / "state")) for each in options)]
    limit = least(tmp_path, "serve", "--port", "0", *args)
    with serving(*args, "--memory", f"{limit}M") as server:
        question = {"messages": [{"role": "user", "content": TEXT}]}
        status, _, body = server.ask("POST", "/v1/chat/completions", {**question, **FORM})
        needed = re.fullmatch(
            r"answers that follow a grammar take (\d+) MB, the memory limit leaves \d MB", body["error"]["message"])
        assert status == 503 and needed, body
        talk(server, *[{}] * 12)
        with ThreadPoolExecutor(3) as pool:
            for each in LARGE:
                path = "/v1/completions" if "prompt" in each else "/v1/chat/completions"
                said = list(pool.map(lambda _: server.ask("POST", path, {**each, "max_tokens": 1})[0], range(3)))  # noqa: B023
                assert set(said) <= {200, 400, 413, 503}
        many = {"n": 8, "max_tokens": 400, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
        assert server.ask("POST", "/v1/chat/completions", {**question, **many})[0] == 200
        kept(status_of(server), limit)
    limit += int(needed[1]) + 1
    with serving(*args, "--memory", f"{limit}M") as server:
        talk(server, *[{}] * 40)
        talk(server, *[FORM, {}] * 6)
        kept(status_of(server), limit)


def test_fit_says_what_a_server_takes(small: Path, tmp_path: Path) -> None:
    """All that is used, and not much more than that and what is planned for large requests and many connections."""
    fit = subprocess.run([*REAL, "fit", str(small), "--json"], cwd=ROOT, env=environment(), capture_output=True)
    limit = json.loads(fit.stdout)["server_bytes"] // 10**6 + 2
    with serving("-m", str(small), "--ctx", "512", "--memory", f"{limit}M") as server:
        talk(server, *[{}] * 12)
        kept(status_of(server), limit)
        peak = int(re.search(r"VmHWM:\s+(\d+) kB", status_of(server))[1]) * 1024  # type: ignore[index]
    assert limit * 10**6 - RESERVE - 5_000_000 <= peak


def test_serve_embeddings(small: Path, tmp_path: Path) -> None:
    args = ("-m", str(small), "--embeddings")
    limit = least(tmp_path, "serve", "--port", "0", *args)
    with serving(*args, "--memory", f"{limit}M") as server:
        assert server.ask("POST", "/v1/embeddings", {"input": [TEXT * 4] * 40})[0] == 200
        kept(Path(f"/proc/{server.process.pid}/status").read_text(), limit)
