"""planes: dense matrices as sums of ternary planes:
W [n_row][k] ~ sum over p of scale[p][row][group] * code[p][row][col].

The search for each group of columns is in kernels/fit_planes.c.  Rows are shared among threads; every group is fitted
by itself and errors are added in the order of the rows, so the result does not depend on the number of threads.
"""

cdef extern from "kernels.h" nogil:
    double fit_planes(const float *w, int n, int n_plane, float *scale, int8_t *code, int64_t stride)


def all_floats(StoredRows rows not None, order=None, int n_threads=1):
    """All rows as float32, a memoryview [n_row * k].  ``order``: the old row of each new one, None: as they are."""
    cdef int64_t n_row = rows.n_row, k = rows.k, i
    cdef const int64_t[::1] old = array.array("q", range(n_row) if order is None else order)    # [n_row]
    if old.shape[0] != n_row or min(old) < 0 or max(old) >= n_row:
        raise ValueError("the order does not name each row")
    out = memoryview(bytearray(4 * n_row * k)).cast("f")
    cdef float[::1] w = out
    n_threads = claim(n_threads)
    for i in prange(n_row, nogil=True, num_threads=n_threads, schedule="static"):
        rows.row_into(old[i], &w[i * k])
    return out


def fit_matrix(weights, int64_t n_row, int64_t k, int group, int n_plane, int n_threads=1):
    """Fit ``n_plane`` planes with a scale per ``group`` columns.

    ``weights``: float32 [n_row * k].  Returns codes int8 [n_plane * n_row * k], scales float32
    [n_plane * n_row * k / group], each a half precision number >= 0, and the sums of squares of the errors and of the
    weights.

    Raises ValueError for sizes that do not fit, or weights that are not finite or beyond half precision.
    """
    cdef const float[::1] w = weights
    cdef int64_t row, n_group
    cdef double error, whole
    if not 1 <= n_plane <= MOST_PLANES or not 1 <= group <= GROUP or n_row < 1 or k < 1 or k % group:
        raise ValueError(f"{n_plane} planes with groups of {group} do not fit a matrix of {n_row} x {k}")
    if w.shape[0] != n_row * k:
        raise ValueError(f"{w.shape[0]} weights, but a matrix of {n_row} x {k}")
    n_group = k // group
    codes = memoryview(bytearray(n_plane * n_row * k)).cast("b")
    scales = memoryview(bytearray(4 * n_plane * n_row * n_group)).cast("f")
    cdef int8_t[::1] code = codes
    cdef float[::1] found = scales
    cdef double[::1] errors = array.array("d", bytes(8 * n_row)), wholes = array.array("d", bytes(8 * n_row))
    n_threads = claim(n_threads)
    for row in prange(n_row, nogil=True, num_threads=n_threads, schedule="dynamic", chunksize=8):
        fit_row(&w[row * k], row, n_row, k, group, n_plane, &found[0], &code[0], &errors[row], &wholes[row])
    error = whole = 0
    for row in range(n_row):
        if not errors[row] >= 0:
            raise ValueError("a weight is not a finite number of 16 bits")
        error += errors[row]
        whole += wholes[row]
    return codes, scales, error, whole


cdef void fit_row(const float *w, int64_t row, int64_t n_row, int64_t k, int group, int n_plane, float *scales,
                  int8_t *codes, double *error, double *whole) noexcept nogil:
    """One row of :func:`fit_matrix`; error: -1 if it cannot be fitted."""
    cdef int64_t g, p, i, n_group = k // group
    cdef float scale[MOST_PLANES]
    cdef double e
    error[0] = whole[0] = 0
    for g in range(n_group):
        e = fit_planes(w + g * group, group, n_plane, scale, codes + row * k + g * group, n_row * k)
        for p in range(n_plane):
            scales[(p * n_row + row) * n_group + g] = scale[p]
        if not e >= 0:
            error[0] = -1
            return
        error[0] += e
        for i in range(g * group, g * group + group):
            whole[0] += <double>w[i] * w[i]
