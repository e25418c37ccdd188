"""Every expected failure and its exit code, in one table.

All errors that bitnet-edge raises on purpose derive from :class:`EdgeError`.  The message is one line that names what
is wrong and what to do; the command line prints it and ends with ``exit_code``.  Any other exception is a bug.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import reprlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: where errors of the program are reported
REPORTS = "the issue tracker of the repository you got this copy from"


def shown(value: Any) -> str:
    """A value of JSON as messages show it, in at most 44 characters; "missing" for null, which says that it is."""
    if value is None:
        return "missing"
    if isinstance(value, str):
        return ascii(value[:40])
    return str(value).lower() if isinstance(value, bool) else reprlib.repr(value)[:44]


def one_line(error: BaseException) -> str:
    """The message of an exception in one line of at most 160 characters; its class if it has no message."""
    return " ".join(str(error).split())[:160] or type(error).__name__


class EdgeError(Exception):
    """Base of all expected failures; ``exit_code`` is what the command line returns, ``code`` what programs get."""

    exit_code = 1
    code = "engine"


class UsageError(EdgeError):
    """An invalid argument.

    ``argument``: its name in Python, with which the message begins; the command line shows the option instead.
    ``hint``: what to do, with which the message ends.
    """

    exit_code = 2
    code = "bad_request"

    def __init__(self, problem: str, *, argument: str | None = None, hint: str = "") -> None:
        said = f"{argument} {problem}" if argument else problem
        super().__init__(f"{said}; {hint}" if hint else said)
        self.problem, self.argument, self.hint = problem, argument, hint


class ModelNotFound(EdgeError):
    """There is no model with that path or name."""

    exit_code = 3
    code = "model_not_found"


class InvalidFile(EdgeError):
    """A model, tokenizer or session file is damaged or not supported."""

    exit_code = 4
    code = "invalid_file"


class MemoryRefused(EdgeError):
    """The plan does not fit in the memory that is available or allowed."""

    exit_code = 5
    code = "memory_refused"


class UnsupportedCPU(EdgeError):
    """The processor does not support the requested (or any) instruction set."""

    exit_code = 6
    code = "unsupported_cpu"


class ContextFull(EdgeError):
    """The context is full, and ``overflow`` is "stop"."""

    exit_code = 7
    code = "context_full"


class NotBuilt(EdgeError):
    """The compiled modules are missing or older than their source."""

    code = "not_built"


class Busy(EdgeError):
    """Others use the resource; try again later.  ``retry_after``: in so many seconds, if that can be estimated."""

    exit_code = 75
    code = "busy"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AnswerTimeout(EdgeError):
    """``--timeout`` was reached; the partial answer was printed."""

    exit_code = 124


def check_path(path: Any, argument: str = "path", kind: str = "a path") -> str:
    """A path as text.  Raises UsageError for what no file can be called."""
    try:
        text = os.fspath(path)
        os.fsencode(text)
    except (TypeError, ValueError):  # another type, or half a surrogate pair
        text = ""
    if not isinstance(text, str) or not text or "\0" in text:
        raise UsageError(f"is {reprlib.repr(path)}", argument=argument, hint=f"it must be {kind}")
    return text


def check_text(text: Any, argument: str = "a message") -> str:
    """The same text.  Raises UsageError unless it is one that can be encoded in UTF-8."""
    if not isinstance(text, str):
        raise UsageError(f"must be text, not {type(text).__name__}", argument=argument)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"has half a surrogate pair as character {error.start}", argument=argument) from None
    return text


def plain(value: Any) -> Any:
    """A number of another library, such as NumPy, as Python's; anything else as it is."""
    if isinstance(value, int | float | str):
        return value
    with contextlib.suppress(TypeError, ValueError):
        return operator.index(value) if hasattr(value, "__index__") else float(value)
    return value


#: exit code -> meaning, as printed in ``--help`` (up to ":" or "("), ``--help-all`` and the documentation
EXIT_CODES = {
    0: "success",
    1: "error: any other failure",
    2: "usage: invalid option or value",
    3: "model not found",
    4: "invalid file: a model, tokenizer or session file is damaged or not supported",
    5: "not enough memory: the plan does not fit, nothing was loaded",
    6: "processor not supported: it does not have the instruction set",
    7: "context full (--set overflow=stop)",
    75: "in use: another process has the port, the socket, the session or the output file",
    124: "timeout (--timeout): the partial answer was printed",
    130: "interrupted (SIGINT)",
    143: "terminated (SIGTERM, SIGHUP)",
}


def unbuilt(error: Exception) -> NotBuilt | None:
    """The NotBuilt error to report if missing compiled modules, or old ones, are the cause of ``error``; else None."""
    if not isinstance(error, ImportError) or (error.name or "").partition(".")[0] != "pyx":
        return None
    return NotBuilt(f"the compiled part is missing or does not match the source ({' '.join(str(error).split())}); "
                    "build it with: python setup.py build_ext --inplace")


def needs_build(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: an ImportError in ``function`` becomes NotBuilt if the compiled modules are the cause."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ImportError as error:
            if cause := unbuilt(error):
                raise cause from error
            raise

    return checked
