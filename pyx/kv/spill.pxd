# spill: pages that have left a window, in a file, so that crop can restore them.
from libc.stdint cimport int64_t, uint8_t, uint64_t

# Pages [first, next) of a stream are in the file; a page has one place there, which later ones reuse.
cdef struct spill:
    int64_t broken          # 0, or what went wrong, an errno: nothing is written or read from then on
    int64_t n_stream
    int64_t slots           # pages of one stream that the file has room for
    int64_t page_bytes
    int64_t written         # bytes, in all
    int64_t read
    int64_t *first          # [n_stream]
    int64_t *next           # [n_stream]
    uint64_t *sums          # [slots][n_stream] of the pages as they were written
    int fd                  # -1: no file yet

# Page `number` of a stream leaves the window.
cdef void write_behind(spill *f, int64_t stream, int64_t number, const uint8_t *page) noexcept nogil
# Restore the page; False if it is not in the file or has changed there.
cdef bint read_back(spill *f, int64_t stream, int64_t number, uint8_t *page) noexcept nogil
# First page of a stream from which all before `number` can be read back; `number` if there is none.
cdef int64_t reaches(const spill *f, int64_t stream, int64_t number) noexcept nogil
# Pages from `number` on will be replaced.
cdef void outdate(spill *f, int64_t stream, int64_t number) noexcept nogil

cdef class Spill:
    cdef spill s
    cdef readonly str folder
    cdef object file, arena
    cdef open(self)
