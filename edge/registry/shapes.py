"""Dimensions of published models, for planning and for made-up models without the file.

They are those of the published configurations (Hugging Face config.json, GGUF metadata).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edge.config import ModelConfig
from edge.layers import Attention, Delta, Dense, Experts, LayerConfig, Rotation
from edge.registry.families import FAMILIES

#: weights of a row that share a scale in the planes that a pull makes
PLANES_GROUP = 32


@dataclass(frozen=True)
class Shape:
    """Dimensions of one model, as in its published files and configurations."""

    arch: str
    n_layer: int
    hidden: int
    ffn: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_vocab: int
    n_ctx: int
    theta: float
    eps: float
    tied: bool
    vocabulary: str  # "llama3", "falcon", "qwen2", "smollm", "tiny" (byte-level BPE) or "sentencepiece"
    n_merge: int | None = None  # None: one per way to split a word
    table: str = "F16"  # type of the embedding, and of an untied output head, in the published file
    window: int = 0  # tokens that layers with a sliding window see
    planes: int = 0  # a dense model, of which a pull makes sums of so many ternary matrices, in groups of PLANES_GROUP
    experts: tuple[int, int] | None = None  # number of experts, each ffn wide, and how many of them a token uses
    rope_dim: int | None = None  # dimensions that layers with a sliding window rotate; None: all
    rotary: int = 0  # dimensions of a head that are rotated; 0: all
    delta: tuple[int, int, int, int] | None = None  # key heads, value heads and their dimensions in gated delta layers
    basis: int = 0  # block of the rotated basis in which matrices are stored, 0: none
    inner_norm: bool = False  # a norm before each projection; activations are then int8 with one scale per token
    scales: bool = False  # a Llama with several scales in a matrix, see edge.formats.names.has_scales

    @property
    def sub_norm(self) -> bool:
        """True if there is a norm before attn_output and before ffn_down."""
        return self.arch.startswith("bitnet")

    def config(self, name: str) -> ModelConfig:
        """The configuration of a model of this shape."""
        family = FAMILIES[self.arch]
        style = "interleaved" if self.arch == "llama" else "half"
        rotation = Rotation(self.theta, 0 if family.unrotated else self.rotary or self.head_dim, style)
        attention = Attention(
            self.n_head, self.n_kv_head, self.head_dim, rotation, sub_norm=self.sub_norm, qk_norm=family.qk_norm,
            qkv_bias=self.arch == "qwen2", gated=self.delta is not None,
        )
        part: Dense | Experts = Dense(self.ffn, family.activation, self.sub_norm)
        if self.experts:
            part = Experts(*self.experts, self.ffn, clamp=family.clamp)
        near = attention.sliding(self.window, 10000.0, self.rope_dim) if self.window else attention
        mixers = (attention, Delta(*self.delta) if self.delta else near)
        far_layer, near_layer = (LayerConfig(mixer, part, self.inner_norm, family.post_norm) for mixer in mixers)
        period = family.delta_period or (family.window_period if self.window else 0)
        per_group = (family.weight_only or self.scales) and not self.inner_norm
        return ModelConfig(
            self.arch,
            name,
            self.hidden,
            self.n_vocab,
            self.n_ctx,
            self.eps,
            self.tied,
            tuple(near_layer if period and (i + 1) % period else far_layer for i in range(self.n_layer)),
            activation_quant=f"int8-{PLANES_GROUP}" if self.planes else "int8-128" if per_group else "int8",
            planes=PLANES_GROUP if self.planes else 0,
            embedding_scale=math.sqrt(self.hidden) if family.root_embedding else 1.0,
            rotated=self.basis > 0,
        )


SHAPES = {
    "2b-4t": Shape("bitnet-b1.58", 30, 2560, 6912, 20, 5, 128, 128256, 4096, 5e5, 1e-5, True, "llama3", 280147),
    "large": Shape("bitnet", 24, 1536, 4096, 16, 16, 96, 32002, 2048, 1e4, 1e-5, True, "sentencepiece"),
    "xl": Shape("bitnet", 24, 2048, 5460, 32, 32, 64, 32002, 2048, 1e4, 1e-5, True, "sentencepiece"),
    "3b": Shape("bitnet", 26, 3200, 8640, 32, 32, 100, 32002, 2048, 1e4, 1e-5, True, "sentencepiece"),
    "llama3-8b": Shape("llama", 32, 4096, 14336, 32, 8, 128, 128256, 8192, 5e5, 1e-5, False, "llama3", 280147),
    "falcon3-1b": Shape("llama", 18, 2048, 8192, 8, 4, 256, 131072, 4096, 1000042.0, 1e-6, False, "falcon"),
    "falcon3-3b": Shape("llama", 22, 3072, 9216, 12, 4, 256, 131072, 4096, 1000042.0, 1e-6, False, "falcon"),
    # Falcon-E: the 3B as published; the feed-forward width of the 1B is the only one that gives the size of its file,
    # 666,324,256 bytes: besides matrices and norms both files have 1.12 MB
    "falcon-e-1b": Shape("llama", 24, 2048, 9216, 16, 2, 128, 32768, 4096, 1000042.0, 1e-6, False, "falcon"),
    "falcon-e-3b": Shape("llama", 32, 2048, 13312, 16, 2, 128, 32768, 4096, 1000042.0, 1e-6, False, "falcon"),
    "bonsai-1.7b": Shape("qwen3", 28, 2048, 6144, 16, 8, 128, 151669, 32768, 1e6, 1e-6, True, "qwen2", 151387, "PQ2_0"),
    "bonsai-4b": Shape("qwen3", 36, 2560, 9728, 32, 8, 128, 151669, 32768, 5e6, 1e-6, True, "qwen2", 151387, "PQ2_0"),
    "bonsai-8b": Shape("qwen3", 36, 4096, 12288, 32, 8, 128, 151669, 65536, 1e6, 1e-6, False, "qwen2", 151387, "PQ2_0"),
    "smollm2-135m": Shape("llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, 1e-5, True, "smollm", 48900, "Q8_0",
                          planes=3),
    # BitCPM: embedding and head in Q4_K and Q6_K, but F16 in the smallest, which has one table for both
    "bitcpm-0.5b": Shape("minicpm", 24, 1024, 4096, 16, 2, 64, 73448, 32768, 1e4, 1e-6, True, "sentencepiece"),
    "bitcpm-1b": Shape("llama", 28, 2048, 6144, 16, 2, 128, 73448, 32768, 1e4, 1e-6, False, "sentencepiece",
                       table="Q6_K", scales=True),
    "bitcpm-3b": Shape("llama", 32, 2560, 10240, 32, 2, 128, 73448, 32768, 1e4, 1e-6, False, "sentencepiece",
                       table="Q6_K", scales=True),
    "bitcpm-8b": Shape("minicpm", 32, 4096, 16384, 32, 2, 128, 73448, 32768, 1e4, 1e-6, False, "sentencepiece",
                       table="Q6_K"),
    "trilm-3.9b": Shape("llama", 30, 3072, 9216, 24, 24, 128, 50688, 2048, 1e4, 1e-5, False, "falcon", scales=True),
    "hy-mt2-1.8b": Shape("hunyuan-dense", 32, 2048, 6144, 16, 4, 128, 120818, 4096, 11158840.0, 1e-5, True, "falcon",
                         table="Q6_K"),
    "qwen2.5-coder-0.5b": Shape("qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6, 1e-6, False, "qwen2", 151387,
                                "Q8_0", planes=3),
    "maple": Shape("maple", 24, 2048, 512, 16, 4, 128, 151936, 128000, 1e4, 1e-6, False, "qwen2", 151387, "Q4_K",
                   window=512, experts=(256, 8), rope_dim=64),
    "qwen3-30b-a3b": Shape("qwen3moe", 48, 2048, 768, 32, 4, 128, 151936, 40960, 1e6, 1e-6, False, "qwen2", 151387,
                           experts=(128, 8)),
    "qwen35-2b": Shape("qwen35", 24, 2048, 6144, 8, 2, 256, 248320, 262144, 1e7, 1e-6, True, "qwen2", 247587, "PQ2_0",
                       rotary=64, delta=(16, 16, 128, 128)),
    "bonsai-27b": Shape("qwen35", 64, 5120, 17408, 24, 4, 256, 248320, 262144, 1e7, 1e-6, False, "qwen2", 247587,
                        "PQ2_0", rotary=64, delta=(16, 48, 128, 128)),
    "bonsai2-27b": Shape("qwen35", 64, 5120, 17408, 24, 4, 256, 248320, 262144, 1e7, 1e-6, False, "qwen2", 247587,
                         "PQ2_0", rotary=64, delta=(16, 48, 128, 128), basis=1024),
    "gemma3-270m": Shape("gemma3", 18, 640, 2048, 4, 1, 256, 262144, 32768, 1e6, 1e-6, True, "sentencepiece",
                         window=512),
    "bitnet-embedding-270m": Shape("gemma3", 18, 640, 2048, 4, 1, 256, 262144, 32768, 1e6, 1e-6, True, "sentencepiece",
                                   window=512, inner_norm=True),
    "bitnet-embedding-0.6b": Shape("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 32768, 1e6, 1e-6, True, "qwen2", 151387,
                                   inner_norm=True),
}

#: the binary models of the same dimensions, which a pull stores as two-bit codes
SHAPES |= {f"bonsai-1bit-{size}": SHAPES[f"bonsai-{size}"] for size in ("1.7b", "4b", "8b", "27b")}

#: the names under which they were published, and those of `pull`
ALIASES = {
    "bitnet-b1.58-2b-4t": "2b-4t",
    "bitnet-2b-4t": "2b-4t",
    "bitnet_b1_58-large": "large",
    "bitnet-large": "large",
    "bitnet_b1_58-xl": "xl",
    "bitnet-xl": "xl",
    "bitnet_b1_58-3b": "3b",
    "bitnet-3b": "3b",
    "llama3-8b-1.58-100b-tokens": "llama3-8b",
    "falcon3-1b-instruct-1.58bit": "falcon3-1b",
    "falcon3-3b-instruct-1.58bit": "falcon3-3b",
    "falcon-e-1b-instruct": "falcon-e-1b",
    "falcon-e-3b-instruct": "falcon-e-3b",
    "smollm2-135m-instruct": "smollm2-135m",
    "bitcpm-cann-0.5b": "bitcpm-0.5b",
    "bitcpm-cann-1b": "bitcpm-1b",
    "bitcpm-cann-3b": "bitcpm-3b",
    "bitcpm-cann-8b": "bitcpm-8b",
    "trilm_3.9b_unpacked": "trilm-3.9b",
    "hy-mt2-1.8b-1.25bit": "hy-mt2-1.8b",
    "qwen2.5-coder-0.5b-instruct": "qwen2.5-coder-0.5b",
    "ternary-bonsai-1.7b": "bonsai-1.7b",
    "ternary-bonsai-4b": "bonsai-4b",
    "ternary-bonsai-8b": "bonsai-8b",
    "ternary-bonsai-27b": "bonsai-27b",
    "ternary-bonsai-2-27b": "bonsai2-27b",
}


def names() -> dict[str, list[str]]:
    """Short name -> the names under which the model was published."""
    return {short: [name for name, of in ALIASES.items() if of == short] for short in SHAPES}


def find(name: str) -> ModelConfig | None:
    """The configuration of a published model, by one of its names; None if the name is unknown."""
    shape = shape_of(name)
    return None if shape is None else SHAPES[shape].config(shape)


def shape_of(name: str) -> str | None:
    """The short name of a published model (a key of SHAPES), by one of its names; None if the name is unknown."""
    short = name.lower().rpartition("/")[2]
    short = ALIASES.get(short, short)
    return short if short in SHAPES else None
