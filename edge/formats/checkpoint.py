"""Checkpoint: the common result of all readers, independent of the file format.

Tensor names are GGUF names (``blk.0.attn_q.weight``); shapes are in NumPy order (out, in); the bytes stay in the file's
memory map until they are used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edge.config import ModelConfig
from edge.formats.mapped import Map
from edge.formats.safetensors import Stored

#: what a chat template of several may be called, and their largest number
TEMPLATE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_TEMPLATES = 32
#: how activations are rounded in models that were not trained with rounded ones
WEIGHT_ONLY = "int8-128"

#: ternary with a scale per group of K: blocks of 64 and of 128 (34 bytes, whatever their id and name in a file)
GROUP_ROWS = ("Q2_0", "PQ2_0")
#: blocks of 128 with 64 rows side by side, padded to whole panels: fastest to read (pyx/kernels/panels.h)
PANELS = "PQ2_0_R64"
GROUP_TYPES = (*GROUP_ROWS, PANELS)
#: weights of a row that share a scale -> the type of panels in which a matrix may be a sum of planes: up to four
#: ternary matrices, whose groups of the same columns lie side by side, so that a row of K columns takes K * planes
PLANE_TYPES = {128: PANELS, 64: "TP64_R64", 32: "TP32_R64"}
MOST_PLANES = 4
#: panel type -> weights of a group
PANEL_GROUPS = {type: group for group, type in PLANE_TYPES.items()}
#: types whose scales lie between the codes
GROUPED_TYPES = (*GROUP_ROWS, *PANEL_GROUPS)
#: binary: weights -1 and +1 -> how many share a scale.  The second is how type 40 was stored before it was NVFP4.
BINARY_TYPES = {"Q1_0": 128, "Q1_0_G32": 32}
#: become one of GROUP_ROWS when they are loaded (:mod:`edge.formats.packing`)
TO_GROUPS = ("MLX", *BINARY_TYPES)
#: stored types that hold ternary weights; the rest of STORED_TYPES are tables of floats
TERNARY_TYPES = (
    "I2_S", "TQ1_0", "TQ2_0", "HF_U8", "STQ1_0", "PTQ1_0", "IQ1_BN", "IQ2_BN", "IQ2_BN_R4", *TO_GROUPS,
    *GROUPED_TYPES,
)  # fmt: skip
FLOAT_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q5_0", "Q5_1", "Q4_0", "Q4_1")
#: experts that are stored one by one (Hugging Face), each as a tensor of its own: Tensor.apart
APART = "APART"
#: types in which an embedding or an output head may be stored
TABLE_TYPES = (*FLOAT_TYPES, *TO_GROUPS, *GROUP_TYPES)


class Basis(NamedTuple):
    """A rotated basis in which the rows of a matrix are stored, see :mod:`edge.formats.basis`."""

    block: int
    signs: Sequence[int] | None  # 1, or another number for -1, [width]; None: all are 1


class Tensor(NamedTuple):
    """One stored tensor: its bytes, type and shape."""

    name: str
    type: str  # one of TERNARY_TYPES or FLOAT_TYPES, or APART
    #: (out, in) for a matrix, (out, in * planes) for a sum of planes, (n,) for a vector, (expert, out, in) for the
    #: matrices of experts
    shape: tuple[int, ...]
    data: memoryview  # format "B", exactly the stored bytes (I2_S: codes, scale, tail)
    scale: float = 1.0  # further multiplier of the matmul's output: HF weight_scale (as a multiplier), GGUF .scale
    layout: str = "128"  # I2_S only: "128", "64" or "1x4"
    #: the meaning of a float matrix: "ternary" (scale x {-1, 0, 1}, or the file is refused), "latent" (to be rounded to
    #: that by its absmean), "dense" (stays float) or "either" (ternary if possible, else dense)
    floats: str = "ternary"
    beside: tuple[Stored, ...] = ()  # MLX only: its scales and biases, see :mod:`edge.formats.mlx`
    apart: tuple[Tensor, ...] = ()  # APART only: the experts, in order
    basis: Basis | None = None  # in which its rows are stored, if it is a rotated one

    @property
    def flat(self) -> tuple[int, int]:
        """Rows and columns of a matrix; the rows of all experts one after the other."""
        return math.prod(self.shape[:-1]), self.shape[-1]

    @property
    def views(self) -> Iterator[memoryview]:
        """All its bytes as they are stored."""
        yield self.data
        yield from (part.data for part in self.beside)
        for expert in self.apart:
            yield from expert.views

    @property
    def mapped(self) -> bool:
        """Whether its bytes lie in a mapped file; those of an outline (:mod:`edge.tools.fit`) will."""
        return isinstance(self.data.obj, Map) or not self.data


@dataclass(frozen=True)
class TokenizerSpec:
    """A tokenizer as stored, not yet built.

    ``kind`` "bpe": ``tokens`` are in the printable alphabet of GPT-2; ``merges`` are "left right" texts in rank order.
    ``pre`` names the pre-tokeniser ("llama-bpe", "qwen2", "gpt-2", "falcon", ...), "" if the file names none;
    ``pattern`` is its regular expression, if the file has one (tokenizer.json).

    ``kind`` "sentencepiece": ``model`` is the serialised ModelProto (tokenizer.model); without it, ``tokens``,
    ``scores`` and ``types`` are the arrays of GGUF.
    """

    kind: str
    tokens: Sequence[str] = ()
    scores: Sequence[float] = ()
    types: Sequence[int] = ()  # 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    merges: Sequence[str] = ()
    pre: str = ""
    pattern: str | None = None
    ignore_merges: bool | None = None
    model: bytes | None = None
    added: Mapping[str, int] = field(default_factory=dict)  # text of an added token -> its id beyond `tokens`
    added_text: frozenset[int] = frozenset()  # those of them that are text, not special
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    pad_id: int | None = None
    unk_id: int | None = None
    add_bos: bool = True
    add_space_prefix: bool = True


@dataclass
class Checkpoint:
    """A model that was described and validated, but not loaded."""

    path: str
    format: str  # "gguf" or "huggingface"
    config: ModelConfig
    tensors: dict[str, Tensor]
    tokenizer: TokenizerSpec
    chat_template: str | None  # the usual one
    metadata: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)  # one-line remarks worth showing ("activation taken as SiLU: ...")
    options: Mapping[str, Any] = field(default_factory=dict)  # of open_checkpoint, as it was opened
    #: what the file does not state: option of open_checkpoint -> possible values, the one in use first
    open: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)  # other chat templates by name, such as "tool_use"
    sampling: Mapping[str, Any] = field(default_factory=dict)  # recommended by the file: field of Sampling -> value
    signs: dict[int, Any] = field(default_factory=dict)  # of bases, as floats: made when the first matrix is built
    maps: tuple[Map, ...] = field(init=False)  # of the files that hold the tensors

    def __post_init__(self) -> None:
        views = (view for each in self.tensors.values() for view in each.views)
        owners = {id(view.obj): view.obj for view in views}
        self.maps = tuple(owner for owner in owners.values() if isinstance(owner, Map))

    def check(self) -> None:
        """Raise InvalidFile if one of the files was cut since it was mapped: what was read from it may be zeros."""
        for each in self.maps:
            each.check()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A context manager for work that reads the files: raises InvalidFile, whatever came of the work, if one of
        them was cut meanwhile.
        """
        try:
            yield
        finally:
            self.check()

    @property
    def quantization(self) -> str:
        """The type in which most weights of the layers are stored, such as I2_S; "" without any."""
        n_weights: dict[str, int] = {}
        for tensor in self.tensors.values():
            if tensor.name.startswith("blk."):
                type = tensor.apart[0].type if tensor.apart else tensor.type
                n_weights[type] = n_weights.get(type, 0) + math.prod(tensor.shape)
        return max(n_weights, key=lambda type: n_weights[type], default="")

    @property
    def planes(self) -> list[Tensor]:
        """The matrices that are sums of planes: all of them, or none."""
        panels = PLANE_TYPES.get(self.config.planes)
        return [tensor for tensor in self.tensors.values() if panels is not None and tensor.type == panels
                and tensor.name.startswith("blk.")]

    @property
    def head(self) -> str:
        """Name of the tensor of the output head: the embedding if the two are tied."""
        return "output.weight" if "output.weight" in self.tensors else "token_embd.weight"
