"""Call: the request of a client, in either API, validated.  Refusal: the reason why a request is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge.errors import Busy, ContextFull, EdgeError, MemoryRefused, UsageError
from edge.prompt.interrupt import check_interrupted, interruptible
from edge.settings import with_options

if TYPE_CHECKING:
    from edge.engine import Engine
    from edge.session.answer_options import PreparedCall


SPARE_CONTEXTS = 8  # contexts' worth of memory, at most, for conversations that wait


class Refusal(Exception):
    """A request that is answered with an error.  ``status``: of HTTP; ``code``: a fixed word for programs."""

    def __init__(
        self, status: int, message: str, code: str | None = None, param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after


def stopping() -> Refusal:
    """The refusal of what the service does not begin any more."""
    return Refusal(503, "the server is stopping", "shutting_down", retry_after=5)


def refusal_of(error: BaseException, sent: Mapping[str, str] | None = None) -> Refusal:
    """The refusal for an exception that was raised while answering.  ``sent``: see :class:`Call`."""
    if isinstance(error, Refusal):
        return error
    said, sent = with_options(str(error)), sent or {}
    if isinstance(error, ContextFull):
        return Refusal(400, said, "context_length_exceeded", sent.get("messages", "messages"))
    if isinstance(error, UsageError):  # its message begins with the path of what is wrong
        path = error.argument or said.split(maxsplit=1)[0].rstrip(":")
        name = re.split(r"[.\[]", path)[0]
        if error.argument is None and name not in sent:
            return Refusal(400, said)
        key = sent.get(name, name) + path[len(name) :]
        return Refusal(400, key + said.removeprefix(path), None, key)
    if isinstance(error, Busy):
        return Refusal(429, said, "busy", retry_after=error.retry_after or 2)
    if isinstance(error, MemoryRefused):
        return Refusal(503, said, "memory", retry_after=5)
    if isinstance(error, EdgeError):
        return Refusal(500, said, "engine")
    return Refusal(500, f"internal error: {type(error).__name__}", "internal")


def dump(value: Any) -> bytes:
    """JSON as bytes in UTF-8.  Texts of clients must have been checked (:func:`edge.serve.keys.check_json`)."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass
class Call:
    """One request for an answer.

    ``messages`` for a chat, checked, else ``prompts``, each a text or token ids, each of which gets ``n`` answers.
    ``echo``: each answer is preceded by its prompt, the text of which is in ``echoed``.
    ``options``: keyword arguments of ``Session.chat`` and ``complete``.  ``sent``: arguments of the library -> the
    keys of the request that they come from; so ``system``, the first message, and ``prompts``.
    """

    messages: list[dict[str, Any]] | None = None
    prompts: list[str | list[int]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    logprobs: int | None = None
    echo: bool = False
    echoed: list[str] = field(default_factory=list)
    sent: dict[str, str] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        """True if its last message is still being written: it is read ahead, and not answered."""
        return bool(self.options.get("partial"))

    @property
    def n_choices(self) -> int:
        """The number of answers: n for each prompt, those to the first prompt first."""
        return self.n * max(1, len(self.prompts))

    def prepare(self, engine: Engine, why: Callable[[], str | None] = lambda: None) -> list[PreparedCall]:
        """A prepared call for each of its choices; of the n for one prompt, each has its own seed.

        Raises EdgeError for a call that cannot be answered, and Interrupted as soon as there is a reason ``why`` not.
        """
        if self.echo:
            decode = engine.tokenizer.decode
            self.echoed = [each if isinstance(each, str) else decode(each) for each in self.prompts]
        prepare = engine.preparer.prepare
        with interruptible(why):
            check_interrupted()
            if self.messages is not None:
                found = [prepare(self.messages, None, self.options)]
            else:
                found = [prepare(None, each, self.options) for each in self.prompts]

        def nth(one: PreparedCall, n: int) -> PreparedCall:  # its form begins anew
            return one.changed(sampling=one.options.sampling.reseeded(n), constraint=None) if n else one

        return [nth(one, n) for one in found for n in range(self.n)]
