"""The small files next to a model's weights: JSON objects and tokenizer models.  They are not trusted either."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from edge.amounts import human
from edge.errors import InvalidFile
from edge.formats.mapped import shown

MAX_CONFIG = 4 << 20
MAX_TOKENIZER = 128 << 20


def fail(where: str, what: str) -> NoReturn:
    """Raise InvalidFile: where, then what is wrong and what to do about it."""
    raise InvalidFile(f"{where}: {what}")


def refuse_pickled(folder: str) -> None:
    """Raise InvalidFile for a folder in which weights are pickled: it is called where no others were found."""
    for name in sorted(os.listdir(folder)):
        if name.endswith((".bin", ".pt", ".pth", ".ckpt")):
            fail(folder, f"only pickled weights ({shown(name)}), which can run code when opened; convert them to "
                         "safetensors where they came from")


def read_small(path: str, limit: int) -> bytes:
    """The content of a small file (JSON, tokenizer.model).  Raises InvalidFile if it is larger than ``limit`` bytes."""
    try:
        with open(path, "rb") as file:
            # read(n) would allocate n bytes whatever the size of the file
            if os.fstat(file.fileno()).st_size > limit:
                raise InvalidFile(f"{path}: larger than {human(limit)}, which no such file is")
            return file.read()
    except OSError as error:
        raise InvalidFile(f"cannot read {path}: {error.strerror}") from None


def parse_json(data: bytes | memoryview, what: str) -> dict[str, Any]:
    """A JSON object from an untrusted file; keys must be unique.  Raises InvalidFile that names ``what``."""
    import json  # not needed where a model is a GGUF file

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError("a key appears twice")
        return table

    try:
        value = json.loads(str(data, "utf-8-sig"), object_pairs_hook=unique)
    except RecursionError:
        raise InvalidFile(f"{what}: nested too deeply; the file is damaged") from None
    except ValueError as error:
        raise InvalidFile(f"{what}: not valid JSON ({str(error)[:80]}); the file is damaged, get it again") from None
    if not isinstance(value, dict):
        raise InvalidFile(f"{what}: not a JSON object; the file is damaged, get it again")
    return value


def read_json(folder: str, name: str, limit: int = MAX_CONFIG) -> dict[str, Any] | None:
    """The JSON object in a file of ``folder``; None if there is no such file."""
    path = os.path.join(folder, name)
    return parse_json(read_small(path, limit), path) if os.path.isfile(path) else None
