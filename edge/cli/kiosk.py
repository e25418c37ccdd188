"""``bitnet-edge kiosk``: a kiosk from one house file: orders, bookings and questions about the house."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import count
from edge.cli import options
from edge.cli.command import CONTEXT, HELP_ALL, Command, Context, Formatter, Text, heading, option, suggestion
from edge.cli.dialogue import Dialogue
from edge.cli.output import Output, is_tty
from edge.cli.signals import stopping
from edge.errors import UsageError

if TYPE_CHECKING:
    from edge.cli.readers import Reader
    from edge.kiosk.visit import Reads, Visit
    from edge.serve.socket import Listener

#: the banner, on a terminal
ABOUT = """\
{name}: a kiosk. It understands orders, bookings, and questions about the facts that /facts lists.
It says only what its owner wrote; it cannot chat. To chat, get a model: bitnet-edge pull bonsai-1.7b
/help lists the commands, Ctrl-D quits."""

#: the note after one answer, on a terminal
NOTE = "(the example kiosk answers; to talk with a model: bitnet-edge pull bonsai-1.7b, then use -m bonsai-1.7b)"

#: /command -> what it does
COMMANDS = {
    "facts": "the facts of this house",
    "menu": "what can be ordered, with prices",
    "order": "the current order",
    "new": "start with the next guest",
    "help": "this list",
    "exit": "quit",
}
HELP = "\n".join([*(f"{'/' + name:<8} {meaning}" for name, meaning in COMMANDS.items()),
                  "Ctrl-C   clear the line; twice on an empty line, quit", "Ctrl-D   quit"])  # fmt: skip


class OpenContext(Context):
    """Its path is what is typed: ``bitnet-edge kiosk``; the word open is optional."""

    @property
    def command_path(self) -> str:
        return super().command_path.removesuffix(" open")


class Open(Command):
    """``kiosk open``."""

    context_class = OpenContext


class Kiosk(click.Group):
    """The command group: ``kiosk [FILE]`` runs a house, ``kiosk check FILE`` looks for mistakes in one."""

    context_class = Context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from difflib import get_close_matches

        names = [word for word in args if not word.startswith("-")]
        if names and names[0] not in self.commands and not os.path.exists(names[0]) and "." not in names[0]:
            known = [name for name in self.commands if name != "open"]
            if get_close_matches(names[0], known, n=1):
                raise click.UsageError(f"kiosk has no command '{names[0][:60]}'; {suggestion(names[0], known)}", ctx)
        if not names or names[0] not in self.commands:
            if not names and "--help-all" in args:
                ctx.meta[HELP_ALL] = True
                args = ["--help"]
            if "-h" not in args and "--help" not in args:
                args = ["open", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] [FILE]")
        formatter.write_usage(ctx.command_path, "check [OPTIONS] FILE", " " * len("Usage:"))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands["open"].format_options(ctx, formatter)  # [FILE] [OPTIONS] without a word is open
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        assert isinstance(formatter, Formatter) and self.epilog
        formatter.write_verbatim(self.epilog)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or self.commands["open"]  # the name of a house file


@click.group(
    cls=Kiosk,
    context_settings=CONTEXT,
    help="Run a kiosk that takes orders and bookings and answers questions from one house file. Default: the example "
    "house. docs/kiosk.md shows how to write your own.",
    short_help="Run a kiosk from one file: orders, bookings, questions about the house.",
    epilog="Examples:\n  bitnet-edge kiosk my-house.toml\n  bitnet-edge kiosk check my-house.toml",
    invoke_without_command=False,
    options_metavar="",
    subcommand_metavar="[OPTIONS] [FILE]",
)
def kiosk() -> None:
    """The command group; FILE alone means open."""


@kiosk.command(
    "open",
    cls=Open,
    hidden=True,  # nobody needs to type it
    help="Run the kiosk of the house file FILE in the terminal (default: the example house). Its [orders] section sets "
    "where orders go.",
    short_help="Run the kiosk of a house file.",
)
@click.argument("path", metavar="[FILE]", required=False, type=Text())
@heading(
    "Model",
    option("-m", "--model", type=Text(), metavar="MODEL", help="Use this instruct model instead of rules to "
           "understand what guests say. It does not write the replies. A grammar limits its output to names in the "
           "house file and words of the guest."),
)  # fmt: skip
@heading("Output", option("--jsonl", "as_jsonl", is_flag=True, help="Read and write one JSON object per "
                          'line: {"text": "..."} in; the operations, the state and the reply out.'),
         option("--socket", "socket_path", type=Text(), metavar="PATH", help="Serve the --jsonl protocol to several "
                "guests at a time on a Unix socket, each with an order of their own; notifies systemd "
                "(docs/service.md)."),
)  # fmt: skip
@options.output_options
@click.pass_context
def open_(
    ctx: click.Context, path: str | None, model: str | None, as_jsonl: bool, socket_path: str | None, **_: Any
) -> int:
    """Run the command; the result is the exit code."""
    from edge.kiosk.deliver import delivery
    from edge.kiosk.house import EXAMPLE, load
    from edge.kiosk.understand import understand
    from edge.kiosk.visit import Visit

    out = ctx.ensure_object(Output)
    refuse_bundled(model)
    house = load(EXAMPLE if path is None else path)
    folder = os.path.dirname(os.path.abspath(path)) if path else os.getcwd()
    # with --jsonl the event itself carries the order
    deliver = delivery(house, folder, (lambda text: None) if as_jsonl and socket_path is None else to_stdout(out))

    def talk(reads: Reads, listener: Listener | None = None) -> int:
        if listener is None and not as_jsonl:
            return converse(out, Visit(house, deliver, reads))
        from edge.cli.services import run_pipe, run_socket
        from edge.serve.kiosk import Room

        room = Room(house, deliver, reads)
        if listener is None:
            run_pipe(out, room.welcome)
        else:
            run_socket(out, listener, room.welcome, room.alive, house.name)
        return 0

    def understanding(listener: Listener | None = None) -> int:
        if model is None:
            return talk(understand, listener)
        with options.loaded(out, {"model": model}) as engine:
            return talk(by_model(engine), listener)

    if socket_path is None:
        return understanding()
    from edge.serve.socket import Listener

    with closing(Listener(socket_path)) as listener:
        return understanding(listener)


def refuse_bundled(model: str | None) -> None:
    """Raise UsageError if ``model`` is the bundled model, which follows no instructions and would give wrong orders."""
    from edge.model.library import BUNDLED

    place = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), BUNDLED)
    if model == BUNDLED or model is not None and place in (path := os.path.realpath(model), os.path.dirname(path)):
        raise UsageError("the bundled model cannot take orders; the kiosk needs no model: leave -m and "
                         "BITNET_EDGE_MODEL out, or use an instruct model, such as bonsai-1.7b")  # fmt: skip


def by_model(engine: Any) -> Any:
    """The function that understands turns by an instruct model."""
    from edge.kiosk.prompt import interpret

    return lambda house, state, text: interpret(engine, house, state, text)


@kiosk.command(
    "check",
    cls=Command,
    help="Check a house file. Mistakes are listed with their lines, and the exit code is 4. Contradictions and entries "
    "that no guest can reach are doubts: they are listed, and the exit code is 0.",
    short_help="Check a house file.",
)
@click.argument("path", metavar="FILE", type=Text())
@heading("Output", option("--json", "as_json", is_flag=True, help="Print one JSON object."))
@options.output_options
@click.pass_context
def check(ctx: click.Context, path: str, as_json: bool, **_: Any) -> int:
    """Run the command."""
    from edge.kiosk.check import check as work
    from edge.kiosk.check import unwritable
    from edge.kiosk.house import InvalidHouse, load

    out = ctx.ensure_object(Output)
    try:
        house = load(path)
    except InvalidHouse as invalid:
        for mistake in invalid.mistakes:
            out.error(mistake)
        if as_json:
            out.json({"mistakes": invalid.mistakes})
        return invalid.exit_code
    doubts = [*work(house), *unwritable(house, os.path.dirname(os.path.abspath(path)))]
    if as_json:
        out.json({"name": house.name, "items": len(house.items), "facts": len(house.facts),
                  "bookings": len(house.bookings), "doubts": doubts})
        return 0
    for doubt in doubts:
        out.line(doubt)
    parts = (count(len(house.items), "item"), count(len(house.facts), "fact"), count(len(house.bookings), "booking"))
    out.info(f"{house.name}: {', '.join(parts)}; {count(len(doubts), 'doubt') if doubts else 'no doubts'}")
    return 0


def example(out: Output) -> int:
    """``chat`` without a model: the example kiosk, as ``kiosk`` without a file.  Returns the exit code."""
    from edge.kiosk.deliver import delivery
    from edge.kiosk.house import EXAMPLE, load
    from edge.kiosk.visit import Visit

    house = load(EXAMPLE)
    return converse(out, Visit(house, delivery(house, os.getcwd(), to_stdout(out))))


def to_stdout(out: Output) -> Callable[[str], None]:
    """The function that writes orders to standard output; on a terminal a note says what the line is."""

    def write(order: str) -> None:
        if is_tty(sys.stdout):
            out.info("The order, for the program that reads this output ([orders] in the house file):", "dim")
        out.line(order)

    return write


def answer(out: Output, text: str, as_json: bool) -> int:
    """``run`` without a model: print the example kiosk's reply to the first words of a guest.  Returns the exit
    code.
    """
    from edge.kiosk.house import EXAMPLE, load
    from edge.kiosk.visit import Visit, event

    visit = Visit(load(EXAMPLE))
    turn = visit.turn(text)
    if as_json:
        told = event(visit, turn)
        out.json({"text": told.pop("say"), "finish_reason": "stop", "house": visit.house.name,
                  **{key: value for key, value in told.items() if key != "ev"}})  # fmt: skip
    else:
        if is_tty(sys.stderr):
            out.info(NOTE, "dim")
        out.line(turn.say)
    return 0


def converse(out: Output, visit: Visit) -> int:
    """One guest after another, in the terminal or line by line in a pipe.  Returns the exit code."""
    from edge.cli.readers import choose_reader

    reader = choose_reader(out, COMMANDS)
    if reader.interactive:
        out.info(ABOUT.format(name=visit.house.name) + "\n", "dim")
    out.line(visit.greet().say)
    return Counter(out, reader, visit).run()


class Counter(Dialogue):
    """The dialogue of one guest after another with the house of ``visit``."""

    def __init__(self, out: Output, reader: Reader, visit: Visit) -> None:
        super().__init__(out, reader)
        self.visit = visit

    def read_message(self) -> str:
        return super().read_message().strip()

    def answer(self, text: str) -> int | None:
        """Print the reply.  On a terminal a turn is not interrupted, since its order could then be delivered twice:
        the first Ctrl-C takes effect after the turn, and a second one quits.
        """
        if not self.reader.interactive:
            self.out.line(self.visit.turn(text).say)
            return None
        try:
            with stopping(lambda: None) as stop:
                said = self.visit.turn(text).say
        except KeyboardInterrupt:
            return 130
        self.out.line(said)
        if stop.interrupted:
            raise KeyboardInterrupt
        return None

    def command(self, text: str) -> int | None:
        """Run one of COMMANDS."""
        out, visit = self.out, self.visit
        text = text.removesuffix(" please")
        house = visit.house
        if text in ("/exit", "/bye", "/quit"):
            return self.code
        if text == "/facts":
            for number, fact in enumerate(house.facts, 1):
                out.line(f"{number:>3}  {fact}")
        elif text == "/menu":
            for item in house.items:
                out.line(house.price_line(item))
                if item.extras:
                    prices = ((each, house.extras[each].price) for each in item.extras)
                    told = [f"{each} {house.money(cents)}" if cents else each for each, cents in prices]
                    out.line(f"    with {', '.join(told)}")
        elif text == "/order":
            shown = visit.shown()
            for line in shown["lines"]:
                out.line(f"{line['text']:<50} {line['amount']:>8}")
            if shown["total"]:
                out.line(f"{'Total':<50} {shown['total']:>8}")
            elif not shown["lines"]:
                out.line("Nothing yet.")
        elif text == "/new":
            visit.state = type(visit.state)()
            out.line(visit.greet().say)
        elif text in ("/help", "/?"):
            out.line(HELP)
        else:
            raise UsageError(f"unknown command {text.split()[0][:20]}; /help lists the commands")
        return None
