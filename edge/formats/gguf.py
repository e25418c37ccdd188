"""Reads ternary models from GGUF files: one header, or those of several parts, into a description of the model.

Its configuration is read by :mod:`edge.formats.gguf_keys`, its tokenizer by :mod:`edge.formats.gguf_tokenizer`, the
container by :mod:`edge.formats.container`.  Which type a tensor has is found here, since forks give ids different
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
from edge.formats.container import Header, TensorInfo, read_header
from edge.formats.gguf_keys import KEYS_SAMPLING, family_of, read_config
from edge.formats.gguf_tokenizer import KEY_TEMPLATE
from edge.formats.mapped import located, shown
from edge.registry.encodings import MEANINGS, VECTOR_TYPES, Encoding
from edge.registry.families import Family
from edge.sampling import recommended

#: file names of a model in several parts, and their largest number
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
MOST_PARTS = 256
#: a scale is the mean size of latent weights and far below this; its reciprocal, stored by some converters, is above
LARGE_SCALE = 4.0

_AGAIN = "download or convert the model again as I2_S or TQ2_0"
#: ids -> types of this number that cannot be read.  TL1 and TL2 are made for the tile sizes of one machine
_FOREIGN = {36: "IQ4_NL_4_4", 37: "I8_S", 38: "TL1", 39: "MXFP4 or TL2", 40: "NVFP4", 42: "TL2", 343: "PTQ1_0_R64"}


def read(path: str | os.PathLike[str], reading: Reading) -> Checkpoint:
    """Describe a ternary model in a GGUF file.

    Raises ModelNotFound, or InvalidFile (one line naming the key or tensor).
    """
    header = _joined(read_header(path))
    notes: list[str] = []
    templates = _templates(header)
    family = family_of(header)
    tensors = _tensors(header, reading)
    bases, grouped = basis.read(header)
    for name, of in bases.items():
        tensors[name] = tensors[name]._replace(basis=of)
    if family.delta_period:
        tensors = _text_part(header, tensors, notes)
    config = read_config(header, family, tensors, reading.activation, notes, grouped=grouped)
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
    """Facts that the file does not state: field of Reading -> possible values, the one in use first."""
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


def _tensors(header: Header, reading: Reading) -> dict[str, Tensor]:
    """Tensors by name; scales in ``.scale`` tensors are merged into the tensors they belong to."""
    i2s_layout = "128" if reading.i2s_layout == "auto" else reading.i2s_layout
    if "token_embd.weight" not in header.tensors:
        header.fail("it holds no weights (token_embd.weight is missing): a vocabulary-only or incomplete file")
    types = _types(header)
    tensors = {}
    for name, info in header.tensors.items():
        type_name, nbytes = types[name]
        shape = info.shape
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]  # ggml's trailing dimensions of 1 mean nothing
        tensor = Tensor(
            name=name,
            type=type_name,
            shape=shape,
            data=info.view[info.offset : info.offset + nbytes],
            layout=i2s_layout if type_name == "I2_S" else "128",
            # floats of a GGUF are what they are: dense unless their values are ternary already
            floats="latent" if reading.ternarise else "dense" if reading.dense else "either",
        )
        if tensor.type == "I2_S":
            if reading.inverted and 1e-12 < abs(stored := _stored_scale(tensor)) < 1e12:
                tensor = tensor._replace(scale=1.0 / stored**2)  # makes the stored scale its reciprocal
            # n/4 bytes cannot hold a last block that is not full: its columns lie in bytes that were cut off
            whole = shape[0] % 4 == 0 if i2s_layout == "1x4" else math.prod(shape) % int(i2s_layout) == 0
            if not whole:
                header.fail(f"tensor {shown(name)} of shape {shape} cannot be I2_S in layout {i2s_layout}")
        tensors[name] = tensor
    for name in header.tensors:
        matrix = tensors.get(f"{name.removesuffix('.scale')}.weight") if name.endswith(".scale") else None
        if matrix is not None:
            scale = tensors.pop(name)
            if scale.type not in VECTOR_TYPES or math.prod(scale.shape) != 1:
                header.fail(f"tensor {shown(name)} is not one float; the file is damaged")
            tensors[matrix.name] = matrix._replace(scale=matrix.scale * names.floats(scale.type, scale.data)[0])
    return tensors


def _types(header: Header) -> dict[str, tuple[str, int]]:
    """Tensor name -> (type, bytes).  An id that differs between forks is resolved by the bytes that the largest tensor
    with it spans.
    """
    by_id: dict[int, list[TensorInfo]] = {}
    for info in header.tensors.values():
        by_id.setdefault(info.type_id, []).append(info)
    types: dict[str, tuple[str, int]] = {}
    for type_id, infos in by_id.items():
        largest = max(infos, key=lambda info: info.span)
        what = f"tensor {shown(largest.name)} has type {type_id}"
        if type_id not in MEANINGS:
            if largest.nbytes is None:
                header.fail(f"{what}, {_FOREIGN.get(type_id, 'which is not known')}; {_AGAIN}")
            types |= {info.name: (info.type, info.nbytes or 0) for info in infos}
            continue
        fitting = [each for each in MEANINGS[type_id]
                   if 0 <= largest.span - (_size(largest, each) or largest.span + 1) < header.alignment]
        if not fitting:
            perhaps = f" (perhaps {_FOREIGN[type_id]})" if type_id in _FOREIGN else ""
            header.fail(f"{what} and {largest.span} bytes for {math.prod(largest.dims)} weights, which is not a known "
                        f"layout{perhaps}; {_AGAIN}")
        if not fitting[0].use:
            header.fail(f"{what}, {fitting[0].name}: two bits for the levels -1.5, -0.5, 0.5 and 1.5, which is not "
                        "ternary; use a ternary model (bitnet-edge list)")
        for info in infos:
            nbytes = _size(info, fitting[0])
            if nbytes is None or nbytes > info.span:
                header.fail(f"tensor {shown(info.name)} of {info.dims} does not fit the blocks of {fitting[0].name}; "
                            "the file is damaged")
            types[info.name] = fitting[0].name, nbytes
    return types


def _size(info: TensorInfo, encoding: Encoding) -> int | None:
    """Bytes of a tensor in this type; None if its rows are not whole blocks."""
    try:
        return encoding.size(info.dims)
    except ValueError:
        return None


def _text_part(header: Header, tensors: dict[str, Tensor], notes: list[str]) -> dict[str, Tensor]:
    """The tensors that read and write text, with our names; without those of pictures and of layers that draft."""
    drafting = header.integer(".nextn_predict_layers", 0)
    first = header.integer(".block_count", 0) - drafting
    found, skipped = {}, set()
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[0] in ("v", "mm"):
            skipped.add("its vision part is not used")
        elif parts[0] == "mtp" or (drafting and parts[0] == "blk" and parts[1].isdigit() and int(parts[1]) >= first):
            skipped.add("the layers that predict further tokens are not used")
        else:
            name = name.replace(".post_attention_norm.", ".ffn_norm.")
            if name in found:
                header.fail(f"tensor {shown(name)} appears twice; the file is damaged")
            found[name] = tensor._replace(name=name)
    notes += sorted(skipped)
    return found


def _stored_scale(tensor: Tensor) -> float:
    """The scale that an I2_S tensor stores after its codes."""
    return float(struct.unpack_from("<f", tensor.data, len(tensor.data) - 32)[0])
