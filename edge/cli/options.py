"""Options that several commands share, declared once, and how they become an Engine and a Sampling.

Every option here has an effect.  Values that the library checks (KV types, sampling ranges) are passed on unchanged, so
that the rules and their messages exist once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import amount
from edge.cli.command import EXPERIMENTS, Escaped, Seconds, Text, Threads, Whole, heading, option
from edge.cli.output import Output
from edge.config import HEADS
from edge.errors import UsageError
from edge.files import read_text
from edge.sampling import FIELDS, PRESETS, Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edge.cache.config import KVConfig
    from edge.cache.plan import KVPlan
    from edge.config import ModelConfig
    from edge.engine import Engine
    from edge.formats.checkpoint import Checkpoint
    from edge.registry.library import Choice


_DEFAULT = Sampling()


I2S_LAYOUT = option(
    "--i2s-layout",
    type=click.Choice(["auto", "128", "64", "1x4"]),
    default="auto",
    advanced=True,
    help="How the weights are arranged in an I2_S file; the file itself does not say. auto (default) tries each on a "
    "short text and takes the best; 128 is the official one, 64 that of files converted on ARM, 1x4 that of some files "
    "converted on x86.",
)
ACTIVATION = option(
    "--activation",
    type=click.Choice(["relu2", "silu"]),
    advanced=True,
    help="Activation function of a model whose file does not name it. Default: detected on a short text.",
)


_MODEL_FILE = heading(
    "Model",
    option("-m", "--model", type=Text(), metavar="MODEL", help="A .gguf file, a Hugging Face folder, or the name of a "
           "pulled model. Default: the model set with bitnet-edge default, else the only pulled one, else demo, a "
           "small model for tests that is part of the program."),
)


_format_options = heading("Loading", I2S_LAYOUT, ACTIVATION)


def model_file_options(command: Any) -> Any:
    """A decorator: options for the model, and for what its file does not say."""
    return _MODEL_FILE(_format_options(command))


FORCE_MEMORY = option("--force-memory", is_flag=True, advanced=True, help="Run even if the plan needs more memory than "
                      "is free.")
_ISA = option("--isa", type=Text(), metavar="NAME", advanced=True, help="Use this instruction set (bitnet-edge doctor "
              "lists them). Exit 6 if the processor does not support it.")
_HEAD = option("--head", type=click.Choice(HEADS), metavar="TYPE", default="auto", advanced=True,
               help=f"Type of the output head in memory: auto (default), {', '.join(HEADS[1:-1])} or {HEADS[-1]}. See "
                    "docs/models.md.")
_WEIGHTS = option("--weights", type=click.Choice(["auto", "map", "huge"]), default="auto", advanced=True,
                  help="Where the weights are read from. map: from the mapped file, which starts at once; huge: from "
                       "a copy in 2 MiB pages, which is fastest once it is made; auto (default): from the file at "
                       "first, and copied between tokens if there is enough memory.")
_TUNE = option("--tune/--no-tune", "tune", default=None, advanced=True,
               help="Use the output head, threads and other choices that were measured to be fastest for this model on "
                    "this machine, and measure them if they are not known: for one to three seconds, once, after an "
                    "answer (default); or use the defaults. Answers are the same.")
_NO_CACHE = option("--no-cache", is_flag=True, advanced=True, help="Neither keep the KV cache of system prompts on the "
                   "disk nor use what was kept. Default: what was read once is not read again by later runs.")

_model_options = heading(
    "Model",
    option("-t", "--threads", type=Threads(), metavar="N",
           help="Number of threads; -1: one fewer than the default. The default is one for each core, or only for the "
           "fast ones where some are slower; it is fewer while other programs need the cores."),
    option("--think/--no-think", "think", default=None, help="Let the model think before it answers, or not. For "
           "models that support it (Ternary-Bonsai); default: the model decides. A terminal shows thoughts dimmed; "
           "JSON has them in a field of their own."),
)
_loading = heading(
    "Loading",
    option("--template", type=Text(), metavar="NAME", advanced=True, help="Use this chat template instead of the "
           "model's own."),
    _ISA,
    _HEAD,
    _WEIGHTS,
    _TUNE,
    _NO_CACHE,
)


def model_options(command: Any) -> Any:
    """A decorator: options for running a model; those about loading are shown by ``--help-all``."""
    return _model_options(_loading(command))


#: for commands that set everything else themselves
isa_options = heading("Loading", _ISA)

#: the placement of the weights, for commands that only plan
placement_options = heading("Loading", _HEAD, _WEIGHTS)

_kv_options = heading(
    "Context",
    option("-c", "--ctx", "--ctx-size", "n_ctx", type=Whole(min=1), metavar="N",
           help="Context length in tokens (default 2048). Default for models trained on less: their training length."),
    option("--kv", type=Text(), metavar="TYPE", help="Type of the KV cache: int8 (default), f16, f32, int4 or "
           "int4c. int4c is int4 with a scale for each channel: often more exact for keys, slightly larger. "
           "KEYS:VALUES, such as int8:int4, sets both."),
    option("--memory", "--mem", "memory", type=Text(), metavar="SIZE",
           help="Memory limit of the whole process, such as 1500M or 2G. To stay within it, experts are left on "
           "disk, then the context is made shorter (if --ctx is not given), then a smaller KV type is used; exit 5 if "
           "nothing fits. M and G are powers of ten; MiB and GiB also work."),
    FORCE_MEMORY,
    option("--overflow", type=click.Choice(["slide", "stop"]), advanced=True, help="What happens when the context is "
           "full: slide (default) drops the oldest tokens; stop ends the answer, with exit 7. serve has the default "
           "stop, and answers with status 400."),
)
_kv_cache_options = heading(
    "KV cache",
    option("-ctk", "--cache-type-k", "cache_type_k", type=Text(), metavar="TYPE", advanced=True,
           help="Type of the keys only. Also accepts llama.cpp's names: q8_0 is int8, q4_0 is int4."),
    option("-ctv", "--cache-type-v", "cache_type_v", type=Text(), metavar="TYPE", advanced=True,
           help="Type of the values only; see -ctk."),
    option("--window", type=Whole(min=0), metavar="N", advanced=True, help="Attend only to the last N tokens. 0 "
           "(default): to the whole context."),
    option("--sinks", "--keep", "sinks", type=Whole(min=0), metavar="N", advanced=True,
           help="Never drop the first N tokens. Default: the length of the system prompt, or 4."),
)
_experiments = heading(
    EXPERIMENTS,
    option("--kv-policy", type=click.Choice(["recent", "quarter"]), advanced=True,
           help="Tokens to keep: recent (default) drops the oldest ones when there is no room; quarter keeps the "
           "newest quarter of the text, at most 128 tokens (for comparisons)."),
    option("--kv-budget", type=Text(), metavar="FILE", advanced=True, help="Number of tokens to keep for each head, "
           "from the JSON file that python -m lab calibrate writes."),
    option("--kv-offload", type=Text(), metavar="DIR", advanced=True, help="Save tokens that leave the window to a "
           "temporary file in DIR, so that /undo and /regen need not read the conversation again."),
    option("--kv-offload-size", type=Text(), metavar="SIZE", advanced=True, help="Maximum size of that file, per "
           "conversation (default 256M)."),
    option("--kv-drop-layers", type=Text(), metavar="N,N", advanced=True, help="These layers see only the current "
           "token, to measure what they contribute."),
)


def kv_options(command: Any) -> Any:
    """A decorator: all options of the KV cache."""
    return _kv_options(_kv_cache_options(_experiments(command)))


_answer_options = heading(
    "Answer",
    option("-n", "--max-tokens", "--n-predict", "max_tokens", type=Whole(min=0), metavar="N",
           help="Maximum length of the answer in tokens (default 512)."),
    option("--temp", "--temperature", "temperature", type=float, metavar="T",
           help=f"Randomness, 0: none (default: the model's own, else {_DEFAULT.temperature:g})."),
    option("--timeout", type=Seconds(), metavar="SEC",
           help="End an answer after SEC seconds. What was written until then is kept. For run, the time includes "
           "loading, and the exit code is 124."),
    option("--stop", "-r", "stop", type=Escaped(), multiple=True, metavar="TEXT", allow_from_autoenv=False,
           advanced=True,
           help=r"End the answer before TEXT. May be given more than once; \n is a new line, \t a tab."),
    option("--think-budget", "thinking_budget", type=Whole(min=0), metavar="N", advanced=True,
           help="End the thoughts of a model that thinks after N tokens, so that its answer begins (default: it ends "
           "them itself)."),
)
_length_experiments = heading(
    EXPERIMENTS,
    option("--ignore-eos", is_flag=True, advanced=True,
           help="Do not end the answer at the model's end token, only at -n."),
)
_sampling_options = heading(
    "Sampling",
    option("--preset", type=click.Choice(list(PRESETS)), advanced=True, help="Set the sampling options below: precise "
           "is greedy, balanced and creative are increasingly random. Options given explicitly override it."),
    option("--greedy", is_flag=True, advanced=True, help="Always choose the likeliest token, as --temp 0: the same "
           "prompt gives the same answer."),
    option("-s", "--seed", type=int, metavar="N", advanced=True, help="Seed of the random choice: the same seed gives "
           "the same answer; -1: another one each time (default)."),
    option("--top-k", type=int, metavar="N", advanced=True,
           help=f"Choose from the N likeliest tokens; 0: all (default {_DEFAULT.top_k})."),
    option("--top-p", type=float, metavar="P", advanced=True,
           help="Choose from the likeliest tokens whose probabilities add up to P; 1: all "
           f"(default {_DEFAULT.top_p:g})."),
    option("--min-p", type=float, metavar="P", advanced=True,
           help="Choose from tokens at least P times as likely as the likeliest; 0: all "
           f"(default {_DEFAULT.min_p:g})."),
    option("--repeat-penalty", type=float, metavar="X", advanced=True,
           help=f"Make tokens that were already used less likely; 1: off (default {_DEFAULT.repeat_penalty:g})."),
    option("--repeat-last-n", type=int, metavar="N", advanced=True,
           help=f"Number of recent tokens that the penalties consider; -1: all (default {_DEFAULT.repeat_last_n})."),
    option("--presence-penalty", type=float, metavar="X", advanced=True,
           help=f"Lower the score of tokens that were already used by X (default {_DEFAULT.presence_penalty:g}: off)."),
    option("--frequency-penalty", type=float, metavar="X", advanced=True,
           help="Lower the score of a token by X for each time it was already used (default "
           f"{_DEFAULT.frequency_penalty:g}: off)."),
)


def sampling_options(command: Any) -> Any:
    """A decorator: how long an answer is and how its tokens are chosen."""
    return _answer_options(_sampling_options(_length_experiments(command)))


form_options = heading(
    "Answer",
    option("--schema", type=Text(), metavar="FILE|TEXT", help="Answer with JSON that follows this JSON schema. "
           "Unsupported keywords are an error before the first token."),
    option("--choice", type=Text(), multiple=True, metavar="A,B,C", allow_from_autoenv=False,
           help=r"Answer with the likeliest of these texts; with --temp, drawn. \, is a comma."),
    option("--regex", type=Text(), metavar="REGEX", advanced=True, help="The whole answer matches REGEX (Rust "
           "syntax)."),
    option("--grammar", type=Text(), metavar="FILE", advanced=True, help="The answer follows the Lark grammar in FILE "
           "(docs/constrain.md)."),
)

system_options = heading(
    "Prompt",
    option("-sys", "--system", "system", type=Text(), metavar="TEXT", help="System prompt (-sysf FILE: from a file)."),
    option("-sysf", "--system-file", "system_file", type=click.Path(dir_okay=False), metavar="FILE", advanced=True,
           help="Read the system prompt from FILE (-: standard input)."),
)

session_options = heading(
    "Prompt",
    option("--session", type=click.Path(dir_okay=False), metavar="FILE", help="Continue the conversation saved in "
           "FILE, and save it there again. FILE is made if it does not exist; it includes the KV cache, so nothing is "
           "read twice."),
    option("--session-ro", is_flag=True, advanced=True, help="Continue the conversation of --session without changing "
           "the file."),
)


def _set_output(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Merge an output option of a sub-command into those of the root command; typed ones win over variables."""
    if not value or value == "auto":
        return
    out, name = ctx.ensure_object(Output), str(param.name)
    opposite = {"quiet": "verbose", "verbose": "quiet"}.get(name, "")
    typed = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    if opposite and getattr(out, opposite):
        if typed == (opposite in out.typed):
            raise UsageError("-q and -v cannot be used together")
        if not typed:
            return
        setattr(out, opposite, False)
    setattr(out, name, value)
    if typed:
        out.typed.add(name)


output_options = heading(
    "Output",
    option("-q", "--quiet", "quiet", is_flag=True, is_eager=True, expose_value=False, callback=_set_output,
           help="Print errors only, no notes and no progress."),
    option("-v", "--verbose", "verbose", is_flag=True, is_eager=True, expose_value=False, callback=_set_output,
           help="Also print the memory plan, speed, notes, and tracebacks of internal errors."),
    option("--color", type=click.Choice(["auto", "always", "never"]), is_eager=True, expose_value=False,
           callback=_set_output, advanced=True, help="Colour: auto (default) uses colour on terminals only."),
)

stats_option = heading(
    "Output",
    option("--stats/--no-stats", "stats", default=None, advanced=True, help="Print one line about speed and memory "
           "to standard error after each answer (default: with -v only)."),
)

by_option = heading(
    "Output",
    option("--thoughts/--no-thoughts", "thoughts", default=None, advanced=True, help="Print what the model thinks "
           "before it answers, or not. Default: on a terminal with --by token, dimmed."),
    option("--by", type=click.Choice(["token", "word", "clause", "sentence", "all"]), default="token",
           advanced=True, help="Size of the pieces in which the answer is printed (default token). clause and sentence "
           "suit text to speech; with clause the first piece is shorter, so that speech begins earlier."),
)


def kv_type(flags: Mapping[str, Any]) -> str | None:
    """The KV type of --kv, -ctk and -ctv; None if none was given."""
    kv, key, value = (flags.get(name) for name in ("kv", "cache_type_k", "cache_type_v"))
    if key is None and value is None:
        return kv
    if kv is not None:
        raise UsageError("--kv cannot be used together with -ctk or -ctv")
    return f"{key or value}:{value or key}"


def load_arguments(flags: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of :func:`edge.load` from the parsed options; options that were not given are left out."""
    from edge.cache.config import KVConfig

    names = [each.name for each in dataclasses.fields(KVConfig)]
    names += ["threads", "isa", "head", "weights", "template", "i2s_layout", "activation", "think", "tune"]
    chosen = {name: flags.get(name) for name in names} | {
        "ctx": flags.get("n_ctx"),  # "ctx" is click's context in every command
        "kv": kv_type(flags),
        "force_memory": flags.get("force_memory") or None,
        "remember": False if flags.get("no_cache") else None,
        "constrained": any(flags.get(name) for name in ("schema", "regex", "choice", "grammar")) or None,
    }
    return pinned(flags) | {name: value for name, value in chosen.items() if value is not None}


def pinned(flags: dict[str, Any]) -> dict[str, Any]:
    """Arguments that no option sets: the sinks, context and KV type of a stored session, or the system prompt."""
    if flags.get("session") is not None:
        from edge.cache.codec import made_with

        if made := made_with(flags["session"]):
            return made
    system = system_prompt(flags)
    return {"system": system} if system and flags.get("sinks") is None else {}


def choice(out: Output, flags: Mapping[str, Any], named: bool = False) -> Choice:
    """The model of --model; where that names none, the one that :func:`edge.registry.library.choose` takes, and a
    remark says which, unless the command itself will (``named``).
    """
    from edge.registry.library import DEMO_ANSWERS, choose

    chosen = choose(flags.get("model"))
    if chosen.why == "demo":
        out.warn(DEMO_ANSWERS)
    elif chosen.why in ("default", "only") and not named:
        out.info(f"bitnet-edge: model {chosen.name}", "dim")
    return chosen


def title(config: ModelConfig) -> str:
    """The name of a model and its size, such as ``demo (5.8 M parameters)``."""
    from edge.formats.names import n_parameters

    return f"{config.name} ({amount(n_parameters(config))} parameters)"


def model_path(out: Output, flags: Mapping[str, Any]) -> str:
    """The path of that model."""
    return choice(out, flags).path


def named(ctx: click.Context, word: str, wanted: str | None, model: str | None) -> str | None:
    """The argument ``wanted``, which the help calls ``word``, or without it --model.  Raises UsageError for both."""
    if wanted is not None and ctx.get_parameter_source("model") is click.core.ParameterSource.COMMANDLINE:
        raise UsageError(f"{word} and -m cannot be used together")
    return model if wanted is None else wanted


def checkpoint(out: Output, flags: Mapping[str, Any]) -> Checkpoint:
    """What the files of the model of --model say of it; no weights are read."""
    from edge.formats import open_checkpoint

    return open_checkpoint(model_path(out, flags), i2s_layout=flags["i2s_layout"], activation=flags["activation"])


def kv_config(flags: dict[str, Any], **defaults: Any) -> KVConfig:
    """The context and KV cache of the options; ``defaults``: for those that were not given.  Raises UsageError."""
    from edge.cache.config import KVConfig

    names = {each.name for each in dataclasses.fields(KVConfig)}
    return KVConfig(**defaults | {name: value for name, value in load_arguments(flags).items() if name in names})


def plan_shown(out: Output) -> Callable[[KVPlan], None] | None:
    """What prints a memory plan; None unless -v asks for it."""

    def show(plan: KVPlan) -> None:
        for line in plan.lines():
            out.info(f"plan: {line}", "dim")

    return show if out.verbose else None


@contextmanager
def loaded(out: Output, flags: dict[str, Any], named: bool = False, **more: Any) -> Iterator[Engine]:
    """The engine for the model and KV options, closed at the end; shows progress on a terminal.

    ``named``: the command itself will print which model answers.  ``more``: further arguments of :func:`edge.load`.
    """
    import edge

    path = choice(out, flags, named).path
    with out.progress("loading the model") as progress:
        arguments = {"progress": progress, "on_plan": plan_shown(out), **load_arguments(flags), **more}
        engine = edge.load(path, **arguments)
        progress.close()
    with engine:
        if engine.plan.offload is not None:
            from edge.machine.linux import lies_in_memory

            if lies_in_memory(engine.plan.offload[0]):
                out.warn(f"{engine.plan.offload[0]} is in memory (tmpfs): offloading to it frees no memory")
        if flags.get("think") and not engine.model.thinks:
            out.warn(f"{engine.config.name} cannot think before it answers: --think has no effect")
        for warning in (*engine.plan.warnings, *engine.warnings):
            out.warn(warning)
        for note in (*engine.notes, *engine.model.remarks()) if out.verbose else ():
            if note not in engine.plan.warnings:
                out.info(f"note: {note}", "dim")
        yield engine


def _changes(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the sampling that options set; --choice takes the likeliest unless one says otherwise."""
    changes = {name: flags[name] for name in FIELDS if flags.get(name) is not None}
    return {"temperature": 0.0, **changes} if flags.get("choice") and not flags.get("preset") else changes


def sampling(flags: Mapping[str, Any]) -> Sampling:
    """The sampling: the preset, changed by --greedy, then by single options.  Raises UsageError."""
    changes = _changes(flags)
    if flags.get("greedy"):
        if changes.get("temperature"):
            raise UsageError("--greedy and --temp cannot be used together")
        changes["temperature"] = 0.0
    return Sampling.preset(flags["preset"], **changes) if flags.get("preset") else Sampling(**changes)


def ask_arguments(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``Session.ask`` from the parsed options, without the timeout."""
    chosen = {name: flags.get(name) for name in ("max_tokens", "thinking_budget", "by")} | {
        "sampling": sampling(flags),
        "stop": tuple(flags.get("stop") or ()),
        "ignore_eos": flags.get("ignore_eos") or None,
    }
    return {name: value for name, value in chosen.items() if value is not None} | form(flags)


def advised(arguments: dict[str, Any], flags: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """``arguments``, with the sampling that the model's makers recommend where no option sets it."""
    if flags.get("preset") or flags.get("greedy"):
        return arguments
    changes = _changes(flags)
    return {**arguments, "sampling": dataclasses.replace(engine.model.sampling, **changes)}


def form(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``Session.ask`` for the form of the answer, checked before a model is loaded."""
    chosen: dict[str, Any] = {}
    schema = flags.get("schema")
    if schema is not None:
        from edge.constrain.schema import parse

        written_out = schema.lstrip()[:1] in ("{", "") or schema in ("true", "false")
        chosen["schema"] = parse(schema if written_out else read_text(schema))  # as it is used: it is parsed once
    if flags.get("regex") is not None:
        chosen["regex"] = flags["regex"]
    if flags.get("choice"):
        parts = (part for each in flags["choice"] for part in re.split(r"(?<!\\),", each))
        chosen["choices"] = [part.strip().replace("\\,", ",") for part in parts]
    if flags.get("grammar") is not None:
        chosen["grammar"] = read_text(flags["grammar"])
    if len(chosen) > 1:
        names = " and ".join("--choice" if name == "choices" else f"--{name}" for name in chosen)
        raise UsageError(f"{names}: an answer has only one form, give only one of them")
    if chosen:
        from edge.constrain.spec import Spec

        Spec.of(**chosen)
    return chosen


def system_prompt(flags: dict[str, Any]) -> str | None:
    """The system prompt from --system or --system-file, which is read once and then stands in ``flags`` as --system."""
    if (path := flags.get("system_file")) is not None:
        if flags.get("system") is not None:
            raise UsageError("--system and --system-file cannot be used together")
        flags |= {"system": read_text(path).strip("\n"), "system_file": None}
    return flags.get("system")
