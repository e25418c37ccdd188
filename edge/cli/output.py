"""The streams of the command line, their colours, and progress.

Standard output carries answers only; everything else goes to standard error.  Each stream is checked on its own for
being a terminal, so ``bitnet-edge run ... | tee log`` keeps its progress line but writes no colours to the pipe.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, TextIO

from edge.amounts import human
from edge.settings import with_options

_STYLES = {"bold": "1", "dim": "2", "red": "31"}


class Output:
    """Prints everything that commands print.

    ``quiet`` turns off remarks and progress, but not errors and answers; ``verbose`` shows the plan, notes, the stats
    line, and tracebacks of internal errors.
    """

    def __init__(self) -> None:
        self.quiet = False
        self.verbose = False
        self._said: set[str] = set()  # warnings that come once
        self.typed = False  # quiet or verbose stands on the command line: it wins over a variable
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # whatever the locale is; None: started with the stream closed
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")

    # -- asking about streams

    def colored(self, stream: TextIO | None) -> bool:
        """True if ``stream`` may receive colours: by NO_COLOR, CLICOLOR_FORCE, TERM, being a terminal."""
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

    def json(self, value: Any) -> None:
        """Write one JSON value and a newline."""
        import json

        self.write(json.dumps(value, ensure_ascii=False) + "\n")

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

    def once(self, text: str | None) -> None:
        """Print a warning when it comes for the first time; None: there is none."""
        if text and text not in self._said:
            self._said.add(text)
            self.warn(text)

    def error(self, text: str) -> None:
        """Print the one line that says why a command failed."""
        name = "bitnet-edge:"
        text = wrapped(f"{name} {one_line(with_options(text))}", sys.stderr)
        self._err(self.style(name, "red", "bold") + text.removeprefix(name))

    def traceback(self, error: BaseException) -> None:
        """Print the traceback of an error, if ``verbose``."""
        if self.verbose:
            import traceback

            traceback.print_exception(error)

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

    Call it with (done, total).  As a context it has a thread that draws the line, since the work may be native code; at
    the end the line is erased.
    """

    DELAY, EVERY = 1.0, 0.2  # seconds before anything is shown, and between two drawings
    LOGGED = 15.0  # seconds between two lines of a log
    RECENT = 15  # marks of which the rate is the mean, so that work that gets slower or faster shows soon

    def __init__(self, out: Output, label: str, unit: str = "", log: bool = False) -> None:
        self._out = out
        self._draws = not out.quiet and is_tty(sys.stderr) and moves_cursor()
        self._logs = log and not self._draws
        self._lock = threading.Lock()  # of what is on the screen
        self._ended = threading.Event()
        self._drawn = False
        self.next(label, unit)

    def next(self, label: str, unit: str = "") -> Progress:
        """Continue on the same line with another label and unit."""
        self._label, self._unit = label, unit
        self._marks: list[tuple[float, float]] = []  # time and amount, about one a second
        self._now = (0.0, 0.0)  # done, total
        return self

    def __call__(self, done: float, total: float) -> None:
        now, self._now = time.monotonic(), (done, total)
        marks = self._marks if self._marks and done >= self._marks[-1][1] else []  # else another pass over the same
        if not marks or (done > marks[-1][1] and now - marks[-1][0] >= 1):
            self._marks = [*marks[1 - self.RECENT :], (now, done)]

    def _text(self) -> str:
        """Label, share, rate and time left, as far as they are known."""
        marks, (done, total) = self._marks, self._now
        if not marks:
            return f"{self._label}..."
        seconds = time.monotonic() - marks[0][0]
        rate = (done - marks[0][1]) / seconds if seconds > 1 else 0.0
        text = f"{self._label} {100 * done / total:.0f}%" if total else self._label
        if self._unit == "bytes":
            text += f" of {human(int(total))}" if total else f" {human(int(done))}"
            text += f", {rate / 1e6:.1f} MB/s" if rate else ""
        elif self._unit:
            text += f" of {total:.0f} {self._unit}" if total else f" {done:.0f} {self._unit}"
            text += f", {rate:.{0 if rate >= 10 else 1}f} {self._unit}/s" if rate else ""
        return f"{text}, {time_left((total - done) / rate)} left" if rate and total > done else text

    def __enter__(self) -> Progress:
        if self._draws or self._logs:
            with contextlib.suppress(RuntimeError):  # can't start new thread: no line then
                threading.Thread(target=self._show, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _show(self) -> None:
        seconds = self.DELAY if self._draws else self.LOGGED
        while not self._ended.wait(seconds):
            text = self._text()
            if self._logs:
                self._out.info(text)
                continue
            seconds = self.EVERY
            with self._lock:
                if not self._ended.is_set():
                    self._drawn = True
                    text = text[: (columns(sys.stderr) or 1000) - 1]  # a line that is broken could not be erased
                    sys.stderr.write(f"\r{text}\x1b[K")
                    sys.stderr.flush()

    def say(self, text: str) -> None:
        """Print a remark in place of the line, which goes on below it."""
        with self._lock:
            self._erase()
            self._out.info(text, "dim")

    def close(self) -> None:
        """Erase the line; has no effect if nothing was drawn or when called again."""
        self._ended.set()
        with self._lock:
            self._erase()

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def time_left(seconds: float) -> str:
    """Seconds as text: ``9 s``, ``4 min``, ``2 h 5 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def is_tty(stream: TextIO | None) -> bool:
    """True for a terminal; False for closed and missing streams."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def writes_to_terminal() -> bool:
    """True if standard output is a terminal or was one: isatty() is False once its window is closed."""
    try:
        return stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def moves_cursor() -> bool:
    """True if the terminal understands escape sequences."""
    return os.environ.get("TERM", "dumb") != "dumb"


def columns(stream: TextIO | None) -> int | None:
    """Columns of the terminal of ``stream``; None: it is no terminal, or its width is not known."""
    if stream is None or not is_tty(stream):
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def wrapped(text: str, stream: TextIO | None) -> str:
    """``text`` with line breaks at blanks where a terminal would break its lines inside of words; unchanged in a pipe.
    """
    width = columns(stream)
    if width is None or all(len(line) <= width for line in text.split("\n")):
        return text
    from textwrap import TextWrapper

    wrapper = TextWrapper(width, break_long_words=False, break_on_hyphens=False, expand_tabs=False,
                          replace_whitespace=False)
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """``text`` with line breaks replaced, since every failure is reported in one line."""
    return "; ".join(part.strip() for part in str(text).splitlines() if part.strip()) or "unknown error"


def drop_stdout() -> None:
    """Redirect standard output to /dev/null, so that the flush at exit cannot fail a second time."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        pass
