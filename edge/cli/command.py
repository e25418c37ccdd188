"""The classes of commands and options: headings, two lengths of help, types of values, environment variables.

This module does not know the meaning of any option; :mod:`edge.cli.options` has those that several commands share.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import click

from edge.cli.habits import long, spelled
from edge.cli.packed import give_way, named
from edge.errors import EXIT_CODES, UsageError
from edge.settings import Setting

#: settings of every command
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

#: headings in the order of the help; other headings come first
HEADINGS = ("Model", "Prompt", "Context", "Answer", "Output")

#: in ``Context.meta``: help is complete
HELP_ALL = "edge.help_all"


class Flag(click.Option):
    """An option with its heading in the help, and its environment variable, the same in all commands:
    BITNET_EDGE_MAX_TOKENS of ``--max-tokens``.  ``settings``: what --set can set.
    """

    def __init__(
        self, *args: Any, heading: str = "Options", settings: dict[str, Setting] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.heading, self.settings = heading, settings
        if self.allow_from_autoenv:
            self.envvar = "BITNET_EDGE_" + long(self).lstrip("-").replace("-", "_").upper()

    def get_error_hint(self, ctx: click.Context | None) -> str:  # a person who set a variable may not know the option
        return str(self.envvar) if ctx and from_variable(ctx, self) else str(super().get_error_hint(ctx))


def from_variable(ctx: click.Context, param: click.Parameter) -> bool:
    """True if an option has the value of its environment variable."""
    return ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.ENVIRONMENT


class Command(click.Command):
    """A command whose options stand under headings.

    ``--help`` shows one line for each option and ``epilog``.  A command with settings (:func:`edge.cli.options.
    settings`) has ``--help-all``, which shows the whole text of each, the settings, ``details`` and the exit codes.
    """

    def __init__(self, *args: Any, details: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **{"context_settings": CONTEXT, **kwargs})
        self.details = details
        with_settings = (each.settings for each in self.params if isinstance(each, Flag) and each.settings)
        self.settings: dict[str, Setting] = next(with_settings, {})
        if self.settings:
            self.params.append(
                Flag(["--help-all"], heading="Output", is_flag=True, is_eager=True, expose_value=False,
                     allow_from_autoenv=False, callback=show_all,
                     help="Show the whole help, with all settings, and exit."))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args if ctx.resilient_parsing else spelled(ctx, self, args, self.settings))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # whose --help to show: click's parser does not always set it
            raise
        except UsageError as error:
            raise self._named(ctx, error) from error

    def invoke(self, ctx: click.Context) -> Any:
        give_way(ctx)
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise self._named(ctx, error) from error

    def _named(self, ctx: click.Context, error: UsageError) -> UsageError:
        """The error with an option or variable in place of the library's argument (``kv_offload is ...``)."""
        argument = {"choices": "choice", "ctx": "n_ctx"}.get(error.argument or "", error.argument)
        param = next((each for each in self.params if each.name == argument), None)
        if param is not None:
            argument = str(param.envvar) if from_variable(ctx, param) else long(param)
        elif argument in ctx.params:
            argument = f"--set {argument}"
        return UsageError(error.problem, argument=argument, hint=error.hint)

    def get_help(self, ctx: click.Context) -> str:
        return named(super().get_help(ctx))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        whole = bool(ctx.meta.get(HELP_ALL)) or not self.settings
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, Flag) and (record := param.get_help_record(ctx)):  # --help itself is not shown
                names, text = record
                sections.setdefault(param.heading, []).append(
                    (names, text if whole else re.split(r"(?<=\.) ", text)[0]))
        for title in sorted(sections, key=lambda each: HEADINGS.index(each) if each in HEADINGS else -1):
            with formatter.section(title):
                formatter.write_dl(sections[title], col_max=34)
        if whole and self.settings:
            with formatter.section("Settings, each with --set NAME=VALUE or in BITNET_EDGE_SET, separated by blanks"):
                rows = [(f"{name}={setting.values}", setting.line) for name, setting in self.settings.items()]
                formatter.write_dl(rows, col_max=40)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        texts = [self.epilog]
        if ctx.meta.get(HELP_ALL):
            codes = "".join(f"  {code:<4} {text}\n" for code, text in EXIT_CODES.items())
            texts += [self.details, f"Exit codes:\n{codes}"]
        for text in filter(None, texts):  # as it is: examples and tables
            formatter.write(f"\n{text.rstrip()}\n")


def show_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """The callback of --help-all: print the long help page and exit."""
    if value and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


class Text(click.ParamType):
    """Text in UTF-8.  Other bytes arrive as surrogates and are refused here, where the message can name the option."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            str(value).encode("utf-8")
        except UnicodeEncodeError:
            self.fail("is not UTF-8 text", param, ctx)
        return str(value).removeprefix("\ufeff")  # of "$(cat FILE)"


class Path(click.Path):
    """The path of a file or folder.  ``~`` at its beginning is expanded: shells leave it in variables, after ``=`` and
    in quotes.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("an empty text names no file", param, ctx)
        return super().convert(os.path.expanduser(value), param, ctx)


class Escaped(Text):
    r"""Text in which ``\n``, ``\t`` and ``\\`` are escape sequences, since many shells cannot type these characters."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        return re.sub(r"\\([nt\\])", lambda m: {"n": "\n", "t": "\t", "\\": "\\"}[m[1]], text)


class Commas(click.ParamType):
    """Values of a type, separated by commas, such as ``1,2,4``."""

    name = "values"

    def __init__(self, of: click.ParamType) -> None:
        self.of = of

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        return tuple(self.of.convert(word.strip(), param, ctx) for word in value.split(","))


def heading(title: str, *options: tuple[tuple[str, ...], dict[str, Any]]) -> Callable[[Any], Any]:
    """A decorator that adds ``options`` to a command under the heading ``title``."""

    def decorate(command: Any) -> Any:
        for names, attributes in reversed(options):
            command = click.option(*names, **{"cls": Flag, "heading": title, **attributes})(command)
        return command

    return decorate


def option(*names: str, **attributes: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """One entry of :func:`heading`."""
    return names, attributes


def json_option(text: str = "Print one JSON object.") -> Callable[[Any], Any]:
    """A decorator that adds --json, with this help."""
    return heading("Output", option("--json", "as_json", is_flag=True, help=text))
