"""Stored types and packed matrices: golden bytes, what the gguf package gives, products against NumPy in float64."""

from __future__ import annotations

import array
import dataclasses
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import InvalidFile
from edge.formats import open_checkpoint
from edge.model.weights import build
from edge.registry.encodings import BINARY_TYPES, ENCODINGS, FLOAT_TYPES, GROUP_TYPES, PANEL_GROUPS
from edge.tools.convert import convert
from pyx import weights as compiled
from pyx.step import TERNARY_ROWS
from pyx.weights import StoredRows, TernaryMatrix
from tests.handmade import STR, model, value
from tests.kernels.test_transformer import logits
from tests.oracles.attention import log_softmax
from tests.oracles.forward import Model
from tests.oracles.packings import iq2_bn_r4, stq1_0
from tests.vectors.stored import VECTORS


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


def stream(weights: np.ndarray, quarter: int) -> bytes:
    """The element stream of I2_S in blocks of 4 * quarter, with its scale."""
    groups = (weights.reshape(-1) + 1).astype(np.uint8).reshape(-1, 4, quarter)
    codes = groups[:, 0] << 6 | groups[:, 1] << 4 | groups[:, 2] << 2 | groups[:, 3]
    return codes.tobytes() + scale(1)


def scale(value: float) -> bytes:
    """The end of a tensor in I2_S."""
    return struct.pack("<f", value) + bytes(28)


@pytest.mark.parametrize(("n_row", "k"), [(16, 200), (32, 5460), (4, 8640), (64, 96), (32, 4), (128, 1)])
def test_rows_that_fill_no_blocks(n_row, k):
    """The stream of I2_S runs across the rows, ours are padded with weight 0."""
    w = random_weights(n_row, k)
    quads, far = ((w + 1).astype(np.uint8).reshape(shape) for shape in ((-1, 4, k), (4, -1, k)))
    quads = quads[:, 0] << 6 | quads[:, 1] << 4 | quads[:, 2] << 2 | quads[:, 3]
    far = far[0] | far[1] << 2 | far[2] << 4 | far[3] << 6
    for type_, layout, data in (
        ("I2_S", "128", stream(w, 32)), ("I2_S", "64", stream(w, 16)),
        ("I2_S", "1x4", quads.tobytes() + scale(1)), ("HF_U8", "128", far.tobytes()),
    ):
        assert (unpacked(TernaryMatrix.pack(type_, data, n_row, k, layout=layout)) == w).all(), (type_, layout)


def test_a_matrix_i2s_cannot_hold_is_refused():
    """A flat stream of 2400 codes would need 18.75 blocks: the last one cannot be cut without loss."""
    with pytest.raises(ValueError, match="128"):
        pack(random_weights(12, 200)).encode()
    with pytest.raises(ValueError, match="128"):
        TernaryMatrix.pack("I2_S", bytes(2400 // 4) + scale(1), 12, 200)


def test_golden_bytes():
    """tests/vectors/pack_vectors.json: an 8 x 256 matrix in the packings of other programs."""
    vectors = json.loads((VECTORS / "pack_vectors.json").read_text())
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
    dense = w * scales[:, None]
    x = np.random.default_rng(9).normal(size=matrix.k).astype(np.float32)
    s = 127 / max(np.abs(x).max(), 1e-5)
    expected = dense.astype(np.float64) @ (np.round(x * np.float32(s)) / s)
    got = np.array(matrix.matvec(array.array("f", x)))
    assert np.abs(got - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1)


@pytest.mark.parametrize(
    "type_,data,kwargs,match",
    [
        ("I2_S", bytes(512 + 31), {}, "bytes"),
        ("I2_S", bytes(512) + scale(0), {}, "scale"),
        ("I2_S", bytes(512) + scale(float("inf")), {}, "scale"),
        ("I2_S", bytes(512) + scale(1), {"scale": float("nan")}, "scale"),
        ("HF_U8", bytes(5), {}, "bytes"),
        ("TQ2_0", bytes(5), {}, "256"),
        ("Q4_0", bytes(5), {}, "takes 1152"),
        ("Q3_K", bytes(5), {}, "ternary"),
    ],
)
def test_bad_bytes_are_refused(type_, data, kwargs, match):
    with pytest.raises(ValueError, match=match):
        TernaryMatrix.pack(type_, data, 16, 128, **kwargs)


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
    assert (unpacked(matrix) == weights).all()
    assert matrix.scales == scales.tolist()  # one for each row
    weights, d = sparse(rng, 4, 512), (rng.random((4, 2)) + 0.1).astype(np.float16)
    matrix = TernaryMatrix.pack("STQ1_0", stq1_0(weights, d), 4, 512)
    assert (unpacked(matrix) == weights).all()
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


# ---- all stored types ------------------------------------------------------------------------------------------------


def test_the_compiled_tables_are_the_same() -> None:
    rows = {name: ENCODINGS[name] for name in (*FLOAT_TYPES, *BINARY_TYPES, *GROUP_TYPES)}
    assert compiled.ROW_TYPES == {name: (e.span, e.nbytes, e.levels, e.rows) for name, e in rows.items()}
    # those with panels and groups are read as they are; I2_S and HF_U8 have no blocks
    blocks = [e for e in ENCODINGS.values() if e.layout == "codes" and e.scales != "tensor"]
    assert compiled.BLOCKS == {e.name: (e.span, e.nbytes, e.before_row, e.rows) for e in blocks}
    assert compiled.PANEL_GROUPS == PANEL_GROUPS
    assert compiled.FLOATS == FLOAT_TYPES
    assert set(TERNARY_ROWS) == set(GROUP_TYPES)


def test_numbers_and_sizes_are_those_of_the_gguf_package() -> None:
    gguf = pytest.importorskip("gguf", reason="needs the gguf package (dev dependency)")
    for kind, (span, nbytes) in gguf.GGML_QUANT_SIZES.items():
        if kind.name in ENCODINGS:
            e = ENCODINGS[kind.name]
            assert (e.span, e.nbytes) == (span, nbytes) and int(kind) in (e.id, *e.ids), kind


@pytest.mark.parametrize("name", FLOAT_TYPES)
def test_floats_against_gguf(name: str) -> None:
    """Random bytes, so every code, sub-scale, denormal and infinity occurs; equal bits, NaN where gguf has NaN."""
    gguf = pytest.importorskip("gguf", reason="needs the gguf package (dev dependency)")
    k, n_row = 1024, 64
    size = ENCODINGS[name].size((k, 1))
    rows = np.random.default_rng(ENCODINGS[name].number).integers(0, 256, (n_row, size), dtype=np.uint8)
    if name in ("F32", "F16"):
        want = rows.view(np.float32 if name == "F32" else np.float16).astype(np.float32)
    else:
        with np.errstate(all="ignore"):
            want = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[name]).astype(np.float32)
    stored = StoredRows(name, rows, n_row, k)
    got = np.array([stored.row(i) for i in range(n_row)], np.float32)
    nan = np.isnan(want)
    assert 0 < (~nan).mean() <= 1 and (np.isnan(got) == nan).all()
    assert (got.view(np.uint32)[~nan] == want.view(np.uint32)[~nan]).all()
    with pytest.raises(IndexError):
        stored.row(n_row)
    if ENCODINGS[name].span > 1:
        with pytest.raises(ValueError, match="whole"):
            StoredRows(name, rows, n_row, k + 1)


@pytest.mark.parametrize("name", ["TQ1_0", "TQ2_0"])
def test_ternary_blocks_against_gguf(name: str) -> None:
    """Random blocks through gguf-py's quantiser; each block has its own scale, one is all zero."""
    gguf = pytest.importorskip("gguf", reason="needs the gguf package (dev dependency)")
    rng = np.random.default_rng(5)
    weights = rng.integers(-1, 2, (6, 1024)).astype(np.int8)
    weights[2, 256:512] = 0
    scale = np.repeat(rng.uniform(0.01, 2.0, (6, 4)).astype(np.float16).astype(np.float32), 256, axis=1)
    source = np.ascontiguousarray(gguf.quants.quantize(weights * scale, gguf.GGMLQuantizationType[name]).view(np.uint8))
    matrix = TernaryMatrix.pack(name, source, 6, 1024)
    assert (np.array(matrix.unpack()).reshape(6, 1024) == weights).all()
    want = scale[:, ::256].copy()
    want[2, 1] = 0.0
    assert (np.array(matrix.scales, np.float32).reshape(6, 4) == want).all()


# ---- other activations than b1.58: BitNet a4.8 -----------------------------------------------------------------------


def errors(checkpoint, prompts: list[list[int]], kind: str, against: str) -> np.ndarray:
    """KL of every position: NumPy's forward pass of one kind of activations, the engine's of another."""
    checkpoint.config = dataclasses.replace(checkpoint.config, activation_quant=kind)
    expected = [Model(checkpoint).logits(ids) for ids in prompts]
    checkpoint.config = dataclasses.replace(checkpoint.config, activation_quant=against)
    model = build(checkpoint, head="native", n_threads=2)
    got = [logits(model, checkpoint.config, ids) for ids in prompts]
    a, b = log_softmax(np.concatenate(expected)), log_softmax(np.concatenate(got))
    return (np.exp(a) * (a - b)).sum(-1)


def test_a48_is_the_formula_of_the_paper(tmp_path, bundled_model):
    """Against NumPy in float64, which no other rounding of activations comes near."""
    (tmp_path / "one.gguf").write_bytes(model())
    one = errors(open_checkpoint(tmp_path / "one.gguf"), [[token] for token in range(3, 16)], "a4.8", "a4.8")
    assert one.max() < 1e-9
    kiosk, prompts = open_checkpoint(bundled_model), np.random.default_rng(1).integers(300, 4000, (3, 3)).tolist()
    assert errors(kiosk, prompts, "a4.8", "a4.8").max() < 1e-9 < 0.1 < errors(kiosk, prompts, "a4.8", "int8").mean()


def test_a48_survives_conversion_and_unknown_kinds_are_refused(tmp_path):
    key = "bitnet-b1.58.activation_quantization"
    (tmp_path / "a.gguf").write_bytes(model(keys={key: value(STR, "a4.8")}))
    (tmp_path / "b.gguf").write_bytes(model(keys={key: value(STR, "a3")}))
    convert(tmp_path / "a.gguf", tmp_path / "c.gguf")
    assert open_checkpoint(tmp_path / "c.gguf").config.activation_quant == "a4.8"
    with pytest.raises(InvalidFile, match="'a3'"):
        open_checkpoint(tmp_path / "b.gguf")
