"""The fingerprint of a model is remembered for its file, and for nothing that only looks like it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edge
from edge.cache import remembered as prompts
from edge.formats import open_checkpoint
from edge.model import fingerprint as module
from edge.model.fingerprint import KEPT, remembered
from pyx.machine import offset


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every fingerprint that is taken; files need not rest."""
    found: list[str] = []
    real = module.fingerprint

    def count(*arguments: Any) -> str:
        found.append(real(*arguments))
        return found[-1]

    monkeypatch.setattr(module, "fingerprint", count)
    monkeypatch.setattr(module, "RESTED", 0)
    return found


@pytest.fixture
def model(bundled_model: Any, tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    shutil.copy(bundled_model, path)
    return path


def of(model: Path, folder: Path | None) -> str:
    checkpoint = open_checkpoint(str(model))
    return remembered(checkpoint.config, checkpoint, None if folder is None else str(folder))


def test_it_is_taken_once(model: Path, folder: Path, taken: list[str]) -> None:
    assert {of(model, folder) for _ in range(3)} == set(taken) and len(taken) == 1
    (kept,) = folder.iterdir()
    assert KEPT.fullmatch(kept.name) and kept.stat().st_mode & 0o777 == 0o600 and str(model) not in kept.read_text()
    assert of(model, None) == taken[0] and len(taken) == 2


def in_place(model: Path) -> None:
    """One bit of a norm."""
    data = open_checkpoint(str(model)).tensors["output_norm.weight"].data
    at, byte = offset(data, data.obj), data[0]
    with open(model, "r+b") as file:
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def by_another(model: Path) -> None:
    other = model.with_suffix(".new")
    shutil.copy(model, other)
    in_place(other)
    os.replace(other, model)


@pytest.mark.parametrize("change", [in_place, by_another])
def test_another_file_of_the_same_size_and_time_is_another_model(
    model: Path, folder: Path, taken: list[str], change: Callable[[Path], None]
) -> None:
    before, facts = of(model, folder), model.stat()
    time.sleep(0.02)
    change(model)
    os.utime(model, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert (model.stat().st_size, model.stat().st_mtime_ns) == (facts.st_size, facts.st_mtime_ns)
    assert of(model, folder) == taken[-1] != before and len(taken) == 2


def test_a_file_that_has_just_changed_is_not_trusted(
    model: Path, folder: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of(model, folder)
    (kept,) = folder.iterdir()
    monkeypatch.setattr(module, "RESTED", 3600 * 10**9)
    of(model, folder)
    assert len(taken) == 2 and list(folder.iterdir()) == [kept]
    kept.unlink()
    of(model, folder)
    assert len(taken) == 3 and not list(folder.iterdir())


@pytest.mark.parametrize("state", ["empty", "cut", "binary", "huge"])
def test_garbage_is_ignored(model: Path, folder: Path, taken: list[str], state: str) -> None:
    right = of(model, folder)
    (kept,) = folder.iterdir()
    data = kept.read_bytes()
    wrong = {"empty": b"", "cut": data[:-1], "binary": os.urandom(64), "huge": data + b"x" * (1 << 20)}
    kept.write_bytes(wrong[state])
    assert of(model, folder) == right and len(taken) == 2


def test_it_is_kept_with_the_prompts(
    model: Path, tmp_path: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where something is remembered; for sessions, too; and forgotten with the prompts."""
    monkeypatch.setenv("BITNET_EDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BITNET_EDGE_NO_CACHE")
    folder = Path(prompts.place())
    for made in (False, True):
        if made:
            folder.mkdir(mode=0o700, parents=True)
        for _ in range(2):
            with edge.load(str(model), ctx=256, threads=1) as engine:
                assert engine.fingerprint == taken[0]
    assert len(taken) == 3 and len(list(folder.iterdir())) == 1
    with edge.load(str(model), ctx=256, threads=1, cache=False) as engine:
        assert engine.fingerprint == taken[0]
    assert len(taken) == 4
    prompts.forget(str(folder))
    assert not list(folder.iterdir())
