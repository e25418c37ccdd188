"""Weights: from the tensors of a checkpoint to the compiled transformer.

The only place that knows which stored tensor becomes which part of a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge.errors import InvalidFile
from edge.formats.checkpoint import FLOAT_TYPES, TERNARY_TYPES, Checkpoint, Tensor
from edge.formats.mapped import Map

if TYPE_CHECKING:
    from pyx.head import Head
    from pyx.table import Table
    from pyx.transformer import Transformer

#: projections of a layer: name -> (rows, columns) as attributes of ModelConfig
PROJECTIONS = {
    "attn_q": ("q_dim", "hidden"),
    "attn_k": ("kv_dim", "hidden"),
    "attn_v": ("kv_dim", "hidden"),
    "attn_output": ("hidden", "q_dim"),
    "ffn_gate": ("ffn", "hidden"),
    "ffn_up": ("ffn", "hidden"),
    "ffn_down": ("hidden", "ffn"),
}
#: norms of a layer: name -> width as attribute of ModelConfig
NORMS = {"attn_norm": "hidden", "ffn_norm": "hidden"}
SUB_NORMS = {"attn_sub_norm": "q_dim", "ffn_sub_norm": "ffn"}


def build(
    checkpoint: Checkpoint, n_threads: int = 1, head: str | Head = "auto", chunk: int = 128
) -> Transformer:
    """The compiled transformer over the checkpoint's tensors.

    ``head``: a kind, see :mod:`pyx.head`, or one that :func:`output_head` has made.  Ternary tensors are used where
    they lie in the file's map, if their layout is ours; :mod:`edge.placement` may move them.  Raises InvalidFile naming
    the tensor that is missing or does not fit.
    """
    from pyx.transformer import Transformer

    config = checkpoint.config
    embedding = _rows(checkpoint, "token_embd.weight", n_threads)
    layers = [_layer(checkpoint, index) for index in range(config.n_layer)]
    if not any(not layer[name].is_dense for layer in layers for name in PROJECTIONS):
        raise InvalidFile("no projection of this model is ternary: it is a dense model, which other runtimes serve")
    freqs = checkpoint.tensors.get("rope_freqs.weight")
    output = output_head(checkpoint, head, n_threads) if isinstance(head, str) else head
    return Transformer(
        config,
        embedding,
        output,
        layers,
        _vector(checkpoint, "output_norm.weight", config.hidden),
        rope_freqs=None if freqs is None else _vector(checkpoint, freqs.name, config.rope_dim // 2),
        n_threads=n_threads,
        chunk=chunk,
    )


def _tensor(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> Tensor:
    tensor = checkpoint.tensors.get(name)
    if tensor is None:
        raise InvalidFile(f"tensor {name} is missing: the file is incomplete or of another architecture")
    if tuple(tensor.shape) != shape:
        raise InvalidFile(f"tensor {name} has shape {tuple(tensor.shape)}, the model's configuration asks for {shape}")
    return tensor


def _vector(checkpoint: Checkpoint, name: str, n: int) -> Any:
    """A vector as float32 array [n]."""
    from pyx.table import Table

    tensor = _tensor(checkpoint, name, (n,))
    try:
        return Table(tensor.type, tensor.data, 1, n).row(0)
    except ValueError as error:
        raise InvalidFile(f"tensor {name}: {error}") from None


def _table(checkpoint: Checkpoint, name: str, n_row: int, k: int) -> Table:
    from pyx.table import Table

    tensor = _tensor(checkpoint, name, (n_row, k))
    try:
        return Table(tensor.type, tensor.data, n_row, k)
    except ValueError as error:
        raise InvalidFile(f"tensor {name}: {error}") from None


def _rows(checkpoint: Checkpoint, name: str, n_threads: int) -> Table:
    """A table of one row a token, read from the file rather than from its map."""
    config = checkpoint.config
    table = _table(checkpoint, name, config.n_vocab, config.hidden)
    source = checkpoint.tensors[name].data.obj
    if isinstance(source, Map):
        table.read_from(source, source.file.fileno(), n_threads)
    return table


def output_head(checkpoint: Checkpoint, kind: str, n_threads: int = 1) -> Head:
    """The output head, made and used by ``n_threads``.  Raises InvalidFile."""
    from pyx.head import Head

    return Head(_rows(checkpoint, checkpoint.head, n_threads), kind, n_threads)


def _layer(checkpoint: Checkpoint, index: int) -> dict[str, Any]:
    config = checkpoint.config
    prefix = f"blk.{index}."
    layer: dict[str, Any] = {}
    for name, width in NORMS.items():
        layer[name] = _vector(checkpoint, f"{prefix}{name}.weight", getattr(config, width))
    for name, width in SUB_NORMS.items():
        if config.sub_norm:
            layer[name] = _vector(checkpoint, f"{prefix}{name}.weight", getattr(config, width))
    for name, (rows, columns) in PROJECTIONS.items():
        shape = getattr(config, rows), getattr(config, columns)
        layer[name] = _projection(checkpoint, f"{prefix}{name}.weight", shape)
    return layer


def _projection(checkpoint: Checkpoint, name: str, shape: tuple[int, int]) -> Any:
    """A ternary matrix; a float tensor that is not ternary stays dense when the file mixes both on purpose."""
    from pyx.ternary import TernaryMatrix

    tensor = _tensor(checkpoint, name, shape)
    marked = bool(checkpoint.metadata.get("ternary_marker", False))
    try:
        if tensor.type in TERNARY_TYPES or tensor.type in ("F32", "F16", "BF16"):
            try:
                return TernaryMatrix.pack(
                    tensor.type, tensor.data, *shape, scale=tensor.scale, layout=tensor.layout, quantize=marked
                )
            except ValueError as error:
                if checkpoint.format != "gguf" or "dense" not in str(error):
                    raise
        if tensor.type in FLOAT_TYPES:
            return TernaryMatrix.dense(tensor.type, tensor.data, *shape, scale=tensor.scale)
        raise ValueError(f"type {tensor.type} is not supported")
    except ValueError as error:
        raise InvalidFile(f"tensor {name}: {error}") from None
