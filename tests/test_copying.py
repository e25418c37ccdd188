"""The look at copying: the attention it reports is the model's own, at the place where the token stands."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="training needs PyTorch")

from training import copying  # noqa: E402
from training.model import SHAPES, Model  # noqa: E402


def test_find() -> None:
    assert copying.find([5, 1, 2, 9, 1, 2], [1, 2]) == 1
    assert copying.find([5, 1, 2, 9, 1, 2], [1, 2], 2) == 4
    assert copying.find([5, 1], [1, 2]) == -1


def test_watched_attention() -> None:
    shape = SHAPES["micro"]
    model = Model(shape, seed=1).eval()
    ids = [0, 7, 9, 7, 30, 11]
    logits, mass = copying.watched(model, ids)
    with torch.no_grad():
        assert torch.equal(logits, model(torch.tensor([ids]))[0])  # watching changes nothing
    assert mass.shape == (shape.n_layer * shape.n_head, 6, 6)
    assert torch.allclose(mass.sum(-1), torch.ones(()), atol=1e-5)
    assert not mass.triu(1).any()
