# stored_rows: the rows of a matrix of a float type, as its file stores them: the embedding.
from libc.stdint cimport int64_t, uint8_t

from pyx.machine.memory cimport Arena

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
    # a row out of the file, if there is one, else out of the map, into out [k]: for callers that read few rows
    cdef void read_row(self, int64_t row, int tid, float *out) noexcept nogil
    # offset of the unit that holds a row
    cdef int64_t unit(self, int64_t row) noexcept nogil
