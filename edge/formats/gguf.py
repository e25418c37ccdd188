"""Reads ternary models from GGUF files: one header, or those of several parts, into a description of the model.

Its configuration is read by :mod:`edge.formats.gguf_config`, its tokenizer by :mod:`edge.formats.gguf_tokenizer`, the
container by :mod:`edge.formats.gguf_header`.  Which type a tensor has is found here, since forks give ids different
meanings.
"""

from __future__ import annotations

import math
import os
import re
import struct
from dataclasses import replace
from typing import Any

from edge.config import ModelConfig
from edge.formats import basis, gguf_tokenizer, names
from edge.formats.checkpoint import MOST_TEMPLATES, TEMPLATE_NAME, Checkpoint, Reading, Tensor
from edge.formats.gguf_config import family_of, read_config
from edge.formats.gguf_header import ALIGNMENT, Header, TensorInfo, read_header
from edge.formats.gguf_keys import KEY_TEMPLATE, KEYS_SAMPLING
from edge.formats.mapped import located, shown
from edge.registry.encodings import BY_ID, MEANINGS, VECTOR_TYPES, Encoding
from edge.registry.families import Family
from edge.sampling import recommended

#: file names of a model in several parts, and their largest number
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
MOST_PARTS = 256
#: a scale is the mean size of latent weights and far below this; its reciprocal, stored by some converters, is above
LARGE_SCALE = 4.0

_AGAIN = "download or convert the model again as I2_S or TQ2_0"
#: ids whose meaning depends on the program that wrote the file, or that are only named in messages
_FOREIGN: dict[int, str] = {
    37: f"I8_S; {_AGAIN}",
    38: f"TL1, a table layout that can only be decoded with the tile sizes of the machine that wrote it; {_AGAIN}",
    343: "PTQ1_0_R64, which is no longer read; convert the original model again",
}


def read(path: str | os.PathLike[str], reading: Reading) -> Checkpoint:
    """Describe a ternary model in a GGUF file.

    Raises ModelNotFound, or InvalidFile (one line naming the key or tensor).
    """
    header = _joined(read_header(path))
    notes: list[str] = []
    templates = _templates(header)
    family = family_of(header)
    tensors = _tensors(header, family.arch, reading)
    bases = basis.read(header)
    for name, of in bases.of.items():
        tensors[name] = tensors[name]._replace(basis=of)
    if family.delta_period:
        tensors = _text_part(header, tensors, notes)
    config = read_config(header, family, tensors, reading.activation, notes, grouped=bases.grouped)
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        tensors.pop(name, None)  # in the configuration by now
    with located(header.path):
        notes += names.check(config, tensors)
    spec = gguf_tokenizer.describe(header, config.n_vocab, notes)
    return Checkpoint(
        path=header.path,
        format="gguf",
        config=config,
        tensors=tensors,
        tokenizer=spec,
        chat_template=header.text(KEY_TEMPLATE) or next(iter(templates.values()), None),
        templates=templates,
        metadata=header.metadata,
        notes=notes,
        reading=reading,
        open=_open(header, family, tensors, config, reading),
        sampling=recommended(KEYS_SAMPLING, header.metadata, notes),
    )


def _joined(header: Header) -> Header:
    """The header of a model in several files (``-00001-of-00003.gguf``) with the tensors of all of them."""
    count, number = header.integer("split.count", 1) or 1, header.integer("split.no", 0) or 0
    if count == 1:
        return header
    match = _PART.fullmatch(os.path.basename(header.path))
    if match is None or number != 0 or not 1 < count <= MOST_PARTS or int(match[3]) != count or int(match[2]) != 1:
        header.fail(f"part {number + 1} of a model in {count} files; open the first, whose name ends in "
                    "-00001-of-0000N.gguf, with the others in the same folder")
    tensors = dict(header.tensors)
    for part in range(2, count + 1):
        name = f"{match[1]}-{part:05}-of-{match[3]}.gguf"
        path = os.path.join(os.path.dirname(header.path), name)
        if not os.path.isfile(path):
            header.fail(f"the model is in {count} files, and {shown(name)} is not in its folder; get it as well")
        other = read_header(path)
        if other.integer("split.count") != count or other.integer("split.no") != part - 1:
            other.fail(f"is not part {part} of {count} of the model; get the files again")
        for key, info in other.tensors.items():
            if key in tensors:
                other.fail(f"tensor {shown(key)} is in two files of the model; get them again")
            tensors[key] = info
    meant = header.integer("split.tensors.count", len(tensors))
    if meant != len(tensors):
        header.fail(f"its {count} files hold {len(tensors)} tensors, not {meant}; get them again")
    return replace(header, tensors=tensors)


def _templates(header: Header) -> dict[str, str]:
    """The chat templates that have a name: ``tokenizer.chat_template.NAME``."""
    found: dict[str, str] = {}
    for key in header.metadata:
        name = key.removeprefix(f"{KEY_TEMPLATE}.")
        if name != key and TEMPLATE_NAME.fullmatch(name) and len(found) < MOST_TEMPLATES:
            found[name] = header.text(key) or ""
    return found


def _open(
    header: Header, family: Family, tensors: dict[str, Tensor], config: ModelConfig, reading: Reading
) -> dict[str, tuple[Any, ...]]:
    """What the file does not state: field of Reading -> possible values, the one in use first.

    Empty if the caller names the activation.
    """
    found: dict[str, tuple[Any, ...]] = {}
    ours = any(key.startswith("bitnet_edge.") for key in header.metadata)
    if reading.activation is not None or ours:
        return found
    scales = sorted(_stored_scale(tensor) for tensor in tensors.values() if tensor.type == "I2_S")
    if reading.i2s_layout == "auto" and scales:
        found["i2s_layout"] = ("128", "64")
        if scales[len(scales) // 2] > LARGE_SCALE:
            found["inverted"] = (reading.inverted, not reading.inverted)
    feed_forward = config.layers[0].feed_forward
    if header.text(".hidden_activation") is None and feed_forward.sub_norm:
        found["activation"] = ("silu", "relu2") if feed_forward.activation == "silu" else ("relu2", "silu")
    return found


def _tensors(header: Header, arch: str, reading: Reading) -> dict[str, Tensor]:
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


def _text_part(header: Header, tensors: dict[str, Tensor], notes: list[str]) -> dict[str, Tensor]:
    """The tensors that read and write text, with our names; without those of pictures and of layers that draft."""
    drafting = header.integer(".nextn_predict_layers", 0)
    first = header.integer(".block_count", 0) - drafting
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


def _stored_scale(tensor: Tensor) -> float:
    """The scale that an I2_S tensor stores after its codes."""
    return float(struct.unpack_from("<f", tensor.data, len(tensor.data) - 32)[0])


def _inverse_square(tensor: Tensor) -> float:
    """The factor that turns the stored scale of an I2_S tensor into its reciprocal; 1 if there is no such scale."""
    stored = _stored_scale(tensor)
    return 1.0 / stored**2 if 1e-12 < abs(stored) < 1e12 else 1.0
