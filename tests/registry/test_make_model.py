"""benchmarks/make_model.py: the random models are what they claim to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edge
from benchmarks import make_model
from edge.formats import open_checkpoint
from edge.registry.encodings import ENCODINGS
from pyx.weights import StoredRows, TernaryMatrix


def unpacked(path: Path, name: str) -> tuple[np.ndarray, float]:
    """Weights -1, 0, 1 [out, in] and the scale of a ternary tensor."""
    tensor = open_checkpoint(str(path)).tensors[name]
    rows, k = tensor.shape
    matrix = TernaryMatrix.pack(tensor.type, tensor.data, rows, k, tensor.scale)
    scales = set(matrix.scales)
    assert len(scales) == 1
    return np.frombuffer(matrix.unpack(), np.int8).reshape(rows, k), scales.pop()


def table(path: Path) -> np.ndarray:
    """The first 16 rows of the embedding as float32."""
    tensor = open_checkpoint(str(path)).tensors["token_embd.weight"]
    rows = StoredRows(tensor.type, tensor.data, *tensor.shape)
    return np.array([rows.row(i) for i in range(16)])


def test_against_the_gguf_package(tmp_path: Path) -> None:
    """The independent reader decodes the same numbers (it cannot read I2_S)."""
    gguf_package = pytest.importorskip("gguf")
    for kind in ("TQ1_0", "TQ2_0"):
        path = tmp_path / kind
        make_model.make(path, "tiny", kind, "Q6_K")
        stored = {tensor.name: tensor for tensor in gguf_package.GGUFReader(path).tensors}
        tensor = stored["blk.0.attn_q.weight"]
        weights, scale = unpacked(path, "blk.0.attn_q.weight")
        assert np.array_equal(gguf_package.dequantize(tensor.data, tensor.tensor_type), weights * np.float32(scale))
        tensor = stored["token_embd.weight"]
        theirs = gguf_package.dequantize(tensor.data[:16], tensor.tensor_type)
        assert np.array_equal(theirs, table(path))


def test_published_sizes() -> None:
    """Data bytes of 2B-4T as its published file has them: 1,179,449,920 with an F16 embedding; 332 tensors."""
    tensors = make_model.plan(make_model.SHAPES["2b-4t"], "I2_S", "F16")
    assert len(tensors) == 332
    sizes = [ENCODINGS[kind].size(dims[::-1]) for _, kind, dims in tensors]
    assert sum(sizes) == 1_179_449_920
    assert len(make_model.plan(make_model.SHAPES["falcon-e-1b"], "I2_S", "F16")) == 219
    assert len(make_model.plan(make_model.SHAPES["llama3-8b"], "I2_S", "F16")) == 291


@pytest.mark.parametrize("shape", sorted(make_model.SHAPES))
def test_every_shape_describes_a_model(shape: str) -> None:
    """The header of each shape is complete: sizes divide, vocabularies have their size."""
    chosen = make_model.SHAPES[shape]
    meta = make_model.metadata(chosen, shape, "I2_S")
    tokens = meta["tokenizer.ggml.tokens"]
    assert len(tokens) == len(set(tokens)) == len(meta["tokenizer.ggml.token_type"]) == chosen.n_vocab
    assert chosen.n_head % chosen.n_kv_head == 0
    for _, kind, dims in make_model.plan(chosen, "I2_S", "F16"):
        assert ENCODINGS[kind].size(dims[::-1])


@pytest.mark.parametrize("shape", ["tiny", "tiny-silu", "tiny-llama"])
def test_our_engine_runs_it(tmp_path: Path, shape: str) -> None:
    """Loads, tokenizes (text comes back) and answers; the answer does not depend on the ternary type."""
    answers = []
    for kind in make_model.TERNARY:
        make_model.make(tmp_path / kind, shape, kind)
        with edge.load(str(tmp_path / kind), ctx=64, kv="f16") as engine:
            text = "bade fi, keep 3 words"
            ids = engine.tokenizer.encode(text)
            assert engine.tokenizer.decode(ids).strip() == text
            greedy = edge.Sampling(temperature=0.0)
            pieces = engine.session().complete(ids, max_tokens=8, sampling=greedy, ignore_eos=True)
            answers.append([token for piece in pieces for token in piece.ids])
    assert len(answers[0]) == 8 and all(each == answers[0] for each in answers)
