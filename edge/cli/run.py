"""``bitnet-edge run``: one answer to standard output, then exit; never prompts."""

from __future__ import annotations

import shlex
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from edge import records
from edge.cli import options
from edge.cli.answers import AnswerOutput, report, stream
from edge.cli.command import Command, Path, Text, heading, json_option, option
from edge.cli.keep import Keeper
from edge.cli.output import Output, is_tty
from edge.cli.signals import SIGNALS, Terminated
from edge.errors import UsageError
from edge.files import STANDARD, read_text, stdin_is_left

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge.cli.answers import Ask
    from edge.engine import Engine
    from edge.session.session import Session
    from edge.session.stream import Piece

EPILOG = """\
Examples:
  bitnet-edge run -m bonsai-1.7b "Where does the river begin?"
  cat notes.txt | bitnet-edge run -m bonsai-1.7b "Summarise in one sentence:" -n 60
  bitnet-edge run -m bonsai-1.7b --choice yes,no --json "Is a whale a fish?"
"""

DETAILS = """\
More examples:
  bitnet-edge run -m bonsai-1.7b "Summarise in one sentence:" -f notes.txt
  bitnet-edge run -m bonsai-1.7b --session guide.bes -sysf museum.txt -n 0  # read and save
  bitnet-edge run -m bonsai-1.7b --session guide.bes --session-ro "Where is the lift?"
  bitnet-edge run -m bonsai-1.7b --schema order.json "Two teas for room 12, please."

If standard input is not a terminal, it is read to its end and appended to the prompt after a
blank line. In a shell loop that reads a list, use </dev/null. With -n 0 and a system prompt
(--system or --system-file), standard input is read only if PROMPT is -. A prompt that is the
name of a model comes after --: run -- demo.
"""


@click.command(
    cls=Command,
    help="Answer PROMPT, and exit. The prompt may also come from -f FILE or standard input.",
    epilog=EPILOG,
    details=DETAILS,
)
@click.argument("words", metavar="[PROMPT]", nargs=-1, type=Text())
@heading(
    "Prompt",
    option("-p", "--prompt", "prompt", type=Text(), metavar="TEXT", allow_from_autoenv=False,
           help="The prompt; the same as PROMPT."),
    option("-f", "--file", "files", type=Path(dir_okay=False, allow_dash=True), metavar="FILE", multiple=True,
           allow_from_autoenv=False, help="Append the text of FILE (-: standard input) to the prompt. A "
           "blank line separates them. Can be given more than once."),
    option("--raw", is_flag=True, help="Let the model continue the prompt as it stands, not answer it. No "
           "chat template is applied."),
)
@options.system_options
@options.session_options
@options.model_option
@options.model_options
@options.kv_options
@options.sampling_options
@options.form_options
@options.by_option
@json_option("Print one JSON object: text, finish_reason, usage, timings, model, kv.")
@options.settings("file", "model", "context", "answer", "sampling", "print")
@options.output_options
@click.pass_obj
def run(
    out: Output, words: tuple[str, ...], prompt: str | None, files: tuple[str, ...], raw: bool, as_json: bool,
    timeout: float | None, **flags: Any,
) -> int:
    """Run the command; the result is the exit code."""
    if len(words) > 1:
        raise UsageError(f"put the prompt in quotes: {shlex.quote(' '.join(words))}; a model comes after -m")
    system = options.system_prompt(flags)
    if raw:
        _check_raw(system, flags.get("session"))
    arguments = options.ask_arguments(flags)  # judged before the model is loaded
    keeper = Keeper(flags, out.warn)
    asks = flags["max_tokens"] != 0  # -n 0 only reads the prompt: not even an empty answer
    text, shared = gather_prompt(
        words[0] if words else None, prompt, files,
        needed=asks or not keeper.target,
        piped=asks or system is None,  # a script that prepares a session must keep its own input
    )
    begun, printed = time.monotonic(), False
    try:
        with keeper, options.loaded(out, flags) as engine:
            session = keeper.open(engine, system)
            arguments = options.advised(arguments, flags, engine)
            if timeout is not None:
                arguments["timeout"] = max(timeout - (time.monotonic() - begun), 1e-3)
            if shared and not raw:
                arguments["shared"] = shared
            how = session.complete if raw else session.ask
            ask: Ask = partial(how, text, **arguments) if text else partial(warm, session)
            if as_json:
                code = _print_object(out, engine, session, ask)
                printed = True  # a failure from here on must not print a second object
            else:
                code = _print_text(out, session, ask, flags.get("thoughts"), flags["by"] or "token", asks)
            keeper.save(session)
            if not as_json and asks and session.outcome.finish_reason == "length" and is_tty(sys.stdout):
                out.info("(stopped at the token limit; -n N changes it)", "dim")
            report(out, session)
            if code:
                return code
            failure = records.finish_error(session, timeout)
    except BaseException as error:  # a signal, too
        if as_json and not printed and not isinstance(error, BrokenPipeError):
            out.json(records.failure(error))
        raise
    if failure:
        raise failure
    return 0


def _check_raw(system: str | None, session: str | None) -> None:
    """Raise UsageError for what is part of a conversation."""
    if system is not None:
        raise UsageError("--raw uses no chat template, so a system prompt cannot be used with it")
    if session is not None:
        raise UsageError("--raw continues no conversation, so --session cannot be used with it")


def warm(session: Session, **_: Any) -> Iterator[Piece]:
    """In place of an answer (``-n 0``): only read the system prompt, with which every prompt begins."""
    session.warm()
    yield from ()


def gather_prompt(
    word: str | None, prompt: str | None, files: tuple[str, ...], needed: bool = True, piped: bool = True
) -> tuple[str, int]:
    """(the prompt: arguments, files and standard input in this order, separated by blank lines; its characters that
    come from files with something after them, if it begins with files).

    Standard input is read if ``-`` asks for it, or if ``piped`` and it is neither a terminal nor read by another option
    already.  Raises UsageError for an empty prompt if one is ``needed``.
    """
    asked = STANDARD in (word, *files)
    if word == STANDARD:
        word = None
    if word is not None and prompt is not None:
        raise UsageError("PROMPT and -p cannot be used together")
    parts = [part for part in (word, prompt) if part is not None]
    parts += [read_text(file).strip("\n") for file in files if file != STANDARD]
    if asked or (piped and stdin_is_left() and not is_tty(sys.stdin)):
        parts.append(read_text(STANDARD).strip("\n"))
    parts = [part for part in parts if part]
    text = "\n\n".join(parts)
    if not text.strip():
        if not needed:
            return "", 0
        raise UsageError("no prompt: use bitnet-edge run 'your question', -f FILE, or a pipe")
    typed = word is not None or prompt is not None
    return text, 0 if typed or len(parts) < 2 else len(text) - len(parts[-1])


def _print_text(out: Output, session: Session, ask: Ask, thoughts: bool | None, by: str, asked: bool) -> int:
    """Stream the answer.  Returns the exit code if a signal stopped it; what was printed stays, and its line is ended.

    ``asked``: False if there is no answer, so that no line needs to be ended.
    """
    answer = AnswerOutput(out, thoughts, by)
    try:
        stream(out, session, ask, answer)
    except BaseException as error:
        if answer.begun and not isinstance(error, BrokenPipeError | Terminated):  # nobody reads any more
            answer.end()
        raise
    if asked:
        answer.end()
    return SIGNALS.code


def _print_object(out: Output, engine: Engine, session: Session, ask: Ask) -> int:
    """Print the whole answer as one JSON object.  Returns the exit code if a signal stopped it."""
    text, thoughts, pieces = "", "", ask()
    with SIGNALS.calling(session.cancel), out.progress("answering"):
        for piece in pieces:
            if piece.thought:
                thoughts += piece.text
            else:
                text += piece.text
    out.json(records.answer(engine, session, text, thoughts))
    return SIGNALS.code
