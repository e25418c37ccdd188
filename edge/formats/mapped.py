"""Maps a file read-only and gives access to its bytes without copying them.

Python's ``mmap`` is enough, since readers only slice.  The map exists as long as any memoryview of it, so the tensors
of a :class:`~edge.formats.checkpoint.Checkpoint` keep their bytes alive.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from edge import packed
from edge.errors import InvalidFile, MemoryRefused, ModelNotFound


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
