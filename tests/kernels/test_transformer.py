"""The compiled step against Hugging Face transformers and NumPy (golden logits), and against itself: chunks, threads.

Reference logits were computed by transformers 5.23 in float32 (oracle) and by a NumPy reference (tiny GGUFs); see
formats.md, G.  They are compared with F32 pages and the file's own head, so that only the arithmetic differs.
"""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import edge
from edge.formats import open_checkpoint
from edge.model.weights import build
from pyx import machine
from pyx.kv import KVCache
from pyx.step import STAGES
from tests.streams import run
from tests.vectors import make_golden, stored
from tests.vectors.stored import TINY, layout_of, tiny

IDS = [1, 5, 77, 200, 3, 9, 150, 42, 499, 17, 260, 8]
ORACLES = sorted(path.parent for path in stored.oracle().glob("*/*/config.json"))


def cache_for(config, n_ctx: int = 64, kv_type: str = "f32", **kw) -> KVCache:
    return KVCache(*config.kv_shape, n_ctx, kv_type, windows=config.windows, **kw)


def logits(model, config, ids: list[int], kv_type: str = "f32", chunk: int = 128) -> np.ndarray:
    """Logits [n][n_vocab] of every token, evaluated `chunk` at a time."""
    return run(model, cache_for(config, kv_type=kv_type), ids, chunk)


def greedy(model, config, ids: list[int], n: int, kv_type: str = "f32") -> list[int]:
    cache, result = cache_for(config, kv_type=kv_type), list(ids)
    for _ in range(n):
        result.append(int(run(model, cache, result[cache.n_tokens :])[-1].argmax()))
    return result


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_tiny_gguf_gives_its_own_logits(path):
    checkpoint = open_checkpoint(path, i2s_layout=layout_of(path))
    expected = stored.read("tiny_gguf", path.stem)["logits"]
    for head, tolerance in ("native", 1e-5), ("auto", 1e-4 if ".q8" in path.name else 1e-2):
        got = logits(build(checkpoint, head=head), checkpoint.config, IDS)
        assert np.abs(got - expected).max() <= tolerance * np.ptp(expected)
        assert (got.argmax(1) == expected.argmax(1)).all()


@pytest.mark.parametrize("path", ORACLES, ids=lambda path: f"{path.parent.name}.{path.name}")
def test_hugging_face_oracles(path):
    """Tolerances of formats.md D.1: packed_bitlinear 1e-5 of the range, the others 1e-2 and the same arg-max."""
    checkpoint = open_checkpoint(path)
    reference = stored.read("oracle", f"{path.parent.name}/{path.name}")
    expected = reference["logits"].reshape(len(IDS), -1)
    model = build(checkpoint, head="native")
    got = logits(model, checkpoint.config, IDS)
    tolerance = 1e-5 if "bitlinear" in path.name else 1e-2
    assert np.abs(got - expected).max() <= tolerance * np.ptp(expected)
    assert (got.argmax(1) == expected.argmax(1)).all()
    ids = reference["greedy"].ravel().tolist()
    assert greedy(model, checkpoint.config, IDS, len(ids) - len(IDS)) == ids


def test_all_oracles_are_here():
    assert len(TINY) == 8 and len(ORACLES) == 12
    assert json.loads((stored.VECTORS / "oracle.json").read_text())["input_ids"] == [IDS]


def alike(checkpoint, head: str = "native", kv_type: str = "f32", n: int = 500) -> np.ndarray:
    """Logits of a text of 50 tokens below n, the same bits for any number of threads and any chunks."""
    ids = [(7 * i * i + 3 * i) % n for i in range(50)]
    runs = [
        logits(build(checkpoint, n_threads=threads, head=head), checkpoint.config, ids, kv_type, chunk)
        for threads, chunk in ((1, 1), (1, 128), (2, 1), (2, 7), (3, 32), (5, 33))
    ]
    assert all(run.tobytes() == runs[0].tobytes() for run in runs[1:])
    return runs[0]


@pytest.mark.parametrize("path", TINY[:1] + TINY[3:5], ids=lambda path: path.stem)
@pytest.mark.parametrize("kv_type", ["f32", "f16", "int8"])
def test_chunks_and_threads_do_not_change_a_bit(path, kv_type):
    alike(open_checkpoint(path, i2s_layout=layout_of(path)), "int8", kv_type)


def test_every_moment_of_a_step_belongs_to_a_stage():
    checkpoint = tiny(0)
    model = build(checkpoint, n_threads=2)
    clocks = memoryview(model.keep_times()).cast("B").cast("q")
    begun = time.perf_counter_ns()
    for _ in range(3):
        logits(model, checkpoint.config, IDS, chunk=1)
    wall = time.perf_counter_ns() - begun
    for thread in range(2):
        spent = clocks[16 * thread : 16 * thread + len(STAGES)].tolist()
        times = dict(zip(STAGES, spent, strict=True))
        assert times.pop("experts chosen") == 0  # only layers with experts have this one
        assert all(times.values()) and sum(spent) < wall, f"thread {thread}: {times} of {wall}"


# ---- greedy answers of the bundled model: on every instruction set and KV mode the tokens that were written down -----

GOLDEN = json.loads(make_golden.FILE.read_text())


def test_golden_answers_are_of_this_model() -> None:
    assert GOLDEN["model"] == make_golden.sha256(make_golden.bundled()), "run python -m tests.vectors.make_golden"
    assert list(GOLDEN["answers"]) == list(make_golden.MODES)
    assert len(make_golden.CONVERSATIONS) == 10 and any(len(said) > 2 for _, said in make_golden.CONVERSATIONS)


@pytest.mark.parametrize("mode", make_golden.MODES)
@pytest.mark.parametrize("isa", machine.supported())
def test_golden_answers(no_open_engine: None, isa: str, mode: str) -> None:
    """All ten on the fastest instruction set; on every other one two of them in each mode, each in some mode."""
    fastest = isa == machine.supported()[-1]
    chosen = range(10) if fastest else range(list(make_golden.MODES).index(mode) % 5, 10, 5)
    with edge.load(threads=1, isa=isa, **make_golden.MODES[mode]) as engine:
        conversations = [make_golden.CONVERSATIONS[i] for i in chosen]
        for i, given in zip(chosen, make_golden.answers(engine, conversations), strict=True):
            said = make_golden.CONVERSATIONS[i][1][-1]
            assert given == GOLDEN["answers"][mode][i], f"{said!r}: {engine.tokenizer.decode(given[-1])!r}"
