"""projection: y = W x over packed ternary matrices (or dense ones that were left unquantised), a range of rows at a
time.

y = (sum code * x8 - sum x8) / s * scale, with exact integers; the offset form of the integer sum is that of
microsoft/BitNet src/ggml-bitnet-mad.cpp.  With a scale per group of weights along K there is one such sum for
each group.
"""

cdef enum:
    MANY_TOKENS = 16        # below, no target takes more rows at once


cdef const float *basis_signs(int64_t block, signs, int64_t k) except? NULL:
    cdef const float[::1] values = signs
    if block < LEAST_BASIS or block & (block - 1) or k % block or (signs is not None and values.shape[0] != k):
        raise ValueError(f"a basis of blocks of {block} does not fit rows of {k}")
    return NULL if signs is None else &values[0]


cdef inline int64_t sums(int64_t n_token, int64_t n_row) noexcept nogil:
    """A number of integers, rounded up to whole cache lines."""
    return (n_token * n_row + 15) // 16 * 16


cdef int64_t accumulators(int64_t n_token, int64_t n_row) noexcept nogil:
    """The size of the sums of a pass, followed by the working memory of the kernel."""
    cdef int64_t few = min(<int64_t>FEW_ROWS, n_row), many = min(<int64_t>MANY_ROWS, n_row)
    cdef int64_t n = sums(min(n_token, <int64_t>MANY_TOKENS - 1), few) + MATMUL_WORK(few) // 4
    return n if n_token < MANY_TOKENS else max(n, sums(n_token, many) + MATMUL_WORK(many) // 4)


cdef void project(
    const kernels *kernel, const matrix *w, const activations *a, int64_t row0, int64_t row1,
    bint accumulate, int32_t *acc, float *out, int64_t ld_out) noexcept nogil:
    cdef int64_t n_row, row, t, n_pass, tile = FEW_ROWS if a.n_token < kernel.many_tokens else MANY_ROWS
    if w.dense != NULL:
        project_dense(kernel, w, a, row0, row1, accumulate, acc, out, ld_out)
        return
    if w.group_bytes:
        project_groups(kernel, w, a, row0, row1, accumulate, acc, out, ld_out)
        return
    n_pass = (row1 - row0 + tile - 1) // tile
    tile = ((row1 - row0 + n_pass - 1) // n_pass + 15) // 16 * 16  # equal passes: a short one would cost as much
    row = row0
    while row < row1:
        n_row = min(tile, row1 - row)
        if a.n_token == 1:
            kernel.ternary_matvec(w.codes + row * w.n_block * TERNARY_BLOCK_BYTES, n_row, w.n_block, a.x8, acc)
        else:
            # x8 rows are ld_x8 apart; the kernel wants n_block*128, and every caller pads to exactly that
            kernel.ternary_matmul(
                w.codes + row * w.n_block * TERNARY_BLOCK_BYTES, n_row, w.n_block, a.x8, a.n_token, acc, n_row,
                acc + sums(a.n_token, n_row))
        for t in range(a.n_token):
            kernel.scale_sums(
                acc + t * n_row, n_row, a.sum[t], a.s[t], w.scale + row * w.scale_step, w.scale_step, accumulate,
                out + t * ld_out + row)
        row += n_row


cdef void project_groups(
    const kernels *kernel, const matrix *w, const activations *a, int64_t row0, int64_t row1,
    bint accumulate, int32_t *acc, float *out, int64_t ld_out) noexcept nogil:
    """Scales per group along K. Activations with a single scale, which groups of 128 take, get it for every group, one
    token at a time.
    """
    cdef int64_t n = w.n_block, t, g
    cdef int e
    cdef int32_t *sum = acc                     # [n]
    cdef float *d = <float *>(acc + n)          # [n]
    cdef int8_t *q = <int8_t *>(acc + 2 * n)    # [n][GROUP], in the order of quantize_groups
    cdef const int8_t *x                        # [GROUP]
    if a.group:
        group_rows(kernel, w, a.x8, a.s, a.sum, a.n_token, row0, row1, accumulate, out + row0, ld_out, acc)
        return
    for t in range(a.n_token):
        for g in range(n):
            x = a.x8 + t * a.ld_x8 + g * GROUP
            sum[g] = 0
            d[g] = 1 / a.s[t]
            for e in range(GROUP):
                q[g * GROUP + place_in_group(GROUP, e)] = x[e]
                sum[g] += x[e]
        group_rows(kernel, w, q, d, sum, 1, row0, row1, accumulate, out + t * ld_out + row0, ld_out, NULL)


cdef void group_rows(
    const kernels *kernel, const matrix *w, const int8_t *q, const float *d, const int32_t *sum, int64_t n_token,
    int64_t row0, int64_t row1, bint accumulate, float *out, int64_t ld_out, void *work) noexcept nogil:
    if w.panels:
        kernel.panel_matmul(
            w.codes, row0, row1, w.n_block, w.group, w.n_plane, q, d, sum, n_token, accumulate, out, ld_out)
    else:
        kernel.group_matmul(
            w.codes + row0 * w.n_block * w.group_bytes, w.group_bytes, row1 - row0, w.n_block, q, d, sum, n_token,
            accumulate, out, ld_out, work)


cdef void project_dense(
    const kernels *kernel, const matrix *w, const activations *a, int64_t row0, int64_t row1,
    bint accumulate, int32_t *acc, float *out, int64_t ld_out) noexcept nogil:
    """A float projection in a ternary model: with float activations, since the file's maker left it unquantised."""
    cdef int64_t row, n_row, r, t
    cdef float *y = <float *>acc    # [FEW_ROWS]
    row = row0
    while row < row1:
        n_row = min(<int64_t>FEW_ROWS, row1 - row)
        for t in range(a.n_token):
            kernel.head_f32(w.dense + row * w.k, n_row, w.k, a.x + t * a.ld_x, y)
            for r in range(n_row):
                if accumulate:
                    out[t * ld_out + row + r] += y[r]
                else:
                    out[t * ld_out + row + r] = y[r]
        row += n_row
