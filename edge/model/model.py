"""Model: one loaded model: configuration, compiled transformer, tokenizer, template; and the lock around a step.

    segments of different KV caches -> Model.step(batch) -> logits

Nothing here depends on conversations.  The compiled layer is used only through :meth:`Model.step` or, by tools that
inspect it between steps, through :meth:`Model.alone`.
"""

from __future__ import annotations

import dataclasses
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edge.errors import UsageError, plain
from edge.registry.families import FAMILIES
from edge.sampling import Sampling
from edge.threads import refuse_after_fork

if TYPE_CHECKING:
    from edge.config import ModelConfig
    from edge.constrain.vocabulary import Vocabulary
    from edge.machine.ways import Ways
    from pyx.step import Segment

#: marks that begin and end the thoughts of an answer
THINKING = ("<think>", "</think>")
#: where the codes of weights may be, see edge.machine.placement; "map" is their place when a model was built
MAP = "map"


def _unused(tokenizer: Any, n_vocab: int) -> tuple[array[int], int]:
    """(the rows of logits that stand for no text, the number of rows without those at the end).

    None, if the model has no tokenizer or no row would be left.
    """
    unused = array("i", tokenizer.unused)
    if tokenizer.n_vocab:
        unused.extend(range(tokenizer.n_vocab, n_vocab))
    if len(unused) >= n_vocab:
        return array("i"), n_vocab
    usable = n_vocab
    for row in reversed(unused):
        if row != usable - 1:
            break
        usable -= 1
    return unused, usable


class Model:
    """One loaded model.  Made by :func:`edge.load`; tests may put the parts together themselves.

    ``transformer``: a pyx.step.Transformer.  ``tokenizer`` and ``template``: of edge.prompt.tokenizer and
    edge.prompt.template.  ``checkpoint``: owns the file's map.
    """

    def __init__(
        self,
        config: ModelConfig,
        transformer: Any,
        tokenizer: Any,
        template: Any,
        *,
        path: str = "",
        checkpoint: Any = None,
        placement: str = MAP,
        fingerprints: str | None = None,
        ways: Ways | None = None,
    ) -> None:
        self.config = config
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.template = template
        self.path = path
        self.n_threads: int = transformer.n_threads
        self.chunk: int = transformer.chunk  # most tokens of a step
        self.stop_ids = frozenset(template.stop_ids(tokenizer)) | frozenset(tokenizer.eos_ids)
        self.special = frozenset(tokenizer.special.values())
        #: tokens that are never chosen, int32 [n]: rows in which the vocabulary is padded; all from ``usable`` on are
        self.unused, self.usable = _unused(tokenizer, config.n_vocab)
        transformer.head.usable = self.usable
        self.answer_lead: str = template.answer_lead()
        family = FAMILIES.get(config.arch)
        #: True if answers in a conversation may begin with thinking
        self.thinks = family is not None and family.thinking is not None
        #: ids of the tokens that begin and end it, if there are such, and their texts
        self.thinking_marks = {tokenizer.markers[text]: text for text in THINKING if text in tokenizer.markers}
        #: the type in which most of its weights are stored, "" if that is not known
        self.quantization: str = "" if checkpoint is None else checkpoint.quantization
        self._said = {} if checkpoint is None else checkpoint.sampling  # sampling that the file recommends
        self.sampling = self.advised(template.think)
        self.closed = False
        self.steps = 0  # so far
        self._ways = ways  # of reading weights, while they are compared
        self._lock = threading.Lock()
        self._making = threading.Lock()  # of the vocabulary
        self._checkpoint = checkpoint
        self._fingerprint: str | None = None
        self._fingerprints = fingerprints  # the folder that remembers it
        self._vocabulary: Vocabulary | None = None
        self.moving: threading.Thread | None = None
        if placement != MAP:
            from edge.machine.placement import start

            self.moving = start(placement, transformer, self._lock, lambda: self.closed)

    def advised(self, think: bool | None) -> Sampling:
        """The sampling that the file recommends, else the makers of the architecture, else the usual one; ``think``:
        whether the model is asked to think before it answers.
        """
        family = FAMILIES.get(self.config.arch)
        unthinking = self.thinks and think is False  # a file's recommendation is for answers with thoughts
        advised = family and (family.thinking if self.thinks and not unthinking else family.sampling)
        sampling = Sampling(**dataclasses.asdict(advised)) if advised else Sampling()
        return sampling if unthinking else dataclasses.replace(sampling, **self._said)

    def step(self, batch: Sequence[Segment]) -> None:
        """Evaluate the tokens of all segments and append their keys and values; on an error, of none of them.

        Raises UsageError after the model was closed, and MemoryError if a cache may take no more pages.
        """
        refuse_after_fork()
        with self._lock:
            if self.closed:
                raise UsageError("the engine was closed during an answer")
            self.steps += 1
            ways, moving = self._ways, self.moving
            if ways is None or len(batch) > 1 or len(batch[0].ids) > 1 or moving is not None and moving.is_alive():
                self.transformer.step(batch)
            elif ways.step(self.transformer.step, batch):
                self._ways = None

    @contextmanager
    def alone(self) -> Iterator[Any]:
        """A context manager: the transformer, while no step runs; for tools that inspect it between steps.

        Raises UsageError after the model was closed.
        """
        refuse_after_fork()
        with self._lock:
            if self.closed:
                raise UsageError("the engine is closed")
            yield self.transformer

    def encode(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None,
        think: bool | None = None,
    ) -> array[int]:
        """The prompt for the answer to ``messages``; if the last is the assistant's, the answer continues it.

        ``tools``: functions that may be called, see Template.render.  ``think``: whether the model is asked to think
        before it answers; None: as it was loaded.
        """
        template = self.template if think is None else self.template.thinking(think)
        more: dict[str, Any] = {} if tools is None else {"tools": tools}
        if messages and messages[-1]["role"] == "assistant":
            more["begun"] = self.answer_lead + messages[-1]["content"]
            messages = messages[:-1]
        return array("i", template.encode(self.tokenizer, messages, add_generation_prompt=True, **more))

    @property
    def end_of_thought(self) -> list[int]:
        """The tokens that end the thoughts of an answer, as the model writes them."""
        return self.tokenizer.encode(f"\n{THINKING[1]}\n\n", special=True)

    def encode_raw(self, prompt: str | Sequence[int]) -> array[int]:
        """A prompt without a template: a text, preceded by the model's BOS, or token ids unchanged.  Raises
        UsageError.
        """
        tokenizer, n_vocab = self.tokenizer, self.config.n_vocab
        if isinstance(prompt, str):
            bos = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
            ids = array("i", [*bos, *tokenizer.encode(prompt)])
        else:
            ids = array("i")
            for token in map(plain, prompt):
                if type(token) is not int or not 0 <= token < n_vocab:
                    raise UsageError(f"has token {token!r}; the vocabulary has {n_vocab}", argument="prompt")
                ids.append(token)
        if not ids:
            raise UsageError("is empty", argument="prompt")
        return ids

    def vocabulary(self) -> Vocabulary:
        """The tokens for answers that follow a grammar, made on first use, which
        :meth:`edge.cache.space.KVSpace.admit_forms` allows.
        """
        with self._making:
            if self._vocabulary is None:
                from edge.constrain.vocabulary import Vocabulary

                self._vocabulary = Vocabulary(self.tokenizer, self.config.n_vocab, self.stop_ids)
            return self._vocabulary

    @property
    def fingerprint(self) -> str:
        """The identity of this model, see :mod:`edge.model.fingerprint`.

        Raises UsageError after the model was closed.
        """
        if self._fingerprint is None:
            from edge.model.fingerprint import remembered

            if self.closed:
                raise UsageError("the engine is closed")
            self._fingerprint = remembered(self.config, self._checkpoint, self._fingerprints)
        return self._fingerprint

    def wait_for_weights(self) -> None:
        """Wait until the weights are in their final place: they may be copied into 2 MiB pages between steps."""
        if self.moving is not None:
            self.moving.join()

    def close(self) -> None:
        """Free the weights after the running step."""
        self.closed = True
        with self._lock:
            self.transformer = self._checkpoint = None
        self.wait_for_weights()
