"""probe: where the last token looked (see probe.pyx)."""

from array import array
from typing import Any

from pyx.kv.cache import KVCache

def rows(
    kv: KVCache,
    layer: int,
    queries: Any,  # float32 [n_layer][n_head][head_dim], from Transformer.keep_queries
) -> array[float]:  # float64 [n_head][n_tokens] flat
    """The attention of the last token's queries to every token read; each row adds up to 1."""

def kept(kv: KVCache, layer: int, head: int, row: Any) -> float:
    """The share of an attention row, float64 [n_tokens], that falls on tokens that a KV head of this cache sees."""
