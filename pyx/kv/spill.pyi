"""spill: pages that have left a window, in a file (see spill.pyx)."""

class Spill:
    """The file of one cache, in ``folder``; KVCache makes it."""

    folder: str
    @property
    def descriptor(self) -> int:
        """Of the file, -1 where there is none (yet)."""
    @property
    def max_bytes(self) -> int:
        """Bytes of the file at most."""
    @property
    def written(self) -> int:
        """Bytes of pages written in all."""
    @property
    def read(self) -> int:
        """Bytes of pages brought back in all."""
    @property
    def error(self) -> str | None:
        """Why there is no file, or no longer; None if there is no error."""
