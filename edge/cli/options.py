"""Options that several commands share, declared once, and how they become an Engine and a Sampling.

An option exists only if something below obeys it.  Values that the library judges (KV types, sampling ranges) are
passed through as they are: one place knows the rules, and its message reaches the user unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from edge.cli.command import Escaped, Text, Whole, heading, option
from edge.cli.output import Output
from edge.errors import UsageError
from edge.sampling import PRESETS, Sampling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge.engine import Engine
    from edge.kv_config import KVPlan

#: fields of Sampling, each an option of the same name
SAMPLING_FIELDS = tuple(field.name for field in dataclasses.fields(Sampling))

_DEFAULT = Sampling()


I2S_LAYOUT = option(
    "--i2s-layout",
    type=click.Choice(["128", "64", "1x4"]),
    default="128",
    help="Byte order of I2_S files: 128 (official, the default), or 64 and 1x4 of older converters.",
)
ACTIVATION = option(
    "--activation",
    type=click.Choice(["relu2", "silu"]),
    help="Force the activation function, where the file leaves it open.",
)

model_file_options = heading(
    "Model",
    option("-m", "--model", type=Text(), metavar="PATH", help="Model file (.gguf) or Hugging Face folder; without it "
           "the model that ships inside."),
    I2S_LAYOUT,
    ACTIVATION,
)  # fmt: skip

# fmt: off
_ISA = option("--isa", type=Text(), metavar="NAME", help="Force an instruction set (bitnet-edge doctor lists them); "
              "exit 6 if this processor lacks it.")
_HEAD = option("--head", type=click.Choice(["auto", "int8", "two-stage", "int6", "int4", "f16", "f32", "native"]),
               metavar="TYPE", default="auto", help="Output head in memory: auto (default): int8, or as in the file "
               "where that is Q8_0; two-stage, which answers like int8 and reads less of it where only the best tokens "
               "count; int6, int4, smaller and coarser; f16; f32; native, exactly the file's values (f16 or f32).")
_WEIGHTS = option("--weights", type=click.Choice(["auto", "map", "huge"]), default="auto",
                  help="map: run from the file, at once; huge: copied into 2 MiB pages first, fastest; auto (default): "
                       "begins with map, and copies between tokens where memory is plenty.")
_DRAFT = option("--draft", type=Text(), metavar="N|auto|off", default="auto",
                help="Tokens that are looked up in the conversation and checked in one step with the next one; answers "
                     "stay the same. auto (default): where it is faster.")
# fmt: on

model_options = heading(
    "Model",
    option("--template", type=Text(), metavar="NAME", help="Chat template by name, instead of the model's own."),
    option("-t", "--threads", type=Whole(min=1), metavar="N", help="Threads; the default is one for each fast core."),
    _ISA,
    _HEAD,
    _WEIGHTS,
    _DRAFT,
)

#: for commands that choose everything else themselves
isa_options = heading("Model", _ISA)

#: how the weights lie in memory, for commands that only plan
placement_options = heading("Model", _HEAD, _WEIGHTS, _DRAFT)

kv_options = heading(
    "Context and memory",
    option("-c", "--ctx", "--ctx-size", "n_ctx", type=Whole(min=1), metavar="N",
           help="Context length in tokens; the default is 2048, or less if the model was trained on less."),
    option("--kv", type=Text(), metavar="TYPE", help="Type of the KV cache: int8 (default), f16, f32, int4, "
           "int4c (scales by channel), or KEYS:VALUES such as int4:int4c. To compare: fp8, int3c, int2c, binary, which "
           "have no fast kernels (three to nine times as slow as int8)."),
    option("-ctk", "--cache-type-k", "cache_type_k", type=Text(), metavar="TYPE",
           help="As --kv, for the keys, in the spelling of llama.cpp; q8_0 means int8, q4_0 int4."),
    option("-ctv", "--cache-type-v", "cache_type_v", type=Text(), metavar="TYPE", help="As -ctk, for the values."),
    option("--kv-hadamard", type=click.Choice(["auto", "on", "off"]), help="Rotate keys before they are stored, which "
           "spreads outliers over the head: auto (default) with int4 keys."),
    option("--window", type=Whole(min=0), metavar="N", help="Attend only to the last N tokens (0, the default: to all "
           "that the context holds)."),
    option("--sinks", "--keep", "sinks", type=Whole(min=0), metavar="N",
           help="Keep the first N tokens in sight when older ones are forgotten (default: the system prompt, or 4)."),
    option("--memory", "--mem", "memory", type=Text(), metavar="SIZE",
           help="Stay within SIZE (1500M, 2G, powers of ten as all sizes here; MiB and GiB are understood): "
           "chooses context and KV type to fit, or refuses with exit 5."),
    option("--force-memory", is_flag=True, help="Try even if less memory is available than needed."),
    option("--overflow", type=click.Choice(["slide", "stop"]), default="slide",
           help="When the context is full: slide (default) forgets what is oldest, stop ends with exit 7."),
    option("--positions", type=click.Choice(["absolute", "cache"]),
           help="Where pinned tokens seem to stand once others are forgotten: absolute (default), or cache: right "
           "before the window, for texts longer than the model was trained on."),
    option("--kv-policy", type=click.Choice(["recent", "heavy", "quarter"]),
           help="What goes first: recent (default) forgets the oldest, heavy the pages with the least attention; "
           "quarter sees a quarter of the text, for comparison."),
    option("--kv-budget", type=Text(), metavar="FILE", help="Tokens to keep for each head, from a JSON file."),
    option("--kv-drop-layers", type=Text(), metavar="N,N", help="Layers that see only the token at hand, to measure "
           "what they are worth."),
    option("--kv-offload", type=Text(), metavar="DIR", help="Keep what slides out of the window in a nameless file in "
           "DIR, so that /undo and /regen far back need not read the conversation again."),
    option("--kv-offload-size", type=Text(), metavar="SIZE", help="Size of that file at most, for each session "
           "(default 256M)."),
)  # fmt: skip

sampling_options = heading(
    "Answer",
    option("-n", "--max-tokens", "--n-predict", "max_tokens", type=Whole(min=0), metavar="N",
           help="At most N tokens of answer (default 512)."),
    option("--preset", type=click.Choice(list(PRESETS)), help="Values for the options below: precise is greedy, "
           "balanced and creative choose ever more widely. Options beside it win."),
    option("--greedy", is_flag=True, help="Always the likeliest token: the same question gets the same answer."),
    option("--temp", type=float, metavar="T", help=f"Temperature; 0 is greedy (default {_DEFAULT.temp:g})."),
    option("--top-k", type=int, metavar="N", help=f"Only the N likeliest tokens; 0: all (default {_DEFAULT.top_k})."),
    option("--top-p", type=float, metavar="P",
           help=f"Only the likeliest tokens that together reach probability P; 1: all (default {_DEFAULT.top_p:g})."),
    option("--min-p", type=float, metavar="P",
           help=f"Only tokens at least P times as likely as the likeliest; 0: all (default {_DEFAULT.min_p:g})."),
    option("--repeat-penalty", type=float, metavar="X",
           help=f"Make tokens that were used already less likely; 1: off (default {_DEFAULT.repeat_penalty:g})."),
    option("--repeat-last-n", type=int, metavar="N",
           help=f"How many tokens back the penalties look; -1: all (default {_DEFAULT.repeat_last_n})."),
    option("--presence-penalty", type=float, metavar="X",
           help=f"Subtracted once from tokens used already (default {_DEFAULT.presence_penalty:g}: off)."),
    option("--frequency-penalty", type=float, metavar="X",
           help=f"Subtracted for each earlier use of a token (default {_DEFAULT.frequency_penalty:g}: off)."),
    option("-s", "--seed", type=int, metavar="N", help="Seed of the random choice, to get the same answer again."),
    option("--stop", "-r", "stop", type=Escaped(), multiple=True, metavar="TEXT", allow_from_autoenv=False,
           help=r"End the answer before TEXT; may be given several times. \n and \t are understood."),
    option("--ignore-eos", is_flag=True, help="Go on past the model's own end until -n (for measuring)."),
    option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SEC",
           help="Stop an answer after SEC seconds (with run, loading counts); what there is is printed, exit 124."),
)  # fmt: skip

system_options = heading(
    "Prompt",
    option("-sys", "--system", "system", type=Text(), metavar="TEXT", help="System prompt: who the model should be."),
    option("-sysf", "--system-file", "system_file", type=click.Path(dir_okay=False), metavar="FILE",
           help="System prompt from a file."),
)  # fmt: skip

session_options = heading(
    "Session",
    option("--session", type=click.Path(dir_okay=False), metavar="FILE", help="Go on with the conversation in FILE, "
           "if it exists, and save it there after each answer, KV cache included: nothing is read twice."),
    option("--session-ro", is_flag=True, help="Go on with that of --session, but leave the file as it is."),
)  # fmt: skip


def _set_output(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Merge an output option of a sub-command into what the root command was told; typed ones win over variables."""
    if not value or value == "auto":
        return
    out, name = ctx.ensure_object(Output), str(param.name)
    opposite = {"quiet": "verbose", "verbose": "quiet"}.get(name, "")
    typed = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    if opposite and getattr(out, opposite):
        if typed == (opposite in out.typed):
            raise UsageError("-q and -v contradict each other: choose one")
        if not typed:
            return
        setattr(out, opposite, False)
    setattr(out, name, value)
    if typed:
        out.typed.add(name)


output_options = heading(
    "Output",
    option("-q", "--quiet", "quiet", is_flag=True, is_eager=True, expose_value=False, callback=_set_output,
           help="No remarks and no progress; errors still show."),
    option("-v", "--verbose", "verbose", is_flag=True, is_eager=True, expose_value=False, callback=_set_output,
           help="Show the memory plan, notes, the stats line, and tracebacks of errors."),
    option("--color", type=click.Choice(["auto", "always", "never"]), is_eager=True, expose_value=False,
           callback=_set_output, help="Colour: auto (the default) colours terminals only."),
)  # fmt: skip

stats_option = heading(
    "Output",
    option("--stats/--no-stats", "stats", default=None, help="One line about speed and memory to standard error after "
           "each answer (default: with -v only)."),
)  # fmt: skip

by_option = heading(
    "Output",
    option("--by", type=click.Choice(["token", "word", "sentence", "all"]), default="token",
           help="Size of the pieces in which the answer is written: sentence suits text to speech. Default token."),
)  # fmt: skip


def kv_type(flags: Mapping[str, Any]) -> str | None:
    """The KV type that --kv, -ctk and -ctv ask for; None when none was given."""
    kv, key, value = (flags.get(name) for name in ("kv", "cache_type_k", "cache_type_v"))
    if key is None and value is None:
        return kv
    if kv is not None:
        raise UsageError("--kv says it already: leave out -ctk and -ctv")
    return f"{key or value}:{value or key}"


def load_arguments(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of :func:`edge.load` from the parsed options; what was not given is left to the library."""
    chosen: dict[str, Any] = {
        name: flags[name]
        for name in ("window", "sinks", "memory", "force_memory", "overflow", "positions", "kv_policy",
                     "kv_budget", "kv_drop_layers", "kv_offload", "kv_offload_size", "kv_hadamard", "threads", "isa",
                     "head", "weights", "draft", "template", "i2s_layout", "activation")
        if flags.get(name) not in (None, False)
    }  # fmt: skip
    if "sinks" not in chosen:
        chosen |= pinned(flags)
    if flags.get("n_ctx") is not None:  # not "ctx": that is click's context in every command
        chosen["ctx"] = flags["n_ctx"]
    kv = kv_type(flags)
    if kv is not None:
        chosen["kv"] = kv
    return chosen


def pinned(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What stays in sight where nobody said: as many tokens as the session was saved with, or the system prompt."""
    if flags.get("session") is not None:
        from edge.session_file import sinks_of

        if (sinks := sinks_of(flags["session"])) is not None:
            return {"sinks": sinks}
    system = system_prompt(flags)
    return {"system": system} if system else {}


def model_path(flags: Mapping[str, Any]) -> str:
    """The file or folder that --model names; without it the model that ships inside."""
    if flags.get("model") is not None:
        return str(flags["model"])
    from edge import engine

    return engine._bundled()


@contextmanager
def loaded(out: Output, flags: Mapping[str, Any]) -> Iterator[Engine]:
    """The engine that the model and KV options describe, closed at the end; progress shows where it may."""
    import edge

    def show(plan: KVPlan) -> None:
        for line in plan.lines():
            out.info(f"plan: {line}", "dim")

    with out.progress("loading the model") as progress:
        engine = edge.load(
            flags.get("model"), progress=progress, on_plan=show if out.verbose else None, **load_arguments(flags)
        )
        progress.close()
    with engine:
        if engine.plan.offload is not None:
            from edge.parking import lies_in_memory

            if lies_in_memory(engine.plan.offload[0]):
                out.warn(f"{engine.plan.offload[0]} is in memory itself: pages kept there free none of the system's")
        for warning in engine.plan.warnings:
            out.warn(warning)
        for note in engine.notes if out.verbose else ():
            if note not in engine.plan.warnings:
                out.info(f"note: {note}", "dim")
        yield engine


def sampling(flags: Mapping[str, Any]) -> Sampling:
    """The preset, then --greedy, then what was given by name; UsageError where a value cannot be used."""
    changes = {name: flags[name] for name in SAMPLING_FIELDS if flags.get(name) is not None}
    if flags.get("greedy"):
        if changes.get("temp"):
            raise UsageError("--greedy and --temp contradict each other")
        changes["temp"] = 0.0
    return Sampling.preset(flags["preset"], **changes) if flags.get("preset") else Sampling(**changes)


def ask_arguments(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``Session.ask`` that come straight from options (without the timeout)."""
    chosen: dict[str, Any] = {"sampling": sampling(flags), "stop": tuple(flags.get("stop") or ())}
    if flags.get("max_tokens") is not None:
        chosen["max_tokens"] = flags["max_tokens"]
    if flags.get("ignore_eos"):
        chosen["ignore_eos"] = True
    if flags.get("by"):
        chosen["by"] = flags["by"]
    return chosen


def system_prompt(flags: Mapping[str, Any]) -> str | None:
    """The system prompt from --system or --system-file."""
    text, path = flags.get("system"), flags.get("system_file")
    if path is None:
        return text
    if text is not None:
        raise UsageError("--system and --system-file: give one of them")
    return read_text(path).strip("\n")


def read_text(path: str) -> str:
    """A UTF-8 text file; UsageError naming the file when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return decode_text(file.read(), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def decode_text(data: bytes, name: str) -> str:
    """UTF-8 with or without a byte order mark, line ends as \\n; UsageError naming the source otherwise."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})") from error
    return text.replace("\r\n", "\n")
