"""Ternary matrices with a scale for each 128 weights (Ternary-Bonsai): the blocks of files, matrices, embedding and
head, against NumPy; tests/kernels/test_kernels.py compares the kernels of all targets."""

from __future__ import annotations

import array
import dataclasses
import struct

import numpy as np
import pytest

from benchmarks import make_model
from edge.errors import InvalidFile
from edge.formats import open_checkpoint
from edge.model.weights import build
from pyx.machine import Arena
from pyx.step import Head, placement
from pyx.weights import StoredRows, TernaryMatrix, binary_groups
from tests.kernels.test_transformer import alike, logits
from tests.oracles.packings import panels, q1_0, q2_0, rounded, tq2_0
from tests.vectors.stored import TINY


def weights(n_row: int, k: int, most: int = 1) -> np.ndarray:
    """Random -1, 0, +1 as int8 [n_row][k]; +2, too, is in the formats, as code 3."""
    return np.random.default_rng(1).integers(-1, most + 1, (n_row, k)).astype(np.int8)


def halves(n_row: int, n: int) -> np.ndarray:
    """Random scales as float16 [n_row][n]."""
    return np.random.default_rng(2).uniform(0.01, 0.04, (n_row, n)).astype(np.float16)


def stored(w: np.ndarray, d: np.ndarray, block: int) -> bytes:
    """Q2_0 (blocks of 64) or PQ2_0 (128); 0: 64 rows side by side."""
    return q2_0(block, w, d) if block else panels(w, d)


def dense(w: np.ndarray, d: np.ndarray, each: int = 128) -> np.ndarray:
    """The weights as float64 [n_row][k]; each: weights that share a scale."""
    return w * np.repeat(d.astype(np.float64), each, axis=1)[:, : w.shape[1]]


def close(got: object, expected: np.ndarray) -> bool:
    return bool(np.abs(np.array(got).reshape(expected.shape) - expected).max() <= 2e-6 * np.abs(expected).max())


FILES = {"Q2_0": 64, "PQ2_0": 128, "PQ2_0_R64": 0}


@pytest.mark.parametrize("type_", FILES)
@pytest.mark.parametrize("n_token", [1, 3, 8, 40])
def test_products_of_blocks_where_they_lie(type_, n_token):
    """And of a copy of them, on any instruction set that this processor chooses."""
    w, d = weights(70, 640, most=2), halves(70, 5)
    data = stored(w, d, FILES[type_])
    matrix = TernaryMatrix.pack(type_, data, 70, 640)
    assert matrix.mapped and matrix.code_bytes == len(data) == matrix.nbytes
    assert matrix.scales == d.astype(np.float32).ravel().tolist()
    x = np.random.default_rng(3).normal(size=(n_token, 640)).astype(np.float32) * np.repeat([1, 50, 0, 1e-4, 3], 128)
    expected = np.stack([dense(w, d) @ rounded(each, 128) for each in x.astype(np.float32)])
    for _ in range(2):
        assert (np.array(matrix.unpack()).reshape(70, 640) == w).all()
        assert close(matrix.matvec(array.array("f", x.astype(np.float32).ravel()), groups=True), expected)
        assert matrix.encode_groups() == stored(w, d, 128)
        matrix.move_to(Arena(matrix.room), 0)


def test_the_same_bits_in_any_packing_and_batch():
    w, d = weights(33, 1024), halves(33, 8)
    x = np.random.default_rng(4).normal(size=(21, 1024)).astype(np.float32)
    kinds = {type_: stored(w, d, block) for type_, block in FILES.items()}
    kinds["F32"] = dense(w, d).astype(np.float32).tobytes()
    given = array.array("f", x.ravel())
    found = [TernaryMatrix.pack(type_, data, 33, 1024).matvec(given, groups=True) for type_, data in kinds.items()]
    assert len(found) == 4 and all(each == found[0] for each in found)
    one = TernaryMatrix.pack("Q2_0", kinds["Q2_0"], 33, 1024)
    for t in (0, 7, 20):
        assert one.matvec(array.array("f", x[t]), groups=True) == found[0][33 * t : 33 * (t + 1)]


@pytest.mark.parametrize("type_", FILES)
@pytest.mark.parametrize("n_row", [1, 64, 130])
def test_a_copy_is_panels_with_the_same_bits(type_, n_row):
    w, d = weights(n_row, 384), halves(n_row, 3)
    x = np.random.default_rng(5).normal(size=(19, 384)).astype(np.float32)
    matrix = TernaryMatrix.pack(type_, stored(w, d, FILES[type_]), n_row, 384)
    assert matrix.mapped and matrix.encode_panels() == stored(w, d, 0)
    before = [matrix.matvec(array.array("f", part.ravel()), groups=groups)
              for part in (x[:1], x[:5], x) for groups in (True, False)]
    with pytest.raises(ValueError, match="do not fit"):
        matrix.move_to(Arena(matrix.room - 1), 0)
    matrix.move_to(Arena(64 + matrix.room), 64)
    assert (matrix.mapped, matrix.stored) == (False, None)
    assert matrix.code_bytes == matrix.room == -(-n_row // 64) * 64 * 3 * 34
    matrix.move_to(Arena(matrix.room), 0)  # once more, as it is
    after = [matrix.matvec(array.array("f", part.ravel()), groups=groups)
             for part in (x[:1], x[:5], x) for groups in (True, False)]
    assert after == before
    assert (np.array(matrix.unpack()).reshape(n_row, 384) == w).all()
    assert matrix.scales == d.astype(np.float32).ravel().tolist()
    assert matrix.encode_groups() == stored(w, d, 128)
    assert matrix.encode_panels() == stored(w, d, 0)


@pytest.mark.parametrize("type_", ["TQ2_0", "F16", "BF16", "F32"])
def test_other_packings_become_groups(type_):
    """Scales per 256 weights count twice; those of one scale become groups when asked to."""
    w = weights(5, 512)
    d = np.array([[0.5, 0.25], [2, 1], [0.125, 1], [1, 1], [4, 0.5]], np.float16)
    if type_ == "TQ2_0":
        data = tq2_0(w, d)
    else:
        floats = dense(w, d, 256).astype(np.float16 if type_ == "F16" else np.float32)
        data = (floats.view(np.uint32) >> 16).astype(np.uint16).tobytes() if type_ == "BF16" else floats.tobytes()
    matrix = TernaryMatrix.pack(type_, data, 5, 512, quantize=False)
    assert not matrix.mapped and matrix.code_bytes == 5 * 4 * 34
    assert matrix.scales == d.astype(np.float32).ravel().tolist()
    x = np.random.default_rng(6).normal(size=512).astype(np.float32)
    given = array.array("f", x)
    assert close(matrix.matvec(given, groups=True), dense(w, d, 256) @ rounded(x, 128))
    s = 127 / np.abs(x).max()  # rounded as a whole, as BitNet models are
    assert close(matrix.matvec(given), dense(w, d, 256) @ (np.round(x * np.float32(s)) / s))


def test_one_scale_becomes_groups_when_asked_to():
    w = weights(6, 200)  # K is padded to a whole group
    plain = TernaryMatrix.pack("I8", w.tobytes(), 6, 200, scale=0.5)
    grouped = TernaryMatrix.pack("I8", w.tobytes(), 6, 200, scale=0.5, groups=True)
    x = np.random.default_rng(7).normal(size=200).astype(np.float32)
    assert close(grouped.matvec(array.array("f", x), groups=True), (w * 0.5) @ rounded(x, 128))
    with pytest.raises(ValueError, match="scales per group"):
        plain.matvec(array.array("f", x), groups=True)
    with pytest.raises(ValueError, match="one scale"):
        grouped.encode()


def test_half_a_group_at_the_end_of_a_row():
    w, d = weights(7, 320), halves(7, 3)
    matrix = TernaryMatrix.pack("Q2_0", stored(w, d, 64), 7, 320)
    assert not matrix.mapped and (np.array(matrix.unpack()).reshape(7, 320) == w).all()
    x = np.random.default_rng(8).normal(size=320).astype(np.float32)
    assert close(matrix.matvec(array.array("f", x), groups=True), dense(w, d) @ rounded(x, 128))


def test_a_factor_in_addition_to_the_scales():
    w, d = weights(7, 320), halves(7, 3)
    for type_, k in (("Q2_0", 320), ("Q2_0", 256), ("PQ2_0_R64", 256)):
        data = stored(w[:, :k], d[:, : -(-k // 128)], FILES[type_])
        matrix = TernaryMatrix.pack(type_, data, 7, k, scale=0.5)
        assert not matrix.mapped and (np.array(matrix.unpack()).reshape(7, k) == w[:, :k]).all()
        assert (np.array(TernaryMatrix.pack(type_, data, 7, k).scales) / 2 == matrix.scales).all()


def test_what_is_refused():
    data = bytearray(stored(weights(2, 256), halves(2, 2), 64))
    data[18:20] = struct.pack("<e", 9.0)
    own_scales = bytes(data)
    data[18:20] = data[0:2] = struct.pack("<e", float("nan"))
    no_number = bytes(data)
    whole = stored(weights(70, 256), halves(70, 2), 0)
    broken = [whole[:at] + struct.pack("<e", bad) + whole[at + 2 :] for bad in (float("nan"), float("-inf"))
              for at in (0, 126, 2176 + 2, 3 * 2176 + 126)]  # scales, that of a row after the last among them
    for match, type_, given, n_row, k in (
        ("blocks of 64", "Q2_0", own_scales, 2, 256), ("finite", "Q2_0", no_number, 2, 256),
        ("takes", "Q2_0", bytes(17), 1, 64), ("multiple of 128", "PQ2_0", bytes(17), 1, 64),
        ("takes 8704", "PQ2_0_R64", whole[: 70 * 2 * 34], 70, 256), ("multiple of 128", "PQ2_0_R64", whole, 70, 192),
        *(("finite", "PQ2_0_R64", each, 70, 256) for each in broken),
    ):
        with pytest.raises(ValueError, match=match):
            TernaryMatrix.pack(type_, given, n_row, k)
    for match, given, kind in (("blocks of 64", own_scales, "ternary"), ("finite", no_number, "auto")):
        with pytest.raises(ValueError, match=match):
            Head(StoredRows("Q2_0", given, 2, 256), kind)
    with pytest.raises(ValueError, match="not known"):
        placement("ternary", "F16", 4, 256, 1)
    with pytest.raises(ValueError, match="takes 8704"):
        StoredRows("PQ2_0_R64", whole[:-1], 70, 256)
    with pytest.raises(ValueError, match="holds a scale for each 128"):
        TernaryMatrix.pack("I8", bytes(256), 2, 128).encode_panels()


def test_a_damaged_head_is_named(tmp_path):
    """Reading a file checks its first scales; those after them are checked where the head is made."""
    make_model.make(tmp_path / "m.gguf", "tiny-qwen3", "PQ2_0", "PQ2_0")
    tensor = open_checkpoint(tmp_path / "m.gguf").tensors["token_embd.weight"]
    data = (tmp_path / "m.gguf").read_bytes()
    at = data.find(bytes(tensor.data[-4096:])) + 4096 - 34
    (tmp_path / "m.gguf").write_bytes(data[:at] + struct.pack("<e", float("inf")) + data[at + 2 :])
    with pytest.raises(InvalidFile, match=r"^tensor token_embd\.weight: a block scale is not a finite"):
        build(open_checkpoint(tmp_path / "m.gguf"))


@pytest.mark.parametrize("type_", FILES)
def test_a_ternary_embedding(type_):
    w, d = weights(200, 384, most=2), halves(200, 3)
    given = StoredRows(type_, stored(w, d, FILES[type_]), 200, 384)
    assert np.array([given.row(row) for row in range(200)]).tolist() == dense(w, d).tolist()


@pytest.mark.parametrize("type_", FILES)
def test_a_ternary_head(type_):
    w, d = weights(515, 256), halves(515, 2)
    data = stored(w, d, FILES[type_])
    head = Head(StoredRows(type_, data, 515, 256), "auto", 2)
    assert (head.kind, head.mapped, head.nbytes, head.allocated) == ("ternary", True, len(data), 0)
    x = np.random.default_rng(9).normal(size=(5, 256)).astype(np.float32)
    expected = np.stack([dense(w, d) @ rounded(each, 128) for each in x])
    given = array.array("f", x.ravel())
    got = head.apply(given)
    assert close(got, expected) and head.apply(given, n_threads=2) == got == head.apply(given, top=3)
    assert head.apply(array.array("f", x[4])) == got[4 * 515 :]
    head.matrix.move_to(Arena(head.matrix.room), 0)
    copied = placement("auto", type_, 515, 256, 2).copied
    assert (head.mapped, head.nbytes, head.allocated) == (False, copied, copied)
    assert head.apply(given) == got == head.apply(given, n_threads=2)
    assert head.apply(array.array("f", x[4])) == got[4 * 515 :]
    as_int8 = Head(StoredRows(type_, data, 515, 256), "int8")
    error = np.array(as_int8.apply(given)).reshape(5, 515) - x @ dense(w, d).T
    assert np.abs(error).max() < 0.02 * np.abs(expected).max()
    assert Head(StoredRows("Q2_0", bytes(18 * 3), 1, 192), "auto").kind == "int8"  # rows that do not fill whole groups


def test_a_model_rounded_by_groups():
    """Near the answers of the model rounded as a whole, and the same bits for any threads and chunks."""
    checkpoint = open_checkpoint(next(each for each in TINY if "relu2" in each.name and "i2s128.f16" in each.name))
    ids = [(7 * i * i + 3 * i) % 500 for i in range(50)]
    whole = logits(build(checkpoint, head="native"), checkpoint.config, ids)
    checkpoint.config = dataclasses.replace(checkpoint.config, activation_quant="int8-128")
    assert 0 < np.abs(alike(checkpoint) - whole).max() < 0.05 * np.ptp(whole)


def test_files_of_either_block(tmp_path):
    """The same weights as Q2_0, PQ2_0 and TQ2_0: the same answers, the first two from the file's map."""
    found = {}
    for kind in ("Q2_0", "PQ2_0", "TQ2_0"):
        make_model.make(tmp_path / kind, "tiny-qwen3", kind, "Q2_0")
        checkpoint = open_checkpoint(tmp_path / kind)
        assert checkpoint.config.activation_quant == "int8-128"
        model = build(checkpoint)
        assert (model.head.kind, model.head.allocated) == ("ternary", 0)
        assert (model.weight_bytes_allocated == 0) == (kind != "TQ2_0")
        found[kind] = logits(model, checkpoint.config, [1, 5, 77, 200, 3, 9, 150, 42]).tobytes()
    assert found["Q2_0"] == found["PQ2_0"] == found["TQ2_0"]


# ---- Q1_0: a bit for each weight -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_row", "k"), [(1, 128), (5, 384), (64, 1024), (130, 256)])
def test_binary_blocks_become_groups(n_row, k):
    w, d = 2 * np.random.default_rng(k).integers(0, 2, (n_row, k)).astype(np.int8) - 1, halves(n_row, k // 128)
    data = q1_0(w, d)
    assert len(data) == n_row * k // 128 * 18
    groups = binary_groups(data)
    assert bytes(groups) == stored(w, d, 128)
    matrix = TernaryMatrix.pack("PQ2_0", memoryview(groups), n_row, k)
    assert (np.array(matrix.unpack()).reshape(n_row, k) == w).all() and matrix.scales == d.astype("f4").ravel().tolist()
    x = np.random.default_rng(1).normal(size=k).astype(np.float32)
    assert close(matrix.matvec(array.array("f", x), groups=True), dense(w, d) @ rounded(x, 128))
    rows = StoredRows("Q1_0", data, n_row, k)
    for row in {0, n_row // 2, n_row - 1}:
        assert (np.array(rows.row(row)) == dense(w, d)[row].astype(np.float32)).all()
    for wrong in (data[:-1], b""):
        with pytest.raises(ValueError, match="whole groups of 128"):
            binary_groups(wrong)


def test_early_binary_blocks_become_groups():
    """Blocks of 32, the first form of Q1_0: four have the scale of a group, or the tensor is refused."""
    n_row, k = 3, 384
    w, d = 2 * np.random.default_rng(k).integers(0, 2, (n_row, k)).astype(np.int8) - 1, halves(n_row, k // 128)
    data = np.frombuffer(q1_0(w, d, 32), np.uint8).reshape(n_row, -1, 6)
    assert data.nbytes == n_row * k // 32 * 6
    assert bytes(binary_groups(data.tobytes(), 32)) == stored(w, d, 128)
    other = data.copy()
    other[1, 6, 0] ^= 1
    with pytest.raises(ValueError, match="blocks of 32 weights have scales of their own"):
        binary_groups(other.tobytes(), 32)
    rows = StoredRows("Q1_0_G32", other.tobytes(), n_row, k)  # a row that is looked up may have any
    scales = other[..., :2].copy().view("<f2")[..., 0]
    assert (np.array(rows.row(1)) == w[1] * np.repeat(scales.astype(np.float32), 32, 1)[1]).all()
    with pytest.raises(ValueError, match="blocks of 64"):
        binary_groups(data.tobytes(), 64)
