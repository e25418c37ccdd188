"""Rotated bases: matrices that are stored for activations after a Walsh-Hadamard transform (``prism.hadamard.*``).

A matrix W' in such a basis is multiplied with H (s * x) instead of x: H transforms each block of ``block`` values, s is
+-1 for each value.  An embedding row z in it stands for s * (H z).  So a basis is a property of a matrix, whatever
architecture it belongs to.  Keys that are not understood refuse the file: answers would be garbage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge.formats.checkpoint import Basis
from edge.formats.container import Header
from edge.formats.mapped import shown

PREFIX = "prism.hadamard."
EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"
#: sizes of blocks that the kernels transform: powers of two
LEAST_BLOCK, MOST_BLOCK = 16, 65536
_KEYS = ("version", "block_size", "transform", "axis", "sign_mode", "sign_widths", "sign_values", "weight_names",
         "inverse_weight_names", "gdn_v_grouped", "tied_output")
_SIGNS = (1, -1, 0xFFFFFFFF)  # some writers store them as unsigned numbers
_TRANSFORM, _AXIS = "normalized-sylvester-walsh-hadamard", "input-last-dimension"
#: matrices of a layer that have the same input, so that it is transformed once
_TOGETHER = (("attn_q", "attn_k", "attn_v"), ("attn_qkv", "attn_gate"), ("ffn_gate", "ffn_up"))


def read(header: Header) -> tuple[dict[str, Basis], bool]:
    """The bases of the tensors that have one, and whether the columns of ssm_out are in the order of Hugging Face: the
    value heads of a key head together.  Raises InvalidFile that names the key or tensor.
    """
    keys = [key for key in header.metadata if key.startswith(PREFIX)]
    if not keys:
        return {}, False
    unknown = next((key for key in keys if key[len(PREFIX) :] not in _KEYS), None)
    if unknown is not None:
        header.fail(f"{shown(unknown)} is not known, and changes how its weights are meant; update bitnet-edge")
    version, block = header.integer(f"{PREFIX}version"), header.integer(f"{PREFIX}block_size") or 0
    if version not in (1, 2):
        header.fail(f"{PREFIX}version is {version}, of which 1 and 2 are known; update bitnet-edge")
    if block & (block - 1) or not LEAST_BLOCK <= block <= MOST_BLOCK:
        header.fail(f"{PREFIX}block_size is {block}, not a power of two from {LEAST_BLOCK} to {MOST_BLOCK}")
    for key, known in (("transform", _TRANSFORM), ("axis", _AXIS)):
        said = header.text(f"{PREFIX}{key}")
        if said != known:
            header.fail(f"{PREFIX}{key} is {shown(said or 'missing')}; only {known} is supported")
    signs = _signs(header, block)
    bases: dict[str, Basis] = {}
    names, inverse = header.strings(f"{PREFIX}weight_names"), header.strings(f"{PREFIX}inverse_weight_names")
    if not names:
        header.fail(f"{PREFIX}weight_names is missing or empty; get the file again")
    if any(name != EMBEDDING for name in inverse):
        header.fail(f"{PREFIX}inverse_weight_names has another tensor than {EMBEDDING}, which is not supported")
    for name in (*names, *inverse):
        if name in bases or (name == EMBEDDING and name not in inverse):
            header.fail(f"{PREFIX}weight_names has {shown(name)} twice, or where it cannot be; the file is damaged")
        bases[name] = _basis(header, name, block, signs)
    if header.flag(f"{PREFIX}tied_output", False) is not (EMBEDDING in bases and OUTPUT not in header.tensors):
        header.fail(f"{PREFIX}tied_output contradicts its {OUTPUT} or its embedding; get the file again")
    _check_together(header, bases)
    return bases, bool(header.flag(f"{PREFIX}gdn_v_grouped", False))


def _signs(header: Header, block: int) -> dict[int, Sequence[int]] | None:
    """Width -> signs; None if all are 1."""
    mode = header.text(f"{PREFIX}sign_mode")
    if mode == "identity":
        return None
    if mode != "explicit":
        header.fail(f"{PREFIX}sign_mode is {shown(mode or 'missing')}; identity and explicit are supported")
    widths, values = header.numbers(f"{PREFIX}sign_widths"), header.numbers(f"{PREFIX}sign_values")
    found: dict[int, Sequence[int]] = {}
    start = 0
    for width in widths:
        if not isinstance(width, int) or width <= 0 or width % block or width in found:
            header.fail(f"{PREFIX}sign_widths has {width}, which is no new multiple of {block}; the file is damaged")
        found[width] = values[start : start + width]
        start += width
    if not found or start != len(values):
        header.fail(f"{PREFIX}sign_values has {len(values)} signs for widths of {start}; the file is damaged")
    if any(value not in _SIGNS for value in values):
        header.fail(f"{PREFIX}sign_values has other numbers than 1 and -1; the file is damaged")
    return found


def _basis(header: Header, name: str, block: int, signs: dict[int, Sequence[int]] | None) -> Basis:
    """The basis of a tensor that the keys name."""
    info = header.tensors.get(name)
    if info is None or len(info.dims) != 2 or not (name in (EMBEDDING, OUTPUT) or name.startswith("blk.")):
        header.fail(f"{PREFIX}weight_names has {shown(name)}, which is not a matrix of the file; get it again")
    width = info.dims[0]
    if width % block:
        header.fail(f"tensor {shown(name)} has rows of {width}, no multiple of {PREFIX}block_size {block}")
    if signs is not None and width not in signs:
        header.fail(f"{PREFIX}sign_widths has no signs for {shown(name)}, whose rows are {width} wide")
    return Basis(block, signs[width] if signs is not None else None)


def _check_together(header: Header, bases: Mapping[str, Basis]) -> None:
    for name in bases:
        prefix, _, rest = name.rpartition(".weight")[0].rpartition(".")
        group = next((group for group in _TOGETHER if rest in group), ())
        for other in (f"{prefix}.{each}.weight" for each in group):
            if other in header.tensors and other not in bases:
                header.fail(f"{shown(name)} is in a rotated basis, but {shown(other)} is not, although both have the "
                            "same input, which is not supported")
