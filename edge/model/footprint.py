"""Footprint: memory of a model without its KV cache."""

from __future__ import annotations

from typing import NamedTuple


class Footprint(NamedTuple):
    """Bytes that a model takes without its KV cache."""

    mapped: int = 0  # weights used straight from the file: shared with other processes, reclaimable
    allocated: int = 0  # weights copied into memory of this process
    head_mapped: int = 0
    head_allocated: int = 0
    scratch: int = 0  # activations, logits, sampler; with those of one session
    session: int = 0  # logits and sampler of each further session
    vocabulary: int = 0  # for answers that follow a grammar, see edge.constrain.vocabulary
    program: int = 0  # resident before the weights were touched: interpreter, libraries, tokenizer
    experts: int = 0  # experts in memory, used straight from the file
    on_disk: int = 0  # experts that stay there until a token needs them; not part of the total
    least_experts: int = 0  # of experts: those that a token uses

    @property
    def total(self) -> int:
        """Bytes in all, including the program."""
        return self.program + self.coming

    @property
    def coming(self) -> int:
        """Bytes that loading will add to the process."""
        return (self.mapped + self.allocated + self.experts + self.head_mapped + self.head_allocated + self.scratch
                + self.vocabulary)

    def leaving(self, nbytes: int) -> Footprint:
        """With ``nbytes`` more of the experts on disk, or as many as can be left there."""
        n = max(0, min(nbytes, self.experts - self.least_experts))
        return self._replace(experts=self.experts - n, on_disk=self.on_disk + n)


def code_bytes(rows: int, k: int, grouped: bool) -> int:
    """Bytes of a ternary matrix [rows][k] in memory: 2 bits for each weight, rows in whole blocks of 128; ``grouped``:
    with a float16 scale in each block.
    """
    return rows * ((k + 127) // 128) * (34 if grouped else 32)
