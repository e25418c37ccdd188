"""``bitnet-edge bench``: how fast this machine reads and writes."""

from __future__ import annotations

import json
from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Numbers, Text, Whole, heading, option
from edge.cli.menu import choose_model
from edge.cli.output import Output
from edge.errors import UsageError
from edge.files import check_place, write


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
)
@heading(
    "First word",
    option("--first-word", type=Whole(min=64), is_flag=False, flag_value=1000, metavar="[N]", help="Measure instead "
           "how long the first word of an answer takes after a system prompt of N tokens (1000 if no number is given), "
           "and which tokens are read: at first, in the next process, for the next question, and with a question that "
           "was read while it was typed (docs/first-word.md)."),
)
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
    first_word: int | None,
    as_csv: bool,
    as_json: bool,
    share: str | None,
    plot: str | None,
    **flags: Any,
) -> None:
    from edge.tools import bench as work

    out = ctx.ensure_object(Output)
    if as_csv and as_json:
        raise UsageError("--csv and --json cannot be used together")
    if share == "-" and (as_csv or as_json):
        raise UsageError("--share - prints JSON of its own; it cannot be used with --csv or --json")
    several = any(len(each) > 1 for each in (threads or (), kv, head, weights, parallel))
    if first_word is not None and (as_csv or share or several):
        raise UsageError("--first-word measures one setting, in text or --json")
    options.check_plot(plot)
    if share not in (None, "-"):
        check_place(share)
    named = {"model": model}
    choose_model(out, named, for_program=as_csv or as_json or share == "-")
    model = options.model_path(out, named)
    if first_word is not None:
        one = {"kv": kv[0], "head": head[0], "weights": weights[0], "threads": threads[0] if threads else None}
        _first_word(out, model, first_word, repeats, plot, as_json, {**options.load_arguments(flags), **one})
        return
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
        write(share, shared(report.to_share()).encode())
    if share == "-":
        out.write(shared(report.to_share()))
    elif as_json:
        out.json(report.to_dict())
    else:
        out.write(report.to_csv() if as_csv else report.to_markdown())


def _first_word(
    out: Output, model: str | None, n: int, repeats: int, plot: str | None, as_json: bool, chosen: dict[str, Any]
) -> None:
    from edge.tools import first_word as work

    with out.progress("measuring") as progress:
        report = work.run(model, n, repeats, progress, **chosen)
    if plot is not None:
        from edge.tools.pictures import of_first_word

        options.save_plot(plot, of_first_word(report.to_dict()))
    if as_json:
        out.json(report.to_dict())
    else:
        out.write(report.to_markdown())


def shared(content: dict[str, Any]) -> str:
    """The text of a file for others, which they can read before they send it."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
