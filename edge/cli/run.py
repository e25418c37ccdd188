"""``bitnet-edge run``: one answer to standard output, then exit; never asks anything."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from edge.amounts import count
from edge.cli import options, records
from edge.cli.command import Command, Text, heading, option
from edge.cli.keep import Keeper
from edge.cli.output import Answer, Output, is_tty
from edge.cli.signals import stopping
from edge.errors import EXIT_CODES, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edge.engine import Engine
    from edge.session import Session
    from edge.stream import Piece

    Ask = Callable[..., Iterator[Piece]]  # ask or complete of a session, all but on_prefill given

EPILOG = """\
Examples:
  bitnet-edge run "Where does the river begin?"
  bitnet-edge run "Summarise in one sentence:" -f notes.txt
  cat notes.txt | bitnet-edge run "Summarise:" --json
  bitnet-edge run --session guide.bes -sysf museum.txt -n 0    # reads it once and saves
  bitnet-edge run --session guide.bes --session-ro "Where is the lift?"      # answers at once
  bitnet-edge run --jsonl --by sentence "Tell me about owls" |
    jq -r --unbuffered 'select(.ev == "text").text' | piper -m voice --output-raw | aplay

Standard input that is not a terminal is read to its end and appended to the prompt after a
blank line; in a shell loop that reads a list, give </dev/null.

Exit codes:
""" + "".join(f"  {code:<4} {text}\n" for code, text in EXIT_CODES.items())


@click.command(
    cls=Command,
    help="Print one answer to PROMPT and exit. PROMPT may also come from -p, -f or standard input (- for that alone).",
    short_help="One answer to standard output, then exit.",
    epilog=EPILOG,
)
@click.argument("words", metavar="[PROMPT]", nargs=-1, type=Text())
@heading(
    "Prompt",
    option("-p", "--prompt", "prompt", type=Text(), metavar="TEXT", allow_from_autoenv=False,
           help="The prompt, for those whose fingers know -p."),
    option("-f", "--file", "file", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE",
           allow_from_autoenv=False, help="Append the text of FILE after a blank line ('-': standard input)."),
    option("--raw", is_flag=True, help="No chat template: the model continues the prompt itself."),
)  # fmt: skip
@options.system_options
@options.session_options
@options.model_file_options
@options.model_options
@options.kv_options
@options.sampling_options
@options.by_option
@heading(
    "Output",
    option("--json", "as_json", is_flag=True, help="One JSON object: text, finish_reason, usage, timings, model, kv."),
    option("--jsonl", "as_jsonl", is_flag=True, help="One JSON object an event: ready, prefill, text, done, error."),
)
@options.stats_option
@options.output_options
@click.pass_context
def run(
    ctx: click.Context,
    words: tuple[str, ...],
    prompt: str | None,
    file: str | None,
    raw: bool,
    as_json: bool,
    as_jsonl: bool,
    stats: bool | None,
    timeout: float | None,
    **flags: Any,
) -> int:
    """Parse, answer, print."""
    out = ctx.ensure_object(Output)
    if as_json and as_jsonl:
        raise UsageError("--json and --jsonl: choose one")
    if len(words) > 1:
        raise UsageError(f"put the prompt in quotes: bitnet-edge run {' '.join(words)!r}")
    system = options.system_prompt(flags)
    if raw and system is not None:
        raise UsageError("--raw uses no template, so there is no place for a system prompt")
    arguments = options.ask_arguments(flags)  # judged before the model is loaded
    keeper = Keeper(flags)
    prepares = keeper.saves and flags["max_tokens"] == 0 and not raw  # -n 0: a prompt is not needed
    text = gather_prompt(words[0] if words else None, prompt, file, needed=not prepares)
    begun = time.monotonic()
    try:
        with options.loaded(out, flags) as engine:
            session = keeper.open(engine, system)
            if timeout is not None:
                arguments["timeout"] = max(timeout - (time.monotonic() - begun), 1e-3)
            ask = (
                partial(session.complete if raw else session.ask, text, **arguments) if text else partial(warm, session)
            )
            if as_jsonl:
                interrupted = _print_events(out, engine, session, ask)
            elif as_json:
                interrupted = _print_object(out, engine, session, ask)
                as_json = False  # what fails from here on must not print a second object
            else:
                interrupted = _print_text(out, session, ask)
            keeper.save(session)
            if session.usage.prompt > engine.plan.n_ctx:
                first = count(engine.plan.sinks, "token")
                out.warn(
                    f"the prompt has {session.usage.prompt} tokens, the context {engine.plan.n_ctx}: only its end (and "
                    f"the first {first}) was in sight; a larger --ctx or --overflow stop helps"
                )
            if session.offload_error:
                out.warn(session.offload_error)
            if stats if stats is not None else out.verbose:
                out.stats(session.stats_line())
            if interrupted:
                return 130
            failure = records.finish_error(session.finish_reason, engine, timeout)
    except Exception as error:
        if not isinstance(error, BrokenPipeError):
            if as_jsonl:
                out.json(records.error_of(error))
            elif as_json:
                out.json(records.failure(error))
        raise
    if failure:
        raise failure
    return 0


def warm(session: Session, **_: Any) -> Iterator[Piece]:
    """In place of an answer: read what the next prompt begins with."""
    session.warm()
    session.finish_reason = "length"  # as with any answer of -n 0
    return iter(())


def gather_prompt(word: str | None, prompt: str | None, file: str | None, needed: bool = True) -> str:
    """Prompt, file and piped standard input in this order, each after a blank line; empty only if not ``needed``.

    Standard input is read when it is asked for by ``-`` or when it is no terminal.
    """
    if word == "-":
        word, file_is_stdin = None, True
    else:
        file_is_stdin = file == "-"
    if word is not None and prompt is not None:
        raise UsageError("PROMPT and -p: give one of them")
    parts = [part for part in (word, prompt) if part is not None]
    if file is not None and file != "-":
        parts.append(options.read_text(file).strip("\n"))
    if file_is_stdin or (sys.stdin is not None and not is_tty(sys.stdin)):
        parts.append(read_stdin())
    text = "\n\n".join(part for part in parts if part)
    if not text.strip():
        if not needed:
            return ""
        raise UsageError("there is no prompt: bitnet-edge run 'your question', or -f FILE, or pipe it in")
    return text


def read_stdin(strip: bool = True) -> str:
    """Standard input to its end; with ``strip`` without the newlines that end it."""
    if sys.stdin is None:  # started with standard input closed (<&-)
        return ""
    try:
        data = sys.stdin.buffer.read()
    except OSError as error:
        raise UsageError(f"cannot read standard input: {error.strerror}") from error
    text = options.decode_text(data, "standard input")
    return text.strip("\n") if strip else text


def _print_text(out: Output, session: Session, ask: Ask) -> bool:
    """Stream the answer; True when Ctrl-C stopped it.  What was printed stays, and its line is always ended."""
    answer = Answer(out)
    with stopping(session.cancel) as stop, out.progress("reading the prompt") as progress:
        try:
            for piece in stop.through(ask(on_prefill=lambda done, total, _cached: progress(done, total))):
                progress.close()
                answer.feed(piece.text)
        except BaseException as error:
            progress.close()
            if answer.text and not isinstance(error, BrokenPipeError):
                answer.end()
            raise
    answer.end()
    return stop.interrupted


def _print_object(out: Output, engine: Engine, session: Session, ask: Ask) -> bool:
    """The whole answer as one JSON object; True when Ctrl-C stopped it."""
    with stopping(session.cancel) as stop, out.progress("answering"):
        text = "".join(piece.text for piece in stop.through(ask()))
    out.json(records.answer(engine, session, text))
    return stop.interrupted


def _print_events(out: Output, engine: Engine, session: Session, ask: Ask) -> bool:
    """The answer as events; True when Ctrl-C stopped it."""
    out.json(records.ready(engine))
    with stopping(session.cancel) as stop:
        for piece in stop.through(ask(on_prefill=lambda *counts: out.json(records.prefill(*counts)))):
            out.json({"ev": "text", "text": piece.text})
    out.json(records.done(session))
    return stop.interrupted
