"""bitnet-edge: ternary language models on small machines.

    import edge

    with edge.load() as engine:
        session = engine.session(system="You are a helpful guide.")
        for piece in session.ask("Where is the lift?", max_tokens=60):
            print(piece.text, end="", flush=True)

Importing this package costs nothing: the names below are fetched when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; importing typing itself costs milliseconds on a Pi

__version__ = "0.1.0"

__all__ = ["Conversation", "EdgeError", "Engine", "KVConfig", "Piece", "Sampling", "Session", "__version__", "load"]

_HOME = {
    "Conversation": "edge.chat",
    "EdgeError": "edge.errors",
    "Engine": "edge.engine",
    "KVConfig": "edge.kv_config",
    "Piece": "edge.stream",
    "Sampling": "edge.sampling",
    "Session": "edge.session",
    "load": "edge.engine",
}

if TYPE_CHECKING:
    from typing import Any

    from edge.chat import Conversation
    from edge.engine import Engine, load
    from edge.errors import EdgeError
    from edge.kv_config import KVConfig
    from edge.sampling import Sampling
    from edge.session import Session
    from edge.stream import Piece


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'edge' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
