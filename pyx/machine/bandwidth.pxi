"""bandwidth: how fast this machine reads memory, for comparison in `bitnet-edge bench`."""

cdef extern from "kernels.h" nogil:
    uint64_t sum_words(const uint64_t *x, int64_t n, int n_thread, int way)

#: ways to read memory, as kernels.h numbers them: in order; in order, with lines fetched ahead into the first-level
#: cache, into it to be replaced first, or into the second level; four runs side by side
WAYS = ("plain", "L1", "once", "L2", "streams")


def sum_of(const unsigned char[::1] data not None, int n_threads, str way not None="plain"):
    """Sum modulo 2^64 of ``data`` as native 8-byte words (a remainder of fewer than 8 bytes is left out).  Reads every
    byte once with ``n_threads`` threads, each its own part, in one of WAYS, and does almost nothing else.

    Raises ValueError for threads below 1, an unknown way, and data that does not start at a multiple of 8.
    """
    cdef int64_t n = data.shape[0] // 8
    cdef const uint64_t *words
    cdef uint64_t total
    cdef int number = WAYS.index(way)
    if n_threads < 1:
        raise ValueError(f"{n_threads} threads: at least 1 is needed")
    if n == 0:
        return 0
    words = <const uint64_t *>&data[0]
    if <size_t>words % 8:
        raise ValueError("the data must start at a multiple of 8 bytes")
    n_threads = claim(n_threads)
    with nogil:
        total = sum_words(words, n, n_threads, number)
    return total
