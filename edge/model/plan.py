"""Plan: the memory that loading a checkpoint will take, from its table of tensors, and that a loaded model takes."""

from __future__ import annotations

import math
from typing import Any

from edge.config import ModelConfig
from edge.formats import names
from edge.formats.checkpoint import Checkpoint
from edge.layers import Experts
from edge.model.footprint import Footprint

#: bytes per vocabulary entry and session: float32 logits of as many tokens as a step of one answer evaluates
#: (edge.cache.state.FEW_ROWS), and the sampler's tables
LOGIT_BYTES, SAMPLER_BYTES = 4 * 8, 12


def expect(
    checkpoint: Checkpoint,
    head: str = "auto",
    weights: str = "auto",
    program: int = 0,
    n_threads: int = 1,
) -> Footprint:
    """The memory that loading a checkpoint will take, from shapes alone; exact for ternary GGUF files.

    ``head``: a kind, see :data:`pyx.step.KINDS`.
    """
    from edge.formats.matrices import groups_type
    from edge.machine.placement import in_place, stored_bytes
    from edge.registry.encodings import GROUPED_TYPES
    from pyx.step import placement, scratch_bytes
    from pyx.weights import buffer_bytes

    config = checkpoint.config
    mapped = allocated = experts = 0
    grouped = config.activation_group > 0
    for part in names.parts(config):
        tensor = checkpoint.tensors.get(part.name)
        if tensor is None:  # not needed, or what building will miss
            continue
        if part.role in ("vector", "floats"):
            allocated += 4 * math.prod(part.shape)
        elif part.role in ("matrix", "experts"):
            scales_inside = grouped or tensor.encoding.layout in ("groups", "panels")
            allocated += 0 if scales_inside else 4
            if part.role == "experts" and in_place(tensor):
                experts += stored_bytes(tensor, grouped)  # never copied
            elif in_place(tensor) and weights != "huge" and scales_inside == (tensor.type in GROUPED_TYPES):
                mapped += stored_bytes(tensor, grouped)
            else:
                allocated += stored_bytes(tensor, grouped, copied=weights == "huge")
        else:
            assert part.role == "table"  # below: as head, and as rows that are looked up
    table = checkpoint.tensors.get(checkpoint.head)
    stored = groups_type(table) if table else ""
    embedding = checkpoint.tensors.get("token_embd.weight")
    session = _session_bytes(config, head)
    work = scratch_bytes(config, n_threads) + session
    if embedding and embedding.mapped:
        work += buffer_bytes(embedding.type, config.hidden, n_threads)
    place = placement(head, stored, config.n_vocab, config.hidden, n_threads)
    copied = weights == "huge" and place.copied > 0
    return Footprint(
        mapped=mapped,
        allocated=allocated,
        head_mapped=place.nbytes if place.mapped and not copied else 0,
        head_allocated=place.copied if copied else place.allocated,
        scratch=work + place.scratch,
        session=session,
        program=program,
        experts=experts,
        least_experts=_least(config, experts),
    )


def _least(config: ModelConfig, experts: int) -> int:
    """Of the bytes of all experts those that must be in memory: what a token uses, or the experts of a layer."""
    n_layer = sum(isinstance(layer.feed_forward, Experts) for layer in config.layers)
    return round(experts * max(config.expert_share, 1 / n_layer)) if n_layer else 0


def _session_bytes(config: ModelConfig, head: str) -> int:
    """Bytes of the logits and the sampler of one session; without a head, of one hidden vector."""
    if head == "none":
        return 4 * config.hidden
    return config.n_vocab * (SAMPLER_BYTES + LOGIT_BYTES)


def measure(transformer: Any, checkpoint: Checkpoint, program: int, copied: bool) -> Footprint:
    """The memory of the loaded transformer, exactly; ``copied``: with a copy of all its weights, if one will be
    made.
    """
    allocated = transformer.weight_bytes_copied if copied else transformer.weight_bytes_allocated
    experts = transformer.expert_bytes
    head = transformer.head
    session = _session_bytes(checkpoint.config, head.kind)
    return Footprint(
        mapped=0 if copied else transformer.weight_bytes_stored - allocated - experts,
        allocated=allocated + transformer.vector_bytes,
        head_mapped=0 if copied and head.kind == "ternary" else head.nbytes * head.mapped,
        head_allocated=head.copied if copied else head.allocated,
        scratch=transformer.scratch_bytes + session,
        session=session,
        program=program,
        experts=experts,
        least_experts=_least(checkpoint.config, experts),
    )
