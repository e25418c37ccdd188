"""Fingerprint: identifies a model in milliseconds, to check whether a file was made with it."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

from edge.formats.texts import StringArray

if TYPE_CHECKING:
    from edge.config import ModelConfig
    from edge.formats.checkpoint import Checkpoint

WHOLE = 16 << 10  # bytes; tensors up to this size (norms, scales) are read whole
SAMPLES, SAMPLE = 8, 256  # number and bytes of the samples of larger ones, evenly spaced over the tensor


def fingerprint(config: ModelConfig, checkpoint: Checkpoint | None) -> str:
    """SHA-256, in hexadecimal, of everything that decides how a model computes.

    Included: every dimension and convention of the configuration; the stored vocabulary; name, type, shape, scale and
    layout of each tensor, and its bytes, complete or in samples (about 2 KB of each).  Not included: the model's name
    and path, the chat template (prompts are compared token by token), and the bytes of large tensors between the
    samples: it detects another model, not a forged one.  The same model in another format or type has another
    fingerprint, since its arithmetic may differ.

    Raises InvalidFile if a file of the checkpoint was cut since it was opened.
    """
    digest = hashlib.sha256()

    def add(*values: object) -> None:
        text = repr(values).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)

    add("bitnet-edge model 1")
    layers = {each: dataclasses.asdict(each) for each in config.layers}  # most are equal: once is enough
    facts = {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    facts["layers"] = tuple(layers[each] for each in config.layers)
    del facts["name"]
    add(sorted(facts.items()))
    if checkpoint is None:
        return digest.hexdigest()
    spec = checkpoint.tokenizer
    add(spec.kind, spec.pre, spec.pattern, spec.bos_id, spec.eos_ids, spec.add_bos, sorted(spec.added.items()))
    for words in (spec.tokens, spec.merges):
        text = words.joined() if isinstance(words, StringArray) else "\0".join(words).encode("utf-8", "surrogatepass")
        add(len(words), hashlib.sha256(text).hexdigest())
    add(hashlib.sha256(spec.model or b"").hexdigest())
    for name, tensor in sorted(checkpoint.tensors.items()):
        for each in tensor.apart or (tensor,):
            data, size = each.data, each.data.nbytes
            add(name, each.type, each.shape, each.scale, each.layout, size)
            if size <= WHOLE:
                digest.update(data)
                continue
            for i in range(SAMPLES):
                start = (size - SAMPLE) * i // (SAMPLES - 1)
                digest.update(data[start : start + SAMPLE])
    checkpoint.check()
    return digest.hexdigest()
