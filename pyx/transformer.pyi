"""transformer: one model, one step (see transformer.pyx)."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyx.head import Head
from pyx.kv import KVCache
from pyx.table import Table
from pyx.ternary import TernaryMatrix

STAGES: tuple[str, ...]

class Transformer:
    """Weights of one model and its compiled step.  One call at a time; the GIL is released inside."""

    n_layer: int
    hidden: int
    ffn: int
    n_head: int
    n_kv_head: int
    head_dim: int
    n_vocab: int
    n_threads: int
    chunk: int  # most tokens per step
    def __init__(
        self,
        config: Any,  # edge.config.ModelConfig
        embedding: Table,
        head: Head,
        layers: Sequence[Mapping[str, Any]],
        output_norm: Any,
        rope_freqs: Any | None = None,
        n_threads: int = 1,
        chunk: int = 128,
    ) -> None: ...
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def vector_bytes(self) -> int: ...
    @property
    def matrices(self) -> list[TernaryMatrix]:
        """The projections in the order in which a step reads them."""
    @property
    def weight_bytes(self) -> int: ...
    @property
    def weight_bytes_allocated(self) -> int: ...
    @property
    def head_bytes(self) -> int: ...
    @property
    def head_bytes_allocated(self) -> int: ...
    @property
    def head_kind(self) -> str: ...
    def keep_queries(self) -> Any:
        """From now on each step leaves here what its last token asked: float32 [n_layer][n_head][head_dim]."""
    def keep_times(self) -> Any:
        """Each step adds here what each thread did, nanoseconds: int64 [n_threads][16], the first ones by STAGES."""
    def step(self, kv: KVCache, ids: Any, logits: Any, all_logits: bool = False, top: int = 0) -> None:
        """Evaluate ids (int32 buffer, 1..chunk tokens) and write the logits of the last (or every) token."""
