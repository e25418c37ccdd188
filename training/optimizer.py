"""Muon for the projections, AdamW for embedding and norms.

Muon (Keller Jordan, https://kellerjordan.github.io/posts/muon) makes the momentum of a matrix orthogonal, so that every
direction moves equally far.  The length of its steps is matched to AdamW's (arXiv:2502.16982, section 2.2): one
learning rate serves both.
"""

from __future__ import annotations

from typing import Any

import torch

from training.model import Model


class Optimizer:
    """Both, under one learning rate and one weight decay."""

    def __init__(self, model: Model) -> None:
        matrices = [parameter for parameter in model.layers.parameters() if parameter.ndim == 2]
        norms = [parameter for parameter in model.parameters() if parameter.ndim == 1]
        self.muon = torch.optim.Muon(matrices, lr=0.0, momentum=0.95, adjust_lr_fn="match_rms_adamw")
        groups = [{"params": [model.embed_tokens.weight]}, {"params": norms, "decays": False}]
        self.adamw = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95))

    def step(self, lr: float, weight_decay: float) -> None:
        for optimizer in (self.muon, self.adamw):
            for group in optimizer.param_groups:
                group["lr"], group["weight_decay"] = lr, weight_decay if group.get("decays", True) else 0.0
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self.muon.state_dict(), "adamw": self.adamw.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.muon.load_state_dict(state["muon"])
        self.adamw.load_state_dict(state["adamw"])
