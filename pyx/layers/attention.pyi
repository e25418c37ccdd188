"""attention: softmax attention straight over KV pages (see attention.pyx)."""

import array
from typing import Any

from pyx.kv.cache import KVCache

class Workspace:
    """Buffers of attention besides the pages: partial results."""

def attention(
    kv: KVCache,
    layer: int,
    q: Any,  # float32 [n_token][n_head][head_dim] flat, rotated, times 1/sqrt(head_dim)
    k: Any,  # float32 [n_token][n_kv_head][head_dim] flat, rotated
    v: Any,  # float32 [n_token][n_kv_head][head_dim] flat
    n_threads: int = 1,
    advance: bool = True,
    workspace: Workspace | None = None,
) -> array.array[float]:  # as q
    """Append keys and values of one layer and attend to them: one stage of a step."""
