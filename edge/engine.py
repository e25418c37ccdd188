"""Engine: one model in memory, the memory of its KV caches, the beginnings it knows, and the open
sessions.

    load(path) -> Engine -> .session() -> Session.ask(text) -> Answer -> pieces

Nothing here prints, installs signal handlers or imports NumPy.  One engine serves many sessions from many threads: the
tokens of all running answers are evaluated in one step (edge/session/scheduler.py).  In a forked child it opens no
session and answers nothing (UsageError); it can be closed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edge.amounts import count, parse_size
from edge.cache.space import KVSpace
from edge.cache.store import Store
from edge.errors import UsageError
from edge.model.model import Model
from edge.prompt.messages import check_messages
from edge.session.preparing import Preparer
from edge.session.scheduler import Scheduler
from edge.session.session import Session
from edge.threads import refuse_after_fork

if TYPE_CHECKING:
    from edge.cache.plan import Plan
    from edge.cache.state import KVState
    from edge.config import ModelConfig
    from edge.session.answer import Answer
    from edge.session.answer_options import PreparedCall


class Engine:
    """A loaded model, made by :func:`edge.load`.

    ``system``: the system prompt of sessions that have none of their own.  ``notes``: remarks about the file and the
    plan.  ``warnings``: what makes it slower than was asked for.
    """

    def __init__(
        self,
        model: Model,
        space: KVSpace,
        *,
        system: str | None = None,
        notes: Sequence[str] = (),
        warnings: Sequence[str] = (),
        load_seconds: float = 0.0,
    ) -> None:
        self.model = model
        self.space = space
        self.store = Store(space)
        space.others = self.store.give_way
        self.preparer = Preparer(model, space.plan, space.admit_forms)
        self.system = system
        self.notes = list(notes)
        self.warnings = list(warnings)
        self.load_seconds = load_seconds
        self.scheduler = Scheduler(model, space.plan.parallel, space.make_room)
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        #: of the sessions: a set must not grow while somebody walks it
        self._listing = threading.Lock()

    # ---- what it is --------------------------------------------------------------------------------------------------

    @property
    def config(self) -> ModelConfig:
        """Dimensions and conventions of the model."""
        return self.model.config

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, see :mod:`edge.prompt.tokenizer`."""
        return self.model.tokenizer

    @property
    def template(self) -> Any:
        """The prompt template, see :mod:`edge.prompt.template`."""
        return self.model.template

    @property
    def plan(self) -> Plan:
        """The memory plan, see :class:`edge.cache.plan.Plan`."""
        return self.space.plan

    @property
    def path(self) -> str:
        """Path of the model's file or folder."""
        return self.model.path

    @property
    def n_threads(self) -> int:
        """Number of threads that compute a step."""
        return self.model.n_threads

    @property
    def fingerprint(self) -> str:
        """Identifies the model, see :mod:`edge.model.fingerprint`."""
        return self.model.fingerprint

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self.model.closed

    def memory(self) -> dict[str, int]:
        """Sizes in bytes: the parts of the plan, ``kv`` (of all open sessions), and ``rss`` (resident bytes of the
        process).
        """
        refuse_after_fork()
        f = self.plan.footprint
        return {
            "weights_mapped": f.mapped,
            "weights": f.allocated,
            "experts": f.experts,
            "experts_on_disk": f.on_disk,
            "head_mapped": f.head_mapped,
            "head": f.head_allocated,
            "scratch": f.scratch,
            "program": f.program,
            "vocabulary": f.vocabulary,
            "kv_planned": self.plan.kv_total,
            "kv": self.space.nbytes,
            "store": self.store.nbytes,
            "planned": self.plan.total_bytes,
            **self.rss(),
        }

    def _open(self) -> list[Session]:
        with self._listing:
            return list(self._sessions)

    def rss(self) -> dict[str, int]:
        """Resident bytes of the process: ``rss``, ``anon``, ``file``."""
        from edge.machine.linux import rss

        return rss()

    def __repr__(self) -> str:
        plan = self.plan
        state = "closed" if self.closed else count(len(self._open()), "session")
        threads = count(self.n_threads, "thread")
        return f"<Engine {self.config.name}: {plan.n_ctx} tokens in {plan.kv_type}, {threads}, {state}>"

    # ---- what it does ------------------------------------------------------------------------------------------------

    def session(
        self, system: str | None = None, examples: Sequence[Mapping[str, Any]] = (), state: KVState | None = None,
    ) -> Session:
        """A new conversation; its KV cache is allocated when it is first used.

        ``system``: the system prompt; None is that of the engine, "" is none.  ``examples``: messages of questions and
        answers with which every conversation begins, as with the system prompt; what is read of both is remembered on
        the disk (edge/cache/remembered.py).  ``state``: tokens and cache of a conversation that goes on.  Raises
        UsageError for messages that are not valid, and after :meth:`close`.
        """
        refuse_after_fork()
        if self.closed:
            raise UsageError("the engine is closed")
        session = Session(self.space, self.scheduler, self.store, self.preparer,
                          self.system if system is None else system, examples, state)
        with self._listing:
            self._sessions.add(session)
        return session

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Answer:
        """Answer a whole conversation once, in a new session that is closed with the answer.

        See :meth:`edge.session.session.Session.chat`.  Use a session instead if more calls follow: it does not read the
        conversation again.
        """
        return self.session("").chat(messages, **options)

    def prepare(
        self, messages: Sequence[Mapping[str, Any]] | None = None, prompt: str | Sequence[int] | None = None,
        **options: Any,
    ) -> PreparedCall:
        """A call of Session.chat (``messages``) or Session.complete (``prompt``), checked and encoded once, for
        :meth:`edge.session.session.Session.answer` of any session of this engine.

        Raises UsageError, and ContextFull for a prompt that does not fit in the context.
        """
        return self.preparer.prepare(None if messages is None else check_messages(messages), prompt, options)

    def load_session(
        self, path: str | os.PathLike[str], warn: Callable[[str], object] | None = None
    ) -> Session:
        """The session in a file written by :meth:`edge.session.session.Session.save`; it continues with its KV cache.
        If that was made for another context or KV type, its text is read again with the next question, and ``warn``
        is told so (None: it is logged as a warning).

        Raises InvalidFile if the file is damaged or belongs to another model, UsageError if it cannot be read, and
        MemoryRefused if there is not enough memory.
        """
        from edge.cache import kv_file

        state, talk, made = kv_file.load(self.space, path)
        messages = list(talk["messages"])
        first = bool(messages) and messages[0]["role"] == "system"
        examples = messages[first : first + talk["examples"]]
        session = self.session(messages[0]["content"] if first else "", examples, state)
        session.messages = messages
        if made:
            import logging

            tell = warn or logging.getLogger("edge").warning
            tell(f"session file {os.fspath(path)}: made for another KV cache ({made}); its text is read again")
        return session

    def share_prefixes(self, max_bytes: str | int) -> Store:
        """Share the KV cache of equal beginnings (system prompts, examples) among sessions that begin from now on.

        ``max_bytes``: most memory, as "64M" or in bytes.  See :class:`edge.cache.store.Store`.  Raises UsageError for a
        size that is not valid.
        """
        refuse_after_fork()
        return self.store.share(parse_size(max_bytes, "max_bytes") or 0)

    def wait_for_weights(self) -> None:
        """Wait until the weights are in their final place: with ``weights="auto"`` they may be copied into 2 MiB pages
        while answers run.
        """
        self.model.wait_for_weights()

    def close(self) -> None:
        """Free all memory.  Running answers end with an error at their next token."""
        if self.closed:
            return
        self.store.stop()  # the files that it still writes belong to the model
        self.model.close()
        for session in self._open():
            session.close()
        self.scheduler.close()
        self.space.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
