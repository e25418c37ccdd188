"""BitNet b1.58 for training: the forward pass that the engine runs, with straight-through gradients.

Per layer  h += o(sub_norm(attention(q, k, v of norm(h)))),  h += down(sub_norm(relu(gate)^2 * up of norm(h))).
Every projection multiplies rounded activations with rounded weights (:mod:`training.quantise`); embedding, norms and
the output head, which is the embedding, stay as they are (transformers, models/bitnet/modeling_bitnet.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.quantise import Scheme, project


@dataclass(frozen=True)
class Shape:
    """Dimensions of one model; ``scheme`` names its quantisation (training.quantise.SCHEMES)."""

    hidden: int = 256
    n_layer: int = 6
    n_head: int = 4
    n_kv_head: int = 2
    head_dim: int = 64
    ffn: int = 768
    n_vocab: int = 4096
    n_ctx: int = 2048
    rope_theta: float = 10000.0
    eps: float = 1e-5
    scheme: str = "b1.58"

    def as_dict(self) -> dict[str, int | float | str]:
        return asdict(self)


#: models worth training here: ``xs`` is the bundled one, ``micro`` is for tests
SHAPES = {
    "micro": Shape(hidden=128, n_layer=2, n_head=4, n_kv_head=2, head_dim=32, ffn=256, n_vocab=512, n_ctx=256),
    "xs": Shape(),
    "s": Shape(hidden=384, n_layer=8, n_head=6, n_kv_head=2, ffn=1024),
    "m": Shape(hidden=512, n_layer=8, n_head=8, n_kv_head=2, ffn=1408),
}

#: queries are scored in blocks of this many, each against the keys up to its own end: half of the square is never made
_BLOCK = 512


def rmsnorm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding over pairs (j, j + D/2); x [..., T, D], cos and sin [T, D/2]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax attention, grouped queries; q [B, n_head, T, D], k and v [B, n_kv_head, T, D] -> like q.

    Written out because the fused backward of the CPU is slow at these sizes.
    """
    batch, n_head, n, dim = q.shape
    n_kv_head = k.shape[1]
    q = q.reshape(batch, n_kv_head, n_head // n_kv_head, n, dim)
    k, v = k.unsqueeze(2), v.unsqueeze(2)
    mixed = []
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        rows = q[..., start:stop, :].reshape(batch, n_kv_head, -1, dim)  # query heads of a group side by side
        score = (rows @ k[:, :, 0, :stop].mT).float().reshape(batch, n_kv_head, -1, stop - start, stop)
        future = torch.ones(stop - start, stop, dtype=torch.bool, device=q.device).triu(start + 1)
        score = (score / math.sqrt(dim)).masked_fill(future, -math.inf)
        weight = score.softmax(-1).to(v.dtype).reshape(batch, n_kv_head, -1, stop)
        mixed.append((weight @ v[:, :, 0, :stop]).reshape(batch, n_head, stop - start, dim))
    return torch.cat(mixed, 2) if len(mixed) > 1 else mixed[0]


class Layer(nn.Module):
    """One transformer layer; the parameters bear the names of transformers' state dictionary."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.scheme = Scheme.named(shape.scheme)
        q_dim, kv_dim = shape.n_head * shape.head_dim, shape.n_kv_head * shape.head_dim
        self.q_proj = nn.Parameter(torch.empty(q_dim, shape.hidden))
        self.k_proj = nn.Parameter(torch.empty(kv_dim, shape.hidden))
        self.v_proj = nn.Parameter(torch.empty(kv_dim, shape.hidden))
        self.o_proj = nn.Parameter(torch.empty(shape.hidden, q_dim))
        self.gate_proj = nn.Parameter(torch.empty(shape.ffn, shape.hidden))
        self.up_proj = nn.Parameter(torch.empty(shape.ffn, shape.hidden))
        self.down_proj = nn.Parameter(torch.empty(shape.hidden, shape.ffn))
        self.input_layernorm = nn.Parameter(torch.ones(shape.hidden))
        self.attn_sub_norm = nn.Parameter(torch.ones(q_dim))
        self.post_attention_layernorm = nn.Parameter(torch.ones(shape.hidden))
        self.ffn_sub_norm = nn.Parameter(torch.ones(shape.ffn))

    def heads(self, x: Tensor, n_head: int, rope: tuple[Tensor, Tensor] | None, dtype: torch.dtype) -> Tensor:
        """[B, T, n_head * D] -> [B, n_head, T, D], rotated where ``rope`` is given."""
        x = x.unflatten(-1, (n_head, -1)).transpose(1, 2)
        return (rotate(x, *rope) if rope else x).to(dtype)

    def forward(self, h: Tensor, rope: tuple[Tensor, Tensor], dtype: torch.dtype) -> Tensor:
        """h [B, T, hidden] float32 -> the same; ``dtype`` is the type of matrix products."""
        c, scheme = self.shape, self.scheme
        x = rmsnorm(h, self.input_layernorm, c.eps)
        q, k, v = project(x, (self.q_proj, self.k_proj, self.v_proj), scheme, scheme.inputs, dtype)
        mixed = attention(self.heads(q, c.n_head, rope, dtype), self.heads(k, c.n_kv_head, rope, dtype),
                          self.heads(v, c.n_kv_head, None, dtype))  # fmt: skip
        x = rmsnorm(mixed.transpose(1, 2).flatten(2).float(), self.attn_sub_norm, c.eps)
        h = h + project(x, (self.o_proj,), scheme, scheme.attention_output, dtype)[0]
        x = rmsnorm(h, self.post_attention_layernorm, c.eps)
        gate, up = project(x, (self.gate_proj, self.up_proj), scheme, scheme.inputs, dtype)
        x = rmsnorm(gate.relu().square() * up, self.ffn_sub_norm, c.eps)
        return h + project(x, (self.down_proj,), scheme, scheme.ffn_output, dtype)[0]


class Model(nn.Module):
    """Token ids to logits."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Parameter(torch.empty(shape.n_vocab, shape.hidden))
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.n_layer))
        self.norm = nn.Parameter(torch.ones(shape.hidden))
        frequency = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).double() / shape.head_dim)
        angle = torch.arange(shape.n_ctx).double()[:, None] * frequency
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.ndim == 2:
                    parameter.normal_(0.0, 0.02, generator=generator)

    def matrices(self) -> Iterator[nn.Parameter]:
        """The parameters of the projections: what is stored as ternary codes."""
        return (parameter for parameter in self.layers.parameters() if parameter.ndim == 2)

    def hidden(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """ids [B, T] -> the last hidden states after the final norm [B, T, hidden] float32."""
        n = ids.shape[1]
        rope = self.cos[:n], self.sin[:n]
        h = F.embedding(ids, self.embed_tokens)
        for layer in self.layers:
            h = layer(h, rope, dtype)
        return rmsnorm(h, self.norm, self.shape.eps)

    def forward(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """ids [B, T] -> logits [B, T, n_vocab] in ``dtype``, in which the matrix products are done.

        float32 is what the engine computes; bfloat16 (integer grids fit it exactly, sums are rounded to it) trains.
        """
        return self.hidden(ids, dtype).to(dtype) @ self.embed_tokens.to(dtype).mT

    def loss(self, ids: Tensor, targets: Tensor, weight: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Summed weighted cross-entropy in nats; ids, targets [B, T] int64, weight [B, T] float32."""
        logits = self(ids, dtype).flatten(0, 1).float()
        nats = F.cross_entropy(logits, targets.flatten(), reduction="none")
        return (nats * weight.flatten()).sum()
