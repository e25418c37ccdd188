"""Configurations of made-up models whose layers are all alike, or differ only by a sliding window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from edge.config import ModelConfig
from edge.layers import Attention, Dense, LayerConfig, RopeScaling, Rotation
from edge.model.footprint import Footprint


def uniform(
    arch: str = "llama",
    name: str = "made up",
    *,
    n_layer: int = 2,
    n_head: int = 4,
    n_kv_head: int = 2,
    head_dim: int = 32,
    ffn: int = 256,
    rope_theta: float = 10000.0,
    rope_dim: int | None = None,
    rope_style: str = "half",
    rope_scale: float = 1.0,
    rope_scaling: RopeScaling | None = None,
    activation: str = "silu",
    sub_norm: bool = False,
    qk_norm: str = "",
    qkv_bias: bool = False,
    query_scale: float = 1.0,
    inner_norm: bool = False,
    post_norm: bool = False,
    sliding: tuple[int, tuple[int, ...], float] | None = None,  # (window, layers, theta)
    **model: Any,
) -> ModelConfig:
    """A model of ``n_layer`` such layers; ``model``: fields of ModelConfig."""
    rotation = Rotation(rope_theta, rope_dim or head_dim, rope_style, rope_scale, rope_scaling)
    attention = Attention(
        n_head, n_kv_head, head_dim, rotation, sub_norm=sub_norm, qk_norm=qk_norm, qkv_bias=qkv_bias,
        query_scale=query_scale)
    layers = [LayerConfig(attention, Dense(ffn, activation, sub_norm), inner_norm, post_norm)] * n_layer
    if sliding is not None:
        window, where, theta = sliding
        near = dataclasses.replace(layers[0], mixer=attention.sliding(window, theta))
        layers = [near if i in where else each for i, each in enumerate(layers)]
    usual: dict[str, Any] = {"hidden": 128, "n_vocab": 256, "n_ctx_train": 256, "eps": 1e-6, "tied": True}
    return ModelConfig(arch, name, layers=tuple(layers), **usual | model)


def each_layer(config: ModelConfig, change: Callable[[LayerConfig], LayerConfig]) -> ModelConfig:
    """The same model with every layer changed."""
    return dataclasses.replace(config, layers=tuple(map(change, config.layers)))


def activation(config: ModelConfig) -> str:
    """The activation of all feed-forward parts."""
    (found,) = {layer.feed_forward.activation for layer in config.layers}
    return found


def rope_style(config: ModelConfig) -> str:
    """The order of pairs in all rotations."""
    (found,) = {mixer.rotation.style for mixer in config.attention}
    return found


def held(transformer: Any, copied: bool = False) -> dict[str, int]:
    """Parts of a footprint as a transformer holds them, ``copied``: with a copy of all its weights."""
    allocated = transformer.weight_bytes_copied if copied else transformer.weight_bytes_allocated
    head, experts = transformer.head, transformer.expert_bytes
    return {
        "mapped": 0 if copied else transformer.weight_bytes_stored - allocated - experts,
        "allocated": allocated + transformer.vector_bytes,
        "head_mapped": 0 if copied and head.kind == "ternary" else head.nbytes * head.mapped,
        "head_allocated": head.copied if copied else head.allocated,
        "scratch": transformer.scratch_bytes,
        "experts": experts,
    }


def planned(footprint: Footprint) -> dict[str, int]:
    """The same parts of a plan."""
    names = ("mapped", "allocated", "head_mapped", "head_allocated", "scratch", "experts")
    return {name: getattr(footprint, name) - footprint.session * (name == "scratch") for name in names}


def styled(layer: LayerConfig, style: str) -> LayerConfig:
    """The same layer with the pairs of its rotation in another order."""
    if not isinstance(layer.mixer, Attention):
        return layer
    rotation = dataclasses.replace(layer.mixer.rotation, style=style)
    return dataclasses.replace(layer, mixer=dataclasses.replace(layer.mixer, rotation=rotation))
