"""Everything: modules that some answers need and most do not, for commands that run for long.

They load them before they are ready, and never read the program again, which may have been moved, upgraded or deleted.
Short commands load what they need.
"""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "concurrent.futures.thread", "difflib", "encodings.idna", "encodings.punycode", "encodings.utf_8_sig", "regex",
    "traceback", "edge.cache.codec", "edge.constrain.classes", "edge.constrain.closing", "edge.constrain.constraint",
    "edge.constrain.functions", "edge.constrain.schema", "llguidance", "pyx.tokens.compare", "pyx.tokens.sampler",
)


def load() -> None:
    """Import them; called before the size of the program is measured."""
    for name in MODULES:
        import_module(name)
