"""Models trained with other activations or weights than b1.58: BitNet a4.8, and binary weights (v1)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edge.errors import InvalidFile
from edge.formats import open_checkpoint
from edge.model.weights import build
from edge.tools.convert import convert
from pyx.weights import TernaryMatrix
from tests.handmade import STR, model, value
from tests.kernels.test_transformer import logits
from tests.oracles.forward import Model
from tests.oracles.softmax import log_softmax

KIOSK = Path(__file__).resolve().parents[2] / "edge" / "bundled" / "demo.gguf"


def kl(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (np.exp(log_softmax(a)) * (log_softmax(a) - log_softmax(b))).sum(-1)


def errors(checkpoint, prompts: list[list[int]], kind: str, against: str) -> np.ndarray:
    """KL of every position: NumPy's forward pass of one kind of activations, the engine's of another."""
    checkpoint.config = dataclasses.replace(checkpoint.config, activation_quant=kind)
    expected = [Model(checkpoint).logits(ids) for ids in prompts]
    checkpoint.config = dataclasses.replace(checkpoint.config, activation_quant=against)
    model = build(checkpoint, head="native", n_threads=2)
    got = [logits(model, checkpoint.config, ids) for ids in prompts]
    return np.concatenate([kl(e, g) for e, g in zip(expected, got, strict=True)])


def test_a48_is_the_formula_of_the_paper(tmp_path):
    """Against NumPy in float64, which no other rounding of activations comes near."""
    (tmp_path / "one.gguf").write_bytes(model())
    one = errors(open_checkpoint(tmp_path / "one.gguf"), [[token] for token in range(3, 16)], "a4.8", "a4.8")
    assert one.max() < 1e-9
    kiosk, prompts = open_checkpoint(KIOSK), np.random.default_rng(1).integers(300, 4000, (8, 3)).tolist()
    assert errors(kiosk, prompts, "a4.8", "a4.8").max() < 1e-9 < 0.1 < errors(kiosk, prompts, "a4.8", "int8").mean()


def test_a48_survives_conversion_and_unknown_kinds_are_refused(tmp_path):
    key = "bitnet-b1.58.activation_quantization"
    (tmp_path / "a.gguf").write_bytes(model(keys={key: value(STR, "a4.8")}))
    (tmp_path / "b.gguf").write_bytes(model(keys={key: value(STR, "a3")}))
    convert(tmp_path / "a.gguf", tmp_path / "c.gguf")
    assert open_checkpoint(tmp_path / "c.gguf").config.activation_quant == "a4.8"
    with pytest.raises(InvalidFile, match="'a3'"):
        open_checkpoint(tmp_path / "b.gguf")


def test_binary_weights_are_codes_without_zero():
    """BitNet v1: sign(W - mean W) times mean|W|, in the same packed rows."""
    rng = np.random.default_rng(5)
    w = np.where(rng.random((12, 256)) < 0.5, -1, 1).astype(np.int8)
    x = rng.integers(-127, 128, 256).astype(np.int8)
    matrix = TernaryMatrix.pack("I8", w, 12, 256, scale=0.25)
    assert matrix.zero_fraction == 0
    assert list(matrix.accumulate(x)) == (w.astype(np.int64) @ x).tolist()
