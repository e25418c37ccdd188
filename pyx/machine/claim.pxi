"""claim: the threads of parallel regions.

A caller has threads of its own for its parallel regions.  Before each region it claims them (claim.h): where the system
starts fewer, the region has fewer, and gives the same bits.
"""

cdef extern from "claim.h":
    int claim_threads(int n)
    int threads_to_start(int n)


cdef int claim(int n) noexcept:
    return claim_threads(n)


def startable(int n):
    """How many threads, at most ``n`` and at most 1024, the system starts now, besides those that run."""
    return threads_to_start(n)
