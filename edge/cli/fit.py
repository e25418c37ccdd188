"""``bitnet-edge fit``: whether a model fits this machine, and boards, before it is downloaded or loaded."""

from __future__ import annotations

from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Text, heading, option
from edge.cli.output import Output
from edge.errors import MemoryRefused
from edge.registry.shapes import names

#: models that need not be on this machine
PUBLISHED = "Published models, with short and full names:\n" + "".join(
    f"  {short:<12} {', '.join(published)}\n" for short, published in names().items()
)


@click.command(
    cls=Command,
    help="Show the memory that MODEL needs (weights, output head, KV cache of each type, program), whether this "
    "machine has it, also for serve, and the longest context that fits here and on boards with 512 MB to 16 GB. MODEL "
    "is a file, a folder, or the name of a pulled or a published model; nothing is downloaded or loaded. Default: the "
    "model that answers without -m (bitnet-edge default). Exit 5 if it does not fit.",
    epilog="Examples:\n  bitnet-edge fit bonsai-4b\n  bitnet-edge fit bonsai-4b -c 8192 --kv int4\n"
    "  bitnet-edge fit bonsai-1.7b --memory 700M\n\n" + PUBLISHED,
)
@click.argument("wanted", metavar="[MODEL]", required=False, type=Text())
@options.model_option
@heading("Model", options.setting("threads", help="Plan for N threads; each needs some memory. Default: as run uses "
                                  "here."))
@options.kv_options
@options.settings("file", "model", "context")
@heading("Output", option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text."))
@options.output_options
@click.pass_context
def fit(ctx: click.Context, wanted: str | None, threads: int | None, as_json: bool, **flags: Any) -> None:
    """Run the command; nothing is allocated."""
    from edge.machine.cores import choose
    from edge.tools import fit as work

    out = ctx.ensure_object(Output)
    model = options.named(ctx, "MODEL", wanted, flags["model"])
    planned = work.planned_model(model, **options.reading(flags))
    flags["threads"] = choose(threads)[0]
    facts, lines, refusal = work.fit(planned, options.load_options(flags, **work.KV if planned.embeds else {}))
    out.result(facts, lines, as_json)
    if refusal is not None:
        raise MemoryRefused(refusal)
