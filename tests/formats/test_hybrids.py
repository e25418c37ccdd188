"""Hybrid models (Qwen3.5, Bonsai 2): gated delta layers, gated attention and rotated bases, against transformers.

The vectors are made by tests/vectors/make_families.py from the models of tests/oracles/tiny.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge.errors import InvalidFile
from edge.formats import basis
from edge.formats.gguf_header import Header, read_header
from tests.handmade import ARR, BOOL, I32, STR, U32, gguf, value
from tests.oracles import hybrid, tiny

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "families"


@pytest.mark.parametrize("name", tiny.HYBRIDS)
def test_the_oracle_says_what_transformers_says(name: str) -> None:
    """The formulas in float64 against float32 in chunks of 64: layer by layer, and every choice of 200."""
    model = tiny.HYBRIDS[name]
    oracle = hybrid.Model(model.config, tiny.weights(model))
    with np.load(VECTORS / f"{name}.npz") as stored:
        place, logits, greedy = stored["place"], stored["logits"], stored["greedy"].tolist()
        delta, attention = stored["delta"], stored["attention"]
    got, added = oracle.run(greedy[:-1])
    assert np.abs(added[0][place] - delta).max() <= 1e-5 * np.ptp(delta)
    assert np.abs(added[3][place] - attention).max() <= 1e-5 * np.ptp(attention)
    assert np.abs(got[place] - logits).max() <= 1e-5 * np.ptp(logits)
    assert got[len(tiny.LONG) - 1 :].argmax(1).tolist() == greedy[len(tiny.LONG) :] and len(greedy) == 270


def test_a_rotated_basis_is_its_own_way_back() -> None:
    """W' H s x is (W' H s) x; an embedding row z stands for s H z, and the head of the same rows takes H s x."""
    model = tiny.HYBRIDS["bonsai2"]
    name = "model.layers.0.mlp.down_proj.weight"
    codes, scales = tiny.codes_and_scales(model, name)
    stored = codes * np.repeat(scales.astype(np.float64), 128, 1)
    x = np.random.RandomState(0).randn(512)
    turned = ((tiny.signs(512) * x).reshape(-1, 128) @ tiny.transform(128)).ravel()
    assert np.abs(stored @ turned - tiny.weights(model)[name] @ x).max() <= 1e-5
    assert np.abs(tiny.transform(128) @ tiny.transform(128) - np.eye(128)).max() <= 1e-12


# ---- keys of rotated bases -------------------------------------------------------------------------------------------

PLUS_MINUS = [1, -1] * 16
WEIGHT = "blk.0.ffn_down.weight"


def rotated_header(
    path: Path, keys: dict[str, bytes | None] | None = None, tensors: tuple[str, ...] = (WEIGHT,), width: int = 32
) -> Header:
    """A header with the keys of a rotated basis; ``keys`` replace, add or (None) remove some."""
    usual = {
        "version": value(U32, 1), "block_size": value(U32, 16), "axis": value(STR, "input-last-dimension"),
        "transform": value(STR, "normalized-sylvester-walsh-hadamard"), "sign_mode": value(STR, "identity"),
        "weight_names": value(ARR, (STR, [WEIGHT])),
    }  # fmt: skip
    given = {name: content for name, content in (usual | (keys or {})).items() if content is not None}
    data = [(name, (width, 2), 1, bytes(4 * width)) for name in (*tensors, "token_embd.weight")]
    path = path / "m.gguf"
    path.write_bytes(gguf([(f"prism.hadamard.{name}", content) for name, content in given.items()], data))
    return read_header(path)


def strings(*values: str) -> bytes:
    return value(ARR, (STR, values))


EXPLICIT = {"sign_mode": value(STR, "explicit"), "sign_widths": value(ARR, (I32, [32])),
            "sign_values": value(ARR, (I32, PLUS_MINUS))}  # fmt: skip
TIED = {"version": value(U32, 2), "tied_output": value(BOOL, 1), "inverse_weight_names": strings("token_embd.weight")}


@pytest.mark.parametrize(("keys", "signs"), [
    ({}, None),
    ({"sign_widths": value(ARR, (I32, [3]))}, None),  # identity: they mean nothing
    ({"tied_output": value(BOOL, 0)}, None),
    (EXPLICIT, PLUS_MINUS),
    (EXPLICIT | {"sign_values": value(ARR, (U32, [sign % (1 << 32) for sign in PLUS_MINUS]))}, PLUS_MINUS),
    (EXPLICIT | {"sign_widths": value(ARR, (I32, [16, 32])),
                 "sign_values": value(ARR, (I32, [1] * 16 + PLUS_MINUS))}, PLUS_MINUS),
    (TIED, None),
])  # fmt: skip
def test_rotated_bases_are_read(tmp_path: Path, keys: dict[str, bytes | None], signs: list[int] | None) -> None:
    bases = basis.read(rotated_header(tmp_path, keys))
    assert set(bases.of) == {WEIGHT} | ({"token_embd.weight"} if keys is TIED else set()) and not bases.grouped
    got = bases.of[WEIGHT]
    assert got.block == 16 and (got.signs is None) == (signs is None)
    assert signs is None or [1 if sign == 1 else -1 for sign in got.signs or ()] == signs


@pytest.mark.parametrize(("keys", "word"), [
    ({"version": value(U32, 3)}, "version"), ({"version": None}, "version"), ({"version": value(STR, "1")}, "version"),
    *(({"block_size": value(U32, size)}, "block_size") for size in (0, 1, 8, 12, 24, 1 << 31)),
    ({"block_size": None}, "block_size"), ({"block_size": value(U32, 64)}, "rows of 32"),
    ({"transform": value(STR, "sylvester")}, "transform"), ({"transform": None}, "transform"),
    ({"transform": value(U32, 1)}, "transform"), ({"axis": value(STR, "output")}, "axis"),
    ({"sign_mode": value(STR, "random")}, "sign_mode"), ({"sign_mode": None}, "sign_mode"),
    ({"weight_names": None}, "weight_names"), ({"weight_names": strings()}, "weight_names"),
    ({"weight_names": value(ARR, (I32, [1]))}, "weight_names"), ({"weight_names": strings(WEIGHT, WEIGHT)}, "twice"),
    ({"weight_names": strings("token_embd.weight")}, "where it cannot be"),
    ({"weight_names": strings("blk.0.gone.weight")}, "not a matrix"),
    ({"inverse_weight_names": strings(WEIGHT)}, "inverse_weight_names"),
    ({"inverse_weight_names": strings("token_embd.weight")}, "tied_output"),
    ({"gdn_v_rotated": value(BOOL, 1)}, "gdn_v_rotated"),
    (EXPLICIT | {"sign_widths": None}, "sign_values"), (EXPLICIT | {"sign_values": None}, "sign_values"),
    *((EXPLICIT | {"sign_widths": value(ARR, (I32, widths))}, "sign_widths")
      for widths in ([6], [0], [-32], [32, 32], [1 << 30, 16 + (1 << 30)][:1] * 2)),
    (EXPLICIT | {"sign_widths": value(ARR, (I32, [1 << 30]))}, "sign_values"),
    (EXPLICIT | {"sign_widths": value(ARR, (I32, [16])), "sign_values": value(ARR, (I32, [1] * 16))}, "no signs"),
    (EXPLICIT | {"sign_values": value(ARR, (I32, [2, *PLUS_MINUS[1:]]))}, "other numbers"),
    (EXPLICIT | {"sign_values": value(ARR, (I32, PLUS_MINUS[1:]))}, "sign_values"),
    (EXPLICIT | {"sign_values": value(ARR, (I32, [*PLUS_MINUS, 1]))}, "sign_values"),
    (TIED | {"version": value(U32, 1)}, "tied_output"), (TIED | {"tied_output": None}, "tied_output"),
    (TIED | {"inverse_weight_names": None}, "tied_output"), ({"version": value(U32, 2)}, "tied_output"),
])  # fmt: skip
def test_keys_of_rotated_bases_that_refuse_the_file(
    tmp_path: Path, keys: dict[str, bytes | None], word: str
) -> None:
    with pytest.raises(InvalidFile) as refused:
        basis.read(rotated_header(tmp_path, keys))
    assert word in str(refused.value) and "\n" not in str(refused.value)


def test_matrices_with_the_same_input_have_the_same_basis(tmp_path: Path) -> None:
    names = ("blk.0.attn_qkv.weight", "blk.0.attn_gate.weight")
    keys: dict[str, bytes | None] = {"weight_names": strings(names[0])}
    with pytest.raises(InvalidFile, match="attn_gate"):
        basis.read(rotated_header(tmp_path, keys, names))
    assert set(basis.read(rotated_header(tmp_path, {"weight_names": strings(*names)}, names)).of) == set(names)
    with pytest.raises(InvalidFile, match="tied_output"):  # there is a head
        basis.read(rotated_header(tmp_path, TIED, (WEIGHT, "output.weight")))
