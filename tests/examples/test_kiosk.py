"""examples/kiosk and docs/kiosk.md: each program with the demo model, and with one that says what the test wants."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from edge.serve.kiosk import Kiosk
from examples.home import home
from examples.kiosk import kiosk as counter
from tests.http_service import serving
from tests.services import FAKE, ROOT, Manager, environment

KIOSK = ROOT / "examples" / "kiosk"
HOUSE = KIOSK / "house.txt"
COUNTER = b"I do not know that. Please ask at the counter.\n"
SORRY = b"Sorry, that did not work. Please ask at the counter.\n"
TRIED = b"kiosk: trying the model with orders from the menu\n"
_TEXT, MENU = counter.read_house(str(HOUSE))
TRIALS = counter.trials(counter.short_names(MENU))


def written(*items: tuple[str, int, str]) -> str:
    """An order as the model writes it."""
    return json.dumps({"kind": "order", "items": [dict(zip(("said", "count", "name"), item)) for item in items]})


#: what the fake model says: which lines are orders, a "yes" or a "no"; what is known
SCRIPT = json.dumps([
    *(["^" + re.escape(counter.SAID.format(said)), written(*((said, count, name) for name, count in order.items()))]
      for said, order in TRIALS),
    ['^A guest says: "999', written(("999 pieces of gold", 999, "gold"))],
    ['^A guest says: "and one more', written(("one more", 1, "latte"))],
    ['^A guest says: ".*please', written(("two lattes", 2, "latte"), ("a toast", 1, "toast"))],
    *([f'^A guest says: "{word}"', f'{{"kind": "{word}"}}'] for word in ("yes", "no")),
    ["^A guest says", '{"kind": "question"}'],
    ["^A guest asks.*unicorn", "no"], ["^A guest asks", "yes"],
])

#: what a microphone, a cat on a keyboard and an attacker may bring, line by line
BAD_INPUT = (
    b"\n   \n\x00\x01\x1b[2J\n\xff\xfe not text\n-h\n--model nowhere\n$(reboot) `id` \"'\\\n/exit\n{}%s%n\n"
    + b"x" * 100_000 + b"\n"
)

needs_bash = pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")


@pytest.fixture(params=[pytest.param("kiosk.sh", marks=needs_bash), "kiosk.py"])
def name(request: pytest.FixtureRequest) -> str:
    """Either kiosk."""
    return str(request.param)


class Program:
    """A kiosk with a fake model (or a real one), in a folder of its own."""

    def __init__(self, name: str, folder: Path, model: str = "") -> None:
        self.folder = folder
        launcher = folder / "bitnet-edge"
        start = "-m edge" if model else " ".join(FAKE[1:])
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" {start} "$@"\n')
        launcher.chmod(0o755)
        run = f"from tests import fake_engine; import runpy, sys; fake_engine.install(); sys.argv[:] = sys.argv[1:]; " \
              f"runpy.run_path({str(KIOSK / name)!r}, run_name='__main__')"
        program = [sys.executable, *([str(KIOSK / name)] if model else ["-c", run, name])]
        self.command = [*(["bash", str(KIOSK / name)] if name.endswith(".sh") else program), str(HOUSE)]
        self.variables = environment(BITNET_EDGE=str(launcher), FAKE_SCRIPT=SCRIPT)
        if model:
            self.variables["BITNET_EDGE_MODEL"] = model

    def run(self, said: bytes, **variables: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command, input=said, capture_output=True, timeout=300, cwd=self.folder,
            env={**self.variables, **variables},
        )

    def start(self, **variables: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder,
            env={**self.variables, **variables}, start_new_session=True,
        )

    def errors(self, done: subprocess.CompletedProcess[bytes]) -> bytes:
        """Standard error, without the trial of the model."""
        return re.sub(TRIED + rb"kiosk: 10 of 10 orders were understood, in \d+ s\n", b"", done.stderr)

    def orders(self) -> list[dict[str, Any]]:
        path = self.folder / "orders.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def kiosk(name: str, folder: Path) -> Program:
    return Program(name, folder)


@pytest.fixture
def python(folder: Path) -> Program:
    return Program("kiosk.py", folder)


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_a_statement_answers_or_the_counter_does(kiosk: Program) -> None:
    """Answers come sentence by sentence; what no statement answers is not asked."""
    done = kiosk.run(b"tell me two\nwhere are the unicorns\nlines\n")
    assert (done.returncode, kiosk.errors(done)) == (0, b"")
    hello, *said = [line.rstrip() + b"\n" for line in done.stdout.splitlines() if line.strip()]
    assert hello.startswith(b"Hello, ")
    assert said[:3] == [b"First sentence.\n", b"Second one.\n", COUNTER]
    assert b"one" in said[3] and b"unicorn" not in b"".join(said)


def test_an_order_is_written_by_the_model_and_priced_by_code(python: Program) -> None:
    """It is read back, added to, and kept after a yes; the conversation goes on."""
    done = python.run(b"two lattes and a toast please\nand one more please\nyes\nsay two\n")
    assert (done.returncode, python.errors(done)) == (0, b"")
    assert done.stdout.decode().splitlines()[1:] == [
        "2 latte, 1 cheese toast: 11.70 in all.", "Is that right?", "3 latte, 1 cheese toast: 15.30 in all.",
        "Is that right?", "Thank you. Your order is noted.", "First sentence.", "Second one.",
    ]
    (order,) = python.orders()
    assert order["order"] == {"latte": 3, "cheese toast": 1} and order["time"]
    assert order["text"] == "3 latte, 1 cheese toast: 15.30 in all."


def test_only_what_is_on_the_menu_is_ordered(python: Program) -> None:
    """Even if the model writes it."""
    done = python.run(b"999 pieces of gold please\nyes\n")
    assert (done.returncode, python.errors(done)) == (0, b"")
    (order,) = python.orders()
    assert set(order["order"]) <= set(MENU) and all(1 <= count <= 20 for count in order["order"].values())


def test_a_model_that_cannot_take_orders_is_refused(python: Program, folder: Path) -> None:
    """The demo model, and one that gets two of ten wrong; nine are enough."""
    asked = json.loads(SCRIPT)
    for wrong in (1, 2):
        script = json.dumps([[pattern, '{"kind": "no"}'] for pattern, _ in asked[:wrong]] + asked[wrong:])
        done = python.run(b"yes\n", FAKE_SCRIPT=script)
        assert done.stderr.startswith(TRIED) and done.stderr.count(b"\n") == 2
        assert (done.returncode, bool(done.stdout)) == ((0, True) if wrong == 1 else (2, False))
        assert f" {10 - wrong} of 10 orders".encode() in done.stderr
    done = Program("kiosk.py", folder, "demo").run(b"yes\n")
    assert (done.returncode, done.stdout) == (2, b"") and b"it cannot take orders here" in done.stderr


def test_trials_are_of_this_menu_and_not_those_of_the_prompt() -> None:
    """Counts and names of what is said; a menu may have one thing only."""
    assert TRIALS[3] == ("I'd like a muffin and a toast.", {"blueberry muffin": 1, "cheese toast": 1})
    assert TRIALS[2] == ("3 teas", {"black tea": 3}) and len({said for said, _ in TRIALS}) == 10
    shown = json.dumps(counter.examples("latte", "tea"))
    assert not any(form.replace("{}", "latte") in shown for form in counter.TRIALS)
    assert counter.trials({"cola": "cola"})[4] == ("can i have four colas and two colas", {"cola": 6})


#: as people type -> the order; one kind of muffin, tea and toast is on the menu, and no sizes
ORDERS = {
    "A latte please": "1 latte: 3.60 in all.",
    "two espressos and a blueberry muffin please": "2 espresso, 1 blueberry muffin: 7.70 in all.",
    "i'd like a black tea and a cheese toast": "1 black tea, 1 cheese toast: 7.30 in all.",
    "can i get three lattes": "3 latte: 10.80 in all.",
    "hi, one espresso, one latte and two muffins please": "1 espresso, 1 latte, 2 blueberry muffin: 11.80 in all.",
    "two teas and two cheese toasts, please": "2 black tea, 2 cheese toast: 14.60 in all.",
    "could we have four black teas?": "4 black tea: 11.20 in all.",
    "a muffin": "1 blueberry muffin: 2.90 in all.",
    "I'll take a latte, a cheese toast and an espresso to go": "1 latte, 1 cheese toast, 1 espresso: 10.50 in all.",
    "good morning! a large latte with oat milk, please": "1 latte: 3.60 in all.",
}


@pytest.mark.real_model
def test_ten_orders_of_ten(coder_model: Path, folder: Path) -> None:
    """Each is kept as it was said; a question in between is none."""
    program = Program("kiosk.py", folder, str(coder_model))
    done = program.run("".join(f"{said}\nyes\n" for said in ORDERS).encode() + b"where are the toilets\n")
    assert (done.returncode, program.errors(done)) == (0, b"")
    assert [order["text"] for order in program.orders()] == list(ORDERS.values())
    assert b"back on the left" in done.stdout.partition(b"\n")[2]


def test_silence_brings_the_next_guest(python: Program) -> None:
    with python.start(IDLE="0.02") as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"two lattes please\n")
        process.stdin.flush()
        while process.stdout.readline() != b"Is that right?\n":
            pass
        time.sleep(1)
        process.stdin.write(b"yes\n")
        process.stdin.close()
        assert b"noted" not in process.stdout.read()
    assert not python.orders()


def test_a_crash_of_the_model_is_a_sentence(kiosk: Program) -> None:
    done = kiosk.run(b"now crash\ntwo\n")
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert SORRY in done.stdout and b"Second one." in done.stdout


@pytest.mark.parametrize(
    ("name", "model"), [pytest.param("kiosk.sh", "", marks=needs_bash), ("kiosk.py", ""),
                        pytest.param("kiosk.sh", "demo", marks=needs_bash)]
)
def test_bad_input_does_not_end_it(name: str, folder: Path, model: str) -> None:
    """After all of it a guest is still answered."""
    done = Program(name, folder, model).run(BAD_INPUT + b"two\n")
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert done.stdout.startswith(b"Hello, ") and len(done.stdout.splitlines()) >= 7
    assert b"\x1b" not in done.stdout and b"Usage" not in done.stdout
    assert model or done.stdout.rstrip().endswith(b"Second one.")


def test_a_model_that_cannot_be_loaded_is_known_at_once(name: str, folder: Path) -> None:
    """Before the greeting; one line, the documented exit code."""
    (folder / "damaged.gguf").write_bytes(b"GGUF" + bytes(100))
    for model, code in (("missing.gguf", 3), ("damaged.gguf", 4)):
        done = Program(name, folder, str(folder / model)).run(b"two\n")
        assert (done.returncode, done.stdout) == (code, b"")
        assert done.stderr.count(b"\n") == 1 and model.encode() in done.stderr


def test_a_house_file_that_is_missing(kiosk: Program) -> None:
    kiosk.command[-1] = "/nowhere/house.txt"
    done = kiosk.run(b"two\n")
    assert (done.returncode, done.stdout) == (2, b"") and done.stderr.count(b"\n") == 1
    kiosk.command.pop()
    done = kiosk.run(b"two\n")
    assert done.returncode == 2 and done.stderr.startswith(b"usage: kiosk.") and done.stderr.count(b"\n") == 1


# ---- the voice -------------------------------------------------------------------------------------------------------


def test_answers_are_spoken_sentence_by_sentence(kiosk: Program, folder: Path) -> None:
    """Each sentence goes to its own run of the command, in order, and nothing else is printed."""
    done = kiosk.run(b"two\n", SPEAK=f'echo "[$(cat)]" | cat >>{folder}/said')
    assert (done.returncode, done.stdout, kiosk.errors(done)) == (0, b"", b"")
    said = [line.replace(" ]", "]") for line in (folder / "said").read_text().splitlines()]
    assert said[0].startswith("[Hello") and said[1:] == ["[First sentence.]", "[Second one.]"]


# ---- signals ---------------------------------------------------------------------------------------------------------


def group(number: int) -> list[int]:
    """The processes of a session, without zombies."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _parent, _group, session = path.read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and state != "Z":
                pids.append(int(path.parent.name))
    return pids


def ends(condition: Any) -> bool:
    """True once the condition is; waits with patience."""
    deadline = time.monotonic() + 300
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


@pytest.mark.parametrize("state", ["waits", "answers"])
def test_signals_end_it(kiosk: Program, folder: Path, state: str) -> None:
    number, code = (signal.SIGTERM, 143) if state == "waits" else (signal.SIGINT, 130)
    steps = folder / "steps"
    with kiosk.start(FAKE_DELAY="0.02" if state == "answers" else "0", FAKE_STEPS=str(steps)) as process:
        assert process.stdin and process.stdout and process.stderr
        assert process.stdout.readline().startswith(b"Hello")
        if state == "answers":
            before = steps.stat().st_size
            process.stdin.write(b"two two long\n")  # 7,600 steps
            process.stdin.flush()
            assert ends(lambda: steps.stat().st_size > before + 40)
        process.send_signal(number)
        assert process.wait(300) == code
        assert b"Traceback" not in process.stderr.read()
        assert ends(lambda: not group(process.pid))


def test_systemd_gets_ready_and_watchdog(kiosk: Program, folder: Path) -> None:
    """READY=1 once the house file is read, and WATCHDOG=1 while it waits."""
    if kiosk.command[0] == "bash" and not shutil.which("systemd-notify"):
        pytest.skip("no systemd-notify here")
    with contextlib.closing(Manager(folder)) as manager, kiosk.start(**manager.environment(watchdog=2)) as process:
        lines: list[str] = []
        assert ends(lambda: lines.extend(manager.hear(0.1)) or {"READY=1", "WATCHDOG=1"} <= set(lines))
        lines.clear()
        assert ends(lambda: lines.extend(manager.hear(0.1)) or "WATCHDOG=1" in lines)
        process.terminate()
        assert process.wait(300) == 143


# ---- the page --------------------------------------------------------------------------------------------------------

#: the rest is about other services
PAGE = (ROOT / "docs" / "kiosk.md").read_text().partition("\n## What code guarantees")[0]

#: programs that the page needs: what would download, speak or change the system is written to a file instead
STUBS = {
    "bitnet-edge": f'''[ "$1" = pull ] && exec echo "$@" >>pulled
[ "$1" = serve ] && exec test -e "$3"
exec "{sys.executable}" -m edge "$@"''',
    "python": f'''exec "{sys.executable}" -c "from tests import fake_engine; import runpy, sys
fake_engine.install(); sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')" "$@"''',
    "listen": 'echo "When do you open?"',
    "espeak-ng": "cat >>spoken",
    "git": "mkdir bitnet-edge",
    "make": '[ "$1" = deb ]',
    "sudo": '''for word; do case $word in /etc*) word=root$word;; esac; set -- "$@" "$word"; shift; done
echo "$@" >>done
case $1 in cp|mkdir) exec "$@";; esac''',
}


def test_the_page_runs(folder: Path) -> None:
    """Every block of docs/kiosk.md about kiosks, in order, on the demo model, which kiosk.py alone does not take."""
    (folder / "bin").mkdir()
    for name, text in STUBS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "root").mkdir()
    variables = environment(PATH=f"{folder}/bin:{os.environ['PATH']}", BITNET_EDGE_MODEL="demo", FAKE_SCRIPT=SCRIPT)
    said = []
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        if language == "ini":
            continue
        command = ["bash", "-ec", block] if language == "bash" else [sys.executable, "-c", block]
        done = subprocess.run(
            command, cwd=folder, env=variables, text=True, capture_output=True, timeout=300, stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0 and "Traceback" not in done.stderr and "failed" not in done.stderr, done.stderr
        assert "Sorry, that did not work" not in done.stdout
        said.append(done.stdout)
    assert len(said) == 10 and all(len(said[i]) > 10 for i in (5, 7, 8)), said
    assert (folder / "spoken").read_text().count("Hello") == 2
    assert "systemctl enable kiosk kiosk-screen\nreboot\n" in (folder / "done").read_text()
    for path in (KIOSK / "etc").rglob("*"):
        assert (folder / "root" / path.relative_to(KIOSK)).exists()
    assert Kiosk.read(str(folder / "root/etc/kiosk/kiosk.toml")).instructions == HOUSE.read_text().strip()


def test_the_page_lists_each_key_and_each_file() -> None:
    """The keys of the kiosk file, with the values that hold without them, and what is copied to /etc."""
    rows = dict(re.findall(r"^\| `(\w+)`.*\|(.*)\|$", PAGE, re.MULTILINE))
    fields = Kiosk.__dataclass_fields__
    assert {*rows, "instructions"} == {*fields, "instructions_file"}
    for name in ("longest_question", "longest_answer", "idle_seconds"):
        assert f" {fields[name].default} unless given" in rows[name]
    shown = Kiosk.read(str(KIOSK / "kiosk.toml"))
    assert (shown.longest_question, shown.longest_answer, shown.idle_seconds) == (300, 200, 60)
    for path in (KIOSK / "etc").rglob("*"):
        assert path.is_dir() or f"`{path.relative_to(KIOSK / 'etc')}`" in PAGE


def test_the_screen(folder: Path) -> None:
    """Chromium opens the address of the server and no other, in the window that labwc enlarges; systemd and labwc can
    read their files.
    """
    unit = (KIOSK / "etc/systemd/system/kiosk-screen.service").read_text()
    address = re.search(r"--app=http://([\w.:]+)/", unit)
    assert address and f"http://{address[1]}/\n" in unit
    policies = json.loads((KIOSK / "etc/chromium/policies/managed/kiosk.json").read_text())
    assert policies["URLBlocklist"] == ["*"] and policies["URLAllowlist"] == [address[1]]
    assert policies["IncognitoModeAvailability"] == 2  # always
    rules = xml.etree.ElementTree.parse(KIOSK / "etc/kiosk/rc.xml").findall("windowRules/windowRule")
    host = address[1].partition(":")[0]
    assert [rule.get("identifier") for rule in rules] == [f"chrome-{host}__-*", "chromium"]
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    for name in ("kiosk", "kiosk-screen"):
        text = (KIOSK / f"etc/systemd/system/{name}.service").read_text()
        (folder / f"{name}.service").write_text(re.sub(r"/usr/bin/[\w-]+", sys.executable, text))
    command = ["systemd-analyze", "verify", f"{folder}/kiosk-screen.service"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# ---- examples/home ---------------------------------------------------------------------------------------------------


def test_with_the_clock_behind_the_question_nothing_is_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("--ctx", "2048") as server:
        home.main(f"http://{server.host}:{server.port}")
    title, *lines, total = capsys.readouterr().out.splitlines()
    assert title.startswith("turn") and len(lines) == len(home.QUESTIONS)
    turns = [[int(word) for word in line.replace("|", " ").split()] for line in lines]
    assert turns[0][3] > 150
    for _, read, prompt, read_last, _ in turns[1:]:
        assert read > 0.8 * prompt - 64 and read > 150 and read_last < 64
    (read, _, read_last, _) = map(int, total.replace("|", " ").split()[1:])
    assert read > 5 * read_last
