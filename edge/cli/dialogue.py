"""The input loop of chat: reads lines, tells messages from /commands, and decides when the dialogue ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.cli.options import decode_text
from edge.cli.output import Output
from edge.cli.signals import Interrupted, interrupting
from edge.errors import EdgeError, UsageError

if TYPE_CHECKING:
    from edge.cli.readers import Reader


class Dialogue:
    """The loop; subclasses answer messages and run /commands.

    It ends at the end of the input, at a /command or an answer that says so, and at the second Ctrl-C in a row on an
    empty line.  ``code``: the exit code at the end of the input.
    """

    def __init__(self, out: Output, reader: Reader) -> None:
        self.out = out
        self.reader = reader
        self.code = 0

    def run(self) -> int:
        """Read and answer until the end.  Returns the exit code."""
        with interrupting():
            return self._talk()

    def _talk(self) -> int:
        interrupts = 0
        while True:
            try:
                text = self.read_message()
                interrupts = 0
                code = self.handle(text) if text.strip() and self.readable(text) else None
                if code is not None:
                    return code
            except EOFError:
                if self.reader.interactive:
                    self.out.line()
                return self.code
            except (Interrupted, KeyboardInterrupt) as stop:
                if not self.reader.interactive:
                    raise
                # KeyboardInterrupt: the second Ctrl-C during an answer, or one just before the prompt
                if getattr(stop, "had_text", False):  # the line is cleared, and that is all
                    interrupts = 0
                    continue
                interrupts += 1
                if interrupts > 1:
                    return 130
                self.out.info("(press Ctrl-C again or Ctrl-D to quit)", "dim")

    def read_message(self) -> str:
        """The next message or /command.  Raises EOFError at the end and Interrupted on Ctrl-C."""
        return self.reader.read("> ")

    def readable(self, text: str) -> bool:
        """Whether a message is UTF-8 text without NUL; another one is reported and skipped."""
        try:
            decode_text(text.encode("utf-8", "surrogateescape"), "this line")
        except UsageError as error:
            self.report(error)
            return False
        return True

    def handle(self, text: str) -> int | None:
        """Handle one message or command.  Returns an exit code if the dialogue is to end.

        On a terminal an error is shown and the dialogue continues.  In a pipe a wrong command is reported and changes
        the final exit code, and a failed answer ends the dialogue, since the next line may depend on it.
        """
        is_command = text.startswith("/") and not text.startswith("//")
        try:
            return self.command(text) if is_command else self.answer(text[1:] if text.startswith("//") else text)
        except EdgeError as error:
            if not self.reader.interactive and not is_command:
                raise
            self.report(error)
            return None

    def report(self, error: EdgeError) -> None:
        """Show an error after which the dialogue continues; in a pipe it sets the final exit code."""
        self.out.error(str(error))
        if not self.reader.interactive:
            self.code = error.exit_code

    def answer(self, text: str) -> int | None:
        """Answer a message.  Returns an exit code if the dialogue is to end."""
        raise NotImplementedError

    def command(self, text: str) -> int | None:
        """Run a /command.  Returns an exit code if the dialogue is to end.  Raises UsageError for an unknown one."""
        raise NotImplementedError
