"""ModelConfig: the dimensions and conventions of one model, validated.

Readers in :mod:`edge.formats` fill it from the metadata of a file; no other module reads metadata.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edge.errors import InvalidFile

#: activations of the gate in the feed-forward part: squared ReLU, SiLU, GELU by tanh
ACTIVATIONS = ("relu2", "silu", "gelu")
#: types of the output head in memory: "auto", "native" (as the file has it), and KINDS of pyx.head but for "ternary",
#: which only a file can ask for, and "none", which gives no logits (tests/kernels/test_head.py compares them)
HEADS = ("auto", "two-stage", "q8_0", "int8", "int6", "int4", "f16", "f32", "native")


@dataclass(frozen=True)
class RopeScaling:
    """How the rotary embedding of a model was stretched for a longer context than it was first trained on.

    ``kind`` is "yarn" (arXiv 2309.00071: fast pairs rotate as before, slow ones ``factor`` times more slowly, with a
    ramp between), "llama3" (the same with bounds given as wavelengths) or "factors" (longrope: a divisor for each
    pair).  ``mscale`` multiplies cosines and sines, and therefore the scores by its square.

    Raises InvalidFile for values that are not valid.
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
        if self.kind not in ("yarn", "llama3", "factors"):
            raise InvalidFile(f"rope scaling {self.kind!r} is not supported (linear, yarn, llama3 and longrope are)")
        if self.kind != "factors" and not 1 <= self.n_ctx_orig <= 1 << 30:
            raise InvalidFile(f"rope scaling for an original context of {self.n_ctx_orig} tokens is not valid")
        positive = (self.factor, self.beta_fast, self.beta_slow, self.low_freq, self.high_freq, self.mscale)
        if not all(1e-6 < value < 1e6 for value in (*positive, *self.factors)):
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
class Sliding:
    """Layers with sliding-window attention (Gemma 3): each token sees the latest ``window`` tokens only, including
    itself.

    They have their own rotation, with base ``theta`` and without stretching.

    Raises InvalidFile for values that are not valid.
    """

    window: int
    layers: tuple[int, ...]  # ascending, from 0
    theta: float

    def __post_init__(self) -> None:
        if not 1 <= self.window <= 1 << 24:
            raise InvalidFile(f"a sliding window of {self.window} tokens is not valid")
        if not self.layers or list(self.layers) != sorted(set(self.layers)) or self.layers[0] < 0:
            raise InvalidFile("the layers of its sliding window are not valid")
        if not 1.0 <= self.theta < 1e12:
            raise InvalidFile(f"rope theta {self.theta} of its sliding window is out of range")


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and conventions of one ternary decoder-only transformer.

    ``rope_style`` is ``"half"`` (pairs j, j + n_rot/2: Hugging Face, GGUF bitnet*) or ``"interleaved"`` (pairs 2j, 2j +
    1: GGUF arch llama).  ``activation`` is one of :data:`ACTIVATIONS`.

    ``activation_quant``: how the inputs of projections are rounded:

    "int8": one scale per token, its largest magnitude (b1.58).
    "a4.8": 4 bits before q, k, v, gate and up; 8 bits, of which the larger half is used, before o; 8 bits before down
        (arXiv 2411.04965).
    "int8-128": one scale per 128 values; for models trained with float activations, whose matrices have a scale per
        128 weights of a row.
    "int8-64", "int8-32": one scale per 64 or 32 values; for planes of such groups.
    "none": not rounded, with four bytes per weight; a slow reference for those models.

    ``planes``: the matrices are sums of ternary ones with a scale per so many weights of a row; 0: they are ternary.

    Raises InvalidFile for values that are not valid or do not fit each other.
    """

    arch: str
    name: str
    n_layer: int
    hidden: int
    ffn: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_vocab: int
    n_ctx_train: int
    rope_theta: float
    rope_dim: int
    rope_style: str
    eps: float
    activation: str
    sub_norm: bool
    tied: bool
    rope_scale: float = 1.0  # linear position scaling: angle is divided by this
    activation_quant: str = "int8"
    rope_scaling: RopeScaling | None = None
    qk_norm: str = ""  # "before" or "after" the rotation: a norm of each query and key head
    qkv_bias: bool = False
    inner_norm: bool = False  # a norm before each projection
    inner_eps: float = 1e-6  # of these
    embedding_scale: float = 1.0  # multiplies embedding rows
    residual_scale: float = 1.0  # multiplies what attention and feed-forward add to the residual stream
    logit_scale: float = 1.0  # multiplies logits
    post_norm: bool = False  # a norm after attention and one after feed-forward, before they are added
    query_scale: float = 1.0  # multiplies queries beside 1 / sqrt(head_dim); with norms of heads before the rotation
    sliding: Sliding | None = None
    planes: int = 0  # 32, 64 or 128 weights that share a scale; 0: no planes

    #: field -> (least, most): values outside are hostile or damaged
    _LIMITS = {
        "n_layer": (1, 512),
        "hidden": (4, 65536),
        "ffn": (4, 262144),
        "n_head": (1, 1024),
        "n_kv_head": (1, 1024),
        "head_dim": (4, 512),
        "n_vocab": (2, 4_000_000),
        "n_ctx_train": (1, 1 << 30),
        "rope_dim": (2, 512),
    }

    def __post_init__(self) -> None:
        for field, (least, most) in self._LIMITS.items():
            value = getattr(self, field)
            if not isinstance(value, int) or not least <= value <= most:
                raise InvalidFile(f"{field} is {value!r}; a model has {least} to {most}")
        if self.n_head % self.n_kv_head:
            raise InvalidFile(f"{self.n_head} query heads cannot share {self.n_kv_head} key/value heads evenly")
        if self.head_dim % 4:
            raise InvalidFile(f"head_dim {self.head_dim} is not a multiple of 4")
        if self.rope_dim > self.head_dim or self.rope_dim % 2:
            raise InvalidFile(f"rope dimension {self.rope_dim} does not fit head_dim {self.head_dim}")
        if not 0.0 <= self.eps < 1.0:
            raise InvalidFile(f"norm epsilon {self.eps} is out of range")
        if not 1.0 <= self.rope_theta < 1e12:
            raise InvalidFile(f"rope theta {self.rope_theta} is out of range")
        if not 0.0 < self.rope_scale < 1e6:
            raise InvalidFile(f"rope scale {self.rope_scale} is out of range")
        if self.activation not in ACTIVATIONS:
            raise InvalidFile(f"activation {self.activation!r} is not supported ({', '.join(ACTIVATIONS)} are)")
        if self.planes not in (0, 32, 64, 128):
            raise InvalidFile(f"planes with a scale per {self.planes} weights are not supported (32, 64 and 128 are)")
        kinds = (f"int8-{self.planes}",) if self.planes else ("int8", "a4.8", "int8-128")
        if self.activation_quant not in (*kinds, "none"):
            raise InvalidFile(
                f"activations of kind {self.activation_quant!r} are not supported (int8, a4.8 and int8-128 are, and of "
                "planes those of their groups)"
            )
        if self.qk_norm not in ("", "before", "after"):
            raise InvalidFile(f"norms of queries and keys {self.qk_norm!r} the rotation are not known")
        if not 0.0 <= self.inner_eps < 1.0:
            raise InvalidFile(f"norm epsilon {self.inner_eps} is out of range")
        for field in ("embedding_scale", "residual_scale", "logit_scale", "query_scale"):
            if not 1e-6 < getattr(self, field) < 1e6:
                raise InvalidFile(f"{field} {getattr(self, field)} is out of range")
        scaling = self.rope_scaling
        if scaling is not None and scaling.kind == "factors" and len(scaling.factors) != self.rope_dim // 2:
            raise InvalidFile(f"{len(scaling.factors)} rope factors for {self.rope_dim // 2} pairs")
        if scaling is not None and self.rope_theta < 1.001:
            raise InvalidFile(f"rope theta {self.rope_theta} cannot be scaled")
        if self.query_scale != 1.0 and self.qk_norm != "before":
            raise InvalidFile("a scale of queries is supported only with norms of queries before the rotation")
        if self.sliding is not None and self.sliding.layers[-1] >= self.n_layer:
            raise InvalidFile(f"a sliding window in layer {self.sliding.layers[-1]} of {self.n_layer} layers")
        if self.rope_style not in ("half", "interleaved"):
            raise InvalidFile(f"rope style {self.rope_style!r} is not known")

    @property
    def windows(self) -> tuple[int, ...] | None:
        """The largest number of tokens that each layer sees, 0 for all, [n_layer]; None if every layer sees all."""
        if self.sliding is None:
            return None
        return tuple(self.sliding.window if i in self.sliding.layers else 0 for i in range(self.n_layer))

    @property
    def activation_group(self) -> int:
        """Values of an activation that share a scale; 0: all of them."""
        return int(self.activation_quant[5:]) if self.activation_quant.startswith("int8-") else 0

    @property
    def q_dim(self) -> int:
        """Width of the concatenated query heads."""
        return self.n_head * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Width of the concatenated key (or value) heads."""
        return self.n_kv_head * self.head_dim
