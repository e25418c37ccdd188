"""The JSON values and JSONL events that programs read: about engines, answers and failures.

docs/contract.md promises their form, so they are built in this module only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edge.errors import AnswerTimeout, ContextFull, EdgeError, unbuilt
from edge.settings import with_options

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.logprobs import Scored
    from edge.session.outcome import Outcome
    from edge.session.session import Session
    from edge.session.stream import Piece

#: version of the JSONL protocol
PROTOCOL = 1

#: code of an error event (those of failures: EdgeError.code) -> its meaning, as listed in docs/contract.md
CODES = {
    "bad_json": "the line is not a JSON object",
    "bad_request": "a key of the request, an option or an id is invalid",
    "unknown_op": "there is no such op",
    "unknown_id": "no request with this id is running or waiting",
    "unsupported_version": "another version of the protocol",
    "too_long": "the line is longer than 4 MiB, takes more as text in memory (with an emoji, every character takes "
                "four bytes), or has too many values (about 75,000 lists and objects, 150,000 texts, or 300,000 "
                "numbers)",
    "busy": "too many clients or waiting requests; try again later",
    "context_full": "the prompt does not fit in the context (--set overflow=stop)",
    "memory_refused": "the answer needs more memory than the plan has",
    "invalid_file": "the model file is damaged",
    "engine": "the answer failed; the message says why",
    "internal": "a bug",
}

def plain(value: Any) -> Any:
    """Dataclasses and mappings as plain dictionaries; seconds are rounded to microseconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


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
    """The event of a piece of the answer, or of thinking."""
    return {"ev": "thought" if piece.thought else "text", "text": piece.text}


def answer(engine: Engine, session: Session, text: str, thoughts: str = "") -> dict[str, Any]:
    """The object of ``run --json``; with ``thoughts`` only if there are any."""
    ended = _ended(session.outcome, session.state.evicted)
    return {"text": text, **({"thoughts": thoughts} if thoughts else {}), **ended, "model": engine.config.name,
            "kv": kv(engine)}


def _ended(outcome: Outcome, evicted: int, finish_reason: str | None = None) -> dict[str, Any]:
    """How an answer has ended, and what it took."""
    return {
        "finish_reason": finish_reason or outcome.finish_reason,
        "usage": {**plain(outcome.usage), "evicted": evicted},
        "timings": plain(outcome.timings),
        **shares(outcome.shares),
    }


def shares(found: Sequence[Scored]) -> dict[str, Any]:
    """The key ``shares``: how likely each choice is; {} without choices."""
    return {"shares": [{"text": each.text, "share": each.share, "probability": each.probability,
                        "logprob": each.logprob} for each in found]} if found else {}


def ready(engine: Engine) -> dict[str, Any]:
    """The first event: the model is loaded."""
    plan = engine.plan
    return {"ev": "ready", "v": PROTOCOL, "model": engine.config.name, "ctx": plan.n_ctx, "kv": plan.kv_type}


def prefill(done: int, total: int, cached: int) -> dict[str, Any]:
    """How far the prompt has been read, in tokens."""
    return {"ev": "prefill", "done": done, "total": total, "cached": cached}


def done(
    outcome: Outcome, evicted: int, finish_reason: str | None = None, calls: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The last event of an answer.  ``evicted``: tokens that the session no longer sees.  ``finish_reason``: where it
    is not that of the outcome.
    """
    return {"ev": "done", **_ended(outcome, evicted, finish_reason), **({"tool_calls": calls} if calls else {})}


def info(engine: Engine, pending: int) -> dict[str, Any]:
    """The model, its settings, and the number of requests that have not ended."""
    from edge import __version__

    return {
        "ev": "info",
        "v": PROTOCOL,
        "version": __version__,
        "model": engine.config.name,
        "kv": kv(engine),
        "threads": engine.n_threads,
        "template": engine.template.name,
        "memory": plain(engine.memory()),
        "pending": pending,
    }


def error(code: str, message: str) -> dict[str, Any]:
    """An error event; ``code``: of CODES."""
    return {"ev": "error", "code": code, "message": message}


def error_of(exception: BaseException) -> dict[str, Any]:
    """The error event of an exception: ``ContextFull`` has the code ``context_full``; unexpected ones have
    ``internal``.
    """
    if isinstance(exception, Exception) and not isinstance(exception, EdgeError):
        exception = unbuilt(exception) or exception
    if isinstance(exception, EdgeError):
        return error(exception.code, with_options(str(exception)))
    return error("internal", f"{type(exception).__name__}: {exception}")


def failure(exception: BaseException) -> dict[str, Any]:
    """The object of ``run --json`` in place of an answer."""
    event = error_of(exception)
    if not isinstance(exception, Exception):
        event = error("cancelled", "a signal ended the command before it had an answer")
    return {"error": {"code": event["code"], "message": event["message"]}}


def finish_error(session: Session, timeout: float | None) -> EdgeError | None:
    """The command-line error for the way in which the latest answer ended; None if it ended well."""
    finish_reason = session.outcome.finish_reason
    if finish_reason == "timeout":
        return AnswerTimeout(f"stopped after --timeout {timeout:g} s" if timeout else "stopped by the timeout")
    if finish_reason == "context_full":
        n_ctx = session.plan.n_ctx
        return ContextFull(f"the context of {n_ctx} tokens is full; use a larger --ctx or --set overflow=slide")
    if finish_reason in ("length", "stop") and session.outcome.usage.completion and not session.outcome.whole:
        why = "it reached the limit of -n" if finish_reason == "length" else "a stop text ended it"
        return EdgeError(f"the answer is incomplete and does not have its form: {why}")
    return None
