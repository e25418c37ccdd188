# ternary: packed ternary matrices.
from libc.stdint cimport int64_t, uint8_t

from pyx.memory cimport Arena
from pyx.projection cimport matrix

# ValueError unless n groups, of rows or of panels, have finite scales, one for each 128 weights.
cdef check_groups(const uint8_t *rows, int group_bytes, int64_t n, bint panels=*)

cdef class TernaryMatrix:
    cdef matrix m
    cdef object owner       # the owner of the codes: an Arena, or the buffer of a mapped file
    cdef Arena scale_arena  # float32 scales, or the dense rows
    cdef readonly bint mapped
    cdef _fill(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale, str layout, bint quantize)
    cdef _expect(self, Py_ssize_t got, int64_t want, str type)
    cdef uint8_t *_new_codes(self) except NULL
    cdef _set_scales(self, scales, int64_t step)
    cdef _regroup(self, const float *scales, int64_t step, int64_t share)
    cdef _own_groups(self, Arena arena)
    cdef Arena _rows(self)
    cdef _from_q2(self, str type, data, const uint8_t *src, Py_ssize_t n_byte, float scale)
    cdef _from_panels(self, data, const uint8_t *src, Py_ssize_t n_byte, float scale)
    cdef _multiply(self, float scale)
    cdef _from_bn(self, str type, const uint8_t *src, Py_ssize_t n_byte, float scale)
    cdef _from_tq(self, str type, const uint8_t *src, Py_ssize_t n_byte, float scale)
    cdef _from_floats(self, str type, data, float scale, bint quantize)
    cdef _block_scales(self, const float *low, const float *high, int64_t length)
    cdef _sign_codes(self, const float *w)
