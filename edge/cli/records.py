"""What programs read: the JSON values and JSONL events that describe engines, answers and failures.

The shapes are a promise (docs/contract.md); one place builds them for ``run`` and ``chat``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edge.errors import AnswerTimeout, ContextFull, EdgeError

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.session import Session
    from edge.session.stream import Piece

#: version of the JSONL protocol
PROTOCOL = 1


def plain(value: Any) -> Any:
    """Dataclasses and mappings as plain dictionaries, seconds rounded to microseconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


def usage(session: Session) -> dict[str, int]:
    """Tokens of the last answer: read (of which cached) and written; ``evicted``: by now out of the session's sight."""
    return {**plain(session.usage), "evicted": session.evicted}


def kv(engine: Engine) -> dict[str, Any]:
    """The KV cache of every session of this engine."""
    plan = engine.plan
    return {
        "ctx": plan.n_ctx,
        "type": plan.kv_type,
        "window": plan.window,
        "sinks": plan.sinks,
        "bytes": plan.kv_bytes,
    }


def text(piece: Piece) -> dict[str, Any]:
    """The event of a piece: of the answer, or of the thoughts in front of it."""
    return {"ev": "thought" if piece.thought else "text", "text": piece.text}


def answer(engine: Engine, session: Session, text: str, thoughts: str = "") -> dict[str, Any]:
    """The object of ``run --json``; ``thoughts`` only where there are any."""
    return {
        "text": text,
        **({"thoughts": thoughts} if thoughts else {}),
        "finish_reason": session.finish_reason,
        "usage": usage(session),
        "timings": plain(session.timings),
        "model": engine.config.name,
        "kv": kv(engine),
    }


def ready(engine: Engine) -> dict[str, Any]:
    """First event: the model is loaded."""
    plan = engine.plan
    return {"ev": "ready", "v": PROTOCOL, "model": engine.config.name, "ctx": plan.n_ctx, "kv": plan.kv_type}


def prefill(done: int, total: int, cached: int) -> dict[str, Any]:
    """How far the prompt has been read, in tokens."""
    return {"ev": "prefill", "done": done, "total": total, "cached": cached}


def done(session: Session) -> dict[str, Any]:
    """Last event of an answer."""
    return {
        "ev": "done",
        "finish_reason": session.finish_reason,
        "usage": usage(session),
        "timings": plain(session.timings),
    }


def error(code: str, message: str) -> dict[str, Any]:
    """An event that says what was wrong."""
    return {"ev": "error", "code": code, "message": message}


def error_of(exception: BaseException) -> dict[str, Any]:
    """The error event of an exception: ``ContextFull`` is code ``context_full``; surprises are ``internal``."""
    if isinstance(exception, EdgeError):
        code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(exception).__name__).lower()
        return error({"usage_error": "bad_request"}.get(code, code), str(exception))
    return error("internal", f"{type(exception).__name__}: {exception}")


def failure(exception: BaseException) -> dict[str, Any]:
    """The object of ``run --json`` in place of an answer."""
    event = error_of(exception)
    return {"error": {"code": event["code"], "message": event["message"]}}


def finish_error(finish_reason: str | None, engine: Engine, timeout: float | None) -> EdgeError | None:
    """The failure that a finish reason stands for on the command line; None when the answer ended well."""
    if finish_reason == "timeout":
        return AnswerTimeout(f"stopped after --timeout {timeout:g} s" if timeout else "stopped by the timeout")
    if finish_reason == "context_full":
        return ContextFull(f"the context of {engine.plan.n_ctx} tokens is full; use a larger --ctx or --overflow slide")
    return None
