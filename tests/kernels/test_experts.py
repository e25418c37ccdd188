"""Mixtures of experts: the same bits in any batch, chunk, number of threads and instruction set; how experts are
chosen; and which of them are in memory.  tests/formats/test_family_oracles.py compares with transformers and NumPy.
"""

from __future__ import annotations

import array
from pathlib import Path

import numpy as np
import pytest

import edge
from benchmarks import make_model
from edge.errors import InvalidFile, MemoryRefused
from edge.formats import container, open_checkpoint
from edge.model.interpretation import faults
from edge.model.weights import build
from edge.registry.shapes import Shape
from pyx import machine
from pyx.step import Segment
from tests.formats.test_family_oracles import gguf_file, gguf_tensors, with_floats
from tests.kernels.test_step import check
from tests.kernels.test_transformer import alike, cache_for, logits
from tests.oracles import family, tiny

FILES = [("qwen3moe", "PQ2_0_R64"), ("qwen3moe", "PQ2_0"), ("maple", "PQ2_0_R64"), ("maple", "TQ2_0")]


@pytest.mark.parametrize(("name", "form"), FILES)
def test_chunks_and_threads_do_not_change_a_bit(tmp_path: Path, name: str, form: str) -> None:
    alike(open_checkpoint(gguf_file(tmp_path, name, form)), "f32", "f16", n=300)


def test_nor_does_a_batch_on_any_instruction_set(tmp_path: Path, own_isa: None) -> None:
    checkpoint = open_checkpoint(gguf_file(tmp_path, "qwen3moe", "PQ2_0_R64"))
    check(checkpoint, "f32", [(1 + i % 2, name) for i, name in enumerate(machine.supported())])


def test_nor_does_a_batch_among_layers_with_windows(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(gguf_file(tmp_path, "maple", "PQ2_0"))
    c, kinds = checkpoint.config, ((3, 1, 9), (7, 5, 1), (5, 2, 30))
    texts = [[(a * i + b) % 300 for i in range(n)] for a, b, n in kinds]
    alone = [logits(build(checkpoint, head="f32"), c, text) for text in texts]
    for threads in (1, 2, 3):
        model = build(checkpoint, n_threads=threads, head="f32")
        rows = [np.zeros((len(text), c.n_vocab), np.float32) for text in texts]
        model.step([Segment(cache_for(c), array.array("i", text), row.reshape(-1), True)
                    for text, row in zip(texts, rows, strict=True)])
        assert all(row.tobytes() == one.tobytes() for row, one in zip(rows, alone, strict=True))


def routed(path: Path, name: str, router: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tiny model with another router in each layer."""
    made = tiny.weights

    def changed(model: tiny.Tiny) -> dict[str, np.ndarray]:
        return {key: router.astype(np.float32) if key.endswith("mlp.gate.weight") else value
                for key, value in made(model).items()}

    monkeypatch.setattr(tiny, "weights", changed)
    return gguf_file(path, name, "PQ2_0")


@pytest.mark.parametrize("name", ["qwen3moe", "qwen3moe_mixed"])
def test_of_equal_scores_the_first_experts_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    router = np.zeros((8, 256))
    router[5:7] = 0.25  # for half of the tokens two equal ones, for the others six
    checkpoint = with_floats(open_checkpoint(routed(tmp_path, name, router, monkeypatch)))
    expected = family.Model(checkpoint.config, gguf_tensors(tiny.MODELS[name])).logits(tiny.IDS)
    got = logits(build(checkpoint, head="f32"), checkpoint.config, tiny.IDS)
    assert np.abs(got - expected).max() <= 1e-4 * np.ptp(expected)


@pytest.mark.parametrize("value", [6e4, np.inf, np.nan])
def test_a_router_of_any_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    router = np.full((8, 256), value)
    router[3, 7] = -value
    checkpoint = open_checkpoint(routed(tmp_path, "qwen3moe", router, monkeypatch))
    if not np.isfinite(value):
        with pytest.raises(InvalidFile, match=r"ffn_gate_inp\.weight: it holds a number that is not finite"):
            build(checkpoint)
        return
    for threads in (1, 3):
        got = logits(build(checkpoint, n_threads=threads, head="f32"), checkpoint.config, tiny.IDS, chunk=7)
        assert np.isfinite(got).all()


def test_a_scale_that_is_no_number_is_found_by_a_check(tmp_path: Path) -> None:
    """Opening does not read all experts, which may be larger than the memory; `model --check` does."""
    path = gguf_file(tmp_path, "qwen3moe", "PQ2_0_R64")
    info = container.read_header(path).tensors["blk.2.ffn_up_exps.weight"]
    data = bytearray(Path(path).read_bytes())
    at = info.offset + info.nbytes - 2176 // 2 * 2  # the last panel: its first scale
    data[at : at + 2] = b"\0\x7c"
    Path(path).write_bytes(data)
    checkpoint = open_checkpoint(path)
    got = logits(build(checkpoint, head="f32"), checkpoint.config, tiny.IDS)
    assert got.shape == (len(tiny.IDS), 320)
    (fault,) = faults(checkpoint)
    assert fault == "tensor blk.2.ffn_up_exps.weight: a block scale is not a finite number of 16 bits"


# ---- experts beyond the memory -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with 20 MB of experts, of which a token uses a sixteenth."""
    path = tmp_path_factory.mktemp("large") / "m.gguf"
    shape = Shape("qwen3moe", 6, 512, 128, 4, 2, 128, 512, 512, 1e6, 1e-6, True, "tiny", experts=(64, 4))
    make_model.make(path, shape, "PQ2_0", "Q8_0")
    return path


def test_a_limit_leaves_experts_on_the_disk_and_answers_as_they_are(large: Path) -> None:
    answers: list[list[str]] = []
    whole = 0  # bytes with all experts
    for less in (0, 8_000_000, 12_000_000):
        memory = whole - less if less else None
        with edge.load(large, ctx=256, threads=2, memory=memory) as engine:
            session = engine.session()
            answers.append([  # a prompt of several tokens at once reads almost all experts
                session.ask("hello there " * 10, max_tokens=30, sampling=edge.Sampling(temperature=0.0)).text
                for _ in range(2)
            ])
            f = engine.plan.footprint
            assert f.experts + f.on_disk == 6 * 64 * 3 * 512 * 128 // 128 * 34
            if memory is None:
                whole = engine.plan.total_bytes
                assert f.on_disk == 0
                continue
            assert engine.plan.total_bytes <= memory and f.on_disk > 6_000_000 and engine.plan.n_ctx == 256
            assert any("stay on disk" in line for line in engine.plan.lines())
            assert engine.memory()["rss"] <= memory + 3_000_000, "folios are mapped as a whole"
    assert answers[0] == answers[1] == answers[2]


def test_a_limit_below_what_a_token_needs_is_refused(large: Path) -> None:
    with edge.load(large, ctx=256) as engine:
        f = engine.plan.footprint
        least = engine.plan.total_bytes - f.experts + f.least_experts
    assert f.least_experts == f.experts // 6
    with pytest.raises(MemoryRefused, match="it works from memory="):
        edge.load(large, ctx=256, memory=least - 2_000_000)


def test_all_experts_are_never_copied(large: Path) -> None:
    with edge.load(large, ctx=256, weights="huge") as engine:
        t = engine.model.transformer
        assert t.expert_bytes > 20_000_000 and t.weight_bytes_allocated < 3_000_000
        assert t.weight_bytes < t.weight_bytes_stored - 18_000_000
        others = {id(m) for m in t.matrices if m.n_row < 4096 and not m.is_dense}
        assert {id(matrix) for matrix in t.movable} == others | {id(t.movable[-1])}
        assert engine.memory()["planned"] == engine.plan.total_bytes
