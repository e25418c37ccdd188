"""``bitnet-edge bench``: how fast this machine reads and writes."""

from __future__ import annotations

from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Numbers, Text, heading, option
from edge.cli.output import Output


class Words(Text):
    """Names separated by commas, such as ``int8,f16``; the library checks them."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        return tuple(word.strip() for word in str(super().convert(value, param, ctx)).split(","))


@click.command(
    cls=Command,
    help="Measure how fast prompts are read and answers are written, in tokens per second, after texts of several "
    "lengths, and compare it with the speed of the memory.",
)
@options.model_option
@heading(
    "Measurement",
    option("-d", "--depths", type=Numbers(), default="128,512", metavar="N,N", help="Tokens before the answer "
           "(default 128,512)."),
    option("-n", "--n-gen", type=click.IntRange(min=2), default=32, metavar="N", help="Tokens per answer (default "
           "32)."),
    option("-r", "--repeats", type=click.IntRange(min=1), default=3, metavar="N", help="Repeats of each measurement; "
           "the median is reported (default 3)."),
    option("-t", "--threads", type=Numbers(), metavar="N,N", help="Numbers of threads to compare, such as 1,2,4."),
    option("--kv", type=Words(), default="int8", metavar="TYPE,TYPE", help="KV types to compare, such as int8,f16 "
           "(default int8)."),
    option("--parallel", type=Numbers(), default="1", metavar="N,N", help="Also measure N answers at the same time, "
           "such as 1,2,4,8: tokens per second of all together (default 1)."),
    option("--memory", "--mem", "memory", type=Text(), metavar="SIZE", help="Memory limit of the whole process, such "
           "as 4G: of a model with experts, some are then read from the disk."),
)
@heading("Output", option("--json", "as_json", is_flag=True, help="Print one JSON object."))
@options.settings("file", "model", "context")
@options.output_options
@click.pass_context
def bench(
    ctx: click.Context, model: str | None, threads: tuple[int, ...] | None, as_json: bool, depths: tuple[int, ...],
    n_gen: int, repeats: int, kv: tuple[str, ...], parallel: tuple[int, ...], **flags: Any,
) -> None:
    from edge.tools import bench as work

    out = ctx.ensure_object(Output)
    with out.progress("measuring") as progress:
        report = work.run(
            options.model_path(out, {"model": model}), depths=depths, n_gen=n_gen, repeats=repeats,
            threads=threads or (None,), kv=kv, parallel=parallel, progress=progress, **options.load_arguments(flags),
        )
    if as_json:
        out.json(report.to_dict())
    else:
        out.write(report.to_markdown())
