# pool: pages that the caches of one plan share.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "refs.h" nogil:
    bint ref_take(int32_t *ref)
    int32_t ref_get(const int32_t *ref)
    void ref_set(int32_t *ref, int32_t n)
    int32_t ref_add(int32_t *ref, int32_t n)
    int64_t count_get(const int64_t *count)
    void count_set(int64_t *count, int64_t n)
    int64_t count_add(int64_t *count, int64_t n)

cdef enum:
    MAX_SLABS = 4096

# A page's id is slab << shift | place.  Places [0, n_float) of a slab hold float pages, [n_float, n_place) ring pages.
cdef struct slabs:
    int64_t n_float
    int64_t n_place
    int64_t float_bytes         # of one page
    int64_t ring_bytes
    int shift
    int64_t n_slab              # slabs ever mapped; those given back have no data
    int64_t float_used          # pages in use, of each kind
    int64_t ring_used
    int64_t float_touched       # pages in use, and those whose memory was not given back after use
    int64_t ring_touched
    uint8_t *data[MAX_SLABS]    # float pages, then ring pages
    int32_t *refs[MAX_SLABS]    # [n_place] block tables that refer to the page; 0: it is free
    uint8_t *touched[MAX_SLABS] # [n_place] it takes memory

# Address of a page.
cdef inline uint8_t *page_at(const slabs *pool, int32_t id) noexcept nogil:
    cdef int64_t place = id & ((<int64_t>1 << pool.shift) - 1)
    cdef uint8_t *data = pool.data[id >> pool.shift]
    if place < pool.n_float:
        return data + place * pool.float_bytes
    return data + pool.n_float * pool.float_bytes + (place - pool.n_float) * pool.ring_bytes

# Whether it is a page of the ring.
cdef inline bint is_ring(const slabs *pool, int32_t id) noexcept nogil:
    return (id & ((<int64_t>1 << pool.shift) - 1)) >= pool.n_float

# Number of block tables that refer to the page.
cdef int32_t references(const slabs *pool, int32_t id) noexcept nogil
# Id of a free page among places [first, first + n), now named once; place first + hint of slab `own` where that is
# free.  -1 if none is.
cdef int32_t take_page(slabs *pool, int64_t own, int64_t first, int64_t n, int64_t hint) noexcept nogil
# Another block table refers to the page.
cdef void share_page(slabs *pool, int32_t id) noexcept nogil
# A block table no longer refers to the page; the last one frees it.
cdef void release_page(slabs *pool, int32_t id) noexcept nogil

cdef class PagePool:
    cdef slabs s
    cdef list arenas            # one [data, refs] per slab; data None for those given back
    cdef list owned             # a cache uses the slab
    cdef bint huge
    cdef public object limit    # most bytes of pages in use, None: no limit
    cdef int64_t states         # bytes of the states of gated delta layers, which count as pages do
    cdef int64_t admit(self, int64_t n_float, int64_t n_ring, int64_t float_bytes, int64_t ring_bytes) except -1
    cdef leave(self, int64_t slab)
    cpdef trim(self)
    cdef _give_back(self, int64_t slab)
    cdef _untouch(self, int64_t slab, int64_t first, int64_t last)
    cdef uint8_t *_where(self, int64_t slab, int64_t place)
    cdef view(self, int64_t id, int64_t n)
