"""``bitnet-edge batch``: answers many requests from a file and writes the answers to another file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edge.amounts import count
from edge.cli import options
from edge.cli.command import Command, Path, heading, option
from edge.cli.output import Output
from edge.cli.signals import SIGNALS

if TYPE_CHECKING:
    from edge.tools.batch import Summary

EPILOG = """\
Example:
  {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions",
   "body": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 40}}

IN has one such object per line (docs/serve.md). Each answer, or the error of its request, becomes
a line of OUT when it is ready. After an interruption, --resume continues.
"""


@click.command(
    cls=Command,
    help="Answer the requests in IN, a JSONL file in the format of OpenAI's batch files, and write the answers to OUT. "
    "-: standard input, standard output.",
    epilog=EPILOG,
)
@click.argument("source", metavar="IN", type=Path(dir_okay=False))
@click.argument("output", metavar="OUT", type=Path(dir_okay=False))
@heading(
    "Batch",
    option("--resume", is_flag=True, help="Continue an existing OUT: skip the requests that it already answers."),
    options.setting("parallel", help="Number of answers at the same time. Each takes the memory of a context. Default: "
                    "8, or fewer if memory is short."),
)
@options.model_option
@options.model_options
@options.kv_options
@options.sampling_options
@options.form_options
@options.settings("file", "model", "context", "answer", "sampling")
@options.output_options
@click.pass_obj
def batch(out: Output, source: str, output: str, resume: bool, timeout: float | None, **flags: Any) -> int:
    """Run the command; the result is the exit code."""
    from edge.tools.batch import Batch

    defaults = options.ask_arguments(flags)
    if timeout is not None:
        defaults["timeout"] = timeout
    # a request may ask for a form; and the head is then one for several answers
    with options.loaded(out, flags, lasting=options.REQUESTS, constrained=True) as engine:
        defaults = options.advised(defaults, flags, engine)
        work = Batch(engine, source, output, resume=resume, defaults=defaults)
        with work, SIGNALS.calling(work.stop), out.progress("answering", "requests", log=True) as progress:
            done = work.run(progress)
    out.info(summary_line(done))
    if code := SIGNALS.code:
        if work.continues:
            out.info("use --resume to continue")
        return code
    return 1 if done.failed else 0


def summary_line(done: Summary) -> str:
    """The summary of a batch, in one line."""
    before = f", {done.before} answered before" if done.before else ""
    failed = f", {count(done.failed, 'error')} (see their lines in the output)" if done.failed else ""
    rate = f", {done.tokens / done.seconds:.1f} tokens/s" if done.tokens and done.seconds > 0 else ""
    return f"{count(done.total, 'request')}{before}, {done.answered} answered{failed}{rate}"
