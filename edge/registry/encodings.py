"""The types in which tensors are stored: one row for each, from which readers, planning, building and conversion take
what they need to know.

How the bytes become numbers is in the compiled layer (``pyx/kernels/dequantize.c``, ``repack.c``), whose own tables a
test compares with this one.  docs/architecture.md has the steps for another type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Encoding(NamedTuple):
    """A stored type: blocks of values that follow one another in a row."""

    name: str
    id: int | None  # its number in GGUF files; None: it has none, or other types that are read have it, too (ids)
    span: int  # values of a block
    nbytes: int  # of a block
    use: tuple[str, ...] = ()  # where a model may have it: "matrix", "table" (embedding, head), "vector"; (): nowhere
    #: values that a code can have: 2, 3, or 4 where two bits have one that ternary models do not need; 0: floats
    levels: int = 0
    scales: str = "block"  # the part that has a scale of its own: "tensor", "row" or "block"; of types with levels
    scale_at: int = 0  # byte of a block at which its scale, a half float, begins
    #: how the kernels read it: "floats"; "codes" in blocks of 128 with their scales elsewhere; "groups" of 128 codes
    #: after their scale; "panels" of 64 rows of such groups, of any size
    layout: str = "floats"
    in_place: bool = False  # the stored bytes have this layout, so that a file's map can be read as it is
    rows: int = 1  # rows that are stored side by side, the last ones filled up
    before_row: int = 0  # bytes in front of the blocks of a row, which hold its scale
    tail: int = 0  # bytes after the last block of a tensor: its scale, and what fills them up
    ids: tuple[int, ...] = ()  # numbers that mean other types in other programs' files: the size of a tensor decides

    @property
    def number(self) -> int:
        """Its number in files that we write."""
        return self.ids[0] if self.id is None else self.id

    def size(self, dims: Sequence[int]) -> int:
        """Bytes of a tensor, dims[0] being the length of its rows.  Raises ValueError if they are not whole blocks."""
        count, k = math.prod(dims), dims[0]
        if self.scales == "tensor":  # a stream
            if count % self.span:
                raise ValueError(f"{count} weights do not fill whole bytes")
            return count // self.span * self.nbytes + self.tail
        if k % self.span:
            raise ValueError(f"rows of {k} are not a multiple of the block of {self.span}")
        n_row = -(-(count // k) // self.rows) * self.rows
        return n_row * (self.before_row + k // self.span * self.nbytes)


_MATRIX, _FLOATS, _ANY = ("matrix",), ("matrix", "table"), ("matrix", "table", "vector")

#: in the order in which messages list them; an id of several types means the first that fits
_ROWS = (
    # ternary.  I2_S is one stream of n / 4 bytes of codes, a float32 scale and 28 more bytes (microsoft/BitNet)
    Encoding("I2_S", 36, 4, 1, _MATRIX, 4, "tensor", layout="codes", in_place=True, tail=32, ids=(36,)),
    Encoding("TQ1_0", 34, 256, 54, _MATRIX, 3, scale_at=52, layout="codes"),
    Encoding("TQ2_0", 35, 256, 66, _MATRIX, 4, scale_at=64, layout="codes"),
    Encoding("HF_U8", None, 4, 1, _MATRIX, 4, "tensor", layout="codes"),  # four rows in a byte, a quarter apart
    Encoding("Q2_0", None, 64, 18, _FLOATS, 4, layout="groups", in_place=True, ids=(42,)),
    Encoding("PQ2_0", 142, 128, 34, _FLOATS, 4, layout="groups", in_place=True, ids=(42,)),
    # ours: PQ2_0 with 64 rows side by side, and with smaller groups for sums of planes (pyx/kernels/panels.h)
    Encoding("PQ2_0_R64", 342, 128, 34, _FLOATS, 4, layout="panels", in_place=True, rows=64),
    Encoding("TP64_R64", 1064, 64, 18, _MATRIX, 3, layout="panels", in_place=True, rows=64),
    Encoding("TP32_R64", 1032, 32, 10, _MATRIX, 3, layout="panels", in_place=True, rows=64),
    Encoding("STQ1_0", None, 256, 42, _MATRIX, 3, scale_at=40, layout="codes", ids=(42, 43)),
    Encoding("PTQ1_0", None, 128, 28, _MATRIX, 3, scale_at=26, layout="codes", ids=(143,)),
    Encoding("IQ1_BN", None, 64, 13, _MATRIX, 3, "row", layout="codes", before_row=2, ids=(134,)),
    Encoding("IQ2_BN", None, 64, 16, _MATRIX, 3, "row", layout="codes", before_row=4, ids=(135,)),
    Encoding("IQ2_BN_R4", None, 64, 16, _MATRIX, 3, "row", layout="codes", before_row=4, rows=4, ids=(335,)),
    # binary: weights -1 and +1.  40 is how the second was stored before that was NVFP4
    Encoding("Q1_0", None, 128, 18, _FLOATS, 2, layout="groups", ids=(41,)),
    Encoding("Q1_0_G32", None, 32, 6, _FLOATS, 2, layout="groups", ids=(40,)),
    # floats
    Encoding("F32", 0, 1, 4, _ANY),
    Encoding("F16", 1, 1, 2, _ANY),
    Encoding("BF16", 30, 1, 2, _ANY),
    Encoding("Q8_0", 8, 32, 34, _FLOATS),
    Encoding("Q6_K", 14, 256, 210, _FLOATS),
    Encoding("Q5_K", 13, 256, 176, _FLOATS),
    Encoding("Q4_K", 12, 256, 144, _FLOATS),
    Encoding("Q5_0", 6, 32, 22, _FLOATS),
    Encoding("Q5_1", 7, 32, 24, _FLOATS),
    Encoding("Q4_0", 2, 32, 18, _FLOATS),
    Encoding("Q4_1", 3, 32, 20, _FLOATS),
    Encoding("IQ4_NL", 20, 32, 18, _FLOATS),
    # of known size, and nowhere used.  Q2_0C has four levels (Tencent's files of 2 bits)
    Encoding("Q2_0C", None, 512, 130, ids=(40, 41, 42, 43)),
    Encoding("Q2_K", 10, 256, 84),
    Encoding("Q3_K", 11, 256, 110),
    Encoding("IQ2_XXS", 16, 256, 66),
    Encoding("IQ2_XS", 17, 256, 74),
    Encoding("IQ3_XXS", 18, 256, 98),
    Encoding("IQ1_S", 19, 256, 50),
    Encoding("IQ3_S", 21, 256, 110),
    Encoding("IQ2_S", 22, 256, 82),
    Encoding("IQ4_XS", 23, 256, 136),
    Encoding("I8", 24, 1, 1),
    Encoding("I16", 25, 1, 2),
    Encoding("I32", 26, 1, 4),
    Encoding("I64", 27, 1, 8),
    Encoding("F64", 28, 1, 8),
    Encoding("IQ1_M", 29, 256, 56),
)
ENCODINGS = {row.name: row for row in _ROWS}
#: number in GGUF files -> what it means in all of them
BY_ID = {row.id: row for row in _ROWS if row.id is not None}
#: the same -> what it can mean, by the program that wrote the file
MEANINGS = {number: [row for row in _ROWS if number in row.ids] for row in _ROWS for number in row.ids}


def _names(rows: Sequence[Encoding] | None = None, use: str = "matrix") -> tuple[str, ...]:
    return tuple(row.name for row in (_ROWS if rows is None else rows) if use in row.use)


TERNARY_TYPES = _names([row for row in _ROWS if row.levels])
FLOAT_TYPES = _names([row for row in _ROWS if not row.levels])
#: types in which an embedding or an output head may be stored
TABLE_TYPES = _names(use="table")
#: types that a norm (or any other vector) may have
VECTOR_TYPES = _names(use="vector")
#: binary types, which become rows of groups when they are loaded (edge.formats.matrices) -> weights that share a scale
BINARY_TYPES = {row.name: row.span for row in _ROWS if row.levels == 2}
#: rows of groups with a scale for each 64 or 128 weights
GROUP_ROWS = _names([row for row in _ROWS if row.layout == "groups" and row.in_place])
#: panels -> weights that share a scale.  A matrix may be a sum of up to four ternary ones, its planes: panels whose
#: groups of the same columns lie side by side, so that a row of K columns takes K * planes
PANEL_GROUPS = {row.name: row.span for row in _ROWS if row.layout == "panels"}
PLANE_TYPES = {span: name for name, span in PANEL_GROUPS.items()}
MOST_PLANES = 4
#: panels of groups of 128
PANELS = PLANE_TYPES[128]
#: used where they lie, as a table too
GROUP_TYPES = (*GROUP_ROWS, PANELS)
#: types whose scales lie between the codes
GROUPED_TYPES = (*GROUP_ROWS, *PANEL_GROUPS)
