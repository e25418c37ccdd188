"""Sums of ternary matrices (planes): the tensors of files, products and whole models against NumPy, what is refused.

tests/kernels/test_kernels.py compares the kernels of all targets."""

from __future__ import annotations

import array
import dataclasses
import struct
from pathlib import Path

import numpy as np
import pytest

from edge.errors import InvalidFile
from edge.formats import container, open_checkpoint
from edge.formats.container import Entry
from edge.model.footprint import footprint
from edge.model.weights import build
from edge.registry.encodings import PLANE_TYPES
from pyx.machine import Arena
from pyx.weights import TernaryMatrix, pack_planes
from tests.configs import held, planned
from tests.kernels.test_transformer import alike, logits
from tests.oracles import family
from tests.oracles.packings import plane_panels, rounded

IDS = [1, 5, 77, 200, 3, 9, 150, 42]
GROUPS = (32, 64, 128)


def drawn(n_plane: int, n_row: int, k: int, group: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Codes -1, 0, +1 as int8 [n_plane][n_row][k], and scales that a half holds as float32 [n_plane][n_row][k / group];
    each plane has about a third of the scale of the one before."""
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.5, 1.5, (n_plane, n_row, k // group)) * 0.05 / 3 ** np.arange(n_plane)[:, None, None]
    return (rng.integers(-1, 2, (n_plane, n_row, k)).astype(np.int8), scales.astype(np.float16).astype(np.float32))


def summed(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The sum of the planes as float64 [n_row][k]."""
    return (codes * np.repeat(scales.astype(np.float64), codes.shape[2] // scales.shape[2], axis=2)).sum(0)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("n_plane", [1, 2, 3, 4])
def test_a_sum_of_planes(group, n_plane):
    """In place, copied, alone and in a batch: the sum of the planes times the rounded vectors, the same bits."""
    k = 5 * group if group == 128 else 320
    codes, scales = drawn(n_plane, 70, k, group)
    data = pack_planes(codes, scales, n_plane, 70, k, group)
    assert data == plane_panels(codes, scales, group)
    matrix = TernaryMatrix.pack(PLANE_TYPES[group], data, 70, k, planes=n_plane)
    assert (matrix.mapped, matrix.n_plane, matrix.group, matrix.k) == (True, n_plane, group, k)
    assert matrix.code_bytes == matrix.nbytes == matrix.room == len(data)
    for got, given in zip(matrix.unpack_planes(), (codes, scales), strict=True):
        assert (np.array(got).reshape(given.shape) == given).all()
    assert np.allclose(np.array(matrix.sum_planes()).reshape(70, k), summed(codes, scales), rtol=1e-6, atol=1e-8)
    assert matrix.encode_panels() == data
    x = np.random.default_rng(3).normal(size=(19, k)).astype(np.float32)
    x[:, :group] *= 50
    x[:, group : 2 * group] = 0
    expected = rounded(x, group) @ summed(codes, scales).T
    got = matrix.matvec(array.array("f", x.ravel()), groups=True)
    size = np.abs(rounded(x, group)) @ np.abs(summed(codes, scales)).T
    assert (np.abs(np.array(got).reshape(19, 70) - expected) <= 1e-5 * size).all()
    matrix.move_to(Arena(64 + matrix.room), 64)
    assert not matrix.mapped and matrix.matvec(array.array("f", x.ravel()), groups=True) == got
    for t in (0, 7, 18):
        assert matrix.matvec(array.array("f", x[t]), groups=True) == got[70 * t : 70 * (t + 1)]


def test_planes_that_are_refused():
    codes, scales = drawn(2, 3, 64, 32)
    good = (codes, scales, 2, 3, 64, 32)
    for at, value, match in (
        (2, 0, "1 to 4"), (2, 5, "1 to 4"), (3, 0, "out of range"), (4, 48, "multiple of 32"), (5, 48, "32, 64 or 128"),
        (5, 0, "32, 64 or 128"), (4, 32, "int8 codes"), (0, codes * 2, "code"), (1, -scales - 1, "scale"),
        (0, codes.astype(np.float32), "int8 codes"), (1, scales * np.float32("nan"), "scale"),
        (1, scales + np.float32(65520), "scale"), (1, scales.astype(np.float64), "float32 scales"),
    ):
        given = list(good)
        given[at] = value
        with pytest.raises(ValueError, match=match) as caught:
            pack_planes(*given)
        assert "\n" not in str(caught.value)
    data = pack_planes(*good)
    for type_, k, planes, match in (
        ("TP32_R64", 64, 1, "takes"), ("TP32_R64", 64, 3, "takes"), ("TP32_R64", 64, 0, "1 to 4"),
        ("TP32_R64", 64, 5, "1 to 4"), ("TP32_R64", 48, 2, "multiple of 32"), ("TP64_R64", 96, 1, "multiple of 64"),
        ("I8", 64, 2, "holds no planes"), ("PQ2_0", 128, 2, "holds no planes"),
    ):
        with pytest.raises(ValueError, match=match):
            TernaryMatrix.pack(type_, data, 3, k, planes=planes)
    for bad in (float("nan"), float("inf"), float("-inf")):
        for at in (0, 126, 640, 3 * 640 + 4):
            with pytest.raises(ValueError, match="finite"):
                TernaryMatrix.pack("TP32_R64", data[:at] + struct.pack("<e", bad) + data[at + 2 :], 3, 64, planes=2)
    matrix = TernaryMatrix.pack("TP32_R64", data, 3, 64, planes=2)
    with pytest.raises(ValueError, match="rounded in such groups"):
        matrix.matvec(array.array("f", bytes(4 * 64)))
    with pytest.raises(ValueError, match="sum of several"):
        matrix.unpack()
    with pytest.raises(ValueError, match="PQ2_0 holds"):
        matrix.encode_groups()


# ---- whole models ----------------------------------------------------------------------------------------------------

#: a llama of 192 columns (6 groups of 32, 3 of 64) and, for groups of 128, of 256
WIDTHS = {group: {"hidden": hidden, "kv": hidden // 2, "ffn": 384} for group, hidden in (
    (32, 192), (64, 192), (128, 256))}
SHAPES = {
    "attn_q": ("hidden", "hidden"), "attn_k": ("kv", "hidden"), "attn_v": ("kv", "hidden"),
    "attn_output": ("hidden", "hidden"), "ffn_gate": ("ffn", "hidden"), "ffn_up": ("ffn", "hidden"),
    "ffn_down": ("hidden", "ffn"),
}
N_VOCAB = 256


def model_file(path: Path, group: int, **changed: object) -> dict[str, np.ndarray]:
    """Write a tiny llama of planes, a different number of them in each matrix; returns the weights as floats by name.

    ``changed``: "tensors", entries that replace those of their name, and "keys".
    """
    width = WIDTHS[group]
    rng = np.random.default_rng(5)
    floats: dict[str, np.ndarray] = {}
    entries = []

    def vector(name: str) -> None:
        floats[name] = (1 + 0.1 * rng.normal(size=width["hidden"])).astype(np.float32)
        entries.append(Entry(name, "F32", floats[name].shape, floats[name].tobytes()))

    table = rng.normal(size=(N_VOCAB, width["hidden"])).astype(np.float16)
    floats["token_embd.weight"] = table.astype(np.float64)
    entries.append(Entry("token_embd.weight", "F16", table.shape, table.tobytes()))
    for i in range(2):
        vector(f"blk.{i}.attn_norm.weight")
        vector(f"blk.{i}.ffn_norm.weight")
        for number, (name, (out, inner)) in enumerate(SHAPES.items()):
            n_plane, rows, k = 1 + (number + i) % 4, width[out], width[inner]
            codes, scales = drawn(n_plane, rows, k, group, seed=10 * i + number)
            key = f"blk.{i}.{name}.weight"
            floats[key] = summed(codes, scales)
            entries.append(Entry(
                key, PLANE_TYPES[group], (rows, k * n_plane), pack_planes(codes, scales, n_plane, rows, k, group)))
    vector("output_norm.weight")
    keys = {
        "general.architecture": "llama", "llama.context_length": 512, "llama.embedding_length": width["hidden"],
        "llama.block_count": 2, "llama.feed_forward_length": width["ffn"], "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 1e5, "tokenizer.ggml.model": "no_vocab", "bitnet-edge.planes.group": group,
    }
    replaced = {entry.name: entry for entry in changed.get("tensors", ())}
    keys = {key: value for key, value in (keys | changed.get("keys", {})).items() if value is not None}
    container.write(path, keys, [replaced.get(entry.name, entry) for entry in entries])
    return floats


@pytest.mark.parametrize("group", GROUPS)
def test_a_model_of_planes_against_numpy(tmp_path, group):
    """Rounded per group, and with float activations; the weights lie in the map, and the plan is exact; the same bits
    for any threads and chunks."""
    floats = model_file(tmp_path / "m.gguf", group)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    config = checkpoint.config
    assert (config.planes, config.activation_quant, config.activation_group) == (group, f"int8-{group}", group)
    model = build(checkpoint, head="f32")
    expected = family.Model(config, floats, f"int8-{group}").logits(IDS)
    difference = np.abs(logits(model, config, IDS) - expected).max(1) / np.ptp(expected)
    assert difference.max() <= 1e-2 and np.median(difference) <= 1e-5
    assert model.weight_bytes_allocated == 0
    stored = sum(len(tensor.data) for name, tensor in checkpoint.tensors.items()
                 if tensor.type == PLANE_TYPES[group] and name.startswith("blk."))
    assert model.weight_bytes == stored
    for weights in ("map", "huge"):
        assert planned(footprint(checkpoint, "f32", weights)) == held(model, weights == "huge"), weights
    exact = open_checkpoint(tmp_path / "m.gguf")
    exact.config = dataclasses.replace(exact.config, activation_quant="none")
    got = logits(build(exact, head="f32"), exact.config, IDS)
    assert np.abs(got - family.Model(config, floats).logits(IDS)).max() <= 1e-5 * np.ptp(expected)
    alike(checkpoint, n=N_VOCAB)


def planes_of(name: str, rows: int, k: int, group: int = 32, n_plane: int = 1) -> Entry:
    """A tensor in a file."""
    data = pack_planes(*drawn(n_plane, rows, k, group), n_plane, rows, k, group)
    return Entry(f"{name}.weight", PLANE_TYPES[group], (rows, k * n_plane), data)


def with_scale(entry: Entry, at: int, scale: float) -> Entry:
    """The same with another scale at this byte."""
    data = bytearray(entry.data)
    data[at : at + 2] = struct.pack("<e", scale)
    return entry._replace(data=bytes(data))


#: what is changed in a file with groups of 32 -> what the one line must name
HOSTILE = {
    "group 48": ({"keys": {"bitnet-edge.planes.group": 48}}, "planes with a scale per 48 weights are not supported"),
    "group 0": ({"keys": {"bitnet-edge.planes.group": 0}}, "does not say that its matrices are sums of planes"),
    "a word": ({"keys": {"bitnet-edge.planes.group": "32"}}, "planes.group.* is not an integer"),
    "another group": ({"keys": {"bitnet-edge.planes.group": 64}}, "attn_q.weight is stored as TP32_R64"),
    "no group": ({"keys": {"bitnet-edge.planes.group": None}}, "does not say that its matrices are sums of planes"),
    "other activations": ({"keys": {"llama.activation_quantization": "int8-64"}}, "int8-64"),
    "five planes": ({"tensors": [planes_of("blk.1.attn_k", 96, 320, 32, 3)]}, "1 to 4 planes"),
    "half a plane": ({"tensors": [planes_of("blk.1.attn_k", 96, 96)]}, "1 to 4 planes"),
    "one and a half": ({"tensors": [planes_of("blk.1.attn_k", 96, 288)]}, "1 to 4 planes"),
    "fewer rows": ({"tensors": [planes_of("blk.1.attn_k", 64, 192)]}, "1 to 4 planes"),
    "mixed groups": ({"tensors": [planes_of("blk.1.attn_k", 96, 192, 64)]},
                     "blk.1.attn_k.weight is stored as TP64_R64"),
    "a float matrix": ({"tensors": [Entry("blk.1.attn_k.weight", "F16", (96, 192), bytes(2 * 96 * 192))]},
                       "blk.1.attn_k.weight is stored as F16"),
    "a ternary embedding": ({"tensors": [planes_of("token_embd", N_VOCAB, 192)]},
                            "token_embd.weight is stored as TP32_R64"),
    "NaN at the beginning": ({"tensors": [with_scale(planes_of("blk.0.attn_q", 192, 192), 0, float("nan"))]},
                             "blk.0.attn_q.weight has scale nan"),
    "infinity at the end": ({"tensors": [with_scale(planes_of("blk.0.attn_q", 192, 192), -640, float("inf"))]},
                            "blk.0.attn_q.weight: a block scale is not a finite"),
    "a width of no whole groups": (
        {"tensors": [planes_of(f"blk.{i}.{name}", WIDTHS[32][out], 384, 128) for i in range(2)
                     for name, (out, _) in SHAPES.items()], "keys": {"bitnet-edge.planes.group": 128}},
        "192 columns, not a multiple of 128"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_files_of_planes_that_are_refused(tmp_path, name):
    changed, match = HOSTILE[name]
    model_file(tmp_path / "m.gguf", 32, **changed)
    with pytest.raises(InvalidFile, match=match) as caught:
        build(open_checkpoint(tmp_path / "m.gguf"))
    assert "\n" not in str(caught.value)
