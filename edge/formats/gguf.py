"""Reads ternary models from GGUF files: one header, or those of several parts, into a description of the model.

Its tensors are read by :mod:`edge.formats.gguf_tensors`, its configuration by :mod:`edge.formats.gguf_config`, its
tokenizer by :mod:`edge.formats.gguf_tokenizer`; the container by :mod:`edge.formats.gguf_header`.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

from edge.config import ModelConfig
from edge.formats import basis, gguf_tokenizer, names
from edge.formats.checkpoint import MOST_TEMPLATES, TEMPLATE_NAME, Checkpoint, Reading, Tensor
from edge.formats.gguf_config import family_of, read_config
from edge.formats.gguf_header import Header, read_header
from edge.formats.gguf_keys import KEY_TEMPLATE, KEYS_SAMPLING
from edge.formats.gguf_tensors import check_projections, read_tensors, stored_scale, text_part
from edge.formats.mapped import located, shown
from edge.registry.families import Family
from edge.sampling import recommended

#: file names of a model in several parts, and their largest number
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
MOST_PARTS = 256
#: a scale is the mean size of latent weights and far below this; its reciprocal, stored by some converters, is above
LARGE_SCALE = 4.0


def read(path: str | os.PathLike[str], reading: Reading) -> Checkpoint:
    """Describe a ternary model in a GGUF file.

    Raises ModelNotFound, or InvalidFile (one line naming the key or tensor).
    """
    header = _joined(read_header(path))
    notes: list[str] = []
    templates = _templates(header)
    family = family_of(header)
    tensors = read_tensors(header, family.arch, reading)
    bases = basis.read(header)
    for name, of in bases.of.items():
        tensors[name] = tensors[name]._replace(basis=of)
    if family.delta_period:
        tensors = text_part(header, family.arch, tensors, notes)
    config = read_config(header, family, tensors, bases, reading.activation, notes)
    if not reading.dense:
        check_projections(header, tensors)
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
    scales = sorted(stored_scale(tensor) for tensor in tensors.values() if tensor.type == "I2_S")
    if reading.i2s_layout == "auto" and scales:
        found["i2s_layout"] = ("128", "64")
        if scales[len(scales) // 2] > LARGE_SCALE:
            found["inverted"] = (reading.inverted, not reading.inverted)
    feed_forward = config.layers[0].feed_forward
    if header.text(f"{family.arch}.hidden_activation") is None and feed_forward.sub_norm:
        found["activation"] = ("silu", "relu2") if feed_forward.activation == "silu" else ("relu2", "silu")
    return found
