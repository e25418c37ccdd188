# tokens: logits with their ids, and the heap that keeps the best of them.
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t


cdef struct Candidate:
    float logit
    int32_t id


cdef inline bint worse(Candidate a, Candidate b) noexcept nogil:
    return a.logit < b.logit or (a.logit == b.logit and a.id > b.id)


cdef inline void sift_down(Candidate *heap, int64_t i, int64_t n) noexcept nogil:
    """Restore the heap (worst at the root) below i."""
    cdef Candidate moving = heap[i]
    cdef int64_t child
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and worse(heap[child + 1], heap[child]):
            child += 1
        if not worse(heap[child], moving):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = moving


cdef inline void heapify(Candidate *heap, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(n // 2 - 1, -1, -1):
        sift_down(heap, i, n)


cdef inline void sort_heap(Candidate *heap, int64_t n) noexcept nogil:
    """Sort the heap: best first."""
    cdef int64_t last
    cdef Candidate c
    for last in range(n - 1, 0, -1):
        c = heap[0]
        heap[0] = heap[last]
        heap[last] = c
        sift_down(heap, 0, last)


cdef inline int64_t offer(Candidate *heap, int64_t n, int64_t most, float logit, int32_t id) noexcept nogil:
    """Insert a candidate into the best ``most``, of which n are held.  Returns the new n.

    It becomes a heap when it is full.  Ids are offered in ascending order, so that of equals the lower one stays.  NaN
    and -inf are never taken.
    """
    if n < most:
        if logit > -INFINITY:
            heap[n].logit = logit
            heap[n].id = id
            n += 1
            if n == most:
                heapify(heap, n)
    elif logit > heap[0].logit:
        heap[0].logit = logit
        heap[0].id = id
        sift_down(heap, 0, n)
    return n
