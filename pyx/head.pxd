# head: the output head.
from libc.stdint cimport int8_t, int16_t, int64_t, uint8_t, uint16_t

from pyx.cpu cimport kernels
from pyx.memory cimport Arena
from pyx.table cimport Table

cdef enum head_kind:
    HEAD_INT8, HEAD_F16, HEAD_F32

cdef class Head:
    cdef readonly str kind
    cdef readonly int64_t n_row, k
    cdef readonly bint mapped
    cdef head_kind kind_id
    cdef object owner
    cdef Arena weights, scale_arena
    cdef const void *rows         # int8, half or float [n_row][k]
    cdef const float *scale       # [n_row], int8 only
    cdef _build(self, Table table, int n_threads)
    # logits[row0..row1) of one hidden vector; x [k] float, x16 [k] and s from quantize_i16 (int8 only)
    cdef void logits(
        self, const kernels *kernel, int64_t row0, int64_t row1, const float *x, const int16_t *x16, float s,
        float *out) noexcept nogil
