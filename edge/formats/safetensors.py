"""The safetensors container: a JSON header and raw bytes, read over a memory map.

Why not the ``safetensors`` library: its Python interface either copies every tensor into a ``bytes`` object
(``deserialize``) or returns NumPy or torch arrays (``safe_open``).  Without these packages, which the program does not
import, it gives no view without a copy.  The container itself is a length, a JSON object and offsets.

Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NoReturn, TypeGuard

from edge.errors import InvalidFile
from edge.formats.checkpoint import Tensor
from edge.formats.mapped import map_file, parse_json, shown

#: dtype -> bytes per element; files with others are refused
DTYPES = {"U8": 1, "I8": 1, "BF16": 2, "F16": 2, "F32": 4}

MAX_HEADER = 32 << 20  # the format allows 100 MB; an 8 B model needs 100 kB


def read(path: str) -> dict[str, Tensor]:
    """All tensors of a safetensors file as views on its map.  Raises ModelNotFound or InvalidFile."""
    view = map_file(path)

    def fail(what: str) -> NoReturn:
        raise InvalidFile(f"{path}: {what}")

    if bytes(view[:7]) == b"version":
        fail("a Git LFS pointer, not the model; fetch the real file with 'git lfs pull'")
    if len(view) < 8:
        fail("too short for a safetensors file; get it again")
    n = int.from_bytes(view[:8], "little")
    if n > len(view) - 8 or n > MAX_HEADER:
        fail(f"the header claims {n} bytes; the file is incomplete or not a safetensors file, get it again")
    header = parse_json(view[8 : 8 + n], path)
    data = view[8 + n :]

    tensors: dict[str, Tensor] = {}
    spans = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        what = f"tensor {shown(name)}"
        if not isinstance(entry, dict):
            fail(f"{what} is not described by an object; the file is damaged")
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not _whole(shape) or not _whole(offsets) or len(shape) > 8 or len(offsets) != 2:
            fail(f"{what} has an invalid shape or data_offsets; the file is damaged")
        if not isinstance(dtype, str) or dtype not in DTYPES:
            fail(f"{what} has dtype {shown(dtype)}, which is not supported ({', '.join(DTYPES)} are)")
        begin, end = offsets
        if not begin <= end <= len(data):
            fail(f"{what} ends beyond the file; it is incomplete, get it again")
        if end - begin != math.prod(shape) * DTYPES[dtype]:
            fail(f"{what} has {end - begin} bytes, its shape and dtype need {math.prod(shape) * DTYPES[dtype]}")
        tensors[name] = Tensor(name, dtype, tuple(shape), data[begin:end])
        if end > begin:
            spans.append((begin, end, name))
    spans.sort()
    for (_, end, name), (begin, _, following) in pairwise(spans):
        if end > begin:
            fail(f"tensor {shown(name)} overlaps {shown(following)}; the file is damaged")
    return tensors


def _whole(value: object) -> TypeGuard[list[int]]:
    """True for a list of integers from 0 to 2**63."""
    return isinstance(value, list) and all(type(element) is int and 0 <= element < 1 << 63 for element in value)
