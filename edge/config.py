"""ModelConfig: the dimensions and conventions of one model, validated.

Readers in :mod:`edge.formats` fill it from the metadata of a file; no other module reads metadata.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from edge.errors import InvalidFile
from edge.layers import Attention, Delta, Experts, LayerConfig, check_dimension


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and conventions of one ternary decoder-only transformer.

    ``layers``: each layer, see :mod:`edge.layers`; all mixers with attention have equally many heads of the same size,
    since the pages of a KV cache have one size.

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
    hidden: int
    n_vocab: int
    n_ctx_train: int
    eps: float
    tied: bool
    layers: tuple[LayerConfig, ...]
    activation_quant: str = "int8"
    inner_eps: float = 1e-6  # of the norms before single projections
    embedding_scale: float = 1.0  # multiplies embedding rows
    residual_scale: float = 1.0  # multiplies what mixer and feed-forward part add to the residual stream
    logit_scale: float = 1.0  # multiplies logits
    planes: int = 0  # 32, 64 or 128 weights that share a scale; 0: no planes
    rotated: bool = False  # some matrices are stored in a rotated basis (Tensor.basis)

    def __post_init__(self) -> None:
        check_dimension("n_layer", len(self.layers))
        check_dimension("hidden", self.hidden)
        check_dimension("n_vocab", self.n_vocab)
        check_dimension("n_ctx_train", self.n_ctx_train)
        if not 0.0 <= self.eps < 1.0:
            raise InvalidFile(f"norm epsilon {self.eps} is out of range")
        if self.planes not in (0, 32, 64, 128):
            raise InvalidFile(f"planes with a scale per {self.planes} weights are not supported (32, 64 and 128 are)")
        kinds = (f"int8-{self.planes}",) if self.planes else ("int8", "a4.8", "int8-128")
        if self.activation_quant not in (*kinds, "none"):
            raise InvalidFile(
                f"activations of kind {self.activation_quant!r} are not supported (int8, a4.8 and int8-128 are, and of "
                "planes those of their groups)"
            )
        if not 0.0 <= self.inner_eps < 1.0:
            raise InvalidFile(f"norm epsilon {self.inner_eps} is out of range")
        for field in ("embedding_scale", "residual_scale", "logit_scale"):
            if not 1e-6 < getattr(self, field) < 1e6:
                raise InvalidFile(f"{field} {getattr(self, field)} is out of range")
        if not self.attention:
            raise InvalidFile("no layer has attention, which is not supported")
        if len({(mixer.n_head, mixer.n_kv_head, mixer.head_dim) for mixer in self.attention}) > 1:
            raise InvalidFile("its attention layers have different numbers or sizes of heads, which is not supported")

        if len(set(self.recurrent)) > 1:
            raise InvalidFile("its gated delta layers differ from each other, which is not supported")

    @property
    def n_layer(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def attention(self) -> tuple[Attention, ...]:
        """The mixers with attention, in the order of their layers: those that have keys and values in a KV cache."""
        return tuple(layer.mixer for layer in self.layers if isinstance(layer.mixer, Attention))

    @property
    def recurrent(self) -> tuple[Delta, ...]:
        """The gated delta mixers, in the order of their layers: those whose states a session holds."""
        return tuple(layer.mixer for layer in self.layers if isinstance(layer.mixer, Delta))

    @property
    def recurrent_shape(self) -> tuple[int, int, int, int, int] | None:
        """(gated delta layers, key heads, value heads, head_dim_k, head_dim_v), an argument of
        :class:`pyx.kv.KVCache`; None if there are none.
        """
        mixers = self.recurrent
        if not mixers:
            return None
        return len(mixers), mixers[0].n_k_head, mixers[0].n_v_head, mixers[0].head_dim_k, mixers[0].head_dim_v

    @property
    def n_head(self) -> int:
        """Query heads of each attention layer."""
        return self.attention[0].n_head

    @property
    def n_kv_head(self) -> int:
        """Key (and value) heads of each attention layer."""
        return self.attention[0].n_kv_head

    @property
    def head_dim(self) -> int:
        """Width of one head of an attention layer."""
        return self.attention[0].head_dim

    @property
    def expert_share(self) -> float:
        """The share of a model's experts that a token uses; 1.0 if it has none."""
        parts = [layer.feed_forward for layer in self.layers if isinstance(layer.feed_forward, Experts)]
        return sum(part.n_used for part in parts) / sum(part.n_expert for part in parts) if parts else 1.0

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """(attention layers, KV heads of each, head_dim): the first arguments of :class:`pyx.kv.KVCache`."""
        return len(self.attention), self.n_kv_head, self.head_dim

    @property
    def windows(self) -> tuple[int, ...] | None:
        """The largest number of tokens that each attention layer sees, 0 for all; None if every layer sees all."""
        windows = tuple(mixer.window for mixer in self.attention)
        return windows if any(windows) else None

    @property
    def activation_group(self) -> int:
        """Values of an activation that share a scale; 0: all of them."""
        return int(self.activation_quant[5:]) if self.activation_quant.startswith("int8-") else 0

    def facts(self) -> dict[str, Any]:
        """The configuration as JSON values, with the dimensions that its layers share."""
        shared = {name: getattr(self, name) for name in ("n_layer", "n_head", "n_kv_head", "head_dim")}
        return dataclasses.asdict(self) | shared
