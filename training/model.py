"""The transformer of BitNet b1.58 in PyTorch; it computes what the engine computes.

    h = h + o(sub_norm(attention(q, k, v of norm(h))))
    h = h + down(sub_norm(relu(gate)^2 * up of norm(h)))

The seven projections are :class:`training.quantise.BitLinear`; embedding and norms are not rounded, and the embedding
is the output head, too.  Modules have the names of transformers' BitNetForCausalLM, and an export keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.quantise import SCHEMES, BitLinear


@dataclass(frozen=True)
class Shape:
    """Dimensions of a model; ``scheme`` is a name in training.quantise.SCHEMES."""

    hidden: int
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    ffn: int
    n_vocab: int = 4096
    n_ctx: int = 2048
    rope_theta: float = 10000.0
    eps: float = 1e-5
    scheme: str = "b1.58"


#: by name, with their parameters
SHAPES = {
    "micro": Shape(128, 2, 4, 2, 32, ffn=256, n_vocab=512, n_ctx=256),  # 0.4 M, for tests
    "xs": Shape(256, 6, 4, 2, 64, ffn=768),  # 5.8 M, the demo model
    "s": Shape(384, 8, 6, 2, 64, ffn=1024),  # 14.2 M
    "m": Shape(512, 8, 8, 2, 64, ffn=1408),  # 24.7 M
}


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding over pairs (j, j + D/2); x [..., T, D], cos and sin [T, D/2]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    """Causal attention with grouped queries; x [B, T, hidden] -> the same."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        scheme, q_dim, kv_dim = SCHEMES[shape.scheme], shape.n_head * shape.head_dim, shape.n_kv_head * shape.head_dim
        self.head_dim = shape.head_dim
        self.q_proj = BitLinear(shape.hidden, q_dim, scheme.weights, scheme.inputs)
        self.k_proj = BitLinear(shape.hidden, kv_dim, scheme.weights, scheme.inputs)
        self.v_proj = BitLinear(shape.hidden, kv_dim, scheme.weights, scheme.inputs)
        self.attn_sub_norm = nn.RMSNorm(q_dim, shape.eps)
        self.o_proj = BitLinear(q_dim, shape.hidden, scheme.weights, scheme.attention_output)

    def heads(self, x: Tensor) -> Tensor:
        """[B, T, n * D] -> [B, n, T, D]."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k = (rotate(self.heads(projection(x)), cos, sin) for projection in (self.q_proj, self.k_proj))
        v = self.heads(self.v_proj(x))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(self.attn_sub_norm(mixed.transpose(1, 2).flatten(2).float()))


class FeedForward(nn.Module):
    """Gated by a squared ReLU; x [B, T, hidden] -> the same."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        scheme = SCHEMES[shape.scheme]
        self.gate_proj = BitLinear(shape.hidden, shape.ffn, scheme.weights, scheme.inputs)
        self.up_proj = BitLinear(shape.hidden, shape.ffn, scheme.weights, scheme.inputs)
        self.ffn_sub_norm = nn.RMSNorm(shape.ffn, shape.eps)
        self.down_proj = BitLinear(shape.ffn, shape.hidden, scheme.weights, scheme.ffn_output)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.ffn_sub_norm(self.gate_proj(x).relu().square() * self.up_proj(x)))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, shape.eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, shape.eps)
        self.mlp = FeedForward(shape)

    def forward(self, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = h + self.self_attn(self.input_layernorm(h), cos, sin)
        return h + self.mlp(self.post_attention_layernorm(h))


class Model(nn.Module):
    """Token ids to logits."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.n_vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.n_layer))
        self.norm = nn.RMSNorm(shape.hidden, shape.eps)
        frequency = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).double() / shape.head_dim)
        angle = torch.arange(shape.n_ctx).double()[:, None] * frequency  # [n_ctx, head_dim / 2]
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, 0.0, 0.02, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """ids [B, T] -> logits [B, T, n_vocab]."""
        h = self.embed_tokens(ids)
        for layer in self.layers:
            h = layer(h, self.cos[: ids.shape[1]], self.sin[: ids.shape[1]])
        return F.linear(self.norm(h), self.embed_tokens.weight)

    def loss(self, ids: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
        """Mean cross-entropy in nats, weighted; ids, targets [B, T] int64, weight [B, T] float32 -> []."""
        nats = F.cross_entropy(self(ids).flatten(0, 1).float(), targets.flatten(), reduction="none")
        return (nats * weight.flatten()).sum() / weight.sum()
