"""``bitnet-edge chat``: a conversation in the terminal, line by line in a pipe, or as JSONL for programs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import count, human
from edge.cli import options
from edge.cli.command import Command, Text, Whole, heading, option
from edge.cli.keep import Keeper
from edge.cli.menu import settle_model
from edge.cli.output import Output
from edge.cli.readers import choose_reader, history_path
from edge.cli.repl import COMMANDS, Repl
from edge.errors import UsageError
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
    help="Chat with the model. /help lists the commands, Ctrl-C stops the answer, Ctrl-D quits.",
    epilog=EPILOG,
    details=DETAILS,
    exit_codes=True,
)
@options.system_options
@options.session_options
@options.model_file_options
@options.model_options
@options.kv_options
@options.sampling_options
@options.form_options
@options.by_option
@heading(
    "Output",
    option("--jsonl", "as_jsonl", is_flag=True, help="Read and write one JSON object per line (docs/contract.md)."),
    option("--socket", "socket_path", type=Text(), metavar="PATH", advanced=True, help="Serve the protocol of "
           "--jsonl to several programs on a Unix socket, as a service of systemd if wanted (docs/service.md)."),
    option("--parallel", type=Whole(min=1, max=64), metavar="N", default=1, advanced=True,
           help="With --socket: number of answers at the same time (default 1). Each takes the memory of a context."),
    option("--no-history", is_flag=True, advanced=True, help="Do not read or write the history of typed lines."),
)  # fmt: skip
@options.stats_option
@options.output_options
@click.pass_context
def chat(
    ctx: click.Context,
    as_jsonl: bool,
    socket_path: str | None,
    no_history: bool,
    stats: bool | None,
    timeout: float | None,
    **flags: Any,
) -> int:
    """Run the command; the result is the exit code."""
    out = ctx.ensure_object(Output)
    system = options.system_prompt(flags)
    arguments = options.ask_arguments(flags)
    keeper = Keeper(flags)
    if keeper.path is not None and (as_jsonl or socket_path is not None):
        raise UsageError("--session cannot be used with --jsonl or --socket: each request contains its conversation")
    if flags["parallel"] > 1 and socket_path is None:
        raise UsageError("--parallel needs --socket")
    if timeout is not None:
        arguments["timeout"] = timeout
    if stats is None:
        stats = out.verbose
    settle_model(out, flags, for_program=as_jsonl)
    if socket_path is not None:
        from edge.cli.services import serve_socket
        from edge.serve.conversations import ASIDE
        from edge.serve.socket import RESERVE, Listener

        with closing(Listener(socket_path)) as listener, options.loaded(
            out, flags, named=True, reserve=RESERVE, aside=ASIDE
        ) as engine:
            arguments = options.advised(arguments, flags, engine)
            engine.tune_when_idle()
            return serve_socket(out, engine, arguments, system, stats, listener)
    if as_jsonl:
        from edge.cli.services import serve_pipe
        from edge.serve.conversations import ASIDE

        with options.loaded(out, flags, aside=ASIDE) as engine:
            return serve_pipe(out, engine, options.advised(arguments, flags, engine), system, stats)
    del flags["parallel"]  # one conversation, which takes what memory there is
    with options.loaded(out, flags, named=True) as engine:
        arguments = options.advised(arguments, flags, engine)
        session = keeper.open(engine, system)
        commands = {name: command.help for name, command in COMMANDS.items()}
        reader = choose_reader(out, commands, None if no_history else history_path())
        if reader.interactive:
            engine.tune_when_idle()
        banner(out, engine, session, reader.interactive, known=library.choose(flags["model"]).why == "demo")
        return Repl(out, engine, reader, arguments, session, stats, keeper.save).run()


def banner(out: Output, engine: Engine, session: Session, interactive: bool, known: bool) -> None:
    """Print which model answers, its size, the context and the memory; for a person also how to get help, and whether a
    stored conversation continues.  ``known``: that it is the demo model has been said.
    """
    plan = engine.plan
    demo = library.is_demo(engine.path) and not known
    out.info(
        f"{options.title(engine.config)}{', for tests' * demo}: context of {count(plan.n_ctx, 'token')}, "
        f"KV cache {plan.kv_type}, {human(plan.total_bytes)} of memory, {count(engine.n_threads, 'thread')}",
        "dim",
    )
    if interactive:
        if demo:
            out.info(f"This is a demo: {library.DEMO_PLAYS}", "dim")
        questions = sum(message["role"] == "user" for message in session.messages)
        going_on = f"\nContinuing the conversation after {count(questions, 'question')}; /clear starts a new one."
        out.info(f"/help lists the commands, Ctrl-D quits.{going_on if questions else ''}\n", "dim")
