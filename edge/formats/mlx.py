"""MLX: the 2-bit weights of mlx-lm folders, whose scales are tensors of their own.

A matrix of ``quantization: {"group_size": 128, "bits": 2}`` is three tensors: ``weight`` U32, 16 codes q a word, low
bits first; ``scales`` and ``biases``, a float for each group of a row.  A weight is scale * q + bias: ternary
if the bias is minus the scale and no q is 3.  So the words are the codes of PQ2_0 (of Q2_0 in groups of 64), unchanged.

Source: mlx-lm (``quantize``), MLX (``mx.quantize``, mode "affine").
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from edge.formats import names
from edge.formats.checkpoint import Tensor
from edge.formats.mapped import shown
from edge.formats.safetensors import Stored
from edge.formats.side_files import fail
from edge.registry.encodings import ENCODINGS, GROUP_ROWS, VECTOR_TYPES

#: weights per scale -> the type that stores codes and scales together
_WHOLE = {ENCODINGS[name].span: name for name in GROUP_ROWS}
_NEGATED = bytes(byte ^ 0x80 for byte in range(256))


def group_size(folder: str, raw: Mapping[str, Any]) -> int:
    """Number of weights that share a scale, from config.json; 0 if MLX has not quantised the model.  Raises
    InvalidFile.
    """
    how = raw.get("quantization")
    if how is None:
        return 0
    if not isinstance(how, dict):
        fail(folder, "config.json: quantization is not an object; the file is damaged")
    if how.get("bits") != 2 or how.get("mode", "affine") != "affine":
        fail(folder, f"quantised to {shown(how.get('bits'))} bits by MLX (mode {shown(how.get('mode', 'affine'))}), "
                     "which is not ternary; get the 2-bit version of a ternary model, or a GGUF file")
    if how.get("group_size") not in _WHOLE:
        fail(folder, f"quantised by MLX in groups of {shown(how.get('group_size'))} weights; groups of 128 and 64 are "
                     "supported")
    return int(how["group_size"])


def separate(
    folder: str, stored: Mapping[str, Stored], group: int
) -> tuple[dict[str, Stored], dict[str, list[Stored]]]:
    """The tensors without the scales and biases of packed ones, and these, by the name of the tensor they belong to.

    Raises InvalidFile if one of them is missing or has another size.
    """
    rest, affine = dict(stored), {}
    for name, entry in stored.items():
        if entry.dtype != "U32":
            continue
        base = name.removesuffix(".weight")
        if base == name or len(entry.shape) != 2 or not group:
            fail(folder, f"tensor {shown(name)} holds words (U32), but config.json has no quantization of MLX for it; "
                         "get the files again")
        rows, k = entry.shape[0], entry.shape[1] * 16
        pair = [rest.pop(f"{base}.{kind}", None) for kind in ("scales", "biases")]
        for part in pair:
            if part is None or part.shape != (rows, k // group) or part.dtype not in VECTOR_TYPES:
                fail(folder, f"tensor {shown(name)} has no fitting scales and biases; get the files again")
        affine[name] = [part for part in pair if part is not None]
    return rest, affine


def whole_type(tensor: Tensor) -> str:
    """The type of the result of :func:`whole`."""
    if tensor.type != "MLX":
        return tensor.type
    return _WHOLE[tensor.shape[1] // tensor.affine[0].shape[1]]


def whole(tensor: Tensor) -> Tensor:
    """The matrix with its scales between its codes, in its own memory; a tensor of another type is returned unchanged.

    Raises ValueError if the weights are not ternary or a scale exceeds float16.
    """
    if tensor.type != "MLX":
        return tensor
    scales, biases = tensor.affine
    width = 4 if scales.dtype == "F32" else 2
    if scales.dtype != biases.dtype or any(
        bytes(scales.data[byte::width]).translate(_NEGATED if byte == width - 1 else None)
        != bytes(biases.data[byte::width]) for byte in range(width)
    ):
        raise ValueError("its biases are not minus its scales: MLX has quantised weights that are not ternary")
    rows, k = tensor.shape
    group = k // scales.shape[1]
    size, n = 2 + group // 4, rows * scales.shape[1]
    halves = scales.data if scales.dtype == "F16" else _halves(scales)
    out = bytearray(n * size)
    out[0::size], out[1::size] = halves[0::2], halves[1::2]
    for byte in range(group // 4):
        out[2 + byte :: size] = tensor.data[byte :: group // 4]
    return tensor._replace(type=whole_type(tensor), data=memoryview(out), affine=())


def _halves(scales: Stored) -> bytes:
    try:
        numbers = names.floats(scales.dtype, scales.data)
        return struct.pack(f"<{len(numbers)}e", *numbers)
    except (OverflowError, struct.error):
        raise ValueError("a scale is beyond float16") from None
