"""kv: the KV cache of one session (see kv.pyx)."""

from collections.abc import Callable, Sequence
from typing import TypedDict

from pyx.kv.pool import PagePool
from pyx.kv.spill import Spill

class Stats(TypedDict):
    tokens: int
    evicted: int  # tokens that no head attends any more
    attended: float  # tokens that the next query attends, mean over the heads
    pages: int
    bytes: int  # of these pages
    sealed: int
    shared: int  # pages that other caches hold too

class KVCache:
    """Keys and values of one session in pages of 32 tokens.

    ``window`` 0 keeps everything up to ``n_ctx``; otherwise token t attends {0..sinks-1} and {t-window+1..t}.
    """

    n_tokens: int  # tokens seen so far = next position
    n_ctx: int
    kv_type: str  # as page.page_types() spells it
    policy: str
    windows: Sequence[int] | None  # tokens that each layer sees at most, by the model itself, 0: all
    pool: PagePool
    spill: Spill | None  # where pages go that leave the window
    def __init__(
        self,
        n_layer: int,
        n_kv_head: int,
        head_dim: int,
        n_ctx: int,
        kv_type: str = "f16",
        window: int = 0,
        sinks: int = 0,
        *,
        budgets: Sequence[Sequence[int]] | None = None,
        policy: str = "recent",
        spare: int = 0,
        windows: Sequence[int] | None = None,
        recurrent: tuple[int, int, int, int, int] | None = None,
        snapshots: int = 0,
        pool: PagePool | None = None,
        spill: tuple[str, int] | None = None,
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
        *,
        budgets: Sequence[Sequence[int]] | None = None,
        policy: str = "recent",
        spare: int = 0,
        windows: Sequence[int] | None = None,
        recurrent: tuple[int, int, int, int, int] | None = None,
        snapshots: int = 0,
    ) -> int:
        """Exactly the bytes of pages and states that a cache of this plan has room for."""
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
        """Tokens read that the next query no longer attends, in the head that attends most."""
    @property
    def stats(self) -> Stats: ...
    def crop(self, n: int) -> int:
        """Drop the tail so that at most n tokens stay; returns how many did.  The caller evaluates the rest again."""
    def reset(self) -> None: ...
    @property
    def counters(self) -> tuple[int, int]:
        """(n_tokens, most): with the bytes of ``dump`` all that a cache of the same plan needs to go on."""
    @property
    def states(self) -> list[list[int]]:
        """[[tokens, kept]] of the states of gated delta layers that it holds, ascending."""
    def mark(self) -> None:
        """Keep the states of now as a snapshot that ``crop`` can go back to; nothing without gated delta layers."""
    def dump(self) -> list[memoryview]:
        """The pages held, as read-only views of the cache itself."""
    def dump_bytes(self, n_tokens: int, most: int, states: Sequence[Sequence[int]] = ()) -> int:
        """Bytes of the dump of a cache of this plan in that state; ValueError for a state it cannot be in."""
    def restore(
        self, n_tokens: int, most: int, fill: Callable[[memoryview], object], states: Sequence[Sequence[int]] = ()
    ) -> None:
        """Take over a dump: ``fill(view)`` writes the next ``len(view)`` bytes of it into each view."""
    def fork(self) -> KVCache:
        """A second cache in the same state; pages are shared until one of the two writes to them."""
    def held(self, layer: int, head: int) -> list[int]:
        """Numbers of the pages that a head holds."""
    def page(self, layer: int, head: int, page: int) -> tuple[bytes, str]:
        """(bytes, type) of one page, for tests and tools."""
