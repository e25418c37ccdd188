"""Weights: from the tensors of a checkpoint to the compiled transformer.

The only module that assigns stored tensors to the parts of a model.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from edge.config import ModelConfig
from edge.errors import InvalidFile
from edge.formats import names
from edge.formats.checkpoint import Checkpoint, Tensor
from edge.formats.mapped import Map
from edge.formats.matrices import as_groups, packed
from edge.layers import LayerConfig
from edge.registry.encodings import FLOAT_TYPES

if TYPE_CHECKING:
    from pyx.step import Head, Transformer
    from pyx.weights import StoredRows, TernaryMatrix

#: projections whose output is added to the residual stream
RESIDUAL = ("attn_output", "ssm_out", "ffn_down", "ffn_down_exps")
#: norms that include a multiplier of the model: those of the residual stream, if they come last, and that of queries
_VECTOR_FACTORS: dict[str, Callable[[ModelConfig, LayerConfig], float]] = {
    "post_attention_norm": lambda config, layer: config.residual_scale,
    "post_ffw_norm": lambda config, layer: config.residual_scale,
    "attn_q_norm": lambda config, layer: getattr(layer.mixer, "query_scale", 1.0),
}


def build(
    checkpoint: Checkpoint,
    n_threads: int = 1,
    head: str | Head = "auto",
    chunk: int = 128,
    adapt: bool = False,
    cores: Sequence[int] | None = None,
) -> Transformer:
    """The compiled transformer for the checkpoint's tensors.

    ``head``: a kind, see :data:`pyx.step.KINDS`, or a result of :func:`output_head`.  Ternary tensors are used
    directly from the file's map if they have our layout; :mod:`edge.machine.placement` may copy them later.  ``adapt``:
    steps use fewer threads while other programs need the cores, see :class:`pyx.step.Pace`.  ``cores``: on which the
    threads stay, None: any.
    Raises InvalidFile that names the tensor that cannot be used.
    """
    from pyx.step import Transformer

    config = checkpoint.config
    tensors = checkpoint.tensors
    embedding = _rows(checkpoint, "token_embd.weight", n_threads)
    layers = [_layer(checkpoint, index) for index in range(config.n_layer)]
    ternary = any(
        not part.is_dense for layer in layers for name, part in layer.items() if name in names.PROJECTIONS)
    if not ternary and config.activation_quant != "none":
        raise InvalidFile("this model has no ternary matrix; run it with llama.cpp")
    freqs = tensors.get("rope_freqs.weight")
    output_norm = _vector(tensors["output_norm.weight"])
    if config.logit_scale != 1.0:  # the head is linear
        output_norm = array("f", [value * config.logit_scale for value in output_norm])
    output = output_head(checkpoint, head, n_threads) if isinstance(head, str) else head
    basis = _signs(checkpoint, tensors["token_embd.weight"])
    divisors = None if freqs is None else _vector(freqs)
    try:
        return Transformer(
            config, embedding, output, layers, output_norm, divisors, n_threads=n_threads, chunk=chunk, adapt=adapt,
            cores=cores, basis=basis,
        )
    except ValueError as error:
        raise InvalidFile(f"this model cannot be run: {error}") from None


@contextmanager
def _named(name: str) -> Iterator[None]:
    """A context manager: an error of the compiled layer names the tensor."""
    try:
        yield
    except ValueError as error:
        raise InvalidFile(f"tensor {name}: {error}") from None


def _vector(tensor: Tensor) -> Any:
    """A vector as a float32 array [n]."""
    from pyx.weights import StoredRows

    with _named(tensor.name):
        return StoredRows(tensor.type, tensor.data, 1, tensor.shape[0]).row(0)


def _rows(
    checkpoint: Checkpoint, name: str, n_threads: int, groups: bool = False, most: int | None = None
) -> StoredRows:
    """Rows of which each token needs one, read from the file rather than from its map.

    ``groups``: rows of groups, as a projection needs them, if the type can become that.  ``most``: only the first ones.
    """
    from pyx.weights import StoredRows

    n_row, k = checkpoint.config.n_vocab, checkpoint.config.hidden
    tensor = checkpoint.tensors[name]
    with _named(name):
        if groups:
            tensor = as_groups(tensor)
        data = tensor.data
        if most is not None and most < n_row:
            data, n_row = data[: data.nbytes // n_row * most], most
        rows = StoredRows(tensor.type, data, n_row, k)
    source = tensor.data.obj
    if isinstance(source, Map):
        rows.read_from(source, source.file.fileno(), n_threads, source.start)
    return rows


def output_head(checkpoint: Checkpoint, kind: str, n_threads: int = 1, most: int | None = None) -> Head:
    """The output head, made and used with ``n_threads`` threads; ``most``: only its first rows.  Raises InvalidFile."""
    from pyx.step import Head

    name = "token_embd.weight" if kind == "none" else checkpoint.head  # "none" takes only the length of its rows
    rows = _rows(checkpoint, name, n_threads, groups=kind in ("auto", "ternary"), most=most)
    tensor = checkpoint.tensors[name]
    with _named(name):
        head = Head(rows, kind, n_threads)
        if kind != "none" and (basis := _signs(checkpoint, tensor)):
            head.in_basis(*basis)
    return head


def _layer(checkpoint: Checkpoint, index: int) -> dict[str, Any]:
    from pyx.weights import TernaryMatrix

    config = checkpoint.config
    here = config.layers[index]
    prefix = f"blk.{index}."
    layer: dict[str, Any] = {}
    for part in names.layer_parts(here, config.hidden):
        name, _, kind = part.name.rpartition(".")
        tensor = checkpoint.tensors[prefix + part.name]
        if part.role == "vector":
            vector = _vector(tensor)
            factor = _VECTOR_FACTORS[name](config, here) if name in _VECTOR_FACTORS else 1.0
            if factor != 1.0:
                vector = array("f", [value * factor for value in vector])
            layer[part.name if not name else name if kind == "weight" else f"{name}_{kind}"] = vector
        elif part.role in ("matrix", "experts"):
            factor = config.residual_scale if name in RESIDUAL and not here.post_norm else 1.0
            with _named(tensor.name):
                if tensor.experts:
                    matrix = TernaryMatrix.stack([_matrix(config, expert, factor) for expert in tensor.experts])
                else:
                    matrix = _matrix(config, tensor, factor, tensor.shape[-1] // part.shape[-1])
            if basis := _signs(checkpoint, tensor):
                matrix.in_basis(*basis)
            layer[name] = matrix
        elif part.role == "floats":
            with _named(tensor.name):
                layer[name] = TernaryMatrix.dense(tensor.type, tensor.data, *part.shape)
        else:
            raise AssertionError(part)
    return layer


def _signs(checkpoint: Checkpoint, tensor: Tensor) -> tuple[int, Any] | None:
    """(block, signs as float32 [k] or None) of the basis of a tensor, None without one; signs of one width are shared.
    """
    if tensor.basis is None:
        return None
    signs = tensor.basis.signs
    if signs is None:
        return tensor.basis.block, None
    if id(signs) not in checkpoint.signs:
        checkpoint.signs[id(signs)] = array("f", [1.0 if sign == 1 else -1.0 for sign in signs])
    return tensor.basis.block, checkpoint.signs[id(signs)]


def _matrix(config: ModelConfig, tensor: Tensor, factor: float, planes: int = 1) -> TernaryMatrix:
    """A ternary matrix, or a dense one for a float tensor that is not ternary, if the file mixes both on purpose.
    ``factor`` multiplies its output; ``planes``: matrices whose sum it is.
    """
    from pyx.weights import TernaryMatrix

    rows, k = tensor.flat
    exact = config.activation_quant == "none"
    dense = partial(TernaryMatrix.dense, tensor.type, tensor.data, rows, k, scale=tensor.scale * factor)
    if tensor.type in FLOAT_TYPES and (exact or tensor.floats == "dense"):
        return dense()
    try:
        # the experts of a file are looked at when they are read: most of them may stay on the disk
        matrix = packed(tensor, factor, config.activation_group == 128, planes, check=len(tensor.shape) == 2)
    except ValueError as error:
        if tensor.type not in FLOAT_TYPES or tensor.floats != "either" or "dense" not in str(error):
            raise
        return dense()
    if not exact:
        return matrix
    return TernaryMatrix.dense("F32", matrix.sum_planes() if config.planes else _floats(matrix), rows, k // planes)


def _floats(matrix: TernaryMatrix) -> array[float]:
    """The weights of a ternary matrix as floats, [n_row * k]; slow, for the reference without rounding."""
    scales, k = matrix.scales, matrix.k
    per_row = max(1, len(scales) // matrix.n_row)
    group = -(-k // (128 * per_row)) * 128 if per_row > 1 else k
    return array("f", [weight * scales[(i // k * per_row + i % k // group) % len(scales)]
                       for i, weight in enumerate(matrix.unpack())])
