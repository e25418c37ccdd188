"""What goes to which stream, in which colour, and when.

Standard output carries answers only; everything else goes to standard error.  Each stream is checked on its own for
being a terminal, so ``bitnet-edge run ... | tee log`` keeps its progress line but writes no colours to the pipe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

from edge.amounts import human
from edge.cli.wrap import Wrap
from edge.settings import with_options

if TYPE_CHECKING:
    from edge.session.session import Session

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}

#: characters that a terminal must not receive from a model: all control characters except newline and tab
_UNSAFE = {c: None for c in (*range(0x00, 0x20), 0x7F, *range(0x80, 0xA0)) if c not in (0x09, 0x0A)}


class Output:
    """Prints everything that commands print.

    ``quiet`` turns off remarks and progress, but not errors and answers; ``verbose`` shows the plan, notes, the stats
    line, and tracebacks of internal errors; ``color`` is "auto", "always" or "never".
    """

    def __init__(self) -> None:
        self.quiet = False
        self.verbose = False
        self.color = "auto"
        self.typed = False  # quiet or verbose stands on the command line: it wins over a variable
        for stream in (sys.stdout, sys.stderr):
            # An answer must not die of a character that an old locale cannot spell.
            if stream is not None and not _is_utf8(stream) and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")

    # -- asking about streams

    def colored(self, stream: TextIO | None) -> bool:
        """Whether ``stream`` may receive colours: by the option, NO_COLOR, CLICOLOR_FORCE, TERM, being a terminal."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
            return True
        return is_tty(stream) and os.environ.get("TERM") != "dumb"

    def style(self, text: str, *styles: str, stream: TextIO | None = None) -> str:
        """``text`` in ``styles`` if ``stream`` (default: standard error) may receive colours, else unchanged."""
        if not text or not self.colored(sys.stderr if stream is None else stream):
            return text
        return f"\x1b[{';'.join(_STYLES[s] for s in styles)}m{text}\x1b[0m"

    # -- standard output

    def write(self, text: str) -> None:
        """Write part of an answer to standard output, at once."""
        if sys.stdout is None or not text:  # None: started with standard output closed (>&-)
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            error.filename = "standard output"
            raise

    def line(self, text: str = "") -> None:
        """Write one line of a result to standard output; a terminal breaks it between words."""
        self.write(wrapped(text, sys.stdout) + "\n")

    def raw(self, data: bytes) -> None:
        """Write lines of UTF-8 past the buffer of standard output: the calling thread may be abandoned meanwhile."""
        if sys.stdout is None:
            return
        fd, rest = sys.stdout.fileno(), memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]

    @property
    def ascii_only(self) -> bool:
        """Whether the encoding of standard output cannot carry all characters, so that JSON needs escapes."""
        return sys.stdout is not None and not _is_utf8(sys.stdout)

    def json(self, value: Any) -> None:
        """Write one JSON value and a newline, with escapes only where the encoding needs them."""
        import json

        self.write(json.dumps(value, ensure_ascii=self.ascii_only) + "\n")

    def result(self, facts: Any, lines: Iterable[str], as_json: bool) -> None:
        """Write a result: its facts as one JSON value, or its lines."""
        if as_json:
            self.json(facts)
        else:
            for line in lines:
                self.line(line)

    # -- standard error

    def info(self, text: str, *styles: str) -> None:
        """Print a remark, unless ``quiet``."""
        if not self.quiet:
            text = wrapped(text, sys.stderr)
            self._err(self.style(text, *styles) if styles else text)

    def warn(self, text: str) -> None:
        """Print a warning; the command continues."""
        if not self.quiet:
            self._err(wrapped(f"bitnet-edge: {one_line(with_options(text))}", sys.stderr))

    def error(self, text: str) -> None:
        """Print the one line that says why a command failed."""
        name = "bitnet-edge:"
        text = wrapped(f"{name} {one_line(with_options(text))}", sys.stderr)
        self._err(self.style(name, "red", "bold") + text.removeprefix(name))

    def _err(self, text: str) -> None:
        if sys.stderr is None:
            return
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # nobody listens there; the exit code still says so

    # -- things that move

    def progress(self, label: str, unit: str = "", log: bool = False) -> Progress:
        """A progress line on standard error; appears only on a terminal and only after a second.

        ``unit`` "bytes" shows sizes and a rate in bytes; any other word, such as "tokens", shows amounts and a rate in
        it.  ``log``: for work of minutes: where there is no terminal, a line of its own now and then.
        """
        return Progress(self, label, unit, log)


class Progress:
    """The line ``reading the prompt 43% of 1018 tokens, 41 tokens/s, 14 s left`` at the bottom of the terminal.

    Drawn at most ten times a second and erased when done.  Call it with (done, total) as a callback, or use it as a
    context manager: then a timer thread draws the label alone, as the block may run native code for seconds.
    """

    DELAY = 1.0  # seconds before anything is shown
    RECENT = 15.0  # seconds of which the rate is the mean, so that work that gets slower or faster shows soon;
    FEWEST = 8  # more where fewer things than these were done in them
    EVERY = 15.0  # seconds between two lines of a log

    def __init__(self, out: Output, label: str, unit: str = "", log: bool = False) -> None:
        self._out = out
        self._active = not out.quiet and is_tty(sys.stderr) and moves_cursor()
        self._logs = log and not self._active
        self._begun = time.monotonic()
        self._drawn = 0.0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self.next(label, unit)

    def next(self, label: str, unit: str = "") -> Progress:
        """Continue on the same line with another label and unit."""
        self._label, self._unit = label, unit
        self._marks: list[tuple[float, float]] = []  # time and amount, about one a second; what was there before first
        if self._drawn:
            self._draw(f"{label}...")
        return self

    def __call__(self, done: float, total: float) -> None:
        now = time.monotonic()
        if self._marks and done < self._marks[-1][1]:  # another pass over the same
            self._marks.clear()
        if not self._marks or (done > self._marks[-1][1] and now - self._marks[-1][0] >= 1):
            self._marks.append((now, done))
            while len(self._marks) > self.FEWEST and now - self._marks[1][0] > self.RECENT:
                del self._marks[0]
        if self._logs and now - (self._drawn or self._begun) >= self.EVERY:
            self._drawn = now
            self._out.info(self._label + self._amount(done, total, now))
        if not self._active or now - self._begun < self.DELAY or now - self._drawn < 0.1:
            return
        self._draw(self._label + self._amount(done, total, now))

    def _amount(self, done: float, total: float, now: float) -> str:
        """Share, rate and time left, as far as they are known."""
        begun, there = self._marks[0]
        rate = (done - there) / (now - begun) if now - begun > 1 else 0.0
        text = f" {100 * done / total:.0f}%" if total else ""
        if self._unit == "bytes":
            text += f" of {human(int(total))}" if total else f" {human(int(done))}"
            text += f", {rate / 1e6:.1f} MB/s" if rate else ""
        elif self._unit:
            text += f" of {total:.0f} {self._unit}" if total else f" {done:.0f} {self._unit}"
            text += f", {rate:.{0 if rate >= 10 else 1}f} {self._unit}/s" if rate else ""
        if rate and total > done:
            text += f", {time_left((total - done) / rate)} left"
        return text

    def __enter__(self) -> Progress:
        if self._active:
            self._timer = threading.Timer(self.DELAY, self._label_alone)
            self._timer.daemon = True
            with contextlib.suppress(RuntimeError):  # can't start new thread: no label then
                self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _label_alone(self) -> None:
        if not self._drawn:
            self._draw(f"{self._label}...")

    def _draw(self, text: str) -> None:
        with self._lock:
            if self._active:
                self._drawn = time.monotonic()
                text = text[: (columns(sys.stderr) or 1000) - 1]  # a line that is broken could not be erased
                sys.stderr.write(f"\r{text}\x1b[K")
                sys.stderr.flush()

    def say(self, text: str) -> None:
        """Print a remark in place of the line, which goes on below it."""
        self._erase()
        self._out.info(text, "dim")

    def _erase(self, last: bool = False) -> None:
        with self._lock:
            if self._active and self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            if last:
                self._active = self._logs = False

    def close(self) -> None:
        """Erase the line; has no effect if nothing was drawn or when called again."""
        if self._timer is not None:
            self._timer.cancel()
        self._erase(last=True)


class AnswerOutput:
    """Streams an answer to standard output and ends it with exactly one newline.

    Newlines at the end of the text are held back until more text follows.  On a terminal, control characters in the
    answer are dropped, since an escape sequence could rewrite the screen, and lines are broken between words; a pipe
    receives the text unchanged.
    """

    def __init__(self, out: Output, thoughts: bool | None = None, by: str = "token") -> None:
        """``thoughts``: whether to show the text of thinking; None shows it on a terminal if ``by`` is "token"."""
        self._out = out
        self._clean = is_tty(sys.stdout)
        self._thinks = thoughts if thoughts is not None else self._clean and by == "token"
        self._wrap = Wrap(lambda: columns(sys.stdout) if moves_cursor() else None)
        if self._clean:
            signal.signal(signal.SIGCONT, lambda *_: self._wrap.restart())  # the editor of the next question removes it
        self._thinking = False
        self._held = ""
        self._ended = False
        self.begun = False  # some of it was printed

    def feed(self, text: str, thought: bool = False) -> None:
        """Print one more piece.  Pieces of thinking are printed only if they are shown, dimmed where colour is on."""
        if not text or (thought and not self._thinks):
            return
        if thought:
            self._thinking = True
            self._write(text, "dim")
            return
        if self._thinking:
            self._thinking = False
            self._write("\n\n")
        self.begun = True
        text = self._held + text
        body = text.rstrip("\n")
        self._write(body)
        self._held = text[len(body) :]

    def _write(self, text: str, *styles: str) -> None:
        if self._clean:
            text = self._wrap(text.translate(_UNSAFE))
        self._out.write(self._out.style(text, *styles, stream=sys.stdout) if styles else text)

    def end(self, remark: str = "") -> None:
        """End the answer with its newline, and a remark before it; later calls have no effect."""
        if not self._ended:
            self._ended = True
            shown = self._out.style(f" {remark}", "dim", stream=sys.stdout) if remark and not self._out.quiet else ""
            self._out.write(shown + "\n")


def reading(
    out: Output, session: Session, report: Callable[[int, int, int], object] = lambda done, total, cached: None
) -> Callable[[int, int, int], None]:
    """What an answer calls while its prompt is read: a warning first if only a part of it will be, then ``report``."""
    warned = False

    def read(*counts: int) -> None:
        nonlocal warned
        if session.outcome.left_out and not warned:
            warned = True
            out.warn(
                f"the text is longer than the context of {session.plan.n_ctx} tokens: {session.outcome.left_out:,} "
                "characters in its middle are not read; use a larger --ctx, or refuse such a text with "
                "--set overflow=stop")
        report(*counts)

    return read


def time_left(seconds: float) -> str:
    """Seconds as text: ``9 s``, ``4 min``, ``2 h 5 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def is_tty(stream: TextIO | None) -> bool:
    """Whether ``stream`` is a terminal; False for closed and missing streams."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def writes_to_terminal() -> bool:
    """Whether standard output is a terminal or was one: isatty() is False once its window is closed."""
    try:
        return stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def moves_cursor() -> bool:
    """Whether the terminal understands escape sequences."""
    return os.environ.get("TERM", "dumb") != "dumb"


def columns(stream: TextIO | None) -> int | None:
    """Columns of the terminal behind ``stream``; None: it is no terminal, or its width is not known."""
    if stream is None or not is_tty(stream):
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def wrapped(text: str, stream: TextIO | None) -> str:
    """``text`` with line breaks at blanks where a terminal would break its lines inside of words; unchanged in a pipe.
    A line goes on below the text of its last column, if that begins in the first half of the terminal.
    """
    width = columns(stream)
    if width is None or all(len(line) <= width for line in text.split("\n")):
        return text
    import re
    from textwrap import TextWrapper

    wrapper = TextWrapper(width, break_long_words=False, break_on_hyphens=False, expand_tabs=False,
                          replace_whitespace=False)
    parts: list[str] = []
    for line in text.split("\n"):
        starts = [0, *(found.end() for found in re.finditer(r"(?:^| ) +(?=\S)", line))]
        wrapper.subsequent_indent = " " * max(start for start in starts if start <= width // 2)
        parts += wrapper.wrap(line) or [""]
    return "\n".join(parts)


def one_line(text: str) -> str:
    """``text`` with line breaks replaced, since every failure is reported in one line."""
    return "; ".join(part.strip() for part in str(text).splitlines() if part.strip()) or "unknown error"


def drop_stdout() -> None:
    """Redirect standard output to /dev/null, so that the flush at exit cannot fail a second time."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        pass


def _is_utf8(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").replace("_", "") == "utf8"
