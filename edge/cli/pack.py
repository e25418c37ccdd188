"""``bitnet-edge pack``: one program with a model and its arguments inside, to copy to a board."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import click

from edge.amounts import human
from edge.cli import options
from edge.cli.command import Command, Path, Text, heading, json_option, option
from edge.cli.output import Output
from edge.cli.packed import model as described
from edge.cli.serve import admitted, check_exposure
from edge.errors import UsageError

EPILOG = """\
Examples:
  bitnet-edge pack bonsai-1.7b -o guide
  bitnet-edge pack bonsai-1.7b -o guide -- chat -sysf museum.txt -c 4096 --temp 0
  bitnet-edge pack bonsai-1.7b -o guide --for aarch64 --program bitnet-edge-aarch64 -- serve --port 80

  ./guide                      # chat
  ./guide run "Where is the lift?"
  ./guide serve --port 8080

After -- comes what the program does if it is started without arguments; default: chat. With
arguments, the options there are defaults, which others override. The texts that -sysf, --schema
and --grammar name are put into the file. docs/one-file.md shows more.
"""

#: commands that a program can start with
STARTS = ("chat", "run", "serve", "batch")
#: options of these that cannot be packed, and why
LEFT_OUT = {
    "model": "-m: it is what is packed",
    "api_key": "--api-key: everybody who has the file could read it; use BITNET_EDGE_API_KEY",
    "kv_budget": "--set kv_budget: it names a file, which would not be there",
}


@click.command(
    cls=Command,
    help="Write one executable file that holds this program, MODEL (a .gguf file or the name of a pulled model) and "
    "the ARGUMENTS that it starts with. Copy it to a board: it runs there without installation and network. The model "
    "is put into the one-file program of bitnet-edge: the one that runs, or in a copy of the source the one that make "
    "freeze has made.",
    epilog=EPILOG,
)
@click.argument("model", metavar="MODEL", type=Text())
@click.argument("words", metavar="[-- ARGUMENTS...]", nargs=-1, type=Text())
@heading(
    "Packing",
    option("-o", "--output", type=Path(dir_okay=False), metavar="FILE", required=True,
           allow_from_autoenv=False, help="The file to write."),
    option("--program", type=Path(dir_okay=False), metavar="FILE",
           help="Put the model into this one-file program, which must have the same version."),
    option("--for", "machine", type=click.Choice(["aarch64", "x86_64"]),
           help="The processor that the file is for (default: as this machine's)."),
    option("--force", is_flag=True, help="Overwrite FILE if it exists."),
)
@json_option("Print path, size, processor and what is inside as one JSON object.")
@options.output_options
@click.pass_context
def pack(
    ctx: click.Context, model: str, words: tuple[str, ...], output: str, program: str | None, machine: str | None,
    force: bool, as_json: bool,
) -> None:
    from edge.registry.library import find
    from edge.tools.pack import pack as work
    from edge.tools.pack import program_path

    out = ctx.ensure_object(Output)
    words = words or ("chat",)
    flags = checked(ctx, words)
    program = program_path(program, machine)  # before a prompt is read
    chosen = options.choice(out, {"model": model})
    pulled = find(chosen.name)
    with tempfile.TemporaryDirectory() as folder:
        prompts = list(_prompts(out, chosen.path, flags, folder))
        with out.progress("packing", "bytes", log=True) as progress:
            done = work(
                chosen.path, output, program=program, machine=machine, words=list(with_texts(words, flags)),
                licence=pulled.licence if pulled else "", prompts=prompts, force=force, progress=progress,
                **options.reading(flags),
            )
    facts = {"path": done.path, "bytes": done.nbytes, "machine": done.machine, **done.inside._asdict()}
    line = f"{done.path}: {human(done.nbytes)}, for {done.machine}; model inside: {described(done.inside)}"
    out.result(facts, [line], as_json)


def checked(ctx: click.Context, words: Sequence[str]) -> dict[str, Any]:
    """The parameters of the command in ``words``, judged as that command would.  Raises UsageError."""
    root, (name, *rest) = ctx.find_root(), words
    command = root.command.get_command(root, name) if name in STARTS and isinstance(root.command, click.Group) else None
    if command is None:
        raise UsageError(f"{name[:60]}: a packed program starts with one of {', '.join(STARTS)}")
    environment = {each: os.environ.pop(each) for each in list(os.environ) if each.startswith("BITNET_EDGE_")}
    try:  # the variables of the one who packs are not those of the board
        with command.make_context(name, list(rest), parent=root) as made:
            flags = made.params
    finally:
        os.environ.update(environment)
    for each, why in LEFT_OUT.items():
        if flags.get(each) is not None:
            raise UsageError(f"cannot be packed: {why}")
    options.system_prompt(flags)
    options.ask_arguments(flags)
    options.load_options(flags)
    if name == "serve":
        check_exposure(flags["host"], None, flags["insecure"], flags["socket_path"])
        admitted(flags)
    return flags


def with_texts(words: Sequence[str], flags: dict[str, Any]) -> Iterator[str]:
    """The words with texts in place of the files that will not be there."""
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--":
            yield from (word, *rest)
        elif name not in ("-sysf", "--system-file", "--schema", "--grammar"):
            yield word
        else:
            value = value if equals else next(rest)
            name = name.removeprefix("--")
            is_form = name in ("schema", "grammar")
            yield from (f"--{name}", options.written_out(name, value)) if is_form else ("--system", flags["system"])


#: options on which the KV cache of a prompt depends, apart from the type; memory and threads are those of the board
_KEPT = ("ctx", "window", "sinks", "overflow", "kv_policy", "kv_drop_layers", "template", "think", "i2s_layout",
         "activation")


def _prompts(out: Output, model: str, flags: dict[str, Any], folder: str) -> Iterator[str]:
    """Files with the KV cache of the system prompt, if there is one: of the packed type, and of the default."""
    from edge.tools.pack import read_prompt

    system = flags.get("system")
    if not system or flags.get("cache") is False:
        return
    loading = options.load_arguments(flags)
    kept = {name: loading[name] for name in _KEPT if name in loading}
    for kv in dict.fromkeys((flags["kv"] or "int8", "int8")):
        path = os.path.join(folder, kv.replace(":", "-"))
        with out.progress(f"reading the system prompt ({kv})"):
            read_prompt(model, system, path, kv=kv, **kept)
        yield path
