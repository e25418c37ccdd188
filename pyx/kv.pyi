"""kv: the KV pages of one session (see kv.pyx)."""

class KVCache:
    """Keys and values of one session in pages of 32 tokens.

    ``window`` 0 keeps everything up to ``n_ctx``; otherwise token t attends {0..sinks-1} and {t-window+1..t}.
    """

    n_tokens: int  # tokens seen so far = next position
    n_ctx: int
    window: int
    sinks: int
    type_k: str
    type_v: str
    nbytes: int  # exactly what bytes_for() said
    evicted: int  # tokens no longer attended
    room: int  # tokens that still fit (a large number with a window)
    def __init__(
        self, n_layer: int, n_kv_head: int, head_dim: int, n_ctx: int, kv_type: str = "f16", window: int = 0, sinks: int = 0
    ) -> None: ...
    @staticmethod
    def bytes_for(
        n_layer: int, n_kv_head: int, head_dim: int, n_ctx: int, kv_type: str = "f16", window: int = 0, sinks: int = 0
    ) -> int: ...
    def crop(self, n: int) -> int:
        """Drop the tail so that at most n tokens stay; returns how many did (page-aligned when pages are sealed,
        0 when the ring has lost what n needs).  Tokens between the returned number and n must be evaluated again."""
    def reset(self) -> None: ...
