"""``bitnet-edge pull``, ``list``, ``default`` and ``rm``: models by name, downloaded once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import count, human
from edge.cli import options
from edge.cli.command import Command, Text, heading, json_option, option
from edge.cli.output import Output
from edge.errors import EdgeError, UsageError

if TYPE_CHECKING:
    from edge.tools.fit import KnownModel


@click.command(
    cls=Command,
    help="Download a model. MODEL is a name of bitnet-edge list --all, or hf:OWNER/NAME/FILE for any file on the "
    "Hugging Face Hub, or its address; hf:OWNER/NAME is enough if the repository holds one model. Use it with -m NAME. "
    "Without MODEL, get a small model to begin with. An interrupted download continues where it stopped.",
    epilog="Examples:\n  bitnet-edge pull bonsai-1.7b\n  bitnet-edge chat -m bonsai-1.7b\n"
    "  bitnet-edge pull hf:microsoft/bitnet-b1.58-2B-4T-gguf/ggml-model-i2_s.gguf --name bitnet\n\n"
    "Environment: HF_TOKEN for repositories with terms to accept, HF_ENDPOINT for a mirror, https_proxy,\n"
    "BITNET_EDGE_MODELS for the folder of the models (default ~/.local/share/bitnet-edge/models).",
)
@click.argument("wanted", metavar="[MODEL]", required=False, type=Text())
@heading(
    "Download",
    option("--name", type=Text(),
           help="Name of the model on this machine. Default: the name of the known model, or of the file."),
    option("--as-is", is_flag=True,
           help="Keep the file as published, without converting it to the form that loads fastest. By default, an "
           "output head in F16, matrices with a scale for each 128 weights, and other packings are converted."),
    option("--force", is_flag=True, help="Download again even if a model of this name exists."),
)
@json_option()
@options.output_options
@click.pass_obj
def pull(
    out: Output, wanted: str | None, name: str | None, as_is: bool, force: bool, as_json: bool, **_: Any
) -> None:
    from edge.registry import library
    from edge.tools import pull as work

    if wanted is None and (name or as_is or force):
        raise UsageError("--name, --as-is and --force need MODEL")
    if name:
        library.checked_name(name)  # refused before a download is announced
    label = "a first model" if wanted is None else work.parse(wanted).name or wanted

    def note(text: str) -> None:
        progress.say(text)
        if text == work.CONVERTING:
            progress.next(f"converting {label}", "bytes")

    with out.progress(f"pulling {label}", "bytes", log=True) as progress:
        try:
            if wanted is None:
                model = work.pull_first(progress=progress, note=note)
            else:
                model = work.pull(wanted, name=name, as_is=as_is, force=force, progress=progress, note=note)
        except KeyboardInterrupt:
            note("stopped; the same command goes on from here")
            raise
    out.result(model._asdict(), [f"{model.name}: {human(model.nbytes)} in {model.path}"], as_json)
    if library.default() is None:
        library.set_default(model.name)
        out.info(f"{model.name} is the default from now on: it answers if -m is not given", "dim")
    if wanted is None:
        from edge.registry.known import KNOWN
        from edge.tools.fit import offered

        alone = model.source.startswith("pip:")  # where no hub can be reached
        better = [each.known.name for each in offered()
                  if (each.known.package if alone else each.known.score > KNOWN[model.name].score)][:3]
        out.info(f"better models that fit this machine: {', '.join(better)} (bitnet-edge list)" * bool(better), "dim")
    out.info("try: bitnet-edge chat" + ("" if library.default() == model.name else f" -m {model.name}"), "dim")


@click.command(
    "list",
    cls=Command,
    help="List the models on this machine with the size of their files. Then, on standard error, chat models that fit "
    "this machine and can be pulled, the best first: the size of the download, memory with a context of 2048 tokens, "
    "and MMLU-Redux, a test of knowledge, in percent as the maker published it (MMLU for bitnet-2b-4t, smollm2-135m).",
)
@heading("Output", option("--all", "everything", is_flag=True,
                          help="List all models that can be pulled by name instead: also those that are too large for "
                          "this machine, only continue text, translate, or make vectors."))
@json_option("Print a JSON list.")
@options.output_options
@click.pass_obj
def list_models(out: Output, everything: bool, as_json: bool, **_: Any) -> None:
    from edge.registry.library import folder, pulled
    from edge.tools.fit import known_models, offered

    models, known = pulled(), known_models() if everything else []
    if as_json:
        values = [
            dataclasses.asdict(each.known)
            | {"score": each.known.score or None, "board_bytes": each.board, "memory_bytes": each.memory}
            for each in known
        ]
        return out.json(values if everything else [model._asdict() for model in models])
    if everything:
        return out.result(None, _table(known), False)
    wide = max((len(model.name) for model in models), default=0)
    for model in models:
        out.line(f"{model.name:<{wide}} {human(model.nbytes):>8}  {model.licence:<26} {model.source}")
    if not models:
        out.info(f"there are no models in {folder()}")
    if not out.quiet and (rows := offered()):
        out.info("more models that fit this machine (bitnet-edge pull NAME; all: bitnet-edge list --all):", "dim")
        for line in _table(rows):
            out.info(line, "dim")


def _table(models: Sequence[KnownModel]) -> Iterator[str]:
    """Rows with download, memory, score, abilities and licence."""
    wide = max(len(each.known.name) for each in models)
    yield f"{'model':<{wide}} {'download':>8}  {'memory':>7}  {'MMLU':>4}  what it is; licence"
    for model, memory, _board in models:
        score = f"{model.score:.0f}" if model.score else "-"
        yield (f"{model.name:<{wide}} {human(model.nbytes):>8}  {human(memory):>7}  {score:>4}  "
               f"{model.about}{', also with pip' * bool(model.package)}; {model.licence}")


@click.command(
    cls=Command,
    help="Set the default model: the one that answers if -m is not given. NAME is a pulled model, or demo. Without "
    "NAME, show which model answers. The first bitnet-edge pull sets the default.",
)
@click.argument("name", metavar="[NAME]", required=False, type=Text())
@heading("Output", option("--unset", is_flag=True, help="Remove the default."))
@json_option("Print one JSON object: name, path, why.")
@options.output_options
@click.pass_obj
def default(out: Output, name: str | None, unset: bool, as_json: bool, **_: Any) -> None:
    from edge.registry import library

    if name is not None and unset:
        raise UsageError("NAME and --unset cannot be used together")
    if name is not None:
        library.set_default(name.lower())
    elif unset:
        library.forget_default()
    choice = library.choose()
    if as_json:
        out.json(choice._asdict())
        return
    out.line(choice.name)
    why = {"named": "it is named by BITNET_EDGE_MODEL", "inside": "it is inside this program",
           "only": "no default is set, and it is the only pulled model", "demo": "no default is set",
           "default": "it is the default"}[choice.why]
    out.info(f"{choice.name} answers where no -m is given: {why}", "dim")


@click.command(
    cls=Command,
    help="Delete pulled models by name, without confirmation; or the prompts that were remembered so that they are not "
    "read again (--prompts).",
)
@click.argument("names", metavar="NAME...", nargs=-1, type=Text())
@heading("Output", option("--prompts", is_flag=True, allow_from_autoenv=False,
                          help="Delete the remembered system prompts of all models (bitnet-edge doctor shows their "
                               "size)."))
@options.output_options
@click.pass_obj
def rm(out: Output, names: tuple[str, ...], prompts: bool, **_: Any) -> None:
    """Run the command.  All names are tried; the first failure decides the exit code."""
    from edge.registry.library import remove

    if not names and not prompts:
        raise UsageError("name a model (bitnet-edge list shows them), or use --prompts")
    if prompts:
        from edge.cache import remembered

        n, nbytes = remembered.forget(remembered.place())
        out.info(f"deleted {count(n, 'remembered prompt')}, freed {human(nbytes)}")
        if not names:
            return
    failures: list[EdgeError] = []
    freed = 0
    for name in names:
        try:
            freed += remove(name)
        except EdgeError as error:
            failures.append(error)
    if len(failures) < len(names):
        out.info(f"deleted {count(len(names) - len(failures), 'model')}, freed {human(freed)}")
    for failure in failures[1:]:
        out.error(str(failure))
    if failures:
        raise failures[0]
