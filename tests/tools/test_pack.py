"""One file of program, model and arguments: its layout, its answers, and what is wrong with damaged ones.

The program is a stand-in, a small ELF file with an archive as PyInstaller ends one; with ``frozen`` it is the real one
(tests/packaging/test_freeze.py makes it).  Independent readers: readelf, objcopy, PyInstaller's own.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import random
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import edge
from edge import packed
from edge.cli.group import cli
from edge.errors import EdgeError, InvalidFile, UsageError
from edge.formats import open_checkpoint
from edge.model.fingerprint import fingerprint
from edge.tools import pack as tool
from edge.tools.pack import MACHINES, Program, pack
from tests.elf import archive, made
from tests.handmade import hf_directory
from tests.vectors.stored import TINY

QUESTION = "A large latte, please."


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in."""
    path = tmp_path_factory.mktemp("program") / "bitnet-edge"
    path.write_bytes(made({"code": b"\x90" * 5000, "pydata": archive()}))
    return path


@pytest.fixture(scope="module")
def guide(program: Path, bundled_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed program that chats."""
    path = tmp_path_factory.mktemp("guide") / "guide"
    pack(bundled_model, path, program=program)
    return path


Invoke = Callable[..., Result]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Path], Invoke]]:
    """starts(guide)("run", "hello"): the command line as it is in that file, in this process."""
    for name in list(os.environ):
        if name.startswith("BITNET_EDGE_"):
            monkeypatch.delenv(name)
    for name in ("STATE", "MODELS", "HOME", "CACHE"):
        monkeypatch.setenv(f"BITNET_EDGE_{name}", str(tmp_path / name))

    def start(path: Path) -> Invoke:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        monkeypatch.setattr(sys, "executable", str(path))
        packed.own.cache_clear()
        return lambda *args, stdin="", **env: CliRunner().invoke(cli, args, input=stdin, env=env)

    yield start
    packed.own.cache_clear()


@pytest.fixture
def packs(program: Path, tmp_path: Path) -> Callable[..., Path]:
    """packs("chat", "--ctx", "512"): the demo model packed with these arguments by the command."""

    def make(*arguments: str, code: int = 0) -> Path:
        path = tmp_path / "packed-guide"
        done = CliRunner().invoke(cli, ["pack", "demo", "-o", str(path), "--program", str(program), "--force", "--",
                                        *arguments])
        assert done.exit_code == code, done.output
        return path

    return make


@pytest.fixture
def inside(packs: Callable[..., Path], starts: Callable[[Path], Invoke]) -> Callable[..., Invoke]:
    """inside("chat", "--ctx", "512")("run", "hello"): the command line of the demo model packed with these."""
    return lambda *arguments: starts(packs(*arguments))


# ---- the file --------------------------------------------------------------------------------------------------------


def test_layout_by_other_readers(guide: Path, program: Path, bundled_model: Path, tmp_path: Path) -> None:
    if not shutil.which("readelf") or not shutil.which("objcopy"):
        pytest.skip("needs binutils")
    said = subprocess.run(["readelf", "-SW", str(guide)], capture_output=True, text=True, check=True)
    assert "warning" not in (said.stdout + said.stderr).lower()
    row = next(line for line in said.stdout.splitlines() if packed.MODEL in line).split("]")[1].split()
    assert int(row[3], 16) % 65536 == 0 and int(row[4], 16) == bundled_model.stat().st_size
    dumped = tmp_path / "dumped"
    subprocess.run(["objcopy", "--dump-section", f"{packed.MODEL}={dumped}", str(guide), str(tmp_path / "copy")],
                   check=True)
    assert dumped.read_bytes() == bundled_model.read_bytes()
    base, whole = program.read_bytes(), guide.read_bytes()
    changed = [i for i in range(len(base)) if base[i] != whole[i]]
    assert all(40 <= i < 48 or 60 <= i < 62 for i in changed), "only where the table is, and how long"
    assert os.access(guide, os.X_OK)
    inside = packed.read(str(guide))
    assert inside is not None and inside.sha256 == hashlib.sha256(bundled_model.read_bytes()).hexdigest()
    assert inside.licence == "mit" and inside.version == edge.__version__ and inside.model == "demo"


def test_the_same_file_twice(guide: Path, program: Path, bundled_model: Path, tmp_path: Path) -> None:
    pack(bundled_model, tmp_path / "again", program=program)
    assert (tmp_path / "again").read_bytes() == guide.read_bytes()
    pack(guide, tmp_path / "third", program=program)  # a packed program is a model, too
    assert (tmp_path / "third").read_bytes() == guide.read_bytes()


def test_model_is_read_from_the_map(guide: Path, bundled_model: Path) -> None:
    inside, plain = open_checkpoint(guide), open_checkpoint(bundled_model)
    assert inside.maps[0].start % 65536 == 0 and len(inside.maps[0]) == bundled_model.stat().st_size
    assert fingerprint(inside.config, inside) == fingerprint(plain.config, plain)
    with edge.load(guide, ctx=128) as packed_one, edge.load(bundled_model, ctx=128) as other:
        plans = [[line for line in each.plan.lines() if not line.startswith(("program", "total"))]
                 for each in (packed_one, other)]
        assert plans[0] == plans[1] and "mapped from the file" in plans[0][0]
        asked: dict[str, Any] = {"sampling": edge.Sampling(temperature=0.0), "max_tokens": 20}
        assert packed_one.session().ask(QUESTION, **asked).text == other.session().ask(QUESTION, **asked).text


def test_larger_than_32_bits(
    program: Path, bundled_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets have 64 bits, but PyInstaller's cookie 32: beyond them the archive is there a second time."""
    model, out = tmp_path / "large.gguf", tmp_path / "guide"
    shutil.copy(bundled_model, model)
    os.truncate(model, 5 << 30)
    every_piece = tool.pieces
    # the rest is a hole
    monkeypatch.setattr(tool, "pieces", lambda data, progress: every_piece(data[: 8 << 20], progress))
    pack(model, out, program=program)
    inside = packed.read(str(out))
    assert inside is not None and inside.nbytes == 5 << 30
    with open(out, "rb") as file:
        place = packed.sections(file, str(out))[packed.ARCHIVE]
        file.seek(place.offset)
        assert place.offset > 5 << 30 and file.read(place.size) == archive()
    assert open_checkpoint(out).config == open_checkpoint(bundled_model).config
    small = Program.open(str(program))
    assert small.ending((1 << 32) - 88 - 1 + small.archive.offset)[8:12] == b"\xff" * 4
    assert small.ending((1 << 32) - 88 + small.archive.offset) == archive()


# ---- damaged ---------------------------------------------------------------------------------------------------------


def test_cut_anywhere(guide: Path, program: Path, tmp_path: Path, starts: Callable[[Path], Invoke]) -> None:
    whole, path = guide.read_bytes(), tmp_path / "guide"
    inside = packed.read(str(guide))
    assert inside is not None
    size, end = program.stat().st_size, inside.start + inside.nbytes
    edges = {at + step for at in (64, size, inside.start, end, len(whole)) for step in (-1, 0, 1)}
    lengths = {*edges, *random.Random(1).sample(range(64, len(whole)), 50)}
    for length in sorted(n for n in lengths if 64 <= n < len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidFile, match="was cut"):
            packed.read(str(path))
    for arguments in ((), ("run", "hi"), ("--version",), ("doctor",), ("fit",)):
        path.write_bytes(whole[: end - 5])
        done = starts(path)(*arguments)
        assert done.exit_code == 4 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.output


def test_changed_bytes(guide: Path, tmp_path: Path) -> None:
    """Behind the model: each byte; in the header: those that say where the table is."""
    whole, path = bytearray(guide.read_bytes()), tmp_path / "guide"
    inside = packed.read(str(guide))
    assert inside is not None
    own = inside._replace(path=str(path))
    places = [*range(40, 48), *range(58, 64), *range(inside.start + inside.nbytes, len(whole))]
    noticed = 0
    path.write_bytes(whole)
    with open(path, "r+b", buffering=0) as file:
        for place in places:
            for bit in (0, 3, 7):
                os.pwrite(file.fileno(), bytes([whole[place] ^ 1 << bit]), place)
                try:
                    found = packed.read(str(path))
                    # the program's own rows and cookie are not ours to judge; a model elsewhere is no GGUF file
                    assert found is not None, f"byte {place} makes it a program without a model"
                    if found != own:
                        with pytest.raises(InvalidFile):
                            open_checkpoint(path)
                except InvalidFile as error:
                    noticed += 1
                    assert len(str(error).splitlines()) == 1
            os.pwrite(file.fileno(), whole[place : place + 1], place)
    assert noticed > 1000


def hostile(guide: Path, path: Path, said: bytes | None = None, **rows: dict[int, int]) -> Path:
    """A copy of ``guide`` with another description, or with values of the table's rows: model={field: value}."""
    whole = bytearray(guide.read_bytes())
    table = struct.unpack_from("<Q", whole, 40)[0]
    count = struct.unpack_from("<H", whole, 60)[0]
    first = table + (count - 3) * 64
    for i, name in enumerate(("model", "about", "archive")):
        row = list(struct.unpack_from("<IIQQQQIIQQ", whole, first + i * 64))
        for key, value in rows.get(name, {}).items():
            row[key] = value
        struct.pack_into("<IIQQQQIIQQ", whole, first + i * 64, *row)
    if said is not None:  # at the end of the file, where it has room; the archive after it
        struct.pack_into("<QQ", whole, first + 64 + 24, len(whole), len(said))
        struct.pack_into("<QQ", whole, first + 128 + 24, len(whole) + len(said), 1)
        whole += said + b"\0"
    path.write_bytes(whole)
    return path


def checks(data: bytes) -> bytes:
    return hashlib.sha256(data).digest() + struct.pack("<I", zlib.crc32(data))


HUGE = (1 << 64) - 1


@pytest.mark.parametrize("rows", [
    {"model": {4: 0}}, {"model": {4: 65537}}, {"model": {4: HUGE}}, {"model": {5: 0}}, {"model": {5: HUGE}},
    {"model": {5: 1 << 63}}, {"model": {4: 1 << 40}}, {"about": {4: 65536}}, {"about": {4: HUGE}}, {"about": {5: HUGE}},
    {"about": {5: 36}}, {"about": {5: 0}}, {"about": {5: 1 << 21}}, {"archive": {4: HUGE}}, {"archive": {5: HUGE}},
    {"model": {0: 0}}, {"about": {0: HUGE >> 32}}, {"archive": {0: 1}},
])
def test_hostile_tables(rows: Any, guide: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="damaged"):
        packed.read(str(hostile(guide, tmp_path / "hostile", **rows)))


def changed(**more: Any) -> bytes:
    """A description with other values."""
    said = json.loads(packed.Packed("", 0, 1, "1", "m", "", "0", ("chat",)).encode()[36:])
    return json.dumps({**said, **more}).encode()


@pytest.mark.parametrize("data", [
    b"", b"[]", b"null", b"1", b"{", b"\xff", b"[" * 200_000, b'{"format": 2}', changed(format=1), changed(format="2"),
    changed(model=[]), changed(model={}), changed(words=[]), changed(words=[1]), changed(words=5), changed(words=[[]]),
    changed(prompts=[1]), changed(prompts=[0]), changed(prompts=[-5, 5]), changed(prompts=["1"]), changed(prompts=5),
    changed(prompts_sha256=1), changed(version="1\n2"), changed(version=None), b"1" * 5000,
])
def test_hostile_descriptions(data: bytes, guide: Path, tmp_path: Path) -> None:
    path = hostile(guide, tmp_path / "hostile", checks(data) + data)
    with pytest.raises(InvalidFile) as caught:
        packed.read(str(path))
    assert str(caught.value).startswith(f"{path}: ") and len(str(caught.value)) < 300


def test_other_files_are_no_packed_programs(program: Path, bundled_model: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for path in (program, bundled_model, empty, Path(sys.executable).resolve()):
        assert packed.read(str(path)) is None
    with pytest.raises(InvalidFile, match="a program without a model"):
        open_checkpoint(program)


# ---- packing ---------------------------------------------------------------------------------------------------------


def test_programs_that_cannot_be_packed(bundled_model: Path, guide: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "program", tmp_path / "guide"
    good = made({"pydata": archive()})
    for data in (
        b"", b"#!/bin/sh\n", good[:64], made({"code": b"1"}), made({"pydata": b"none"}), made({"pydata": b"1" * 200}),
        made({"pydata": archive("0.0.1")}), made({"pydata": archive(name=b"something else")}),
        made({"pydata": archive()}, machine=3), made({"pydata": archive()[:-60] + b"\xff" * 60 + archive()[-88:]}),
        good[:4] + b"\1" + good[5:], made({"pydata": archive().replace(struct.pack(">I", 311), b"\xff" * 4)[:-1]}),
    ):
        path.write_bytes(data)
        with pytest.raises((UsageError, InvalidFile)) as caught:
            pack(bundled_model, out, program=path)
        assert str(path) in str(caught.value) and not out.exists()
    for wrong in (guide, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match=str(wrong)):
            pack(bundled_model, out, program=wrong)


def test_the_program_that_a_copy_of_the_source_has_made(
    bundled_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of make freeze; where it is not made yet, the line has the command; an installation needs --program."""
    monkeypatch.setattr(edge, "__file__", str(tmp_path / "my source" / "edge" / "__init__.py"))
    source, out, here = tmp_path / "my source", tmp_path / "guide", platform.machine()
    with pytest.raises(UsageError, match="name it with --program FILE"):
        pack(bundled_model, out)
    (source / "packaging").mkdir(parents=True)
    (source / "packaging" / "freeze.sh").touch()
    with pytest.raises(UsageError, match=f"make -C '{source}' freeze makes it"):
        pack(bundled_model, out)
    other = next(each for each in ("aarch64", "x86_64") if each != here)
    with pytest.raises(UsageError, match="freeze-aarch64 makes it" if other == "aarch64" else "--program FILE"):
        pack(bundled_model, out, machine=other)
    (source / "dist").mkdir()
    machines = {name: number for number, name in MACHINES.items()}
    for machine, name in ((here, "bitnet-edge"), (other, f"bitnet-edge-{other}")):
        (source / "dist" / name).write_bytes(made({"pydata": archive()}, machine=machines[machine]))
        assert pack(bundled_model, out, machine=machine, force=True).machine == machine
    with pytest.raises(UsageError, match=f"is for {other}, not for {here}"):
        pack(bundled_model, out, program=source / "dist" / f"bitnet-edge-{other}", machine=here, force=True)


def test_models_that_cannot_be_packed(program: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="convert"):
        pack(hf_directory(tmp_path / "hf"), tmp_path / "guide", program=program)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(InvalidFile):
        pack(tmp_path / "broken.gguf", tmp_path / "guide", program=program)
    assert not (tmp_path / "guide").exists()


def test_where_it_is_written(program: Path, bundled_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "guide"
    out.write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        pack(bundled_model, out, program=program)
    assert out.read_text() == "mine"
    pack(bundled_model, out, program=program, force=True)
    assert packed.read(str(out))
    for wrong in (tmp_path, "/dev/null", program, bundled_model):
        with pytest.raises(UsageError, match=str(wrong)):
            pack(bundled_model, wrong, program=program, force=True)
    with pytest.raises(EdgeError, match="does not exist"):
        pack(bundled_model, tmp_path / "no" / "guide", program=program)
    if os.path.isdir("/dev/shm"):  # another file system
        there = Path("/dev/shm", f"bitnet-edge-{os.getpid()}")
        try:
            pack(bundled_model, there, program=program)
            assert there.read_bytes() == out.read_bytes()
        finally:
            there.unlink(missing_ok=True)


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_nothing_half_is_left(failure: BaseException, program: Path, bundled_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "guide"
    out.write_text("mine")

    def fail(done: int, total: int) -> None:
        assert len(list(tmp_path.iterdir())) == 2  # it is being written
        raise failure

    with pytest.raises(EdgeError if isinstance(failure, OSError) else KeyboardInterrupt):
        pack(bundled_model, out, program=program, force=True, progress=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["guide"] and out.read_text() == "mine"


def test_full_disk(program: Path, tmp_path: Path) -> None:
    limited = f"ulimit -f 1000; exec {sys.executable} -m edge pack demo -o guide --program {program}"
    done = subprocess.run(["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "cannot write guide" in done.stderr
    assert not list(tmp_path.iterdir())


# ---- the command line of a packed program ----------------------------------------------------------------------------


def test_without_words_it_chats(inside: Callable[..., Invoke]) -> None:
    run = inside()
    seed = {"BITNET_EDGE_SEED": "1"}
    chatted, answered = run(stdin=f"{QUESTION}\n", **seed), run("run", QUESTION, **seed)
    assert chatted.exit_code == 0 and chatted.stdout.strip() == answered.stdout.strip() != ""


def test_a_question_can_be_packed(inside: Callable[..., Invoke]) -> None:
    run = inside("run", "--temp", "0", "-n", "5", QUESTION)
    assert run().stdout == run("run", QUESTION).stdout != run("run", "-n", "9", QUESTION).stdout != ""


@pytest.mark.parametrize(("form", "content", "answer"), [
    ("--schema", '{"enum": [5]}', "5\n"), ("--grammar", 'start: "7"', "7\n"),
])
def test_files_that_are_named_are_inside(
    form: str, content: str, answer: str, packs: Callable[..., Path], starts: Callable[[Path], Invoke], tmp_path: Path
) -> None:
    text = "Line one.\n  \"Zwei\", 'drei' \\n vier"
    prompt, file = tmp_path / "prompt", tmp_path / "form"
    prompt.write_text(text)
    file.write_text(content)
    path = packs("run", "-sysf", str(prompt), f"{form}={file}", QUESTION)
    inside = packed.read(str(path))
    assert inside is not None and text in inside.words and not any(str(tmp_path) in word for word in inside.words)
    assert "\n" not in inside.shown and starts(path)().stdout == answer
    assert starts(path)("run", "--choice", "yes", QUESTION).stdout == "yes\n"  # a form of one's own wins


def test_another_model(inside: Callable[..., Invoke], root: Path) -> None:
    run = inside("chat")
    tiny = TINY[0]
    for arguments, variables in ((("-m", str(tiny)), {}), ((), {"BITNET_EDGE_MODEL": str(tiny)})):
        shown = json.loads(run("model", "--json", *arguments, **variables).stdout)
        assert shown["path"] == str(tiny)
    shown = json.loads(run("model", "--json").stdout)
    assert shown["path"].endswith("packed-guide") and shown["config"]["name"] == "demo"
    chosen = json.loads(run("default", "--json").stdout)
    assert chosen["why"] == "inside"


@pytest.mark.parametrize(("packed_options", "typed"), [
    (["--system", "a"], ["-sysf", "FILE"]), (["--system", "a"], ["--raw"]), (["--kv", "int8"], ["--kv", "f16"]),
    (["--temp", "0"], ["--temp", "0.5", "--seed", "1"]), (["--set", "top_k=5"], ["--set", "top_k=9", "--seed", "1"]),
    (["--think"], ["--no-think"]), (["--stop", "a"], ["--stop", "b"]), (["--regex", "a"], ["--choice", "b"]),
])
def test_typed_options_win(
    packed_options: list[str], typed: list[str], inside: Callable[..., Invoke], tmp_path: Path
) -> None:
    """The answer is that of a program which has only the typed ones."""
    (tmp_path / "FILE").write_text("Be brief.")
    typed = [str(tmp_path / word) if word == "FILE" else word for word in typed]
    question = ["run", "-n", "12", QUESTION, *typed]
    own = inside("chat", "--seed", "1", *packed_options)(*question)
    other = inside("chat", "--seed", "1")(*question)
    assert own.exit_code == other.exit_code == 0, own.stderr
    assert own.stdout == other.stdout != ""


def test_variables_of_the_packer_are_not_packed(
    packs: Callable[..., Path], starts: Callable[[Path], Invoke], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITNET_EDGE_MAX_TOKENS", "0")  # chat refuses it
    path = packs("chat", "--temp", "0")
    monkeypatch.delenv("BITNET_EDGE_MAX_TOKENS")
    assert starts(path)(stdin=f"{QUESTION}\n").stdout.strip()


@pytest.mark.parametrize("arguments", [
    ["chat", "--kv", "int3"], ["chat", "--set", "top_p=7"], ["serve", "--host", "0.0.0.0"], ["serve", "--api-key", "x"],
    ["chat", "--system", "a", "-sysf", "b"], ["chat", "-m", "demo"], ["chat", "--nonsense"], ["chat", "-sysf", "none"],
    ["chat", "--set", "kv_budget=x"], ["run", "--schema", "none", "x"],
    ["pull", "x"], ["nonsense"],
])
def test_arguments_that_are_refused(arguments: list[str], packs: Callable[..., Path]) -> None:
    assert not packs(*arguments, code=2).exists()


GUIDE = "You guide visitors through the harbour museum, which opens at nine, politely and in short sentences. " * 4


@pytest.mark.parametrize("kv", [(), ("--kv", "int4"), ("-c", "512", "--window", "128")])
def test_its_system_prompt_was_read_where_it_was_packed(kv: tuple[str, ...], inside: Callable[..., Invoke]) -> None:
    run = inside("chat", "--system", GUIDE, "--temp", "0", *kv)
    first = json.loads(run("run", "--json", "-n", "8", QUESTION).stdout)
    again = json.loads(run("run", "--json", "-n", "8", "--set", "cache=off", QUESTION).stdout)
    assert first["text"] == again["text"] and again["usage"]["cached"] == 0
    alone = json.loads(run("run", "--json", "-n", "8", "--system", "", QUESTION).stdout)
    assert first["usage"]["prompt"] - first["usage"]["cached"] <= alone["usage"]["prompt"]
    default = json.loads(run("run", "--json", "-n", "8", "--kv", "int8", QUESTION).stdout)
    assert default["usage"]["cached"] == first["usage"]["cached"]  # of the default type, too
    other = json.loads(run("run", "--json", "-n", "8", "--kv", "f16", QUESTION).stdout)
    assert other["usage"]["cached"] == 0 and other["text"]
    chatted = run("chat", "-v", stdin=f"{QUESTION}\n", BITNET_EDGE_MAX_TOKENS="8")
    assert f"({first['usage']['cached']} cached)" in chatted.stderr
    assert json.loads(run("doctor", "--json").stdout)["selftest"]["packed"].startswith("ok")


def test_damaged_prompts_cost_time_and_no_answer(
    packs: Callable[..., Path], starts: Callable[[Path], Invoke], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.cache.remembered.LOADED", 0.0)  # nothing is kept outside of the file
    path = packs("chat", "--system", GUIDE, "--temp", "0")
    found = packed.read(str(path))
    assert found is not None and len(found.prompts) == 1
    expected = json.loads(starts(path)("run", "--json", QUESTION).stdout)
    assert expected["usage"]["cached"] > 0
    whole, (start, size) = path.read_bytes(), found.prompts[0]
    for place in (start, start + 8, start + 40, start + size // 2, start + size - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        done = starts(path)("run", "--json", QUESTION)
        answer = json.loads(done.stdout)
        assert answer["text"] == expected["text"] and answer["usage"]["cached"] == 0 and not done.stderr
        done = starts(path)("doctor", "--json")
        assert done.exit_code == 1 and json.loads(done.stdout)["selftest"]["packed"].startswith("wrong")


def test_it_says_what_is_inside(inside: Callable[..., Invoke]) -> None:
    run = inside("chat", "--ctx", "512")
    assert run("--version").stdout.splitlines()[0] == f"bitnet-edge {edge.__version__}"
    for arguments in (("--version",), ("--help",)):
        assert "demo" in run(*arguments).stdout and "licence: mit" in run(*arguments).stdout
    assert "chat --ctx 512" in run("--help").stdout and "Usage: packed-guide" in run("--help").stdout
    assert "packed-guide run --help" in run("run", "--nonsense", "x").stderr
    for command in ("run", "chat", "serve", "fit", "tokens"):  # its own name in the examples, too, and no -m
        page = run(command, "--help").stdout
        assert f"Usage: packed-guide {command} " in page and "bitnet-edge " not in page and "-m bonsai" not in page
    assert "  packed-guide run --choice" in run("run", "--help").stdout


# ---- the real program ------------------------------------------------------------------------------------------------


def test_frozen(frozen: dict[str, Path], bundled_model: Path, tmp_path: Path) -> None:
    from PyInstaller.archive.readers import CArchiveReader

    def said(program: Path, *arguments: str, code: int = 0) -> str:
        done = subprocess.run([str(program), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout or done.stderr

    guide = tmp_path / "guide"
    said(frozen["file"], "pack", "demo", "-o", str(guide), "--", "chat", "--temp", "0", "--system", "Be polite.")
    expected = said(frozen["file"], "run", "-m", "demo", "--temp", "0", "--system", "Be polite.", QUESTION)
    assert said(guide, "run", QUESTION) == expected
    assert CArchiveReader(str(guide)).toc.keys() == CArchiveReader(str(frozen["file"])).toc.keys()
    assert "all tests passed" in said(guide, "doctor")
    for program in (frozen["folder"], guide):  # neither can be packed
        said(program, "pack", "demo", "-o", str(tmp_path / "other"), code=2)
    whole = guide.read_bytes()
    for length in (frozen["file"].stat().st_size, len(whole) - 1_000_000, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:length])
        (tmp_path / "cut").chmod(0o755)
        assert len(said(tmp_path / "cut", "run", QUESTION, code=4).splitlines()) == 1
    large = tmp_path / "large.gguf"  # with offsets beyond 32 bits
    shutil.copy(bundled_model, large)
    os.truncate(large, 5 << 30)
    every_piece = tool.pieces
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tool, "pieces", lambda data, progress: every_piece(data[: 8 << 20], progress))
        pack(large, tmp_path / "large", program=frozen["file"])
    assert said(tmp_path / "large", "run", "--temp", "0", "--system", "Be polite.", QUESTION) == expected
    if shutil.which("strip"):  # keeps sections in their order, and so the archive's place
        subprocess.run(["strip", "-o", str(tmp_path / "stripped"), str(guide)], check=True)
        assert said(tmp_path / "stripped", "run", QUESTION) == expected
