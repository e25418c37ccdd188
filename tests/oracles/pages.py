"""The bytes of KV pages, decoded and made with NumPy from the layouts written in pyx/kernels/kernels.h, bit by bit.

Nothing here is the project's code: FP8 comes from its definition, quantisers are the plain formulas in float32.
"""

from __future__ import annotations

import numpy as np

PAGE = 32


def group_of(head_dim: int) -> int:
    """The largest divisor of head_dim that is at most 32 and a multiple of 4."""
    return max(g for g in range(4, 33, 4) if head_dim % g == 0)


def block_bytes(kind: str, values: bool, head_dim: int) -> int:
    """Bytes of one block, rounded up to 64."""
    n, groups = PAGE * head_dim, head_dim // group_of(head_dim)
    size = {
        "f32": 4 * n, "f16": 2 * n, "int8": n + 2 * PAGE, "fp8": n + 2 * PAGE, "binary": n // 8 + 2 * PAGE,
        "int4": n // 2 + 2 * PAGE * groups * (2 if values else 1),
        "int4c": n // 2 + 4 * head_dim,
    }[kind]
    return -(-size // 64) * 64


def e4m3() -> np.ndarray:
    """The 256 numbers of FP8 E4M3 (arXiv 2209.05433): bias 7, no infinities, NaN is 0x7f and 0xff."""
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    size = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    size[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code & 0x80, -size, size)


def halves(data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The first numbers of some bytes, as float64."""
    return data[: 2 * int(np.prod(shape))].view(np.float16).astype(np.float64).reshape(shape)


def nibbles(codes: np.ndarray, values: bool, head_dim: int) -> np.ndarray:
    """[32][D] of u8 k[D/4][16][4] or v[4][D][4]: the low nibble belongs to token t, the high one to t + 16."""
    if values:
        byte = codes.reshape(4, head_dim, 4).transpose(0, 2, 1).reshape(16, head_dim)
    else:
        byte = codes.reshape(head_dim // 4, 16, 4).transpose(1, 0, 2).reshape(16, head_dim)
    return np.concatenate([byte & 15, byte >> 4]).astype(np.float64)


def signs(codes: np.ndarray, head_dim: int) -> np.ndarray:
    """[32][D] of u8 plane[D][4]: bit t of the 32 of a channel is 1 where a number is below 0."""
    return np.where(np.unpackbits(codes.reshape(head_dim, 4), axis=1, bitorder="little").T, -1.0, 1.0)


def decode_block(data: bytes, kind: str, values: bool, head_dim: int) -> np.ndarray:
    """[32][D] float64 of one block."""
    raw, n, D = np.frombuffer(data, np.uint8), PAGE * head_dim, head_dim
    if kind in ("f16", "f32"):
        flat = raw.view(np.float16 if kind == "f16" else np.float32)[:n].astype(np.float64)
        return flat.reshape(PAGE, D) if values else flat.reshape(D, PAGE).T
    if kind == "int8":
        codes = raw[:n].view(np.int8).astype(np.float64)
        codes = (
            codes.reshape(PAGE // 4, D, 4).transpose(0, 2, 1).reshape(PAGE, D)
            if values
            else codes.reshape(D // 4, PAGE, 4).transpose(1, 0, 2).reshape(PAGE, D)
        )
        return codes * halves(raw[n:], (PAGE,))[:, None]
    if kind == "fp8":
        codes = e4m3()[raw[:n]]
        return (codes.reshape(PAGE, D) if values else codes.reshape(D, PAGE).T) * halves(raw[n:], (PAGE,))[:, None]
    if kind == "binary":
        return signs(raw[: n // 8], D) * halves(raw[n // 8 :], (PAGE,))[:, None]
    if kind == "int4":
        groups = D // group_of(D)
        codes, scales = nibbles(raw[: n // 2], values, D), halves(raw[n // 2 :], (groups, PAGE))
        scale = scales.T.repeat(D // groups, axis=1)
        if not values:
            return (codes - 8) * scale
        least = halves(raw[n // 2 + 2 * groups * PAGE :], (groups, PAGE)).T.repeat(D // groups, axis=1)
        return codes * scale + least
    end = n // 2
    codes = nibbles(raw[:end], values, D)
    return codes * halves(raw[end:], (D,)) + halves(raw[end + 2 * D :], (D,))


def decode_page(data: bytes, kind: str, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values [32][D] of one page as float64; kind as the cache names it, "int8:int4" for two types."""
    k_type, v_type = (kind.split(":") * 2)[:2]
    v_at = block_bytes(k_type, False, head_dim)
    assert len(data) == v_at + block_bytes(v_type, True, head_dim)
    return decode_block(data[:v_at], k_type, False, head_dim), decode_block(data[v_at:], v_type, True, head_dim)


# ---- the numbers that sealing should leave ---------------------------------------------------------------------------


def f32(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float32)


def rounded(x: np.ndarray) -> np.ndarray:
    """To half floats and back, in float32."""
    with np.errstate(over="ignore"):
        return f32(f32(x).astype(np.float16))


def rotated(x: np.ndarray) -> np.ndarray:
    """Walsh-Hadamard transform of the last axis in float32, in blocks of the largest power of two, if that is 16 at
    least.
    """
    block = x.shape[-1] & -x.shape[-1]
    y = f32(x).reshape(-1, block).copy()
    if block < 16:
        return f32(x)
    half = 1
    while half < block:
        a, b = y.reshape(-1, block // half // 2, 2, half).transpose(2, 0, 1, 3)
        y = np.stack([a + b, a - b], 2).reshape(-1, block)
        half *= 2
    log = block.bit_length() - 1
    return (y * (f32(0.5) ** (log // 2) * f32(2**-0.5 if log % 2 else 1))).reshape(x.shape)


def over(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y in float32, 0 where y is not above 0."""
    return np.divide(f32(x), f32(y), out=np.zeros_like(f32(x)), where=f32(y) > 0)


def ranges(x: np.ndarray) -> np.ndarray:
    """Along the first axis: codes from the least to the largest of the numbers."""
    low, high = x.min(axis=0), x.max(axis=0)
    scale = rounded(f32(high - low) / np.float32(15))
    step = np.broadcast_to(scale, x.shape)
    codes = np.clip(np.rint(over(f32(x - low), step)), 0, 15)
    return codes.astype(np.float64) * scale.astype(np.float64) + rounded(low).astype(np.float64)


def quantised(x: np.ndarray, kind: str, values: bool) -> np.ndarray:
    """float16 [32][D] -> what a sealed block of it says, float64."""
    y, D = f32(x), x.shape[1]
    if kind in ("f16", "f32"):
        return y.astype(np.float64)
    if kind == "int8":
        scale = rounded(np.abs(y).max(axis=1, keepdims=True) / np.float32(127))
        return np.clip(np.rint(over(y, np.broadcast_to(scale, y.shape))), -127, 127) * scale.astype(np.float64)
    if kind == "fp8":
        scale = rounded(np.abs(y).max(axis=1, keepdims=True) / np.float32(448))
        wanted = over(y, np.broadcast_to(scale, y.shape)).astype(np.float64)
        table = np.sort(e4m3()[:0x7F])  # 0 .. 448, code by code
        at = np.clip(np.searchsorted(table, np.abs(wanted)), 1, len(table) - 1)
        below, above = table[at - 1], table[at]
        size = np.minimum(np.abs(wanted), 448)
        middle = (below + above) / 2
        nearest = np.where(size > middle, above, below)
        nearest = np.where((size == middle) & (at % 2 == 0), above, nearest)  # half to the even code
        return np.copysign(nearest, wanted) * scale.astype(np.float64)
    if kind == "binary":
        scale = rounded(np.abs(y.astype(np.float64)).mean(axis=1, keepdims=True))
        return np.where(y < 0, -1.0, 1.0) * scale.astype(np.float64)
    if kind == "int4c":
        return ranges(y)
    groups = D // group_of(D)
    parts = y.reshape(PAGE, groups, -1)
    if values:
        return ranges(parts.transpose(2, 0, 1)).transpose(1, 2, 0).reshape(PAGE, D)
    extreme = np.take_along_axis(parts, np.abs(parts).argmax(axis=2)[..., None], axis=2)
    first = rounded(extreme / np.float32(-8))
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.where(first != 0, np.clip(np.rint(parts / first), -8, 7), 0).astype(np.float64)
    wide = parts.astype(np.float64)
    squares = (wide**2 * codes**2).sum(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.where(squares > 1e-30, (wide**3 * codes).sum(axis=2, keepdims=True) / squares, first)
    return (codes * rounded(best).astype(np.float64)).reshape(PAGE, D)
