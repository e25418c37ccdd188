"""``bitnet-edge eval``: how well a model predicts a text, and what a KV cache costs of that."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from edge.cli import options
from edge.cli.command import Command, Noun, Text, Whole, heading, option
from edge.cli.output import Output, check_place
from edge.errors import EdgeError, UsageError

text_options = heading(
    "Text",
    option("-f", "--file", "file", type=click.Path(dir_okay=False), metavar="FILE", allow_from_autoenv=False,
           help="The text: a text file, or conversations, one JSON object with messages a line (.jsonl). Without it "
           "a few dialogues that ship."),
)  # fmt: skip
_json_option = heading("Output", option("--json", "as_json", is_flag=True, help="One JSON object."))


@click.group("eval", cls=Noun, help="Measure quality on a text.")
def evaluate() -> None:
    """The noun; the verbs are below."""


@evaluate.command(
    cls=Command,
    help="Perplexity of a text: how well the model predicts each of its tokens, read in segments as long as the "
    "context.",
    short_help="How well the model predicts a text.",
)
@text_options
@options.model_file_options
@options.model_options
@options.kv_options
@_json_option
@options.output_options
@click.pass_context
def ppl(ctx: click.Context, file: str | None, as_json: bool, **flags: Any) -> None:
    """Read and print."""
    from edge import evaluate as work

    out = ctx.ensure_object(Output)
    with options.loaded(out, flags) as engine:
        with out.progress("reading") as progress:
            result = work.perplexity(engine, work.read(engine, file), progress)
            progress.close()
    if as_json:
        out.json(dataclasses.asdict(result))
    else:
        out.line(result.line())


@evaluate.command(
    cls=Command,
    help="What each way of keeping keys and values costs: change of perplexity on the same targets, divergence from "
    "F32 pages that forget nothing (KL, mean and 99.9th percentile), share of tokens with the same first choice, "
    "memory and speed.",
    short_help="What each kind of KV cache costs in quality.",
)
@text_options
@options.model_file_options
@options.model_options
@heading(
    "Comparison",
    option("-c", "--ctx", "--ctx-size", "n_ctx", type=Whole(min=2), metavar="N", help="Tokens of a segment "
           "(default 2048, or less if the model was trained on less)."),
    option("--mode", "modes", type=Text(), multiple=True, metavar="MODE", allow_from_autoenv=False, help="A KV type "
           "and settings: 'int8', 'int8 window=508 sinks=4'; may be given several times. Default: every type, and "
           "windows."),
    option("--against", type=Text(), default="f32", metavar="MODE", help="What all modes are compared with (default "
           "f32, nothing forgotten)."),
)
@_json_option
@heading("Output", option("--plot", type=click.Path(dir_okay=False), metavar="FILE", allow_from_autoenv=False,
                          help="Also draw KL against memory, as an SVG file."))
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
    """Read with every mode, print, draw."""
    from edge import evaluate as work

    out = ctx.ensure_object(Output)
    if plot is not None and not plot.endswith(".svg"):
        raise UsageError(f"--plot draws an SVG: the name {plot} should end in .svg")
    if plot is not None:
        check_place(plot)
    wanted, reference = [work.Mode.parse(mode) for mode in modes], work.Mode.parse(against)
    with options.loaded(out, {**flags, "kv": "f32", "overflow": "stop"}) as engine:
        tokens = work.read(engine, file)
        with out.progress("reading") as progress:
            report = work.kv_quality(engine, tokens, wanted, file or "the dialogues that ship", progress, reference)
            progress.close()
    if plot is not None:
        try:
            Path(plot).write_text(work.picture(report), encoding="utf-8")
        except OSError as error:
            raise EdgeError(f"cannot write {plot}: {error.strerror}") from None
    if as_json:
        out.json(report.to_dict())
    else:
        for line in report.lines():
            out.line(line)
