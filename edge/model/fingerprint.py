"""Fingerprint: identifies a model in milliseconds, to check whether a file was made with it."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from edge.files import is_private, remove, replacing
from edge.formats.container import StringArray
from edge.formats.mapped import read

try:
    # hashlib's, without OpenSSL, which would take 4 MB of memory
    from _sha2 import sha256  # type: ignore[import-not-found]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]  # before Python 3.12
    except ImportError:
        from hashlib import sha256

if TYPE_CHECKING:
    from edge.config import ModelConfig
    from edge.formats.checkpoint import Checkpoint

KIND = "bitnet-edge model 1"  # another one if anything else is included
WHOLE = 16 << 10  # bytes; tensors up to this size (norms, scales) are read whole
SAMPLES, SAMPLE = 8, 256  # number and bytes of the samples of larger ones, evenly spaced over the tensor
RESTED = 2_000_000_000  # nanoseconds: a file that changed later may change again without another time
MOST_KEPT = 16
KEPT = re.compile(r"[0-9a-f]{32}\.model")  # names of files with a fingerprint


def fingerprint(config: ModelConfig, checkpoint: Checkpoint | None) -> str:
    """SHA-256, in hexadecimal, of everything that decides how a model computes.

    Included: every dimension and convention of the configuration; the stored vocabulary; name, type, shape, scale and
    layout of each tensor, and its bytes, complete or in samples (about 2 KB of each).  Not included: the model's name
    and path, the chat template (prompts are compared token by token), and the bytes of large tensors between the
    samples: it detects another model, not a forged one.  The same model in another format or type has another
    fingerprint, since its arithmetic may differ.
    """
    digest = sha256()

    def add(*values: object) -> None:
        text = repr(values).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)

    add(KIND)
    add(_facts(config))
    if checkpoint is None:
        return digest.hexdigest()
    spec = checkpoint.tokenizer
    beyond = sorted((text, each.id) for text, each in spec.added.items() if each.id >= len(spec.tokens))
    add(spec.kind, spec.pre, spec.pattern, spec.bos_id, spec.eos_ids, spec.add_bos, beyond)
    for words in (spec.tokens, spec.merges):
        text = sha256()
        for piece in StringArray.of(words, "").pieces():
            text.update(piece)
        add(len(words), text.hexdigest())
    add(sha256(spec.model or b"").hexdigest())
    for name, tensor in sorted(checkpoint.tensors.items()):
        for each in tensor.experts or (tensor,):
            data, size = each.data, each.data.nbytes
            add(name, each.type, each.shape, each.scale, each.layout, size)
            if size <= WHOLE:
                digest.update(read(data))
                continue
            for i in range(SAMPLES):
                start = (size - SAMPLE) * i // (SAMPLES - 1)
                digest.update(read(data[start : start + SAMPLE]))
    return digest.hexdigest()


def remembered(config: ModelConfig, checkpoint: Checkpoint | None, folder: str | None) -> str:
    """The fingerprint, from a file in ``folder`` if it was taken before and the model's file is still the same.

    That is when its device, inode, size and both times of change are those that it had.  It is only kept in a private
    folder that exists.
    """
    name = None if checkpoint is None or folder is None or not is_private(folder) else _name(config, checkpoint)
    if name is None or checkpoint is None or folder is None:
        return fingerprint(config, checkpoint)
    path = os.path.join(folder, name)
    with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        if re.fullmatch("[0-9a-f]{64}", text := file.read(65)):
            return text
    found = fingerprint(config, checkpoint)
    if _name(config, checkpoint) == name:
        with suppress(OSError):
            with replacing(path, 0o600) as whole:
                whole.write(found.encode())
            with os.scandir(folder) as files:
                kept = [each for each in files if KEPT.fullmatch(each.name)]
            for each in sorted(kept, key=lambda each: each.stat().st_mtime)[:-MOST_KEPT]:
                remove(each.path)
    return found


def _facts(config: ModelConfig) -> list[tuple[str, object]]:
    """The fields of a configuration that decide how a model computes."""
    layers = {each: dataclasses.asdict(each) for each in config.layers}  # most are equal: once is enough
    facts = {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    facts["layers"] = tuple(layers[each] for each in config.layers)
    del facts["name"]
    return sorted(facts.items())


def _name(config: ModelConfig, checkpoint: Checkpoint) -> str | None:
    """The name of the file with the fingerprint, made of all that it depends on; None if it cannot be known that the
    model's file is the one that it was: it is more than one file, has just changed, or its times are whole seconds.
    """
    if checkpoint.format != "gguf" or len(checkpoint.maps) != 1:
        return None
    (whole,) = checkpoint.maps
    try:
        facts = os.fstat(whole.file.fileno())
        if not os.path.samestat(facts, os.stat(checkpoint.path)):
            return None
    except OSError:
        return None
    times = facts.st_mtime_ns, facts.st_ctime_ns
    if max(times) > time.time_ns() - RESTED or not facts.st_ctime_ns % 1_000_000_000:
        return None
    known = (KIND, facts.st_dev, facts.st_ino, facts.st_size, *times, whole.start, len(whole),
             checkpoint.reading, _facts(config))
    return sha256(repr(known).encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".model"
