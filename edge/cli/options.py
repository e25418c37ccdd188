"""Options that several commands share, declared once, and how they become an Engine and a Sampling.

What :mod:`edge.settings` has is taken from there; values that the library checks (KV types, sizes) are passed on
unchanged, so that the rules and their messages exist once.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import amount
from edge.cli.command import Escaped, Path, Text, heading, option
from edge.cli.output import Output, is_tty
from edge.errors import EdgeError, UsageError
from edge.files import read_text
from edge.sampling import FIELDS, Sampling
from edge.settings import COMMON, SETTINGS, Setting, check, names_of, with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edge.cache.plan import Plan
    from edge.config import ModelConfig
    from edge.engine import Engine
    from edge.formats.checkpoint import Checkpoint
    from edge.options import Options
    from edge.registry.library import Choice

#: modules that some answers need and most do not.  Commands that run for long load them before they are ready, and
#: never read the program again, which may have been moved, upgraded or deleted
TALK = ("difflib", "encodings.utf_8_sig", "regex", "traceback", "edge.cache.kv_file", "pyx.tokens")
REQUESTS = (  # these may have forms, and ask for anything
    *TALK, "concurrent.futures.thread", "encodings.idna", "encodings.punycode", "llguidance",
    "edge.constrain.constraint", "edge.constrain.functions", "edge.constrain.schema",
)


# ---- settings: options of the table, and --set for what has none -----------------------------------------------------


def setting(name: str, **attributes: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """One entry of :func:`heading`: the option of a setting.  ``attributes``: what this command has otherwise."""
    row = SETTINGS[name]

    def checked(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        return None if value is None else check(name, value)

    kind = {} if row.kind == "switch" else {"type": _kind(row), "metavar": row.metavar}
    attributes = {"default": None, "callback": checked, "help": row.line, **kind, **attributes}
    return option(*row.names, "n_ctx" if name == "ctx" else name, **attributes)  # "ctx" is click's, in every command


def _kind(row: Setting) -> Any:
    """click's type for the text of a setting; its range is checked as in Python."""
    if row.kind in ("choice", "switch"):
        return click.Choice(row.choices or ("on", "off"))
    numbers = {"number": click.FLOAT, "seconds": click.FLOAT, "whole": click.INT, "threads": click.INT}
    return numbers.get(row.kind, Text())


def converted(name: str, text: str) -> Any:
    """The value of a setting from a text.  Raises UsageError."""
    row = SETTINGS[name]
    try:
        value = _kind(row).convert(text, None, None)
    except click.BadParameter as error:
        raise UsageError(f"{name}: {error.message}") from None
    return check(name, value == "on" if row.kind == "switch" else value)


def settings(*of: str) -> Callable[[Any], Any]:
    """A decorator: --set for the settings about these things (:class:`edge.settings.Setting`), which become parameters
    of the command as those of options are.
    """
    known = {name: SETTINGS[name] for name in names_of(*of)}

    def assign(ctx: click.Context, param: click.Parameter, typed: tuple[str, ...]) -> None:
        packed = ctx.lookup_default(str(param.name)) or ()
        for word in (*packed, *os.environ.get("BITNET_EDGE_SET", "").split()):
            _assign(ctx, word, "BITNET_EDGE_SET", known, COMMON)  # also of other commands
        if ctx.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE:
            for word in typed:
                _assign(ctx, word, "--set", known, known)

    return heading("Output", option(
        "--set", "assignments", settings=known, callback=assign, multiple=True, metavar="NAME=VALUE",
        expose_value=False, allow_from_autoenv=False, help="Set what is rarely needed; --help-all lists the names. May "
        "be given more than once."))


def _assign(
    ctx: click.Context, word: str, source: str, settings: Mapping[str, Setting], known: Mapping[str, Setting]
) -> None:
    """Set one of ``settings``; others of ``known`` are left to other commands.  Raises UsageError."""
    name, equals, text = word.partition("=")
    name = name.replace("-", "_")
    row = COMMON.get(name)
    if row is not None and row.names:
        raise UsageError(f"{source} {name}: it is the option {' / '.join(row.names)}")
    if name not in known:
        from difflib import get_close_matches

        near = get_close_matches(name, settings, n=1)
        hint = f"did you mean {near[0]}?" if near else f"{ctx.command_path} --help-all lists them"
        raise UsageError(f"{source} {name[:60]}: there is no such setting here; {hint}")
    if not equals:
        raise UsageError(f"{source} {name}: a value is missing, such as {name}={SETTINGS[name].values}")
    if name in settings:
        try:
            ctx.params[name] = converted(name, text)
        except UsageError as error:
            raise UsageError(f"{source} {str(error)}") from None


# ---- options ---------------------------------------------------------------------------------------------------------

model_option = heading(
    "Model",
    option("-m", "--model", type=Text(), metavar="MODEL", help="A .gguf file, a Hugging Face folder, or the name of a "
           "pulled model (default: what bitnet-edge default shows). That is the model which was set as the default, "
           "else the only pulled one, else demo, a small model for tests that is part of the program."),
)
model_options = heading("Model", setting("threads"), setting("think"))
kv_options = heading("Context", *map(setting, ("ctx", "kv", "memory", "window", "sinks")))
sampling_options = heading(
    "Answer",
    *map(setting, ("max_tokens", "temperature", "seed", "timeout")),
    option("--stop", "-r", "stop", type=Escaped(), multiple=True, metavar="TEXT", allow_from_autoenv=False,
           help=r"End the answer where TEXT would begin. May be given more than once; \n is a new line, \t a tab."),
)
form_options = heading(
    "Answer",
    option("--schema", type=Text(), metavar="FILE|TEXT", help="Answer with JSON that follows this JSON schema. "
           "Unsupported keywords are an error before the first token."),
    option("--choice", type=Text(), multiple=True, metavar="A,B,C", allow_from_autoenv=False,
           help=r"Answer with the likeliest of these texts. With --temp, one is drawn by its probability; \, is a "
           "comma."),
    option("--regex", type=Text(), metavar="REGEX", help="Answer with a text that matches this regular "
           "expression as a whole. The syntax is that of Rust."),
    option("--grammar", type=Text(), metavar="FILE|TEXT", help="Answer with a text of this Lark "
           "grammar (docs/constrain.md)."),
)
system_options = heading(
    "Prompt",
    option("-sys", "--system", "system", type=Text(), metavar="TEXT", help="System prompt: what the "
           "model is told before the conversation."),
    option("-sysf", "--system-file", "system_file", type=Path(dir_okay=False), metavar="FILE",
           help="Read the system prompt from FILE (-: standard input)."),
)
session_options = heading(
    "Prompt",
    option("--session", type=Path(dir_okay=False), metavar="FILE", help="Continue the conversation saved in "
           "FILE, and save it there again. FILE is made if it does not exist; it includes the KV cache, so nothing is "
           "read twice."),
    option("--session-ro", is_flag=True, help="Continue the conversation of --session without changing the file."),
)
by_option = heading("Output", setting("by"))


def _set_output(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Merge -q or -v of a command into the output of the root command: the last one counts, a typed one wins."""
    if not value:
        return
    out, name = ctx.ensure_object(Output), str(param.name)
    typed = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    if typed or not out.typed:
        out.quiet, out.verbose, out.typed = name == "quiet", name == "verbose", typed


output_options = heading(
    "Output",
    option("-q", "--quiet", "quiet", is_flag=True, is_eager=True, expose_value=False, callback=_set_output,
           help="Print the result and errors only."),
    option("-v", "--verbose", "verbose", is_flag=True, is_eager=True, expose_value=False, callback=_set_output,
           help="Also print the memory plan, the speed and notes. Internal errors have a traceback."),
)


# ---- what they say ---------------------------------------------------------------------------------------------------

def load_arguments(flags: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of :func:`edge.load` from the options that were given, and what no option sets: the sinks,
    context and KV type of a stored session, or the system prompt.
    """
    from edge.options import Options

    names = {each.name for each in dataclasses.fields(Options)} - {"system"}
    chosen = {name: flags.get(name) for name in names} | {
        "ctx": flags.get("n_ctx"),
        "constrained": any(flags.get(name) for name in ("schema", "regex", "choice", "grammar")) or None,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    if flags.get("session") is not None:
        from edge.cache.kv_file import made_with

        if made := made_with(flags["session"]):
            if 2 * made.get("sinks", 0) > given.get("ctx", made["ctx"]) != made["ctx"]:
                del made["sinks"]  # they would leave no room for the conversation
            return made | given
    system = system_prompt(flags)
    return given | ({"system": system} if system and "sinks" not in given else {})


def choice(out: Output, flags: Mapping[str, Any], named: bool = False) -> Choice:
    """The model of --model; where that names none, the one that :func:`edge.registry.library.choose` takes.  A remark
    tells a person which, unless the command itself will (``named``); anybody if it is the demo model.
    """
    from edge.registry.library import DEMO_ANSWERS, choose

    chosen = choose(flags.get("model"))
    if chosen.why == "demo" and not out.quiet:
        out.warn(DEMO_ANSWERS)
    elif chosen.why in ("default", "only") and not named and is_tty(sys.stderr):
        out.info(f"bitnet-edge: model {chosen.name}", "dim")
    return chosen


def title(config: ModelConfig) -> str:
    """The name of a model and its size, such as ``demo (5.8 M parameters)``."""
    from edge.formats.names import n_parameters

    return f"{config.name} ({amount(n_parameters(config))} parameters)"


def named(ctx: click.Context, word: str, wanted: str | None, model: str | None) -> str | None:
    """The argument ``wanted``, which the help calls ``word``, or without it --model.  Raises UsageError for both."""
    if wanted is not None and ctx.get_parameter_source("model") is click.core.ParameterSource.COMMANDLINE:
        raise UsageError(f"{word} and -m cannot be used together")
    return model if wanted is None else wanted


def reading(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of :func:`edge.formats.open_checkpoint`: what a file does not say."""
    return {name: flags[name] for name in names_of("file") if name in flags}


def checkpoint(out: Output, flags: Mapping[str, Any]) -> Checkpoint:
    """The model of --model, opened; no weights are read."""
    from edge.formats import open_checkpoint

    return open_checkpoint(choice(out, flags).path, **reading(flags))


def load_options(flags: dict[str, Any], **defaults: Any) -> Options:
    """Those arguments, checked; ``defaults``: for those that were not given.  Raises UsageError."""
    from edge.options import Options

    return Options(**defaults | load_arguments(flags))


def plan_shown(out: Output) -> Callable[[Plan], None] | None:
    """A function that prints a memory plan; None unless -v asks for it."""

    def show(plan: Plan) -> None:
        for line in plan.lines():
            out.info(f"plan: {line}", "dim")

    return show if out.verbose else None


@contextmanager
def loaded(
    out: Output, flags: dict[str, Any], named: bool = False, lasting: Sequence[str] = (), **more: Any
) -> Iterator[Engine]:
    """The engine for the model and KV options, closed at the end; shows progress on a terminal.

    ``named``: the command itself will print which model answers.  ``lasting``: TALK or REQUESTS, if it runs for long.
    ``more``: further arguments of :func:`edge.load`.
    """
    import edge

    path = choice(out, flags, named).path
    with out.progress("loading the model") as progress:
        arguments = {"progress": progress, "on_plan": plan_shown(out), **load_arguments(flags), **more}
        for each in REQUESTS if lasting and arguments.get("constrained") else lasting:
            import_module(each)  # before the size of the program is measured
        engine = edge.load(path, **arguments)
        if lasting:  # a template is compiled when it is first used
            with suppress(EdgeError):
                engine.model.encode([{"role": "user", "content": "Hello"}])
        progress.close()
    with engine:
        if flags.get("think") and not engine.model.thinks:
            out.warn(f"{engine.config.name} cannot think before it answers: --think has no effect")
        for warning in (*engine.plan.warnings, *engine.warnings):
            out.warn(warning)
        for note in engine.notes if out.verbose else ():
            if note not in engine.plan.warnings:
                out.info(with_options(f"note: {note}"), "dim")
        yield engine


def _changes(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the sampling that options set; --choice takes the likeliest unless one says otherwise."""
    changes = {name: flags[name] for name in FIELDS if flags.get(name) is not None}
    return {"temperature": 0.0, **changes} if flags.get("choice") else changes


def ask_arguments(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``Session.ask`` from the parsed options, without the timeout.  Raises UsageError."""
    chosen = {name: flags.get(name) for name in ("max_tokens", "thinking_budget", "ignore_eos", "by")} | {
        "sampling": Sampling(**_changes(flags)), "stop": tuple(flags.get("stop") or ()),
    }
    return {name: value for name, value in chosen.items() if value is not None} | form(flags)


def advised(arguments: dict[str, Any], flags: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """``arguments``, with the sampling that the model's makers recommend where no option sets it."""
    return {**arguments, "sampling": dataclasses.replace(engine.model.sampling, **_changes(flags))}


def form(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``Session.ask`` for the form of the answer, checked before a model is loaded."""
    chosen: dict[str, Any] = {}
    schema = flags.get("schema")
    if schema is not None:
        from edge.constrain.schema import parse

        chosen["schema"] = parse(written_out("schema", schema))  # as it is used: it is parsed once
    if flags.get("regex") is not None:
        chosen["regex"] = flags["regex"]
    if flags.get("choice"):
        parts = (part for each in flags["choice"] for part in re.split(r"(?<!\\),", each))
        chosen["choices"] = [part.strip().replace("\\,", ",") for part in parts]
    if flags.get("grammar") is not None:
        chosen["grammar"] = written_out("grammar", flags["grammar"])
    if len(chosen) > 1:
        names = " and ".join("--choice" if name == "choices" else f"--{name}" for name in chosen)
        raise UsageError(f"{names}: an answer has only one form, give only one of them")
    if chosen:
        from edge.constrain.spec import Spec

        Spec.of(**chosen)
    return chosen


def written_out(name: str, value: str) -> str:
    """A schema or grammar that is a text, or that in a file of this name."""
    text = "start:" in value if name == "grammar" else value.lstrip()[:1] == "{" or value in ("true", "false")
    return value if text or not value.strip() else read_text(os.path.expanduser(value))


def system_prompt(flags: dict[str, Any]) -> str | None:
    """The system prompt from --system or --system-file, which is read once and then stands in ``flags`` as --system."""
    if (path := flags.get("system_file")) is not None:
        if flags.get("system") is not None:
            raise UsageError("--system and --system-file cannot be used together")
        flags |= {"system": read_text(path).strip("\n"), "system_file": None}
    return flags.get("system")
