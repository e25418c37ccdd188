"""``bitnet-edge pack``: one program with a model and defaults inside, to copy to a board."""

from __future__ import annotations

import copy
import os
import shlex
import tempfile
from collections.abc import Iterator
from typing import Any

import click

from edge.amounts import human
from edge.cli import options
from edge.cli.chat import chat
from edge.cli.command import Command, Escaped, Flag, Text, heading, option
from edge.cli.output import Output
from edge.cli.packed import model as described
from edge.cli.serve import admitted, check_exposure, serve

EPILOG = """\
Examples:
  bitnet-edge pack -m bonsai-1.7b -o guide
  bitnet-edge pack -m bonsai-1.7b -o guide -sysf museum.txt -c 4096 --greedy
  bitnet-edge pack -m bonsai-1.7b -o guide --for aarch64 --program bitnet-edge-aarch64

  ./guide                      # chat
  ./guide run "Where is the lift?"
  ./guide serve --port 8080
"""

DETAILS = """\
The options of chat and serve become defaults of the new program: whoever starts it can override
them, or name another model with -m. docs/one-file.md shows more.
"""

#: options of ``chat`` and ``serve`` that cannot be packed, and why
LEFT_OUT = {
    "model": "it is what is packed",
    "api_key": "everybody who has the file could read the key; use BITNET_EDGE_API_KEY",
    "socket_path": "chat and serve mean different things by it",
    "kv_budget": "it names a file, which would not be there",
    "system_file": "its text is packed",
}


def _packable() -> Iterator[Flag]:
    """Copies of the options that can be packed: all of ``serve``, and how ``chat`` prints.  Variables do not set
    them, or those of the one who packs would get into the file.
    """
    shown = [each for each in chat.params if each.name in ("thoughts", "by")]
    for each in (*serve.params, *shown):
        if isinstance(each, Flag) and each.expose_value and (each.name not in LEFT_OUT or each.name == "system_file"):
            one = copy.copy(each)
            one.envvar, one.advanced = None, each.name not in ("system", "system_file", "n_ctx")
            yield one


@click.command(
    cls=Command,
    help="Write one executable file with this program, a model and defaults inside: copy it to a board, and it runs "
    "there, without installation and network. Most options of chat and serve can be packed as defaults (--help-all). "
    "The model is put into a frozen program: an installation by pip and a copy of the source are none. There, start "
    "the frozen program for pack, or name it with --program (make freeze in a copy of the source writes "
    "dist/bitnet-edge).",
    epilog=EPILOG,
    details=DETAILS,
)
@heading(
    "Packing",
    option("-m", "--model", type=Text(), metavar="MODEL", help="The model to pack: a .gguf file or the name of a "
           "pulled model. Default: the model that answers without -m."),
    option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", required=True,
           allow_from_autoenv=False, help="The file to write."),
    option("--program", type=click.Path(dir_okay=False), metavar="FILE",
           help="Put the model into this frozen one-file program of the same version (dist/bitnet-edge of make "
           "freeze). Default: the program that runs."),
    option("--for", "machine", type=click.Choice(["aarch64", "x86_64"]),
           help="The processor that the result is for; another one than this machine's needs --program."),
    option("--force", is_flag=True, help="Overwrite FILE if it exists."),
)
@heading("Output", option("--json", "as_json", is_flag=True, help="Print path, size, processor and what is inside as "
                          "one JSON object."))
@options.output_options
@click.pass_context
def pack(
    ctx: click.Context, model: str | None, output: str, program: str | None, machine: str | None, force: bool,
    as_json: bool, **flags: Any,
) -> None:
    from edge.registry.library import find
    from edge.tools.pack import pack as work

    out = ctx.ensure_object(Output)
    options.system_prompt(flags)
    check_exposure(flags["host"], None, flags["insecure"], None)
    admitted(flags)  # these three judge the values
    options.ask_arguments(flags)
    options.kv_config(flags)
    common: dict[str, Any] = {}
    service: dict[str, Any] = {}
    words: list[str] = []
    for param in _packable():
        name = str(param.name)
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.COMMANDLINE:
            continue
        name = "system" if name == "system_file" else name
        value = _plain(flags[name], param)
        (service if param.heading == "Service" else common)[name] = value
        words += _typed(value, param)
    chosen = options.choice(out, {"model": model})
    pulled = find(chosen.name)
    with tempfile.TemporaryDirectory() as folder:
        prompts = list(_prompts(out, chosen.path, flags, folder))
        with out.progress("packing", "bytes", log=True) as progress:
            done = work(
                chosen.path, output, program=program, machine=machine, options=common, service=service,
                shown=shlex.join(words), licence=pulled.licence if pulled else "", prompts=prompts, force=force,
                progress=progress, i2s_layout=flags["i2s_layout"], activation=flags["activation"],
            )
    facts = {"path": done.path, "bytes": done.nbytes, "machine": done.machine, **done.inside._asdict()}
    line = f"{done.path}: {human(done.nbytes)}, for {done.machine}; model inside: {described(done.inside)}"
    out.result(facts, [line], as_json)


#: what the KV cache of a prompt depends on, apart from the type; memory and threads are those of the board
_KEPT = ("ctx", "window", "sinks", "overflow", "kv_policy", "kv_drop_layers", "template", "think", "i2s_layout",
         "activation")


def _prompts(out: Output, model: str, flags: dict[str, Any], folder: str) -> Iterator[str]:
    """Files with the KV cache of the system prompt, if there is one: of the packed type, and of the default."""
    from edge.tools.pack import read_prompt

    system = flags.get("system")
    if not system or flags["no_cache"]:
        return
    loading = options.load_arguments(flags)
    kept = {name: loading[name] for name in _KEPT if name in loading}
    for kv in dict.fromkeys((options.kv_type(flags) or "int8", "int8")):
        path = os.path.join(folder, kv.replace(":", "-"))
        with out.progress(f"reading the system prompt ({kv})"):
            read_prompt(model, system, path, kv=kv, **kept)
        yield path


def _plain(value: Any, param: Flag) -> Any:
    """The value of an option as it is packed: such that the option takes it again."""
    if isinstance(value, tuple):
        return [_plain(each, param) for each in value]
    return value.replace("\\", "\\\\") if isinstance(param.type, Escaped) else value


def _typed(value: Any, param: Flag) -> Iterator[str]:
    """The option as it could be typed, for the help page; long texts are cut."""
    name = next(each for each in (*param.opts, *param.secondary_opts) if each.startswith("--"))
    if isinstance(value, bool):
        yield name if value else param.secondary_opts[0]
        return
    for each in value if isinstance(value, list) else [value]:
        text = " ".join(str(each).split())
        yield "--system" if name == "--system-file" else name
        yield text if len(text) <= 60 else text[:57] + "..."


pack.params.extend(_packable())
