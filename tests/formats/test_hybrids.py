"""Hybrid models (Qwen3.5, Bonsai 2): gated delta layers, gated attention and rotated bases, against transformers.

The vectors are made by tests/vectors/make_families.py from the models of tests/oracles/tiny.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.oracles import hybrid, tiny

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "families"


@pytest.mark.parametrize("name", tiny.HYBRIDS)
def test_the_oracle_says_what_transformers_says(name: str) -> None:
    """The formulas in float64 against float32 in chunks of 64: layer by layer, and every choice of 200."""
    model = tiny.HYBRIDS[name]
    oracle = hybrid.Model(model.config, tiny.weights(model))
    with np.load(VECTORS / f"{name}.npz") as stored:
        place, logits, greedy = stored["place"], stored["logits"], stored["greedy"].tolist()
        delta, attention = stored["delta"], stored["attention"]
    got, added = oracle.run(greedy[:-1])
    assert np.abs(added[0][place] - delta).max() <= 1e-5 * np.ptp(delta)
    assert np.abs(added[3][place] - attention).max() <= 1e-5 * np.ptp(attention)
    assert np.abs(got[place] - logits).max() <= 1e-5 * np.ptp(logits)
    assert got[len(tiny.LONG) - 1 :].argmax(1).tolist() == greedy[len(tiny.LONG) :] and len(greedy) == 270


def test_a_rotated_basis_is_its_own_way_back() -> None:
    """W' H s x is (W' H s) x; an embedding row z stands for s H z, and the head of the same rows takes H s x."""
    model = tiny.HYBRIDS["bonsai2"]
    name = "model.layers.0.mlp.down_proj.weight"
    codes, scales = tiny.codes_and_scales(model, name)
    stored = codes * np.repeat(scales.astype(np.float64), 128, 1)
    x = np.random.RandomState(0).randn(512)
    turned = ((tiny.signs(512) * x).reshape(-1, 128) @ tiny.transform(128)).ravel()
    assert np.abs(stored @ turned - tiny.weights(model)[name] @ x).max() <= 1e-5
    assert np.abs(tiny.transform(128) @ tiny.transform(128) - np.eye(128)).max() <= 1e-12
