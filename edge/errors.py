"""Every expected failure and its exit code, in one table.

All errors that bitnet-edge raises on purpose derive from :class:`EdgeError`.  The message is one line that names what
is wrong and what to do about it; the command line prints it and ends with ``exit_code``.  Anything else that escapes
is a bug.
"""

from __future__ import annotations


class EdgeError(Exception):
    """Base of all expected failures; ``exit_code`` is what the command line returns."""

    exit_code = 1


class UsageError(EdgeError):
    """An invalid argument.

    ``argument``: its name in Python, which begins the message; the command line shows the option instead.
    ``hint``: what to do, the end of the message.
    """

    exit_code = 2

    def __init__(self, problem: str, *, argument: str | None = None, hint: str = "") -> None:
        said = f"{argument} {problem}" if argument else problem
        super().__init__(f"{said}; {hint}" if hint else said)
        self.problem, self.argument, self.hint = problem, argument, hint


class ModelNotFound(EdgeError):
    """No model at that path or name."""

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


class Busy(EdgeError):
    """Another process uses the resource; try again later."""

    exit_code = 75


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
    6: "processor: the instruction set is not supported",
    7: "context full (--overflow stop)",
    75: "busy: another process uses the socket or is saving the session",
    124: "timeout (--timeout): the partial answer was printed",
    130: "interrupted (SIGINT)",
    143: "terminated (SIGTERM)",
}
