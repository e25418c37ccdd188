"""``python -m lab``: how well a model predicts a text, what a KV cache costs, how widely heads attend."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Noun, Numbers, Text, Whole, heading, option
from edge.cli.group import Program
from edge.cli.output import Output
from edge.errors import UsageError
from edge.files import STANDARD, check_place, write

text_options = heading(
    "Text",
    option("-f", "--file", "file", type=click.Path(dir_okay=False), metavar="FILE", allow_from_autoenv=False,
           help="The text: a text file, or conversations, one JSON object with messages per line (.jsonl). Default: "
           "bundled/dialogues.jsonl, our own dialogues."),
)
_json_option = heading("Output", option("--json", "as_json", is_flag=True, help="Print one JSON object."))


EPILOG = """\b
KV types for comparisons: --kv fp8 and --kv binary, three to nine times as slow as int8.
docs/kv.md explains the options, docs/architecture.md what was measured with them.
"""


class Lab(Program, Noun):
    """The root command of ``python -m lab``."""


@click.group(cls=Lab, help="Measure the quality of a model and of its KV cache.", epilog=EPILOG)
def lab() -> None:
    """The command group."""


@lab.command(
    cls=Command,
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
    from lab import evaluate as work

    out = ctx.ensure_object(Output)
    with options.loaded(out, flags) as engine:
        with out.progress("reading the text", "tokens", log=True) as progress:
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
@options.output_options
@click.pass_context
def kv(
    ctx: click.Context,
    file: str | None,
    modes: tuple[str, ...],
    against: str,
    as_json: bool,
    **flags: Any,
) -> None:
    """Run the command."""
    from lab import evaluate as work

    out = ctx.ensure_object(Output)
    wanted, reference = [work.Mode.parse(mode) for mode in modes], work.Mode.parse(against)
    with options.loaded(out, {**flags, "kv": "f32", "overflow": "stop"}) as engine:
        tokens = work.read(engine, file)
        with out.progress("reading the text", "tokens", log=True) as progress:
            report = work.kv_quality(engine, tokens, wanted, file or work.DIALOGUES_NAME, progress, reference)
            progress.close()
    out.result(report.to_dict(), report.lines(), as_json)


@lab.command(
    cls=Command,
    help="Measure on a text how widely each KV head attends, and plan how many tokens of the KV cache each head "
    "keeps, for --kv-budget: heads that attend to few tokens keep few. --compare makes a plan of the same size with "
    "every method on the first half of the text and compares them on the second half.",
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
)
@heading(
    "Output",
    option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", allow_from_autoenv=False,
           help="Write the plan to FILE (-: standard output), for --kv-budget."),
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
    output: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Run the command."""
    from lab import calibrate as work
    from lab import evaluate

    out = ctx.ensure_object(Output)
    if compare and output is not None:
        raise UsageError("-o cannot be used with --compare: it writes no plan")
    if output is not None:
        check_place(output)
    with options.loaded(out, {**flags, "kv": "f32", "overflow": "stop"}) as engine:
        tokens, name = evaluate.read(engine, file), file or evaluate.DIALOGUES_NAME
        with out.progress("reading the text", log=True) as progress:
            if compare:
                found, _ = work.compare(engine, tokens, keep, kv=kv, sinks=sinks, text=name, progress=progress)
            else:
                plan = work.calibrate(engine, tokens, keep, method, kv, sinks, progress=progress, text=name)
            progress.close()
    if compare:
        return out.result(found.to_dict(), found.lines(), as_json)
    if output is not None:
        write(output, plan.to_json().encode())
    if as_json and output != STANDARD:
        out.write(plan.to_json())
    elif output != STANDARD:
        for line in plan.lines():
            out.line(line)


@lab.command(
    cls=Command,
    help="Print the entropy of every query head's attention at the end of texts of N tokens, and its class: sink, "
    "focused, moderate, mixed or diffuse.",
    short_help="Measure how widely each head attends.",
)
@text_options
@options.model_file_options
@options.model_options
@heading(
    "Measurement",
    option("--lengths", type=Numbers(), default="32,512,2048", metavar="N,N",
           help="Lengths of the texts in tokens (default 32,512,2048)."),
    option("--sinks", "--keep", "sinks", type=Whole(min=0), default=4, metavar="N",
           help="First tokens that are counted as sinks (default 4)."),
)
@_json_option
@options.output_options
@click.pass_context
def heads(
    ctx: click.Context, file: str | None, lengths: tuple[int, ...], sinks: int, as_json: bool, **flags: Any
) -> None:
    """Run the command."""
    from lab import evaluate
    from lab import heads as work

    out = ctx.ensure_object(Output)
    if not lengths:
        raise UsageError("--lengths needs a number")
    with options.loaded(out, {**flags, "n_ctx": max(lengths), "kv": "f32", "overflow": "stop"}) as engine:
        tokens, name = evaluate.read(engine, file), file or evaluate.DIALOGUES_NAME
        with out.progress("reading the text", log=True) as progress:
            found = work.classes(engine, tokens, lengths, sinks, progress, name)
            progress.close()
    out.result(found.to_dict(), found.lines(), as_json)
