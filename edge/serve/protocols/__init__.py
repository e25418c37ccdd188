"""The protocols of clients: the APIs of OpenAI and Ollama, JSON lines.  Here: the base of the writers over HTTP."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge.serve.calls import Refusal
    from edge.serve.conversations import PendingAnswer
    from edge.session.logprobs import Logprob
    from edge.session.stream import Piece

MARK = secrets.token_hex(16)  # stands for a list of log probabilities; no client and no model can write it


@dataclass
class Collected:
    """One choice, collected from its pieces.  ``scores``: lists of log probabilities by name, a comma before each item,
    as JSON, which takes a tenth of the memory.
    """

    text: str = ""
    thought: str = ""
    thought_tokens: int = 0
    scores: dict[str, bytearray] = field(default_factory=dict)

    @property
    def marks(self) -> dict[str, str]:
        """The marks of the lists in a response that is not yet complete."""
        return dict.fromkeys(self.scores, MARK)


class Writer:
    """How an API writes the answers to one call.  ``KIND``: the media type of its streams; ``COMMENT``: what they may
    have before their first event.
    """

    KIND, COMMENT = "text/event-stream; charset=utf-8", b": waiting\n\n"
    answers: list[PendingAnswer]

    def begin(self, answers: list[PendingAnswer]) -> bytes:
        """The events before all answers."""
        self.answers = answers
        return b""

    def piece(self, index: int, piece: Piece, logprobs: list[Logprob] | None) -> bytes:
        """The events of a piece of a choice; ``logprobs``: of its tokens, None: they were not asked for."""
        raise NotImplementedError

    def end(self, index: int) -> bytes:
        """The events at the end of a choice."""
        raise NotImplementedError

    def close(self) -> bytes:
        """The events after all answers."""
        return b""

    def failed(self, refusal: Refusal) -> bytes:
        """The events of an error after the stream has begun."""
        raise NotImplementedError

    def scores(self, index: int, entries: list[Logprob]) -> dict[str, list[Any]]:
        """The log probabilities of the next tokens of a choice, as lists by name."""
        return {"logprobs": [scored(each) for each in entries]}

    def whole(self, choices: list[Collected]) -> dict[str, Any]:
        """The response without streaming."""
        raise NotImplementedError

    def nothing(self) -> dict[str, Any]:
        """The response to a request that asks for no answer."""
        raise NotImplementedError


def scored(entry: Logprob) -> dict[str, Any]:
    """A token with its log probability and the likeliest ones at its place."""
    return {**_token(entry), "top_logprobs": [_token(other) for other in entry.top]}


def _token(entry: Logprob) -> dict[str, Any]:
    return {"token": entry.text, "logprob": entry.logprob, "bytes": list(entry.bytes)}
