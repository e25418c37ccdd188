"""LayerConfig: what one layer of a model consists of, validated.

    hidden state -> mixer -> added -> feed-forward part -> added

A mixer lets a token see those before it; a feed-forward part works on each token alone.  Each kind of either is a class
here, which holds its dimensions and conventions.  docs/architecture.md lists what a new kind needs elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from edge.errors import InvalidFile

#: activations of the gate in the feed-forward part: squared ReLU, SiLU, GELU by tanh
ACTIVATIONS = ("relu2", "silu", "gelu")
_FACTOR = (1e-6, 1e6)
#: field -> (least, most), or its values; others are hostile, damaged or not supported
LIMITS: dict[str, tuple[Any, ...]] = {
    "n_layer": (1, 512),
    "hidden": (4, 65536),
    "ffn": (4, 262144),
    "n_head": (1, 1024),
    "n_kv_head": (1, 1024),
    "head_dim": (4, 512),
    "n_vocab": (2, 4_000_000),
    "n_ctx_train": (1, 1 << 30),
    "n_expert": (1, 4096),
    "n_used": (1, 64),  # experts of a token
    "n_k_head": (1, 1024),
    "n_v_head": (1, 1024),
    "head_dim_k": (16, 256),
    "head_dim_v": (16, 256),
    "window": (0, 1 << 24),
    "dim": (0, 512),  # of a rotation
    "theta": (1.0, 1e12),
    "clamp": (0.0, 1e6),
    "n_ctx_orig": (0, 1 << 30),
    **dict.fromkeys(("scale", "query_scale", "factor", "beta_fast", "beta_slow", "low_freq", "high_freq", "mscale"),
                    _FACTOR),
    "activation": ACTIVATIONS,
    "style": ("half", "interleaved"),
    "qk_norm": ("", "before", "after"),
}


def check_dimension(name: str, value: Any) -> None:
    """Raise InvalidFile if the value is not within the limits of this field."""
    limits = LIMITS[name]
    if isinstance(limits[0], str):
        if value not in limits:
            raise InvalidFile(f"{name} {value!r} is not supported ({', '.join(filter(None, limits))} are)")
        return
    least, most = limits
    if not isinstance(value, (type(least), int)) or not least <= value <= most:
        raise InvalidFile(f"{name} is {value!r}; a model has {least} to {most}")


class _Checked:
    """A dataclass whose fields are within their limits.  Others, or those that do not fit each other: InvalidFile."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in LIMITS:
                check_dimension(name, value)


@dataclass(frozen=True)
class RopeScaling(_Checked):
    """How the rotary embedding of a model was stretched for a longer context than it was first trained on.

    ``kind`` is "yarn" (arXiv 2309.00071: fast pairs rotate as before, slow ones ``factor`` times more slowly, with a
    ramp between), "llama3" (the same with bounds given as wavelengths) or "factors" (longrope: a divisor for each
    pair).  ``mscale`` multiplies cosines and sines, and therefore the scores by its square.
    """

    kind: str
    factor: float = 1.0
    n_ctx_orig: int = 0  # context length before
    beta_fast: float = 32.0  # yarn: turns within n_ctx_orig above which a pair is fast
    beta_slow: float = 1.0  # yarn: and below which it is slow
    low_freq: float = 1.0  # llama3: the same two bounds
    high_freq: float = 4.0
    mscale: float = 1.0
    factors: tuple[float, ...] = ()  # "factors": [rope_dim / 2]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != "factors" and not self.n_ctx_orig:
            raise InvalidFile("rope scaling for an original context of 0 tokens is not valid")
        if not all(_FACTOR[0] < value < _FACTOR[1] for value in self.factors):
            raise InvalidFile("the numbers of its rope scaling are not valid")
        if self.kind == "llama3" and not self.low_freq < self.high_freq:
            raise InvalidFile(f"rope scaling with low_freq_factor {self.low_freq} and high_freq_factor "
                              f"{self.high_freq} makes no sense")

    def divisors(self, theta: float, dim: int) -> list[float]:
        """The divisors of the rotation per position, one for each pair, [dim / 2].  Raises ValueError if there are too
        few factors.
        """
        half = dim // 2
        if self.kind == "factors":
            if len(self.factors) != half:
                raise ValueError(f"{len(self.factors)} rope factors for {half} pairs")
            return list(self.factors)
        keeps = [self._kept(theta, dim, j) for j in range(half)]
        return [1.0 / (keep + (1.0 - keep) / self.factor) for keep in keeps]

    def _kept(self, theta: float, dim: int, pair: int) -> float:
        """1 for a pair that rotates as before, 0 for one that rotates ``factor`` times more slowly; between them a
        ramp.
        """
        if self.kind == "llama3":
            turns = self.n_ctx_orig * theta ** (-2 * pair / dim) / (2 * math.pi)
            return min(1.0, max(0.0, (turns - self.low_freq) / (self.high_freq - self.low_freq)))

        def pair_with(turns: float) -> float:
            """The pair that turns so often within the original context; a fraction."""
            return dim * math.log(self.n_ctx_orig / (turns * 2 * math.pi)) / (2 * math.log(theta))

        first, last = max(math.floor(pair_with(self.beta_fast)), 0), min(math.ceil(pair_with(self.beta_slow)), dim - 1)
        return 1.0 - min(1.0, max(0.0, (pair - first) / max(last - first, 0.001)))


@dataclass(frozen=True)
class Rotation(_Checked):
    """The rotary position embedding of an attention layer: the first ``dim`` dimensions of each query and key head.

    ``dim`` 0: there is none.  ``style`` is ``"half"`` (pairs j, j + dim/2: Hugging Face, GGUF bitnet*) or
    ``"interleaved"`` (pairs 2j, 2j + 1: GGUF arch llama).
    """

    theta: float
    dim: int
    style: str = "half"
    scale: float = 1.0  # linear position scaling: angle is divided by this
    scaling: RopeScaling | None = None
    divided: bool = True  # by the divisors of the file (rope_freqs.weight), if it has some

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % 2:
            raise InvalidFile(f"rope dimension {self.dim} is odd, but dimensions are rotated in pairs")
        if self.scaling is not None and self.scaling.kind == "factors" and len(self.scaling.factors) != self.dim // 2:
            raise InvalidFile(f"{len(self.scaling.factors)} rope factors for {self.dim // 2} pairs")
        if self.scaling is not None and self.theta < 1.001:
            raise InvalidFile(f"rope theta {self.theta} cannot be scaled")


@dataclass(frozen=True)
class Attention(_Checked):
    """A mixer: softmax attention of query heads over the keys and values of KV heads, which a KV cache holds."""

    n_head: int
    n_kv_head: int
    head_dim: int
    rotation: Rotation
    window: int = 0  # each token sees the latest ``window`` tokens only, including itself; 0: all
    sub_norm: bool = False  # a norm before the output projection
    qk_norm: str = ""  # "before" or "after" the rotation: a norm of each query and key head
    qkv_bias: bool = False
    query_scale: float = 1.0  # multiplies queries after 1 / sqrt(head_dim); with norms of heads before the rotation
    gated: bool = False  # attn_q has a gate after each head, whose sigmoid multiplies the head's output
    kind: str = field(default="attention", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_head % self.n_kv_head:
            raise InvalidFile(f"{self.n_head} query heads cannot share {self.n_kv_head} key/value heads evenly")
        if self.head_dim % 4:
            raise InvalidFile(f"head_dim {self.head_dim} is not a multiple of 4")
        if self.rotation.dim > self.head_dim:
            raise InvalidFile(f"rope dimension {self.rotation.dim} does not fit head_dim {self.head_dim}")
        if self.query_scale != 1.0 and self.qk_norm != "before":
            raise InvalidFile("a scale of queries is supported only with norms of queries before the rotation")
        if self.gated and self.qkv_bias:
            raise InvalidFile("attention with both an output gate and biases is not supported")

    @property
    def q_dim(self) -> int:
        """Width of the concatenated query heads."""
        return self.n_head * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Width of the concatenated key (or value) heads."""
        return self.n_kv_head * self.head_dim

    def sliding(self, window: int, theta: float, dim: int | None = None) -> Attention:
        """The same attention with a sliding window and a rotation of its own: with base ``theta``, without stretching
        (Gemma 3), of ``dim`` dimensions (None: as many).  Raises InvalidFile.
        """
        dim = self.rotation.dim if dim is None else dim
        rotation = Rotation(theta, dim, self.rotation.style, divided=False)
        return replace(self, window=window, rotation=rotation)


@dataclass(frozen=True)
class Delta(_Checked):
    """A mixer: the gated delta rule (Gated DeltaNet): a state of fixed size for each value head instead of keys and
    values, after a convolution over the latest four tokens.

    Each key head (as many query heads) serves as many value heads: with ``tiled``, value head v has key head v %
    n_k_head (GGUF), else v // (n_v_head / n_k_head) (Hugging Face).  ``grouped_out``: the columns of the output
    projection are ordered as without ``tiled``.
    """

    n_k_head: int
    n_v_head: int
    head_dim_k: int
    head_dim_v: int
    tiled: bool = True
    grouped_out: bool = False
    kind: str = field(default="delta", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_v_head % self.n_k_head:
            raise InvalidFile(f"{self.n_v_head} value heads cannot share {self.n_k_head} key heads evenly")
        if self.head_dim_k % 16 or self.head_dim_v % 16:
            raise InvalidFile(f"heads of {self.head_dim_k} and {self.head_dim_v} in gated delta layers are not "
                              "supported (multiples of 16 are)")

    @property
    def inner(self) -> int:
        """Width of the concatenated value heads."""
        return self.n_v_head * self.head_dim_v

    @property
    def channels(self) -> int:
        """Width of the concatenated query, key and value heads, which pass the convolution."""
        return 2 * self.n_k_head * self.head_dim_k + self.inner


@dataclass(frozen=True)
class Dense(_Checked):
    """A feed-forward part: down(activation(gate x) * up x), ``ffn`` wide."""

    ffn: int
    activation: str
    sub_norm: bool = False  # a norm before the down projection
    kind: str = field(default="dense", init=False)


@dataclass(frozen=True)
class Experts(_Checked):
    """A feed-forward part: of ``n_expert`` dense parts, the experts, each ``ffn`` wide, a token takes the ``n_used``
    that a router gives the highest scores, and adds what they give times the softmax of the scores.

    ``renormalise``: the weights of a token's experts are divided by their sum.  ``clamp``: the gate is at most this,
    the other factor within +- this; 0: no bound.
    """

    n_expert: int
    n_used: int
    ffn: int
    renormalise: bool = True
    clamp: float = 0.0
    activation: str = field(default="silu", init=False)
    sub_norm: bool = field(default=False, init=False)
    kind: str = field(default="experts", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_used > self.n_expert:
            raise InvalidFile(f"a token takes {self.n_used} of {self.n_expert} experts, which is not valid")


@dataclass(frozen=True)
class LayerConfig:
    """One layer of a model."""

    mixer: Attention | Delta
    feed_forward: Dense | Experts
    inner_norm: bool = False  # a norm before each projection
    post_norm: bool = False  # a norm after the mixer and one after the feed-forward part, before they are added

    def __post_init__(self) -> None:
        if self.feed_forward.kind == "experts" and (self.inner_norm or self.post_norm):
            raise InvalidFile("experts with norms before projections or after blocks are not supported")
