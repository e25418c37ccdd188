"""Rounding weights and activations to few bits, and the product of what is left, with straight-through gradients.

=========  =====================================  =====================================================================
scheme     weights                                activations
=========  =====================================  =====================================================================
``b1.58``  ternary by the mean magnitude          int8 by the largest magnitude of the token
``a4.8``   as b1.58                               int4 by the mean magnitude into attention and FFN; their outputs int8,
                                                  attention's with the smaller half dropped (arXiv:2411.04965)
``v1``     sign after centring, mean magnitude    as b1.58
``none``   not rounded: the twin for comparison   not rounded
=========  =====================================  =====================================================================

Both factors lie on integer grids, so bfloat16 holds them exactly and its matrix units do the product; the scales of
token and matrix are applied to the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: smallest magnitude a scale is made of (transformers, integrations/bitnet.py)
TINY = 1e-5


def ternary(w: Tensor) -> tuple[Tensor, Tensor]:
    """Codes in {-1, 0, 1} [out, in] and their scale [], mean |w|: ``w ~ codes * scale`` (arXiv:2402.17764, eq. 1-3)."""
    scale = w.abs().mean().clamp(min=TINY)
    return (w / scale).round().clamp(-1, 1), scale


def int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integers in -128..127 [..., n] and a step per token [..., 1]: ``x ~ integers * step`` (absmax / 127)."""
    factor = 127 / x.abs().amax(-1, keepdim=True).clamp(min=TINY)
    return (x * factor).round().clamp(-128, 127), 1 / factor


def binary(w: Tensor) -> tuple[Tensor, Tensor]:
    """Codes in {-1, 1} [out, in] of the centred weights, and their scale [], mean |w| (arXiv:2310.11453, section 2.1).

    What is not above the mean is -1.
    """
    codes = torch.where(w > w.mean(), 1.0, -1.0)
    return codes, w.abs().mean().clamp(min=TINY)


def int4(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integers in -8..7 [..., n] and a step per token [..., 1], mean |x| / sqrt(7) (arXiv:2411.04965, section 2)."""
    step = (x.abs().mean(-1, keepdim=True) + TINY) / math.sqrt(7)
    return (x / step).round().clamp(-8, 7), step


def sparse_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`int8` with all but the half of largest magnitude set to 0 (arXiv:2411.04965, section 2).

    Ties are kept, so that the choice does not depend on the order of a sort.
    """
    integers, step = int8(x)
    magnitude = integers.abs()
    least = magnitude.kthvalue(x.shape[-1] // 2 + 1, -1, keepdim=True).values
    return torch.where(magnitude >= least, integers, 0.0), step


@dataclass(frozen=True)
class Scheme:
    """Which rounding applies where: ``inputs`` of attention and FFN, and what goes into their last projections."""

    weights: str
    inputs: str
    attention_output: str
    ffn_output: str

    @staticmethod
    def named(name: str) -> Scheme:
        if name not in SCHEMES:
            raise ValueError(f"no quantisation scheme {name!r}; known are {', '.join(SCHEMES)}")
        return SCHEMES[name]


SCHEMES = {
    "b1.58": Scheme("ternary", "int8", "int8", "int8"),
    "a4.8": Scheme("ternary", "int4", "sparse_int8", "int8"),
    "v1": Scheme("binary", "int8", "int8", "int8"),
    "none": Scheme("none", "none", "none", "none"),
}

WEIGHTS = {"ternary": ternary, "binary": binary}
ACTIVATIONS = {"int8": int8, "int4": int4, "sparse_int8": sparse_int8}


class _Project(torch.autograd.Function):
    """y = x W^T for several W over one x, rounded on the way there; the gradient passes as if nothing were rounded."""

    @staticmethod
    def forward(x, weights, activations, dtype, *matrices):  # type: ignore[no-untyped-def]
        rounded = [WEIGHTS[weights](w) for w in matrices]
        codes = torch.cat([code for code, _ in rounded]).to(dtype)  # [out, in] of all matrices
        scale = torch.cat([s.expand(w.shape[0]) for w, (_, s) in zip(matrices, rounded)])  # [out]
        integers, step = ACTIVATIONS[activations](x)
        integers = integers.to(dtype)
        y = (integers @ codes.mT).float() * step * scale
        return (*y.split([w.shape[0] for w in matrices], -1), integers, codes, step, scale)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        *_, integers, codes, step, scale = output
        ctx.mark_non_differentiable(integers, codes, step, scale)
        ctx.save_for_backward(integers, codes, step, scale)
        ctx.rows = [w.shape[0] for w in inputs[4:]]

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        integers, codes, step, scale = ctx.saved_tensors
        # With the scales inside, one low-precision copy of the gradient serves both products; each takes out the
        # scale it should not have.
        g = (torch.cat(gradients[: len(ctx.rows)], -1) * step * scale).to(codes.dtype)
        dx = (g @ codes).float() / step
        dw = (g.flatten(0, -2).mT @ integers.flatten(0, -2)).float() / scale[:, None]
        return dx, None, None, None, *dw.split(ctx.rows)


def project(x: Tensor, matrices: Sequence[Tensor], scheme: Scheme, activations: str,
            dtype: torch.dtype) -> tuple[Tensor, ...]:  # fmt: skip
    """``x @ w.T`` for each w [out, in]; x [..., in] float32 -> float32 [..., out] each."""
    if scheme.weights == "none":
        y = (x.to(dtype) @ torch.cat(tuple(matrices)).to(dtype).mT).float()
        return y.split([w.shape[0] for w in matrices], -1)
    return _Project.apply(x, scheme.weights, activations, dtype, *matrices)[: len(matrices)]
