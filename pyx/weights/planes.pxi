"""planes: dense matrices as sums of ternary planes:
W [n_row][k] ~ sum over p of scale[p][row][group] * code[p][row][col].

The search for each group of columns is in kernels/fit_planes.c.  Rows are shared among threads; every group is fitted
by itself and errors are added in the order of the rows, so the result does not depend on the number of threads.
"""

cdef extern from "kernels.h" nogil:
    double fit_planes(const float *w, int64_t k, int n, int n_plane, float *scale, int64_t scale_stride, int8_t *code,
                      int64_t stride)

cdef extern from "numbers.h" nogil:
    uint32_t float_bits(float x)
    float bits_float(uint32_t u)
    uint16_t float_half(float x)


def all_floats(StoredRows rows not None, which=None, int n_threads=1):
    """Rows as float32, a memoryview [n * k].  ``which``: the numbers of these n rows, None: all."""
    cdef int64_t k = rows.k, i
    cdef const int64_t[::1] old = array.array("q", range(rows.n_row) if which is None else which)    # [n]
    if not old.shape[0] or min(old) < 0 or max(old) >= rows.n_row:
        raise ValueError("there are no such rows")
    out = memoryview(bytearray(4 * old.shape[0] * k)).cast("f")
    cdef float[::1] w = out
    n_threads = claim(n_threads)
    for i in prange(old.shape[0], nogil=True, num_threads=n_threads, schedule="static"):
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
    cdef int64_t row, n_group, i
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
    for row in prange(n_row, nogil=True, num_threads=n_threads, schedule="dynamic"):
        errors[row] = fit_planes(&w[row * k], k, group, n_plane, &found[row * n_group], n_row * n_group, &code[row * k],
                                 n_row * k)
        for i in range(row * k, (row + 1) * k):
            wholes[row] += <double>w[i] * w[i]
    error = whole = 0
    for row in range(n_row):
        if not errors[row] >= 0:
            raise ValueError("a weight is not a finite number of 16 bits")
        error += errors[row]
        whole += wholes[row]
    return codes, scales, error, whole


def to_q8_0(const float[::1] row not None):
    """Blocks of 32 values: float16 d = max|x| / 127, then 32 int8 round(x / d), halves away from zero as in ggml.

    Raises ValueError for values that are not finite or too large, or that do not fill whole blocks.
    """
    cdef int64_t n = row.shape[0], b, i
    cdef double d, x
    cdef float largest, odd
    if n % 32:
        raise ValueError(f"{n} values are not blocks of 32")
    out = bytearray(n // 32 * 34)
    cdef uint8_t[::1] data = out
    cdef uint16_t half
    for b in range(n // 32):
        largest = 0
        for i in range(32 * b, 32 * b + 32):
            if not fabsf(row[i]) <= FLT_MAX:
                raise ValueError("a value is not finite")
            largest = max(largest, fabsf(row[i]))
        d = largest / <double>127
        odd = <float>d
        if odd != d:    # odd, so that the rounding to a half is the only one
            if odd > d:
                odd = nextafterf(odd, 0)
            odd = bits_float(float_bits(odd) | 1)
        half = float_half(odd)
        if half == 0x7c00:
            raise ValueError("a scale is beyond float16")
        memcpy(&data[34 * b], &half, 2)
        for i in range(32):
            x = row[32 * b + i] / d if d else 0
            data[34 * b + 2 + i] = <uint8_t><int8_t><int>(x + (-0.5 if x < 0 else 0.5))
    return out
