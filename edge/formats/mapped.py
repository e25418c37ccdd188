"""Access to the files of a model, none of which is trusted: maps of large ones, the content of small ones, messages.

A file is mapped read-only, and its bytes are reached without copying them.  Python's ``mmap`` is enough, since readers
only slice.  The map exists as long as any memoryview of it, so the tensors of a
:class:`~edge.formats.checkpoint.Checkpoint` keep their bytes alive.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, NoReturn

from edge import packed
from edge.amounts import human
from edge.errors import InvalidFile, MemoryRefused, ModelNotFound

#: bytes of JSON files about the model, and of files of its tokenizer
MAX_CONFIG = 4 << 20
MAX_TOKENIZER = 128 << 20


class Map(mmap.mmap):
    """A map that keeps its file open, so that a few bytes can be read without mapping the pages around them."""

    file: BinaryIO
    start: int = 0  # byte of the file at which the map begins


def map_file(path: str) -> memoryview:
    """The bytes of ``path`` as a read-only memoryview (format "B"); of a packed program, those of the model inside.

    Raises ModelNotFound if there is no such file, and InvalidFile if it cannot be read or is empty or not a regular
    file.  Raises MemoryRefused if it is larger than the address space of this process.
    """
    try:
        with ExitStack() as stack:
            file = stack.enter_context(open(path, "rb"))
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise InvalidFile(f"{path}: the file is empty")
            start = 0
            if os.pread(file.fileno(), len(packed.ELF), 0) == packed.ELF and (inside := packed.read(path)):
                start, size = inside.start, inside.nbytes
            whole = Map(file.fileno(), size, access=mmap.ACCESS_READ, offset=start)
            whole.file, whole.start = file, start
            stack.pop_all()  # it stays open
            return memoryview(whole)
    except FileNotFoundError:
        raise ModelNotFound(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENOMEM:
            raise MemoryRefused(
                f"{path}: not enough address space to map {size / 1e6:.0f} MB; is there a limit (ulimit -v)?"
            ) from None
        raise InvalidFile(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def read(data: memoryview) -> bytes | memoryview:
    """The bytes of a part of a map, read from its file: through the map, the pages around them would come into this
    process with them (Linux maps 16 at a time) and stay.  Other data is returned as it is.
    """
    if not isinstance(data.obj, Map):
        return data
    from pyx.machine import offset

    return os.pread(data.obj.file.fileno(), len(data), data.obj.start + offset(data, data.obj))


def shown(name: object) -> str:
    """A name from an untrusted file, safe to print: quoted, printable ASCII, at most about 80 characters."""
    text = ascii(name)
    return text if len(text) <= 80 else text[:76] + "...'"


@contextmanager
def located(path: str) -> Iterator[None]:
    """A context manager: put the file's path in front of an InvalidFile that does not begin with it."""
    try:
        yield
    except InvalidFile as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise InvalidFile(f"{path}: {error}") from None


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
