"""Service: the model that is served, and its settings."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge.cache.folder import Folder
from edge.errors import EdgeError, UsageError
from edge.serve.calls import Refusal
from edge.serve.conversations import Conversations
from edge.session.prompting import refuse_long
from edge.settings import with_options

if TYPE_CHECKING:
    from array import array

    from edge.engine import Engine
    from edge.model.model import Model
    from edge.serve.kiosk import Kiosk
    from edge.tools.embed import Embedder


@dataclass
class Settings:
    """The settings of a service."""

    name: str | None = None  # of the model, as clients see it; None: the name in the file
    api_key: str | None = None
    hosts: tuple[str, ...] = ()  # that are accepted besides addresses, localhost and this machine's name
    cors: tuple[str, ...] = ()  # origins of other sites that may ask; "*": all
    metrics: bool = False
    parallel: int = 1
    queue: int = 64
    state: str | None = None
    state_bytes: int = 1 << 30
    warn: Callable[[str], object] | None = None  # is told once why ``state`` cannot be written
    reads_ahead: bool = True  # questions that are still being written
    system: str | None = None  # for conversations that bring none
    locked: bool = False  # none may bring its own
    kiosk: Kiosk | None = None  # its instructions are ``system``, and ``locked``
    defaults: dict[str, Any] = field(default_factory=dict)  # arguments of chat and complete


class Service:
    """The model that all routes share.  The engine is set later by :meth:`open`; until then requests get 503."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine: Engine | None = None
        self.conversations: Conversations | None = None
        self.embedder: Embedder | None = None  # in place of the two above
        self.embedding = threading.Lock()
        self.failure: str | None = None
        self.begun = time.time()
        self.name = settings.name or ""
        self.nbytes, self.modified = 0, self.begun  # of the model's file

    def open(self, engine: Engine) -> None:
        """Answer with this engine from now on.  Raises ContextFull for a system prompt that no answer could follow,
        and UsageError for default options that this model does not have.
        """
        s = self.settings
        if s.system:
            refuse_long(engine.model, engine.plan, [{"role": "system", "content": s.system}])
        if s.defaults.get("thinking_budget") is not None and not engine.model.thinks:
            raise UsageError("cannot be used: this model does not think before it answers", argument="thinking_budget")
        if s.kiosk is not None and not engine.template.writes_system:
            raise UsageError("cannot be used: the chat template leaves out instructions", argument="kiosk")
        self._named(engine)
        folder = None if s.state is None else Folder(engine.space, s.state, s.state_bytes, s.warn)
        self.conversations = Conversations(engine, s.parallel, s.queue, folder, s.reads_ahead)
        self.conversations.warm(s.system)  # reads every weight: the first answer need not wait for the card
        if s.kiosk is not None:
            self.conversations.forget_after(s.kiosk.idle_seconds)
        self.engine = engine

    def open_embedder(self, embedder: Embedder) -> None:
        """Compute embeddings from now on, and nothing else."""
        self._named(embedder)
        self.embedder = embedder

    def _named(self, model: Engine | Embedder) -> None:
        self.name = self.settings.name or model.config.name
        if os.path.exists(model.path):
            facts = os.stat(model.path)
            self.nbytes, self.modified = facts.st_size * os.path.isfile(model.path), facts.st_mtime

    def stop(self) -> None:
        """Begin to end: answers are cut off, and what waits is refused."""
        if self.conversations is not None:
            self.conversations.stop()

    def close(self) -> None:
        """End all answers and save the conversations."""
        if self.conversations is not None:
            self.conversations.close()

    def trouble(self) -> str | None:
        """The reason why no answers are made; None if all is well, or the model is still loading.  A question is
        prepared for it, as for an answer.
        """
        if self.failure is not None:
            return self.failure
        try:
            if self.embedder is not None:
                self.embedder.tokens("Hello", True)
            elif self.engine is not None:
                with suppress(EdgeError):  # the template wants other messages
                    self.engine.preparer.prepare([{"role": "user", "content": "Hello"}], None, {})
        except Exception as error:
            return f"internal error: {type(error).__name__}"
        return self.conversations.trouble() if self.conversations is not None else None

    def ready(self) -> tuple[Engine, Conversations]:
        """The engine and the conversations.  Raises Refusal (503) while the model is loading."""
        if self.failure is not None:
            raise Refusal(500, self.failure, "load_failed")
        if self.embedder is not None:
            raise Refusal(400, f"{self.name} is served for embeddings only (--embeddings)", "embeddings_only", "model")
        if self.engine is None or self.conversations is None:
            raise Refusal(503, "the model is being loaded", "loading", retry_after=2)
        return self.engine, self.conversations

    def named(self, name: str) -> None:
        """Raise Refusal (404) for the name of another model; Ollama's clients may write NAME:latest."""
        if name not in (self.name, f"{self.name}:latest"):
            raise Refusal(404, f"the model '{name[:80]}' is not available; use {self.name}", "model_not_found", "model")

    @property
    def model(self) -> Model | Embedder:
        """The model that is served.  Raises Refusal while it is being loaded."""
        return self.embedder or self.ready()[0].model

    @property
    def n_ctx(self) -> int:
        """The largest number of tokens of a prompt or text.  Raises Refusal while the model is being loaded."""
        return self.embedder.n_ctx if self.embedder is not None else self.ready()[0].plan.n_ctx

    def embedding_model(self) -> Embedder:
        """The model for embeddings.  Raises Refusal if it is none, or is being loaded."""
        if self.embedder is None:
            self.ready()
            raise Refusal(400, f"{self.name} does not serve embeddings; start with --embeddings and an embedding model",
                          "not_an_embedding_model", "model")
        return self.embedder

    def vectors(self, inputs: list[str], gone: threading.Event, cut: bool = False) -> tuple[list[array[float]], int]:
        """(the vectors of texts, tokens in all).  Blocks; ends when ``gone`` is set.  ``cut``: of a text that is too
        long, only the beginning is read.

        Raises Refusal (400) for a text that it cannot read.
        """
        embedder = self.embedding_model()
        try:
            texts = [embedder.tokens(each, cut) for each in inputs]
        except UsageError as error:
            raise Refusal(400, with_options(str(error)), None, "input") from None
        found: list[array[float]] = []
        with self.embedding:
            for ids in texts:
                if gone.is_set():
                    break
                found.append(embedder.of_tokens(ids))
        return found, sum(map(len, texts))
