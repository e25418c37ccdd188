"""Checkpoint: the common result of all readers, independent of the file format.

Tensor names are GGUF names (``blk.0.attn_q.weight``); shapes are in NumPy order (out, in); the bytes stay in the file's
memory map until they are used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edge.config import ModelConfig
from edge.errors import UsageError
from edge.formats.mapped import Map
from edge.formats.text_steps import Step
from edge.registry.encodings import ENCODINGS, Encoding

#: the names that a chat template of several may have, and their largest number
TEMPLATE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_TEMPLATES = 32
#: how activations are rounded in models that were not trained with rounded ones
WEIGHT_ONLY = "int8-128"

#: arrangements of I2_S codes
LAYOUTS = ("128", "64", "1x4")
#: Tensor.type of the experts of a layer that are stored one by one (Hugging Face), see Tensor.experts
SEPARATE_EXPERTS = "SEPARATE_EXPERTS"


class Basis(NamedTuple):
    """A rotated basis in which the rows of a matrix are stored, see :mod:`edge.formats.basis`."""

    block: int
    signs: Sequence[int] | None  # 1, or another number for -1, [width]; None: all are 1


class Tensor(NamedTuple):
    """One stored tensor: its bytes, type and shape."""

    name: str
    type: str  # of ENCODINGS, or SEPARATE_EXPERTS
    #: (out, in) for a matrix, (out, in * planes) for a sum of planes, (n,) for a vector, (expert, out, in) for the
    #: matrices of experts
    shape: tuple[int, ...]
    data: memoryview  # format "B", exactly the stored bytes (I2_S: codes, scale, tail)
    scale: float = 1.0  # further multiplier of the matmul's output: HF weight_scale (as a multiplier), GGUF .scale
    layout: str = "128"  # I2_S only: "128", "64" or "1x4"
    #: the meaning of a float matrix: "ternary" (scale x {-1, 0, 1}, or the file is refused), "latent" (to be rounded to
    #: that by its absmean), "dense" (stays float) or "either" (ternary if possible, else dense)
    floats: str = "ternary"
    experts: tuple[Tensor, ...] = ()  # SEPARATE_EXPERTS only: in order
    basis: Basis | None = None  # in which its rows are stored, if it is a rotated one

    @property
    def encoding(self) -> Encoding:
        """The row of its type; separate experts have one of their own each, and no common one."""
        return ENCODINGS.get(self.type) or Encoding(self.type, None, 1, 0)

    @property
    def flat(self) -> tuple[int, int]:
        """Rows and columns of a matrix; the rows of all experts one after the other."""
        return math.prod(self.shape[:-1]), self.shape[-1]

    @property
    def views(self) -> Iterator[memoryview]:
        """All its bytes as they are stored."""
        yield self.data
        for expert in self.experts:
            yield from expert.views

    @property
    def mapped(self) -> bool:
        """True if its bytes lie in a mapped file; those of an outline (:mod:`edge.tools.fit`) will."""
        return isinstance(self.data.obj, Map) or not self.data


class Added(NamedTuple):
    """A token that was added to a vocabulary, as tokenizer.json describes it."""

    id: int
    special: bool = True  # a control token: no text of an answer, and nobody can type it
    lstrip: bool = False  # takes the white space before it along,
    rstrip: bool = False  # and the white space after it
    single_word: bool = False  # is none next to a letter
    normalized: bool = False  # is looked for in normalised text, in its own normal form

    @property
    def choosy(self) -> bool:
        """True if it depends on the text next to it."""
        return self.lstrip or self.rstrip or self.single_word


@dataclass(frozen=True)
class TokenizerSpec:
    """A tokenizer as stored, not yet built.

    ``kind`` "bpe": ``tokens`` are in the printable alphabet of GPT-2; ``merges`` are "left right" texts in rank order.
    ``pre`` names the pre-tokeniser ("llama-bpe", "qwen2", "gpt-2", "falcon", ...), "" if the file names none;
    ``pattern`` is its regular expression, if the file has one (tokenizer.json), and ``pre_tokenizer`` its steps, if it
    takes more than that.  ``ignore_merges``: a piece that is a token is this token, whatever the merges.

    ``normalizer``: the steps that change a text before all others, see :mod:`edge.formats.text_steps`.

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
    normalizer: tuple[Step, ...] = ()
    pre_tokenizer: tuple[Step, ...] = ()
    added: Mapping[str, Added] = field(default_factory=dict)  # by text; some or all may be beyond `tokens`
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    pad_id: int | None = None
    unk_id: int | None = None
    add_bos: bool = True
    add_space_prefix: bool = True


@dataclass(frozen=True)
class Reading:
    """How a file is to be read: what it does not state, or states wrongly.  Raises UsageError for values not known.

    ``i2s_layout``: one of LAYOUTS; "auto" is 128 until :mod:`edge.model.interpretation` tests it.  ``activation``:
    "relu2" or "silu", instead of the file's.  ``inverted``: the scales of I2_S and packed matrices divide.
    ``ternarise``: matrices of floats are rounded to ternary ones by their absmean.  ``dense``: the model is an ordinary
    one, whose matrices are floats and stay so.
    """

    i2s_layout: str = "auto"
    activation: str | None = None
    inverted: bool = False
    ternarise: bool = False
    dense: bool = False

    def __post_init__(self) -> None:
        if self.i2s_layout not in ("auto", *LAYOUTS):
            raise UsageError(f"i2s layout {self.i2s_layout!r} is not known; use auto or one of {', '.join(LAYOUTS)}")
        if self.activation not in (None, "relu2", "silu"):
            raise UsageError(f"activation {self.activation!r} is not known; use relu2 or silu")


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
    reading: Reading = Reading()  # noqa: RUF009  frozen
    #: facts that the file does not state: field of Reading -> possible values, the one in use first
    open: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)  # other chat templates by name, such as "tool_use"
    sampling: Mapping[str, Any] = field(default_factory=dict)  # recommended by the file: field of Sampling -> value
    signs: dict[int, Any] = field(default_factory=dict)  # of bases, as floats: made when the first matrix is built
    maps: tuple[Map, ...] = field(init=False)  # of the files that hold the tensors

    def __post_init__(self) -> None:
        views = (view for each in self.tensors.values() for view in each.views)
        owners = {id(view.obj): view.obj for view in views}
        self.maps = tuple(owner for owner in owners.values() if isinstance(owner, Map))

    @property
    def quantization(self) -> str:
        """The type in which most weights of the layers are stored, such as I2_S; "" without any."""
        n_weights: dict[str, int] = {}
        for tensor in self.tensors.values():
            if tensor.name.startswith("blk."):
                type = tensor.experts[0].type if tensor.experts else tensor.type
                n_weights[type] = n_weights.get(type, 0) + math.prod(tensor.shape)
        return max(n_weights, key=lambda type: n_weights[type], default="")

    @property
    def head(self) -> str:
        """Name of the tensor of the output head: the embedding if the two are tied."""
        return "output.weight" if "output.weight" in self.tensors else "token_embd.weight"
