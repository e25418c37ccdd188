"""planes: dense matrices as sums of ternary planes:
W [n_row][k] ~ sum over p of scale[p][row][group] * code[p][row][col].

The search for each group of columns is in kernels/fit_planes.c.  Rows are shared among threads; every group is fitted
by itself and errors are added in the order of the rows, so the result does not depend on the number of threads.
"""

from array import array

from libc.stdint cimport int8_t, int64_t
from cython.parallel cimport prange

from pyx.machine.cpu cimport GROUP, MOST_PLANES
from pyx.weights.stored_rows cimport StoredRows
from pyx.machine.team cimport claim

cdef extern from "fit_planes.h" nogil:
    double fit_planes(const float *w, const float *importance, int n, int n_plane, float *scale, int8_t *code,
                      int64_t stride)
    double feed_planes(const float *w, const float *u, const float *v, int n, int n_plane, float *scale, int8_t *code,
                       int64_t stride, float *missed)

def floats(StoredRows rows not None, order=None, int n_threads=1):
    """All rows as float32, a memoryview [n_row * k].  ``order``: the old row of each new one, None: as they are."""
    cdef int64_t n_row = rows.n_row, k = rows.k, i
    cdef const int64_t[::1] old = array("q", range(n_row) if order is None else order)    # [n_row]
    if old.shape[0] != n_row or min(old) < 0 or max(old) >= n_row:
        raise ValueError("the order does not name each row")
    out = memoryview(bytearray(4 * n_row * k)).cast("f")
    cdef float[::1] w = out
    n_threads = claim(n_threads)
    for i in prange(n_row, nogil=True, num_threads=n_threads, schedule="static"):
        rows.row_into(old[i], &w[i * k])
    return out


def fit(weights, int64_t n_row, int64_t k, int group, int n_plane, int n_threads=1, importance=None):
    """Fit ``n_plane`` planes with a scale per ``group`` columns.

    ``weights``: float32 [n_row * k]; ``importance``: float32 [k], the weight of each column's squared error, None: all
    the same.  Returns codes int8 [n_plane * n_row * k], scales float32 [n_plane * n_row * k / group], each a half
    precision number >= 0, and the sums of squares of the errors and of the weights.

    Raises ValueError for sizes that do not fit, or weights that are not finite or beyond half precision.
    """
    cdef const float[::1] w = weights
    cdef const float[::1] important
    cdef const float *column = NULL
    cdef int64_t row, n_group
    cdef double error, whole
    if not 1 <= n_plane <= MOST_PLANES or not 1 <= group <= GROUP or n_row < 1 or k < 1 or k % group:
        raise ValueError(f"{n_plane} planes with groups of {group} do not fit a matrix of {n_row} x {k}")
    if w.shape[0] != n_row * k:
        raise ValueError(f"{w.shape[0]} weights, but a matrix of {n_row} x {k}")
    if importance is not None:
        important = importance
        if important.shape[0] != k:
            raise ValueError(f"importance of {important.shape[0]} columns of {k}")
        column = &important[0]
    n_group = k // group
    codes = memoryview(bytearray(n_plane * n_row * k)).cast("b")
    scales = memoryview(bytearray(4 * n_plane * n_row * n_group)).cast("f")
    cdef int8_t[::1] code = codes
    cdef float[::1] found = scales
    cdef double[::1] errors = array("d", bytes(8 * n_row)), wholes = array("d", bytes(8 * n_row))
    n_threads = claim(n_threads)
    for row in prange(n_row, nogil=True, num_threads=n_threads, schedule="dynamic", chunksize=8):
        fit_row(&w[row * k], column, row, n_row, k, group, n_plane, &found[0], &code[0], &errors[row], &wholes[row])
    error = whole = 0
    for row in range(n_row):
        if not errors[row] >= 0:
            raise ValueError("a weight is not a finite number of 16 bits")
        error += errors[row]
        whole += wholes[row]
    return codes, scales, error, whole


cdef void fit_row(const float *w, const float *importance, int64_t row, int64_t n_row, int64_t k, int group,
                  int n_plane, float *scales, int8_t *codes, double *error, double *whole) noexcept nogil:
    """One row of :func:`fit`; error: -1 if it cannot be fitted."""
    cdef int64_t g, p, i, n_group = k // group
    cdef float scale[MOST_PLANES]
    cdef double e
    error[0] = whole[0] = 0
    for g in range(n_group):
        e = fit_planes(w + g * group, importance + g * group if importance != NULL else NULL, group, n_plane, scale,
                       codes + row * k + g * group, n_row * k)
        for p in range(n_plane):
            scales[(p * n_row + row) * n_group + g] = scale[p]
        if not e >= 0:
            error[0] = -1
            return
        error[0] += e
        for i in range(g * group, g * group + group):
            whole[0] += <double>w[i] * w[i]


def feed(weights, u, v, int n_plane, codes, scales, missed, int n_threads=1):
    """One group of columns of all rows, as in GPTQ.

    ``weights``: float32 [n_row][group], corrected for the groups before; ``u``: float32 [group][group], the block of
    the upper Cholesky factor of the inverse Hessian, ``v`` its inverse.  Writes ``codes`` int8 [n_plane][n_row][group],
    ``scales`` float32 [n_plane][n_row] and ``missed`` float32 [n_row][group]: what the groups behind have to make up
    for
    is missed times the rows of the factor.  Returns the sum of the squares of missed.

    Raises ValueError for sizes that do not fit, or weights that are not finite or beyond half precision.
    """
    cdef const float[:, ::1] w = weights, factor = u, inverse = v
    cdef int8_t[:, :, ::1] code = codes
    cdef float[:, ::1] scale = scales, left = missed
    cdef int64_t n_row = w.shape[0], row
    cdef int group = <int>w.shape[1]
    shapes = [tuple(each.shape[:each.ndim]) for each in (codes, scales, missed, u, v)]
    if not 1 <= n_plane <= MOST_PLANES or not 1 <= group <= GROUP or n_row < 1 or shapes != [
            (n_plane, n_row, group), (n_plane, n_row), (n_row, group), (group, group), (group, group)]:
        raise ValueError(f"{n_plane} planes of {n_row} x {group} do not fit {shapes}")
    cdef double total = 0
    cdef double[::1] errors = array("d", bytes(8 * n_row))
    n_threads = claim(n_threads)
    for row in prange(n_row, nogil=True, num_threads=n_threads, schedule="dynamic", chunksize=8):
        errors[row] = feed_row(&w[row, 0], &factor[0, 0], &inverse[0, 0], row, n_row, group, n_plane, &scale[0, 0],
                               &code[0, 0, 0], &left[row, 0])
    for row in range(n_row):
        if not errors[row] >= 0:
            raise ValueError("a weight is not a finite number of 16 bits")
        total += errors[row]
    return total


cdef double feed_row(const float *w, const float *u, const float *v, int64_t row, int64_t n_row, int group, int n_plane,
                     float *scales, int8_t *codes, float *missed) noexcept nogil:
    """One row of :func:`feed`."""
    cdef float scale[MOST_PLANES]
    cdef int p
    cdef double error = feed_planes(w, u, v, group, n_plane, scale, codes + row * group, n_row * group, missed)
    for p in range(n_plane):
        scales[p * n_row + row] = scale[p]
    return error
