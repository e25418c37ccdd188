"""pool: pages that the caches of one plan share (see pool.pyx)."""

class PagePool:
    """Pages of any number of caches, which must all be of the plan of the first."""

    limit: int | None  # bytes of pages in use at which a step is refused with MemoryError
    def __init__(self, limit: int | None = None, huge: bool = False) -> None: ...
    def occupy(self) -> list[tuple[int, int]]:
        """Take every free page, as wrong counts or another thread would; for tests.  Returns them for vacate."""
    def vacate(self, taken: list[tuple[int, int]]) -> None:
        """Return the pages that occupy took."""
    @property
    def nbytes(self) -> int:
        """Bytes that all slabs have room for; what was never used takes no memory."""
    @property
    def used(self) -> int:
        """Bytes of the pages in use; one that several caches share counts once."""
    @property
    def touched(self) -> int:
        """Bytes of the pages that take memory: those in use, and free ones that were used."""
    @property
    def references(self) -> list[list[int]]:
        """How many tables name each page, one list per slab."""
    @property
    def pages(self) -> tuple[int, int]:
        """(pages in use, pages there is room for)."""
