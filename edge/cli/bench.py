"""``bitnet-edge bench``: how fast this machine reads and writes."""

from __future__ import annotations

import sys
from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Numbers, Text, Whole, heading, option
from edge.cli.output import Output, is_tty
from edge.errors import UsageError


class Words(Text):
    """``int8,f16``: names, judged by the library."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        return tuple(word.strip() for word in str(super().convert(value, param, ctx)).split(","))


@click.command(
    cls=Command,
    help="Measure prompt reading (pp) and answer writing (tg) in tokens per second, at several depths of the context, "
    "and which part of the memory's own speed writing reaches. Prints a table; --csv and --json for programs.",
    short_help="Measure speed and memory on this machine.",
)
@options.model_file_options
@options.isa_options
@heading(
    "Measurement",
    option("-d", "--depths", type=Numbers(), default="128,512", metavar="N,N", help="Tokens in front of the answer "
           "(default 128,512)."),
    option("-n", "--n-gen", type=Whole(min=2), default=32, metavar="N", help="Tokens of each answer (default "
           "32)."),
    option("-r", "--repeats", type=Whole(min=1), default=3, metavar="N", help="Repeats of each measurement; "
           "the median counts (default 3)."),
    option("-t", "--threads", type=Numbers(), metavar="N,N", help="Threads, several to compare: 1,2,4."),
    option("--kv", type=Words(), default="int8", metavar="TYPE,TYPE", help="KV types, several to compare: int8,f16 "
           "(default int8)."),
    option("--head", type=Words(), default="auto", metavar="TYPE,TYPE", help="Types of the output head, several to "
           "compare (default auto)."),
    option("--weights", type=Words(), default="auto", metavar="KIND,KIND", help="Where the weights lie, several to "
           "compare: map,huge (default auto)."),
    option("--top-k", type=Whole(min=0), default=1, metavar="N", help="Choose from the N likeliest tokens; 0: "
           "all; 1, the default, the likeliest. A two-stage head reads less for few."),
)  # fmt: skip
@heading(
    "Output",
    option("--csv", "as_csv", is_flag=True, help="Comma-separated values, one row a measurement."),
    option("--json", "as_json", is_flag=True, help="One JSON object with all facts and rows."),
)
@options.output_options
@click.pass_context
def bench(
    ctx: click.Context,
    model: str | None,
    depths: tuple[int, ...],
    n_gen: int,
    repeats: int,
    threads: tuple[int, ...] | None,
    kv: tuple[str, ...],
    head: tuple[str, ...],
    weights: tuple[str, ...],
    top_k: int,
    as_csv: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Measure and print."""
    from edge import bench as work

    out = ctx.ensure_object(Output)
    if as_csv and as_json:
        raise UsageError("--csv and --json: choose one")
    report = work.run(
        model,
        depths=depths,
        n_gen=n_gen,
        repeats=repeats,
        threads=threads or (None,),
        kv=kv,
        head=head,
        weights=weights,
        top_k=top_k,
        progress=(lambda what: out.info(what, "dim")) if is_tty(sys.stderr) else None,
        **options.load_arguments(flags),
    )
    if as_json:
        out.json(report.to_dict())
    else:
        out.write(report.to_csv() if as_csv else report.to_markdown())
