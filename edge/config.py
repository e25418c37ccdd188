"""ModelConfig: the dimensions and conventions of one model, validated.

Readers in :mod:`edge.formats` fill it from file metadata; nothing below :mod:`edge.engine` reads metadata again.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.errors import InvalidFile


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and conventions of one ternary decoder-only transformer.

    ``rope_style`` is ``"half"`` (pairs j, j + n_rot/2: Hugging Face, GGUF bitnet*) or ``"interleaved"`` (pairs
    2j, 2j + 1: GGUF arch llama).  ``activation`` is ``"relu2"`` or ``"silu"``.  ``activation_quant`` is
    ``"int8"`` (b1.58: absmax, one scale per token) or ``"a4.8"`` (arXiv 2411.04965: 4 bits into attention and
    feed-forward, 8 bits of which the larger half counts into the attention output, 8 bits into the last projection).
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

    #: field -> (least, most): beyond these a header is hostile or damaged, not a model
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
            raise InvalidFile(f"head_dim {self.head_dim} is no multiple of 4")
        if self.rope_dim > self.head_dim or self.rope_dim % 2:
            raise InvalidFile(f"rope dimension {self.rope_dim} does not fit head_dim {self.head_dim}")
        if not 0.0 <= self.eps < 1.0:
            raise InvalidFile(f"norm epsilon {self.eps} is out of range")
        if not 1.0 <= self.rope_theta < 1e12:
            raise InvalidFile(f"rope theta {self.rope_theta} is out of range")
        if not 0.0 < self.rope_scale < 1e6:
            raise InvalidFile(f"rope scale {self.rope_scale} is out of range")
        if self.activation not in ("relu2", "silu"):
            raise InvalidFile(f"activation {self.activation!r} is not supported (relu2 and silu are)")
        if self.activation_quant not in ("int8", "a4.8"):
            raise InvalidFile(f"activations of kind {self.activation_quant!r} are not supported (int8 and a4.8 are)")
        if self.rope_style not in ("half", "interleaved"):
            raise InvalidFile(f"rope style {self.rope_style!r} is not known")

    @property
    def q_dim(self) -> int:
        """Width of the concatenated query heads."""
        return self.n_head * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Width of the concatenated key (or value) heads."""
        return self.n_kv_head * self.head_dim
