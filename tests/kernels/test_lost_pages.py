"""A model file that is cut while it is in use: one line and exit 4, not SIGBUS and not a wrong result."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import make_model
from edge.formats import open_checkpoint
from edge.tools.convert import convert

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "edge" / "bundled" / "demo.gguf"

#: cut() cuts the file of argv[1] to half; at(module, name) makes that the first thing that a function does
CUT = """
import importlib, os, sys
PATH = sys.argv.pop(1)
def cut():
    os.truncate(PATH, os.path.getsize(PATH) // 8192 * 4096)
def at(module, name):
    module = importlib.import_module(module)
    old = getattr(module, name)
    def cutting(*args, **named):
        setattr(module, name, old)
        cut()
        return old(*args, **named)
    setattr(module, name, cutting)
"""
GUARDED = CUT + """
import edge
from edge.errors import InvalidFile
from pyx.machine.memory import guard
guard()
"""
COMMAND = "\nfrom edge.cli.main import main\nmain()"


def python(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, cwd=ROOT, timeout=300)


def outcome(code: str, *args: object) -> list[str]:
    """The lines that a program prints."""
    done = python(code, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    shutil.copy(BUNDLED, tmp_path / "m.gguf")
    return tmp_path / "m.gguf"


@pytest.fixture(scope="module")
def repacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose weights are packed anew when it is loaded: nothing of the file is read in steps but its words."""
    path = tmp_path_factory.mktemp("model") / "tq2.gguf"
    make_model.make(path, "tiny", "TQ2_0", "F16")
    return path


def test_a_model_file_that_is_cut_is_told_in_one_line(path):
    run = subprocess.Popen(
        [sys.executable, "-m", "edge", "run", "-m", str(path), "-t", "2", "-n", "1000000", "--ignore-eos", "--raw",
         "The"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    try:
        assert run.stdout and run.stdout.read(10), run.stderr and run.stderr.read()
        os.truncate(path, 4096)
        _, errors = run.communicate(timeout=300)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 4, errors
    lines = errors.decode().strip().splitlines()
    assert len(lines) == 1 and str(path) in lines[0] and "was cut" in lines[0]


#: command -> where in it the file is cut
COMMANDS = {
    "run -q -m PATH -n 4 hello": ("edge.model.weights", "build"),
    "convert -q PATH OUT": ("edge.model.interpretation", "interpreted"),
    "embed -q -m PATH hello": ("edge.model.weights", "build"),
    "model --check -q PATH": ("edge.model.interpretation", "faults"),
    "model -q PATH": ("edge.cli.model", "_read"),
    "fit -q PATH": ("edge.tools.fit", "arrange"),
    "tokens count -q -m PATH hello": ("edge.prompt.tokenizer.byte_level", "build"),
    "bench -q -m PATH -n 2 -d 4": ("edge.tools.bench", "measure"),
}


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_reports_it(path, tmp_path, words):
    text = tmp_path / "text"
    text.write_text("It was a bright cold day in April, and the clocks were striking thirteen. " * 30)
    places = {"PATH": path, "OUT": tmp_path / "out.gguf", "TEXT": text}
    where = COMMANDS[words]
    done = python(f"{CUT}\nat{where}{COMMAND}", path, *(places.get(word, word) for word in words.split()))
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 4 and len(lines) == 1 and str(path) in lines[0], (done.returncode, done.stderr)
    assert "was cut" in lines[0] and done.stdout == ""
    assert not list(tmp_path.glob("out*"))


def test_a_file_that_is_cut_while_it_is_loaded_is_refused(repacked, tmp_path):
    """Weights of these types end without a scale that would be found missing."""
    path = tmp_path / "m.gguf"
    shutil.copy(repacked, path)
    code = GUARDED + """
at("edge.model.weights", "build")
try:
    print(edge.load(PATH, threads=1, ctx=64).session().complete([1, 2, 3], max_tokens=4).text)
except InvalidFile as error:
    print(error)
"""
    said = outcome(code, path)
    assert len(said) == 1 and said[0].startswith(f"{path}: the file was cut")


def test_a_conversion_of_a_file_that_is_cut_writes_nothing(repacked, tmp_path):
    path, out = tmp_path / "m.gguf", tmp_path / "out.gguf"
    shutil.copy(repacked, path)
    code = GUARDED + """
from edge.tools.convert import convert
seen = []
def progress(done, total, name):
    seen.append(name)
    if len(seen) == 2:
        cut()
try:
    print(convert(PATH, sys.argv[1], progress=progress))
except InvalidFile as error:
    print(error)
"""
    said = outcome(code, path, out)
    assert len(said) == 1 and said[0].startswith(f"{path}: the file was cut")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.gguf"]
    convert(repacked, out)  # nothing was left that a later one would go on with
    assert open_checkpoint(out).notes == open_checkpoint(repacked).notes


def test_a_cut_file_does_not_concern_another_model(path, tmp_path):
    shutil.copy(path, tmp_path / "whole.gguf")
    code = GUARDED + """
def ask(engine):
    try:
        return engine.session().ask("Hello", max_tokens=4, temperature=0).text
    except InvalidFile:
        return "InvalidFile"
engine, other = edge.load(PATH, threads=1, ctx=64), edge.load(sys.argv[1], threads=1, ctx=64)
before = ask(engine), ask(other)
cut()
print(before[0] == before[1], ask(engine), ask(other) == before[1], ask(engine))
engine.close()
print(ask(other) == before[1])
engine = edge.load(sys.argv[1], threads=1, ctx=64)  # its map takes the place of the other in the table
print(ask(engine) == before[1])
"""
    assert outcome(code, path, tmp_path / "whole.gguf") == ["True InvalidFile True InvalidFile", "True", "True"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_session_is_not_saved_for_a_file_that_is_cut(path, tmp_path, when):
    """Its file would name a model that does not exist; an older file stays."""
    code = GUARDED + """
engine = edge.load(PATH, threads=1, ctx=64)
session = engine.session()
session.ask("Hello", max_tokens=4).text
session.save(sys.argv[1]) if sys.argv[2] == "after" else None
cut()
for act in (lambda: session.ask("Hello", max_tokens=4).text, lambda: session.save(sys.argv[1]),
            lambda: engine.fingerprint):
    try:
        print(act())
    except InvalidFile as error:
        print("InvalidFile", error)
"""
    said = outcome(code, path, tmp_path / "s.bes", when)
    assert [line.split()[0] for line in said] == ["InvalidFile"] * 3
    assert (tmp_path / "s.bes").exists() == (when == "after")
    assert not list(tmp_path.glob(".*"))


def test_other_bus_errors_end_the_process_as_before(tmp_path):
    code = (
        "import mmap, sys; from pyx.machine.memory import guard; guard(); "
        "f = open(sys.argv[1], 'w+b'); f.write(bytes(8192));"
        "f.flush(); m = mmap.mmap(f.fileno(), 8192); f.truncate(0); m[5000]")
    assert python(code, tmp_path / "f").returncode == -signal.SIGBUS
    assert python("import os; from pyx.machine.memory import guard; guard(); os.kill(os.getpid(), 7)").returncode == -7


def test_the_handler_that_was_there_gets_other_bus_errors(path):
    """More than once, and the guard still works afterwards."""
    code = GUARDED.replace("guard()", """
import signal
signal.signal(signal.SIGBUS, lambda *_: print("theirs"))
guard()
""") + """
engine = edge.load(PATH, threads=1, ctx=64)
for _ in range(2):
    os.kill(os.getpid(), signal.SIGBUS)
cut()
try:
    engine.session().ask("Hello", max_tokens=4).text
except InvalidFile:
    print("InvalidFile")
"""
    assert outcome(code, path) == ["theirs", "theirs", "InvalidFile"]
    ignored = code.replace("lambda *_: print(\"theirs\")", "signal.SIG_IGN")
    shutil.copy(BUNDLED, path)
    assert outcome(ignored, path) == ["InvalidFile"]


def test_maps_come_and_go_while_pages_are_lost(tmp_path):
    """Each count is of its own map, also when maps are closed and their places in the table are taken again, while
    other threads read what is missing.
    """
    code = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from edge.errors import InvalidFile
from edge.formats.mapped import map_file
from pyx.machine.memory import guard
guard()
SIZE = 1 << 20
wrong = []
def work(name, cut):
    for turn in range(60):
        with open(name, "wb") as file:
            file.write(b"x" * SIZE)
        view = map_file(name)
        if cut:
            os.truncate(name, SIZE // 2)
            found = bytes(view[SIZE // 2 :: 4096]), bytes(view[: SIZE // 2 : 4096])
            good = (bytes(128), b"x" * 128)
            try:
                view.obj.check()
                wrong.append("not noticed")
            except InvalidFile:
                pass
            os.truncate(name, SIZE)
            try:  # known by the count now
                view.obj.check()
                wrong.append("forgotten")
            except InvalidFile:
                pass
        else:
            found, good = (bytes(view[::4096]),), (b"x" * 256,)
            view.obj.check()
        if found != good:
            wrong.append(found)
with ThreadPoolExecutor(6) as pool:
    list(pool.map(lambda i: work(f"{sys.argv[1]}/{i}", i % 2), range(6)))
print(wrong[:1])
"""
    assert outcome(code, tmp_path) == ["[]"]


def test_an_embedding_program_gets_an_error_and_every_later_call_too(path):
    code = GUARDED + """
engine, other = edge.load(PATH, threads=2), edge.load(PATH, threads=1)
other.close()
engine.session().ask("Hello", max_tokens=3).text
os.truncate(PATH, 4096)
for _ in range(2):
    try:
        print(engine.session().ask("Hello", max_tokens=3).text)
    except InvalidFile as error:
        print("InvalidFile", error)
"""
    assert [line.split()[0] for line in outcome(code, path)] == ["InvalidFile"] * 2
