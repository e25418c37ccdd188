# projection: y = W x for a range of rows and a batch of activations.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from pyx.machine.cpu cimport kernels

cdef struct matrix:
    const uint8_t *codes    # [n_row][n_block * 32], groups [n_row][n_block * group_bytes] or panels; NULL: dense
    const float *dense      # [n_row][k]; NULL for a ternary matrix
    const float *scale      # [n_row or 1]; NULL if groups store theirs
    int64_t n_row
    int64_t k
    int64_t n_block         # blocks along k, or groups of a plane
    int64_t scale_step      # floats between the scales of two rows; 0: one scale for all
    int group_bytes         # of a row of a group, with its scale: GROUP_WHOLE, GROUP_PAIR, or that of its panels; 0: a
                            # scale for a row at least
    int group               # weights of a group: GROUP, or in panels also 32 and 64
    int n_plane             # ternary matrices whose sum it is; more than one only in panels
    bint panels             # for panel_matmul: [(n_row + 63) / 64][n_block][n_plane][PANEL_BYTES(group)]
    int64_t basis           # block of the basis in which its rows are stored (kernels.h, change_basis); 0: none
    const float *signs      # [k] of that basis, or NULL

# One batch of activations, quantised once and used by several projections.
cdef struct activations:
    int64_t n_token
    int group               # values that share a scale, for matrices with such groups (quantize_groups); 0: all do
    const int8_t *x8        # [n_token][ld_x8], zero beyond k
    int64_t ld_x8
    const float *s          # [n_token]  127 / absmax; groups: absmax / 127 [n_token][ld_x8 / group]
    const int32_t *sum      # [n_token]  sum of x8; groups: [n_token][ld_x8 / group]
    const float *x          # [n_token][ld_x]  before quantisation, for dense matrices
    int64_t ld_x
    const float *plain      # as x, before they were turned into the basis of the matrices

cdef enum:
    MANY_TOKENS = 16        # below, no target takes more rows at once

# out[t][r - row0] (+)= W[r] . x[t] for rows row0 <= r < row1 of a matrix with groups, of activations as quantize_groups
# gives them: q [n_token][n_block][group], d and sum [n_token][n_block]; out [n_token][ld_out]; work: GROUP_WORK
# bytes, or NULL for one token
cdef void group_rows(
    const kernels *kernel, const matrix *w, const int8_t *q, const float *d, const int32_t *sum, int64_t n_token,
    int64_t row0, int64_t row1, bint accumulate, float *out, int64_t ld_out, void *work) noexcept nogil

# Integers of working memory that project() needs for up to n_token tokens and n_row rows, on a cache line.
cdef int64_t accumulators(int64_t n_token, int64_t n_row) noexcept nogil

# out[t][r] (+)= W[r] . x[t] for rows row0 <= r < row1; out [n_token][ld_out]; acc [accumulators(..)] is scratch of the
# calling thread
cdef void project(
    const kernels *kernel, const matrix *w, const activations *a, int64_t row0, int64_t row1,
    bint accumulate, int32_t *acc, float *out, int64_t ld_out) noexcept nogil
