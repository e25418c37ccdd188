"""Where the weights lie: the choice, the copy between steps, and the memory they take meanwhile."""

from __future__ import annotations

import json
import threading
from array import array
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import edge
from benchmarks import make_model
from edge.errors import MemoryRefused
from edge.formats.mapped import map_file
from edge.machine import linux, placement
from pyx import machine
from pyx.step import Segment
from tests.services import in_python

#: 56 MB of codes
DEEP = replace(make_model.SHAPES["tiny"], n_layer=14, hidden=1024, ffn=4096, n_head=16, n_vocab=2048, n_ctx=512)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "deep.gguf"
    make_model.make(path, DEEP)
    return path


# ---- the choice ------------------------------------------------------------------------------------------------------


def test_auto_copies_where_memory_is_plenty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "LEAST", 1000)
    monkeypatch.setattr(machine, "huge_share", lambda codes: 0.0)  # the heap may lie in pages of 2 MiB already
    thp = tmp_path / "sys/kernel/mm/transparent_hugepage/enabled"
    thp.parent.mkdir(parents=True)
    thp.write_text("always [madvise] never\n")
    codes = [memoryview(bytes(600))] * 2
    asked = []

    def plan(kind: str, available: int, kv: str = "int8", refuse: str = "") -> SimpleNamespace:
        asked.append((kind, available))
        if kind == refuse:
            raise MemoryRefused("no")
        return SimpleNamespace(n_ctx=64, kv_type=kv if kind == "huge" else "int8")

    assert placement.choose(codes, plan, 100, root=str(tmp_path)) == "huge"
    assert asked == [("map", 100), ("huge", 50)]  # half is left to others
    assert placement.choose(codes, plan, None, root=str(tmp_path)) == "map"
    assert placement.choose(codes[:1], plan, 100, root=str(tmp_path)) == "map"
    assert placement.choose(codes, lambda *a: plan(*a, kv="int4"), 100, root=str(tmp_path)) == "map"
    assert placement.choose(codes, lambda *a: plan(*a, refuse="huge"), 100, root=str(tmp_path)) == "map"
    thp.write_text("always madvise [never]\n")
    assert placement.choose(codes, plan, 100, root=str(tmp_path)) == "map"
    assert placement.choose(codes, plan, 100, root=str(tmp_path / "none")) == "map"


def test_a_map_of_large_pages_needs_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "LEAST", 1)
    monkeypatch.setattr(machine, "advise", lambda data, advice, until=None: advice == "collapse")
    monkeypatch.setattr(machine, "huge_share", lambda data: 0.9)
    codes = [memoryview(bytes(8))]
    assert placement.choose(codes, None, 100) == "map"  # type: ignore[arg-type]
    monkeypatch.setattr(machine, "huge_share", lambda data: 0.5)
    assert placement.choose(codes, None, 100) == "collapse"  # type: ignore[arg-type]


# ---- advice ----------------------------------------------------------------------------------------------------------


def test_advice_about_a_map(deep: Path) -> None:
    whole = map_file(str(deep))
    codes = whole[1 << 20 : 17 << 20]
    before = linux.rss()["file"]
    assert machine.advise(codes, "read")
    assert linux.rss()["file"] - before >= 15 << 20
    assert machine.advise(codes, "release")
    assert linux.rss()["file"] - before <= 4 << 20
    assert machine.advise(whole[:5], "read") is False  # no whole page in it
    assert machine.huge_share(whole[:5]) == 0.0
    arena = machine.Arena(8 << 20, huge=True)
    arena.view[:] = bytes(len(arena.view))
    assert machine.huge_share(arena.view) in (0.0, pytest.approx(1.0, abs=0.3))  # as the system gives them


# ---- the move --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["huge", "collapse"])
def test_the_move_between_steps_changes_no_bit(deep: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    ids = array("i", range(300, 332))
    one = array("i", [7])

    def answers(engine: edge.Engine, n: int) -> list[bytes]:
        kv, logits, found = engine.space.new_cache(), array("f", bytes(4 * DEEP.n_vocab)), []
        for step in (ids, *[one] * n):
            with engine.model.alone() as transformer:
                transformer.step([Segment(kv, step, logits)])
            found.append(logits.tobytes())
        return found

    with edge.load(deep, ctx=64, threads=1, weights="map") as engine:
        expected = answers(engine, 12)
        assert engine.model.moving is None and engine.memory()["weights_mapped"] > placement.LEAST
    monkeypatch.setattr(placement, "choose", lambda *_: kind)
    monkeypatch.setattr(placement, "PAUSE", 0.01)
    plans = []
    with edge.load(deep, ctx=64, threads=1, on_plan=plans.append) as engine:
        moved = engine.model.transformer.weight_bytes_allocated
        assert answers(engine, 12) == expected
        assert plans == [engine.plan]
        engine.wait_for_weights()
        assert engine.model.moving is not None and not engine.model.moving.is_alive()
        after = engine.model.transformer.weight_bytes_allocated
        assert moved < after == engine.model.transformer.weight_bytes if kind == "huge" else moved == after
        assert answers(engine, 2) == expected[:3]
    assert not [thread for thread in threading.enumerate() if thread.name == "placement"]


def test_scales_per_group_move_into_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head, too; the plan knows the sizes, and a map of large pages is no reason against it."""
    path = tmp_path / "groups.gguf"
    make_model.make(path, "tiny-qwen3", "Q2_0", "Q2_0")
    monkeypatch.setattr(placement, "LEAST", 1)
    monkeypatch.setattr(machine, "huge_share", lambda data: 1.0)
    answers = []
    for threads in (1, 2):
        for weights in ("map", "huge", "auto"):
            with edge.load(path, ctx=128, threads=threads, weights=weights) as engine:
                engine.wait_for_weights()
                model, memory_used = engine.model.transformer, engine.memory()
                assert (memory_used["weights_mapped"] == 0) is (weights != "map")
                assert (model.head.allocated == 0) is (weights == "map")
                if weights != "map":
                    assert model.weight_bytes_allocated == model.weight_bytes == model.weight_bytes_copied
                    assert model.head.nbytes == model.head.allocated == model.head.copied
                kv, logits = engine.space.new_cache(), array("f", bytes(4 * engine.config.n_vocab))
                for ids in (range(1, 41), [7], [9], [11, 12, 13]):
                    with engine.model.alone() as transformer:
                        transformer.step([Segment(kv, array("i", ids), logits)])
                    answers.append(logits.tobytes())
    assert all(answers[i] == answers[i % 4] for i in range(len(answers)))


def test_closing_ends_the_move(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "choose", lambda *_: "huge")
    monkeypatch.setattr(placement, "PAUSE", 1.0)  # after each of 98 matrices
    engine = edge.load(deep, ctx=64, threads=1)
    transformer = engine.model.transformer
    engine.close()
    assert transformer.weight_bytes_allocated < transformer.weight_bytes, "some were not moved any more"
    assert not [thread for thread in threading.enumerate() if thread.name == "placement"]


def test_no_memory_for_the_copy_leaves_the_map(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "choose", lambda *_: "huge")

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError("the system refused")

    monkeypatch.setattr(placement, "copy", refuse)
    with edge.load(deep, ctx=64, threads=1) as engine:
        engine.wait_for_weights()
        assert engine.model.transformer.weight_bytes_allocated < engine.model.transformer.weight_bytes
    with pytest.raises(MemoryRefused, match="the system refused"):
        edge.load(deep, ctx=64, weights="huge")


# ---- the process -----------------------------------------------------------------------------------------------------

PROCESS = """
import json, re, sys
from array import array
import edge
from edge.machine import placement

placement.choose = lambda *_: "huge"
with edge.load(sys.argv[1], ctx=128, threads=1) as engine:
    for _ in range(2):
        with engine.session() as session:
            for piece in session.complete(list(range(100)), max_tokens=8):
                pass
        engine.wait_for_weights()
    with open("/proc/self/status") as status:
        peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1]) * 1024
    print(json.dumps({"plan": engine.plan.total_bytes, "peak": peak, "rss": engine.rss(), "memory": engine.memory()}))
"""


def test_a_copy_never_takes_more_than_planned(deep: Path) -> None:
    """What it leaves behind in the map goes piece by piece: not twice the weights, not even for a moment."""
    in_python(PROCESS, deep)  # a first opening, which scores a text
    seen = json.loads(in_python(PROCESS, deep))
    slack = (4 << 20) + 0.02 * seen["plan"]  # a page of 2 MiB at the end of each arena
    # below the plan more is possible: the system may have dropped pages of the program's own files
    assert -2 * slack <= seen["rss"]["rss"] - seen["plan"] <= slack, seen
    assert seen["peak"] <= seen["plan"] + slack, seen
    assert seen["memory"]["weights_mapped"] == 0 and seen["rss"]["file"] < placement.LEAST, seen
