"""Ternary matrices as files hold them, and activations as products see them: the slow and obvious way, in NumPy."""

from __future__ import annotations

import numpy as np


def rounded(x: np.ndarray, group: int) -> np.ndarray:
    """x [.., k], rounded to int8 with a scale for each group, gives this back, float64."""
    k = x.shape[-1]
    parts = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -k % group)]).reshape(*x.shape[:-1], -1, group)
    most = np.abs(parts).max(-1, keepdims=True)
    codes = np.clip(np.round(parts * (np.float32(127) / np.maximum(most, np.float32(1e-30)))), -127, 127)
    return (codes.astype(np.float64) * (most / np.float32(127))).reshape(*x.shape[:-1], -1)[..., :k]


def by_block(scales: np.ndarray, rows: int, n_block: int) -> np.ndarray:
    """Half scales [rows][n_block][1]."""
    scales = np.broadcast_to(scales, (rows, scales.shape[1]))
    return np.repeat(scales, -(-n_block // scales.shape[1]), 1)[:, :n_block, None].astype("<f2").copy()


def q2_0(block: int, codes: np.ndarray, scales: np.ndarray) -> bytes:
    """Blocks of 64 (18 bytes) or 128 (34): half d, then element j in bits 2(j % 4) of byte j / 4."""
    rows, k = codes.shape
    d = by_block(scales, rows, k // block)
    q = (codes + 1).astype(np.uint8).reshape(rows, k // block, block // 4, 4)
    packed = q[..., 0] | q[..., 1] << 2 | q[..., 2] << 4 | q[..., 3] << 6
    return np.concatenate([d.view(np.uint8), packed.astype(np.uint8)], -1).tobytes()


def plane_panels(codes: np.ndarray, scales: np.ndarray, group: int) -> bytes:
    """Sums of planes, codes [plane][row][k], as kernels.h says of panel_matmul: [panel][group][plane], half d[64], then
    [step][16][4]; 64 rows side by side, the last of them zeros."""
    n_plane, n_row, k = codes.shape
    pad = -n_row % 64
    q = np.concatenate([codes + 1, np.zeros((n_plane, pad, k))], 1).astype(np.uint8)
    d = np.concatenate([scales, np.zeros((n_plane, pad, k // group))], 1).astype("<f2")
    q = q.reshape(n_plane, -1, 4, 16, k // group, group)  # [plane][panel][f][lane][group][element]
    if group == 128:  # element 4p + f stands at 32f + p
        q = q.reshape(*q.shape[:-1], 32, 4).swapaxes(-1, -2).reshape(q.shape)
    q = q.reshape(*q.shape[:-1], group // 4, 4)
    packed = (q << np.array([0, 2, 4, 6], np.uint8)[:, None, None, None, None]).sum(2).astype(np.uint8)
    packed = packed.transpose(1, 3, 0, 4, 2, 5)  # [panel][group][plane][step][lane][4]
    halves = np.ascontiguousarray(d.reshape(n_plane, -1, 64, k // group).transpose(1, 3, 0, 2))
    return np.concatenate([halves.view(np.uint8), packed.reshape(*packed.shape[:3], -1)], -1).tobytes()


def panels(codes: np.ndarray, scales: np.ndarray) -> bytes:
    """PQ2_0_R64: one plane of groups of 128."""
    return plane_panels(codes[None], by_block(scales, len(codes), codes.shape[1] // 128)[None, ..., 0], 128)


def q1_0(codes: np.ndarray, scales: np.ndarray, block: int = 128) -> bytes:
    """Blocks of 128 weights, or 32: half d, then element j in bit j % 8 of byte j / 8, 1 for +d and 0 for -d."""
    rows, k = codes.shape
    d = by_block(scales, rows, k // block)
    bits = np.packbits(codes.reshape(rows, k // block, block) > 0, axis=-1, bitorder="little")
    return np.concatenate([d.view(np.uint8), bits], -1).tobytes()


def tq2_0(codes: np.ndarray, scales: np.ndarray) -> bytes:
    """256 weights: 2 x 32 bytes, element 128r + m + 32l in bits 2l of byte 32r + m; then half d."""
    rows, k = codes.shape
    d = by_block(scales, rows, k // 256)
    q = (codes + 1).astype(np.uint8).reshape(rows, k // 256, 2, 4, 32)
    packed = (q[..., 0, :] | q[..., 1, :] << 2 | q[..., 2, :] << 4 | q[..., 3, :] << 6).reshape(rows, k // 256, 64)
    return np.concatenate([packed.astype(np.uint8), d.view(np.uint8)], -1).tobytes()


def tq1_0(codes: np.ndarray, scales: np.ndarray) -> bytes:
    """256 weights: base-3 digits, the first the most significant, five to a byte; then half d."""
    rows, k = codes.shape
    d = by_block(scales, rows, k // 256)
    q = (codes + 1).astype(np.int64).reshape(rows, k // 256, 256)
    parts = []
    for start, width, digits in ((0, 32, 5), (160, 16, 5), (240, 4, 4)):
        part = q[..., start : start + width * digits].reshape(rows, k // 256, digits, width)
        value = sum(part[..., n, :] * 3 ** (4 - n) for n in range(digits))
        parts.append(((value * 256 + 242) // 243).astype(np.uint8))
    return np.concatenate([*parts, d.view(np.uint8)], -1).tobytes()


def iq2_bn_r4(weights: np.ndarray, scales: np.ndarray) -> bytes:
    """Four rows together: their float scales, then for 64 columns byte 4k + i + 16l holds columns 16l + i + 4j of row k
    in bits 2j (formats.md B.5)."""
    rows, k = weights.shape
    out = b""
    for r in range(0, rows, 4):
        out += scales[r : r + 4].astype("<f4").tobytes()
        for c in range(0, k, 64):
            block = np.zeros(64, np.uint8)
            for row in range(4):
                for i in range(4):
                    for part in range(4):
                        codes = weights[r + row, c + 16 * part + i : c + 16 * part + 16 : 4] + 1
                        block[4 * row + i + 16 * part] = sum(int(q) << 2 * j for j, q in enumerate(codes))
            out += block.tobytes()
    return out


def stq1_0(weights: np.ndarray, scales: np.ndarray) -> bytes:
    """Every four weights have exactly one zero: which, and the signs; the table as published has this order."""
    table = [0xA9, 0x89, 0x29, 0x09, 0xA6, 0x86, 0x26, 0x06, 0x9A, 0x92, 0x1A, 0x12, 0x6A, 0x62, 0x4A, 0x42]
    index = {tuple((q >> 2 * p & 3) - 1 for p in range(4)): i for i, q in enumerate(table)}
    out = b""
    for row, d in zip(weights.reshape(-1, 256), scales.reshape(-1), strict=True):
        qs, sign = np.zeros(32, np.uint8), np.zeros(8, np.uint8)
        for g in range(64):
            four = tuple(int(row[g // 16 * 64 + g % 16 + 16 * p]) for p in range(4))
            turned = four not in index
            slot = index[tuple(-q for q in four)] if turned else index[four]
            qs[g // 2] |= slot << g % 2 * 4
            sign[g // 8] |= turned << g % 8
        out += qs.tobytes() + sign.tobytes() + np.array(d, "<f2").tobytes()
    return out
