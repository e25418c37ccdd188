"""``bitnet-edge doctor``: what this machine can do, and whether the maths is right on it."""

from __future__ import annotations

import click

from edge.cli import options
from edge.cli.command import Command, heading, option
from edge.cli.output import Output


@click.command(
    cls=Command,
    help="Say what this machine can do, what slows it down, and whether the answers are right on it: each instruction "
    "set is compared with plain Python, and the model that ships inside must give its known answer. Exit 1 if not.",
    short_help="Say what this machine can do, and whether the answers are right on it.",
)
@heading(
    "Output",
    option("--json", "as_json", is_flag=True, help="One JSON object."),
    option("--selftest/--no-selftest", default=True, help="Whether to try the kernels and the model (default: yes)."),
)
@options.output_options
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, selftest: bool) -> int:
    """Look, test, tell."""
    from edge import doctor as work

    out = ctx.ensure_object(Output)
    with out.progress("testing"):
        facts = work.report(selftest=selftest)
    if as_json:
        out.json(facts)
    else:
        for line in work.lines(facts):
            out.line(line)
    return 0 if facts["ok"] else 1
