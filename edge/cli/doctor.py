"""``bitnet-edge doctor``: what this machine supports, and a test that its results are correct."""

from __future__ import annotations

import click

from edge.cli import options
from edge.cli.command import Command, heading, option
from edge.cli.output import Output


@click.command(
    cls=Command,
    help="Show the features of this machine and what slows it down, and test that results are correct: the kernels of "
    "each instruction set are compared with plain Python, and the demo model must give its known answers. Exit 1 "
    "if a test fails.",
)
@heading(
    "Output",
    option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    option("--selftest/--no-selftest", default=True, help="Test the kernels and the model, or not (default: yes)."),
)
@options.output_options
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, selftest: bool) -> int:
    """Run the command; the result is the exit code."""
    from edge.tools import doctor as work

    out = ctx.ensure_object(Output)
    with out.progress("testing"):
        facts = work.report(selftest=selftest)
    out.result(facts, work.lines(facts), as_json)
    return 0 if facts["ok"] else 1
