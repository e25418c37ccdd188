"""Planes with error feedback: what rounding a column misses is put on the columns that are still floats.

GPTQ (arXiv 2210.17323) with levels that are fitted for each group of columns after it was corrected: of a row, the
squared error of the outputs over the calibration text is, once the later columns have made up for what they can, the
sum of the squares of ``missed``; codes and scales of a group are chosen for the least of these
(pyx/weights/planes.pyx).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyx.weights.planes import feed

Floats = np.ndarray

#: share of the mean of the Hessian's diagonal that is added to it
DAMPING = 0.01


class Factor(NamedTuple):
    """What the inputs of a stage say about its columns; the same for all matrices that read them."""

    order: Floats  # int [k]: columns as they are rounded; groups stay together
    upper: Floats  # float32 [k][k]: upper Cholesky factor of the inverse Hessian, in this order
    inverses: list[Floats]  # of its blocks on the diagonal, float32 [group][group]


def damped(hessian: Floats) -> Floats:
    """The Hessian X'X [k][k] with DAMPING, so that it can be inverted."""
    return hessian + np.eye(len(hessian)) * (DAMPING * max(float(np.trace(hessian)) / len(hessian), 1e-12))


def factor(hessian: Floats, group: int) -> Factor:
    """``hessian`` [k][k], damped.  The columns with the largest inputs are rounded first, groups by their sum."""
    weight = np.diag(hessian).reshape(-1, group)
    inside = np.argsort(-weight, 1, kind="stable")
    order = np.concatenate([inside[g] + g * group for g in np.argsort(-weight.sum(1), kind="stable")])
    upper = np.linalg.cholesky(np.linalg.inv(hessian[np.ix_(order, order)])).T
    blocks = [upper[at : at + group, at : at + group] for at in range(0, len(order), group)]
    return Factor(order, np.ascontiguousarray(upper, np.float32),
                  [np.ascontiguousarray(np.linalg.inv(each), np.float32) for each in blocks])


def planes(weights: Floats, about: Factor, n_plane: int, group: int, n_threads: int) -> tuple[Floats, Floats, Floats]:
    """Codes int8 [n_plane][n_row][k], scales float32 [n_plane][n_row][k / group] and their sum float32 [n_row][k] for
    ``weights`` float32 [n_row][k].

    Raises ValueError for weights that are not finite or beyond half precision.
    """
    n_row, k = weights.shape
    rest = weights[:, about.order]
    codes = np.empty((n_plane, n_row, k), np.int8)
    scales = np.empty((n_plane, n_row, k // group), np.float32)
    for block, at in enumerate(range(0, k, group)):
        code, scale = np.empty((n_plane, n_row, group), np.int8), np.empty((n_plane, n_row), np.float32)
        missed = np.empty((n_row, group), np.float32)
        upper = np.ascontiguousarray(about.upper[at : at + group, at : at + group])
        part = np.ascontiguousarray(rest[:, at : at + group])
        feed(part, upper, about.inverses[block], n_plane, code, scale, missed, n_threads)
        rest[:, at + group :] -= missed @ about.upper[at : at + group, at + group :]
        columns = about.order[at : at + group]
        codes[:, :, columns], scales[:, :, columns[0] // group] = code, scale
    return codes, scales, restored(codes, scales)


def restored(codes: Floats, scales: Floats) -> Floats:
    """The weights [n_row][k] that planes stand for."""
    n_plane, n_row, k = codes.shape
    parts = codes.reshape(n_plane, n_row, -1, k // scales.shape[2]) * scales[..., None]
    return parts.sum(0, dtype=np.float32).reshape(n_row, k)
