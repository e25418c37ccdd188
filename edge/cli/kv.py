"""``bitnet-edge kv``: the memory that the KV cache of a model takes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from edge.cli import options
from edge.cli.command import Command, Noun, Numbers, Text, Whole, heading, option
from edge.cli.output import Output
from edge.errors import ModelNotFound, UsageError
from edge.model.shapes import ALIASES, SHAPES, find, names

if TYPE_CHECKING:
    from edge.config import ModelConfig


EPILOG = "Published models, with short and full names:\n" + "".join(
    f"  {short:<12} {', '.join(published)}\n" for short, published in names().items()
)


@click.group(cls=Noun, help="Plan the KV cache.")
def kv() -> None:
    """The command group."""


@kv.command(
    cls=Command,
    help="Show the exact size of the KV cache for every type, context length and window. MODEL is a file, a folder, or "
    "the name of a pulled or a published model; a published one need not be downloaded. Default: as -m of run.",
    short_help="Show the exact size of the KV cache for every type and context length.",
    epilog=EPILOG,
)
@click.argument("wanted", metavar="[MODEL]", required=False, type=Text())
@heading(
    "Model",
    option("-m", "--model", type=Text(), metavar="MODEL", help="The same as MODEL."),
)
@heading(
    "Context and memory",
    option("-c", "--ctx", "contexts", type=Numbers(), default="", metavar="N,N", help="Context lengths in tokens, "
           "such as 2048,8192. Default: 512, doubled up to the length the model was trained on."),
    option("--kv", "types", type=Text(), metavar="TYPE,TYPE", help="Number formats of the cache, such as "
           "int8,int4. Default: all."),
    option("--window", "windows", type=Numbers(), default="", metavar="N,N", help="Also show "
           "caches that keep only the last N tokens and the sinks."),
    option("--sinks", "--keep", "sinks", type=Whole(min=0), metavar="N", help="Number of sinks: "
           "first tokens that are never dropped (default 4)."),
    option("--kv-budget", "kv_budget", type=click.Path(dir_okay=False), metavar="FILE", help="Also show the budget "
           "in FILE: how many tokens each head keeps, as written by bitnet-edge calibrate."),
)
@heading(
    "Output",
    option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table."),
)
@options.plot_option("memory over context length for each KV type")
@options.output_options
@click.pass_context
def plan(
    ctx: click.Context,
    wanted: str | None,
    model: str | None,
    contexts: tuple[int, ...],
    types: str | None,
    windows: tuple[int, ...],
    sinks: int | None,
    kv_budget: str | None,
    as_json: bool,
    plot: str | None,
) -> None:
    """Run the command; nothing is allocated."""
    from edge.kv import table as kv_table

    out = ctx.ensure_object(Output)
    options.check_plot(plot)
    if wanted is not None:
        if ctx.get_parameter_source("model") is click.core.ParameterSource.COMMANDLINE:
            raise UsageError("MODEL and -m cannot be used together")
        model = wanted
    config, stored = _dimensions(out, model)
    table = kv_table.table(
        config,
        contexts,
        [part.strip() for part in types.split(",")] if types else kv_table.TYPES,
        windows,
        sinks,
        kv_budget,
        stored,
    )
    if plot is not None:
        from edge.tools.pictures import of_plan

        options.save_plot(plot, of_plan(table))
    if as_json:
        out.json(table.to_dict())
    else:
        for line in table.lines():
            out.line(line)


def _dimensions(out: Output, model: str | None) -> tuple[ModelConfig, str]:
    """The dimensions of a model and the type in which its output head is stored.

    ``model``: a file, a folder, the name of a pulled model or else of a published one; None: the one that answers where
    none is named.
    Raises ModelNotFound.
    """
    from edge.formats import open_checkpoint
    from edge.model import library

    if model is None or os.path.exists(model) or model == library.DEMO or library.find(model.lower()) is not None:
        checkpoint = open_checkpoint(options.model_path(out, {"model": model}))
        return checkpoint.config, checkpoint.tensors[checkpoint.head].type
    published = find(model)
    if published is None:
        from difflib import get_close_matches

        near = get_close_matches(model.lower(), [*SHAPES, *ALIASES], n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"published models are {', '.join(names())}"
        raise ModelNotFound(f"'{model}' is neither a file nor the name of a pulled or a published model; {hint}")
    return published, SHAPES[published.name].table
