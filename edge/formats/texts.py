"""Lists of texts as GGUF stores them.

A 128 k vocabulary and its merges are 408 thousand strings, of which a run needs a few hundred; the others stay bytes in
the file.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from edge.errors import InvalidFile
from edge.formats.mapped import read
from pyx.tokens import texts_starting

PIECE = 1 << 18  # bytes that are read at a time


class StringArray(Sequence[str]):
    """Strings, each stored as its length (uint64) and its bytes; decoded only when accessed.

    Accessing an element that is not UTF-8 raises InvalidFile.
    """

    __slots__ = ("_where", "ends", "first", "view")

    def __init__(self, view: memoryview, first: int, ends: array[int], where: str) -> None:
        self.view = view  # of the whole file
        self.first = first  # where the first string's length stands
        self.ends = ends  # end of each string
        self._where = where  # file and key, for messages

    @classmethod
    def of(cls, texts: Sequence[str], where: str) -> StringArray:
        """A StringArray of ``texts``, in its own memory."""
        if isinstance(texts, cls):
            return texts
        stored = bytearray()
        ends = array("q")
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")  # half a pair is found to be none when it is read
            stored += len(data).to_bytes(8, "little") + data
            ends.append(len(stored))
        return cls(memoryview(stored), 0, ends, where)

    def starting(self, prefix: str) -> list[int]:
        """Indices of the strings that start with ``prefix``."""
        return texts_starting(self.view, self.first, self.ends, prefix.encode())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """All elements as they are stored, in pieces, without the file's pages."""
        end = self.ends[-1] if self.ends else self.first
        for at in range(self.first, end, PIECE):
            yield read(self.view[at : min(at + PIECE, end)])

    def __len__(self) -> int:
        return len(self.ends)

    def _decode(self, index: int, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise InvalidFile(f"{self._where}, element {index}: not UTF-8; the file is damaged") from None

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = (self.ends[index - 1] if index else self.first) + 8
        return self._decode(index, bytes(self.view[start : self.ends[index]]))

    def __iter__(self) -> Iterator[str]:
        raw, start = self.raw(), 8
        for index, end in enumerate(self.ends):
            end -= self.first
            yield self._decode(index, raw[start:end])
            start = end + 8

    def raw(self) -> bytes:
        """All elements as they are stored: length, bytes, length, bytes, ..."""
        return bytes(self.view[self.first : self.ends[-1] if self.ends else self.first])
