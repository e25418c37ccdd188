"""The root command: imports subcommands when they are called; every failure becomes one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any

import click

from edge.cli.command import CONTEXT
from edge.cli.habits import check_option, options_of, refuse_command
from edge.cli.options import output_options
from edge.cli.output import Output, drop_stdout, one_line, writes_to_terminal
from edge.cli.packed import about, defaults, named, version
from edge.cli.signals import SIGNALS, Terminated
from edge.errors import REPORTS, EdgeError, unbuilt
from edge.packed import own

#: name -> (module:name of the command, short help); in the order in which the help lists them
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("edge.cli.run:run", "Answer a question, and exit."),
    "chat": ("edge.cli.chat:chat", "Chat with the model in the terminal; --jsonl for programs."),
    "serve": ("edge.cli.serve:serve", "Serve the model over HTTP (OpenAI and Ollama APIs), with a chat page."),
    "batch": ("edge.cli.batch:batch", "Answer many requests from a file, several at once."),
    "pull": ("edge.cli.library:pull", "Download a model by name."),
    "list": ("edge.cli.library:list_models", "List the pulled models, or those that can be pulled."),
    "default": ("edge.cli.library:default", "Show or set the default model: the one that answers without -m."),
    "rm": ("edge.cli.library:rm", "Delete pulled models."),
    "fit": ("edge.cli.machine:fit", "Show whether a model fits this machine, and with which context."),
    "pack": ("edge.cli.pack:pack", "Make one file of this program and a model, to copy to a board."),
    "bench": ("edge.cli.machine:bench", "Measure speed and memory on this machine."),
    "doctor": ("edge.cli.machine:doctor", "Show what this machine supports, and test that results are correct."),
    "model": ("edge.cli.files:model", "Show the contents of a model file, or check it."),
    "convert": ("edge.cli.files:convert", "Convert a model to one GGUF file that loads quickly."),
    "tokens": ("edge.cli.texts:tokens", "Convert text to tokens and back, or count them."),
    "embed": ("edge.cli.texts:embed", "Turn texts into vectors (embeddings), or compare two texts."),
}

HELP = """\
Run ternary language models (weights -1, 0 and 1) on this machine, offline.

\b
  bitnet-edge pull bonsai-1.7b                       # get a model
  bitnet-edge run "What is the capital of France?"   # ask it
  bitnet-edge chat                                   # talk to it"""


class Group(click.Group):
    """The root command: lists its commands without importing them; ends the process with the documented exit codes."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> Any:
        """As click's, with our exit codes and one-line errors; always raises SystemExit."""
        prog_name = prog_name or "bitnet-edge"
        self._main_shell_completion({}, prog_name)
        out = Output()
        words = sys.argv[1:] if args is None else list(args)
        sys.exit(guard(out, lambda: self._dispatch(words, prog_name, out, extra)))

    def _dispatch(self, args: list[str], prog_name: str, out: Output, extra: dict[str, Any]) -> int:
        if inside := own():
            prog_name = os.path.basename(inside.path)
            extra = {**extra, "default_map": defaults(inside, self) if args else None}
            args = args or list(inside.words)
        with SIGNALS.handled():
            with self.make_context(prog_name, args, obj=out, **extra) as ctx:
                code = self.invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk must be noticed here, not in the interpreter's last breath
        return code if isinstance(code, int) else 0

    def get_help(self, ctx: click.Context) -> str:
        return named(super().get_help(ctx))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        place, text = COMMANDS[cmd_name]
        module, _, name = place.partition(":")
        command: click.Command = getattr(import_module(module), name)
        command.short_help = text
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for word in takewhile(lambda word: word.startswith("-"), () if ctx.resilient_parsing else args):
            check_option(ctx, word, options_of(ctx, self), {})
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            refuse_command(ctx, self, args)
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        if inside := own():
            formatter.write(f"\n{about(inside)}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def guard(out: Output, work: Callable[[], int]) -> int:
    """The exit code of ``work``.  What it raises becomes one line on standard error and the documented code."""
    try:
        return work()
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except KeyboardInterrupt:
        return 130
    except Terminated:
        return 143
    except BrokenPipeError:
        # The reader has what it wanted (`| head -1`): nothing failed, and nothing may be written any more.
        drop_stdout()
        return 0
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "bitnet-edge"
        message = one_line(error.format_message())
        out.error(f"{message[:1].lower()}{message[1:]} (try '{where} --help')")
        return error.exit_code
    except EdgeError as error:
        out.error(str(error))
        return error.exit_code
    except MemoryError:
        out.error("out of memory; use a smaller --ctx or --kv")
        return 5
    except OSError as error:
        out.traceback(error)
        gone = error.errno == errno.EIO and writes_to_terminal()
        drop_stdout()
        if gone:  # its window was closed; SIGHUP is on its way
            return 143
        # click prints help pages without naming where; every file that is written is named
        name = error.filename or ("standard output" if error.errno == errno.ENOSPC else None)
        out.error(f"{name}: {error.strerror}" if name else str(error.strerror or error))
        return 1
    except Exception as error:  # a bug in the program: report it, and how to help
        out.traceback(error)
        if cause := unbuilt(error):
            out.error(str(cause))
            return cause.exit_code
        hint = "" if out.verbose else ", with the output of the same command with -v"
        out.error(f"internal error, please report it in {REPORTS}{hint}: {type(error).__name__}: {error}")
        return 1


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.ensure_object(Output).line(version())
        ctx.exit()


@click.command(
    "bitnet-edge",
    cls=Group,
    context_settings=CONTEXT,
    invoke_without_command=True,
    help=HELP,
    epilog="bitnet-edge COMMAND --help shows the options of a command. Almost every option can also be set by a "
    "variable: --threads 2 is BITNET_EDGE_THREADS=2.",
)
@click.option("-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
              help="Print the version and exit.")
@output_options
@click.pass_context
def cli(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
