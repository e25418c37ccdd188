"""What commands and options are made of: two levels of help, headings, types of values, variables, subcommands.

Nothing here knows what an option means; see :mod:`edge.cli.options` for those that several commands share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from edge.errors import UsageError

#: settings of every command
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


#: the heading that comes last in ``--help-all``: options that only serve measurements
COMPARISONS = "For comparisons"

#: in ``Context.meta``: help shows the advanced options, too
HELP_ALL = "edge.help_all"


class Flag(click.Option):
    """An option with its heading in the help; ``advanced`` ones are shown by ``--help-all`` only."""

    def __init__(self, *args: Any, heading: str = "Options", advanced: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading, self.advanced = heading, advanced

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)  # "[x>=0]" helps nobody
        return extra


class Command(click.Command):
    """A command with its options under headings: the common ones in ``--help``, all of them in ``--help-all``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"context_settings": CONTEXT, **kwargs})
        if any(getattr(param, "advanced", False) for param in self.params):
            self.params.append(
                Flag(["--help-all"], heading="Output", is_flag=True, is_eager=True, expose_value=False,
                     callback=_show_all, help="Show all options and exit.")
            )  # fmt: skip

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            args = _checked(ctx, self.get_params(ctx), args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # whose --help to look at: click's parser does not always say
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """The library names its arguments (``kv_offload is ...``); whoever typed them reads options."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            names = (name for param in self.get_params(ctx) for name in param.opts if name.startswith("--"))
            option = {name[2:].replace("-", "_"): name for name in names}.get(error.argument or "")
            if option is None:
                raise
            raise UsageError(error.problem, argument=option, hint=error.hint) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            hidden = getattr(param, "advanced", False) and not ctx.meta.get(HELP_ALL)
            if record is not None and record[1] and not hidden:
                sections.setdefault(getattr(param, "heading", "Output"), []).append(record)
        if COMPARISONS in sections:
            sections[COMPARISONS] = sections.pop(COMPARISONS)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=34)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:  # kept as written: tables and examples must not be re-wrapped
            formatter.write_paragraph()
            formatter.write(self.epilog.rstrip() + "\n")


class Noun(click.Group):
    """A command below which verbs stand (``kv plan``)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"context_settings": CONTEXT, **kwargs})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"{self.name} has no command '{name[:60]}'; {suggestion(name, self.commands)}", ctx)
        return super().resolve_command(ctx, args)


def _show_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def suggestion(name: str, known: Iterable[str]) -> str:
    """What was probably meant, else what there is."""
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(name, known, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"commands are {', '.join(known)}." if known[1:] else f"the only command is {known[0]}."


def _checked(ctx: click.Context, params: Sequence[click.Parameter], args: Sequence[str]) -> list[str]:
    """Refuse what click lets pass: an option where another's value is missing, and a wrong value that is given again.

    Of an option given twice the last counts, but a typing error in the first is one, too.  Returns the words with long
    names for short ones that have their value: click looks for each among the long ones first, and for what resembles
    it (with difflib).
    """
    spelled: list[str] = []
    options = {name: param for param in params if isinstance(param, click.Option) for name in param.opts}
    words = iter(args)
    for word in words:
        if word == "--":
            return [*spelled, word, *words]
        if word.partition("=")[0] in ("-ngl", "--n-gpu-layers", "--gpu-layers"):
            raise UsageError(f"{word} is not supported: bitnet-edge uses no GPU")
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
            spelled.append(word)  # click says what is missing, in the word that was typed
        else:
            spelled += [word if word.startswith("--") else long, following]
            value = following
            if value in options:
                raise UsageError(f"{name} needs a value, but {value} is an option; use {long}={value} for that text")
        if value:
            param.type(value, param, ctx)
    return spelled


class Text(click.ParamType):
    """Text that is UTF-8: bytes that are not arrive as surrogates and would fail much later, far from their cause."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            str(value).encode("utf-8")
        except UnicodeEncodeError:
            self.fail("is not UTF-8 text", param, ctx)
        return str(value)


class Escaped(Text):
    r"""Text in which ``\n``, ``\t`` and ``\\`` stand for themselves, since many shells cannot type them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        return re.sub(r"\\([nt\\])", lambda m: {"n": "\n", "t": "\t", "\\": "\\"}[m[1]], text)


class Whole(click.IntRange):
    """A whole number, and called so in messages."""

    name = "whole number"


class Numbers(click.ParamType):
    """``1,2,4``: whole numbers from 1; nothing is an empty list."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")] if value else []
        if not all(word.isdecimal() and int(word) > 0 for word in words):
            self.fail(f"'{value}' is not a list of whole numbers such as 1,2,4", param, ctx)
        return tuple(map(int, words))


def heading(title: str, *options: tuple[tuple[str, ...], dict[str, Any]]) -> Callable[[Any], Any]:
    """A decorator that adds ``options`` under ``title``."""

    def decorate(command: Any) -> Any:
        for names, attributes in reversed(options):
            if attributes.get("allow_from_autoenv", True):
                attributes = {**attributes, "envvar": variable(names)}
            command = click.option(*names, cls=Flag, heading=title, **attributes)(command)
        return command

    return decorate


def variable(names: tuple[str, ...]) -> str:
    """The environment variable of an option: ``--max-tokens`` is BITNET_EDGE_MAX_TOKENS, for every command alike."""
    long = next(name for name in names if name.startswith("--"))
    return "BITNET_EDGE_" + long.split("/")[0].lstrip("-").replace("-", "_").upper()


def option(*names: str, **attributes: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """One entry of :func:`heading`."""
    attributes.setdefault("show_default", False)
    return names, attributes
