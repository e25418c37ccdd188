"""packaging/kiosk: each script is run, on the model that ships inside, with visitors and conditions at their worst."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from services import FAKE, REAL, ROOT, Manager, environment, service, short_folder
from terminal import Terminal

KIOSK = ROOT / "packaging" / "kiosk"
UNIT = KIOSK / "bitnet-edge.service"
GREETING = b"Hello, what would you like to know?\n"
JOKE = "tell me a joke"

#: what a microphone, a cat on a keyboard and an attacker may bring, line by line
BAD_INPUT = (
    b"\n   \n\x00\x01\x1b[2J\n\xff\xfe not text\n-h\n--model nowhere\n$(reboot) `id` \"'\\\n/exit\n" + b"x" * 100_000
)

needs_bash = pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


@pytest.fixture
def launcher(folder: Path) -> Path:
    """`bitnet-edge` as one word, as the shell script wants it."""
    path = folder / "bitnet-edge"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edge "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(params=[pytest.param("kiosk.sh", marks=needs_bash), "kiosk.py"])
def kiosk(request: pytest.FixtureRequest, launcher: Path) -> list[str]:
    """The command line of either kiosk."""
    if request.param == "kiosk.sh":
        return ["bash", str(KIOSK / "kiosk.sh")]
    return [sys.executable, str(KIOSK / "kiosk.py")]


def surroundings(launcher: Path, speak: str = "", **extra: str) -> dict[str, str]:
    return environment(BITNET_EDGE=str(launcher), BITNET_EDGE_GREEDY="1", SPEAK=speak, **extra)


def speaking(kiosk: list[str], speak: str) -> list[str]:
    """The Python script takes the command as an option, the shell script from the environment."""
    return [*kiosk, "--speak", speak] if kiosk[-1].endswith(".py") else kiosk


# ---- kiosk.sh and kiosk.py -------------------------------------------------------------------------------------------


def test_answers_are_printed_sentence_by_sentence(kiosk: list[str], launcher: Path) -> None:
    done = subprocess.run(kiosk, input=JOKE.encode(), capture_output=True, env=surroundings(launcher), timeout=300)
    lines = done.stdout.splitlines(keepends=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines[0] == GREETING and len(lines) >= 3  # a joke has two sentences
    assert all(line.strip() and line == line.lstrip() for line in lines)


def test_answers_are_spoken_sentence_by_sentence(kiosk: list[str], launcher: Path, folder: Path) -> None:
    """Each sentence goes to its own run of the command, in order, and nothing is printed."""
    speak = folder / "speak"
    speak.write_text(f'#!/bin/sh\necho "[$(cat)]" >>{folder}/said\n')
    speak.chmod(0o755)
    done = subprocess.run(
        speaking(kiosk, str(speak)), input=JOKE.encode(), capture_output=True, timeout=300,
        env=surroundings(launcher, str(speak)),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    said = (folder / "said").read_text().splitlines()
    assert said[0] == f"[{GREETING.decode().strip()}]" and len(said) >= 3
    assert all(re.fullmatch(r"\[\S.*[.?!]\]", line) for line in said)


@pytest.mark.parametrize("speak", ["/no/such/program", "false"])
def test_a_voice_that_fails_does_not_end_it(kiosk: list[str], launcher: Path, speak: str) -> None:
    """What could not be said is written where the journal finds it."""
    done = subprocess.run(
        speaking(kiosk, speak), input=JOKE.encode(), capture_output=True, env=surroundings(launcher, speak), timeout=300
    )
    assert done.returncode == 0
    assert done.stderr.count(b"speaking failed; the sentence was: ") >= 3


def test_bad_input_does_not_end_it(kiosk: list[str], launcher: Path) -> None:
    """After all of it a visitor is still answered."""
    text = BAD_INPUT + b"\n" + JOKE.encode() + b"\n"
    done = subprocess.run(kiosk, input=text, capture_output=True, env=surroundings(launcher, TOKENS="8"), timeout=300)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout.startswith(GREETING)
    assert len(done.stdout.splitlines()) >= 8
    assert b"\x1b" not in done.stdout and b"Usage" not in done.stdout


def test_sigterm_while_it_waits(kiosk: list[str], launcher: Path) -> None:
    with subprocess.Popen(
        kiosk, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=surroundings(launcher)
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == GREETING
        process.terminate()
        assert process.wait(300) == 143
        assert process.stderr.read() == b""


def test_sigterm_while_it_speaks(kiosk: list[str], launcher: Path, folder: Path) -> None:
    """The voice is silenced, too."""
    speak = folder / "speak"
    speak.write_text(f"#!/bin/sh\necho $$ >{folder}/pid\nexec sleep 1000\n")
    speak.chmod(0o755)
    with subprocess.Popen(
        speaking(kiosk, str(speak)), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
        env=surroundings(launcher, str(speak)),
    ) as process:  # fmt: skip
        pid = folder / "pid"
        while not pid.exists() or not pid.read_text().strip():
            time.sleep(0.02)
        process.terminate()
        assert process.wait(300) == 143
    deadline = time.monotonic() + 300
    while running(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(int(pid.read_text()))


def test_the_end_silences_a_voice_that_is_just_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM came after the command had begun and before Popen returned: the voice went on alone."""
    monkeypatch.syspath_prepend(str(KIOSK))
    script = importlib.import_module("kiosk")
    begun = threading.Event()
    voices: list[subprocess.Popen[bytes]] = []

    def slow(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        voices.append(popen(*args, **kwargs))
        begun.set()
        time.sleep(0.5)
        return voices[-1]

    popen = subprocess.Popen
    monkeypatch.setattr(script.subprocess, "Popen", slow)
    speaker = script.Speaker("sleep 1000")
    speaker.say("One.")
    speaker.say("Two.")
    assert begun.wait(300)
    speaker.stop()
    time.sleep(0.1)
    try:
        assert [voice.poll() for voice in voices] == [-signal.SIGKILL]  # and the second sentence is not begun
    finally:
        for voice in voices:
            voice.kill()


@needs_bash
def test_sigterm_before_each_command_of_the_shell_script(folder: Path) -> None:
    """Wherever it arrives, the script ends with 143 and nothing it has started outlives it.

    A trap on DEBUG counts the commands and sends the signal before command number AT.  From then on each process that
    was started sleeps for long.
    """
    program, speak = folder / "program", folder / "speak"
    question, count, hook = folder / "question", folder / "count", folder / "hook"
    question.write_text(JOKE + "\n")
    sleep = f"cat >/dev/null; sleep 0.05; [ -e {folder}/ending ] && exec sleep 1000\nexit 0\n"
    program.write_text(f"""#!/bin/sh\ncase "$*" in *-) echo '{{"ev": "text", "text": "Yes."}}';; esac\n{sleep}""")
    speak.write_text(f"#!/bin/sh\n{sleep}")
    program.chmod(0o755)
    speak.chmod(0o755)
    hook.write_text(f"""unset BASH_ENV; n=0; set -T
        trap 'echo $n >{count}' EXIT
        trap '[[ $BASHPID != $$ ]] || ((++n != AT)) || {{ >{folder}/ending; kill -TERM $$; }}' DEBUG
    """)

    def visit(at: int) -> int:
        """-> the exit code; nothing it has started runs any more"""
        (folder / "ending").unlink(missing_ok=True)
        variables = {"BITNET_EDGE": str(program), "SPEAK": str(speak), "BASH_ENV": str(hook), "AT": str(at)}
        with question.open() as standard_input, subprocess.Popen(
            ["bash", str(KIOSK / "kiosk.sh")], stdin=standard_input, stderr=subprocess.DEVNULL,
            env=os.environ | variables, start_new_session=True,
        ) as process:  # fmt: skip
            code = process.wait(300)
            deadline = time.monotonic() + 300  # the programs' own children may end a little later
            while (left := group(process.pid)) and time.monotonic() < deadline:
                time.sleep(0.02)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        assert not left, f"SIGTERM before command {at}"
        return code

    assert visit(0) == 0
    commands = int(count.read_text())
    codes = [visit(at) for at in range(1, commands)]
    trap = codes.index(143)  # before that SIGTERM ends it as it ends every program, and nothing is started
    assert codes == [-signal.SIGTERM] * trap + [143] * (commands - 1 - trap)
    assert 0 < trap < commands / 4


def group(number: int) -> list[int]:
    """The processes of a process group, without zombies."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _parent, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == number and state != "Z":
                pids.append(int(path.parent.name))
    return pids


def running(pid: int) -> bool:
    """Is there such a process, and is it more than a zombie?"""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@needs_bash
def test_sigterm_while_the_shell_script_thinks(launcher: Path) -> None:
    """The program is ended with it, by SIGTERM, so that a one-file program can clean up."""
    extra = {"TOKENS": "100000", "BITNET_EDGE_IGNORE_EOS": "1", "PATIENCE": "500"}
    with subprocess.Popen(
        ["bash", str(KIOSK / "kiosk.sh")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=surroundings(launcher, **extra),
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout and process.stderr
        assert process.stdout.readline() == GREETING
        process.stdin.write(JOKE.encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.terminate()
        assert process.wait(300) == 143
        assert children and not any(running(int(child)) for child in children)
        assert process.stderr.read() == b""


@needs_bash
def test_sigterm_leaves_nothing_of_the_one_file_program(folder: Path, frozen: dict[str, Path]) -> None:
    """It unpacks itself and runs as two processes; both end, and what was unpacked is removed."""
    extra = {"TOKENS": "100000", "BITNET_EDGE_IGNORE_EOS": "1", "PATIENCE": "500", "TMPDIR": str(folder)}
    with subprocess.Popen(
        ["bash", str(KIOSK / "kiosk.sh")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=surroundings(frozen["file"], **extra),
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        assert process.stdout.readline() == GREETING
        process.stdin.write(JOKE.encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert list(folder.glob("_MEI*"))
        process.terminate()
        assert process.wait(300) == 143
    assert not list(folder.glob("_MEI*"))


def test_a_model_that_cannot_be_loaded_is_known_at_once(kiosk: list[str], launcher: Path, folder: Path) -> None:
    """Before the greeting; one line, the documented exit code."""
    damaged = folder / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(100))
    for model, code in ((folder / "missing.gguf", 3), (damaged, 4)):
        command = [*kiosk, "--model", str(model)] if kiosk[-1].endswith(".py") else kiosk
        done = subprocess.run(
            command, input=JOKE.encode(), capture_output=True, timeout=300,
            env=surroundings(launcher, BITNET_EDGE_MODEL=str(model)),
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (code, b"")
        assert done.stderr.count(b"\n") == 1 and model.name.encode() in done.stderr


def test_a_reader_that_goes_away(kiosk: list[str], launcher: Path) -> None:
    """`kiosk | head -1`: no traceback."""
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -n 1', "sh", *kiosk], input=f"{JOKE}\n{JOKE}\n".encode(), capture_output=True,
        env=surroundings(launcher), timeout=300,
    )  # fmt: skip
    assert done.stdout == GREETING and b"Traceback" not in done.stderr


@needs_bash
def test_shell_kiosk_starts_in_a_saved_session(launcher: Path, folder: Path) -> None:
    """docs/service.md: the system prompt is read once, and no visitor changes the file."""
    session = folder / "museum.bes"
    environ = surroundings(launcher, BITNET_EDGE_SESSION=str(session))
    prime = [str(launcher), "run", "-q", "--system", "Tell jokes.", "-n", "0"]
    assert subprocess.run(prime, env=environ, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    saved = session.read_bytes()
    done = subprocess.run(
        ["bash", str(KIOSK / "kiosk.sh")], input=f"{JOKE}\n{JOKE}\n".encode(), capture_output=True, timeout=300,
        env={**environ, "BITNET_EDGE_SESSION_RO": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    answers = done.stdout.removeprefix(GREETING)
    assert len(answers) > 20 and answers[: len(answers) // 2] == answers[len(answers) // 2 :]
    assert session.read_bytes() == saved


def test_python_kiosk_under_a_manager(folder: Path) -> None:
    """Readiness, watchdog and the end are told; when nobody speaks the conversation is forgotten."""
    with contextlib.closing(Manager(folder)) as manager:
        process = subprocess.Popen(
            [sys.executable, str(KIOSK / "kiosk.py"), "--idle", "0.5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment(**manager.environment(watchdog=2)),
        )  # fmt: skip
        with process:
            manager.expect("READY=1")
            assert process.stdin and process.stdout
            process.stdin.write(JOKE.encode() + b"\n")
            process.stdin.flush()
            for _ in range(3):
                manager.expect("WATCHDOG=1")
            process.terminate()
            manager.expect("STOPPING=1")
            assert process.wait(300) == 143


def test_python_kiosk_refuses_bad_options(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(KIOSK / "kiosk.py"), "--system", str(folder / "absent")], capture_output=True,
        env=environment(), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"absent" in done.stderr


# ---- the touchscreen -------------------------------------------------------------------------------------------------


def touchscreen(path: Path, *options: str) -> list[str]:
    return [sys.executable, str(KIOSK / "touchscreen.py"), "--socket", str(path), *options]


def test_touchscreen_without_a_display(folder: Path) -> None:
    """It falls back to the terminal; bad input ends neither it nor the service."""
    path = folder / "socket"
    with service(path) as server:
        done = subprocess.run(
            touchscreen(path), input=BAD_INPUT + b"\n" + JOKE.encode(), capture_output=True, timeout=300,
            env=environment(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(rb"touchscreen: no window \(.*\); using the terminal\n", done.stderr)
        assert len(done.stdout.strip().splitlines()) >= 6 and b"\x1b" not in done.stdout
        assert server.poll() is None


def test_touchscreen_outlives_the_service(folder: Path) -> None:
    """It waits for a service that is not there, and goes on when one comes back."""
    path = folder / "socket"
    with subprocess.Popen(
        touchscreen(path, "--terminal"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(),
    ) as screen:  # fmt: skip
        assert screen.stdin and screen.stdout and screen.stderr
        for _ in range(2):
            screen.stdin.write(JOKE.encode() + b"\n")
            screen.stdin.flush()
            assert screen.stderr.readline() == b"One moment, please.\n"
            with service(path):
                assert len(screen.stdout.readline()) > 10
            time.sleep(0.5)  # it notices that the service has gone
        screen.terminate()
        assert screen.wait(300) == 143


def test_touchscreen_when_the_service_dies_during_an_answer(folder: Path) -> None:
    path = folder / "socket"
    with subprocess.Popen(
        touchscreen(path, "--terminal"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as screen:
        assert screen.stdin and screen.stdout
        with service(path, command=FAKE, FAKE_DELAY="0.02") as server:
            screen.stdin.write(b"long\n")
            screen.stdin.flush()
            screen.stdout.read(1)
            server.kill()
        assert screen.stdout.readline().endswith(b" Sorry, I cannot answer that now.\n")
        with service(path):
            screen.stdin.write(JOKE.encode() + b"\n")
            screen.stdin.close()
            assert b"Sorry" not in screen.stdout.read()
        assert screen.wait(300) == 0


def test_touchscreen_path_too_long(folder: Path) -> None:
    done = subprocess.run(touchscreen(folder / ("x" * 100)), capture_output=True, env=environment(), text=True)
    assert done.returncode == 2 and done.stderr == "touchscreen: the path of a socket has at most 107 bytes\n"


WINDOW = f"""
import sys
sys.path.insert(0, {str(KIOSK)!r})
import touchscreen
screen = touchscreen.Screen(touchscreen.Link(sys.argv[1]), ["{JOKE}"], 1.5, True)
def buttons(widget):
    return [each for child in widget.winfo_children() for each in [child, *buttons(child)] if hasattr(each, "invoke")]
def later(ms, work):
    screen.root.after(ms, work)
def shown():
    return screen.view.get("1.0", "end")
def broken():
    raise ValueError("a bug in a callback")
def first():
    if not screen.dialogue.up:
        return later(100, first)
    for bad in ("", "  ", "\\ud83d", "\\x00\\x1b[2J", "x" * 100000, None):
        screen.ask(bad)
    for button in buttons(screen.root):
        button.invoke()
    later(10, broken)
    later(100, second)
def second():
    if screen.dialogue.busy:
        return later(100, second)
    screen.dialogue.wipe()
    next(button for button in buttons(screen.root) if button["text"] == "{JOKE}").invoke()
    later(100, third)
def third():
    if screen.dialogue.busy:
        return later(100, third)
    print("SAID", repr(shown().rpartition("> {JOKE}")[2]))
    later(3000, last)
def last():
    print("WIPED", repr(shown()))
    screen.root.destroy()
later(100, first)
screen.run()
"""


def test_touchscreen_window(folder: Path) -> None:
    """On a display: bad input, a button, a bug in a callback, and the screen wiped when the visitor has left."""
    pytest.importorskip("tkinter", reason="no tkinter here")
    if not shutil.which("xvfb-run"):
        pytest.skip("needs xvfb-run for a display (Debian: apt-get install xvfb)")
    path = folder / "socket"
    with service(path):
        done = subprocess.run(
            ["xvfb-run", "-a", sys.executable, "-c", WINDOW, str(path)], capture_output=True, timeout=300, text=True,
            env=environment(),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said, wiped = (line.split(" ", 1)[1] for line in done.stdout.splitlines())
    assert len(said) > 20 and "Sorry" not in said
    assert wiped == repr("\n")
    assert "touchscreen: ValueError: a bug in a callback" in done.stderr


# ---- the unit --------------------------------------------------------------------------------------------------------


def settings() -> dict[str, str]:
    """Assignments of the unit; the last one of a name counts."""
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))


def test_unit_says_what_it_promises() -> None:
    unit = settings()
    assert unit["Type"] == "notify" and unit["NotifyAccess"] == "all" and unit["KillMode"] == "control-group"
    assert int(unit["WatchdogSec"]) >= 30 and unit["Restart"] == "on-failure"
    assert unit["MemoryMax"] and unit["MemorySwapMax"] == "0"
    assert unit["ProtectSystem"] == "strict" and unit["NoNewPrivileges"] == "yes"


def test_unit_starts_what_exists() -> None:
    """Options, exit codes and the size of the socket's path."""
    import click

    from edge.cli.group import cli
    from edge.errors import EXIT_CODES

    words = settings()["ExecStart"].split()
    assert words[0] == "/usr/bin/bitnet-edge"
    command = cli.get_command(click.Context(cli), words[1])
    assert command
    known = {name for param in command.params for name in param.opts}
    assert {word for word in words[2:] if word.startswith("-")} <= known
    final = {int(code) for code in settings()["RestartPreventExitStatus"].split()}
    assert final <= set(EXIT_CODES) and not final & {1, 5, 75}  # those may pass


def test_unit_is_verified_by_systemd(folder: Path, launcher: Path) -> None:
    """systemd-analyze finds nothing to say, and thinks little of it is exposed."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    unit = folder / UNIT.name
    text = UNIT.read_text().replace("/usr/bin/bitnet-edge", str(launcher))
    unit.write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.MULTILINE))  # man pages come with the package
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=15", str(unit)], capture_output=True, text=True
    )
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze security has no --offline here")
    assert done.returncode == 0, done.stdout


def test_units_of_the_page_are_verified_by_systemd(folder: Path, launcher: Path) -> None:
    """docs/service.md: the change that makes the unit serve a kiosk, and the unit of the HTTP server."""
    import click

    from edge.cli.group import cli

    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    change, server = re.findall(r"```ini\n(.*?)```", (ROOT / "docs" / "service.md").read_text(), re.DOTALL)
    unit = re.sub(r"^Documentation=.*\n", "", UNIT.read_text(), flags=re.MULTILINE)
    for text in (unit + change, server):
        path = folder / UNIT.name
        path.write_text(text.replace("/usr/bin/bitnet-edge", str(launcher)))
        done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        command = re.findall(r"^ExecStart=\S+ (\S.*)$", text, re.MULTILINE)[-1].split()
        found = cli.get_command(click.Context(cli), command[0])
        while isinstance(found, click.Group):
            found = found.get_command(click.Context(found), command[1])
        assert found
        known = {name for param in found.params for name in param.opts}
        assert {word for word in command if word.startswith("-")} <= known


def test_unit_forbids_nothing_that_is_needed() -> None:
    """MemoryDenyWriteExecute=yes, as the kernel enforces it: an answer, under PR_SET_MDWE (Linux 6.3)."""
    probe = "import ctypes, os, sys\nif ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): sys.exit(99)\n" \
            "os.execv(sys.executable, [sys.executable, '-m', 'edge', 'run', '-n', '4', 'hello'])"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, env=environment(), input=b"")
    if done.returncode == 99:
        pytest.skip("the kernel has no PR_SET_MDWE")
    assert (done.returncode, done.stderr) == (0, b"") and len(done.stdout) > 5


# ---- bad conditions --------------------------------------------------------------------------------------------------


def limited(limit: str, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """bitnet-edge after a shell command such as "ulimit -v 524288"."""
    return subprocess.run(
        ["sh", "-c", f'{limit} && exec "$@"', "sh", *REAL, *arguments], capture_output=True, text=True, timeout=300,
        env=environment(**extra), stdin=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip


HALF_A_GIGABYTE = "ulimit -v 524288"


def test_512_mb(bundled_model: Path, tmp_path: Path) -> None:
    """The bundled model answers in it, doctor works, and a model of a gigabyte is refused with 5."""
    done = limited(HALF_A_GIGABYTE, "run", "--greedy", JOKE)
    assert (done.returncode, done.stderr) == (0, "") and len(done.stdout) > 20
    assert limited(HALF_A_GIGABYTE, "doctor").returncode == 0
    large = tmp_path / "large.gguf"
    shutil.copy(bundled_model, large)
    os.truncate(large, 1 << 30)  # a hole: takes no space
    done = limited(HALF_A_GIGABYTE, "run", "-m", str(large), JOKE)
    assert (done.returncode, done.stdout) == (5, "")
    said = f"{large}: not enough address space to map 1074 MB; is there a limit (ulimit -v)?"
    assert done.stderr == f"bitnet-edge: {said}\n"


@pytest.mark.parametrize("name", ["kiosk.sh", "kiosk.py"])
def test_512_mb_for_a_kiosk(name: str, launcher: Path) -> None:
    script = ["bash", str(KIOSK / name)] if name.endswith(".sh") else [sys.executable, str(KIOSK / name)]
    if not shutil.which(script[0]):
        pytest.skip(f"no {script[0]} here")
    done = subprocess.run(
        ["sh", "-c", f'{HALF_A_GIGABYTE} && exec "$@"', "sh", *script], input=JOKE.encode(), capture_output=True,
        env=surroundings(launcher), timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"") and len(done.stdout.splitlines()) >= 3


def test_512_mb_for_the_service(folder: Path) -> None:
    with service(folder / "socket", command=["sh", "-c", f'{HALF_A_GIGABYTE} && exec "$@"', "sh", *REAL]):
        pass


def test_one_core(launcher: Path) -> None:
    """The same answer, with one thread."""
    if not shutil.which("taskset"):
        pytest.skip("no taskset here")
    first = f"{min(os.sched_getaffinity(0))}"
    answers = set()
    for limit in ("true", f"taskset -cp {first} $$ >/dev/null"):
        done = limited(limit, "run", "--greedy", "--stats", JOKE)
        assert done.returncode == 0, done.stderr
        answers.add(done.stdout)
    assert len(answers) == 1
    done = limited(f"taskset -cp {first} $$ >/dev/null", "doctor")
    assert done.returncode == 0 and re.search(r"^cores +1 used, 1 allowed", done.stdout, re.MULTILINE)


def test_missing_model() -> None:
    done = limited("true", "run", "-m", "/srv/absent.gguf", JOKE)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1 and "/srv/absent.gguf" in done.stderr


def test_read_only_state_folder() -> None:
    """Where the history cannot be kept there is a chat without history.  /proc: not even root can write there."""
    environ = environment(XDG_STATE_HOME="/proc/self/nothing", TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1")
    environ.pop("BITNET_EDGE_HOME", None)
    with Terminal([*REAL, "chat", "--greedy", "-n", "8"], {**environ, "PYTHONPATH": str(ROOT)}) as terminal:
        terminal.expect("> ")
        terminal.line(JOKE)
        seen = terminal.expect(r"2004l\w+ \w+ \w+.*> ")  # 2004l: the line editor hands over
        terminal.type("\x04")
        assert terminal.wait() == 0
        assert "Traceback" not in seen + terminal.screen


def test_nothing_is_writable_at_all(folder: Path) -> None:
    """No HOME, no state, a temporary folder that does not exist: the service needs its socket alone."""
    environ = {"HOME": "/nonexistent", "TMPDIR": "/nonexistent", "XDG_STATE_HOME": "/proc/self/nothing"}
    with service(folder / "socket", **environ):
        assert sorted(path.name for path in folder.iterdir()) == ["socket"]


# ---- the scripts themselves ------------------------------------------------------------------------------------------


def test_shell_script_is_sound() -> None:
    script = KIOSK / "kiosk.sh"
    assert os.access(script, os.X_OK)
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck here")
    done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_touchscreen_needs_the_standard_library_alone() -> None:
    """On a kiosk with the Debian package there is no `edge` to import."""
    done = subprocess.run(
        [sys.executable, "-S", "-I", str(KIOSK / "touchscreen.py"), "--help"], capture_output=True, env={}
    )
    assert done.returncode == 0
