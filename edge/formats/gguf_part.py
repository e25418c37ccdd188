"""A GGUF file on its way: written tensor by tensor, gone on with after an interruption, renamed when it is whole.

The tensors go to ``TARGET.part``, whose header stays zeros until all of them are there: until then nothing takes it for
a model.  ``TARGET.part.jsonl`` says what the file will be and which tensors are finished, one line each with a checksum
of the stored bytes.  What an earlier process left is gone on with if it was to become the same file, made of the same
source; a tensor whose bytes are not those that were written is made again, with all that follow.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from edge.errors import Busy
from edge.formats.gguf_writer import Entry, layout, put

_BLOCK = 1 << 20


class Part:
    """The unfinished file of ``target``; a context manager that keeps it when something interrupts the work.

    ``source``: what the tensors are made of, as JSON values; another source begins anew.  ``finished``: tensors that
    are there already -> what :meth:`add` was told of them.  Raises Busy where another process writes to it, OSError.
    """

    def __init__(
        self, target: str, metadata: Mapping[str, Any], entries: Sequence[Entry], source: Mapping[str, Any]
    ) -> None:
        self.target, self.path, self._record_path = target, f"{target}.part", f"{target}.part.jsonl"
        self._head, offsets = layout(metadata, entries)
        self._offsets = {entry.name: offset for entry, offset in zip(entries, offsets[:-1], strict=True)}
        self._end = offsets[-1]
        self._file = _alone(self.path, target)
        self.finished: dict[str, Any] = {}
        about = {"header": hashlib.sha256(self._head).hexdigest(), "source": dict(source)}
        try:
            lines = [json.dumps(about), *self._sound(_read(self._record_path), about, entries)]
            self._record = open(self._record_path, "w", encoding="utf-8")
            self._note(*lines)
            sound = [entry for entry in entries if entry.name in self.finished]
            self._file.truncate(self._offsets[sound[-1].name] + sound[-1].nbytes if sound else 0)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        self._record.close()
        self._file.close()

    def _note(self, *lines: str) -> None:
        self._record.write("".join(f"{line}\n" for line in lines))
        self._record.flush()

    def _sound(self, lines: list[str], about: dict[str, Any], entries: Sequence[Entry]) -> list[str]:
        """The lines of tensors whose bytes are as they were written, up to the first that is not."""
        kept: list[str] = []
        if not lines or _parsed(lines[0]) != about:
            return kept
        for line, entry in zip(lines[1:], entries):
            said = _parsed(line)
            if not isinstance(said, dict) or said.get("name") != entry.name:
                break
            if said.get("crc") != self._stored_crc(self._offsets[entry.name], entry.nbytes):
                break
            self.finished[entry.name] = said.get("about")
            kept.append(line)
        return kept

    def _stored_crc(self, offset: int, nbytes: int) -> int | None:
        """Of bytes in the file; None where it is too short."""
        self._file.seek(offset)
        crc = 0
        while nbytes:
            block = self._file.read(min(_BLOCK, nbytes))
            if not block:
                return None
            crc, nbytes = zlib.crc32(block, crc), nbytes - len(block)
        return crc

    def add(self, entry: Entry) -> int:
        """Write a tensor; returns the CRC of its bytes, to be given to :meth:`note`."""
        self._file.seek(self._offsets[entry.name])
        crc = put(self._file, entry)
        self._file.flush()  # before the record says that they are there
        return crc

    def note(self, name: str, crc: int, about: Any) -> None:
        """A tensor is finished; ``about``: what whoever goes on needs to know of it, as JSON values."""
        self._note(json.dumps({"name": name, "crc": crc, "about": about}))

    def complete(self) -> None:
        """Write the header: the file at ``path`` is a GGUF file now, on the disk."""
        self._file.seek(0)
        self._file.write(self._head)
        self._file.truncate(self._end)  # what lies between tensors is zeros
        self._file.flush()
        os.fsync(self._file.fileno())

    def publish(self) -> None:
        """Give the complete file its name."""
        os.replace(self.path, self.target)
        os.unlink(self._record_path)

    def discard(self) -> None:
        """Delete what is there."""
        for path in (self._record_path, self.path):
            with suppress(OSError):
                os.unlink(path)


def _alone(path: str, target: str) -> BinaryIO:
    """Open for reading and writing, locked."""
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise Busy(f"{target}: another process is writing it") from None
        except OSError:  # a file system without locks
            return file
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()  # whoever had it has just given it its name


def _read(path: str) -> list[str]:
    """Whole lines; none where there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line[:-1] for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
