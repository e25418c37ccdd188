"""Stored types: the compiled tables are those of edge/registry/encodings.py, and what is unpacked has the bits that the
gguf package gives."""

from __future__ import annotations

import numpy as np
import pytest

from edge.registry.encodings import BINARY_TYPES, ENCODINGS, FLOAT_TYPES, GROUP_TYPES, PANEL_GROUPS
from pyx import step, weights
from pyx.weights import StoredRows, TernaryMatrix


def test_the_compiled_tables_are_the_same() -> None:
    rows = {name: ENCODINGS[name] for name in (*FLOAT_TYPES, *BINARY_TYPES, *GROUP_TYPES)}
    assert weights.ROW_TYPES == {name: (e.span, e.nbytes, e.levels, e.rows) for name, e in rows.items()}
    # those with panels and groups are read as they are; I2_S and HF_U8 have no blocks
    blocks = [e for e in ENCODINGS.values() if e.layout == "codes" and e.scales != "tensor"]
    assert weights.BLOCKS == {e.name: (e.span, e.nbytes, e.before_row, e.rows) for e in blocks}
    assert weights.PANEL_GROUPS == PANEL_GROUPS
    assert weights.FLOATS == FLOAT_TYPES
    assert set(step.TERNARY_ROWS) == set(GROUP_TYPES)


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
