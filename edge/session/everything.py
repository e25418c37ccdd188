"""Everything: modules that some answers need and most do not, for commands that run for long.

They load them before they are ready, and never read the program again, which may have been moved, upgraded or deleted.
Short commands load what they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

TALK = ("difflib", "encodings.utf_8_sig", "regex", "traceback", "edge.cache.kv_file", "pyx.tokens")
REQUESTS = (  # these may have forms, and ask for anything
    *TALK, "concurrent.futures.thread", "encodings.idna", "encodings.punycode", "llguidance",
    "edge.constrain.constraint", "edge.constrain.functions", "edge.constrain.schema",
)


def load(names: Sequence[str]) -> None:
    """Import them; called before the size of the program is measured."""
    for name in names:
        import_module(name)
