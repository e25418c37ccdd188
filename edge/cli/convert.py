"""``bitnet-edge convert``: converts any supported model to one GGUF file that is used from the memory map."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import count, human
from edge.cli import options
from edge.cli.command import Command, Path, Text, heading, option
from edge.cli.output import Output
from edge.errors import UsageError

if TYPE_CHECKING:
    from edge.tools.planes import Planes


@click.command(
    cls=Command,
    help="Convert the model IN (a .gguf file or a Hugging Face folder) to the GGUF file OUT. The result is read back "
    "and each tensor is compared with the converted one before the file is moved to OUT. "
)
@click.argument("source", metavar="IN", type=Text())
@click.argument("output", metavar="OUT", type=Path())
@heading(
    "Conversion",
    option("--type", "weights_type", type=click.Choice(["I2_S", "TQ2_0"]), default="I2_S",
           help="Type of the ternary matrices: I2_S (default), which loads without conversion, or TQ2_0, for "
           "llama.cpp. Models with a scale for each 128 weights (Ternary-Bonsai) get PQ2_0_R64 instead of I2_S, and "
           "PQ2_0 instead of TQ2_0."),
    option("--planes", type=click.Choice(["1", "2", "3", "4"]), default=None,
           help="Make a sum of so many ternary matrices of each matrix of an ordinary (dense) model, so that it runs "
           "here without training: Llama, Qwen2, Qwen3 or Gemma 3, as GGUF or Hugging Face folder."),
    option("--group", type=click.Choice(["32", "64", "128"]), default=None,
           help="With --planes: weights that share a scale (default 32). More of them take less "
           "memory and lose more."),
    option("--embedding", type=click.Choice(["F16", "Q8_0", "F32", "keep"]), default=None,
           help="Type of the embedding table and of a separate output head (default F16, with --planes Q8_0); keep: "
           "unchanged. Q8_0 has half the size and is used from the mapped file, which takes less memory and starts "
           "earlier; generation is slower, by 7% for 2B-4T and more for small models."),
    option("--ternarise", is_flag=True, help="Round float matrices to -1, 0, 1 by their mean magnitude, as BitNet "
           "does. Use it for a ternary model that was published as float weights and is not recognised as ternary."),
    option("--force", is_flag=True, help="Overwrite OUT if it exists."),
)
@heading("Output", option("--json", "as_json", is_flag=True, help="Print path, size, SHA-256, number of tensors and "
                          "notes as one JSON object."))
@options.settings("file")
@options.output_options
@click.pass_context
def convert(
    ctx: click.Context, source: str, output: str, weights_type: str, embedding: str | None, as_json: bool, **flags: Any
) -> None:
    from edge.tools.convert import VERIFYING
    from edge.tools.convert import convert as work

    out = ctx.ensure_object(Output)
    planes = _planes(ctx, flags)

    def report(done: int, total: int, what: str) -> None:
        if what == VERIFYING:
            progress.next("verifying the new file", "")
        else:
            progress(done, total)

    with out.progress("converting", "bytes", log=True) as progress:
        result = work(
            source,
            output,
            weights_type,
            embedding,
            report,
            force=flags["force"],
            ternarise=flags["ternarise"],
            planes=planes,
            **options.reading(flags),
        )
    for note in result.notes:
        out.info(f"note: {note}", "dim")
    line = f"{result.path}: {count(result.n_tensors, 'tensor')}, {human(result.nbytes)}, sha256 {result.sha256}"
    out.result(dataclasses.asdict(result), [line], as_json)


def _planes(ctx: click.Context, flags: dict[str, Any]) -> Planes | None:
    """What --planes asks for.  Raises UsageError for options that do not go together."""
    from edge.machine.cores import find
    from edge.tools.planes import Planes

    if flags["planes"] is None:
        if flags["group"]:
            raise UsageError("--group needs --planes")
        return None
    for name in ("weights_type", "ternarise"):
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"--{'type' if name == 'weights_type' else name} and --planes cannot be used together")
    return Planes(int(flags["planes"]), int(flags["group"] or 32), find().threads)
