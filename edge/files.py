"""Files that people name: texts are read within a limit, and results are written where they can be, by one process at
a time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import BinaryIO

from edge.errors import Busy, EdgeError, UsageError

TEXT_LIMIT = 64 << 20  # bytes of a text file or of standard input


def read_text(path: str) -> str:
    """The text of a UTF-8 file.  Raises UsageError that names the file."""
    try:
        with open(path, "rb") as file:
            return decode_text(bounded(file, path), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def bounded(file: BinaryIO, name: str) -> bytes:
    """The rest of a file.  Raises UsageError that names it if that is more than TEXT_LIMIT bytes (/dev/zero, a disk
    image).
    """
    data = file.read(TEXT_LIMIT + 1)
    if len(data) > TEXT_LIMIT:
        raise UsageError(f"{name} is longer than {TEXT_LIMIT >> 20} MiB")
    return data


def decode_text(data: bytes, name: str) -> str:
    """Decode UTF-8 with or without a byte order mark; line ends become a newline.  Raises UsageError that names the
    source.

    A NUL is refused, too: input with one is a binary file or UTF-16.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})") from error
    if "\0" in text:
        raise UsageError(f"{name} is not UTF-8 text (byte {data.index(0)} is NUL)")
    return text.replace("\r\n", "\n")


def check_place(path: str) -> None:
    """Raise EdgeError now if a file could not be written at ``path`` after minutes of work."""
    _check_folder(path)
    if not os.access(path if os.path.exists(path) else os.path.dirname(path) or ".", os.W_OK):
        raise EdgeError(f"cannot write {path}: permission denied")


def check_new(path: str, force: bool, example: str, sources: Iterable[str | os.PathLike[str]]) -> None:
    """Raise UsageError or EdgeError if a new file cannot be put at ``path``, or would replace one of ``sources`` or,
    without ``force``, any other.  ``example``: a name for it.
    """
    if os.path.isdir(path):
        raise UsageError(f"{path}: is a directory; name the file to write, such as {os.path.join(path, example)}")
    _check_folder(path)
    if os.path.exists(path):
        if not os.path.isfile(path):  # renaming onto a device would replace it
            raise UsageError(f"{path}: is not a regular file; name the file to write")
        if not force:
            raise UsageError(f"{path}: exists already; choose another name or use --force")
        if any(os.path.exists(each) and os.path.samefile(each, path) for each in sources):
            raise UsageError(f"{path}: is the source itself; choose another name")


def _check_folder(path: str) -> None:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise EdgeError(f"cannot write {path}: folder {folder} does not exist")


def write(path: str, data: bytes) -> None:
    """Write a file.  Raises EdgeError that names it."""
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise EdgeError(f"cannot write {path}: {error.strerror}") from None


def exclusive(path: str, mode: int = 0o600) -> int:
    """A descriptor of a file that no other process has, made if it is missing; what is in it stays.

    Raises Busy if another process has it, and OSError.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise Busy(f"another process is writing {path}") from None
        except OSError:  # a file system without locks
            return fd
        with suppress(FileNotFoundError):  # its writer may have just renamed it: then the name is free again
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        os.close(fd)


def remove(path: str) -> None:
    """Delete a file, if that is possible."""
    with suppress(OSError):
        os.unlink(path)
