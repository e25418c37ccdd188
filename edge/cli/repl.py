"""The chat with a model: its loop, messages of several lines, answers and /commands.  A reader (``readers.py``)
provides the lines, so nothing here depends on the terminal.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edge import records
from edge.amounts import count, human
from edge.cli.command import Escaped
from edge.cli.options import converted
from edge.cli.output import AnswerOutput, Output, reading
from edge.cli.readers import too_long
from edge.cli.signals import SIGNALS, CtrlC, Terminated
from edge.errors import EdgeError, UsageError
from edge.files import LINE_LIMIT, decode_text
from edge.sampling import FIELDS
from edge.session.read_ahead import Ahead
from edge.settings import SETTINGS

if TYPE_CHECKING:
    from edge.cli.keep import Keeper
    from edge.cli.readers import Reader
    from edge.engine import Engine
    from edge.session.session import Session
    from edge.session.stream import Piece

QUOTES = '"""'
BAR = 48  # columns of the bar of /context


@dataclasses.dataclass(frozen=True)
class Command:
    """One /command: how it is typed, its help, and the function that runs it."""

    usage: str
    help: str
    method: Callable[[Repl, str], int | None]  # an exit code ends the chat

    @property
    def takes_more(self) -> bool:
        """Whether anything may follow its name."""
        return " " in self.usage.partition(",")[0]


class Repl:
    """One conversation with a model.

    It ends at the end of the input, at /exit, at an answer after which it cannot go on, and at the second Ctrl-C in a
    row on an empty line.  ``code``: the exit code at the end of the input.

    ``arguments`` are the keyword arguments of every ``Session.ask`` (sampling, stop, max_tokens, timeout); ``/set``
    changes them.  ``keeper`` saves the session after every answer and command.
    """

    def __init__(
        self,
        out: Output,
        engine: Engine,
        reader: Reader,
        arguments: dict[str, Any],
        session: Session,
        keeper: Keeper,
        reads_ahead: bool = True,
    ) -> None:
        self.out = out
        self.reader = reader
        self.code = 0
        self.engine = engine
        self.arguments = arguments
        self.talk = session
        self.keeper = keeper
        self.before = ""  # the lines so far of a message of several
        self.reads_ahead = reads_ahead and reader.interactive
        self.ahead = Ahead(session)  # reads what is being typed
        if self.reads_ahead:
            reader.typed = self.typed
        self.remarked: str | None = None  # the error of kv_offload that has been printed
        self.sliding = False  # it has been said that the model no longer sees all of this conversation

    # -- the loop

    def run(self) -> int:
        """Read and answer until the end.  Returns the exit code."""
        with SIGNALS.calling(lambda: None):  # they are noted for readers and answers, which say what they do
            return self._talk()

    def _talk(self) -> int:
        interrupts = 0
        while True:
            try:
                text = self.read_message()
                if SIGNALS.ended:
                    raise Terminated
                if SIGNALS.taken():  # after Enter, while reading ahead stops: up to a step long
                    self.out.line()
                    raise CtrlC(had_text=True)
                interrupts = 0
                code = self.handle(text) if text.strip() and self.readable(text) else None
                if code is not None:
                    return code
            except EOFError:
                if self.reader.interactive:
                    self.out.line()
                return self.code
            except (CtrlC, KeyboardInterrupt) as stop:
                if not self.reader.interactive:
                    raise
                # KeyboardInterrupt: the second Ctrl-C during an answer or a command, or one just before the prompt
                if getattr(stop, "had_text", False):  # the line is cleared, and that is all
                    interrupts = 0
                    continue
                interrupts += 1
                if interrupts > 1:
                    return 130
                self.out.info("(press Ctrl-C again or Ctrl-D to quit)", "dim")

    def readable(self, text: str) -> bool:
        """Whether a message is UTF-8 text without NUL; another one is reported and skipped."""
        try:
            decode_text(text.encode("utf-8", "surrogateescape"), "this line")
        except UsageError as error:
            self.report(error)
            return False
        return True

    def handle(self, text: str) -> int | None:
        """Handle one message or command.  Returns an exit code if the chat is to end.

        On a terminal an error is shown and the chat continues.  In a pipe a wrong command is reported and changes
        the final exit code, and a failed answer ends the chat, since the next line may depend on it.
        """
        is_command = text.startswith("/") and not text.startswith("//")
        word = text.strip().lower()
        if self.reader.interactive and word in (*COMMANDS, *ALIASES):  # a word of other programs' prompts
            self.out.info(f"(/{word} is the command; the model answers '{word}')", "dim")
        try:
            return self.command(text) if is_command else self.answer(text[1:] if text.startswith("//") else text)
        except EdgeError as error:
            if not self.reader.interactive and not is_command:
                raise
            self.report(error)
            return None

    def report(self, error: EdgeError) -> None:
        """Show an error after which the chat continues; in a pipe it sets the final exit code."""
        self.out.error(str(error))
        if not self.reader.interactive:
            self.code = error.exit_code

    # -- messages

    def read_message(self) -> str:
        r"""One message: a line, lines joined by trailing backslashes, or lines between two triple quotes.

        Raises EOFError at the end and CtrlC on Ctrl-C.
        """
        with self.reading_ahead():
            return self._message()

    @contextmanager
    def reading_ahead(self) -> Iterator[None]:
        """Read in the background what is typed inside; the session is free afterwards."""
        if self.reads_ahead:
            self.ahead.typed("")
        try:
            yield
        finally:
            self.ahead.stop()

    def typed(self, text: str) -> None:
        """The line so far, of a message unless it is a command."""
        self.ahead.typed(self.before + text if self.before or not text.startswith(("/", QUOTES)) else "")

    def _message(self) -> str:
        line, self.before = self.reader.read("> "), ""
        if line.lstrip().startswith(QUOTES):
            return self._until(line.lstrip()[len(QUOTES) :], _ends_quote)
        lines, length = [], 0
        while line.endswith("\\"):
            lines.append(line[:-1])
            self.before += line[:-1] + "\n"
            length += len(line)
            if length > LINE_LIMIT:
                raise too_long()
            line = self.next_line() or ""
        return "\n".join([*lines, line])

    def next_line(self) -> str | None:
        """One more line of a message that has begun; None at the end of the input."""
        try:
            return self.reader.read(". ")
        except EOFError:
            return None
        except CtrlC:
            raise CtrlC(had_text=True) from None

    def _until(self, first: str | None, end: Callable[[str], str | None]) -> str:
        """The lines of a message that begins with ``first``.  ``end`` returns None for a line inside it and the rest of
        the last line; the end of the input ends it, too.
        """
        lines, length = [], 0
        line, last = first, None
        while line is not None and (last := end(line)) is None:
            lines.append(line)
            self.before = f"{self.before}{line}\n".lstrip("\n")
            length += len(line) + 1
            if length > LINE_LIMIT:
                raise too_long()
            line = self.next_line()
        return "\n".join([*lines, last or ""]).strip("\n")

    # -- answers

    def answer(self, text: str) -> int | None:
        """Ask, stream the answer and report how it ended.  Returns an exit code if the chat is to end."""
        return self._stream(lambda **more: self.talk.ask(text, **self.arguments, **more))

    def _stream(self, ask: Callable[..., Iterator[Piece]]) -> int | None:
        answer = AnswerOutput(self.out)
        session = self.talk
        with self.out.progress("reading the prompt", "tokens") as progress:
            pieces = ask(on_prefill=reading(self.out, session, lambda done, total, _cached: progress(done, total)))
            try:
                try:
                    with SIGNALS.calling(session.cancel):
                        for piece in pieces:
                            progress.close()
                            answer.feed(piece.text, piece.thought)
                finally:
                    progress.close()
                    stopped = self.reader.interactive and session.outcome.finish_reason == "cancelled"
                    if answer.begun:
                        answer.end("(stopped)" * stopped)
                answer.end("(stopped)" * stopped)
            except OSError:  # the terminal is gone, or nobody reads any more: what there is of the answer is kept
                session.cancel()
                for _ in pieces:
                    pass
                self.keeper.save(session)
                raise
        stopped = SIGNALS.taken()
        self.keeper.save(session)
        if self.reader.interactive:
            self.out.line()
        if SIGNALS.ended or (stopped and not self.reader.interactive):
            return SIGNALS.code or 130
        self.remark_offload()
        self.remark_sliding()
        if self.out.verbose:
            self.out.info(session.stats_line(), "dim")
        reason = session.outcome.finish_reason
        failure = records.finish_error(session, self.arguments.get("timeout"))
        if failure and not self.reader.interactive:
            if reason == "context_full":
                raise failure
            self.out.warn(str(failure))
            self.code = failure.exit_code
        elif reason == "context_full":
            self.out.info("(the context is full: /clear starts a new conversation, /undo removes the last turn)", "dim")
        elif reason == "timeout":
            self.out.info("(stopped by --timeout)", "dim")
        elif reason == "loop" and self.reader.interactive:
            self.out.info("(stopped: the answer repeated itself; the model will not see the repetitions)", "dim")
        elif reason == "length" and self.reader.interactive:
            self.out.info("(stopped at the token limit; /set max_tokens N changes it)", "dim")
        return None

    def remark_offload(self) -> None:
        """Warn once if pages that leave the window can no longer be stored."""
        error = self.talk.state.offload_error
        if error and error != self.remarked:
            self.out.warn(error)
        self.remarked = error

    def remark_sliding(self) -> None:
        """Say once in a conversation that its oldest text has left the context."""
        use = self.talk.context
        gone = bool(use.evicted or use.left_out)
        if gone and not self.sliding:
            self.out.info("(the context is full: the model no longer sees the oldest text; /context shows how much, "
                          "/clear starts a new conversation)", "dim")
        self.sliding = gone

    # -- commands

    def command(self, text: str) -> int | None:
        """Run a /command.  Returns an exit code if the chat is to end."""
        typed, _, rest = text[1:].strip().partition(" ")
        name, rest = typed.lower(), rest.strip()
        command = COMMANDS.get(ALIASES.get(name, name))
        if command is None:
            from difflib import get_close_matches

            near = get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
            meant = f"did you mean /{near[0]}? " if near else ""
            raise UsageError(f"unknown command /{typed}; {meant}/help lists the commands "
                             "(// sends a line that begins with /)")
        if rest and not command.takes_more:
            raise UsageError(f"/{name} {rest[:40]}: it takes no argument")
        code = command.method(self, rest)
        self.keeper.save(self.talk)
        return code

    def do_help(self, rest: str) -> None:
        rest = rest.removeprefix("/").lower()
        chosen = COMMANDS.get(ALIASES.get(rest, rest))
        if rest and chosen is None:
            raise UsageError(f"/help {rest}: there is no such command; /help lists them")
        for command in [chosen] if chosen else COMMANDS.values():
            self.out.line(f"  {command.usage:<18} {command.help}")
        if self.reader.interactive and not chosen:
            settings = self.settings()
            self.out.line(f"\n  Answers have a temperature of {settings['temperature']} and at most "
                          f"{settings['max_tokens']} tokens; /set shows and changes this.")
            self.out.line('  """ or a trailing \\ starts several lines; Ctrl-C stops an answer; Ctrl-D quits.\n')

    def do_clear(self, _rest: str) -> None:
        self.talk.clear()
        self.out.info("(new conversation)", "dim")

    def do_system(self, rest: str) -> None:
        if not rest:
            self.out.line(self.talk.system or "(no system prompt)")
            return
        text = unquoted(rest)
        self.talk.system = None if text in ("", "none") else text
        stays = "; what was said stays, /clear starts anew" if self.talk.turns else ""
        used = "used" if self.talk.system else "no system prompt"
        self.out.info(f"({used} from the next message on{stays})", "dim")

    def do_undo(self, _rest: str) -> None:
        question = self.talk.undo()
        if question is None:
            raise UsageError("there is no turn to remove")
        self.out.info(f"(removed: {shortened(question)!r} and its answer)", "dim")

    def do_regen(self, _rest: str) -> int | None:
        if self.talk.turns and not self.arguments["sampling"].temperature:
            self.out.info("(greedy answers are always the same; /set temp 0.8 varies them)", "dim")
        return self._stream(lambda **more: self.talk.regen(**self.arguments, **more))

    def do_stats(self, _rest: str) -> None:
        if self.talk.outcome.finish_reason is None:
            raise UsageError("there is no answer yet")
        self.out.line(self.talk.stats_line())

    def do_set(self, rest: str) -> None:
        key, _, value = rest.partition(" ")
        key, value = key.replace("-", "_").lower(), unquoted(value.strip())
        key = "temperature" if key == "temp" else key
        settings = self.settings()
        if key and key not in settings:
            raise UsageError(f"/set {rest}: unknown key; keys are {', '.join(sorted(settings))}")
        if not value:
            for name, shown in settings.items() if not key else [(key, settings[key])]:
                self.out.line(f"  {name:<18} {shown}")
            return
        if key == "stop":
            self.arguments["stop"] = (Escaped().convert(value, None, None),) if value != "none" else ()
        else:
            try:
                none = SETTINGS[key].default is None and value in ("none", unset(key))
                wanted = None if none else converted(key, value)
            except UsageError as error:
                if key != "max_tokens":
                    raise UsageError(f"/set {error}") from None
                wanted = 0
            if key == "max_tokens" and not wanted:
                raise UsageError(f"/set {rest}: it must be a whole number from 1")
            if key in FIELDS:
                self.arguments["sampling"] = dataclasses.replace(self.arguments["sampling"], **{key: wanted})
            else:
                self.arguments[key] = wanted
        self.out.info(f"({key} is now {value})", "dim")

    def settings(self) -> dict[str, str]:
        """What ``/set`` shows and changes: key -> value as text."""
        found = {}
        for name, row in SETTINGS.items():
            if name in FIELDS:
                value = getattr(self.arguments["sampling"], name)
            elif row.of == "answer" or name == "think":
                value = self.arguments.get(name, row.default)
            else:
                continue
            shown = ("on" if value else "off") if isinstance(value, bool) else value
            found[name] = unset(name) if value is None else str(shown)
        return found | {"stop": " ".join(map(repr, self.arguments.get("stop") or ())) or "none"}

    def do_save(self, rest: str) -> None:
        if not rest:
            raise UsageError("/save: name a file, such as /save talk.bes")
        name = unquoted(rest)
        path = os.path.expanduser(name)
        there = os.path.exists(path)
        self.keeper.save_as(self.talk, path)
        replaced = ", in place of what was there" * there
        self.out.info(f"(saved to {name}{replaced}; /load {name} or --session {shlex.quote(path)} continues)", "dim")

    def do_load(self, rest: str) -> None:
        if not rest:
            raise UsageError("/load: name a file that /save wrote")
        rest = unquoted(rest)
        session = self.keeper.load(self.engine, os.path.expanduser(rest))
        self.talk.close()
        self.talk, self.ahead = session, Ahead(session)
        self.out.info(f"(the conversation of {rest}, {count(self.talk.turns, 'question')})", "dim")
        if self.keeper.saves:
            self.out.info(f"(from now on, {rest} is written after each answer)", "dim")
        self.show_last()

    def show_last(self) -> None:
        """Show a person the last question and its answer, in a conversation that goes on."""
        messages = self.talk.messages
        asked = [at for at, message in enumerate(messages) if message["role"] == "user"]
        if not asked or not self.reader.interactive or self.out.quiet:
            return
        self.out.line(f"> {shortened(messages[asked[-1]]['content'], 500)}")
        answer = AnswerOutput(self.out)
        for message in messages[asked[-1] + 1 :]:
            text = str(message["content"] or "")
            answer.feed("... " * (len(text) > 2000) + text[-2000:])
        answer.end()
        self.out.line()

    def do_context(self, _rest: str) -> None:
        for line in context_lines(self.engine, self.talk):
            self.out.line(line)

    def do_multi(self, _rest: str) -> int | None:
        self.before = ""
        self.out.info("(type your lines; a line with only /end sends them)", "dim")
        with self.reading_ahead():
            text = self._until(self.next_line(), lambda line: "" if line.strip() == "/end" else None)
        return self.answer(text) if text.strip() and self.readable(text) else None

    def do_exit(self, _rest: str) -> int:
        return self.code


COMMANDS = {
    "help": Command("/help [COMMAND]", "show this list, or one line of it", Repl.do_help),
    "clear": Command("/clear", "start a new conversation with the same system prompt", Repl.do_clear),
    "system": Command("/system [TEXT]", "show or replace the system prompt; none removes it", Repl.do_system),
    "undo": Command("/undo", "remove the last question and answer", Repl.do_undo),
    "regen": Command("/regen", "answer the last question again", Repl.do_regen),
    "set": Command("/set [KEY [VALUE]]", "show or change temp, top_p, seed, max_tokens, stop ...", Repl.do_set),
    "save": Command("/save FILE", "save the conversation, as --session does", Repl.do_save),
    "load": Command("/load FILE", "continue a saved conversation; --session then writes to this FILE", Repl.do_load),
    "context": Command("/context", "show how full the context is", Repl.do_context),
    "stats": Command("/stats", "show speed and memory of the last answer", Repl.do_stats),
    "multi": Command("/multi", "type several lines; /end sends them", Repl.do_multi),
    "exit": Command("/exit, /bye", "quit (also Ctrl-D)", Repl.do_exit),
}
ALIASES = {"bye": "exit", "quit": "exit", "h": "help", "?": "help"}


def unset(key: str) -> str:
    """What stands for a setting that has no value, as /set shows and takes it."""
    return "random" if key == "seed" else "none"


def context_lines(engine: Engine, talk: Session) -> Iterator[str]:
    """How full the context is, as a bar and as text."""
    plan, use = engine.plan, talk.context
    room = use.used + use.free

    def cells(n: int) -> int:
        return -(-BAR * n // max(room, 1))  # rounded up: one token shows

    sinks, used = cells(use.sinks if use.evicted else 0), cells(use.used)
    yield f"  [{'S' * sinks}{'#' * (used - sinks)}{'.' * (BAR - used)}]"
    yield f"  {use.used} of {room} tokens used, {use.free} free; {count(talk.turns, 'turn')}"
    if use.evicted:
        older = f"{count(use.evicted, 'older token')} dropped"
        yield f"  {older}; S: the first {use.sinks} are always kept"
    if use.left_out:
        yield f"  left out: the first {count(use.left_out, 'message')}"
    yield f"  KV cache {plan.kv_type}, {human(plan.kv_bytes)}"


def shortened(text: str, most: int = 60) -> str:
    """``text`` in one line of at most ``most`` characters that a terminal can show."""
    text = " ".join("".join(char for char in text if char.isprintable() or char.isspace()).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def unquoted(name: str) -> str:
    """A name or text without the quotes around it, which only a shell needs."""
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"" else name


def _ends_quote(line: str) -> str | None:
    return line.rstrip()[: -len(QUOTES)] if line.rstrip().endswith(QUOTES) else None
