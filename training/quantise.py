"""BitLinear: a linear layer whose weights and activations are rounded to few bits in every forward pass.

=========  ================================  ==========================================================================
scheme     weights                           activations
=========  ================================  ==========================================================================
``v1``     sign after centring: -1, 1        int8 by the largest magnitude of the token (arXiv:2310.11453)
``b1.58``  ternary: -1, 0, 1                 int8, as v1 (arXiv:2402.17764)
``a4.8``   ternary                           int4 into attention and feed-forward; what goes into their last projections
                                             is int8, after attention with the smaller half set to 0 (arXiv:2411.04965)
=========  ================================  ==========================================================================

All weights of a matrix share one scale, mean |w|; every token has its own.  Weights stay in float for the optimizer
("latent weights"): the gradient passes the rounding as if it were not there, the *straight-through estimator*.

Both factors are small integers, which bfloat16 represents exactly: the product may be done in it, and the scales are
applied to the result, as the engine does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: smallest magnitude that a scale is made of (transformers, integrations/bitnet.py)
TINY = 1e-5


class StraightThrough(torch.autograd.Function):
    """Forward: the rounded values. Backward: the gradient goes to the exact ones, unchanged.

    ``exact + (rounded - exact).detach()`` would do the same but for last bits, and integers must stay integers.
    """

    @staticmethod
    def forward(exact: Tensor, rounded: Tensor) -> Tensor:
        return rounded.clone()

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def straight_through(exact: Tensor, rounded: Tensor) -> Tensor:
    return StraightThrough.apply(exact, rounded.detach())


# ---- weights: w [out, in] -> integers [out, in] and their scale []; w ~ integers * scale -----------------------------


def binary(w: Tensor) -> tuple[Tensor, Tensor]:
    """-1 and 1: above the mean of the matrix or not."""
    scale = w.detach().abs().mean().clamp(min=TINY)
    return straight_through(w / scale, torch.where(w > w.mean(), 1.0, -1.0)), scale


def ternary(w: Tensor) -> tuple[Tensor, Tensor]:
    """-1, 0 and 1: the nearest to w / mean |w|."""
    scale = w.detach().abs().mean().clamp(min=TINY)
    exact = w / scale
    return straight_through(exact, exact.round().clamp(-1, 1)), scale


# ---- activations: x [..., n] -> integers [..., n] and a step per token [..., 1]; x ~ integers * step -----------------


def int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """-127 to 127: the largest magnitude of the token becomes 127."""
    factor = 127 / x.detach().abs().amax(-1, keepdim=True).clamp(min=TINY)
    exact = x * factor
    return straight_through(exact, exact.round().clamp(-128, 127)), 1 / factor


def sparse_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`int8` with all but the half of largest magnitude set to 0; ties are kept."""
    integers, step = int8(x)
    magnitude = integers.detach().abs()
    least = magnitude.kthvalue(x.shape[-1] // 2 + 1, -1, keepdim=True).values
    return straight_through(integers, torch.where(magnitude >= least, integers, 0.0)), step


def int4(x: Tensor) -> tuple[Tensor, Tensor]:
    """-8 to 7: the mean magnitude of the token becomes sqrt(7)."""
    step = (x.detach().abs().mean(-1, keepdim=True) + TINY) / math.sqrt(7)
    exact = x / step
    return straight_through(exact, exact.round().clamp(-8, 7)), step


# ---- what a model does with them -------------------------------------------------------------------------------------

Rounding = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Scheme:
    """How a model rounds: its weights, and the activations at each of the three places they are multiplied."""

    weights: Rounding
    inputs: Rounding  # into attention (q, k, v) and feed-forward (gate, up)
    attention_output: Rounding  # into o
    ffn_output: Rounding  # into down


SCHEMES = {
    "v1": Scheme(binary, int8, int8, int8),
    "b1.58": Scheme(ternary, int8, int8, int8),
    "a4.8": Scheme(ternary, int4, sparse_int8, int8),
}


class BitLinear(nn.Module):
    """y = x W^T on rounded factors; x [..., n_in] float32 -> [..., n_out] float32."""

    def __init__(self, n_in: int, n_out: int, weights: Rounding, activations: Rounding) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.weights, self.activations = weights, activations

    def forward(self, x: Tensor) -> Tensor:
        weights, scale = self.weights(self.weight)
        integers, step = self.activations(x)
        return F.linear(integers, weights) * (step * scale)
