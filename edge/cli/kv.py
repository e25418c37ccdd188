"""``bitnet-edge kv``: the memory that the KV cache of a model takes."""

from __future__ import annotations

from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Noun, Numbers, Text, Whole, heading, option
from edge.cli.fit import PUBLISHED
from edge.cli.output import Output


@click.group(cls=Noun, help="Plan the KV cache.")
def kv() -> None:
    """The command group."""


@kv.command(
    cls=Command,
    help="Show the exact size of the KV cache for every type, context length and window. MODEL is a file, a folder, or "
    "the name of a pulled or a published model; a published one need not be downloaded. Default: as -m of run.",
    short_help="Show the exact size of the KV cache for every type and context length.",
    epilog=PUBLISHED,
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
    option("--kv-budget", "budget", type=click.Path(dir_okay=False), metavar="FILE", help="Also show the budget "
           "in FILE: how many tokens each head keeps, as written by python -m lab calibrate."),
)
@heading(
    "Output",
    option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table."),
)
@options.output_options
@click.pass_context
def plan(
    ctx: click.Context, wanted: str | None, model: str | None, types: str | None, as_json: bool, **chosen: Any,
) -> None:
    """Run the command; nothing is allocated."""
    from edge.tools import kv_table
    from edge.tools.fit import opened

    out = ctx.ensure_object(Output)
    _, checkpoint = opened(options.named(ctx, "MODEL", wanted, model))
    table = kv_table.table(
        checkpoint.config,
        types=[part.strip() for part in types.split(",")] if types else kv_table.TYPES,
        stored=checkpoint.tensors[checkpoint.head].type,
        planes=checkpoint.planes,
        **chosen,
    )
    out.result(table.to_dict(), table.lines(), as_json)
