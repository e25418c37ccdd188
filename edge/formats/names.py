"""Tensor names and shapes of the ternary models we run, and a cheap look at whether the weights are ternary.

Both readers end here: they bring tensors under GGUF names, and :func:`check` says whether together they are the model
that the configuration describes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from edge.config import ModelConfig
from edge.errors import InvalidFile
from edge.formats.checkpoint import FLOAT_TYPES, TERNARY_TYPES, Tensor
from edge.formats.mapped import shown

#: the seven ternary matrices of a layer
PROJECTIONS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
#: types a norm (or any other vector) may have
VECTOR_TYPES = ("F32", "F16", "BF16")

#: fewer zeros than this and the weights were never ternarised (typical: 0.3 to 0.5)
LEAST_ZEROS = 0.02
_SAMPLE = 1024  # bytes of codes looked at per matrix: 4096 weights, one page next to the scale

#: four codes -> as many bits as there are zeros among them
_ZEROS = bytes((1 << sum(byte >> shift & 3 == 1 for shift in (0, 2, 4, 6))) - 1 for byte in range(256))
_BAD = bytes(byte for byte in range(256) if any(byte >> shift & 3 == 3 for shift in (0, 2, 4, 6)))


def is_projection(name: str) -> bool:
    """Whether ``blk.N.<projection>.weight``."""
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "blk" and parts[3] == "weight" and parts[2] in PROJECTIONS


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that the model must have: GGUF name -> shape (out, in) or (n,), in file order."""
    c = config
    table: dict[str, tuple[int, ...]] = {"token_embd.weight": (c.n_vocab, c.hidden)}
    for i in range(c.n_layer):
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm": (c.hidden,),
            "attn_q": (c.q_dim, c.hidden),
            "attn_k": (c.kv_dim, c.hidden),
            "attn_v": (c.kv_dim, c.hidden),
            "attn_sub_norm": (c.q_dim,),
            "attn_output": (c.hidden, c.q_dim),
            "ffn_norm": (c.hidden,),
            "ffn_gate": (c.ffn, c.hidden),
            "ffn_up": (c.ffn, c.hidden),
            "ffn_sub_norm": (c.ffn,),
            "ffn_down": (c.hidden, c.ffn),
        }
        for name, shape in layer.items():
            if c.sub_norm or not name.endswith("_sub_norm"):
                table[f"blk.{i}.{name}.weight"] = shape
    table["output_norm.weight"] = (c.hidden,)
    if not c.tied:
        table["output.weight"] = (c.n_vocab, c.hidden)
    return table


def check(config: ModelConfig, tensors: Mapping[str, Tensor]) -> list[str]:
    """Raise InvalidFile unless ``tensors`` are exactly the model of ``config``; return remarks worth showing."""
    wanted = shapes(config)
    optional = {"rope_freqs.weight": (config.rope_dim // 2,)}
    for name in tensors:
        if name not in wanted and name not in optional:
            raise InvalidFile(f"tensor {shown(name)} is no part of this kind of model, so its answers would be wrong")
    notes = []
    sparse = []
    for name in wanted:
        if name not in tensors:
            raise InvalidFile(f"tensor {name} is missing; the file is incomplete, get it again")
    for name, tensor in tensors.items():
        shape = wanted.get(name) or optional[name]
        if tensor.shape != shape:
            raise InvalidFile(f"tensor {name} has shape {tensor.shape}, the model needs {shape}")
        if len(shape) == 1:
            allowed: tuple[str, ...] = VECTOR_TYPES
        elif is_projection(name):
            allowed = TERNARY_TYPES + FLOAT_TYPES
        else:
            allowed = FLOAT_TYPES
        if tensor.type not in allowed:
            raise InvalidFile(f"tensor {name} is stored as {tensor.type}, which is not supported here (these are: "
                              f"{', '.join(allowed)}); convert the model again with one of them")
        if tensor.type in TERNARY_TYPES and zero_fraction(tensor) < LEAST_ZEROS:
            sparse.append(name)
    if sparse:
        notes.append(f"{sparse[0]}{f' and {len(sparse) - 1} more' if len(sparse) > 1 else ''} hold almost no zeros: "
                     "probably quantised from weights that were not ternarised first; expect garbage")
    return notes


def zero_fraction(tensor: Tensor) -> float:
    """Share of zero weights in a small sample of a ternary tensor (1.0 when that type is not sampled).

    Raises InvalidFile when the sample holds what the format never holds: code 3, or a scale that is no scale.
    """
    if not (math.isfinite(tensor.scale) and tensor.scale != 0.0):
        raise InvalidFile(f"tensor {tensor.name} has scale {tensor.scale}; the file is damaged, get it again")
    data = tensor.data
    if tensor.type in ("I2_S", "HF_U8"):
        end = len(data)
        if tensor.type == "I2_S":
            end -= 32
            (scale,) = struct.unpack_from("<f", data, end)
            if not math.isfinite(scale) or scale == 0.0:
                raise InvalidFile(f"tensor {tensor.name} has scale {scale}: it was quantised from weights that are "
                                  "not ternary, or is damaged; convert the model again")
        sample = bytes(data[max(0, end - _SAMPLE) : end])
        if len(sample.translate(None, _BAD)) != len(sample):
            raise InvalidFile(f"tensor {tensor.name} holds codes that ternary weights never have; the file is damaged")
        return int.from_bytes(sample.translate(_ZEROS), "little").bit_count() / (4 * len(sample))
    if tensor.type in ("TQ1_0", "TQ2_0"):
        step = 54 if tensor.type == "TQ1_0" else 66
        for block in range(min(16, len(data) // step)):
            (scale,) = struct.unpack_from("<e", data, block * step + step - 2)
            if not math.isfinite(scale):
                raise InvalidFile(f"tensor {tensor.name} has block scale {scale}; the file is damaged, get it again")
    return 1.0
