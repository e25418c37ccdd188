"""The chat prompt of a terminal: line editing, history, completion of /commands.  Imports prompt_toolkit.

Imported only if both ends are a terminal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import emacs_insert_mode
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.named_commands import get_by_name
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.shortcuts import CompleteStyle

from edge.cli.signals import (
    Interrupted,
    Terminated,
    check_terminated,
    in_main_thread,
    is_wish,
    note_terminated,
    on_sigint,
)

LONG_LINE, LONG_STEP = 1000, 250  # characters: of a text that is long, and of an undo step in it
HISTORY_LIMIT = 1 << 20  # bytes; a longer file is cut to its newer half when a chat begins


class TerminalReader:
    """Reads lines from a person.  ``commands``: /commands that Tab completes, name -> help.  ``history``: the history
    file; None keeps the history in memory.
    """

    interactive = True

    def __init__(self, commands: Mapping[str, str], history: Path | None, colored: bool) -> None:
        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add(Keys.SIGINT)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(exception=Interrupted(bool(event.current_buffer.text)), style="class:aborting")

        @keys.add(Keys.Any, filter=emacs_insert_mode, save_before=is_undo_step)
        def _(event: KeyPressEvent) -> None:
            get_by_name("self-insert").call(event)

        self._session: PromptSession[str] = PromptSession(
            history=open_history(history),
            completer=CommandCompleter(commands),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=keys,
            enable_suspend=True,  # Ctrl-Z
            enable_open_in_editor=True,  # Ctrl-X Ctrl-E: the line in $EDITOR
            color_depth=None if colored else ColorDepth.DEPTH_1_BIT,
        )

    def read(self, prompt: str) -> str:
        message = FormattedText([("bold ansigreen", prompt)])
        with at_prompt(self._session.app) as signals:
            text = self._session.prompt(message, handle_sigint=False, pre_run=signals.apply)
        check_terminated()  # behind Enter, before the answer
        if signals.pressed:
            raise Interrupted(bool(text))
        return text


def is_undo_step(event: KeyPressEvent) -> bool:
    """Whether what was typed before this character is one step of undo (Ctrl-_): a word, in a long text more.

    The editor keeps the whole text for each step; for each character of a long text that would take 100 MB and more.
    """
    n = len(event.current_buffer.text)
    return event.data.isspace() if n < LONG_LINE else n % LONG_STEP == 0


class at_prompt(on_sigint):  # noqa: N801 - a context manager, used like a function
    """A context manager: SIGINT is passed to the line editor as a key, and SIGTERM ends the editor with Terminated.

    The editor's own handler loses a SIGINT that arrives while the editor releases the terminal.  An exception that a
    handler raises in one of the editor's tasks is printed by the editor, which then waits for Enter.
    """

    def __init__(self, app: Application[str]) -> None:
        self._app = app
        self.pressed = self._terminated = False
        self._old_terminate: Any = None

    def __enter__(self) -> at_prompt:
        if in_main_thread():
            self._old_terminate = signal.signal(signal.SIGTERM, self._terminate)
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self._old_terminate is not None:
            signal.signal(signal.SIGTERM, self._old_terminate)

    def handle(self, _signum: int, _frame: FrameType | None) -> None:
        if is_wish():
            self.pressed = True
            self._soon()

    def _terminate(self, _signum: int, _frame: FrameType | None) -> None:
        note_terminated()
        self._terminated = True
        self._soon()

    def _soon(self) -> None:
        if self._app.loop and self._app.is_running:
            self._app.loop.call_soon_threadsafe(self.apply)

    def apply(self) -> None:
        """Tell the editor what has arrived; the editor calls this itself when it starts."""
        if self._app.is_done or not self._app.is_running:
            return
        if self._terminated:
            self._app.exit(exception=Terminated)
        elif self.pressed:
            self._app.key_processor.send_sigint()


class CommandCompleter(Completer):
    """Completes the name of a /command."""

    def __init__(self, commands: Mapping[str, str]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
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
