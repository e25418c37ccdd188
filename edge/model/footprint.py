"""Footprint: memory of a model without its KV cache, from the shapes and types of its tensors alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edge.layers import Experts

if TYPE_CHECKING:
    from edge.formats.checkpoint import Checkpoint, Tensor

#: bytes per vocabulary entry and session: float32 logits of as many tokens as a step of one answer evaluates
#: (edge.cache.state.FEW_ROWS), and the sampler's tables
LOGIT_BYTES, SAMPLER_BYTES = 4 * 8, 12


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
    least_experts: int = 0  # of experts: those that a token uses, or those of a layer

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


def footprint(
    checkpoint: Checkpoint, head: str = "auto", place: str = "map", program: int = 0, n_threads: int = 1
) -> Footprint:
    """The memory that a checkpoint takes; exact once it is loaded.

    ``head``: a kind, see :data:`pyx.step.KINDS`.  ``place``: of the weights, see :mod:`edge.machine.placement`.
    """
    from edge.formats.matrices import groups_type
    from pyx.step import placement, scratch_bytes
    from pyx.weights import buffer_bytes

    config, huge = checkpoint.config, place == "huge"
    mapped, allocated, experts = _weights(checkpoint, huge)
    table, embedding = checkpoint.tensors.get(checkpoint.head), checkpoint.tensors.get("token_embd.weight")
    session = config.n_vocab * (SAMPLER_BYTES + LOGIT_BYTES) if head != "none" else 4 * config.hidden
    work = scratch_bytes(config, n_threads) + session
    if embedding and embedding.mapped:
        work += buffer_bytes(embedding.type, config.hidden, n_threads)
    output = placement(head, groups_type(table) if table else "", config.n_vocab, config.hidden, n_threads)
    copied = huge and output.copied > 0
    n_layer = sum(isinstance(layer.feed_forward, Experts) for layer in config.layers)
    return Footprint(
        mapped=mapped,
        allocated=allocated,
        head_mapped=output.nbytes if output.mapped and not copied else 0,
        head_allocated=output.copied if copied else output.allocated,
        scratch=work + output.scratch,
        session=session,
        program=program,
        experts=experts,
        least_experts=round(experts * max(config.expert_share, 1 / n_layer)) if n_layer else 0,
    )


def _weights(checkpoint: Checkpoint, huge: bool) -> tuple[int, int, int]:
    """Bytes of the layers' weights: used from the file's map, allocated, of experts.  ``huge``: they are copied."""
    from edge.formats import names
    from edge.registry.encodings import FLOAT_TYPES, GROUPED_TYPES

    config = checkpoint.config
    mapped = allocated = experts = 0
    grouped, exact = config.activation_group > 0, config.activation_quant == "none"
    for part in names.parts(config):
        tensor = checkpoint.tensors.get(part.name)
        if tensor is None or part.role == "table":  # not needed, or counted below: as head, and as rows looked up
            continue
        if part.role in ("vector", "floats") or exact or tensor.type in FLOAT_TYPES and (
                tensor.floats == "dense" or tensor.floats == "either" and not names.looks_ternary(tensor)):
            allocated += 4 * math.prod(part.shape)
            continue
        scales_inside = grouped or tensor.encoding.layout in ("groups", "panels")
        allocated += 0 if scales_inside else 4
        if part.role == "experts" and in_place(tensor):
            experts += stored_bytes(tensor, grouped)  # never copied
        elif in_place(tensor) and not huge and scales_inside == (tensor.type in GROUPED_TYPES):
            mapped += stored_bytes(tensor, grouped)
        else:
            allocated += stored_bytes(tensor, grouped, copied=huge)
    return mapped, allocated, experts


def in_place(tensor: Tensor) -> bool:
    """True if the codes of a projection can be used directly from the file."""
    rows, k = tensor.flat
    encoding = tensor.encoding
    return encoding.in_place and (encoding.layout == "panels" or tensor.layout == "128" and k % 128 == 0)


def stored_bytes(tensor: Tensor, grouped: bool, copied: bool = False) -> int:
    """Bytes of a projection's codes, or (``copied``) of their copy.  ``grouped``: with a scale per 128 weights."""
    rows, k = tensor.flat
    encoding = tensor.encoding
    groups = encoding.layout == "groups"
    if encoding.layout == "panels" or groups and in_place(tensor) and not copied:
        return encoding.size((k, rows))
    grouped = grouped or groups
    if grouped and (copied or (groups and not encoding.in_place and k % 128 == 0)):
        rows = (rows + 63) // 64 * 64  # whole panels
    return code_bytes(rows, k, grouped)


def code_bytes(rows: int, k: int, grouped: bool) -> int:
    """Bytes of a ternary matrix [rows][k] in memory: 2 bits for each weight, rows in whole blocks of 128; ``grouped``:
    with a float16 scale in each block.
    """
    return rows * ((k + 127) // 128) * (34 if grouped else 32)
