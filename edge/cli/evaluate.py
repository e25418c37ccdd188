"""``bitnet-edge eval``: how well a model predicts a text, and how much a KV cache changes that."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Noun, Text, Whole, heading, option
from edge.cli.output import Output

text_options = heading(
    "Text",
    option("-f", "--file", "file", type=click.Path(dir_okay=False), metavar="FILE", allow_from_autoenv=False,
           help="The text: a text file, or conversations, one JSON object with messages per line (.jsonl). Default: "
           "the bundled dialogues."),
)  # fmt: skip
_json_option = heading("Output", option("--json", "as_json", is_flag=True, help="Print one JSON object."))


@click.group("eval", cls=Noun, help="Measure quality on a text.")
def evaluate() -> None:
    """The command group."""


@evaluate.command(
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
    from edge.tools import evaluate as work

    out = ctx.ensure_object(Output)
    with options.loaded(out, flags) as engine:
        with out.progress("reading the text", "tokens") as progress:
            result = work.perplexity(engine, work.read(engine, file), progress)
            progress.close()
    if as_json:
        out.json(dataclasses.asdict(result))
    else:
        out.line(result.line())


@evaluate.command(
    cls=Command,
    help="Measure the quality of each kind of KV cache: change of perplexity on the same tokens, KL divergence from an "
    "F32 cache that drops nothing (mean and 99.9th percentile), share of tokens with the same first choice, memory and "
    "speed.",
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
    from edge.tools import evaluate as work

    out = ctx.ensure_object(Output)
    options.check_plot(plot)
    wanted, reference = [work.Mode.parse(mode) for mode in modes], work.Mode.parse(against)
    with options.loaded(out, {**flags, "kv": "f32", "overflow": "stop"}) as engine:
        tokens = work.read(engine, file)
        with out.progress("reading the text", "tokens") as progress:
            report = work.kv_quality(engine, tokens, wanted, file or "the bundled dialogues", progress, reference)
            progress.close()
    if plot is not None:
        from edge.tools.pictures import of_quality

        options.save_plot(plot, of_quality(report.to_dict()))
    if as_json:
        out.json(report.to_dict())
    else:
        for line in report.lines():
            out.line(line)
