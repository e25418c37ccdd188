"""Files that people name: texts are read within a limit, and results are written where they can be, by one process at
a time.  ``-`` is standard input or standard output.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from edge.errors import Busy, EdgeError, UsageError

TEXT_LIMIT = 64 << 20  # bytes of a text file or of standard input
LINE_LIMIT = 4 << 20  # bytes of a line of a conversation; a longer one is a mistake or an attack

#: in place of a path
STANDARD = "-"
_read: object = None  # the standard input that was read to its end


def read_text(path: str) -> str:
    """The text of a UTF-8 file, or of standard input.  Raises UsageError that names the file."""
    name = "standard input" if path == STANDARD else path
    try:
        if path == STANDARD:
            return decode_text(bounded(stdin(), name), name)
        with open(path, "rb") as file:
            return decode_text(bounded(file, name), name)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error


def stdin_is_left() -> bool:
    """True if there is a standard input that nobody has read."""
    return sys.stdin is not None and _read is not sys.stdin


def stdin() -> BinaryIO:
    """Standard input, for one reader.  Raises UsageError for a second one, which would find nothing."""
    global _read
    if sys.stdin is None:  # started with standard input closed (<&-)
        return io.BytesIO()
    if not stdin_is_left():
        raise UsageError("standard input can be read only once; name a file for one of the two")
    _read = sys.stdin
    return sys.stdin.buffer


def bounded(file: BinaryIO, name: str) -> bytes:
    """The rest of a file.  Raises UsageError that names it if that is more than TEXT_LIMIT bytes (/dev/zero)."""
    data = file.read(TEXT_LIMIT + 1)
    if len(data) > TEXT_LIMIT:
        raise UsageError(f"{name} is longer than {TEXT_LIMIT >> 20} MiB")
    return data


def decode_text(data: bytes, name: str) -> str:
    """Decode UTF-8 with or without a byte order mark; line ends become a newline.

    Raises UsageError that names the source, also for a NUL: input with one is a binary file or UTF-16.
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
    if path == STANDARD:
        return
    _check_folder(path)
    if not os.access(path if os.path.exists(path) else os.path.dirname(path) or ".", os.W_OK):
        raise EdgeError(f"cannot write {path}: permission denied")


def check_new(path: str, force: bool, example: str, sources: Iterable[str | os.PathLike[str]]) -> None:
    """Raise UsageError or EdgeError if a new file cannot be put at ``path``, or would replace one of ``sources`` or,
    without ``force``, any other.  ``example``: a name for it.
    """
    if path == STANDARD:
        raise UsageError("cannot write to standard output: what was written is read again; name a file, such as "
                         f"{example}")
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
    """Write a file, or to standard output; a new file that cannot be written whole is removed.  Raises EdgeError."""
    if path == STANDARD:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    there = os.path.exists(path)
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        if not there:
            remove(path)
        raise EdgeError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def replacing(path: str, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write that takes the place of ``path`` when all of it is on the disk; of a half of it nothing stays.
    ``mode``: its permissions, as far as the user's mask allows.  Raises OSError.
    """
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        remove(part)
        if isinstance(error, OSError) and error.filename in (None, part):
            error.filename = path
        raise


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
            raise Busy(f"another process or thread is writing {path}") from None
        except OSError:  # a file system without locks
            return fd
        with suppress(FileNotFoundError):  # its writer may have just renamed it: then the name is free again
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        os.close(fd)


def sha256_of(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal digits.  Raises OSError."""
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def home(variable: str, xdg: str, usual: str, *inside: str) -> str:
    """The folder that ``variable`` names, else ``bitnet-edge`` and ``inside`` in that of the variable ``xdg``, if that
    is absolute, as its specification demands, else in ``usual``.
    """
    data = os.path.expanduser(os.environ.get(xdg, ""))
    return os.path.expanduser(
        os.environ.get(variable) or os.path.join(data if os.path.isabs(data) else usual, "bitnet-edge", *inside))


def cache_home() -> str:
    """The folder of what can be made again."""
    return home("BITNET_EDGE_CACHE", "XDG_CACHE_HOME", "~/.cache")


def is_private(path: str) -> bool:
    """True for a folder of this user that nobody else can write to or read, and not a link to one."""
    try:
        facts = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def remove(path: str) -> None:
    """Delete a file, if that is possible."""
    with suppress(OSError):
        os.unlink(path)
