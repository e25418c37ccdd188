"""``bitnet-edge bench``: how fast this machine reads and writes."""

from __future__ import annotations

import json
from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Numbers, Text, Whole, heading, option
from edge.cli.menu import settle_model
from edge.cli.output import Output
from edge.errors import EdgeError, UsageError
from edge.files import check_place


class Words(Text):
    """Names separated by commas, such as ``int8,f16``; the library checks them."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        return tuple(word.strip() for word in str(super().convert(value, param, ctx)).split(","))


@click.command(
    cls=Command,
    help="Measure how fast prompts are read (pp, prompt processing) and answers are written (tg, text generation), in "
    "tokens per second, after texts of several lengths, and compare it with the speed of the memory. Prints a table; "
    "--csv and --json for programs.",
)
@options.model_file_options
@options.isa_options
@heading(
    "Measurement",
    option("-d", "--depths", type=Numbers(), default="128,512", metavar="N,N", help="Tokens before the answer "
           "(default 128,512)."),
    option("-n", "--n-gen", type=Whole(min=2), default=32, metavar="N", help="Tokens per answer (default 32)."),
    option("-r", "--repeats", type=Whole(min=1), default=3, metavar="N", help="Repeats of each measurement; "
           "the median is reported (default 3)."),
    option("-t", "--threads", type=Numbers(), metavar="N,N", help="Numbers of threads to compare, such as 1,2,4."),
    option("--kv", type=Words(), default="int8", metavar="TYPE,TYPE", help="KV types to compare, such as int8,f16 "
           "(default int8)."),
    option("--head", type=Words(), default="auto", metavar="TYPE,TYPE", help="Types of the output head to compare "
           "(default auto)."),
    option("--weights", type=Words(), default="auto", metavar="KIND,KIND", help="Places of the weights to compare, "
           "such as map,huge (default auto; see --weights of run)."),
    option("--parallel", type=Numbers(), default="1", metavar="N,N", help="Also measure N answers at the same time, "
           "such as 1,2,4,8: tokens per second of all together, and their ratio to the first N (default 1)."),
    option("--memory", "--mem", "memory", type=Text(), metavar="SIZE", help="Memory limit of the whole process, such "
           "as 4G: of a model with experts, some are then read from the disk."),
    option("--top-k", type=Whole(min=0), default=1, metavar="N", help="Choose from the N likeliest tokens; 0: "
           "all (default 1). A two-stage output head reads less memory when N is small."),
)  # fmt: skip
@heading(
    "Output",
    option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, one row per measurement."),
    option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    option("--share", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE", allow_from_autoenv=False,
           help="Also write the figures to FILE, as JSON that you can give to others: the machine, the shape of the "
           "model and the speeds, without names and paths. - prints only that (docs/boards.md)."),
)
@options.plot_option("the speeds, and what bounds them,")
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
    parallel: tuple[int, ...],
    as_csv: bool,
    as_json: bool,
    share: str | None,
    plot: str | None,
    **flags: Any,
) -> None:
    """Run the command."""
    from edge.tools import bench as work

    out = ctx.ensure_object(Output)
    if as_csv and as_json:
        raise UsageError("--csv and --json cannot be used together")
    if share == "-" and (as_csv or as_json):
        raise UsageError("--share - prints JSON of its own; it cannot be used with --csv or --json")
    options.check_plot(plot)
    if share not in (None, "-"):
        check_place(share)
    named = {"model": model}
    settle_model(out, named, for_program=as_csv or as_json or share == "-")
    model = options.model_path(out, named)
    with out.progress("measuring") as progress:
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
            parallel=parallel,
            progress=progress,
            **options.load_arguments(flags),
        )
    if plot is not None:
        from edge.tools.pictures import of_bench

        options.save_plot(plot, of_bench(report.to_dict()))
    if share is not None and share != "-":
        save(share, report.to_share())
    if share == "-":
        out.write(shared(report.to_share()))
    elif as_json:
        out.json(report.to_dict())
    else:
        out.write(report.to_csv() if as_csv else report.to_markdown())


def shared(content: dict[str, Any]) -> str:
    """The text of a file for others, which they can read before they send it."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def save(path: str, content: dict[str, Any]) -> None:
    """Write that file.  Raises EdgeError."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(shared(content))
    except OSError as error:
        raise EdgeError(f"cannot write {path}: {error.strerror}") from None
