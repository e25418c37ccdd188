"""The chat with a model: its loop, messages of several lines, answers and /commands.  A reader (``readers.py``)
provides the lines, so nothing here depends on the terminal.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from edge import records
from edge.amounts import count
from edge.cli.answers import AnswerOutput, report, stream
from edge.cli.command import Escaped
from edge.cli.options import converted
from edge.cli.output import Output
from edge.cli.readers import too_long
from edge.cli.signals import SIGNALS, CtrlC, Terminated
from edge.errors import EdgeError, UsageError
from edge.files import LINE_LIMIT, decode_text
from edge.sampling import FIELDS
from edge.session.read_ahead import Ahead
from edge.settings import SETTINGS

if TYPE_CHECKING:
    from edge.cli.answers import Ask
    from edge.cli.keep import Keeper
    from edge.cli.readers import Reader
    from edge.engine import Engine
    from edge.session.session import Session

QUOTES = '"""'
#: finish reason -> what a person is told
REMARKS = {
    "context_full": "(the context is full: /clear starts a new conversation, /undo removes the last turn)",
    "timeout": "(stopped by --timeout)",
    "loop": "(stopped: the answer repeated itself; the model will not see the repetitions)",
    "length": "(stopped at the token limit; /set max_tokens N changes it)",
}


class Command(NamedTuple):
    """One /command: how it is typed, its help, and the function that runs it; an exit code ends the chat."""

    usage: str
    help: str
    method: Callable[[Repl, str], int | None]


class Repl:
    """One conversation with a model.

    It ends at the end of the input, at /exit, at an answer after which it cannot go on, and at the second Ctrl-C in a
    row on an empty line.  ``arguments``: of every ``Session.ask`` (sampling, stop, max_tokens, timeout); ``/set``
    changes them.
    """

    def __init__(
        self, out: Output, engine: Engine, reader: Reader, arguments: dict[str, Any], session: Session, keeper: Keeper,
        reads_ahead: bool = True,
    ) -> None:
        self.out = out
        self.reader = reader
        self.code = 0  # the exit code at the end of the input
        self.engine = engine
        self.arguments = arguments
        self.talk = session
        self.keeper = keeper
        self.before = ""  # the lines so far of a message of several
        self.reads_ahead = reads_ahead and reader.interactive
        self.ahead = Ahead(session)  # reads what is being typed
        if self.reads_ahead:
            reader.typed = self.typed
        self.sliding = False  # it has been said that the model no longer sees all of this conversation

    # -- the loop

    def run(self) -> int:
        """Read and answer until the end.  Returns the exit code."""
        interrupts = 0
        with SIGNALS.calling(lambda: None):  # they are noted for readers and answers, which say what they do
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
                    # KeyboardInterrupt: the second Ctrl-C during an answer, or one just before the prompt
                    interrupts = 0 if getattr(stop, "had_text", False) else interrupts + 1
                    if interrupts > 1:
                        return 130
                    if interrupts:
                        self.out.info("(press Ctrl-C again or Ctrl-D to quit)", "dim")

    def readable(self, text: str) -> bool:
        """Report a message that is not UTF-8 text without NUL; such a one is skipped."""
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
        r"""One message: a line, lines joined by trailing backslashes, or lines between two triple quotes.  It is read
        ahead while it is typed.  Raises EOFError at the end of the input and CtrlC on Ctrl-C.
        """
        self.before = ""
        if self.reads_ahead:
            self.ahead.typed("")
        try:
            line = self.reader.read("> ")
            quoted = line.lstrip().startswith(QUOTES)
            line = line.lstrip()[len(QUOTES) :] if quoted else line
            while not line.rstrip().endswith(QUOTES) if quoted else line.endswith("\\"):
                self.before += f"{line}\n" if quoted else f"{line[:-1]}\n"
                if len(self.before) > LINE_LIMIT:
                    raise too_long()
                try:
                    line = self.reader.read(". ")
                except EOFError:  # ends the message, too
                    line = QUOTES * quoted
                except CtrlC:
                    raise CtrlC(had_text=True) from None
        finally:
            self.ahead.stop()
        return (self.before + line.rstrip()[: -len(QUOTES)]).strip("\n") if quoted else self.before + line

    def typed(self, text: str) -> None:
        """The line so far, of a message unless it is a command."""
        self.ahead.typed(self.before + text if self.before or not text.startswith(("/", QUOTES)) else "")

    # -- answers

    def answer(self, text: str) -> int | None:
        """Ask, stream the answer and report how it ended.  Returns an exit code if the chat is to end."""
        return self._stream(lambda **more: self.talk.ask(text, **self.arguments, **more))

    def _stream(self, ask: Ask) -> int | None:
        session, interactive = self.talk, self.reader.interactive
        answer = AnswerOutput(self.out)
        try:
            try:
                stream(self.out, session, ask, answer)
                answer.begun = True
            finally:
                if answer.begun:
                    answer.end("(stopped)" if interactive and session.outcome.finish_reason == "cancelled" else "")
        except OSError:
            self.keeper.save(session)
            raise
        stopped = SIGNALS.taken()
        self.keeper.save(session)
        if interactive:
            self.out.line()
        if SIGNALS.ended or (stopped and not interactive):
            return SIGNALS.code or 130
        self.remark_conversation()
        report(self.out, session)
        reason = session.outcome.finish_reason
        failure = records.finish_error(session, self.arguments.get("timeout"))
        if interactive and reason in REMARKS:
            self.out.info(REMARKS[reason], "dim")
        elif failure and not interactive:
            if reason == "context_full":
                raise failure
            self.out.warn(str(failure))
            self.code = failure.exit_code
        return None

    def remark_conversation(self) -> None:
        """Say once that its oldest text has left the context."""
        gone = bool(self.talk.context.evicted or self.talk.context.left_out)
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
        if rest and " " not in command.usage.partition(",")[0]:
            raise UsageError(f"/{name} {rest[:40]}: it takes no argument")
        return command.method(self, rest)

    def do_help(self, _rest: str) -> None:
        for command in COMMANDS.values():
            self.out.line(f"  {command.usage:<18} {command.help}")
        if self.reader.interactive:
            settings = self.settings()
            self.out.line(f"\n  Answers have a temperature of {settings['temperature']} and at most "
                          f"{settings['max_tokens']} tokens; /set shows and changes this.")
            self.out.line('  """ or a trailing \\ starts several lines; Ctrl-C stops an answer; Ctrl-D quits.\n')

    def do_clear(self, _rest: str) -> None:
        self.talk.clear()
        self.keeper.save(self.talk)
        self.out.info("(new conversation)", "dim")

    def do_system(self, rest: str) -> None:
        if not rest:
            self.out.line(self.talk.system or "(no system prompt)")
            return
        text = unquoted(rest)
        self.talk.system = None if text in ("", "none") else text
        self.keeper.save(self.talk)
        stays = "; what was said stays, /clear starts anew" if self.talk.turns else ""
        used = "used" if self.talk.system else "no system prompt"
        self.out.info(f"({used} from the next message on{stays})", "dim")

    def do_undo(self, _rest: str) -> None:
        question = self.talk.undo()
        if question is None:
            raise UsageError("there is no turn to remove")
        self.keeper.save(self.talk)
        self.out.info(f"(removed: {shortened(question)!r} and its answer)", "dim")

    def do_regen(self, _rest: str) -> int | None:
        if self.talk.turns and not self.arguments["sampling"].temperature:
            self.out.info("(greedy answers are always the same; /set temp 0.8 varies them)", "dim")
        return self._stream(lambda **more: self.talk.regen(**self.arguments, **more))

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
            none = SETTINGS[key].default is None and value in ("none", unset(key))
            wanted = None if none else converted(key, value)
            if key == "max_tokens" and not wanted:
                raise UsageError("max_tokens is 0; a chat is for answers")
            if key in FIELDS:
                self.arguments["sampling"] = dataclasses.replace(self.arguments["sampling"], **{key: wanted})
            else:
                self.arguments[key] = wanted
        self.out.info(f"({key} is now {value})", "dim")

    def settings(self) -> dict[str, str]:
        """Key -> value as text, as ``/set`` shows them."""
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
        if self.keeper.target:
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
        use = self.talk.context
        self.out.line(f"  {use.used} of {use.used + use.free} tokens used, {use.free} free; "
                      f"{count(self.talk.turns, 'turn')}")
        if use.evicted:
            self.out.line(f"  {count(use.evicted, 'older token')} dropped; the first {use.sinks} are always kept")
        if use.left_out:
            self.out.line(f"  left out: the first {count(use.left_out, 'message')}")
        if self.talk.outcome.finish_reason:
            self.out.line(f"  {self.talk.stats_line()}")

    def do_exit(self, _rest: str) -> int:
        return self.code


COMMANDS = {
    "help": Command("/help", "show this list", Repl.do_help),
    "clear": Command("/clear", "start a new conversation with the same system prompt", Repl.do_clear),
    "system": Command("/system [TEXT]", "show or replace the system prompt; none removes it", Repl.do_system),
    "undo": Command("/undo", "remove the last question and answer", Repl.do_undo),
    "regen": Command("/regen", "answer the last question again", Repl.do_regen),
    "set": Command("/set [KEY [VALUE]]", "show or change temp, top_p, seed, max_tokens, stop ...", Repl.do_set),
    "save": Command("/save FILE", "save the conversation, as --session does", Repl.do_save),
    "load": Command("/load FILE", "continue a saved conversation; --session then writes to this FILE", Repl.do_load),
    "context": Command("/context", "show how full the context is, and speed and memory of the last answer",
                       Repl.do_context),
    "exit": Command("/exit, /bye", "quit (also Ctrl-D)", Repl.do_exit),
}
ALIASES = {"bye": "exit", "quit": "exit", "stats": "context", "h": "help", "?": "help"}


def unset(key: str) -> str:
    """The word for a setting that has no value, as /set shows and takes it."""
    return "random" if key == "seed" else "none"


def shortened(text: str, most: int = 60) -> str:
    """``text`` in one line of at most ``most`` characters that a terminal can show."""
    text = " ".join("".join(char for char in text if char.isprintable() or char.isspace()).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def unquoted(name: str) -> str:
    """A name or text without the quotes around it, which only a shell needs."""
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"" else name
