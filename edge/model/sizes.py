"""Sizes: of a model's weights, from its dimensions alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from edge.config import ModelConfig
from edge.formats.checkpoint import Tensor
from edge.layers import Experts
from edge.model.footprint import code_bytes

PAPER_BITS = 1.58  # of a weight on paper: log2(3)


@dataclass(frozen=True)
class Weights:
    """Sizes of a model's weights in bytes, computed from the number of parameters."""

    parameters: int
    projections: int  # ternary, in memory; of experts those of a token; and what stays floats in addition
    head: int  # as decode reads it by default: int8 rows with a float32 scale each, or Q8_0 rows as stored
    paper: int  # what "every parameter, the embedding too, at 1.58 bits" comes to

    @classmethod
    def of(cls, c: ModelConfig, stored: str = "", planes: Iterable[Tensor] = ()) -> Weights:
        """From the dimensions of a model.  ``stored``: the stored type of the output head, if there is a file;
        ``planes``: its matrices that are sums of planes, whose numbers the dimensions do not give.
        """
        from edge.formats.names import parts
        from edge.machine.placement import stored_bytes
        from pyx.head.output_head import placement

        parameters = sum(math.prod(part.shape) for part in parts(c) if part.needed)
        grouped = c.activation_group > 0
        floats = 4 * sum(math.prod(part.shape) for part in parts(c) if part.role == "floats")
        matrices = [part.shape for part in parts(c) if part.role == "matrix"]
        experts = [layer.feed_forward for layer in c.layers if isinstance(layer.feed_forward, Experts)]
        chosen = [(part.n_used * rows, k) for part in experts
                  for rows, k in ((part.ffn, c.hidden), (part.ffn, c.hidden), (c.hidden, part.ffn))]
        return cls(
            parameters,
            floats + (sum(stored_bytes(tensor, True) for tensor in planes)
                                or sum(code_bytes(rows, k, grouped) for rows, k in (*matrices, *chosen))),
            placement("auto", stored, c.n_vocab, c.hidden, 1).nbytes,
            int(parameters * PAPER_BITS / 8),
        )

    @property
    def read(self) -> int:
        """Bytes that decoding one token reads, without the KV cache."""
        return self.projections + self.head
