# stored_rows: the rows of a matrix of a float type, as its file stores them: the embedding.
from libc.stdint cimport int64_t, uint8_t

from pyx.memory cimport Arena

cdef extern from "kernels.h" nogil:
    enum stored_type:
        STORED_F32, STORED_F16, STORED_BF16, STORED_Q8_0, STORED_Q6_K, STORED_Q4_0, STORED_Q4_K, STORED_Q2_0
        STORED_PQ2_0, STORED_PQ2_0_R64, STORED_Q4_1, STORED_Q5_0, STORED_Q5_1, STORED_Q5_K, STORED_Q1_0, STORED_Q1_0_G32

cdef class StoredRows:
    cdef const uint8_t *data      # [n_row / together][unit_bytes], the last unit whole
    cdef object owner
    cdef int type_id
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
    # a row out of the file, if there is one, else out of the map, into out [k]: for callers that read few rows
    cdef void read_row(self, int64_t row, int tid, float *out) noexcept nogil
    # offset of the unit that holds a row
    cdef int64_t unit(self, int64_t row) noexcept nogil
