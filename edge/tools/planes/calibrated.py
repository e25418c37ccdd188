"""Planes made with a text that the model reads: errors that the text shows are made up for, and measured.

The model made so far reads the text layer by layer, with inputs rounded as the engine rounds them.  At each stage its
inputs decide how the weights are rounded with error feedback (``feedback``); the result gives the inputs of the next.
The last texts are held out: nothing is fitted to them.  They are also read by the model in floats, and at the end both
predictions of them are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edge.config import ModelConfig
from edge.tools.planes import feedback, forward

Floats = np.ndarray

_ROWS = 256  # of logits at once


class DenseModel(NamedTuple):
    """A dense model: its configuration as it will be written, and its numbers by tensor name."""

    config: ModelConfig
    matrix: Callable[[str], Floats]  # float32 [n_row][k]
    vector: Callable[[str], Floats]  # float32 [n]
    rows: Callable[[Floats], Floats]  # rows of the embedding by token, float32 [n][hidden]
    head: Callable[[int, int], Floats]  # rows [first, stop) of the output head, float32
    divisors: Floats | None = None  # of the rotation, [rope_dim / 2], where the file has them


class Made(NamedTuple):
    """The planes of one matrix; ``codes`` None: it was made before."""

    name: str
    codes: Floats | None  # int8 [n_plane][n_row][k]
    scales: Floats | None  # float32 [n_plane][n_row][k / group]
    error: float  # sum of the squares of the errors of its weights
    whole: float  # sum of the squares of its weights


@dataclass
class Loss:
    """How much the predictions of the held-out text differ from those of the float run."""

    tokens: int
    kl: float  # nats
    same: float  # share of tokens with the same first choice
    perplexity: float  # of the float run
    ratio: float  # of the perplexities


def name(index: int, kind: str) -> str:
    """The name of a matrix."""
    return f"blk.{index}.{kind}.weight"


def embedded(source: DenseModel, texts: Floats) -> Floats:
    """Hidden states [text][n][hidden] of tokens [text][n]."""
    c = source.config
    return source.rows(texts.reshape(-1)).reshape(*texts.shape, c.hidden) * np.float32(c.embedding_scale)


def layer_vectors(source: DenseModel, index: int) -> Callable[[str], Floats]:
    """The vectors of a layer by name."""
    return lambda kind: source.vector(f"blk.{index}.{kind}")


class Calibration:
    """The planes of all matrices, in the order of :data:`edge.tools.planes.forward.STAGES`.

    ``texts``: tokens [text][n], of which the last ``held`` texts are held out.  ``n_plane``: planes of each matrix.
    ``kept``: gives the weights of a matrix that an earlier run has made, None: it is not there.
    """

    def __init__(
        self, source: DenseModel, texts: Floats, held: int, n_plane: Callable[[str], int], group: int, n_threads: int,
        kept: Callable[[str], Floats | None] = lambda name: None,
    ) -> None:
        self.source, self.texts, self.held = source, texts, held
        self.n_plane, self.group, self.n_threads, self.kept = n_plane, group, n_threads, kept
        self.ours = embedded(source, texts)
        self.exact = self.ours[len(texts) - held :]

    def run(self) -> Iterator[Made]:
        """Make all matrices; the last hidden states are in ``exact`` (held-out texts) and ``ours`` afterwards."""
        c = self.source.config
        for index in range(c.n_layer):
            vector = layer_vectors(self.source, index)
            exact, ours = (
                forward.layer(c, index, h, vector, self.source.divisors) for h in (self.exact, self.ours))
            x, y = next(exact), next(ours)
            for stage, kinds in enumerate(forward.STAGES):
                y = forward.rounded(y, self.group)
                about: feedback.Factor | None = None
                x_out, y_out = [], []
                for kind in kinds:
                    weights = self.source.matrix(name(index, kind))
                    x_out.append(product(x, weights))
                    new = self.kept(name(index, kind))
                    made = Made(name(index, kind), None, None, 0.0, 0.0)
                    if new is None:
                        about = about or self._factor(y)
                        codes, scales, new = feedback.planes(
                            weights, about, self.n_plane(name(index, kind)), self.group, self.n_threads)
                        made = made._replace(codes=codes, scales=scales, error=squares(weights - new),
                                             whole=squares(weights))
                    y_out.append(product(y, new))
                    yield made
                if stage < len(forward.STAGES) - 1:
                    x, y = exact.send(x_out), ours.send(y_out)
                else:
                    self.exact, self.ours = returned(exact, x_out), returned(ours, y_out)

    def _factor(self, y: Floats) -> feedback.Factor:
        """What the inputs [text][n][k] of a stage say, without those of texts that are held out."""
        y = y[: len(y) - self.held].reshape(-1, y.shape[-1])
        return feedback.factor(feedback.damped((y.T @ y).astype(np.float64)), self.group)

    def loss(self) -> Loss:
        """Compare both runs on the held-out texts, after :meth:`run`."""
        n = len(self.texts) - self.held
        return compared(self.source, self.exact, self.ours[n:], self.texts[n:])


def product(x: Floats, weights: Floats) -> Floats:
    """[text][n][k] times a matrix [n_row][k], as one product: those of single texts are too small for threads."""
    return (x.reshape(-1, x.shape[-1]) @ weights.T).reshape(*x.shape[:-1], len(weights))


def squares(x: Floats) -> float:
    """The sum of the squares."""
    return float(np.einsum("ij,ij->", x, x, dtype=np.float64))


def returned(run: Generator[Floats, list[Floats], Floats], products: list[Floats]) -> Floats:
    """The hidden states that a layer gives after its last products."""
    try:
        run.send(products)
    except StopIteration as end:
        states: Floats = end.value
        return states
    raise AssertionError("a layer has another stage")


def logits(source: DenseModel, h: Floats) -> Floats:
    """Logits [n][vocabulary] of hidden states [n][hidden]."""
    c = source.config
    x = forward.rms(h, source.vector("output_norm.weight"), c.eps) * np.float32(c.logit_scale)
    step = max(1, (64 << 20) // (4 * c.hidden))
    return np.concatenate([x @ source.head(at, min(at + step, c.n_vocab)).T for at in range(0, c.n_vocab, step)], 1)


def log_softmax(x: Floats) -> Floats:
    """Logarithms of probabilities, over the last axis."""
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def compared(source: DenseModel, exact: Floats, ours: Floats, texts: Floats) -> Loss:
    """Predictions from hidden states [text][n][hidden] of both runs."""
    n = texts.shape[1]
    kl = same = nats = ours_nats = 0.0
    for text in range(len(texts)):
        for at in range(0, n, _ROWS):
            p, q = (log_softmax(logits(source, each[text, at : at + _ROWS])) for each in (exact, ours))
            kl += float((np.exp(p) * (p - q)).sum(dtype=np.float64))
            same += float((p.argmax(-1) == q.argmax(-1)).sum())
            following = texts[text, at + 1 : at + 1 + len(p)]
            nats -= float(p[np.arange(len(following)), following].sum(dtype=np.float64))
            ours_nats -= float(q[np.arange(len(following)), following].sum(dtype=np.float64))
    count, predicted = texts.size, len(texts) * (n - 1)
    return Loss(count, kl / count, same / count, math.exp(nats / predicted), math.exp((ours_nats - nats) / predicted))


# ---- number of planes ------------------------------------------------------------------------------------------------


class Sensitivity(NamedTuple):
    """How much one matrix loses with 1, 2, ... planes of its own, the others in floats; nats."""

    name: str
    size: int
    nats: tuple[float, ...]


def sensitivities(
    source: DenseModel, text: Floats, rough: Callable[[str], tuple[Floats, tuple[float, ...]]],
    progress: Callable[[float], None] = lambda share: None,
) -> list[Sensitivity]:
    """Measure every matrix alone, all in one pass: copies of a text [n], one for each matrix, run side by side.

    ``rough``: gives a matrix whose weights are changed a little, and the relative squared errors of it with 1, 2, ...
    planes: the divergence grows as the error.
    """
    c = source.config
    kinds = [kind for stage in forward.STAGES for kind in stage]
    h = embedded(source, text[None])
    errors: list[tuple[str, int, float, tuple[float, ...]]] = []
    for index in range(c.n_layer):
        first = len(h)
        h = np.concatenate([h, np.repeat(h[:1], len(kinds), 0)])
        run = forward.layer(c, index, h, layer_vectors(source, index), source.divisors)
        x = next(run)
        for stage, these in enumerate(forward.STAGES):
            out = []
            for kind in these:
                weights = source.matrix(name(index, kind))
                changed, relative = rough(name(index, kind))
                y = product(x, weights)
                copy = first + kinds.index(kind)
                y[copy] = x[copy] @ changed.T
                out.append(y)
                error = squares(weights - changed) / squares(weights)
                errors.append((name(index, kind), weights.size, error, relative))
            if stage < len(forward.STAGES) - 1:
                x = run.send(out)
            else:
                h = returned(run, out)
        progress((index + 1) / c.n_layer)
    exact = log_softmax(logits(source, h[0]))
    chances = np.exp(exact)
    found, n = [], max(1, _ROWS // len(text))  # copies at once: the head is decoded once for all of them
    for at in range(0, len(errors), n):
        copies = h[at + 1 : at + 1 + n]
        q = log_softmax(logits(source, copies.reshape(-1, copies.shape[-1]))).reshape(len(copies), *exact.shape)
        for (matrix, size, error, relative), other in zip(errors[at : at + n], q, strict=True):
            kl = float((chances * (exact - other)).sum(dtype=np.float64)) / len(exact)
            found.append(Sensitivity(
                matrix, size, tuple(max(kl, 0.0) * each / max(error, 1e-30) for each in relative)))
    return found


def shared_out(found: list[Sensitivity], most_planes: float, most_nats: float) -> dict[str, int]:
    """Planes of each matrix: always the next one where it saves most nats per weight, as long as planes per weight stay
    within ``most_planes``, and until the losses add up to at most ``most_nats``.
    """
    count = {each.name: 1 for each in found}
    size = sum(each.size for each in found)
    used, nats = 1.0, sum(each.nats[0] for each in found)
    while nats > most_nats:
        gains = [((each.nats[count[each.name] - 1] - each.nats[count[each.name]]) / each.size, i)
                 for i, each in enumerate(found)
                 if count[each.name] < len(each.nats) and used + each.size / size <= most_planes + 1e-9]
        if not gains:
            break
        best = found[max(gains, key=lambda gain: (gain[0], -gain[1]))[1]]
        nats -= best.nats[count[best.name] - 1] - best.nats[count[best.name]]
        count[best.name] += 1
        used += best.size / size
    return count
