"""page: how 32 tokens of one KV head lie in memory (see page.pyx)."""

NAMES: tuple[str, ...]
MARKS: dict[str, str]  # what to know of those that are not for every day

def page_types(text: object) -> str:
    """Canonical spelling of a KV type: "int8", or "int8:f16" where keys and values differ; else ValueError."""
