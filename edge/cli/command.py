"""The classes of commands and options: two levels of help, headings, types of values, environment variables.

This module does not know the meaning of any option; :mod:`edge.cli.options` has those that several commands share.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from edge.cli.output import Output
from edge.cli.packed import give_way
from edge.errors import EXIT_CODES, UsageError

#: settings of every command
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

#: the heading of options that only measurements need
EXPERIMENTS = "Experiments"

#: headings in the order of the help; other headings come first
HEADINGS = ("Model", "Prompt", "Context", "Answer", "Output", "Sampling", "KV cache", "Loading", EXPERIMENTS)

#: environment variables that are of no option
VARIABLES = {f"BITNET_EDGE_{name}" for name in ("MODELS", "HOME", "STATE", "CACHE", "COMPLETE", "ISA")}

#: in ``Context.meta``: help shows the advanced options, too
HELP_ALL = "edge.help_all"


class Formatter(click.HelpFormatter):
    """Formats help pages; headings and names are coloured if ``out`` allows colour on standard output."""

    out: Output | None = None

    def style(self, text: str, *styles: str) -> str:
        """``text`` in ``styles`` where colour is on, else unchanged."""
        return self.out.style(text, *styles, stream=sys.stdout) if self.out is not None else text

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, self.style(prefix or "Usage:", "bold") + " ")

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{self.style(heading + ':', 'bold')}\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(self.style(term, "cyan"), text) for term, text in rows], col_max, col_spacing)

    def write_verbatim(self, text: str) -> None:
        """Write lines unchanged, such as examples and tables; a line of the form ``Word:`` is a heading."""
        self.write_paragraph()
        heading = re.compile(r"^[A-Z][a-z ]*:", re.MULTILINE)
        self.write(heading.sub(lambda match: self.style(match[0], "bold"), text.rstrip()) + "\n")


class Context(click.Context):
    """The click context of every command."""

    formatter_class = Formatter

    def make_formatter(self) -> click.HelpFormatter:
        formatter = super().make_formatter()
        assert isinstance(formatter, Formatter)
        formatter.out = self.ensure_object(Output)
        self.color = formatter.out.colored(sys.stdout)  # else click removes colour
        return formatter


class Flag(click.Option):
    """An option with its heading in the help; ``advanced`` ones are shown by ``--help-all`` only."""

    def __init__(self, *args: Any, heading: str = "Options", advanced: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading, self.advanced = heading, advanced

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)  # "[x>=0]" helps nobody
        return extra

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as error:  # a person who set a variable may not know the option
            if from_variable(ctx, self):
                error.param_hint = str(self.envvar)
            raise

    def brief_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The row of ``--help``: first short name, first long name, first sentence of the help."""
        names = self.opts
        short = next((name for name in names if not name.startswith("--")), None)
        long = next((name for name in names if name.startswith("--")), None)
        try:
            self.opts = [name for name in (short, long) if name]
            record = self.get_help_record(ctx)
        finally:
            self.opts = names
        return record and (record[0], re.split(r"(?<=\.) ", record[1])[0])


def from_variable(ctx: click.Context, param: click.Parameter) -> bool:
    """Whether the value of an option is that of its environment variable."""
    return ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.ENVIRONMENT


class Own(click.Command):
    """What all commands have in common."""

    context_class = Context

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"context_settings": CONTEXT, **kwargs})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise unknown_option(ctx, error.option_name) from None


class Command(Own):
    """A command whose options stand under headings, with two levels of help.

    ``--help`` shows the common options, one line each, and ``epilog``.  ``--help-all`` shows all options with their
    full help, and also ``details``.  With ``exit_codes`` both end with the exit codes, in short or in full.
    """

    def __init__(self, *args: Any, details: str = "", exit_codes: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.details, self.exit_codes = details, exit_codes
        self.two_levels = any(getattr(param, "advanced", False) for param in self.params)
        if self.two_levels:
            self.params.append(
                Flag(["--help-all"], heading="Output", is_flag=True, is_eager=True, expose_value=False,
                     callback=show_all, help="Show all options and exit.")
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            args = _checked(ctx, self.get_params(ctx), args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # whose --help to show: click's parser does not always set it
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.  Errors of the library name its arguments (``kv_offload is ...``), here its options."""
        give_way(ctx)
        warn_of_misspelt(ctx)
        try:
            return super().invoke(ctx)
        except UsageError as error:
            options = {}
            for param in self.get_params(ctx):
                for name in [name for name in param.opts if name.startswith("--")]:
                    said = str(param.envvar) if from_variable(ctx, param) else name
                    options[name[2:].replace("-", "_")] = said
                    options.setdefault(str(param.name), said)
            argument = error.argument or ""
            option = options.get({"choices": "choice"}.get(argument, argument))  # the option is given once for each
            if option is None:
                raise
            raise UsageError(error.problem, argument=option, hint=error.hint) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        brief = self.two_levels and not ctx.meta.get(HELP_ALL)
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if not isinstance(param, Flag):  # --help itself is not shown
                record = None if brief else param.get_help_record(ctx)
            else:
                record = param.brief_record(ctx) if brief else param.get_help_record(ctx)
            hidden = brief and getattr(param, "advanced", False)
            if record is not None and record[1] and not hidden:
                sections.setdefault(getattr(param, "heading", "Output"), []).append(record)
        for title in sorted(sections, key=lambda each: HEADINGS.index(each) if each in HEADINGS else -1):
            with formatter.section(title):
                formatter.write_dl(sections[title], col_max=34)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        assert isinstance(formatter, Formatter)
        whole = bool(ctx.meta.get(HELP_ALL)) or not self.two_levels
        for text in (self.epilog, self.details if whole else ""):
            if text:
                formatter.write_verbatim(text)
        if self.exit_codes:
            formatter.write_verbatim(exit_codes(whole))


def exit_codes(whole: bool) -> str:
    """The exit codes at the end of a help page, as a table (``whole``) or as a paragraph."""
    if whole:
        return "Exit codes:\n" + "".join(f"  {code:<4} {text}\n" for code, text in EXIT_CODES.items())
    from textwrap import fill

    brief = (f"{code} {re.split(':| [(]', text)[0]}".replace(" ", "\0") for code, text in EXIT_CODES.items())
    return fill("Exit codes: " + ", ".join(brief), 100, subsequent_indent="  ").replace("\0", " ")


class Noun(Own, click.Group):
    """A command with subcommands (``tokens count``)."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(f"missing command: {' or '.join(self.commands)}", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"{self.name} has no command '{name[:60]}'; {suggestion(name, self.commands)}", ctx)
        return super().resolve_command(ctx, args)


def show_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """The callback of --help-all: print the long help page and exit."""
    if value and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def suggestion(name: str, known: Iterable[str], listed: Sequence[str] = ()) -> str:
    """The command of ``known`` that was probably meant, else the list of commands: ``listed``, or all."""
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(name, known, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    known = list(listed) or known
    return f"commands are {', '.join(known)}." if known[1:] else f"the only command is {known[0]}."


def unknown_option(ctx: click.Context, name: str) -> click.UsageError:
    """The error for an option that the command of ``ctx`` does not have, such as ``--port`` of ``run``.

    It names the option that was probably meant, or the commands that have this one.
    """
    from difflib import get_close_matches

    command = ctx.command_path.removeprefix(f"{ctx.find_root().info_name} ")
    known = [each for param in ctx.command.get_params(ctx) for each in param.opts if each.startswith("--")]
    near = get_close_matches(name, known, n=1, cutoff=0.75)
    others = [path for path, options in _options_of(ctx.find_root().command) if name in options]
    hint = ""
    if near:
        hint = f"; did you mean {near[0]}?"
    elif others:
        hint = f"; it is an option of {', '.join(others[:3])}{' and others' if others[3:] else ''}"
    return click.UsageError(f"{command} has no option {name[:60]}{hint}", ctx)


def warn_of_misspelt(ctx: click.Context) -> None:
    """Warn of environment variables that are of no option, but nearly of one of this command: BITNET_EDGE_CTXX."""
    own = {str(param.envvar) for param in ctx.command.get_params(ctx) if param.envvar}
    strange = [name for name in os.environ if name.startswith("BITNET_EDGE_") and name not in own | VARIABLES]
    if not strange:
        return
    from difflib import get_close_matches

    prefix = len("BITNET_EDGE_")
    for name in strange:
        near = get_close_matches(name[prefix:], [each[prefix:] for each in own], n=1, cutoff=0.75)
        # imports every command: only now
        elsewhere = near and any(name == variable((option,)) for _, options in _options_of(ctx.find_root().command)
                                 for option in options if option.startswith("--"))
        if near and not elsewhere:
            ctx.ensure_object(Output).warn(f"{name} has no effect; did you mean BITNET_EDGE_{near[0]}?")


def _options_of(command: click.Command, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each command below ``command`` with the names of its options, by its path, such as ``tokens count``."""
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None and not below.hidden:
                yield from _options_of(below, f"{path} {name}".lstrip())
    else:
        yield path, {name for param in command.params for name in param.opts}


def refuse_gpu(word: str) -> None:
    """Raise UsageError if ``word`` is llama.cpp's option for a GPU, also with its value (``-ngl99``)."""
    if word.startswith("-ngl") or word.partition("=")[0] in ("--n-gpu-layers", "--gpu-layers"):
        raise UsageError(f"{word} is not supported: bitnet-edge uses no GPU")


def _checked(ctx: click.Context, params: Sequence[click.Parameter], args: Sequence[str]) -> list[str]:
    """Refuse what click would accept: an option as another's value, and a wrong value that a later one replaces.

    If an option is given twice, the last value counts, but an invalid first one is an error, too.  Returns ``args``
    with long names in place of short ones that have their value: click looks up each word among the long names first
    and searches for similar ones.  Without that, reading the words of a ``run`` takes 2.9 ms instead of 1.5 (one
    x86-64 core), and difflib is imported.
    """
    spelled: list[str] = []
    options = {name: param for param in params if isinstance(param, click.Option) for name in param.opts}
    words = iter(args)
    for word in words:
        if word == "--":
            return [*spelled, word, *words]
        refuse_gpu(word)
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name not in options and name[:1] == "-" != name[1:2]:
            name, equals, value = word[:2], "=", word[2:]
        param = options.get(name)
        if param is None or param.is_flag:
            spelled.append(word)
            continue
        long = next((each for each in param.opts if each.startswith("--")), name)
        if equals:
            spelled.append(word if name == long or word.startswith("--") else f"{long}={value}")
        elif (following := next(words, None)) is None:
            spelled.append(word)  # click reports what is missing, in the word that was typed
        elif following in options and type(param.flag_value) is int:  # its number can be left out
            return [*spelled, word, *_checked(ctx, params, [following, *words])]
        else:
            spelled += [word if word.startswith("--") else long, following]
            value = following
            if value in options:
                raise UsageError(f"{name} needs a value, but {value} is an option; use {long}={value} for that text")
        if value:
            param.type(value, param, ctx)
    return spelled


class Text(click.ParamType):
    """Text in UTF-8.  Other bytes arrive as surrogates and are refused here, where the message can name the option."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            str(value).encode("utf-8")
        except UnicodeEncodeError:
            self.fail("is not UTF-8 text", param, ctx)
        return str(value)


class Escaped(Text):
    r"""Text in which ``\n``, ``\t`` and ``\\`` are escape sequences, since many shells cannot type these characters."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        return re.sub(r"\\([nt\\])", lambda m: {"n": "\n", "t": "\t", "\\": "\\"}[m[1]], text)


class Whole(click.IntRange):
    """A whole number; messages call it that."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if re.fullmatch(r"\d+[kKmM]", str(value)):
            self.fail(f"'{value}' is not a valid whole number; write its digits, such as 10240", param, ctx)
        return int(super().convert(value, param, ctx))


class Seconds(click.FloatRange):
    """A number of seconds above 0."""

    name = "number of seconds"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)


class Threads(Whole):
    """A number of threads; a negative number is how many of the fast cores to leave free."""

    def __init__(self) -> None:
        super().__init__(min=-256, max=256)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = super().convert(value, param, ctx)
        if number == 0:
            self.fail("0 threads cannot work; use 1 or more, or -N to leave N fast cores free", param, ctx)
        return int(number)


class Numbers(click.ParamType):
    """Whole numbers from 1, separated by commas, such as ``1,2,4``; the empty text is the empty list."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")] if value else []
        if not all(word.isdecimal() for word in words):
            self.fail(f"'{value}' is not a list of whole numbers such as 1,2,4", param, ctx)
        if 0 in map(int, words):
            self.fail(f"'{value}': each number must be 1 or more", param, ctx)
        return tuple(map(int, words))


def heading(title: str, *options: tuple[tuple[str, ...], dict[str, Any]]) -> Callable[[Any], Any]:
    """A decorator that adds ``options`` to a command under the heading ``title``."""

    def decorate(command: Any) -> Any:
        for names, attributes in reversed(options):
            if attributes.get("allow_from_autoenv", True):
                attributes = {**attributes, "envvar": variable(names)}
            command = click.option(*names, cls=Flag, heading=title, **attributes)(command)
        return command

    return decorate


def variable(names: tuple[str, ...]) -> str:
    """The environment variable of an option, the same in all commands: BITNET_EDGE_MAX_TOKENS of ``--max-tokens``."""
    long = next(name for name in names if name.startswith("--"))
    return "BITNET_EDGE_" + long.split("/")[0].lstrip("-").replace("-", "_").upper()


def option(*names: str, **attributes: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """One entry of :func:`heading`."""
    attributes.setdefault("show_default", False)
    return names, attributes
