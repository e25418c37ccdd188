# ternary: packed ternary matrices.
from libc.stdint cimport int64_t, uint8_t

from pyx.machine.memory cimport Arena
from pyx.weights.projection cimport matrix

# Raise ValueError unless n groups have finite scales, one for each 128 weights. rows: [n][group_bytes], or with panels,
# the weights of their groups, [n][PANEL_BYTES(panels)], each the groups of 64 rows.
cdef check_groups(const uint8_t *rows, int group_bytes, int64_t n, int panels=*)

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
    cdef _expect(self, Py_ssize_t got, int64_t want, str type)
    cdef uint8_t *_new_codes(self) except NULL
    cdef _set_scales(self, scales, int64_t step)
    # scales: [n_row or 1][n_block / share], rows step floats apart.
    cdef _regroup(self, const float *scales, int64_t step, int64_t share)
    # arena: [n_row][n_block][GROUP_WHOLE].
    cdef _own_groups(self, Arena arena)
    cdef Arena _rows(self)
    cdef _from_q2(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, bint check)
    cdef _from_panels(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, bint check)
    cdef _multiply(self, float scale)
    cdef _from_blocks(self, str type, const uint8_t *src, Py_ssize_t n_byte, float scale)
    cdef _from_floats(self, str type, data, float scale, bint quantize)
    # low, high: [n_row][n_block], the least and the largest magnitude that is not zero.
    cdef _block_scales(self, const float *low, const float *high, int64_t length)
    # w: [n_row][k].
    cdef _sign_codes(self, const float *w)
