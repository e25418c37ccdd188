"""``serve --socket``: where it listens, readiness and watchdog of systemd."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_engine import reply
from tests.http_service import service
from tests.services import FAKE, REAL, Manager, UnixConnection, asked, environment

CHAT = "/v1/chat/completions"
HEALTH = ("GET", "/health", None)


@pytest.fixture
def path(folder: Path) -> Path:
    """Where the service listens."""
    return folder / "socket"


@pytest.fixture
def manager(folder: Path) -> Iterator[Manager]:
    with contextlib.closing(Manager(folder)) as one:
        yield one


def refused(*arguments: str, command: list[str] = REAL) -> tuple[int, str]:
    """Exit code and the one line of a service that must not start."""
    done = subprocess.run(
        [*command, "serve", "--socket", *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=300,
        env=environment(),
    )
    assert done.stdout == b"" and done.stderr.count(b"\n") == 1
    return done.returncode, done.stderr.decode()


@contextlib.contextmanager
def asking(path: Path, question: str, n: int) -> Iterator[UnixConnection]:
    """A connection whose question is being answered."""
    with contextlib.closing(UnixConnection(path)) as connection:
        body = f'{{"messages": [{{"role": "user", "content": "{question}"}}], "max_tokens": {n}, "stream": true}}'
        connection.request("POST", "/v1/chat/completions", body)
        connection.getresponse().readline()
        yield connection


def health(path: Path) -> tuple[int, dict[str, Any]]:
    with contextlib.closing(UnixConnection(path)) as connection:
        connection.request("GET", "/health")
        response = connection.getresponse()
        return response.status, json.load(response)


# ---- systemd ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
def test_ready_is_sent_when_it_is_true(folder: Path, path: Path, abstract: bool) -> None:
    """READY=1 comes when requests are answered, and not before the model is loaded."""
    loading = folder / "loading"
    loading.touch()
    with contextlib.closing(Manager(folder, abstract)) as manager:
        process = subprocess.Popen(
            [*FAKE, "serve", "--socket", str(path)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=environment(FAKE_HOLD=str(loading), **manager.environment()))
        with process:
            with contextlib.closing(UnixConnection(path)) as early:  # it listens already
                early.request("GET", "/health")
                assert early.getresponse().status == 503
            assert manager.hear(0.3) == []
            loading.unlink()
            manager.expect("READY=1")
            assert asked(path, "hello") == reply("hello")
            process.terminate()


def test_the_system_prompt_is_read_before_the_first_question(path: Path) -> None:
    with service(path, "--system", "be nice", command=FAKE), contextlib.closing(UnixConnection(path)) as connection:
        connection.request("POST", "/v1/chat/completions", '{"messages": [{"role": "user", "content": "hello"}]}')
        usage = json.load(connection.getresponse())["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= len("be nice")


def test_the_watchdog_is_fed_when_idle_and_while_answering(path: Path, manager: Manager) -> None:
    environ = {**manager.environment(watchdog=0.6), "FAKE_DELAY": "0.02"}
    with service(path, command=FAKE, **environ):
        for _ in range(3):
            manager.expect("WATCHDOG=1")
        with asking(path, "long", 8000):
            manager.hear(0.3)  # what was sent before
            for _ in range(3):
                manager.expect("WATCHDOG=1")


@pytest.mark.slow
def test_the_watchdog_is_not_fed_when_the_decode_loop_hangs(path: Path, manager: Manager) -> None:
    lines = ["import time", "from edge.serve import conversations", "conversations.STUCK = 1",
             "from tests import fake_engine", "fake_engine.install()", "step = fake_engine.FakeTransformer.step",
             "def hang(self, batch):", "    step(self, batch)", "    if len(batch[0].kv.ids) > 12: time.sleep(1000)",
             "fake_engine.FakeTransformer.step = hang", "from edge.cli.main import main", "main()"]
    command = [sys.executable, "-c", "\n".join(lines)]
    with (service(path, command=command, **manager.environment(watchdog=0.6)) as process,
          asking(path, "hello", 16)):
        manager.expect("WATCHDOG=1")
        while health(path)[0] == 200:  # on a busy machine it takes a while to hang
            time.sleep(0.05)
        manager.hear(0.2)  # what was sent before
        with contextlib.closing(UnixConnection(path)) as other:
            other.request("GET", "/v1/models")  # the event loop is well, and that does not count
            assert other.getresponse().status == 200
        assert manager.hear(1) == []
        process.kill()  # it never ends by itself


def test_health_and_the_watchdog_ask_for_answers(path: Path, manager: Manager) -> None:
    """Answers that fail, one after the other; then one that is right again."""
    def ask(question: str) -> int:
        with contextlib.closing(UnixConnection(path)) as connection:
            connection.request("POST", CHAT, json.dumps({"messages": [{"role": "user", "content": question}]}))
            return connection.getresponse().status

    with service(path, command=FAKE, **manager.environment(watchdog=0.3)):
        assert [ask("crash"), ask("crash"), ask("hello"), ask("crash"), ask("crash")] == [500, 500, 200, 500, 500]
        assert health(path)[0] == 200
        manager.expect("WATCHDOG=1")
        assert ask("crash") == 500
        status, said = health(path)
        assert status == 500 and "the last 3 answers failed" in said["error"]
        manager.hear(0.2)
        assert manager.hear(1) == []
        assert ask("hello") == 200 and health(path)[0] == 200
        manager.expect("WATCHDOG=1")


@pytest.mark.parametrize(
    ("extra", "fed"),
    [({"WATCHDOG_PID": "1"}, False), ({"WATCHDOG_USEC": "soon"}, False), ({"WATCHDOG_USEC": "0"}, False),
     ({"WATCHDOG_PID": str(os.getpid())}, True)],  # our parent: that is how a one-file program sees it
)
def test_only_the_watchdog_of_this_process_is_fed(
    path: Path, manager: Manager, extra: dict[str, str], fed: bool
) -> None:
    with service(path, command=FAKE, **{**manager.environment(watchdog=0.3), **extra}):
        if fed:
            manager.expect("WATCHDOG=1")
        else:
            assert "WATCHDOG=1" not in manager.hear(1)


def test_a_manager_that_does_not_listen_harms_nothing(path: Path, folder: Path) -> None:
    with service(path, command=FAKE, NOTIFY_SOCKET=f"{folder}/nobody", WATCHDOG_USEC="300000"):
        assert asked(path, "hello") == reply("hello")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_answers_and_removes_the_socket(path: Path, manager: Manager, number: int) -> None:
    with service(path, command=FAKE, FAKE_DELAY="0.01", **manager.environment()) as process:
        with asking(path, "long", 8000):
            process.send_signal(number)
            assert process.wait(300) == 128 + number
        assert process.stderr and process.stderr.read() == ""
        assert "STOPPING=1" in manager.hear(0.2)
    assert not path.exists()


# ---- where it listens ------------------------------------------------------------------------------------------------


def sent(path: Path, *requests: tuple[str, str, dict[str, Any] | None], cut: int | None = None) -> socket.socket:
    """A client that has sent these requests, and has said that it sends no more, as nc -N does."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(300)
    client.connect(str(path))
    for method, where, body in requests:
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {where} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        client.sendall((head.encode() + data)[:cut])
    client.shutdown(socket.SHUT_WR)
    return client


def responses(client: socket.socket) -> list[bytes]:
    with client:
        return b"".join(iter(lambda: client.recv(1 << 16), b"")).split(b"HTTP/1.1 ")[1:]


def test_a_client_that_sends_no_more_gets_its_answer(path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    with service(path, command=FAKE, FAKE_DELAY="0.01"):
        for more in ({}, {"stream": True}):
            (answer,) = responses(sent(path, ("POST", CHAT, {**body, **more})))
            assert answer.startswith(b"200") and (b"[DONE]" if more else reply("hello").encode()) in answer
        several = responses(sent(path, HEALTH, ("POST", CHAT, body), HEALTH))
        assert [each[:3] for each in several] == [b"200"] * 3
        state = json.loads(several[-1][several[-1].index(b"{"):])
        assert (state["served"], state["cancelled"]) == (3, 0)
        assert responses(sent(path, ("POST", CHAT, body), cut=-1)) == []  # not a whole request


def test_a_client_that_sends_no_more_and_leaves_ends_its_answer(path: Path) -> None:
    with service(path, command=FAKE, FAKE_DELAY="0.01"):
        client = sent(path, ("POST", CHAT, {"messages": [{"role": "user", "content": "long"}]}))
        running, deadline = {"running": 1, "cancelled": 0}, time.monotonic() + 300
        for wanted in (running, {"running": 0, "cancelled": 1}):
            while not (state := json.loads(responses(sent(path, HEALTH))[0].partition(b"\r\n\r\n")[2])).items() >= (
                    wanted.items()):
                assert time.monotonic() < deadline, state
                time.sleep(0.02)
            client.close()
        assert state["served"] == 0  # long before its end


def test_a_socket_in_use(path: Path) -> None:
    with service(path, command=FAKE) as process:
        code, line = refused(str(path))
        assert (code, line) == (75, f"bitnet-edge: another process listens at {path}\n")
        assert asked(path, "hello") == reply("hello")
        process.kill()
    with service(path, command=FAKE):  # what the first one left behind is replaced
        pass


def test_an_unusable_path_is_refused(folder: Path) -> None:
    file = folder / "precious"
    file.write_text("mine")
    for where in (file, folder, folder / "absent" / "socket", Path("/proc/nothing/socket"), folder / ("x" * 108)):
        code, line = refused(str(where))
        assert code == 2 and str(where) in line, line
    assert file.read_text() == "mine"
    assert refused("")[0] == 2
    code, line = refused(str(folder / "socket"), "--port", "8081")
    assert code == 2 and "--port cannot be combined with --socket" in line


def test_the_socket_goes_when_the_model_is_refused(path: Path) -> None:
    code, line = refused(str(path), "--model", "nowhere.gguf")
    assert code == 3 and "nowhere.gguf" in line
    assert not path.exists()


def test_who_may_connect_is_what_the_umask_leaves(path: Path) -> None:
    command = ["sh", "-c", 'umask 0007; exec "$@"', "sh", *FAKE]
    with service(path, command=command):
        assert path.stat().st_mode & 0o777 == 0o770


def test_the_socket_of_another_service_is_not_removed(path: Path) -> None:
    """One that has taken the place while this service ended."""
    with service(path, command=FAKE) as process:
        path.unlink()
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as other:
            other.bind(str(path))
            process.terminate()
            assert process.wait(300) == 143
            assert path.exists()
