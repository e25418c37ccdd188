"""transformer: one model, one step (see transformer.pyx)."""

from collections.abc import Mapping
from typing import Any

from pyx.kv import KVCache

class Transformer:
    """Weights plus the compiled step.  Thread-safe for one call at a time; the GIL is released inside."""

    n_threads: int
    weight_bytes: int  # bytes of ternary weights read per token
    head_bytes: int  # bytes of the output head read per token
    scratch_bytes: int
    def __init__(
        self,
        config: Any,  # edge.config.ModelConfig
        embedding: Any,  # pyx.table.Table
        head: Any,  # pyx.table.Head
        layers: list[Mapping[str, Any]],  # {"attn_norm": Vector, "q": TernaryMatrix or DenseMatrix, ...}
        output_norm: Any,
        rope_freqs: Any | None = None,
        n_threads: int = 1,
        chunk: int = 128,
    ) -> None: ...
    def step(self, kv: KVCache, ids: Any, logits: Any, all_logits: bool = False) -> None:
        """Evaluate ids (int32 buffer, 1..chunk tokens) behind what kv holds, append their keys and values, and write
        the logits of the last token to logits (float32 [n_vocab]); with all_logits of every token [n][n_vocab].
        logits may be None: nothing is computed past the last layer."""
