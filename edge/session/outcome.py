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


@dataclass(slots=True, eq=False)
class Outcome:
    """The state of a call: written by the loop, read by the Answer."""

    spec: Spec | None = None  # the form of the answer
    form: Form | None = None  # how calls of functions are written in it
    finish_reason: str | None = None
    usage: Usage = Usage()  # noqa: RUF009  frozen
    timings: Timings = Timings()  # noqa: RUF009  frozen
    said: bytearray = field(default_factory=bytearray)  # UTF-8: of a long text hardly more memory than its characters
    thoughts: bytearray = field(default_factory=bytearray)
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
