"""transformer: one model, one step (see transformer.pyx)."""

import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyx.head.output_head import Head
from pyx.kv.cache import KVCache
from pyx.machine.pace import Pace
from pyx.weights.stored_rows import StoredRows
from pyx.weights.ternary import TernaryMatrix

STAGES: tuple[str, ...]

class Segment:
    """Tokens that a step appends to one cache; may be used again with other ids in its buffers."""

    kv: Any
    ids: Any
    logits: Any
    all_logits: bool
    winners: int
    part: bool
    patient: bool
    n_in_step: int
    error: BaseException | None
    def __init__(
        self,
        kv: KVCache,  # checked when it is used
        ids: Any,  # int32 buffer [n]
        logits: Any = None,  # float32 buffer [n_vocab], or [n][n_vocab] flat with all_logits
        all_logits: bool = False,
        winners: int = 0,  # only so many logits, the largest, are wanted, ties included; 0: all
        part: bool = False,  # a prompt, of which a step may evaluate fewer tokens
        patient: bool = False,  # nobody waits for the token that follows
    ) -> None: ...
    def cut(self, n: int) -> None:
        """Keep the first tokens only."""

class Transformer:
    """Weights of one model and its compiled step.  One call at a time; the GIL is released inside."""

    n_layer: int
    hidden: int
    n_vocab: int
    n_threads: int
    pace: Pace | None  # None: always n_threads
    usable: int  # rows of logits from here on are never among the winners; assignable
    chunk: int  # most tokens per step, of all its segments
    def __init__(
        self,
        config: Any,  # edge.config.ModelConfig
        embedding: StoredRows,
        head: Head,
        layers: Sequence[Mapping[str, Any]],
        output_norm: Any,
        rope_freqs: Any | None = None,
        n_threads: int = 1,
        chunk: int = 128,
        adapt: bool = False,
        cores: Iterable[int] | None = None,
        basis: tuple[int, Any] | None = None,  # of the embedding's rows: block and signs
    ) -> None: ...
    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """(layers with attention, KV heads of each, head_dim): the first arguments of a KVCache for this model."""
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def vector_bytes(self) -> int: ...
    @property
    def matrices(self) -> list[TernaryMatrix]:
        """The projections in the order in which a step reads them."""
    def bound_experts(self, ceiling: int) -> None: ...
    @property
    def weight_bytes_stored(self) -> int: ...
    @property
    def expert_bytes(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def weight_bytes_allocated(self) -> int: ...
    @property
    def movable(self) -> list[TernaryMatrix]: ...
    @property
    def weight_bytes_copied(self) -> int: ...
    @property
    def head_bytes_copied(self) -> int: ...
    @property
    def head_bytes(self) -> int: ...
    @property
    def head_bytes_least(self) -> int: ...
    @property
    def head_bytes_more(self) -> int: ...
    @property
    def head_bytes_mapped(self) -> int: ...
    @property
    def answered(self) -> array.array[float] | None: ...
    @property
    def head_bytes_allocated(self) -> int: ...
    @property
    def head_kind(self) -> str: ...
    def keep_queries(self) -> Any:
        """From now on each step leaves here what its last token asked: float32 [attention layers][n_head][head_dim]."""
    def keep_times(self) -> Any:
        """Each step adds here what each thread did, nanoseconds: int64 [n_threads][16], the first ones by STAGES."""
    def trial(self, batch: Iterable[Segment], n_layer: int, n_threads: int) -> tuple[int, int]: ...
    def step(self, batch: Iterable[Segment]) -> None:
        """Evaluate the segments of a batch: append their keys and values, write their logits.

        At most ``chunk`` tokens in all, each segment to a cache of its own.  Raises ValueError for a batch that does
        not fit and MemoryError where a pool's limit forbids it; all caches are untouched then.
        """
