"""projection: y = W x over packed ternary (or left-over dense) matrices, a range of rows at a time.

y = (sum code * x8 - sum x8) / s * scale, integers exact; the offset form of the integer sum is that of
microsoft/BitNet src/ggml-bitnet-mad.cpp.
"""

from libc.stdint cimport int8_t, int32_t, int64_t

from pyx.cpu cimport MANY_ROWS, MATMUL_WORK, TERNARY_BLOCK, TERNARY_BLOCK_BYTES, kernels


cdef inline int64_t sums(int64_t n_token, int64_t n_row) noexcept nogil:
    """Integers up to the next cache line."""
    return (n_token * n_row + 15) // 16 * 16


cdef int64_t accumulators(int64_t n_token, int64_t n_row) noexcept nogil:
    """The sums of a pass, then the working memory of the kernel."""
    cdef int64_t few = min(<int64_t>ROW_TILE, n_row), many = min(<int64_t>MANY_ROWS, n_row)
    cdef int64_t n = sums(min(n_token, <int64_t>MANY_TOKENS - 1), few) + MATMUL_WORK(few) // 4
    return n if n_token < MANY_TOKENS else max(n, sums(n_token, many) + MATMUL_WORK(many) // 4)


cdef void project(
    const kernels *kernel, const matrix *w, const activations *a, int64_t row0, int64_t row1,
    bint accumulate, int32_t *acc, float *out, int64_t ld_out) noexcept nogil:
    cdef int64_t n_row, row, t, n_pass, tile = ROW_TILE if a.n_token < MANY_TOKENS else MANY_ROWS
    if w.dense != NULL:
        project_dense(kernel, w, a, row0, row1, accumulate, acc, out, ld_out)
        return
    if w.n_group > 1:
        project_grouped(kernel, w, a, row0, row1, accumulate, acc, out, ld_out)
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


cdef void project_grouped(
    const kernels *kernel, const matrix *w, const activations *a, int64_t row0, int64_t row1,
    bint accumulate, int32_t *acc, float *out, int64_t ld_out) noexcept nogil:
    """Scales per group along K: integer sums per block, floats per group in ascending order.

    acc has room for 2 * n_block values at least (scratch.pyx sees to it).
    """
    cdef int64_t row, t, b, g, i
    cdef int32_t part
    cdef float y
    cdef int32_t *block_sum = acc + w.n_block
    cdef const int8_t *x
    cdef const float *scale
    for t in range(a.n_token):
        x = a.x8 + t * a.ld_x8
        for b in range(w.n_block):
            block_sum[b] = 0
            for i in range(TERNARY_BLOCK):
                block_sum[b] += x[b * TERNARY_BLOCK + i]
        for row in range(row0, row1):
            kernel.ternary_blocks(w.codes + row * w.n_block * TERNARY_BLOCK_BYTES, w.n_block, x, acc)
            scale = w.scale + row * w.scale_step
            y = 0
            for g in range(w.n_group):
                part = 0
                for b in range(g * w.group_blocks, min((g + 1) * w.group_blocks, w.n_block)):
                    part += acc[b] - block_sum[b]
                y += <float>part * scale[g]
            y = y / a.s[t]
            if accumulate:
                out[t * ld_out + row] += y
            else:
                out[t * ld_out + row] = y


cdef void project_dense(
    const kernels *kernel, const matrix *w, const activations *a, int64_t row0, int64_t row1,
    bint accumulate, int32_t *acc, float *out, int64_t ld_out) noexcept nogil:
    """A float projection in a ternary model: float activations, as the file's maker left it unquantised."""
    cdef int64_t row, n_row, r, t
    cdef float *y = <float *>acc
    row = row0
    while row < row1:
        n_row = min(<int64_t>ROW_TILE, row1 - row)
        for t in range(a.n_token):
            kernel.head_f32(w.dense + row * w.k, n_row, w.k, a.x + t * a.ld_x, y)
            for r in range(n_row):
                if accumulate:
                    out[t * ld_out + row + r] += y[r]
                else:
                    out[t * ld_out + row + r] = y[r]
        row += n_row
