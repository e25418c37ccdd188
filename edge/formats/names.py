"""Tensor names and shapes of the supported models, and quick tests of whether weights are ternary.

Tensors have the names of GGUF, whichever file they come from; :func:`check` tests whether they are those of the model
that the configuration describes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from edge.config import ModelConfig
from edge.errors import InvalidFile
from edge.formats.checkpoint import SEPARATE_EXPERTS, Tensor
from edge.formats.mapped import shown
from edge.layers import Attention, Delta, Dense, Experts, LayerConfig
from edge.registry.encodings import (
    FLOAT_TYPES,
    MOST_PLANES,
    PANEL_GROUPS,
    PLANE_TYPES,
    TABLE_TYPES,
    TERNARY_TYPES,
    VECTOR_TYPES,
)

#: the matrices of a layer that can be ternary, of every kind of layer
PROJECTIONS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "ffn_gate_exps",
               "ffn_up_exps", "ffn_down_exps", "attn_qkv", "attn_gate", "ssm_out")

#: with fewer zeros the weights were never ternarised (typical: 0.3 to 0.5)
LEAST_ZEROS = 0.02
_PIECE = 1 << 20  # bytes of codes counted at a time
_SAMPLE = 1024  # bytes of codes looked at per matrix: 4096 weights, one page next to the scale

#: four codes -> as many bits as zeros among them
_ZEROS = bytes((1 << sum(byte >> shift & 3 == 1 for shift in (0, 2, 4, 6))) - 1 for byte in range(256))
#: four codes, one of which ternary weights never have
_BAD = bytes(byte for byte in range(256) if any(byte >> shift & 3 == 3 for shift in (0, 2, 4, 6)))


def is_projection(name: str) -> bool:
    """True for the name of a matrix that can be ternary, ``blk.N.<projection>.weight``."""
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "blk" and parts[3] == "weight" and parts[2] in PROJECTIONS


class TensorSpec(NamedTuple):
    """One tensor of a model."""

    name: str  # of GGUF: "blk.3.attn_q.weight"
    role: str  # one of ROLES
    shape: tuple[int, ...]  # (out, in), (n,) or (expert, out, in)
    needed: bool = True


#: role of a tensor -> the types that it may be stored in.  Whoever walks the parts handles each of these.
ROLES = {
    "matrix": TERNARY_TYPES + FLOAT_TYPES,  # multiplied with activations; see n_plane() for sums of planes
    "experts": (*TERNARY_TYPES, *FLOAT_TYPES, SEPARATE_EXPERTS),  # matrices of all experts of a layer, stacked
    "table": TABLE_TYPES,  # the embedding, the output head
    "vector": VECTOR_TYPES,  # norms, biases, divisors of the rotation
    "floats": VECTOR_TYPES,  # a small matrix of floats, kept as float32: the router of experts, for example
}


def layer_parts(layer: LayerConfig, hidden: int) -> list[TensorSpec]:
    """All tensors of a layer, in file order; names without ``blk.N.``."""
    found = [
        *_norm("attn_norm", hidden),
        *_MIXERS[layer.mixer.kind](layer.mixer, hidden),
        *_norm("post_attention_norm", hidden, layer.post_norm),
        *_norm("ffn_norm", hidden),
        *_FEED_FORWARD[layer.feed_forward.kind](layer.feed_forward, hidden),
        *_norm("post_ffw_norm", hidden, layer.post_norm),
    ]
    inner = [
        TensorSpec(f"{part.name.removesuffix('.weight')}_norm_in.weight", "vector", part.shape[1:])
        for part in found if part.role == "matrix" and layer.inner_norm
    ]
    return found + inner


def _norm(name: str, n: int, there: bool = True) -> list[TensorSpec]:
    return [TensorSpec(f"{name}.weight", "vector", (n,))] if there else []


def _attention(mixer: Attention, hidden: int) -> list[TensorSpec]:
    q, k, v = (("attn_q", mixer.q_dim), ("attn_k", mixer.kv_dim), ("attn_v", mixer.kv_dim))
    return [
        TensorSpec("attn_q.weight", "matrix", (mixer.q_dim * (2 if mixer.gated else 1), hidden)),
        *(TensorSpec(f"{name}.weight", "matrix", (rows, hidden)) for name, rows in (k, v)),
        *(TensorSpec(f"{name}.bias", "vector", (rows,)) for name, rows in (q, k, v) if mixer.qkv_bias),
        *_norm("attn_q_norm", mixer.head_dim, bool(mixer.qk_norm)),
        *_norm("attn_k_norm", mixer.head_dim, bool(mixer.qk_norm)),
        *_norm("attn_sub_norm", mixer.q_dim, mixer.sub_norm),
        TensorSpec("attn_output.weight", "matrix", (hidden, mixer.q_dim)),
    ]


def _delta(mixer: Delta, hidden: int) -> list[TensorSpec]:
    heads = (mixer.n_v_head,)
    return [
        TensorSpec("attn_qkv.weight", "matrix", (mixer.channels, hidden)),
        TensorSpec("attn_gate.weight", "matrix", (mixer.inner, hidden)),
        TensorSpec("ssm_conv1d.weight", "floats", (mixer.channels, 4)),
        TensorSpec("ssm_dt.bias", "vector", heads),
        TensorSpec("ssm_a", "vector", heads),
        TensorSpec("ssm_alpha.weight", "floats", (mixer.n_v_head, hidden)),
        TensorSpec("ssm_beta.weight", "floats", (mixer.n_v_head, hidden)),
        *_norm("ssm_norm", mixer.head_dim_v),
        TensorSpec("ssm_out.weight", "matrix", (hidden, mixer.inner)),
    ]


def _dense(part: Dense, hidden: int) -> list[TensorSpec]:
    return [
        TensorSpec("ffn_gate.weight", "matrix", (part.ffn, hidden)),
        TensorSpec("ffn_up.weight", "matrix", (part.ffn, hidden)),
        *_norm("ffn_sub_norm", part.ffn, part.sub_norm),
        TensorSpec("ffn_down.weight", "matrix", (hidden, part.ffn)),
    ]


def _experts(part: Experts, hidden: int) -> list[TensorSpec]:
    return [
        TensorSpec("ffn_gate_inp.weight", "floats", (part.n_expert, hidden)),
        TensorSpec("ffn_gate_exps.weight", "experts", (part.n_expert, part.ffn, hidden)),
        TensorSpec("ffn_up_exps.weight", "experts", (part.n_expert, part.ffn, hidden)),
        TensorSpec("ffn_down_exps.weight", "experts", (part.n_expert, hidden, part.ffn)),
    ]


#: kind -> function of its configuration and the width of the residual stream, which lists its tensors
_MIXERS: dict[str, Callable[[Any, int], list[TensorSpec]]] = {"attention": _attention, "delta": _delta}
_FEED_FORWARD: dict[str, Callable[[Any, int], list[TensorSpec]]] = {"dense": _dense, "experts": _experts}


def n_parameters(config: ModelConfig) -> int:
    """The number of parameters of a model."""
    return sum(math.prod(part.shape) for part in parts(config) if part.needed)


def parts(config: ModelConfig) -> list[TensorSpec]:
    """All tensors of a model, in file order: the one table that the readers check, planning counts, building loads and
    conversion writes.
    """
    c = config
    known = {layer: layer_parts(layer, c.hidden) for layer in set(c.layers)}
    return [
        TensorSpec("token_embd.weight", "table", (c.n_vocab, c.hidden)),
        *(part._replace(name=f"blk.{i}.{part.name}") for i, layer in enumerate(c.layers) for part in known[layer]),
        TensorSpec("output_norm.weight", "vector", (c.hidden,)),
        *([] if c.tied else [TensorSpec("output.weight", "table", (c.n_vocab, c.hidden))]),
        TensorSpec("rope_freqs.weight", "vector", (c.attention[0].rotation.dim // 2,), needed=False),
    ]


def n_plane(config: ModelConfig, tensor: Tensor, shape: tuple[int, ...]) -> int:
    """Number of ternary matrices whose sum is the matrix of this shape in a tensor: 1 in a model without planes.

    Raises InvalidFile if the tensor is not such a matrix.
    """
    group, k = config.planes, shape[-1]
    if tensor.type in PANEL_GROUPS and PANEL_GROUPS[tensor.type] != (group or 128):
        raise InvalidFile(f"tensor {tensor.name} is stored as {tensor.type}, " + (
            f"but the planes of this model have a scale per {group} weights; convert the model again" if group else
            "but the file does not say that its matrices are sums of planes; convert the model again"))
    if not group:
        return 1
    if tensor.type != PLANE_TYPES[group]:
        raise InvalidFile(f"tensor {tensor.name} is stored as {tensor.type}, but planes with a scale per {group} "
                          f"weights are {PLANE_TYPES[group]}; convert the model again")
    found = tensor.shape[-1] // k
    if tensor.shape != (*shape[:-1], found * k) or not 1 <= found <= MOST_PLANES:
        raise InvalidFile(f"tensor {tensor.name} has shape {tensor.shape}, the model needs {shape} in 1 to "
                          f"{MOST_PLANES} planes")
    if k % group:
        raise InvalidFile(f"tensor {tensor.name} has {k} columns, not a multiple of {group}, the weights that share a "
                          "scale")
    return found


def check(config: ModelConfig, tensors: Mapping[str, Tensor]) -> list[str]:
    """Raise InvalidFile unless ``tensors`` are exactly those of the model of ``config``, and ternary.  Returns remarks
    for the user.
    """
    _check_ternary([tensor for name, tensor in tensors.items() if is_projection(name)])
    wanted = {part.name: part for part in parts(config)}
    for name in tensors:
        if name not in wanted:
            raise InvalidFile(f"tensor {shown(name)} is not part of this kind of model, so its answers would be wrong")
    for part in wanted.values():
        if part.needed and part.name not in tensors:
            raise InvalidFile(f"tensor {part.name} is missing; the file is incomplete, get it again")
    sparse = []
    for name, tensor in tensors.items():
        _check_tensor(config, tensor, wanted[name])
        sparse += [each.name for each in tensor.experts or (tensor,)
                   if each.type in TERNARY_TYPES and zero_fraction(each, _SAMPLE) < LEAST_ZEROS]
    if not sparse:
        return []
    return [f"{sparse[0]}{f' and {len(sparse) - 1} more' if len(sparse) > 1 else ''} hold almost no zeros: "
            "probably quantised from weights that were not ternarised first; expect garbage"]


def _check_tensor(config: ModelConfig, tensor: Tensor, part: TensorSpec) -> None:
    """Raise InvalidFile unless a tensor has the shape, and one of the types, of its part of the model."""
    name, shape = tensor.name, part.shape
    if part.role in ("matrix", "experts") and not tensor.experts and len(tensor.shape) == len(shape):
        shape = (*shape[:-1], shape[-1] * n_plane(config, tensor, shape))
    if tensor.shape != shape:
        raise InvalidFile(f"tensor {name} has shape {tensor.shape}, the model needs {shape}")
    if tensor.type not in ROLES[part.role]:
        raise InvalidFile(f"tensor {name} is stored as {tensor.type}, which is not supported here (these are: "
                          f"{', '.join(ROLES[part.role])}); convert the model again with one of them")
    if tensor.type in PANEL_GROUPS and len(shape) == 3 and shape[1] % 64:
        raise InvalidFile(f"tensor {name} is {tensor.type}, in which {shape[1]} rows of an expert are not whole "
                          "panels; convert the model again")
    for each in tensor.experts:
        if each.shape != shape[1:] or each.type not in ROLES["matrix"]:
            raise InvalidFile(f"tensor {shown(each.name)} is {each.type} of shape {each.shape}, the model needs "
                              f"{shape[1:]} in one of {', '.join(ROLES['matrix'])}")


def _check_ternary(matrices: Sequence[Tensor]) -> None:
    """Refuse a model of floats that are not scale x {-1, 0, 1} and are not to be rounded to that.  The first shows."""
    if not matrices or any(each.type in TERNARY_TYPES for each in matrices):
        return
    first = matrices[0]
    if first.floats in ("ternary", "either") and not looks_ternary(first):
        kinds = ", ".join(sorted({each.type for matrix in matrices for each in matrix.experts or (matrix,)}))
        raise InvalidFile(f"a dense model (its matrices are {kinds}), not a ternary one; use its ternary version, "
                          "convert it with --planes 3, run it with llama.cpp, or, if these are the latent weights of a "
                          "ternary model, convert it with --ternarise")


def zero_fraction(tensor: Tensor, sample: int | None = None) -> float:
    """Share of zero weights of a ternary tensor, or in its last ``sample`` bytes; 1.0 for types that are not tested.

    Raises InvalidFile for a scale, or among the codes that are read one, that ternary weights never have.
    """
    data, encoding = tensor.data, tensor.encoding
    scales: list[float] = [tensor.scale]
    if tensor.type == "I2_S":
        scales += struct.unpack_from("<f", data, len(data) - encoding.tail)
    blocks = range(encoding.scale_at, min(len(data), _SAMPLE), encoding.nbytes * encoding.rows)
    if encoding.levels and encoding.scales == "block":  # which may be 0
        scales += (scale for at in blocks for scale in struct.unpack_from("<e", data, at) if scale)
    for scale in scales:
        if not math.isfinite(scale) or scale == 0.0:
            raise InvalidFile(f"tensor {tensor.name} has scale {scale}: it was quantised from weights that are not "
                              "ternary, or is damaged; get the file or convert the model again")
    if tensor.type not in ("I2_S", "HF_U8"):
        return 1.0
    end = len(data) - encoding.tail
    start, zeros = 0 if sample is None else max(0, end - sample), 0
    for at in range(start, end, _PIECE):
        codes = bytes(data[at : min(at + _PIECE, end)])
        if len(codes.translate(None, _BAD)) != len(codes):
            raise InvalidFile(f"tensor {tensor.name} holds codes that ternary weights never have; the file is damaged")
        zeros += int.from_bytes(codes.translate(_ZEROS), "little").bit_count()
    return zeros / (4 * (end - start))


def looks_ternary(tensor: Tensor) -> bool:
    """True if a float matrix may be scale x {-1, 0, 1}, from its first values only.

    256 consecutive weights have at most 8 magnitudes if each scale belongs to 32 weights or more.  Blocks of Q8_0 and
    Q4_0 have one magnitude each; in Q4_0, whose codes go from -8 to 7, -8 and 7 count as one.
    """
    if tensor.type in ("Q8_0", "Q4_0"):
        size = tensor.encoding.nbytes
        return all(len(_magnitudes(tensor.type, bytes(tensor.data[at + 2 : at + size]))) <= 1
                   for at in range(0, min(8 * size, len(tensor.data)), size))
    if tensor.type not in VECTOR_TYPES:
        return False
    sample = floats(tensor.type, tensor.data[: min(256, tensor.shape[-1]) * tensor.encoding.nbytes])
    return len({abs(value) for value in sample if value}) <= 16


def has_scales(tensor: Tensor) -> bool:
    """True if a ternary matrix has several scales, of rows or of groups, by its first and its last row.

    BitNet trains with one for a matrix, on activations of int8.  Several come from training on activations of floats
    (BitCPM, TriLM).
    """
    encoding, data = tensor.encoding, tensor.data
    if tensor.floats == "latent" or not (looks_ternary(tensor) or encoding.levels and encoding.scales == "block"):
        return False
    if tensor.type in PANEL_GROUPS or tensor.shape[-1] % encoding.span:
        return False
    row = tensor.shape[-1] // encoding.span * encoding.nbytes
    ends = bytes(data[:row]) + bytes(data[len(data) - row :])
    if tensor.type in VECTOR_TYPES:
        return len({abs(value) for value in floats(tensor.type, memoryview(ends))} - {0.0}) > 1
    scales = zip(ends[encoding.scale_at :: encoding.nbytes], ends[encoding.scale_at + 1 :: encoding.nbytes])
    return len({(low, high & 0x7F) for low, high in scales} - {(0, 0)}) > 1  # without its sign; 0 if all weights are


def _magnitudes(type: str, block: bytes) -> set[int]:
    """The magnitudes of the non-zero codes in a block of Q8_0 or Q4_0, without the scale."""
    if type == "Q8_0":
        return {min(byte, 256 - byte) for byte in block} - {0}
    codes = {abs((byte >> shift & 15) - 8) for byte in block for shift in (0, 4)} - {0}
    return {8} if codes <= {7, 8} else codes


def floats(type: str, data: memoryview) -> Sequence[float]:
    """A few stored floats as Python floats (F32, F16, BF16)."""
    if type == "F32":
        return struct.unpack(f"<{len(data) // 4}f", data)
    if type == "F16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    wide = bytearray(2 * len(data))  # BF16 is the upper half of a float32
    wide[2::4], wide[3::4] = data[::2], data[1::2]
    return struct.unpack(f"<{len(data) // 2}f", wide)
