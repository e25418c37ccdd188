"""Runs the services of edge/serve that use JSON lines: over the standard streams or over a socket."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from edge.cli.options import title
from edge.cli.signals import run_until_signal
from edge.errors import EdgeError

if TYPE_CHECKING:
    from edge.cli.output import Output
    from edge.engine import Engine
    from edge.serve.conversations import Conversations, Ticket
    from edge.serve.protocols.jsonl import Desk
    from edge.serve.socket import Listener


def serve_pipe(out: Output, engine: Engine, defaults: dict[str, Any], system: str | None, stats: bool) -> int:
    """``chat --jsonl``: serve one client on the standard streams until input ends."""
    from edge.serve.conversations import Conversations
    from edge.serve.pipe import speak

    with closing(Conversations(engine, 1, 1)) as conversations:
        desk = _desk(out, engine, conversations, defaults, system, stats, None)
        source = None if sys.stdin is None else sys.stdin.fileno()
        run_until_signal(speak(desk.welcome, source, out.raw, out.ascii_only))
    return 0


def serve_socket(
    out: Output, engine: Engine, defaults: dict[str, Any], system: str | None, stats: bool, listener: Listener
) -> int:
    """``chat --socket``: serve many clients until a signal arrives."""
    from edge.serve.conversations import PATIENCE, Conversations
    from edge.serve.socket import CLIENTS, Server

    with closing(Conversations(engine, engine.plan.parallel or 1, CLIENTS)) as conversations:
        desk = _desk(out, engine, conversations, defaults, system, stats, PATIENCE)
        conversations.warm(system)  # reads every weight: the first answer need not wait for the card
        status = f"{title(engine.config)} answers at {listener.path}"
        server = Server(listener, desk.welcome, conversations.alive, status)
        run_until_signal(server.run(lambda: out.info(status)))
    return 0


def _desk(
    out: Output, engine: Engine, conversations: Conversations, defaults: dict[str, Any], system: str | None,
    stats: bool, patience: float | None,
) -> Desk:  # fmt: skip
    from edge.serve.protocols.jsonl import Desk

    remarked: list[str] = []

    def told(ticket: Ticket) -> None:
        if ticket.offload_error and ticket.offload_error not in remarked:
            remarked.append(ticket.offload_error)
            out.warn(ticket.offload_error)
        if stats and ticket.answer is not None:
            from edge.session.usage import stats_line

            out.stats(stats_line(ticket.usage, ticket.timings, engine.plan, engine.rss()["rss"], ticket.evicted))

    def failed(error: BaseException) -> None:
        if out.verbose and not isinstance(error, EdgeError):
            import traceback

            traceback.print_exception(error)

    return Desk(engine, conversations, defaults, system, patience, told, failed)
