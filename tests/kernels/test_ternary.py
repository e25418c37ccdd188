"""Packed matrices: golden bytes, every packing the same integers, float products against NumPy float64."""

from __future__ import annotations

import array
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyx.weights import StoredRows, TernaryMatrix
from tests.oracles.packings import iq2_bn_r4, stq1_0, tq2_0


def random_weights(n_row: int, k: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1, 2, (n_row, k)).astype(np.int8)


def pack(weights: np.ndarray, scale: float = 1.0) -> TernaryMatrix:
    return TernaryMatrix.pack("I8", weights.tobytes(), *weights.shape, scale=scale)


def unpacked(matrix: TernaryMatrix) -> np.ndarray:
    return np.array(matrix.unpack(), np.int8).reshape(matrix.n_row, matrix.k)


@given(st.integers(1, 9), st.sampled_from([4, 127, 128, 129, 200, 256, 540, 5460]), st.integers(0, 99))
def test_exact_integers_at_every_remainder(n_row, k, seed):
    w = random_weights(n_row, k, seed)
    x = np.random.default_rng(seed + 1).integers(-127, 128, k).astype(np.int8)
    matrix = pack(w)
    assert (unpacked(matrix) == w).all()
    assert list(matrix.accumulate(array.array("b", x.tolist()))) == (
        w.astype(np.int64) @ x.astype(np.int64)
    ).tolist()


@pytest.mark.parametrize("x_value", [127, -127, 0])
@pytest.mark.parametrize("w_value", [1, -1, 0])
def test_extremes_do_not_saturate(x_value, w_value):
    k = 23040
    matrix = pack(np.full((5, k), w_value, np.int8))
    assert set(matrix.accumulate(array.array("b", [x_value] * k))) == {k * x_value * w_value}


@pytest.mark.parametrize("shape", [(16, 128), (16, 200), (32, 5460), (4, 8640)])
def test_i2s_round_trip_and_layouts(shape):
    w = random_weights(*shape)
    raw = pack(w, 0.75).encode()
    assert len(raw) == w.size // 4 + 32
    again = TernaryMatrix.pack("I2_S", raw, *shape)
    assert (unpacked(again) == w).all() and again.scales == [0.75]
    assert again.mapped == (shape[1] % 128 == 0)
    assert not (unpacked(TernaryMatrix.pack("I2_S", raw, *shape, layout="64")) == w).all()


def test_a_matrix_i2s_cannot_hold_is_refused():
    """A flat stream of 2400 codes would need 18.75 blocks: the last one cannot be cut without loss."""
    w = random_weights(12, 200)
    with pytest.raises(ValueError, match="128"):
        pack(w).encode()
    with pytest.raises(ValueError, match="128"):
        TernaryMatrix.pack("I2_S", bytes(2400 // 4) + struct.pack("<f", 1) + bytes(28), 12, 200)


def test_golden_bytes():
    """tests/vectors/pack_vectors.json: an 8 x 256 matrix in the packings of other programs."""
    vectors = json.loads((Path(__file__).resolve().parents[1] / "vectors" / "pack_vectors.json").read_text())
    w = np.array(vectors["ternary_row_major"], np.int8).reshape(8, 256)
    for name, type_, layout in GOLDEN:
        data = bytes.fromhex(vectors["vectors"][name]["hex"])
        matrix = TernaryMatrix.pack(type_, data, 8, 256, layout=layout, scale=0.09375 if type_ == "HF_U8" else 1.0)
        assert (unpacked(matrix) == w).all(), name
        assert matrix.scales == [0.09375]
    assert pack(w, 0.09375).encode() == bytes.fromhex(vectors["vectors"]["I2_S_128"]["hex"])


#: (name of the vector, type, layout)
GOLDEN = [
    ("I2_S_128", "I2_S", "128"), ("I2_S_64_arm", "I2_S", "64"), ("I2_S_1x4", "I2_S", "1x4"), ("TQ1_0", "TQ1_0", "128"),
    ("TQ2_0", "TQ2_0", "128"), ("HF_packed_uint8", "HF_U8", "128"), ("PTQ1_0", "PTQ1_0", "128"),
    ("IQ1_BN", "IQ1_BN", "128"), ("IQ2_BN", "IQ2_BN", "128"),
]


def test_already_ternary_floats_keep_their_scale():
    """Trap 8: absmean over ternary weights would shrink the scale by the density."""
    w = random_weights(32, 256)
    for dtype, type_ in ((np.float32, "F32"), (np.float16, "F16")):
        matrix = TernaryMatrix.pack(type_, (w * 0.37).astype(dtype).tobytes(), 32, 256)
        assert (unpacked(matrix) == w).all()
        assert matrix.scales == pytest.approx([0.37], rel=1e-3)


def test_latent_floats_follow_absmean():
    latent = np.random.default_rng(3).normal(size=(64, 192)).astype(np.float32)
    scale = max(np.abs(latent).astype(np.float64).mean(), 1e-5)
    expected = np.clip(np.round(latent * np.float32(1 / np.float32(scale))), -1, 1)
    matrix = TernaryMatrix.pack("F32", latent.tobytes(), 64, 192)
    assert (unpacked(matrix) == expected).all()
    assert matrix.scales == pytest.approx([scale], rel=1e-6)
    with pytest.raises(ValueError, match="dense"):
        TernaryMatrix.pack("F32", latent.tobytes(), 64, 192, quantize=False)


def test_row_block_scales():
    """TriLM: one scale per block of rows, from tensor-parallel shards."""
    w = random_weights(12, 256)
    scales = np.repeat([0.5, 0.25, 2.0], 4)
    matrix = TernaryMatrix.pack("F32", (w * scales[:, None]).astype(np.float32).tobytes(), 12, 256, quantize=False)
    assert matrix.scales == pytest.approx(scales.tolist())
    check_product(matrix, w * scales[:, None])


@pytest.mark.parametrize("group", [128, 256])
def test_group_scales_along_k(group):
    w = random_weights(7, 512)
    scales = np.random.default_rng(1).choice([0.5, 0.25, 1.0, 2.0], (7, 512 // group))
    dense = w * np.repeat(scales, group, axis=1)
    matrix = TernaryMatrix.pack("F32", dense.astype(np.float32).tobytes(), 7, 512, quantize=False)
    assert (unpacked(matrix) == w).all()
    check_product(matrix, dense)


def test_tq2_with_differing_block_scales():
    w = random_weights(3, 512)
    scales = np.array([[0.5, 1.0], [2.0, 0.25], [1.0, 1.0]], np.float16)
    matrix = TernaryMatrix.pack("TQ2_0", tq2_0(w, scales), 3, 512)
    check_product(matrix, w * np.repeat(scales.astype(float), 256, axis=1))


def check_product(matrix: TernaryMatrix, dense: np.ndarray) -> None:
    x = np.random.default_rng(9).normal(size=matrix.k).astype(np.float32)
    s = 127 / max(np.abs(x).max(), 1e-5)
    expected = dense.astype(np.float64) @ (np.round(x * np.float32(s)) / s)
    got = np.array(matrix.matvec(array.array("f", x)))
    assert np.abs(got - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1)


def test_float_product():
    w = random_weights(33, 640)
    check_product(pack(w, 0.02), w * 0.02)


@pytest.mark.parametrize(
    "type_,n_byte,kwargs,match",
    [
        ("I2_S", 16 * 128 // 4 + 31, {}, "bytes"),
        ("I2_S", 16 * 128 // 4 + 32, {}, "scale"),
        ("HF_U8", 5, {}, "bytes"),
        ("TQ2_0", 5, {}, "256"),
        ("Q4_0", 5, {}, "takes 1152"),
        ("Q3_K", 5, {}, "ternary"),
        ("I2_S", 16 * 128 // 4 + 32, {"scale": float("nan")}, "scale"),
    ],
)
def test_bad_bytes_are_refused(type_, n_byte, kwargs, match):
    with pytest.raises(ValueError, match=match):
        TernaryMatrix.pack(type_, bytes(n_byte), 16, 128, **kwargs)


def test_infinite_scale_is_refused():
    raw = bytes(16 * 128 // 4) + struct.pack("<f", float("inf")) + bytes(28)
    with pytest.raises(ValueError, match="scale"):
        TernaryMatrix.pack("I2_S", raw, 16, 128)


def test_rows_of_a_table():
    rows = np.random.default_rng(4).normal(size=(77, 96)).astype(np.float32)
    stored = StoredRows("F32", rows.tobytes(), 77, 96)
    assert np.allclose(np.array(stored.row(5)), rows[5])
    with pytest.raises(IndexError):
        stored.row(77)
    with pytest.raises(ValueError):
        StoredRows("Q8_0", bytes(34), 1, 33)


# ---- packings of forks -----------------------------------------------------------------------------------------------


def sparse(rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
    """Weights of -1 and +1 with one zero in every four that STQ1_0 puts together."""
    weights = rng.choice(np.array([-1, 1], np.int8), (rows, k // 64, 4, 16))
    zero = rng.integers(0, 4, (rows, k // 64, 1, 16))
    np.put_along_axis(weights, zero, 0, 2)
    return weights.reshape(rows, k)


def test_forks_that_have_no_golden_bytes() -> None:
    rng = np.random.default_rng(4)
    weights, scales = rng.integers(-1, 2, (8, 192)).astype(np.int8), rng.random(8).astype(np.float32) + 0.1
    matrix = TernaryMatrix.pack("IQ2_BN_R4", iq2_bn_r4(weights, scales), 8, 192)
    assert (np.frombuffer(matrix.unpack(), np.int8).reshape(8, 192) == weights).all()
    assert matrix.scales == scales.tolist()  # one for each row
    weights, d = sparse(rng, 4, 512), (rng.random((4, 2)) + 0.1).astype(np.float16)
    matrix = TernaryMatrix.pack("STQ1_0", stq1_0(weights, d), 4, 512)
    assert (np.frombuffer(matrix.unpack(), np.int8).reshape(4, 512) == weights).all()
    assert matrix.scales == d.astype(np.float32).ravel().tolist()


@pytest.mark.parametrize("name", ["PTQ1_0", "STQ1_0", "IQ1_BN", "IQ2_BN", "IQ2_BN_R4"])
def test_forks_refuse_what_does_not_fit(name: str) -> None:
    for rows, k, data in ((4, 256, bytes(7)), (4, 100, bytes(100)), (3, 64, bytes(61))):
        with pytest.raises(ValueError, match=r"bytes|multiple|fill"):
            TernaryMatrix.pack(name, data, rows, k)
    size = {"PTQ1_0": 56, "STQ1_0": 42, "IQ1_BN": 2 + 52, "IQ2_BN": 4 + 64, "IQ2_BN_R4": 4 + 64}[name]
    for data in (bytes([255]) * 4 * size, bytes(4 * size)):  # scales that are none, or 0
        if name in ("PTQ1_0", "STQ1_0") and not any(data):
            continue
        with pytest.raises(ValueError, match="not a (positive|finite) number|not finite"):
            TernaryMatrix.pack(name, data, 4, 256)
