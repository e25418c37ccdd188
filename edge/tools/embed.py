"""Embed: text -> a vector, for search and comparison, by models made for that (BitNet-embedding-0.6B).

The vector is the output of the last norm at the last token, divided by its length.  The transformer is the same as for
answers, with an output head that returns its input.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edge.errors import UsageError

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint

CHUNK = 64  # tokens a step


class Embedder:
    """A model that turns texts into vectors.  Raises InvalidFile, or UsageError for a model without a tokenizer."""

    def __init__(
        self, checkpoint: Checkpoint, n_threads: int = 1, cores: Sequence[int] | None = None
    ) -> None:
        from edge.model.weights import build
        from edge.prompt.tokenizer import Tokenizer
        from pyx.head import Head
        from pyx.stored_rows import StoredRows

        n = checkpoint.config.hidden
        one = bytearray(4 * n * n)
        for i in range(n):
            struct.pack_into("<f", one, 4 * (i * n + i), 1.0)
        self.config = checkpoint.config
        self._checkpoint = checkpoint
        self._tokenizer = Tokenizer.of(checkpoint)
        self._ends = bool(checkpoint.metadata.get("tokenizer.ggml.add_eos_token"))
        head = Head(StoredRows("F32", one, n, n), "f32", n_threads)
        with checkpoint.whole():
            self._transformer = build(checkpoint, n_threads=n_threads, head=head, chunk=CHUNK, cores=cores)

    def tokens(self, text: str, cut: bool = False) -> list[int]:
        """The token ids of a text, with the first and last tokens that the model was trained with.  ``cut``: leave out
        the end of a text that is too long.

        Raises UsageError for a text that is empty or too long.
        """
        tokenizer = self._tokenizer
        ids = tokenizer.encode(text)
        if not text.strip() or not ids:
            raise UsageError("an empty text has no vector")
        if tokenizer.add_bos and tokenizer.bos_id is not None:
            ids.insert(0, tokenizer.bos_id)
        if cut:
            del ids[self.config.n_ctx_train - bool(self._ends and tokenizer.eos_ids) :]
        if self._ends and tokenizer.eos_ids:
            ids.append(tokenizer.eos_ids[0])
        return self.checked(ids)

    def checked(self, ids: list[int]) -> list[int]:
        """Return the token ids.  Raises UsageError for ids that the model does not have, and for too many."""
        if any(id_ >= self.config.n_vocab for id_ in ids):
            raise UsageError(f"token id {max(ids)} does not exist; the model has {self.config.n_vocab}")
        if len(ids) > self.config.n_ctx_train:
            raise UsageError(f"the text has {len(ids)} tokens, the model reads {self.config.n_ctx_train}; shorten it")
        return ids

    def of_tokens(self, ids: Sequence[int]) -> array[float]:
        """The vector of token ids, float32 [hidden] of length 1.

        Raises UsageError if the model gives no valid vector, and InvalidFile if its file was cut.
        """
        from pyx.kv import KVCache
        from pyx.transformer import Segment

        c = self.config
        cache = KVCache(c.n_layer, c.n_kv_head, c.head_dim, len(ids), "f16", windows=c.windows)
        out = array("f", bytes(4 * c.hidden))
        for start in range(0, len(ids), CHUNK):
            part = array("i", ids[start : start + CHUNK])
            last = start + CHUNK >= len(ids)
            self._transformer.step([Segment(cache, part, out if last else None)])
        self._checkpoint.check()
        length = math.sqrt(math.fsum(x * x for x in out))
        if not math.isfinite(length) or length == 0.0:
            raise UsageError("the model returned an invalid vector; its file may be damaged")
        return array("f", [x / length for x in out])

    def vector(self, text: str) -> array[float]:
        """The vector of a text, float32 [hidden] of length 1.  Raises UsageError for one that is empty or too long."""
        return self.of_tokens(self.tokens(text))


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine similarity of two vectors of norm 1, from -1 to 1."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def npy(vectors: Sequence[array[float]]) -> bytes:
    """The vectors as a .npy file: float32 [n, hidden]."""
    shape = (len(vectors), len(vectors[0]) if vectors else 0)
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + b"".join(v.tobytes() for v in vectors)
