"""Conversation: turns, undo, regeneration and context use of a Session; independent of the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edge.engine import Engine
from edge.errors import UsageError
from edge.sampling import Sampling
from edge.session.answer import Answer
from edge.session.session import Session

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class ContextUse:
    """The use of the context, in tokens."""

    n_ctx: int
    used: int  # attended now
    free: int
    sinks: int  # of the used ones, pinned at the beginning
    window: int  # 0: nothing is ever evicted
    evicted: int  # seen, but slid out of the window
    forgotten: int  # messages that are not part of the prompt any more


class Conversation:
    """A Session with what a chat program shows: regeneration, default sampling options, use of the context.

    Use it for a chat with a person; for programs that only ask and read answers,
    :class:`edge.session.session.Session` is enough.

    ``overflow``: "slide" (the oldest tokens leave the window) or "stop" (the answer ends with finish reason
    "context_full"; a question that does not fit raises ContextFull and changes nothing).  ``session``: a session to
    continue, instead of a new one with ``system``.
    """

    def __init__(
        self,
        engine: Engine,
        system: str | None = None,
        messages: Iterable[Mapping[str, str]] = (),
        sampling: Sampling | None = None,
        session: Session | None = None,
    ) -> None:
        self.session: Session = engine.session(system) if session is None else session
        self.sampling: Sampling = sampling or self.session.model.sampling
        self._again = 0  # times the last question has been answered anew
        for message in messages:
            self.add(message["role"], message["content"])

    # ---- turns ------------------------------------------------------------------------------------------------------

    def ask(self, text: str, **options: Any) -> Answer:
        """The next turn.  Options as in :meth:`edge.session.session.Session.ask`."""
        pieces = self.session.ask(text, **{"sampling": self.sampling, **options})
        self._again = 0
        return pieces

    def regen(self, **options: Any) -> Answer:
        """Answer the last question again, with other random numbers.  Raises UsageError if there is none."""
        questions = [m["content"] for m in self.session.messages if m["role"] == "user"]
        if not questions:
            raise UsageError("there is no question to answer again")
        again = self._again + 1
        sampling = (options.pop("sampling", None) or self.sampling).reseeded(again)
        pieces = self.ask(questions[-1], sampling=sampling, **options)  # refuses bad options, does not run yet
        self.session.undo()
        self._again = again
        return pieces

    def undo(self) -> str | None:
        """Remove the last turn; returns its question, None if there is none."""
        self._again = 0
        return self.session.undo()

    def clear(self) -> None:
        """Remove all turns, keep the system prompt."""
        self._again = 0
        self.session.clear()

    def add(self, role: str, content: str) -> None:
        """Append a message without generating an answer: an example, or a turn of a saved conversation.

        ``role``: "system" (first, and only once), then "user" and "assistant" in turns.  Raises UsageError for another
        order.
        """
        if role not in ROLES:
            raise UsageError(f"role {role!r} is not known; it is one of {', '.join(ROLES)}")
        if not isinstance(content, str):
            raise UsageError(f"a message must be text, not {type(content).__name__}")
        if role == "system":
            if self.session.messages:
                raise UsageError("a system prompt must come first, and only once")
            self.session.system = content
            return
        last = self.session.messages[-1]["role"] if self.session.messages else "system"
        expected = "assistant" if last == "user" else "user"
        if role != expected:
            raise UsageError(f"a message of the {role} after one of the {last}; expected: {expected}")
        self.session.messages.append({"role": role, "content": content})

    def cancel(self) -> None:
        """Stop the running answer.  May be called from any thread."""
        self.session.cancel()

    def close(self) -> None:
        """Free the KV cache."""
        self.session.close()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what it is -------------------------------------------------------------------------------------------------

    @property
    def system(self) -> str | None:
        """The system prompt; assign to change it from the next turn on."""
        return self.session.system

    @system.setter
    def system(self, text: str | None) -> None:
        self.session.system = text

    @property
    def overflow(self) -> str:
        """What happens when the context is full: "slide" or "stop"."""
        return self.session.plan.overflow

    @property
    def messages(self) -> list[dict[str, str]]:
        """A copy of all messages, the system prompt first."""
        return [dict(message) for message in self.session.messages]

    @property
    def turns(self) -> int:
        """Number of questions asked so far."""
        return sum(message["role"] == "user" for message in self.session.messages)

    @property
    def context(self) -> ContextUse:
        """The use of the context, in tokens."""
        session, plan = self.session, self.session.plan
        seen = session.held
        evicted = min(session.evicted, seen)
        room = plan.window + plan.sinks if plan.window else plan.n_ctx
        used = min(seen - evicted, room)
        return ContextUse(
            n_ctx=plan.n_ctx,
            used=used,
            free=room - used,
            sinks=min(plan.sinks, used),
            window=plan.window,
            evicted=evicted,
            forgotten=session.forgotten,
        )
