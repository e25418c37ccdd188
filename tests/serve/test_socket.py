"""``chat --socket``: many clients, a session for each conversation, readiness and watchdog, misbehaving clients."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.serve import received
from edge.serve.calls import Refusal
from edge.serve.client import Lines
from tests.fake_engine import reply
from tests.services import FAKE, REAL, Manager, Talk, environment, service, short_folder

JOKE = "tell me a joke"


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


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
        [*command, "chat", "--socket", *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=300,
        env=environment(),
    )  # fmt: skip
    assert done.stdout == b"" and done.stderr.count(b"\n") == 1
    return done.returncode, done.stderr.decode()


# ---- serving ---------------------------------------------------------------------------------------------------------


def test_answers_with_the_bundled_model(path: Path, bundled_model: Path) -> None:
    """Two clients, the same ids: the same answers as `run` gives, and both see the prefix cached."""
    golden = json.loads(bundled_model.with_suffix(".golden.json").read_text())["turns"]
    with service(path, "--stats") as process, Talk(path) as one, Talk(path) as two:
        for client in (one, two):
            ready = client.next()
            assert (ready["ev"], ready["v"], ready["model"]) == ("ready", 1, "demo")
        one.ask(golden[0]["question"], by="sentence")
        two.ask(golden[1]["question"], by="sentence")
        for client, turn in ((one, golden[0]), (two, golden[1])):
            events = client.until("done")
            assert all(event["id"] == 1 for event in events)
            assert "".join(event["text"] for event in events if event["ev"] == "text").strip() == turn["answer"].strip()
            assert events[-1]["usage"]["cached"] > 0  # warmed before the first question
        two.send({"op": "info"})
        assert two.next()["model"] == "demo"
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 143
        assert process.stderr and process.stderr.read().count(b"| answer ") == 2
    assert not path.exists()


def test_clients_do_not_meet(path: Path) -> None:
    """Each request carries its conversation; another client's does not shine through, nor can it be cancelled."""
    with service(path, "--system", "be nice", command=FAKE) as _, Talk(path) as one, Talk(path) as two:
        one.next(), two.next()
        assert one.answer("secret") == reply("secret")
        assert two.answer("hello") == reply("hello")
        one.ask("long", ident="mine", max_tokens=50)
        two.send({"op": "cancel", "id": "mine"})
        assert two.next()["code"] == "unknown_id"
        two.send({"op": "cancel"})
        assert two.next()["code"] == "unknown_id"
        assert one.until("done")[-1]["finish_reason"] == "length"


def test_an_id_may_be_used_again_at_once(path: Path) -> None:
    with service(path, command=FAKE), Talk(path) as client:
        client.next()
        for _ in range(30):
            assert client.answer("hello", ident="same", max_tokens=2) == "Yo"


def test_a_client_that_only_listens_on_gets_everything(path: Path) -> None:
    """`printf request | socat - UNIX:...` closes its side at once."""
    with service(path, command=FAKE) as _, Talk(path) as client:
        client.ask("hello")
        client.send(b'{"op":"ping","id":"unfinished line"}')
        client.socket.shutdown(socket.SHUT_WR)
        events = []
        while event := client.next():
            events.append(event["ev"])
        assert events[0] == "ready" and events[-1] == "done" and "pong" in events


def test_rubbish_harms_nobody(path: Path) -> None:
    """Every bad line is one error event for its own client."""
    rubbish = [b"\n", b"hello\n", b"\xff\xfe\x00\n", b"[]\n", b'{"op":"chat","messages":7}\n', b"GET / HTTP/1.1\r\n",
               b"[" * 60_000 + b"\n", b"x" * (5 << 20) + b"\n"]  # fmt: skip
    with service(path, command=FAKE) as process, Talk(path) as bad, Talk(path) as good:
        for line in rubbish:
            bad.send(line)
        bad.send({"op": "ping"})
        codes = [event.get("code", event["ev"]) for event in bad.until("pong")]
        assert codes == ["ready", "bad_json", "bad_json", "bad_json", "bad_request", "bad_json", "bad_json", "too_long",
                         "pong"]  # fmt: skip
        good.next()
        assert good.answer("crash me, please") == reply("crash me, please")
        good.ask("crash")
        assert good.until("error")[-1]["code"] == "internal"
        assert good.answer("hello") == reply("hello")
        assert process.poll() is None


def test_a_client_that_leaves_is_not_answered_further(path: Path) -> None:
    """Its answer, of 800 seconds, is given up; the next client, which gives up after 300, waits for one token only."""
    with service(path, command=FAKE, FAKE_DELAY="0.1") as _:
        with Talk(path) as leaving:
            leaving.ask("long", max_tokens=8000)
            leaving.until("text")
        with Talk(path) as client:
            client.next()
            assert client.answer("hello") == reply("hello")


def program(*lines: str) -> list[str]:
    """The fake engine, changed by these lines of Python."""
    return [sys.executable, "-c", "\n".join(
        ["import time", "from tests import fake_engine", "fake_engine.install()", "import edge.serve.socket as service",
         "step = fake_engine.FakeTransformer.step", *lines, "from edge.cli.main import main", "main()"])]  # fmt: skip


def test_a_client_that_never_reads_is_dropped(path: Path) -> None:
    command = program("service.BUFFER = 20_000")
    with service(path, command=command) as _, Talk(path) as deaf, Talk(path) as other:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for ident in range(8):
            deaf.ask("long", ident, max_tokens=8000, ignore_eos=True)
        other.next()
        assert other.answer("hello") == reply("hello")
        with pytest.raises((AssertionError, OSError)):  # what had been sent, then the end
            for _ in range(8):
                deaf.until("done")


def test_slow_readers_slow_nobody(path: Path) -> None:
    """32 clients ask much and read nothing; the next is greeted and answered at once, and each is told apart."""
    with service(path, "--parallel", "2", command=FAKE, FAKE_DELAY="0.001") as process, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Talk(path)) for _ in range(32)]
        for client in slow:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send({"op": "info"})
            for ident in range(40):
                client.send({"op": "ping", "id": ident})
                client.send(b"rubbish\n" * 25)
            client.ask("hello", "last")
        with Talk(path) as one:
            assert one.next()["ev"] == "ready"
            assert one.answer("hello") == reply("hello")
        for client in slow:  # they get everything when they read
            events = client.until("done")
            assert [event["id"] for event in events if event["ev"] == "pong"] == list(range(40))
        assert process.poll() is None


def test_what_all_clients_leave_unread_is_limited(path: Path) -> None:
    """Each stays below its own limit; those that leave most are disconnected, the others are not."""
    with service(path, command=program("service.UNREAD = 60_000")), contextlib.ExitStack() as stack:
        one = stack.enter_context(Talk(path))
        deaf = [stack.enter_context(Talk(path)) for _ in range(8)]
        for client in deaf:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(b"rubbish\n" * 2000)
            client.send({"op": "ping"})
        one.next()
        assert one.answer("hello") == reply("hello")
        heard: list[str | None] = []
        for client in deaf:
            kind = None
            with contextlib.suppress(OSError):
                while (kind := client.next().get("ev")) not in (None, "pong"):
                    kind = None
            heard.append(kind)
        assert None in heard  # they got what had been sent, then the end
        assert one.answer("hello") == reply("hello")


@pytest.mark.slow
def test_requests_of_all_clients_are_limited_together(path: Path) -> None:
    """Long requests that wait, and lines that never end: "busy" for their clients; a short request is answered."""
    long = json.dumps({"op": "chat", "id": "long", "messages": [{"role": "user", "content": "x" * (3 << 20)}]}).encode()
    with service(path, command=FAKE, FAKE_DELAY="0.01"), contextlib.ExitStack() as stack:
        first, *rest = (stack.enter_context(Talk(path)) for _ in range(6))
        first.ask("long", "first", max_tokens=8000, ignore_eos=True)
        first.until("text")
        for client in rest[:3]:
            client.send(long + b"\n")
            client.send({"op": "ping"})
        codes = [client.until("pong")[-2].get("code") for client in rest[:3]]
        assert codes == [None, None, "busy"]
        for client in rest[3:]:
            client.send(long)
        with Talk(path) as short:
            short.ask("hello")
            for client in rest[3:]:
                client.until("ready")
            codes = [client.until("error")[-1]["code"] for client in rest[3:]]
            assert codes == ["busy", "busy"]
            first.send({"op": "cancel"})
            assert short.until("done")


def peak(process: subprocess.Popen[bytes]) -> int:
    """Most bytes that were resident at a time."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1])


@pytest.mark.slow
def test_the_memory_limit_holds_whatever_clients_do(path: Path, bundled_model: Path) -> None:
    """Conversations of many clients, events that nobody reads, and long requests: all are part of the plan."""
    code, line = refused(str(path), "-m", str(bundled_model), "--memory", "42M")
    assert code == 5 and "the limit is 42 MB" in line
    text = "Two teas and some cake by the window for me, please. " * 23
    with service(path, "-m", str(bundled_model), "--memory", "72M") as process, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Talk(path)) for _ in range(40)]
        for turn in range(2):
            for n, client in enumerate(clients):
                client.answer(f"Client {n}, {turn}: {text}", max_tokens=10, ignore_eos=True)
        assert peak(process) <= 72e6
        for client in clients[:20]:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with contextlib.suppress(OSError):
                client.send(b"rubbish\n" * 10_000)
        for client in clients[20:]:
            with contextlib.suppress(OSError):
                client.ask("tea and cake " * 250_000, max_tokens=2)
        assert clients[-1].until("done", "error")
        assert peak(process) <= 72e6
        wide = "tea and cake " * 70_000 + "\U0001f375"
        for client in clients[20:]:
            with contextlib.suppress(OSError):
                client.ask(wide, max_tokens=2)
                client.send(b'{"op": "ping", "x": [' + b"{}," * 1_300_000 + b"{}]}\n")
        assert clients[-1].until("done", "error")
        for _ in range(40):  # they leave in the middle of a line
            with Talk(path) as client, contextlib.suppress(OSError):
                client.next()
                client.send(b"x" * (3 << 20))
        with Talk(path) as client:
            assert client.answer("tea", max_tokens=2) is not None
        assert peak(process) <= 72e6


def test_the_size_of_a_request_is_that_in_memory() -> None:
    """Few bytes can be many values, or characters of four bytes each."""
    for text in ("", "tea", "Tee für zwei", "茶", "tea \U0001f375", "\uffff"):
        width = 1 if text.isascii() else 4 if max(text) > "\uffff" else 2
        assert received.size_of(text.encode()) == len(text) * width
        assert received.size_of(json.dumps(text).encode()) >= len(text) * width
    limit = 1 << 20
    signs, escapes = '"' + "[,{" * 100_000 + '"', '["' + "\\" * 50_000 + '", "' + '\\"' * 70_000 + '"]'
    for fine in (signs, escapes, "[" + "0," * 250_000 + "0]"):
        assert received.parse(fine.encode(), limit, "long") == json.loads(fine)
    wide = '"' + "x" * 300_000 + "\U0001f375" + '"'
    for large in ("[" + "{}," * 80_000 + "{}]", "[" + '"",' * 310_000 + '""]', '["\\"",' + "[]," * 80_000 + "0]", wide):
        with pytest.raises(Refusal) as refused:
            received.parse(large.encode(), limit, "long")
        assert (refused.value.status, refused.value.code) == (413, "long")


def test_a_line_at_the_end_of_the_input_counts_once() -> None:
    lines = Lines()
    assert list(lines.feed(b"one")) == []
    for line in lines.rest():
        assert (line, lines.held) == (b"one", 0)


def test_several_are_answered_at_once(path: Path) -> None:
    """--parallel: the second client's short answer comes while the first one's long answer is being written."""
    with service(path, "--parallel", "2", command=FAKE, FAKE_DELAY="0.01"), Talk(path) as one, Talk(path) as two:
        one.ask("long", max_tokens=8000, ignore_eos=True)
        one.until("text")
        two.next()
        assert two.answer("hello") == reply("hello")
        one.send({"op": "info"})
        assert one.until("info")[-1]["pending"] == 1
        one.send({"op": "cancel"})
        assert one.until("done")[-1]["finish_reason"] == "cancelled"


def test_interleaved_clients_do_not_read_their_histories_again(path: Path) -> None:
    """Six conversations through one place: what waits in memory is found again, and the answers stay the same."""
    history: list[list[dict[str, str]]] = [[] for _ in range(6)]
    with service(path, "--system", "be nice", command=FAKE), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Talk(path)) for _ in history]
        for client in clients:
            client.next()
        for turn in range(4):
            for n, client in enumerate(clients):
                question = f"question {turn} of client {n} " + "and so on " * n
                history[n].append({"role": "user", "content": question})
                client.send({"op": "chat", "id": turn, "messages": history[n]})
                events = client.until("done", "error")
                answer = "".join(event["text"] for event in events if event["ev"] == "text")
                assert answer == reply(question)
                usage = events[-1]["usage"]
                if turn:
                    assert usage["prompt"] - usage["cached"] <= len(question) + 3, (turn, n, usage)
                history[n].append({"role": "assistant", "content": answer})


def test_more_conversations_than_a_context_holds(path: Path, bundled_model: Path) -> None:
    """Twelve conversations in turn, without a limit: none is read again from its beginning."""
    history: list[list[dict[str, str]]] = [[] for _ in range(12)]
    with service(path, "-m", str(bundled_model), "-n", "30"), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Talk(path)) for _ in history]
        for turn in range(5):
            for n, client in enumerate(clients):
                question = f"Client {n}: two teas and {turn} scones please, and some cake by the window for me."
                history[n].append({"role": "user", "content": question})
                client.send({"op": "chat", "messages": history[n]})
                events = client.until("done")
                usage = events[-1]["usage"]
                assert not turn or usage["cached"] > usage["prompt"] // 2, (turn, n, usage)
                text = "".join(event["text"] for event in events if event["ev"] == "text")
                history[n].append({"role": "assistant", "content": text})


def test_a_request_may_wait_no_longer_than_its_timeout(path: Path) -> None:
    """Waiting counts, behind requests of others and behind one's own; the others are not disturbed."""
    with service(path, command=FAKE, FAKE_DELAY="0.01") as _, Talk(path) as one, Talk(path) as two:
        one.ask("long", "long", max_tokens=8000, ignore_eos=True)
        one.until("text")
        one.ask("hello", "own", timeout=0.2)
        two.ask("hello", "other", timeout=0.2)
        late = two.until("done")[-1]
        assert (late["id"], late["finish_reason"]) == ("other", "timeout")
        own = one.until("done")[-1]
        assert (own["id"], own["finish_reason"]) == ("own", "timeout")
        assert own["usage"] == late["usage"] and set(own["usage"].values()) == {0}
        one.send({"op": "cancel", "id": "long"})
        done = one.until("done")[-1]
        assert (done["id"], done["finish_reason"]) == ("long", "cancelled")
        assert done["usage"].keys() == own["usage"].keys() and done["timings"].keys() == own["timings"].keys()


@pytest.mark.parametrize("timeout", ["9" * 400, "9" * 5000, "1e400", "1e10", "0", "-1", "true", '"1"', "[]", "NaN"])
def test_impossible_timeouts(path: Path, timeout: str) -> None:
    """One clear line, and the client's conversation is still held."""
    with service(path, command=FAKE), Talk(path) as client:
        client.next()
        first = [{"role": "user", "content": "a question of some length"}]
        client.send({"op": "chat", "messages": first})
        said = "".join(event["text"] for event in client.until("done") if event["ev"] == "text")
        request = json.dumps({"op": "chat", "id": "x", "messages": [{"role": "user", "content": "x"}], "timeout": 0})
        client.send(request.replace('"timeout": 0', f'"timeout": {timeout}').encode() + b"\n")
        error = client.next()
        assert error["ev"] == "error" and error["code"] == ("bad_json" if timeout == "NaN" else "bad_request")
        assert ("timeout is not a number from 0.001 to 1e+09" in error["message"]) is (timeout != "NaN")
        client.send({"op": "chat", "messages": [*first, {"role": "assistant", "content": said},
                                                {"role": "user", "content": "more"}]})
        usage = client.until("done")[-1]["usage"]
        assert usage["prompt"] - usage["cached"] <= 8


def test_a_half_closed_client_that_leaves_is_not_answered_further(path: Path) -> None:
    """It has closed its side and then goes: nothing is written to it meanwhile, and yet it is noticed."""
    with service(path, command=FAKE, FAKE_DELAY="0.1"):
        with Talk(path) as leaving:
            leaving.ask("long", max_tokens=8000, by="all", ignore_eos=True)
            leaving.until("prefill")
            leaving.socket.shutdown(socket.SHUT_WR)
        with Talk(path) as client:
            client.next()
            assert client.answer("hello") == reply("hello")


def test_one_client_too_many(path: Path) -> None:
    with service(path, command=program("service.CLIENTS = 2")) as _:
        with Talk(path) as one, Talk(path) as two:
            assert one.next()["ev"] == two.next()["ev"] == "ready"
            with Talk(path) as three:
                assert three.next()["code"] == "busy" and three.next() == {}
            assert two.answer("hello") == reply("hello")
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:  # the places become free as soon as the service has noticed
            with Talk(path) as again:
                if again.next()["ev"] == "ready":
                    return
        pytest.fail("the places never became free")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_answers_and_removes_the_socket(path: Path, manager: Manager, number: int) -> None:
    with service(path, command=FAKE, FAKE_DELAY="0.01", **manager.environment()) as process, Talk(path) as client:
        client.ask("long", max_tokens=8000)
        client.until("text")
        process.send_signal(number)
        assert client.until("done")[-1]["finish_reason"] == "cancelled"
        assert client.next() == {}
        assert process.wait(300) == 128 + number
        assert process.stderr and process.stderr.read() == b""
        assert "STOPPING=1" in manager.hear(0.2)
    assert not path.exists()


# ---- systemd ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
def test_ready_is_told_when_it_is_true(folder: Path, path: Path, abstract: bool) -> None:
    """READY=1 comes when clients are served, and not before the model is loaded."""
    with contextlib.closing(Manager(folder, abstract)) as manager:
        process = subprocess.Popen(
            [*FAKE, "chat", "--socket", str(path)], env=environment(FAKE_LOAD="1", **manager.environment()),
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        with process:
            with Talk(path) as early:  # a client may come before; it waits
                early.ask("hello")
                assert manager.hear(0.3) == []
                manager.expect("READY=1")
                assert early.next()["ev"] == "ready"
                assert early.until("done")
            process.terminate()


def test_watchdog_is_fed_when_idle_and_while_answering(path: Path, manager: Manager) -> None:
    """By sentence: no event reaches the client for a long time, and yet the loop is seen to turn."""
    environ = {**manager.environment(watchdog=0.6), "FAKE_DELAY": "0.02"}
    with service(path, command=FAKE, **environ) as _, Talk(path) as client:
        for _ in range(3):
            manager.expect("WATCHDOG=1")
        manager.hear(0.3)  # what was sent before the question
        client.ask("long", by="all", max_tokens=100)
        for _ in range(3):
            manager.expect("WATCHDOG=1")
        assert [event["ev"] for event in client.until("text") if event["ev"] != "prefill"] == ["ready", "text"]


@pytest.mark.slow
def test_watchdog_is_not_fed_when_the_decode_loop_hangs(path: Path, manager: Manager) -> None:
    command = program(
        "def hang(self, batch):",
        "    step(self, batch)",
        "    if len(batch[0].kv.ids) > 12: time.sleep(1000)",
        "fake_engine.FakeTransformer.step = hang",
    )
    with service(path, command=command, **manager.environment(watchdog=0.6)) as _, Talk(path) as client:
        manager.expect("WATCHDOG=1")
        client.ask("hello")
        client.until("text")
        assert any(manager.hear(2) == [] for _ in range(100))  # on a busy machine it takes a while to hang
        client.send({"op": "ping"})  # the other thread is well, and that does not count
        assert client.until("pong")
        assert manager.hear(1) == []


@pytest.mark.parametrize(
    ("extra", "fed"),
    [({"WATCHDOG_PID": "1"}, False), ({"WATCHDOG_USEC": "soon"}, False), ({"WATCHDOG_USEC": "0"}, False),
     ({"WATCHDOG_PID": str(os.getpid())}, True)],  # our parent: that is how a one-file program sees it
)  # fmt: skip
def test_a_watchdog_for_somebody_else(path: Path, manager: Manager, extra: dict[str, str], fed: bool) -> None:
    with service(path, command=FAKE, **{**manager.environment(watchdog=0.3), **extra}):
        if fed:
            manager.expect("WATCHDOG=1")
        else:
            assert "WATCHDOG=1" not in manager.hear(1)


def test_a_manager_that_does_not_listen(path: Path, folder: Path) -> None:
    with service(path, command=FAKE, NOTIFY_SOCKET=f"{folder}/nobody", WATCHDOG_USEC="300000"), Talk(path) as client:
        client.next()
        assert client.answer("hello") == reply("hello")


# ---- where it listens ------------------------------------------------------------------------------------------------


def test_a_socket_in_use(path: Path) -> None:
    with service(path, command=FAKE), Talk(path) as client:
        code, line = refused(str(path))
        assert (code, line) == (75, f"bitnet-edge: another process listens at {path}\n")
        client.next()
        assert client.answer("hello") == reply("hello")
    with service(path, command=FAKE):  # the fixture killed the first one: what it left behind is replaced
        pass


def test_a_path_that_is_too_long(folder: Path) -> None:
    code, line = refused(str(folder / ("x" * 100)))
    assert code == 2 and "107" in line
    longest = str(folder / ("x" * (107 - len(str(folder)) - 1)))
    with service(Path(longest), command=FAKE), Talk(Path(longest)) as client:
        assert client.next()["ev"] == "ready"


def test_a_path_that_cannot_be_used(folder: Path) -> None:
    file = folder / "precious"
    file.write_text("mine")
    for where in (file, folder, folder / "absent" / "socket", Path("/proc/nothing/socket")):
        code, line = refused(str(where))
        assert code == 2 and str(where) in line, line
    assert file.read_text() == "mine"
    assert refused("")[0] == 2


def test_the_socket_goes_when_the_model_cannot_be_loaded(path: Path) -> None:
    code, line = refused(str(path), "--model", "nowhere.gguf")
    assert code == 3 and "nowhere.gguf" in line
    assert not path.exists()


def test_who_may_connect_is_what_the_umask_leaves(path: Path) -> None:
    command = ["sh", "-c", 'umask 0007; exec "$@"', "sh", *FAKE]
    with service(path, command=command):
        assert path.stat().st_mode & 0o777 == 0o770


def test_somebody_elses_socket_is_not_removed(path: Path) -> None:
    with service(path, command=FAKE) as process:
        path.unlink()
        other: Any = socket.socket(socket.AF_UNIX)
        with other:
            other.bind(str(path))
            process.terminate()
            assert process.wait(300) == 143
            assert path.exists()


# ---- the pipe --------------------------------------------------------------------------------------------------------


def test_a_reader_that_leaves_after_a_signal_leaves_nothing_unsaid() -> None:
    """The output fails while the last events are written: asyncio has nothing to report."""
    import asyncio
    import gc

    from edge.serve.client import Channel
    from edge.serve.pipe import speak

    reported: list[Any] = []

    class Last:
        def __init__(self, channel: Channel) -> None:
            self.channel = channel

        def begin(self) -> None:
            pass

        end = leave = begin

        async def stop(self) -> None:
            self.channel.send({"ev": "done"})
            self.channel.close()

    def write(_data: bytes) -> None:
        raise BrokenPipeError

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        speaking = asyncio.ensure_future(speak(Last, None, write))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        speaking.cancel()  # the signal
        await asyncio.wait([speaking])
        assert speaking.cancelled()

    asyncio.run(scene())
    gc.collect()  # an exception that nobody has looked at is reported now
    assert not reported
