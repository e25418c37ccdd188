# kv: the KV pages of one session.
from libc.stdint cimport int64_t, uint8_t, uint32_t

from pyx.memory cimport Arena
from pyx.page cimport page_format

# Everything attention needs, without Python objects.
cdef struct pages:
    int64_t n_layer
    int64_t n_kv_head
    int64_t head_dim
    int64_t window          # tokens attended behind the sinks; n_ctx when everything is kept
    int64_t sinks           # first tokens that stay attended for ever
    int64_t sink_pages      # pages that hold them, pinned, never quantised
    int64_t ring_pages      # physical pages per layer and head behind the sink pages
    page_format unsealed    # sink pages and the open page: floats
    page_format sealed      # pages of the ring
    bint quantised          # ring pages are sealed once; the open page is apart
    uint8_t *sink           # [n_layer][n_kv_head][sink_pages][unsealed.bytes]
    uint8_t *ring           # [n_layer][n_kv_head][ring_pages][sealed.bytes]
    uint8_t *open           # [n_layer][n_kv_head][unsealed.bytes]; NULL unless quantised

# Where page number `page` (position // 32) of a head lies, and its format.  open_page: the page being written.
cdef uint8_t *locate(
    const pages *p, int64_t layer, int64_t head, int64_t page, int64_t open_page,
    const page_format **format) noexcept nogil
# Bit t set: token 32*page + t is attended by the query at position pos.
cdef uint32_t attended(const pages *p, int64_t page, int64_t pos) noexcept nogil
# First page (behind the sink pages) that the query at pos attends.
cdef int64_t first_page(const pages *p, int64_t pos) noexcept nogil

cdef class KVCache:
    cdef pages p
    cdef Arena arena
    cdef readonly int64_t n_ctx, n_tokens
    cdef int64_t oldest     # pages of the ring below this number have been overwritten
    cdef readonly str kv_type
    cdef bint windowed
    cdef int64_t advance(self, int64_t n) except -1
