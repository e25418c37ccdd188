"""Every expected failure and its exit code, in one table.

All errors that bitnet-edge raises on purpose derive from :class:`EdgeError`.  The message is one line that names what
is wrong and what to do; the command line prints it and ends with ``exit_code``.  Any other exception is a bug.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: where errors of the program are reported
REPORTS = "the issue tracker of the repository you got this copy from"
#: the folder of the compiled modules
PYX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pyx")


class EdgeError(Exception):
    """Base of all expected failures; ``exit_code`` is what the command line returns."""

    exit_code = 1


class UsageError(EdgeError):
    """An invalid argument.

    ``argument``: its name in Python, with which the message begins; the command line shows the option instead.
    ``hint``: what to do, with which the message ends.
    """

    exit_code = 2

    def __init__(self, problem: str, *, argument: str | None = None, hint: str = "") -> None:
        said = f"{argument} {problem}" if argument else problem
        super().__init__(f"{said}; {hint}" if hint else said)
        self.problem, self.argument, self.hint = problem, argument, hint


class ModelNotFound(EdgeError):
    """There is no model with that path or name."""

    exit_code = 3


class InvalidFile(EdgeError):
    """A model, tokenizer or session file is damaged or not supported."""

    exit_code = 4


class MemoryRefused(EdgeError):
    """The plan does not fit in the memory that is available or allowed."""

    exit_code = 5


class UnsupportedCPU(EdgeError):
    """The processor does not support the requested (or any) instruction set."""

    exit_code = 6


class ContextFull(EdgeError):
    """The context is full, and ``overflow`` is "stop"."""

    exit_code = 7


class NotBuilt(EdgeError):
    """The compiled modules are missing or older than their source."""


class Busy(EdgeError):
    """Others use the resource; try again later.  ``retry_after``: in so many seconds, if that can be estimated."""

    exit_code = 75

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AnswerTimeout(EdgeError):
    """``--timeout`` was reached; the partial answer was printed."""

    exit_code = 124


#: exit code -> meaning, as printed in ``--help`` (up to ":" or "("), ``--help-all`` and the documentation
EXIT_CODES = {
    0: "success",
    1: "error: any other failure",
    2: "usage: invalid option or value",
    3: "model not found",
    4: "invalid file: a model, tokenizer or session file is damaged or not supported",
    5: "not enough memory: the plan does not fit, nothing was loaded",
    6: "processor not supported: it does not have the instruction set",
    7: "context full (--overflow stop)",
    75: "in use: another process has the port, the socket, the session or the output file",
    124: "timeout (--timeout): the partial answer was printed",
    130: "interrupted (SIGINT)",
    143: "terminated (SIGTERM)",
}


def unbuilt(error: Exception, folder: str | os.PathLike[str] = PYX) -> NotBuilt | None:
    """The NotBuilt error to report if missing or old compiled modules may be the cause of ``error``, such as after git
    pull without a build; else None.
    """
    reason = ""
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "pyx":
        reason = f"the compiled part is missing or does not match the source ({' '.join(str(error).split())})"
    else:
        from pathlib import Path

        for source in Path(folder).glob("*.p[yx][xd]"):  # an installed copy has none
            for module in Path(folder).glob(f"{source.stem}.*.so"):
                if module.stat().st_mtime < source.stat().st_mtime:
                    reason = f"the compiled part is older than its source ({source.name})"
    return NotBuilt(f"{reason}; build it with: python setup.py build_ext --inplace") if reason else None


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
