"""scratch: the working memory of a step (see scratch.pyx)."""

from typing import Any

def bytes_for(config: Any, n_threads: int, chunk: int = 128) -> int:
    """Bytes of the working memory of a transformer, before there is one."""
