"""``bitnet-edge chat``: a conversation in the terminal, line by line in a pipe, or as JSONL for programs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import count, human
from edge.cli import options
from edge.cli.answers import report
from edge.cli.command import Command, heading, option
from edge.cli.keep import Keeper
from edge.cli.output import Output, is_tty, moves_cursor
from edge.cli.readers import PipeReader, PlainReader, Reader
from edge.cli.repl import COMMANDS, Repl
from edge.cli.signals import SIGNALS
from edge.errors import UsageError
from edge.files import LINE_LIMIT, home, stdin_is_left
from edge.registry import library

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.session import Session

EPILOG = """\
Examples:
  bitnet-edge chat -m bonsai-1.7b
  bitnet-edge chat -m bonsai-1.7b -c 8192 --memory 1500M
  bitnet-edge chat -m bonsai-1.7b --session talk.bes -sysf guide.txt
"""

DETAILS = """\
Ctrl-C stops the answer; at the prompt it clears the line, and pressed twice it quits. End a line
with \\, or start with three double quotes, to write several lines. Without a terminal, each line of
standard input is one message.
"""


@click.command(
    cls=Command,
    help="Chat with the model in the terminal. /help lists the commands, Ctrl-C stops the answer, Ctrl-D quits.",
    epilog=EPILOG,
    details=DETAILS,
)
@options.system_options
@options.session_options
@options.model_option
@options.model_options
@options.kv_options
@options.sampling_options
@options.form_options
@options.by_option
@heading("Output", option("--jsonl", "as_jsonl", is_flag=True, help="For programs: read and write one JSON object per "
                          "line (docs/contract.md)."))
@options.settings("file", "model", "context", "answer", "sampling", "print", "chat", "typing")
@options.output_options
@click.pass_obj
def chat(out: Output, as_jsonl: bool, timeout: float | None, **flags: Any) -> int:
    """Run the command; the result is the exit code."""
    system = options.system_prompt(flags)
    arguments = options.ask_arguments(flags)
    if sys.stdin is not None and not stdin_is_left():
        raise UsageError("chat reads standard input itself; name a file instead of -")
    if flags["max_tokens"] == 0 and not as_jsonl:
        raise UsageError("is 0", argument="max_tokens", hint="a chat is for answers; run -n 0 only reads its prompt")
    keeper = Keeper(flags, out.warn)
    if keeper.path is not None and as_jsonl:
        raise UsageError("--session cannot be used with --jsonl: each request contains its conversation")
    if timeout is not None:
        arguments["timeout"] = timeout
    read_ahead = flags.get("read_ahead", True)
    if as_jsonl:
        from edge.serve.calls import SPARE_CONTEXTS
        from edge.serve.protocols.jsonl import Client

        more: dict[str, Any] = {"spare_contexts": SPARE_CONTEXTS, "reserve": LINE_LIMIT}  # a request
        with options.loaded(out, {**flags, "parallel": 1}, lasting=options.REQUESTS, **more) as engine:
            engine.store.share(None if engine.plan.room else engine.plan.kv_total)
            arguments = options.advised(arguments, flags, engine)
            client = Client(engine, out.raw, arguments, system, partial(report, out), out.traceback)
            with SIGNALS.calling(client.stop):
                client.serve(None if sys.stdin is None else sys.stdin.fileno())
        return SIGNALS.code
    reader = choose_reader(out, history_path() if flags.get("history", True) else None)  # the plan counts the editor
    with keeper, options.loaded(out, flags, named=True, lasting=options.TALK, reserve=reader.reserve) as engine:
        arguments = options.advised(arguments, flags, engine)
        session = keeper.open(engine, system)
        banner(out, engine, session, reader.interactive, known=library.choose(flags["model"]).why == "demo")
        repl = Repl(out, engine, reader, arguments, session, keeper, read_ahead)
        repl.show_last()
        return repl.run()


def banner(out: Output, engine: Engine, session: Session, interactive: bool, known: bool) -> None:
    """Print which model answers, its size, the context and the memory; for a person also how to get help, and whether a
    stored conversation continues.  ``known``: that it is the demo model has been said.
    """
    plan = engine.plan
    demo = library.is_demo(engine.path) and not known
    out.info(
        f"{options.title(engine.config)}{', for tests' * demo}: context of {count(plan.n_ctx, 'token')}, "
        f"KV cache {plan.kv_type}, {human(plan.total_bytes)} of memory planned, {count(engine.n_threads, 'thread')}",
        "dim",
    )
    if interactive:
        if demo:
            out.info(f"This is a demo: {library.DEMO_PLAYS}", "dim")
        questions = sum(message["role"] == "user" for message in session.messages)
        going_on = f"\nContinuing the conversation after {count(questions, 'question')}; /clear starts a new one."
        out.info(f"/help lists the commands, Ctrl-D quits.{going_on if questions else ''}\n", "dim")


def choose_reader(out: Output, history: Path | None) -> Reader:
    """A reader with line editing if both ends are a terminal that supports it, else a plain one.  ``history``: the file
    of what was typed; None for none.
    """
    if not (is_tty(sys.stdin) and is_tty(sys.stdout)):
        return PipeReader()
    if not moves_cursor():
        return PlainReader()
    from edge.cli.terminal import TerminalReader

    commands = {name: command.help for name, command in COMMANDS.items()}
    return TerminalReader(commands, history, out.colored(sys.stdout))


def history_path() -> Path:
    """``$BITNET_EDGE_HOME/history``, else under the XDG state folder."""
    return Path(home("BITNET_EDGE_HOME", "XDG_STATE_HOME", "~/.local/state"), "history")
