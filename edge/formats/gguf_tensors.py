"""The tensors of a GGUF file: which type each has, since forks give ids different meanings, and what is refused."""

from __future__ import annotations

import math
import struct

from edge.formats import names
from edge.formats.checkpoint import Reading, Tensor
from edge.formats.gguf_header import ALIGNMENT, Header, TensorInfo
from edge.formats.mapped import shown
from edge.registry.encodings import BY_ID, MEANINGS, TERNARY_TYPES, VECTOR_TYPES, Encoding

_AGAIN = "download or convert the model again as I2_S or TQ2_0"
#: ids whose meaning depends on the program that wrote the file, or that are only named in messages
_FOREIGN: dict[int, str] = {
    37: f"I8_S; {_AGAIN}",
    38: f"TL1, a table layout that can only be decoded with the tile sizes of the machine that wrote it; {_AGAIN}",
    343: "PTQ1_0_R64, which is no longer read; convert the original model again",
}


def read_tensors(header: Header, arch: str, reading: Reading) -> dict[str, Tensor]:
    """Tensors by name; scales in ``.scale`` tensors are merged into the tensors they belong to."""
    i2s_layout = "128" if reading.i2s_layout == "auto" else reading.i2s_layout
    types = _types(header, arch)
    scales: dict[str, float] = {}
    for name, info in header.tensors.items():
        if name.endswith(".scale") and name[:-6] + ".weight" in header.tensors:
            if info.type not in VECTOR_TYPES or math.prod(info.dims) != 1:
                header.fail(f"tensor {shown(name)} is not one float; the file is damaged")
            data = info.view[info.offset : info.offset + (info.nbytes or 0)]
            scales[name[:-6] + ".weight"] = names.floats(info.type, data)[0]
    tensors = {}
    for name, info in header.tensors.items():
        if name.endswith(".scale") and name[:-6] + ".weight" in scales:
            continue
        type_name, nbytes = types[name]
        shape = info.shape
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]  # ggml's trailing dimensions of 1 mean nothing
        tensor = Tensor(
            name=name,
            type=type_name,
            shape=shape,
            data=info.view[info.offset : info.offset + nbytes],
            scale=scales.get(name, 1.0),
            layout=i2s_layout if type_name == "I2_S" else "128",
            # floats of a GGUF are what they are: dense unless their values are ternary already
            floats="latent" if reading.ternarise else "dense" if reading.dense else "either",
        )
        if tensor.type == "I2_S":
            if reading.inverted:
                tensor = tensor._replace(scale=tensor.scale * _inverse_square(tensor))
            # n/4 bytes cannot hold a last block that is not full: its columns lie in bytes that were cut off
            whole = shape[0] % 4 == 0 if i2s_layout == "1x4" else math.prod(shape) % int(i2s_layout) == 0
            if not whole:
                header.fail(f"tensor {shown(name)} of shape {shape} cannot be I2_S in layout {i2s_layout}")
        tensors[name] = tensor
    return tensors


def _types(header: Header, arch: str) -> dict[str, tuple[str, int]]:
    """Tensor name -> (type, bytes).  An id that differs between forks is resolved by the bytes that the tensor
    spans.
    """
    for info in header.tensors.values():
        if reason := _foreign(info, arch):
            header.fail(f"tensor {shown(info.name)} has type {reason}")
    if "token_embd.weight" not in header.tensors:
        header.fail("it holds no weights (token_embd.weight is missing): a vocabulary-only or incomplete file")
    meant: dict[int, Encoding] = {}
    for type_id, candidates in MEANINGS.items():
        mine = [info for info in header.tensors.values() if info.type_id == type_id]
        if not mine:
            continue
        largest = max(mine, key=lambda info: info.span)
        fitting = [each for each in candidates if 0 <= largest.span - (_size(largest, each) or -1) < header.alignment]
        if not fitting:
            header.fail(f"tensor {shown(largest.name)} has type {type_id} and {largest.span} bytes for "
                        f"{math.prod(largest.dims)} weights, which is not a known layout; {_AGAIN}")
        meant[type_id] = fitting[0]
    types = {}
    for info in header.tensors.values():
        if info.type_id not in meant:
            assert info.nbytes is not None  # foreign types were refused
            types[info.name] = (info.type, info.nbytes)
            continue
        encoding = meant[info.type_id]
        nbytes = _size(info, encoding)
        if nbytes is None or nbytes > info.span:
            header.fail(f"tensor {shown(info.name)} of {info.dims} does not fit the blocks of {encoding.name}; the "
                        "file is damaged")
        types[info.name] = (encoding.name, nbytes)
    return types


def _size(info: TensorInfo, encoding: Encoding) -> int | None:
    """Bytes of a tensor in this type; None if its rows are not whole blocks."""
    try:
        return encoding.size(info.dims)
    except ValueError:
        return None


def _foreign(info: TensorInfo, arch: str) -> str | None:
    """The reason why a tensor's type cannot be read, from id, architecture and byte span (ids differ between forks);
    None if it can be read.
    """
    n, k = math.prod(info.dims), info.dims[0]
    if info.type == "I2_S":
        # 36 was IQ4_NL_4_4 in llama.cpp once: 18 bytes per 32 weights, more than twice as long
        nl = n // 32 * 18
        if n >= 1024 and nl <= info.span < nl + ALIGNMENT:
            return f"36 with the size of IQ4_NL_4_4, not of I2_S; {_AGAIN}"
        return None
    if info.type_id in BY_ID:
        return None
    if info.type_id in (39, 42):
        if arch.startswith(("bitnet", "llama")) and len(info.dims) == 2 and k > 256:
            rows = n // k
            tl2 = -(-((k - 256) * rows // 3 * 5 // 8 + 256 * rows // 2 * 4 // 8) // 32) * 32 + 32
            if tl2 <= info.span < tl2 + 64:
                return f"{info.type_id} with the size of TL2, which cannot be decoded without the sizes it was " \
                       f"written for; {_AGAIN}"
        if info.type_id == 39:
            return f"MXFP4 (or TL2); {_AGAIN}"
    if info.type_id == 40 and n // 64 * 36 <= info.span < n // 64 * 36 + ALIGNMENT:
        return f"40 with the size of NVFP4; {_AGAIN}"
    if info.type_id in MEANINGS:
        return None
    if info.type_id in _FOREIGN:
        return f"{info.type_id}, {_FOREIGN[info.type_id]}"
    return f"id {info.type_id}, which is not known; {_AGAIN}"


def check_projections(header: Header, tensors: dict[str, Tensor]) -> None:
    """Refuse models that are not ternary: float matrices must be scale x {-1, 0, 1}, unless ``ternarise`` rounds
    them.
    """
    projections = [tensor for name, tensor in tensors.items() if names.is_projection(name)]
    if not projections or any(tensor.type in TERNARY_TYPES for tensor in projections):
        return
    first = projections[0]
    if first.floats == "latent" or names.looks_ternary(first):
        return
    kinds = ", ".join(sorted({tensor.type for tensor in projections}))
    header.fail(f"a dense model (its matrices are {kinds}), not a ternary one; convert it with --planes 3, run it "
                "with llama.cpp, or, if these are the latent weights of a ternary model, convert it with --ternarise")


def text_part(header: Header, arch: str, tensors: dict[str, Tensor], notes: list[str]) -> dict[str, Tensor]:
    """The tensors that read and write text, with our names; without those of pictures and of layers that draft."""
    drafting = header.integer(f"{arch}.nextn_predict_layers", 0) or 0
    first = (header.integer(f"{arch}.block_count") or 0) - drafting
    found, skipped = {}, {"its vision part": 0, "the layers that predict further tokens": 0}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[0] in ("v", "mm"):
            skipped["its vision part"] += 1
        elif parts[0] == "mtp" or (drafting and parts[0] == "blk" and parts[1].isdigit() and int(parts[1]) >= first):
            skipped["the layers that predict further tokens"] += 1
        else:
            name = name.replace(".post_attention_norm.", ".ffn_norm.")
            if name in found:
                header.fail(f"tensor {shown(name)} appears twice; the file is damaged")
            found[name] = tensor._replace(name=name)
    notes += [f"{what} {'are' if what.endswith('s') else 'is'} not used" for what, n in skipped.items() if n]
    return found


def stored_scale(tensor: Tensor) -> float:
    """The scale that an I2_S tensor stores after its codes."""
    return float(struct.unpack_from("<f", tensor.data, len(tensor.data) - 32)[0])


def _inverse_square(tensor: Tensor) -> float:
    """The factor that turns the stored scale of an I2_S tensor into its reciprocal; 1 if there is no such scale."""
    stored = stored_scale(tensor)
    return 1.0 / stored**2 if 1e-12 < abs(stored) < 1e12 else 1.0
