"""probe: where the last token looked (see probe.pyx)."""

from array import array
from typing import Any

from pyx.kv import KVCache

def rows(kv: KVCache, layer: int, queries: Any) -> array[float]:
    """Attention of the last token's queries to every token read: [n_head][n_tokens] flat, each row adds up to 1."""

def kept(kv: KVCache, layer: int, head: int, row: Any) -> float:
    """How much of an attention row falls on tokens that a KV head of this cache has in sight."""

def describe(row: Any, sinks: int = 4, share: float = 0.95) -> tuple[float, float, int, int]:
    """(entropy in bits, mass of the sinks, support, recency) of an attention row."""
