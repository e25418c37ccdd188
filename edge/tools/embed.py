"""Embed: text -> a vector, for search and comparison, by models made for that (BitNet-embedding-0.6B).

The vector is the output of the last norm at the last token, divided by its length.  The transformer is the same as for
answers, without an output head.
"""

from __future__ import annotations

import math
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edge.cache.plan import Plan
from edge.cache.planning import plan
from edge.errors import MemoryRefused, UsageError, check_text
from edge.formats import open_checkpoint
from edge.formats.checkpoint import Checkpoint
from edge.loading import built, choose_isa, resident, scored_at
from edge.machine.cores import choose
from edge.machine.memory import available_memory
from edge.options import Options

if TYPE_CHECKING:
    import numpy as np

#: the KV cache, unless options say otherwise.  Vectors that were made at different times are compared, so they must not
#: depend on the memory that was free.
KV: dict[str, Any] = {"kv": "f16", "overflow": "stop", "exact": True}


class Embedder:
    """A model that turns texts into vectors: a path, the name of a pulled model, or what is open of it.

    ``options``: the context is the longest text in tokens.  ``texts``: the memory is planned for the longest of these;
    they are checked before the weights are loaded.  ``progress`` and ``on_plan``: see :func:`edge.load`.

    Raises InvalidFile, MemoryRefused, or UsageError for a model without a tokenizer and for texts without a vector.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | str | os.PathLike[str],
        options: Options | None = None,
        texts: Iterable[str] = (),
        progress: Callable[[int, int], None] | None = None,
        on_plan: Callable[[Plan], object] | None = None,
    ) -> None:
        import pyx.step  # noqa: F401  before the program's size is measured
        from edge.prompt.tokenizer import Tokenizer
        from pyx.kv import KVCache

        options = options or Options(**KV)
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = open_checkpoint(checkpoint, i2s_layout=options.i2s_layout, activation=options.activation)
        choose_isa(options.isa)
        n_threads, cores = choose(options.threads)
        trained = checkpoint.config.n_ctx_train
        self.config = checkpoint.config
        self.n_ctx = min(options.ctx or trained, trained)
        self._tokenizer = Tokenizer.of(checkpoint)
        self._ends = bool(checkpoint.metadata.get("tokenizer.ggml.add_eos_token"))
        longest = max((len(self.tokens(text)) for text in texts), default=None)
        if longest is not None or options.ctx is not None:
            options = replace(options, ctx=longest or self.n_ctx)
        place, left = scored_at(checkpoint)
        # a file that leaves something open is scored once, with a head
        self.plan = plan(
            checkpoint, replace(options, weights="map"), resident(checkpoint) + left + options.reserve,
            available_memory(), n_threads, "auto" if left else "none")
        self.n_ctx = min(self.plan.n_ctx, trained)
        if on_plan:
            on_plan(self.plan)
        self._checkpoint, self._transformer = built(
            checkpoint, "none", n_threads, place, self._tokenizer, cores=cores, progress=progress)
        self.config = c = self._checkpoint.config
        try:
            self._cache = KVCache(*c.kv_shape, **self.plan.cache)
        except MemoryError as error:
            raise MemoryRefused(f"no memory for {c.name}: {error}") from None

    @property
    def path(self) -> str:
        """The file of the model."""
        return self._checkpoint.path

    @property
    def quantization(self) -> str:
        """The type of its weights."""
        return self._checkpoint.quantization

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the model, see :mod:`edge.model.fingerprint`."""
        from edge.model.fingerprint import fingerprint

        return fingerprint(self.config, self._checkpoint)

    @property
    def notes(self) -> list[str]:
        """The choices made for this model, and why, in one line each."""
        return [*self._checkpoint.notes, *(note for note in self.plan.notes if note not in self.plan.warnings)]

    def tokens(self, text: str, cut: bool = False) -> list[int]:
        """The token ids of a text, with the first and last tokens that the model was trained with.  ``cut``: leave out
        the end of a text that is too long.

        Raises UsageError for a text that is empty or too long.
        """
        tokenizer = self._tokenizer
        ids = tokenizer.encode(check_text(text, "texts"))
        if not text.strip() or not ids:
            raise UsageError("an empty text has no vector")
        if tokenizer.add_bos and tokenizer.bos_id is not None:
            ids.insert(0, tokenizer.bos_id)
        if cut:
            del ids[self.n_ctx - bool(self._ends and tokenizer.eos_ids) :]
        if self._ends and tokenizer.eos_ids:
            ids.append(tokenizer.eos_ids[0])
        if len(ids) > self.n_ctx:
            larger = ", or use a larger ctx" if self.n_ctx < self.config.n_ctx_train else ""
            raise UsageError(f"the text has {len(ids)} tokens, the model reads {self.n_ctx}; shorten it{larger}")
        return ids

    def of_tokens(self, ids: Sequence[int]) -> array[float]:
        """The vector of token ids, float32 [hidden] of length 1.

        Raises UsageError if the model gives no valid vector.
        """
        from pyx.step import Segment

        chunk, out = self._transformer.chunk, array("f", bytes(4 * self.config.hidden))
        self._cache.reset()
        for start in range(0, len(ids), chunk):
            part = array("i", ids[start : start + chunk])
            last = start + chunk >= len(ids)
            self._transformer.step([Segment(self._cache, part, out if last else None)])
        length = math.sqrt(math.fsum(x * x for x in out))
        if not math.isfinite(length) or length == 0.0:
            raise UsageError("the model returned an invalid vector; its file may be damaged")
        return array("f", [x / length for x in out])

    def vector(self, text: str) -> array[float]:
        """The vector of a text, float32 [hidden] of length 1.  Raises UsageError for one that is empty or too long."""
        return self.of_tokens(self.tokens(text))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of texts: a NumPy array, float32 [text][hidden].  Raises UsageError for what is no list of texts.
        """
        if isinstance(texts, str):
            raise UsageError("is not a list of texts", argument="texts")
        import numpy as np

        return np.array([self.vector(text) for text in texts], np.float32).reshape(len(texts), self.config.hidden)


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine similarity of two vectors of norm 1, from -1 to 1."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def npy(vectors: Sequence[array[float]]) -> bytes:
    """The vectors as a .npy file: float32 [n, hidden]."""
    shape = (len(vectors), len(vectors[0]) if vectors else 0)
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + b"".join(v.tobytes() for v in vectors)
