"""Model files: GGUF and Hugging Face directories, read into one description.

    from edge.formats import open_checkpoint
    checkpoint = open_checkpoint("model.gguf")        # or a Hugging Face directory
    checkpoint.config                                 # edge.config.ModelConfig: dimensions and conventions
    checkpoint.tensors["blk.0.attn_q.weight"]         # Tensor: type, shape (out, in), bytes still in the file

Opening reads and validates headers only; no weight is copied.  Files are not trusted: whatever is wrong with one raises
:class:`edge.errors.InvalidFile` with one line.

``gguf`` reads GGUF files (``container``: how they are laid out).  ``huggingface`` and ``huggingface_config``
translate a Hugging Face directory to the tensor names and keys of GGUF.  ``gguf_keys`` makes the configuration of both
kinds from the keys; ``names`` has the tensors that a configuration needs.
"""

from __future__ import annotations

import os
from typing import Any

from edge.errors import InvalidFile, ModelNotFound, check_path
from edge.formats.checkpoint import Checkpoint, Reading

__all__ = ["open_checkpoint"]


def open_checkpoint(path: str | os.PathLike[str], **options: Any) -> Checkpoint:
    """Describe the model at ``path``: a GGUF file, a Hugging Face directory, or a directory with one GGUF in it.

    ``path`` may also be the name of a pulled model (:mod:`edge.registry.library`).  ``options``: the fields of
    :class:`edge.formats.checkpoint.Reading`.  Raises ModelNotFound, InvalidFile or UsageError.
    """
    from edge.registry.library import resolve

    path, reading = resolve(check_path(path, "model", "a path or a name")), Reading(**options)
    is_folder = os.path.isdir(path)
    if path.endswith(".safetensors") and not os.path.isfile(os.path.join(os.path.dirname(path), "config.json")):
        raise InvalidFile(f"{path} holds weights alone; name the folder that holds it, config.json and the tokenizer")
    if path.endswith(".safetensors") if not is_folder else os.path.isfile(os.path.join(path, "config.json")):
        from edge.formats import huggingface

        return huggingface.read(path, reading)
    from edge.formats import gguf

    if not is_folder:
        return gguf.read(path, reading)
    files = sorted(name for name in os.listdir(path) if name.endswith(".gguf"))
    if len(files) == 1:
        return gguf.read(os.path.join(path, files[0]), reading)
    if files:
        raise ModelNotFound(f"{path}: holds {len(files)} GGUF files; name one, such as {os.path.join(path, files[0])}")
    from edge.formats.mapped import refuse_pickled

    refuse_pickled(path)
    raise ModelNotFound(f"{path}: contains neither a GGUF file nor a Hugging Face model (config.json)")
