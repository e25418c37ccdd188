# residency: experts that are read from a file's map, within a bound of memory.
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    PARTS = 3   # stacked matrices of a layer: gate, up, down

# A stacked matrix: experts of nbytes each, one after the other.
cdef struct stack:
    const uint8_t *data
    int64_t nbytes

cdef struct residency:
    int64_t n_layer, n_expert
    stack *stacks       # [n_layer][PARTS]
    uint8_t *asked      # [n_layer][n_expert] whether the system was asked for an expert since its layer was released
    int64_t ceiling     # bytes of files that the process may have in memory
    int statm           # an open file: /proc/self/statm

# The experts of a layer of which first [n_expert + 1] differs from the next number will be read now: release others
# while too much is in memory, and ask the system for them. One thread calls it while none reads experts.
cdef void bring(residency *r, int64_t layer, const int64_t *first) noexcept nogil

cdef class Residency:
    cdef residency r
    cdef list owners
