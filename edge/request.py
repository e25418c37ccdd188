"""Request: the arguments of one call of a session, validated."""

from __future__ import annotations

from dataclasses import dataclass

from edge.context import OnPrefill
from edge.errors import UsageError
from edge.sampling import Sampling
from edge.stream import BY

DEFAULT_MAX_TOKENS = 512


@dataclass(frozen=True)
class Request:
    """What :meth:`edge.session.Session.ask` and ``complete`` are asked for.  Raises UsageError."""

    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    by: str
    timeout: float | None
    ignore_eos: bool
    on_prefill: OnPrefill | None
    lead: str  # what the template puts before every answer

    def __post_init__(self) -> None:
        if isinstance(self.max_tokens, bool) or not isinstance(self.max_tokens, int) or self.max_tokens < 0:
            raise UsageError(f"max_tokens is {self.max_tokens!r}; it is a whole number from 0")
        if not isinstance(self.sampling, Sampling):
            raise UsageError(f"sampling is {self.sampling!r}; it is an edge.Sampling")
        if self.by not in BY:
            raise UsageError(f"by is {self.by!r}; it is one of {', '.join(BY)}")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"timeout is {self.timeout!r}; it is a number of seconds above 0")


def check_text(text: str) -> None:
    """A message or prompt is a text that can be written in UTF-8."""
    if not isinstance(text, str):
        raise UsageError(f"a message is a text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"character {error.start} of the message is half a surrogate pair, not text") from None
