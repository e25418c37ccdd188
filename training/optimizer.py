"""Muon for the projections, AdamW for embedding and norms, and the schedule both follow.

Muon (Keller Jordan, https://kellerjordan.github.io/posts/muon): momentum, made orthogonal by Newton-Schulz steps, so
that every direction of a matrix moves equally far.  The update's length follows AdamW's (arXiv:2502.16982, section
2.2), so one learning rate serves both.  In a small batch this is a sixth of the work: processes share the matrices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Keller Jordan's quintic
_STEPS = 5


def orthogonalised(g: Tensor) -> Tensor:
    """U V^T of g = U S V^T, roughly (singular values 0.7 to 1.2); g [..., rows, columns] -> bfloat16."""
    a, b, c = _COEFFICIENTS
    x = g.bfloat16()
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)).bfloat16()
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT


class Muon:
    """Momentum with Nesterov, orthogonalised; matrices of one shape are handled as one stack, split over processes."""

    def __init__(self, matrices: Iterable[nn.Parameter], momentum: float = 0.95) -> None:
        self.momentum = momentum
        self.stacks: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in matrices:
            self.stacks.setdefault(tuple(matrix.shape), []).append(matrix)
        self.buffers = {shape: torch.zeros(len(stack), *shape, device=stack[0].device)
                        for shape, stack in self.stacks.items()}  # fmt: skip

    @torch.no_grad()
    def step(self, lr: float, weight_decay: float) -> None:
        world, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
        for (rows, columns), stack in self.stacks.items():
            buffer = self.buffers[rows, columns]
            gradient = torch.stack([matrix.grad for matrix in stack])
            buffer.lerp_(gradient, 1 - self.momentum)
            gradient.lerp_(buffer, self.momentum)
            share = -(-len(stack) // world)
            update = torch.zeros(world * share, rows, columns, dtype=torch.bfloat16, device=buffer.device)
            mine = gradient[rank * share : (rank + 1) * share]
            if len(mine):
                update[rank * share : rank * share + len(mine)] = orthogonalised(mine)
            if world > 1:
                dist.all_gather(list(update.split(share)), update[rank * share : (rank + 1) * share].clone())
            length = 0.2 * max(rows, columns) ** 0.5
            for matrix, direction in zip(stack, update[: len(stack)], strict=True):
                matrix.mul_(1 - lr * weight_decay).sub_(direction, alpha=lr * length)

    def state_dict(self) -> dict[str, Any]:
        return {f"{rows}x{columns}": buffer for (rows, columns), buffer in self.buffers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for (rows, columns), buffer in self.buffers.items():
            buffer.copy_(state[f"{rows}x{columns}"])


class Optimizer:
    """Both optimizers under one learning rate; ``muon`` false trains everything with AdamW."""

    def __init__(self, model: nn.Module, muon: bool = True) -> None:
        matrices = list(model.matrices()) if muon else []
        theirs = {id(matrix) for matrix in matrices}
        rest = [parameter for parameter in model.parameters() if id(parameter) not in theirs]
        groups = [{"params": [p for p in rest if p.ndim == 2]}, {"params": [p for p in rest if p.ndim == 1]}]
        self.parameters = list(model.parameters())
        self.muon = Muon(matrices)
        self.adamw = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, lr: float, weight_decay: float) -> None:
        self.muon.step(lr, weight_decay)
        for group, decay in zip(self.adamw.param_groups, (weight_decay, 0.0)):  # norms do not decay
            group["lr"], group["weight_decay"] = lr, decay
        self.adamw.step()

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self.muon.state_dict(), "adamw": self.adamw.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.muon.load_state_dict(state["muon"])
        self.adamw.load_state_dict(state["adamw"])
