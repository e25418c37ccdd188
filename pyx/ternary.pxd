# ternary: packed ternary matrices and the projection y = W x over them.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from pyx.cpu cimport kernels
from pyx.memory cimport Arena

cdef struct matrix:
    const uint8_t *codes    # [n_row][n_block * 32]; NULL for a dense matrix
    const float *dense      # [n_row][k]; NULL for a ternary matrix
    const float *scale      # [n_row or 1][n_group]
    int64_t n_row
    int64_t k
    int64_t n_block
    int64_t scale_step      # floats between the scales of two rows; 0: one scale for all
    int64_t n_group         # scale groups along k, 1 for most models
    int64_t group_blocks    # blocks of 128 per group

# One batch of activations, quantised once and used by several projections.
cdef struct activations:
    int64_t n_token
    const int8_t *x8        # [n_token][ld_x8], zero beyond k
    int64_t ld_x8
    const float *s          # [n_token]  127 / absmax
    const int32_t *sum      # [n_token]  sum of x8
    const float *x          # [n_token][ld_x]  before quantisation, for dense matrices
    int64_t ld_x

cdef enum:
    ROW_TILE = 64           # rows per pass: int32 accumulators of one tile stay in the L1 cache

# out[t][r] (+)= W[r] . x[t] for rows row0 <= r < row1; acc [n_token][ROW_TILE] is scratch of the calling thread
cdef void project(
    const kernels *kernel, const matrix *w, const activations *a, int64_t row0, int64_t row1,
    bint accumulate, int32_t *acc, float *out, int64_t ld_out) noexcept nogil

cdef class TernaryMatrix:
    cdef matrix m
    cdef object owner       # whoever owns the codes: an Arena, or the buffer of a mapped file
    cdef Arena scale_arena  # float32 scales, or the dense rows
    cdef readonly bint mapped
    cdef _fill(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, str layout, bint quantize)
    cdef _expect(self, Py_ssize_t got, int64_t want, str type)
    cdef uint8_t *_new_codes(self) except NULL
    cdef _set_scales(self, scales, int64_t step, int64_t n_group)
    cdef _from_tq(self, str type, const uint8_t *src, Py_ssize_t n_byte, float scale)
    cdef _from_floats(self, str type, data, float scale, bint quantize)
    cdef _block_scales(self, const float *low, const float *high, int64_t length)
    cdef _sign_codes(self, const float *w)
