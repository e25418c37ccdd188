"""attention: softmax attention straight over KV pages (see attention.pyx)."""

import array
from typing import Any

from pyx.kv import KVCache

class Workspace:
    """What attention needs beside the pages."""

def attention(
    kv: KVCache, layer: int, q: Any, k: Any, v: Any, n_threads: int = 1, advance: bool = True,
    q_sink: Any = None, workspace: Workspace | None = None,
) -> array.array[float]:
    """Append keys and values of one layer and attend to them: the stage of a step, alone."""
