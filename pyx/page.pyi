"""page: how 32 tokens of one KV head lie in memory (see page.pyx)."""

NAMES: tuple[str, ...]

def page_types(text: str) -> str:
    """Canonical spelling of a KV type: "int8", or "int8:f16" where keys and values differ."""
