"""An unfinished GGUF file: written tensor by tensor, resumed after an interruption, renamed when it is complete.

The tensors are written to ``FILE.part``.  Its header stays zero until all of them are written, so no program opens it
as a model.  ``FILE.part.jsonl`` records the header and the source, then one line for each finished tensor with a
checksum of its stored bytes.  The work of an earlier process is resumed if header and source are the same.  A tensor
whose bytes do not match their checksum is written again, and so are all tensors after it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from edge.files import exclusive, remove
from edge.formats.gguf_writer import Entry, layout, put
from edge.machine.linux import drop_cached

_BLOCK = 1 << 20


class Unfinished:
    """What will be the file ``final``; a context manager that keeps the file if the work is interrupted.

    ``source``: identifies what the tensors are made from, as JSON values; with another source the file starts empty.
    ``finished``: name of each tensor that is already written -> its ``about`` from :meth:`note`.

    Raises Busy if another process is writing the file, and OSError.
    """

    def __init__(
        self, final: str, metadata: Mapping[str, Any], entries: Sequence[Entry], source: Mapping[str, Any]
    ) -> None:
        self.final, self.path, self._record_path = final, f"{final}.part", f"{final}.part.jsonl"
        self._entries = entries
        self._head, offsets = layout(metadata, entries)
        self._offsets = {entry.name: offset for entry, offset in zip(entries, offsets[:-1], strict=True)}
        self._end = offsets[-1]
        self._file = os.fdopen(exclusive(self.path, 0o666), "r+b")
        self.finished: dict[str, Any] = {}
        self._crcs: dict[str, int] = {}
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

    def __enter__(self) -> Unfinished:
        return self

    def __exit__(self, *_: object) -> None:
        self._record.close()
        self._file.close()

    def _note(self, *lines: str) -> None:
        self._record.write("".join(f"{line}\n" for line in lines))
        self._record.flush()

    def _sound(self, lines: list[str], about: dict[str, Any], entries: Sequence[Entry]) -> list[str]:
        """The lines of the leading tensors whose stored bytes match their checksums."""
        kept: list[str] = []
        if not lines or _parsed(lines[0]) != about:
            return kept
        for line, entry in zip(lines[1:], entries):
            record = _parsed(line)
            if not isinstance(record, dict) or record.get("name") != entry.name:
                break
            if record.get("crc") != self._stored_crc(self._offsets[entry.name], entry.nbytes):
                break
            self.finished[entry.name], self._crcs[entry.name] = record.get("about"), record["crc"]
            kept.append(line)
        return kept

    def _stored_crc(self, offset: int, nbytes: int) -> int | None:
        """CRC of ``nbytes`` bytes of the file from ``offset``; None if the file is too short."""
        self._file.seek(offset)
        crc = 0
        while nbytes:
            block = self._file.read(min(_BLOCK, nbytes))
            if not block:
                return None
            crc, nbytes = zlib.crc32(block, crc), nbytes - len(block)
        return crc

    def add(self, entry: Entry) -> int:
        """Write a tensor; return the CRC of its stored bytes, for :meth:`note`."""
        self._file.seek(self._offsets[entry.name])
        crc = put(self._file, entry)
        self._file.flush()  # before the record names it
        return crc

    def note(self, name: str, crc: int, about: Any) -> None:
        """Record a finished tensor; ``about``: what a resumed run needs to know about it, as JSON values."""
        self._crcs[name] = crc
        self._note(json.dumps({"name": name, "crc": crc, "about": about}))

    def complete(self, metadata: Mapping[str, Any]) -> None:
        """Write the header and sync: the file at ``path`` is now a complete GGUF file on disk.

        ``metadata``: as at the beginning, but numbers may have been measured meanwhile.

        Whoever reads it next reads it from the disk.  That checks more, and Linux can then cache it in pages of 2 MiB
        (large folios: XFS, ext4 since Linux 6.16); what is written piece by piece is cached in pages of 4 KiB.
        """
        head, _ = layout(metadata, self._entries)
        assert len(head) == len(self._head)
        self._file.seek(0)
        self._file.write(head)
        self._file.truncate(self._end)  # the padding between tensors is zero
        self._file.flush()
        os.fsync(self._file.fileno())
        drop_cached(self._file.fileno())

    def damaged(self) -> str | None:
        """The name of a tensor whose stored bytes are not those that were written; None if there is none."""
        return next((entry.name for entry in self._entries
                     if self._stored_crc(self._offsets[entry.name], entry.nbytes) != self._crcs[entry.name]), None)

    def publish(self) -> None:
        """Rename the complete file to ``final``."""
        os.replace(self.path, self.final)
        os.unlink(self._record_path)

    def discard(self) -> None:
        """Delete the unfinished file and its record."""
        for path in (self._record_path, self.path):
            remove(path)


def _read(path: str) -> list[str]:
    """The complete lines of a text file; empty if there is no such file."""
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
