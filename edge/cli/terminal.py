"""The chat prompt of a terminal: line editing, history, completion of /commands.  Imports prompt_toolkit.

Imported only if both ends are a terminal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app, get_app_session
from prompt_toolkit.clipboard import InMemoryClipboard
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth

from edge.cli.readers import Reader
from edge.cli.signals import SIGNALS, CtrlC, Terminated

HISTORY_LIMIT = 1 << 20  # bytes; a longer file is cut to its newer half when a chat begins

has_text = Condition(lambda: bool(get_app().current_buffer.text))


class TerminalReader(Reader):
    """Reads lines from a person.  ``commands``: /commands that Tab completes, name -> help.  ``history``: the history
    file; None keeps the history in memory.
    """

    #: for what the editor takes at work, without its code: long lines with their steps of undo (measured), and the
    #: history as text
    reserve = (8 << 20) + 3 * HISTORY_LIMIT

    def __init__(self, commands: Mapping[str, str], history: Path | None, colored: bool) -> None:
        os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")  # a terminal that does not answer costs a warning and time
        self._completer = CommandCompleter(commands)
        self._history = open_history(history)
        self._clipboard = InMemoryClipboard()  # the text that Ctrl-U, Ctrl-K and Ctrl-W cut
        self._color_depth = None if colored else ColorDepth.DEPTH_1_BIT
        if isinstance(keys := get_app_session().input, Vt100Input):
            keys.vt100_parser = Parser(keys.vt100_parser.feed_key_callback)

    def read(self, prompt: str) -> str:
        # A new editor for each line: one that is left in a search, in a macro or after Ctrl-Q goes on there, and a
        # search without its window does not end at any key.
        session: PromptSession[str] = PromptSession(
            FormattedText([("bold ansigreen", prompt)]),
            history=self._history,
            clipboard=self._clipboard,
            completer=self._completer,
            complete_while_typing=False,
            key_bindings=bindings(),
            color_depth=self._color_depth,
            enable_suspend=True,
        )
        if (typed := self.typed) is not None:
            session.default_buffer.on_text_changed += lambda buffer: typed(buffer.text)
        signals = Arrivals(session.app)
        with SIGNALS.calling(signals.arrived):
            text = session.prompt(handle_sigint=False, pre_run=signals.apply)
        if signals.pressed:
            raise CtrlC(bool(text))
        return text


class Parser(Vt100Parser):
    """The editor's parser of keys.  Ctrl-C ends what has begun: a paste whose end was lost, a key of several."""

    def feed(self, data: str) -> None:
        if data == "\x03":  # alone, so it was typed
            self.reset()
            get_app().key_processor.reset()
        super().feed(data)


def bindings() -> KeyBindings:
    """The keys that differ from the line editor's own."""
    keys = KeyBindings()

    @keys.add("c-c", eager=True)  # it begins other keys in some modes, and after Ctrl-Q it would be text
    @keys.add(Keys.SIGINT)
    def _(event: KeyPressEvent) -> None:
        typing = bool(event.current_buffer.text) or event.app.layout.is_searching
        event.app.exit(exception=CtrlC(typing), style="class:aborting")

    @keys.add("c-@", filter=~has_text)  # Ctrl-D while the editor does not have the terminal, which keeps it as NUL
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError, style="class:exiting")

    return keys


class Arrivals:
    """Passes signals to the line editor: Ctrl-C as a key, and the others end it with Terminated.

    The editor's own handler loses a SIGINT that arrives while the editor releases the terminal.  An exception that a
    handler raises in one of the editor's tasks is printed by the editor, which then waits for Enter.
    """

    def __init__(self, app: Application[str]) -> None:
        self._app = app
        self.pressed = False

    def arrived(self) -> None:
        """A signal has come."""
        self.pressed = SIGNALS.taken() or self.pressed
        if self._app.loop and self._app.is_running:
            self._app.loop.call_soon_threadsafe(self.apply)

    def apply(self) -> None:
        """Pass to the editor what has arrived; it calls this, too, just before it takes the terminal."""
        if not self._app.is_running or self._app.is_done:
            return
        if SIGNALS.ended:
            self._app.exit(exception=Terminated)
        elif self.pressed:
            self._app.key_processor.reset()
            self._app.key_processor.send_sigint()


class CommandCompleter(Completer):
    """Completes the name of a /command, and of a file after it."""

    def __init__(self, commands: Mapping[str, str]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        begin = re.match(r"/(save|load)\s+", text)
        if begin:
            yield from PathCompleter(expanduser=True).get_completions(Document(text[begin.end() :]), complete_event)
        if text.startswith("/") and " " not in text:
            for name, meaning in self._commands.items():
                if name.startswith(text[1:]):
                    yield Completion(f"/{name}", start_position=-len(text), display_meta=meaning)


class PrivateHistory(FileHistory):
    """A history file that only its owner can read; errors of the file never end a chat."""

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError:
            pass  # disk full or read-only: the line is still in memory

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []


def open_history(path: Path | None) -> History:
    """The history in ``path`` (mode 0600, its folder 0700), or in memory if the file cannot be used."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        os.chmod(path, 0o600)  # a file that older umasks left readable
        trim(path)
    except OSError:
        return InMemoryHistory()
    return PrivateHistory(str(path))


def trim(path: Path) -> None:
    """Shorten a history that is too long to its newer half, at the start of an entry."""
    if path.stat().st_size <= HISTORY_LIMIT:
        return
    data = path.read_bytes()[-HISTORY_LIMIT // 2 :]
    begin = data.find(b"\n# ")
    path.write_bytes(data[begin + 1 :] if begin >= 0 else b"")
