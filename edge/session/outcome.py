"""Outcome: the state of a call, and the text of its answer so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge.session.logprobs import Logprob, Scored
from edge.session.usage import Timings, Usage

if TYPE_CHECKING:
    from edge.constrain.functions import Form
    from edge.constrain.spec import Spec


class AnswerText:
    """The text of an answer; of an endless answer only its end.

    Pieces are joined as they arrive, so that a long text takes little more memory than its characters.  ``dropped``:
    its beginning was dropped.
    """

    BLOCK = 512  # pieces that are joined

    def __init__(self) -> None:
        self.dropped = False
        self._whole = False  # all of it is wanted
        self._blocks: list[str] = []
        self._loose: list[str] = []

    def append(self, text: str) -> None:
        """Add the next piece."""
        self._loose.append(text)
        if len(self._loose) == self.BLOCK:
            self._blocks.append("".join(self._loose))
            self._loose.clear()

    def keep_all(self) -> None:
        """Drop nothing from now on."""
        self._whole = True

    def drop(self, pieces: int) -> None:
        """Drop all but the latest ``pieces`` pieces."""
        n = len(self._blocks) - (pieces + self.BLOCK - 1) // self.BLOCK
        if n > 0 and not self._whole:
            del self._blocks[:n]
            self.dropped = True

    def __str__(self) -> str:
        return "".join([*self._blocks, *self._loose])


@dataclass(slots=True, eq=False)
class Outcome:
    """The state of a call: written by the loop, read by the Answer."""

    spec: Spec | None = None  # what the answer has to be
    form: Form | None = None  # how calls of functions are written in it
    finish_reason: str | None = None
    usage: Usage = Usage()  # noqa: RUF009  frozen
    timings: Timings = Timings()  # noqa: RUF009  frozen
    said: AnswerText = field(default_factory=AnswerText)
    thoughts: AnswerText = field(default_factory=AnswerText)
    logprobs: list[Logprob] = field(default_factory=list)
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    shares: list[Scored] = field(default_factory=list)  # of the choices
    whole: bool = True  # the answer has the form that was asked for, or none was
    repeated: str = ""  # the end of an answer in a loop: what only repeats the text before it
    cancelled: bool = False
    left: bool = False  # and nobody reads it any more
    deadline: float | None = None
    away: float = 0.0  # seconds for which its reader had no room
    put: Callable[[Any], None] | None = None  # takes its pieces, while it is written

    def interrupted(self) -> str | None:
        """The reason to end the call now, or None."""
        if self.cancelled:
            return "cancelled"
        return "timeout" if self.deadline is not None and time.perf_counter() > self.deadline else None
