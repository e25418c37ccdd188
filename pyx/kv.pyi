"""kv: the KV pages of one session (see kv.pyx)."""

from collections.abc import Callable

class KVCache:
    """Keys and values of one session in pages of 32 tokens.

    ``window`` 0 keeps everything up to ``n_ctx``; otherwise token t attends {0..sinks-1} and {t-window+1..t}.
    """

    n_tokens: int  # tokens seen so far = next position
    n_ctx: int
    kv_type: str  # "f32", "f16" or "int8"
    def __init__(
        self,
        n_layer: int,
        n_kv_head: int,
        head_dim: int,
        n_ctx: int,
        kv_type: str = "f16",
        window: int = 0,
        sinks: int = 0,
    ) -> None: ...
    @staticmethod
    def bytes_for(
        n_layer: int,
        n_kv_head: int,
        head_dim: int,
        n_ctx: int,
        kv_type: str = "f16",
        window: int = 0,
        sinks: int = 0,
    ) -> int:
        """Exactly the bytes a cache of this plan allocates."""
    @property
    def nbytes(self) -> int: ...
    @property
    def window(self) -> int: ...
    @property
    def sinks(self) -> int: ...
    @property
    def room(self) -> int:
        """Tokens that still can be appended."""
    @property
    def evicted(self) -> int:
        """Tokens seen that the next query no longer attends."""
    def crop(self, n: int) -> int:
        """Drop the tail so that at most n tokens stay; returns how many did.  The caller evaluates the rest again."""
    def reset(self) -> None: ...
    @property
    def counters(self) -> tuple[int, int]:
        """(n_tokens, oldest): with the pages of ``dump`` all that a cache of the same plan needs to go on."""
    def dump(self) -> list[memoryview]:
        """The pages in use, as read-only views of the cache itself."""
    def dump_bytes(self, n_tokens: int, oldest: int) -> int:
        """Bytes of the dump of a cache of this plan in that state; ValueError for a state it cannot be in."""
    def restore(self, n_tokens: int, oldest: int, fill: Callable[[memoryview], object]) -> None:
        """Take over a dump: ``fill(view)`` writes the next ``len(view)`` bytes of it into each view."""
    def fork(self) -> KVCache:
        """A second cache in the same state; the pages are copied."""
    def page(self, layer: int, head: int, page: int) -> tuple[bytes, str]:
        """(bytes, type) of one page, for tests and tools."""
