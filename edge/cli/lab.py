"""``bitnet-edge lab``: how well a model predicts a text, what a KV cache costs, how widely heads attend.

Its help also lists the options of other commands that only such measurements need.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Formatter, Noun, Numbers, Text, Whole, heading, option
from edge.cli.output import Output
from edge.errors import UsageError
from edge.files import check_place, write

text_options = heading(
    "Text",
    option("-f", "--file", "file", type=click.Path(dir_okay=False), metavar="FILE", allow_from_autoenv=False,
           help="The text: a text file, or conversations, one JSON object with messages per line (.jsonl). Default: "
           "bundled/dialogues.jsonl, our own dialogues."),
)  # fmt: skip
_json_option = heading("Output", option("--json", "as_json", is_flag=True, help="Print one JSON object."))


EPILOG = """\
KV types for comparisons: --kv fp8 and --kv binary, three to nine times as slow as int8.
docs/kv.md explains these options, docs/kv_claims.md what was measured with them.
"""


class Lab(Noun):
    """The group; its help ends with the options of ``run`` that no other help page shows."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from edge.cli.run import run

        with formatter.section("Options of run, chat, serve and batch, for experiments"):
            rows = (param.get_help_record(ctx) for param in run.params if getattr(param, "lab", False))
            formatter.write_dl([row for row in rows if row], col_max=34)
        assert isinstance(formatter, Formatter)
        formatter.write_verbatim(EPILOG)


@click.group(cls=Lab, help="Measure the quality of a model and of its KV cache.")
def lab() -> None:
    """The command group."""


@lab.command(
    cls=Command,
    lab=True,
    help="Measure the perplexity of a text: how well the model predicts each of its tokens. The text is read in "
    "segments of the context length.",
    short_help="Measure the perplexity of a text.",
)
@text_options
@options.model_file_options
@options.model_options
@options.kv_options
@_json_option
@options.output_options
@click.pass_context
def ppl(ctx: click.Context, file: str | None, as_json: bool, **flags: Any) -> None:
    """Run the command."""
    from edge.tools.lab import evaluate as work

    out = ctx.ensure_object(Output)
    with options.loaded(out, flags) as engine:
        with out.progress("reading the text", "tokens") as progress:
            result = work.perplexity(engine, work.read(engine, file), progress, file or work.DIALOGUES_NAME)
            progress.close()
    out.result(dataclasses.asdict(result), [result.line()], as_json)


@lab.command(
    cls=Command,
    help="Compare KV caches, each with the predictions of an F32 cache that drops nothing: change of perplexity on the "
    "same tokens, KL divergence (mean and 99.9th percentile), share of tokens where both predict the same next token, "
    "memory and speed.",
    short_help="Measure what each kind of KV cache costs in quality.",
)
@text_options
@options.model_file_options
@options.model_options
@heading(
    "Comparison",
    option("-c", "--ctx", "--ctx-size", "n_ctx", type=Whole(min=2), metavar="N", help="Tokens per segment. "
           "Default: 2048, or the model's training length if that is shorter."),
    option("--mode", "modes", type=Text(), multiple=True, metavar="MODE", allow_from_autoenv=False, help="A KV type "
           "and settings, such as 'int8' or 'int8 window=508 sinks=4'. May be given more than once. Default: every "
           "type, and windows."),
    option("--against", type=Text(), default="f32", metavar="MODE", help="Reference for the comparison (default f32 "
           "with the whole context)."),
)
@_json_option
@options.plot_option("KL divergence over memory")
@options.output_options
@click.pass_context
def kv(
    ctx: click.Context,
    file: str | None,
    modes: tuple[str, ...],
    against: str,
    as_json: bool,
    plot: str | None,
    **flags: Any,
) -> None:
    """Run the command."""
    from edge.tools.lab import evaluate as work

    out = ctx.ensure_object(Output)
    options.check_plot(plot)
    wanted, reference = [work.Mode.parse(mode) for mode in modes], work.Mode.parse(against)
    with options.loaded(out, {**flags, "kv": "f32", "overflow": "stop"}) as engine:
        tokens = work.read(engine, file)
        with out.progress("reading the text", "tokens") as progress:
            report = work.kv_quality(engine, tokens, wanted, file or work.DIALOGUES_NAME, progress, reference)
            progress.close()
    if plot is not None:
        from edge.tools.pictures import of_quality

        options.save_plot(plot, of_quality(report.to_dict()))
    out.result(report.to_dict(), report.lines(), as_json)


@lab.command(
    cls=Command,
    help="Measure on a text how widely each KV head attends, and plan how many tokens of the KV cache each head "
    "keeps, for --kv-budget: heads that attend to few tokens keep few. --compare makes a plan of the same size with "
    "every method on the first half of the text and compares them on the second half. --classes makes no plan: it "
    "prints the entropy of every query head's attention at the end of texts of given lengths.",
    short_help="Plan how much of the KV cache each head keeps, for --kv-budget.",
)
@text_options
@options.model_file_options
@options.model_options
@heading(
    "Calibration",
    option("-c", "--ctx", "--ctx-size", "n_ctx", type=Whole(min=64), metavar="N", help="Tokens per segment, "
           "and the context the budget is for. Default: 2048, or the model's training length if that is shorter."),
    option("--keep-share", "keep", type=float, default=0.25, metavar="X", help="Share of the context that the heads "
           "keep on average (default 0.25)."),
    option("--method", type=click.Choice(["uniform", "entropy", "inverse", "support", "greedy", "joint"]),
           default="support", help="How the plan is made. support (default): in proportion to the number of tokens "
           "that receive 95% of the attention; entropy: in proportion to the entropy; inverse: in inverse proportion "
           "to it; uniform: equal shares; greedy: by the measured cost of dropping tokens (slow); joint: as greedy, "
           "and also chooses the KV type, in the same memory."),
    option("--kv", type=Text(), default="int8", metavar="TYPE", help="KV type for --method greedy, joint and "
           "--compare (default int8)."),
    option("--sinks", "--keep", "sinks", type=Whole(min=0), default=4, metavar="N", help="First tokens that "
           "every head keeps (default 4)."),
    option("--compare", is_flag=True, help="Compare all methods instead of making a plan."),
    option("--classes", "lengths", type=Numbers(), default="", metavar="N,N", help="Instead of making a plan, print "
           "the entropy and class of every query head (sink, focused, moderate, mixed, diffuse) at the end of texts of "
           "N tokens, such as 32,512,2048."),
)
@heading(
    "Output",
    option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", allow_from_autoenv=False,
           help="Write the plan to FILE, for --kv-budget."),
    option("--json", "as_json", is_flag=True, help="Print one JSON object: the plan or the comparison."),
)
@options.output_options
@click.pass_context
def calibrate(
    ctx: click.Context,
    file: str | None,
    keep: float,
    method: str,
    kv: str,
    sinks: int,
    compare: bool,
    lengths: tuple[int, ...],
    output: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Run the command."""
    from edge.tools.lab import calibrate as work
    from edge.tools.lab import evaluate, heads

    out = ctx.ensure_object(Output)
    if (compare or lengths) and output is not None:
        raise UsageError("-o cannot be used with --compare or --classes: they write no plan")
    if output is not None:
        check_place(output)
    with options.loaded(out, {**flags, "kv": "f32", "overflow": "stop"}) as engine:
        tokens, name = evaluate.read(engine, file), file or evaluate.DIALOGUES_NAME
        with out.progress("reading the text") as progress:
            found: heads.Looks | evaluate.Report | None = None
            if lengths:
                found = heads.classes(engine, tokens, lengths, sinks, progress, name)
            elif compare:
                found, _ = work.compare(engine, tokens, keep, kv=kv, sinks=sinks, text=name, progress=progress)
            else:
                plan = work.calibrate(engine, tokens, keep, method, kv, sinks, progress=progress, text=name)
            progress.close()
    if found is not None:
        return out.result(found.to_dict(), found.lines(), as_json)
    if output is not None:
        write(output, plan.to_json().encode())
    if as_json:
        out.write(plan.to_json())
    else:
        for line in plan.lines():
            out.line(line)
