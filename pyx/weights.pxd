# weights: the matrices of a model, and y = W x for a range of rows and a batch of activations.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from pyx.machine cimport Arena, kernels

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

# Signs [k] or NULL of a rotated basis (kernels.h, change_basis) in blocks, of a buffer that the caller keeps.  Raises
# ValueError if it does not fit rows of k.
cdef const float *basis_signs(int64_t block, signs, int64_t k) except? NULL

cdef extern from "kernels.h" nogil:
    struct row_type:
        const char *name
        int span
        int bytes
        int levels
        int together
        void (*decode)(const uint8_t *, int64_t, int64_t, float *) noexcept nogil
    const row_type *row_types

cdef class StoredRows:
    cdef const uint8_t *data      # [n_row / together][unit_bytes], the last unit whole
    cdef object owner
    cdef const row_type *decoded  # how
    cdef bint halves              # whether they are half floats at even addresses
    cdef readonly str type
    cdef readonly int64_t n_row, k, row_bytes
    cdef int64_t together         # rows that are stored side by side, a unit
    cdef int64_t unit_bytes       # together * row_bytes
    cdef int fd                   # file from which rows are read; -1: the map
    cdef int64_t offset           # of the first row in that file
    cdef Arena rows               # [n_threads][row_step] a unit as it is stored
    cdef int64_t row_step
    cdef readonly int n_threads   # that may read rows at once
    # a row out of the map into out [k]: for callers that read all rows
    cdef void row_into(self, int64_t row, float *out) noexcept nogil
    # rows [first, stop) of the map will be read at once: their pages come together, not one by one (half the time)
    cdef void bring(self, int64_t first, int64_t stop) noexcept nogil
    # rows [first, stop) of the map will not be read again soon: their pages no longer count as memory of this process
    cdef void let_go(self, int64_t first, int64_t stop) noexcept nogil
    cdef void advise(self, int64_t first, int64_t stop, int advice) noexcept nogil
    # a row out of the file, if there is one, else out of the map, into out [k]: for callers that read few rows
    cdef void read_row(self, int64_t row, int tid, float *out) noexcept nogil
    # offset of the unit that holds a row
    cdef int64_t unit(self, int64_t row) noexcept nogil

cdef class TernaryMatrix:
    cdef matrix m
    cdef object signs           # float32 [k], to which m.signs points
    cdef object owner           # of the codes: an Arena, or the buffer of a mapped file
    cdef Arena scale_arena      # float32 scales [n_row or 1], or the dense rows [n_row][k]; None for groups
    cdef readonly bint mapped   # the codes are used directly from the file's map
    # src [n_byte]: the stored bytes; data: the object that owns them.
    cdef _fill(
        self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, str layout, bint quantize,
        bint check)
    cdef uint8_t *_new_codes(self) except NULL
    # scales: [n_row or 1][n_block / share], rows step floats apart.
    cdef _regroup(self, const float *scales, int64_t step, int64_t share)
    cdef _from_q2(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, bint check)
    cdef _from_panels(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, bint check)
    cdef _from_blocks(self, str type, const uint8_t *src, Py_ssize_t n_byte, float scale)
    cdef _from_floats(self, str type, data, float scale, bint quantize)
    # low, high: [n_row][n_block], the least and the largest magnitude that is not zero.
    cdef _block_scales(self, const float *low, const float *high, int64_t length)
    # w: [n_row][k].
    cdef _sign_codes(self, const float *w)
